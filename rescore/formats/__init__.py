"""N-best lists and lattices in files, named `FORMAT:PATH`, with options behind a `?` (`nemo:beams.tsv?n=10`).

One module a format, imported when it is used.  Readers give one utterance at a time in the order of the source; the
only thing that grows with the number of utterances is the set of utterance ids that finds duplicates.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any

from lm_zoo.errors import nearest
from lm_zoo.files import is_in_place
from lm_zoo.reading import is_read_once
from rescore.console import remark
from rescore.errors import FormatError, ScoreError, UsageError
from rescore.file_names import DRIVE
from rescore.formats.common import Checked, CountedErrors, Piece, Place, UniqueIds, utterance_id
from rescore.formats.symbols import same_table, usual_tables
from rescore.formats.table import FORMATS, Format, all_formats, by_suffix
from rescore.skipping import OnError, fail
from rescore.types import Lattice, NbestList

_OPTIONS = re.compile(r"\?(\w+=[^&]*(?:&\w+=[^&]*)*)$")
_NAME = re.compile(r"[A-Za-z][\w.-]*")
_WRITABLE = {"nbest": "jsonl", "lattice": "slf"}  # of each kind, a format to name where another one is read only


def names_format(spec: str) -> bool:
    """Whether `spec` says its format: by its prefix, or by the end of its name."""
    name = Path(spec).name.partition("?")[0].removesuffix(".gz").removesuffix(".xz")
    if spec.partition(":")[0] in FORMATS or by_suffix(name, FORMATS):
        return True
    return spec.partition(":")[0] in all_formats() or by_suffix(name, all_formats()) is not None


def parse_spec(spec: str) -> tuple[str, Path]:
    """`(format name, path)` of `FORMAT:PATH`; the format is guessed from the path where it is left out.

    Raises:
      UsageError: no path, an unknown format or option, or a format that cannot be guessed.
    """
    entry, path, _ = _parse(spec)
    return entry.name, path


def format_of(spec: str, kind: str | None = None) -> Format:
    """The format of `spec`; `kind` says which where a name stands for two.  Raises as `parse_spec`."""
    return _parse(spec, kind)[0]


def source_identity(spec: str) -> str:
    """Changes when what is read from `spec` does: format, options, the content of all files (folders do not count).

    Raises:
      FormatError: of Kaldi's archives, one is missing.
    """
    from lm_zoo.identity import content

    entry, path, options = _parse(spec)
    named = {name: content([Path(value)]) if Path(value).is_file() else value for name, value in options.items()}
    files = [path]
    if entry.name == "kaldi-lat":
        from rescore.formats.kaldi_archive import all_files

        files = all_files(path)
    if "words" in entry.options and "words" not in options:
        files += usual_tables(path)
    return content(files, [entry.name, *(f"{name}={named[name]}" for name in sorted(named))])


def is_pipe(spec: str) -> bool:
    """Whether `spec` or a file of its options is read but once (a pipe, a terminal): it has no `source_identity`."""
    _, path, options = _parse(spec)
    files: list[str | Path] = [path, *options.values()]
    return any(map(is_read_once, files))


def is_lattice(spec: str) -> bool:
    """Whether `spec` names lattices (and not N-best lists)."""
    return _parse(spec)[0].kind == "lattice"


def read_nbest(spec: str, on_error: OnError = fail) -> Iterator[NbestList]:
    """The N-best lists of `spec`, one utterance at a time, in the order of the source.

    Args:
      on_error: gets the error of a list that cannot be read; if it returns, the next one is read if the format's lists
        can be told apart, else nothing more.
    Raises:
      UsageError: `spec` cannot be understood or names lattices.
      FormatError: the source is not what its format says.
      ScoreError: a score is missing, NaN or infinite.
    """
    entry, path, options = _to_read(spec, "nbest")
    lists: Iterator[NbestList] = _module(entry).read(path, options, *([on_error] if entry.skips else []))
    return lists if on_error is fail else _until_damage(path, lists, on_error)


def _until_damage(path: Path, lists: Iterator[NbestList], on_error: OnError) -> Iterator[NbestList]:
    try:
        yield from lists
    except (FormatError, ScoreError) as error:
        damage = FormatError(path, f"read up to here, and no further: {error}")
        damage.uncounted = True
        on_error(damage)


def write_nbest(spec: str, lists: Iterable[NbestList], on_error: OnError = fail) -> int:
    """Writes N-best lists as they come; the file or folder appears only when all are written.

    Args:
      on_error: gets the FormatError of a list that memory does not suffice to write, if the format can leave it out.
    Returns:
      The number of utterances.
    Raises:
      UsageError: as `read_nbest`.
      FormatError, ScoreError: a list that cannot be written so that it reads back the same (NaN or infinite scores,
        a duplicate id, no hypothesis, scores that the format has no place for, ...), or no list at all.
    """
    entry, path, options = _to_write(spec, "nbest")
    left_out = CountedErrors(on_error)
    to_write = Checked(path, lists, left_out)
    try:
        count: int = _module(entry).write(path, iter(to_write), options, *([left_out] if entry.leaves_out else []))
    except UnicodeEncodeError as error:
        raise FormatError(path, f"text that UTF-8 cannot write ({error.reason})") from None
    if to_write.references and not entry.keeps_refs:
        remark(
            f"{path}: {entry.name} has no place for references; those of {to_write.references} utterances are left out"
        )
    return count


def read_lattices(spec: str, on_error: OnError = fail) -> Iterator[Lattice]:
    """The lattices of `spec`, one at a time; raises as `read_nbest` does.

    Args:
      on_error: gets the error of a lattice that cannot be read; if it returns, the next one is read.
    """
    entry, path, options = _to_read(spec, "lattice")
    lattices: Iterator[Lattice] = _module(entry).read_lattices(path, options, on_error)
    return lattices


def lattice_pieces(spec: str) -> list[Piece] | None:
    """What a source of lattices consists of, in its order (files, lines of an index); None if it is one whole."""
    entry, path, options = _to_read(spec, "lattice")
    find = getattr(_module(entry), "pieces", None)
    return None if find is None else list(find(path, options))


def lattice_reader(spec: str) -> Callable[[Sequence[Piece], OnError], Iterator[Lattice]]:
    """Reads, each time, some of the `lattice_pieces`; what all of them have in common is looked for, and said, once."""
    entry, path, options = _to_read(spec, "lattice")
    reader: Callable[[Sequence[Piece], OnError], Iterator[Lattice]] = _module(entry).reader(path, options)
    return reader


def write_lattices(spec: str, lattices: Iterable[Lattice], on_error: OnError = fail) -> int:
    """Writes lattices as they come; the file or folder appears only when all are written.

    Args:
      on_error: gets the FormatError of a lattice that memory does not suffice to write, if the format can leave it out.
    Returns:
      The number of lattices.
    Raises:
      UsageError: as `read_nbest`.
      FormatError, ScoreError: a lattice that the format cannot hold, an id that is none or occurs twice, no lattice.
    """
    entry, path, options = _to_write(spec, "lattice")
    left_out = CountedErrors(on_error)

    def checked() -> Iterator[Lattice]:
        unique = UniqueIds()
        count = 0
        for count, lattice in enumerate(lattices, start=1):  # noqa: B007
            place = Place(path, utt_id=lattice.utt_id)
            unique.add(utterance_id(lattice.utt_id, place), place)
            yield lattice
        if count == left_out.count:
            raise FormatError(path, "no lattice to write")

    count: int = _module(entry).write_lattices(path, checked(), options, *([left_out] if entry.leaves_out else []))
    return count


class _Asked(Exception):
    """A writer has asked for the first utterance."""


def check_target(spec: str, kind: str) -> None:
    """What `write_nbest` or `write_lattices` raises before the first utterance, hours before there is one.

    Args:
      kind: which of them, "nbest" or "lattice".
    """
    path = _to_write(spec, kind)[1]
    if not path.is_dir() and is_in_place(path):
        return  # what waits at a pipe would take it for the end

    def nothing() -> Iterator[Any]:
        raise _Asked
        yield

    with suppress(_Asked):
        (write_nbest if kind == "nbest" else write_lattices)(spec, nothing())


def copy_lattices(source: str, target: str, on_error: OnError = fail) -> int:
    """Lattices from one format to another; within one format nothing is lost if its module can copy (Kaldi's bytes).

    Returns:
      The number of lattices; raises as `read_lattices` and `write_lattices`.
    """
    if not can_copy(source, target):
        return write_lattices(target, read_lattices(source, on_error), on_error)
    (entry, path, told), (_, out, options) = _to_read(source, "lattice"), _to_write(target, "lattice")
    words = {name: value for name, value in told.items() if name == "words"}
    count: int = _module(entry).copy_lattices(path, out, {**options, **words}, on_error)
    return count


def can_copy(source: str, target: str) -> bool:
    """Whether `copy_lattices` copies records as they are: no score is to change, and no word's number."""
    (one, path, told), (other, _, options) = _parse(source, "lattice"), _parse(target, "lattice")
    if one is not other or not hasattr(_module(one), "copy_lattices") or {"graph", "weights"} & options.keys():
        return False
    if "words" not in options:
        return True
    known = [told["words"]] if "words" in told else usual_tables(Path(path))
    return all(same_table(options["words"], table) for table in known)


def has_option(spec: str, name: str) -> bool:
    """Whether the format of `spec`, taken as lattices, has the option `name`."""
    return name in _parse(spec, "lattice")[0].options


def options_of(spec: str) -> dict[str, str]:
    """The options behind the path of `spec`; raises as `parse_spec`."""
    return _parse(spec)[2]


def with_option(spec: str, name: str, value: object | None) -> str:
    """`spec` with one more option `NAME=VALUE`; itself if `value` is None, or if it has that option."""
    found = _OPTIONS.search(spec)
    if value is None or (found and any(pair.startswith(f"{name}=") for pair in found[1].split("&"))):
        return spec
    return f"{spec}{'&' if found else '?'}{name}={value}"


def with_numbers(source: str, target: str) -> str:
    """`target` with the option `numbers`, by which words keep the numbers that they have in the lattices of `source`.

    Itself where one of them has no numbers of words, or says more, or the table of `source` is not found.
    """
    (one, path, told), (other, _, options) = _parse(source, "lattice"), _parse(target, "lattice")
    if "numbers" not in other.options or {"words", "numbers"} & options.keys():
        return target
    usual = usual_tables(path) if "numbers" in one.options else []
    tables = [Path(told["words"])] if "words" in told else usual
    named = [table for table in tables if table.is_file() and not {*"?&"} & {*str(table)}]
    same = bool(named) and all(same_table(table, named[0]) for table in tables)
    return with_option(target, "numbers", named[0] if same else None)


def _to_read(spec: str, kind: str) -> tuple[Format, Path, dict[str, str]]:
    """As `_parse`; raises UsageError as well where the kind is another one, or an option counts in writing alone."""
    entry, path, options = _parse(spec, kind)
    _require_kind(entry, kind, spec)
    _refuse(spec, entry, options.keys() & set(entry.of_writing), "writing")
    return entry, path, options


def _to_write(spec: str, kind: str) -> tuple[Format, Path, dict[str, str]]:
    """As `_to_read`, of what is to be written; raises UsageError as well where there is no writer."""
    entry, path, options = _parse(spec, kind)
    _require_kind(entry, kind, spec)
    if entry.read_only:
        other = _WRITABLE[kind]
        raise UsageError(f"'{spec}': {entry.name} is read only; write another format, such as {other}:PATH")
    _refuse(spec, entry, options.keys() & set(entry.of_reading), "reading")
    return entry, path, options


def _refuse(spec: str, entry: Format, useless: Iterable[str], only: str) -> None:
    """Raises UsageError if there are options that do nothing here."""
    for option in sorted(useless):
        raise UsageError(f"'{spec}': {option}= is for {only} {entry.name} alone, and does nothing here; leave it out")


def _module(entry: Format) -> ModuleType:
    return importlib.import_module(entry.module)


def _parse(spec: str, kind: str | None = None) -> tuple[Format, Path, dict[str, str]]:
    """`(format, path, options)` of a spec; `kind` decides where a name stands for formats of two kinds."""
    spec = str(spec)
    found = _OPTIONS.search(spec)
    body = spec[: found.start()] if found else spec
    options = _named_once(spec, found[1]) if found else {}
    name, colon, rest = ("", "", "") if DRIVE.match(body) else body.partition(":")
    if colon and (name in FORMATS or name in all_formats()):
        path = Path(rest)
        entry = _of_kind(FORMATS.get(name) or all_formats()[name], path, kind, options)
        if not rest:
            raise UsageError(f"'{spec}': no path after '{name}:'")
    else:
        if colon and _NAME.fullmatch(name) and not _colon_in_path(Path(body)):
            known = ", ".join(all_formats())
            like = nearest(name, all_formats())
            raise UsageError(
                f"'{spec}': unknown format '{name}'{like}; there are: {known} (a file of this name: ./{body})"
            )
        if not body:
            raise UsageError(f"'{spec}': no path")
        path = Path(body)
        entry = _guess(path, spec)
    for option in options:
        if option not in entry.options:
            known = ", ".join(entry.options) or "none"
            raise UsageError(f"'{spec}': {entry.name} has no option '{option}'; it has: {known}")
    return entry, path, options


def _named_once(spec: str, text: str) -> dict[str, str]:
    """The options `NAME=VALUE&NAME=VALUE`; raises UsageError where one has no value, or is there twice."""
    options: dict[str, str] = {}
    for name, _, value in (pair.partition("=") for pair in text.split("&")):
        if not value:
            raise UsageError(f"'{spec}': {name}= has no value; give one, or leave it out")
        if name in options:
            raise UsageError(f"'{spec}': {name}= is given twice, expected once")
        options[name] = value
    return options


def _of_kind(entry: Format, path: Path, kind: str | None, options: Iterable[str]) -> Format:
    """`entry`, or the lattice format with its name as alias: `kind` says so, or path or options can be nothing else."""
    lattice = next((other for other in FORMATS.values() if other.alias == entry.name), None)
    if lattice is None or kind == "nbest":
        return entry
    if kind is None and any(option in lattice.options and option not in entry.options for option in options):
        return lattice
    if kind is None and path.is_dir():
        return lattice if any(next(path.glob(pattern), None) for pattern in lattice.contents) else entry
    return lattice if kind or path.suffix or is_read_once(path) else entry


def _colon_in_path(path: Path) -> bool:
    """Whether something is there whose name has the colon: the path itself or its folder."""
    return path.exists() or (":" in str(path.parent) and path.parent.is_dir())


def _guess(path: Path, spec: str) -> Format:
    if path.is_dir():
        for entry in FORMATS.values():
            if any(next(path.glob(pattern), None) for pattern in entry.contents):
                return entry
    name = path.name
    for packed in (".gz", ".xz"):
        name = name.removesuffix(packed)
    found = None if path.is_dir() else by_suffix(name, FORMATS) or by_suffix(name, all_formats())
    if found is not None:
        return found
    known = ", ".join(all_formats())
    if not path.exists():
        problem = "no such file or folder; to write one of this name, say its format"
    else:
        problem = "the format cannot be guessed"
        inside = sorted(str(file) for file in path.glob("*.jsonl*")) if path.is_dir() else []
        if inside:
            raise UsageError(f"'{spec}' is a folder; say which lists in it: {' or '.join(inside)}")
    raise UsageError(f"'{spec}': {problem}: FORMAT:PATH with one of: {known}")


def _require_kind(entry: Format, kind: str, spec: str) -> None:
    if entry.kind == kind:
        return
    if kind == "nbest":
        raise UsageError(f"'{spec}': {entry.name} holds lattices, expected N-best lists")
    raise UsageError(f"'{spec}': {entry.name} holds N-best lists, expected lattices")
