"""The training loop of the recogniser: pruned RNN-T (and CTC), AdamW or Muon, Eden or a budget, bf16/fp16, DDP.

A run lives in one folder, with icefall's names: `epoch-N.pt`, `checkpoint-BATCH.pt`, `best-{train,valid}-loss.pt`,
`tensorboard/`; beside them `log.jsonl`, `bpe.model`, `last-checkpoint` (the name of the newest, from which a killed run
continues in mid-epoch) and `model/`, the best model so far as a model folder.
"""

from __future__ import annotations

import copy
import math
import shutil
import time
from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from asr.dataset.left_out import summarise
from asr.errors import AsrError, CheckpointError, DataError
from asr.model import checkpoint
from asr.training.config import TransducerProgress, TransducerTrainConfig
from asr.training.going_back import BEST, of_later, remove_best, remove_later
from asr.training.run_identity import LAST, check_configuration, check_free, check_settings, newest, other_data
from asr.training.schedule import budget_used, make_optimizers, of_warm_up, rate_share, warm_share
from asr.training.step import (
    Batch,
    Batches,
    Inputs,
    LossModule,
    Skipped,
    check_dtype,
    grad_scaler,
    loss_options,
    no_gradients,
    noisy,
    prepare,
    total_loss,
    update_average,
)
from lm_zoo.files import atomic_path, write_text
from lm_zoo.text.vocabulary import PieceVocabulary
from lm_zoo.training.distributed import Ranks
from lm_zoo.training.run_log import Remark, Reporter
from lm_zoo.training.runtime import TrainingRun, autocast, random_state, set_random_state
from lm_zoo.training.schedules import set_learning_rates

if TYPE_CHECKING:
    from asr.model.transducer import Transducer

PATIENCE = 20  # batches on end that may give nothing before the run stops
BESIDE_NOTHING = "in a step for which another process had none"  # all leave it out, as each weight wants its gradient


def train(
    model: Transducer,
    vocab: PieceVocabulary,
    train_batches: Batches,
    valid_batches: Batches | None,
    out: Path,
    config: TransducerTrainConfig,
    info: dict[str, Any] | None = None,
    report: Reporter = lambda record: None,
    remark: Remark = lambda line: None,
    device: str = "cpu",
    start: Path | None = None,
    anew: bool = False,
    made_of: Mapping[str, Any] | None = None,
) -> TransducerProgress:
    """Trains a Transducer, or continues the run that `out` holds.  Under torchrun every rank calls this.

    SIGINT and SIGTERM end it behind a step, saved, by a KeyboardInterrupt (`lm_zoo.training.stopping`).

    Args:
      model: a Transducer, with the weights that a new run starts from.
      valid_batches: called with (1, 0), by every rank: it must give each the whole data.
      info: kept in the `config.json` of `out/model` (names of the data, licence).
      report: gets every log record; losses are natural logs, a frame of 40 ms.
      remark: gets lines for the user, of every process those of its own utterances that are not used.
      start: checkpoint to continue from; None: the newest of the run, if there is one.
      anew:  do not continue, whatever `out` holds; its `model` goes, too.
      made_of: what the batches of an epoch follow from, `max_duration` among it, and what `other_data` names; a run
        that goes on with others says so.
    Returns:
      where the run stands at its end.
    Raises:
      CheckpointError: the checkpoint is damaged or that of another model.
      DataError, AsrError: there is nothing to train on, or the losses are no numbers.
    """
    if start is None and not anew:
        check_free(out)
    ranks = Ranks.start(device)
    torch.manual_seed(config.seed)
    work = (model.to(ranks.device), vocab, config, out, info or {}, ranks, report, remark, made_of)
    with closing(TransducerRun(*work)) as run, run.stopping:
        run.begin(start or (None if anew else newest(out)), config.seed, config.dtype)
        if anew and ranks.rank == 0:
            remove_best(out, remark)
        if start is not None:
            run.leave_later_best(valid_batches)
        return run.loop(train_batches, valid_batches)


