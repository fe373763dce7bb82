"""Pruned against full RNN-T loss: CPU seconds and peak memory of joiner and loss, forward and backward.

In plain torch, and with k2 and torchaudio where these are installed; all on the same input, in turns.  Memory is what a
pass adds to the process (Linux).

Example: OMP_NUM_THREADS=1 python benchmarks/rnnt_loss.py --batch 16 --frames 150 --tokens 40 --vocab 256
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from asr.model.joiner import Joiner
from asr.model.rnnt_loss import full_loss, prune_ranges, pruned_loss, smoothed_loss

LM_SCALE = 0.25


@dataclass
class Model:
    """A joiner with the two heads of the simple loss, and a batch of its inputs.

    Attributes:
      encoded: (B, T, D);  decoded: (B, U + 1, D);  tokens: (B, U);  frames, counts: (B,);  kept: the pruning range.
    """

    joiner: Joiner
    heads: nn.ModuleList
    encoded: Tensor
    decoded: Tensor
    tokens: Tensor
    frames: Tensor
    counts: Tensor
    kept: int

    @property
    def boundary(self) -> Tensor:
        zero = torch.zeros_like(self.frames)
        return torch.stack([zero, zero, self.counts, self.frames], dim=1)

    def projected(self) -> tuple[Tensor, Tensor]:
        return self.joiner.project_encoder(self.encoded), self.joiner.project_decoder(self.decoded)

    def all_logits(self) -> Tensor:
        encoded, decoded = self.projected()
        return self.joiner(encoded.unsqueeze(2), decoded.unsqueeze(1))


def make_model(args: argparse.Namespace) -> Model:
    torch.manual_seed(args.seed)
    joiner = Joiner(args.dim, args.dim, args.dim, args.vocab)
    heads = nn.ModuleList(nn.Linear(args.dim, args.vocab) for _ in range(2))
    encoded = torch.randn(args.batch, args.frames, args.dim, requires_grad=True)
    decoded = torch.randn(args.batch, args.tokens + 1, args.dim, requires_grad=True)
    share = torch.linspace(1.0, 0.7, args.batch)
    frames, counts = (share * args.frames).long(), (share * args.tokens).long()
    tokens = torch.randint(1, args.vocab, (args.batch, args.tokens))
    return Model(joiner, heads, encoded, decoded, tokens, frames, counts, args.prune_range)


def full_torch(model: Model) -> Tensor:
    return full_loss(model.all_logits(), model.tokens, model.frames, model.counts).sum()


def full_torchaudio(model: Model) -> Tensor:
    from torchaudio.functional import rnnt_loss

    lengths = [part.int() for part in (model.tokens, model.frames, model.counts)]
    return rnnt_loss(model.all_logits(), *lengths, blank=0, reduction="sum")


def full_k2(model: Model) -> Tensor:
    import k2

    return k2.rnnt_loss(model.all_logits(), model.tokens, 0, model.boundary, reduction="sum")


def pruned_torch(model: Model) -> Tensor:
    am, lm = model.heads[0](model.encoded), model.heads[1](model.decoded)
    sizes = model.frames, model.counts
    simple, *occupations = smoothed_loss(am, lm, model.tokens, *sizes, LM_SCALE)
    ranges = prune_ranges(occupations[0], occupations[1], *sizes, model.kept)
    encoded, decoded = model.projected()
    start = torch.arange(len(decoded)).view(-1, 1, 1) * decoded.shape[1]
    kept = nn.functional.embedding(ranges + start, decoded.flatten(0, 1))
    pruned = pruned_loss(model.joiner(encoded.unsqueeze(2), kept), model.tokens, ranges, *sizes)
    return (0.5 * simple + pruned).sum()


def pruned_k2(model: Model) -> Tensor:
    import k2

    am, lm = model.heads[0](model.encoded), model.heads[1](model.decoded)
    arguments = model.tokens, 0, LM_SCALE, 0.0, model.boundary
    simple, grads = k2.rnnt_loss_smoothed(lm, am, *arguments, reduction="sum", return_grad=True)
    ranges = k2.get_rnnt_prune_ranges(*grads, model.boundary, model.kept)
    logits = model.joiner(*k2.do_rnnt_pruning(*model.projected(), ranges))
    return 0.5 * simple + k2.rnnt_loss_pruned(logits, model.tokens, ranges, 0, model.boundary, reduction="sum")


LOSSES: dict[str, Callable[[Model], Tensor]] = {
    "full, torch": full_torch,
    "full, torchaudio": full_torchaudio,
    "full, k2": full_k2,
    "pruned, torch": pruned_torch,
    "pruned, k2": pruned_k2,
}


def memory(name: str) -> float:
    """A line of /proc/self/status, in MB; NaN where there is none."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return float("nan")
    return next((int(line.split()[1]) / 1e3 for line in lines if line.startswith(f"{name}:")), float("nan"))


