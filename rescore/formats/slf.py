"""HTK Standard Lattice Format (HTKBook, "SLF Format"), in HTK's and in Sphinx's dialect.

Both give words on nodes or on links.  They differ in what a word on a node means: in HTK's dialect (SRILM's too) it
is the word of the links that END at the node, in Sphinx's (PocketSphinx, Sphinx-III) that of the links that START
there, and `a=` is that word's acoustic score.  A file is in Sphinx's dialect if a comment names Sphinx as its maker, or
if it has words on nodes and every link leads from a higher node number to a lower one.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from lm_zoo.reading import BLANKS, kaldi_fields
from rescore.errors import FormatError, RescoreError, UsageError
from rescore.files import read_lines
from rescore.formats import slf_write
from rescore.formats.common import Piece, Place, UniqueIds, named_if_too_large, utterance_files, utterance_id
from rescore.formats.slf_write import NULL_WORDS, WORDS_COMMENT
from rescore.lattices.build import EPSILON, build_lattice
from rescore.skipping import OnError, fail
from rescore.types import Lattice

SUFFIXES = (".slf", ".lat", ".slf.gz", ".lat.gz", ".slf.xz", ".lat.xz")
SCORE_NAMES = {"a": "am", "l": "lm", "r": "pron", "n": "n", "i": "i"} | {
    f"x{digit}": f"x{digit}" for digit in range(1, 10)
}
NO_SCORES = frozenset(("J", "S", "E", "W", "v", "d", "p"))  # fields of links that are read elsewhere, or say nothing
POSTERIOR_FLOOR = -100.0  # stands for the log of a posterior that is printed as 0; all others lie above it

_SHORT_NAMES = {
    **{"NODES": "N", "LINKS": "L", "START": "S", "END": "E", "WORD": "W"},
    **{"time": "t", "var": "v", "acoustic": "a", "language": "l"},
}
_READ = NO_SCORES | SCORE_NAMES.keys()
_LONG_NAMES = frozenset(_SHORT_NAMES)
_VARIANT = re.compile(r"\(\d+\)$")
_FIELD_NAME = re.compile(r"\s*([^\s=]+)=", re.ASCII)
_BLANK = re.compile(r"\s", re.ASCII)
_CHARACTER = re.compile(r"\\.|[\"']")


@dataclass
class _Slf:
    """The fields of one file: header, then node and link definitions in order."""

    path: Path
    header: dict[str, str] = field(default_factory=dict)
    nodes: list[dict[str, str]] = field(default_factory=list)
    links: list[dict[str, str]] = field(default_factory=list)
    by_sphinx: bool = False
    names: dict[str, str] = field(default_factory=dict)  # of scores, as a comment of rescore gives them
    null_words: frozenset[str] = NULL_WORDS  # but those that a comment of rescore calls words


def lattice_files(path: str | Path) -> list[Path]:
    """The SLF files that `path` stands for: itself, or those of a folder sorted by utterance id.

    Raises:
      FormatError: a folder without such files, or with two files for one utterance.
    """
    missing = f"no lattice in this folder, expected files named *{', *'.join(SUFFIXES)}"
    return utterance_files(Path(path), lambda file: file.name.endswith(SUFFIXES), file_id, missing)


def file_id(path: Path) -> str:
    """The file's name without `.gz` or `.xz` and without `.slf` or `.lat`."""
    name = path.name.removesuffix(".gz").removesuffix(".xz")
    return name.removesuffix(".slf") if name.endswith(".slf") else name.removesuffix(".lat")


def read_lattices(
    path: str | Path, options: Mapping[str, str] | None = None, on_error: OnError = fail
) -> Iterator[Lattice]:
    """Yields the lattices of `lattice_files(path)`, one at a time; `on_error` gets what `read_lattice` raises.

    Utterance ids are the names of the files, or with the option `utterance=yes` what UTTERANCE= in their headers says.
    """
    options = options or {}
    return read_pieces(Path(path), options, on_error, pieces(Path(path), options))


def pieces(path: Path, options: Mapping[str, str]) -> list[Piece]:
    """The files."""
    if options.get("utterance", "yes") != "yes":
        raise UsageError(f"{path}: utterance is '{options['utterance']}', expected yes")
    return [Piece(file) for file in lattice_files(path)]


def read_pieces(
    path: Path, options: Mapping[str, str], on_error: OnError, chosen: Sequence[Piece]
) -> Iterator[Lattice]:
    """As `read_lattices`, of some of the `pieces`."""
    unique = UniqueIds()
    for piece in chosen:
        try:
            with named_if_too_large(Place(piece.path)):
                lattice = read_lattice(piece.path, named_inside="utterance" in options)
            unique.add(lattice.utt_id, Place(piece.path, utt_id=lattice.utt_id))
        except RescoreError as error:
            on_error(error)
        else:
            yield lattice


