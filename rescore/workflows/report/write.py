"""The whole of `rescore report`."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

from lm_zoo.reading import parse_json
from rescore.console import progress, remark
from rescore.errors import FormatError, UsageError
from rescore.files import atomic_text, read_lines
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
