"""One monstrous utterance from beginning to end: a lattice of many arcs, or a list of many or of very long hypotheses.

Example: python benchmarks/monstrous.py lattice --arcs 1000000 --ngram ngram --lm lstm
Example: python benchmarks/monstrous.py list --hypotheses 10000 --words 30 --lm lstm
Example: python benchmarks/monstrous.py list --hypotheses 1 --words 5000 --lm lstm

Both are made up, by a seed.  Between two places in the lattice, of five states each, every state leads to every one of
the next by each of ten words, so 250 arcs for a word of the utterance, as in PocketSphinx's lattices; with `--states 1`
it is a sausage.  The hypotheses of the list differ in a tenth of their words.  Memory is what the process itself holds
(RssAnon) at most.
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Iterator
from pathlib import Path

import click
import numpy as np
from measure import heading, row
from million import WORDS, watched

from rescore.formats import write_lattices, write_nbest
from rescore.types import Hypothesis, Lattice, NbestList


def made_lattice(arcs: int, states: int, choices: int, seed: int) -> Lattice:
    """Of at least so many arcs; scores `am`.

    Args:
      states: of a place.
      choices: words between two of them.
    """
    dice = np.random.default_rng(seed)
    places = -(-arcs // (states * states * choices))
    symbols = ["", *dict.fromkeys(WORDS)]
    src, dst, labels = [np.zeros(states, np.int32)], [np.arange(1, states + 1, dtype=np.int32)], [np.zeros(states)]
    pairs = np.indices((states, states)).reshape(2, -1).repeat(choices, axis=1).astype(np.int32)
    for place in range(places):
        first = 1 + place * states
        chosen = dice.choice(np.arange(1, len(symbols)), choices, replace=False)
        src.append(first + pairs[0])
        dst.append(first + states + pairs[1])
        labels.append(np.tile(chosen, states * states))
    last = 1 + (places + 1) * states
    src.append(np.arange(last - states, last, dtype=np.int32))
    dst.append(np.full(states, last, np.int32))
    labels.append(np.zeros(states))
    ends = np.concatenate(src), np.concatenate(dst)
    scores = {"am": -30.0 * dice.random(len(ends[0]))}
    times = np.append(0.0, np.arange(last) // states * 0.3)
    return Lattice("monster", last + 1, *ends, np.concatenate(labels).astype(np.int32), scores, symbols, times)


def made_list(hypotheses: int, words: int, seed: int) -> NbestList:
    dice = random.Random(seed)
    text = dice.choices(WORDS, k=words)

    def hyps() -> Iterator[Hypothesis]:
        for rank in range(hypotheses):
            other = list(text)
            for place in dice.sample(range(words), max(1, words // 10)):
                other[place] = dice.choice(WORDS)
            yield Hypothesis(tuple(other), {"am": -float(rank)})

    return NbestList("monster", list(hyps()))


def measured(what: str, lms: list[str], arguments: list[str], max_memory: str | None) -> None:
    clock, spent, looks = watched([*arguments, *(["--max-memory", max_memory] if max_memory else [])])
    row(what, " ".join(lms), f"{clock:,.0f}", f"{spent:,.0f}", f"{max(looks):,.0f}")


@click.group()
def main() -> None:
    heading("what", "LMs", "clock s", "CPU s", "peak MB")


@main.command()
@click.option("--arcs", default=1_000_000, show_default=True)
@click.option("--states", default=5, show_default=True, help="Of a place.")
@click.option("--choices", default=10, show_default=True, help="Words between two of them.")
@click.option("--ngram", help="An n-gram LM.")
@click.option("--lm", help="A neural LM, behind it.")
@click.option("--ngram-beam", default=40.0, show_default=True)
@click.option("--beam", default=40.0, show_default=True)
@click.option("--most", default=10, show_default=True, help="Histories a state that the neural LM sees.")
@click.option("--max-memory", help="As of rescore lattice rescore.")
@click.option("--seed", default=0, show_default=True)
def lattice(
    arcs: int,
    states: int,
    choices: int,
    ngram: str | None,
    lm: str | None,
    ngram_beam: float,
    beam: float,
    most: int,
    max_memory: str | None,
    seed: int,
) -> None:
    """Rescore a lattice into a lattice."""
    with tempfile.TemporaryDirectory() as folder:
        write_lattices(f"kaldi-lat:{folder}/in.ark", [made := made_lattice(arcs, states, choices, seed)])
        scales = {"am": 1.0, **({"ngram": 8.0} if ngram else {}), **({"nn": 4.0} if lm else {})}
        arguments = ["lattice", "rescore", f"kaldi-lat:{folder}/in.ark", f"kaldi-lat:{folder}/out.ark"]
        arguments += [word for name, scale in scales.items() for word in ("--scale", f"{name}={scale}")]
        arguments += ["--ngram", ngram, "--ngram-beam", str(ngram_beam)] if ngram else []
        arguments += ["--lm", f"nn={lm}", "--beam", str(beam), "--most", str(most)] if lm else []
        measured(
            f"{made.num_arcs:,} arcs, {states} states, {choices} words",
            [each for each in (ngram, lm) if each],
            arguments,
            max_memory,
        )


@main.command("list")
@click.option("--hypotheses", default=10_000, show_default=True)
@click.option("--words", default=30, show_default=True)
@click.option("--lm", default="lstm", show_default=True)
@click.option("--max-memory", help="As of rescore nbest.")
@click.option("--seed", default=0, show_default=True)
def of_list(hypotheses: int, words: int, lm: str, max_memory: str | None, seed: int) -> None:
    """Score a list."""
    with tempfile.TemporaryDirectory() as folder:
        source = f"jsonl:{folder}/list.jsonl"
        write_nbest(source, [made_list(hypotheses, words, seed)])
        arguments = ["nbest", "--nbest", source, "--lm", lm, "--scale", "am=1", "--out", str(Path(folder) / "out")]
        measured(f"{hypotheses:,} hypotheses of {words:,} words", [lm], arguments, max_memory)


if __name__ == "__main__":
    main()
