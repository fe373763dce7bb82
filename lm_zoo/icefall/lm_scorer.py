"""LMs of the zoo in icefall's own decoding: an LmScorer with its interface and the calls that its users make.

icefall's shallow fusion (`modified_beam_search_lm_shallow_fusion`, `modified_beam_search_LODR`,
`ctc_prefix_beam_search_shallow_fussion`) asks `score_token` for the next token, and branches on `lm_type`:

  - "rnn": tokens `(hyps, 1)`, the state a pair `(h, c)`, each `(layers, hyps, dim)`, which it splits into hypotheses
    and joins again along dimension 1; this is how an LSTM LM takes part;
  - "transformer": whole prefixes `(hyps, longest)` with the begin of sentence, padded on the right, their lengths, no
    state; this is how any other LM takes part that can be asked token by token.

Its N-best rescoring (`modified_beam_search_lm_rescore`, `_rescore_LODR`, `fast_beam_search_with_nbest_rnn_rescoring`,
`rescore_with_rnn_lm`) calls `lm(x=x, y=y, lengths=lengths)` and sums what it gives over dimension 1.  Begin and end of
sentence are <sos/eos> there; `fast_beam_search_with_nbest_rnn_rescoring` alone looks for pieces "sos_id" and "eos_id",
which no vocabulary has, and so puts <unk>.  Both are taken as begin and end, and scored as the LM's own.

Read were, of k2-fsa/icefall: icefall/lm_wrapper.py at commit 0bac1fe8, icefall/rnn_lm/model.py at 2b41c7a5,
icefall/transformer_lm/model.py at 03a632fc, pruned_transducer_stateless2/beam_search.py at 00fefa2b.
"""

from __future__ import annotations

import argparse
import logging
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from lm_zoo.errors import ModelError, VocabError
from lm_zoo.inference.neural import NeuralLM
from lm_zoo.inference.state import State
from lm_zoo.models.lstm import LSTM
from lm_zoo.registry import load
from lm_zoo.text.coverage import MOST_UNKNOWN, Coverage
from lm_zoo.text.vocabulary import PieceVocabulary

SOS = 1  # icefall's begin and end of sentence; the blank is 0
Pair = tuple[Tensor, Tensor]


class ZooLM(nn.Module):
    """An LM of the zoo with the calls of icefall's `RnnLmModel` and `TransformerLM`.

    Attributes:
      lm_type: "rnn" or "transformer", the way in which icefall is to ask.
      coverage: counts of the tokens of whole sentences, and of `<unk>` among them.
    """

    def __init__(self, name: str, bpe_model: str | Path | None = None, max_unknown: float = MOST_UNKNOWN) -> None:
        """Loads an LM over the recogniser's pieces.

        Args:
          name: of the zoo, or a model folder.
          bpe_model: the recogniser's `bpe.model`; None if it is not to be compared.
          max_unknown: the largest share of tokens that may be `<unk>`.
        Raises:
          ModelError: no such LM.
          VocabError: its tokens are not the recogniser's pieces.
        """
        super().__init__()
        self.lm = load(name)
        self.lm_type = "rnn" if isinstance(self.lm, LSTM) else "transformer"
        vocab = self.lm.vocab
        if not isinstance(vocab, PieceVocabulary) or vocab.bos != SOS:
            raise VocabError(
                f"'{name}': icefall asks for its own sentencepiece pieces with <sos/eos> as number {SOS}; train an LM "
                "over them (rescore train-lm --vocab data/lang_bpe_500/bpe.model), or rescore its lists instead"
            )
        if bpe_model is None:
            logging.warning("'%s': no bpe_model is given, so nothing says that its pieces are the recogniser's", name)
        elif Path(bpe_model).read_bytes() != vocab.model:
            raise VocabError(
                f"'{name}': its pieces are not those of {bpe_model}; train an LM over them (rescore train-lm --vocab "
                f"{bpe_model}), or rescore the recogniser's lists instead"
            )
        self.unk = vocab.unk
        self.coverage = Coverage(self.lm, f"'{name}', tokens for words", max_unknown)

    def forward(self, x: Tensor, y: Tensor, lengths: Tensor) -> Tensor:
        """Negative natural-log probabilities of sentences.

        Args:
          x: int64 `(batch, time)`, the begin of sentence and the tokens, padded on the right with anything valid; the
            begin is <sos/eos>, or <unk> in all rows.
          y: int64 `(batch, time)`, the tokens and the end of sentence, the same as the begin, padded as well.
          lengths: int64 `(batch,)`, tokens and one more.
        Returns:
          float32 `(batch, time)`, 0 in the padding.
        Raises:
          VocabError: `y` is not `x` one further, with the same mark at both ends; a token that the LM does not have, or
            too many that are `<unk>` (see `lm_zoo.text.coverage`).
        """
        inside = torch.arange(x.shape[1], device=x.device) < lengths.unsqueeze(1)
        last = lengths.unsqueeze(1) - 1
        mark = self.unk if bool((x[:, 0] == self.unk).all()) else SOS
        shifted = torch.cat([x[:, 1:], x.new_full((len(x), 1), mark)], dim=1).scatter(1, last, mark)
        if not (x[:, 0] == mark).all() or not ((y == shifted) | ~inside).all():
            raise VocabError(
                f"expected sentences as icefall pads them: x begins with {SOS} (or all with {self.unk}), y ends with it"
            )
        tokens = x[:, 1:][inside[:, 1:]]
        if len(tokens) and int(tokens.max()) >= len(self.lm.vocab):
            raise VocabError(f"found the token {int(tokens.max())}, but the LM has {len(self.lm.vocab)} pieces")
        self.coverage.count(len(tokens), int((tokens == self.unk).sum()))
        with torch.no_grad():
            return -self.lm.score(x[:, 1:], lengths - 1).to(x.device)

    def score_token(self, x: Tensor, x_lens: Tensor, state: Pair | None = None) -> tuple[Tensor, Pair]:
        """Natural-log probabilities of what follows.

        Args:
          x: int64; "rnn": `(batch, 1)`, the next token of each hypothesis; "transformer": `(batch, time)`, all of its
            tokens from the begin of sentence, padded on the right with anything valid.
          x_lens: int64 `(batch,)`, tokens of each row.
          state: "rnn": `(h, c)`, float32 `(layers, batch, dim)` each; None for hypotheses that have read nothing.
        Returns:
          float32 `(batch, vocab)`, and the new state; "transformer": two empty tensors, which
          `ctc_prefix_beam_search_shallow_fussion` moves to the CPU.
        """
        with torch.no_grad():
            if self.lm_type == "rnn":
                return self._next(x[:, 0], state)
            return self._after(x, x_lens).to(x.device), (x.new_zeros(0), x.new_zeros(0))

    def _next(self, tokens: Tensor, state: Pair | None) -> tuple[Tensor, Pair]:
        assert isinstance(self.lm, LSTM)
        rows = torch.arange(len(tokens), device=tokens.device)
        if state is None:
            found, scores = self.lm.step(self.lm.initial_state(), torch.zeros_like(rows), tokens)
        else:
            memory = tuple(tensor.to(self.lm.device).transpose(0, 1) for tensor in state)
            found, scores = self.lm.step(State(1, memory), rows, tokens)
        h, c = (tensor.transpose(0, 1).contiguous() for tensor in found.memory)
        return scores, (h, c)

    def _after(self, x: Tensor, x_lens: Tensor) -> Tensor:
        """What follows each row, all of it at once if the LM can, else token by token."""
        if isinstance(self.lm, NeuralLM):
            x, rows = x.to(self.lm.device), torch.arange(len(x), device=self.lm.device)
            return self.lm.output(self.lm.hidden(x)[rows, x_lens.to(self.lm.device) - 1])
        rows, lengths = torch.arange(len(x)), x_lens.cpu()
        state, scores = self.lm.step(self.lm.initial_state(), torch.zeros_like(rows), x[:, 0].cpu())
        for time in range(1, x.shape[1]):
            state, longer = self.lm.step(state, rows, x[:, time].cpu())
            scores = torch.where((lengths > time).unsqueeze(1).to(scores.device), longer, scores)
        return scores


