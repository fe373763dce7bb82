"""HTK Standard Lattice Format (HTKBook, "SLF Format"), in HTK's and in Sphinx's dialect.

Both give words on nodes or on links.  They differ in what a word on a node means: in HTK's dialect (SRILM's too) it
is the word of the links that END at the node, in Sphinx's (PocketSphinx, Sphinx-III; SRILM's with dir=b in the header)
that of the links that START there, and `a=` is that word's acoustic score.  A file is in Sphinx's dialect if a comment
names Sphinx as its maker, or if it has words on nodes and every link leads from a higher node number to a lower one.

As in SRILM, what stands on a node, word or scores, is that of its links which have none of their own.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np

from rescore.errors import FormatError, RescoreError, UsageError
from rescore.formats import slf_write
from rescore.formats.common import Piece, Place, UniqueIds, named_if_too_large, utterance_files, utterance_id
from rescore.formats.slf_parse import Slf, parse
from rescore.lattices.build import EPSILON, build_lattice
from rescore.skipping import OnError, fail
from rescore.types import Lattice

SUFFIXES = (".slf", ".lat", ".slf.gz", ".lat.gz", ".slf.xz", ".lat.xz")
SCORE_NAMES = {"a": "am", "l": "lm", "r": "pron", "n": "n", "i": "i", "ds": "ds"} | {
    f"x{digit}": f"x{digit}" for digit in range(1, 10)
}
POSTERIOR_FLOOR = -100.0  # stands for the log of a posterior that is printed as 0; all others lie above it

_NO_SCORES = frozenset(("W", "v", "d", "s", "p"))  # fields that are read elsewhere, or say nothing
_OF_LINKS = SCORE_NAMES.keys() | _NO_SCORES | {"J", "S", "E"}
_OF_NODES = SCORE_NAMES.keys() | _NO_SCORES | {"I", "t"}
_VARIANT = re.compile(r"\(\d+\)$")


@dataclass
class _Arcs:
    """The arcs of a lattice: of the links, and more for what stands on none.

    Attributes:
      fields: what was said of each.
      states: the row of the node that each state has its time from; the first ones are the nodes.
    """

    src: list[int]
    dst: list[int]
    start: int
    final: int
    fields: list[dict[str, str]]
    states: list[int]
    words: list[str] = field(default_factory=list)

    def add_before(self, word: str, fields: dict[str, str]) -> None:
        """One more arc, to the start."""
        self.states.append(self.states[self.start])
        self.src.append(len(self.states) - 1)
        self.dst.append(self.start)
        self.start = self.src[-1]
        self.words.append(word)
        self.fields.append(fields)

    def add_behind(self, word: str, fields: dict[str, str]) -> None:
        """One more arc, from the end."""
        self.states.append(self.states[self.final])
        self.src.append(self.final)
        self.dst.append(len(self.states) - 1)
        self.final = self.dst[-1]
        self.words.append(word)
        self.fields.append(fields)


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
    return reader(Path(path), options)(pieces(Path(path), options), on_error)


def pieces(path: Path, options: Mapping[str, str]) -> list[Piece]:
    """The files."""
    if options.get("utterance", "yes") != "yes":
        raise UsageError(f"{path}: utterance is '{options['utterance']}', expected yes")
    return [Piece(file) for file in lattice_files(path)]


def reader(path: Path, options: Mapping[str, str]) -> Callable[[Sequence[Piece], OnError], Iterator[Lattice]]:
    """Gives the lattices of some of the `pieces`, as `read_lattices`."""
    return partial(_read, "utterance" in options)


def _read(named_inside: bool, chosen: Sequence[Piece], on_error: OnError) -> Iterator[Lattice]:
    unique = UniqueIds()
    for piece in chosen:
        try:
            with named_if_too_large(Place(piece.path)):
                lattice = read_lattice(piece.path, named_inside)
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
    words); links with a score of -inf and nodes that are on no complete path are removed and counted, and links with
    fields that are not read counted.  A score that a link without word lacks is 0 (SRILM leaves it out there).  Times
    are multiplied by tscale=.

    Args:
      named_inside: the utterance id is what UTTERANCE= says, not the name of the file.
    Raises:
      FormatError: truncated or empty file, malformed line, counts that differ from N= and L=, links between nodes that
        are not there, scores that only some words have, or of NaN or +inf, sub-lattices, cycles, no complete path.
    """
    slf = parse(Path(path))
    arcs = _arcs(slf)
    scores = _scores(slf, arcs)
    symbols = {"": EPSILON}
    words = ["" if word in slf.null_words else word for word in arcs.words]
    labels = np.array([symbols.setdefault(word, len(symbols)) for word in words], dtype=np.int32)
    utt_id = _inner_id(slf) if named_inside else utterance_id(file_id(slf.path), Place(slf.path))
    unread = sum(not link.keys() <= _OF_LINKS for link in slf.links)
    unread += sum(not node.keys() <= _OF_NODES for node in slf.nodes)
    try:
        return build_lattice(
            utt_id,
            len(arcs.states),
            np.array(arcs.src),
            np.array(arcs.dst),
            labels,
            scores,
            list(symbols),
            arcs.start,
            arcs.final,
            _times(slf, arcs),
            {"unread_fields": unread} if unread else None,
            possible=True,
        )
    except RescoreError as error:
        raise FormatError(path, str(error)) from None


