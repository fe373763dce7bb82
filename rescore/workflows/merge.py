"""`rescore merge`: puts the shares of a scoring together, and combines the scores.  Loads no LM."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from rescore.console import progress, remark
from rescore.errors import ScoreError, UsageError
from rescore.formats.part_files import LISTS
from rescore.sharing.parts import (
    MAX_UNKNOWN,
    finished_splits,
    join_parts,
    notes,
    part_files,
    parts_inside,
    read_plan,
    remove_parts,
)
from rescore.skipping import note_skipped
from rescore.types import NbestList, Weights
from rescore.weights import equal_weights
from rescore.workflows.combine import SCORES_FILE, CombineCounts, say_combined, write_combined
from rescore.workflows.context import with_context
from rescore.workflows.reuse import note_scored
from rescore.workflows.scored_by import lms_of, note_lms, remark_other_lms
from rescore.workflows.seen import check_all_unknown, seen_lines


def merge(out: Path, weights: Weights | None) -> CombineCounts:
    """Writes what `rescore nbest` writes, of the shares that are in `out`.

    Args:
      weights: None for scales of 1.
    Returns:
      what was combined.
    Raises:
      FormatError: a share or a part is missing.
      ScoreError, WeightsError: as `write_combined`.
      VocabError: too many words are unknown to an LM.
    """
    folder = parts_inside(out)
    found = finished_splits(folder)
    number = found[0]["parts"]
    files = part_files(folder, number)

    def lists() -> Iterator[NbestList]:
        for path in files:
            yield from LISTS.read(path)

    first = next(lists(), None)
    if first is None:
        raise ScoreError("there is no utterance to combine; all were left out")
    for line in found[0].get("said", ()):
        remark(line)
    plan = read_plan(folder)
    lms = lms_of(plan)
    remark_other_lms(weights, lms)
    note = notes(folder, number)
    check_all_unknown(note.counts, plan.get(MAX_UNKNOWN, 1.0))
    used = with_context(weights or equal_weights(first.hyps[0].scores), plan.get("--context"))
    counts = write_combined(progress(lists(), "combining"), used, out)
    note_skipped([*found[0]["unread"], *note.skipped])
    join_parts(folder, number, out / SCORES_FILE)
    note_lms(out, lms)
    note_scored(out, plan)
    remove_parts(folder)  # at last: a merge that is stopped can be called again
    remark(f"{counts.utterances} utterances scored, in {len(found)} shares")
    for line in seen_lines(note.counts, "hypothesis words", "hypotheses"):
        remark(line)
    say_combined(counts, weights, out)
    return counts


def check_not_merged(out: Path) -> None:
    """For an output without shares in it or beside it.

    Raises:
      UsageError: it is there, whole; or there is nothing to be merged.
    """
    scores = out / SCORES_FILE
    if parts_inside(out).is_dir():
        return
    if out.is_file() or scores.is_file():
        advice = f"; for other scales: rescore combine --scores {out}" if scores.is_file() else ""
        raise UsageError(f"{out}: no shares to be merged; it is there already, merged or made by one process{advice}")
    raise UsageError(f"{out}: no shares to be merged; run the command with --split K/N and this output first")