class LmScorer(nn.Module):
    """In place of icefall's class of this name: `from lm_zoo.icefall.lm_scorer import LmScorer`, and no more.

    `--lm-exp-dir` is a model folder or a name of the zoo then; `--lm-type`, `--lm-epoch`, `--lm-avg` and the sizes of
    icefall's LMs are taken and not used.

    Attributes:
      lm: the ZooLM.
      lm_type, lm_scale, sos_id: what icefall's searches ask for.
    """

    def __init__(self, lm_type: str, params: Any, device: torch.device | str, lm_scale: float = 0.3) -> None:
        """Args and errors as of icefall's and of ZooLM.

        Args:
          params: icefall's options; `lm_exp_dir` and, if it is there, `bpe_model` are read.
        """
        super().__init__()
        if params.lm_exp_dir is None:
            raise ModelError("--lm-exp-dir is missing: expected a model folder, or a name of the zoo")
        self.lm = ZooLM(str(params.lm_exp_dir), getattr(params, "bpe_model", None)).to(device)
        self.lm_type, self.lm_scale, self.params, self.sos_id = self.lm.lm_type, lm_scale, params, SOS

    @classmethod
    def add_arguments(cls, parser: argparse.ArgumentParser) -> None:
        """icefall's options of LMs, as since April 2023; that of before, `--vocab-size`, where the script has none."""
        for name, default in (("lm-vocab-size", 500), ("lm-epoch", 7), ("lm-avg", 1)):
            parser.add_argument(f"--{name}", type=int, default=default)
        with suppress(argparse.ArgumentError):
            parser.add_argument("--vocab-size", type=int, default=argparse.SUPPRESS)
        parser.add_argument("--lm-exp-dir", type=str, help="Model folder, or name of the zoo.")
        parser.add_argument("--transformer-lm-exp-dir", type=str, help="Not used.")
        shared = ("embedding-dim", "num-layers", "tie-weights")
        sizes = {"rnn": ("hidden-dim", *shared), "transformer": ("dim-feedforward", "encoder-dim", "nhead", *shared)}
        for kind, names in sizes.items():
            for name in names:
                parser.add_argument(f"--{kind}-lm-{name}", type=str, help="Not used: the model folder says.")

    def score_token(self, x: Tensor, x_lens: Tensor, state: Pair | None = None) -> tuple[Tensor, Pair]:
        """As ZooLM.score_token."""
        return self.lm.score_token(x, x_lens, state)
