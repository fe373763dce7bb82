"""LMs of Kaldi's pytorchnn: the same layers put together from torch.nn, their state dict read, their scores ours."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner
from torch import Tensor, nn

from lm_zoo.errors import ModelError, VocabError
from lm_zoo.icefall.kaldi_nnlm import import_nnlm, read_words
from lm_zoo.registry import load, read_config
from rescore.cli.main import cli

WORDS = ["<eps>", *"abcdefgh", "#0", "<s>", "</s>", "<unk>"]
SENTENCES = [("a", "b", "c"), (), ("h", "zebra", "<eps>", "a", "a"), ("a", "b"), ("g",)]
DIM, HEADS, POSITIONS = 12, 3, 50


class Recurrent(nn.Module):
    """Embedding, LSTM, linear; names as in Kaldi's files."""

    def __init__(self, width: int = DIM, kind: type[nn.RNNBase] = nn.LSTM) -> None:
        super().__init__()
        self.encoder = nn.Embedding(len(WORDS), width)
        self.rnn = kind(width, DIM, 2)
        self.decoder = nn.Linear(DIM, len(WORDS))
        if width == DIM:
            self.decoder.weight = self.encoder.weight

    def forward(self, inputs: Tensor) -> Tensor:
        """int64 (time,) -> logits (time, words)."""
        return self.decoder(self.rnn(self.encoder(inputs).unsqueeze(1))[0].squeeze(1))


class Attentive(nn.Module):
    """Embedding times sqrt(dim), sinusoids, torch's encoder under a causal mask, linear; names as in Kaldi's files."""

    def __init__(self, inner: int = DIM) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(DIM, HEADS, inner, activation="gelu")
        self.transformer_encoder = nn.TransformerEncoder(layer, 2)
        self.encoder = nn.Embedding(len(WORDS), DIM)
        self.decoder = nn.Linear(DIM, len(WORDS))
        if inner == DIM:
            self.decoder.weight = self.encoder.weight
        self.pos_encoder = nn.Module()
        self.pos_encoder.register_buffer("pe", self.sinusoids().unsqueeze(1))

    @staticmethod
    def sinusoids() -> Tensor:
        codes = torch.zeros(POSITIONS, DIM)
        for place in range(POSITIONS):
            for k in range(0, DIM, 2):
                angle = place / 10000 ** (k / DIM)
                codes[place, k], codes[place, k + 1] = math.sin(angle), math.cos(angle)
        return codes

    def forward(self, inputs: Tensor) -> Tensor:
        """int64 (time,) -> logits (time, words)."""
        x = self.encoder(inputs).unsqueeze(1) * math.sqrt(DIM) + self.pos_encoder.pe[: len(inputs)]
        mask = torch.full((len(inputs), len(inputs)), -math.inf).triu(1)
        return self.decoder(self.transformer_encoder(x, mask).squeeze(1))


MODELS = {
    "lstm": (Recurrent, {}, None, "lstm"),
    "lstm of another width": (Recurrent, {"width": 8}, None, "lstm"),
    "transformer": (Attentive, {}, HEADS, "transformer"),
    "transformer, not tied": (Attentive, {"inner": 20}, HEADS, "transformer"),
}


@pytest.fixture
def words(tmp_path: Path) -> Path:
    path = tmp_path / "words.txt"  # the numbers are of no meaning, and a word that comes again counts once
    path.write_text("".join(f"{word} {3 * k}\n" for k, word in enumerate(WORDS)) + "a 99\n")
    return path


def made(tmp_path: Path, cls: Any, **settings: Any) -> tuple[nn.Module, Path]:
    torch.manual_seed(2)
    model = cls(**settings).eval()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.4)
    torch.save(model.state_dict(), tmp_path / "model.pt")
    return model, tmp_path / "model.pt"


@torch.no_grad()
def reference(model: nn.Module, sentence: tuple[str, ...]) -> list[float]:
    ids = {word: k for k, word in enumerate(WORDS)}
    tokens = [ids.get(word, ids["<unk>"]) for word in ("<s>", *sentence, "<s>")]
    scores = model(torch.tensor(tokens[:-1])).double().log_softmax(-1)
    return [float(scores[k, token]) for k, token in enumerate(tokens[1:])]


@pytest.mark.parametrize("name", MODELS)
def test_scores(name: str, tmp_path: Path, words: Path) -> None:
    cls, settings, heads, kind = MODELS[name]
    model, path = made(tmp_path, cls, **settings)
    arguments = ["import-lm", path, "--words", words, "--out", tmp_path / "lm", *(["--heads", heads] if heads else [])]
    result = CliRunner().invoke(cli, [str(argument) for argument in arguments], catch_exceptions=False)
    assert result.exit_code == 0 and read_config(tmp_path / "lm")["kind"] == kind
    lm = load(str(tmp_path / "lm"))
    assert lm.config.tied == (not settings)
    for score in (lm.score_hypotheses, lm.score_words):
        for found, sentence in zip(score(SENTENCES), SENTENCES, strict=True):
            assert found == pytest.approx(reference(model, sentence), abs=1e-5)
    assert not lm.knows("zebra") and lm.knows("a")


