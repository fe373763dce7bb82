"""What all searches of the transducer share: prefixes, states of the decoder, words of pieces.

Scores are natural logs.  In lists and in lattices `am` is the log-probability that the transducer gives to one
alignment, the best that the search saw.  Searches that sum over alignments have what all others add as `alignments`, so
that the sum is `am + alignments`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from asr.errors import DataError
from lm_zoo.reading import WORD_START, joined_pieces, kaldi_fields
from lm_zoo.text.vocabulary import SOS_EOS, PieceVocabulary
from rescore.types import Words

if TYPE_CHECKING:
    from asr.model.transducer import Transducer

BLANK = 0
ALIGNMENTS = "alignments"
FRAME_SECONDS = 0.04  # of an encoded frame: four of 10 ms


@dataclass
class SearchHypothesis:
    """Tokens that a search found.

    Attributes:
      tokens: without blanks.
      frames: the encoded frame (25 a second) of each token, on the best alignment that the search saw.
      scores: natural logs by name, unscaled: `am`, `alignments` of searches that sum, and one for each LM.
      am_after: `am` of that alignment after each token, and of all of it.
    """

    tokens: tuple[int, ...]
    frames: tuple[int, ...]
    scores: dict[str, float] = field(default_factory=dict)
    am_after: tuple[float, ...] = ()


class Pieces:
    """The recogniser's tokens as parts of words.

    Attributes:
      names:  the piece of each token; "" for the blank.
      starts: whether a word begins with the token, whatever stands before it.
    """

    def __init__(self, vocab: PieceVocabulary) -> None:
        piece = vocab.processor.id_to_piece
        self.vocab = vocab
        self.names = ["", *(piece(token) for token in range(1, len(vocab)))]
        self.names[vocab.unk] = WORD_START + self.names[vocab.unk]
        self.starts = [name.startswith(WORD_START) for name in self.names]
        self._written = [*self.names]
        self._written[vocab.unk] += WORD_START
        self._starts, self._all = np.array(self.starts), np.arange(len(vocab)) != BLANK
        self._silent = {BLANK, *(token for token, name in enumerate(self.names) if name == SOS_EOS)}
        parts = [[] if k in self._silent else name.split(WORD_START) for k, name in enumerate(self._written)]
        self._words = np.array([sum(part != "" for part in each) for each in parts])
        self._joins = np.array([bool(each and each[0]) for each in parts])
        self._leaves_open = np.array([bool(each and each[-1]) for each in parts])

    def __len__(self) -> int:
        return len(self.names)

    def begins(self, before: int, token: int) -> bool:
        """Whether a word begins with the token behind another one: `<unk>` is a word of its own, as for sentencepiece.

        Args:
          before: the last token, without blanks; BLANK where there is none.
        """
        return self.starts[token] or (before == self.vocab.unk and token != BLANK)

    def beginning(self, before: Sequence[int]) -> np.ndarray:
        """bool `(before, vocab)`: `begins` of each next token behind each of these."""
        return np.where((np.array(before) == self.vocab.unk)[:, None], self._all, self._starts)

    def more_words(self, before: Sequence[int]) -> np.ndarray:
        """int64 `(before, vocab)`: how many words more there are with each next token behind each of these.

        A lone word boundary is none, and a first token begins one whatever its name; `words` counts the same.
        """
        return self._words - (self._joins & self._leaves_open[np.array(before)][:, None])

    def words(self, tokens: Sequence[int]) -> Words:
        """The words that the tokens spell."""
        spoken = (self._written[token] for token in tokens if token not in self._silent)
        return tuple(kaldi_fields(joined_pieces(spoken)))

    def check(self, model: Transducer) -> None:
        """Raises DataError if the model has another number of tokens."""
        size = model.config.vocab_size
        if size != len(self):
            raise DataError(
                f"the model has {size} tokens, but its bpe.model (or tokens.txt) has {len(self)}; "
                "give the one that it was trained with"
            )


@dataclass
class Predicted:
    """Outputs of the decoder for a number of prefixes.

    Attributes:
      state:  the decoder's, after the last token of each.
      output: float `(prefixes, joiner_dim)`, what the joiner adds to the encoder's.
    """

    state: Any
    output: Tensor


class Predictor:
    """Runs the decoder (prediction network) on prefixes that grow by one token each."""

    def __init__(self, model: Transducer, device: torch.device) -> None:
        self.decoder, self.joiner, self.device = model.decoder, model.joiner, device

    def start(self, count: int = 1) -> Predicted:
        """`count` prefixes without a token."""
        tokens = torch.full((count,), BLANK, dtype=torch.long, device=self.device)
        output, state = self.decoder.step(tokens, self.decoder.initial(count, self.device))
        return Predicted(state, self.joiner.project_decoder(output))

    def advance(self, old: Predicted, rows: Tensor, tokens: Tensor) -> Predicted:
        """Prefixes that extend those of `rows`, int64 `(new,)`, by `tokens` int64 `(new,)`; a blank leaves them."""
        rows, tokens = rows.to(self.device), tokens.to(self.device)
        longer = (tokens != BLANK).nonzero().squeeze(1)
        if not len(longer):
            return Predicted(self.decoder.select(old.state, rows), old.output[rows])
        output, state = self.decoder.step(tokens[longer], self.decoder.select(old.state, rows[longer]))
        rows = rows.clone()
        rows[longer] = len(old.output) + torch.arange(len(longer), device=self.device)
        state = self.decoder.select(_join(old.state, state), rows)
        return Predicted(state, torch.cat([old.output, self.joiner.project_decoder(output)])[rows])

    def log_probs(self, frames: Tensor, predicted: Tensor) -> Tensor:
        """float32 `(rows, vocab)`: log-probabilities of all symbols.

        Args:
          frames: float `(rows, joiner_dim)`, projected frames of the encoder.
          predicted: float `(rows, joiner_dim)`.
        """
        return self.joiner(frames, predicted).float().log_softmax(dim=-1)  # type: ignore[no-any-return]


def _join(first: Any, second: Any) -> Any:
    """One state with the prefixes of two; a state is a tensor with a row a prefix, or a tuple of such."""
    if isinstance(first, Tensor):
        return torch.cat([first, second])
    return tuple(torch.cat(pair) for pair in zip(first, second, strict=True))


class Prefixes:
    """A tree of token sequences; node 0 is the empty one.  Equal sequences are the same node."""

    def __init__(self) -> None:
        self.parent, self.token = [-1], [BLANK]
        self._children: dict[tuple[int, int], int] = {}

    def child(self, node: int, token: int) -> int:
        """The node one token longer, or the same for a blank."""
        if token == BLANK:
            return node
        found = self._children.setdefault((node, token), len(self.parent))
        if found == len(self.parent):
            self.parent.append(node)
            self.token.append(token)
        return found

    def tokens(self, node: int) -> tuple[int, ...]:
        found = []
        while node:
            found.append(self.token[node])
            node = self.parent[node]
        return tuple(reversed(found))


def check_encoded(encoded: Tensor, lengths: Tensor) -> list[int]:
    """The lengths as numbers.

    Raises:
      DataError: they do not fit `encoded`, or an encoded value is NaN or infinite.
    """
    found = [int(length) for length in lengths]
    if encoded.ndim != 3 or len(found) != len(encoded) or not all(0 <= n <= encoded.shape[1] for n in found):
        raise DataError(
            f"encoded frames of shape {tuple(encoded.shape)} with lengths {found}: expected (batch, frames, dim) and "
            "one length for each, at most the frames"
        )
    for row, length in enumerate(found):
        if not bool(torch.isfinite(encoded[row, :length]).all()):
            raise DataError(f"the encoder gave NaN or infinite values for utterance {row + 1} of the batch")
    return found
