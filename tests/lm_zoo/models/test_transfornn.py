"""TransfoRNN: where its dropout is."""

from __future__ import annotations

import pytest
import torch

from lm_zoo.registry import build
from lm_zoo.text.vocabulary import SOS_EOS, UNK, WordVocabulary

VOCAB = WordVocabulary([SOS_EOS, UNK, *"ABCDEFGH"], "upper")
SMALL = {"dim": 16, "heads": 2, "feedforward": 24}


@pytest.mark.parametrize("given, wanted", [({}, 0.3), ({"rnn_dropout": 0.0}, 0.0), ({"rnn_dropout": 0.6}, 0.6)])
def test_dropout_between_and_behind_the_lstm_layers_has_a_share_of_its_own(
    given: dict[str, float], wanted: float
) -> None:
    lm = build("transfornn", VOCAB, {**SMALL, "dropout": 0.3, **given})
    assert (lm.rnn.dropout, lm.dropout.p) == (wanted, wanted)
    assert lm.input.dropout.p == 0.3 and all(layer.dropout.p == 0.3 for layer in lm.layers)


@pytest.mark.parametrize("kind", ["transfornn", "lstm"])
def test_locked_dropout_leaves_out_the_same_units_at_all_times_of_a_row(kind: str) -> None:
    """Of what the softmax layer reads: a unit is zero at all times or at none."""
    settings = SMALL if kind == "transfornn" else {"dim": 16}
    lm = build(kind, VOCAB, {**settings, "dropout": 0.5, "locked_dropout": True})
    torch.manual_seed(1)
    hidden = lm.train().hidden(torch.randint(3, (4, 6)))
    zeros = hidden == 0
    assert torch.equal(zeros, zeros[:, :1].expand_as(zeros)) and 0.2 < zeros.float().mean() < 0.8
    assert not torch.equal(zeros[0], zeros[1])
    assert not (lm.eval().hidden(torch.randint(3, (4, 6))) == 0).any()


@pytest.mark.parametrize("kind", ["transfornn", "lstm"])
def test_output_norm_normalises_what_the_lstm_layers_give(kind: str) -> None:
    """The only difference; outputs of an LSTM are within -1 and 1, these may be longer."""
    settings = SMALL if kind == "transfornn" else {"dim": 16}
    plain = build(kind, VOCAB, settings).eval()
    normed = build(kind, VOCAB, {**settings, "output_norm": True}).eval()
    assert normed.load_state_dict(plain.state_dict(), strict=False).missing_keys == ["norm.weight", "norm.bias"]
    torch.nn.init.constant_(normed.norm.weight, 3.0)
    tokens = torch.randint(3, (2, 5))
    with torch.no_grad():
        hidden, wanted = normed.hidden(tokens), plain.hidden(tokens)
    torch.testing.assert_close(hidden, 3 * torch.nn.functional.layer_norm(wanted, wanted.shape[-1:]))
    assert wanted.abs().max() < 1 < hidden.abs().max()


@pytest.mark.parametrize("norm", [False, True])
def test_rnn_residual_adds_what_the_lstm_layers_read(norm: bool) -> None:
    settings = {**SMALL, "rnn_residual": True, "output_norm": norm}
    plain, lm = build("transfornn", VOCAB, SMALL).eval(), build("transfornn", VOCAB, settings).eval()
    lm.load_state_dict(plain.state_dict(), strict=False)
    tokens = torch.randint(3, (2, 5))
    with torch.no_grad():
        read = plain.layers[1](plain.layers[0](plain.input(tokens)))
        wanted = read + plain.hidden(tokens)
        wanted = torch.nn.functional.layer_norm(wanted, wanted.shape[-1:]) if norm else wanted
        torch.testing.assert_close(lm.hidden(tokens), wanted)


def test_with_rnn_residual_what_is_read_reaches_the_output_whole_in_training() -> None:
    """Dropout is on the way through the LSTM layers."""
    lm = build("transfornn", VOCAB, {**SMALL, "rnn_residual": True, "dropout": 0.0, "rnn_dropout": 0.5}).train()
    tokens = torch.randint(3, (2, 5))
    read = lm.layers[1](lm.layers[0](lm.input(tokens)))
    torch.manual_seed(1)
    added = lm.hidden(tokens) - read
    assert 0.2 < (added.abs() < 1e-7).float().mean() < 0.8
