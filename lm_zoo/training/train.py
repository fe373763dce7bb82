"""The one training loop: sentences or windows, SGD with new-bob or AdamW with warm-up and cosine, bf16, DDP.

A run lives in one folder: `config.json`, `model.safetensors` and the vocabulary of the best model so far (usable as
`--lm DIR` at any time), `log.jsonl`, `tensorboard/`, and `checkpoint/` from which a killed run continues in
mid-epoch with the same losses.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import closing, nullcontext
from dataclasses import asdict, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from lm_zoo.errors import ModelError
from lm_zoo.inference.neural import NeuralLM
from lm_zoo.inference.state import State
from lm_zoo.model_folder import CONFIG
from lm_zoo.registry import check_place, neural_class, save_folder
from lm_zoo.text.batches import (
    Batch,
    TokenText,
    carried_batches,
    join_sentences,
    pad_sentences,
    sentence_batches,
    streams_of,
    window_batches,
    with_tokens_behind,
)
from lm_zoo.text.vocabulary import Vocabulary
from lm_zoo.training import checkpoint
from lm_zoo.training.config import LMProgress, TrainConfig, counted, of_warm_up
from lm_zoo.training.distributed import Ranks, in_step
from lm_zoo.training.optimizers import learning_rate, make_optimizers, rate_share
from lm_zoo.training.run_identity import check_same
from lm_zoo.training.run_log import Remark, Reporter
from lm_zoo.training.runtime import TrainingRun, autocast, random_state
from lm_zoo.training.schedules import set_learning_rates
from lm_zoo.training.transfer import new_lm

LARGEST = 700.0  # loss whose perplexity a float holds


def train(
    kind: str,
    settings: dict[str, Any],
    vocab: Vocabulary,
    train_text: TokenText,
    valid_text: TokenText,
    out: Path,
    config: TrainConfig,
    info: dict[str, Any] | None = None,
    report: Reporter = lambda record: None,
    device: str = "cpu",
    lm: NeuralLM | None = None,
    remark: Remark = lambda line: None,
) -> LMProgress:
    """Trains a new LM, or continues the run that `out` holds.  Under torchrun every rank calls this.

    A finished run goes on where it is asked for more steps or passes than it had.  SIGINT and SIGTERM end it behind a
    step, saved, by a KeyboardInterrupt (`lm_zoo.training.stopping`).

    Args:
      info: kept in the model's `config.json` (names of the data, licence).
      report: gets every log record: `{"step", "loss" | "valid_loss", ...}`, natural logs a token.
      lm: what a new run starts from, of that kind and those settings; None: random weights.
      remark: gets lines for the user.
    Returns:
      where the run stands at its end.
    Raises:
      ModelError: the run in `out` is another one (see `lm_zoo.training.run_identity`), or has gone further
        than it is asked to.
    """
    ranks = Ranks.start(device)
    check_settings(kind, config, ranks.size)
    planned = replace(config, steps=planned_steps(train_text, vocab, config, ranks.size))
    lm = (lm or new_lm(kind, vocab, settings, config.seed)).to(ranks.device)
    with closing(LMRun(lm, kind, planned, out, info or {}, ranks, report, remark)) as run, run.stopping:
        run.begin(checkpoint.newest(out / "checkpoint"), config.seed, config.dtype)
        if untouched := lm.untouched(planned.steps):
            remark(untouched)
        progress = run.loop(train_text, valid_text)
    if not untouched and progress.best_step >= 0 and (of_best := lm.untouched(progress.best_step)):
        remark(f"{out}: the best model is that of step {progress.best_step}; {of_best}")
    return progress


class LMRun(TrainingRun):
    """The training of an LM; see `train`.

    What it trains on is in the methods from `prepare` to `evaluate` alone: text, or what a subclass has instead.
    """

    progress: LMProgress

    def __init__(
        self,
        lm: NeuralLM,
        kind: str,
        config: TrainConfig,
        out: Path,
        info: dict[str, Any],
        ranks: Ranks,
        report: Reporter,
        remark: Remark,
    ) -> None:
        super().__init__(out, ranks, report, remark)
        self.lm, self.kind, self.config, self.info = lm, kind, config, info
        self.progress = LMProgress()
        self.clock = time.process_time()
        self.norms = torch.zeros((), device=ranks.device)  # of the gradients, summed: finite as long as all are
        self.targets = 0  # of one pass over the training text
        self.optimizers = make_optimizers(lm, config)
        self.loss_sum = torch.zeros((), dtype=torch.float64, device=ranks.device)  # that of `progress`, not waited for
        self.state: State | None = None  # carried from window to window
        self.behind: list[Tensor] = []  # the tokens behind each window of a step, of what is carried
        self.patience = config.patience or (5 if config.schedule == "newbob" else math.inf)
        self.model: Any = in_step(lm) if ranks.size > 1 else lm

    # -- checkpoints -------------------------------------------------------------------------------------------

    def restore(self, folder: Path) -> None:
        """As above; the settings must be those of the run, and a finished one goes on if it is asked for more."""
        state = checkpoint.read_state(folder)
        if "train" in state:
            check_same(self.out, {name: state[name] for name in self._made_of()}, self._made_of())
        state_carried = checkpoint.restore(folder, self.lm, self.optimizers, self.ranks)
        self.state = state_carried.to(self.ranks.device) if state_carried else None
        self.progress = LMProgress(**state["progress"])
        self.share_batches(state.get("ranks", self.ranks.size))
        self.loss_sum.fill_(self.progress.loss_sum)
        if self.progress.finished:
            self._prolong(state["train"])
        else:
            self._check_length()

    def open(self) -> None:
        """As above; a folder in which the LM cannot be saved is told before it is trained."""
        check_place(self.out, self.lm.vocab)
        progress = self.progress
        if not progress.step and (self.out / CONFIG).exists():
            stays = "the model there stays until the first validation"
            self.remark(f"{self.out}: no checkpoint to go on from, the run begins anew; {stays}")
        if not progress.finished and (short := of_warm_up(self.config)):
            self.remark(f"{self.out}: {short}")
        again = "valid_loss" if progress.valid_step < progress.step else None  # was killed after it, before a save
        self.records.open(progress.step, progress.epoch, again)

    def _made_of(self) -> dict[str, Any]:
        return {"kind": self.kind, "settings": asdict(self.lm.config), "train": asdict(self.config)}

    def _prolong(self, before: dict[str, Any]) -> None:
        """A finished run goes on if it is asked for more; says so, or why not."""
        progress, config = self.progress, self.config
        done = f"{self.out}: the run there is finished, with {counted(progress.step, 'step')}"
        length = config.passes or config.steps  # the steps of passes are others in another number of processes
        same = length == (before.get("passes") or before["steps"]) and bool(config.passes) == bool(before.get("passes"))
        if self._at_end() and not same:
            has = counted(progress.epoch, "pass")
            raise ModelError(f"{done}, {has}; asked for {_length(config)}, which it has already")
        if self._at_end():
            self.remark(f"{done}; it goes on with more (--train steps=N, or passes=N)")
        elif same and progress.stale >= self.patience:
            early = f"stopped early after {progress.stale} validations without a better one"
            self.remark(f"{done}, {early}; it goes on with more of them (--train patience=N)")
        else:
            progress.finished, progress.stale = False, 0 if progress.stale >= self.patience else progress.stale
            self.remark(f"{done}; it goes on to {_length(config)}, with the learning rates of the longer run")

    def _check_length(self) -> None:
        """Raises ModelError where a run that was stopped is to be shorter than it is already."""
        progress, config = self.progress, self.config
        part = progress.batch > 0
        if (progress.epoch + part > config.passes) if config.passes else progress.step > config.steps:
            has = f"{counted(progress.step, 'step')}, {counted(progress.epoch, 'pass')}{' and a part' * part} already"
            raise ModelError(f"{self.out}: the run there has {has}; asked for {_length(config)} in all")

    def _at_end(self) -> bool:
        """Whether the run has all the passes, or steps, that it is to have."""
        progress, config = self.progress, self.config
        return progress.epoch >= config.passes if config.passes else progress.step >= config.steps

    def _count_time(self) -> None:
        """Called by all ranks."""
        now = time.process_time()
        self.progress.cpu_seconds += self.ranks.sum(now - self.clock)[0]
        self.clock = now

    def check_finite(self) -> None:
        """Raises ModelError where the run has diverged; asked before anything is logged or saved."""
        if not (math.isfinite(self.loss_sum.item()) and math.isfinite(self.norms.item())):
            raise ModelError(self._diverged("training loss or its gradient"))

    def _diverged(self, what: str) -> str:
        return (
            f"{self.out}: training stopped at step {self.progress.step}: the {what} is infinite or no number; train "
            "anew in another folder with a lower learning rate (--train lr=RATE); the best model so far stays"
        )

    def keep(self) -> None:
        self.check_finite()
        random = self.ranks.gather([random_state()])
        self._count_time()
        if self.ranks.rank == 0:
            self.progress.loss_sum = self.loss_sum.item()
            state = {**self._made_of(), "progress": asdict(self.progress), "ranks": self.ranks.size}
            checkpoint.save(self.out / "checkpoint", self.lm, self.optimizers, state, random, self.state)

    def log(self, **figures: Any) -> None:
        self._count_time()
        super().log(**figures)

    def stand(self) -> dict[str, Any]:
        passes = {"passes": round(self.progress.tokens / self.targets, 4)} if self.targets else {}
        return {
            **super().stand(),
            **passes,
            "tokens": self.progress.tokens,
            "cpu_seconds": round(self.progress.cpu_seconds, 1),
        }

    # -- the loop ----------------------------------------------------------------------------------------------

    def prepare(self, data: Any) -> None:
        """Called before the first step, with all that is trained on."""
        self.targets = len(data.tokens) + len(data.offsets) - 1
        self.lm.begin_training(data)

    def batches(self, data: Any, rng: np.random.Generator) -> Iterator[Any]:
        """The batches of one pass, in an order that `rng` alone decides."""
        return epoch_batches(data, self.lm.vocab, self.config, rng)

    def count(self, batch: Any) -> int:
        """What the loss of a batch is a sum over."""
        return int((batch[1] >= 0).sum())

    def loss(self, batch: Any) -> Tensor:
        """The summed loss of a batch."""
        inputs, targets = (part.to(self.ranks.device) for part in batch)
        if self.state is None:
            return self.model(inputs, targets)  # type: ignore[no-any-return]
        self.behind.append(self.lm.behind(self.state))
        loss, self.state = self.model(inputs, targets, self.state)
        return loss  # type: ignore[no-any-return]

    def once_a_step(self) -> Tensor:
        """What is added to the mean loss of a step: a Bayesian LM's KL divided by the targets of the text."""
        return self.lm.kl() / self.targets

    def after_step(self, group: list[Any]) -> None:
        """Called after every step with this rank's batches."""
        if self.behind:
            group = [with_tokens_behind(*pair) for pair in zip(self.behind, group, strict=True)]
            self.behind = []
        self.lm.after_step(self._of_all_ranks(group), self.progress.step, self.config.seed)

    def evaluate(self, data: Any) -> tuple[float, dict[str, float]]:
        """The validation loss, and what the log says of it beside."""
        loss = evaluate(self.lm, data, self.config, self.ranks.device)
        return loss, {"valid_ppl": math.exp(min(loss, LARGEST))}

    def loop(self, train_data: Any, valid_data: Any) -> LMProgress:
        progress, config = self.progress, self.config
        self.prepare(train_data)
        while not (progress.finished or self._at_end()):
            rng = np.random.default_rng([config.seed, progress.epoch])
            batches = self.batches(train_data, rng)
            if config.carry and not progress.batch:
                self.state = self.lm.initial_state().repeat(config.batch_windows)
            shard = islice(batches, progress.batch * self.ranks.size + self.ranks.rank, None, self.ranks.size)
            begun, before = progress.batch > 0, progress.step
            self._epoch(shard, valid_data)
            if progress.step == before and not begun:
                raise ModelError(
                    f"a pass over the text has fewer batches than a step takes: {self.ranks.size} processes with "
                    f"accumulate={config.accumulate}; take fewer, or smaller batches (--train batch_tokens=N)"
                )
            if progress.finished:
                break
            progress.epoch, progress.batch = progress.epoch + 1, 0
            if config.valid_every == 0:
                self.validate(valid_data)
        progress.finished = True
        if progress.valid_step != progress.step:
            self.validate(valid_data)
        self.keep()
        if progress.left_out:
            left_out = f"{progress.left_out} tokens at the ends of {counted(progress.epoch, 'pass')} left out"
            self.remark(f"{self.out}: {left_out}, in batches too few for a step of {self.ranks.size} processes")
        return progress

    def _epoch(self, batches: Iterator[Any], valid_data: Any) -> None:
        progress, config = self.progress, self.config
        clock, counted = time.monotonic(), 0
        while not progress.finished:
            group = list(islice(batches, config.accumulate))
            short, asked = self.ranks.sum(float(len(group) < config.accumulate), float(self.stopping.asked))
            if short and (self.ranks.size > 1 or not group):  # ranks must take the same number of steps
                progress.left_out += int(self.ranks.sum(float(sum(map(self.count, group))))[0])
                return
            count = self._step(group)
            progress.loss_tokens += count
            progress.batch += len(group)
            counted += count
            if progress.step % config.log_every == 0:
                self.check_finite()
                speed = counted / (time.monotonic() - clock)
                mean = self.loss_sum.item() / progress.loss_tokens
                self.log(loss=mean, lr=learning_rate(config, progress), tokens_per_s=speed)
                clock, counted, progress.loss_tokens = time.monotonic(), 0, 0
                self.loss_sum.zero_()
            progress.finished = not config.passes and self._at_end()
            if config.valid_every and progress.step % config.valid_every == 0:
                self.validate(valid_data)
                clock, counted = time.monotonic(), 0
            self.stop_if(asked and not progress.finished)
            if progress.step % config.save_every == 0:
                self.keep()

    def _step(self, group: list[Any]) -> int:
        """One optimiser step; returns what its loss is a sum over, over all ranks."""
        progress, device = self.progress, self.ranks.device
        self.model.train()
        set_learning_rates(self.optimizers, rate_share(self.config, progress))
        count = int(self.ranks.sum(float(sum(map(self.count, group))))[0])
        for index, batch in enumerate(group):
            last = index == len(group) - 1
            with (
                nullcontext() if last or self.ranks.size == 1 else self.model.no_sync(),
                autocast(self.config.dtype, device),
            ):
                loss = self.loss(batch)
                scaled = loss * (self.ranks.size / count)  # DDP averages the gradients over ranks
                if last:
                    scaled = scaled + self.once_a_step()
                scaled.backward()
            self.loss_sum += loss.detach() if self.ranks.size == 1 else self.ranks.sum(loss.item())[0]
        self.norms += nn.utils.clip_grad_norm_(self.lm.parameters(), self.config.clip)
        for optimizer in self.optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        progress.step += 1
        progress.tokens += count
        self.after_step(group)
        return count

    def _of_all_ranks(self, group: list[Batch]) -> Iterator[Batch]:
        """The batches of a step, on this rank's device; gathered when the first is asked for."""
        for inputs, targets in self.ranks.gather(group):
            yield inputs.to(self.ranks.device), targets.to(self.ranks.device)

    def validate(self, data: Any) -> None:
        """Validation loss (every rank computes it whole), best model, new-bob, early stop."""
        progress, config = self.progress, self.config
        self.check_finite()
        loss, figures = self.evaluate(data)
        if not math.isfinite(loss):
            raise ModelError(self._diverged("validation loss"))
        gain = 1.0 - loss / progress.last_valid if 0.0 < progress.last_valid < math.inf else 1.0
        progress.last_valid, progress.valid_step = loss, progress.step
        progress.stale = 0 if loss < progress.best_loss else progress.stale + 1
        if config.schedule == "newbob":
            progress.halving = progress.halving or gain < config.newbob_gain
            progress.lr_factor *= 0.5 if progress.halving else 1.0
        self.log(valid_loss=loss, **figures, lr=learning_rate(config, progress))
        if loss < progress.best_loss:
            progress.best_loss, progress.best_step = loss, progress.step
            if self.ranks.rank == 0:
                made = {"step": progress.step, "tokens": progress.tokens, "valid_loss": loss, "seed": config.seed}
                save_folder(self.out, self.lm, self.kind, {**self.info, "trained": made})
        if progress.stale >= self.patience:
            progress.finished = True


