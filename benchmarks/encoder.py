"""Speed of the S4former encoder, in CPU time: training, streaming, and the two forms of its S4.  Markdown tables.

Memory is what a training step adds to the process at its peak (Linux).  torchaudio's Conformer where it is installed.

Example: OMP_NUM_THREADS=1 python benchmarks/encoder.py train --size small
"""

from __future__ import annotations

import copy
import statistics
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import Any

import click
import torch
from measure import added_memory, heading, row
from torch import Tensor, nn

from asr.model.config import EncoderConfig, load_config
from asr.model.s4 import S4D
from asr.model.s4former import S4former
from asr.model.streaming import StreamingEncoder, StreamState
from asr.model.subsampling import Subsampling, subsampled

SMALL = load_config("small").encoder
SIZES = {
    "small": SMALL,
    "middle": replace(SMALL, channels=128, dim=256, layers=12, feedforward=1024),
    "paper": load_config("paper-com").encoder,  # 119 M
}
# component, kernel and N as in Shan et al. (2024); a kernel of 31 where the paper has 32, as torchaudio's must be odd
OFFLINE = {"conv": (31, 1), "dir": (1, 2), "com": (31, 32), "rep": (31, 4)}
CAUSAL = {"conv": (4, 1), "dir": (1, 2), "com": (2, 2), "rep": (8, 4)}
FRAMES = 100  # a second
CASTS = {"float32": None, "bfloat16": torch.bfloat16}


class Conformer(nn.Module):
    """torchaudio's behind our subsampling."""

    def __init__(self, config: EncoderConfig) -> None:
        from torchaudio.models import Conformer

        super().__init__()
        self.subsampling = Subsampling(config.features, config.channels, config.dim, causal=False)
        sizes = (config.dim, config.heads, config.feedforward, config.layers, config.kernel)
        self.conformer = Conformer(*sizes, dropout=config.dropout)

    def forward(self, features: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        return self.conformer(self.subsampling(features, lengths).float(), subsampled(lengths))


class Trainer:
    """An encoder and its optimiser; the loss is the mean square of its outputs."""

    def __init__(self, name: str, make: Callable[[EncoderConfig], nn.Module], config: EncoderConfig) -> None:
        torch.manual_seed(1)
        self.name, self.config, self.model = name, config, make(config)
        self.optimizer = torch.optim.AdamW(self.model.parameters())

    def step(self, features: Tensor, lengths: Tensor, cast: torch.dtype | None) -> float:
        """CPU seconds of a step."""
        begin = time.process_time()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=cast is not None):
            encoded, _ = self.model(features, lengths)
        encoded.float().square().mean().backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return time.process_time() - begin


def conditions(**what: object) -> None:
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads; {what}\n")


@click.group(help=__doc__)
def main() -> None:
    pass


def trainers(size: EncoderConfig, offline: Iterable[str], causal: Iterable[str]) -> list[Trainer]:
    """The one that the others are compared to comes first."""
    found = []
    for name in offline:
        kernel, states = OFFLINE[name]
        config = replace(size, component=name, kernel=kernel, s4_dim=states, causal=False, left_context=None)
        found.append(Trainer(f"{name}, offline", S4former, config))
    for name in causal:
        kernel, states = CAUSAL[name]
        config = replace(size, component=name, kernel=kernel, s4_dim=states)
        found.append(Trainer(f"{name}, causal", S4former, config))
    try:
        config = replace(size, component="conv", kernel=OFFLINE["conv"][0])
        found.insert(0, Trainer("torchaudio's Conformer", Conformer, config))
    except ImportError as error:
        print(f"not run: torchaudio's Conformer ({error})")
    return found


