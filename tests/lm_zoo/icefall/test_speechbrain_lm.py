"""LMs of SpeechBrain: a state dict by its names, what its layers compute written out in float64, their scores ours.

The formulas are those of `lobes/models/RNNLM.py`, `lobes/models/transformer/TransformerLM.py` and of the rescorers in
`decoders/scorer.py` of SpeechBrain 1.1.2; its own code gave the same sums for ten LMs like these (to 5e-5 a sentence).
"""

from __future__ import annotations

import io
import math
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
import torch
from click.testing import CliRunner
from torch import Tensor
from torch.nn import functional as F

from lm_zoo.errors import LMError, ModelError, VocabError
from lm_zoo.icefall.checkpoints import export_lm
from lm_zoo.icefall.speechbrain_lm import Tagged, import_speechbrain
from lm_zoo.registry import build, load, read_config, save_folder
from lm_zoo.text.vocabulary import PieceVocabulary, load_vocabulary, same_tokens
from rescore.cli.hyperparams import read_hyperparams
from rescore.cli.main import cli
from rescore.errors import UsageError
from tests.asr.tiny import TEXT, vocabulary

WORDS = sorted({*TEXT.split()})
SENTENCES = [tuple(WORDS[:4]), (), (WORDS[2], WORDS[2], WORDS[5]), (WORDS[1],)]
UNSEEN = (WORDS[0], f"{WORDS[1]}Ξ{WORDS[2]}")
SIZE, EMBED, DIM, HEADS, FEEDFORWARD = 18, 6, 12, 3, 10
Tensors = dict[str, Tensor]

RNN = """
__set_seed: !apply:speechbrain.utils.seed_everything [!ref <seed>]
seed: 2223
data_folder: !PLACEHOLDER # e.g, /localscratch/LibriSpeech
emb_size: 6
activation: !name:torch.nn.LeakyReLU
bos_index: 0
eos_index: 0
model: !new:speechbrain.lobes.models.RNNLM.RNNLM
    embedding_dim: !ref <emb_size> * 1
    activation: !ref <activation>
    rnn_layers: 2
modules:
    model: !ref <model>
tokenizer: !new:sentencepiece.SentencePieceProcessor
"""
TRANSFORMER = """
bos_index: 1
eos_index: 2
heads: 3
lm_model: !new:speechbrain.lobes.models.transformer.TransformerLM.TransformerLM # yamllint disable-line
    nhead: !ref <heads>
    num_encoder_layers: 2
    num_decoder_layers: 0
    activation: !name:torch.nn.GELU
    normalize_before: False
lr_annealing: !new:speechbrain.nnet.schedulers.NoamScheduler
    lr_initial: !ref <lr> * 2
"""
# As SpeechBrain copies it into the folder of a training: references are done, what stands twice is an alias.
COPIED = """
modules:
  net: &id002 !new:speechbrain.lobes.models.RNNLM.RNNLM

    embedding_dim: 6
    activation: &id001 !name:torch.nn.LeakyReLU
net: *id002
model: *id002
bos_index: 0
eos_index: 0
other: *id001
"""


@lru_cache
def tokenizer(marks: bool = True) -> bytes:
    """A sentencepiece model of SIZE pieces, `<unk>` the first; with `<s>` and `</s>` behind it or without."""
    made, ends = io.BytesIO(), {"bos_id": 1, "eos_id": 2} if marks else {"bos_id": -1, "eos_id": -1}
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([TEXT] * 3), model_writer=made, vocab_size=SIZE, model_type="bpe", minloglevel=2, **ends
    )
    return made.getvalue()


def drawn(shapes: dict[str, tuple[int, ...]]) -> Tensors:
    generator = torch.Generator().manual_seed(3)
    return {name: 0.6 * torch.randn(*shape, generator=generator) for name, shape in shapes.items()}


def affine(name: str, rows: int, columns: int = 0) -> dict[str, tuple[int, ...]]:
    """A linear layer, or without columns a layer normalisation."""
    return {f"{name}.weight": (rows, columns) if columns else (rows,), f"{name}.bias": (rows,)}


