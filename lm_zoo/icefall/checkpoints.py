"""Checkpoints of icefall's `rnn_lm` and `transformer_lm`: read into our model folders, and written from them.

What differs from our LMs, and where it goes:
  - icefall's RNN-LM does not multiply the embedding by sqrt(embedding_dim): the factor goes into the first LSTM layer's
    input weights, so that tied embeddings stay tied.
  - Its Transformer-LM keeps weights as `weight * exp(weight_scale)`: read as the product, written with a scale of 0.
Token ids are those of the sentencepiece model: blank 0, begin and end of sentence both 1, unknown 2.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from lm_zoo.allowance import Allowance
from lm_zoo.errors import ModelError, VocabError
from lm_zoo.files import save_torch
from lm_zoo.inference.neural import NeuralLM
from lm_zoo.model_folder import check_finite
from lm_zoo.models.icefall_transformer import IcefallTransformer
from lm_zoo.models.lstm import LSTM
from lm_zoo.models.speechbrain_rnn import SpeechBrainRNN
from lm_zoo.registry import build, check_no_run, check_weights, count_parameters, load, save_folder, state_tensors
from lm_zoo.safe_unpickle import read_torch_file
from lm_zoo.text.vocabulary import PieceVocabulary, read_pieces

LSTM_KEY = "rnn.weight_ih_l0"
TRANSFORMER_KEY = "encoder.encoder.layers.0.self_attn.pos_bias_u"

# Ours -> icefall's; first match wins.  Names that are not here are the same on both sides.
LSTM_NAMES = ((r"input\.embedding\.", "input_embedding."), (r"output\.", "output_linear."))
TRANSFORMER_NAMES = (
    (r"embedding\.", "input_embedding."),
    (r"output\.", "output_linear."),
    (r"embed\.", "encoder.embed."),
    (r"norm_before\.log_eps", "encoder.norm_before.eps"),
    (r"layers\.(\d+)\.attention\.bias_([uv])", r"encoder.encoder.layers.\1.self_attn.pos_bias_\2"),
    (r"layers\.(\d+)\.attention\.", r"encoder.encoder.layers.\1.self_attn."),
    (r"layers\.(\d+)\.linear1\.", r"encoder.encoder.layers.\1.feed_forward.0."),
    (r"layers\.(\d+)\.linear2\.", r"encoder.encoder.layers.\1.feed_forward.4."),
    (r"layers\.(\d+)\.norm\.log_eps", r"encoder.encoder.layers.\1.norm_final.eps"),
)


@dataclass
class Imported:
    """What an import has made: kind and settings of the LM, and its number of parameters."""

    kind: str
    settings: dict[str, Any]
    params: int


def import_lm(checkpoint: Path, bpe: Path, out: Path) -> Imported:
    """Turns an icefall LM checkpoint into a model folder; the kind is known from its names, sizes from its shapes.

    Args:
      checkpoint: `epoch-N.pt` or `pretrained.pt` (a dict with `model` or `model_avg`), or a bare state dict.
      bpe: the `bpe.model` that the LM was trained with.
    Raises:
      ModelError: not a checkpoint, not of an icefall LM, or names or shapes that do not fit together.
      VocabError: the sentencepiece model is not one of icefall's, or has another size than the weights.
    """
    tensors = read_lm_checkpoint(checkpoint)
    vocab = read_pieces(bpe)
    if LSTM_KEY not in tensors and TRANSFORMER_KEY not in tensors:
        hint = " (of ESPnet? then give its config.yaml, too)" if all(name[:3] == "lm." for name in tensors) else ""
        if any(name.endswith(".Embedding.weight") for name in tensors):
            hint = " (of SpeechBrain? then give its hyperparams.yaml, too: --config)"
        raise ModelError(
            f"{checkpoint}: not an LM of icefall, which has '{LSTM_KEY}' (rnn_lm) or '{TRANSFORMER_KEY}' "
            f"(transformer_lm); it has {', '.join(sorted(tensors)[:3])}, ...{hint}"
        )
    kind = "lstm" if LSTM_KEY in tensors else "icefall-transformer"
    with shapes_of(checkpoint):
        settings = _lstm_settings(tensors) if kind == "lstm" else _transformer_settings(tensors)
        lm = build(kind, vocab, settings)
        assert isinstance(lm, (LSTM, IcefallTransformer))
        weights = dict(_our_weights(tensors, lm))
    return write_imported(lm, kind, weights, checkpoint, out, "icefall")


@contextmanager
def shapes_of(checkpoint: Path) -> Iterator[None]:
    """While an LM is made by the shapes of a checkpoint: no more memory than they account for, and ModelError where
    torch finds that they make no sense."""
    try:
        with Allowance(checkpoint):
            yield
    except (ValueError, RuntimeError, TypeError, ArithmeticError) as error:
        raise ModelError(f"{checkpoint}: its shapes are not those of such an LM ({error})") from None


def write_imported(
    lm: NeuralLM, kind: str, weights: dict[str, Tensor], checkpoint: Path, out: Path, whose: str
) -> Imported:
    """The model folder of an LM with the weights of another toolkit's checkpoint, under our names.

    Raises:
      ModelError: names or shapes that are not the LM's, weights that are not finite, or a training run in `out`.
      VocabError: the weights are for another number of tokens.
    """
    check_no_run(out)
    check_weights(checkpoint, lm, weights, "an LM of its kind and sizes")
    check_finite(checkpoint, weights)
    lm.load_state_dict(weights, strict=False)
    save_folder(out, lm, kind, {"data": [], "imported": f"{whose} checkpoint {checkpoint.name}"})
    return Imported(kind, dataclasses.asdict(lm.config), count_parameters(lm))


def export_lm(name: str, out: Path) -> str:
    """Writes an LM of the zoo as a checkpoint that icefall's model class loads; returns icefall's options for it.

    In icefall before April 2023, `--lm-vocab-size` is called `--vocab-size`.

    Raises:
      ModelError: a kind of LM that icefall does not have, or an LSTM with `output_norm`.
      VocabError: the vocabulary is not of sentencepiece pieces with icefall's ids.
    """
    lm = load(name)
    if not isinstance(lm, (LSTM, IcefallTransformer)) or isinstance(lm, SpeechBrainRNN):
        raise ModelError(f"'{name}' cannot be exported: icefall has only LSTM LMs and its own Transformer LM")
    if isinstance(lm, LSTM) and lm.config.output_norm:
        raise ModelError(f"'{name}' cannot be exported: icefall's LSTM LM has no normalisation behind it (output_norm)")
    if not isinstance(lm.vocab, PieceVocabulary) or lm.vocab.bos != 1:
        raise VocabError(f"'{name}': icefall needs sentencepiece pieces with <sos/eos> as number 1")
    save_torch(out, {"model": icefall_weights(lm)})
    return _icefall_options(lm)


def icefall_weights(lm: LSTM | IcefallTransformer) -> dict[str, Tensor]:
    """The state dict of icefall's model class with the weights of ours."""
    names, tensors = _names(lm), {}
    weights = state_tensors(lm)
    weights["output.weight"] = lm.output.weight.detach()
    for ours, tensor in weights.items():
        theirs = renamed(ours, names)
        tensors[theirs] = tensor.cpu().contiguous()
        if theirs.startswith("encoder.") and not theirs.endswith(".eps"):
            tensors[f"{theirs}_scale"] = torch.zeros(())
    if isinstance(lm, LSTM):
        tensors[LSTM_KEY] = (tensors[LSTM_KEY].double() * lm.input.scale).float()
    return tensors


