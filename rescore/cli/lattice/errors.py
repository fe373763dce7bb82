"""Error rates of what the commands on lattices find."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rescore.types import Weights, Words
    from rescore.workflows.normalising import Normaliser


def counted_in(ref: Path | None, cer: bool, weights: Weights | None = None, where: object = None) -> Normaliser:
    """What references and hypotheses are compared in: as `weights` were tuned for, or with `cer` characters.

    Raises:
      UsageError: `cer` without references.
    """
    from rescore.errors import UsageError
    from rescore.workflows.normalising import Normaliser

    if cer and ref is None:
        raise UsageError("--cer counts errors, which are those against --ref TEXT; give that, or leave it out")
    return Normaliser("none", cer) if weights is None else Normaliser.of(weights, where, cer)


def show_errors(
    refs: Mapping[str, Words],
    hyps: Mapping[str, Words],
    normaliser: Normaliser,
    json_file: Path | None,
    scored: bool = False,
) -> None:
    """Prints the error rates over the utterances in both, as Kaldi's compute-wer.

    Args:
      scored: also how many these are, as Kaldi's local/score.sh has it.
    """
    from rescore.cli.results import show
    from rescore.evaluation.wer import json_counts, kaldi_lines, present_errors

    counts, absent = present_errors(normaliser.texts(refs), normaliser.texts(hyps))
    lines = kaldi_lines(counts, normaliser.rate, absent)
    if scored:
        lines.append(f"Scored {counts.sentences} sentences, {absent} not present in hyp.")
    show({"name": normaliser.rate, **json_counts(counts), "absent": absent}, lines, json_file)