def rnn_tensors(blocks: int = 1, layers: int = 2) -> Tensors:
    shapes: dict[str, tuple[int, ...]] = {"embedding.Embedding.weight": (SIZE, EMBED)}
    for k in range(layers):
        shapes |= {f"rnn.rnn.weight_{part}_l{k}": (4 * DIM, width) for part, width in (("ih", EMBED), ("hh", DIM))}
        shapes |= {f"rnn.rnn.bias_{part}_l{k}": (4 * DIM,) for part in ("ih", "hh")}
        shapes[f"rnn.rnn.weight_ih_l{k}"] = (4 * DIM, DIM if k else EMBED)
    for k in range(blocks):
        last = f"_{k - 1}" if k else ""
        shapes |= affine(f"dnn.linear{last}.w", FEEDFORWARD, FEEDFORWARD if k else DIM)
        shapes |= affine(f"dnn.norm{last}.norm", FEEDFORWARD)
    return drawn(shapes | affine("out.w", SIZE, FEEDFORWARD if blocks else DIM))


def transformer_tensors(embed: int = 0, layers: int = 2) -> Tensors:
    shapes: dict[str, tuple[int, ...]] = {"custom_src_module.emb.Embedding.weight": (SIZE, embed or DIM)}
    shapes |= affine("embedding_proj.w", DIM, embed) if embed else {}
    for name in (f"encoder.layers.{k}" for k in range(layers)):
        shapes |= {
            f"{name}.self_att.att.in_proj_weight": (3 * DIM, DIM),
            f"{name}.self_att.att.in_proj_bias": (3 * DIM,),
        }
        shapes |= affine(f"{name}.self_att.att.out_proj", DIM, DIM)
        shapes |= affine(f"{name}.pos_ffn.ffn.0", FEEDFORWARD, DIM) | affine(f"{name}.pos_ffn.ffn.3", DIM, FEEDFORWARD)
        shapes |= affine(f"{name}.norm1.norm", DIM) | affine(f"{name}.norm2.norm", DIM)
    shapes |= affine("encoder.norm.norm", DIM) | affine("output_proj.layers.0.w", DIM, DIM)
    shapes |= affine("output_proj.layers.1.norm", DIM) | affine("output_proj.layers.2.w", SIZE, DIM)
    return drawn(shapes) | {"positional_encoding.pe": torch.zeros(1, 2500, DIM)}


def linear(t: Tensors, name: str, x: Tensor) -> Tensor:
    return x @ t[f"{name}.weight"].T + t[f"{name}.bias"]


def norm(t: Tensors, name: str, x: Tensor, eps: float) -> Tensor:
    centred = x - x.mean(-1, keepdim=True)
    scaled = centred / (centred.square().mean(-1, keepdim=True) + eps).sqrt()
    return scaled * t[f"{name}.norm.weight"] + t[f"{name}.norm.bias"]


def rnn_logits(t: Tensors, ids: list[int], activation: Any = F.leaky_relu) -> Tensor:
    x = t["embedding.Embedding.weight"][ids]
    for k in range(sum("weight_hh" in name for name in t)):
        h, c, outputs = torch.zeros(DIM).double(), torch.zeros(DIM).double(), []
        for row in x:
            sums = t[f"rnn.rnn.weight_ih_l{k}"] @ row + t[f"rnn.rnn.bias_ih_l{k}"]
            into, keep, fresh, out = (sums + t[f"rnn.rnn.weight_hh_l{k}"] @ h + t[f"rnn.rnn.bias_hh_l{k}"]).chunk(4)
            c = keep.sigmoid() * c + into.sigmoid() * fresh.tanh()
            h = out.sigmoid() * c.tanh()
            outputs.append(h)
        x = torch.stack(outputs)
    for name in ("", "_0", "_1"):
        if f"dnn.linear{name}.w.weight" in t:
            x = activation(norm(t, f"dnn.norm{name}", linear(t, f"dnn.linear{name}.w", x), 1e-5))
    return linear(t, "out.w", x)


