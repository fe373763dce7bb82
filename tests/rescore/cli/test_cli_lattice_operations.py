"""`rescore lattice prune | oracle | posteriors | mbr | draw` from end to end."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from rescore.cli.main import cli
from rescore.errors import ScoreError, UsageError
from rescore.formats import read_lattices
from rescore.types import Weights
from rescore.weights import save_weights
from tests.rescore.formats.test_slf import HTK_NODES
from tests.rescore.lattices.test_ngram_lm import ARPA

Run = Callable[..., str]
LIKELY = 1 / (1 + math.exp(0.1 * (-33.0 + 31.5)))  # of `the`, by am alone, with the default scale of posteriors


@pytest.fixture
def run() -> Run:
    def invoke(*args: object) -> str:
        result = CliRunner().invoke(cli, ["lattice", *map(str, args)], catch_exceptions=False)
        assert result.exit_code == 0, result.stderr
        return result.stdout

    return invoke


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two lattices: THE CAT (am -31.5, lm -4.25) or A CAT (am -33, lm -2.75)."""
    (tmp_path / "lat").mkdir()
    for utt_id in ("u1", "u2"):
        (tmp_path / "lat" / f"{utt_id}.slf").write_text(HTK_NODES)
    (tmp_path / "ref").write_text("u1 A CAT\nu2 A DOG SAT\nu3 THE\n")
    return tmp_path


KALDI = """utt-a
0 1 2 1,10,4_4
0 1 3 4,9,5_5
0 1 4 1,20,6_6
1 1,0,

"""  # B (graph cost 1, acoustic 10), C (4, 9), D (1, 20)


def test_scores_that_count_nothing_are_named(folder: Path) -> None:
    text = HTK_NODES.replace("l=", "x1=").replace("VERSION=1.0", "VERSION=1.0\n# rescore x1=nn")
    (folder / "lat" / "u1.slf").write_text(text)
    (folder / "lat" / "u2.slf").write_text(text)
    remark = "scores of the lattices that have no scale and count nothing: nn (--weights FILE)"
    for command in ("best-path", "mbr", "posteriors", "draw"):
        said = CliRunner().invoke(cli, ["lattice", command, str(folder / "lat")]).stderr
        assert " ".join(said.split()).count(remark) == 1, command
    said = CliRunner().invoke(cli, ["lattice", "mbr", str(folder / "lat"), "--scale", "nn=1"]).stderr
    assert "count nothing" not in said
    remark = remark.replace("--weights FILE", "--scale NAME=VALUE")
    nbest = ["lattice", "nbest", str(folder / "lat")]
    for number, shared in enumerate([(), ("--split", "1/1")]):
        target = str(folder / f"{number}.jsonl")
        said = CliRunner().invoke(cli, [*nbest, target, "--scale", "am=1", *shared]).stderr
        if shared:
            said = CliRunner().invoke(cli, ["merge", target]).stderr
        assert " ".join(said.split()).count(remark) == 1, shared
    said = CliRunner().invoke(cli, [*nbest, str(folder / "scaled.jsonl"), "--scale", "nn=1"]).stderr
    assert "2 utterances" in said and "count nothing" not in said


@pytest.fixture
def kaldi(tmp_path: Path) -> tuple[str, str]:
    (tmp_path / "lat.1").write_text(KALDI)
    (tmp_path / "words.txt").write_text("<eps> 0\nA 1\nB 2\nC 3\nD 4\n")
    return f"kaldi:{tmp_path / 'lat.1'}", f"kaldi:{tmp_path / 'out.txt'}?text=yes"


@pytest.mark.parametrize(
    ("limit", "left"),
    [
        (("--beam", 10), "BD"),  # totals with graph=10: -30 (its final cost too), -59, -40
        (("--beam", 10, "--scale", "graph=1"), "BCD"),
        (("--posterior", 0.2, "--scale", "graph=1"), "BC"),  # 0.46, 0.37, 0.17 at 0.1
        (("--arcs-per-word", 3), "BD"),  # and the arc of the final cost
        (("--beam", 20, "--arcs-per-second", 67), "B"),  # a path is as long as its string, 0.02 s
    ],
)
def test_prune(run: Run, kaldi: tuple[str, str], tmp_path: Path, limit: tuple[object, ...], left: str) -> None:
    source, target = kaldi
    run("prune", source, target, "--words", tmp_path / "words.txt", *limit)
    (lattice,) = read_lattices(f"kaldi:{tmp_path / 'out.txt'}?words={tmp_path / 'words.txt'}")
    assert [lattice.symbols[label] for label in lattice.labels if label] == list(left)
    assert "4_4" in (tmp_path / "out.txt").read_text()


