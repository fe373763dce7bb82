"""Prefix tries of token sequences, and scoring them: each distinct prefix is evaluated once.

A level of the trie is one `step` of the LM; siblings share one softmax.  `score_trie` equals `LanguageModel.score` of
every sequence on its own (the slow reference of the tests).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch

from lm_zoo.base import LanguageModel, Vocabulary


@dataclass
class Trie:
    """Prefixes of a set of token sequences, sorted by depth and then by parent; node 0 is the empty prefix.

    Attributes:
      parents: int64 `(nodes,)`, the prefix without its last token (-1 for node 0).
      tokens: int64 `(nodes,)`, the last token (-1 for node 0).
      levels: int64 `(depth + 2,)`: nodes of depth d are `levels[d] ... levels[d + 1] - 1`.
      ends: int64 `(sequences,)`, the node of each whole sequence.
    """

    parents: np.ndarray
    tokens: np.ndarray
    levels: np.ndarray
    ends: np.ndarray

    @property
    def num_nodes(self) -> int:
        return len(self.parents)


def build_trie(sequences: Iterable[Sequence[int]], most: int | None = None) -> Trie:
    """The trie of token sequences (repeats and empty ones allowed), or of the first ones where it has `most` nodes."""
    children: dict[tuple[int, int], int] = {}
    parents, tokens, depths, ends = [-1], [-1], [0], []
    for sequence in sequences:
        node = 0
        for token in sequence:
            child = children.get((node, token))
            if child is None:
                child = len(parents)
                children[node, token] = child
                parents.append(node)
                tokens.append(token)
                depths.append(depths[node] + 1)
            node = child
        ends.append(node)
        if most is not None and len(parents) >= most:
            break
    return _sorted_trie(np.array(parents), np.array(tokens), np.array(depths), np.array(ends, dtype=np.int64))


def _sorted_trie(parents: np.ndarray, tokens: np.ndarray, depths: np.ndarray, ends: np.ndarray) -> Trie:
    """Numbers the nodes by depth, then by parent, so that the children of neighbours are neighbours."""
    levels = np.searchsorted(np.sort(depths), np.arange(depths.max() + 2))
    order = np.argsort(depths, kind="stable")
    rank = np.zeros_like(order)
    for begin, end in pairwise(levels[1:]):
        level = order[begin:end]
        order[begin:end] = level[np.argsort(rank[parents[level]], kind="stable")]
        rank[order[begin:end]] = np.arange(begin, end)
    sorted_parents = rank[parents[order]]
    sorted_parents[0] = -1
    return Trie(sorted_parents, tokens[order], levels, rank[ends])


@torch.no_grad()
def score_trie(lm: LanguageModel, trie: Trie, rows: int = 4096) -> tuple[np.ndarray, np.ndarray]:
    """Log-probabilities of every node and of the sentence end after every sequence.

    Args:
      rows: at most so many nodes are stepped at once, which bounds memory.
    Returns:
      float64 `(nodes,)`: `log p(token | prefix)` of each node (0 for node 0); float64 `(sequences,)`: the log
      probability of each sequence's end.
    """
    node_scores = np.zeros(trie.num_nodes)
    end_scores = np.zeros(trie.num_nodes)
    is_end = np.zeros(trie.num_nodes, dtype=bool)
    is_end[trie.ends] = True
    # A block is a state whose nodes are the trie's nodes `start ... stop - 1`, all of one depth.
    blocks = [(0, 1, lm.initial_state(), np.zeros(1, dtype=np.int64), np.array([lm.vocab.bos]))]
    while blocks:
        start, stop, state, parents, tokens = blocks.pop()
        state, rows_out = lm.step(state, torch.from_numpy(parents), torch.from_numpy(tokens))
        first, last = _children(trie, start, stop)
        row = trie.parents[first:last] - start
        node_scores[first:last] = _pick(rows_out, row, trie.tokens[first:last])
        ending = np.flatnonzero(is_end[start:stop])
        end_scores[start + ending] = _pick(rows_out, ending, np.full(len(ending), lm.vocab.eos))
        for begin in range(first, last, rows):
            end = min(begin + rows, last)
            blocks.append((begin, end, state, trie.parents[begin:end] - start, trie.tokens[begin:end]))
    return node_scores, end_scores[trie.ends]


def _children(trie: Trie, start: int, stop: int) -> tuple[int, int]:
    """The nodes whose parents are `start ... stop - 1`; they stand together, as parents do not fall."""
    first, last = np.searchsorted(trie.parents, [start, stop])
    return max(int(first), 1), max(int(last), 1)


def _pick(rows: torch.Tensor, row: np.ndarray, token: np.ndarray) -> np.ndarray:
    picked = rows[torch.from_numpy(row).to(rows.device), torch.from_numpy(token).to(rows.device)]
    return picked.double().cpu().numpy()


def sequence_scores(trie: Trie, node_scores: np.ndarray, end_scores: np.ndarray) -> np.ndarray:
    """Log-probability of each whole sequence, its end included: float64 `(sequences,)`."""
    totals = node_scores.copy()
    for depth in range(1, len(trie.levels) - 1):
        level = slice(trie.levels[depth], trie.levels[depth + 1])
        totals[level] += totals[trie.parents[level]]
    return totals[trie.ends] + end_scores


def score_words(lm: LanguageModel, sentences: Sequence[Sequence[str]], rows: int = 4096) -> list[list[float]]:
    """As `lm_zoo.base.score_words`, for sentences that share prefixes, such as the hypotheses of N-best lists.

    Args:
      rows: as in `score_trie`.
    """
    words, trie = build_word_trie(lm.vocab, sentences)
    return sum_to_words(words, trie, *score_trie(lm, trie, rows))


def build_word_trie(vocab: Vocabulary, sentences: Sequence[Sequence[str]]) -> tuple[list[list[tuple[int, ...]]], Trie]:
    """The tokens of every word of every sentence, and the trie of the sentences' tokens."""
    words = [[vocab.encode_word(word) for word in sentence] for sentence in sentences]
    return words, build_trie([token for word in sentence for token in word] for sentence in words)


def sum_to_words(
    words: list[list[tuple[int, ...]]], trie: Trie, node_scores: np.ndarray, end_scores: np.ndarray
) -> list[list[float]]:
    """Scores of nodes and ends, as of `score_trie`, summed to the words of each sentence; its end last."""
    result = []
    for row, sentence in enumerate(words):
        path = _path_scores(trie, node_scores, trie.ends[row])
        scores, start = [], 0
        for word in sentence:
            scores.append(sum(path[start : start + len(word)]))
            start += len(word)
        result.append([*scores, float(end_scores[row])])
    return result


def _path_scores(trie: Trie, node_scores: np.ndarray, node: int) -> list[float]:
    scores = []
    while node:
        scores.append(float(node_scores[node]))
        node = trie.parents[node]
    return scores[::-1]
