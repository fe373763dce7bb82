"""The LMs of SpeechBrain (`lobes.models`: `RNNLM` with LSTM, `TransformerLM`), read into model folders.

What differs from our LMs, and where it goes:
  - `RNNLM` does not multiply the embedding by sqrt(dim): the factor goes into the first LSTM layer's input weights.
  - `TransformerLM` may have narrower embeddings and a linear layer behind them (`d_embedding`), which depend on the
    token alone: what they give is our embedding.
  - Token 0 is the padding of `TransformerLM`, in its recipes `<unk>`, too: `TransformerLMRescorer` takes it out of the
    softmax, and a sentence with it has minus infinity.  Here its logit is UNSEEN at all places.
  - Tokens are those of the sentencepiece model, begin and end of sentence `bos_index` and `eos_index` of the
    hyperparams.yaml: `<s>` and `</s>`, or both 0, `<unk>`, whatever pieces of those names there are.
Scores are the sums of `RNNLMRescorer` and `TransformerLMRescorer` with a temperature of 1: tokens and end of sentence.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
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
from lm_zoo.reading import kaldi_fields
from lm_zoo.registry import build
from lm_zoo.text.vocabulary import BOS, EOS, SOS_EOS, UNK, UNK_SOS_EOS, PieceVocabulary, text_case

HYPERPARAMS = "hyperparams.yaml"
UNSEEN = -100.0
REFERENCES = 20  # of one another, from a value to what it stands for

RNN = "speechbrain.lobes.models.RNNLM.RNNLM"
TRANSFORMER = "speechbrain.lobes.models.transformer.TransformerLM.TransformerLM"
EMBEDDING = {RNN: "embedding.Embedding.weight", TRANSFORMER: "custom_src_module.emb.Embedding.weight"}
LSTM_KEY = "rnn.rnn.weight_ih_l0"
FEEDFORWARD = "encoder.layers.0.pos_ffn.ffn.0.weight"
NEEDED = {
    RNN: (EMBEDDING[RNN], LSTM_KEY, "rnn.rnn.weight_hh_l0", "out.w.weight", "out.w.bias"),
    TRANSFORMER: (EMBEDDING[TRANSFORMER], FEEDFORWARD, "output_proj.layers.2.w.weight", "output_proj.layers.2.w.bias"),
}
PLAIN = {  # arguments of a TransformerLM -> the value that is known here
    "positional_encoding": "fixed_abs_sine",
    "attention_type": "regularMHA",
    "num_decoder_layers": 0,
}
READ = {"activation", "rnn_class", "nhead", "normalize_before", *PLAIN}
ACTIVATIONS = {"torch.nn.LeakyReLU": "leaky_relu", "torch.nn.ReLU": "relu", "torch.nn.GELU": "gelu"}

# SpeechBrain's -> ours; first match wins.
NAMES = {
    RNN: (
        (r"embedding\.Embedding\.", "input.embedding."),
        (r"rnn\.rnn\.", "rnn."),
        (r"out\.w\.", "output."),
    ),
    TRANSFORMER: (
        (r"encoder\.layers\.(\d+)\.self_att\.att\.in_proj_", r"layers.\1.attention.in_proj."),
        (r"encoder\.layers\.(\d+)\.self_att\.att\.", r"layers.\1.attention."),
        (r"encoder\.layers\.(\d+)\.pos_ffn\.ffn\.0\.", r"layers.\1.linear1."),
        (r"encoder\.layers\.(\d+)\.pos_ffn\.ffn\.3\.", r"layers.\1.linear2."),
        (r"encoder\.layers\.(\d+)\.norm([12])\.norm\.", r"layers.\1.norm\2."),
        (r"encoder\.norm\.norm\.", "last_norm.0."),
        (r"output_proj\.layers\.0\.w\.", "last_norm.1."),
        (r"output_proj\.layers\.1\.norm\.", "last_norm.2."),
        (r"output_proj\.layers\.2\.w\.", "output."),
    ),
}


@dataclass(frozen=True, repr=False)
class Tagged:
    """A value of a hyperparams.yaml with a tag, which is read and never done: `!new:CLASS`, `!ref <NAME>`.

    Attributes:
      value: text, or what else stands behind the tag: a dict of arguments, a list.
    """

    tag: str
    value: Any

    def __repr__(self) -> str:
        return f"{self.tag} {self.value}".strip() if isinstance(self.value, str) else self.tag


def import_speechbrain(
    checkpoint: Path, hyperparams: Mapping[str, Any], bpe: Path, out: Path, where: object = HYPERPARAMS
) -> Imported:
    """Turns an LM checkpoint of SpeechBrain (`lm.ckpt`, `model.ckpt`) into a model folder.

    Args:
      hyperparams: the values of the hyperparams.yaml, `Tagged` where they have a tag.
      bpe: the sentencepiece model of the LM's tokens, `tokenizer.ckpt`.
      where: the name of the hyperparams' file, for errors.
    Raises:
      ModelError: not a checkpoint, not of such an LM, or hyperparams that do not fit it.
      VocabError: tokens that cannot be used, or of another number than the weights are for.
    """
    lm_class, arguments = find_lm(hyperparams, where)
    tensors = read_lm_checkpoint(checkpoint)
    for name in NEEDED[lm_class]:
        if name not in tensors:
            raise ModelError(
                f"{checkpoint}: has no '{name}', which SpeechBrain's {lm_class.rpartition('.')[2]} has; it has "
                f"{', '.join(sorted(tensors)[:3])}, ..."
            )
    vocab = read_tokens(hyperparams, bpe, where)
    if lm_class == TRANSFORMER and 0 in (vocab.bos, vocab.eos):
        raise ModelError(
            f"{where}: has bos_index {vocab.bos} and eos_index {vocab.eos}; 0 is the padding of a TransformerLM, which "
            "it does not see; expected those of the LM's training, such as 1 and 2"
        )
    with shapes_of(checkpoint):
        if lm_class == RNN:
            kind, settings = "speechbrain-rnn", _rnn_settings(tensors, arguments, where)
        else:
            kind, settings = "speechbrain-transformer", _transformer_settings(tensors, arguments, where)
        lm = build(kind, vocab, settings)
        weights = _rnn_weights(tensors) if lm_class == RNN else _transformer_weights(tensors)
    return write_imported(lm, kind, weights, checkpoint, out, "SpeechBrain")


# -- hyperparams -----------------------------------------------------------------------------------------------


def find_lm(hyperparams: Mapping[str, Any], where: object = HYPERPARAMS) -> tuple[str, dict[str, Any]]:
    """The class of the one LM that is made in a hyperparams.yaml, and what its weights do not tell of its arguments.

    Raises:
      ModelError: there is none, more than one, or an argument that cannot be had from the file.
    """
    classes = {f"!new:{name}": name for name in (RNN, TRANSFORMER)}
    made = {name: value for name, value in hyperparams.items() if isinstance(value, Tagged)}
    found = {id(value): name for name, value in made.items() if value.tag in classes}
    if len(found) != 1:
        others = [f"{name}: {value!r}"[:80] for name, value in made.items() if value.tag.startswith("!new:")]
        shown = ", ".join(found.values()) if found else "; ".join(others[:3]) or "nothing that is made by !new:"
        raise ModelError(f"{where}: has {shown}; expected one LM, !new:{RNN} or !new:{TRANSFORMER}")
    lm = made[next(iter(found.values()))]
    if not isinstance(lm.value, dict):
        raise ModelError(f"{where}: found no named arguments of {lm!r}, expected lines such as 'nhead: 8'")
    arguments = {name: value for name, value in lm.value.items() if name in READ}
    return classes[lm.tag], {name: resolved(value, hyperparams, where) for name, value in arguments.items()}


def resolved(value: Any, hyperparams: Mapping[str, Any], where: object) -> Any:
    """What `!ref <NAME>` stands for; all other values as they are."""
    for _ in range(REFERENCES):
        if not isinstance(value, Tagged) or value.tag != "!ref":
            return value
        match = re.fullmatch(r"<([^<>]+)>", value.value) if isinstance(value.value, str) else None
        if match is None or match[1] not in hyperparams:
            raise ModelError(f"{where}: found '{value!r}', expected the name of a value in it; write the value there")
        value = hyperparams[match[1]]
    raise ModelError(f"{where}: found references (!ref) that lead to no value")


def _shown(value: Any) -> str:
    return f"a {type(value).__name__}" if isinstance(value, (dict, list)) else repr(value)[:60]


def _activation(arguments: Mapping[str, Any], default: str, known: tuple[str, ...], where: object) -> str:
    found = arguments.get("activation", Tagged(f"!name:torch.nn.{default}", ""))
    name = found.tag.removeprefix("!name:") if isinstance(found, Tagged) and not found.value else ""
    name = name.replace(".modules.activation.", ".")
    if ACTIVATIONS.get(name) not in known:
        expected = ", ".join(f"!name:{theirs}" for theirs, ours in ACTIVATIONS.items() if ours in known)
        raise ModelError(
            f"{where}: the LM has activation {_shown(found)}, expected one of {expected}, without arguments"
        )
    return ACTIVATIONS[name]


# -- tokens ----------------------------------------------------------------------------------------------------


def read_tokens(hyperparams: Mapping[str, Any], bpe: Path, where: object = HYPERPARAMS) -> PieceVocabulary:
    """The vocabulary of a sentencepiece model with `bos_index` and `eos_index` of the hyperparams.

    Raises:
      VocabError: not a sentencepiece model, an index that is not there or that of a piece of text, or pieces with
        blanks.
    """
    vocab = PieceVocabulary.read(bpe, tokens=[UNK_SOS_EOS])  # for its processor
    processor = vocab.processor
    size, unk = processor.get_piece_size(), processor.unk_id()
    ends = []
    for name in ("bos_index", "eos_index"):
        index = resolved(hyperparams.get(name), hyperparams, where)
        if type(index) is not int or not 0 <= index < size:
            found = f"{name} {_shown(index)}" if name in hyperparams else f"no {name}"
            raise VocabError(f"{where}: has {found}, expected the number of one of the {size} pieces of {bpe}")
        if index != unk and not processor.is_control(index):
            raise VocabError(
                f"{where}: {name} {index} is '{processor.id_to_piece(index)}' in {bpe}, a piece of text; expected "
                f"{BOS}, {EOS} or {UNK}; is that the tokenizer of this LM?"
            )
        ends.append(index)
    bos, eos = ends
    if bos != eos and unk in ends:
        raise VocabError(f"{where}: bos_index {bos} and eos_index {eos} differ, and one of them is {UNK}")
    names = {bos: SOS_EOS, unk: UNK} if bos == eos else {bos: BOS, eos: EOS, unk: UNK}
    names = {unk: UNK_SOS_EOS} if bos == unk else names
    pieces = [processor.id_to_piece(k) for k in range(size)]
    if (odd := next((piece for piece in pieces if kaldi_fields(piece) != [piece]), None)) is not None:
        raise VocabError(f"{bpe}: found the piece {odd!r}, expected no blanks in a piece")
    tokens = [names.get(k, piece) for k, piece in enumerate(pieces)]
    vocab = PieceVocabulary.read(bpe, text_case(tokens), tokens)
    if (vocab.bos, vocab.eos) != (bos, eos):
        raise VocabError(f"{bpe}: has '{vocab.pieces[vocab.bos]}' as number {vocab.bos}, bos_index is {bos}")
    return vocab


# -- weights ---------------------------------------------------------------------------------------------------


def _rnn_settings(tensors: Mapping[str, Tensor], arguments: Mapping[str, Any], where: object) -> dict[str, Any]:
    rnn = arguments.get("rnn_class", Tagged("!name:speechbrain.nnet.RNN.LSTM", ""))
    if not isinstance(rnn, Tagged) or rnn.tag != "!name:speechbrain.nnet.RNN.LSTM" or rnn.value:
        expected = "!name:speechbrain.nnet.RNN.LSTM, without arguments"
        raise ModelError(f"{where}: the LM has rnn_class {_shown(rnn)}, expected {expected}")
    blocks = count_layers({_block(name): tensors[name] for name in tensors}, r"dnn\.linear_(\d+)\.")
    return {
        "dim": matrix_shape(tensors, "rnn.rnn.weight_hh_l0")[1],
        "rnn_layers": count_layers(tensors, r"rnn\.rnn\.weight_ih_l(\d+)$"),
        "embedding_dim": matrix_shape(tensors, LSTM_KEY)[1],
        "blocks": blocks,
        "feedforward": matrix_shape(tensors, "out.w.weight")[1],
        "activation": _activation(arguments, "LeakyReLU", ("leaky_relu", "relu", "gelu"), where),
        "dropout": 0.0,
    }


def _block(name: str) -> str:
    """A name in which the blocks behind the LSTM layers count from 0; SpeechBrain's are `linear`, `linear_0`, ..."""
    match = re.match(r"dnn\.(linear|norm)(?:_(\d+))?\.(.*)", name)
    return name if match is None else f"dnn.{match[1]}_{0 if match[2] is None else int(match[2]) + 1}.{match[3]}"


