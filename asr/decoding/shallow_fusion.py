"""LMs that take part in the beam search: shallow fusion and the subtraction of the internal LM.

The search maximises `am + alignments + sum_k scale_k * score_k`; every score is kept by name.  A scorer adds to each
next token of a prefix: an LM over the recogniser's own pieces token by token, any other LM of the zoo when a word is
complete, that is, when the next piece begins a word or the utterance ends.  What is subtracted has a negative scale:

  - the internal LM as ILME estimates it (Meng et al., "Internal language model estimation for domain-adaptive
    end-to-end speech recognition", SLT 2021, Section 3.2): the joiner's output without the blank for an encoder output
    of zeros;
  - a token n-gram of low order instead (Zheng et al., "An empirical study of language model integration for
    transducer based speech recognition", Interspeech 2022: low-order density ratio).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch
from torch import Tensor

from asr.decoding.prefixes import ALIGNMENTS, BLANK, Pieces, Prefixes
from asr.errors import ConfigError
from lm_zoo import base
from lm_zoo.base import LanguageModel
from lm_zoo.inference.history_cache import ROOT, Histories
from lm_zoo.inference.viewed import view_of
from lm_zoo.text.vocabulary import PieceVocabulary, same_tokens

if TYPE_CHECKING:
    from asr.model.transducer import Transducer

ILM, LODR = "ilm", "lodr"
WORDS = "words"  # the number of words, as in N-best lists


class FusionScorer(Protocol):
    """Scores of next tokens; nodes are those of `Prefixes`, all values natural logs."""

    def start(self, prefixes: Prefixes, model: Transducer) -> None:
        """A new batch begins."""

    def rows(self, nodes: Sequence[int], predicted: Tensor) -> np.ndarray:
        """float32 `(nodes, vocab)`: what each next token adds to the score; 0 for the blank.

        Args:
          predicted: float `(nodes, joiner_dim)`, the decoder's projected output.
        """

    def end(self, node: int) -> float:
        """What the end of the utterance adds."""

    def keep(self, nodes: Sequence[int]) -> None:
        """Nothing but these nodes, and what grows from them, will be asked for."""


class Fusion:
    """Several scorers with their names and scales."""

    def __init__(self, scorers: dict[str, tuple[FusionScorer, float]]) -> None:
        self.scorers = scorers

    @property
    def may_add(self) -> bool:
        """Whether a prefix may gain by its next token: log-probabilities are subtracted, or words rewarded."""
        return any(scale > 0 if name == WORDS else scale < 0 for name, (_, scale) in self.scorers.items())

    def start(self, prefixes: Prefixes, model: Transducer) -> None:
        self.prefixes = prefixes
        self._scores: dict[int, tuple[float, ...]] = {0: (0.0,) * len(self.scorers)}  # of a prefix, without its end
        self._rows: dict[int, tuple[np.ndarray, ...]] = {}
        self._sums: dict[int, Tensor] = {}
        for scorer, _ in self.scorers.values():
            scorer.start(prefixes, model)

    def rows(self, nodes: Sequence[int], predicted: Tensor) -> Tensor:
        """float32 `(nodes, vocab)`, on the device of `predicted`: the scaled sum of what each next token adds."""
        new = {node: place for place, node in enumerate(nodes) if node not in self._sums}
        if new:
            places = torch.tensor(list(new.values()), device=predicted.device)
            columns = [scorer.rows(list(new), predicted[places]) for scorer, _ in self.scorers.values()]
            scales = [scale for _, scale in self.scorers.values()]
            total = sum(scale * column for scale, column in zip(scales, columns, strict=True) if scale)
            for place, node in enumerate(new):
                self._rows[node] = tuple(column[place] for column in columns)
                row = total[place] if isinstance(total, np.ndarray) else np.zeros_like(columns[0][place])
                self._sums[node] = torch.from_numpy(row)
        return torch.stack([self._sums[node] for node in nodes]).to(predicted.device)

    def scores(self, node: int) -> tuple[float, ...]:
        """The score of a prefix under each scorer, the end left out; its parent must have been asked for `rows`."""
        if node not in self._scores:
            parent, token = self.prefixes.parent[node], self.prefixes.token[node]
            added = (float(row[token]) for row in self._rows[parent])
            self._scores[node] = tuple(a + b for a, b in zip(self.scores(parent), added, strict=True))
        return self._scores[node]

    def total(self, node: int) -> float:
        """The scaled sum of `scores`."""
        return self.weighted(dict(zip(self.scorers, self.scores(node), strict=True)))

    def weighted(self, scores: dict[str, float]) -> float:
        return sum(scale * scores[name] for name, (_, scale) in self.scorers.items() if scale)

    def finish(self, node: int) -> dict[str, float]:
        """The scores by name of a whole utterance."""
        pairs = zip(self.scorers.items(), self.scores(node), strict=True)
        return {name: score + scorer.end(node) for (name, (scorer, _)), score in pairs}

    def keep(self, nodes: Sequence[int]) -> None:
        """Frees what belongs to other prefixes than these and those that they grew from."""
        wanted = set(nodes)
        for node in wanted:
            self.scores(node)
        self._rows = {node: self._rows[node] for node in wanted if node in self._rows}
        self._sums = {node: self._sums[node] for node in wanted if node in self._sums}
        for scorer, _ in self.scorers.values():
            scorer.keep(list(nodes))


class TokenScorer:
    """An LM over the recogniser's own pieces."""

    def __init__(self, lm: LanguageModel) -> None:
        self.lm = lm

    def start(self, prefixes: Prefixes, model: Transducer) -> None:
        self.prefixes, self.histories = prefixes, Histories(self.lm)
        self.of = {0: ROOT}

    def _history(self, node: int) -> int:
        if node not in self.of:
            parent = self._history(self.prefixes.parent[node])
            self.of[node] = self.histories.child(parent, self.prefixes.token[node])
        return self.of[node]

    def rows(self, nodes: Sequence[int], predicted: Tensor) -> np.ndarray:
        found = self.histories.rows([self._history(node) for node in nodes])
        found[:, BLANK] = 0.0
        return found

    def end(self, node: int) -> float:
        return float(self.histories.rows([self._history(node)])[0, self.lm.vocab.eos])

    def keep(self, nodes: Sequence[int]) -> None:
        self.histories.keep([self._history(node) for node in nodes])