def write_lattices(
    path: Path, lattices: Iterable[Lattice], options: Mapping[str, str], on_error: OnError = fail
) -> int:
    """Writes a folder of files UTT.slf.gz; see `rescore.formats.slf_write`."""
    return slf_write.write_lattices(path, lattices, on_error)


def read_lattice(path: str | Path, named_inside: bool = False) -> Lattice:
    """Reads one SLF file (`.gz` transparent) as a lattice with natural-log scores on its arcs.

    Scores by name: `am` (a=), `lm` (l=), `pron` (r=), and n=, i=, x1= ... x9= under their own names; several in one
    field, as in `i=-1.5,-2` of lattice-rescore, are `i1`, `i2`.  `p=` of PocketSphinx
    is the posterior of a link under a model that is a Markov chain over the nodes, and gives `posterior`: the log of p
    over the sum of p of all links out of the same node.  Summed along a path it is the path's log posterior.  In that
    model PocketSphinx adds its bigram, unscaled, and acoustics scaled by 1/20 (its option `-ascale`), so the bigram
    score of a path is `posterior - am / 20` up to a constant of the lattice.  (The decoder itself gives acoustics more
    weight and uses a trigram: its own best path is only nearly the best by `posterior` and `am` at some scales.)
    Where p is printed as 0, `posterior` is POSTERIOR_FLOOR.

    Null words, fillers and sentence marks become epsilons (NULL_WORDS, but for those that a comment of ours calls
    words); nodes that are on no complete path are removed and counted, and links with fields that are not read counted.

    Args:
      named_inside: the utterance id is what UTTERANCE= says, not the name of the file.
    Raises:
      FormatError: truncated or empty file, malformed line, counts that differ from N= and L=, links between nodes that
        are not there, scores that only some links have or that are not finite, sub-lattices, cycles, no complete path.
    """
    slf = _parse(Path(path))
    number = {node["I"]: row for row, node in enumerate(slf.nodes)}
    src, dst = (_end_points(slf, number, name) for name in "SE")
    start, final = _start_and_end(slf, number, src, dst)
    scores = _scores(slf, src)
    words, first_word, last_word = _link_words(slf, src, dst, start, final)
    num_states = len(slf.nodes)
    times = _times(slf)
    if not slf.links and start == final:  # an empty sentence: one null link, so that there is one to score
        src, dst, words, final, num_states = np.array([start]), np.array([num_states]), [""], num_states, num_states + 1
        times = None if times is None else np.append(times, times[start])
    # The first word in HTK's dialect and the last in Sphinx's stand on no link: they get one more, without scores.
    if first_word not in slf.null_words:
        src, dst, words = np.append(src, num_states), np.append(dst, start), [*words, first_word]
        times = None if times is None else np.append(times, times[start])
        start, num_states = num_states, num_states + 1
    if last_word not in slf.null_words:
        src, dst, words = np.append(src, final), np.append(dst, num_states), [*words, last_word]
        times = None if times is None else np.append(times, times[final])
        final, num_states = num_states, num_states + 1
    scores = {name: np.append(column, np.zeros(len(src) - len(column))) for name, column in scores.items()}
    symbols = {"": EPSILON}
    words = ["" if word in slf.null_words else word for word in words]
    labels = np.array([symbols.setdefault(word, len(symbols)) for word in words], dtype=np.int32)
    utt_id = _inner_id(slf) if named_inside else file_id(slf.path)
    unread = sum(not link.keys() <= _READ for link in slf.links)
    counts = {"unread_fields": unread} if unread else None
    try:
        return build_lattice(utt_id, num_states, src, dst, labels, scores, list(symbols), start, final, times, counts)
    except RescoreError as error:
        raise FormatError(path, str(error)) from None


def _inner_id(slf: _Slf) -> str:
    if "UTTERANCE" not in slf.header:
        raise FormatError(slf.path, "no UTTERANCE= in the header, which ?utterance=yes takes the utterance id from")
    return utterance_id(slf.header["UTTERANCE"], Place(slf.path))


