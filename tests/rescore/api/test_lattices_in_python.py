"""Lattices in Python: thin methods, the same results as the rooms below."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import rescore as rs
from rescore import types
from rescore.lattices.nbest import exact_nbest
from rescore.lattices.oracle import oracle
from rescore.weights import default_scales, save_weights
from tests.lm_zoo import zoo
from tests.rescore.formats.test_kaldi_lattice import TEXT, WORDS

REFS = {"utt-a": ("A", "C"), "utt-b": ("B", "B")}


@pytest.fixture
def lattices(tmp_path: Path) -> rs.Lattices:
    (tmp_path / "lat.1").write_text(TEXT)
    (tmp_path / "words.txt").write_text(WORDS)
    return rs.read_lattices(f"kaldi:{tmp_path}", words=tmp_path / "words.txt")


def test_what_can_be_asked(lattices: rs.Lattices) -> None:
    plain = [types.Lattice(**vars(lattice)) for lattice in lattices]  # the same arrays, without methods
    assert rs.Lattices(plain).best_path() == rs.Lattices(iter(plain)).best_path() == lattices.best_path()  # type: ignore[arg-type]
    assert [lattice.utt_id for lattice in lattices] == ["utt-a", "utt-b"]
    for lattice in lattices:
        scales = default_scales(lattice.scores)
        assert lattice.nbest(3) == exact_nbest(lattice, scales, 3)
        assert lattice.oracle(REFS[lattice.utt_id]).counts == oracle(lattice, REFS[lattice.utt_id]).counts
        assert lattice.best_path().words == lattices.best_path()[lattice.utt_id]
        assert "digraph" in lattice.dot() and lattice.mbr().words
    assert lattices.nbest(2).columns == ["graph", "am", "words"]
    assert lattices["utt-b"] is lattices[1] and len(lattices[:1]) == 1
    assert "utt-b" in lattices and lattices[1] in lattices
    assert "utt-c" not in lattices and lattices[1] not in lattices[:1] and None not in lattices
    assert lattices.oracle(REFS).ref_words == 4
    assert list(lattices.to_pandas().columns) == ["utt_id", "states", "arcs", "scores"]
    assert "2 lattices" in repr(lattices)
    assert repr(lattices[0]).splitlines() == ["utt_id  states  arcs  scores", "utt-a   4       4     graph, am"]


def test_scales_and_pruning(lattices: rs.Lattices) -> None:
    assert lattices.best_path({"am": 1.0, "graph": 1.0}) == {"utt-a": ("B", "C"), "utt-b": ("B",)}
    small = lattices.prune(beam=0.0)
    assert small.best_path() == lattices.best_path()
    assert sum(each.num_arcs for each in small) < sum(each.num_arcs for each in lattices)
    assert isinstance(small[0], rs.Lattice)
    assert lattices.prune(beam=np.float32(0.0)).best_path() == lattices.best_path()
    assert len(lattices[0].nbest(np.int64(2)).hyps) == 2


def test_posteriors_go_by_the_inverse_temperature_of_the_weights(lattices: rs.Lattices, tmp_path: Path) -> None:
    """As `rescore lattice mbr --weights` and `prune --weights`; of other weights, and of none, by 0.1."""
    scales, lattice = {"am": 1.0, "graph": 10.0}, lattices["utt-a"]
    tuned = rs.Weights(scales, {"decision": "mbr", "inverse_temperature": 0.013})
    save_weights(tmp_path / "weights.json", tuned)
    for weights, usual in ((None, 0.1), (scales, 0.1), (tuned, 0.013), (tmp_path / "weights.json", 0.013)):
        assert lattice.mbr(weights).risk == lattice.mbr(weights, usual).risk != lattice.mbr(weights, 0.5).risk
    limit = 0.4  # of the posterior
    sizes = [lattice.prune(posterior=limit, weights=tuned, posterior_scale=at).num_arcs for at in (None, 0.013, 0.1)]
    assert sizes[0] == sizes[1] != sizes[2]


def test_rescoring_tuning_and_files(lattices: rs.Lattices, tmp_path: Path) -> None:
    scored = lattices.rescore({"tiny": zoo.neural("lstm")}, {"graph": 10.0, "tiny": 5.0}, context=None)
    assert [*scored[0].scores] == ["graph", "am", "tiny"]
    best = scored[0].best_path({"am": 1.0, "graph": 10.0, "tiny": 0.0})
    assert best.scores["tiny"] == pytest.approx(zoo.neural("lstm").score_sentences([best.words])[0], abs=1e-4)
    weights = rs.tune(scored, REFS, folds=0)
    assert rs.wer(REFS, scored.best_path(weights)).total.errors == weights.info["errors"]
    assert scored.write(f"slf:{tmp_path / 'slf'}") == 2
    assert rs.Lattice.read(f"slf:{tmp_path / 'slf'}", "utt-b").utt_id == "utt-b"


def test_wrong_input(lattices: rs.Lattices, tmp_path: Path) -> None:
    with pytest.raises(rs.RescoreError, match="no scale for tiny"):
        lattices.rescore({"tiny": zoo.neural("lstm")})
    with pytest.raises(rs.RescoreError, match="has no score 'wrods'; it has: graph, am, tiny, words"):
        lattices.rescore({"tiny": zoo.neural("lstm")}, {"tiny": 1.0, "wrods": -3.0})
    with pytest.raises(KeyError, match="utt-x"):
        lattices["utt-x"]
    with pytest.raises(rs.RescoreError, match="tune\\(lattices, ref\\)"):
        rs.tune(lattices)
    with pytest.raises(rs.RescoreError, match="no lattice 'utt-x'"):
        rs.Lattice.read(f"kaldi:{tmp_path}", "utt-x", tmp_path / "words.txt")
    with pytest.raises(rs.RescoreError, match="is the string 'A C'"):
        lattices[0].oracle("A C")
    with pytest.raises(rs.RescoreError, match="expected stop or skip"):
        rs.read_lattices(f"kaldi:{tmp_path}", on_error="never")


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda each: each.prune(), "give a limit"),
        (lambda each: each.prune(beam=-1), r"beam is -1, expected a number from 0$"),
        (lambda each: each.prune(beam=float("nan")), "beam is nan"),
        (lambda each: each.prune(beam="3"), "beam is '3'"),
        (lambda each: each.prune(posterior=2), "posterior is 2, expected a number from 0 to 1"),
        (lambda each: each[0].mbr(posterior_scale=-1), "posterior_scale is -1"),
        (lambda each: each[0].prune(beam=5, posterior_scale=0.1), "posterior_scale is for posterior"),
        (lambda each: each[0].mbr(posterior_scale=0), "posterior_scale is 0, expected a number above 0"),
        (lambda each: each.nbest(0), "n is 0, expected a whole number from 1"),
        (lambda each: each.nbest(2.5), "n is 2.5, expected a whole number"),
        (lambda each: each.rescore({"tiny": zoo.neural("lstm")}, {"tiny": 1.0}, beam=-1), "beam is -1"),
        (lambda each: each.rescore({"tiny": zoo.neural("lstm")}, {"tiny": 1.0}, context=-1), "context is -1"),
    ],
)
def test_numbers_are_checked_as_those_of_commands(
    lattices: rs.Lattices, wrong: Callable[[rs.Lattices], object], message: str
) -> None:
    with pytest.raises(rs.RescoreError, match=message):
        wrong(lattices)


def test_rescoring_has_the_usual_beams_of_the_command(
    lattices: rs.Lattices, capsys: pytest.CaptureFixture[str]
) -> None:
    lattices.rescore({"tiny": zoo.neural("lstm")}, {"graph": 10.0, "tiny": 5.0})
    assert "--ngram-beam 80 --beam 60: the usual width" in capsys.readouterr().err


def test_an_lm_keeps_its_name(lattices: rs.Lattices) -> None:
    lm = zoo.neural("lstm")
    lm.name = "mine"
    assert "tiny" in lattices.rescore({"tiny": lm}, {"tiny": 1.0})[0].scores and lm.name == "mine"


@pytest.mark.parametrize("objective", ["risk", "errors"])
def test_a_score_without_differences_keeps_its_usual_scale(
    objective: str, lattices: rs.Lattices, capsys: pytest.CaptureFixture[str]
) -> None:
    flat = lattices["utt-a"]
    flat.scores["graph"][:] = 0.0
    weights = rs.tune(rs.Lattices([flat]), {"utt-a": flat.best_path().words}, objective=objective)
    assert weights.scales["graph"] == 10.0
    assert "no list has different values of graph: scale 10" in capsys.readouterr().err


def test_lattices_are_tuned_in_normalised_words(tmp_path: Path) -> None:
    """As `rescore tune --lattices --normalise` does it."""
    (tmp_path / "words.txt").write_text("<eps> 0\nMr. 1\nHale, 2\nhail 3\n")
    (tmp_path / "lat.1").write_text("u0 \n0 1 1 0,1,\n1 2 2 3,5,\n1 2 3 0.5,6,\n2\n\n")
    written, ref = rs.read_lattices(f"kaldi:{tmp_path / 'lat.1'}"), {"u0": ("MISTER", "HALE")}
    tuned = rs.tune(written, ref, objective="errors", folds=0, normalise="librispeech")
    assert tuned.info["normalise"] == "librispeech" and tuned.info["errors"] == 0
    assert written.best_path(tuned) == {"u0": ("Mr.", "Hale,")}


def test_results_of_one_lattice_show_themselves(lattices: rs.Lattices) -> None:
    lattice = lattices["utt-a"]
    nbest, best, mbr = lattice.nbest(2), lattice.oracle(REFS["utt-a"]), lattice.mbr()
    assert list(nbest.to_pandas().columns) == ["rank", "words", "graph", "am"]
    assert list(lattices.nbest(2).to_pandas().columns) == ["utt_id", "rank", "words", "graph", "am"]
    assert "<p>utterance utt-a, 2 hypotheses</p>" in nbest._repr_html_()
    long = rs.NbestList("u", [rs.Hypothesis((f"w{k}",), {"am": -1.0}) for k in range(25)])
    assert long._repr_html_().count("<tr>") == 1 + 20 and "<p>5 more rows</p>" in long._repr_html_()
    assert len(repr(long).splitlines()) == 1 + 20 + 2 and "5 more rows" in repr(long)
    for result in (nbest, best, mbr, lattices.nbest(2)["utt-a"]):
        heads = repr(result).splitlines()[0].split()
        assert heads == list(result.to_pandas().columns), "printed as it is shown"
    row = best.to_pandas().iloc[0]
    assert (row["words"], row["errors"], row["ref_words"]) == (" ".join(best.hyp.words), best.counts.errors, 2)
    assert list(mbr.to_pandas()["word"]) == list(mbr.words)
    assert f"{mbr.risk:.4g} errors expected" in mbr._repr_html_() and "<td>A</td>" in mbr._repr_html_()


def test_results_of_one_lattice_are_escaped(tmp_path: Path) -> None:
    (tmp_path / "words.txt").write_text("<eps> 0\n<b> 1\n&amp; 2\n")
    (tmp_path / "lat.1").write_text("<i>u0 \n0 1 1 0,1,\n1 2 2 3,5,\n2\n\n")
    lattice = rs.Lattice.read(f"kaldi:{tmp_path / 'lat.1'}")
    results = lattice.nbest(), lattice.oracle(("<u>",)), lattice.mbr()
    for shown in (result._repr_html_() for result in results):
        assert "&lt;b&gt;" in shown and "&amp;amp;" in shown
        assert "<b>" not in shown and "<i>" not in shown
    with_ref = rs.NbestList("u", [rs.Hypothesis(("A",), {})], ("<s>",))
    assert "reference: &lt;s&gt;</p>" in with_ref._repr_html_()
