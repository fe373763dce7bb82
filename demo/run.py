"""The demo: a book is read aloud, recognised, rescored with the zoo's LMs, and WERs are compared.

Every command that it runs is printed, so that it can be used on other lattices and N-best lists.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import speak  # noqa: E402
import text  # noqa: E402
from steps import Steps, command  # noqa: E402

from rescore.files import write_kaldi_text  # noqa: E402

ROOT = HERE.parent
WORK = Path("demo/work")
BOOK_SHA256 = "f00b287e63f5ae3442dc5b9c4bf18650adaf3b7f5034f7be5460089b934a0752"
BOOK_ARCHIVE = ["wordcloud", "wordcloud-1.9.6.tar.gz", "wordcloud-1.9.6/examples/alice.txt"]
SETS = {"dev": range(1, 7), "test": range(7, 13)}  # chapters
SEED = 1865
LM, NGRAM = "transfornn", "ngram"  # names in the zoo, and of the scores
NORMALISE = ["--case", "upper", "--delete", ".", "--split", "-"]  # PocketSphinx's words to those of the LMs
POSTERIOR = "posterior"  # PocketSphinx's own mixture of acoustics and bigram
SYSTEMS = {  # name -> scores held at 0
    "n-gram": [LM, POSTERIOR],
    "TransfoRNN": [NGRAM, POSTERIOR],
    "n-gram and TransfoRNN": [POSTERIOR],
}


def fetch_book(steps: Steps, book: Path) -> None:
    words = ["python", "tools/fetch.py", *BOOK_ARCHIVE, str(book), BOOK_SHA256]
    steps.run("book", "Fetching the book", [], book, words)


def speak_set(steps: Steps, book: Path, name: str, count: int) -> None:
    """Writes `WORK/name/{wav/,ref.txt}`."""
    folder = WORK / name

    def action() -> None:
        chosen = text.choose(text.read_book(book), SETS[name], count, "alice")
        for old in (folder / "wav").glob("*.wav"):
            old.unlink()
        speak.speak_all({utt: text.spoken(s) for utt, s in chosen.items()}, folder / "wav", SEED)
        write_kaldi_text(folder / "ref.txt", {utt: tuple(text.reference(s).split()) for utt, s in chosen.items()})

    made_from = [book, HERE / "text.py", HERE / "speak.py"]
    title = f"Reading {count} sentences aloud ({name})"
    steps.run(f"speak-{name}", title, made_from, folder / "ref.txt", action, setting=f"{count} {SEED}")


def recognise_set(steps: Steps, name: str) -> None:
    """Writes `WORK/name/{lattices/,recogniser.txt}`."""
    folder = WORK / name
    words = ["python", "demo/recognise.py", "--wav", f"{folder}/wav", "--lattices", f"{folder}/lattices"]
    words += ["--text", f"{folder}/recogniser.txt"]
    seconds = sum(map(speak.duration, (folder / "wav").glob("*.wav")))
    title = f"Recognising {seconds / 60:.1f} minutes of speech ({name})"
    made_from = [folder / "wav", HERE / "recognise.py"]
    steps.run(f"recognise-{name}", title, made_from, folder / "recogniser.txt", words)


def score_set(steps: Steps, name: str, models: list[Path]) -> None:
    """Writes `WORK/name/nbest.jsonl.gz` and `WORK/name/scores/`."""
    folder = WORK / name
    nbest = folder / "nbest.jsonl.gz"
    words = ["rescore", "convert", f"slf:{folder}/lattices", str(nbest), "--ngram", NGRAM, "-n", "100", *NORMALISE]
    steps.run(f"nbest-{name}", f"100-best lists of the lattices ({name})", [folder / "lattices", *models], nbest, words)
    words = ["rescore", "nbest", "--nbest", str(nbest), "--lm", LM, "--out", f"{folder}/scores"]
    scores = folder / "scores" / "scores.jsonl.gz"
    steps.run(f"score-{name}", f"Scoring with the neural LM ({name})", [nbest, *models], scores, words)


def tune_and_combine(steps: Steps, system: str, held: list[str]) -> Path:
    """Scales from dev, applied to test; gives the folder of the result."""
    short = system.replace(" ", "-")
    weights, out = WORK / "dev" / f"{short}.json", WORK / "test" / short
    words = ["rescore", "tune", "--scores", f"{WORK}/dev/scores", "--ref", f"{WORK}/dev/ref.txt", "--out", str(weights)]
    words += [word for score in held for word in ("--fix", f"{score}=0")]
    made_from = [WORK / "dev" / "scores" / "scores.jsonl.gz", WORK / "dev" / "ref.txt"]
    steps.run(f"tune-{short}", f"Tuning on dev: {system}", made_from, weights, words)
    words = ["rescore", "combine", "--scores", f"{WORK}/test/scores", "--weights", str(weights), "--out", str(out)]
    made_from = [WORK / "test" / "scores" / "scores.jsonl.gz", weights]
    steps.run(f"combine-{short}", f"Applying to test: {system}", made_from, out / "nbest.jsonl.gz", words)
    return out


@click.command()
@click.option("--utterances", default=220, show_default=True, type=click.IntRange(min=10), help="Of dev and test.")
def main(utterances: int) -> None:
    """Run the demo; what it makes goes to demo/work, the table also to demo/results.json."""
    os.chdir(ROOT)
    steps, book = Steps(WORK / "done", 15), WORK / "alice.txt"
    models = [path for path in (ROOT / "lm_zoo" / "pretrained" / name for name in (LM, NGRAM)) if path.exists()]
    fetch_book(steps, book)
    for name in SETS:
        speak_set(steps, book, name, utterances // 2)
        recognise_set(steps, name)
        score_set(steps, name, models)
    results = {system: tune_and_combine(steps, system, held) for system, held in SYSTEMS.items()}
    words = ["rescore", "compare", "--ref", f"{WORK}/test/ref.txt", f"recogniser={WORK}/test/recogniser.txt"]
    words += [f"+ {system}={out}" for system, out in results.items()]
    command([*words, "--against", "recogniser", "--against", "+ n-gram", "--json", "demo/results.json"])


if __name__ == "__main__":
    main()
