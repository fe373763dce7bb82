"""Reading files of others: gzip and xz unpacked within bounds, a byte order mark dropped, JSON with one kind of error.

All readers of text and of packed files go through this file, so that each fault is met in one place.
"""

from __future__ import annotations

import gzip
import io
import json
import lzma
import os
import re
import stat
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, cast

from lm_zoo.errors import WriteError

RATIO = 200  # bytes that a packed byte may become; texts with many repeats have 100
FREE = 10**8  # bytes that any packed file may become
DAMAGED = (EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile)  # what reading a damaged packed file raises

_PACKED: dict[str, Any] = {".gz": gzip.GzipFile, ".xz": lzma.LZMAFile}
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
_to_be_replaced: dict[tuple[int, int], str] = {}  # device and number of a file -> its real name


class UnpackError(OSError):
    """A packed file that becomes far larger than texts do: not data but an attack, or damage."""


STANDARD_INPUT = "-"


def is_read_once(path: str | Path) -> bool:
    """Whether a path is standard input, or no file or folder but a pipe or a terminal."""
    path = Path(path)
    return str(path) == STANDARD_INPUT or (path.exists() and not path.is_file() and not path.is_dir())


@contextmanager
def kept_from_reading(path: str | Path) -> Iterator[None]:
    """Until the block ends, a file that is going to be replaced by an output cannot be an input as well.

    What has taken its place, and other names of the file, can be read.
    """
    real = os.path.realpath(path)
    if not os.path.isfile(real):
        yield
        return
    about = os.stat(real)
    key = about.st_dev, about.st_ino
    _to_be_replaced[key] = real
    try:
        yield
    finally:
        _to_be_replaced.pop(key, None)


def _check_stays(path: Path) -> None:
    """Raises WriteError: the file is going to be replaced."""
    try:
        about = os.stat(path)
    except OSError:  # what opening it says
        return
    if _to_be_replaced.get((about.st_dev, about.st_ino)) == os.path.realpath(path):
        raise WriteError(f"{path}: is read by this command, which would write over it; choose another name to write")


def open_bytes(path: str | Path) -> IO[bytes]:
    """Opens a file for reading; `.gz` and `.xz` are unpacked; `-` is standard input, as it comes.

    Raises (here or on reading):
      WriteError: it is `kept_from_reading`.
      OSError: missing, unreadable; `UnpackError` where it becomes more than FREE bytes and RATIO times its size.
      EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile: damaged (`DAMAGED`).
    """
    path = Path("/dev/stdin" if str(path) == STANDARD_INPUT else path)
    if _to_be_replaced:
        _check_stays(path)
    if path.suffix not in _PACKED:
        return open(path, "rb")
    return cast(IO[bytes], io.BufferedReader(_Bounded(_PACKED[path.suffix](path), path), 1 << 16))


def packed_as(begin: bytes) -> str | None:
    """What to say of data that begin so and cannot be read, if they are packed; None: they are not."""
    for magic, name, program in (
        (b"\x1f\x8b", "gzip", "zcat"),
        (b"\xfd7zXZ", "xz", "xzcat"),
        (b"BZh", "bzip2", "bzcat"),
        (b"\x28\xb5\x2f\xfd", "zstd", "zstdcat"),
    ):
        if begin.startswith(magic):
            return f"packed by {name}; unpack it ({program}), as is done here for files that are named .gz or .xz alone"
    return None


def open_text(path: str | Path) -> IO[str]:
    """As `open_bytes`, of UTF-8 text (else UnicodeDecodeError), whose byte order mark is dropped.

    Lines end at a line feed alone; the carriage return of Windows stays before it.
    """
    return io.TextIOWrapper(open_bytes(path), encoding="utf-8-sig", newline="\n")


def read_text(path: str | Path) -> str:
    """All of a text file; raises as `open_text`."""
    with open_text(path) as stream:
        return stream.read()


def text_lines(path: str | Path) -> list[str]:
    """The lines of a text file, without what ends them; raises as `open_text`."""
    with open_text(path) as stream:
        return [line.rstrip("\r\n") for line in stream]


WORD_START = "\u2581"  # sentencepiece's mark of a blank in the text
BLANKS = " \t\n\r\v\f"  # what Kaldi takes for blanks; str.split() takes others, too
DECODED_UNK = "\u2047"  # what sentencepiece's decoder makes of <unk>, a word of its own
SPECIAL = re.compile(  # <unk>, [NOISE], !SIL, which are no text
    rf"<[^<>\s]+>|\[[^\[\]\s]+\]|\{{[^{{}}\s]+\}}|![A-Z]+|{DECODED_UNK}"
)
_OTHER_BLANKS = re.compile(r"[\x1c-\x1f\x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]")
_FIELD = re.compile(f"[^{BLANKS}]+")
_BYTES = re.compile("(?:<0x[0-9A-F]{2}>)+")


