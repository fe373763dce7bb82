"""Scales for the scores of a folder or for lattices, and what was found in a few lines."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from rescore.console import progress
from rescore.files import file_identity, read_kaldi_text
from rescore.tuning.score_table import build_table
from rescore.tuning.tune import tune_table
from rescore.types import Lattice, Weights
from rescore.workflows.combine import SCORES_FILE, read_scores
from rescore.workflows.normalising import KEY, Normaliser


def tune_folder(
    scores: Path,
    ref: Path,
    fixed: Mapping[str, float],
    seed: int,
    restarts: int,
    folds: int,
    command: str,
    normalise: str = "none",
) -> Weights:
    """Finds scales for a scores folder and says in `info` everything needed to find them again.

    Raises:
      ReferencesError, ScoreError, FormatError: bad input (see `build_table`).
      UsageError, WeightsError: `fixed` or the numbers do not fit.
    """
    normaliser = Normaliser(normalise)
    lists = normaliser.lists(progress(read_scores(scores), "reading scores"))
    table = build_table(lists, normaliser.texts(read_kaldi_text(ref)))
    normaliser.say()
    weights = tune_table(table, fixed, seed=seed, restarts=restarts, folds=folds)
    data = {
        "scores": file_identity(scores / SCORES_FILE),
        "ref": file_identity(ref),
        "utterances": len(table.utt_ids),
        "words": table.total_words,
    }
    weights.info = {"data": data, KEY: normalise, **weights.info, "command": command}
    return weights


def tune_lattices(
    lattices: Iterable[Lattice],
    ref: Path,
    fixed: Mapping[str, float],
    seed: int,
    restarts: int,
    folds: int,
    command: str,
) -> Weights:
    """As `tune_folder`, for lattices, which are all held in memory: exact line searches over all their paths.

    Raises:
      ReferencesError, ScoreError: bad input (see `rescore.tuning.lattice_line_search.lattice_table`).
      UsageError, WeightsError: `fixed` or the numbers do not fit.
    """
    from rescore.tuning.lattice_line_search import lattice_table

    table = lattice_table(lattices, read_kaldi_text(ref))
    weights = tune_table(table, fixed, seed=seed, restarts=restarts, folds=folds)
    data = {"lattices": len(table), "arcs": table.size, "ref": file_identity(ref), "words": table.total_words}
    weights.info = {"data": data, **weights.info, "command": command}
    return weights


def summary(weights: Weights) -> list[str]:
    """What the command prints: the rates, then a line for each scale."""
    info = weights.info
    lines = [f"dev WER {info['wer']:.2f} % ({info['errors']} errors), oracle {info['oracle_wer']:.2f} %"]
    if info.get(KEY, "none") != "none":
        lines.append(f"text normalised by {info[KEY]}")
    if info["cv_wer"] is not None:
        lines.append(f"cross-validated WER {info['cv_wer']:.2f} %")
    for name, scale in weights.scales.items():
        region = info["flat_region"].get(name)
        note = "fixed" if name in info["fixed"] else "the same in every list"
        if region:
            same, near = region["same"], region["within_0.1"]
            note = f"same WER from {same[0]:g} to {same[1]:g}; within 0.1 % from {near[0]:g} to {near[1]:g}"
        lines.append(f"{name} = {scale:g} ({note})")
    return lines
