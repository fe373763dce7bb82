"""Symbol tables of Kaldi, OpenFst and k2: `words.txt`, lines `SYMBOL ID`."""

from __future__ import annotations

import filecmp
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from lm_zoo.files import is_in_place, write_bytes, write_text
from lm_zoo.reading import kaldi_fields
from rescore.console import remark, remark_on_source
from rescore.errors import FormatError, UsageError
from rescore.files import read_lines, whole_number

EPSILON_ID = 0  # in all three
IDS = "ids"  # in place of a file: numbers are words
MAX_ID = 2**31 - 1
_OF_LATTICES = (".ark", ".gz", ".pt", ".txt", ".xz")  # ends of names
NUMBERS_WRITTEN = f"words are numbers, written as they are; read it with ?words={IDS}, or with the table of these ids"


@dataclass
class SymbolTable:
    """Words by their ids.  Without a file (`path` None) every word is its id as text."""

    path: Path | None = None
    words: dict[int, str] = field(default_factory=dict)
    ids: dict[str, int] = field(default_factory=dict)

    def compact(self, word_ids: np.ndarray) -> tuple[np.ndarray, list[str]]:
        """`(labels, symbols)` of a lattice whose arcs have `word_ids` `(arcs,)`: only the words that occur.

        Raises:
          KeyError: an id that the table does not have; `args[0]` is the message.
        """
        used, labels = np.unique(np.append(EPSILON_ID, word_ids), return_inverse=True)
        if used[0] < 0:
            raise KeyError(f"word id {used[0]}, expected ids from 0")
        symbols = [""]
        for word_id in used[1:].tolist():
            word = str(word_id) if self.path is None else self.words.get(word_id)
            if word is None:
                raise KeyError(
                    f"word id {word_id} is not in {self.path}; give the words.txt that belongs to the lattices"
                )
            symbols.append(word)
        return labels[1:].astype(np.int32), symbols

    def to_ids(self, labels: np.ndarray, symbols: list[str]) -> np.ndarray:
        """Word ids, int32 `(arcs,)`, of labels that index `symbols`.

        Raises:
          KeyError: a word that the table does not have, or that is no number where there is no table.
        """
        used, where = np.unique(labels, return_inverse=True)
        ids = [EPSILON_ID if label == EPSILON_ID else self._id(symbols[label]) for label in used.tolist()]
        return np.asarray(ids, dtype=np.int32)[where.reshape(-1)]

    def _id(self, word: str) -> int:
        if self.path is not None:
            if self.ids.get(word, EPSILON_ID) == EPSILON_ID:
                found = "has the id 0 of no word in" if word in self.ids else "is not in"
                raise KeyError(f"word '{word}' {found} {self.path}; add it there, with an id of its own")
            return self.ids[word]
        if not _is_of_a_word(word):
            raise KeyError(f"word '{word}' needs a number; say which table has it: PATH?words=words.txt")
        return int(word)

    def write(self, own: Path, lattices: Path) -> None:
        """Leaves none but this table, by which `lattices` were written, at `own`, the place of their own one."""
        if own.is_file() and not same_table(own, self.path):
            own.unlink()


@dataclass
class CopiedTable(SymbolTable):
    """The table in a file, of lattices that are copied; it goes with them, unread."""

    def write(self, own: Path, lattices: Path) -> None:
        super().write(own, lattices)
        if self.path is not None and not own.is_file():
            write_bytes(own, self.path.read_bytes())


