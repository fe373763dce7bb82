"""`asr train`: from files to a training run, in one process or in several."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from asr.dataset.features import BINS
from asr.errors import ConfigError, DataError
from asr.model.checkpoint import load_model, read_tokens
from asr.model.config import TransducerConfig, load_config
from asr.model.rnnt_loss import check_backend
from asr.training.config import TransducerTrainConfig
from asr.training.train import train
from lm_zoo.errors import LMError
from lm_zoo.inference.devices import find_device
from lm_zoo.reading import is_read_once, kaldi_fields
from lm_zoo.text.vocabulary import PieceVocabulary
from lm_zoo.training import distributed as ranks
from rescore.console import remark
from rescore.errors import RescoreError

if TYPE_CHECKING:
    from asr.dataset.loader import Loader
    from asr.model.transducer import Transducer

SPEEDS = (0.9, 1.0, 1.1)


@dataclass(frozen=True)
class TrainPlan:
    """What a run is made of, beside the settings of the training itself.

    Attributes:
      config:       name or JSON file of the model's configuration; None with `init`.
      init:         model folder whose configuration, tokens and weights the run starts from.
      bpe_model:    sentencepiece model; None with `init`.
      model_settings: values in place of the configuration's, by name (`TransducerConfig.with_settings`).
      max_duration: seconds of audio in a batch (of each process).
      on_the_fly:   compute the features from the audio; else take those stored.
      start_epoch, start_batch: continue from `epoch-(N-1).pt` (1: start anew) or `checkpoint-N.pt`; None, None: from
                    the newest checkpoint of the run, if there is one.
      allow_pipes:  run the commands that the manifests name.
    """

    exp_dir: Path
    train_cuts: tuple[Path, ...]
    valid_cuts: tuple[Path, ...] = ()
    config: str | None = None
    init: Path | None = None
    bpe_model: Path | None = None
    model_settings: dict[str, Any] = field(default_factory=dict)
    max_duration: float = 200.0
    bucketing_sampler: bool = True
    num_workers: int = 0
    spec_aug: bool = True
    musan_cuts: Path | None = None
    speed_perturb: bool = False
    on_the_fly: bool = True
    start_epoch: int | None = None
    start_batch: int | None = None
    world_size: int = 1
    master_port: int = ranks.PORT
    device: str | None = None
    allow_pipes: bool = False


def run(plan: TrainPlan, settings: TransducerTrainConfig) -> None:
    """Trains, in this process, or as one of torchrun's, or in `world_size` processes started here.

    Raises:
      RescoreError, LMError: whatever the user can mend.
    """
    processes = ranks.to_start(plan.world_size)
    if plan.exp_dir.exists() and not plan.exp_dir.is_dir():
        raise ConfigError(f"{plan.exp_dir}: is a file, expected the folder of the run")
    device = plan.device or ("cuda" if torch.cuda.is_available() else "cpu")
    find_device(device)
    check_backend(settings.loss_backend, device)
    plan = replace(plan, device=device)
    if not processes:
        run_here(plan, settings)
        return
    make_model(plan)  # mistakes are told once, not by each process
    work = (run_here, (plan, settings), plan.world_size, plan.master_port)
    ranks.start(*work, (RescoreError, LMError))


@contextmanager
def _told_of_dead_workers() -> Iterator[None]:
    """The end of a process that loads data, a RuntimeError of torch wherever the run is, as a DataError."""
    try:
        yield
    except RuntimeError as error:
        found = str(error).partition("\n")[0]
        if not found.startswith("DataLoader worker"):
            raise
        problem = "the memory, or that of /dev/shm, may not have been enough; take fewer --num-workers"
        raise DataError(f"a process that loads data has ended ({found.rstrip('. ')}): {problem}") from None


@_told_of_dead_workers()
def run_here(plan: TrainPlan, settings: TransducerTrainConfig) -> None:
    """The run of this process."""
    torch.manual_seed(settings.seed)
    model, vocab = make_model(plan)
    device = plan.device or "cpu"
    first = int(os.environ.get("RANK", "0")) == 0
    if first:
        count = sum(p.numel() for p in model.parameters())
        remark(f"{plan.exp_dir}: {count / 1e6:.2f} M parameters, {len(vocab)} tokens, on {device}")
    check_validation(plan, vocab)
    batches, valid_batches = make_batches(plan, settings)
    train(
        model,
        vocab,
        batches,
        valid_batches,
        plan.exp_dir,
        settings,
        info={"data": [path.name for path in plan.train_cuts], "init": plan.init and plan.init.name},
        report=print_record if first else lambda record: None,
        remark=remark,
        device=device,
        start=asked_checkpoint(plan),
        anew=plan.start_epoch == 1,
        made_of={
            "train_cuts": [path.name for path in plan.train_cuts],
            "max_duration": plan.max_duration,
            "bucketing_sampler": plan.bucketing_sampler,
            "speed_perturb": plan.speed_perturb,
            "enable_spec_aug": plan.spec_aug,
            "musan_cuts": plan.musan_cuts and plan.musan_cuts.name,
        },
    )
    batches.left_out.add_all(ranks.Ranks.start(device).gather([batches.left_out.ids]))
    if first and batches.left_out.counts():
        remark(f"training cuts left out: {batches.left_out.summary()}")


def make_model(plan: TrainPlan) -> tuple[Transducer, PieceVocabulary]:
    """A Transducer for the tokens: new, or with the weights of `init`.

    Raises:
      ConfigError: the options do not fit each other.
      CheckpointError: tokens or weights cannot be read, or do not fit the configuration.
    """
    from asr.model.transducer import Transducer

    if plan.init is not None:
        if plan.start_epoch == 1 and plan.init.resolve() == (plan.exp_dir / "model").resolve():
            raise ConfigError(f"{plan.init}: --start-epoch 1 removes it; choose another --exp-dir")
        if plan.config is not None or plan.model_settings:
            raise ConfigError("--init brings its own configuration; leave out --config, --set and --context-size")
        model, vocab = load_model(plan.init)
        if plan.bpe_model is not None and read_tokens(plan.bpe_model).model != vocab.model:
            raise ConfigError(f"{plan.bpe_model}: not the tokens of {plan.init}; leave out --bpe-model")
        check_bins(model.config, plan.init)
        return model.train(), vocab
    if plan.config is None or plan.bpe_model is None:
        raise ConfigError("a new model needs --config and --bpe-model; or give --init MODEL_FOLDER")
    vocab = read_tokens(plan.bpe_model)
    if "vocab_size" in plan.model_settings:
        raise ConfigError("vocab_size is the number of tokens of --bpe-model; leave it out")
    config = replace(load_config(plan.config).with_settings(plan.model_settings), vocab_size=len(vocab))
    check_bins(config, plan.config)
    return Transducer(config), vocab


def check_bins(config: TransducerConfig, where: object) -> None:
    """Raises ConfigError where the encoder takes other features than the filterbanks that there are."""
    if config.encoder.features != BINS:
        raise ConfigError(f"{where}: found an encoder of {config.encoder.features} features, expected {BINS}")


def asked_checkpoint(plan: TrainPlan) -> Path | None:
    """The checkpoint that the options ask for; None: the newest, if there is one."""
    if plan.start_batch is not None:
        return plan.exp_dir / f"checkpoint-{plan.start_batch}.pt"
    if plan.start_epoch is not None and plan.start_epoch > 1:
        return plan.exp_dir / f"epoch-{plan.start_epoch - 1}.pt"
    return None


def make_batches(plan: TrainPlan, settings: TransducerTrainConfig) -> tuple[Loader, Loader | None]:
    """Loaders of the training data (this rank's share) and of the validation data (all of it)."""
    from asr.dataset.augment import SpecAugment
    from asr.dataset.loader import LoaderOptions, make_loader
    from asr.dataset.manifests import load_cuts

    load = partial(load_cuts, allow_pipes=plan.allow_pipes)
    options = LoaderOptions(
        max_duration=plan.max_duration,
        buckets=20 if plan.bucketing_sampler else 1,
        seed=settings.seed,
        stored=not plan.on_the_fly,
        whole_texts=True,
        num_workers=plan.num_workers,
    )
    training = replace(
        options,
        speeds=SPEEDS if plan.speed_perturb else (1.0,),
        spec_augment=SpecAugment() if plan.spec_aug else None,
        rank=int(os.environ.get("RANK", "0")),
        world_size=int(os.environ.get("WORLD_SIZE", "1")),
    )
    noise = load(plan.musan_cuts) if plan.musan_cuts else None
    batches = make_loader(load(*plan.train_cuts), training, noise)
    if not plan.valid_cuts:
        return batches, None
    say = remark if training.rank == 0 else lambda line: None  # all validate on the same utterances
    return batches, make_loader(load(*plan.valid_cuts), replace(options, shuffle=False), say=say)


def check_validation(plan: TrainPlan, vocab: PieceVocabulary) -> None:
    """Raises DataError where no validation cut can be used for its transcript, which would show after many batches."""
    from asr.dataset.loader import cut_text
    from asr.dataset.manifests import iter_cuts

    if any(map(is_read_once, plan.valid_cuts)):
        return
    first = None
    for path in plan.valid_cuts:
        for cut in iter_cuts(path, plan.allow_pipes):
            words = kaldi_fields(cut_text(cut))
            unknown = [word for word in words if vocab.unk in vocab.encode_word(word)]
            if words and not unknown:
                return
            first = first or next(iter(unknown), None)
    if plan.valid_cuts:
        names, why = ", ".join(map(str, plan.valid_cuts)), "; they have no words"
        if first is not None:
            why = f"; found '{first}': is it of the tokens' case, or are these characters (asr prepare --characters)?"
        raise DataError(f"{names}: no transcript that the tokens can spell, expected some to validate on{why}")


def print_record(record: dict[str, Any]) -> None:
    """A log record as a line."""
    where = f"epoch {record['epoch']}  batch {record['step']}"
    if "valid_loss" in record:
        parts = {name.removeprefix("valid_"): value for name, value in record.items() if name.startswith("valid_")}
        remark(f"{where}  validation {_losses(parts)}")
    else:
        parts = {name: record[name] for name in ("loss", "simple", "pruned", "ctc") if name in record}
        remark(
            f"{where}  {_losses(parts)}  lr {record['lr']:.2e}  {record['frames_per_s']:.0f} frames/s, "
            f"{record['audio_per_s']:.1f} s of audio a second"
        )


def _losses(parts: dict[str, float]) -> str:
    rest = ", ".join(f"{name} {value:.4f}" for name, value in parts.items() if name != "loss")
    return f"loss {parts['loss']:.4f} ({rest})"
