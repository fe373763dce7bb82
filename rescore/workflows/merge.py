"""`rescore merge`: puts the shares of a scoring together, and combines the scores.  Loads no LM."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from rescore.console import progress, remark
from rescore.errors import FormatError
from rescore.formats import read_nbest
from rescore.types import NbestList, Weights
from rescore.weights import equal_weights
from rescore.workflows.combine import SCORES_FILE, say_combined, write_combined
from rescore.workflows.context import with_context
from rescore.workflows.parts import finished_splits, join_parts, part_files, read_plan


def merge(out: Path, weights: Weights | None) -> None:
    """Writes what `rescore nbest` writes, of the shares that are in `out`.

    Args:
      weights: None for scales of 1.
    Raises:
      FormatError: a share or a part is missing.
      ScoreError, WeightsError: as `write_combined`.
    """
    found = finished_splits(out)
    number = found[0]["parts"]
    if any(share["parts"] != number for share in found):
        raise FormatError(out, "its shares were cut in different ways; score anew")
    files = part_files(out, number)

    def lists() -> Iterator[NbestList]:
        for path in files:
            yield from read_nbest(f"jsonl:{path}")

    used = weights or equal_weights(next(lists()).hyps[0].scores)
    used = with_context(used, read_plan(out).get("--context"))
    counts = write_combined(progress(lists(), "combining"), used, out)
    join_parts(out, number, out / SCORES_FILE)
    remark(f"{counts.utterances} utterances scored, in {len(found)} shares")
    words, unknown = Counter[str](), Counter[str]()
    for share in found:
        for column, (all_words, missing) in share["words"].items():
            words[column] += all_words
            unknown[column] += missing
    for column, total in words.items():
        share_unknown = 100 * unknown[column] / max(1, total)
        remark(
            f"{column}: {unknown[column]} of {total} hypothesis words unknown ({share_unknown:.1f} %), scored as <unk>"
        )
    say_combined(counts, weights, out)
