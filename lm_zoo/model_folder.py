"""Model folders, of an LM or a recogniser: `config.json`, `model.safetensors`, and the files of its vocabulary.

Whoever wrote it: values are checked.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lm_zoo.errors import ModelError
from lm_zoo.files import save_tensors, write_text
from lm_zoo.reading import read_json

if TYPE_CHECKING:  # whoever wants but the names of the files is not to load torch
    from torch import Tensor

CONFIG, WEIGHTS = "config.json", "model.safetensors"
RUN, LOG = "run.json", "log.jsonl"  # of a training run in the folder: what it is made of, and its log


def write_model(folder: Path, config: dict[str, Any], tensors: dict[str, Tensor], half: bool = False) -> None:
    """Writes weights and configuration; each file is replaced atomically, `config.json` last.

    Args:
      tensors: the weights by name, no two of them of the same memory.
      half: store those that are floats as float16.
    """
    kept = {name: tensor.half() if half and tensor.is_floating_point() else tensor for name, tensor in tensors.items()}
    save_tensors(folder / WEIGHTS, {name: tensor.detach().cpu().contiguous() for name, tensor in kept.items()})
    write_text(folder / CONFIG, json.dumps(config, indent=2) + "\n")


def read_object(folder: Path, made_by: str) -> Any:
    """What `config.json` holds.

    Args:
      made_by: the commands that write such folders.
    Raises:
      ModelError: there is none, it cannot be read, or it is no JSON.
    """
    path = folder / CONFIG
    try:
        return read_json(path)
    except (FileNotFoundError, NotADirectoryError):
        raise ModelError(
            f"{folder}: not a model folder, it has no {CONFIG}; such folders are written by: {made_by}"
        ) from None
    except OSError as error:
        raise ModelError(f"{path}: cannot be read ({error.strerror or error})") from None
    except ValueError as error:
        raise ModelError(f"{path}: not JSON ({error})") from None


def is_like(value: Any, default: Any) -> bool:
    """Whether a setting's value is of the type of its default; an integer is a float too, but true is no number."""
    if isinstance(value, bool) or isinstance(default, bool):
        return type(value) is type(default)
    return isinstance(value, (int, float) if isinstance(default, float) else type(default))


def read_tensors(path: Path) -> dict[str, Tensor]:
    """The tensors of a safetensors file, as they are stored.

    Raises:
      ModelError: missing, damaged or truncated, or a value that is NaN or infinite; names the tensor.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        weights = load_file(str(path))
    except FileNotFoundError:
        raise ModelError(f"{path.parent}: {path.name} is missing") from None
    except (OSError, SafetensorError, ValueError, LookupError, RuntimeError, TypeError) as error:
        raise ModelError(f"{path}: damaged or truncated ({error})") from None
    check_finite(path, weights)
    return weights


def check_finite(where: object, weights: dict[str, Tensor]) -> None:
    """Raises ModelError where a value is NaN or infinite."""
    for name, tensor in weights.items():
        bad = int((~tensor.isfinite()).sum())
        if bad:
            raise ModelError(
                f"{where}: '{name}' has {bad} of {tensor.numel()} values that are NaN or infinite; take other weights"
            )


def check_shapes(
    where: object, expected: dict[str, Tensor], found: dict[str, Tensor], plan: str = "the configuration"
) -> None:
    """Raises ModelError, naming the first, where names or shapes of weights are not those that a model has.

    Args:
      plan: what the model was made by.
    """
    for name in sorted(expected.keys() | found.keys()):
        if name not in found:
            raise ModelError(f"{where}: lacks '{name}', which {plan} calls for")
        if name not in expected:
            raise ModelError(f"{where}: has '{name}', which {plan} does not call for")
        if expected[name].shape != found[name].shape:
            shape, wanted = tuple(found[name].shape), tuple(expected[name].shape)
            raise ModelError(f"{where}: '{name}' has the shape {shape}, {plan} calls for {wanted}")
