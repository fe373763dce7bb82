"""The whole of `rescore report`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lm_zoo.reading import parse_json
from rescore.console import progress, remark
from rescore.errors import FormatError, UsageError
from rescore.files import atomic_text, read_lines
from rescore.types import Hypothesis, NbestList, Words
from rescore.workflows.columns import LMColumn
from rescore.workflows.report.analyses import Outcome
from rescore.workflows.report.gather import Gathered, gather, shown_lists
from rescore.workflows.report.page import audio_links, page

WORDS = 5  # shown at a place of a confusion network


def write_report(
    folder: Path, out: Path, hyps: int, word_scores: bool, audio: Path | None, networks: Path | None = None
) -> None:
    """Writes the page of a run; see `rescore report`.

    Raises:
      RescoreError: no run, or one that did not end.  LMError: with `word_scores`, an LM that is not there any more.
    """
    run = gather(folder)
    links = audio_links(audio, out.parent) if audio else {}
    places = read_networks(networks) if networks else {}
    for path, found in ((audio, links), (networks, places)):
        if path and not found.keys() & {each.utt_id for each in run.found}:
            raise UsageError(f"{path}: no utterance of the test set is in it")
    lists: Iterator[dict[str, Any]] = shown_lists(run, hyps)
    if word_scores:
        lists = _with_word_scores(run, lists)
    if networks:
        lists = _with_networks(run, lists, places)
    with atomic_text(out) as stream:
        stream.write(page(run, lists, links))
    remark(f"{len(run.found)} utterances, {len(run.systems)} systems; written to {out}")


def read_networks(path: Path) -> dict[str, list[Any]]:
    """Utterance id -> for each place the words that may stand there, most probable first, with their posteriors.

    Raises:
      FormatError: not what `rescore lattice mbr --network` writes.
    """
    found = {}
    for number, line in read_lines(path):
        try:
            entry = parse_json(line)
            words = [place["words"][:WORDS] for place in entry["places"]]
            found[entry["utt_id"]] = [[[str(word), float(share)] for word, share in place] for place in words]
        except (ValueError, KeyError, TypeError, OverflowError):
            raise FormatError(path, "expected a line of rescore lattice mbr --network", number) from None
    if not found:
        raise FormatError(path, "empty file, expected what rescore lattice mbr --network writes")
    return found


def _with_networks(
    run: Gathered, lists: Iterator[dict[str, Any]], places: dict[str, list[Any]]
) -> Iterator[dict[str, Any]]:
    for each, shown in zip(run.found, lists, strict=True):
        yield {**shown, "c": places[each.utt_id]} if each.utt_id in places else shown


def _with_word_scores(run: Gathered, lists: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Adds to each list, for each LM, the words of the systems' hypotheses as the LM sees them, with their scores."""
    from lm_zoo.registry import load

    names = dict(run.made["lms"]) | ({} if run.made["ngram"] is None else {"ngram": run.made["ngram"]})
    texts = [NbestList(each.utt_id, list(map(Hypothesis, _written(run, each)))) for each in run.found]
    with _where_it_ran(run):
        scores = {
            column: iter(word_scores(LMColumn(column, load(name)), texts))
            for column, name in progress(names.items(), "word scores", len(names))
        }
    for each, shown in zip(run.found, lists, strict=True):
        yield {**shown, "p": {column: [next(rows) for _ in each.texts] for column, rows in scores.items()}}


@contextmanager
def _where_it_ran(run: Gathered) -> Iterator[None]:
    """In the run's working folder, by which its LMs may be named; if that is not there any more, in this one."""
    before, folder = os.getcwd(), run.made.get("folder")
    if isinstance(folder, str) and os.path.isdir(folder):
        os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def _written(run: Gathered, each: Outcome) -> list[Words]:
    """The texts of an utterance as they were written, each by the first system that has it."""
    return [run.written[each.which.index(text)][each.utt_id] for text in range(len(each.texts))]


def word_scores(lm: LMColumn, lists: list[NbestList]) -> list[list[tuple[str, float]]]:
    """For each hypothesis of the lists, what the LM sees of each word ("" for nothing) and its score; at last the end.

    A word that the LM sees as several has the sum of their scores.
    """
    rows = lm.word_columns(lists)[lm.column]
    words = [[*map(" ".join, lm.view.parts(hyp.words)), "</s>"] for nbest in lists for hyp in nbest.hyps]
    return [
        [(word, round(value, 2)) for word, value in zip(*each, strict=True)] for each in zip(words, rows, strict=True)
    ]
