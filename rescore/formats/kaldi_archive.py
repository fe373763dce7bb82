"""Archives of Kaldi lattices, binary or text: one file, a decoding folder with `lat.1.gz`, `lat.2.gz`, ..., a pattern
(`lat.*.gz`), or an index, `lat.scp`, with lines `utt-id FILE:OFFSET`.

A record is kept whole (see `rescore.formats.kaldi_fst`), so that copying binary archives gives the same bytes.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from traceback import clear_frames

from lm_zoo.files import write_text
from lm_zoo.inference.limits import give_back
from lm_zoo.ngram.openfst import MAGIC
from lm_zoo.reading import key_and_rest, packed_as
from rescore.errors import FormatError, UsageError
from rescore.file_names import by_numbers
from rescore.files import atomic_binary, atomic_folder, open_binary, read_lines
from rescore.formats.common import TOO_LARGE, Piece, Place, UniqueIds, encoded, formed, of_jobs, put, utterance_id
from rescore.formats.kaldi_fst import (
    FIRST_BYTES,
    RawLattice,
    RecordError,
    ShortRecord,
    format_binary,
    parse_binary,
)
from rescore.formats.kaldi_text import format_text, parse_text
from rescore.formats.symbols import SymbolTable, is_folder, is_id, own_table
from rescore.skipping import OnError, fail

NO_PIPES = "which is never run for lattices; write its output to a file, and name that"
_CHUNK = 1 << 20
_OF_A_LINE = 1 << 16  # bytes that are read at first for a line of an index, most of whose records are small
_LONGEST_KEY = 4096
_LONGEST_HEAD = 2 * _LONGEST_KEY  # bytes of a record that tell of which kind it is
_BLANK = b" \t\r\n"
_NOT_BLANK = re.compile(rb"[^ \t\r\n]")
_BLANK_LINE = re.compile(rb"\n[ \t\r]*\n")  # behind a text record, as Kaldi's LatticeReader has it
_BINARY = re.compile(re.escape(FIRST_BYTES))
_PATTERN = re.compile(r"[*?\[]")
_KEY = re.compile(rb"[^\x00-\x20]+")


def archive_files(path: str | Path) -> list[Path]:
    """The archives that `path` stands for: itself, `lat.1.gz`, `lat.2.gz`, ... of a folder, none missing, or a pattern.

    The numbers in the names of a pattern's files count as numbers.

    Raises:
      FormatError: no such file, a job's archive is missing, or there are two of one job.
    """
    path = Path(path)
    if _PATTERN.search(path.name) and not path.exists():
        files = sorted(path.parent.glob(path.name), key=lambda file: (by_numbers(file.name), file.name))
        if not files:
            raise FormatError(path, "no file has a name of this pattern")
        return files
    if not path.is_dir():
        return [path]
    stated = path / "num_jobs"
    jobs = stated.read_text(encoding="utf-8", errors="replace").strip() if stated.is_file() else ""
    found = of_jobs(path, "lat.{}.gz", r"lat\.(\d+)(\.gz)?", int(jobs) if is_id(jobs) else 0)
    if not found:
        raise FormatError(path, "no lattices in this folder, expected lat.1.gz, lat.2.gz, ...")
    return found


class _CutOff(RecordError):
    """The archive ends within a record."""


class _Archive:
    """The bytes of one archive, read on as they are needed; `data[at:]` is what has not been used.

    `data` and `base` (the place of `data[0]` in the file) may be given where bytes have been read before; `at_once` is
    how many are read at least, if not `_CHUNK`.
    """

    def __init__(
        self, path: Path, read: Callable[[int], bytes], data: bytes = b"", base: int = 0, at_once: int = 0
    ) -> None:
        self.path, self._read, self._at_once = path, read, at_once or _CHUNK
        self.data, self.at, self.base = data, 0, base
        self.damage: FormatError | None = None
        self._ahead = deque[bytes]()  # what was read but did not fit into `data`
        self._file_ended = False

    @property
    def _ended(self) -> bool:
        return self._file_ended and not self._ahead

    def more(self) -> bool:
        """Reads on, as much again as there is; False at the end of the file.

        Raises:
          MemoryError: it does not fit; then all but the beginning and the end of what was there is left out.
        """
        rest = self.data[self.at :]
        self.base += self.at
        self.data, self.at = rest, 0
        wanted, pieces = max(self._at_once, len(rest)), [rest]
        try:
            while wanted > 0 and not self._ended:
                pieces.append(self._piece())
                wanted -= len(pieces[-1])
            self.data = b"".join(pieces)
        except MemoryError:
            self._ahead.extendleft(reversed(pieces[1:]))
            if len(rest) > 2 * _LONGEST_HEAD:
                self.data = rest[:_LONGEST_HEAD] + b" " + rest[-_LONGEST_HEAD:]
                self.base += len(rest) - len(self.data)
            raise
        return len(self.data) > len(rest)

    def _piece(self) -> bytes:
        """The next bytes; nothing at the end of the file, or of what is not damaged."""
        if self._ahead:
            return self._ahead.popleft()
        try:
            piece = self._read(self._at_once)
        except FormatError as error:
            self.damage, piece = error, b""
        self._file_ended = not piece
        return piece

    def find_key(self) -> bool:
        """Goes to the next key; False if there is none."""
        while True:
            found = _NOT_BLANK.search(self.data, self.at)
            self.at = found.start() if found else len(self.data)
            if found:
                return True
            if not self.more():
                return False

    def take_record(self, known: str | None = None) -> RawLattice:
        """The record whose key begins here, or with its key `known`, the one whose blank behind the key is here.

        Raises FormatError; then the place is still that of the key.
        """
        offset, key = self.base + self.at, known or "?"
        try:
            while True:
                try:
                    key = known or self._key()
                    raw, self.at = self._parse(key, self.at + (0 if known else len(key.encode())))
                    return raw
                except ShortRecord:
                    had_ended = self._ended
                    if not self.more() and had_ended:
                        why = f" ({self.damage})" if self.damage else ""
                        self.damage = None
                        raise _CutOff(f"the archive ends within this record{why}") from None
        except RecordError as error:
            problem = FormatError(self.path, f"utterance '{key}' at byte {offset}: {error}")
            header = self.at + len(key.encode()) + 1
            problem.uncounted = isinstance(error, _CutOff) and not _BINARY.search(self.data, header + len(MAGIC))
            raise problem from None
        except MemoryError as error:
            clear_frames(error.__traceback__)
        give_back(collect=True)
        raise FormatError(self.path, f"utterance '{key}' at byte {offset}: {TOO_LARGE}")

    def _key(self) -> str:
        found = _KEY.match(self.data, self.at)
        is_key = found is not None and len(found[0]) <= _LONGEST_KEY
        if found and is_key and found.end() == len(self.data):
            raise ShortRecord
        if not found or not is_key or self.data[found.end()] not in _BLANK:
            packed = packed_as(self.data[self.at :][:8])
            raise RecordError(packed or f"no utterance id here (found {self.data[self.at : self.at + 20]!r})")
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
        end = _BLANK_LINE.search(self.data, at)
        head = self.data[at : line_end if line_end >= 0 else at + 80]
        if head.strip():
            raise RecordError(f"found {head[:40]!r} behind the key, expected a binary or a text lattice")
        if not end:  # no blank line: not all of it has been read, or the file was cut off
            raise ShortRecord
        try:
            return parse_text(key, self.data[line_end + 1 : end.start() + 1].decode("utf-8")), end.end()
        except UnicodeDecodeError:
            raise RecordError("neither a binary nor a text lattice") from None

    def resynchronise(self) -> None:
        """From a bad record to the next key: that before the next binary header, or behind the next blank line."""
        key_end = _KEY.match(self.data, self.at)
        at = key_end.end() if key_end else self.at
        is_text = re.compile(rb"[ \t\r]*\n").match(self.data, at) is not None
        own_header = self.data[at + 1 : at + 1 + len(MAGIC)] == MAGIC
        self.at = at if is_text else at + 2 if own_header else self.at + 1
        mark = _BLANK_LINE if is_text else _BINARY
        while not (found := mark.search(self.data, self.at)):
            self.at = max(self.at, len(self.data) - _LONGEST_KEY - len(FIRST_BYTES))
            if not self.more():
                self.at = len(self.data)
                return
        if is_text:
            self.at = found.end()
            return
        before = self.data[max(self.at, found.start() - _LONGEST_KEY) : found.start()]
        key = re.search(rb"[^\x00-\x20]+ \Z", before)
        self.at = found.start() - len(key[0]) if key else found.start()


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
            archive.damage.uncounted = True
            on_error(archive.damage)


def read_line(path: Path, number: int, line: str) -> tuple[Path, RawLattice]:
    """`(file, record)` of a line `utt-id FILE` or `utt-id FILE:OFFSET` of an index (Kaldi's scp).

    A file that is not there by its name is looked for beside the index.  The offset is that of the record behind the
    key, as Kaldi writes it.

    Raises:
      FormatError: what is wrong with the line or its record.
    """
    key, where = key_and_rest(line)
    try:
        if where.endswith("|") or where.startswith("|"):
            raise FormatError(path, f"'{key}' is the output of a command ('{where[:80]}'), {NO_PIPES}", line=number)
        if not where:
            raise FormatError(path, f"found '{line[:80]}', expected 'utt-id FILE:OFFSET'", line=number)
        file, offset = _place(path, where)
        file.stat()  # an error of the line, where the file is not there
        with open_binary(file, max(0, offset - 1)) as read:
            archive = _Archive(file, read, b"" if offset else b" ", max(0, offset - 1), _OF_A_LINE)
            archive.more()
            return file, archive.take_record(key)
    except (OSError, ValueError) as error:  # no name of a file that the system takes
        problem = f"found '{line[:80]}', whose file cannot be read ({str(error)[:80]})"
        raise FormatError(path, problem, line=number) from None


def _place(path: Path, where: str) -> tuple[Path, int]:
    """The file, by its name or beside the index, and the offset that an index has behind a key."""
    name, offset = re.fullmatch(r"(.*?)(?::([0-9]{1,18}))?", where).groups("0")  # type: ignore[union-attr]
    try:
        Path(name).stat()  # not `exists`, which from Python 3.14 on is silent about names that the system refuses
    except (FileNotFoundError, NotADirectoryError):
        return path.parent / name, int(offset)
    return Path(name), int(offset)


def read_all(path: str | Path, on_error: OnError = fail) -> Iterator[tuple[Path, RawLattice]]:
    """`(file, record)` of all archives of `archive_files(path)`, or of an index (`.scp`); as `read_records`.

    Raises:
      FormatError: an utterance occurs twice, or there is no lattice at all.
    """
    empty = True
    for found in read_some(Path(path), _pieces(Path(path)), on_error):
        empty = False
        yield found
    if empty:
        raise FormatError(path, "no lattice in it, expected a Kaldi archive: 'utt-id lattice' ...")


def all_files(path: Path) -> list[Path]:
    """The archives, or an index and the archives that it names; some may not be there."""
    if path.suffix != ".scp":
        return archive_files(path)
    places = (key_and_rest(line)[1] for _, line in read_lines(path))
    return [path, *dict.fromkeys(_place(path, place)[0] for place in places if place and "|" not in place)]


def archive_pieces(path: Path) -> list[Piece]:
    """The archives, or the lines of an index."""
    return list(_pieces(path))


def _pieces(path: Path) -> Iterator[Piece]:
    if path.suffix == ".scp":
        return (Piece(path, line=number, text=line) for number, line in read_lines(path))
    return (Piece(file, many=True) for file in archive_files(path))


def read_some(path: Path, chosen: Iterable[Piece], on_error: OnError = fail) -> Iterator[tuple[Path, RawLattice]]:
    """As `read_all`, of some of the `archive_pieces`, which may be without a lattice."""
    unique = UniqueIds()
    for file, raw in _records(chosen, on_error):
        unique.add(raw.utt_id, Place(file, utt_id=raw.utt_id))
        yield file, raw


def _records(chosen: Iterable[Piece], on_error: OnError) -> Iterator[tuple[Path, RawLattice]]:
    for piece in chosen:
        if piece.line is None:
            yield from ((piece.path, raw) for raw in read_records(piece.path, on_error))
            continue
        try:
            found = read_line(piece.path, piece.line, piece.text)
        except FormatError as error:
            error.uncounted = False  # the lines of the index tell how many there are
            on_error(error)
        else:
            yield found


def write_records(
    path: Path,
    records: Iterable[RawLattice],
    options: Mapping[str, str],
    table: SymbolTable | None = None,
    on_error: OnError = fail,
) -> int:
    """Writes one archive, binary or (option `text=yes`) text, and its own table; returns the number of lattices.

    Args:
      table: that of the words; None leaves one that is there.
      on_error: as for `formed`.
    Raises:
      UsageError: `path` is an index, or `text` is something else.
    """
    if path.suffix == ".scp":
        raise UsageError(f"{path}: an index is read, not written; name {path.with_suffix('.ark')}")
    text = options.get("text", "no")
    if text not in ("yes", "no"):
        raise UsageError(f"text={text}, expected yes or no")
    if not is_folder(path):
        count = _write_archive(path, records, text == "yes", path, on_error)
        if table is not None:
            table.write(own_table(path), path)
        return count
    with atomic_folder(path) as folder:
        count = _write_archive(folder / "lat.1.gz", records, text == "yes", path, on_error)
        write_text(folder / "num_jobs", "1\n")
        if table is not None:
            table.write(folder / own_table(path).name, path)
    return count


def _write_archive(file: Path, records: Iterable[RawLattice], as_text: bool, path: Path, on_error: OnError) -> int:
    """Writes a file, which the user knows as, or within, `path`."""
    count = 0

    def form(raw: RawLattice) -> bytes:
        key = utterance_id(raw.utt_id, Place(path)).encode()
        record = b" \n" + format_text(raw).encode() + b"\n" if as_text else b" " + format_binary(raw)
        return encoded(key + record)

    with atomic_binary(file) as stream:
        for record in formed(records, form, path, on_error):
            put(stream, record)
            count += 1
    return count
