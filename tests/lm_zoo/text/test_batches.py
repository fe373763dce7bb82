"""Batches: every token is a target exactly once, in sentences and in windows."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lm_zoo.errors import TextError
from lm_zoo.text.batches import (
    IGNORE,
    TokenText,
    carried_batches,
    join_sentences,
    pad_sentences,
    running_text,
    sentence_batches,
    split_long,
    tokenize,
    window_batches,
)
from lm_zoo.text.tokenizer import build_pieces
from lm_zoo.text.vocabulary import SOS_EOS, UNK, WordVocabulary

VOCAB = WordVocabulary([SOS_EOS, UNK, *"ABCDEFGH"])
TEXTS = st.lists(st.lists(st.sampled_from("ABCDEFGHX"), max_size=9), min_size=1, max_size=30)


def text_of(sentences: list[list[str]]) -> TokenText:
    return tokenize(VOCAB, sentences)


@settings(max_examples=50, deadline=None)
@given(TEXTS, st.integers(1, 40), st.one_of(st.none(), st.integers(0, 5)))
def test_sentence_batches(sentences: list[list[str]], budget: int, seed: int | None) -> None:
    text = text_of(sentences)
    batches = sentence_batches(text, budget, None if seed is None else np.random.default_rng(seed))
    assert sorted(np.concatenate(batches)) == list(range(len(sentences)))
    for chosen in batches:
        inputs, targets = pad_sentences(text, chosen, VOCAB)
        assert inputs.numel() <= budget or len(chosen) == 1
        for row, sentence in enumerate(chosen):
            tokens = [VOCAB.encode_word(word)[0] for word in sentences[sentence]]
            assert inputs[row, : len(tokens) + 1].tolist() == [VOCAB.bos, *tokens]
            assert targets[row, : len(tokens) + 1].tolist() == [*tokens, VOCAB.eos]
            assert (targets[row, len(tokens) + 1 :] == IGNORE).all()


@settings(max_examples=50, deadline=None)
@given(TEXTS, st.integers(1, 30), st.integers(0, 5))
def test_joined_sentences(sentences: list[list[str]], longest: int, seed: int) -> None:
    text = text_of(sentences)
    joined = join_sentences(text, VOCAB, longest, np.random.default_rng(seed))
    assert running_text(joined, VOCAB).tolist() == running_text(text, VOCAB).tolist()
    assert (joined.words, joined.unknown) == (text.words, text.unknown)
    alone = {tuple(VOCAB.encode_word(word)[0] for word in sentence) for sentence in sentences}
    for start, stop in zip(joined.offsets[:-1], joined.offsets[1:], strict=True):
        run = joined.tokens[start:stop]
        assert len(run) <= longest or tuple(run) in alone
        assert (run == VOCAB.eos).sum() == 0 or len(run) <= longest


def test_half_of_the_runs_are_single_sentences_and_all_lengths_occur() -> None:
    text = text_of([["A"] * 9] * 4000)
    joined = join_sentences(text, VOCAB, 100, np.random.default_rng(1))
    sizes = np.bincount((joined.lengths + 1) // 10)
    assert sizes[0] == 0 and len(sizes) == 11 and sizes[2:10].min() > 0.5 * sizes[2:].max()
    assert 0.5 < sizes[1] / sizes.sum() < 0.65


@settings(max_examples=50, deadline=None)
@given(TEXTS, st.integers(1, 12), st.integers(1, 4), st.one_of(st.none(), st.integers(0, 5)))
def test_windows(sentences: list[list[str]], window: int, batch: int, seed: int | None) -> None:
    text = text_of(sentences)
    stream = running_text(text, VOCAB)
    rng = None if seed is None else np.random.default_rng(seed)
    seen = []
    for inputs, targets in window_batches(text, VOCAB, window, batch, rng):
        assert inputs.shape[1] <= window
        for row in range(len(inputs)):
            wanted = targets[row][targets[row] != IGNORE].tolist()
            assert inputs[row, 1 : len(wanted)].tolist() == wanted[:-1]
            seen.append(wanted)
    assert sum(map(len, seen)) == len(stream)
    if seed is None:
        assert [token for part in seen for token in part] == stream.tolist()


@settings(max_examples=50, deadline=None)
@given(TEXTS, st.integers(1, 12), st.integers(1, 4), st.one_of(st.none(), st.integers(0, 5)))
def test_carried_windows(sentences: list[list[str]], window: int, streams: int, seed: int | None) -> None:
    text = text_of(sentences)
    rng = None if seed is None else np.random.default_rng(seed)
    batches = list(carried_batches(text, VOCAB, window, streams, rng))
    assert all(0 < inputs.shape[1] <= window for inputs, _ in batches)
    inputs, targets = (np.concatenate(parts, axis=1) for parts in zip(*batches, strict=True))
    inside = targets != IGNORE
    assert targets[inside].tolist() == running_text(text, VOCAB).tolist()
    assert (inputs[:, 1:][inside[:, 1:]] == targets[:, :-1][inside[:, 1:]]).all()


def test_cuts_of_windows_differ_from_pass_to_pass() -> None:
    text, rngs = text_of([["A"] * 9] * 4), [np.random.default_rng(seed) for seed in range(40)]
    firsts = {next(carried_batches(text, VOCAB, 4, 1, rng))[0].shape[1] for rng in rngs}
    assert firsts == {1, 2, 3, 4}
    shortest = {min(len(inputs[0]) for inputs, _ in window_batches(text, VOCAB, 4, 1, rng)) for rng in rngs}
    assert shortest == {1, 2, 4}  # of 40 tokens: 1 + 9 * 4 + 3, 2 + 9 * 4 + 2, 10 * 4


def test_runs_of_sentences_are_as_long_as_they_may_be() -> None:
    joined = join_sentences(text_of([["A"]] * 400), VOCAB, 5, np.random.default_rng(1))
    assert set(joined.lengths.tolist()) == {1, 3, 5}


def test_counts() -> None:
    text = text_of([["A", "X"], [], ["B"]])
    assert (text.words, text.unknown, text.lengths.tolist()) == (3, 1, [2, 0, 1])


def test_a_word_of_several_unknown_tokens_is_one_unknown_word() -> None:
    pieces = build_pieces({"ab": 5, "ba": 5}, 8, "bpe")
    assert list(pieces.encode_word("a€b€a")).count(pieces.unk) == 2
    assert tokenize(pieces, [["a€b€a", "ab"], ["€"]]).unknown == 2


def test_a_long_text_takes_no_more_than_its_numbers() -> None:
    """4 bytes a token and 8 a sentence, and as much again while the room for them grows."""
    sentence, count = list("ABCDEFGHXA"), 20_000
    tracemalloc.start()
    text = tokenize(VOCAB, (sentence for _ in range(count)))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(text.tokens) == 10 * count and text.unknown == count
    assert peak < 2.2 * (4 * 10 + 8) * count


def test_split_long() -> None:
    text, cut = split_long(text_of([list("ABCDEFG"), ["A"], list("ABCDEF"), list("ABC")]), 3)
    assert cut == 2
    assert text.lengths.tolist() == [3, 3, 1, 1, 3, 3, 3]


def test_no_sentence() -> None:
    with pytest.raises(TextError, match="no sentences"):
        tokenize(VOCAB, [])
