"""N-gram LMs against KenLM in one run: estimation against lmplz, queries against KenLM's own.

Example: python benchmarks/ngrams.py estimate --text train.txt.xz --text kaldi:text --lmplz build/bin/lmplz
Example: python benchmarks/ngrams.py estimate --text train.txt.xz --lines 20000 --prune "0 0 1"
Example: python benchmarks/ngrams.py query --ngram 4gram.bin --text test.txt --nbest jsonl:dev.jsonl.gz

lmplz and query (`--query build/bin/query`) are KenLM's; cmake makes them of the source distribution of kenlm 0.3.0 on
PyPI, with Boost.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any

import click
import numpy as np
from measure import heading, row, seconds

from lm_zoo.ngram.kenlm_lm import LN10, NgramLM
from lm_zoo.text.sentences import read_sentences

Sentences = list[Sequence[str]]
COMMAND = (sys.executable, "-m", "rescore.cli.main")
TEXT = click.Path(exists=True, dir_okay=False, path_type=Path)


@dataclass
class Run:
    """A finished program: seconds, and the MB that it had at its peak."""

    wall: float
    cpu: float
    memory: float


def run(*command: object, stdin: Path | None = None) -> Run:
    """Runs a program; what it prints is dropped, unless it fails."""
    with tempfile.TemporaryFile() as printed, open(stdin or os.devnull, "rb") as source:
        start = time.perf_counter()
        process = subprocess.Popen(list(map(str, command)), stdin=source, stdout=printed, stderr=subprocess.STDOUT)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            printed.seek(0)
            raise click.ClickException(f"{command[0]} failed: {printed.read().decode(errors='replace')[-2000:]}")
    return Run(time.perf_counter() - start, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024)


@click.group(help=__doc__)
def main() -> None: ...


@main.command()
@click.option("--text", "texts", multiple=True, required=True, help="Training text: FILE or kaldi:FILE.")
@click.option("--lines", type=int, help="The first so many sentences alone.")
@click.option("--order", default=4, show_default=True)
@click.option("--prune", default="0 0 0 1", show_default=True)
@click.option("--lmplz", type=TEXT, help="KenLM's lmplz; without it there is nothing to compare with.")
@click.option("--memory", default="4G", show_default=True, help="lmplz -S: memory for sorting.")
@click.option("--folder", type=click.Path(file_okay=False), help="For text, models and lmplz's parts (gigabytes).")
def estimate(
    texts: tuple[str, ...],
    lines: int | None,
    order: int,
    prune: str,
    lmplz: Path | None,
    memory: str,
    folder: str | None,
) -> None:
    """`rescore train-ngram` against lmplz: whole programs, from plain text to an ARPA file."""
    with tempfile.TemporaryDirectory(dir=folder) as name:
        text, ours, theirs = (Path(name) / file for file in ("text", "ours.arpa", "lmplz.arpa"))
        sentences, words = write_text(texts, lines, text)
        print(f"{words:,} words in {sentences:,} sentences, order {order}, --prune {prune}\n")
        heading("", "wall s", "CPU s", "peak MB", "n-grams", "words/s", "wall of lmplz", "memory of lmplz")
        reference = None
        if lmplz:
            sizes = ("--order", order, "--prune", *prune.split())
            reference = run(lmplz, *sizes, "-S", memory, "-T", name, "--text", text, "--arpa", theirs)
            show(f"lmplz -S {memory}", reference, theirs, words, reference)
        else:
            click.echo("(no --lmplz: its row is left out)", err=True)
        found = run(*COMMAND, "train-ngram", "--text", text, "--order", order, "--prune", prune, "--out", ours)
        show("rescore train-ngram", found, ours, words, reference)
        if lmplz:
            print(f"\n{compare(ours, theirs)}")


def write_text(texts: Sequence[str], lines: int | None, path: Path) -> tuple[int, int]:
    """The sentences one a line, and how many they and their words are."""
    sentences = words = 0
    with open(path, "w", encoding="utf-8") as out:
        for sentence in islice(chain.from_iterable(map(read_sentences, texts)), lines):
            sentences, words = sentences + 1, words + len(sentence)
            out.write(" ".join(sentence) + "\n")
    return sentences, words


def show(name: str, found: Run, arpa: Path, words: int, reference: Run | None) -> None:
    ratios = [found.wall / reference.wall, found.memory / reference.memory] if reference else []
    ngrams = f"{sum(counts(arpa)):,}"
    cells = [f"{found.wall:.1f}", f"{found.cpu:.1f}", f"{found.memory:.0f}", ngrams, f"{words / found.wall:,.0f}"]
    row(name, *cells, *(f"{ratio:.2f}" for ratio in ratios), *[""] * (2 - len(ratios)))


def counts(arpa: Path) -> list[int]:
    """N-grams by order, of an ARPA file's head."""
    with open(arpa, "rb") as stream:
        head = islice(stream, 8)
        return [int(line.split(b"=")[1]) for line in head if line.startswith(b"ngram ")]


