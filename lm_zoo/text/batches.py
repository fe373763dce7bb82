"""Tokenised text and its batches: sentence by sentence, or in windows over the running text."""

from __future__ import annotations

import itertools
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from lm_zoo.errors import TextError
from lm_zoo.text.vocabulary import Vocabulary

Batch = tuple[Tensor, Tensor]
IGNORE = -1
LEAST_WINDOWS = 16  # of a stream that is measured in carried windows: the first one has nothing before it


@dataclass
class TokenText:
    """Sentences as one flat array.

    Attributes:
      tokens: int32 `(tokens,)`, without begin and end of sentence.
      offsets: int64 `(sentences + 1,)`: sentence i is `tokens[offsets[i]:offsets[i + 1]]`.
      words: number of words.
      unknown: words that contain `<unk>`.
    """

    tokens: np.ndarray
    offsets: np.ndarray
    words: int
    unknown: int

    @property
    def lengths(self) -> np.ndarray:
        return np.diff(self.offsets)


def tokenize(vocab: Vocabulary, sentences: Iterable[list[str]]) -> TokenText:
    """Encodes sentences; each distinct word is looked up once."""
    cache: dict[str, tuple[int, ...]] = {}
    strange: set[str] = set()  # of these words
    tokens, ends = array("i"), array("q", [0])
    words = unknown = 0
    for sentence in sentences:
        for word in sentence:
            if word not in cache:
                cache[word] = vocab.encode_word(word)
                if vocab.unk in cache[word]:
                    strange.add(word)
            tokens.extend(cache[word])
        ends.append(len(tokens))
        words += len(sentence)
        if not strange.isdisjoint(sentence):
            unknown += sum(word in strange for word in sentence)
    if len(ends) == 1:
        raise TextError("the text has no sentences")
    return TokenText(np.frombuffer(tokens, np.int32), np.frombuffer(ends, np.int64), words, unknown)


def split_long(text: TokenText, longest: int) -> tuple[TokenText, int]:
    """Cuts sentences of more than `longest` tokens into pieces; returns the text and how many were cut."""
    lengths = text.lengths
    long = np.flatnonzero(lengths > longest)
    if not len(long):
        return text, 0
    cuts = [np.arange(text.offsets[i] + longest, text.offsets[i + 1], longest) for i in long]
    offsets = np.sort(np.concatenate([text.offsets, *cuts]))
    return TokenText(text.tokens, offsets, text.words, text.unknown), len(long)


def join_sentences(text: TokenText, vocab: Vocabulary, longest: int, rng: np.random.Generator) -> TokenText:
    """The same text, in which some sentences follow others in one: `A </s> B`, of `longest` tokens or one sentence.

    A sentence is left alone, or begins a run of any length up to `longest`, each half the time; a run ends where the
    next sentence would go beyond.  Targets are the same as before, in the same order.
    """
    ends = text.offsets[1:] + np.arange(1, len(text.offsets))  # of the sentences in the running text, with their </s>
    limits = rng.integers(1, longest + 1, len(ends)) * rng.integers(0, 2, len(ends))
    last: list[int] = []  # sentences of the runs
    start = 0
    while start < len(ends):
        begin = ends[start - 1] if start else 0
        stop = int(np.searchsorted(ends, begin + limits[start] + 1, side="right"))
        start = max(start + 1, stop)
        last.append(start - 1)
    stops = ends[last] - 1  # of the runs, the </s> of their last sentences left out
    tokens = np.delete(running_text(text, vocab).astype(np.int32), stops)
    return TokenText(tokens, np.concatenate([[0], stops - np.arange(len(stops))]), text.words, text.unknown)


def sentence_batches(text: TokenText, batch_tokens: int, rng: np.random.Generator | None) -> list[np.ndarray]:
    """Sentence numbers of each batch; a padded batch holds at most `batch_tokens` tokens (one sentence at least).

    With `rng` the order is random: sentences are shuffled, then sorted by length within pools, and the batches
    shuffled.  Without it they run from short to long.
    """
    lengths = text.lengths + 1
    order = np.arange(len(lengths)) if rng is None else rng.permutation(len(lengths))
    pool = len(order) if rng is None else 1 << 16
    batches: list[np.ndarray] = []
    for begin in range(0, len(order), pool):
        part = order[begin : begin + pool]
        part = part[np.argsort(lengths[part], kind="stable")]
        start = 0
        while start < len(part):
            stop = start + 1
            while stop < len(part) and lengths[part[stop]] * (stop + 1 - start) <= batch_tokens:
                stop += 1
            batches.append(part[start:stop])
            start = stop
    if rng is not None:
        batches = [batches[i] for i in rng.permutation(len(batches))]
    return batches


