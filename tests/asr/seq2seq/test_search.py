"""Searches of an encoder-decoder against slow ones without caches, and against all texts there are."""

from __future__ import annotations

import itertools
import math
import re
from pathlib import Path

import numpy as np
import pytest

from asr.dataset.features import SAMPLE_RATE
from asr.decoding.options import BEAM
from asr.decoding.written import WrittenDecoder
from asr.seq2seq.lists import WrittenText, distinct, without_fragments
from asr.seq2seq.models import Recogniser
from asr.seq2seq.search import Ended, SearchOptions, WordKeys, beam_search, best_tokens, greedy_search, log_sum
from asr.seq2seq.session import EncodedSpeech
from asr.seq2seq.tokens import text_of
from lm_zoo.text.normalise import normalise

pytest.importorskip("onnxruntime")
pytest.importorskip("onnx")

import torch

from tests.asr.seq2seq.tiny_onnx import recogniser, speech

BASIC = normalise("basic")


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Recogniser:
    return recogniser(tmp_path_factory.mktemp("tiny"))


def next_log_probs(tiny: Recogniser, encoded: EncodedSpeech, tokens: tuple[int, ...]) -> np.ndarray:
    """float64 `(vocabulary,)` after the prompt and these tokens, without caches."""
    ids = np.array([(*tiny.tokens.prompt, *tokens)], dtype=np.int64)
    return torch.from_numpy(tiny.model.logits(encoded, ids)[0, -1]).double().log_softmax(0).numpy()


def _words(keys: list[str], tokens: tuple[int, ...]) -> str:
    return re.sub(" +", " ", "".join(keys[token] for token in tokens))


def slow_search(tiny: Recogniser, encoded: EncodedSpeech, options: SearchOptions, limit: int) -> list[Ended]:
    """The search that `asr.seq2seq.search` states, one utterance, each prefix anew at each step."""
    keys = WordKeys(tiny.tokens, BASIC).pieces
    usable = {tiny.tokens.end, *np.flatnonzero(tiny.tokens.allowed).tolist()}
    alive: dict[tuple[int, ...], float] = {(): 0.0}
    finished: list[Ended] = []
    for length in itertools.count(1):
        if not alive:
            return sorted(finished, key=lambda one: -one.score)
        after = {tokens: next_log_probs(tiny, encoded, tokens) for tokens in alive}
        if length > limit:
            ends = [Ended(tokens, alive[tokens] + after[tokens][tiny.tokens.end], True) for tokens in alive]
            return sorted(finished + ends, key=lambda one: -one.score)
        grown = [
            (alive[tokens] + after[tokens][token], tokens, int(token))
            for tokens in alive
            for token in [one for one in np.argsort(-after[tokens]) if one in usable][: options.branch]
        ]
        grown = sorted(grown, key=lambda item: -item[0])[: 4 * options.rows]
        for score, tokens, token in grown:
            others = np.delete(after[tokens], [tiny.tokens.end, *np.flatnonzero(~tiny.tokens.allowed)])
            if token == tiny.tokens.end and after[tokens][token] >= others.max() - options.end_margin:
                finished.append(Ended(tokens, score, False))
        groups: dict[str, list[tuple[float, tuple[int, ...]]]] = {}
        for score, tokens, token in grown:
            if tiny.tokens.allowed[token]:
                groups.setdefault(_words(keys, (*tokens, token)), []).append((score, (*tokens, token)))
        sums: dict[str, list[float]] = {}
        for one in finished:
            sums.setdefault(BASIC(text_of(tiny.tokens, one.tokens)), []).append(one.score)
        best = sorted((log_sum(scores) for scores in sums.values()), reverse=True)
        lowest = best[options.beam - 1] if len(best) >= options.beam else -math.inf
        ranked = sorted(groups.values(), key=lambda group: -log_sum([score for score, _ in group]))
        ranked = [group for group in ranked[: options.beam] if log_sum([score for score, _ in group]) > lowest]
        others = sorted((item for group in ranked for item in group[1:]), key=lambda item: -item[0])
        kept = [group[0] for group in ranked] + others[: options.rows - len(ranked)]
        alive = {tokens: score for score, tokens in kept}
    raise AssertionError("unreachable")


def assert_same(found: list[Ended], expected: list[Ended]) -> None:
    assert [(one.tokens, one.cut) for one in found] == [(one.tokens, one.cut) for one in expected]
    assert [one.score for one in found] == pytest.approx([one.score for one in expected], abs=1e-4)


@pytest.mark.parametrize("end_margin", [math.inf, 1.0])
@pytest.mark.parametrize(("beam", "rows", "branch"), [(1, 1, 4), (4, 6, 5), (8, 12, 12), (6, 6, 3)])
def test_the_beam_search_is_the_slow_one(
    tiny: Recogniser, beam: int, rows: int, branch: int, end_margin: float
) -> None:
    options = SearchOptions(beam, rows, branch, end_margin, tokens_per_second=50.0, spare=2)
    for seed, frames in enumerate((7, 12, 20)):
        encoded = tiny.model.encode(tiny.tokens.features([speech(frames, seed)]))
        found = beam_search(tiny.model, tiny.tokens, encoded, [frames / 100], WordKeys(tiny.tokens, BASIC), options)
        assert_same(found[0], slow_search(tiny, encoded, options, options.limit(frames / 100)))