def _icefall_options(lm: LSTM | IcefallTransformer) -> str:
    c = lm.config
    if isinstance(lm, LSTM):
        kind, values = "rnn", {"num-layers": c.rnn_layers, "embedding-dim": c.embedding_dim or c.dim}
        values |= {"hidden-dim": c.dim}
    else:
        kind, values = "transformer", {"num-layers": c.layers, "embedding-dim": c.embedding_dim}
        values |= {"encoder-dim": c.dim, "dim-feedforward": c.feedforward, "nhead": c.heads}
    options = " ".join(f"--{kind}-lm-{key} {value}" for key, value in values.items())
    return f"--lm-type {kind} --lm-vocab-size {len(lm.vocab)} {options} --{kind}-lm-tie-weights {int(c.tied)}"


def _our_weights(tensors: dict[str, Tensor], lm: LSTM | IcefallTransformer) -> Iterator[tuple[str, Tensor]]:
    """Our names and values of icefall's tensors; what is left over keeps its name and is refused later."""
    names, rest = _names(lm), dict(tensors)
    for ours in state_tensors(lm):
        theirs = renamed(ours, names)
        if theirs not in rest:
            continue
        tensor = rest.pop(theirs).double()
        scale = rest.pop(f"{theirs}_scale", None)
        if scale is not None:
            tensor = tensor * scale.double().exp()
        if isinstance(lm, LSTM) and theirs == LSTM_KEY:
            tensor = tensor / lm.input.scale
        yield ours, tensor.float()
    if lm.config.tied:
        rest.pop("output_linear.weight", None)
    yield from rest.items()


