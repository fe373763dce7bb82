"""The whole of `rescore report`."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

from rescore.console import progress, remark
from rescore.errors import UsageError
from rescore.files import atomic_text
from rescore.workflows.report.gather import Gathered, gather, shown_lists
from rescore.workflows.report.page import audio_links, page


def write_report(folder: Path, out: Path, hyps: int, word_scores: bool, audio: Path | None) -> None:
    """Writes the page of a run; see `rescore report`.

    Raises:
      RescoreError: no run, or one that did not end.  LMError: with `word_scores`, an LM that is not there any more.
    """
    run = gather(folder)
    links = audio_links(audio, out.parent) if audio else {}
    if audio and not links.keys() & {each.utt_id for each in run.found}:
        raise UsageError(f"{audio}: no utterance of the test set is in it")
    lists: Iterator[dict[str, Any]] = shown_lists(run, hyps)
    if word_scores:
        lists = _with_word_scores(run, lists)
    with atomic_text(out) as stream:
        stream.write(page(run, lists, links))
    remark(f"{len(run.found)} utterances, {len(run.systems)} systems; written to {out}")


def _with_word_scores(run: Gathered, lists: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Adds to each list, for each LM, the log-probabilities of the words of the systems' hypotheses."""
    from lm_zoo.registry import load

    names = dict(run.made["lms"]) | ({} if run.made["ngram"] is None else {"ngram": run.made["ngram"]})
    texts = list(chain.from_iterable(each.texts for each in run.found))
    scores = {}
    for column, name in progress(names.items(), "word scores", len(names)):
        found = load(name).score_hypotheses(texts, max_unknown=None)
        scores[column] = iter([[round(value, 2) for value in row] for row in found])
    for each, shown in zip(run.found, lists, strict=True):
        yield {**shown, "p": {column: [next(rows) for _ in each.texts] for column, rows in scores.items()}}
