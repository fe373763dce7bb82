"""Tries and sums to words in numpy against the plain way, and how many prefixes go into one evaluation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lm_zoo.inference import memory as budget
from lm_zoo.inference.limits import FITS
from lm_zoo.inference.memory import score_in_parts
from lm_zoo.inference.trie import Trie, build_trie, build_word_trie, encode_words, sum_to_words
from lm_zoo.text.vocabulary import SOS_EOS, UNK, WordVocabulary
from tests.lm_zoo import zoo

WORDS = ["A", "BB", "CCC", "DD", "E"]
SENTENCES = st.lists(st.lists(st.sampled_from(WORDS), max_size=8), max_size=20)


class Spelling:
    """A vocabulary whose tokens are the letters of a word and its length."""

    def encode_word(self, word: str) -> tuple[int, ...]:
        return (*(ord(letter) for letter in word), len(word))


def prefix(trie: Trie, node: int) -> tuple[int, ...]:
    tokens: list[int] = []
    while node:
        tokens.append(int(trie.tokens[node]))
        node = int(trie.parents[node])
    return tuple(tokens[::-1])


def plain_sums(vocab: Any, sentences: Sequence[Sequence[str]], trie: Trie, nodes: Any, ends: Any) -> list[list[float]]:
    """The scores of each sentence by walking up from its end."""
    result = []
    for sentence, end, last in zip(sentences, trie.ends.tolist(), ends, strict=True):
        path = []
        while end:
            path.append(float(nodes[end]))
            end = int(trie.parents[end])
        scores = []
        for word in sentence:
            scores.append(sum(path.pop() for _ in vocab.encode_word(word)))
        result.append([*scores, float(last)])
    return result


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(st.integers(0, 4), max_size=7), max_size=25))
def test_nodes_are_the_distinct_prefixes(sequences: list[list[int]]) -> None:
    trie = build_trie(sequences)
    found = [prefix(trie, node) for node in range(trie.num_nodes)]
    expected = {tuple(sequence[:end]) for sequence in sequences for end in range(len(sequence) + 1)} | {()}
    assert len(found) == len(expected) and set(found) == expected
    assert (trie.parents[0], trie.tokens[0]) == (-1, -1)
    assert (np.diff(trie.parents) >= 0).all()
    depths = np.repeat(np.arange(len(trie.levels) - 1), np.diff(trie.levels))
    assert depths.tolist() == [len(tokens) for tokens in found]
    assert [found[end] for end in trie.ends] == [tuple(sequence) for sequence in sequences]
    every = [tuple(sequence[: end + 1]) for sequence in sequences for end in range(len(sequence))]
    assert [found[node] for node in trie.paths] == every
    seen: set[tuple[int, ...]] = set()
    for sequence, added in zip(sequences, trie.added, strict=True):
        new = {tuple(sequence[: end + 1]) for end in range(len(sequence))} - seen
        assert len(new) == added
        seen |= new


@settings(max_examples=60, deadline=None)
@given(SENTENCES, st.integers(0, 100))
def test_sums_to_words(sentences: list[list[str]], seed: int) -> None:
    vocab: Any = Spelling()
    words, trie = build_word_trie(vocab, sentences)
    rng = np.random.default_rng(seed)
    nodes, ends = rng.normal(size=trie.num_nodes), rng.normal(size=len(sentences))
    expected = plain_sums(vocab, sentences, trie, nodes, ends)
    for got, wanted in zip(sum_to_words(words, trie, nodes, ends), expected, strict=True):
        assert got == pytest.approx(wanted)


@settings(max_examples=60, deadline=None)
@given(SENTENCES.filter(bool), st.integers(1, 30))
def test_parts_are_all_sentences_in_order(sentences: list[list[str]], nodes: int) -> None:
    words = encode_words(WordVocabulary([SOS_EOS, UNK, *WORDS]), sentences)
    begin, tokens = 0, []
    while begin < len(sentences):
        part, trie = words.first(begin, nodes)
        end = begin + len(part.counts)
        assert end > begin
        assert part.counts.tolist() == [len(sentence) for sentence in sentences[begin:end]]
        assert trie.num_nodes <= nodes + 1 or end == begin + 1
        begin, tokens = end, [*tokens, *part.tokens.tolist()]
    assert tokens == words.tokens.tolist()


def many(count: int) -> list[tuple[str, ...]]:
    rng = np.random.default_rng(7)
    return [tuple(rng.choice(["A", "B", "C"], rng.integers(0, 7))) for _ in range(count)]


def test_what_fitted_is_kept() -> None:
    lm, sizes = zoo.neural("lstm"), list[int]()

    def little_memory(lm: Any, trie: Trie) -> Any:
        sizes.append(trie.num_nodes)
        if trie.num_nodes > 30:
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes.")
        return np.zeros(trie.num_nodes), np.zeros(len(trie.ends))

    assert FITS.get(lm) is None
    assert len(score_in_parts(lm, many(50), little_memory, 1000)) == 50
    fits = FITS.get(lm)
    assert fits is not None and fits <= 30
    sizes.clear()
    assert len(score_in_parts(lm, many(50), little_memory, 1000)) == 50
    assert max(sizes) <= 30 or FITS.get(lm) != fits


def test_parts_suit_the_free_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    lm, sizes = zoo.neural("lstm"), list[int]()

    def score(lm: Any, trie: Trie) -> Any:
        sizes.append(trie.num_nodes)
        return np.zeros(trie.num_nodes), np.zeros(len(trie.ends))

    score_in_parts(lm, many(200), score, 1000)
    assert len(sizes) == 1 and sizes[0] > 100
    monkeypatch.setattr(budget, "free_memory", lambda device: 100_000.0)
    assert budget.room(lm) < 100
    sizes.clear()
    score_in_parts(lm, many(200), score, 1000)
    assert len(sizes) > 1 and max(sizes) <= budget.room(lm) + 8
    assert FITS.get(lm) is None
