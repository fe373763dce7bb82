"""icefall's checkpoints: written in icefall's own layout here, scored by a plain reference, read and written back."""

from __future__ import annotations

import io
import math
import os
import pathlib
from collections import OrderedDict
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner
from torch import Tensor
from torch.nn import functional as F

from lm_zoo.errors import LMError, ModelError, VocabError
from lm_zoo.icefall.checkpoints import export_lm, icefall_weights, import_lm, read_lm_checkpoint
from lm_zoo.registry import build, load, read_config, save_folder
from lm_zoo.text.tokenizer import build_pieces
from lm_zoo.text.vocabulary import PieceVocabulary
from rescore.cli.main import cli
from tests.lm_zoo.zoo import neural

SENTENCES = [("HELLO", "WORLD"), (), ("WORD", "HELL", "WORLD", "WORD", "HELLO"), ("O",)]
HEADS = 2


@pytest.fixture(scope="module")
def vocab() -> PieceVocabulary:
    return build_pieces({"HELLO": 5, "WORLD": 3, "HELL": 2, "WORD": 9}, 20, "bpe")


@pytest.fixture
def bpe(vocab: PieceVocabulary, tmp_path: Path) -> Path:
    (tmp_path / "bpe.model").write_bytes(vocab.model)
    return tmp_path / "bpe.model"


def rnn_checkpoint(embedding_dim: int = 6, hidden_dim: int = 6, layers: int = 2) -> dict[str, Tensor]:
    """Random weights under the names of icefall's RnnLmModel; tied where the sizes allow it."""
    shapes = {"input_embedding.weight": (20, embedding_dim)}
    for k in range(layers):
        shapes[f"rnn.weight_ih_l{k}"] = (4 * hidden_dim, embedding_dim if k == 0 else hidden_dim)
        shapes[f"rnn.weight_hh_l{k}"] = (4 * hidden_dim, hidden_dim)
        shapes |= {f"rnn.bias_{side}_l{k}": (4 * hidden_dim,) for side in ("ih", "hh")}
    shapes |= {"output_linear.weight": (20, hidden_dim), "output_linear.bias": (20,)}
    tensors = random_tensors(shapes)
    if embedding_dim == hidden_dim:
        tensors["output_linear.weight"] = tensors["input_embedding.weight"]
    return tensors


