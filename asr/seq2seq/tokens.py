"""Tokens of encoder-decoder recognisers: what they spell, the prompt, and the features that the encoder takes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import numpy as np

from asr.errors import CheckpointError

BLANK = "\u2581".encode()  # sentencepiece's mark of a blank


class Tokens(Protocol):
    """What a search must know of a model beside its networks.

    Attributes:
      prompt:  tokens that come before the text.
      end:     the token that ends it.
      allowed: bool `(vocabulary,)`, the tokens that text may have; not `end`.
      spelled: the bytes of each token; empty for those that spell nothing.
    """

    prompt: tuple[int, ...]
    end: int
    allowed: np.ndarray
    spelled: list[bytes]

    def features(self, audio: Sequence[np.ndarray]) -> dict[str, np.ndarray]:
        """The encoder's inputs of samples float32 `(N,)` at 16 kHz, a row each."""


def text_of(tokens: Tokens, ids: Sequence[int]) -> str:
    """The text that tokens spell; bytes that are no UTF-8 become U+FFFD."""
    return b"".join(tokens.spelled[token] for token in ids).decode("utf-8", "replace").strip()


class MoonshineTokens:
    """Tokens of Moonshine, from its `tokenizer.bin`.

    For each token the file has the length of its bytes (one byte, or from 128 on `first - 128 + 128 * second`) and the
    bytes; U+2581 stands for a blank.  Tokens 0 to 2 are unknown, begin and end; `<<ST_N>>` spell nothing.
    """

    prompt: tuple[int, ...] = (1,)
    end = 2

    def __init__(self, path: Path) -> None:
        """
        Raises:
          CheckpointError: the file is missing or ends within a token.
        """
        pieces = read_moonshine(path)
        special = [index < 3 or piece.startswith(b"<<ST_") for index, piece in enumerate(pieces)]
        self.allowed = ~np.array(special)
        self.spelled = [b"" if no else piece.replace(BLANK, b" ") for no, piece in zip(special, pieces, strict=True)]

    def features(self, audio: Sequence[np.ndarray]) -> dict[str, np.ndarray]:
        longest = max(len(samples) for samples in audio)
        values = np.zeros((len(audio), longest), dtype=np.float32)
        mask = np.zeros((len(audio), longest), dtype=np.int64)
        for row, samples in enumerate(audio):
            values[row, : len(samples)], mask[row, : len(samples)] = samples, 1
        return {"input_values": values, "attention_mask": mask}


def read_moonshine(path: Path) -> list[bytes]:
    """The pieces of a `tokenizer.bin`."""
    if not path.is_file():
        raise CheckpointError(f"{path}: no such file")
    data, place = path.read_bytes(), 0
    pieces: list[bytes] = []
    while place < len(data):
        size = data[place]
        place += 1
        if size >= 128:
            size += 128 * (data[place] if place < len(data) else 0) - 128
            place += 1
        if place + size > len(data):
            raise CheckpointError(f"{path}: ends within token {len(pieces)}; it is cut off")
        pieces.append(data[place : place + size])
        place += size
    if len(pieces) < 4:
        raise CheckpointError(f"{path}: {len(pieces)} tokens, expected a tokenizer of Moonshine")
    return pieces
