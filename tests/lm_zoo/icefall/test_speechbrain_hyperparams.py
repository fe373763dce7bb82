"""The hyperparams.yaml of LMs of SpeechBrain: nothing in it is done, and what does not fit has its own error."""

from __future__ import annotations

from pathlib import Path

import pytest

from lm_zoo.errors import ModelError, VocabError
from rescore.cli.hyperparams import read_hyperparams
from rescore.errors import UsageError
from tests.lm_zoo.icefall.test_speechbrain_lm import (
    RNN,
    TRANSFORMER,
    changed,
    rnn_tensors,
    run,
    transformer_tensors,
    written,
)

LM = "speechbrain.lobes.models.RNNLM.RNNLM"
OTHER = "speechbrain.lobes.models.transformer.TransformerLM.TransformerLM"
ARGUMENTS = RNN[RNN.index("    embedding_dim") : RNN.index("modules:")]


def test_nothing_of_a_hyperparams_file_is_done(tmp_path: Path) -> None:
    doing = f"made: !apply:os.mkdir [{tmp_path / 'made'}]\nnew: !new:os.mkdir [{tmp_path / 'made'}]\n"
    written(tmp_path, rnn_tensors(), RNN + doing + f"next: !include:{tmp_path / 'no.yaml'}\n")
    run(tmp_path)
    doing = f"- !!python/object/apply:os.mkdir [{tmp_path / 'made'}]\n- !!python/name:os.mkdir\n"
    (tmp_path / "hyperparams.yaml").write_text(f"{RNN}list:\n{doing}")
    with pytest.raises(UsageError, match="could not determine a constructor for the tag"):
        run(tmp_path)
    assert not (tmp_path / "made").exists()


def test_aliases_upon_aliases_take_no_time(tmp_path: Path) -> None:
    bomb = "a0: &a0 [x, x]\n" + "".join(f"a{k}: &a{k} [{', '.join([f'*a{k - 1}'] * 9)}]\n" for k in range(1, 40))
    written(tmp_path, transformer_tensors(), bomb + TRANSFORMER.replace("!ref <heads>", "*a39"))
    with pytest.raises(ModelError, match="has nhead a list, expected a divisor of its dimension 12"):
        run(tmp_path)
    (tmp_path / "hyperparams.yaml").write_text("a: &a [*a]\n" + RNN)
    assert len(read_hyperparams(tmp_path / "hyperparams.yaml")["a"]) == 1


@pytest.mark.parametrize(
    ("changes", "error", "expected"),
    [
        (
            {"RNNLM.RNNLM": "RNNLM.Other"},
            ModelError,
            "has model: !new:speechbrain.lobes.models.RNNLM.Other; tokenizer: ",
        ),
        (
            {"sentencepiece.SentencePieceProcessor": LM},
            ModelError,
            f"has model, tokenizer; expected one LM, !new:{LM} or",
        ),
        ({ARGUMENTS: ""}, ModelError, f"found no named arguments of !new:{LM}, expected lines such as"),
        ({"LeakyReLU": "Tanh"}, ModelError, "has activation !name:torch.nn.Tanh, expected one of !name:torch.nn.Leaky"),
        ({"LeakyReLU": "LeakyReLU {negative_slope: 0.2}"}, ModelError, "has activation .*, without arguments"),
        ({"!name:torch.nn.LeakyReLU": "ReLU"}, ModelError, "has activation 'ReLU', expected one of"),
        ({"!ref <activation>": "!ref <act>"}, ModelError, "found '!ref <act>', expected the name of a value in it"),
        ({"!name:torch.nn.LeakyReLU": "!ref <activation>"}, ModelError, r"found references \(!ref\) that lead to no"),
        ({"!ref <activation>": "!ref <a> // 2"}, ModelError, r"found '!ref <a> // 2', expected the name of"),
        (
            {"rnn_layers: 2": "rnn_class: !name:speechbrain.nnet.RNN.GRU"},
            ModelError,
            "has rnn_class !name:.*GRU, expec",
        ),
        (
            {"bos_index: 0\n": ""},
            VocabError,
            "hyperparams.yaml: has no bos_index, expected the number of one of the 18",
        ),
        (
            {"eos_index: 0": "eos_index: 18"},
            VocabError,
            "has eos_index 18, expected the number of one of the 18 pieces",
        ),
        ({"eos_index: 0": "eos_index: true"}, VocabError, "has eos_index True, expected the number of one"),
        (
            {"eos_index: 0": "eos_index: 5"},
            VocabError,
            "eos_index 5 is '.*' in .*tokenizer.ckpt, a piece of text; expec",
        ),
        ({"eos_index: 0": "eos_index: 2"}, VocabError, "bos_index 0 and eos_index 2 differ, and one of them is <unk>"),
        ({"    rnn": "   rnn"}, UsageError, r"expected a YAML file of the training of an LM \("),
        ({"eos_index: 0": "bos_index: 1"}, UsageError, "'bos_index' is given more than once"),
        ({LM: OTHER}, ModelError, "lm.ckpt: has no 'custom_src_module.emb.Embedding.weight', which SpeechBrain's Tr"),
    ],
)
def test_hyperparams_of_an_rnnlm_that_do_not_fit(
    changes: dict[str, str], error: type[Exception], expected: str, tmp_path: Path
) -> None:
    written(tmp_path, rnn_tensors(), changed(RNN, changes))
    with pytest.raises(error, match=expected):
        run(tmp_path)
    assert not (tmp_path / "lm").exists()


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"bos_index: 1": "bos_index: 0", "eos_index: 2": "eos_index: 0"}, "0 is the padding of a TransformerLM"),
        ({"!ref <heads>": "5"}, "has nhead 5, expected a divisor of its dimension 12"),
        ({"!ref <heads>": "3.0"}, "has nhead 3.0, expected a divisor"),
        ({"    nhead: !ref <heads>\n": ""}, "has nhead 8, expected a divisor"),
        ({"num_decoder_layers: 0": "num_decoder_layers: 2"}, "has num_decoder_layers 2, expected 0"),
        (
            {"num_decoder_layers: 0": "attention_type: RelPosMHAXL"},
            "has attention_type 'RelPosMHAXL', expected 'regular",
        ),
        (
            {"num_decoder_layers: 0": "positional_encoding: null"},
            "has positional_encoding None, expected 'fixed_abs_si",
        ),
        ({"normalize_before: False": "normalize_before: 'no'"}, "has normalize_before 'no', expected True or False"),
        (
            {"torch.nn.GELU": "torch.nn.LeakyReLU"},
            "has activation .*, expected one of !name:torch.nn.ReLU, !name:torch.nn",
        ),
        (
            {"<heads>\n": "<lr_annealing>\n"},
            "has nhead !new:speechbrain.nnet.schedulers.NoamScheduler, expected a divi",
        ),
    ],
)
def test_hyperparams_of_a_transformerlm_that_do_not_fit(changes: dict[str, str], expected: str, tmp_path: Path) -> None:
    written(tmp_path, transformer_tensors(), changed(TRANSFORMER, changes))
    with pytest.raises(ModelError, match=expected) as found:
        run(tmp_path)
    assert str(found.value).startswith(str(tmp_path / "hyperparams.yaml"))
    assert not (tmp_path / "lm").exists()