def transformer_logits(t: Tensors, ids: list[int], activation: Any = F.gelu, before: bool = False) -> Tensor:
    x = t["custom_src_module.emb.Embedding.weight"][ids]
    x = x * math.sqrt(x.shape[1])
    x = linear(t, "embedding_proj.w", x) if "embedding_proj.w.bias" in t else x
    angles = [[place / 10000 ** (k // 2 * 2 / DIM) for k in range(DIM)] for place in range(len(ids))]
    x = x + torch.tensor([[(math.sin, math.cos)[k % 2](a) for k, a in enumerate(row)] for row in angles]).double()
    for name in (f"encoder.layers.{k}" for k in range(sum(".norm1.norm.bias" in name for name in t))):
        inner = norm(t, f"{name}.norm1", x, 1e-6) if before else x
        parts = inner @ t[f"{name}.self_att.att.in_proj_weight"].T + t[f"{name}.self_att.att.in_proj_bias"]
        heads = []
        for query, key, value in zip(*(part.split(DIM // HEADS, 1) for part in parts.chunk(3, 1)), strict=True):
            future = torch.full((len(ids), len(ids)), -math.inf).triu(1)
            heads.append((query @ key.T / math.sqrt(DIM // HEADS) + future).softmax(1) @ value)
        x = x + linear(t, f"{name}.self_att.att.out_proj", torch.cat(heads, 1))
        x = x if before else norm(t, f"{name}.norm1", x, 1e-6)
        inner = norm(t, f"{name}.norm2", x, 1e-6) if before else x
        x = x + linear(t, f"{name}.pos_ffn.ffn.3", activation(linear(t, f"{name}.pos_ffn.ffn.0", inner)))
        x = x if before else norm(t, f"{name}.norm2", x, 1e-6)
    x = norm(t, "output_proj.layers.1", linear(t, "output_proj.layers.0.w", norm(t, "encoder.norm", x, 1e-6)), 1e-6)
    logits = linear(t, "output_proj.layers.2.w", x)
    logits[:, 0] = -math.inf  # the rescorer takes the padding out
    return logits


def written(folder: Path, tensors: Tensors, hyperparams: str, marks: bool = True) -> None:
    torch.save(tensors, folder / "lm.ckpt")
    (folder / "hyperparams.yaml").write_text(hyperparams)
    (folder / "tokenizer.ckpt").write_bytes(tokenizer(marks))


def run(folder: Path) -> Path:
    words = ["import-lm", folder / "lm.ckpt", "--config", folder / "hyperparams.yaml", "--out", folder / "lm"]
    words += ["--bpe", folder / "tokenizer.ckpt"]
    assert CliRunner().invoke(cli, list(map(str, words)), catch_exceptions=False).exit_code == 0
    return folder / "lm"


def check(folder: Path, logits: Any, tensors: Tensors, ends: tuple[int, int], sentences: list[tuple[str, ...]]) -> None:
    """Compares the scores of sentences in both ways of scoring; pieces are those of the whole line."""
    lm, exact, expected = load(str(folder)), {name: tensor.double() for name, tensor in tensors.items()}, []
    for words in sentences:
        ids = [ends[0], *lm.vocab.processor.encode(" ".join(words)), ends[1]]
        scores = logits(exact, ids[:-1]).log_softmax(1)
        expected.append(math.fsum(float(scores[k, token]) for k, token in enumerate(ids[1:])))
    for score in (lm.score_hypotheses, lm.score_words):
        assert [math.fsum(row) for row in score(sentences)] == pytest.approx(expected, abs=5e-5)


@pytest.mark.parametrize(
    ("changes", "activation", "blocks", "marks", "ends"),
    [
        ({}, F.leaky_relu, 1, False, (0, 0)),
        ({}, F.leaky_relu, 1, True, (0, 0)),
        (
            {"bos_index: 0": "bos_index: 1", "eos_index: 0": "eos_index: 2", "LeakyReLU": "ReLU"},
            F.relu,
            2,
            True,
            (1, 2),
        ),
        (
            {"bos_index: 0": "bos_index: 2", "eos_index: 0": "eos_index: 2", "LeakyReLU": "GELU"},
            F.gelu,
            3,
            True,
            (2, 2),
        ),
        ({"    activation: !ref <activation>\n": ""}, F.leaky_relu, 0, True, (0, 0)),
    ],
)
def test_scores_of_an_rnnlm(
    changes: dict[str, str], activation: Any, blocks: int, marks: bool, ends: tuple[int, int], tmp_path: Path
) -> None:
    tensors = rnn_tensors(blocks, layers=1 + blocks % 2)
    written(tmp_path, tensors, changed(RNN, changes), marks)
    folder = run(tmp_path)
    assert read_config(folder)["kind"] == "speechbrain-rnn" and read_config(folder)["case"] == "upper"
    check(folder, lambda t, ids: rnn_logits(t, ids, activation), tensors, ends, [*SENTENCES, UNSEEN])
    lm = load(str(folder))
    assert (lm.vocab.bos, lm.vocab.eos, lm.vocab.unk, len(lm.vocab)) == (*ends, 0, SIZE)
    assert not lm.knows(UNSEEN[1]) and all(map(lm.knows, WORDS))


@pytest.mark.parametrize(
    ("changes", "activation", "before", "embed"),
    [
        ({}, F.gelu, False, 0),
        ({"GELU": "ReLU"}, F.relu, False, EMBED),
        ({"normalize_before: False": "normalize_before: True"}, F.gelu, True, DIM),
        ({"    activation: !name:torch.nn.GELU\n    normalize_before: False\n": ""}, F.relu, False, 0),
    ],
)
def test_scores_of_a_transformerlm(
    changes: dict[str, str], activation: Any, before: bool, embed: int, tmp_path: Path
) -> None:
    tensors = transformer_tensors(embed, layers=1 + before)
    written(tmp_path, tensors, changed(TRANSFORMER, changes))
    folder = run(tmp_path)
    assert read_config(folder)["kind"] == "speechbrain-transformer"
    check(folder, lambda t, ids: transformer_logits(t, ids, activation, before), tensors, (1, 2), SENTENCES)


def test_a_transformerlm_has_its_padding_out_of_the_softmax(tmp_path: Path) -> None:
    written(tmp_path, transformer_tensors(), TRANSFORMER)
    lm = load(str(run(tmp_path)))
    with torch.no_grad():
        _, scores = lm.step(lm.initial_state(), torch.tensor([0]), torch.tensor([1]))
    assert float(scores[0, 1:].double().logsumexp(0)) == pytest.approx(0, abs=1e-6) and -120 < float(scores[0, 0]) < -90
    assert lm.vocab.unk == 0 and not lm.knows("Ξ")


def changed(text: str, changes: dict[str, str]) -> str:
    for old, new in changes.items():
        assert text.count(old) >= 1
        text = text.replace(old, new)
    return text


def test_hyperparams_as_speechbrain_copies_them(tmp_path: Path) -> None:
    tensors = rnn_tensors()
    written(tmp_path, tensors, COPIED)
    check(run(tmp_path), rnn_logits, tensors, (0, 0), SENTENCES)
    found = read_hyperparams(tmp_path / "hyperparams.yaml")
    assert isinstance(found["net"], Tagged) and found["net"] is found["model"] is found["modules"]["net"]
    assert found["other"].value == "" and str(found["other"]) == "!name:torch.nn.LeakyReLU"


@pytest.mark.parametrize("hyperparams", [RNN, TRANSFORMER])
def test_checkpoints_that_do_not_fit(hyperparams: str, tmp_path: Path) -> None:
    """Without a tensor, with one of no dimension, with one more, and of other numbers of tokens."""
    whole = rnn_tensors() if hyperparams == RNN else transformer_tensors(EMBED)
    written(tmp_path, whole, hyperparams)
    values, names = read_hyperparams(tmp_path / "hyperparams.yaml"), [n for n in whole if n != "positional_encoding.pe"]
    broken = [{k: v for k, v in whole.items() if k != name} for name in names]
    broken += [whole | {name: torch.tensor(1.0)} for name in names]
    broken += [
        whole | {names[-1]: torch.full_like(whole[names[-1]], math.nan)},
        {**whole, "more.weight": torch.ones(2)},
    ]
    broken += [{name: t[:-1] if len(t) == SIZE else t for name, t in whole.items()}]
    broken += [whole | {name: whole[name][:1]} for name in names]
    for tensors in broken:
        torch.save(tensors, tmp_path / "lm.ckpt")
        with pytest.raises(LMError, match=r"lm.ckpt: |the checkpoint has "):
            import_speechbrain(tmp_path / "lm.ckpt", values, tmp_path / "tokenizer.ckpt", tmp_path / "lm")
    assert not (tmp_path / "lm").exists()


def test_files_that_are_missing_or_others(tmp_path: Path) -> None:
    written(tmp_path, rnn_tensors(), RNN)
    (tmp_path / "bpe.model").write_bytes(vocabulary().model)
    hyperparams = ["--config", str(tmp_path / "hyperparams.yaml")]
    for more, error, expected in (
        (hyperparams, UsageError, "of SpeechBrain, whose tokens are in a file of their own: --bpe tokenizer.ckpt"),
        (
            ["--bpe", str(tmp_path / "bpe.model")],
            ModelError,
            "(of SpeechBrain? then give its hyperparams.yaml, too: --c",
        ),
        (
            [*hyperparams, "--bpe", str(tmp_path / "none")],
            VocabError,
            "none: no such file, expected the sentencepiece m",
        ),
        ([*hyperparams, "--bpe", str(tmp_path / "lm.ckpt")], VocabError, "lm.ckpt: not a sentencepiece model"),
        ([*hyperparams, "--heads", "2"], UsageError, "--heads is for LMs of Kaldi"),
    ):
        found = CliRunner().invoke(cli, ["import-lm", str(tmp_path / "lm.ckpt"), "--out", str(tmp_path / "lm"), *more])
        assert isinstance(found.exception, error) and expected in str(found.exception)
    assert not (tmp_path / "lm").exists()


def test_a_folder_keeps_its_tokens(tmp_path: Path) -> None:
    written(tmp_path, rnn_tensors(), RNN)
    run(tmp_path)
    vocab = load_vocabulary(tmp_path / "lm", "upper")
    assert isinstance(vocab, PieceVocabulary)
    assert vocab.pieces[:3] == ["<unk/sos/eos>", "<s>", "</s>"]
    again = PieceVocabulary(tokenizer(), "upper", vocab.pieces)
    assert same_tokens(vocab, again) and not same_tokens(
        vocab, PieceVocabulary(tokenizer(), "upper", ends("<s>", "</s>"))
    )
    assert all(vocab.unk in vocab.encode_word(word) for word in ("<s>", "</s>", "<unk/sos/eos>"))
    assert [vocab.encode_word(word) for word in ("<unk>", "⁇")] == [(0,)] * 2
    assert 0 in vocab.encode_word(UNSEEN[1]) and len(vocab.encode_word(UNSEEN[1])) > 1
    for tokens in (ends("<s>", "x"), ends("x", "</s>"), ends("x", "<sos/eos>")[1:]):
        with pytest.raises(VocabError, match="the vocabulary lacks <"):
            PieceVocabulary(tokenizer(), "upper", tokens)


def ends(first: str, second: str) -> list[str]:
    vocab = PieceVocabulary(tokenizer(), "upper", ["<unk>", "<sos/eos>"])
    return ["<unk>", first, second, *map(vocab.processor.id_to_piece, range(3, SIZE))]


def test_icefall_has_no_such_lms(tmp_path: Path) -> None:
    vocab = PieceVocabulary(tokenizer(), "upper", ends("<s>", "</s>"))
    assert vocab.bos == 1
    save_folder(tmp_path / "lm", build("speechbrain-rnn", vocab, {"dim": 8}), "speechbrain-rnn", {})
    with pytest.raises(ModelError, match="cannot be exported: icefall has only LSTM LMs"):
        export_lm(str(tmp_path / "lm"), tmp_path / "epoch-1.pt")
