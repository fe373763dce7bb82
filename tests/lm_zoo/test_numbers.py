"""The shipped LMs give the same scores with every torch; bfloat16 and int8 within bounds that the documentation states.

`python -m tests.lm_zoo.test_numbers` writes the golden file anew, with torch 1.13.1.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lm_zoo.registry import load, pretrained

GOLDEN = Path(__file__).parent / "golden" / "shipped.json"
SENTENCES = [
    "THE CAT SAT ON THE MAT",
    "A HAT",
    "",
    "I DO NOT KNOW WHAT YOU WOULD HAVE SAID TO HIM IF HE HAD COME HOME THAT EVENING",
    "QZXJQ THE ZYXWVUT",
    "THE THE THE THE",
]
WORDS = [sentence.split() for sentence in SENTENCES]
BOUNDS = {"bfloat16": 0.03, "int8": 0.09}  # mean difference of a word, nats; docs/concepts.md
MOST = {"bfloat16": 0.25, "int8": 0.9}  # of any word


def scores(lm: Any) -> list[list[float]]:
    """A score a word and one for the end, of every sentence."""
    return [list(map(float, row)) for row in lm.score_words(WORDS, max_unknown=1)]


def make() -> dict[str, list[list[float]]]:
    return {name: [[round(score, 6) for score in row] for row in scores(load(name))] for name in sorted(pretrained())}


@pytest.mark.parametrize("name", sorted(pretrained()))
def test_scores_are_those_of_torch_1_13(name: str) -> None:
    expected = json.loads(GOLDEN.read_text(encoding="utf-8"))[name]
    lm = load(name)
    found = scores(lm)
    for row, wanted in zip(found, expected, strict=True):
        assert row == pytest.approx(wanted, abs=1e-4)
    backward = lm.score_words(WORDS[::-1], max_unknown=1)[::-1]
    assert [x for row in backward for x in row] == pytest.approx([x for row in found for x in row], abs=1e-4)


@pytest.mark.parametrize("dtype", sorted(BOUNDS))
@pytest.mark.parametrize("name", sorted(set(pretrained()) - {"ngram"}))
def test_other_number_formats_stay_within_their_bounds(name: str, dtype: str) -> None:
    expected = [score for row in json.loads(GOLDEN.read_text(encoding="utf-8"))[name] for score in row]
    found = [score for row in scores(load(name).cast(dtype)) for score in row]  # type: ignore[attr-defined]
    away = [abs(one - two) for one, two in zip(found, expected, strict=True)]
    assert sum(away) / len(away) <= BOUNDS[dtype] and max(away) <= MOST[dtype], (sum(away) / len(away), max(away))


if __name__ == "__main__":
    rows = (f" {json.dumps(name)}: {json.dumps(each)}" for name, each in make().items())
    GOLDEN.write_text("{\n" + ",\n".join(rows) + "\n}\n", encoding="utf-8")