def run(loss: Callable[[Model], Tensor], model: Model) -> tuple[float, float]:
    """CPU seconds of one pass forward and backward, and its loss."""
    for weight in [model.encoded, model.decoded, *model.joiner.parameters(), *model.heads.parameters()]:
        weight.grad = None
    start = time.process_time()
    value = loss(model)
    value.backward()
    return time.process_time() - start, value.item()


def peak(loss: Callable[[Model], Tensor], model: Model) -> float:
    """MB that one pass adds at its peak."""
    gc.collect()
    try:
        ctypes.CDLL(None).malloc_trim(0)  # what earlier passes have freed goes back to the system
        Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
    except (AttributeError, OSError):
        return float("nan")
    held = memory("VmRSS")
    run(loss, model)
    return memory("VmHWM") - held


def installed(model: Model) -> tuple[dict[str, Callable[[Model], Tensor]], dict[str, str]]:
    """The losses that run here (each runs once), and why the others do not."""
    found, missing = {}, {}
    for name, loss in LOSSES.items():
        try:
            run(loss, model)
            found[name] = loss
        except (ImportError, AttributeError) as error:
            missing[name] = str(error)
    return found, missing


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--frames", type=int, default=150, help="of 40 ms")
    parser.add_argument("--tokens", type=int, default=40)
    parser.add_argument("--vocab", type=int, default=256)
    parser.add_argument("--dim", type=int, default=256, help="of encoder, decoder and joiner")
    parser.add_argument("--prune-range", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--quick", action="store_true", help="a small batch, two rounds")
    parser.add_argument("--json", action="store_true", help="one JSON object in place of the table")
    args = parser.parse_args()
    if args.quick:
        args.batch, args.frames, args.tokens, args.dim, args.rounds = 4, 60, 16, 64, 2

    model = make_model(args)
    losses, missing = installed(model)
    rows: dict[str, dict[str, float]] = {name: {"seconds": float("inf")} for name in losses}
    for _ in range(args.rounds):
        for name, loss in losses.items():
            seconds, value = run(loss, model)
            rows[name] |= {"seconds": min(seconds, rows[name]["seconds"]), "loss": value}
    for name, loss in losses.items():
        rows[name]["peak_mb"] = peak(loss, model)
    for row in rows.values():
        row["time_ratio"] = row["seconds"] / rows["full, torch"]["seconds"]
        row["memory_ratio"] = row["peak_mb"] / rows["full, torch"]["peak_mb"]
    environment = {"torch": torch.__version__, "threads": torch.get_num_threads(), **vars(args)}
    if args.json:
        json.dump({"environment": environment, "losses": rows, "missing": missing}, sys.stdout, indent=2)
        print()
        return
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, best of {args.rounds}; {vars(args)}")
    for name, why in missing.items():
        print(f"not run: {name} ({why})")
    print("| loss | CPU s | of full | peak MB | of full |\n|---|---:|---:|---:|---:|")
    for name, row in rows.items():
        numbers = f"{row['seconds']:.3f} | {row['time_ratio']:.2f} | {row['peak_mb']:.0f} | {row['memory_ratio']:.2f}"
        print(f"| {name} | {numbers} |")


if __name__ == "__main__":
    main()
