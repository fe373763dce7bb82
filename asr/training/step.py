"""What one training step needs: usable utterances of a batch as tensors, the loss summed, noise on the weights."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from asr.dataset.left_out import FirstOfReason, summarise
from asr.errors import ConfigError
from asr.model.subsampling import subsampled
from lm_zoo.reading import kaldi_fields
from lm_zoo.text.vocabulary import PieceVocabulary
from lm_zoo.training.runtime import DTYPES

if TYPE_CHECKING:
    from asr.model.transducer import Transducer
    from asr.training.config import TransducerTrainConfig
    from lm_zoo.training.distributed import Ranks

Batch = dict[str, Any]
# (epoch from 1, batches of this rank to leave out) -> the other batches of this rank in that epoch
Batches = Callable[[int, int], Iterable[Batch]]


@dataclass
class Inputs:
    """The usable utterances of a batch.

    Attributes:
      features: (B, T, F) float32;  lengths: (B,) frames;  tokens: B lists;  ids: B names.
      frames:   of the encoder's output (40 ms), of all utterances: what the loss is divided by.
    """

    features: Tensor
    lengths: Tensor
    tokens: list[list[int]]
    ids: list[str]
    frames: int

    def frames_without(self, left_out: Container[int]) -> int:
        """`frames` but for those of some utterances, by their indices."""
        sizes = subsampled(self.lengths).tolist()
        return sum(size for index, size in enumerate(sizes) if index not in left_out)


class Skipped:
    """Counts the utterances that could not be used, by reason, and names the first of them."""

    def __init__(self, remark: Callable[[str], None]) -> None:
        self.counts: Counter[str] = Counter()  # of every epoch, in this process
        self._first = FirstOfReason(remark)

    def summary(self) -> str:
        """Such as `3 x no words, 1 x too short`; an utterance counts in each epoch."""
        return summarise(self.counts)

    def of_all(self, ranks: Ranks) -> Counter[str]:
        """The counts of all processes together; each of them must ask."""
        total: Counter[str] = Counter()
        for counts in ranks.gather([dict(self.counts)]):
            total.update(counts)
        return total

    def add_problems(self, inputs: Inputs, problems: dict[int, str]) -> None:
        """Those of a `TransducerLoss`."""
        for index, problem in problems.items():
            reason, _, detail = problem.partition(": ")
            self.add(inputs.ids[index], reason, detail)

    def add(self, utterance: str, reason: str, detail: str = "") -> None:
        self.counts[reason] += 1
        self._first.tell(utterance, reason, f"utterance {utterance} not used: {reason}{detail and f' ({detail})'}")


def no_gradients(step: int, batches: int, skipped: Skipped) -> str:
    """The message of a run that its last batches gave nothing to go on with."""
    return (
        f"training stopped at batch {step}: the last {batches} batches gave no usable gradient (utterances left out: "
        f"{skipped.summary() or 'none'}); go on without --use-fp16, begin another --exp-dir with a lower --base-lr, or "
        "look at the data"
    )


def prepare(batch: Batch, vocab: PieceVocabulary, skipped: Skipped, device: torch.device) -> Inputs | None:
    """The utterances of a batch that can be trained on; None if there are none.

    Left out are those without words, and those whose transcript holds symbols that the tokens cannot spell.
    """
    kept, tokens = [], []
    for index, (name, text) in enumerate(zip(batch["ids"], batch["texts"], strict=True)):
        ids = [token for word in kaldi_fields(text) for token in vocab.encode_word(word)]
        if not ids:
            skipped.add(name, "no words")
        elif vocab.unk in ids:
            word = next(word for word in kaldi_fields(text) if vocab.unk in vocab.encode_word(word))
            skipped.add(name, "unknown symbols", f"in '{word}'")
        else:
            kept.append(index)
            tokens.append(ids)
    if not kept:
        return None
    features, lengths = batch["features"], batch["lengths"]
    if len(kept) < len(lengths):
        lengths = lengths[kept]
        features = features[kept, : int(lengths.max())]
    names = [batch["ids"][index] for index in kept]
    frames = int(subsampled(lengths).sum())
    return Inputs(features.to(device), lengths.to(device), tokens, names, frames)


class LossModule(nn.Module):
    """`Transducer.loss` as a forward, which is what DistributedDataParallel wraps."""

    def __init__(self, model: Transducer) -> None:
        super().__init__()
        self.model: Transducer = model

    def forward(
        self, features: Tensor, lengths: Tensor, tokens: list[list[int]], options: Any
    ) -> tuple[dict[str, Tensor], dict[int, str]]:
        """The parts of the loss, each (B,), zero where an utterance cannot be used, and why not, by its index."""
        loss = self.model.loss(features, lengths, tokens, options)
        parts = {"simple": loss.simple, "pruned": loss.pruned}
        return (parts if loss.ctc is None else {**parts, "ctc": loss.ctc}), loss.problems


def total_loss(parts: dict[str, Tensor], scales: dict[str, float]) -> tuple[Tensor, dict[str, float]]:
    """The scaled loss summed over the utterances, and the sum of each part."""
    sums = {name: parts[name].sum() for name in scales}
    total = torch.stack([scale * sums[name] for name, scale in scales.items()]).sum()
    return total, {name: value.item() for name, value in sums.items()}


def check_dtype(dtype: str, device: torch.device) -> None:
    """Raises ConfigError for an unknown dtype, or for float16 on a CPU."""
    if dtype not in DTYPES:
        raise ConfigError(f"training runs in {', '.join(DTYPES)}, found the dtype '{dtype}'")
    if dtype == "float16" and device.type == "cpu":
        raise ConfigError("training in float16 needs a GPU; use bfloat16 (--use-bf16) on the CPU")


@contextmanager
def noisy(parameters: list[nn.Parameter], deviation: float) -> Iterator[None]:
    """Adds Gaussian noise to weights for the time of a forward and backward pass (Graves, 2012)."""
    if not deviation:
        yield
        return
    clean = [p.detach().clone() for p in parameters]
    with torch.no_grad():
        for p in parameters:
            p.add_(torch.randn_like(p), alpha=deviation)
    try:
        yield
    finally:
        with torch.no_grad():
            for p, before in zip(parameters, clean, strict=True):
                p.copy_(before)


def loss_options(config: TransducerTrainConfig) -> Any:
    """The loss's options among the settings of a run."""
    from asr.model.transducer import LossOptions

    names = {item.name for item in fields(LossOptions)} & {item.name for item in fields(config)}
    return LossOptions(backend=config.loss_backend, **{name: getattr(config, name) for name in names})


@torch.no_grad()
def update_average(average: nn.Module, model: nn.Module, weight: float) -> None:
    """`average = (1 - weight) * average + weight * model`, integers copied: with weight period/step, icefall's
    running average of the models since the start, in float64."""
    current = model.state_dict()
    for name, tensor in average.state_dict().items():
        if tensor.is_floating_point():
            tensor.mul_(1.0 - weight).add_(current[name].to(tensor), alpha=weight)
        else:
            tensor.copy_(current[name])


def grad_scaler(enabled: bool) -> Any:
    """float16's loss scaling; passes everything through if not enabled."""
    if hasattr(torch.amp, "GradScaler"):
        return torch.amp.GradScaler("cuda", enabled=enabled)
    return torch.cuda.amp.GradScaler(enabled=enabled)
