"""`rescore lattice rescore`: n-gram and neural passes together against the scoring of all paths; the command."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from lm_zoo.registry import save_folder
from rescore.api.lattices import read_lattices
from rescore.cli.main import cli
from rescore.errors import ScoreError, UsageError
from rescore.formats import read_nbest
from rescore.formats.part_files import utt_id_of
from rescore.lattices.nbest import exact_nbest
from rescore.lattices.paths import best_path
from rescore.sharing.work import in_halves
from rescore.skipping import fail
from rescore.types import Lattice, NbestList, Weights, Words
from rescore.weights import for_mbr, save_weights
from rescore.workflows.combine import combine_list
from rescore.workflows.lattice_rescore import LatticeDoer, LatticeRequest, LatticeRescoring
from tests.lm_zoo import zoo
from tests.lm_zoo.grammar_fst import write_lang
from tests.rescore.lattices.test_ngram_lm import Backoff, ToyTrigram
from tests.rescore.lattices.test_paths import SCALES, best_by_words, lattices, make

SYMBOLS = ("", "A", "B", "C")
LM = zoo.neural("transfornn")
ALL = {**SCALES, "ngram": 0.75, "old-ngram": -0.25, "nn": 0.5}


@settings(max_examples=30, deadline=None)
@given(lattices(SYMBOLS))
def test_all_passes_together_are_the_sum_of_the_sentence_scores(lattice: Lattice) -> None:
    trigram = ToyTrigram()
    work = LatticeRescoring(ALL, {"nn": LM}, trigram, trigram, context=None)
    (result,) = work([lattice])
    expected = best_by_words(lattice)
    for words in expected:
        expected[words] += (0.75 - 0.25) * trigram.score(words) + 0.5 * sum(LM.score_words([words])[0])
    assert best_by_words(result, ALL) == pytest.approx(expected, abs=1e-3)
    assert {"ngram", "old-ngram", "nn", "am", "lm"} == set(result.scores)
    assert work.counts["evaluations"] > 0


@settings(max_examples=20, deadline=None)
@given(lattices(SYMBOLS))
def test_wide_beams_keep_the_best_path(lattice: Lattice) -> None:
    exact = LatticeRescoring(ALL, {"nn": LM}, ToyTrigram(), ToyTrigram(), context=None)
    pruned = LatticeRescoring(ALL, {"nn": LM}, ToyTrigram(), ToyTrigram(), context=None, ngram_beam=40.0, beam=40.0)
    best = [exact_nbest(next(work([lattice])), ALL, 1).hyps[0] for work in (exact, pruned)]
    totals = [sum(ALL[name] * value for name, value in hyp.scores.items()) for hyp in best]
    assert totals[1] == pytest.approx(totals[0], abs=1e-4)


@settings(max_examples=60, deadline=None)
@given(lattices(SYMBOLS), st.integers(0, 1000), st.sampled_from([0.0, 2.0, 10.0]))
def test_the_ngram_beam_goes_by_all_ngrams_together(lattice: Lattice, seed: int, beam: float) -> None:
    old, new = Backoff(seed), Backoff(seed + 1)
    scales = {**SCALES, "ngram": 2.0, "old-ngram": -2.0}
    (result,) = LatticeRescoring(scales, ngram=new, old_ngram=old, ngram_beam=beam)([lattice])
    every = {
        words: total + 2.0 * (new.score(words) - old.score(words)) for words, total in best_by_words(lattice).items()
    }
    within = {words for words, total in every.items() if total >= max(every.values()) - beam + 1e-6}
    found = best_by_words(result, scales)
    assert within <= set(found) and found == pytest.approx({words: every[words] for words in found})


def test_scales_are_asked_for() -> None:
    with pytest.raises(UsageError, match="no scale for nn; give one with --scale"):
        LatticeRescoring({"am": 1.0}, {"nn": LM})
    with pytest.raises(UsageError, match="no LM given"):
        LatticeRescoring({"am": 1.0})


@pytest.mark.parametrize("options", [[], ["--on-error", "skip"]])
def test_an_lm_of_whole_texts_is_refused_before_any_lattice(tmp_path: Path, options: list[str]) -> None:
    (tmp_path / "u1.slf").write_text(SLF)
    line = [
        "lattice",
        "rescore",
        f"slf:{tmp_path}/u1.slf",
        f"slf:{tmp_path}/out",
        "--lm",
        "toy=tests.toy_lm:Toy?likes=a",
    ]
    error = CliRunner().invoke(cli, [*line, "--scale", "toy=1", *options]).exception
    assert isinstance(error, ScoreError)
    assert str(error).startswith("'toy' (Toy) scores words, and cannot be asked token by token: it is for N-best lists")


def test_a_grammar_among_the_neural_lms_is_refused_before_any_lattice(tmp_path: Path) -> None:
    (tmp_path / "u1.slf").write_text(SLF)
    grammar = write_lang(tmp_path / "lang", "-1\t</s>\n-0.5\ta\t0\n-0.5\tb\t0\n-99\t<s>\t0\n")
    line = ["lattice", "rescore", f"slf:{tmp_path}/u1.slf", f"slf:{tmp_path}/out", "--lm", f"g={grammar}"]
    error = CliRunner().invoke(cli, [*line, "--scale", "g=1", "--on-error", "skip"]).exception
    assert isinstance(error, ScoreError) and "(GrammarLM) scores words" in str(error)
    assert str(error).endswith("give it with --ngram (in Python ngram=...)")


SLF = """VERSION=1.0
N=4 L=4
I=0 t=0.0
I=1 t=0.5
I=2 t=1.0
I=3 t=1.2
J=0 S=0 E=1 W=a a=-5.0 l=-1.0
J=1 S=0 E=1 W=b a=-5.5 l=-0.5
J=2 S=1 E=2 W=c a=-3.0 l=-1.0
J=3 S=2 E=3 W=!NULL a=0.0 l=0.0
"""


def test_the_command_writes_lists_and_lattices(tmp_path: Path) -> None:
    (tmp_path / "lat").mkdir()
    for name in ("u1", "u2"):
        (tmp_path / "lat" / f"{name}.slf").write_text(SLF)
    save_folder(tmp_path / "nn", LM, "transfornn", {})
    common = ["--lm", str(tmp_path / "nn"), "--scale", "nn=2", "--scale", "lm=1", "--case", "upper", "--beam", "50"]
    source = ["lattice", "rescore", f"slf:{tmp_path / 'lat'}"]
    result = CliRunner().invoke(cli, [*source, str(tmp_path / "lists.jsonl"), *common, "-n", "5"])
    assert result.exit_code == 0, result.output
    (first, second) = read_nbest(str(tmp_path / "lists.jsonl"))
    assert {hyp.words for hyp in first.hyps} == {("A", "C"), ("B", "C")}
    for hyp in first.hyps:
        assert hyp.scores["nn"] == pytest.approx(sum(LM.score_words([hyp.words])[0]), abs=1e-4)
    assert [hyp.words for hyp in second.hyps] == [hyp.words for hyp in first.hyps]
    save_weights(
        tmp_path / "w.json", Weights({"am": 1, "lm": 1, "nn": 2}, {"decision": "mbr", "inverse_temperature": 1})
    )
    weighted = [*source, str(tmp_path / "mbr.jsonl"), *common[:2], "--weights", str(tmp_path / "w.json"), *common[6:]]
    result = CliRunner().invoke(cli, [*weighted, "-n", "5"])
    assert result.exit_code == 0, result.output
    found = next(read_nbest(str(tmp_path / "mbr.jsonl")))
    assert found == combine_list(first, for_mbr(Weights({"am": 1, "lm": 1, "nn": 2}), 1.0))
    result = CliRunner().invoke(cli, [*source, f"slf:{tmp_path / 'new'}", *common])
    assert result.exit_code == 0, result.output
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == ["u1.slf.gz", "u2.slf.gz"]
    assert "has no scale" not in result.output
    result = CliRunner().invoke(cli, [*source, f"slf:{tmp_path / 'newer'}", *common[:4], *common[6:]])
    assert result.output.count("the lattices' own score 'lm' has no scale and counts 0; give --scale lm=VALUE") == 1


def test_the_one_score_of_a_recogniser_counts_as_acoustics_do(tmp_path: Path) -> None:
    words = [("A",), ("B",)]
    likes = sorted(words, key=lambda each: sum(LM.score_words([each])[0]))  # the LM, the better the later
    costs = dict(zip(likes, (1, 5), strict=True))
    (tmp_path / "u1.txt").write_text("u1\n" + "".join(f"0 1 {each[0]} {costs[each]}\n" for each in words) + "1\n\n")
    save_folder(tmp_path / "nn", LM, "transfornn", {})
    source, lists = f"openfst:{tmp_path / 'u1.txt'}", tmp_path / "lists.jsonl"
    options = ["--lm", str(tmp_path / "nn"), "--scale", "nn=0.001", "--exact", "-n", "2"]
    result = CliRunner().invoke(cli, ["lattice", "rescore", source, str(lists), *options])
    assert result.exit_code == 0 and "has no scale" not in result.output, result.output
    assert [hyp.words for hyp in next(read_nbest(str(lists))).hyps] == likes
    (pruned,) = read_lattices(source).rescore({"nn": LM}, {"nn": 0.001}, beam=0.0)
    assert pruned.best_path({"nn": 1.0}).words == likes[0]


@pytest.mark.parametrize("place", [0, 1])
def test_lattices_of_a_group_have_their_own_scores(place: int) -> None:
    """HTK lattices without `l=` have no score `lm`; those beside them keep theirs, in the search, too."""
    plain = make([(0, 1, "A", 0.0, -0.1), (0, 1, "B", 1.0, -9.0)], 2)
    other = replace(plain, utt_id="other", scores={"am": plain.scores["am"]})
    group = [plain, other] if place else [other, plain]
    scales = {"am": 1.0, "lm": 10.0, "nn": 0.01}
    found = {lattice.utt_id: lattice for lattice in LatticeRescoring(scales, {"nn": LM}, beam=4.0)(group)}
    for lattice in group:
        (alone,) = LatticeRescoring(scales, {"nn": LM}, beam=4.0)([lattice])
        assert best_by_words(found[lattice.utt_id], {name: scales[name] for name in alone.scores}) == pytest.approx(
            best_by_words(alone, {name: scales[name] for name in alone.scores})
        )
    assert best_path(found["utt"], scales).words == ("A",)


class Likes(ToyTrigram):
    """Says -1 of A, -15 of all else."""

    @staticmethod
    def _logprob(state: Words, word: str) -> float:
        return -1.0 if word == "A" else -15.0


OLD = """\\data\\
ngram 1=4
ngram 2=1

