"""The commands that write, and inputs for them, for the tests of full disks, locks and killed processes."""

from __future__ import annotations

import os
from pathlib import Path

from lm_zoo.files import write_text
from lm_zoo.registry import build, save_folder
from lm_zoo.text.tokenizer import build_pieces
from rescore.cli.main import main
from tests.commands import run_line
from tests.lm_zoo.zoo import neural
from tests.rescore.formats.test_slf import HTK_NODES
from tests.rescore.runs import LM, write_inputs

SENTENCES = ["THE CAT SAT ON THE MAT", "A CAT", "THE HAT WAS ON THE CAT", "A MAT SAT"]
TRAIN = "train-lm lstm --text text --valid text --tokens word --set dim=8 --train steps=2 --train save_every=1"
LINES = [  # each writes `out`, `out.jsonl` or the like, the last argument
    "sample out",
    "nbest --nbest lists.jsonl --lm small --out out",
    "tune --scores scores --ref ref --folds 0 --out out",
    "combine --scores scores --scale am=1 --out out",
    "wer --ref ref --hyp ref --details out",
    "compare --ref ref one=ref --json out",
    "ppl --lm small --ngram abc.arpa --text abc --tune-mix abc --save-mix out",
    "count --text text --out out",
    "transcripts stm stm --out out",
    "convert lists.jsonl out.jsonl.gz",
    "convert slf:lattices --jobs 2 jsonl:out",
    "convert lists.jsonl kaldi:out",
    "lattice convert slf:lattices slf:out",
    "lattice convert slf:lattices --words words.txt kaldi:out.gz",
    "lattice nbest slf:lattices --jobs 1 out.jsonl",
    "lattice prune slf:lattices --beam 10 slf:out",
    "lattice rescore slf:lattices --ngram text.arpa --case upper --scale ngram=1 slf:out",
    "lattice best-path slf:lattices --out out",
    "lattice oracle slf:lattices --ref ref --case upper --out out",
    "lattice posteriors slf:lattices --out out",
    "lattice mbr slf:lattices --out out",
    "lattice mbr slf:lattices --ctm out",
    "lattice mbr slf:lattices --network out",
    f"{TRAIN} --out out",
    "convert-lm bayesian plain --out out",
    "export-lm pieces --out out",
    "import-lm epoch-1.pt --bpe pieces/bpe.model --out out",
    "train-ngram --text text --order 2 --discount-fallback --out out.arpa",
    "train-ngram --text text --order 2 --discount-fallback --out out.arpa.gz",
]

LISTS = "--nbest lists.jsonl --lm small"
LATTICES = "slf:lattices --ngram text.arpa --case upper --scale ngram=1"
KALDI, NEW_LM = "--words words.txt --old-ngram text.arpa", "--lm small --max-unknown 1 --weight 0.5"
LONG_LINES = [  # those of several processes or of many steps, for the kills alone; the last argument is what is written
    f"nbest {LISTS} --executor local --workers 2 --shards 3 --out out",
    f"lattice rescore {LATTICES} --executor local --workers 2 --shards 3 slf:out",
    "merge shares",
    "merge nbest.jsonl",
    f"run --dev dev.jsonl.gz --test test.jsonl.gz --ref refs --lm {LM} --out out",
    "report finished --out out.html",
    "curves trained --out out.png",
    f"kaldi archives lat.gz {KALDI} out",
    f"kaldi score archived/archives.1 {NEW_LM}",
    "kaldi lattices scored --costs lmwt.interp.0.5",
]


def make_long_inputs(folder: Path, finished: bool) -> None:
    """Writes what LONG_LINES read beside what the others do: shares that are to be merged, a run if it is asked for."""
    write_inputs(folder)
    (folder / "text").rename(folder / "refs")
    make_inputs(folder)
    here = Path.cwd()
    os.chdir(folder)
    try:
        for share in ("1/2", "2/2"):
            run(f"nbest {LISTS} --split {share} --out shares")
            run(f"lattice nbest slf:lattices -n 2 --split {share} nbest.jsonl")
        if finished:
            run(f"run --dev dev.jsonl.gz --test test.jsonl.gz --ref refs --lm {LM} --out finished")
        run(f"{TRAIN} --out trained")
        run("lattice convert slf:lattices --words words.txt --case upper kaldi:lat.gz")
        for made in ("archived", "scored"):
            run(f"kaldi archives lat.gz {KALDI} {made}")
        run(f"kaldi score scored/archives.1 {NEW_LM}")
    finally:
        os.chdir(here)


def make_inputs(folder: Path) -> None:
    """Writes what the commands read."""
    hyps = '"hyps": [{"words": "A B", "scores": {"am": -1.0}}, {"words": "A C", "scores": {"am": -2.0}}]'
    lists = "".join(f'{{"utt_id": "u{number}", {hyps}}}\n' for number in range(50))
    write_text(folder / "lists.jsonl", lists)
    write_text(folder / "scores/scores.jsonl.gz", lists)
    (folder / "ref").write_text("".join(f"u{number} A CAT\n" for number in range(50)))
    (folder / "text").write_text("\n".join(SENTENCES * 20) + "\n")
    (folder / "words.txt").write_text("<eps> 0\nthe 1\na 2\ncat 3\nTHE 4\nA 5\nCAT 6\n")
    (folder / "abc").write_text("A B C\nB A\n" * 5)
    (folder / "stm").write_text("".join(f"a 1 s {number} {number + 1} <o> A CAT SAT\n" for number in range(50)))
    (folder / "lattices").mkdir()
    for number in range(4):
        (folder / f"lattices/u{number}.slf").write_text(HTK_NODES)
    save_folder(folder / "small", neural("transfornn"), "transfornn", {})
    save_folder(folder / "plain", neural("transformer"), "transformer", {})
    vocab = build_pieces({word: 9 for line in SENTENCES for word in line.split()}, 20, "bpe")
    save_folder(folder / "pieces", build("lstm", vocab, {"dim": 8}), "lstm", {})
    run(f"export-lm {folder / 'pieces'} --out {folder / 'epoch-1.pt'}")
    for text in ("text", "abc"):
        run(f"train-ngram --text {folder / text} --order 2 --discount-fallback --out {folder / text}.arpa")


def run(line: str) -> tuple[int, str]:
    """The exit code of a command, and what it says last."""
    return run_line("rescore", main, line)


def target(line: str) -> Path:
    """What it writes."""
    return Path(line.split()[-1].rpartition(":")[2])