class WordScorer:
    """An LM with words or pieces of its own, asked for each word as it is complete.

    The LM sees each word in the form of its own text (`lm_zoo.text.view`), or with `exact` as it is.
    """

    def __init__(self, lm: LanguageModel, pieces: Pieces, exact: bool = False) -> None:
        self.lm, self.pieces, self.view = lm, pieces, view_of(lm, exact)

    def start(self, prefixes: Prefixes, model: Transducer) -> None:
        self.prefixes = prefixes
        self.words = _NgramWords(self.lm) if isinstance(self.lm, base.WordLM) else _NeuralWords(self.lm)
        self.before: dict[int, Any] = {0: self.words.root}  # a prefix -> history without the word that is under way
        self.completed: dict[int, tuple[float, Any]] = {}  # a prefix -> log p(that word), the history with it

    def _pending(self, node: int) -> tuple[int, ...]:
        """The tokens of the word that is under way."""
        tokens: list[int] = []
        while node and not (tokens and self.pieces.begins(self.prefixes.token[node], tokens[-1])):
            tokens.append(self.prefixes.token[node])
            node = self.prefixes.parent[node]
        return tuple(reversed(tokens))

    def _before(self, node: int) -> Any:
        if node not in self.before:
            parent, tokens = self.prefixes.parent[node], self.prefixes.token
            if self.pieces.begins(tokens[parent], tokens[node]):
                self._complete([parent])
                self.before[node] = self.completed[parent][1]
            else:
                self.before[node] = self._before(parent)
        return self.before[node]

    def _complete(self, nodes: Sequence[int]) -> None:
        """Scores the words under way of those of the nodes that are new."""
        new = [node for node in dict.fromkeys(nodes) if node not in self.completed]
        histories = [self._before(node) for node in new]
        words = [self.words_of(node) for node in new]
        for node, found in zip(new, self.words.extend(histories, words), strict=True):
            self.completed[node] = found

    def words_of(self, node: int) -> list[str]:
        """What the LM sees of the word under way (or of none; pieces that spell several give several)."""
        return [part for word in self.pieces.words(self._pending(node)) for part in self.view.word(word)]

    def rows(self, nodes: Sequence[int], predicted: Tensor) -> np.ndarray:
        self._complete(nodes)
        scores = np.array([self.completed[node][0] for node in nodes], dtype=np.float32)
        begins = self.pieces.beginning([self.prefixes.token[node] for node in nodes])
        return np.where(begins, scores[:, None], np.float32(0.0))

    def end(self, node: int) -> float:
        self._complete([node])
        score, history = self.completed[node]
        return score + self.words.end(history)

    def keep(self, nodes: Sequence[int]) -> None:
        self.words.keep([self._before(node) for node in nodes])


