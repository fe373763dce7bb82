"""`rescore nbest --reuse`: columns that an earlier scoring of the same lists has written are not computed again."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from lm_zoo.identity import content
from lm_zoo.reading import read_json
from rescore.files import atomic_text
from rescore.formats import read_nbest
from rescore.sharing.parts import MAX_UNKNOWN
from rescore.types import NbestList
from rescore.workflows.combine import SCORES_FILE
from rescore.workflows.scored_by import in_plan, lms_in

SCORED_FILE = "scored.json"  # beside the scores: a digest of them, and the plan of their scoring
_NO_MATTER = {"--mix", "--on-error", "--max-seconds", MAX_UNKNOWN}  # entries of a plan that change no column of an LM


def note_scored(out: Path, plan: Mapping[str, Any] | None) -> None:
    """Says beside the scores what they were made of; nothing where the plan is not known."""
    if not plan:
        (out / SCORED_FILE).unlink(missing_ok=True)
        return
    with atomic_text(out / SCORED_FILE) as stream:
        json.dump({"scores": content([out / SCORES_FILE]), "plan": plan}, stream, indent=2, sort_keys=True)
        stream.write("\n")


def columns_there(out: Path, plan: Mapping[str, Any]) -> list[str]:
    """The LMs of a plan, by column, whose scores are in `out` already: of the same lists, LM and settings."""
    plan = json.loads(json.dumps(plan))  # as it is read
    try:
        found = read_json(out / SCORED_FILE)
        before = found["plan"]
        if _settings(before) != _settings(plan) or found["scores"] != content([out / SCORES_FILE]):
            return []
        return [column for column, lm in lms_in(plan).items() if lms_in(before).get(column) == lm]
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return []  # none there, or damaged


def has_all(out: Path, max_unknown: float) -> bool:
    """Whether the scoring that `columns_there` has found left no list out, nor let more words be unknown."""
    before = read_json(out / SCORED_FILE)["plan"]
    return bool(before["--on-error"] == "stop" and before[MAX_UNKNOWN] <= max_unknown)


def _settings(plan: Mapping[str, Any]) -> dict[str, Any]:
    lms = in_plan(lms_in(plan))
    return {name: value for name, value in plan.items() if name not in lms and name not in _NO_MATTER}


def with_columns(lists: Iterable[NbestList], out: Path, columns: list[str]) -> Iterator[NbestList]:
    """The lists with these columns of the scores in `out`, which has them in the same order, but for some left out."""
    scored = read_nbest(f"jsonl:{out / SCORES_FILE}")
    there = next(scored, None)
    for nbest in lists:
        if there is None or there.utt_id != nbest.utt_id:
            yield nbest
            continue
        pairs = zip(nbest.hyps, there.hyps, strict=True)
        kept = [{**hyp.scores, **{name: old.scores[name] for name in columns}} for hyp, old in pairs]
        yield replace(nbest, hyps=[replace(hyp, scores=each) for hyp, each in zip(nbest.hyps, kept, strict=True)])
        there = next(scored, None)
