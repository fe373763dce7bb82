"""The whole of `rescore ppl`: every LM, their interpolation, a table."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import click

from lm_zoo.interpolation import em_weights
from lm_zoo.perplexity import Perplexity, WordScores, score_text, window_perplexity
from lm_zoo.text import read_sentences
from rescore.combine import load_weights, save_weights
from rescore.console import progress, remark
from rescore.errors import UsageError
from rescore.scoring import Scorer, open_scorers
from rescore.types import Weights

Row = dict[str, Any]


def measure(
    lms: Sequence[str],
    ngram: str | None,
    text: str,
    tune_mix: str | None,
    mix_file: Path | None,
    save_mix: Path | None,
    windows: tuple[int | None, str],
) -> list[Row]:
    """One row an LM, and one for their interpolation if weights are given or tuned; see `rescore ppl`."""
    if tune_mix and mix_file:
        raise UsageError("give either --tune-mix TEXT or --mix FILE, not both")
    if save_mix and not tune_mix:
        raise UsageError("--save-mix needs --tune-mix TEXT, the text on which the weights are found")
    scorers = open_scorers(lms, ngram)
    if windows[0] is not None:
        return [{"lm": scorer.column, **_windowed(scorer, text, windows[0], windows[1]).row()} for scorer in scorers]
    scores = _score(scorers, text)
    rows: list[Row] = [{"lm": scorer.column, **scores.perplexity(index).row()} for index, scorer in enumerate(scorers)]
    weights = _mix_weights(scorers, tune_mix, mix_file)
    if weights:
        label = " + ".join(f"{value:.3f} {column}" for column, value in weights.items())
        mixed = scores.mixed_perplexity([weights[scorer.column] for scorer in scorers])
        rows.append({"lm": label, **mixed.row(), "weights": weights})
    if save_mix and weights:
        save_weights(save_mix, Weights(weights, {"what": "linear interpolation a word, by EM", "text": str(tune_mix)}))
        remark(f"interpolation weights written to {save_mix}")
    return rows


def _score(scorers: list[Scorer], text: str) -> WordScores:
    sentences: Iterable[list[str]] = progress(read_sentences(text, remark), "scoring text")
    return score_text([scorer.lm for scorer in scorers], sentences, text)


def _mix_weights(scorers: list[Scorer], tune_mix: str | None, mix_file: Path | None) -> dict[str, float]:
    columns = [scorer.column for scorer in scorers]
    if mix_file:
        weights = load_weights(mix_file).scales
        if set(weights) != set(columns):
            raise UsageError(f"{mix_file} mixes {', '.join(weights)}, but the LMs given are {', '.join(columns)}")
        return weights
    if not tune_mix:
        return {}
    if len(scorers) < 2:
        raise UsageError("an interpolation needs two LMs or more; give another --lm or --ngram")
    found = em_weights(_score(scorers, tune_mix).log_probs)
    return dict(zip(columns, map(float, found), strict=True))


def _windowed(scorer: Scorer, text: str, window: int, position: str) -> Perplexity:
    from lm_zoo.batches import tokenize
    from lm_zoo.neural import NeuralLM

    if not isinstance(scorer.lm, NeuralLM):
        raise UsageError(f"--window is for neural LMs; '{scorer.column}' is none")
    return window_perplexity(scorer.lm, tokenize(scorer.lm.vocab, read_sentences(text, remark)), window, position)


def print_rows(rows: list[Row], as_json: bool) -> None:
    """A table, or a JSON list."""
    if as_json:
        click.echo(json.dumps(rows, indent=2))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table("LM", "ppl/word", "without OOV", "ppl/token", "words", "sentences", "OOV", "tokens")
    for row in rows:
        figures = (
            "-" if row[name] is None else f"{row[name]:.2f}" for name in ("ppl_word", "ppl_word_known", "ppl_token")
        )
        counts = (str(row[name]) for name in ("words", "sentences", "unknown", "tokens"))
        table.add_row(row["lm"], *figures, *counts)
    Console(width=max(100, Console().width)).print(table)
