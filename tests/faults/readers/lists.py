"""Readers of N-best lists."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from rescore.formats import read_nbest, write_nbest
from rescore.types import Hypothesis, NbestList
from tests.faults.damage import Target, begins, same
from tests.faults.readers.inputs import files, text

LISTS = [
    NbestList("a", [Hypothesis(("A", "B"), {"score": -1.5}), Hypothesis((), {"score": -2.0})], ("A", "B")),
    NbestList("b", [Hypothesis(("C",), {"score": 0.25}), Hypothesis(("D",), {"score": -1e-3})], ("C",)),
]
TIMED = "A ( st: 0.1 et: 0.2 g: -3 a: -4 )"
KALDI = "a-1 A B\na-2\nb-1 C\nb-2 D\n"
COSTS = "a-1 1.5\na-2 2.0\nb-1 -0.25\nb-2 0.001\n"
ARCHIVE = {
    "archives.1/words_text": KALDI,
    **{f"archives.1/{name}": COSTS for name in ("acwt", "lmwt.nolm", "lmwt.lmonly")},
}
NEMO = {
    "beams.tsv": "A B\t-1.5\n\t-2.0\nC\t0.25\nD\t-0.001\n",
    "manifest": '{"audio_filepath": "x/a.wav", "text": "A B"}\n{"utt_id": "b", "text": "C"}\n',
}
BEAMS = "?n=2&manifest=DIR/manifest"
ESPNET1 = (
    '{"utts": {"a": {"output": [{"text": "A B", "rec_text": "\u2581A\u2581B<eos>", "score": -7.1}], "x": 1}}, "y": 2}'
)
SRILM = (
    "NBestList1.0\n(-7) A B\n(-8) C\n",
    f"NBestList2.0\n(-7) {TIMED} {TIMED.replace('A', 'B')}\n",
    "-1.5 -2 2 A B\n-2 -3 1 C\n",
)
LATTICE_RESCORE = "a-0 -1.5 2 | A B\na-1 -2 0.5 | C\nb-0 1 1 |\n"


def rows(lists: list[NbestList]) -> list[Any]:
    """A row a hypothesis, to compare."""
    return [(each.utt_id, each.ref, hyp.words, sorted(hyp.scores.items())) for each in lists for hyp in each.hyps]


def written(spec: str, damaged: str = "") -> Callable[[Path], Path]:
    """Writes lists as `spec` says, under the folder; `damaged` is the file of what is written."""
    name, _, place = spec.partition(":")

    def make(folder: Path) -> Path:
        write_nbest(f"{name}:{folder / place}", LISTS)
        return folder / place / damaged

    return make


def lists(name: str, up: int = 0, options: str = "") -> Callable[[Path], Any]:
    """Reads N-best lists; writes them as JSON lines and in Kaldi's form, and reads them again: nothing may differ."""

    def read(path: Path) -> list[Any]:
        source = path.parents[up - 1] if up else path
        found = list(read_nbest(f"{name}:{source}{options.replace('DIR', str(path.parent))}"))
        with TemporaryDirectory() as out:
            write_nbest(f"jsonl:{out}/lists.jsonl", found)
            assert rows(list(read_nbest(f"jsonl:{out}/lists.jsonl"))) == rows(found), "JSON lines differ"
            write_nbest(f"kaldi:{out}/kaldi", found)
            again = rows(list(read_nbest(f"kaldi:{out}/kaldi")))
            assert [row[2:] for row in again] == [row[2:] for row in rows(found)], "Kaldi's lists differ"
        return rows(found)

    return read


LIST_TARGETS = [
    Target("jsonl", written("jsonl:a.jsonl"), lists("jsonl"), kept=begins),
    Target("jsonl.gz", written("jsonl:a.jsonl.gz"), lists("jsonl"), checked=True),
    Target("jsonl.xz", written("jsonl:a.jsonl.xz"), lists("jsonl"), checked=True),
    Target("mlm", written("mlm:a.json"), lists("mlm"), kept=same),
    Target("nemo", files("beams.tsv", NEMO), lists("nemo", options=BEAMS), kept=same),
    Target(
        "nemo manifest",
        files("manifest", NEMO),
        lambda path: lists("nemo", 0, BEAMS)(path.with_name("beams.tsv")),
        kept=same,
    ),
    Target("srilm", written("srilm:a.nbest"), lists("srilm"), kept=begins),
    Target("espnet text", written("espnet:e", "1best_recog/text"), lists("espnet", 2), kept=begins),
    Target("espnet score", written("espnet:e", "1best_recog/score"), lists("espnet", 2), kept=begins),
    Target("espnet 1", text("data.json", ESPNET1), lists("espnet"), kept=same),
    Target("lattice-rescore", text("a.nbest", LATTICE_RESCORE), lists("lattice-rescore"), kept=begins),
    *(
        Target(f"srilm form {n}", text("lists/a", form), lists("srilm", 1), kept=begins)
        for n, form in enumerate(SRILM, start=1)
    ),
    *(Target(f"kaldi {Path(name).name}", files(name, ARCHIVE), lists("kaldi", 2), kept=begins) for name in ARCHIVE),
]