def pad_sentences(text: TokenText, chosen: np.ndarray, vocab: Vocabulary) -> Batch:
    """Inputs (begin first) and targets (end last, IGNORE after it), both int64 (batch, time)."""
    begins = text.offsets[chosen]
    lengths = text.offsets[chosen + 1] - begins
    position = np.arange(lengths.max() + 1)
    inside = position < lengths[:, None]
    inputs = np.full((len(chosen), len(position)), vocab.eos, dtype=np.int64)
    targets = np.full(inputs.shape, IGNORE, dtype=np.int64)
    targets[inside] = text.tokens[(begins[:, None] + position)[inside]]
    inputs[:, 1:][inside[:, :-1]] = targets[inside]
    inputs[:, 0] = vocab.bos
    targets[np.arange(len(chosen)), lengths] = vocab.eos
    return torch.from_numpy(inputs), torch.from_numpy(targets)


def running_text(text: TokenText, vocab: Vocabulary) -> np.ndarray:
    """The sentences one after another, each followed by its end: int64 (tokens + sentences,)."""
    return np.insert(text.tokens.astype(np.int64), text.offsets[1:], vocab.eos)


def streams_of(text: TokenText, window: int, most: int) -> int:
    """How many streams a text is measured in where windows are carried: `most`, or fewer of a short one."""
    return min(most, max(1, len(text.tokens) // (LEAST_WINDOWS * window)))


def carried_batches(
    text: TokenText, vocab: Vocabulary, window: int, streams: int, rng: np.random.Generator | None
) -> Iterator[Batch]:
    """The running text cut into `streams` equal parts side by side, read in windows of `window` targets.

    A row of a batch goes on where the same row of the batch before ended; every token is a target once.  With `rng`
    the first window is shortened at random.
    """
    stream = np.concatenate([[vocab.eos], running_text(text, vocab)])
    long = -(-(len(stream) - 1) // streams)
    places = np.arange(streams)[:, None] * long + np.arange(long + 1)  # (streams, long + 1), into the stream
    inside = places < len(stream)
    rows = np.where(inside, stream[np.minimum(places, len(stream) - 1)], vocab.eos)
    targets = np.where(inside, rows, IGNORE)
    first = window if rng is None else int(rng.integers(1, window + 1))
    cuts = [0, *range(first, long, window), long]
    for start, stop in itertools.pairwise(cuts):
        yield torch.from_numpy(rows[:, start:stop].copy()), torch.from_numpy(targets[:, start + 1 : stop + 1].copy())


def window_batches(
    text: TokenText, vocab: Vocabulary, window: int, batch: int, rng: np.random.Generator | None
) -> Iterator[Batch]:
    """Windows of `window` targets over the running text, `batch` of them at a time; every token is a target once.

    The token before the text is the sentence end.  With `rng` the first window is shortened at random, so that
    the cuts differ from epoch to epoch, and the windows come in random order.
    """
    stream = np.concatenate([[vocab.eos], running_text(text, vocab)])
    first = window if rng is None else int(rng.integers(1, window + 1))
    starts = np.concatenate([[0], np.arange(first, len(stream) - 1, window)])
    stops = np.append(starts[1:], len(stream) - 1)
    order = np.arange(len(starts)) if rng is None else rng.permutation(len(starts))
    for begin in range(0, len(order), batch):
        chosen = order[begin : begin + batch]
        width = int((stops[chosen] - starts[chosen]).max())
        inputs = np.full((len(chosen), width), vocab.eos, dtype=np.int64)
        targets = np.full(inputs.shape, IGNORE, dtype=np.int64)
        for row, (start, stop) in enumerate(zip(starts[chosen], stops[chosen], strict=True)):
            inputs[row, : stop - start] = stream[start:stop]
            targets[row, : stop - start] = stream[start + 1 : stop + 1]
        yield torch.from_numpy(inputs), torch.from_numpy(targets)


def with_tokens_behind(tokens: Tensor, batch: Batch) -> Batch:
    """A window with the tokens `(batch, tokens)` before it, which are no targets."""
    inputs, targets = batch
    tokens = tokens.to(inputs.device)
    return torch.cat([tokens, inputs], 1), torch.cat([torch.full_like(tokens, IGNORE), targets], 1)
