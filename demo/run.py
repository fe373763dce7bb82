"""The demo: a book is read aloud, recognised, rescored with the zoo's LMs, and WERs are compared.

Every command that it runs is printed, so that it can be used on other speech, lattices and N-best lists.
"""

from __future__ import annotations

import os
import shutil
import sys
from dataclasses import dataclass, field
from pathlib import Path

import click

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import text  # noqa: E402
from steps import Steps, command  # noqa: E402

from rescore.files import write_kaldi_text  # noqa: E402

ROOT = HERE.parent
WORK = Path("demo/work")
BOOK_SHA256 = "f00b287e63f5ae3442dc5b9c4bf18650adaf3b7f5034f7be5460089b934a0752"
BOOK_ARCHIVE = ["wordcloud", "wordcloud-1.9.6.tar.gz", "wordcloud-1.9.6/examples/alice.txt"]
SETS = {"dev": range(1, 7), "test": range(7, 13)}  # chapters
SEED = 1865
NGRAM = "ngram"  # name in the zoo, and of the score
LMS = ("transfornn", "transformer", "bayesian", "lookup", "lstm")
BEST = "transfornn"


@dataclass(frozen=True)
class Recogniser:
    """How the speech is made for it, how it is called, and what its scores are worth.

    Attributes:
      program: its command, with places for the cuts and for the folder of results.
      speech: options of `asr synthesise`.
      lattices: format and place of its lattices, for a folder of results; None: it writes lists, those of `first`.
      first: place of its own 1-best.
      held: scores that are left out.
      scales: of the n-gram pass; those of the pass of the neural LM over lattices.
      compared: options by which its words and the references are brought into one form.
    """

    program: str
    speech: list[str]
    first: str
    lattices: str | None = None
    scales: dict[str, float] = field(default_factory=dict)
    lattice_scales: dict[str, float] = field(default_factory=dict)
    beams: list[str] = field(default_factory=list)
    compared: list[str] = field(default_factory=list)
    held: list[str] = field(default_factory=list)
    normalise: list[str] = field(default_factory=list)


SUFFIX = "cuts-small-fast_beam_search-beam-20.0-max-contexts-8-max-states-64"
RECOGNISERS = {
    "s4former": Recogniser(  # the one that ships with the package; lattices of `fast_beam_search` in k2
        program="asr decode --model asr/pretrained/small --decoding-method fast_beam_search --lattices k2 "
        "--out {1} {0}",
        speech=["--held-out"],
        lattices=f"k2:{{0}}/lattices-{SUFFIX}.pt?words={{0}}/lattices-{SUFFIX}.words.txt",
        first=f"{{}}/nbest-{SUFFIX}.jsonl.gz",
        scales={NGRAM: 0.4, "words": 0.5},
        lattice_scales={NGRAM: 0.2, BEST: 0.3, "words": 0.5},
        beams=["--ngram-beam", "8", "--beam", "6"],
    ),
    "pocketsphinx": Recogniser(  # PocketSphinx 5.1.1 with its own US English model
        program="python demo/recognise.py --cuts {0} --out {1}",
        speech=["--held-out", "--pico", "1", "--snr", "30", "40"],
        lattices="slf:{}/lattices",
        first="{}/first.txt",
        scales={NGRAM: 8, "words": -10},
        lattice_scales={NGRAM: 5, BEST: 4, "words": -10},
        beams=["--ngram-beam", "60", "--beam", "60"],
        held=["posterior"],
        normalise=["--case", "upper", "--delete", ".", "--split-words", "-"],
    ),
    "moonshine": Recogniser(  # Moonshine tiny: written text, lists of hypotheses that differ in their words
        program="asr decode --model moonshine --decoding-method modified_beam_search --beam-size 16 "
        "--normalise librispeech --out {1} {0}",
        speech=["--held-out"],
        first="{}/nbest-cuts-moonshine-modified_beam_search-beam-size-16.jsonl.gz",
        compared=["--normalise", "librispeech"],
        held=["ilm"],
    ),
}


