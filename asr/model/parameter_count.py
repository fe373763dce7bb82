"""How many parameters a recogniser has, by part."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from asr.model.config import TransducerConfig, load_config

# Part of a model -> what its parameters' names hold; the first that fits counts.
PARTS = {
    "encoder: S4": ("encoder.", ".s4."),
    "encoder: subsampling": ("encoder.subsampling.",),
    "encoder: feed-forward": ("encoder.", ".feedforward"),
    "encoder: attention": ("encoder.", ".attention."),
    "encoder: convolution modules, without S4": ("encoder.", ".convolution."),
    "encoder: last LN of the layers": ("encoder.",),
    "decoder": ("decoder.",),
    "joiner": ("joiner.",),
    "heads for training alone": ("",),
}


def config_of(name: str | Path) -> TransducerConfig:
    """The configuration of a model folder, a JSON file, or one of `asr/configs` by its name.

    Raises:
      ConfigError, CheckpointError: there is none, or it is wrong.
    """
    if not Path(name).is_dir():
        return load_config(name)
    from asr.model.checkpoint import read_info
    from lm_zoo.model_folder import CONFIG

    return TransducerConfig.from_dict(read_info(Path(name))["config"], Path(name) / CONFIG)


def count(config: TransducerConfig) -> dict[str, int]:
    """Trainable parameters of a `Transducer` by part, in the order of `PARTS`; parts it does not have are 0."""
    from asr.model.transducer import Transducer

    encoder = config.encoder
    model = Transducer(replace(config, encoder=replace(encoder, layers=1)))  # all its layers are alike
    sizes = dict.fromkeys(PARTS, 0)
    for name, parameter in model.named_parameters():
        part = next(part for part, marks in PARTS.items() if name.startswith(marks[0]) and marks[-1] in name)
        sizes[part] += parameter.numel() * (encoder.layers if name.startswith("encoder.layers.") else 1)
    return sizes


def lines(sizes: dict[str, int]) -> list[str]:
    """A table of the parts, of the encoder as a whole, and of all with and without the heads for training."""
    encoder = sum(size for part, size in sizes.items() if part.startswith("encoder"))
    total = sum(sizes.values())
    rows = [*sizes.items(), ("encoder, all", encoder)]
    rows += [("for recognition", total - sizes["heads for training alone"]), ("all", total)]
    width = max(len(part) for part, _ in rows)
    return [f"{part:{width}}  {size:>11,}  {100 * size / total:5.1f} %" for part, size in rows]