@pytest.mark.parametrize("words", [(), ("--words", "words.txt")])
def test_words_keep_their_numbers(
    run: Run, kaldi: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    """As behind lattice-prune: from a table that is found as from one that is given, which then is nowhere else."""
    monkeypatch.chdir(tmp_path)
    for target in ("kaldi:new/out.ark", "k2:new/out.pt"):
        run("prune", kaldi[0], target, "--beam", 10, *words)  # leaves B and D
        (lattice,) = read_lattices(f"{target}?words=ids")
        assert sorted(filter(None, lattice.symbols)) == ["2", "4"]
        assert (tmp_path / "new" / "out.words.txt").exists() == (not words)
        if not words:
            (lattice,) = read_lattices(target)
            assert sorted(filter(None, lattice.symbols)) == ["B", "D"]


def test_prune_needs_a_limit(run: Run, kaldi: tuple[str, str]) -> None:
    with pytest.raises(UsageError, match="give a limit: --beam, --posterior, --arcs-per-second or --arcs-per-word"):
        run("prune", *kaldi)


@pytest.mark.parametrize("command", ["prune", "convert", "oracle", "posteriors", "mbr", "draw"])
def test_a_share_is_not_taken_for_characters(folder: Path, command: str) -> None:
    """`--split K/N` is a share where a command has shares; elsewhere it was another name of --split-words."""
    target = f" slf:{folder}/new" if command in ("prune", "convert") else ""
    line = f"lattice {command} slf:{folder}/lat{target} --split 1/2"
    result = CliRunner().invoke(cli, line.split())
    assert result.exit_code == 2 and "No such option" in result.stderr and "--split-words" in result.stderr
    assert not (folder / "new").exists()


def test_options_that_would_do_nothing_are_refused(run: Run, folder: Path) -> None:
    lat, out = folder / "lat", f"slf:{folder / 'out'}"
    with pytest.raises(UsageError, match="--posterior-scale is for posteriors"):
        run("prune", lat, out, "--beam", 1, "--posterior-scale", 0.2)
    for command in (("nbest", lat, folder / "out.jsonl"), ("rescore", lat, out, "--ngram", folder / "lm.arpa")):
        with pytest.raises(UsageError, match="--utterances common is for --ref TEXT"):
            run(*command, "--utterances", "common")
    (folder / "lm.arpa").write_text(ARPA)
    for option in ("--beam", "--most"):
        with pytest.raises(UsageError, match=f"{option} is for neural LMs"):
            run("rescore", lat, out, "--ngram", folder / "lm.arpa", "--scale", "ngram=1", option, 5)
    with pytest.raises(UsageError, match="--exact merges no histories; give it, or --context"):
        run("rescore", lat, out, "--ngram", folder / "lm.arpa", "--scale", "ngram=1", "--exact", "--context", 2)
    assert not (folder / "out").exists()


def test_oracle(run: Run, folder: Path) -> None:
    out = folder / "oracle.txt"
    result = run("oracle", folder / "lat", "--ref", folder / "ref", "--case", "upper", "--out", out)
    assert result.splitlines()[0] == "%WER 40.00 [ 2 / 5, 0 ins, 1 del, 1 sub ] [PARTIAL]"
    assert out.read_text() == "u1 A CAT\nu2 A CAT\n"


def test_posteriors(run: Run, folder: Path) -> None:
    lines = run("posteriors", folder / "lat", "--scale", "lm=0").splitlines()
    first = [line for line in lines if line.startswith("u1")]
    assert len(lines) == 6 and len(first) == 3
    assert f"u1 0.000 0.300 {LIKELY:.5f} the" in first
    assert "u1 0.300 0.500 1.00000 cat" in first
    assert "the" not in run("posteriors", folder / "lat", "--threshold", 0.5, "--scale", "am=0", "--scale", "lm=99")
    run("posteriors", folder / "lat", "--scale", "lm=0", "--out", folder / "post")
    assert (folder / "post").read_text().splitlines() == lines


def test_mbr(run: Run, folder: Path) -> None:
    source = ("mbr", folder / "lat", "--scale", "lm=0")
    assert run(*source) == "u1 the cat\nu2 the cat\n"
    ctm, network, out = (folder / name for name in ("ctm", "network.jsonl", "words"))
    result = run(*source, "--ctm", ctm, "--network", network, "--out", out, "--ref", folder / "ref", "--case", "upper")
    assert result.splitlines()[0] == "%WER 80.00 [ 4 / 5, 0 ins, 1 del, 3 sub ] [PARTIAL]"
    assert out.read_text() == "u1 THE CAT\nu2 THE CAT\n"
    assert ctm.read_text().splitlines()[:2] == [
        f"u1 1 0.000 0.300 THE {LIKELY:.4f}",
        "u1 1 0.300 0.500 CAT 1.0000",
    ]
    first = json.loads(network.read_text().splitlines()[0])
    assert first["utt_id"] == "u1" and first["risk"] == pytest.approx(1 - LIKELY, abs=1e-3)
    assert [[word for word, _ in place["words"]] for place in first["places"]] == [["THE", "A"], ["CAT"]]
    assert [(place["begin"], place["end"]) for place in first["places"]] == [(0.0, 0.3), (0.3, 0.8)]


def test_mbr_repeats_what_weights_were_tuned_for(run: Run, folder: Path) -> None:
    weights, network = folder / "w.json", folder / "network.jsonl"
    save_weights(weights, Weights({"am": 1.0}, {"decision": "mbr", "inverse_temperature": 0.1}))
    run("mbr", folder / "lat", "--weights", weights, "--network", network)
    assert json.loads(network.read_text().splitlines()[0])["risk"] == pytest.approx(1 - LIKELY, abs=1e-3)
    save_weights(weights, Weights({"am": 0.5}, {"decision": "mbr", "inverse_temperature": 1.0}))
    run("mbr", folder / "lat", "--weights", weights, "--network", network)
    sharp = 1 / (1 + math.exp(0.5 * (-33.0 + 31.5)))
    assert json.loads(network.read_text().splitlines()[0])["risk"] == pytest.approx(1 - sharp, abs=1e-3)
    run("mbr", folder / "lat", "--weights", weights, "--network", network, "--posterior-scale", 0.2)
    assert json.loads(network.read_text().splitlines()[0])["risk"] == pytest.approx(1 - LIKELY, abs=1e-3)


def test_best_paths_by_weights_for_minimum_bayes_risk_are_remarked(folder: Path) -> None:
    for decision, remarks in (("mbr", 1), ("map", 0)):
        (folder / "w.json").write_text(json.dumps({"scales": {"am": 1.0, "lm": 1.0}, "info": {"decision": decision}}))
        command = ["lattice", "best-path", str(folder / "lat"), "--weights", str(folder / "w.json")]
        said = CliRunner().invoke(cli, command).stderr
        assert said.count("tuned for minimum Bayes risk") == remarks


def test_a_ctm_file_needs_times(run: Run, folder: Path) -> None:
    timeless = "\n".join(line.replace("t=", "x=") if line.startswith("I=") else line for line in HTK_NODES.splitlines())
    (folder / "u.slf").write_text(timeless + "\n")
    with pytest.raises(ScoreError, match="lattice 'u' has no times, which a CTM file needs; leave --ctm out"):
        run("mbr", folder / "u.slf", "--ctm", folder / "ctm")
    assert not (folder / "ctm").exists()
    assert run("mbr", folder / "u.slf") == "u a cat\n"  # lm=10 by default


def test_draw(run: Run, folder: Path) -> None:
    dot = run("draw", folder / "lat", "--utt", "u2", "--scale", "lm=0")
    assert dot.startswith('digraph "u2" {\n') and dot.endswith("}\n")
    edges = [line for line in dot.splitlines() if "->" in line]
    assert len(edges) == 5 and sum("style=bold" in edge for edge in edges) == 3
    assert any("the\\nam -10.5\\nlm -1" in edge and "bold" in edge for edge in edges)
    assert "doublecircle" in dot and "0.30 s" in dot
    with pytest.raises(UsageError, match="lattice 'u1' has 5 arcs, more than 4: too many to read; prune it first"):
        run("draw", folder / "lat", "--max-arcs", 4)
    with pytest.raises(UsageError, match="no lattice 'u9' in"):
        run("draw", folder / "lat", "--utt", "u9")


def test_words_in_quotes_are_escaped(run: Run, folder: Path) -> None:
    (folder / "u.slf").write_text(HTK_NODES.replace("W=cat", "W=c\\\\a't\\\""))
    assert '"c\\\\a\'t\\"\\nam' in run("draw", folder / "u.slf")


def test_scales_that_contradict(run: Run, folder: Path) -> None:
    with pytest.raises(UsageError, match="either --weights FILE or --scale"):
        run("mbr", folder / "lat", "--scale", "lm=1", "--weights", folder / "w.json")
    (folder / "w.json").write_text('{"scales": {"am": 1.0, "nn": 2.0}}')
    with pytest.raises(ScoreError, match="lattice 'u1' has no score 'nn'; it has: am, lm, words"):
        run("posteriors", folder / "lat", "--weights", folder / "w.json")


@pytest.mark.parametrize("name", ["prune", "oracle", "posteriors", "mbr", "draw"])
def test_help_has_an_example(run: Run, name: str) -> None:
    assert f"Example: rescore lattice {name}" in run(name, "-h")
