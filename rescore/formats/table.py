"""The formats that there are: ours, and those of other packages (entry points of the group `rescore.formats`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import entry_points

from rescore.console import remark


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
      skips: its `read` takes `on_error`, and goes on behind a list that cannot be read.
      leaves_out: its `write` or `write_lattices` takes `on_error`, and goes on behind what memory does not suffice for.
      alias: the name of an N-best format that a spec may use too, where the path can only be this one's.
      by_line: each line is a list, so that they can be counted before they are read.
      of_reading, of_writing: the options that are refused elsewhere, as they would do nothing there.
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
    skips: bool = False
    leaves_out: bool = False
    alias: str = ""
    by_line: bool = False
    of_reading: tuple[str, ...] = ()
    of_writing: tuple[str, ...] = ()


_TABLE = (
    Format(
        name="jsonl",
        kind="nbest",
        module="rescore.formats.jsonl",
        description="JSON lines, one utterance a line: utt_id, optional ref, hyps with words and named scores; "
        "reads lists named nbest and hypotheses with text and score too",
        suffixes=(".jsonl",),
        keeps_refs=True,
        skips=True,
        by_line=True,
        leaves_out=True,
    ),
    Format(
        name="mlm",
        kind="nbest",
        module="rescore.formats.mlm",
        description="mlm-scoring's JSON; holds one score a hypothesis, called 'score', or NAME with ?score=NAME",
        suffixes=(".json",),
        options=("score",),
        keeps_refs=True,
        leaves_out=True,
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
        "else utt000001 and so on; holds one score, see mlm; &characters=yes adds the score of NeMo's beta, the length"
        "; reads manifests with beams, of transcribe_speech.py, too",
        suffixes=(".tsv",),
        options=("n", "manifest", "score", "characters"),
        of_reading=("manifest", "characters"),
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
        contents=("*.slf", "*.slf.gz", "*.slf.xz", "*.lat", "*.lat.gz", "*.lat.xz"),
        options=("utterance",),
        of_reading=("utterance",),
        leaves_out=True,
    ),
    Format(
        name="kaldi-lat",
        kind="lattice",
        module="rescore.formats.kaldi_lattice",
        description="Kaldi's lattice archives, binary or text: a file, a folder with lat.JOB.gz, 'DIR/lat.*.gz', or an "
        "index lat.scp (kaldi:PATH works too); ?words=words.txt (default: beside them, in ../graph* or data/lang), or "
        "?words=ids for numbers as words; &frame_shift=0.01 (default: by ../frame_subsampling_factor); "
        "written: compact, &text=yes, &numbers=words.txt, whose words keep their numbers, &graph=NAME,-NAME for the "
        "scores that are added to or taken out of the graph cost (all but am; -old-ngram), or &weights=FILE of rescore "
        "tune",
        suffixes=(".ark", ".scp"),
        contents=("lat.[0-9]*",),
        options=("words", "frame_shift", "text", "numbers", "graph", "weights"),
        of_reading=("frame_shift",),
        of_writing=("text", "numbers", "graph", "weights"),
        alias="kaldi",
        leaves_out=True,
    ),
    Format(
        name="openfst",
        kind="lattice",
        module="rescore.formats.openfst",
        description="OpenFst's text, a line with the utterance id, arcs 'src dst word cost', a blank line; "
        "?words=words.txt if words are numbers; &frame_shift=0.01 for each transition id, as of kaldi; "
        "written: &score=NAME",
        suffixes=(".fst.txt",),
        options=("words", "frame_shift", "score"),
        of_reading=("frame_shift",),
        of_writing=("score",),
        leaves_out=True,
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
        "each token, &numbers=words.txt, whose words keep their numbers",
        suffixes=(".pt",),
        contents=("*.pt",),
        options=("words", "ids", "tokens", "numbers"),
        of_reading=("ids",),
        of_writing=("tokens", "numbers"),
        leaves_out=True,
    ),
)
FORMATS: dict[str, Format] = {entry.name: entry for entry in _TABLE}
GROUP = "rescore.formats"  # of the entry points by which other packages bring a `Format`


@cache
def all_formats() -> dict[str, Format]:
    """`FORMATS` and those of other packages; what cannot be had, or has a name of ours, is left out with a remark."""
    found = dict(FORMATS)
    for point in entry_points(group=GROUP):
        try:
            entry = point.load()
        except Exception as error:  # another package's code may raise anything
            remark(f"the format '{point.name}' ({point.value}) cannot be loaded: {error}")
            continue
        if not isinstance(entry, Format) or entry.name != point.name or point.name in FORMATS:
            remark(f"the format '{point.name}' ({point.value}) is left out: expected a Format of this name, not ours")
            continue
        found[point.name] = entry
    return found


def by_suffix(name: str, among: Mapping[str, Format]) -> Format | None:
    """The first format that takes a file of this name."""
    return next((entry for entry in among.values() if entry.suffixes and name.endswith(entry.suffixes)), None)
