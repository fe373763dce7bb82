"""N-best lists and lattices in files, named `FORMAT:PATH`, with options behind a `?` (`nemo:beams.tsv?n=10`).

One module a format, imported when it is used.  Readers give one utterance at a time in the order of the source; the
only thing that grows with the number of utterances is the set of utterance ids that finds duplicates.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from rescore.console import remark
from rescore.errors import FormatError, UsageError
from rescore.formats.common import Checked, OnError, Place, UniqueIds, fail, utterance_id
from rescore.types import Lattice, NbestList


@dataclass(frozen=True)
class Format:
    """One file format.

    Attributes:
      kind: "nbest" or "lattice".
      module: where its `read` and `write` (N-best) or `read_lattices` and `write_lattices` (lattices) are.
      suffixes: a file whose name ends so is taken for this format (`.gz` or `.xz` may follow).
      contents: a folder that has a file matching one of these patterns is taken for this format.
      options: what may be written behind the path: `FORMAT:PATH?NAME=VALUE&NAME=VALUE`.
      keeps_refs: whether references are written.
      read_only: there is no writer.
      alias: the name of an N-best format that a spec may use too, where the path can only be this one's.
    """

    name: str
    kind: str
    module: str
    description: str
    suffixes: tuple[str, ...] = ()
    contents: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    keeps_refs: bool = False
    read_only: bool = False
    alias: str = ""


_TABLE = (
    Format(
        name="jsonl",
        kind="nbest",
        module="rescore.formats.jsonl",
        description="JSON lines, one utterance a line: utt_id, optional ref, hyps with words and named scores; "
        "reads lists named nbest and hypotheses with text and score too",
        suffixes=(".jsonl",),
        keeps_refs=True,
    ),
    Format(
        name="mlm",
        kind="nbest",
        module="rescore.formats.mlm",
        description="mlm-scoring's JSON; holds one score a hypothesis, called 'score', or NAME with ?score=NAME",
        suffixes=(".json",),
        options=("score",),
        keeps_refs=True,
    ),
    Format(
        name="kaldi",
        kind="nbest",
        module="rescore.formats.kaldi_nbest",
        description="folder with archives.JOB of Kaldi's N-best rescoring (words_text, acwt, lmwt.*), or one of these",
        contents=("words_text*", "archives.*/words_text*"),
    ),
    Format(
        name="espnet",
        kind="nbest",
        module="rescore.formats.espnet",
        description="folder with ESPnet's 1best_recog, 2best_recog, ... (text and score), or with output.JOB of them; "
        "holds one score, see mlm; reads ESPnet 1's file data.json too",
        contents=("1best_recog/text*", "output.*/1best_recog/text*", "logdir/output.*/1best_recog/text*"),
        options=("score",),
    ),
    Format(
        name="nemo",
        kind="nbest",
        module="rescore.formats.nemo",
        description="NeMo's TSV, text<TAB>score, ?n=N lines an utterance; ids and references from &manifest=FILE, "
        "else utt000001 and so on; holds one score, see mlm; &characters=yes adds the score of NeMo's beta, the length",
        suffixes=(".tsv",),
        options=("n", "manifest", "score", "characters"),
    ),
    Format(
        name="srilm",
        kind="nbest",
        module="rescore.formats.srilm",
        description="lines 'utt-k score... words'; up to three numbers (those that lead every line of the first "
        "utterance) are am, lm, words, and one alone is 'score', or say ?scores=NAME,NAME; &base=10 if they are log10; "
        "reads SRILM's own lists too: a folder of UTT.gz (in log10, or &base=e), NBestList1.0 and 2.0",
        suffixes=(".nbest",),
        options=("scores", "base"),
    ),
    Format(
        name="lattice-rescore",
        kind="nbest",
        module="rescore.formats.lattice_rescore",
        description="lattice-rescore's lists, read only: lines 'utt-0 score... | words', a file or a folder of them "
        "(*.nbest); scores are am, lm, x3, x4, ..., or say ?scores=NAME,NAME",
        contents=("*.nbest", "*.nbest.gz", "*.nbest.xz"),
        read_only=True,
        options=("scores",),
    ),
    Format(
        name="slf",
        kind="lattice",
        module="rescore.formats.slf",
        description="HTK lattices, a file or a folder of them; ?utterance=yes for the ids in their headers "
        "(UTTERANCE=) instead of the names of the files; written: a folder of UTT.slf.gz",
        suffixes=(".slf", ".lat"),
        contents=("*.slf", "*.slf.gz", "*.lat", "*.lat.gz"),
        options=("utterance",),
    ),
    Format(
        name="kaldi-lat",
        kind="lattice",
        module="rescore.formats.kaldi_lattice",
        description="Kaldi's lattice archives, binary or text: a file, a folder with lat.JOB.gz, 'DIR/lat.*.gz', or an "
        "index lat.scp (kaldi:PATH works too); ?words=words.txt (default: beside them, in ../graph* or data/lang), or "
        "?words=ids for numbers as words; &frame_shift=0.01; "
        "written: compact, &text=yes, &graph=NAME,-NAME for the scores that are added to or taken out of the graph "
        "cost (all but am; -old-ngram), or &weights=FILE of rescore tune",
        suffixes=(".ark", ".scp"),
        contents=("lat.[0-9]*",),
        options=("words", "frame_shift", "text", "graph", "weights"),
        alias="kaldi",
    ),
    Format(
        name="openfst",
        kind="lattice",
        module="rescore.formats.openfst",
        description="OpenFst's text, a line with the utterance id, arcs 'src dst word cost', a blank line; "
        "?words=words.txt if words are numbers; written: &score=NAME",
        suffixes=(".fst.txt",),
        options=("words", "score"),
    ),
    Format(
        name="pfsg",
        kind="lattice",
        module="rescore.formats.pfsg",
        description="SRILM's PFSG, a file or a folder of them, read only; the costs are 'score'",
        suffixes=(".pfsg",),
        contents=("*.pfsg", "*.pfsg.gz", "*.pfsg.xz"),
        read_only=True,
    ),
    Format(
        name="k2",
        kind="lattice",
        module="rescore.formats.k2_files",
        description="torch.save(fsa.as_dict()) of a k2 Fsa or FsaVec, a file or a folder of *.pt; ?words=words.txt (or "
        "tokens.txt); &ids=FILE with an utterance id a line if the files have none; written: &tokens=yes for an arc to "
        "each token",
        suffixes=(".pt",),
        contents=("*.pt",),
        options=("words", "ids", "tokens"),
    ),
)
FORMATS: dict[str, Format] = {entry.name: entry for entry in _TABLE}

_OPTIONS = re.compile(r"\?(\w+=[^&]*(?:&\w+=[^&]*)*)$")
_NAME = re.compile(r"[A-Za-z][\w.-]*")


def parse_spec(spec: str) -> tuple[str, Path]:
    """`(format name, path)` of `FORMAT:PATH`; the format is guessed from the path where it is left out.

    Raises:
      UsageError: no path, an unknown format or option, or a format that cannot be guessed.
    """
    entry, path, _ = _parse(spec)
    return entry.name, path


def source_identity(spec: str) -> str:
    """Changes when what is read from `spec` does: format, options, the content of all files (folders do not count)."""
    from lm_zoo.identity import content

    entry, path, options = _parse(spec)
    named = {name: content([Path(value)]) if Path(value).is_file() else value for name, value in options.items()}
    return content([path], [entry.name, *(f"{name}={named[name]}" for name in sorted(named))])


def is_pipe(spec: str) -> bool:
    """Whether `spec` or a file of its options is read but once (a pipe, a terminal): it has no `source_identity`."""
    _, path, options = _parse(spec)
    paths = (path, *map(Path, options.values()))
    return any(file.exists() and not file.is_file() and not file.is_dir() for file in paths)


def is_lattice(spec: str) -> bool:
    """Whether `spec` names lattices (and not N-best lists)."""
    return _parse(spec)[0].kind == "lattice"


def read_nbest(spec: str) -> Iterator[NbestList]:
    """The N-best lists of `spec`, one utterance at a time, in the order of the source.

    Raises:
      UsageError: `spec` cannot be understood or names lattices.
      FormatError: the source is not what its format says.
      ScoreError: a score is missing, NaN or infinite.
    """
    entry, path, options = _parse(spec, "nbest")
    _require_kind(entry, "nbest", spec)
    lists: Iterator[NbestList] = _module(entry).read(path, options)
    return lists


def write_nbest(spec: str, lists: Iterable[NbestList]) -> int:
    """Writes N-best lists as they come; the file or folder appears only when all are written.

    Returns:
      The number of utterances.
    Raises:
      UsageError: as `read_nbest`.
      FormatError, ScoreError: a list that cannot be written so that it reads back the same (NaN or infinite scores,
        a duplicate id, no hypothesis, scores that the format has no place for, ...), or no list at all.
    """
    entry, path, options = _parse(spec, "nbest")
    _require_kind(entry, "nbest", spec)
    _require_writer(entry, spec, "jsonl")
    to_write = Checked(path, lists)
    try:
        count: int = _module(entry).write(path, iter(to_write), options)
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
    entry, path, options = _parse(spec, "lattice")
    _require_kind(entry, "lattice", spec)
    lattices: Iterator[Lattice] = _module(entry).read_lattices(path, options, on_error)
    return lattices


def write_lattices(spec: str, lattices: Iterable[Lattice]) -> int:
    """Writes lattices as they come; the file or folder appears only when all are written.

    Returns:
      The number of lattices.
    Raises:
      UsageError: as `read_nbest`.
      FormatError, ScoreError: a lattice that the format cannot hold, an id that is none or occurs twice, no lattice.
    """
    entry, path, options = _parse(spec, "lattice")
    _require_kind(entry, "lattice", spec)

    def checked() -> Iterator[Lattice]:
        unique = UniqueIds()
        empty = True
        for lattice in lattices:
            place = Place(path, utt_id=lattice.utt_id)
            unique.add(utterance_id(lattice.utt_id, place), place)
            empty = False
            yield lattice
        if empty:
            raise FormatError(path, "no lattice to write")

    _require_writer(entry, spec, "slf")
    count: int = _module(entry).write_lattices(path, checked(), options)
    return count


def copy_lattices(source: str, target: str, on_error: OnError = fail) -> int:
    """Lattices from one format to another; within one format nothing is lost if its module can copy (Kaldi's bytes).

    Returns:
      The number of lattices; raises as `read_lattices` and `write_lattices`.
    """
    (one, path, _), (other, out, options) = _parse(source, "lattice"), _parse(target, "lattice")
    copy = (
        getattr(_module(one), "copy_lattices", None)
        if one is other and not {"graph", "weights"} & options.keys()
        else None
    )
    if copy is None:
        return write_lattices(target, read_lattices(source, on_error))
    count: int = copy(path, out, options, on_error)
    return count


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


def _module(entry: Format) -> ModuleType:
    return importlib.import_module(entry.module)


def _parse(spec: str, kind: str | None = None) -> tuple[Format, Path, dict[str, str]]:
    """`(format, path, options)` of a spec; `kind` decides where a name stands for formats of two kinds."""
    spec = str(spec)
    found = _OPTIONS.search(spec)
    body = spec[: found.start()] if found else spec
    pairs = (tuple(pair.split("=", 1)) for pair in found[1].split("&")) if found else ()
    options: dict[str, str] = dict(pairs)  # type: ignore[arg-type]
    name, colon, rest = body.partition(":")
    if colon and name in FORMATS:
        path = Path(rest)
        entry = _of_kind(FORMATS[name], path, kind)
        if not rest:
            raise UsageError(f"'{spec}': no path after '{name}:'")
    else:
        if colon and _NAME.fullmatch(name) and not _colon_in_path(Path(body)):
            known = ", ".join(FORMATS)
            raise UsageError(f"'{spec}': unknown format '{name}'; there are: {known} (a file of this name: ./{body})")
        path = Path(body)
        entry = _guess(path, spec)
    for option in options:
        if option not in entry.options:
            known = ", ".join(entry.options) or "none"
            raise UsageError(f"'{spec}': {entry.name} has no option '{option}'; it has: {known}")
    return entry, path, options


def _of_kind(entry: Format, path: Path, kind: str | None) -> Format:
    """`entry`, or the lattice format that has its name as alias: `kind` says so, or the path can be nothing else."""
    lattice = next((other for other in FORMATS.values() if other.alias == entry.name), None)
    if lattice is None or kind == "nbest":
        return entry
    if kind is None and path.is_dir():
        return lattice if any(next(path.glob(pattern), None) for pattern in lattice.contents) else entry
    return lattice if kind or path.suffix else entry


def _colon_in_path(path: Path) -> bool:
    """Whether something is there whose name has the colon: the path itself or its folder."""
    return path.exists() or (":" in str(path.parent) and path.parent.is_dir())


def _guess(path: Path, spec: str) -> Format:
    if not str(path.name):
        raise UsageError(f"'{spec}': no path")
    if path.is_dir():
        for entry in FORMATS.values():
            if any(next(path.glob(pattern), None) for pattern in entry.contents):
                return entry
    name = path.name
    for packed in (".gz", ".xz"):
        name = name.removesuffix(packed)
    for entry in FORMATS.values():
        if entry.suffixes and name.endswith(entry.suffixes) and not path.is_dir():
            return entry
    known = ", ".join(FORMATS)
    if not path.exists():
        problem = "no such file or folder; to write one of this name, say its format"
    else:
        problem = "the format cannot be guessed"
    raise UsageError(f"'{spec}': {problem}: FORMAT:PATH with one of: {known}")


def _require_writer(entry: Format, spec: str, other: str) -> None:
    if entry.read_only:
        raise UsageError(f"'{spec}': {entry.name} is read only; write another format, such as {other}:PATH")


def _require_kind(entry: Format, kind: str, spec: str) -> None:
    if entry.kind == kind:
        return
    if kind == "nbest":
        raise UsageError(f"'{spec}': {entry.name} holds lattices, expected N-best lists")
    raise UsageError(f"'{spec}': {entry.name} holds N-best lists, expected lattices")