def transformer_checkpoint(embedding_dim: int = 6, dim: int = 6, inner: int = 10, layers: int = 2) -> dict[str, Tensor]:
    """Random weights under the names of icefall's TransformerLM, scales and norms included."""
    scaled = {"encoder.embed.weight": (dim, embedding_dim), "encoder.embed.bias": (dim,)}
    plain: dict[str, tuple[int, ...]] = {"input_embedding.weight": (20, embedding_dim), "encoder.norm_before.eps": ()}
    for k in range(layers):
        layer = f"encoder.encoder.layers.{k}."
        scaled |= {f"{layer}self_attn.pos_bias_{side}": (HEADS, dim // HEADS) for side in "uv"}
        scaled |= {f"{layer}self_attn.in_proj.weight": (3 * dim, dim), f"{layer}self_attn.in_proj.bias": (3 * dim,)}
        scaled |= {f"{layer}self_attn.out_proj.weight": (dim, dim), f"{layer}self_attn.out_proj.bias": (dim,)}
        scaled |= {f"{layer}self_attn.linear_pos.weight": (dim, dim)}
        scaled |= {f"{layer}feed_forward.0.weight": (inner, dim), f"{layer}feed_forward.0.bias": (inner,)}
        scaled |= {f"{layer}feed_forward.4.weight": (dim, inner), f"{layer}feed_forward.4.bias": (dim,)}
        plain[f"{layer}norm_final.eps"] = ()
    plain |= {"output_linear.weight": (20, dim), "output_linear.bias": (20,)}
    tensors = random_tensors(plain | scaled | {f"{name}_scale": () for name in scaled})
    if embedding_dim == dim:
        tensors["output_linear.weight"] = tensors["input_embedding.weight"]
    return tensors


def random_tensors(shapes: dict[str, Any]) -> dict[str, Tensor]:
    torch.manual_seed(7)
    return {name: 0.6 * torch.randn(shape) for name, shape in shapes.items()}


# -- the reference: one sentence, written from the description of the models, loops instead of tensor tricks ----------


def rnn_logits(t: dict[str, Tensor], tokens: list[int]) -> Tensor:
    outputs = list(t["input_embedding.weight"][tokens])
    for k in range(2):
        if f"rnn.weight_ih_l{k}" not in t:
            continue
        h = c = torch.zeros(t[f"rnn.weight_hh_l{k}"].shape[1])
        for time, x in enumerate(outputs):
            gates = t[f"rnn.weight_ih_l{k}"] @ x + t[f"rnn.bias_ih_l{k}"]
            gates = gates + t[f"rnn.weight_hh_l{k}"] @ h + t[f"rnn.bias_hh_l{k}"]
            i, f, g, o = gates.chunk(4)
            c = f.sigmoid() * c + i.sigmoid() * g.tanh()
            h = outputs[time] = o.sigmoid() * c.tanh()
    return torch.stack(outputs) @ t["output_linear.weight"].T + t["output_linear.bias"]


def scaled(t: dict[str, Tensor], name: str) -> Tensor:
    return t[name] * t[f"{name}_scale"].exp()


def scaled_linear(t: dict[str, Tensor], name: str, x: Tensor) -> Tensor:
    return scaled(t, f"{name}.weight") @ x + (scaled(t, f"{name}.bias") if f"{name}.bias" in t else 0.0)


def basic_norm(x: Tensor, eps: Tensor) -> Tensor:
    return x * (x.pow(2).mean() + eps.exp()) ** -0.5


def code(distance: int, dim: int) -> Tensor:
    angles = [distance * math.exp(-(2 * k) * math.log(10000.0) / dim) for k in range(dim // 2)]
    return torch.tensor([f(angle) for angle in angles for f in (math.sin, math.cos)])


def attention(t: dict[str, Tensor], name: str, xs: list[Tensor]) -> list[Tensor]:
    dim = len(xs[0])
    size = dim // HEADS
    parts = [scaled_linear(t, f"{name}.in_proj", x).chunk(3) for x in xs]
    out = []
    for i in range(len(xs)):
        heads = []
        for head in range(HEADS):
            cut = slice(head * size, (head + 1) * size)
            query = parts[i][0][cut] * size**-0.5
            scores = []
            for j in range(i + 1):
                position = scaled_linear(t, f"{name}.linear_pos", code(i - j, dim))[cut]
                content = (query + scaled(t, f"{name}.pos_bias_u")[head]) @ parts[j][1][cut]
                scores.append(content + (query + scaled(t, f"{name}.pos_bias_v")[head]) @ position)
            weights = torch.stack(scores).softmax(0)
            heads.append(sum(weights[j] * parts[j][2][cut] for j in range(i + 1)))
        out.append(scaled_linear(t, f"{name}.out_proj", torch.cat(heads)))
    return out


def transformer_logits(t: dict[str, Tensor], tokens: list[int]) -> Tensor:
    xs = [scaled_linear(t, "encoder.embed", x) for x in t["input_embedding.weight"][tokens]]
    xs = [basic_norm(x, t["encoder.norm_before.eps"]) for x in xs]
    for k in range(2):
        layer = f"encoder.encoder.layers.{k}"
        xs = [x + y for x, y in zip(xs, attention(t, f"{layer}.self_attn", xs), strict=True)]
        for i, x in enumerate(xs):
            inner = scaled_linear(t, f"{layer}.feed_forward.0", x)
            x = x + scaled_linear(t, f"{layer}.feed_forward.4", inner * (inner - 1).sigmoid())
            xs[i] = basic_norm(x, t[f"{layer}.norm_final.eps"])
    return torch.stack(xs) @ t["output_linear.weight"].T + t["output_linear.bias"]


def reference(t: dict[str, Tensor], vocab: PieceVocabulary, words: tuple[str, ...]) -> float:
    """Minus icefall's loss of one sentence: begin and end are 1."""
    tokens = vocab.processor.encode(" ".join(words))
    logits = (rnn_logits if "rnn.weight_ih_l0" in t else transformer_logits)(t, [1, *tokens])
    return -float(F.cross_entropy(logits, torch.tensor([*tokens, 1]), reduction="sum"))


CHECKPOINTS = {
    "rnn": rnn_checkpoint,
    "rnn-one-layer-untied": lambda: rnn_checkpoint(4, 6, 1),
    "transformer": transformer_checkpoint,
    "transformer-untied": lambda: transformer_checkpoint(4, 6),
}


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_scores_are_icefalls_through_import_and_export(
    name: str, vocab: PieceVocabulary, bpe: Path, tmp_path: Path
) -> None:
    tensors = CHECKPOINTS[name]()
    torch.save({"model": tensors, "epoch": 3}, tmp_path / "epoch-3.pt")
    made = import_lm(tmp_path / "epoch-3.pt", bpe, tmp_path / "lm")
    assert made.settings["tied"] == ("untied" not in name)
    lm = load(str(tmp_path / "lm"))
    expected = [reference(tensors, vocab, words) for words in SENTENCES]
    for way in (lm.score_words(SENTENCES), lm.score_hypotheses(SENTENCES)):
        assert [sum(scores) for scores in way] == pytest.approx(expected, abs=1e-4)

    export_lm(str(tmp_path / "lm"), tmp_path / "new" / "epoch-1.pt")
    again = torch.load(tmp_path / "new" / "epoch-1.pt")["model"]
    assert {key: tensor.shape for key, tensor in again.items()} == {key: t.shape for key, t in tensors.items()}
    assert [reference(again, vocab, words) for words in SENTENCES] == pytest.approx(expected, abs=1e-4)
    import_lm(tmp_path / "new" / "epoch-1.pt", bpe, tmp_path / "lm2")
    scores = load(str(tmp_path / "lm2")).score_words(SENTENCES)
    assert [sum(row) for row in scores] == pytest.approx(expected, abs=1e-4)


def test_a_folder_with_a_run_in_it_takes_no_other_lm(bpe: Path, tmp_path: Path) -> None:
    torch.save(rnn_checkpoint(), tmp_path / "bare.pt")
    (tmp_path / "run").mkdir()
    for name in ("run.json", "log.jsonl"):
        (tmp_path / "run" / name).write_text("{}\n")
    with pytest.raises(ModelError, match=r"run: has the run of a trained LM in it \(run.json\); choose another --out"):
        import_lm(tmp_path / "bare.pt", bpe, tmp_path / "run")


def test_settings_are_read_from_the_shapes(bpe: Path, tmp_path: Path) -> None:
    torch.save(transformer_checkpoint(4, 6), tmp_path / "bare.pt")
    made = import_lm(tmp_path / "bare.pt", bpe, tmp_path / "lm")
    sizes = {"dim": 6, "embedding_dim": 4, "heads": 2, "feedforward": 10, "layers": 2}
    assert made.settings == {**sizes, "tied": False, "dropout": 0.0}
    config = read_config(tmp_path / "lm")
    assert (config["kind"], config["case"]) == ("icefall-transformer", "upper")
    assert config["imported"] == "icefall checkpoint bare.pt"


class Attributes(dict):
    """Like icefall's AttributeDict."""


def test_checkpoints_as_icefall_writes_them(tmp_path: Path) -> None:
    """With the options of the run (a pathlib path among them), the optimiser's state, and DDP's prefix."""
    tensors = rnn_checkpoint()
    optimizer = torch.optim.Adam([torch.nn.Parameter(tensors["output_linear.bias"].clone())])
    extras = {"exp_dir": pathlib.Path("rnn_lm/exp"), "env_info": Attributes(a=[1]), "optimizer": optimizer.state_dict()}
    model = OrderedDict((f"module.{name}", tensor) for name, tensor in tensors.items())
    for key in ("model", "model_avg"):
        torch.save({key: model, **extras, "sampler": None}, tmp_path / "epoch-1.pt")
        read = read_lm_checkpoint(tmp_path / "epoch-1.pt")
        assert read.keys() == tensors.keys()
        assert all(torch.equal(read[name], tensors[name]) for name in tensors)


class Evil:
    def __reduce__(self) -> Any:
        return os.mkdir, ("made-by-a-checkpoint",)


def test_a_checkpoint_cannot_run_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    torch.save({"model": rnn_checkpoint(), "evil": Evil()}, tmp_path / "evil.pt")
    assert "rnn.weight_ih_l0" in read_lm_checkpoint(tmp_path / "evil.pt")
    assert not (tmp_path / "made-by-a-checkpoint").exists()


def test_files_that_are_no_checkpoints(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"none.pt: no such file, expected a checkpoint"):
        read_lm_checkpoint(tmp_path / "none.pt")
    (tmp_path / "text.pt").write_text("hello")
    with pytest.raises(ModelError, match=r"text.pt: not a file of torch.save, or damaged or truncated"):
        read_lm_checkpoint(tmp_path / "text.pt")
    stream = io.BytesIO()
    torch.save(rnn_checkpoint(), stream)
    (tmp_path / "cut.pt").write_bytes(stream.getvalue()[:-500])
    with pytest.raises(ModelError, match=r"cut.pt: not a file of torch.save, or damaged or truncated"):
        read_lm_checkpoint(tmp_path / "cut.pt")
    torch.save({"epoch": 3}, tmp_path / "empty.pt")
    with pytest.raises(ModelError, match=r"empty.pt: has no weights"):
        read_lm_checkpoint(tmp_path / "empty.pt")
    torch.jit.save(torch.jit.script(torch.nn.Linear(2, 2)), str(tmp_path / "jit.pt"))
    with pytest.raises(ModelError, match=r"jit.pt: a TorchScript file"):
        read_lm_checkpoint(tmp_path / "jit.pt")


def change(tensors: dict[str, Tensor], drop: str = "", **changes: Tensor) -> dict[str, Tensor]:
    return {name: tensor for name, tensor in (tensors | changes).items() if name != drop}


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        ({"encoder_embed.out.weight": torch.zeros(2)}, r"not an LM of icefall, .* it has encoder_embed.out.weight"),
        (change(rnn_checkpoint(), "rnn.bias_hh_l1"), r"lacks 'rnn.bias_hh_l1'"),
        (change(rnn_checkpoint(), "rnn.weight_hh_l0"), r"no matrix 'rnn.weight_hh_l0'"),
        (change(rnn_checkpoint(), simple_lm_proj=torch.zeros(2)), r"has 'simple_lm_proj'"),
        (change(transformer_checkpoint(), "encoder.embed.bias"), r"lacks 'embed.bias'"),
        (change(rnn_checkpoint(), **{"rnn.weight_ih_l99999999": torch.zeros(2)}), r"3 layers, but not numbered from 0"),
        (change(rnn_checkpoint(), **{f"rnn.weight_ih_l{'9' * 5000}": torch.zeros(2)}), r"3 layers, but not numbered"),
        (change(transformer_checkpoint(), **{"encoder.encoder.layers.7.x": torch.zeros(2)}), r"3 layers, but not"),
        (change(rnn_checkpoint(), **{"output_linear.bias": torch.zeros(())}), r"'output.bias' has the shape \(\)"),
        (change(rnn_checkpoint(), **{"rnn.weight_hh_l0": torch.zeros(8, 0)}), r"expected 1 or more"),
        (change(rnn_checkpoint(), **{"input_embedding.weight": torch.ones(1, dtype=torch.bool)}), r"the shape \(1,\)"),
    ],
)
def test_weights_that_do_not_fit(tensors: dict[str, Tensor], message: str, bpe: Path, tmp_path: Path) -> None:
    torch.save(tensors, tmp_path / "odd.pt")
    with pytest.raises(ModelError, match=message):
        import_lm(tmp_path / "odd.pt", bpe, tmp_path / "lm")
    assert not (tmp_path / "lm").exists()


def test_vocabularies_that_do_not_fit(bpe: Path, tmp_path: Path) -> None:
    torch.save(rnn_checkpoint(), tmp_path / "lm.pt")
    other = tmp_path / "other.model"
    other.write_bytes(build_pieces({"HELLO": 5, "WORLD": 3, "WORD": 9}, 15, "bpe").model)
    with pytest.raises(VocabError, match=r"the vocabulary has 15 tokens, but the weights are for 20"):
        import_lm(tmp_path / "lm.pt", other, tmp_path / "lm")
    other.write_bytes(b"nothing")
    with pytest.raises(VocabError, match=r"other.model: not a sentencepiece model"):
        import_lm(tmp_path / "lm.pt", other, tmp_path / "lm")
    with pytest.raises(VocabError, match=r"none.model: no such file"):
        import_lm(tmp_path / "lm.pt", tmp_path / "none.model", tmp_path / "lm")


def test_export_refuses_what_icefall_does_not_have(vocab: PieceVocabulary, tmp_path: Path) -> None:
    save_folder(tmp_path / "words", neural("lstm"), "lstm", {})
    with pytest.raises(VocabError, match=r"icefall needs sentencepiece pieces with <sos/eos> as number 1"):
        export_lm(str(tmp_path / "words"), tmp_path / "epoch-1.pt")
    save_folder(tmp_path / "other", build("transformer", vocab, {"dim": 8, "heads": 2}), "transformer", {})
    with pytest.raises(ModelError, match=r"cannot be exported: icefall has only LSTM LMs"):
        export_lm(str(tmp_path / "other"), tmp_path / "epoch-1.pt")
    save_folder(tmp_path / "normed", build("lstm", vocab, {"dim": 8, "output_norm": True}), "lstm", {})
    with pytest.raises(ModelError, match=r"icefall's LSTM LM has no normalisation behind it \(output_norm\)"):
        export_lm(str(tmp_path / "normed"), tmp_path / "epoch-1.pt")


def test_icefalls_own_loading_accepts_the_names(vocab: PieceVocabulary) -> None:
    """RnnLmModel's parts have these names and shapes by torch's own rules; strict loading checks both."""
    model = torch.nn.Module()
    model.input_embedding = torch.nn.Embedding(20, 8)
    model.rnn = torch.nn.LSTM(8, 8, 2, batch_first=True)
    model.output_linear = torch.nn.Linear(8, 20)
    model.output_linear.weight = model.input_embedding.weight
    model.load_state_dict(icefall_weights(build("lstm", vocab, {"dim": 8})), strict=True)


def test_commands(bpe: Path, tmp_path: Path) -> None:
    torch.save({"model": rnn_checkpoint()}, tmp_path / "epoch-3.pt")
    made = CliRunner().invoke(
        cli, ["import-lm", f"{tmp_path}/epoch-3.pt", "--bpe", f"{bpe}", "--out", f"{tmp_path}/lm"]
    )
    assert made.exit_code == 0, made.output
    assert "lstm with " in made.output and "rnn_layers 2" in made.output
    done = CliRunner().invoke(cli, ["export-lm", f"{tmp_path}/lm", "--out", f"{tmp_path}/epoch-1.pt"])
    assert done.exit_code == 0, done.output
    assert "--lm-type rnn --lm-vocab-size 20 --rnn-lm-num-layers 2 --rnn-lm-embedding-dim 6" in done.output
    assert f"--lm-exp-dir {tmp_path} --lm-epoch 1 --lm-avg 1 (before April 2023: --vocab-size" in done.output
    failed = CliRunner().invoke(cli, ["export-lm", f"{tmp_path}/none", "--out", f"{tmp_path}/x.pt"])
    assert isinstance(failed.exception, LMError)
    for command in ("import-lm", "export-lm"):
        assert f"Example: rescore {command}" in CliRunner().invoke(cli, [command, "-h"]).output
