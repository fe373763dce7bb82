"""What is remembered in evaluation never outlives the weights it comes from."""

from __future__ import annotations

import torch
from torch import nn

from asr.model.cached_module import Remembering
from asr.model.config import COMPONENTS, EncoderConfig
from asr.model.s4former import S4former
from asr.model.streaming import StreamingEncoder


class Double(Remembering):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(2))

    def doubled(self, key: int = 0) -> torch.Tensor:
        return self.remembered("doubled", key, lambda: 2 * self.weight + key)


def test_kept_in_evaluation_without_gradients_for_one_key() -> None:
    module = Double().eval()
    with torch.no_grad():
        first = module.doubled()
        assert module.doubled() is first
        assert module.doubled(1).tolist() == [3, 3]
        assert module.doubled().tolist() == [2, 2]
    assert module.doubled().requires_grad
    assert module.train().doubled().requires_grad


def test_dropped_with_the_weights() -> None:
    module = Double().eval()
    with torch.no_grad():
        module.doubled()
        module.load_state_dict({"weight": torch.full((2,), 5.0)})
        assert module.doubled().tolist() == [10, 10]
        assert module.double().doubled().dtype == torch.float64
        module.train().weight.fill_(7)
        assert module.eval().doubled().tolist() == [14, 14]


@torch.no_grad()
def test_a_streaming_encoder_follows_weights_that_are_loaded() -> None:
    for component in COMPONENTS:
        config = EncoderConfig(
            channels=4, dim=16, layers=2, heads=2, feedforward=32, component=component, kernel=4, left_context=3
        )
        model, other = S4former(config), S4former(config)
        encoder, chunk, lengths = StreamingEncoder(model), torch.randn(1, 40, 80), torch.tensor([40])
        before, _, _ = encoder.step(chunk, lengths, encoder.initial(1))
        model.load_state_dict(other.state_dict())
        after, _, _ = encoder.step(chunk, lengths, encoder.initial(1))
        torch.testing.assert_close(after, other.eval()(chunk, lengths)[0], rtol=0, atol=1e-4)
        assert not torch.allclose(after, before, atol=1e-2)
