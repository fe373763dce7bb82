"""The whole of `rescore ppl`: every LM, their interpolation, a table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from lm_zoo.inference.interpolation import em_weights, interpolate
from lm_zoo.inference.perplexity import Perplexity, WordScores, exp_or_inf, score_text
from lm_zoo.inference.viewed import ViewedLM, same_words, view_of
from lm_zoo.reading import is_read_once
from lm_zoo.text.coverage import MOST_UNKNOWN, Coverage
from lm_zoo.text.sentences import parse_text_spec, read_sentences
from rescore.console import progress, remark
from rescore.errors import UsageError
from rescore.evaluation.tail import TailMarker, load_tail
from rescore.tables import WIDTH, table_lines
from rescore.text import short
from rescore.types import Weights
from rescore.weights import MIXTURE, load_mixture, save_weights
from rescore.workflows.columns import LMColumn, open_scorers

Row = dict[str, Any]


def measure(
    lms: Sequence[str],
    ngram: str | None,
    text: str,
    tune_mix: str | None,
    mix_file: Path | None,
    save_mix: Path | None,
    windows: tuple[int | None, str],
    tail_file: Path | None = None,
    mixtures: Sequence[str] = (),
    device: str = "cpu",
    max_unknown: float = MOST_UNKNOWN,
    exact: bool = False,
) -> list[Row]:
    """One row an LM, and one for each interpolation whose weights are given or tuned; see `rescore ppl`."""
    if tune_mix and mix_file:
        raise UsageError("give either --tune-mix TEXT or --mix FILE, not both")
    if save_mix and not tune_mix:
        raise UsageError("--save-mix needs --tune-mix TEXT, the text on which the weights are found")
    if mixtures and (save_mix or not tune_mix):
        raise UsageError("--mixture needs --tune-mix TEXT, and --save-mix the interpolation of all LMs: leave one out")
    if tail_file and windows[0] is not None:
        raise UsageError("--tail needs sentences scored one by one: leave --window out")
    if windows[0] is not None and (tune_mix or mix_file):
        raise UsageError("--tune-mix and --mix need sentences scored one by one: leave --window out")
    _check_texts(*filter(None, (text, tune_mix)))
    marker = TailMarker(load_tail(tail_file)) if tail_file else None
    scorers = open_scorers(lms, ngram, device=device, max_unknown=max_unknown, exact=exact)
    columns = [scorer.column for scorer in scorers]
    chosen = _chosen(columns, mixtures) if tune_mix else []
    mixed = [load_mixture(mix_file, columns)] if mix_file else []
    if windows[0] is not None:
        return [{"lm": scorer.column, **_windowed(scorer, text, windows[0], windows[1]).row()} for scorer in scorers]
    scores = _score(scorers, text, marker)
    mixed += _tuned(scorers, tune_mix, chosen) if tune_mix else []
    rows = rows_of(columns, scores, marker, mixed)
    if save_mix and mixed:
        made = {"what": MIXTURE, "text": str(tune_mix)}
        save_weights(save_mix, Weights(mixed[0], made))
        remark(f"interpolation weights written to {save_mix}")
    return rows


def rows_of(
    columns: Sequence[str], scores: WordScores, marker: TailMarker | None, mixed: Sequence[dict[str, float]]
) -> list[Row]:
    """One row an LM, and one for each interpolation, of weights by column."""
    rows: list[Row] = [{"lm": column, **scores.perplexity(index).row()} for index, column in enumerate(columns)]
    masks = _tail_masks(marker)
    for row, log_probs, known in zip(rows, scores.log_probs, scores.known, strict=True):
        row.update(tail_row(log_probs, known, masks))
    for weights in mixed:
        label = " + ".join(f"{value:.3f} {column}" for column, value in weights.items())
        used = [index for index, column in enumerate(columns) if column in weights]
        part, values = scores.subset(used), [weights[columns[index]] for index in used]
        tails = tail_row(interpolate(part.log_probs, values), part.known.any(axis=0), masks)
        rows.append({"lm": label, **part.mixed_perplexity(values).row(), **tails, "weights": weights})
    return rows


def _score(scorers: list[LMColumn], text: str, marker: TailMarker | None = None) -> WordScores:
    sentences: Iterable[list[str]] = progress(seen_sentences(scorers, text), "scoring text")
    watched = marker.watch(sentences) if marker else sentences
    scores = score_text(viewed(scorers), watched, text, scorers[0].most_unknown)
    for scorer in scorers:
        if shown := scorer.lm.said():
            remark(f"{scorer.column}: {shown}")
    return scores


def viewed(scorers: Sequence[LMColumn]) -> list[ViewedLM]:
    """The LMs over the words of `seen_sentences`, of which each sees those in its own case."""
    return [ViewedLM(scorer.lm, view_of(scorer.lm, scorer.view.is_exact)) for scorer in scorers]


def seen_sentences(scorers: list[LMColumn], text: str, say: Callable[[str], None] = remark) -> Iterator[list[str]]:
    """The sentences of a text as all of the LMs see them, but for case, in that of the first one.

    Args:
      say: gets what was skipped, and what was changed, at the end.
    Raises:
      UsageError: they see one of them differently otherwise, so that their words cannot be compared.
    """
    views, empty = [lm.view for lm in viewed(scorers)], 0
    for number, words in enumerate(read_sentences(text, say), start=1):
        found = [list(view.words(words)) for view in views]
        alike = [same_words(view, found[0], other) for view, other in zip(views, found, strict=True)]
        if not all(alike):
            place = alike.index(False)
            raise UsageError(
                f"{text}, sentence {number}: '{scorers[0].column}' sees {short(' '.join(found[0]))}, but "
                f"'{scorers[place].column}' sees {short(' '.join(found[place]))}, so that they have different words; "
                "measure them one by one, or bring the text into one form first"
            )
        views[0].count(words)
        empty += not found[0]
        if found[0]:
            yield found[0]
    if empty:
        say(f"{text}: {empty} sentences have no word that an LM sees and were skipped")
    if shown := views[0].said("sentences"):
        say(f"{text}: {shown}")


def _tail_masks(marker: TailMarker | None) -> list[np.ndarray]:
    if marker is None:
        return []
    remark(marker.tail.describe())
    return marker.masks()


def tail_row(log_probs: np.ndarray, known: np.ndarray, masks: Sequence[np.ndarray]) -> Row:
    """Perplexity over the words of Tail-1 and of Tail-2, and their counts; None where there is no such word.

    Args:
      log_probs: float64 `(words + sentences,)`, natural logs.
      known: bool of the same shape, whether the LM knows the word.
      masks: for each order a bool array of the same shape, see `rescore.evaluation.tail.TailMarker`.
    """
    row: Row = {}
    for n, mask in enumerate(masks, start=1):
        row[f"ppl_tail{n}"] = _ppl(log_probs[mask])
        row[f"ppl_tail{n}_known"] = _ppl(log_probs[mask & known])
        row[f"tail{n}_words"] = int(mask.sum())
        row[f"tail{n}_unknown"] = int((mask & ~known).sum())
    return row


def _ppl(log_probs: np.ndarray) -> float | None:
    return exp_or_inf(-float(log_probs.mean())) if len(log_probs) else None


def _check_texts(*texts: str) -> None:
    """Before LMs score for hours: raises TextError for a text that is not there, or begins as none."""
    for text in texts:
        if not is_read_once(parse_text_spec(text)[1]):
            next(read_sentences(text), None)


def _chosen(columns: Sequence[str], mixtures: Sequence[str]) -> list[Sequence[str]]:
    """The columns of every interpolation; of all LMs where no mixture is named."""
    if len(columns) < 2:
        raise UsageError("an interpolation needs two LMs or more; give another --lm or --ngram")
    chosen = [mixture.split(",") for mixture in mixtures]
    for names in chosen:
        if len(names) < 2 or len(set(names)) < len(names) or not set(names) <= set(columns):
            raise UsageError(f"--mixture {','.join(names)}: expected two or more of {', '.join(columns)}")
    return [*chosen] or [columns]


def _tuned(scorers: list[LMColumn], text: str, chosen: Sequence[Sequence[str]]) -> list[dict[str, float]]:
    """Weights by column of every interpolation, by EM."""
    columns = [scorer.column for scorer in scorers]
    log_probs = _score(scorers, text).log_probs
    found = [em_weights(log_probs[[columns.index(name) for name in names]]) for names in chosen]
    return [dict(zip(names, map(float, weights), strict=True)) for names, weights in zip(chosen, found, strict=True)]


def _windowed(scorer: LMColumn, text: str, window: int, position: str) -> Perplexity:
    from lm_zoo.inference.interpolation import InterpolatedLM
    from lm_zoo.inference.neural import NeuralLM
    from lm_zoo.inference.windows import window_perplexity
    from lm_zoo.text.batches import tokenize

    if isinstance(scorer.lm, InterpolatedLM):
        raise UsageError(f"--window is for one LM at a time; '{scorer.column}' is several (leave ?samples= out)")
    if not isinstance(scorer.lm, NeuralLM):
        raise UsageError(f"--window is for neural LMs of the zoo; '{scorer.column}' is none (leave --window out)")
    coverage = Coverage(scorer.lm, text, scorer.most_unknown)

    def checked() -> Iterator[list[str]]:
        for number, words in enumerate(seen_sentences([scorer], text), start=1):
            coverage.add(Counter(words), f"{text}, sentence {number}")
            yield words
        coverage.check()

    tokens = tokenize(scorer.lm.vocab, checked())
    return window_perplexity(scorer.lm, tokens, window, position)


def row_lines(rows: list[Row], most: int = WIDTH) -> list[str]:
    """Tables of what was measured, at most `most` columns wide."""
    names: tuple[str, ...] = ("ppl_word", "ppl_word_known", "ppl_token", "words", "sentences", "unknown", "tokens")
    heads: tuple[str, ...] = ("ppl/word", "without OOV", "ppl/token", "words", "sentences", "OOV", "tokens")
    lines = _table(rows, heads, names, most)
    for n in (1, 2):
        if f"tail{n}_words" in rows[0]:
            heads = (f"Tail-{n} ppl/word", "without OOV", f"Tail-{n} words", "OOV")
            names = (f"ppl_tail{n}", f"ppl_tail{n}_known", f"tail{n}_words", f"tail{n}_unknown")
            lines += ["", *_table(rows, heads, names, most)]
    return lines


def _table(rows: list[Row], heads: Sequence[str], names: Sequence[str], most: int) -> list[str]:
    cells = [[_share(row) if name == "unknown" else _cell(row[name]) for name in names] for row in rows]
    return table_lines(["LM", *heads], [[row["lm"], *line] for row, line in zip(rows, cells, strict=True)], most)


def _share(row: Row) -> str:
    """The number of unknown words and what part of all it is."""
    return f"{row['unknown']} ({100 * row['unknown'] / max(1, row['words']):.1f} %)"


def _cell(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.2f}" if isinstance(value, float) else str(value)