def test_files_that_are_not_of_this_kind(tmp_path: Path, words: Path) -> None:
    path = made(tmp_path, Attentive)[1]
    with pytest.raises(ModelError, match=r"a Transformer of dimension 12; its number of attention heads is not given"):
        import_nnlm(path, words, tmp_path / "lm")
    with pytest.raises(ModelError, match=r"heads is 5, expected a divisor of that: --heads N"):
        import_nnlm(path, words, tmp_path / "lm", heads=5)
    with pytest.raises(ModelError, match=r"an LSTM, which has no attention heads"):
        import_nnlm(made(tmp_path, Recurrent)[1], words, tmp_path / "lm", heads=3)
    for kind, what in ((nn.GRU, "a GRU"), (nn.RNN, "a plain RNN")):
        with pytest.raises(ModelError, match=f"{what} by the shape of .* expected an LSTM or a Transformer"):
            import_nnlm(made(tmp_path, Recurrent, kind=kind)[1], words, tmp_path / "lm")
    torch.save({"weight": torch.zeros(2)}, path)
    with pytest.raises(
        ModelError, match=r"not an LM of Kaldi's pytorchnn, which has 'encoder.weight' .* it has weight"
    ):
        import_nnlm(path, words, tmp_path / "lm")
    torch.save(Recurrent().state_dict() | {"more": torch.zeros(2)}, path)
    with pytest.raises(ModelError, match=rf"^{path}: has 'more', which an LM of its kind and sizes does not "):
        import_nnlm(path, words, tmp_path / "lm")
    torch.save(Recurrent().state_dict(), path, _use_new_zipfile_serialization=False)
    with pytest.raises(ModelError, match=r"written by a torch before 1.6; load it and save it again with a newer one"):
        import_nnlm(path, words, tmp_path / "lm")
    assert not (tmp_path / "lm").exists()


def test_words_of_another_model(tmp_path: Path, words: Path) -> None:
    path = made(tmp_path, Recurrent)[1]
    words.write_text(words.read_text() + "more 100\n")
    with pytest.raises(VocabError, match=r"the vocabulary has 14 tokens, but the weights are for 13"):
        import_nnlm(path, words, tmp_path / "lm")


@pytest.mark.parametrize(
    ("text", "options", "expected"),
    [
        ("<s> 0\n<unk>\n", {}, "found '<unk>', expected lines 'WORD NUMBER'"),
        ("<s> 0\na 1\n", {}, "has no word '<unk>'; say with --oov which word it is"),
        ("a 0\n<unk> 1\n", {}, "has no word '<s>'; say with --boundary which word it is"),
        ("<s> 0\n<UNK> 1\n<unk> 2\n", {"oov": "<UNK>"}, "has both '<UNK>' and '<unk>'; say with --oov which is meant"),
        ("<s> 0\n<unk> 1\n", {"oov": "<s>"}, "the word '<s>' cannot be both"),
    ],
)
def test_words_that_cannot_be_used(tmp_path: Path, text: str, options: dict[str, str], expected: str) -> None:
    (tmp_path / "words.txt").write_text(text)
    with pytest.raises(VocabError, match=expected):
        read_words(tmp_path / "words.txt", **options)


def test_other_names_of_the_special_words(tmp_path: Path) -> None:
    (tmp_path / "words.txt").write_text("<eps> 0\n<UNK> 1\nHE 2\n</s> 3\n")
    vocab = read_words(tmp_path / "words.txt", "<UNK>", "</s>")
    assert (len(vocab), vocab.bos, vocab.eos, vocab.unk, vocab.case) == (4, 3, 3, 1, "upper")
    assert [vocab.encode_word(word) for word in ("HE", "<UNK>", "SHE")] == [(2,), (1,), (1,)]


def test_one_of_two_vocabularies(tmp_path: Path, words: Path) -> None:
    from rescore.errors import UsageError

    for more in ([], ["--bpe", "x", "--words", str(words)]):
        result = CliRunner().invoke(cli, ["import-lm", "model.pt", "--out", str(tmp_path / "lm"), *more])
        assert isinstance(result.exception, UsageError) and "give --bpe FILE" in str(result.exception)
    for more in (["--heads", "8"], ["--oov", "<unk>"], ["--boundary", "<s>"]):
        result = CliRunner().invoke(
            cli, ["import-lm", "epoch-1.pt", "--bpe", "x", "--out", str(tmp_path / "lm"), *more]
        )
        assert isinstance(result.exception, UsageError) and f"{more[0]} is for LMs of Kaldi" in str(result.exception)
