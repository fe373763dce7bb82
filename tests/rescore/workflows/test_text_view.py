"""Written text scored through the LM's view equals the same text normalised before; what comes out is as written."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from click.testing import CliRunner, Result
from hypothesis import given, settings
from hypothesis import strategies as st

from lm_zoo.base import LanguageModel
from lm_zoo.ngram.kenlm_lm import NgramLM
from lm_zoo.registry import build, load, save_folder
from lm_zoo.text.normalise import normalise
from lm_zoo.text.spoken import spoken_word
from lm_zoo.text.vocabulary import TextForm, WordVocabulary
from rescore.cli.main import cli
from rescore.errors import ScoreError, UsageError
from rescore.formats import read_nbest, write_nbest
from rescore.lattices.build import build_lattice
from rescore.lattices.nbest import exact_nbest
from rescore.sharing.work import in_halves
from rescore.skipping import Skip, fail
from rescore.types import Hypothesis, Lattice, NbestList, Words
from rescore.workflows.columns import LMColumn
from rescore.workflows.lattice_rescore import LatticeRescoring
from rescore.workflows.scoring import score_batch

KNOWN = [
    "THE",
    "MISTER",
    "HALE",
    "HALE'S",
    "PAID",
    "FIVE",
    "SIX",
    "MILLION",
    "DOLLARS",
    "SAINT",
    "JOHN",
    "WELL",
    "KNOWN",
    "AND",
]
WRITTEN = ["The", "Mr.", "Hale,", "hale's", "paid", "$5", "6", "million", "St.", "well-known", "--", ",", "and"]
ARPA = (
    "\\data\\\nngram 1={n}\nngram 2=2\n\n\\1-grams:\n-2\t<unk>\n-99\t<s>\t-0.3\n-1\t</s>\n{words}\n\n\\2-grams:\n"
    + ("-0.2\tMISTER HALE\n-0.1\tFIVE DOLLARS\n\n\\end\\\n")
)
sentences = st.lists(st.sampled_from(WRITTEN), max_size=6).map(tuple)


def neural() -> Any:
    torch.manual_seed(1)
    return build("lstm", WordVocabulary(["<sos/eos>", "<unk>", *KNOWN], "upper"), {"dim": 8}).eval()


@pytest.fixture(scope="module", params=["lstm", "ngram"])
def lm(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> LanguageModel:
    if request.param == "lstm":
        return neural()
    pytest.importorskip("kenlm", reason="n-gram LMs need kenlm")
    return NgramLM(arpa(tmp_path_factory.mktemp("arpa")))


def arpa(folder: Path) -> Path:
    words = "\n".join(f"-{1 + place / 9:.3f}\t{word}\t-0.{place + 10}" for place, word in enumerate(KNOWN))
    (folder / "lm.arpa").write_text(ARPA.format(n=len(KNOWN) + 3, words=words))
    return folder / "lm.arpa"


@settings(deadline=None, max_examples=40)
@given(texts=st.lists(sentences, min_size=1, max_size=5))
def test_lists_are_scored_as_normalised_ones(lm: LanguageModel, texts: list[tuple[str, ...]]) -> None:
    plain = [normalise("librispeech")(" ".join(words)).split() for words in texts]
    expected = lm.score_sentences(plain)
    scorer = LMColumn("lm", lm)
    nbest = NbestList("u", [Hypothesis(words, {"am": 0.0}) for words in texts])
    (scored,) = score_batch([nbest], [scorer])
    assert [hyp.words for hyp in scored.hyps] == texts
    assert [hyp.scores["lm"] for hyp in scored.hyps] == pytest.approx(expected, abs=1e-4)
    rows = scorer.word_columns([nbest])["lm"]
    assert [len(row) for row in rows] == [len(words) + 1 for words in texts]
    assert [sum(row) for row in rows] == pytest.approx(expected, abs=1e-4)
    (mixed,) = score_batch([nbest], [LMColumn("one", lm), LMColumn("two", lm)], {"one": 0.3, "two": 0.7})
    assert [hyp.scores["mix"] for hyp in mixed.hyps] == pytest.approx(expected, abs=1e-4)


def sausage(slots: list[list[str]]) -> Lattice:
    symbols = ["", *dict.fromkeys(word for slot in slots for word in slot)]
    arcs = [(place, place + 1, symbols.index(word)) for place, slot in enumerate(slots) for word in slot]
    src, dst, labels = map(np.array, zip(*arcs, strict=True))
    return build_lattice("u", len(slots) + 1, src, dst, labels, {"am": np.zeros(len(src))}, symbols, 0, len(slots))


def test_lattices_are_scored_word_by_word(lm: LanguageModel) -> None:
    """Words that are two for the LM, or none, and words that it sees alike."""
    slots = [["Mr.", "Mister", ","], ["Hale,", "well-known"], ["paid", "--"], ["$5", "6", "five"]]
    name = "lstm" if not isinstance(lm, NgramLM) else "ngram"
    lms = {"lms": {"lstm": lm}} if name == "lstm" else {"ngram": lm}
    work = LatticeRescoring({"am": 1.0, name: 1.0}, context=None, **lms)  # type: ignore[arg-type]
    (rescored,) = work([sausage(slots)])
    nbest = exact_nbest(rescored, {"am": 1.0, name: 1.0}, 100)
    assert len(nbest.hyps) == 3 * 2 * 2 * 3
    plain = [[part for word in hyp.words for part in spoken_word(word)] for hyp in nbest.hyps]
    assert [hyp.scores[name] for hyp in nbest.hyps] == pytest.approx(lm.score_sentences(plain), abs=1e-4)
    assert work.coverages[0].unknown == 0 and "1 of 1 lattices" in work.views[name].said("lattices")


def test_lattices_in_error_are_not_counted_as_shown() -> None:
    """A group with one is done again in halves."""
    work = LatticeRescoring({"am": 1.0, "nn": 1.0}, {"nn": neural()})
    group = [replace(sausage([["Mr.", "paid"]]), utt_id=f"u{place}") for place in range(4)]
    group[2].scores["nn"] = np.zeros(2)
    found = in_halves(work.rescored, group, lambda lattice: lattice.utt_id, Skip())
    assert [lattice.utt_id for lattice in found] == ["u0", "u1", "u3"]
    assert "3 of 3 lattices" in work.views["nn"].said("lattices") and sum(work.views["nn"].rules.values()) == 2 * 3


def test_lists_in_error_are_not_counted_as_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    lm, lists = neural(), [NbestList(f"u{place}", [Hypothesis(("Mr.", "Hale"))]) for place in range(3)]
    scorer, score_sentences = LMColumn("nn", lm), lm.score_sentences

    def too_many(sentences: Sequence[Words], *rest: Any) -> list[float]:
        if len(sentences) > 1:
            raise MemoryError
        return score_sentences(sentences, *rest)

    monkeypatch.setattr(lm, "score_sentences", too_many)
    assert len(in_halves(lambda batch: score_batch(batch, [scorer]), lists, lambda nbest: nbest.utt_id, fail)) == 3
    assert "3 of 3 hypotheses" in scorer.view.said()


# -- commands ----------------------------------------------------------------------------------------------------------


def run(*args: object) -> Result:
    return CliRunner().invoke(cli, [str(arg) for arg in args], catch_exceptions=False)


TEXTS = ["Mr. Hale, paid $5 million.", "St. John's well-known -- and 6", "and the Hale's"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    save_folder(tmp_path / "lm", neural(), "lstm", {})
    for name in ("none", "librispeech"):
        texts = [normalise(name)(text) for text in TEXTS]
        (tmp_path / name).write_text("".join(f"{text}\n" for text in texts))
        hyps = [Hypothesis(tuple(text.split()), {"am": -1.0}) for text in texts]
        write_nbest(f"jsonl:{tmp_path / name}.jsonl", [NbestList("u", hyps)])
    return tmp_path


def test_nbest_writes_what_was_written(folder: Path) -> None:
    said = {}
    for name in ("none", "librispeech"):
        args = ("--nbest", folder / f"{name}.jsonl", "--lm", folder / "lm", "--out", folder / f"{name}.out")
        said[name] = run("nbest", *args).stderr
    written, plain = (next(read_nbest(f"{folder / name}.out/nbest.jsonl.gz")).hyps for name in said)
    assert [hyp.scores["lm"] for hyp in written] == pytest.approx([hyp.scores["lm"] for hyp in plain], abs=1e-5)
    assert {" ".join(hyp.words) for hyp in written} == set(TEXTS)
    assert (
        "lm: 3 of 3 hypotheses shown to the LM in the form of its own text: 3 changed in case, 2 without punctuation, "
        "2 with numbers or signs in words, 2 with words spelled out" in said["none"]
    )
    assert "form of its own text" not in said["librispeech"]


def test_shares_say_what_was_shown_as_one_process_does(folder: Path) -> None:
    lists = [
        NbestList(f"u{place}", [Hypothesis(tuple(TEXTS[place % 3].split()), {"am": -1.0})]) for place in range(999)
    ]
    write_nbest(f"jsonl:{folder / 'many.jsonl'}", lists)
    args = ("nbest", "--nbest", folder / "many.jsonl", "--lm", folder / "lm", "--out")
    whole = run(*args, folder / "whole").stderr
    for share in ("1/2", "2/2"):
        run(*args, folder / "shares", "--split", share)
    merged = run("merge", folder / "shares").stderr
    shown = [line for line in whole.splitlines() if line.startswith("lm: ")]
    assert "999 of 999 hypotheses" in shown[1] and all(line in merged.splitlines() for line in shown)


def test_scores_of_a_run_with_another_view_are_not_taken_over(folder: Path) -> None:
    args = ("nbest", "--nbest", folder / "librispeech.jsonl", "--lm", folder / "lm", "--out", folder / "out")
    run(*args)
    parts = folder / "out" / ".parts"
    parts.mkdir()
    (parts / "plan.json").write_text(json.dumps({"--text-view": "exact"}))
    assert "it had another" in run(*args).stderr and not parts.exists()


def test_shares_of_a_text_say_what_one_process_does(folder: Path) -> None:
    (folder / "text").write_text("".join(f"{text}\n\n--\n" for text in TEXTS))
    ppl = ("ppl", "--lm", folder / "lm", "--text", folder / "text", "--json")
    said = run(*ppl, folder / "whole.json").stderr.splitlines()
    for share in ("1/2", "2/2"):
        run(*ppl, folder / "shares.json", "--split", share)
    merged = run("merge", folder / "shares.json").stderr.splitlines()
    assert len(said) == 3 and merged == said


@pytest.mark.parametrize("window", [(), ("--window", 3)])
def test_perplexity_is_that_of_the_normalised_text(folder: Path, window: tuple[object, ...]) -> None:
    tables = [
        run("ppl", "--lm", folder / "lm", "--text", folder / name, "--json", "-", *window)
        for name in ("none", "librispeech")
    ]
    assert json.loads(tables[0].stdout) == json.loads(tables[1].stdout)
    assert "none: 3 of 3 sentences shown to the LM in the form of its own text: 3 changed" in tables[0].stderr


def test_perplexities_of_different_words_are_refused(folder: Path) -> None:
    shutil.copytree(folder / "lm", folder / "other")
    config = json.loads((folder / "other" / "config.json").read_text())
    (folder / "other" / "config.json").write_text(json.dumps({**config, "punctuation": True}))
    lms = ("--lm", folder / "lm", "--lm", folder / "other")
    assert load(str(folder / "other")).vocab.form is not None
    assert run("ppl", *lms, "--text", folder / "librispeech").exit_code == 0
    with pytest.raises(
        UsageError, match="sentence 1: 'lm' sees 'MISTER HALE PAID FIVE MILLION DOLLARS', but 'other' sees"
    ):
        run("ppl", *lms, "--text", folder / "none")


def test_lms_that_see_different_words_are_not_interpolated() -> None:
    lm, other = neural(), neural()
    other.vocab.form = TextForm(punctuation=True, numbers="digits")
    nbest = [NbestList("u", [Hypothesis(("Mr.", "Hale"), {"am": 0.0})])]
    with pytest.raises(ScoreError, match=r"utterance u: 'one' sees 'MISTER HALE', but 'two' sees 'MR. HALE'; such LMs"):
        score_batch(nbest, [LMColumn("one", lm), LMColumn("two", other)], {"one": 0.5, "two": 0.5})
    assert len(score_batch(nbest, [LMColumn("one", lm), LMColumn("two", other)])[0].hyps[0].scores) == 3


def test_the_text_before_is_seen_in_the_same_form() -> None:
    lm = neural()
    nbest, before = NbestList("u", [Hypothesis(("Hale,", "paid"), {"am": 0.0})]), (("The", "$5"), ("--",))
    (scored,) = score_batch([nbest], [LMColumn("lm", lm)], contexts=[before])
    expected = lm.score_sentences([("HALE", "PAID")], None, [(("THE", "FIVE", "DOLLARS"),)])
    assert [hyp.scores["lm"] for hyp in scored.hyps] == pytest.approx(expected, abs=1e-5)
