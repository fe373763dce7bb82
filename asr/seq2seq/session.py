"""An encoder and a decoder in ONNX that onnxruntime runs, with the inputs that optimum gives them.

Encoder: what the front end gives (`input_values` and `attention_mask`, or `input_features`).  Decoder, merged: a branch
without caches (`use_cache_branch` false), which also makes the caches of attention to the encoder, and one with them:
`past_key_values.L.{decoder,encoder}.{key,value}` `(rows, heads, time, dim)`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from asr.errors import CheckpointError, ConfigError

PAST, PRESENT = "past_key_values", "present"
Arrays = dict[str, np.ndarray]


@dataclass
class EncodedSpeech:
    """What the encoder makes of a batch.

    Attributes:
      hidden: float32 `(utterances, frames, dim)`.
      mask:   int64 `(utterances, samples)`, for decoders that ask for it; None for others.
    """

    hidden: np.ndarray
    mask: np.ndarray | None

    def __len__(self) -> int:
        return len(self.hidden)

    def repeat(self, times: int) -> EncodedSpeech:
        """Each utterance so many times."""
        return EncodedSpeech(self.hidden.repeat(times, 0), None if self.mask is None else self.mask.repeat(times, 0))

    def inputs(self) -> Arrays:
        """The decoder's inputs that come from here."""
        masks = {} if self.mask is None else {"encoder_attention_mask": self.mask}
        return {"encoder_hidden_states": self.hidden, **masks}


@dataclass
class Rows:
    """Token sequences that a decoder goes on with, each of one of the encoded utterances.

    Attributes:
      owners: int64 `(rows,)`, the utterance of each.
      own:    caches of attention to the tokens before, `(rows, heads, time, dim)` by name.
      cross:  caches of attention to the encoder, `(utterances, heads, frames, dim)` by name.
      given:  the decoder's other inputs, with a row an utterance.
    """

    owners: np.ndarray
    own: Arrays
    cross: Arrays
    given: Arrays
    _spread: tuple[bytes, Arrays] | None = field(default=None, repr=False)

    def take(self, parents: np.ndarray) -> None:
        """The rows that go on, `parents` `(new rows,)`; one may do so several times."""
        self.owners = self.owners[parents]
        self.own = {name: cache[parents] for name, cache in self.own.items()}

    @property
    def of_one_utterance(self) -> bool:
        return len(self.given["encoder_hidden_states"]) == 1

    def spread(self) -> Arrays:
        """The inputs that come from the encoder, a row for each of the rows."""
        key = self.owners.tobytes()
        if self._spread is None or self._spread[0] != key:
            whole = self.cross | self.given
            self._spread = key, {name: array[self.owners] for name, array in whole.items()}
        return self._spread[1]