def compare(ours: Path, theirs: Path) -> str:
    """The largest differences of the n-grams that two ARPA files have in common, by hashes of their words."""
    common, largest = 0, np.zeros(2)
    with open(ours, "rb") as first, open(theirs, "rb") as second:
        for _ in counts(ours):
            tables = [read_order(stream) for stream in (first, second)]
            _, one, two = np.intersect1d(tables[0][0], tables[1][0], assume_unique=True, return_indices=True)
            common += len(one)
            for column in (1, 2):
                change = np.abs(tables[0][column][one] - tables[1][column][two])
                largest[column - 1] = max(largest[column - 1], change.max(initial=0))
    return (
        f"{common:,} n-grams in common; largest difference in log10: probabilities {largest[0]:.1e}, "
        f"back-offs {largest[1]:.1e}"
    )


def read_order(stream: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The next section of an ARPA file: hashes of the n-grams, log10 probabilities, log10 back-offs."""
    hashes, probs, backoffs = array("q"), array("d"), array("d")
    for line in stream:
        fields = line.split(b"\t")
        if len(fields) > 1:
            hashes.append(hash(fields[1].strip()))
            probs.append(float(fields[0]))
            backoffs.append(float(fields[2]) if len(fields) > 2 else 0.0)
        elif hashes:
            break
    return np.array(hashes), np.array(probs), np.array(backoffs)


@main.command()
@click.option("--ngram", required=True, help="An ARPA or KenLM binary file, or a name of the zoo.")
@click.option("--text", type=TEXT, required=True, help="Running text, one sentence a line.")
@click.option("--nbest", help="N-best lists, as rescore nbest takes them.")
@click.option("--sentences", default=20_000, show_default=True, help="At most so many, and so many hypotheses.")
@click.option("--query", "program", type=TEXT, help="KenLM's query, the C++ program.")
@click.option("--rounds", default=3, show_default=True)
def query(ngram: str, text: Path, nbest: str | None, sentences: int, program: Path | None, rounds: int) -> None:
    """Scoring running text and N-best lists: CPU seconds, the best of some rounds, without loading."""
    from lm_zoo.registry import load_ngram
    from rescore.formats import read_nbest

    lm = load_ngram(ngram)
    sets: dict[str, Sentences] = {"text": list(islice(read_sentences(text), sentences))}
    if nbest:
        hyps = (hyp.words for found in read_nbest(nbest) for hyp in found.hyps)
        sets["N-best"] = list(islice(hyps, sentences))
    heading("", "gives", *chain.from_iterable((f"{name}: words/s", "of `score`") for name in sets))
    spent: dict[tuple[str, str], list[float]] = {}
    for chosen in sets.values():
        for name, action in ways(lm, chosen).items():
            spent.setdefault(name, []).append(seconds(action, rounds, time.process_time))
        if program:
            spent.setdefault(("KenLM: query, the C++ program", "totals"), []).append(
                program_seconds(program, lm, chosen, rounds)
            )
    sizes = [sum(map(len, chosen)) + len(chosen) for chosen in sets.values()]
    fastest = next(iter(spent.values()))
    for name, found in spent.items():
        cells = zip(sizes, found, fastest, strict=True)
        row(*name, *chain.from_iterable((f"{size / own:,.0f}", f"{one / own:.2f}") for size, own, one in cells))
    print(
        "\nLargest difference of a sentence's total, nats: "
        + ", ".join(map(differences, [lm] * len(sets), sets.values()))
    )


def ways(lm: NgramLM, sentences: Sentences) -> dict[tuple[str, str], Callable[[], Any]]:
    """The first one is what the others are compared with."""
    model = lm._model
    lines = [" ".join(words) for words in sentences]
    return {
        ("KenLM: score", "totals"): lambda: [model.score(line) for line in lines],
        ("KenLM: full_scores", "words"): lambda: [list(model.full_scores(line)) for line in lines],
        ("ours: score_sentences", "totals"): lambda: lm.score_sentences(sentences),
        ("ours: score_words", "words"): lambda: lm.score_words(sentences),
        ("ours: extend, a word at a time", "words, states"): lambda: word_by_word(lm, sentences),
    }


def word_by_word(lm: NgramLM, sentences: Sentences) -> list[float]:
    totals = []
    for words in sentences:
        state, total = lm.start(), 0.0
        for word in words:
            score, state, _ = lm.extend(state, word)
            total += score
        totals.append(total + lm.end(state))
    return totals


def differences(lm: NgramLM, sentences: Sentences) -> str:
    """Of each way of ours, from KenLM's `full_scores` summed in double precision."""
    plain = np.array([sum(found[0] for found in lm._model.full_scores(" ".join(words))) for words in sentences]) * LN10
    found = {
        "score_sentences": lm.score_sentences(sentences),
        "score_words": list(map(sum, lm.score_words(sentences))),
        "extend": word_by_word(lm, sentences),
    }
    return " ".join(f"{name} {np.abs(np.array(values) - plain).max():.0e}" for name, values in found.items())


def program_seconds(program: Path, lm: NgramLM, sentences: Sentences, rounds: int) -> float:
    """CPU seconds of KenLM's program, less those of a run over an empty text, which loads the model all the same."""
    copies = 1 + 3_000_000 // sum(map(len, sentences))
    with tempfile.NamedTemporaryFile("w", encoding="utf-8") as text:
        text.writelines([" ".join(words) + "\n" for words in sentences] * copies)
        text.flush()
        command = (program, "-v", "sentence", lm.path)
        full = min(run(*command, stdin=Path(text.name)).cpu for _ in range(rounds))
        return (full - min(run(*command).cpu for _ in range(rounds))) / copies


if __name__ == "__main__":
    main()
