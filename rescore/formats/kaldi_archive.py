"""Archives of Kaldi lattices, binary or text: one file, or a decoding folder with `lat.1.gz`, `lat.2.gz`, ...

A record is kept whole (see `rescore.formats.kaldi_fst`), so that copying binary archives gives the same bytes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from rescore.errors import FormatError, UsageError
from rescore.files import atomic_binary, atomic_folder, open_binary
from rescore.formats.common import OnError, Place, UniqueIds, fail, utterance_id
from rescore.formats.kaldi_fst import (
    FIRST_BYTES,
    MAGIC,
    RawLattice,
    RecordError,
    ShortRecord,
    format_binary,
    parse_binary,
)
from rescore.formats.kaldi_text import format_text, parse_text

_CHUNK = 1 << 20
_LONGEST_KEY = 4096
_BLANK = b" \t\r\n"
_KEY = re.compile(rb"[^\x00-\x20]+")


def archive_files(path: str | Path) -> list[Path]:
    """The archives that `path` stands for: itself, or `lat.1.gz`, `lat.2.gz`, ... of a folder, none missing.

    Raises:
      FormatError: no such file, or a job's archive is missing.
    """
    path = Path(path)
    if not path.is_dir():
        return [path]
    found = {int(match[1]): file for file in path.iterdir() if (match := re.fullmatch(r"lat\.(\d+)(\.gz)?", file.name))}
    if not found:
        raise FormatError(path, "no lattices in this folder, expected lat.1.gz, lat.2.gz, ...")
    jobs = max(found)
    if (path / "num_jobs").is_file():
        stated = (path / "num_jobs").read_text(encoding="utf-8", errors="replace").strip()
        jobs = max(jobs, int(stated) if stated.isascii() and stated.isdigit() else 0)
    missing = [job for job in range(1, jobs + 1) if job not in found]
    if missing:
        raise FormatError(path, f"lat.{missing[0]}.gz is missing, expected lat.1.gz to lat.{jobs}.gz")
    return [found[job] for job in sorted(found)]


class _Archive:
    """The bytes of one archive, read on as they are needed; `data[at:]` is what has not been used."""

    def __init__(self, path: Path, read: Callable[[int], bytes]) -> None:
        self.path, self._read = path, read
        self.data, self.at, self.base = b"", 0, 0
        self.damage: FormatError | None = None
        self._ended = False

    def more(self) -> bool:
        """Reads on, as much again as there is; False at the end of the file."""
        pieces, wanted = [self.data[self.at :]], max(_CHUNK, len(self.data) - self.at)
        self.base += self.at
        self.at = 0
        had = len(pieces[0])
        while wanted > 0 and not self._ended:
            try:
                piece = self._read(wanted)
            except FormatError as error:
                self.damage, piece = error, b""
            self._ended = not piece
            pieces.append(piece)
            wanted -= len(piece)
        self.data = b"".join(pieces)
        return len(self.data) > had

    def find_key(self) -> bool:
        """Goes to the next key; False if there is none."""
        while True:
            self.at = len(self.data) - len(self.data[self.at :].lstrip(_BLANK))
            if self.at < len(self.data):
                return True
            if not self.more():
                return False

    def take_record(self) -> RawLattice:
        """The record whose key begins here.  Raises FormatError; then the place is still that of the key."""
        offset, key = self.base + self.at, "?"
        try:
            while True:
                try:
                    key = self._key()
                    raw, self.at = self._parse(key, self.at + len(key.encode()))
                    return raw
                except ShortRecord:
                    had_ended = self._ended
                    if not self.more() and had_ended:
                        why = f" ({self.damage})" if self.damage else ""
                        self.damage = None
                        raise RecordError(f"the archive ends within this record{why}") from None
        except RecordError as error:
            raise FormatError(self.path, f"utterance '{key}' at byte {offset}: {error}") from None

    def _key(self) -> str:
        found = _KEY.match(self.data, self.at)
        if found and found.end() == len(self.data) and len(found[0]) <= _LONGEST_KEY:
            raise ShortRecord
        if not found or self.data[found.end()] not in _BLANK:
            raise RecordError(f"no utterance id here (found {self.data[self.at : self.at + 20]!r})")
        try:
            return found[0].decode("utf-8")
        except UnicodeDecodeError:
            raise RecordError(f"utterance id {found[0][:80]!r} is not UTF-8") from None

    def _parse(self, key: str, at: int) -> tuple[RawLattice, int]:
        """The record whose key ends at `at`, and its end."""
        if len(self.data) < at + 1 + len(MAGIC) and not self._ended:
            raise ShortRecord
        if self.data[at + 1 : at + 1 + len(MAGIC)] == MAGIC:
            return parse_binary(key, self.data, at + 1)
        line_end = self.data.find(b"\n", at)
        end = self.data.find(b"\n\n", at) + 1
        head = self.data[at : line_end if line_end >= 0 else at + 80]
        if head.strip():
            raise RecordError(f"found {head[:40]!r} behind the key, expected a binary or a text lattice")
        if not end:
            if not self._ended or not self.data.endswith(b"\n"):
                raise ShortRecord
            end = len(self.data)
        try:
            return parse_text(key, self.data[line_end + 1 : end].decode("utf-8")), end
        except UnicodeDecodeError:
            raise RecordError("neither a binary nor a text lattice") from None

    def resynchronise(self) -> None:
        """From a bad record to the next key: that before the next binary header, or behind the next blank line."""
        key_end = _KEY.match(self.data, self.at)
        at = key_end.end() if key_end else self.at
        is_text = re.compile(rb"[ \t\r]*\n").match(self.data, at) is not None
        own_header = self.data[at + 1 : at + 1 + len(MAGIC)] == MAGIC
        self.at = at if is_text else at + 2 if own_header else self.at + 1
        mark = b"\n\n" if is_text else FIRST_BYTES
        while (found := self.data.find(mark, self.at)) < 0:
            self.at = max(self.at, len(self.data) - _LONGEST_KEY - len(mark))
            if not self.more():
                self.at = len(self.data)
                return
        if is_text:
            self.at = found + 2
            return
        before = self.data[max(self.at, found - _LONGEST_KEY) : found]
        key = re.search(rb"[^\x00-\x20]+ \Z", before)
        self.at = found - len(key[0]) if key else found


def read_records(path: str | Path, on_error: OnError = fail) -> Iterator[RawLattice]:
    """The records of one archive, one at a time.

    Args:
      on_error: gets the FormatError of a bad record (with key and byte offset in the unpacked file); if it returns,
        reading goes on at the next record that can be found.
    """
    with open_binary(path) as read:
        archive = _Archive(Path(path), read)
        while archive.find_key():
            try:
                raw = archive.take_record()
            except FormatError as error:
                on_error(error)
                archive.resynchronise()
                continue
            yield raw
        if archive.damage is not None:
            on_error(archive.damage)


def read_all(path: str | Path, on_error: OnError = fail) -> Iterator[tuple[Path, RawLattice]]:
    """`(file, record)` of all archives of `archive_files(path)`; as `read_records`.

    Raises:
      FormatError: an utterance occurs twice, or there is no lattice at all.
    """
    unique = UniqueIds()
    empty = True
    for file in archive_files(path):
        for raw in read_records(file, on_error):
            unique.add(raw.utt_id, Place(file, utt_id=raw.utt_id))
            empty = False
            yield file, raw
    if empty:
        raise FormatError(path, "no lattice in it, expected a Kaldi archive: 'utt-id lattice' ...")


def write_records(path: Path, records: Iterable[RawLattice], options: Mapping[str, str]) -> int:
    """Writes one archive, binary or (option `text=yes`) text; returns the number of lattices."""
    text = options.get("text", "no")
    if text not in ("yes", "no"):
        raise UsageError(f"text={text}, expected yes or no")
    if path.suffix:
        return _write_archive(path, records, text == "yes")
    with atomic_folder(path) as folder:
        count = _write_archive(folder / "lat.1.gz", records, text == "yes")
        (folder / "num_jobs").write_text("1\n", encoding="utf-8")
    return count


def _write_archive(path: Path, records: Iterable[RawLattice], as_text: bool) -> int:
    count = 0
    with atomic_binary(path) as stream:
        for raw in records:
            key = utterance_id(raw.utt_id, Place(path)).encode()
            stream.write(
                key + b" \n" + format_text(raw).encode() + b"\n" if as_text else key + b" " + format_binary(raw)
            )
            count += 1
    return count
