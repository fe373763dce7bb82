"""The internal LM of an encoder-decoder: what its decoder expects of the text alone.

The encoder's states are those of a second of silence.  The literature takes zeros (Meng et al., "Internal Language
Model Estimation for Domain-Adaptive End-to-End Speech Recognition", SLT 2021) or the mean state of some speech, which
was better (Zeineldeen et al., "Investigating Methods to Improve Language Model Integration for Attention-Based
Encoder-Decoder ASR Models", Interspeech 2021).  Perplexity of Moonshine tiny's tokens on its own results for 60
utterances of LibriSpeech's dev-clean: zeros, which no encoder gives, 5070; mean 147; silence 146, without any speech.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from asr.seq2seq.session import OnnxModel
from asr.seq2seq.tokens import Tokens

SILENCE = 16000  # samples
ROWS = 8  # sequences at a time: the logits of 50 tokens are 6.5 MB each


class InternalLM:
    """Scores token sequences without the speech."""

    def __init__(self, model: OnnxModel, tokens: Tokens) -> None:
        self._model, self._tokens = model, tokens
        self._nothing = model.encode(tokens.features([np.zeros(SILENCE, dtype=np.float32)]))

    def scores(self, sequences: Sequence[tuple[int, ...]]) -> list[float]:
        """Log-probability of each sequence and of its end, the prompt given."""
        order = sorted(range(len(sequences)), key=lambda place: len(sequences[place]))
        found = [0.0] * len(sequences)
        for start in range(0, len(order), ROWS):
            part = order[start : start + ROWS]
            for place, score in zip(part, self._batch([sequences[place] for place in part]), strict=True):
                found[place] = score
        return found

    def _batch(self, sequences: Sequence[tuple[int, ...]]) -> list[float]:
        prompt, end = self._tokens.prompt, self._tokens.end
        longest = max(map(len, sequences))
        rows = np.array([(*prompt, *ids, *(longest - len(ids)) * (end,)) for ids in sequences], dtype=np.int64)
        encoded = self._nothing.repeat(len(rows))
        logits = torch.from_numpy(self._model.logits(encoded, rows))[:, len(prompt) - 1 :]
        targets = torch.from_numpy(np.concatenate([rows[:, len(prompt) :], np.full((len(rows), 1), end)], axis=1))
        picked = logits.gather(2, targets.unsqueeze(2)).squeeze(2) - logits.logsumexp(dim=2)
        return [float(picked[row, : len(ids) + 1].double().sum()) for row, ids in enumerate(sequences)]