def test_no_text_ends_where_another_token_is_far_more_probable(tiny: Recogniser) -> None:
    encoded, keys = tiny.model.encode(tiny.tokens.features([speech(20)])), WordKeys(tiny.tokens, BASIC)
    short = dict[float, int]()
    for margin in (math.inf, 0.5):
        options = SearchOptions(8, 12, 12, end_margin=margin, tokens_per_second=40.0)
        found = beam_search(tiny.model, tiny.tokens, encoded, [0.2], keys, options)[0]
        after = {one.tokens: next_log_probs(tiny, encoded, one.tokens) for one in found if not one.cut}
        barred = [tiny.tokens.end, *np.flatnonzero(~tiny.tokens.allowed)]
        margins = [values[tiny.tokens.end] - np.delete(values, barred).max() for values in after.values()]
        short[margin] = sum(value < -0.5 for value in margins)
    assert short[math.inf] > 0 == short[0.5]


def test_several_utterances_are_searched_at_once(tiny: Recogniser) -> None:
    options, lengths = SearchOptions(5, 8, 6, tokens_per_second=40.0), (20, 7, 12)
    audio = [speech(frames, seed) for seed, frames in enumerate(lengths)]
    encoded, seconds = tiny.model.encode(tiny.tokens.features(audio)), [frames / 100 for frames in lengths]
    keys = WordKeys(tiny.tokens, BASIC)
    together = beam_search(tiny.model, tiny.tokens, encoded, seconds, keys, options)
    greedy = greedy_search(tiny.model, tiny.tokens, encoded, seconds, options)
    for number, samples in enumerate(audio):
        alone = tiny.model.encode(tiny.tokens.features([samples]))
        length = seconds[number : number + 1]
        assert_same(together[number], beam_search(tiny.model, tiny.tokens, alone, length, keys, options)[0])
        assert_same([greedy[number]], greedy_search(tiny.model, tiny.tokens, alone, length, options))


def test_the_greedy_search_takes_the_best_token(tiny: Recogniser) -> None:
    options = SearchOptions(tokens_per_second=30.0)
    encoded = tiny.model.encode(tiny.tokens.features([speech(20)]))
    tokens, score, limit = list[int](), 0.0, options.limit(0.2)
    while True:
        after = next_log_probs(tiny, encoded, tuple(tokens))
        usable = np.where(tiny.tokens.allowed, after, -np.inf)
        usable[tiny.tokens.end] = after[tiny.tokens.end]
        best = tiny.tokens.end if len(tokens) == limit else int(usable.argmax())
        score += after[best]
        if best == tiny.tokens.end:
            break
        tokens.append(best)
    found = greedy_search(tiny.model, tiny.tokens, encoded, [0.2], options)
    assert_same(found, [Ended(tuple(tokens), score, len(tokens) == limit)])


def test_am_is_the_probability_of_all_ways_to_write_the_words(tmp_path: Path) -> None:
    """A beam that holds everything, against all token sequences of at most three tokens."""
    tiny = recogniser(tmp_path, seed=5)
    encoded = tiny.model.encode(tiny.tokens.features([speech(9)]))
    vocabulary = np.flatnonzero(tiny.tokens.allowed).tolist()
    sums: dict[str, list[float]] = {}
    before: dict[tuple[int, ...], float] = {(): 0.0}
    for _ in range(4):
        grown = {}
        for tokens, score in before.items():
            after = next_log_probs(tiny, encoded, tokens)
            sums.setdefault(BASIC(text_of(tiny.tokens, tokens)), []).append(score + after[tiny.tokens.end])
            grown |= {(*tokens, token): score + after[token] for token in vocabulary}
        before = grown
    options = SearchOptions(beam=10**4, rows=10**4, branch=12, end_margin=math.inf, tokens_per_second=0.0, spare=3)
    found = beam_search(tiny.model, tiny.tokens, encoded, [1.0], WordKeys(tiny.tokens, BASIC), options)[0]
    hyps = distinct(found, lambda ids: text_of(tiny.tokens, ids), BASIC)[:50]
    expected = sorted((log_sum(scores) for scores in sums.values()), reverse=True)[:50]
    assert [hyp.am for hyp in hyps] == pytest.approx(expected, abs=1e-4)
    assert len({BASIC(hyp.text) for hyp in hyps}) == 50
    for hyp in hyps[:10]:
        writings = [one for one in found if BASIC(text_of(tiny.tokens, one.tokens)) == BASIC(hyp.text)]
        assert hyp.tokens == writings[0].tokens, "as its most probable writing has it"
        assert hyp.cut == (len(hyp.tokens) == 3)


