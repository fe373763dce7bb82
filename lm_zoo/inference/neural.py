"""What the neural LMs of the zoo share: scoring, stepping and the training loss on top of hidden vectors."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from lm_zoo.base import Context, LanguageModel
from lm_zoo.errors import LMError
from lm_zoo.inference import scoring
from lm_zoo.inference.precision import prepared
from lm_zoo.inference.state import State
from lm_zoo.inference.tree import Tree
from lm_zoo.layers.linear import autocast_on
from lm_zoo.layers.output import FusedCrossEntropy, SoftmaxLayer, TargetScores
from lm_zoo.text.batches import Batch, TokenText
from lm_zoo.text.coverage import MOST_UNKNOWN, check_text
from lm_zoo.text.vocabulary import Vocabulary

ROWS = 2048  # of a (rows, vocab) matrix at a time


class NeuralLM(nn.Module, LanguageModel):
    """Base of the neural LMs.

    A subclass gives `Config`, `hidden`, `tree_hidden`, `initial_state` and `step_hidden`, and sets `output`.

    Attributes:
      Config: the dataclass of its settings.
      added: prefixes of names of weights that a trained LM need not have for this one to start from it.
    """

    Config: ClassVar[type]
    added: ClassVar[tuple[str, ...]] = ()
    output: SoftmaxLayer

    def __init__(self, vocab: Vocabulary, config: Any) -> None:
        super().__init__()
        self.vocab = vocab
        self.config = config
        self._uncast: tuple[NeuralLM, ...] = ()  # what this one is a copy of; no module of it
        self._cast_on: torch.device | None = None  # where the copy's products were made

    @property
    def device(self) -> torch.device:
        return self.output.bias.device

    def hidden(self, inputs: Tensor) -> Tensor:
        """int64 `(batch, time)`, begin of sentence first -> `(batch, time, dim)`: what predicts the next token."""
        raise NotImplementedError

    def hidden_after(self, state: State, inputs: Tensor) -> tuple[State, Tensor]:
        """`hidden` of the next window of running text, int64 `(batch, time)`, behind the windows before.

        The state holds what an LSTM carries on, and the keys and values of the window before; at first it is
        `initial_state().repeat(batch)`.  Positions count on from window to window.
        """
        raise LMError(f"{type(self).__name__} cannot carry its state from window to window")

    def recurrent(self, state: State) -> State:
        """What the LSTM layers carry on of a state: no keys and values, and positions begin anew.

        Raises:
          LMError: it has no LSTM layers.
        """
        raise LMError(f"{type(self).__name__} has no LSTM layers, whose state alone could be carried")

    @classmethod
    def can_carry(cls) -> bool:
        """Whether it has `hidden_after`."""
        return cls.hidden_after is not NeuralLM.hidden_after

    def tree_hidden(self, prefixes: Tree) -> Tensor:
        """The same for every node of a tree, which may go on from earlier nodes: `(nodes, dim)`."""
        raise NotImplementedError

    def initial_state(self) -> State:
        raise NotImplementedError

    def step_hidden(self, state: State, tokens: Tensor) -> tuple[State, Tensor]:
        """One token a node: `state` of `nodes` nodes, tokens `(nodes,)` -> new state and hidden `(nodes, dim)`."""
        raise NotImplementedError

    def score(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        """See `LanguageModel.score`."""
        tokens, lengths = tokens.to(self.device), lengths.to(self.device)
        begin = torch.full((len(tokens), 1), self.vocab.bos, dtype=torch.long, device=self.device)
        targets = torch.cat([tokens, begin], dim=1)
        position = torch.arange(targets.shape[1], device=self.device)
        targets = torch.where(position == lengths.unsqueeze(1), torch.full_like(targets, self.vocab.eos), targets)
        inside = position <= lengths.unsqueeze(1)
        hidden = self.hidden(torch.cat([begin, tokens], dim=1))[inside]
        scores = torch.zeros(targets.shape, device=self.device)
        scores[inside] = _target_scores(self.output, hidden, targets[inside])
        return scores

    def step(self, state: State, parents: Tensor, tokens: Tensor) -> tuple[State, Tensor]:
        """See `LanguageModel.step`."""
        state, hidden = self.step_hidden(state.select(parents.to(self.device)), tokens.to(self.device))
        return state, self.output(hidden)

    def score_words(
        self, sentences: Sequence[Sequence[str]], max_unknown: float | None = MOST_UNKNOWN
    ) -> list[list[float]]:
        """See `LanguageModel.score_words`; equal to `lm_zoo.base.score_in_batches`, each distinct prefix once."""
        return self.score_hypotheses(sentences, max_unknown)

    def score_hypotheses(
        self,
        sentences: Sequence[Sequence[str]],
        max_unknown: float | None = MOST_UNKNOWN,
        contexts: Sequence[Context] | None = None,
    ) -> list[list[float]]:
        """See `LanguageModel.score_hypotheses`; sentences follow one another as in windows of running text."""
        check_text(self, sentences, max_unknown)
        return scoring.score_by_tree(self, sentences, contexts=contexts)

    @property
    def boundary(self) -> tuple[int, ...]:
        """The sentence end alone, as in `lm_zoo.text.batches.running_text`."""
        return (self.vocab.eos,)

    def knows(self, word: str) -> bool:
        """Whether no part of the word is `<unk>`."""
        return self.vocab.unk not in self.vocab.encode_word(word)

    def move_to(self, device: torch.device) -> None:
        self.to(device)

    def cast(self, dtype: str) -> NeuralLM:
        """A copy for inference whose products are in `dtype`; all other weights are shared.

        Of a copy it is one of the LM itself, which a copy keeps: products are rounded once.  A copy that is so already
        is given back as it is, so that an LM that scores often is made ready once.
        """
        if self._uncast and (self.products, self._cast_on, self.training) == (dtype, self.device, False):
            return self
        source = self._uncast[0].to(self.device) if self._uncast else self
        made = prepared(source, dtype, source.vocab)
        made._uncast, made._cast_on, made.products = (source,), made.device, dtype
        return made

    # -- training ----------------------------------------------------------------------------------------------

    def forward(self, inputs: Tensor, targets: Tensor, state: State | None = None, places: Tensor | None = None) -> Any:
        """Training loss: summed natural-log cross-entropy of `targets` (batch, time), where >= 0.

        With a state, a window of running text behind it (see `hidden_after`): the loss and the new state, detached.
        With places, int64 `(pairs,)` in `(batch * time,)`: the log-probabilities of targets `(pairs,)` there.
        """
        if places is not None:
            dtype = torch.bfloat16 if autocast_on(self.device.type) else torch.float32
            hidden = self.hidden(inputs).flatten(0, 1)[places]
            return TargetScores.apply(hidden, self.output.weight, self.output.bias, targets, dtype)
        if state is None:
            return self._loss(self.hidden(inputs), targets)
        state, hidden = self.hidden_after(state, inputs)
        return self._loss(hidden, targets), state.detach()

    def _loss(self, hidden: Tensor, targets: Tensor) -> Tensor:
        dtype = torch.bfloat16 if autocast_on(self.device.type) else torch.float32
        inside = targets >= 0
        hidden, targets = hidden[inside], targets[inside]
        if not torch.is_grad_enabled():
            return -_target_scores(self.output, hidden, targets).sum()
        return FusedCrossEntropy.apply(hidden, self.output.weight, self.output.bias, targets, dtype)

    def undecayed(self) -> set[str]:
        """Names of the matrices that weight decay leaves alone."""
        return set()

    @property
    def plain(self) -> NeuralLM:
        """What takes the weights of a trained LM of another kind: all of it, or the means of a Bayesian LM."""
        return self

    def started_from(self, trained: NeuralLM) -> None:
        """Called once the weights of `trained` are in place; raises ValueError if they do not suffice."""

    def begin_training(self, text: TokenText) -> None:
        """Called before the first step of a run, with all of the training text."""

    def untouched(self, steps: int) -> str:
        """What of the LM no training text has come to in the first `steps` steps of a run; "" for nothing."""
        return ""

    def kl(self) -> Tensor:
        """Added to the loss once a step, over the targets of the text: natural logs, `()`; 0 unless Bayesian."""
        return torch.zeros((), device=self.device)

    def after_step(self, batches: Iterable[Batch], step: int, seed: int) -> None:
        """Called after every optimiser step.

        Args:
          batches: of that step, those of all ranks in order; they are gathered only if they are iterated over, which
            all ranks or none must do.  Windows in a state have the tokens `behind` it first, with targets below 0.
        """

    def behind(self, state: State) -> Tensor:
        """The tokens before a window that `after_step` must see: int64 `(batch, tokens)`, from the state."""
        return torch.zeros(len(state.memory[0]), 0, dtype=torch.long, device=self.device)


def rnn_after(rnn: nn.LSTM, x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    """LSTMs over a window x (batch, time, dim), from h and c (batch, layers, dim) -> outputs, and h and c after it."""
    before = [cells.transpose(0, 1).to(x.dtype).contiguous() for cells in (h, c)]
    x, (h, c) = rnn(x, (before[0], before[1]))
    return x, (h.transpose(0, 1), c.transpose(0, 1))


def _target_scores(output: SoftmaxLayer, hidden: Tensor, targets: Tensor) -> Tensor:
    """Log-probabilities of the targets `(rows,)` without keeping a (rows, vocab) matrix."""
    parts = [
        output(rows).gather(1, wanted.unsqueeze(1)).squeeze(1)
        for rows, wanted in zip(hidden.split(ROWS), targets.split(ROWS), strict=True)
    ]
    return torch.cat(parts)