def _names(lm: LSTM | IcefallTransformer) -> tuple[tuple[str, str], ...]:
    return LSTM_NAMES if isinstance(lm, LSTM) else TRANSFORMER_NAMES


def renamed(name: str, names: tuple[tuple[str, str], ...]) -> str:
    """`name` by the first of the pairs (pattern, replacement) whose pattern matches its begin."""
    for ours, theirs in names:
        if re.match(ours, name):
            return re.sub(f"^{ours}", theirs, name)
    return name


def _lstm_settings(tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    return {
        "dim": matrix_shape(tensors, "rnn.weight_hh_l0")[1],
        "embedding_dim": matrix_shape(tensors, LSTM_KEY)[1],
        "rnn_layers": count_layers(tensors, r"rnn\.weight_ih_l(\d+)$"),
        "tied": _tied(tensors),
        "dropout": 0.0,
    }


def _transformer_settings(tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    dim, embedding_dim = matrix_shape(tensors, "encoder.embed.weight")
    return {
        "dim": dim,
        "embedding_dim": embedding_dim,
        "heads": matrix_shape(tensors, TRANSFORMER_KEY)[0],
        "feedforward": matrix_shape(tensors, "encoder.encoder.layers.0.feed_forward.0.weight")[0],
        "layers": count_layers(tensors, r"encoder\.encoder\.layers\.(\d+)\."),
        "tied": _tied(tensors),
        "dropout": 0.0,
    }


def matrix_shape(tensors: Mapping[str, Tensor], name: str) -> tuple[int, int]:
    """Rows and columns of a matrix that must be there."""
    if name not in tensors or tensors[name].ndim != 2:
        raise ModelError(f"the checkpoint has no matrix '{name}', which every LM of this kind has")
    rows, columns = tensors[name].shape
    return rows, columns


def count_layers(tensors: Mapping[str, Tensor], pattern: str) -> int:
    """The number of layers, whose own numbers `pattern` finds in the names.

    Raises:
      ModelError: they are not numbered from 0 on.
    """
    found = {match[1] for match in (re.match(pattern, name) for name in tensors) if match}
    if found != set(map(str, range(len(found)))):
        raise ModelError(f"the checkpoint has {len(found)} layers, but not numbered from 0 to {len(found) - 1}")
    return len(found)


def _tied(tensors: Mapping[str, Tensor]) -> bool:
    embedding, output = (tensors.get(f"{name}.weight") for name in ("input_embedding", "output_linear"))
    return embedding is not None and output is not None and torch.equal(embedding, output)


# -- reading ---------------------------------------------------------------------------------------------------


def read_lm_checkpoint(path: Path) -> dict[str, Tensor]:
    """The model's tensors of a checkpoint (`model`, or else `model_avg`, or the whole dict), without `module.`.

    Raises:
      ModelError: no such file, not written by `torch.save`, truncated, a TorchScript file, or without tensors.
    """
    if not path.is_file():
        raise ModelError(f"{path}: no such file, expected a checkpoint of an LM, such as epoch-30.pt")
    found = read_torch_file(path)
    if isinstance(found, dict):
        found = next((found[key] for key in ("model", "model_avg") if isinstance(found.get(key), dict)), found)
    tensors = found.items() if isinstance(found, dict) else ()
    result = {str(name).removeprefix("module."): tensor for name, tensor in tensors if isinstance(tensor, Tensor)}
    if not result:
        raise ModelError(f"{path}: has no weights; expected a dict with 'model', or a state dict")
    return result
