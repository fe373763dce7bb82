"""The settings of the recipes are those of the papers; sizes of models where a paper states them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import click
import pytest
import torch
import yaml

from asr.cli.main import CONTEXT
from asr.cli.train import command as train_asr
from asr.model.config import load_config
from asr.model.parameter_count import count as count_asr
from rescore.cli.recipe import read_defaults
from rescore.cli.settings import parse_settings
from rescore.cli.train_lm import command as train_lm
from tests.egs.conftest import ROOT
from tests.lm_zoo.models.test_papers_tables import PTB, TABLE_1, TABLE_2, WIKITEXT2, count

EGS = ROOT / "egs"
NONE = (None, None)  # no S4
Row = tuple[str, "int | None", "int | None", "str | None"]  # approach, kernel, N, scheme
NAMES = {
    ("transfornn", 1): "transfornn_{}_rnn1",
    ("transfornn", 2): "transfornn_{}",
    ("transfornn", 3): "transfornn_{}_rnn3",
}
ROWS = sorted({(NAMES.get((kind, rnn), kind if kind == "lstm" else f"{kind}_{{}}").format(layers), dim, ptb, wikitext2)
               for dim, kind, layers, rnn, ptb, wikitext2 in TABLE_1 + TABLE_2})  # fmt: skip


def lm(conf: str) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """Kind, settings of the model and of the training of a file of options."""
    defaults, given = read_defaults(EGS / conf, train_lm)
    pairs = list(zip(given[::2], given[1::2], strict=True))
    model, training = (
        parse_settings(tuple(value for name, value in pairs if name == option)) for option in ("--set", "--train")
    )
    return defaults["kind"], model, training


@pytest.mark.parametrize(("name", "dim", "ptb", "wikitext2"), ROWS)
def test_rows_of_the_transfornn_paper(
    name: str, dim: int, ptb: str, wikitext2: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tables 1 and 2, `#param`: TransfoRNN's are of untied embeddings; the recipe ties them, as Section 5 says."""
    for initial in ("normal_", "uniform_", "xavier_uniform_", "kaiming_uniform_"):  # counting needs no random weights
        monkeypatch.setattr(torch.nn.init, initial, lambda tensor, *args, **kwargs: tensor)
    for initial in ("normal_", "uniform_"):
        monkeypatch.setattr(torch.Tensor, initial, lambda tensor, *args, **kwargs: tensor)
    for corpus, words, stated in (("ptb", PTB, ptb), ("wikitext2", WIKITEXT2, wikitext2)):
        kind, model, _ = lm(f"{corpus}/LM/conf/{name}.yaml")
        apart = words * dim if kind == "transfornn" else 0
        assert f"{(count(kind, words, model | {'dim': dim}) + apart) / 1e6:.1f}M" == stated


def test_librispeech_of_the_transfornn_paper() -> None:
    """Section 5.2: 2 + 2 layers, or 2 to 8; eight heads, 1024, 2048."""
    for name, layers in (("transfornn", 2), ("transformer_2", 2), ("transformer_4", 4), ("transformer_8", 8)):
        kind, model, _ = lm(f"librispeech/LM/conf/{name}.yaml")
        assert kind == name.partition("_")[0] and model["layers"] == layers
        assert (model["dim"], model["heads"], model["feedforward"]) == (1024, 8, 2048)
        assert kind == "transformer" or model["rnn_layers"] == 2


def test_lookup_dictionary_paper() -> None:
    """Section 3.2: English 16 x 1024 with 5,000 pieces, U = 5 k; Chinese, small: 4 x 384, U = 10 k; M = 64, N = 2."""
    for conf, layers, dim, slots in (
        ("librispeech/LM/conf/lookup.yaml", 16, 1024, 5000),
        ("aishell/ASR/conf/lookup.yaml", 4, 384, 10_000),
    ):
        kind, model, training = lm(conf)
        assert kind == "lookup" and (model["layers"], model["dim"], model["slots"]) == (layers, dim, slots)
        assert (model["entries"], model["order"], model["dropout"]) == (64, 2, 0.3)
        assert training["weight_decay"] == 0.01
    defaults, _ = read_defaults(EGS / "librispeech/LM/conf/lookup.yaml", train_lm)
    assert (defaults["tokens"], defaults["vocab_size"]) == ("unigram", 5000)
    _, _, training = lm("librispeech/LM/conf/lookup.yaml")
    assert training["batch_tokens"] * training["accumulate"] == 524_288 and training["warmup"] == 10_000
    script = (EGS / "aishell/ASR/run.sh").read_text(encoding="utf-8")
    assert "--lm-scale 0.4 --ilme-scale 0.2" in script
    assert yaml.safe_load((EGS / "aishell/ASR/conf/decode.yaml").read_text())["beam-size"] == 10