def _inner_id(slf: Slf) -> str:
    if "UTTERANCE" not in slf.header:
        raise FormatError(slf.path, "no UTTERANCE= in the header, which ?utterance=yes takes the utterance id from")
    return utterance_id(slf.header["UTTERANCE"], Place(slf.path))


def _arcs(slf: Slf) -> _Arcs:
    """The links, with what their nodes say of them; and an arc for the word of a first or last node that is on none."""
    number = {node["I"]: row for row, node in enumerate(slf.nodes)}
    src, dst = (_end_points(slf, number, name) for name in "SE")
    start, final = _start_and_end(slf, number, src, dst)
    said = [_said(slf, node) for node in slf.nodes]
    fields = slf.links
    if any(said):
        rows = src if slf.backward else dst
        fields = [said[row] | _said(slf, link) if said[row] else link for row, link in zip(rows, fields, strict=True)]
    arcs = _Arcs(src, dst, start, final, [*fields], list(range(len(slf.nodes))), [link.get("W", "") for link in fields])
    edge = said[final if slf.backward else start]
    if not slf.links and start == final:  # an empty sentence: one null link, so that there is one to score
        arcs.add_behind("", {})
    if "W" in edge and not any("W" in link for link in slf.links):
        (arcs.add_behind if slf.backward else arcs.add_before)(edge["W"], edge)
    return arcs


def _said(slf: Slf, fields: dict[str, str]) -> dict[str, str]:
    """The word, without Sphinx's variant and if it is one, and the scores of a node or a link."""
    said = {name: value for name, value in fields.items() if name in SCORE_NAMES}
    if (word := fields.get("W", "")) not in slf.null_words:
        said["W"] = _VARIANT.sub("", word) if slf.by_sphinx else word
    return said


def _end_points(slf: Slf, number: dict[str, int], name: str) -> list[int]:
    """Rows of the nodes that the links name in field `name`."""
    if len(number) < len(slf.nodes):
        raise FormatError(slf.path, "a node number (I=) is given to two nodes")
    rows = [number.get(link[name], -1) for link in slf.links]
    if -1 in rows:
        link = slf.links[rows.index(-1)]
        raise FormatError(slf.path, f"link J={link['J']} has {name}={link[name]}, but there is no node I={link[name]}")
    return rows


def _start_and_end(slf: Slf, number: dict[str, int], src: list[int], dst: list[int]) -> tuple[int, int]:
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


def _scores(slf: Slf, arcs: _Arcs) -> dict[str, np.ndarray]:
    """Natural logs, float64 `(arcs,)`, by name."""
    to_log, scores = _logarithm(slf), {}
    names = sorted({name for fields in arcs.fields for name in fields} & SCORE_NAMES.keys())
    if not slf.links and not names:
        return {"am": np.zeros(len(arcs.fields)), "lm": np.zeros(len(arcs.fields))}
    for name in names:
        columns = _columns(slf, arcs, name, to_log)
        full = slf.names.get(name, SCORE_NAMES[name])
        scores.update({full if len(columns) == 1 else f"{full}{k}": column for k, column in enumerate(columns, 1)})
    if slf.by_sphinx and slf.links and "p" in slf.links[0]:
        logs = _log_conditionals(slf, np.array(arcs.src[: len(slf.links)]))
        scores["posterior"] = np.append(logs, np.zeros(len(arcs.fields) - len(logs)))
    return scores


