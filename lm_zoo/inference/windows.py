"""Perplexity of neural LMs over running text, in windows: "all", "final", "carried" and "recurrent" evaluation."""

from __future__ import annotations

import math

import numpy as np
import torch

from lm_zoo.errors import LMError
from lm_zoo.inference.neural import NeuralLM
from lm_zoo.inference.perplexity import Perplexity
from lm_zoo.text.batches import TokenText, carried_batches, running_text, streams_of, window_batches

POSITIONS = ("all", "final", "carried", "recurrent")


@torch.no_grad()
def window_perplexity(lm: NeuralLM, text: TokenText, window: int, position: str = "all", batch: int = 64) -> Perplexity:
    """Perplexity of a neural LM over running text, sentences one after another (TransfoRNN paper, Table 4).

    Args:
      window: tokens of context that a window holds.
      position: "all": windows side by side, every position scored; "final": the window slides by one token and only
        its last position is scored, so that every token but the first ones sees `window` tokens (Al-Rfou et al.
        2019); `window` times the work.  "carried": windows one after another, each in the state of the one before, in
        `batch` streams side by side, fewer of a short text (see `NeuralLM.hidden_after`).  "recurrent": the same, but
        only LSTM layers go on; attention begins anew with each window, as it was trained (see `NeuralLM.recurrent`).
    Raises:
      LMError: another name of a position, NaN, or an LM that carries nothing of what is asked for.
    """
    if position == "all":
        loss = sum(
            float(lm(inputs.to(lm.device), targets.to(lm.device)))
            for inputs, targets in window_batches(text, lm.vocab, window, batch, None)
        )
    elif position in ("carried", "recurrent"):
        loss = _carried_loss(lm, text, window, batch, position == "recurrent")
    elif position == "final":
        loss = _final_position_loss(lm, text, window, batch)
    else:
        raise LMError(f"no evaluation is called '{position}'; there are: {', '.join(POSITIONS)}")
    if math.isnan(loss):
        raise LMError("the LM gave NaN; its weights are bad")
    sentences = len(text.offsets) - 1
    return Perplexity(sentences, text.words, text.unknown, len(text.tokens) + sentences, -loss, math.nan)


def _carried_loss(lm: NeuralLM, text: TokenText, window: int, batch: int, recurrent: bool) -> float:
    streams = streams_of(text, window, batch)
    loss, state = 0.0, lm.initial_state().repeat(streams)
    for inputs, targets in carried_batches(text, lm.vocab, window, streams, None):
        state = lm.recurrent(state) if recurrent else state
        part, state = lm(inputs.to(lm.device), targets.to(lm.device), state)
        loss += float(part)
    return loss


def _final_position_loss(lm: NeuralLM, text: TokenText, window: int, batch: int) -> float:
    stream = torch.from_numpy(np.concatenate([[lm.vocab.eos], running_text(text, lm.vocab)]))
    head = stream[: window + 1].to(lm.device)
    loss = float(lm(head[None, :-1], head[None, 1:]))  # the first tokens have all that stands before them
    if len(stream) <= window + 1:
        return loss
    windows = stream[1:].unfold(0, window + 1, 1)  # view: (len(stream) - window - 1, window + 1)
    for begin in range(0, len(windows), batch):
        part = windows[begin : begin + batch].to(lm.device)
        hidden = lm.hidden(part[:, :-1])[:, -1]
        loss -= float(lm.output(hidden).gather(1, part[:, -1:]).double().sum())
    return loss
