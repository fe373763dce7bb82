"""N-best rescoring in Kaldi's files: from lattices to archives.JOB and back to lattices."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from click.testing import CliRunner

from lm_zoo.errors import LMError
from lm_zoo.ngram.grammar_fst import GrammarLM
from lm_zoo.registry import build, load, save_folder
from lm_zoo.text.vocabulary import WordVocabulary
from rescore.cli.main import cli
from rescore.errors import RescoreError, ScoreError
from rescore.formats import read_lattices, read_nbest
from rescore.formats.kaldi_archive import read_all
from rescore.formats.symbols import read_symbols
from rescore.lattices.nbest import exact_nbest
from rescore.lattices.paths import best_path
from rescore.workflows.kaldi_nbest import FILES, linear_lattices
from tests.lm_zoo.grammar_fst import write_lang
from tests.lm_zoo.zoo import ARPA, WORDS, neural

# Two utterances as `lattice-copy ark:- ark,t:-` prints them; costs are graph,acoustic; words of write_lang.
TEXT = """utt-a \n0 1 {A} 4.5,10,7_7_8\n0 1 {B} 4.75,8,7_9_9\n1 2 {C} 3.25,2.5,5\n1 2 {D} 2.5,6,5_5
2 3 0 0.5,0,\n1 1.125,0.5,6_6\n3 0.25,0.75,4\n
utt-b \n0 1 {D} 2,30,1_2_3\n1 0,0,\n
utt-c \n0 1 {A} 3,4,9\n0 0.5,20,8_8\n1 1.5,0.25,\n\n"""


@pytest.fixture
def decode(tmp_path: Path) -> Path:
    """A decoding folder with one job beside `lang` with `G.fst`."""
    write_lang(tmp_path / "lang", ARPA)
    ids = read_symbols(tmp_path / "lang/words.txt").ids
    (tmp_path / "decode").mkdir()
    (tmp_path / "decode/lat.1.gz").write_bytes(gzip.compress(TEXT.format(**ids).encode()))
    (tmp_path / "decode/num_jobs").write_text("1\n")
    save_folder(tmp_path / "lm", neural("lstm"), "lstm", {})
    return tmp_path


def run(*arguments: object, code: int = 0) -> str:
    result = CliRunner().invoke(cli, [str(argument) for argument in arguments])
    if code == 0 and result.exception:
        raise result.exception
    return result.output


def archives(folder: Path, *more: object, old: str = "lang/G.fst") -> Path:
    lang = ("--words", folder / "lang/words.txt", "--old-ngram", folder / old)
    run("kaldi", "archives", folder / "decode/lat.1.gz", folder / "out", *lang, "-n", 3, "--lmwt", 2, *more)
    return folder / "out/archives.1"


def table(path: Path) -> dict[str, list[str]]:
    return {fields[0]: fields[1:] for fields in map(str.split, path.read_text().splitlines())}


def costs(path: Path) -> dict[str, float]:
    return {key: float(value) for key, (value,) in table(path).items()}


def test_archives_hold_the_exact_best_hypotheses(decode: Path) -> None:
    found = archives(decode)
    lang, spec = decode / "lang", f"kaldi:{decode}/decode/lat.1.gz?words={decode}/lang/words.txt"
    lists = [exact_nbest(lattice, {"graph": 1.0, "am": 0.5}, 3) for lattice in read_lattices(spec)]
    hyps = {f"{nbest.utt_id}-{k}": hyp for nbest in lists for k, hyp in enumerate(nbest.hyps, start=1)}
    texts = table(found / "words_text")
    assert texts == {key: list(hyp.words) for key, hyp in hyps.items()} and len(texts) == 6
    words = {number: word for word, number in read_symbols(lang / "words.txt").ids.items()}
    assert {key: [words[int(i)] for i in ids] for key, ids in table(found / "words").items()} == texts
    with_lm, no_lm = costs(found / "lmwt.withlm"), costs(found / "lmwt.nolm")
    lm_only, acoustic = costs(found / "lmwt.lmonly"), costs(found / "acwt")
    old = GrammarLM(lang / "G.fst")
    for key, hyp in hyps.items():
        assert with_lm[key] == pytest.approx(-hyp.scores["graph"]) and acoustic[key] == pytest.approx(-hyp.scores["am"])
        assert lm_only[key] == pytest.approx(-sum(old.score_words([hyp.words])[0]))
        assert no_lm[key] == pytest.approx(with_lm[key] - lm_only[key])
    assert table(found / "ali")["utt-a-1"] == ["7", "9", "9", "6", "6"] and texts["utt-a-1"] == ["B"]
    assert table(found / "ali")["utt-c-2"] == ["8", "8"] and texts["utt-c-2"] == []
    linear = {raw.utt_id: raw for _, raw in read_all(decode / "out/nbest1.1.gz")}
    assert list(linear) == list(texts) and all(raw.counts.max(initial=0) <= 1 for raw in linear.values())


def test_costs_of_an_lm_and_interpolation(decode: Path) -> None:
    found, lm = archives(decode), load(str(decode / "lm"))
    run("kaldi", "score", found, "--lm", decode / "lm", "--weight", 0.75)
    each, texts = table(found / "lmwt.nn"), table(found / "words_text")
    sums, mixed = costs(found / "lmwt.nn.sum"), costs(found / "lmwt.interp.0.75")
    no_lm, lm_only = costs(found / "lmwt.nolm"), costs(found / "lmwt.lmonly")
    for key, words in texts.items():
        expected = [-score for score in lm.score_words([words])[0]]
        assert [float(cost) for cost in each[key]] == pytest.approx(expected, abs=1e-5)
        assert sums[key] == pytest.approx(sum(expected), abs=1e-5)
        assert mixed[key] == pytest.approx(no_lm[key] + 0.75 * sums[key] + 0.25 * lm_only[key])
    lists = list(read_nbest(f"kaldi:{decode / 'out'}"))
    assert list(lists[0].hyps[0].scores) == ["am", "lm", "nn", "nolm"]
    assert lists[0].hyps[0].scores["nn"] == pytest.approx(-sums["utt-a-1"], abs=1e-5)


@pytest.mark.parametrize("keep", [True, False])
def test_the_new_lattices_hold_the_hypotheses_with_new_graph_costs(decode: Path, keep: bool) -> None:
    found = archives(decode, *([] if keep else ["--no-ali"]))
    run("kaldi", "score", found, "--lm", decode / "lm", "--weight", 0.8)
    run("kaldi", "lattices", decode / "out", "--costs", "lmwt.interp.0.8")
    texts, mixed, acoustic = table(found / "words_text"), costs(found / "lmwt.interp.0.8"), costs(found / "acwt")
    alignments = table(found / "ali")
    spec = f"kaldi:{decode / 'out'}?words={decode}/lang/words.txt"
    lattices = list(read_lattices(spec))
    assert [lattice.utt_id for lattice in lattices] == ["utt-a", "utt-b", "utt-c"]
    for lattice in lattices:
        expected = {
            tuple(texts[key]): (mixed[key], acoustic[key], alignments[key])
            for key in texts
            if key.rsplit("-", 1)[0] == lattice.utt_id
        }
        paths = linear_lattices(lattice, 1.0, 9)
        assert len(paths) == len(expected)
        for path in paths:
            graph, am, ali = expected[tuple(path.symbols[label] for label in path.labels if label)]
            assert -path.scores["graph"].sum() == pytest.approx(graph, rel=1e-5)
            assert -path.scores["am"].sum() == pytest.approx(am, rel=1e-5)
            assert path.alignments is not None and [str(i) for i in path.alignments.ids] == ali
        best = min(expected, key=lambda words: expected[words][0] + expected[words][1] / 7)
        assert best_path(lattice, {"graph": 1.0, "am": 1 / 7}).words == best
    assert all(bool(ali) == keep for ali in alignments.values())


def test_words_are_normalised_for_the_lm_alone(decode: Path) -> None:
    found = archives(decode)
    lower = build("lstm", WordVocabulary([word.lower() for word in WORDS], "lower"), {"dim": 8})
    save_folder(decode / "lower", lower.eval(), "lstm", {})
    with pytest.raises(LMError, match=r"archives.1/words_text, utt-a-1: found 'B', but the LM was trained on lower"):
        run("kaldi", "score", found, "--lm", decode / "lower", "--text-view", "exact")
    run("kaldi", "score", found, "--lm", decode / "lower", "--case", "lower", "--drop", "D")
    each = {key: list(map(float, row)) for key, row in table(found / "lmwt.nn").items()}
    assert each["utt-b-1"] == [0.0, pytest.approx(-lower.score_words([()])[0][0], abs=1e-5)]
    assert each["utt-a-1"] == pytest.approx([-score for score in lower.score_words([("b",)])[0]], abs=1e-5)
    assert "B" in table(found / "words_text")["utt-a-1"]


def test_an_old_lm_without_the_word_unk(decode: Path) -> None:
    """KenLM gives words that it does not have 10^-100 then; taken out, they would be on every best path."""
    text = ARPA.replace("ngram 1=7", "ngram 1=6").replace("-1.2\t<unk>\t0\n", "")
    (decode / "old.arpa").write_text(text.replace("\tB\t", "\tE\t").replace("A B", "A E").replace("B <", "E <"))
    with pytest.raises(ScoreError, match=r"the old LM gives 'B' the score -230\.\d+; is it the LM"):
        archives(decode, "--max-unknown", 1, old="old.arpa")


def test_bad_input(decode: Path) -> None:
    with pytest.raises(ScoreError, match="the old LM gives 'B' the score -inf; is it the LM"):
        write_lang(decode / "lang", ARPA.replace("\tB\t", "\tE\t").replace("A B", "A E").replace("B <", "E <"), ("B",))
        text = TEXT.format(**read_symbols(decode / "lang/words.txt").ids)
        (decode / "decode/lat.1.gz").write_bytes(gzip.compress(text.encode()))
        archives(decode)
    assert not (decode / "out/archives.1/words").exists()
    with pytest.raises(RescoreError, match="give --lm NAME"):
        run("kaldi", "score", decode / "out/archives.1")
    for weight in ("half", "nan", "inf"):
        with pytest.raises(RescoreError, match=f"the weight is '{weight}', expected a number"):
            run("kaldi", "score", decode / "out/archives.1", "--weight", weight)
    with pytest.raises(RescoreError, match="words_text"):
        run("kaldi", "score", decode / "out/archives.1", "--lm", decode / "lm")


def test_a_key_too_many_leaves_nothing_behind(decode: Path) -> None:
    found = archives(decode)
    run("kaldi", "score", found, "--lm", decode / "lm", "--weight", 0.5)
    for name in ("lmwt.nn.sum", "lmwt.interp.0.5"):
        with open(found / name, "a") as stream:
            stream.write("utt-z-1 1.0\n")
    with pytest.raises(RescoreError, match="key 'utt-z-1' is not in"):
        run("kaldi", "score", found, "--weight", 0.8)
    with pytest.raises(RescoreError, match="key 'utt-z-1' is not in"):
        run("kaldi", "lattices", decode / "out", "--costs", "lmwt.interp.0.5")
    assert not (found / "lmwt.interp.0.8").exists() and not (decode / "out/lat.1.gz").exists()


def test_costs_of_older_hypotheses_go(decode: Path) -> None:
    """Keys are numbers of hypotheses: at another LM weight, costs of others have the same ones."""
    found = archives(decode)
    run("kaldi", "score", found, "--lm", decode / "lm", "--weight", 0.5)
    (found / "lmwt.mine.gz").write_bytes(b"")
    archives(decode, "--lmwt", 3)
    assert sorted(path.name for path in found.iterdir()) == sorted(FILES)
    with pytest.raises(RescoreError, match=r"lmwt.nn.sum"):
        run("kaldi", "score", found, "--weight", 0.5)


def test_a_key_that_is_missing(decode: Path) -> None:
    found = archives(decode)
    run("kaldi", "score", found, "--lm", decode / "lm")
    lines = (found / "lmwt.nn.sum").read_text().splitlines(keepends=True)
    (found / "lmwt.nn.sum").write_text("".join(lines[:-1]))
    with pytest.raises(RescoreError, match=r"lmwt.nn.sum: no line with the key 'utt-c-2'"):
        run("kaldi", "score", found, "--weight", 0.5)


def test_help() -> None:
    for command in ("archives", "score", "lattices"):
        assert f"Example: rescore kaldi {command}" in run("kaldi", command, "-h")
    assert "lmrescore_nbest_pytorchnn" in run("kaldi", "-h")
