"""The LMs of ESPnet 2 (`espnet2/lm`: `transformer` and `seq_rnn` with LSTM), read into model folders.

What differs from our LMs, and where it goes:
  - Its Transformer reads each embedding through a linear layer, a layer normalisation and a ReLU, which depend on the
    token alone: what they give is our embedding, as wide as the layers.  The rest is our `transformer` (pre-norm, ReLU)
    with positions or without; its layer normalisations add 1e-12 to the variance.
  - Its LSTM is that of Kaldi's pytorchnn (both come from PyTorch's example of a language model).
  - Tokens are those of `token_list` in the config.yaml of the training: pieces of a sentencepiece model, by numbers
    that are not the model's, words, or characters.  Begin and end of sentence are its last one, `<sos/eos>`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from lm_zoo.errors import ModelError, VocabError
from lm_zoo.icefall.checkpoints import (
    Imported,
    count_layers,
    matrix_shape,
    read_lm_checkpoint,
    renamed,
    shapes_of,
    write_imported,
)
from lm_zoo.icefall.kaldi_nnlm import LSTM_KEY, lstm_settings, our_weights
from lm_zoo.reading import kaldi_fields
from lm_zoo.registry import build
from lm_zoo.text.vocabulary import SOS_EOS, UNK, PieceVocabulary, WordVocabulary, text_case

PREFIX = "lm."
EPS = 1e-12
SPACE = "<space>"
CONFIG = "config.yaml"

NEEDED = {
    "transformer": (
        "embed.weight",
        *(f"encoder.embed.{k}.{part}" for k in (0, 1) for part in ("weight", "bias")),
        "encoder.encoders.0.feed_forward.w_1.weight",
    ),
    "seq_rnn": ("encoder.weight", LSTM_KEY),
}

# ESPnet's -> ours; first match wins.
NAMES = (
    (r"encoder\.encoders\.(\d+)\.self_attn\.linear_out\.", r"layers.\1.attention.out_proj."),
    (r"encoder\.encoders\.(\d+)\.feed_forward\.w_([12])\.", r"layers.\1.linear\2."),
    (r"encoder\.encoders\.", "layers."),
    (r"encoder\.after_norm\.", "last_norm."),
    (r"decoder\.", "output."),
)


def import_espnet(
    checkpoint: Path, config: Mapping[str, Any], out: Path, bpe: Path | None = None, where: object = CONFIG
) -> Imported:
    """Turns an LM checkpoint of ESPnet 2 (`valid.loss.ave.pth`) into a model folder.

    Args:
      config: what is in the `config.yaml` of its training.
      bpe: the sentencepiece model of tokens that are pieces, where the config's `bpemodel` is not there.
      where: the name of the config's file, for errors.
    Raises:
      ModelError: not a checkpoint, not of such an LM (GRU and plain RNN are none), or a config that does not fit it.
      VocabError: tokens that cannot be used, or of another number than the weights are for.
    """
    kind, model, conf = config.get("lm"), config.get("model", "lm"), config.get("lm_conf") or {}
    if not isinstance(kind, str) or kind not in NEEDED or model != "lm" or not isinstance(conf, Mapping):
        found = f"lm {kind!r}, model {model!r}, lm_conf {str(conf)[:60]}"
        raise ModelError(f"{where}: has {found}; expected an LM 'transformer' or 'seq_rnn'")
    tensors = {name.removeprefix(PREFIX): tensor for name, tensor in read_lm_checkpoint(checkpoint).items()}
    for name in NEEDED[kind]:
        if name not in tensors:
            raise ModelError(f"{checkpoint}: has no '{name}', which an LM '{kind}' of ESPnet has")
    vocab = read_tokens(config, bpe, where)
    with shapes_of(checkpoint):
        if kind == "seq_rnn":
            lm = build("lstm", vocab, lstm_settings(checkpoint, tensors))
            return write_imported(lm, "lstm", dict(our_weights(tensors, lm)), checkpoint, out, "ESPnet")
        settings = _transformer_settings(checkpoint, tensors, conf)
        lm = build("transformer", vocab, settings)
        weights = _transformer_weights(tensors, settings)
    return write_imported(lm, "transformer", weights, checkpoint, out, "ESPnet")


def read_tokens(
    config: Mapping[str, Any], bpe: Path | None = None, where: object = CONFIG
) -> PieceVocabulary | WordVocabulary:
    """The vocabulary that a config.yaml tells; raises VocabError where it is none that is known here."""
    tokens, kind = config.get("token_list"), config.get("token_type", "bpe")
    if not isinstance(tokens, list) or not tokens or not all(isinstance(token, str) for token in tokens):
        raise VocabError(f"{where}: has no 'token_list', or one that is not of texts; expected that of a training")
    if (odd := next((token for token in tokens if kaldi_fields(token) != [token]), None)) is not None:
        raise VocabError(f"{where}: found the token {odd!r}, expected no blanks in a token")
    if tokens[-1] != SOS_EOS or UNK not in tokens:
        raise VocabError(f"{where}: its token_list ends in '{tokens[-1]}', expected {UNK} in it and {SOS_EOS} last")
    case = text_case(token for token in tokens if token != SPACE)
    if kind == "bpe":
        path = bpe or Path(str(config.get("bpemodel")))
        if bpe is None and not path.is_file():
            raise VocabError(f"{where}: its bpemodel '{path}' is not there; say where it is: --bpe bpe.model")
        vocab = PieceVocabulary.read(path, case, tokens)
        known = sum(vocab.processor.piece_to_id(token) != vocab.processor.unk_id() for token in tokens)
        if known < len(tokens) / 2:
            raise VocabError(
                f"{path}: has {known} of the {len(tokens)} tokens of the token_list, expected the model of its pieces"
            )
        return vocab
    if kind not in ("word", "char"):
        raise VocabError(f"{where}: found token_type '{kind}', expected bpe, word or char")
    if bpe is not None:
        raise VocabError(f"{where}: found token_type '{kind}', which has no sentencepiece model; leave --bpe out")
    if kind == "char" and SPACE in tokens:
        raise VocabError(
            f"{where}: its characters have {SPACE} between words, a token of no word; LMs over characters are read "
            "for languages that are written without it"
        )
    return WordVocabulary(tokens, case)


def _transformer_settings(checkpoint: Path, tensors: Mapping[str, Tensor], conf: Mapping[str, Any]) -> dict[str, Any]:
    dim, heads, positions = matrix_shape(tensors, "encoder.embed.0.weight")[0], conf.get("head", 2), conf.get("pos_enc")
    if not isinstance(heads, int) or heads < 1 or dim % heads:
        raise ModelError(
            f"{checkpoint}: of dimension {dim}; config.yaml has head {heads!r}, expected a divisor of that"
        )
    if positions not in (None, "sinusoidal"):
        raise ModelError(f"{checkpoint}: config.yaml has pos_enc {positions!r}, expected null or 'sinusoidal'")
    return {
        "dim": dim,
        "heads": heads,
        "feedforward": matrix_shape(tensors, "encoder.encoders.0.feed_forward.w_1.weight")[0],
        "layers": count_layers(tensors, r"encoder\.encoders\.(\d+)\."),
        "positions": positions is not None,
        "tied": False,
        "dropout": 0.0,
        "norm": "pre",
        "norm_eps": EPS,
    }


def _transformer_weights(tensors: Mapping[str, Tensor], settings: Mapping[str, Any]) -> dict[str, Tensor]:
    """Our names and values; what is left over keeps its name and is refused later."""
    rest = {name: tensor.float() for name, tensor in tensors.items()}
    weights = {"input.embedding.weight": _embedding([rest.pop(name) for name in NEEDED["transformer"][:5]], settings)}
    for layer in range(settings["layers"]):
        for part in ("weight", "bias"):
            names = [f"encoder.encoders.{layer}.self_attn.linear_{which}.{part}" for which in "qkv"]
            if rest.keys() >= set(names):
                weights[f"layers.{layer}.attention.in_proj.{part}"] = torch.cat([rest.pop(name) for name in names])
    return weights | {renamed(name, NAMES): tensor for name, tensor in rest.items()}


def _embedding(read: list[Tensor], settings: Mapping[str, Any]) -> Tensor:
    """What the first layer reads of each token, before positions, over the factor of our embeddings."""
    embedding, weight, bias, gain, shift = (tensor.double() for tensor in read)
    given = F.layer_norm(F.linear(embedding, weight, bias), (settings["dim"],), gain, shift, EPS).relu()
    return (given if settings["positions"] else given / math.sqrt(settings["dim"])).float()