@main.command()
@click.option("--size", type=click.Choice(list(SIZES)), default="small", show_default=True)
@click.option("--offline", default="conv,dir,com,rep", show_default=True, help="Components.")
@click.option("--causal", default="conv,dir,com,rep", show_default=True, help="Components.")
@click.option("--batch", default=4, show_default=True)
@click.option("--frames", default=1000, show_default=True, help="Of 10 ms; the shortest utterance has 0.8 of them.")
@click.option("--rounds", default=3, show_default=True)
def train(size: str, offline: str, causal: str, batch: int, frames: int, rounds: int) -> None:
    """Frames (10 ms) trained on in a second: forward, backward, optimiser; all encoders in turns."""
    conditions(size=size, batch=batch, frames=frames, rounds=rounds)
    found = trainers(SIZES[size], filter(None, offline.split(",")), filter(None, causal.split(",")))
    torch.manual_seed(1)
    features = torch.randn(batch, frames, SMALL.features)
    lengths = torch.linspace(frames, 0.8 * frames, batch).long()
    runs = [(trainer, cast) for trainer in found for cast in CASTS]
    least = dict.fromkeys(((trainer.name, cast) for trainer, cast in runs), float("inf"))
    peak = {}
    for number in range(rounds + 1):  # the first one warms up; the peaks are taken after it
        for trainer, cast in runs:
            spent = trainer.step(features, lengths, CASTS[cast])
            if number:
                least[trainer.name, cast] = min(least[trainer.name, cast], spent)
            if number == 1:
                peak[trainer.name, cast] = added_memory(partial(trainer.step, features, lengths, CASTS[cast]))
    columns = [title for cast in CASTS for title in (f"frames/s, {cast}", "of the first", "peak MB", "of the first")]
    heading("encoder", "kernel, N", "M parameters", *columns)
    total = int(lengths.sum())
    for trainer in found:
        config, values = trainer.config, []
        for cast in CASTS:
            spent, used = least[trainer.name, cast], peak[trainer.name, cast]
            speed, share = least[found[0].name, cast] / spent, used / peak[found[0].name, cast]
            values += [f"{total / spent:,.0f}", f"{speed:.2f}", f"{used:,.0f}", f"{share:.2f}"]
        parameters = sum(weight.numel() for weight in trainer.model.parameters()) / 1e6
        kernel = {"conv": f"{config.kernel}", "dir": f"N {config.s4_dim}"}
        row(
            trainer.name,
            kernel.get(config.component, f"{config.kernel}, N {config.s4_dim}"),
            f"{parameters:.2f}",
            *values,
        )


def timed_chunk(encoder: StreamingEncoder, chunk: Tensor, state: StreamState) -> tuple[float, StreamState]:
    begin = time.process_time()
    _, _, state = encoder.step(chunk, torch.full((len(chunk),), chunk.shape[1]), state)
    return time.process_time() - begin, state


def chunk_costs(encoder: StreamingEncoder, streams: int, size: int, chunks: int, state: StreamState) -> list[float]:
    """CPU seconds of each of the chunks."""
    spent = []
    for _ in range(chunks):
        cost, state = timed_chunk(encoder, torch.randn(streams, size, SMALL.features), state)
        spent.append(cost)
    return spent


def minute_costs(encoder: StreamingEncoder, minutes: list[int], size: int, timed: int = 40) -> list[float]:
    """Median CPU seconds of the first chunks in each of the minutes of one stream; else it goes on by 10 s."""
    state, medians = encoder.initial(1), []
    for minute in range(1, max(minutes) + 1):
        left, spent = 60 * FRAMES, []
        while left:
            frames = size if minute in minutes and len(spent) < timed else min(10 * FRAMES, left)
            cost, state = timed_chunk(encoder, torch.randn(1, frames, SMALL.features), state)
            spent.append(cost)
            left -= frames
        if minute in minutes:
            medians.append(statistics.median(spent[:timed]))
    return medians


def encoder_of(size: str, component: str, context: int | None) -> S4former:
    torch.manual_seed(1)
    kernel, states = CAUSAL[component]
    config = replace(SIZES[size], component=component, kernel=kernel, s4_dim=states, left_context=context)
    return S4former(config).eval()


@torch.no_grad()
def whole(model: S4former, minutes: float, rounds: int = 2) -> float:
    """CPU seconds of an utterance in one piece."""
    frames, least = round(60 * FRAMES * minutes), float("inf")
    features = torch.randn(1, frames, SMALL.features)
    for _ in range(rounds):
        begin = time.process_time()
        model(features, torch.tensor([frames]))
        least = min(least, time.process_time() - begin)
    return least


