"""Numbers that are no scores, as their sums would be infinite, are refused where they are read or written."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from rescore.errors import RescoreError
from rescore.formats import read_lattices, read_nbest, write_lattices, write_nbest
from rescore.types import Hypothesis, NbestList

SLF = "VERSION=1.0\nUTTERANCE=u\nstart=0 end=2\nN=3 L=2\nI=0\nI=1\nI=2\nJ=0 S=0 E=1 W=A a={0}\nJ=1 S=1 E=2 W=B a={0}\n"
pytestmark = pytest.mark.filterwarnings("error::RuntimeWarning")  # numpy's


def lattice(folder: Path, score: str) -> str:
    (folder / "lat").mkdir()
    (folder / "lat/u.slf").write_text(SLF.format(score))
    return str(folder / "lat")


def test_a_lattice_whose_sums_would_be_infinite(tmp_path: Path) -> None:
    """They gave warnings of numpy, and then 'every path has an arc with a score of -inf'."""
    source = lattice(tmp_path, "-1e308")
    message = r"u.slf: a score am of -1e\+308, expected numbers from -1e\+100 to 1e\+100"
    with pytest.raises(RescoreError, match=message):
        list(read_lattices(source))


def test_a_list_whose_sums_would_be_infinite(tmp_path: Path) -> None:
    lists = tmp_path / "l.jsonl"
    lists.write_text('{"utt_id": "u", "hyps": [{"text": "A", "scores": {"am": -1e308}}]}\n')
    with pytest.raises(RescoreError, match=r"l.jsonl:1: .*hypothesis 1 has score 'am' -1e\+308, expected a finite"):
        list(read_nbest(str(lists)))
    lists.write_text(lists.read_text().replace("1e308", "1e100"))
    assert [nbest.hyps[0].scores for nbest in read_nbest(str(lists))] == [{"am": -1e100}]


@pytest.mark.parametrize("score", [1e101, -1e308, np.float64(1e200), 10**101])
def test_a_list_that_could_not_be_read_again_is_not_written(tmp_path: Path, score: float) -> None:
    """It was written, and its reader refused it."""
    lists = [NbestList("u", [Hypothesis(("A",), {"am": -1.0}), Hypothesis(("B",), {"am": score})])]
    with pytest.raises(RescoreError, match=r"utterance 'u': hypothesis 2 has score 'am' .*, expected a finite number"):
        write_nbest(f"jsonl:{tmp_path / 'l.jsonl'}", lists)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("score", [1e100, np.float16(-60000), np.float32(3e38)])
def test_the_largest_scores_are_written(tmp_path: Path, score: float) -> None:
    lists = [NbestList("u", [Hypothesis(("A",), {"am": score})])]
    write_nbest(f"jsonl:{tmp_path / 'l.jsonl'}", lists)
    assert [nbest.hyps[0].scores for nbest in read_nbest(str(tmp_path / "l.jsonl"))] == [{"am": float(score)}]


@pytest.mark.parametrize("target", ["k2:{}/l.pt", "kaldi:{}/l.ark"])
def test_a_score_that_float32_cannot_hold_is_not_written(tmp_path: Path, target: str) -> None:
    """k2's files had -inf in its place."""
    if target.startswith("k2"):
        pytest.importorskip("torch")
    found = read_lattices(lattice(tmp_path, "-1e39"))
    with pytest.raises(RescoreError, match=r"u'.*(float32|a score that is not finite)"):
        write_lattices(target.format(tmp_path), found)
    assert [path.name for path in tmp_path.iterdir()] == ["lat"]