class TransducerRun(TrainingRun):
    """The training of a recogniser; see `train`."""

    progress: TransducerProgress

    def __init__(
        self,
        model: Transducer,
        vocab: PieceVocabulary,
        config: TransducerTrainConfig,
        out: Path,
        info: dict[str, Any],
        ranks: Ranks,
        report: Reporter,
        remark: Remark,
        made_of: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(out, ranks, report, remark if ranks.rank == 0 else lambda line: None)
        self.made_of = dict(made_of or {})
        self.model, self.vocab, self.config, self.info = model, vocab, config, info
        self.skipped, self.valid_remark = Skipped(remark), self.remark  # all validate on the same utterances
        self.progress = TransducerProgress()
        self.options = loss_options(config)
        check_dtype(config.dtype, ranks.device)
        if not config.ctc_scale:
            model.ctc.requires_grad_(False)  # DDP wants a gradient for the others
        self.optimizers = make_optimizers(model, config)
        self.scaler = grad_scaler(config.dtype == "float16")
        self.average = copy.deepcopy(model).double() if ranks.rank == 0 else None
        self.module: Any = LossModule(model)
        if ranks.size > 1:
            self.module = nn.parallel.DistributedDataParallel(self.module)
        self.noise, self.failures, self.clock = list(model.decoder.parameters()), 0, time.monotonic()
        self.start: Path | None = None  # the checkpoint that it goes on from
        self.usable = False  # whether any batch of this epoch was

    def open(self) -> None:
        """As above; the folder gets the tokens."""
        remove_later(self.out, self.start, self.progress, self.remark)
        self.vocab.save(self.out)
        super().open()

    # -- checkpoints -------------------------------------------------------------------------------------------

    def restore(self, start: Path) -> None:
        """As above; configuration, tokens and optimisers must be those of the run."""
        contents = checkpoint.read_checkpoint(start)
        check_configuration(start, contents, self.model.config)
        check_settings(start, contents, self.config)
        tokens = self.out / checkpoint.PIECES
        if tokens.exists() and tokens.read_bytes() != self.vocab.model:
            raise CheckpointError(
                f"{tokens}: the run has other tokens than those given; choose another --exp-dir, or its own --bpe-model"
            )
        checkpoint.put_weights(self.model, contents["model"], start)
        states = contents["optimizer"]
        if len(states) != len(self.optimizers):
            raise CheckpointError(f"{start}: the run has another optimizer than {self.config.optimizer}")
        for optimizer, state in zip(self.optimizers, states, strict=True):
            try:
                optimizer.load_state_dict(state)
            except ValueError as error:
                raise CheckpointError(
                    f"{start}: its optimizer moves other weights than that of now ({error}); start another run from "
                    "its model, with --init and another --exp-dir"
                ) from None
        if contents["grad_scaler"]:  # empty where the run was not in float16
            self.scaler.load_state_dict(contents["grad_scaler"])
        if self.average is not None:
            self.average.load_state_dict(contents["model_avg"])
        self.progress = TransducerProgress(**contents["progress"])
        self.share_batches(contents.get("world_size", self.ranks.size))
        self._same_batches(contents["sampler"].get("made_of", self.made_of))
        self.skipped.counts.update(contents["skipped"] if self.ranks.rank == 0 else {})
        random = contents.get("random") or [{"cpu": contents["rng"]}]  # once there was the first rank's alone
        set_random_state(random[self.ranks.rank] if self.ranks.rank < len(random) else {}, self.ranks)
        self.start = start
        self.remark(f"continuing from {start}, epoch {self.progress.epoch}, batch {self.progress.step}")
        if self.progress.finished:
            self._prolong()

    def _same_batches(self, before: dict[str, Any]) -> None:
        """Says where the data, or the batches of the epoch, are others; batches of another length are counted anew."""
        progress, now = self.progress, self.made_of
        said, of_batches = other_data(before, now)
        if said and not (of_batches and progress.batch):
            self.remark(f"{self.out}: goes on with other training data ({said})")
        elif said:
            length, then = now.get("max_duration"), before.get("max_duration")
            if length and then and length != then:  # rounded down, as there is something left of the epoch
                progress.batch = int(progress.batch * then / length)
            self.remark(
                f"{self.out}: the batches are others than until here ({said}); the epoch goes on at about batch "
                f"{progress.batch}, some of it is used twice or not at all"
            )

    def _prolong(self) -> None:
        """A finished run goes on if it is asked for more; says so, or that it is not."""
        progress, config = self.progress, self.config
        used = budget_used(config, progress)
        progress.finished = progress.epoch > config.num_epochs if used is None else used >= 1.0
        if progress.finished:
            more = "--num-epochs" if used is None else "--max-steps or --max-minutes"
            self.remark(f"{self.out}: the run there is finished; it goes on with more ({more})")

    def save(self, name: str, newest: bool = True) -> None:
        """Writes the checkpoint `name`; a killed run continues from the `newest`."""
        random, skipped = self.ranks.gather([random_state()]), self.skipped.of_all(self.ranks)
        if self.ranks.rank or self.average is None:
            return
        progress = self.progress
        contents = {
            "model": self.model.state_dict(),
            "model_avg": self.average.state_dict(),
            "optimizer": [optimizer.state_dict() for optimizer in self.optimizers],
            "scheduler": {"epoch": progress.epoch, "batch": progress.step, "seconds": progress.seconds},
            "grad_scaler": self.scaler.state_dict(),
            "sampler": {"epoch": progress.epoch, "batch": progress.batch, "made_of": self.made_of},
            "random": random,
            "progress": asdict(progress),
            "world_size": self.ranks.size,
            "model_config": self.model.config.to_dict(),
            "case": self.vocab.case,
            "skipped": dict(skipped),
            **{name: value for name, value in asdict(self.config).items() if name != "optimizer"},
            "cur_epoch": progress.epoch,
            "batch_idx_train": progress.step,
            "best_train_loss": progress.best_train_loss,
            "best_valid_loss": progress.best_valid_loss,
        }
        checkpoint.write_checkpoint(self.out / name, contents)
        if newest:
            write_text(self.out / LAST, name + "\n")
            checkpoint.remove_checkpoints(self.out, self.config.keep_last_k)

    def keep(self) -> None:
        self.save(f"checkpoint-{self.progress.step}.pt")

    def leave_later_best(self, valid_batches: Batches | None) -> None:
        """Puts the model gone on from in the place of a best one that is of after it, on a way that is left."""
        progress, first = self.progress, self.ranks.rank == 0
        later = of_later(self.out, progress.step) if first else [False] * len(BEST)
        train, *others = self.ranks.sum(*map(float, later))
        if train:
            progress.best_train_loss = math.inf
            if first:
                (self.out / BEST[0]).unlink()
        if not any(others):
            return
        self.remark(f"{self.out}: the best model is of after batch {progress.step}; from here the best is found anew")
        if first:
            (self.out / LAST).unlink(missing_ok=True)  # nothing goes on by itself before there is another best model
        progress.best_valid_loss = math.inf
        self.validate(valid_batches)
        self.keep()

    # -- the loop ----------------------------------------------------------------------------------------------

    def loop(self, train_batches: Batches, valid_batches: Batches | None) -> TransducerProgress:
        progress, config = self.progress, self.config
        budget = budget_used(config, progress) is not None
        self.clock = time.monotonic()
        while not progress.finished:
            if not budget and progress.epoch > config.num_epochs:
                break
            self._epoch(train_batches(progress.epoch, progress.batch), valid_batches)
            if not (self.usable or progress.epoch_frames) and progress.batch:
                raise DataError(
                    f"no utterance of the training data could be used in epoch {progress.epoch} "
                    f"({self.skipped.summary() or 'see the cuts left out'})"
                )
            if progress.finished:
                break
            if progress.batch == 0:
                raise DataError(
                    f"the training data gave no batch in epoch {progress.epoch}; see the utterances left out"
                )
            self._end_epoch(None if budget else valid_batches)
        if not progress.finished or progress.last_valid_step != progress.step:
            progress.finished = True
            if progress.last_valid_step != progress.step:
                self.validate(valid_batches)
            self.keep()
        if skipped := self.skipped.of_all(self.ranks):
            self.remark(f"not used: {summarise(skipped)}")
        return progress

    def _end_epoch(self, valid_batches: Batches | None) -> None:
        progress = self.progress
        if progress.epoch == 1 and (short := of_warm_up(self.config, progress.step)):
            self.remark(f"{self.out}: {short}")
        if valid_batches is not None and progress.last_valid_step != progress.step:
            self.validate(valid_batches)
        loss, before = progress.epoch_loss / max(progress.epoch_frames, 1.0), progress.best_train_loss
        progress.best_train_loss = min(loss, before)
        name = f"epoch-{progress.epoch}.pt"
        progress.epoch, progress.batch, progress.epoch_loss, progress.epoch_frames = progress.epoch + 1, 0, 0.0, 0.0
        self.save(name)
        if loss < before and self.ranks.rank == 0:
            with atomic_path(self.out / "best-train-loss.pt") as fresh:
                shutil.copyfile(self.out / name, fresh)

    def _epoch(self, batches: Iterable[Batch], valid_batches: Batches | None) -> None:
        progress, config, ranks = self.progress, self.config, self.ranks
        source, self.usable = iter(batches), False
        while not progress.finished:
            begun = time.monotonic()
            batch = next(source, None)
            inputs = prepare(batch, self.vocab, self.skipped, ranks.device) if batch is not None else None
            frames = float(inputs.frames) if inputs else 0.0
            elapsed, self.clock = time.monotonic() - self.clock, time.monotonic()
            given = (batch is None, inputs is None, self.stopping.asked, frames, elapsed / ranks.size)
            short, empty, asked, frames, elapsed = ranks.sum(*given)
            progress.seconds += elapsed
            if short:
                return  # ranks must take the same number of steps
            self.usable = self.usable or not empty
            if empty and inputs is not None:
                self.skipped.counts[BESIDE_NOTHING] += len(inputs.ids)
            self._step(inputs if not empty else None, frames)
            progress.sums["seconds"] = progress.sums.get("seconds", 0.0) + time.monotonic() - begun
            if progress.step % config.log_every == 0:
                self._log_step()
            progress.finished = (budget_used(config, progress) or 0.0) >= 1.0
            if progress.step % config.valid_every == 0 and not progress.finished:
                self.validate(valid_batches)
            self.stop_if(asked and not progress.finished)
            if progress.step % config.save_every_n == 0 and not progress.finished:
                self.keep()

    def _step(self, inputs: Inputs | None, frames: float) -> None:
        """One step of the optimisers on this rank's utterances; `frames` are those of all ranks."""
        progress, config = self.progress, self.config
        set_learning_rates(self.optimizers, rate_share(config, progress))
        scales = self._scales(warm_share(config, progress))
        good = False
        if inputs is not None:
            self.model.train()
            buffers = [buffer.clone() for buffer in self.model.buffers()]
            deviation = config.variational_noise if progress.step >= config.warm_step else 0.0
            with noisy(self.noise, deviation):
                with autocast(config.dtype, self.ranks.device):
                    parts, problems = self.module(inputs.features, inputs.lengths, inputs.tokens, self.options)
                self.skipped.add_problems(inputs, problems)
                loss, sums = total_loss(parts, scales)
                self.scaler.scale(loss * (self.ranks.size / frames)).backward()  # DDP averages over ranks
            good = self._update()
            if good:
                self._count(sums, loss.item(), inputs, inputs.frames_without(problems))
            else:  # the running statistics of its normalisation may be no numbers for good
                for buffer, before in zip(self.model.buffers(), buffers, strict=True):
                    buffer.copy_(before)
        progress.batch, progress.step = progress.batch + 1, progress.step + 1
        self.failures = 0 if good else self.failures + 1
        if self.failures >= PATIENCE:
            raise AsrError(no_gradients(progress.step, self.failures, self.skipped))
        if self.average is not None and progress.step % config.average_period == 0:
            update_average(self.average, self.model, config.average_period / progress.step)

    def _update(self) -> bool:
        """Clips and applies the gradients; False (and nothing applied) if they are infinite or no numbers."""
        for optimizer in self.optimizers:
            self.scaler.unscale_(optimizer)
        norm = float(nn.utils.clip_grad_norm_(self.model.parameters(), self.config.clip))
        good = math.isfinite(norm) and norm > 0.0
        for optimizer in self.optimizers:
            if good:
                self.scaler.step(optimizer)
            optimizer.zero_grad(set_to_none=True)
        self.scaler.update()
        if not good and self.ranks.rank == 0:  # the gradients are those of all processes
            self.skipped.counts["batches without a usable gradient"] += 1
        return good

    def _count(self, sums: dict[str, float], loss: float, inputs: Inputs, frames: int) -> None:
        """Adds to the sums of the log; `frames` are those of the utterances that have a loss."""
        progress = self.progress
        values = {**sums, "loss": loss, "frames": float(frames), "input_frames": float(inputs.lengths.sum())}
        for name, value in values.items():
            progress.sums[name] = progress.sums.get(name, 0.0) + value
        progress.epoch_loss += sums["pruned"]
        progress.epoch_frames += frames

    def _log_step(self) -> None:
        """One record of the losses a frame since the last, and of the speed, without validation and saving."""
        names = ["loss", *self._scales(), "frames", "input_frames", "seconds"]
        totals = dict(zip(names, self.ranks.sum(*(self.progress.sums.get(name, 0.0) for name in names)), strict=True))
        frames, seconds = max(totals.pop("frames"), 1.0), totals.pop("seconds") / self.ranks.size
        speed = totals.pop("input_frames") / seconds
        losses = {name: value / frames for name, value in totals.items()}
        rate = self.config.base_lr * rate_share(self.config, self.progress)
        self.log(**losses, lr=rate, frames_per_s=speed, audio_per_s=speed / 100.0, seconds=self.progress.seconds)
        self.progress.sums = {}

    def _scales(self, warm: float = 1.0) -> dict[str, float]:
        """The weight of each part of the loss, after this share of the warm-up."""
        scales = dict(zip(("simple", "pruned"), self.options.weights(warm), strict=True))
        return {**scales, "ctc": self.config.ctc_scale} if self.config.ctc_scale else scales

    def validate(self, batches: Batches | None) -> None:
        """Validation loss (every rank computes it whole); keeps the best model, or the last where there is no data."""
        progress = self.progress
        progress.last_valid_step = progress.step
        loss = None
        if batches is not None:
            losses = self.evaluate(batches)
            loss = self.ranks.sum(losses["loss"])[0] / self.ranks.size  # that all ranks save or none
            self.log(**{f"valid_{name}": value for name, value in losses.items()})
            if not loss < progress.best_valid_loss:
                return
            progress.best_valid_loss = loss
            self.save("best-valid-loss.pt", newest=False)
        if self.ranks.rank == 0:
            made: dict[str, Any] = {
                "steps": progress.step,
                "epochs": progress.epoch - (progress.batch == 0),  # none of that one has been seen
                "minutes": round(progress.seconds / 60.0, 1),
            }
            made |= {"valid_loss": loss, "seed": self.config.seed}
            checkpoint.save_model(self.out / "model", self.model, self.vocab, {**self.info, "trained": made})

    @torch.no_grad()
    def evaluate(self, batches: Batches) -> dict[str, float]:
        """The losses a frame of the utterances that have one, with the scales of after the warm-up."""
        self.model.eval()
        scales = self._scales()
        skipped, self.valid_remark = Skipped(self.valid_remark), lambda line: None  # named at the first validation
        totals, frames = dict.fromkeys(["loss", *scales], 0.0), 0
        for batch in batches(1, 0):
            inputs = prepare(batch, self.vocab, skipped, self.ranks.device)
            if inputs is None:
                continue
            with autocast(self.config.dtype, self.ranks.device):
                parts, problems = LossModule(self.model)(inputs.features, inputs.lengths, inputs.tokens, self.options)
            skipped.add_problems(inputs, problems)
            loss, sums = total_loss(parts, scales)
            frames += inputs.frames_without(problems)
            for name, value in {**sums, "loss": loss.item()}.items():
                totals[name] += value
        if not frames:
            raise DataError("the validation data has no usable utterance; see the utterances left out")
        return {name: value / frames for name, value in totals.items()}