@pytest.mark.parametrize(
    ("row", "uncertain", "blocks"),
    [
        ("emb", "embedding", None),
        ("mha_1", "attention", "1"),
        ("ff_1", "feedforward", "1"),
        *((f"ff_1-{last}", "feedforward", f"1-{last}") for last in range(2, 7)),
    ],
)
def test_table_1_of_the_bayesian_transformer_paper(row: str, uncertain: str, blocks: str | None) -> None:
    """Section 4.2: six blocks of 512 / 4096, GELU; the prior's variance is 1."""
    kind, model, _ = lm(f"swbd/LM/conf/bayes_{row}.yaml")
    assert kind == "bayesian" and (model["layers"], model["dim"], model["feedforward"]) == (6, 512, 4096)
    assert model["activation"] == "gelu" and model["prior_sigma"] == 1.0
    assert model["uncertain"] == uncertain and (blocks is None or str(model["blocks"]) == blocks)


def s4former_rows() -> dict[tuple[int, str], Row]:
    """Tables 1 to 6 of the S4former paper: table, row -> approach, kernel (where it is stated), N, scheme."""
    rows: dict[tuple[int, str], Row] = {(1, "Conformer"): ("conv", 32, *NONE)}
    rows |= {(1, f"DIR, N = {n}"): ("dir", None, n, "real") for n in (2, 4)}
    rows |= {(1, f"COM, N = {n}"): ("com", None, n, "real") for n in (2, 4, 32)}
    rows |= {(2, f"S4D-{name}, N = {n}"): ("dir", None, n, name.lower()) for name in ("Real", "Lin") for n in (2, 4, 8)}
    rows |= {(3, f"DIR, N = {n}"): ("dir", None, n, "real") for n in (2, 4)}
    rows |= {(3, f"COM, kernel {kernel}"): ("com", kernel, 4, "real") for kernel in (2, 4, 8, 16)}
    rows |= {(4, f"S4D-Real, N = {n}"): ("com", 2, n, "real") for n in (2, 4, 8, 16, 32, 64)}
    rows |= {(4, f"S4D-Lin, N = {n}"): ("com", 2, n, "lin") for n in (4, 32)}
    rows |= {(5, "left context unlimited"): ("dir", None, 4, "real")}
    rows |= {(5, f"left context {kernel}"): ("rep", kernel, 4, "real") for kernel in (32, 16, 8, 4, 2)}
    rows |= {(6, "Conformer"): ("conv", 4, *NONE), (6, "DIR"): ("dir", None, 2, "real")}
    return rows | {(6, "COM"): ("com", 2, 2, "real"), (6, "REP"): ("rep", 8, 4, "real")}


def test_every_row_of_the_s4former_paper(monkeypatch: pytest.MonkeyPatch) -> None:
    """The options of the recipe's README are the paper's rows, of 119 million parameters, give or take one."""
    for initial in ("normal_", "uniform_", "xavier_uniform_", "kaiming_uniform_"):  # counting needs no random weights
        monkeypatch.setattr(torch.nn.init, initial, lambda tensor, *args, **kwargs: tensor)
    text = (EGS / "librispeech/ASR/README.md").read_text(encoding="utf-8")
    lines = re.findall(r"^\| (\d) \| (.+?) \| `(.+?)` \| ([\d.]+) \|$", text, re.MULTILINE)
    expected, sizes = s4former_rows(), dict[Any, int]()
    assert [(int(table), row) for table, row, _, _ in lines] == list(expected)
    for table, row, options, stated in lines:
        values, _, _ = train_asr.make_parser(click.Context(train_asr, **CONTEXT)).parse_args(options.split())
        config = load_config(values["config"]).with_settings(parse_settings(tuple(values.get("changes", ()))))
        encoder = config.encoder
        component, kernel, n, scheme = expected[int(table), row]
        assert (encoder.component, encoder.causal) == (component, table != "1")
        assert kernel in (None, encoder.kernel) and n in (None, encoder.s4_dim) and scheme in (None, encoder.s4_init)
        assert (encoder.layers, encoder.heads, encoder.dim, config.decoder) == (17, 8, 512, "lstm")
        size = sizes[config] = sizes.get(config) or sum(count_asr(config).values())
        assert f"{size / 1e6:.1f}" == stated and abs(size / 1e6 - 119) < 1


def test_s4former() -> None:
    """Section 4, Tables 4 and 1: online COM with N = 2 after a convolution of 2; offline N = 32; a one-layer LSTM."""
    for name in ("librispeech", "aishell"):
        assert read_defaults(EGS / name / "ASR/conf/train.yaml", train_asr)[0]["config"] == "paper-com"
    assert yaml.safe_load(Path(EGS / "librispeech/ASR/conf/decode.yaml").read_text())["beam-size"] == 8
    online, offline = load_config("paper-com"), load_config("paper-com-offline")
    assert (online.encoder.kernel, online.encoder.s4_dim, online.encoder.causal) == (2, 2, True)
    assert (offline.encoder.s4_dim, offline.encoder.causal) == (32, False)
    for config in (online, offline):
        encoder = config.encoder
        assert (encoder.layers, encoder.heads, encoder.dim, encoder.features) == (17, 8, 512, 80)
        assert (encoder.component, encoder.s4_init, config.decoder) == ("com", "real", "lstm")
