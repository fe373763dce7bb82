"""Model folders, and the checkpoints of a training run.

A model folder holds `model.safetensors`, `config.json` (the configuration and what is known of the training),
`bpe.model` and `tokens.txt`.  A training run writes icefall's files: `epoch-N.pt` and `checkpoint-BATCH.pt`, dicts with
`model`, `model_avg`, `optimizer`, `scheduler`, `grad_scaler`, `sampler` and the run's parameters beside them; they
hold tensors and plain values only, so that `torch.load(..., weights_only=True)` of torch 2 reads them (torch 1.13's
takes no numbers).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from asr.errors import CheckpointError
from asr.model.config import TransducerConfig
from lm_zoo.allowance import Allowance
from lm_zoo.errors import LMError
from lm_zoo.files import save_torch, write_text
from lm_zoo.model_folder import (
    CONFIG,
    WEIGHTS,
    check_finite,
    check_shapes,
    read_object,
    read_tensors,
    write_model,
)
from lm_zoo.safe_unpickle import read_torch_file
from lm_zoo.text.vocabulary import PieceVocabulary, read_pieces

if TYPE_CHECKING:
    from asr.model.transducer import Transducer

SHOWN = 8  # checkpoints that an error names
PIECES, TOKENS = "bpe.model", "tokens.txt"


@contextmanager
def _of_a_checkpoint() -> Iterator[None]:
    """The zoo's errors as those of a checkpoint."""
    try:
        yield
    except LMError as error:
        raise CheckpointError(str(error)) from None


def save_model(
    folder: Path, model: Transducer, vocab: PieceVocabulary, info: dict[str, Any], half: bool = False
) -> None:
    """Writes a model folder; each file is replaced atomically, `config.json` last.

    Args:
      model: a Transducer (its `config` is kept).
      info: what else belongs into `config.json` (steps, validation loss, data, licence).
      half: store the weights as float16.
    """
    vocab.save(folder)
    pieces = (f"{vocab.processor.id_to_piece(index)} {index}\n" for index in range(len(vocab)))
    write_text(folder / TOKENS, "".join(pieces))
    config = {"kind": "transducer", "case": vocab.case, "config": model.config.to_dict(), **info}
    write_model(folder, config, {name: tensor.clone() for name, tensor in model.state_dict().items()}, half)


def read_info(folder: Path) -> dict[str, Any]:
    """`config.json` of a model folder.

    Raises:
      CheckpointError: missing, not JSON, or not that of a recogniser.
    """
    with _of_a_checkpoint():
        path, info = folder / CONFIG, read_object(folder, "asr train, asr average")
    if not isinstance(info, dict) or info.get("kind") != "transducer" or not isinstance(info.get("config"), dict):
        raise CheckpointError(f"{path}: not a recogniser's; expected an object with the kind 'transducer' and a config")
    return info


def read_tokens(path: Path, case: str | None = None) -> PieceVocabulary:
    """`lm_zoo.text.vocabulary.read_pieces` of a recogniser: with the blank 0, `<sos/eos>` 1 and `<unk>` 2.

    Raises:
      CheckpointError: it is missing, damaged, or its first piece is not the blank.
    """
    with _of_a_checkpoint():
        vocab = read_pieces(path, case)
    if (first := vocab.processor.id_to_piece(0)) != "<blk>":
        raise CheckpointError(
            f"{path}: piece 0 is '{first}', expected the blank '<blk>', as icefall's bpe.model has it"
        )
    return vocab


def load_model(folder: str | Path) -> tuple[Transducer, PieceVocabulary]:
    """The Transducer of a model folder, in evaluation mode on the CPU, and its tokens.

    Raises:
      CheckpointError: a file is missing or damaged, or config, weights and tokens disagree.
    """
    folder = Path(folder)
    info = read_info(folder)
    config = TransducerConfig.from_dict(info["config"], folder / CONFIG)
    vocab = read_tokens(folder / PIECES, info.get("case", "mixed"))
    check_tokens(folder, vocab, config)
    with _of_a_checkpoint():
        weights = read_tensors(folder / WEIGHTS)
    model = build_model(config, folder / CONFIG, folder / WEIGHTS)
    put_weights(model, weights, folder / WEIGHTS)
    return model.eval(), vocab


