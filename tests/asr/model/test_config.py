"""Values in place of a configuration's: `--set NAME=VALUE`."""

from __future__ import annotations

from typing import Any

import pytest

from asr.errors import ConfigError
from asr.model.config import TransducerConfig, load_config


def test_every_value_can_be_set() -> None:
    config = load_config("paper-com")
    changed = config.with_settings({"encoder.s4_dim": 4, "encoder.left_context": None, "decoder_dim": 8})
    assert (changed.encoder.s4_dim, changed.decoder_dim) == (4, 8)
    assert config.encoder.s4_dim == 2 and config.with_settings({}) == config
    flat = TransducerConfig().flat()
    assert {"encoder.component", "decoder", "vocab_size"} < flat.keys() and "encoder" not in flat
    for name, value in flat.items():
        if name not in config.unused():
            assert config.with_settings({name: value}).flat()[name] == value


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"encoder.s4dim": 4}, r"the unknown name 'encoder.s4dim'; there are encoder.features \(int\), .*decoder_dim"),
        ({"s4_dim": 4}, "the unknown name 's4_dim'; there are encoder.features"),
        ({"encoder": {}}, "the unknown name 'encoder'; there are encoder.features"),
        ({"encoder.s4_dim": "four"}, r'found encoder.s4_dim="four"; .*encoder.s4_dim \(int\)'),
        ({"encoder.causal": 1}, r"found encoder.causal=1; .*encoder.causal \(bool\)"),
        ({"encoder.left_context": 0.5}, r"found encoder.left_context=0.5; .*encoder.left_context \(int \| null\)"),
        ({"encoder.left_context": -5}, "left_context -5; it must be 0 or more"),
        ({"encoder.dropout": 1.0}, r"found dropout 1.0 and decoder_dropout 0.1; both must lie in \[0, 1\)"),
        ({"decoder_dropout": -0.1}, r"found dropout 0.1 and decoder_dropout -0.1; both must lie in \[0, 1\)"),
        ({"joiner_dim": 0}, "joiner_dim 0; it must be 1 or more"),
        ({"vocab_size": 1}, "vocab_size 1; it must be 2 or more"),
        ({"encoder.component": "s4"}, "component 's4'; there are conv, dir, com, rep"),
        ({"encoder.heads": 3}, "dim 512 is not a multiple of heads 3"),
        ({"encoder.component": "conv", "encoder.s4_dim": 4}, "encoder.s4_dim, which has no effect .* component 'conv'"),
        ({"encoder.kernel": 4, "encoder.component": "dir"}, "encoder.kernel, which has no effect .* component 'dir'"),
        ({"context_size": 3}, "context_size, which has no effect with the decoder 'lstm'"),
    ],
)
def test_what_cannot_be_set_is_told(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_config("paper-com").with_settings(settings)
