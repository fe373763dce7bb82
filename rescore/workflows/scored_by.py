"""Which LMs gave the scores of a folder, by content: so that weights tuned with others of the same name are noticed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lm_zoo.reading import read_json
from rescore.console import remark
from rescore.files import atomic_text
from rescore.types import Weights
from rescore.workflows.combine import NBEST_FILE, SCORES_FILE

LMS_FILE = "lms.json"  # beside the scores: column -> identity of its LM
EARLIER = "earlier LMs"  # entry of the plan of a scoring: the LMs of the scores that lists have already
_PLAN = "LM '"  # begins the names of the others


def in_plan(identities: Mapping[str, str]) -> dict[str, str]:
    """The entries of a plan for LMs by column."""
    return {f"{_PLAN}{column}'": identity for column, identity in identities.items()}


def lms_of(plan: Mapping[str, Any]) -> dict[str, str]:
    """Column -> identity of the LMs of a plan, with those that gave the lists the scores that they had before."""
    return {**(plan.get(EARLIER) or {}), **lms_in(plan)}


def lms_in(plan: Mapping[str, Any]) -> dict[str, str]:
    """Column -> identity of the LMs that score by a plan; `in_plan` the other way round."""
    return {name[len(_PLAN) : -1]: value for name, value in plan.items() if name.startswith(_PLAN)}


def note_lms(out: Path, lms: Mapping[str, str]) -> None:
    """Writes them beside the scores, in the same order by one process and by many."""
    with atomic_text(out / LMS_FILE) as stream:
        json.dump(lms, stream, indent=2, sort_keys=True)
        stream.write("\n")


def known_lms(scores: str | Path) -> dict[str, str]:
    """Column -> identity of the LM, of a scores folder or the lists in it; nothing of others, and of damaged notes."""
    path = Path(str(scores).removeprefix("jsonl:"))
    folder = path.parent if path.name in (SCORES_FILE, NBEST_FILE) else path
    try:
        found = read_json(folder / LMS_FILE)
    except (OSError, ValueError):
        return {}
    return {str(name): str(value) for name, value in found.items()} if isinstance(found, dict) else {}


def remark_other_lms(weights: Weights | None, lms: Mapping[str, str]) -> None:
    """Says which columns have scores of another LM than the one that the weights were tuned with."""
    if weights is None or not isinstance(tuned := weights.info.get("lms"), dict):
        return
    for column, scale in weights.scales.items():
        if scale and column in tuned and column in lms and tuned[column] != lms[column]:
            remark(
                f"the weights were tuned with another LM as '{column}' than the one that gave these scores; tune again"
            )