def build_model(config: TransducerConfig, where: Path, weights: Path) -> Transducer:
    """A new model of sizes that `where` names; CheckpointError where the file of its weights has far fewer numbers."""
    from asr.model.transducer import Transducer

    try:
        with Allowance(weights):
            return Transducer(config)
    except (ValueError, RuntimeError, TypeError) as error:
        raise CheckpointError(f"{where}: {error}") from None


def check_tokens(where: object, vocab: PieceVocabulary, config: TransducerConfig) -> None:
    """Raises CheckpointError where the tokens are not as many as the configuration says."""
    if len(vocab) != config.vocab_size:
        raise CheckpointError(
            f"{where}: {PIECES} has {len(vocab)} tokens, but the model is for {config.vocab_size}; "
            f"give the {PIECES} that the model was trained with"
        )


def put_weights(model: nn.Module, weights: dict[str, Tensor], where: object) -> None:
    """Puts weights, float32 or float16, in place.

    Raises:
      CheckpointError: names or shapes are not the model's, or a weight is no number; names the first such.
    """
    with _of_a_checkpoint():
        check_shapes(where, model.state_dict(), weights)
        check_finite(where, weights)
    model.load_state_dict(weights)


def write_checkpoint(path: Path, contents: dict[str, Any]) -> None:
    """`torch.save`, whole or not at all."""
    save_torch(path, contents)


def read_checkpoint(path: Path) -> dict[str, Any]:
    """A checkpoint of ours or of icefall, read without running any code that it may hold.

    Raises:
      CheckpointError: missing, damaged, without `model`, or with something else than tensors in it.
    """
    if not path.is_file():
        found = [file.name for kind in ("epoch", "checkpoint") for file in find_checkpoints(path.parent, kind)]
        there = ", ".join([*found[:SHOWN], *(["..."] if found[SHOWN:] else [])]) or "none"
        where = f"in {path.parent} there are: {there}" if path.parent.is_dir() else f"there is no folder {path.parent}"
        raise CheckpointError(f"{path}: no such checkpoint; {where}")
    with _of_a_checkpoint():
        contents = read_torch_file(path)
    if not isinstance(contents, dict) or "model" not in contents:
        raise CheckpointError(f"{path}: expected a dict with the key 'model', as icefall writes it")
    for key in ("model", "model_avg"):
        weights = contents.get(key, {})
        if not _is_state_dict(weights) and not (weights is None and key == "model_avg"):
            raise CheckpointError(f"{path}: '{key}' is no state dict, expected names and tensors, as icefall writes")
    weights = contents["model"]
    if weights and all(name.startswith("module.") for name in weights):  # saved from within DDP
        contents["model"] = {name.removeprefix("module."): tensor for name, tensor in weights.items()}
    return contents


def _is_state_dict(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(k, str) and isinstance(v, Tensor) for k, v in value.items())


def find_checkpoints(folder: Path, kind: str = "checkpoint") -> list[Path]:
    """`KIND-NUMBER.pt` of a run, highest number first; KIND is `checkpoint` (numbers of batches) or `epoch`."""
    numbered = []
    for path in folder.glob(f"{kind}-*.pt"):
        if match := re.fullmatch(rf"{kind}-(\d+)\.pt", path.name):
            numbered.append((int(match[1]), path))
    return [path for _, path in sorted(numbered, reverse=True)]


def remove_checkpoints(folder: Path, keep: int) -> None:
    """Keeps the newest `keep` of `checkpoint-*.pt` and the newest `keep` of `epoch-*.pt`."""
    for kind in ("checkpoint", "epoch"):
        for path in find_checkpoints(folder, kind)[keep:]:
            path.unlink()