def test_a_list_has_as_many_different_texts_as_asked_for(tiny: Recogniser) -> None:
    options = SearchOptions(beam=10, rows=15, branch=12, tokens_per_second=40.0)
    encoded = tiny.model.encode(tiny.tokens.features([speech(20)]))
    found = beam_search(tiny.model, tiny.tokens, encoded, [0.2], WordKeys(tiny.tokens, BASIC), options)[0]
    hyps = distinct(found, lambda ids: text_of(tiny.tokens, ids), BASIC)[:10]
    assert len({BASIC(hyp.text) for hyp in hyps}) == 10
    assert [hyp.am for hyp in hyps] == sorted((hyp.am for hyp in hyps), reverse=True)


def test_the_greedy_search_takes_no_token_that_text_may_not_have(
    tiny: Recogniser, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = SearchOptions(tokens_per_second=30.0)
    encoded = tiny.model.encode(tiny.tokens.features([speech(20)]))
    banned = int(next_log_probs(tiny, encoded, ()).argmax())
    allowed = tiny.tokens.allowed.copy()
    allowed[banned] = False
    monkeypatch.setattr(tiny.tokens, "allowed", allowed)
    (found,) = greedy_search(tiny.model, tiny.tokens, encoded, [0.2], options)
    score, may = 0.0, np.flatnonzero(allowed)
    for place, token in enumerate((*found.tokens, *(() if found.cut else (tiny.tokens.end,)))):
        after = next_log_probs(tiny, encoded, found.tokens[:place])
        assert token == max([*may, tiny.tokens.end], key=lambda one: after[one])
        score += after[token]
    score += next_log_probs(tiny, encoded, found.tokens)[tiny.tokens.end] if found.cut else 0.0
    assert banned != tiny.tokens.end and found.tokens and found.score == pytest.approx(score, abs=1e-4)


@pytest.mark.parametrize("beam", [1, 4])
def test_tokens_that_text_may_not_have_take_no_place_in_the_beam(
    tiny: Recogniser, monkeypatch: pytest.MonkeyPatch, beam: int
) -> None:
    """The most probable four are barred: those behind them, and the end, are still found."""
    options = SearchOptions(beam, beam, 3, tokens_per_second=30.0)
    encoded, keys = tiny.model.encode(tiny.tokens.features([speech(20)])), WordKeys(tiny.tokens, BASIC)
    allowed = tiny.tokens.allowed.copy()
    best = [token for token in np.argsort(-next_log_probs(tiny, encoded, ())) if token != tiny.tokens.end]
    allowed[best[:4]] = False
    monkeypatch.setattr(tiny.tokens, "allowed", allowed)
    (found,) = beam_search(tiny.model, tiny.tokens, encoded, [0.2], keys, options)
    assert_same(found, slow_search(tiny, encoded, options, options.limit(0.2)))
    assert found and not {int(token) for one in found for token in one.tokens} & set(map(int, best[:4]))


def test_fragments_are_no_hypotheses() -> None:
    texts = ["the law of the land is old.", "the law of land is old.", "the law.", "the law of the", "the law of th"]
    hyps = [WrittenText(text, (), -float(rank), -float(rank), False) for rank, text in enumerate(texts)]
    kept = [hyp.text for hyp in without_fragments(hyps)]
    assert kept == [texts[0], texts[1], texts[3]], "14 of 27 letters are enough"
    assert without_fragments(hyps[2:]) == hyps[2:], "the first alone says how long a text is"
    assert without_fragments([]) == []


def test_best_tokens_by_blocks_are_those_of_all() -> None:
    logits = torch.randn(5, 4096, generator=torch.Generator().manual_seed(1))
    values, chosen, ends = best_tokens(logits.clone(), 7, 9)
    expected, places = logits.double().log_softmax(1).topk(7, dim=1)
    assert (chosen == places.numpy()).all()
    assert values == pytest.approx(expected.numpy(), abs=1e-5)
    assert ends == pytest.approx(logits.double().log_softmax(1)[:, 9].numpy(), abs=1e-5)


def test_words_of_pieces(tiny: Recogniser) -> None:
    assert WordKeys(tiny.tokens, BASIC).pieces[3:11] == [" a", " a", " b", "", "c", "'s", " ", ""]


def test_audio_of_less_than_a_tenth_of_a_second_is_followed_by_silence(
    tiny: Recogniser, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Moonshine's encoder takes no fewer than 900 samples."""
    seen: list[int] = []
    features = tiny.tokens.features

    def watched(audio: list[np.ndarray]) -> np.ndarray:
        seen.extend(map(len, audio))
        return features([speech(20)])

    decoder = WrittenDecoder(tiny, BEAM, 4, BASIC)
    monkeypatch.setattr(tiny.tokens, "features", watched)
    assert decoder(np.zeros(100, dtype=np.float32)) and decoder(np.zeros(5000, dtype=np.float32))
    assert seen == [SAMPLE_RATE // 10, 5000]
