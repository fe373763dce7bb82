"""Writing files and folders whole or not at all, and keeping two runs from writing the same one.

What is written appears under its name only when it is whole.  Until then it lies beside it under a random name,
`.NAME.0123456789abcdef.tmp`, locked by the process that writes it; those of dead processes are removed by the next
one that writes into the folder.  A symbolic link stays: its target is replaced.  Standard output (`-`,
`/dev/stdout`), other open descriptors (`/dev/fd/N`), devices and FIFOs are written in place.
"""

from __future__ import annotations

import errno
import fcntl
import gzip
import io
import lzma
import os
import re
import secrets
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO, Any, cast

from lm_zoo.errors import WriteError

GZIP_LEVEL = 6  # level 9 takes three times as long for 1 % less
ATTEMPTS = 100  # at a new name or a lock, while other processes take them away
MOST_SWEPT = 1000  # folders that are known to have been looked through
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)  # only writing fails by these

_TEMPORARY = re.compile(r"\.(.*)\.[0-9a-f]{16}\.tmp")
_DESCRIPTOR = re.compile(r"-|/dev/std(?:out|err)|(?:/dev|/proc/self)/fd/(\d+)")
_swept: set[Path] = set()  # folders in which this process has looked for what dead ones left


@contextmanager
def atomic_text(path: str | Path) -> Iterator[IO[str]]:
    """Opens a text file for writing that appears under `path` only when the block ends without an error.

    `.gz` and `.xz` are compressed; the bytes depend on the text alone (no time, no file name inside).

    Raises:
      WriteError: as `atomic_path`.
    """
    with atomic_binary(path) as binary:
        stream = io.TextIOWrapper(binary, encoding="utf-8", newline="\n")
        try:
            yield stream
        finally:
            stream.detach()  # written out, but not closed


@contextmanager
def atomic_binary(path: str | Path) -> Iterator[IO[bytes]]:
    """As `atomic_text`, for bytes."""
    with ExitStack() as stack:
        if is_in_place(path):
            binary: Any = stack.enter_context(_written_in_place(path))
        else:
            binary = stack.enter_context(open(stack.enter_context(atomic_path(path)), "wb"))
        suffix = Path(path).suffix
        if suffix == ".gz":
            packed = gzip.GzipFile(filename="", fileobj=binary, mode="wb", compresslevel=GZIP_LEVEL, mtime=0)
            binary = stack.enter_context(packed)
        elif suffix == ".xz":
            binary = stack.enter_context(lzma.open(binary, "wb"))
        yield binary


@contextmanager
def atomic_path(path: str | Path) -> Iterator[Path]:
    """Gives the path of an empty file beside `path` to write to; renames it on success, removes it on any error.

    Raises:
      WriteError: `path` is a folder or a socket, its own folder cannot be made, or the disk is full.
    """
    if is_in_place(path):
        with tempfile.TemporaryDirectory() as folder:
            yield (whole := Path(folder) / "whole")
            with open(whole, "rb") as source, _written_in_place(path) as stream:
                shutil.copyfileobj(source, stream)
        return
    with _temporary(path, is_folder=False) as temporary:
        yield temporary


@contextmanager
def atomic_folder(path: str | Path) -> Iterator[Path]:
    """Gives a temporary folder beside `path`; renames it to `path` on success, removes it on any error.

    Raises:
      WriteError: `path` exists and is not an empty folder, its own folder cannot be made, or the disk is full.
    """
    if _DESCRIPTOR.fullmatch(os.fspath(path)):
        raise WriteError(f"{path}: a folder is to be written, expected the name of a new one")
    if Path(path).exists() and (not Path(path).is_dir() or any(Path(path).iterdir())):
        raise WriteError(f"{path}: exists already; remove it first, or name a new folder")
    with _temporary(path, is_folder=True) as temporary:
        yield temporary


def write_text(path: str | Path, text: str) -> None:
    """Writes a file as `atomic_text`."""
    with atomic_text(path) as stream:
        stream.write(text)


def write_bytes(path: str | Path, data: bytes) -> None:
    """Writes a file as `atomic_binary`."""
    with atomic_binary(path) as stream:
        stream.write(data)


def save_torch(path: str | Path, contents: Any) -> None:
    """`torch.save`, whole or not at all."""
    import torch

    with atomic_binary(path) as stream:
        patient = _Patient(stream)
        torch.save(contents, cast(IO[bytes], patient))
        if patient.error is not None:
            raise patient.error