def _parse(path: Path) -> _Slf:
    slf = _Slf(path)
    for number, line in read_lines(path, ended=True):
        if line.startswith("J="):
            slf.links.append(_fields(path, number, line, ("S", "E")))
        elif line.startswith("I="):
            slf.nodes.append(_fields(path, number, line, ()))
        elif line.startswith("# rescore "):
            slf.names = dict(item.split("=", 1) for item in kaldi_fields(line)[2:] if "=" in item)  # type: ignore[misc]
        elif line.startswith(WORDS_COMMENT):
            slf.null_words = NULL_WORDS.difference(kaldi_fields(line.removeprefix(WORDS_COMMENT)))
        elif line.startswith("#"):
            slf.by_sphinx = slf.by_sphinx or "sphinx" in line.lower()
        elif line.strip(BLANKS):
            slf.header.update(_fields(path, number, line, ()))
    if not slf.header and not slf.nodes:
        raise FormatError(path, "empty file, expected an HTK lattice (VERSION=, N= L=, I=..., J=...)")
    if "SUBLAT" in slf.header or any("L" in node for node in slf.nodes):
        raise FormatError(path, "has sub-lattices (SUBLAT= or L= on a node), which are not read; expand them before")
    for name, found, what in (("N", len(slf.nodes), "nodes (I=)"), ("L", len(slf.links), "links (J=)")):
        stated = slf.header.get(name)
        if stated is None:
            raise FormatError(path, f"no {name}= in the header, expected an HTK lattice")
        if stated != str(found):
            raise FormatError(path, f"the header says {name}={stated}, found {found} {what}; the file is incomplete")
    if not slf.nodes:
        raise FormatError(path, "a lattice without nodes")
    slf.by_sphinx = slf.by_sphinx or _numbered_backward(slf)
    return slf


def _fields(path: Path, number: int, line: str, required: tuple[str, ...]) -> dict[str, str]:
    """The `name=value` fields of a line; values may be quoted or escaped, long names become short ones."""
    try:
        if '="' in line or "='" in line or "\\" in line:
            fields = dict(_quoted_fields(line))
        else:
            fields = dict([item.split("=", 1) for item in kaldi_fields(line)])  # type: ignore[misc]
    except ValueError:
        fields = {}
    if not fields:
        raise FormatError(path, f"expected fields 'name=value', found '{line.strip()[:60]}'", line=number)
    if not _LONG_NAMES.isdisjoint(fields):
        fields = {_SHORT_NAMES.get(name, name): value for name, value in fields.items()}
    for name in required:
        if name not in fields:
            raise FormatError(path, f"a link without {name}=, expected 'J=... S=... E=...'", line=number)
    return fields


def _quoted_fields(line: str) -> Iterator[tuple[str, str]]:
    """The fields of a line with quotes or backslashes in it; ValueError where something is none."""
    line, at = line.rstrip(BLANKS), 0
    while at < len(line):
        name = _FIELD_NAME.match(line, at)
        if name is None:
            raise ValueError
        end = _end_of_value(line, name.end())
        yield name[1], _unquote(line[name.end() : end])
        at = end


def _end_of_value(line: str, start: int) -> int:
    """Behind the quote that ends a value and has a blank after it; else the next blank."""
    if line[start : start + 1] in ('"', "'"):
        for found in _CHARACTER.finditer(line, start + 1):
            if found[0] == line[start] and (found.end() == len(line) or line[found.end()] in BLANKS):
                return found.end()
    blank = _BLANK.search(line, start)
    return blank.start() if blank else len(line)


def _unquote(value: str) -> str:
    if len(value) > 1 and value[0] in "\"'" and value[-1] == value[0]:
        value = value[1:-1]
    return re.sub(r"\\([0-7]{3}|.)", lambda m: chr(int(m[1], 8)) if len(m[1]) == 3 else m[1], value)


def _end_points(slf: _Slf, number: dict[str, int], name: str) -> np.ndarray:
    """Rows of the nodes that the links name in field `name`, int64 `(links,)`."""
    if len(number) < len(slf.nodes):
        raise FormatError(slf.path, "a node number (I=) is given to two nodes")
    rows = [number.get(link[name], -1) for link in slf.links]
    if -1 in rows:
        link = slf.links[rows.index(-1)]
        raise FormatError(slf.path, f"link J={link['J']} has {name}={link[name]}, but there is no node I={link[name]}")
    return np.array(rows, dtype=np.int64)


def _start_and_end(slf: _Slf, number: dict[str, int], src: np.ndarray, dst: np.ndarray) -> tuple[int, int]:
    """Rows of the start and end node: from the header, else the only one without links in, and without links out."""
    found = []
    for name, others, what in (("start", dst, "into"), ("end", src, "out of")):
        if name in slf.header:
            if slf.header[name] not in number:
                raise FormatError(slf.path, f"header says {name}={slf.header[name]}, but there is no such node")
            found.append(number[slf.header[name]])
            continue
        candidates = np.setdiff1d(np.arange(len(slf.nodes)), others)
        if len(candidates) != 1:
            problem = f"no {name}= in the header and {len(candidates)} nodes without a link {what} them, expected one"
            raise FormatError(slf.path, problem)
        found.append(int(candidates[0]))
    return found[0], found[1]