\\1-grams:
-99\t<s>\t0
-0.5\t</s>
-0.5\ta\t0
-0.5\tc\t0

\\2-grams:
-0.2\ta c

\\end\\
"""


def test_what_the_old_lm_has_not_is_not_taken_out(tmp_path: Path) -> None:
    """The word b, at e^228 against all others, would be on every best path."""
    (tmp_path / "u1.slf").write_text(SLF)
    (tmp_path / "old.arpa").write_text(OLD)
    line = [
        "lattice",
        "rescore",
        f"slf:{tmp_path}/u1.slf",
        f"slf:{tmp_path}/out",
        "--old-ngram",
        f"{tmp_path}/old.arpa",
    ]
    error = CliRunner().invoke(cli, [*line, "--scale", "lm=10", "--scale", "old-ngram=-10"]).exception
    assert isinstance(error, ScoreError)
    assert "lattice 'u1': --old-ngram has no probability for 'b' there" in str(error)
    assert CliRunner().invoke(cli, [*line, "--scale", "lm=10", "--scale", "old-ngram=1"]).exit_code == 0


def test_a_group_that_is_done_again_is_counted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory does not suffice for the list of the second lattice, the first time."""
    lattices = [
        replace(make([(0, 1, "A", -1.0, -1.0), (1, 2, "B", -1.0, -1.0)], 3), utt_id=utt_id) for utt_id in ("u1", "u2")
    ]
    request = LatticeRequest("", "", ("nn",), "toy", None, Weights({}), {}, 2)
    doers = [LatticeDoer(request, LatticeRescoring(ALL, {"nn": LM}, ToyTrigram(), context=None)) for _ in range(2)]
    expected = in_halves(doers[0], lattices, utt_id_of, fail)
    calls = []

    def starved(lattice: Lattice, scales: Mapping[str, float], n: int) -> NbestList:
        calls.append(lattice.utt_id)
        if calls == ["u1", "u2"]:
            raise MemoryError
        return exact_nbest(lattice, scales, n)

    monkeypatch.setattr("rescore.workflows.lattice_rescore.exact_nbest", starved)
    assert in_halves(doers[1], lattices, utt_id_of, fail) == expected and calls == ["u1", "u2"] * 2
    counts = [doer.counted() for doer in doers]
    for each in counts:
        del each["evaluations"]  # of two together, and one by one
    assert counts[0] == counts[1] and counts[0]["words\tngram"] == 4


def test_an_old_ngram_alone_stands_for_the_neural_lms_in_the_beam() -> None:
    """Taken out with nothing in its place, the first pass would be cut by acoustics alone."""
    lattice = make([(0, 1, "A", -100.0, -16.0), (0, 1, "B", 0.0, -30.0)], 2)
    scales = {"am": 1.0, "lm": 10.0, "old-ngram": -10.0, "nn": 10.0}
    work = LatticeRescoring(scales, {"nn": LM}, old_ngram=Likes(), ngram_beam=80.0)
    kept = work.prepare(lattice)
    assert set(best_by_words(kept)) == {("A",), ("B",)}
    left = LatticeRescoring({**scales, "nn": 0.0}, {"nn": LM}, old_ngram=Likes(), ngram_beam=80.0).prepare(lattice)
    assert set(best_by_words(left)) == {("B",)}