class _NeuralWords:
    """Histories of words of an LM that steps over tokens."""

    def __init__(self, lm: LanguageModel) -> None:
        self.lm, self.histories, self.root = lm, Histories(lm), ROOT

    def extend(self, histories: list[int], words: list[list[str]]) -> list[tuple[float, int]]:
        encode = self.lm.vocab.encode_word
        tokens = [tuple(token for word in sentence for token in encode(word)) for sentence in words]
        numbers = np.array([self.histories.number(part) for part in tokens], dtype=np.int64)
        ends = np.zeros(len(words), dtype=bool)
        scores, longer = self.histories.extend(np.array(histories, dtype=np.int64), numbers, ends)
        return list(zip(scores.tolist(), longer.tolist(), strict=True))

    def end(self, history: int) -> float:
        return float(self.histories.rows([history])[0, self.lm.vocab.eos])

    def keep(self, histories: list[int]) -> None:
        self.histories.keep(histories)


class _NgramWords:
    """Histories of an n-gram LM: the states of KenLM."""

    def __init__(self, lm: base.WordLM) -> None:
        self.lm, self.root = lm, lm.start()

    def extend(self, histories: list[Any], words: list[list[str]]) -> list[tuple[float, Any]]:
        found = []
        for state, sentence in zip(histories, words, strict=True):
            total = 0.0
            for word in sentence:
                score, state, _ = self.lm.extend(state, word)
                total += score
            found.append((total, state))
        return found

    def end(self, history: Any) -> float:
        return float(self.lm.end(history))

    def keep(self, histories: list[Any]) -> None:
        """States are small: nothing is given back."""


class TokenNgram:
    """An n-gram LM whose words are the recogniser's pieces (`rescore train-ngram` over text of pieces).

    Pieces that it does not know score 0, so that nothing is taken out: an n-gram without `<unk>`, such as icefall's
    2gram.arpa, would give them a log-probability of -230, and its subtraction a reward without measure.
    """

    def __init__(self, lm: base.WordLM, pieces: Pieces) -> None:
        self.lm, self.pieces = lm, pieces
        known = sum(lm.knows(name) for name in pieces.names if name)
        starts = [
            pieces.names[token] for token in range(len(pieces)) if pieces.starts[token] and token != pieces.vocab.unk
        ]
        known_starts = sum(map(lm.knows, starts))  # an n-gram of words knows letters, and pieces such as HE
        if 2 * known < len(pieces) or (starts and not known_starts):
            raise ConfigError(
                f"the token n-gram knows {known} of the recogniser's {len(pieces)} pieces, {known_starts} of the "
                f"{len(starts)} that begin a word; expected an ARPA file over pieces, such as \u2581THE"
            )

    def start(self, prefixes: Prefixes, model: Transducer) -> None:
        self.prefixes = prefixes
        self.states: dict[int, Any] = {0: self.lm.start()}
        self.known: dict[Any, np.ndarray] = {}

    def _state(self, node: int) -> Any:
        if node not in self.states:
            before = self._state(self.prefixes.parent[node])
            self.states[node] = self.lm.extend(before, self.pieces.names[self.prefixes.token[node]])[1]
        return self.states[node]

    def rows(self, nodes: Sequence[int], predicted: Tensor) -> np.ndarray:
        return np.stack([self._row(self._state(node)) for node in nodes])

    def _row(self, state: Any) -> np.ndarray:
        if state not in self.known:
            found = [self.lm.extend(state, name) for name in self.pieces.names[1:]]  # but the blank
            scores = [0.0, *(score if known else 0.0 for score, _, known in found)]
            self.known[state] = np.array(scores, dtype=np.float32)
        return self.known[state]

    def end(self, node: int) -> float:
        """The transducer has no sentence end of its own, so none is taken out."""
        return 0.0

    def keep(self, nodes: Sequence[int]) -> None:
        """States are small: nothing is given back."""


