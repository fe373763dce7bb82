"""WER, bootstrap intervals and MAPSSWE of many utterances, against the plain ways of computing them."""

from __future__ import annotations

import importlib.util
import random
from collections.abc import Callable
from typing import TypeVar

import click
import kaldialign
import numpy as np
from measure import heading, measured, row

from rescore.evaluation.significance import bootstrap_wer, error_positions, mapsswe
from rescore.evaluation.wer import corpus_errors, utterance_errors
from rescore.types import Words
from rescore.workflows.compare import System, compare_systems

VOCABULARY = 5_000
T = TypeVar("T")


def make_texts(utterances: int, rates: list[float], rng: np.random.Generator) -> list[dict[str, Words]]:
    """References of 5 to 35 words (20 on average), and a text with errors for each rate; few words are frequent."""
    words = np.array([f"W{i}" for i in range(VOCABULARY)], dtype=object)
    texts: list[dict[str, Words]] = [{} for _ in range(1 + len(rates))]
    for u in range(utterances):
        ref = words[(VOCABULARY * rng.random(rng.integers(5, 36)) ** 3).astype(int)]
        texts[0][f"u{u}"] = tuple(ref)
        for text, rate in zip(texts[1:], rates, strict=True):
            kinds = rng.choice(4, len(ref), p=[1 - rate, 0.6 * rate, 0.2 * rate, 0.2 * rate])
            others = words[rng.integers(0, VOCABULARY, len(ref))]
            spoken = zip(ref, others, kinds, strict=True)  # kept, replaced, left out, or with a word behind it
            text[f"u{u}"] = tuple(x for word, o, kind in spoken for x in ((word,), (o,), (), (word, o))[kind])
    return texts


def plain_distance(ref: Words, hyp: Words) -> int:
    """Levenshtein's distance row by row, in Python."""
    above = list(range(len(hyp) + 1))
    for i, ref_word in enumerate(ref, 1):
        row_now = [i]
        for j, hyp_word in enumerate(hyp, 1):
            row_now.append(min(above[j] + 1, row_now[-1] + 1, above[j - 1] + (ref_word != hyp_word)))
        above = row_now
    return above[-1]


def plain_bootstrap(errors: list[int], words: list[int], samples: int) -> list[float]:
    """WERs of resampled corpora, utterance by utterance."""
    draw, rates = random.Random(1), []
    for _ in range(samples):
        drawn = draw.choices(range(len(errors)), k=len(errors))
        rates.append(100.0 * sum(errors[u] for u in drawn) / sum(words[u] for u in drawn))
    return rates


def numpy_bootstrap(errors: np.ndarray, words: np.ndarray, samples: int) -> list[float]:
    """The same with numpy, sample by sample."""
    rng, rates = np.random.default_rng(1), []
    for _ in range(samples):
        drawn = rng.integers(0, len(errors), len(errors))
        rates.append(100.0 * errors[drawn].sum() / words[drawn].sum())
    return rates


def jiwer_errors(refs: list[Words], hyps: list[Words]) -> int:
    """Of the package jiwer; it takes sentences apart itself."""
    import jiwer

    found = jiwer.process_words([" ".join(ref) for ref in refs], [" ".join(hyp) for hyp in hyps])
    return int(found.insertions + found.deletions + found.substitutions)


def show(title: str, part: int, whole: int, action: Callable[[], T], base: float | None = None) -> tuple[T, float]:
    """A row of the table; the time of `part` of the work stands for the `whole`."""
    result, seconds, memory = measured(action)
    seconds *= whole / part
    how = "run" if part == whole else f"extrapolated from {part:,} of {whole:,}"
    row(title, f"{seconds:.2f}", f"{seconds / base:.1f}" if base else "1.0", f"{memory:.0f}", how)
    return result, seconds


def error_rates(refs: dict[str, Words], hyps: dict[str, Words], plain: int) -> None:
    """Rows of the WER; all ways must count the same errors."""
    pairs = [(ref, hyps[utt_id]) for utt_id, ref in refs.items()]
    ours, base = show(
        "WER: ours (Kaldi's counts of each kind)", len(refs), len(refs), lambda: corpus_errors(refs, hyps)
    )
    few = corpus_errors(dict(list(refs.items())[:plain]), dict(list(hyps.items())[:plain])).errors
    slow, _ = show("WER: plain Python", plain, len(refs), lambda: sum(plain_distance(*p) for p in pairs[:plain]), base)
    bare, _ = show(
        "WER: kaldialign alone, pair by pair",
        len(refs),
        len(refs),
        lambda: sum(kaldialign.edit_distance(*pair)["total"] for pair in pairs),
        base,
    )
    assert (slow, bare) == (few, ours.errors)
    if importlib.util.find_spec("jiwer"):
        lists = [list(texts) for texts in zip(*pairs, strict=True)]
        other, _ = show("WER: jiwer", len(refs), len(refs), lambda: jiwer_errors(*lists), base)
        assert other == ours.errors


def intervals(errors: np.ndarray, words: np.ndarray, samples: int, plain: int) -> None:
    """Rows of the bootstrap."""
    _, base = show("bootstrap: ours", samples, samples, lambda: bootstrap_wer(errors, words, samples=samples))
    lists = errors.tolist(), words.tolist()
    many = min(samples, 100 * plain)
    show("bootstrap: plain Python", plain, samples, lambda: plain_bootstrap(*lists, plain), base)
    show("bootstrap: numpy, a sample at a time", many, samples, lambda: numpy_bootstrap(errors, words, many), base)


@click.command()
@click.option("--utterances", default=100_000, show_default=True)
@click.option("--samples", default=10_000, show_default=True, help="Of the bootstrap.")
@click.option("--plain-utterances", default=2_000, show_default=True, help="That plain Python counts the errors of.")
@click.option("--plain-samples", default=4, show_default=True, help="That plain Python draws; numpy 100 times as many.")
@click.option("--seed", default=1, show_default=True)
def main(utterances: int, samples: int, plain_utterances: int, plain_samples: int, seed: int) -> None:
    """CPU seconds of WER, bootstrap and MAPSSWE on made-up texts of two systems.

    \b
    Example: OMP_NUM_THREADS=1 python benchmarks/significance.py
    Example: python benchmarks/significance.py --utterances 2000 --plain-utterances 200 --plain-samples 1
    """
    refs, first, second = make_texts(utterances, [0.10, 0.11], np.random.default_rng(seed))
    plain_utterances = min(plain_utterances, utterances)
    heading("", "CPU s", "of ours", "peak MB", "how")
    error_rates(refs, first, plain_utterances)
    errors = np.array([counts.errors for counts in utterance_errors(refs, first).values()])
    intervals(errors, np.array([len(ref) for ref in refs.values()]), samples, plain_samples)

    def places(hyps: dict[str, Words]) -> list[np.ndarray]:
        return [error_positions(ref, hyps[utt_id]) for utt_id, ref in refs.items()]

    everything = utterances, utterances
    aligned, base = show("MAPSSWE: alignments of two systems", *everything, lambda: [places(first), places(second)])
    show("MAPSSWE: segments and test", *everything, lambda: mapsswe(*aligned), base)
    systems = [System("first", first), System("second", second)]
    show("`rescore compare` of two systems: all of it", *everything, lambda: compare_systems(refs, systems))


if __name__ == "__main__":
    main()
