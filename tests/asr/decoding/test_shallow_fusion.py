"""LMs in the beam search: every score is what the LM says of the found words, and the total decides."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from asr.decoding import load
from asr.decoding.beam_search import modified_beam_search
from asr.decoding.options import DecodeRun
from asr.decoding.prefixes import SearchHypothesis
from asr.decoding.shallow_fusion import TokenScorer, WordScorer, lm_scorer, make_fusion
from asr.errors import ConfigError
from lm_zoo.ngram.arpa import write_arpa
from lm_zoo.ngram.kneser_ney import FALLBACK_DISCOUNTS, estimate
from lm_zoo.registry import build, load_ngram
from lm_zoo.text.vocabulary import SOS_EOS, UNK, WordVocabulary
from tests.asr.tiny import TEXT, Tiny, alignments, log_sum, pieces, summed, vocabulary

SIZE = 18


def neural(vocab: Any, kind: str = "lstm") -> Any:
    torch.manual_seed(5)
    settings = {"dim": 8} if kind == "lstm" else {"dim": 8, "heads": 2, "feedforward": 12, "layers": 1}
    lm = build(kind, vocab, settings).eval()
    with torch.no_grad():
        for parameter in lm.parameters():
            parameter.normal_(0.0, 0.7)
    return lm


def lower_words() -> WordVocabulary:
    return WordVocabulary([SOS_EOS, UNK, *sorted({word.lower() for word in TEXT.split()})], "lower")


def ngram(path: Path, sentences: list[list[str]]) -> Any:
    pytest.importorskip("kenlm")
    from lm_zoo.ngram.kenlm_lm import NgramLM

    write_arpa(estimate(sentences, 2, [], discount_fallback=FALLBACK_DISCOUNTS, remark=lambda _: None), path)
    return NgramLM(path)


def decode(fusion: Any, seed: int = 6, beam: int = 12, decoder: str = "lstm") -> list[list[SearchHypothesis]]:
    model = Tiny(SIZE, decoder, seed=seed)
    encoded, lengths = model.encoded(9, 6, 0)
    return modified_beam_search(model, encoded, lengths, beam, fusion)


@pytest.mark.parametrize("kind", ["lstm", "transformer"])
def test_an_lm_over_the_same_pieces_scores_token_by_token(kind: str) -> None:
    lm = neural(vocabulary(SIZE), kind)
    assert isinstance(lm_scorer(lm, pieces(SIZE)), TokenScorer)
    for hyp in (hyp for hyps in decode(make_fusion(pieces(SIZE), {"mine": (lm, 0.6)})) for hyp in hyps):
        tokens = torch.tensor([hyp.tokens], dtype=torch.long)
        with torch.no_grad():
            truth = lm.score(tokens, torch.tensor([len(hyp.tokens)])).sum()
        assert hyp.scores["mine"] == pytest.approx(float(truth), abs=1e-4)


@pytest.mark.parametrize("which", ["words", "pieces", "ngram"])
def test_another_lm_scores_whole_words(which: str, tmp_path: Path) -> None:
    if which == "ngram":
        lm = ngram(tmp_path / "lm.arpa", [TEXT.split(), ["THE", "HAT"]])
    else:
        lm = neural(lower_words() if which == "words" else vocabulary(24))
    assert isinstance(lm_scorer(lm, pieces(SIZE)), WordScorer)
    case = str.lower if which == "words" else str
    seen = set()
    for hyp in (hyp for hyps in decode(make_fusion(pieces(SIZE), {"lm": (lm, 0.5)})) for hyp in hyps):
        words = [case(word) for word in pieces(SIZE).words(hyp.tokens)]
        assert hyp.scores["lm"] == pytest.approx(sum(lm.score_words([words], max_unknown=None)[0]), abs=1e-4)
        seen.add(len(words))
    assert len(seen) > 1


def test_lms_see_words_in_the_form_of_their_own_text() -> None:
    scorer = lm_scorer(neural(lower_words()), pieces(SIZE))
    exact = WordScorer(scorer.lm, pieces(SIZE), exact=True)  # type: ignore[attr-defined]
    for written, seen in (("THE", ("the",)), ("Cat,", ("cat",)), (UNK, (UNK,))):
        assert scorer.view.word(written) == seen  # type: ignore[attr-defined]
        assert exact.view.word(written) == (written,)
    with pytest.raises(ConfigError, match="an LM of lower-case text, but pieces of upper-case text"):
        lm_scorer(neural(lower_words()), pieces(SIZE), exact=True)


@pytest.mark.slow
def test_the_total_decides_and_am_stays_what_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("asr.decoding.beam_search.KEEP_EVERY", 1)  # LM states are given back at every frame
    model = Tiny(SIZE, seed=7)
    encoded, lengths = model.encoded(2)
    lms = {
        "one": (neural(vocabulary(SIZE)), 0.7),
        "two": (neural(lower_words()), 1.5),
        "off": (neural(lower_words()), 0.0),
    }
    hyps = modified_beam_search(model, encoded, lengths, 1000, make_fusion(pieces(SIZE), lms, ilme_scale=0.3))[0]
    truth = {tokens: log_sum(scores) for tokens, scores in alignments(model, encoded[0]).items()}
    assert {hyp.tokens: summed(hyp) for hyp in hyps} == pytest.approx(truth, abs=1e-5)
    scales = {"am": 1.0, "alignments": 1.0, "one": 0.7, "two": 1.5, "off": 0.0, "ilm": -0.3}
    totals = [sum(scale * hyp.scores[name] for name, scale in scales.items()) for hyp in hyps]
    assert totals == sorted(totals, reverse=True)
    assert [summed(hyp) for hyp in hyps] != sorted(map(summed, hyps), reverse=True)
    assert all(hyp.scores["off"] < 0 for hyp in hyps)


@pytest.mark.parametrize("decoder", ["lstm", "stateless"])
def test_the_internal_lm_is_the_joiner_without_speech_and_blank(decoder: str) -> None:
    model = Tiny(SIZE, decoder, seed=6)
    for hyp in (hyp for hyps in decode(make_fusion(pieces(SIZE), {}, ilme_scale=0.4), decoder=decoder) for hyp in hyps):
        with torch.no_grad():
            outputs = model.decoder(torch.tensor([hyp.tokens], dtype=torch.long))[0]
            logits = model.joiner(model.joiner.project_encoder(torch.zeros(6)), model.joiner.project_decoder(outputs))
        scores = logits[:, 1:].log_softmax(-1)
        truth = sum(float(scores[place, token - 1]) for place, token in enumerate(hyp.tokens))
        assert hyp.scores["ilm"] == pytest.approx(truth, abs=1e-4)


def test_the_internal_lm_is_scored_without_being_subtracted() -> None:
    plain, scored = decode(None), decode(make_fusion(pieces(SIZE), {}, ilme_scale=0.0))
    subtracted = {h.tokens: h for hyps in decode(make_fusion(pieces(SIZE), {}, ilme_scale=0.4)) for h in hyps}
    for one, other in zip(plain, scored, strict=True):
        assert [hyp.tokens for hyp in one] == [hyp.tokens for hyp in other]
        for hyp, again in zip(one, other, strict=True):
            assert {**hyp.scores, "ilm": again.scores["ilm"]} == pytest.approx(again.scores, abs=1e-5)
            if hyp.tokens in subtracted:
                assert again.scores["ilm"] == pytest.approx(subtracted[hyp.tokens].scores["ilm"], abs=1e-5)
    assert make_fusion(pieces(SIZE), {}) is None


def test_a_token_bigram_is_taken_out(tmp_path: Path) -> None:
    names = pieces(SIZE).names
    text = [[names[token] for word in TEXT.split() for token in vocabulary(SIZE).encode_word(word)], names[1:]]
    lm = ngram(tmp_path / "bigram.arpa", text)
    fusion = make_fusion(pieces(SIZE), {}, lodr=(lm, 0.4))
    plain = decode(None)
    for hyp in (hyp for hyps in decode(fusion) for hyp in hyps):
        truth = sum(lm.score_words([[names[token] for token in hyp.tokens]], max_unknown=None)[0][:-1])
        assert hyp.scores["lodr"] == pytest.approx(truth, abs=1e-4)
    assert [hyp.tokens for hyp in decode(fusion)[0]] != [hyp.tokens for hyp in plain[0]]
    with pytest.raises(ConfigError, match="the token n-gram knows 0 of the recogniser's 18 pieces"):
        make_fusion(pieces(SIZE), {}, lodr=(ngram(tmp_path / "words.arpa", [["SOME", "WORDS"]]), 0.4))
    inside = [name for name in names if not name.startswith("\u2581")]  # words can be written as pieces are: HE, A
    with pytest.raises(ConfigError, match=r"13 of the recogniser.s 18 pieces, 0 of the 3 that begin a word"):
        make_fusion(pieces(SIZE), {}, lodr=(ngram(tmp_path / "letters.arpa", [inside[1:]]), 0.4))


def test_pieces_that_the_bigram_does_not_know_are_not_rewarded(tmp_path: Path) -> None:
    """icefall's 2gram.arpa has no `<unk>`: KenLM takes -100 for its log10, which a subtraction would make a reward."""
    names = pieces(SIZE).names
    ngram(
        tmp_path / "whole.arpa", [[names[token] for word in TEXT.split() for token in vocabulary().encode_word(word)]]
    )
    lines = [line for line in (tmp_path / "whole.arpa").read_text().splitlines(keepends=True) if UNK not in line]
    count = int(next(line for line in lines if line.startswith("ngram 1="))[8:])
    lines = [f"ngram 1={count - 1}\n" if line.startswith("ngram 1=") else line for line in lines]
    (tmp_path / "2gram.arpa").write_text("".join(lines))
    lm = load_ngram(str(tmp_path / "2gram.arpa"))
    assert not lm.knows(names[1]) and not lm.knows(names[vocabulary(SIZE).unk])
    for hyp in (hyp for hyps in decode(make_fusion(pieces(SIZE), {}, lodr=(lm, 0.16))) for hyp in hyps):
        state, truth = lm.start(), 0.0
        for token in hyp.tokens:
            score, state, known = lm.extend(state, names[token])
            truth += score if known else 0.0
        assert hyp.scores["lodr"] == pytest.approx(truth, abs=1e-4)


