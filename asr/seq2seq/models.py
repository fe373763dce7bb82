"""Where encoder-decoder recognisers lie, and what kind they are."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from asr.errors import CheckpointError, ConfigError
from asr.seq2seq.session import OnnxModel
from asr.seq2seq.tokens import MoonshineTokens, Tokens
from asr.seq2seq.whisper import SECONDS, WhisperTokens

MOONSHINE = "moonshine"  # the name of the model that the package moonshine-voice carries
PACKAGE, ASSETS = "moonshine_voice", "assets/tiny-en"
INSTALL = "pip install 'rescore[moonshine]'"
SUFFIXES = (".ort", ".onnx")
LONGEST = 64.0  # seconds, twice the longest segments that Moonshine was trained on


@dataclass(frozen=True)
class Recogniser:
    """
    Attributes:
      tokens_per_second: most tokens that speech has, for the limit of the length.
      max_seconds: longest audio that the model takes.
    """

    name: str
    model: OnnxModel
    tokens: Tokens
    tokens_per_second: float
    max_seconds: float


def find_folder(name: str) -> Path | None:
    """The folder of the encoder-decoder that a path or the name `moonshine` means; None: it is no such model.

    Raises:
      ConfigError: the package with Moonshine's weights is not installed, or not the version that has them.
    """
    folder = Path(name)
    if any((folder / f"encoder_model{suffix}").exists() for suffix in SUFFIXES):
        return folder
    if name != MOONSHINE or folder.exists():
        return None
    assets = _assets()
    if assets is None:
        raise ConfigError(f"the weights of {MOONSHINE} are in the package moonshine-voice 0.0.49: {INSTALL}")
    if not assets.is_dir():
        raise ConfigError(f"{assets}: is not there; only version 0.0.49 of moonshine-voice has the weights: {INSTALL}")
    return assets


def has_moonshine() -> bool:
    """Whether `moonshine` can be loaded."""
    assets = _assets()
    return assets is not None and assets.is_dir() and find_spec("onnxruntime") is not None


def _assets() -> Path | None:
    """Where the weights lie in the package, if that is installed; it is not imported, as it loads its own libraries."""
    spec = find_spec(PACKAGE)
    return None if spec is None or spec.origin is None else Path(spec.origin).parent / ASSETS


def load(folder: Path, name: str, threads: int = 1) -> Recogniser:
    """Loads `encoder_model` and `decoder_model_merged` (`.ort` or `.onnx`) and the tokens beside them.

    Raises:
      ConfigError, CheckpointError: onnxruntime or a file is missing, or a file is damaged.
    """
    model = OnnxModel(*model_files(folder), threads)
    if "input_values" in model.encoder_inputs:
        return Recogniser(name, model, MoonshineTokens(folder / "tokenizer.bin"), 6.5, LONGEST)
    if "input_features" in model.encoder_inputs:
        bins = model.encoder_inputs["input_features"][1]
        tokens = WhisperTokens(folder, bins) if isinstance(bins, int) else WhisperTokens(folder)
        return Recogniser(name, model, tokens, 12.0, float(SECONDS))
    found = ", ".join(sorted(model.encoder_inputs))
    raise CheckpointError(f"{folder}: its encoder takes {found}, expected input_values or input_features")


def model_files(folder: Path) -> tuple[Path, Path]:
    """Encoder and decoder of a folder."""
    return _file(folder, "encoder_model"), _file(folder, "decoder_model_merged")


def _file(folder: Path, stem: str) -> Path:
    for suffix in SUFFIXES:
        if (folder / (stem + suffix)).is_file():
            return folder / (stem + suffix)
    raise CheckpointError(f"{folder}: no {stem}.onnx or {stem}.ort; optimum exports both parts, the decoder merged")