class OnnxModel:
    """Runs an encoder and a merged decoder."""

    def __init__(self, encoder: Path, decoder: Path, threads: int = 1) -> None:
        """
        Raises:
          ConfigError: onnxruntime is not installed.
          CheckpointError: a file is missing or damaged, or has other inputs than such models have.
        """
        self._encoder, self._decoder = open_session(encoder, threads), open_session(decoder, threads)
        self.encoder_inputs: dict[str, list[Any]] = {item.name: item.shape for item in self._encoder.get_inputs()}
        inputs = {item.name: item.shape for item in self._decoder.get_inputs()}
        self._outputs = [item.name for item in self._decoder.get_outputs()]
        self._masked = "encoder_attention_mask" in inputs
        self._empty = {
            name: np.zeros((1, shape[1], 0, shape[3]), dtype=np.float32)
            for name, shape in inputs.items()
            if name.startswith(PAST)
        }
        wanted = {"input_ids", "encoder_hidden_states", "use_cache_branch"}
        if not wanted <= inputs.keys() or not self._empty or "logits" not in self._outputs:
            raise CheckpointError(
                f"{decoder}: found the inputs {', '.join(sorted(inputs.keys() - self._empty.keys()))}, expected a "
                f"merged decoder with {', '.join(sorted(wanted))} and {PAST}.*"
            )
        self._share = True  # whether one row of the encoder's caches may stand for all rows of tokens

    def encode(self, features: Mapping[str, np.ndarray]) -> EncodedSpeech:
        """Features by the names of the encoder's inputs, a row an utterance."""
        hidden = self._encoder.run(None, {name: features[name] for name in self.encoder_inputs})[0]
        return EncodedSpeech(hidden, features["attention_mask"] if self._masked else None)

    def start(self, encoded: EncodedSpeech, prompt: np.ndarray) -> tuple[Rows, np.ndarray]:
        """A row for each utterance, with the prompt int64 `(utterances, tokens)`.

        Returns:
          rows, and the logits of the token after the prompt, float32 `(utterances, vocabulary)`.
        """
        given = encoded.inputs()
        found = self._run(prompt, given, self._without_past(len(encoded)), cached=False)
        caches = {name.replace(PRESENT, PAST, 1): value for name, value in found.items() if name != "logits"}
        own = {name: cache for name, cache in caches.items() if ".decoder." in name}
        cross = {name: cache for name, cache in caches.items() if ".encoder." in name}
        return Rows(np.arange(len(encoded)), own, cross, given), found["logits"][:, -1]

    def step(self, rows: Rows, tokens: np.ndarray) -> np.ndarray:
        """Adds a token to each row, int64 `(rows,)`; returns logits float32 `(rows, vocabulary)` of the next."""
        found = self._shared(rows, tokens) if self._share and rows.of_one_utterance else None
        if found is None:
            found = self._run(tokens[:, None], rows.spread(), rows.own, cached=True)
        rows.own = {name: found[name.replace(PAST, PRESENT, 1)] for name in rows.own}
        return found["logits"][:, -1]

    def logits(self, encoded: EncodedSpeech, tokens: np.ndarray) -> np.ndarray:
        """Without caches: logits float32 `(rows, length, vocabulary)` after tokens int64 `(rows, length)`."""
        return self._run(tokens, encoded.inputs(), self._without_past(len(tokens)), cached=False)["logits"]

    def _shared(self, rows: Rows, tokens: np.ndarray) -> Arrays | None:
        """As `_run`, the encoder's side once for all rows of one utterance; None for a decoder that cannot do so."""
        try:
            return self._run(tokens[:, None], rows.cross | rows.given, rows.own, cached=True)
        except Exception as error:  # onnxruntime's errors have no base of their own
            if not type(error).__module__.startswith("onnxruntime"):
                raise
            self._share = False
            return None

    def _without_past(self, rows: int) -> Arrays:
        return {name: np.repeat(cache, rows, axis=0) for name, cache in self._empty.items()}

    def _run(self, tokens: np.ndarray, given: Arrays, caches: Arrays, cached: bool) -> Arrays:
        inputs = {"input_ids": tokens, "use_cache_branch": np.array([cached]), **given, **caches}
        return dict(zip(self._outputs, self._decoder.run(None, inputs), strict=True))


def open_session(path: Path, threads: int) -> Any:
    """onnxruntime's session of a `.onnx` or `.ort` file, on the CPU."""
    try:
        import onnxruntime
    except ImportError:
        raise ConfigError("this model needs onnxruntime: pip install 'rescore[moonshine]'") from None
    if not path.is_file():
        raise CheckpointError(f"{path}: no such file")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.log_severity_level = 3
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # waiting threads leave the cores alone
    options.add_session_config_entry("session.x64quantprecision", "1")  # int8 without VNNI: sums of 16 bits overflow
    make: Callable[..., Any] = onnxruntime.InferenceSession
    try:
        return make(str(path), options, providers=["CPUExecutionProvider"])
    except Exception as error:
        if not type(error).__module__.startswith("onnxruntime"):
            raise
        text = str(error).splitlines()[0][:200]
        raise CheckpointError(f"{path}: not a model that onnxruntime can open ({text})") from None