@main.command()
@click.option("--size", type=click.Choice(list(SIZES)), default="small", show_default=True)
@click.option("--component", type=click.Choice(list(CAUSAL)), default="com", show_default=True)
@click.option("--ms", multiple=True, default=(160, 320, 640), show_default=True, help="A chunk's length.")
@click.option("--streams", multiple=True, default=(1, 8), show_default=True, help="Streams in a batch.")
@click.option("--seconds", default=20, show_default=True, help="Of each stream.")
@click.option("--rounds", default=3, show_default=True)
@click.option("--minutes", multiple=True, default=(1, 2, 5, 10), show_default=True)
def stream(size: str, component: str, ms: Any, streams: Any, seconds: int, rounds: int, minutes: Any) -> None:
    """Real-time factor by chunk, and the cost of a chunk as a stream grows."""
    conditions(size=size, component=component, seconds=seconds, rounds=rounds)
    model = encoder_of(size, component, SMALL.left_context)
    encoder = StreamingEncoder(model)
    least: dict[tuple[int, int], float] = {}
    for _ in range(rounds):
        for count in streams:
            for length in ms:
                chunks = 1000 * seconds // length
                spent = chunk_costs(encoder, count, length // 10, chunks, encoder.initial(count))
                least[count, length] = min(least.get((count, length), float("inf")), statistics.median(spent))
    heading("chunk, ms", "streams", "CPU ms a chunk", "RTF of a stream", "streams in real time on a core")
    for (count, length), spent in least.items():
        factor = 1000 * spent / length / count
        row(length, count, f"{1000 * spent:.1f}", f"{factor:.4f}", f"{1 / factor:.0f}")
    spent = whole(model, seconds / 60)
    row("whole utterance", 1, f"{1000 * spent:.1f}", f"{spent / seconds:.4f}", f"{seconds / spent:.0f}")

    wanted = sorted(minutes)
    print(f"\nA stream of {wanted[-1]} minutes, chunks of 320 ms; median CPU ms a chunk in a minute:\n")
    bounded = minute_costs(encoder, wanted, 32)
    unbounded = minute_costs(StreamingEncoder(encoder_of(size, component, None)), wanted, 32)
    heading("minute", f"left context {SMALL.left_context}", "unbounded", "the whole utterance so far, anew")
    for minute, near, far in zip(wanted, bounded, unbounded, strict=True):
        row(minute, f"{1000 * near:.1f}", f"{1000 * far:.1f}", f"{1000 * whole(model, minute, 1):.0f}")


def by_steps(s4: S4D, u: Tensor) -> Tensor:
    """The recurrence, frame by frame."""
    state, system = s4.initial(len(u)), s4.system()
    outputs = []
    for frame in u.unbind(1):
        y, state = s4.step(frame, state, system)
        outputs.append(y)
    return torch.stack(outputs, dim=1)


def by_chunks(s4: S4D, u: Tensor, size: int) -> Tensor:
    state, outputs = s4.initial(len(u)), []
    for part in u.split(size, dim=1):
        y, state = s4.chunk(part, torch.full((len(u),), part.shape[1]), state)
        outputs.append(y)
    return torch.cat(outputs, dim=1)


@main.command()
@click.option("--channels", default=512, show_default=True)
@click.option("--states", multiple=True, default=(4, 32), show_default=True)
@click.option("--lengths", multiple=True, default=(10, 30, 100, 300, 1000, 3000, 10000), show_default=True)
@click.option("--rounds", default=5, show_default=True)
@torch.no_grad()
def s4(channels: int, states: Any, lengths: Any, rounds: int) -> None:
    """S4D on one series of vectors: as a convolution by FFT, as a recurrence, and in chunks (8 frames are 320 ms)."""
    conditions(channels=channels, rounds=rounds)
    heading(
        "N", "frames", "FFT ms", "its kernel ms", "steps ms", "of FFT", "chunks of 8 ms", "of FFT", "of 32 ms", "of FFT"
    )
    for count in states:
        torch.manual_seed(1)
        module = S4D(channels, count)
        streaming = copy.deepcopy(module).eval()  # remembers its kernel and powers
        for length in lengths:
            u = torch.randn(1, length, channels)
            ways: list[Callable[[], Tensor]] = [
                partial(module, u),
                partial(module.kernel, length),
                partial(by_steps, module, u),
                partial(by_chunks, streaming, u, 8),
                partial(by_chunks, streaming, u, 32),
            ]
            for way in ways[2:]:
                torch.testing.assert_close(way(), module(u), rtol=1e-3, atol=1e-3)
            least = [float("inf")] * len(ways)
            for _ in range(rounds):
                for number, way in enumerate(ways):
                    begin = time.process_time()
                    way()
                    least[number] = min(least[number], time.process_time() - begin)
            fft, kernel, *others = (1000 * spent for spent in least)
            ratios = [text for spent in others for text in (f"{spent:.2f}", f"{spent / fft:.2f}")]
            row(count, length, f"{fft:.2f}", f"{kernel:.2f}", *ratios)


if __name__ == "__main__":
    main()