def _link_words(slf: _Slf, src: np.ndarray, dst: np.ndarray, start: int, final: int) -> tuple[list[str], str, str]:
    """The word of each link, and the words of the first and the last node that are on none."""
    node_words = [node.get("W", "") for node in slf.nodes]
    if any("W" in link for link in slf.links) or not any(node_words):
        return [link.get("W", "") for link in slf.links], "", ""
    if slf.by_sphinx:
        node_words = [_VARIANT.sub("", word) for word in node_words]
        return [node_words[row] for row in src], "", node_words[final]
    return [node_words[row] for row in dst], node_words[start], ""


def _numbered_backward(slf: _Slf) -> bool:
    """Whether words are on nodes and every link leads to a lower number."""
    try:
        return any("W" in node for node in slf.nodes) and all(int(link["S"]) > int(link["E"]) for link in slf.links)
    except ValueError:  # numbers need not be integers
        return False


def _scores(slf: _Slf, src: np.ndarray) -> dict[str, np.ndarray]:
    to_log = _logarithm(slf)
    if not slf.links:
        return {"am": np.zeros(0), "lm": np.zeros(0)}
    scores = {}
    for name in sorted({name for link in slf.links for name in link} & SCORE_NAMES.keys()):
        columns = [to_log(column) for column in _columns(slf, name)]
        for k, column in enumerate(columns, start=1):
            if not np.isfinite(column).all():
                link = slf.links[int(np.flatnonzero(~np.isfinite(column))[0])]
                raise FormatError(slf.path, f"link J={link['J']} has {name}={link[name]}, expected a finite log score")
            full = slf.names.get(name, SCORE_NAMES[name])
            scores[full if len(columns) == 1 else f"{full}{k}"] = column
    if slf.by_sphinx and "p" in slf.links[0]:
        scores["posterior"] = _log_conditionals(slf, _column(slf, "p"), src)
    return scores


def _log_conditionals(slf: _Slf, posteriors: np.ndarray, src: np.ndarray) -> np.ndarray:
    """log(p of a link / sum of p over the links out of the same node), float64 `(links,)`, floored."""
    if not ((posteriors >= 0) & (posteriors < 1.01)).all():  # printed with 6 digits from a table of logs: 1.0002 occurs
        raise FormatError(slf.path, "a posterior (p=) outside 0 .. 1")
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.log(posteriors) - np.log(np.bincount(src, posteriors, minlength=len(slf.nodes)))[src]
    return np.where(posteriors > 0, np.maximum(logs, POSTERIOR_FLOOR), POSTERIOR_FLOOR)


def _logarithm(slf: _Slf):  # type: ignore[no-untyped-def]
    """The function from the file's scores to natural logs: `base=` in the header, 0 for plain probabilities."""
    text = slf.header.get("base", str(math.e))
    try:
        base = float(text)
    except ValueError:
        base = -1.0
    if base == 0.0:
        return lambda column: np.log(column, out=np.full_like(column, -np.inf), where=column > 0)
    if base < 0.0 or base == 1.0 or not math.isfinite(base):
        raise FormatError(slf.path, f"header says base={text}, expected the base of the logs, or 0 for probabilities")
    return lambda column: column * (1.0 if "base" not in slf.header else math.log(base))


def _columns(slf: _Slf, name: str) -> list[np.ndarray]:
    """The values of field `name`, with commas between them, each of all links: float64 `(links,)`."""
    first = slf.links[0].get(name, "")
    if "," not in first:
        return [_column(slf, name)]
    count = first.count(",") + 1
    rows = [link.get(name, "").split(",") for link in slf.links]
    for link, row in zip(slf.links, rows, strict=True):
        if len(row) != count:
            found = f"{name}={link[name]}" if name in link else f"no {name}="
            problem = f"link J={link['J']} has {found}, expected {count} scores with commas, as on the first link"
            raise FormatError(slf.path, problem)
    try:
        return list(np.array([[float(value) for value in row] for row in rows]).T)
    except ValueError as error:
        raise FormatError(slf.path, f"a link has {name}= with something that is not a number ({error})") from None


def _column(slf: _Slf, name: str) -> np.ndarray:
    """Field `name` of all links, float64 `(links,)`."""
    try:
        return np.array([float(link[name]) for link in slf.links])
    except KeyError:
        link = next(link for link in slf.links if name not in link)
        raise FormatError(slf.path, f"link J={link['J']} has no {name}=, which other links have") from None
    except ValueError as error:
        raise FormatError(slf.path, f"a link has {name}= that is not a number ({error})") from None


def _times(slf: _Slf) -> np.ndarray | None:
    """Seconds of the nodes, float64 `(nodes,)`; None unless all have t=."""
    if not all("t" in node for node in slf.nodes):
        return None
    try:
        return np.array([float(node["t"]) for node in slf.nodes])
    except ValueError as error:
        raise FormatError(slf.path, f"a node has t= that is not a number ({error})") from None
