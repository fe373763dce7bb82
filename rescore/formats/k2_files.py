"""Files of k2 lattices as a format of the toolkit (`k2:PATH`); see `rescore.formats.k2` for what is in them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from lm_zoo.reading import key_and_rest
from rescore.console import remark, remark_on_source
from rescore.errors import FormatError, RescoreError, UsageError
from rescore.file_names import by_numbers
from rescore.files import read_lines
from rescore.formats.common import Place, UniqueIds, formed, named_if_too_large, utterance_id
from rescore.formats.k2 import UTT_IDS, Arcs, has_long_strings, joined, one_id_an_arc, save, to_arcs, to_lattices
from rescore.formats.k2_load import load, offsets
from rescore.formats.symbols import own_table, table_for, table_to_write
from rescore.skipping import OnError, fail
from rescore.types import Lattice

SUFFIX = ".pt"


def _parts_of(path: Path) -> list[Path]:
    """`path` itself, or the `.pt` files of a folder; numbers in names count as numbers (2.pt before 10.pt)."""
    if not path.is_dir():
        return [path]
    files = [file for file in path.iterdir() if file.suffix == SUFFIX]
    if not files:
        raise FormatError(path, "no lattices in this folder, expected files *.pt")
    return sorted(files, key=lambda file: (by_numbers(file.name), file.name))


def read_lattices(path: Path, options: Mapping[str, str], on_error: OnError = fail) -> Iterator[Lattice]:
    """All lattices.  Options: `words` (words.txt, or "ids"), `ids` (a file with an utterance id a line).

    Words: see `table_for`.  Ids are those of the option, else those in the files, else utt000001 and so on.  Where they
    are by number, all files must be readable: `on_error` does not get the error of one that is not.
    """
    table = None
    unique = UniqueIds()
    given = _given_ids(options["ids"]) if "ids" in options else None
    made = 0
    by_number = given is not None
    left_out: FormatError | None = None
    for file in _parts_of(path):
        try:
            with named_if_too_large(Place(file)):
                entries = load(file)
                table = table or table_for(path, options.get("words"))
                by_number = by_number or not _has_ids(entries)
                if by_number and left_out:
                    problem = "no utterance ids in it, and none can be made by number behind what was left out"
                    raise RescoreError(f"{problem}: {left_out}")
                ids = _ids(entries, file, made, given, options)
                for utt_id in ids:
                    unique.add(utt_id, Place(file, utt_id=utt_id))
                made += len(ids)
                yield from to_lattices(entries, ids, table, file, on_error)
        except UsageError:
            raise  # no table of words: not for `on_error`
        except RescoreError as error:
            left_out = error if isinstance(error, FormatError) else FormatError(file, str(error))
            left_out.uncounted = True
            (fail if by_number else on_error)(left_out)  # without this file, whose are the ids of the next one?
    if given is not None and made != len(given):
        raise FormatError(options["ids"], f"{len(given)} ids for {made} lattices")


def _given_ids(path: str) -> list[str]:
    """The first fields of the lines that have any."""
    return [utt_id for _, line in read_lines(path) if (utt_id := key_and_rest(line)[0])]


def _has_ids(entries: Mapping[str, Any]) -> bool:
    return isinstance(entries.get(UTT_IDS), (list, tuple))


def _ids(
    entries: Mapping[str, Any], file: Path, made: int, given: list[str] | None, options: Mapping[str, str]
) -> list[str]:
    """The ids of the lattices in a file, behind `made` others."""
    count = len(offsets(entries["arcs"].numpy())[0]) - 1
    if given is not None:
        if made + count > len(given):
            raise RescoreError(f"more lattices than the {len(given)} ids in {options['ids']}")
        return given[made : made + count]
    if _has_ids(entries):
        return [utterance_id(utt_id, Place(file)) for utt_id in entries[UTT_IDS]]
    remark_on_source(f"{file}: no utterance ids in it (give ?ids=FILE); they are called utt{made + 1:06d} and so on")
    return [f"utt{made + number:06d}" for number in range(1, count + 1)]


def write_lattices(
    path: Path, lattices: Iterable[Lattice], options: Mapping[str, str], on_error: OnError = fail
) -> int:
    """Writes one file with an FsaVec of all lattices, which it holds in memory.

    Options: `words` or `numbers`, and `tokens=yes` for an arc to each id where a string has several (else labels are
    words there).  `on_error` as for `formed`.

    Raises:
      FormatError: memory does not suffice for all of them together.
    """
    table = table_to_write(path, options)
    tokens = options.get("tokens", "no")
    if tokens not in ("yes", "no"):
        raise UsageError(f"tokens={tokens}, expected yes or no")
    long = 0

    def form(lattice: Lattice) -> Arcs:
        nonlocal long
        is_long = has_long_strings(lattice)
        long += is_long
        return to_arcs(one_id_an_arc(lattice) if is_long and tokens == "yes" else lattice, table)

    try:
        found = list(formed(lattices, form, path, on_error))
        if long and tokens == "no":
            remark(f"{path}: {long} lattices have arcs with several ids; labels are the words (else: PATH?tokens=yes)")
        save(joined(found), [arcs.utt_id for arcs in found], path)
    except KeyError as error:
        raise FormatError(path, error.args[0]) from None
    except FormatError:
        raise
    except RescoreError as error:
        raise FormatError(path, str(error)) from None
    except MemoryError:
        problem = "memory does not suffice for all lattices in one file, as k2 has them; write another format"
        raise FormatError(path, problem) from None
    table.write(own_table(path), path)
    return len(found)