class _Patient:
    """A stream that keeps its error until torch has ended: one that goes through torch's own code ends the process."""

    def __init__(self, stream: IO[bytes]) -> None:
        self.stream = stream
        self.error: OSError | None = None

    def write(self, data: bytes) -> int:
        if self.error is None:
            try:
                self.stream.write(data)
            except OSError as error:
                self.error = error
        return len(data)

    def flush(self) -> None:
        """torch calls it; the stream is flushed when it is closed."""


def save_tensors(path: str | Path, tensors: dict[str, Any]) -> None:
    """Writes a file of safetensors, whole or not at all."""
    from safetensors.torch import save

    write_bytes(path, save(tensors))


def append_line(path: str | Path, line: str) -> None:
    """Appends a line to a text file, whole or not at all."""
    with _told(path), open(path, "ab", buffering=0) as stream:
        end, rest = stream.seek(0, os.SEEK_END), (line + "\n").encode()
        try:
            while rest:
                rest = rest[stream.write(rest) :]
        except OSError:
            stream.truncate(end)
            raise


def explain(error: OSError) -> str:
    """The line to show for an error of the system: the file, what is wrong with it, what to do."""
    if error.errno is None and str(error).endswith(" written"):  # numpy: "4000 requested and 43 written"
        return f"a file cannot be written ({error}); make room on the disk and run the command again"
    where = f"{_shown(error.filename)}: " if error.filename else ""
    return f"{where}{error.strerror or error}{_advice(error)}"


# -- locks -----------------------------------------------------------------------------------------------------------


@contextmanager
def locked(path: str | Path, shared: bool = False) -> Iterator[None]:
    """Holds a file or folder that is going to be written, so that no other process takes it until the block ends.

    Those that take it `shared` hold it together, and keep the others out.

    The lock is `.NAME.lock` beside it, or `.lock` in the folder itself where only that can be written.  The system
    lets it go when the process dies; nothing is held on a file system without locks.  What is written in place (see
    above) is not held.

    Raises:
      WriteError: another process holds it, or its folder cannot be written.
    """
    if not Path(path).is_dir() and is_in_place(path):
        yield
        return
    target = Path(os.path.realpath(path))
    made = _make_folders(target.parent, path)
    try:
        with _told(path, all_errors=True):
            lock, descriptor = _take_lock(target, path, shared)
        try:
            yield
        finally:
            if not shared or _lock(descriptor):  # of those that share it, the last one removes it
                lock.unlink(missing_ok=True)  # before it is let go, so that no other process holds what is removed
            os.close(descriptor)
    finally:
        _remove_empty(made)  # made for the lock alone, if the run has written nothing


def _take_lock(target: Path, path: str | Path, shared: bool) -> tuple[Path, int]:
    """The file and the open descriptor of the lock on `target`."""
    lock = target.with_name(f".{_short(target.name)}.lock") if target.name else target / ".lock"
    for _ in range(ATTEMPTS):
        try:
            descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
        except FileNotFoundError:  # another process has removed the folder that it had made
            _make_folders(lock.parent, path)
            continue
        except OSError:
            if not target.is_dir() or lock.parent == target:
                raise
            lock = target / ".lock"
            continue
        if _lock(descriptor, shared) is False:
            holder = os.read(descriptor, 1000).decode(errors="replace") or "another process"
            os.close(descriptor)
            raise WriteError(f"{path}: {holder} is writing it; wait until it has ended, or choose another name")
        if _is_there(lock, descriptor):
            with suppress(OSError):  # of a full disk, which the run itself may not need
                os.ftruncate(descriptor, 0)
                os.write(descriptor, f"process {os.getpid()} on {os.uname().nodename}".encode())
            return lock, descriptor
        os.close(descriptor)
    raise WriteError(f"{path}: cannot be written, its lock {lock} cannot be taken")


def _lock(descriptor: int, shared: bool = False) -> bool | None:
    """Locks an open file or folder; False: another process holds it; None: the file system has no locks."""
    try:
        fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


