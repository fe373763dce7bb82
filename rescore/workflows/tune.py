"""Scales for the scores of a folder or for lattices, and what was found in a few lines."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rescore.console import remark
from rescore.errors import UsageError
from rescore.evaluation.common import shared_references
from rescore.evaluation.wer import say_nearly_all_wrong
from rescore.files import file_identity, read_kaldi_text, texts_identity
from rescore.formats import is_pipe, parse_spec, source_identity
from rescore.tuning.decisions import CrossFit
from rescore.tuning.score_table import build_table
from rescore.tuning.settings import RISK, Settings, tune
from rescore.types import Lattice, Weights
from rescore.weights import FIRST, MBR, WORDS_COLUMN
from rescore.workflows.combine import read_scores, scores_spec
from rescore.workflows.normalising import KEY, RATE, WER, Normaliser
from rescore.workflows.scored_by import known_lms

if TYPE_CHECKING:
    from rescore.tuning.lattice_line_search import LatticeTable


def tune_folder(
    scores: str | Path,
    ref: Path,
    settings: Settings,
    command: str,
    normaliser: Normaliser | None = None,
    common: bool = False,
) -> tuple[Weights, CrossFit, list[str]]:
    """Finds scales for a scores folder, or lists with scores, and says in `info` everything needed to find them again.

    Also those of the folds, and the ids of the utterances.

    Args:
      common: tune on the utterances that both have (see `shared_references`).
    Raises:
      ReferencesError, ScoreError, FormatError: bad input (see `build_table`).
      UsageError, WeightsError: the settings do not fit.
    """
    if is_pipe(spec := scores_spec(scores)):
        raise UsageError(f"{scores} is a pipe, which is read but once; give a file")
    normaliser = normaliser or Normaliser()
    texts = read_kaldi_text(ref)
    refs = normaliser.texts(texts)
    if common:
        refs = shared_references(refs, {"N-best lists": [nbest.utt_id for nbest in read_scores(scores)]}, common)
    lists = (nbest for nbest in read_scores(scores, "reading scores") if not common or nbest.utt_id in refs)
    table = build_table(normaliser.lists(lists), refs, distances=settings.needs_distances)
    normaliser.say()
    weights, fits = tune(table, settings)
    data = {
        "scores": _identity(spec),
        "ref": texts_identity(ref, texts),
        "utterances": len(table.utt_ids),
        "words": table.total_words,
    }
    lms = known_lms(scores)
    form = {KEY: normaliser.name, RATE: normaliser.rate}
    weights.info = {"data": data, **({"lms": lms} if lms else {}), **form, **weights.info, "command": command}
    return weights, fits, table.utt_ids


def _identity(spec: str) -> dict[str, str]:
    """Name and content of lists."""
    path = parse_spec(spec)[1]
    return file_identity(path) if path.is_file() else {"file": path.name, "sha256": source_identity(spec)}


def tune_lattices(
    lattices: Iterable[Lattice],
    ref: Path,
    settings: Settings,
    command: str,
    common: bool = False,
    normaliser: Normaliser | None = None,
) -> tuple[Weights, CrossFit, LatticeTable]:
    """As `tune_folder`, for lattices, which are all held in memory, and returned.

    Raises:
      ReferencesError, ScoreError: bad input (see `rescore.tuning.lattice_line_search.lattice_table`).
      UsageError, WeightsError: the settings do not fit.
    """
    from rescore.tuning.lattice_line_search import lattice_table

    normaliser, texts = normaliser or Normaliser(), read_kaldi_text(ref)
    refs = normaliser.texts(texts)
    if common:
        lattices = list(lattices)
        refs = shared_references(refs, {"lattices": [lattice.utt_id for lattice in lattices]}, common)
        lattices = [lattice for lattice in lattices if lattice.utt_id in refs]
    table = lattice_table(lattices, refs, normaliser.form)
    remark(f"looking for scales of {', '.join(table.names)} over {len(table)} lattices with {table.size} arcs")
    weights, fits = tune(table, settings)
    say_nearly_all_wrong(round(weights.info["oracle_wer"] * table.total_words / 100), table.total_words)
    data = {"lattices": len(table), "arcs": table.size, "ref": texts_identity(ref, texts), "words": table.total_words}
    form = {KEY: normaliser.name, RATE: normaliser.rate}
    weights.info = {"data": data, **form, **weights.info, "command": command}
    return weights, fits, table


def summary(weights: Weights) -> list[str]:
    """What the command prints: the rates, then a line for each scale."""
    info = weights.info
    rate = info.get(RATE, WER)
    lines = [f"dev {rate} {info['wer']:.2f} % ({info['errors']} errors), oracle {info['oracle_wer']:.2f} %"]
    if info.get(KEY, "none") != "none":
        lines.append(f"text normalised by {info[KEY]}")
    if info["cv_wer"] is not None:
        against = f", against the first hypotheses one-sided p = {info['cv_p_first']:g}" if "cv_p_first" in info else ""
        lines.append(f"cross-validated {rate} {info['cv_wer']:.2f} %{against}")
    if info.get("decision") == MBR:
        lines.append(f"decision: minimum Bayes risk, inverse temperature {info['inverse_temperature']:g}")
    if info.get("objective") == RISK:
        lines[1:1] = held_out_lines(info)
        lines.append(f"objective: expected errors, L2 {info['strength']:g}, seed {info['seed']}")
        lines.append(info["cv_how"])
    return [*lines, *(f"{name} = {scale:g} ({_note(name, scale, info)})" for name, scale in weights.scales.items())]


def held_out_lines(info: dict[str, Any]) -> list[str]:
    """What rescoring gains on utterances that it was not tuned on, or that it should not be done."""
    if "held_out" not in info:
        no_score = "do not rescore: there is no score but the number of words; the weights keep the first hypotheses"
        return [no_score] if info["decision"] == FIRST else []
    held_out = info["held_out"]
    fixed = ", ".join(f"{name}={scale:g}" for name, scale in info["fixed"].items())
    first, chances = "", f"{held_out['p_alone']:g}"
    if "first_wer" in held_out:  # of lists
        first, chances = f"first hypotheses {held_out['first_wer']:.2f} %, ", f"{held_out['p_first']:g} and {chances}"
    found = (
        f"on utterances not tuned on: {first}{fixed} alone {held_out['alone_wer']:.2f} %, rescored "
        f"{held_out['rescored_wer']:.2f} % (by chance: one-sided p = {chances})"
    )
    if info["decision"] == FIRST:
        kept = "do not rescore: utterances not tuned on speak against it; the weights keep the first hypotheses"
        return [found, kept]
    if held_out["kept"]:
        return [found]
    return [found, f"utterances not tuned on speak against other scales than {fixed} alone; the weights keep these"]


def _note(name: str, scale: float, info: dict[str, Any]) -> str:
    """What is said of a scale: its flat region, or its range in the folds."""
    if name in info["fixed"]:
        return "fixed"
    if name in info.get("fold_scales", {}):
        low, high = info["fold_scales"][name]
        return f"{low:g} to {high:g} without one fold"
    if name in info.get("chosen", []):
        return "tuned"
    if name in info.get("left_out", []):
        return "left out"
    if name == WORDS_COLUMN and scale and "chosen" in info:
        return "for the lengths that LMs prefer"
    region = info.get("flat_region", {}).get(name)
    if not region:
        return "the same in every list"
    same, near = region["same"], region["within_0.1"]
    return f"same {info.get(RATE, WER)} from {same[0]:g} to {same[1]:g}; within 0.1 % from {near[0]:g} to {near[1]:g}"
