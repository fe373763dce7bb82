"""The configuration of a recogniser: plain frozen dataclasses, kept as `config.json` beside the weights.

Named configurations lie in `asr/configs`; `paper-*.json` are those of S4former (Shan et al., 2024), Sections 3 and 4.
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from asr.errors import ConfigError
from lm_zoo.reading import read_json

COMPONENTS = ("conv", "dir", "com", "rep")
S4_INITS = ("real", "lin")
DECODERS = ("lstm", "stateless")
_TYPES = {
    "int": ("int",),
    "int | None": ("int", "NoneType"),
    "float": ("int", "float"),
    "str": ("str",),
    "bool": ("bool",),
}
CONFIGS = Path(__file__).resolve().parents[1] / "configs"


@dataclass(frozen=True)
class EncoderConfig:
    """The encoder of S4former.

    Attributes:
      features:     filterbank bins of a frame (10 ms).
      channels:     channels of the two 2-D convolutions that subsample to 25 Hz.
      dim, layers, heads, feedforward: those of the Conformer.
      component:    what stands in the convolution module (Fig. 1): `conv`, `dir` (S4 alone), `com` (convolution, then
                    S4) or `rep` (a convolution whose kernel comes from the S4).
      kernel:       frames of the depth-wise convolution's kernel (of `conv` and `com`), or of the kernel made by the
                    S4 (of `rep`).
      s4_dim:       N, the states of each S4.
      s4_init:      `real` (S4D-Real) or `lin` (S4D-Lin).
      causal:       no output depends on a later frame.
      left_context: frames (25 Hz) of the past that attention may see; None: all of them.
    """

    features: int = 80
    channels: int = 512
    dim: int = 512
    layers: int = 17
    heads: int = 8
    feedforward: int = 2048
    component: str = "com"
    kernel: int = 2
    s4_dim: int = 2
    s4_init: str = "real"
    causal: bool = True
    left_context: int | None = None
    dropout: float = 0.1


@dataclass(frozen=True)
class TransducerConfig:
    """Encoder, prediction network and joiner of an RNN-T.

    Attributes:
      vocab_size:   tokens with the blank, which is 0.
      decoder:      `lstm` (one layer, the paper's) or `stateless` (icefall's: embedding and a convolution).
      context_size: tokens that the stateless decoder sees.
      decoder_dim, joiner_dim: widths.
    """

    vocab_size: int = 500
    encoder: EncoderConfig = field(default_factory=EncoderConfig)
    decoder: str = "lstm"
    context_size: int = 2
    decoder_dim: int = 512
    joiner_dim: int = 512
    decoder_dropout: float = 0.1

    def __post_init__(self) -> None:
        e = self.encoder
        checks = [
            (e.component in COMPONENTS, f"component '{e.component}'; there are {', '.join(COMPONENTS)}"),
            (e.s4_init in S4_INITS, f"s4_init '{e.s4_init}'; there are {', '.join(S4_INITS)}"),
            (self.decoder in DECODERS, f"decoder '{self.decoder}'; there are {', '.join(DECODERS)}"),
            (e.heads > 0 and e.dim % e.heads == 0, f"dim {e.dim} is not a multiple of heads {e.heads}"),
            (self.context_size >= 1, f"context_size {self.context_size}; it must be 1 or more"),
            (self.vocab_size > 1, f"vocab_size {self.vocab_size}; it must be 2 or more (the blank and one token)"),
            (e.left_context is None or e.left_context >= 0, f"left_context {e.left_context}; it must be 0 or more"),
            (
                0 <= e.dropout < 1 and 0 <= self.decoder_dropout < 1,
                f"dropout {e.dropout} and decoder_dropout {self.decoder_dropout}; both must lie in [0, 1)",
            ),
        ]
        sizes = {name: getattr(e, name) for name in ("features", "channels", "dim", "layers", "feedforward", "kernel")}
        sizes |= {"s4_dim": e.s4_dim, "decoder_dim": self.decoder_dim, "joiner_dim": self.joiner_dim}
        checks += [(size >= 1, f"{name} {size}; it must be 1 or more") for name, size in sizes.items()]
        for good, problem in checks:
            if not good:
                raise ConfigError(f"configuration: found {problem}")

    def to_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    def flat(self) -> dict[str, Any]:
        """The values by the names of `with_settings`: `encoder.s4_dim`, `decoder` and so on."""
        values = self.to_dict()
        encoder = values.pop("encoder")
        return {**{f"encoder.{name}": value for name, value in encoder.items()}, **values}

    def with_settings(self, settings: dict[str, Any]) -> TransducerConfig:
        """The same with other values, by the names of `flat`.

        Raises:
          ConfigError: an unknown name, a value of another type, an impossible one, or one that has no effect.
        """
        values = self.to_dict()
        for name, value in settings.items():
            part, _, field_name = name.rpartition(".")
            if name not in _KINDS:
                raise ConfigError(f"--set: found the unknown name '{name}'; {_fields_text()}")
            if type(value).__name__ not in _TYPES[_KINDS[name]]:
                raise ConfigError(f"--set: found {name}={json.dumps(value)}; {_fields_text()}")
            (values[part] if part else values)[field_name] = value
        changed = TransducerConfig.from_dict(values, "--set")
        for name in settings:
            if name in changed.unused():
                raise ConfigError(f"--set: found {name}, which has no effect with {changed.unused()[name]}")
        return changed

    def unused(self) -> dict[str, str]:
        """The names of values that play no part, and why."""
        component, found = f"the component '{self.encoder.component}'", {}
        if self.encoder.component == "conv":
            found = {"encoder.s4_dim": component, "encoder.s4_init": component}
        if self.encoder.component == "dir":
            found = {"encoder.kernel": component}
        if self.decoder != "stateless":
            found["context_size"] = f"the decoder '{self.decoder}', which sees all tokens"
        return found

    @classmethod
    def from_dict(cls, values: dict[str, Any], where: object = "configuration") -> TransducerConfig:
        """The configuration of `to_dict`; names that are left out keep their defaults.

        Raises:
          ConfigError: an unknown name or an impossible value, with `where`.
        """
        try:
            _check_types(values, cls)
            encoder = values.get("encoder", {})
            _check_types(encoder, EncoderConfig)
            return cls(**{**values, "encoder": EncoderConfig(**encoder)})
        except ConfigError as error:
            raise ConfigError(f"{where}: {error}") from None


_KINDS = {f"encoder.{item.name}": str(item.type) for item in dataclasses.fields(EncoderConfig)}
_KINDS |= {item.name: str(item.type) for item in dataclasses.fields(TransducerConfig) if item.name != "encoder"}


def _fields_text() -> str:
    return "there are " + ", ".join(f"{name} ({kind.replace('None', 'null')})" for name, kind in _KINDS.items())


def _check_types(values: Any, config: Any) -> None:
    """Raises ConfigError unless `values` is an object with names of `config` alone, and values like its defaults."""
    if not isinstance(values, dict):
        raise ConfigError(f"found a {type(values).__name__}, expected an object of names and values")
    known = {item.name: item for item in dataclasses.fields(config)}
    for name, value in values.items():
        if name not in known:
            raise ConfigError(f"found the unknown name '{name}'; there are {', '.join(known)}")
        kind = str(known[name].type)  # as it is written above
        if kind != "EncoderConfig" and type(value).__name__ not in _TYPES[kind]:
            raise ConfigError(f"found {name} {_shown(value)}, expected {kind}")


def _shown(value: Any) -> str:
    """As JSON, if it can be: a checkpoint may hold anything."""
    try:
        return json.dumps(value)[:100]
    except (TypeError, ValueError, RecursionError):
        return f"of type {type(value).__name__}"


def load_config(name_or_path: str | Path) -> TransducerConfig:
    """A named configuration of `asr/configs` or a JSON file.

    Raises:
      ConfigError: no such name or file, not JSON, or a wrong value.
    """
    path = Path(name_or_path)
    if not path.suffix:
        path = CONFIGS / f"{name_or_path}.json"
    if not path.exists():
        names = ", ".join(sorted(file.stem for file in CONFIGS.glob("*.json")))
        raise ConfigError(f"{name_or_path}: no such configuration; give a JSON file or one of {names}")
    try:
        values = read_json(path)
    except ValueError as error:
        raise ConfigError(f"{path}: not JSON ({error})") from None
    return TransducerConfig.from_dict(values, path)