def planned_steps(text: TokenText, vocab: Vocabulary, config: TrainConfig, ranks: int) -> int:
    """Optimiser steps of the whole run: given, or those of the passes (one counted, times their number)."""
    if not config.passes:
        return config.steps
    targets = len(text.tokens) + len(text.offsets) - 1
    if config.text == "windows":
        count = math.ceil(math.ceil(targets / config.window) / config.batch_windows)
    else:
        count = len(_sentence_batches(text, vocab, config, np.random.default_rng([config.seed, 0]))[1])
    group = config.accumulate * ranks
    return config.passes * (count // group if ranks > 1 else math.ceil(count / group))


def check_settings(kind: str, config: TrainConfig, ranks: int) -> None:
    """Raises ModelError for settings that do not go together."""
    if config.join and config.text != "sentences":
        raise ModelError(f"join={config.join} is for sentences; leave out text={config.text}, which is joined already")
    if config.carry and config.text != "windows":
        raise ModelError("carry=true is for running text; add text=windows")
    if config.carry and not neural_class(kind).can_carry():
        raise ModelError(f"{kind} cannot carry its state from window to window; leave out carry=true")
    if config.carry and ranks > 1:
        raise ModelError(f"carry=true trains in one process, found {ranks}; leave out --world-size or torchrun")


def _length(config: TrainConfig) -> str:
    return counted(config.passes, "pass") if config.passes else counted(config.steps, "step")


def epoch_batches(
    text: TokenText, vocab: Vocabulary, config: TrainConfig, rng: np.random.Generator | None
) -> Iterator[Batch]:
    """The batches of one pass over the text, in an order that `rng` alone decides."""
    if config.carry:
        return carried_batches(text, vocab, config.window, config.batch_windows, rng)
    if config.text == "windows":
        return window_batches(text, vocab, config.window, config.batch_windows, rng)
    text, numbers = _sentence_batches(text, vocab, config, rng)
    return (pad_sentences(text, chosen, vocab) for chosen in numbers)


def _sentence_batches(
    text: TokenText, vocab: Vocabulary, config: TrainConfig, rng: np.random.Generator | None
) -> tuple[TokenText, list[np.ndarray]]:
    """The text of a pass, some of its sentences joined (never in validation), and the numbers of each batch."""
    if config.join and rng is not None:
        text = join_sentences(text, vocab, config.join, rng)
    return text, sentence_batches(text, config.batch_tokens, rng)


@torch.no_grad()
def evaluate(lm: NeuralLM, text: TokenText, config: TrainConfig, device: torch.device) -> float:
    """Natural-log loss a token (sentence ends included), computed in the run's dtype."""
    lm.eval()
    loss = count = 0.0
    if config.carry:
        config = replace(config, batch_windows=streams_of(text, config.window, config.batch_windows))
    state = lm.initial_state().repeat(config.batch_windows) if config.carry else None
    for inputs, targets in epoch_batches(text, lm.vocab, config, None):
        with autocast(config.dtype, device):
            part = lm(inputs.to(device), targets.to(device), state)
        if config.carry:
            part, state = part
        loss += part.item()
        count += int((targets >= 0).sum())
    return loss / count