def test_a_reward_for_words() -> None:
    """The count of words is a score like any other, and a high reward makes more words."""
    counts = []
    for reward in (-3.0, 3.0):
        found = decode(make_fusion(pieces(SIZE), {}, word_reward=reward))
        for hyp in (hyp for hyps in found for hyp in hyps):
            assert hyp.scores["words"] == len(pieces(SIZE).words(hyp.tokens))
        counts.append(sum(hyps[0].scores["words"] for hyps in found))
    assert counts[0] < counts[1]


def test_a_scale_of_zero_leaves_the_search_alone() -> None:
    lm = neural(vocabulary(SIZE))
    plain, scored = decode(None), decode(make_fusion(pieces(SIZE), {"lm": (lm, 0.0)}))
    for before, after in zip(plain, scored, strict=True):
        assert [hyp.tokens for hyp in before] == [hyp.tokens for hyp in after]
        assert [hyp.scores["am"] for hyp in after] == pytest.approx([hyp.scores["am"] for hyp in before])
        assert list(map(summed, after)) == pytest.approx(list(map(summed, before)))
        assert np.isfinite([hyp.scores["lm"] for hyp in after]).all()


def test_lms_go_where_the_recogniser_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """With `--device cuda` they stayed on the CPU."""
    moved: list[torch.device] = []
    monkeypatch.setattr(load, "load", lambda name: SimpleNamespace(move_to=moved.append))
    monkeypatch.setattr(load, "find_device", torch.device)  # without a look whether there is a GPU
    monkeypatch.setattr(load, "make_fusion", lambda pieces, lms, *settings: lms)
    found, said = load.read_lms(DecodeRun((), lms=("exp/a", "b=exp/c"), device="cuda"), pieces())
    assert moved == [torch.device("cuda")] * 2 and list(found) == ["a", "b"]
    assert said == "-a-lm-scale-0.3-b-lm-scale-0.3"


def test_bad_settings() -> None:
    lm = neural(vocabulary(SIZE))
    assert make_fusion(pieces(SIZE), {}) is None
    with pytest.raises(ConfigError, match="'am' is the name of another score"):
        make_fusion(pieces(SIZE), {"am": (lm, 0.5)})
    with pytest.raises(ConfigError, match="given as a positive number"):
        make_fusion(pieces(SIZE), {}, ilme_scale=-0.1)