def options(scales: dict[str, float]) -> list[str]:
    return [word for name, scale in scales.items() for word in ("--scale", f"{name}={scale:g}")]


class Demo:
    """The demo with one recogniser; what it makes lies in `WORK/RECOGNISER`."""

    def __init__(self, name: str, utterances: int) -> None:
        self.work, self.by, self.utterances = WORK / name, RECOGNISERS[name], utterances
        of_lattices = 6 if self.by.lattices else 0
        self.steps = Steps(self.work / "done", 1 + 2 * 4 + 2 * (2 + len(LMS)) + of_lattices)
        self.book = WORK / "alice.txt"
        zoo = ROOT / "lm_zoo" / "pretrained"
        self.models = [path for path in (zoo / name for name in (*LMS, NGRAM)) if path.exists()]

    def fetch_book(self) -> None:
        words = ["python", "tools/fetch.py", *BOOK_ARCHIVE, str(self.book), BOOK_SHA256]
        self.steps.run("book", "Fetching the book", [], self.book, words)

    def speak(self, name: str) -> None:
        """Writes `name/ref.txt` and the speech, `name/speech/`."""
        folder, count = self.work / name, self.utterances // 2

        def choose() -> None:
            chosen = text.choose(text.read_book(self.book), SETS[name], count, "alice")
            shutil.rmtree(folder, ignore_errors=True)  # of a demo of another size
            folder.mkdir(parents=True)
            write_kaldi_text(folder / "ref.txt", {utt: tuple(text.reference(s).split()) for utt, s in chosen.items()})

        made_from = [self.book, HERE / "text.py"]
        self.steps.run(f"text-{name}", f"Text ({name})", made_from, folder / "ref.txt", choose, setting=f"{count}")
        words = ["asr", "synthesise", f"{folder}/ref.txt", f"{folder}/speech", "--ids", *self.by.speech]
        words += ["--seed", f"{SEED}"]
        title = f"Reading {count} sentences aloud ({name})"
        self.steps.run(f"speak-{name}", title, [folder / "ref.txt"], folder / "speech" / "cuts.jsonl.gz", words)

    def recognise(self, name: str) -> None:
        """Writes `name/decoded/`."""
        folder = self.work / name
        words = self.by.program.format(f"{folder}/speech/cuts.jsonl.gz", folder / "decoded").split()
        made_from = [folder / "speech", HERE / "recognise.py", ROOT / "asr" / "pretrained"]
        self.steps.run(f"recognise-{name}", f"Recognising it ({name})", made_from, folder / "decoded", words)

    def decoded(self, place: str, name: str) -> str:
        return place.format(self.work / name / "decoded")

    def score(self, name: str) -> None:
        """Writes `name/scores/`, and of lattices `name/nbest.jsonl.gz` and `name/rescored/`."""
        scores = self.work / name / "scores"
        nbest = Path(self.decoded(self.by.first, name))
        words = [word for lm in LMS for word in ("--lm", lm)]
        if self.by.lattices is None:
            words += ["--ngram", NGRAM]
        else:
            nbest = self.list_paths(name, self.decoded(self.by.lattices, name))
        words = ["rescore", "nbest", "--nbest", str(nbest), "--out", str(scores), *words]
        made_from = [nbest, *self.models]
        self.steps.run(f"score-{name}", f"Scoring with the LMs ({name})", made_from, scores / "scores.jsonl.gz", words)
        if self.by.lattices is not None:
            self.rescore_lattices(name, self.decoded(self.by.lattices, name))

    def list_paths(self, name: str, lattices: str) -> Path:
        """Writes `name/nbest.jsonl.gz`."""
        nbest, made_from = self.work / name / "nbest.jsonl.gz", [self.work / name / "decoded", *self.models]
        words = ["rescore", "convert", lattices, str(nbest), "--ngram", NGRAM, "-n", "100"]
        words += [*options(self.by.scales), *self.by.normalise]
        self.steps.run(f"nbest-{name}", f"100-best lists of the lattices ({name})", made_from, nbest, words)
        return nbest

    def rescore_lattices(self, name: str, lattices: str) -> None:
        """Writes `name/rescored/`."""
        folder, made_from = self.work / name, [self.work / name / "decoded", *self.models]
        words = ["rescore", "lattice", "rescore", lattices, f"slf:{folder}/rescored", "--ngram", NGRAM]
        words += ["--lm", BEST, *options(self.by.lattice_scales), *self.by.beams, *self.by.normalise]
        title = f"The best of them over whole lattices ({name})"
        self.steps.run(f"lattices-{name}", title, made_from, folder / "rescored", words)

    def tune(self, system: str, used: list[str]) -> str:
        """Scales of the scores `used` from dev, applied to test; gives the result."""
        held = [score for score in (NGRAM, *LMS, *self.by.held) if score not in used]
        weights, out = self.work / "dev" / f"{system}.json", self.work / "test" / system
        made_from = [self.work / "dev" / "scores" / "scores.jsonl.gz", self.work / "dev" / "ref.txt"]
        words = [
            "rescore",
            "tune",
            "--objective",
            "errors",
            "--scores",
            f"{self.work}/dev/scores",
            "--ref",
            f"{self.work}/dev/ref.txt",
        ]
        words += [
            "--out",
            str(weights),
            *self.by.compared,
            *(word for score in held for word in ("--fix", f"{score}=0")),
        ]
        self.steps.run(f"tune-{system}", f"Tuning on dev: {system}", made_from, weights, words)
        made_from = [self.work / "test" / "scores" / "scores.jsonl.gz", weights]
        words = ["rescore", "combine", "--scores", f"{self.work}/test/scores", "--weights", str(weights)]
        words += ["--out", str(out)]
        self.steps.run(f"combine-{system}", f"Applying to test: {system}", made_from, out / "nbest.jsonl.gz", words)
        return str(out)

    def tune_lattices(self) -> str:
        """As `tune`, over all paths of the lattices."""
        dev, test, weights = self.work / "dev", self.work / "test", self.work / "dev" / "lattice.json"
        words = ["rescore", "tune", "--objective", "errors", "--lattices", f"slf:{dev}/rescored", "--folds", "0"]
        words += ["--ref", f"{dev}/ref.txt"]
        words += ["--out", str(weights), *(word for score in self.by.held for word in ("--fix", f"{score}=0"))]
        made_from = [dev / "rescored", dev / "ref.txt"]
        self.steps.run("tune-lattice", "Tuning on dev, over lattices", made_from, weights, words)
        out = test / "lattice.txt"
        words = [
            "rescore",
            "lattice",
            "best-path",
            f"slf:{test}/rescored",
            "--weights",
            str(weights),
            "--out",
            str(out),
        ]
        self.steps.run("best-lattice", "Best paths of test", [test / "rescored", weights], out, words)
        return str(out)

    def run(self) -> None:
        self.fetch_book()
        for name in SETS:
            self.speak(name)
            self.recognise(name)
            self.score(name)
        results = {"n-gram": self.tune(NGRAM, [NGRAM])}
        results |= {lm: self.tune(lm, [NGRAM, lm]) for lm in LMS}
        results["all"] = self.tune("all", [NGRAM, *LMS])
        if self.by.lattices is not None:
            results[f"{BEST}, lattice"] = self.tune_lattices()
        first = self.decoded(self.by.first, "test")
        words = ["rescore", "compare", "--ref", f"{self.work}/test/ref.txt", f"recogniser={first}", *self.by.compared]
        words += [f"+ {system}={out}" for system, out in results.items()]
        command([*words, "--against", "recogniser", "--against", "+ n-gram", "--json", "demo/results.json"])


@click.command()
@click.option("--utterances", default=220, show_default=True, type=click.IntRange(min=10), help="Of dev and test.")
@click.option("--recogniser", type=click.Choice(list(RECOGNISERS)), default="s4former", show_default=True)
def main(utterances: int, recogniser: str) -> None:
    """Run the demo; what it makes goes to demo/work, the table also to demo/results.json."""
    os.chdir(ROOT)
    Demo(recogniser, utterances).run()


if __name__ == "__main__":
    main()
