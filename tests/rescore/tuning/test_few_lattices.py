"""Scales of a few lattices, of which the first pass is right already."""

from __future__ import annotations

from pathlib import Path

import pytest

import rescore as rs
from tests.rescore.formats.test_kaldi_lattice import TEXT, WORDS


@pytest.fixture
def lattices(tmp_path: Path) -> rs.Lattices:
    (tmp_path / "lat.1").write_text(TEXT)
    (tmp_path / "words.txt").write_text(WORDS)
    return rs.read_lattices(f"kaldi:{tmp_path}", words=tmp_path / "words.txt")


def test_a_score_without_differences_keeps_its_usual_scale(
    lattices: rs.Lattices, capsys: pytest.CaptureFixture[str]
) -> None:
    flat = [lattice for lattice in lattices if lattice.utt_id == "utt-a"]
    for lattice in flat:
        lattice.scores["graph"][:] = 0.0
    weights = rs.tune(rs.Lattices(flat), {"utt-a": flat[0].best_path().words})
    assert weights.scales["graph"] == 10.0
    assert "no list has different values of graph: scale 10" in capsys.readouterr().err
