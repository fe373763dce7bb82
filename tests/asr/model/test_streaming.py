"""Streaming: the same as the whole utterance, whatever the chunks, alone and in batches that change."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
import torch

from asr.errors import ConfigError
from asr.model.config import COMPONENTS, EncoderConfig
from asr.model.s4former import S4former
from asr.model.streaming import StreamingEncoder, StreamState
from asr.model.subsampling import subsampled

LENGTHS = (70, 33, 52, 1)


def make(component: str, context: int | None = None, **changes: object) -> S4former:
    torch.manual_seed(0)
    config = EncoderConfig(channels=4, dim=16, layers=2, heads=2, feedforward=32, kernel=4)
    model = S4former(replace(config, component=component, left_context=context, **changes))  # type: ignore[arg-type]
    with torch.no_grad():  # statistics that are not 0 and 1
        for _ in range(3):
            model(torch.randn(4, 70, 80), torch.tensor([70, 33, 52, 40]))
    return model.eval()


@pytest.fixture(scope="module")
def utterances() -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(length, 80, generator=generator) for length in LENGTHS]


@torch.no_grad()
def whole(model: S4former, utterances: list[torch.Tensor]) -> list[torch.Tensor]:
    return [model(one.unsqueeze(0), torch.tensor([len(one)]))[0][0] for one in utterances]


def batch(parts: list[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    """Padded with NaN, which nobody may read."""
    padded = torch.nn.utils.rnn.pad_sequence(parts, batch_first=True, padding_value=float("nan"))
    return padded, torch.tensor([len(part) for part in parts])


@pytest.mark.parametrize("init", ("real", "lin"))
@pytest.mark.parametrize("context", (None, 3))
@pytest.mark.parametrize("component", COMPONENTS)
def test_equals_the_whole_utterance(
    component: str, context: int | None, init: str, utterances: list[torch.Tensor]
) -> None:
    """Chunks of every small size, some of zero frames; each stream goes at its own pace."""
    model = make(component, context, s4_init=init)
    encoder, chance = StreamingEncoder(model), random.Random(2)
    state, left, got = encoder.initial(4), list(utterances), [torch.zeros(0, 16)] * 4
    while any(len(rest) for rest in left):
        sizes = [chance.randint(0, 9) for _ in left]
        features, lengths = batch([rest[:size] for rest, size in zip(left, sizes, strict=True)])
        outputs, made, state = encoder.step(features, lengths, state)
        got = [torch.cat([old, new[:count]]) for old, new, count in zip(got, outputs, made, strict=True)]
        left = [rest[size:] for rest, size in zip(left, sizes, strict=True)]
        assert [len(one) for one in got] == subsampled(state.seen).tolist()  # nothing waits
        assert all((new[count:] == 0).all() for new, count in zip(outputs, made, strict=True))
    for one, want in zip(got, whole(model, utterances), strict=True):
        torch.testing.assert_close(one, want, rtol=0, atol=1e-4)


@pytest.mark.parametrize("chunk", (1, 3, 7, 32, 100))
def test_one_stream_in_even_chunks(chunk: int, utterances: list[torch.Tensor]) -> None:
    model = make("com")
    encoder = StreamingEncoder(model)
    state, got = encoder.initial(1), []
    for part in utterances[0].split(chunk):
        outputs, made, state = encoder.step(part.unsqueeze(0), torch.tensor([len(part)]), state)
        got.append(outputs[0, : int(made)])
    torch.testing.assert_close(torch.cat(got), whole(model, utterances)[0], rtol=0, atol=1e-4)


@pytest.mark.parametrize("context", (None, 3))
@pytest.mark.parametrize("component", COMPONENTS)
def test_streams_start_and_end_at_their_own_time(
    component: str, context: int | None, utterances: list[torch.Tensor]
) -> None:
    """Stream n joins at step 2 n and leaves at its end."""
    model = make(component, context)
    encoder = StreamingEncoder(model)
    got: list[list[torch.Tensor]] = [[] for _ in utterances]
    running: list[int] = []
    left, state = list(utterances), encoder.initial(0)
    for step in range(40):
        if step % 2 == 0 and step // 2 < len(utterances):
            state = StreamState.join([encoder.initial(1), state])
            running.insert(0, step // 2)
        features, lengths = batch([left[stream][:5] for stream in running]) if running else (torch.zeros(0, 0, 80),) * 2
        if not running:
            break
        outputs, made, state = encoder.step(features, lengths, state)
        for row, stream in enumerate(running):
            got[stream].append(outputs[row, : int(made[row])])
            left[stream] = left[stream][5:]
        staying = [row for row, stream in enumerate(running) if len(left[stream])]
        state = state.select(torch.tensor(staying, dtype=torch.long))
        assert state.layers[0][0].shape[1] == max(state.held.tolist(), default=0)  # no more is kept than is needed
        running = [running[row] for row in staying]
    assert not running
    for one, want in zip(got, whole(model, utterances), strict=True):
        torch.testing.assert_close(torch.cat(one), want, rtol=0, atol=1e-4)


def test_the_state_stays_of_one_size_with_bounded_context() -> None:
    encoder = StreamingEncoder(make("com", context=6))
    state, sizes = encoder.initial(2), []
    for _ in range(12):
        _, _, state = encoder.step(torch.randn(2, 16, 80), torch.tensor([16, 16]), state)
        tensors = [state.seen, state.held, *state.past, *(part for layer in state.layers for part in layer)]
        sizes.append(sum(tensor.numel() for tensor in tensors))
    assert len(set(sizes[2:])) == 1


def test_steps_do_not_change_the_state_they_start_from(utterances: list[torch.Tensor]) -> None:
    encoder = StreamingEncoder(make("com"))
    chunk = utterances[0][None, :20]
    _, _, state = encoder.step(chunk, torch.tensor([20]), encoder.initial(1))
    first, _, _ = encoder.step(chunk, torch.tensor([20]), state)
    again, _, _ = encoder.step(chunk, torch.tensor([20]), state.select(torch.tensor([0])))
    assert torch.equal(first, again)


def test_an_offline_encoder_cannot_stream() -> None:
    with pytest.raises(ConfigError, match="not causal; train one"):
        StreamingEncoder(make("com", causal=False))
