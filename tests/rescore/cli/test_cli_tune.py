"""`rescore tune` from end to end."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from rescore.cli.main import cli
from rescore.errors import ReferencesError, RescoreError, UsageError, WeightsError
from rescore.files import write_kaldi_text
from rescore.formats import write_nbest
from rescore.types import Hypothesis, NbestList
from rescore.weights import load_weights
from tests.rescore.formats.test_kaldi_lattice import TEXT, WORDS


def run(*args: object) -> Result:
    return CliRunner().invoke(cli, [str(arg) for arg in args], catch_exceptions=False)


@pytest.fixture
def dev(tmp_path: Path) -> Path:
    lists = [
        NbestList(
            f"u{i}",
            [
                Hypothesis(("A", "X"), {"am": -1.0 - i, "lm": -9.0}),
                Hypothesis(("A", "B"), {"am": -4.0 - i, "lm": -8.0}),
            ],
        )
        for i in range(6)
    ]
    write_nbest(f"jsonl:{tmp_path / 'dev' / 'scores.jsonl.gz'}", lists)
    write_kaldi_text(tmp_path / "ref", {nbest.utt_id: ("A", "B") for nbest in lists})
    return tmp_path


def test_weights_that_combine_can_use(dev: Path) -> None:
    out = dev / "w.json"
    options = ("--seed", 7, "--folds", 3, "--objective", "errors")
    result = run("tune", "--scores", dev / "dev", "--ref", dev / "ref", "--out", out, *options)
    weights = load_weights(out)
    assert weights.scales["am"] == 1.0 and weights.scales["lm"] > 3.0 and weights.scales["words"] == 0.0
    assert weights.info["errors"] == 0 and weights.info["wer"] == 0.0 and weights.info["cv_wer"] == 0.0
    assert weights.info["command"] == (
        "rescore tune --scores dev --ref ref --out w.json --seed 7 --restarts 10 --folds 3 "
        "--objective errors --decision map"
    )
    assert str(dev) not in out.read_text()
    assert "dev WER 0.00 % (0 errors), oracle 0.00 %\ncross-validated WER 0.00 %\nam = 1 (fixed)\n" in result.stdout
    assert re.search(r"^lm = [\d.]+ \(same WER from 3 to [\d.]+; within 0.1 % from 3 to", result.stdout, re.MULTILINE)
    assert "no list has different values of words: scale 0" in result.stderr
    run("combine", "--scores", dev / "dev", "--weights", out, "--out", dev / "best")
    assert run("wer", "--ref", dev / "ref", "--hyp", dev / "best" / "1best.txt").stdout.startswith("%WER 0.00 [ 0 / 12")


def test_fixed_scales_and_no_folds(dev: Path) -> None:
    out = dev / "w.json"
    args = ("tune", "--scores", dev / "dev", "--ref", dev / "ref", "--out", out, "--objective", "errors")
    result = run(*args, "--fix", "lm=0", "--folds", 0)
    weights = load_weights(out)
    assert weights.scales["lm"] == 0.0 and weights.info["cv_wer"] is None and weights.info["errors"] == 6
    assert "cross-validated" not in result.stdout
    with pytest.raises(WeightsError, match="no score 'nn', whose scale is to be fixed; found: am, lm, words"):
        run(*args, "--fix", "nn=1")


def test_restarts_are_of_the_line_search_alone(dev: Path) -> None:
    args = ("tune", "--scores", dev / "dev", "--ref", dev / "ref", "--out", dev / "w.json", "--restarts", 3)
    unused = "--restarts does nothing with --objective risk"
    assert unused in run(*args).stderr
    assert "--restarts" not in load_weights(dev / "w.json").info["command"]
    assert unused not in run(*args, "--objective", "errors").stderr
    assert "--restarts 3" in load_weights(dev / "w.json").info["command"]
    assert unused not in run(*args[:-2]).stderr


def test_missing_references(dev: Path) -> None:
    (dev / "ref").write_text("u0 A B\n")
    with pytest.raises(ReferencesError, match=r"5 of 6 N-best lists have no reference \(u1, u2, u3, u4, u5\)"):
        run("tune", "--scores", dev / "dev", "--ref", dev / "ref", "--out", dev / "w.json")
    assert not (dev / "w.json").exists()


def test_help_has_an_example() -> None:
    assert "Example: rescore tune" in run("tune", "-h").stdout


def _write_lattices(folder: Path, second_words: str) -> None:
    arcs = f"0 1 A a=-1 l=0\n{second_words}\n2 3 !NULL a=0 l=0".splitlines()
    links = [f"J={n} S={s} E={e} W={w} {a} {m}" for n, (s, e, w, a, m) in enumerate(map(str.split, arcs))]
    text = "\n".join(["VERSION=1.0", "N=4 L=4", *(f"I={n}" for n in range(4)), *links]) + "\n"
    folder.mkdir()
    for i in range(6):
        (folder / f"u{i}.slf").write_text(text)


def test_lattices(dev: Path) -> None:
    """Acoustics prefer `A X` by 3, the LM `A B` by 1: an LM scale above 3 makes no error."""
    _write_lattices(dev / "lat", "1 2 B a=-4 l=-8\n1 2 X a=-1 l=-9")
    out = dev / "w.json"
    args = ("--lattices", dev / "lat", "--ref", dev / "ref", "--out", out, "--folds", 3)
    result = run("tune", *args, "--objective", "errors")
    weights = load_weights(out)
    assert weights.scales["am"] == 1.0 and weights.scales["lm"] > 3.0 and weights.scales["words"] == 0.0
    assert (weights.info["errors"], weights.info["oracle_wer"], weights.info["cv_wer"]) == (0, 0.0, 0.0)
    assert weights.info["command"].startswith("rescore tune --lattices slf:lat --ref ref --out w.json --seed 0")
    assert weights.info["flat_region"]["lm"]["same"][0] == pytest.approx(3.0)
    assert "dev WER 0.00 % (0 errors), oracle 0.00 %" in result.stdout
    with pytest.raises(UsageError, match=r"give either --scores DIR.* or --lattices"):
        run("tune", "--ref", dev / "ref", "--out", out)
    with pytest.raises(UsageError, match=r"give either --scores DIR.* or --lattices"):
        run("tune", "--scores", dev / "dev", "--lattices", dev / "lat", "--ref", dev / "ref", "--out", out)


@pytest.mark.parametrize("objective", ["errors", "risk"])
@pytest.mark.parametrize("decision", ["map", "mbr"])
def test_objectives_and_decisions_over_lattices(dev: Path, objective: str, decision: str) -> None:
    """As `test_lattices`; best paths and minimum Bayes risk decoding under the weights make no error."""
    _write_lattices(dev / "lat", "1 2 B a=-4 l=-8\n1 2 X a=-1 l=-9")
    args = ("tune", "--lattices", dev / "lat", "--ref", dev / "ref", "--out", dev / "w.json", "--folds", 3)
    said = run(*args, "--objective", objective, "--decision", decision, "--cross-fit", dev / "cross").stdout
    gain = re.search(r"not tuned on: am=1 alone 50\.00 %, rescored 0\.00 % \(by chance: one-sided p = [\d.]+\)", said)
    assert bool(gain) == (objective == "risk")
    weights = load_weights(dev / "w.json")
    assert weights.scales["lm"] > 3.0 and (weights.info["errors"], weights.info["cv_wer"]) == (0, 0.0)
    best = ("lattice", "mbr") if decision == "mbr" else ("lattice", "best-path")
    result = run(*best, dev / "lat", "--weights", dev / "w.json", "--ref", dev / "ref")
    assert result.stdout.startswith("%WER 0.00")
    table = run("compare", "--ref", dev / "ref", f"cross={dev / 'cross'}").stdout
    assert re.search(r"cross +0\.00 ", table)


@pytest.fixture
def risky(dev: Path) -> Path:
    """Twelve lists in which `am` prefers `A X` by 3 and `lm` `A B` by 1, and two in which `am` is right."""
    lists = []
    for i in range(14):
        right = Hypothesis(("A", "B"), {"am": -4.0 - i if i < 12 else -1.0, "lm": -8.0 if i < 12 else -9.0})
        wrong = Hypothesis(("A", "X"), {"am": -1.0 - i if i < 12 else -9.0, "lm": -9.0 if i < 12 else -8.5})
        lists.append(NbestList(f"u{i}", [wrong, right] if i < 12 else [right, wrong]))
    write_nbest(f"jsonl:{dev / 'dev' / 'scores.jsonl.gz'}", lists)
    write_kaldi_text(dev / "ref", {nbest.utt_id: ("A", "B") for nbest in lists})
    return dev


@pytest.mark.parametrize("objective", ["errors", "risk"])
@pytest.mark.parametrize("decision", ["map", "mbr"])
def test_objectives_and_decisions(risky: Path, objective: str, decision: str) -> None:
    out = risky / "w.json"
    args = ("tune", "--scores", risky / "dev", "--ref", risky / "ref", "--out", out, "--folds", 3)
    result = run(*args, "--objective", objective, "--decision", decision, "--cross-fit", risky / "cross")
    weights = load_weights(out)
    assert weights.scales["am"] == 1.0 and weights.scales["lm"] > 3.0 and weights.info["errors"] == 0
    assert weights.info.get("decision", "map") == decision
    assert ("minimum Bayes risk, inverse temperature" in result.stdout) == (decision == "mbr")
    assert ("objective: expected errors" in result.stdout) == (objective == "risk")
    assert f"--objective {objective} --decision {decision}" in weights.info["command"]
    run("combine", "--scores", risky / "dev", "--weights", out, "--out", risky / "best")
    assert run("wer", "--ref", risky / "ref", "--hyp", risky / "best" / "1best.txt").stdout.startswith("%WER 0.00")
    cross = load_weights(risky / "cross" / "weights.json").info["cross_fit"]
    assert sorted(utt_id for fold in cross for utt_id in fold["utterances"]) == sorted(f"u{i}" for i in range(14))
    assert {fold["decision"] for fold in cross} == {decision}
    table = run("compare", "--ref", risky / "ref", f"first={risky / 'dev'}", f"cross={risky / 'cross'}").stdout
    assert re.search(r"first +42\.86 ", table)
    assert re.search(r"cross +0\.00 " if objective == "errors" else r"cross +1?\d\.\d\d ", table)


def test_lists_with_scores_of_their_own_need_no_lm(dev: Path) -> None:
    """The same as of a folder; a folder or file that is not there, and a folder without scores, are errors."""
    lists = dev / "lists.jsonl.gz"
    lists.write_bytes((dev / "dev" / "scores.jsonl.gz").read_bytes())
    made = []
    for scores in (dev / "dev", lists, f"jsonl:{lists}"):
        out = dev / "w.json"
        run("tune", "--scores", scores, "--ref", dev / "ref", "--out", out)
        weights = load_weights(out)
        assert weights.info["data"].pop("scores")["sha256"]
        made.append((weights.scales, weights.info["data"]))
        run("combine", "--scores", scores, "--weights", out, "--out", dev / "best")
        made[-1] += ((dev / "best" / "1best.txt").read_text(),)
    assert made[0] == made[1] == made[2]
    for wrong, message in ((dev / "none", "none: no such folder"), (dev, "scores.jsonl.gz: no such file")):
        with pytest.raises(RescoreError, match=message):
            run("tune", "--scores", wrong, "--ref", dev / "ref", "--out", dev / "w2.json")


def test_lists_in_no_order_keep_the_scores_that_need_no_tuning(dev: Path) -> None:
    """Of the order that the lists came in and of one score alone, the one with fewer errors is kept."""
    lists = [
        NbestList(
            f"u{i}",
            [
                Hypothesis(("A", "X"), {"lm": -3.0, "noise": float(-(i % 3))}),
                Hypothesis(("A", "B"), {"lm": -1.0, "noise": float(-(i % 2))}),
            ],
        )
        for i in range(6)
    ]
    write_nbest(f"jsonl:{dev / 'dev' / 'scores.jsonl.gz'}", lists)
    out = dev / "w.json"
    result = run("tune", "--scores", dev / "dev", "--ref", dev / "ref", "--out", out)
    assert "first hypotheses 50.00 %, lm=1 alone 0.00 %" in result.stdout and "do not rescore" not in result.stdout
    assert "speak against other scales than lm=1 alone; the weights keep these" in result.stdout
    weights = load_weights(out)
    assert weights.scales == {"lm": 1.0, "noise": 0.0, "words": 0.0} and weights.info["decision"] == "map"
    run("combine", "--scores", dev / "dev", "--weights", out, "--out", dev / "best")
    assert run("wer", "--ref", dev / "ref", "--hyp", dev / "best" / "1best.txt").stdout.startswith("%WER 0.00")


def test_lists_without_scores_keep_their_order(dev: Path) -> None:
    """Their lengths alone would take the longest hypotheses, which are wrong."""
    lists = [NbestList(f"u{i}", [Hypothesis(("A", "B")), Hypothesis(("A", "B", "X"))]) for i in range(6)]
    write_nbest(f"jsonl:{dev / 'dev' / 'scores.jsonl.gz'}", lists)
    out = dev / "w.json"
    result = run("tune", "--scores", dev / "dev", "--ref", dev / "ref", "--out", out)
    assert result.stdout.startswith("dev WER 0.00 %") and "cross-validated WER 0.00 %" in result.stdout
    assert "do not rescore: there is no score but the number of words" in result.stdout
    assert load_weights(out).info["decision"] == "first"
    run("combine", "--scores", dev / "dev", "--weights", out, "--out", dev / "best")
    assert run("wer", "--ref", dev / "ref", "--hyp", dev / "best" / "1best.txt").stdout.startswith("%WER 0.00")


def test_nothing_to_rescore(dev: Path) -> None:
    """An LM that is always wrong where `am` is right."""
    lists = [
        NbestList(
            f"u{i}",
            [
                Hypothesis(("A", "B"), {"am": -5.0, "lm": -9.0 - i}),
                Hypothesis(("A", "X"), {"am": -3.0, "lm": -1.0}),
            ],
        )
        for i in range(6)
    ]
    write_nbest(f"jsonl:{dev / 'dev' / 'scores.jsonl.gz'}", lists)
    out = dev / "w.json"
    result = run("tune", "--scores", dev / "dev", "--ref", dev / "ref", "--out", out)
    assert "do not rescore" in result.stdout and "first hypotheses 0.00 %, am=1 alone" in result.stdout
    weights = load_weights(out)
    assert weights.scales == {"am": 1.0, "lm": 0.0, "words": 0.0} and weights.info["decision"] == "first"
    run("combine", "--scores", dev / "dev", "--weights", out, "--out", dev / "best")
    assert run("wer", "--ref", dev / "ref", "--hyp", dev / "best" / "1best.txt").stdout.startswith("%WER 0.00")


def test_nothing_to_rescore_over_lattices(dev: Path) -> None:
    """They have no first hypotheses, which weights could keep."""
    _write_lattices(dev / "lat", "1 2 B a=-1 l=-9\n1 2 X a=-4 l=-1")
    args = ("--lattices", dev / "lat", "--ref", dev / "ref", "--out", dev / "w.json", "--folds", 3)
    said = run("tune", *args, "--json", dev / "json").stdout
    assert "not tuned on: am=1 alone 0.00 %, rescored" in said and "first" not in said
    assert "utterances not tuned on speak against other scales than am=1 alone; the weights keep these" in said
    weights = load_weights(dev / "w.json")
    assert weights.scales == {"am": 1.0, "lm": 0.0, "words": 0.0} and weights.info["decision"] == "map"


def test_cross_fit_needs_folds(dev: Path) -> None:
    with pytest.raises(UsageError, match="--cross-fit needs two folds at least"):
        run("tune", "--scores", dev / "dev", "--ref", dev / "ref", "--out", dev / "w", "--folds", 1, "--cross-fit", dev)


def test_a_cross_fit_of_lattices_is_not_read_as_the_lists_that_were_there(dev: Path) -> None:
    (dev / "lat.1").write_text(TEXT)
    (dev / "words.txt").write_text(WORDS)
    (dev / "text").write_text("utt-a A C\nutt-b B\n")
    lattices = f"kaldi:{dev}/lat.1?words={dev}/words.txt"
    arguments = ("tune", "--lattices", lattices, "--ref", dev / "text", "--out", dev / "w", "--folds", 2, "--cross-fit")
    with pytest.raises(UsageError, match=r"dev: has N-best lists \(scores.jsonl.gz\)"):
        run(*arguments, dev / "dev")
    assert not (dev / "w").exists()
    for _ in range(2):
        assert run(*arguments, dev / "cross").exit_code == 0
    assert [line[:5] for line in (dev / "cross/1best.txt").read_text().splitlines()] == ["utt-a", "utt-b"]
