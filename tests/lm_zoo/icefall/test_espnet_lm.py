"""LMs of ESPnet 2: the same layers put together from torch.nn, their state dict read, their scores ours.

The layers follow what `espnet2/lm/transformer_lm.py` and `seq_rnn_lm.py` of ESPnet 202511 compute; its own code gave
the same scores for LMs like these (to 2e-5 a sentence).
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
import yaml
from click.testing import CliRunner
from torch import Tensor, nn
from torch.nn import functional as F

from lm_zoo.errors import ModelError, VocabError
from lm_zoo.icefall.espnet_lm import import_espnet, read_tokens
from lm_zoo.identity import lm_identity
from lm_zoo.registry import build, load, read_config, save_folder
from lm_zoo.text.vocabulary import PieceVocabulary, load_vocabulary, same_tokens
from rescore.cli.main import cli
from rescore.errors import UsageError
from rescore.workflows.push_lm import files_to_push
from tests.asr.tiny import TEXT, vocabulary

MARKS = ("<blk>", "<sos/eos>", "<unk>")
PIECES = [piece for piece in reversed(vocabulary().pieces) if piece not in MARKS]
TOKENS = ["<blank>", "<unk>", *PIECES[1:], "<sos/eos>"]  # not by the model's numbers, and without one of its pieces
WORDS = sorted({*TEXT.split()})
SENTENCES = [tuple(WORDS[:4]), (), (WORDS[0], "<blank>", f"{WORDS[1]}Ξ", WORDS[0]), (WORDS[2],)]
EMBED, DIM, HEADS = 6, 12, 3


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear_q, self.linear_k, self.linear_v, self.linear_out = (nn.Linear(DIM, DIM) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        parts = []
        for query, key, value in zip(
            *(layer(x).split(DIM // HEADS, -1) for layer in (self.linear_q, self.linear_k, self.linear_v)), strict=True
        ):
            future = torch.full((len(x), len(x)), -math.inf).triu(1)
            parts.append((query @ key.T / math.sqrt(DIM // HEADS) + future).softmax(-1) @ value)
        return self.linear_out(torch.cat(parts, -1))


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.self_attn, self.feed_forward = Attention(), nn.Module()
        self.feed_forward.w_1, self.feed_forward.w_2 = nn.Linear(DIM, 20), nn.Linear(20, DIM)
        self.norm1, self.norm2 = nn.LayerNorm(DIM, 1e-12), nn.LayerNorm(DIM, 1e-12)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.self_attn(self.norm1(x))
        return x + self.feed_forward.w_2(F.relu(self.feed_forward.w_1(self.norm2(x))))


class Attentive(nn.Module):
    """`transformer`: embedding, linear, normalisation, ReLU, positions or none, pre-norm layers, linear."""

    CONF: ClassVar[dict[str, int]] = {"head": HEADS, "embed_unit": EMBED, "att_unit": DIM, "unit": 20, "layer": 2}

    def __init__(self, tokens: int, pos_enc: str | None = None) -> None:
        super().__init__()
        self.pos_enc = pos_enc
        self.embed, self.encoder, self.decoder = nn.Embedding(tokens, EMBED), nn.Module(), nn.Linear(DIM, tokens)
        self.encoder.embed = nn.Sequential(nn.Linear(EMBED, DIM), nn.LayerNorm(DIM, 1e-12))
        self.encoder.encoders = nn.ModuleList(Layer() for _ in range(2))
        self.encoder.after_norm = nn.LayerNorm(DIM, 1e-12)

    def forward(self, inputs: Tensor) -> Tensor:
        x = F.relu(self.encoder.embed(self.embed(inputs)))
        if self.pos_enc:
            angles = [[place / 10000 ** (k // 2 * 2 / DIM) for k in range(DIM)] for place in range(len(inputs))]
            codes = [[math.cos(angle) if k % 2 else math.sin(angle) for k, angle in enumerate(row)] for row in angles]
            x = x * math.sqrt(DIM) + torch.tensor(codes).to(x)
        for layer in self.encoder.encoders:
            x = layer(x)
        return self.decoder(self.encoder.after_norm(x))


class Recurrent(nn.Module):
    """`seq_rnn`: embedding, LSTM, linear."""

    CONF: ClassVar[dict[str, int]] = {"unit": EMBED, "nhid": DIM, "nlayers": 2}

    def __init__(self, tokens: int, kind: type[nn.RNNBase] = nn.LSTM) -> None:
        super().__init__()
        self.encoder, self.rnn = nn.Embedding(tokens, EMBED), kind(EMBED, DIM, 2)
        self.decoder = nn.Linear(DIM, tokens)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.decoder(self.rnn(self.encoder(inputs).unsqueeze(1))[0].squeeze(1))


def written(
    folder: Path, lm: str = "transformer", tokens: list[str] = TOKENS, pos_enc: str | None = None, **config: Any
) -> nn.Module:
    """Writes valid.loss.ave.pth, config.yaml and bpe.model; gives the model."""
    torch.manual_seed(3)
    model = Attentive(len(tokens), pos_enc) if lm == "transformer" else Recurrent(len(tokens))
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.5)
    torch.save({f"lm.{name}": tensor for name, tensor in model.state_dict().items()}, folder / "valid.loss.ave.pth")
    (folder / "bpe.model").write_bytes(vocabulary().model)
    made = {"lm": lm, "lm_conf": {**type(model).CONF, "pos_enc": pos_enc}, "token_list": tokens, "token_type": "bpe"}
    made |= {"bpemodel": str(folder / "bpe.model"), "optim": "adam", "use_preprocessor": True}
    (folder / "config.yaml").write_text(yaml.safe_dump(made | config, allow_unicode=True), encoding="utf-8")
    return model.eval()


def run(folder: Path, *more: str) -> Path:
    words = ["import-lm", folder / "valid.loss.ave.pth", "--config", folder / "config.yaml", "--out", folder / "lm"]
    assert CliRunner().invoke(cli, [*map(str, words), *more], catch_exceptions=False).exit_code == 0
    return folder / "lm"


@torch.no_grad()
def check(model: nn.Module, folder: Path, tokens: dict[tuple[str, ...], list[str]]) -> None:
    """Compares the scores of sentences, given with their tokens, in both ways of scoring."""
    lm, listed = load(str(folder)), {token: k for k, token in enumerate(yaml_tokens(folder))}
    expected = []
    for words in tokens.values():
        ids = [listed["<sos/eos>"], *(listed.get(token, listed["<unk>"]) for token in words), listed["<sos/eos>"]]
        scores = model.double()(torch.tensor(ids[:-1])).log_softmax(-1)
        expected.append(math.fsum(float(scores[k, token]) for k, token in enumerate(ids[1:])))
    for score in (lm.score_hypotheses, lm.score_words):
        found = [math.fsum(row) for row in score(list(tokens))]
        assert found == pytest.approx(expected, abs=3e-5)


def yaml_tokens(folder: Path) -> list[str]:
    tokens: list[str] = yaml.safe_load((folder.parent / "config.yaml").read_text(encoding="utf-8"))["token_list"]
    return tokens


def split(sentence: tuple[str, ...]) -> list[str]:
    """As ESPnet: the pieces of the whole line; `<blank>` is no token of a text here."""
    return [
        piece
        for word in sentence
        for piece in (["<unk>"] if word == "<blank>" else vocabulary().processor.encode(word, out_type=str))
    ]


@pytest.mark.parametrize(("lm", "pos_enc"), [("transformer", None), ("transformer", "sinusoidal"), ("seq_rnn", None)])
def test_scores(lm: str, pos_enc: str | None, tmp_path: Path) -> None:
    model = written(tmp_path, lm, pos_enc=pos_enc)
    folder = run(tmp_path)
    assert read_config(folder)["kind"] == ("lstm" if lm == "seq_rnn" else lm)
    check(model, folder, {sentence: split(sentence) for sentence in SENTENCES})
    found = load(str(folder)).vocab
    assert (found.bos, found.eos, found.unk, len(found)) == (len(TOKENS) - 1, len(TOKENS) - 1, 1, len(TOKENS))
    assert not load(str(folder)).knows(f"{WORDS[1]}Ξ") and load(str(folder)).knows(WORDS[3])


@pytest.mark.parametrize("kind", ["word", "char"])
def test_words_and_characters(kind: str, tmp_path: Path) -> None:
    tokens = ["<blank>", "<unk>", *(WORDS if kind == "word" else "对楼市成交"), "<sos/eos>"]
    model = written(tmp_path, tokens=tokens, token_type=kind, bpemodel=None)
    sentence = tuple(WORDS[:3]) if kind == "word" else tuple("对市成")
    check(model, run(tmp_path), {sentence: list(sentence), (sentence[0], "Ξ"): [sentence[0], "<unk>"]})


def test_the_sentencepiece_model_may_be_elsewhere(tmp_path: Path) -> None:
    written(tmp_path, bpemodel="data/token_list/bpe.model")
    with pytest.raises(
        VocabError, match=r"config.yaml: its bpemodel 'data/token_list/bpe.model' is not there; say where it is: --b"
    ):
        run(tmp_path)
    with pytest.raises(VocabError, match=rf"^{tmp_path / 'config.yaml'}: "):
        run(tmp_path)
    run(tmp_path, "--bpe", str(tmp_path / "bpe.model"))
    assert (tmp_path / "lm" / "bpe.model").read_bytes() == vocabulary().model


@pytest.mark.parametrize(
    ("changes", "error", "expected"),
    [
        (
            {"lm": "transformer_opt"},
            ModelError,
            "has lm 'transformer_opt', model 'lm', lm_conf .*; expected an LM 'transfor",
        ),
        ({"model": "lm_multitask"}, ModelError, "model 'lm_multitask', lm_conf"),
        ({"lm": "seq_rnn"}, ModelError, "has no 'encoder.weight', which an LM 'seq_rnn' of ESPnet has"),
        ({"lm": ["seq_rnn"]}, ModelError, r"has lm \['seq_rnn'\]"),
        ({"lm_conf": [1]}, ModelError, r"lm_conf \[1\]; expected"),
        ({"lm_conf": {"head": 5}}, ModelError, "of dimension 12; config.yaml has head 5, expected a divisor"),
        ({"lm_conf": {"pos_enc": "rel"}}, ModelError, "has pos_enc 'rel', expected null or 'sinusoidal'"),
        ({"lm_conf": None}, None, ""),
        ({"token_list": None}, VocabError, "has no 'token_list', or one that is not of texts"),
        ({"token_list": [*TOKENS[:-1], 7]}, VocabError, "has no 'token_list', or one that is not of texts"),
        (
            {"token_list": TOKENS[:-1]},
            VocabError,
            "its token_list ends in '.*', expected <unk> in it and <sos/eos> last",
        ),
        ({"token_list": [*TOKENS[1:3], *TOKENS[2:]]}, VocabError, "a word occurs twice in the vocabulary"),
        ({"token_list": TOKENS[1:]}, VocabError, "the vocabulary has 16 tokens, but the weights are for 17"),
        ({"token_list": [*TOKENS[:-2], "a b", TOKENS[-1]]}, VocabError, "found the token 'a b', expected no blanks"),
        ({"token_list": ["<unk>", *"klmnopq", "<sos/eos>"]}, VocabError, "bpe.model: has 1 of the 9 tokens of the"),
        ({"token_type": "phn"}, VocabError, "found token_type 'phn', expected bpe, word or char"),
        (
            {"token_type": "char", "token_list": [*TOKENS[:-2], "<space>", "<sos/eos>"]},
            VocabError,
            "a token of no word",
        ),
    ],
)
def test_configs_that_do_not_fit(
    changes: dict[str, Any], error: type[Exception] | None, expected: str, tmp_path: Path
) -> None:
    written(tmp_path, **{**changes, "lm": "transformer"})
    config = yaml.safe_load((tmp_path / "config.yaml").read_text(encoding="utf-8")) | changes
    if error is None:
        import_espnet(tmp_path / "valid.loss.ave.pth", config, tmp_path / "lm")
        return
    with pytest.raises(error, match=expected):
        import_espnet(tmp_path / "valid.loss.ave.pth", config, tmp_path / "lm")
    assert not (tmp_path / "lm").exists()


def test_checkpoints_that_do_not_fit(tmp_path: Path) -> None:
    model = written(tmp_path)
    config = yaml.safe_load((tmp_path / "config.yaml").read_text(encoding="utf-8"))
    path, tensors = tmp_path / "valid.loss.ave.pth", {f"lm.{k}": v for k, v in model.state_dict().items()}
    for name, found in (
        ("lm.encoder.embed.1.bias", "has no 'encoder.embed.1.bias', which an LM 'transformer' of ESPnet has"),
        ("lm.encoder.encoders.1.self_attn.linear_k.bias", "layers.1.attention.in_proj.bias"),
        ("lm.encoder.after_norm.weight", "last_norm.weight"),
    ):
        torch.save({key: tensor for key, tensor in tensors.items() if key != name}, path)
        with pytest.raises(ModelError, match=found):
            import_espnet(path, config, tmp_path / "lm")
    torch.save(tensors | {"lm.encoder.encoders.1.concat_linear.weight": torch.zeros(2, 2)}, path)
    with pytest.raises(ModelError, match=r"has 'layers.1.concat_linear.weight', which"):
        import_espnet(path, config, tmp_path / "lm")
    torch.save({f"lm.{k}": v for k, v in Recurrent(len(TOKENS), nn.GRU).state_dict().items()}, path)
    with pytest.raises(ModelError, match="a GRU by the shape of"):
        import_espnet(path, {**config, "lm": "seq_rnn"}, tmp_path / "lm")
    assert not (tmp_path / "lm").exists()


def test_without_a_config_it_is_taken_for_icefalls(tmp_path: Path) -> None:
    written(tmp_path)
    words = ["import-lm", tmp_path / "valid.loss.ave.pth", "--bpe", tmp_path / "bpe.model", "--out", tmp_path / "lm"]
    found = CliRunner().invoke(cli, list(map(str, words))).exception
    assert isinstance(found, ModelError) and "(of ESPnet? then give its config.yaml, too)" in str(found)
    (tmp_path / "config.yaml").write_text("- a\n")
    words += ["--config", tmp_path / "config.yaml"]
    found = CliRunner().invoke(cli, list(map(str, words))).exception
    assert isinstance(found, UsageError) and "found a list, expected lines" in str(found)
    found = CliRunner().invoke(cli, [*map(str, words), "--heads", "2"]).exception
    assert isinstance(found, UsageError) and "--heads is for LMs of Kaldi" in str(found)


def test_a_list_of_tokens_goes_with_the_model_folder(tmp_path: Path) -> None:
    vocab = read_tokens({"token_list": TOKENS}, Path(write_model(tmp_path)))
    assert isinstance(vocab, PieceVocabulary) and vocab.pieces == TOKENS
    lm = build("lstm", vocab, {"dim": 8})
    save_folder(tmp_path / "lm", lm, "lstm", {})
    again = load_vocabulary(tmp_path / "lm", "upper")
    assert same_tokens(vocab, again) and not same_tokens(vocabulary(), again) and not same_tokens(again, vocabulary())
    words = [*WORDS, "<blank>", "<unk>", "<sos/eos>", "Ξ", f"Ξ{WORDS[0]}"]
    assert [again.encode_word(word) for word in words] == [vocab.encode_word(word) for word in words]
    assert [again.encode_word(word) for word in words[-5:-2]] == [(1,)] * 3
    assert all(1 in again.encode_word(word) for word in words[-2:])
    before = lm_identity(str(tmp_path / "lm"))
    listed = tmp_path / "lm" / "token_list.txt"
    fields = [line.split() for line in listed.read_text(encoding="utf-8").splitlines()]
    fields[2][0], fields[3][0] = fields[3][0], fields[2][0]
    listed.write_text("".join(f"{token} {number}\n" for token, number in fields), encoding="utf-8")
    assert lm_identity(str(tmp_path / "lm")) != before
    with pytest.raises(ModelError, match=r"token_list.txt: the tokens of another LM; choose another --out"):
        save_folder(tmp_path / "lm", build("lstm", vocabulary(), {"dim": 8}), "lstm", {})
    assert listed in files_to_push(tmp_path / "lm")


def write_model(folder: Path) -> Path:
    (folder / "bpe.model").write_bytes(vocabulary().model)
    return folder / "bpe.model"