def _is_there(path: Path, descriptor: int) -> bool:
    """Whether an open file still has its name."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.lstat())
    except FileNotFoundError:
        return False


# -- what is written beside, and renamed ------------------------------------------------------------------------------


@contextmanager
def _temporary(path: str | Path, is_folder: bool) -> Iterator[Path]:
    """A new file or folder beside `path` (its target, if it is a link), which gets its name at the end."""
    target = Path(os.path.realpath(path))
    made = _make_folders(target.parent, path)
    try:
        _sweep(target.parent)
        with _told(path, all_errors=True):
            temporary, descriptor = _claim(target, is_folder)
        try:
            with _told(path):
                yield temporary
            with _told(path, all_errors=True):
                os.replace(temporary, target)
        finally:
            _remove(temporary)
            os.close(descriptor)
    finally:
        _remove_empty(made)


def _claim(target: Path, is_folder: bool) -> tuple[Path, int]:
    """A new file or folder beside `target`, and the open descriptor whose lock says that its process lives."""
    for _ in range(ATTEMPTS):
        temporary = target.with_name(f".{_short(target.name)}.{secrets.token_hex(8)}.tmp")
        flags = os.O_RDONLY | os.O_DIRECTORY if is_folder else os.O_RDWR | os.O_CREAT | os.O_EXCL
        target.parent.mkdir(parents=True, exist_ok=True)  # another process may have removed the folder it had made
        with suppress(FileExistsError, FileNotFoundError):
            if is_folder:
                temporary.mkdir()
            descriptor = os.open(temporary, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
            if _lock(descriptor) is not False and _is_there(temporary, descriptor):
                return temporary, descriptor
            os.close(descriptor)
    raise WriteError(f"{target}: cannot be written, found no free name beside it")


def _sweep(folder: Path) -> None:
    """Removes what dead processes left in a folder; once a folder, for it may hold many files."""
    if folder in _swept:
        return
    if len(_swept) >= MOST_SWEPT:  # a process that writes for days
        _swept.clear()
    _swept.add(folder)
    with suppress(OSError), os.scandir(folder) as entries:
        stale = [Path(entry.path) for entry in entries if _TEMPORARY.fullmatch(entry.name)]
        for path in stale:
            with suppress(OSError):
                descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
                if _lock(descriptor):
                    _remove(path)
                os.close(descriptor)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _remove_empty(folders: list[Path]) -> None:
    """Removes folders that nothing was written into, the innermost first."""
    for folder in folders:
        with suppress(OSError):
            folder.rmdir()


def _short(name: str) -> str:
    """A name that leaves room for what is put around it."""
    return os.fsdecode(os.fsencode(name)[:200])


def _make_folders(folder: Path, path: str | Path) -> list[Path]:
    """Makes a folder and those above it; returns those that were not there, the innermost first."""
    try:
        new = [part for part in (folder, *folder.parents) if not part.exists()]
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise WriteError(f"{path}: cannot be written, no folder {folder} ({error.strerror}){_advice(error)}") from None
    return new


# -- what is written in place -----------------------------------------------------------------------------------------


def is_in_place(path: str | Path) -> bool:
    """Whether a path names no regular file, but something to write into as it is.

    Raises:
      WriteError: it is a folder, or of a kind that cannot be written.
    """
    if _DESCRIPTOR.fullmatch(os.fspath(path)):
        return True
    try:
        mode = os.stat(path).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise WriteError(f"{path}: cannot be written ({error.strerror})") from None
    if stat.S_ISDIR(mode):
        raise WriteError(f"{path}: is a folder, expected the name of a file to write")
    if not (stat.S_ISREG(mode) or stat.S_ISCHR(mode) or stat.S_ISBLK(mode) or stat.S_ISFIFO(mode)):
        raise WriteError(f"{path}: is a socket or the like, expected the name of a file to write")
    return not stat.S_ISREG(mode)


@contextmanager
def _written_in_place(path: str | Path) -> Iterator[IO[bytes]]:
    match = _DESCRIPTOR.fullmatch(os.fspath(path))
    with _told(path):
        if match is not None and match[0] in ("-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"):
            sys.stdout.flush()
            yield sys.stdout.buffer
            sys.stdout.buffer.flush()
            return
        with _told(path, all_errors=True):
            target = path if match is None else os.dup(int(match[1] or 2))
        with open(target, "wb") as stream:
            yield stream


# -- errors -----------------------------------------------------------------------------------------------------------


@contextmanager
def _told(path: str | Path, all_errors: bool = False) -> Iterator[None]:
    """Errors of a full disk, or all errors of the system, as a WriteError that names `path`."""
    try:
        yield
    except OSError as error:
        if not all_errors and error.errno not in NO_ROOM:
            raise
        raise WriteError(f"{_shown(path)}: cannot be written ({error.strerror or error}){_advice(error)}") from None


def _shown(path: object) -> str:
    """A path as the user knows it, without the names that files have while they are written."""
    return "/".join(match[1] if (match := _TEMPORARY.fullmatch(part)) else part for part in str(path).split("/"))


def _advice(error: OSError) -> str:
    if error.errno in (errno.EMFILE, errno.ENFILE):
        return "; let a process have more open (ulimit -n 1024)"
    return "; make room on the disk and run the command again" if error.errno in (errno.ENOSPC, errno.EDQUOT) else ""