def _log_conditionals(slf: Slf, src: np.ndarray) -> np.ndarray:
    """log(p of a link / sum of p over the links out of the same node), float64 `(links,)`, floored."""
    try:
        posteriors = np.array([float(link["p"]) for link in slf.links])
    except KeyError:
        link = next(link for link in slf.links if "p" not in link)
        raise FormatError(slf.path, f"link J={link['J']} has no p=, which other links have") from None
    except ValueError as error:
        raise FormatError(slf.path, f"a link has p= that is not a number ({error})") from None
    if not ((posteriors >= 0) & (posteriors < 1.01)).all():  # printed with 6 digits from a table of logs: 1.0002 occurs
        raise FormatError(slf.path, "a posterior (p=) outside 0 .. 1")
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.log(posteriors) - np.log(np.bincount(src, posteriors, minlength=len(slf.nodes)))[src]
    return np.where(posteriors > 0, np.maximum(logs, POSTERIOR_FLOOR), POSTERIOR_FLOOR)


def _logarithm(slf: Slf) -> Callable[[np.ndarray], np.ndarray]:
    """The function from the file's scores to natural logs, by `base=` in the header.

    As in HTK: 0 for plain probabilities, 1 for natural logs, as they are without it.
    """
    text = slf.header.get("base", "1")
    try:
        base = float(text)
    except ValueError:
        base = -1.0
    if base < 0.0 or not math.isfinite(base):
        problem = f"header says base={text}, expected the base of the logs, 1 for natural ones, 0 for probabilities"
        raise FormatError(slf.path, problem)
    if base == 0.0:
        return _log_of_probabilities
    return lambda column: column * (1.0 if base == 1.0 else math.log(base))


def _log_of_probabilities(column: np.ndarray) -> np.ndarray:
    """-inf for 0, NaN for what is below."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.log(column)


def _columns(slf: Slf, arcs: _Arcs, name: str, to_log: Callable[[np.ndarray], np.ndarray]) -> list[np.ndarray]:
    """The values of field `name`, with commas between them, each of all arcs: float64 `(arcs,)`."""
    rows = [fields[name].split(",") if name in fields else [] for fields in arcs.fields]
    count = len(next(filter(None, rows)))
    absent = np.array([not row for row in rows])
    for at in [at for at, row in enumerate(rows) if len(row) != count]:
        if rows[at] or (arcs.words[at] not in slf.null_words and at < len(slf.links)):
            raise FormatError(slf.path, f"{_named(slf, at)} {_uneven(arcs.fields[at], name, count)}")
        rows[at] = ["nan"] * count
    try:
        values = np.array([float(value) for row in rows for value in row]).reshape(-1, count).T
    except ValueError as error:
        several = " with something" if count > 1 else ""
        raise FormatError(slf.path, f"a link has {name}={several} that is not a number ({error})") from None
    logs = np.where(absent, 0.0, to_log(values))
    if not (logs < np.inf).all():
        at = int(np.flatnonzero(~(logs < np.inf).all(axis=0))[0])
        expected = "a log score below infinity (of base=0: a probability)"
        problem = f"{_named(slf, at)} has {name}={arcs.fields[at][name]}, expected {expected}"
        raise FormatError(slf.path, problem)
    return list(logs)


def _named(slf: Slf, arc: int) -> str:
    return f"link J={slf.links[arc]['J']}" if arc < len(slf.links) else "the first or last node"


def _uneven(fields: Mapping[str, str], name: str, count: int) -> str:
    if name not in fields:
        return f"has no {name}=, which other links have"
    return f"has {name}={fields[name]}, expected as many scores as on the first link, {count}"


def _times(slf: Slf, arcs: _Arcs) -> np.ndarray | None:
    """Seconds of the states, float64 `(states,)`; None unless all nodes have t=."""
    try:
        scale = float(slf.header.get("tscale", "1"))
    except ValueError:
        scale = math.nan
    if not 0.0 < scale < math.inf:
        raise FormatError(slf.path, f"header says tscale={slf.header['tscale']}, expected a number above 0")
    if not all("t" in node for node in slf.nodes):
        return None
    try:
        times = np.array([float(node["t"]) for node in slf.nodes])
    except ValueError as error:
        raise FormatError(slf.path, f"a node has t= that is not a number ({error})") from None
    if not np.isfinite(times).all():
        node = slf.nodes[int(np.flatnonzero(~np.isfinite(times))[0])]
        raise FormatError(slf.path, f"node I={node['I']} has t={node['t']}, expected a finite time")
    return (times * scale)[arcs.states]