def kaldi_fields(text: str) -> list[str]:
    """The fields of a line, or the words of a text, as Kaldi splits it: at blanks of ASCII alone.

    So a word may have others in it (U+00A0, U+3000).  All readers go through this, or they would differ in what a word
    is.
    """
    return _FIELD.findall(text) if _OTHER_BLANKS.search(text) else text.split()


def is_piece(word: str) -> bool:
    """Whether a word is a piece that begins a word, with sentencepiece's mark; the mark alone is none."""
    return word.startswith(WORD_START) and word != WORD_START


def is_tag(word: str) -> bool:
    """Whether a word is one like `<unk>`, [NOISE] or !SIL, whose letters say nothing of the case of a text."""
    return word.startswith("<") or SPECIAL.fullmatch(word) is not None


def joined_pieces(pieces: Iterable[str]) -> str:
    """The text that sentencepiece pieces spell, with blanks where words begin.

    Pieces `<0xC3>`, `<0xA9>` are bytes (of models with byte fallback): "\u00e9"; what is no UTF-8 becomes U+FFFD.
    `<unk>` is a word of its own, as in what sentencepiece decodes.
    """
    text = "".join(" <unk> " if piece == "<unk>" else piece for piece in pieces).replace(WORD_START, " ")
    return _BYTES.sub(_decoded, text) if "<0x" in text else text


def _decoded(found: re.Match[str]) -> str:
    return bytes.fromhex(found[0].replace("<0x", "").replace(">", "")).decode("utf-8", "replace")


def key_and_rest(line: str) -> tuple[str, str]:
    """The first of the `kaldi_fields` of a line, and what stands behind it, without blanks at its ends."""
    found = _FIELD.search(line)
    return (found[0], line[found.end() :].strip(BLANKS)) if found else ("", "")


def read_json(path: str | Path) -> Any:
    """The value in a JSON file.

    Raises:
      OSError: it cannot be read.
      ValueError: not UTF-8, not JSON, JSON that `parse_json` refuses, or an object that has a name twice.
    """
    return parse_json(read_text(path), _named_once)


def _named_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of JSON; json by itself takes the last of several values of one name."""
    made = dict(pairs)
    if len(made) < len(pairs):
        again = Counter(name for name, _ in pairs).most_common(1)[0][0]
        raise ValueError(f"'{again}' is given more than once")
    return made


def parse_json(text: str, made: Callable[[list[tuple[str, Any]]], Any] | None = None) -> Any:
    """The value of a JSON text.

    Args:
      made: makes objects of their names and values; None: dicts.
    Raises:
      ValueError: not JSON, nested too deeply, an integer of thousands of digits, or half of a surrogate pair, which
        is no character and cannot be written.
    """
    try:
        return check_characters(json.loads(text, object_pairs_hook=made), text)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def check_characters(value: Any, text: str) -> Any:
    """`value`, which JSON in `text` has given.

    Raises:
      ValueError: it has half of a surrogate pair in it.
    """
    if _SURROGATE.search(text):
        try:
            json.dumps(value, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            raise ValueError("half of a surrogate pair (\\ud800 ... \\udfff), which is no character") from None
    return value


class _Bounded(io.RawIOBase):
    """The unpacked bytes of a file, as long as there are not too many."""

    def __init__(self, stream: IO[bytes], path: Path) -> None:
        self.stream = stream
        about = os.stat(path)
        self.is_empty = stat.S_ISREG(about.st_mode) and not about.st_size
        self.most = max(FREE, RATIO * about.st_size) if stat.S_ISREG(about.st_mode) else None

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        if whence == os.SEEK_SET and offset > self.stream.tell():
            while self.read(min(offset - self.stream.tell(), 1 << 16)):  # unpacks what is between
                pass
            return self.stream.tell()
        return self.stream.seek(offset, whence)

    def tell(self) -> int:
        return self.stream.tell()

    def readinto(self, buffer: Any) -> int:
        if self.is_empty:  # gzip takes it for no text
            raise EOFError("it is empty, which no packed file is")
        try:
            data = self.stream.read1(len(buffer))  # type: ignore[attr-defined]
        except MemoryError:
            if isinstance(self.stream, lzma.LZMAFile) and not self.stream.tell():
                raise lzma.LZMAError("its header asks for more memory than there is") from None
            raise
        except zlib.error as error:
            if str(error).startswith("Error -4 "):  # zlib's Z_MEM_ERROR
                raise MemoryError from None
            raise
        buffer[: len(data)] = data
        if self.most is not None and self.stream.tell() > self.most:
            raise UnpackError(
                f"unpacks to more than {self.most} bytes, the most of {FREE} and {RATIO} times its size; "
                "if the data are really so, unpack it first and give the plain file"
            )
        return len(data)

    def close(self) -> None:
        if not self.closed:
            self.stream.close()
        super().close()