def _rnn_weights(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Our names and values; what is left over keeps its name and is refused later."""
    weights = {}
    for theirs, tensor in tensors.items():
        ours = renamed(theirs, NAMES[RNN])
        if match := re.fullmatch(r"dnn\.(linear_(\d+)\.w|norm_(\d+)\.norm)\.(weight|bias)", _block(theirs)):
            ours = f"norm.{3 * int(match[2] or match[3]) + (match[3] is not None)}.{match[4]}"
        if theirs == LSTM_KEY:
            tensor = tensor.double() / math.sqrt(tensor.shape[1])
        weights[ours] = tensor.float()
    return weights


def _transformer_settings(tensors: Mapping[str, Tensor], arguments: Mapping[str, Any], where: object) -> dict[str, Any]:
    for name, value in PLAIN.items():
        if (found := arguments.get(name, value)) != value:
            raise ModelError(f"{where}: the LM has {name} {_shown(found)}, expected {value!r}")
    feedforward, dim = matrix_shape(tensors, FEEDFORWARD)
    heads, before = arguments.get("nhead", 8), arguments.get("normalize_before", False)
    if type(heads) is not int or heads < 1 or dim % heads:
        raise ModelError(f"{where}: the LM has nhead {_shown(heads)}, expected a divisor of its dimension {dim}")
    if not isinstance(before, bool):
        raise ModelError(f"{where}: the LM has normalize_before {_shown(before)}, expected True or False")
    return {
        "dim": dim,
        "heads": heads,
        "feedforward": feedforward,
        "layers": count_layers(tensors, r"encoder\.layers\.(\d+)\."),
        "activation": _activation(arguments, "ReLU", ("relu", "gelu"), where),
        "norm": "pre" if before else "post",
        "dropout": 0.0,
    }


def _transformer_weights(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Our names and values; what is left over keeps its name and is refused later."""
    rest = {name: tensor.float() for name, tensor in tensors.items() if name != "positional_encoding.pe"}
    width = matrix_shape(rest, EMBEDDING[TRANSFORMER])[1]
    embedding = rest.pop(EMBEDDING[TRANSFORMER]).double()
    if {"embedding_proj.w.weight", "embedding_proj.w.bias"} <= rest.keys():
        dim = matrix_shape(rest, "embedding_proj.w.weight")[0]
        weight, bias = (rest.pop(f"embedding_proj.w.{part}").double() for part in ("weight", "bias"))
        embedding = F.linear(embedding * math.sqrt(width), weight, bias.view(dim)) / math.sqrt(dim)
    weights = {"input.embedding.weight": embedding.float()}
    weights |= {renamed(name, NAMES[TRANSFORMER]): tensor for name, tensor in rest.items()}
    rows = matrix_shape(weights, "output.weight")[0]
    weights["output.weight"] = torch.cat([torch.zeros_like(weights["output.weight"][:1]), weights["output.weight"][1:]])
    weights["output.bias"] = weights["output.bias"].view(rows).masked_fill(torch.arange(rows) == 0, UNSEEN)
    return weights