class TransducerInternalLM:
    """The transducer's own LM: `softmax(joiner(0, decoder))` over all symbols but the blank."""

    def start(self, prefixes: Prefixes, model: Transducer) -> None:
        self.joiner = model.joiner

    def rows(self, nodes: Sequence[int], predicted: Tensor) -> np.ndarray:
        weight = self.joiner.project_encoder.weight
        silence = self.joiner.project_encoder(weight.new_zeros(len(nodes), weight.shape[1]))
        with torch.no_grad():
            logits = self.joiner(silence, predicted).float()
            logits[:, BLANK] = -torch.inf
            scores = logits.log_softmax(dim=-1)
        scores[:, BLANK] = 0.0
        return scores.cpu().numpy()  # type: ignore[no-any-return]

    def end(self, node: int) -> float:
        """The transducer has no sentence end."""
        return 0.0

    def keep(self, nodes: Sequence[int]) -> None:
        """Nothing is kept."""


class WordReward:
    """One for every word: with a positive scale it makes up for the words that LMs let die."""

    def __init__(self, pieces: Pieces) -> None:
        self.pieces = pieces

    def start(self, prefixes: Prefixes, model: Transducer) -> None:
        self.prefixes = prefixes

    def rows(self, nodes: Sequence[int], predicted: Tensor) -> np.ndarray:
        return self.pieces.more_words([self.prefixes.token[node] for node in nodes]).astype(np.float32)

    def end(self, node: int) -> float:
        return 0.0

    def keep(self, nodes: Sequence[int]) -> None:
        """Nothing is kept."""


def shares_pieces(lm: LanguageModel, vocab: PieceVocabulary) -> bool:
    """Whether the LM's tokens are the recogniser's."""
    return isinstance(lm.vocab, PieceVocabulary) and same_tokens(lm.vocab, vocab)


def lm_scorer(lm: LanguageModel, pieces: Pieces, exact: bool = False) -> FusionScorer:
    """How an LM of the zoo takes part.

    Args:
      exact: it sees words as they are, and those of another case than its own text's are refused.
    Raises:
      ConfigError: the recogniser's pieces are of another case, with `exact`.
      LMError: it cannot be asked for one word after the other (masked LMs).
    """
    if not isinstance(lm, base.WordLM):
        lm.initial_state()
        if shares_pieces(lm, pieces.vocab):
            return TokenScorer(lm)
    if exact and {lm.vocab.case, pieces.vocab.case} == {"upper", "lower"}:
        raise ConfigError(
            f"an LM of {lm.vocab.case}-case text, but pieces of {pieces.vocab.case}-case text; leave out --text-view "
            "exact, so that the LM sees words in its own form"
        )
    return WordScorer(lm, pieces, exact)


def make_fusion(
    pieces: Pieces,
    lms: dict[str, tuple[LanguageModel, float]],
    ilme_scale: float | None = None,
    lodr: tuple[base.WordLM, float] | None = None,
    word_reward: float = 0.0,
    exact: bool = False,
) -> Fusion | None:
    """The scorers of a search; None if there are none.

    Args:
      lms: name -> (LM, scale).
      ilme_scale, lodr: how much of the internal LM, or of a token n-gram, is subtracted (scales are positive); 0: it is
        scored alone.
      word_reward: what every word adds.
      exact: as of `lm_scorer`.
    Raises:
      ConfigError: a name that is taken, a negative scale of what is subtracted, an LM that cannot take part.
    """
    taken = sorted({"am", ALIGNMENTS, WORDS, ILM, LODR} & set(lms))
    if taken:
        raise ConfigError(f"'{taken[0]}' is the name of another score; name the LM: --lm NAME=LM")
    if (ilme_scale is not None and ilme_scale < 0) or (lodr is not None and lodr[1] < 0):
        raise ConfigError("the scale of an LM that is subtracted is given as a positive number")
    scorers: dict[str, tuple[FusionScorer, float]] = {
        name: (lm_scorer(lm, pieces, exact), scale) for name, (lm, scale) in lms.items()
    }
    if ilme_scale is not None:
        scorers[ILM] = (TransducerInternalLM(), -ilme_scale)
    if lodr is not None:
        scorers[LODR] = (TokenNgram(lodr[0], pieces), -lodr[1])
    if word_reward:
        scorers[WORDS] = (WordReward(pieces), word_reward)
    return Fusion(scorers) if scorers else None
