"""Readers of tables, texts, settings and records of runs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click

from lm_zoo.text.sentences import read_sentences
from rescore.cli.recipe import read_defaults
from rescore.evaluation.counts import read_counts
from rescore.files import read_kaldi_text, write_kaldi_text
from rescore.formats.symbols import read_symbols
from rescore.sharing.parts import Parts, Split, at_work, finished_splits, notes, parts_inside, read_plan
from rescore.types import NbestList, Weights
from rescore.weights import load_weights, save_weights
from rescore.workflows.recordings import find_recordings
from rescore.workflows.report.write import read_networks
from rescore.workflows.transcripts import KINDS, read_transcripts
from tests.faults.damage import Target, begins_but_last, same
from tests.faults.readers.inputs import WORDS, files, text

SPOKEN = {
    "swbd": "sw1-a 0.0 1.5 [laughter-so] it's {x} ab[solute]-\n",
    "fisher": "# c\n\n3.76 5.54 B: (( i mean )) [noise] a._b.\n",
    "stm": ";; c\nf 1 s 0.0 1.0 <o,f0> { yeah / yes } (%hesitation)\n",
    "chat": "@Begin\n*PAR:\t&-uh (be)cause <the boy> [//] xxx 0is .\n\tmore .\n%mor:\tx\n@End\n",
}
YAML = "max-duration: 200\nset: {a: 1, b: [1, 2.5]}\nflag: true\nname: 'x'\n"
BASED = {"c.yaml": "base: b.yaml\nname: y\n", "b.yaml": YAML}
NETWORK = '{"utt_id": "a", "places": [{"words": [["A", 0.75], ["B", 0.25]]}, {"words": [["", 1.0]]}]}\n'
PLAN = {"source": "abc", "lms": {"lstm": "def"}, "batch": 32, "lists": 4}
SUMMARY = json.dumps({"parts": 3})
SHARES = {
    ".parts/000001.note.json": json.dumps({"counts": {"utterances": 3}, "skipped": ["a: damaged"]}),
    ".parts/000001.cut.json": json.dumps({"cuts": [0, 2, 4], "left out": [2]}),
    ".parts/at-1-of-2.json": json.dumps({"index": 1, "begin": 2, "end": 4, "first": "a"}),
    ".parts/plan.json": json.dumps(PLAN),
    **{f".parts/split-{number}-of-2.json": SUMMARY for number in (1, 2)},
}


def options_of(path: Path) -> object:
    names = ("max-duration", "set", "flag", "name")
    return read_defaults(path, click.Command("x", params=[click.Option([f"--{name}"]) for name in names]))


def both_sides(path: Path) -> list[Any]:
    """Reads Kaldi's text; what is read is written and read again."""
    found = read_kaldi_text(path)
    with TemporaryDirectory() as out:
        write_kaldi_text(f"{out}/text", found)
        assert read_kaldi_text(f"{out}/text") == found, "Kaldi's text differs"
    return list(found.items())


def recogs(path: Path) -> object:
    return read_kaldi_text(path), read_kaldi_text(path, "hyp")


def weights(path: Path) -> Weights:
    found = load_weights(path)
    with TemporaryDirectory() as out:
        save_weights(f"{out}/w.json", found)
        assert load_weights(f"{out}/w.json") == found, "weights differ"
    return found


def transcripts(kind: str) -> Callable[[Path], object]:
    return lambda path: list(read_transcripts(kind, path))


def recordings(path: Path) -> object:
    return find_recordings([NbestList(utt_id, []) for utt_id in "ab"], file=path).names


def shares(path: Path) -> object:
    folder = path.parent
    parts = Parts(folder, read_plan(folder), Split(1, 2))
    return finished_splits(folder), notes(folder, 3), at_work(folder, Split(1, 2)), parts.cuts(1)


def begun(path: Path) -> object:
    """The plan of a run that was stopped, which is gone on with or begun again."""
    try:
        return Parts(parts_inside(path.parents[1]), PLAN, Split(1, 2)).folder
    finally:
        path.parent.mkdir(exist_ok=True)


TEXT_TARGETS = [
    Target("words.txt", text("words.txt", WORDS), lambda path: sorted(vars(read_symbols(path)))),
    Target("Kaldi text", text("text", "a A B\nb\nc D\n"), both_sides, kept=begins_but_last),
    Target("recogs", text("recogs", "a:\tref=['A', 'B']\na:\thyp=['A']\n"), recogs),
    Target("counts", text("counts", "3 A\n2 B\n2 <s> A\n1 A B\n1 A A\n1 B B\n"), read_counts),
    *(Target(f"transcripts {kind}", text("t", SPOKEN[kind]), transcripts(kind)) for kind in KINDS),
    Target("weights", text("w.json", '{"scales": {"am": 1.0, "lm": 0.5}, "info": {"x": [1]}}'), weights, kept=same),
    Target("YAML", text("c.yaml", YAML), options_of),
    Target("YAML with a base", files("c.yaml", BASED), options_of),
    Target("sentences", text("t.txt", "A B\n\nC\n"), lambda path: list(read_sentences(path)), kept=begins_but_last),
    Target(
        "sentences.gz", text("t.gz", "a A B\n\nb C\n"), lambda path: list(read_sentences(f"kaldi:{path}")), checked=True
    ),
    Target("segments", text("s", "a r1 0.0 1.5\nb r1 1.5 2\n"), recordings),
    Target(
        "supervisions",
        text("s", "".join(f'{{"id": "{i}", "recording_id": "r", "start": 1.5}}\n' for i in "ab")),
        recordings,
    ),
    Target("confusion networks", text("n.jsonl", NETWORK), read_networks, kept=same),
    *(Target(f"shares {Path(name).name}", files(name, SHARES), shares) for name in SHARES),
    Target("plan of a run that was stopped", files(".parts/plan.json", SHARES), begun),
]
