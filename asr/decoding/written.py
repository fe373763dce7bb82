"""An encoder-decoder as `asr decode` and `asr transcribe` call it: written text, N-best lists of distinct words."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from asr.dataset.features import SAMPLE_RATE
from asr.decoding.options import GREEDY, PREFIX_METHODS
from asr.errors import ConfigError, DataError
from asr.seq2seq.internal_lm import InternalLM
from asr.seq2seq.lists import WrittenText, distinct, without_fragments
from asr.seq2seq.models import Recogniser
from asr.seq2seq.search import Ended, SearchOptions, WordKeys, beam_search, greedy_search
from asr.seq2seq.tokens import text_of
from lm_zoo.reading import kaldi_fields
from rescore.types import Hypothesis, NbestList

AM, INTERNAL = "am", "ilm"
SHORTEST = SAMPLE_RATE // 10  # samples; shorter audio is followed by silence, as encoders take no less
NORMALISER = "basic"  # by which hypotheses are distinct where none is named


@dataclass(frozen=True)
class WrittenList:
    """
    Attributes:
      single: the text of the most probable token sequence, which the best hypothesis need not have.
      cut:    whether the length limit cut the best hypothesis off.
    """

    nbest: NbestList
    single: str
    cut: bool


class WrittenDecoder:
    """An encoder-decoder with the settings of its search."""

    def __init__(self, recogniser: Recogniser, method: str, beam: int, normalise: Callable[[str], str]) -> None:
        """
        Args:
          normalise: texts that it makes equal are one hypothesis.
        Raises:
          ConfigError: a method that makes lattices.
        """
        if method not in PREFIX_METHODS:
            raise ConfigError(f"decoding method '{method}': {recogniser.name} has {' and '.join(PREFIX_METHODS)}")
        self.recogniser, self.method, self.normalise = recogniser, method, normalise
        rate = recogniser.tokens_per_second
        self.options = SearchOptions(beam=beam, rows=beam + beam // 2, tokens_per_second=rate)
        self._keys = WordKeys(recogniser.tokens, normalise)
        self._internal = InternalLM(recogniser.model, recogniser.tokens)

    def __call__(self, samples: np.ndarray) -> list[WrittenText]:
        """Hypotheses of samples float32 `(N,)` at 16 kHz, best first, no fragments among them.

        Raises:
          DataError: no sample, or one that is not finite, or longer than the model takes; no text that ended.
        """
        seconds, longest = len(samples) / SAMPLE_RATE, self.recogniser.max_seconds
        if not len(samples) or not np.isfinite(samples).all():
            raise DataError("no sample, or one that is NaN or infinite")
        if seconds > longest:
            raise DataError(f"{seconds:.1f} s of audio, {self.recogniser.name} takes {longest:.0f} s at most; split it")
        samples = np.pad(samples, (0, max(0, SHORTEST - len(samples))))
        found = distinct(self._search(samples, seconds), self._spell, self.normalise)
        if not found:
            raise DataError("no text ended; take a larger beam, or greedy search")
        return without_fragments(found)[: self.options.beam]

    def _spell(self, ids: Sequence[int]) -> str:
        return text_of(self.recogniser.tokens, ids)

    def _search(self, samples: np.ndarray, seconds: float) -> list[Ended]:
        model, tokens = self.recogniser.model, self.recogniser.tokens
        encoded = model.encode(tokens.features([samples]))
        if self.method == GREEDY:
            return greedy_search(model, tokens, encoded, [seconds], self.options)
        return beam_search(model, tokens, encoded, [seconds], self._keys, self.options)[0]

    def nbest(self, samples: np.ndarray, utt_id: str) -> WrittenList:
        """As `__call__`, the hypotheses with their scores `am` and `ilm`."""
        written = self(samples)
        internal = self._internal.scores([hyp.tokens for hyp in written])
        hyps = [
            Hypothesis(tuple(kaldi_fields(hyp.text)), {AM: hyp.am, INTERNAL: score})
            for hyp, score in zip(written, internal, strict=True)
        ]
        single = max(written, key=lambda hyp: hyp.single)
        return WrittenList(NbestList(utt_id, hyps), single.text, written[0].cut)
