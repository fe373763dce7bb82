"""Tokens, prompt and features of Whisper (Radford et al., 2022) as optimum exports it.

Its folder holds `vocab.json` and `added_tokens.json` (tokens as text, with GPT-2's letters for bytes), or
`tokenizer.json`, which is all that transformers 5 writes, and `generation_config.json` (prompt, tokens that text may
not have).  The features are those of the paper: log10 energies of mel bins (Slaney's scale and norm) over 30 s, at most
8 below their largest, moved to about -1 to 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch

from asr.errors import CheckpointError
from lm_zoo.reading import read_json

RATE, WINDOW, SHIFT, SECONDS = 16000, 400, 160, 30
SPARSE = 4  # numbers that there may be for each token
BEGIN, END, TRANSCRIBE, NO_TIMES = "<|startoftranscript|>", "<|endoftext|>", "<|transcribe|>", "<|notimestamps|>"


class WhisperTokens:
    """Tokens of a Whisper folder; English for models that know several languages."""

    def __init__(self, folder: Path, bins: int = 80, language: str = "en") -> None:
        """
        Args:
          bins: of the features; 128 for the newest models.
        Raises:
          CheckpointError: a file is missing or holds something else, or the model has no such language.
        """
        numbers = _numbers(folder)
        settings = _read(folder / "generation_config.json")
        if BEGIN not in numbers or END not in numbers:
            raise CheckpointError(f"{folder}: its vocabulary lacks {BEGIN} or {END}, expected one of Whisper")
        suppressed = settings.get("suppress_tokens") or []
        if not isinstance(suppressed, list) or not all(type(n) is int for n in [*numbers.values(), *suppressed]):
            raise CheckpointError(f"{folder}: its vocabulary or its suppress_tokens have a token that is no number")
        if not 0 <= min(numbers.values()) <= max(numbers.values()) < SPARSE * len(numbers):
            raise CheckpointError(f"{folder}: tokens are not numbered from 0 on; its vocabulary is damaged")
        prompt = [BEGIN, NO_TIMES]
        if f"<|{language}|>" in numbers and settings.get("is_multilingual", True):
            prompt = [BEGIN, f"<|{language}|>", TRANSCRIBE, NO_TIMES]
        self.prompt = tuple(numbers[piece] for piece in prompt if piece in numbers)
        self.end, self.bins = numbers[END], bins
        pieces = [""] * (max(numbers.values()) + 1)
        for piece, number in numbers.items():
            pieces[number] = piece
        special = np.array([(piece.startswith("<|") and piece.endswith("|>")) or not piece for piece in pieces])
        self.allowed = ~special
        self.allowed[[number for number in suppressed if 0 <= number < len(pieces)]] = False
        letters = {letter: byte for byte, letter in enumerate(byte_letters())}
        self.spelled = [
            b"" if no else bytes(letters[letter] for letter in piece if letter in letters)
            for no, piece in zip(special, pieces, strict=True)
        ]

    @cached_property
    def _filters(self) -> torch.Tensor:
        return torch.from_numpy(mel_filters(self.bins))

    def features(self, audio: Sequence[np.ndarray]) -> dict[str, np.ndarray]:
        """`input_features` float32 `(B, bins, 3000)`; what is longer than 30 s is refused by `max_seconds`."""
        samples = np.zeros((len(audio), RATE * SECONDS), dtype=np.float32)
        for row, one in enumerate(audio):
            samples[row, : len(one)] = one[: RATE * SECONDS]
        window = torch.hann_window(WINDOW)
        spectrum = torch.stft(torch.from_numpy(samples), WINDOW, SHIFT, window=window, return_complex=True)
        energies = (self._filters @ spectrum[..., :-1].abs() ** 2).clamp(min=1e-10).log10()
        floor = energies.amax(dim=(1, 2), keepdim=True) - 8
        return {"input_features": ((torch.maximum(energies, floor) + 4) / 4).numpy()}


def byte_letters() -> str:
    """The letter that stands for each byte in GPT-2's vocabularies: itself where it can be printed."""
    plain = {*range(33, 127), *range(161, 173), *range(174, 256)}
    others = iter(range(256, 512))
    return "".join(chr(byte if byte in plain else next(others)) for byte in range(256))


def mel_filters(bins: int) -> np.ndarray:
    """Triangles of Slaney's mel scale, each of area one: float32 `(bins, 201)`."""
    edges = _hertz(np.linspace(0.0, _mel(RATE / 2), bins + 2))
    frequencies = np.linspace(0, RATE / 2, WINDOW // 2 + 1)
    slopes = edges[:, None] - frequencies
    widths = np.diff(edges)[:, None]
    rising, falling = -slopes[:-2] / widths[:-1], slopes[2:] / widths[1:]
    heights = 2 / (edges[2:] - edges[:-2])[:, None]
    return (np.maximum(0, np.minimum(rising, falling)) * heights).astype(np.float32)


_STEP, _KNEE, _LOG = 200 / 3, 1000.0, np.log(6.4) / 27  # linear below 1 kHz, logarithmic above


def _mel(hertz: float) -> float:
    return hertz / _STEP if hertz < _KNEE else _KNEE / _STEP + np.log(hertz / _KNEE) / _LOG


def _hertz(mels: np.ndarray) -> np.ndarray:
    knee = _KNEE / _STEP
    return np.where(mels < knee, mels * _STEP, _KNEE * np.exp(_LOG * (mels - knee)))


def _numbers(folder: Path) -> dict[str, Any]:
    """The number of each token."""
    parts, whole = [folder / "vocab.json", folder / "added_tokens.json"], folder / "tokenizer.json"
    if all(part.is_file() for part in parts) or not whole.is_file():
        return _read(parts[0]) | _read(parts[1])
    value = _read(whole)
    try:
        return {**value["model"]["vocab"], **{token["content"]: token["id"] for token in value["added_tokens"]}}
    except (LookupError, TypeError):
        raise CheckpointError(f"{whole}: has no vocabulary and added tokens, expected a tokenizer of Whisper") from None


def _read(path: Path) -> dict[str, Any]:
    try:
        value = read_json(path)
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path}: cannot be read as JSON ({error}); export the tokenizer, too") from None
    if not isinstance(value, dict):
        raise CheckpointError(f"{path}: found JSON of another kind, expected an object")
    return value
