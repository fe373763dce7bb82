"""The LMs of Kaldi's `steps/pytorchnn` (its `model.py`): LSTM and Transformer over words, read into model folders.

What differs from our LMs, and where it goes:
  - Its LSTM does not multiply the embedding by sqrt(dim): the factor goes into the first layer's input weights.
  - Its Transformer is `torch.nn.TransformerEncoder` after positional encoding: our `transformer` (post-norm, GELU).
  - Its vocabulary is a `words.txt` whose lines count, not the numbers in it; begin and end of sentence are one word,
    `<s>`, and unknown words are scored as another, `<unk>`.
Scores are those of its scripts for a sentence on its own; the scripts carry the state of an LSTM on from the best
hypothesis of the utterance before.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

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
from lm_zoo.inference.neural import NeuralLM
from lm_zoo.models.lstm import LSTM
from lm_zoo.registry import build, state_tensors
from lm_zoo.text.sentences import read_sentences
from lm_zoo.text.vocabulary import SOS_EOS, UNK, WordVocabulary, text_case

LSTM_KEY = "rnn.weight_ih_l0"
TRANSFORMER_KEY = "transformer_encoder.layers.0.self_attn.in_proj_weight"
CONSTANTS = ("pos_encoder.pe", "src_mask")  # of its Transformer; ours computes them

# Ours -> Kaldi's; first match wins.  Names that are not here are the same on both sides.
NAMES = (
    (r"input\.embedding\.", "encoder."),
    (r"output\.", "decoder."),
    (r"layers\.(\d+)\.attention\.in_proj\.", r"transformer_encoder.layers.\1.self_attn.in_proj_"),
    (r"layers\.(\d+)\.attention\.", r"transformer_encoder.layers.\1.self_attn."),
    (r"layers\.", "transformer_encoder.layers."),
)


def import_nnlm(
    checkpoint: Path, words: Path, out: Path, heads: int | None = None, oov: str = UNK, boundary: str = "<s>"
) -> Imported:
    """Turns the `model.pt` of a pytorchnn recipe into a model folder.

    Args:
      words: the recipe's words.txt.
      heads: attention heads of a Transformer (`--nhead` of its train.py), which the weights do not tell.
      oov, boundary: the words for unknown words and for begin and end of sentence.
    Raises:
      ModelError: not a checkpoint, not of such an LM (GRU and plain RNN are none), or heads that do not fit.
      VocabError: words.txt cannot be used, or has another number of words than the weights.
    """
    tensors = read_lm_checkpoint(checkpoint)
    if "encoder.weight" not in tensors or not {LSTM_KEY, TRANSFORMER_KEY} & tensors.keys():
        raise ModelError(
            f"{checkpoint}: not an LM of Kaldi's pytorchnn, which has 'encoder.weight' and '{LSTM_KEY}' or "
            f"'{TRANSFORMER_KEY}'; it has {', '.join(sorted(tensors)[:3])}, ..."
        )
    kind = "lstm" if LSTM_KEY in tensors else "transformer"
    if kind == "lstm" and heads is not None:
        raise ModelError(f"{checkpoint}: an LSTM, which has no attention heads; leave --heads out")
    with shapes_of(checkpoint):
        is_lstm = kind == "lstm"
        settings = lstm_settings(checkpoint, tensors) if is_lstm else _transformer_settings(checkpoint, tensors, heads)
        lm = build(kind, read_words(words, oov, boundary), settings)
        weights = dict(our_weights(tensors, lm))
    return write_imported(lm, kind, weights, checkpoint, out, "Kaldi pytorchnn")


def read_words(path: Path, oov: str = UNK, boundary: str = "<s>") -> WordVocabulary:
    """The vocabulary of a words.txt, lines `WORD NUMBER`: a word's id is the number of different words before it.

    Raises:
      VocabError: a line of another form, or one of the two special words is not there.
    """
    found: dict[str, None] = {}
    for fields in read_sentences(f"text:{path}"):
        if len(fields) != 2:
            raise VocabError(f"{path}: found '{' '.join(fields)[:60]}', expected lines 'WORD NUMBER'")
        found.setdefault(fields[0])
    if oov == boundary:
        raise VocabError(f"{path}: the word '{oov}' cannot be both unknown words and the sentence boundary")
    special = {boundary: SOS_EOS, oov: UNK}
    for word, option in ((boundary, "--boundary"), (oov, "--oov")):
        if word not in found:
            raise VocabError(f"{path}: has no word '{word}'; say with {option} which word it is")
        if special[word] in found and special[word] != word:
            raise VocabError(f"{path}: has both '{word}' and '{special[word]}'; say with {option} which is meant")
    return WordVocabulary([special.get(word, word) for word in found], text_case(found))


def lstm_settings(checkpoint: Path, tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    """Settings of our LSTM by the shapes of a checkpoint's tensors; ModelError for a GRU or a plain RNN."""
    (rows, width), dim = matrix_shape(tensors, LSTM_KEY), matrix_shape(tensors, "rnn.weight_hh_l0")[1]
    if rows != 4 * dim:
        what = {3: "a GRU", 1: "a plain RNN"}.get(rows // dim, "something else")
        raise ModelError(f"{checkpoint}: {what} by the shape of '{LSTM_KEY}', expected an LSTM or a Transformer")
    layers = count_layers(tensors, r"rnn\.weight_ih_l(\d+)$")
    return {"dim": dim, "embedding_dim": width, "rnn_layers": layers, "tied": _tied(tensors), "dropout": 0.0}


def _transformer_settings(checkpoint: Path, tensors: Mapping[str, Tensor], heads: int | None) -> dict[str, Any]:
    dim = matrix_shape(tensors, "encoder.weight")[1]
    if heads is None or heads < 1 or dim % heads:
        found = "is not given" if heads is None else f"is {heads}"
        raise ModelError(
            f"{checkpoint}: a Transformer of dimension {dim}; its number of attention heads {found}, expected a "
            "divisor of that: --heads N, which is --nhead of the recipe's train.py (2 if it was left out)"
        )
    return {
        "dim": dim,
        "heads": heads,
        "feedforward": matrix_shape(tensors, "transformer_encoder.layers.0.linear1.weight")[0],
        "layers": count_layers(tensors, r"transformer_encoder\.layers\.(\d+)\."),
        "tied": _tied(tensors),
        "dropout": 0.0,
        "activation": "gelu",
    }


def _tied(tensors: Mapping[str, Tensor]) -> bool:
    embedding, output = tensors["encoder.weight"], tensors.get("decoder.weight")
    return output is not None and torch.equal(embedding, output)


def our_weights(tensors: Mapping[str, Tensor], lm: NeuralLM) -> Iterator[tuple[str, Tensor]]:
    """Our names and values of Kaldi's tensors; what is left over keeps its name and is refused later."""
    rest = {name: tensor for name, tensor in tensors.items() if name not in CONSTANTS}
    for ours in state_tensors(lm):
        theirs = renamed(ours, NAMES)
        if theirs in rest:
            tensor = rest.pop(theirs).float()
            if isinstance(lm, LSTM) and theirs == LSTM_KEY:
                tensor = (tensor.double() / lm.input.scale).float()
            yield ours, tensor
    if lm.config.tied:
        rest.pop("decoder.weight", None)
    yield from rest.items()
