"""Prefix tries of token sequences, and scoring them: each distinct prefix is evaluated once.

A level of the trie is one `step` of the LM; siblings share one softmax.  `score_trie` equals `LanguageModel.score` of
every sequence on its own (the slow reference of the tests).  What stands before a sentence (its context) is a path from
the root, which all sentences behind it share.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain, pairwise

import numpy as np
import torch

from lm_zoo.base import LONGEST, Context, LanguageModel
from lm_zoo.deadline import check_time
from lm_zoo.errors import VocabError
from lm_zoo.text.vocabulary import Vocabulary

CUTS = 16  # lengths that a context is cut to, about: sentences of like lengths share one
AHEAD = 8  # tokens looked at for each prefix that may be evaluated at once


@dataclass
class Trie:
    """Prefixes of a set of token sequences, sorted by depth and then by parent; node 0 is the empty prefix.

    Attributes:
      parents: int64 `(nodes,)`, the prefix without its last token (-1 for node 0).
      tokens: int64 `(nodes,)`, the last token (-1 for node 0).
      levels: int64 `(depth + 2,)`: nodes of depth d are `levels[d] ... levels[d + 1] - 1`.
      ends: int64 `(sequences,)`, the node of each whole sequence.
      paths: int64 `(tokens,)`, the node of every token of the sequences, one sequence after the other.
      added: int64 `(sequences,)`, the nodes that no sequence before this one has.
    """

    parents: np.ndarray
    tokens: np.ndarray
    levels: np.ndarray
    ends: np.ndarray
    paths: np.ndarray
    added: np.ndarray

    @property
    def num_nodes(self) -> int:
        return len(self.parents)

    @property
    def asked(self) -> np.ndarray:
        """bool `(nodes,)`: the nodes after which a token of a sequence comes, or the end of one."""
        found = np.zeros(self.num_nodes, dtype=bool)
        found[self.parents[self.paths]] = found[self.ends] = True
        return found


@dataclass
class Encoded:
    """Sentences as tokens, one after the other.

    Attributes:
      tokens: int64 `(tokens,)`.
      lengths: int64 `(words,)`, tokens of each word, one at least.
      counts: int64 `(sentences,)`, words of each sentence.
      after: int64 `(sentences,)`, the context of each.
      contexts: the tokens of different contexts.
    """

    tokens: np.ndarray
    lengths: np.ndarray
    counts: np.ndarray
    after: np.ndarray
    contexts: list[np.ndarray]

    def __post_init__(self) -> None:
        words = _starts(self.counts)
        self.words, self.bounds = words, _starts(self.lengths)[words]

    def part(self, begin: int, end: int) -> Encoded:
        """Sentences `begin ... end - 1`."""
        words = slice(self.words[begin], self.words[end])
        tokens = self.tokens[self.bounds[begin] : self.bounds[end]]
        return Encoded(tokens, self.lengths[words], self.counts[begin:end], self.after[begin:end], self.contexts)

    def trie(self) -> Trie:
        """Of the sentences, each behind its context; what contexts add is added by the first sentence of each."""
        used, first, after = np.unique(self.after, return_index=True, return_inverse=True)
        order = np.argsort(first)
        used, first, after = used[order], first[order], np.argsort(order)[after.reshape(-1)]
        before = [self.contexts[number] for number in used.tolist()]
        made = _trie(
            np.concatenate([*before, self.tokens]),
            np.concatenate([[len(tokens) for tokens in before], np.diff(self.bounds)]).astype(np.int64),
            np.concatenate([np.full(len(used), -1), after]),
        )
        added = made.added[len(used) :]
        added[first] += made.added[: len(used)]
        paths = made.paths[sum(map(len, before)) :]
        return replace(made, ends=made.ends[len(used) :], paths=paths, added=added)

    def first(self, begin: int, nodes: int) -> tuple[Encoded, Trie]:
        """Sentences from `begin` on, one at least and while their trie has at most so many nodes; and that trie.

        The context of the first sentence, which any part would have, does not count.
        """
        most = int(np.searchsorted(self.bounds, self.bounds[begin] + AHEAD * nodes))
        part = self.part(begin, min(max(most, begin + 1), len(self.counts)))
        made = part.trie()
        counted = np.cumsum(made.added) - len(self.contexts[self.after[begin]])
        enough = max(1, int(np.searchsorted(counted, nodes, side="right")))
        if enough < len(part.counts):
            part = part.part(0, enough)
            made = part.trie()
        return part, made


def _starts(lengths: np.ndarray) -> np.ndarray:
    """Where runs of these lengths begin, and the end of the last one."""
    return np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])


def encode_words(
    vocab: Vocabulary,
    sentences: Sequence[Sequence[str]],
    contexts: Sequence[Context] | None = None,
    boundary: tuple[int, ...] = (),
    most: int = LONGEST,
) -> Encoded:
    """The tokens of every word of every sentence; each distinct word is encoded once.

    Args:
      contexts: `(sentences,)`, as in `LanguageModel.score_hypotheses`.
      boundary: tokens between two sentences.
      most: tokens that a sentence may have with its context, of which the oldest words are left out: a sentence has
        the same context, and so the same score, whatever sentences are beside it.
    """
    index_of = {word: index for index, word in enumerate(dict.fromkeys(chain.from_iterable(sentences)))}
    encoded = [vocab.encode_word(word) for word in index_of]
    sizes = np.array([len(tokens) for tokens in encoded], dtype=np.int64)
    table = np.fromiter(chain.from_iterable(encoded), np.int64)
    words = np.fromiter(map(index_of.__getitem__, chain.from_iterable(sentences)), np.int64)
    lengths = sizes[words]
    first = _starts(sizes)[words] - _starts(lengths)[:-1]  # of each word: its tokens' first index in the table
    tokens = table[np.repeat(first, lengths) + np.arange(int(lengths.sum()))]
    counts = np.array([len(sentence) for sentence in sentences], dtype=np.int64)
    alone = Encoded(tokens, lengths, counts, np.zeros_like(counts), [tokens[:0]])
    return alone if contexts is None else _behind(alone, vocab, contexts, boundary, most)


def _behind(
    alone: Encoded, vocab: Vocabulary, contexts: Sequence[Context], boundary: tuple[int, ...], most: int
) -> Encoded:
    """The sentences behind their contexts, each with as much of its own as it leaves room for, whatever the others."""
    numbers = {context: number for number, context in enumerate(dict.fromkeys(contexts))}
    whole = [context_tokens(vocab, context, boundary, most) for context in numbers]
    number = np.array([numbers[context] for context in contexts], dtype=np.int64)
    sizes = np.array([len(tokens) for tokens in whole], dtype=np.int64)[number]
    rooms = context_rooms(np.diff(alone.bounds), sizes, most)
    cuts, after = np.unique(np.stack([number, rooms]), axis=1, return_inverse=True)
    listed = list(numbers)
    before = [
        whole[which] if room == len(whole[which]) else context_tokens(vocab, listed[which], boundary, room)
        for which, room in cuts.T.tolist()
    ]
    return replace(alone, after=after.reshape(-1), contexts=before)


def context_rooms(lengths: np.ndarray, sizes: np.ndarray, most: int) -> np.ndarray:
    """How many tokens of its context each sentence reads: all, or as many as there is room for, in steps.

    So a sentence has the same context whatever sentences are beside it, and those of like lengths share theirs.

    Args:
      lengths: int64 `(sentences,)`, tokens of each.
      sizes: int64 `(sentences,)`, tokens of the context of each.
      most: tokens that a sentence may have with its context.
    """
    step, rooms = max(1, most // CUTS), np.maximum(most - lengths, 0)
    return np.where(rooms >= sizes, sizes, rooms // step * step)


def context_tokens(vocab: Vocabulary, context: Context, boundary: tuple[int, ...], most: int) -> np.ndarray:
    """The tokens of the sentences before one, `boundary` behind each; its last words, of at most `most` tokens.

    Raises:
      VocabError: a string where a sentence is wanted, whose letters would count as words.
    """
    if any(isinstance(words, str) for words in (context, *context)):
        raise VocabError(f'the text before a sentence is {context!r:.80}, expected (tuple("SHE WENT".split()), ...)')
    parts: list[tuple[int, ...]] = []  # newest first
    for words in reversed(context):
        parts += [boundary, *(vocab.encode_word(word) for word in reversed(words))]
    kept = int(np.searchsorted(np.cumsum([len(part) for part in parts]), most, side="right"))
    return np.array(list(chain.from_iterable(parts[:kept][::-1])), dtype=np.int64)


def build_trie(sequences: Iterable[Sequence[int]]) -> Trie:
    """The trie of token sequences; repeats and empty ones are allowed."""
    rows = list(sequences)
    lengths = np.array([len(row) for row in rows], dtype=np.int64)
    return _trie(np.fromiter(chain.from_iterable(rows), np.int64), lengths, np.full(len(rows), -1))


def _trie(tokens: np.ndarray, lengths: np.ndarray, after: np.ndarray) -> Trie:
    """A level at a time: the distinct pairs of the node so far and the next token are the nodes of the next level.

    Args:
      after: int64 `(sequences,)`, the sequence before each, which begins at the root itself; -1 for none.
    """
    begins = np.where(after >= 0, lengths[after], 0)
    starts, size = _starts(lengths)[:-1] - begins, int(tokens.max(initial=0)) + 1
    node = np.zeros(len(lengths), dtype=np.int64)  # of each sequence
    paths, added = np.zeros_like(tokens), np.zeros_like(lengths)
    pairs, levels = [np.zeros(1, dtype=np.int64)], [0, 1]
    left, depth, ends = np.flatnonzero((begins == 0) & (lengths > 0)), 0, begins + lengths
    while len(left):
        cells = starts[left] + depth
        distinct, first, inverse = np.unique(node[left] * size + tokens[cells], return_index=True, return_inverse=True)
        node[left] = paths[cells] = levels[-1] + inverse
        added[left] += np.bincount(first, minlength=len(left))
        pairs.append(distinct)
        levels.append(levels[-1] + len(distinct))
        depth += 1
        left = left[ends[left] > depth]
        joining = np.flatnonzero(begins == depth)
        if len(joining):  # their contexts end here
            node[joining] = node[after[joining]]
            left = np.union1d(left, joining[lengths[joining] > 0])
    parents, last = np.divmod(np.concatenate(pairs), size)
    parents[0] = last[0] = -1
    return Trie(parents, last, np.array(levels), node, paths, added)


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
        check_time()
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


def score_by_steps(
    lm: LanguageModel,
    sentences: Sequence[Sequence[str]],
    rows: int = 4096,
    contexts: Sequence[Context] | None = None,
    boundary: tuple[int, ...] = (),
    most: int = LONGEST,
) -> list[list[float]]:
    """As `lm_zoo.base.score_in_batches`, for sentences that share prefixes, such as the hypotheses of N-best lists.

    Args:
      rows: as in `score_trie`.
      contexts, boundary, most: as in `encode_words`.
    """
    words, trie = build_word_trie(lm.vocab, sentences, contexts, boundary, most)
    return sum_to_words(words, trie, *score_trie(lm, trie, rows))


def build_word_trie(
    vocab: Vocabulary,
    sentences: Sequence[Sequence[str]],
    contexts: Sequence[Context] | None = None,
    boundary: tuple[int, ...] = (),
    most: int = LONGEST,
) -> tuple[Encoded, Trie]:
    """The tokens of every word of every sentence, and the trie of the sentences' tokens; as `encode_words`."""
    words = encode_words(vocab, sentences, contexts, boundary, most)
    return words, words.trie()


def sum_to_words(words: Encoded, trie: Trie, node_scores: np.ndarray, end_scores: np.ndarray) -> list[list[float]]:
    """Scores of nodes and ends, as of `score_trie`, summed to the words of each sentence; its end last."""
    scores = node_scores[trie.paths]
    if len(scores):
        scores = np.add.reduceat(scores, _starts(words.lengths)[:-1])
    flat = np.insert(scores, words.words[1:], end_scores).tolist()
    return [flat[begin:end] for begin, end in pairwise(_starts(words.counts + 1).tolist())]