@dataclass
class NewTable(SymbolTable):
    """Numbers words as they come, unless all words of the first lattice are numbers: then all are ids as text.

    Attributes:
      like: a table whose words keep their numbers; those of others are behind its highest.
      all_ids: which of the two; None as long as there was no word.
    """

    like: SymbolTable | None = None
    all_ids: bool | None = None

    def __post_init__(self) -> None:
        self._highest = 0 if self.like is None else max(self.like.words)

    def to_ids(self, labels: np.ndarray, symbols: list[str]) -> np.ndarray:
        if self.all_ids is None and self.like is None and labels.any():
            used = (symbols[label] for label in np.unique(labels).tolist() if label != EPSILON_ID)
            self.all_ids = all(map(_is_of_a_word, used))
        return super().to_ids(labels, symbols)

    def _id(self, word: str) -> int:
        if self.all_ids:
            return super()._id(word)
        if kept := 0 if self.like is None else self.like.ids.get(word, 0):
            return kept
        if kaldi_fields(word) != [word]:
            raise KeyError(f"word {word!r} is empty or has white space in it, so that no table can hold it")
        return self.ids.setdefault(word, self._highest + len(self.ids) + 1)

    def write(self, own: Path, lattices: Path) -> None:
        """Writes the words of `lattices` that were numbered; of lattices without a word, the epsilon alone.

        None where `like` is what `lattices` are read by.
        """
        super().write(own, lattices)
        if self.all_ids:
            remark(f"{lattices}: {NUMBERS_WRITTEN}")
            return
        if self.like is not None and self.like.path is not None:
            self._write_like(self.like.path, own, lattices)
            return
        numbered = {"<eps>": EPSILON_ID, **self.ids}
        write_text(own, _lines(numbered))
        if self.ids:
            numbered_in = f"{lattices}: {len(self.ids)} words in {own_table(lattices)}, numbered as they came"
            remark(f"{numbered_in} (else: PATH?words=words.txt)")

    def _write_like(self, like: Path, own: Path, lattices: Path) -> None:
        if self.ids:
            write_text(own, like.read_text(encoding="utf-8").rstrip("\n") + "\n" + _lines(self.ids))
            more = f", but for {len(self.ids)} that it does not have; all are in {own_table(lattices)}"
        else:
            found = usual_tables(lattices if own == own_table(lattices) else own.parent)  # a folder in the making
            if not found or not all(same_table(table, like) for table in found):
                write_bytes(own, like.read_bytes())
            more = ""
        remark(f"{lattices}: words have the numbers of {like}{more}")


def _lines(ids: Mapping[str, int]) -> str:
    return "".join(f"{word} {word_id}\n" for word, word_id in ids.items())


def is_id(text: str) -> bool:
    """Whether `text` is a number of at most ten ASCII digits."""
    return whole_number(text, 10) is not None


def _is_of_a_word(text: str) -> bool:
    """Whether `text` is an id as it is written, and not that of the epsilon."""
    return is_id(text) and EPSILON_ID < int(text) <= MAX_ID and str(int(text)) == text


def are_ids(words: Iterable[str]) -> bool:
    """Whether all words are numbers, so that they are read as ids where a table is found."""
    return all(map(is_id, words))


def read_symbols(path: str | Path) -> SymbolTable:
    """Reads lines `SYMBOL ID`; id 0 is the epsilon.

    Raises:
      FormatError: a line that is something else, an id or a symbol that occurs twice, an empty file.
    """
    table = SymbolTable(Path(path))
    for number, line in read_lines(path):
        fields = kaldi_fields(line)
        if not fields:
            continue
        if len(fields) != 2 or not is_id(fields[1]) or int(fields[1]) > MAX_ID:
            raise FormatError(path, f"found '{line[:80]}', expected 'WORD ID' with an id from 0", line=number)
        word, word_id = fields[0], int(fields[1])
        if word_id in table.words:
            raise FormatError(path, f"id {word_id} occurs a second time (as '{word}')", line=number)
        if word in table.ids:
            raise FormatError(path, f"word '{word}' occurs a second time", line=number)
        table.words[word_id], table.ids[word] = word, word_id
    if not table.words:
        raise FormatError(path, "empty file, expected lines 'WORD ID'")
    return table


def table_of(words: str | None) -> SymbolTable:
    """The table that the option `words` names; without one, or for IDS, the one of plain numbers."""
    return SymbolTable() if words in (None, IDS) else read_symbols(str(words))


def table_to_write(path: Path, options: Mapping[str, str]) -> SymbolTable:
    """As `table_of` the option `words`; without it, the table by which `path` will be read, or a new one to be there.

    What is written over goes with its own table.  A new one is that of the option `numbers`, and what it has not.

    Raises:
      UsageError: another table than `words` would be taken in reading, and belongs to other lattices or to none.
    """
    words, numbers = options.get("words"), options.get("numbers")
    if words is not None:
        if numbers is not None:
            raise UsageError(f"{path}: give ?words={words}, or ?numbers={numbers} where there may be new words")
        _check_own_table(path, words)
        return table_of(words)
    if _is_stream(path):
        return table_of(numbers)  # a new table would have no place: words that it does not have are refused
    if _has_kept_table(path):
        return read_symbols(own_table(path))
    return NewTable(like=None if numbers is None else read_symbols(numbers))


def table_to_copy(source: Path, path: Path, words: str | None) -> SymbolTable:
    """The table of `source`, whose records are copied to `path`: its own, if the option `words` is not given.

    Raises:
      UsageError: as `table_to_write`.
    """
    if words is not None:
        _check_own_table(path, words)
        return SymbolTable(None if words == IDS else Path(words))
    if _is_stream(path):
        return SymbolTable()
    if own_table(source).is_file():
        _check_own_table(path, own_table(source))
        return CopiedTable(own_table(source))
    return SymbolTable(own_table(path) if _has_kept_table(path) else None)


def _check_own_table(path: Path, words: str | Path) -> None:
    own = own_table(path)
    if not path.is_dir() and _has_kept_table(path) and not same_table(own, words):
        raise UsageError(
            f"{path}: would be read by {own}, a table that is there and differs from {words}; name another file, or "
            f"remove that table"
        )


def _has_kept_table(path: Path) -> bool:
    """Whether a table is at `own_table(path)` that is not just that of lattices that are written over."""
    own = own_table(path)
    return own.is_file() and not (path.is_file() and _is_alone(path))


def _is_alone(path: Path) -> bool:
    """Whether no other lattices are there that have the same table of their own, as `lat.pt` beside `lat.ark` has."""
    files = (file for file in path.parent.iterdir() if file.suffix in _OF_LATTICES and file != path)
    return all(own_table(file) != own_table(path) for file in files)


def same_table(one: str | Path, other: str | Path | None) -> bool:
    """Whether two files have the same bytes, or two options `words` say the same."""
    if other is None or str(one) == str(other):
        return other is not None
    return Path(one).is_file() and Path(other).is_file() and filecmp.cmp(one, other, shallow=False)


def own_table(path: Path) -> Path:
    """Where the table of lattices is that is of no others."""
    return path / "words.txt" if is_folder(path) and not path.is_file() else path.with_suffix(".words.txt")


def is_folder(path: Path) -> bool:
    """Whether Kaldi's lattices are in a folder, by the name where none is yet: `exp/new`, or `decode_test.si`."""
    named = not path.suffix or (path.name.startswith("decode") and path.suffix not in _OF_LATTICES)
    return path.is_dir() or (named and not _is_stream(path))


def _is_stream(path: Path) -> bool:
    """Whether lattices go to standard output, a device or a pipe, with no table beside them."""
    return not path.is_dir() and is_in_place(path)


def table_for(path: Path, words: str | None) -> SymbolTable:
    """The table by which lattices are read whose words are numbers; where it is not told, one in the usual places.

    Args:
      path: of the lattices.
      words: the option: a file, or IDS for numbers as words; None if it is not given.
    Raises:
      UsageError: it is not given, and no table is in the usual places, or tables that differ.
    """
    if words is not None:
        return table_of(words)
    found = usual_tables(path)
    if len({file.read_bytes() for file in found}) == 1:
        remark_on_source(f"{path}: words are those of {found[0]} (else: --words FILE, or PATH?words=FILE)")
        return read_symbols(found[0])
    several = f" ({', '.join(map(str, found))} differ)" if found else ""
    raise UsageError(
        f"{path}: its words are numbers; which table has them?{several} Give --words FILE (in Python words='FILE'), or "
        f"PATH?words=FILE; numbers are taken as words by --words {IDS} (words='{IDS}')"
    )


def usual_tables(path: Path) -> list[Path]:
    """The table with the lattices' own name alone, or those beside them, in the graph's folder, in data/lang*."""
    if own_table(path).is_file():
        return [own_table(path)]
    folder = path if path.is_dir() else path.parent
    beside = sorted((folder / "..").glob("graph*/words.txt"))
    places = [folder / "words.txt", *beside, *sorted(Path("data").glob("lang*/words.txt"))]
    return [place for place in places if place.is_file()]
