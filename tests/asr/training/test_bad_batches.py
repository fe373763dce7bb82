"""Bad utterances and batches without a usable gradient are left out; the training stops where there are no others."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import torch

from asr.errors import AsrError, DataError
from asr.model.checkpoint import load_model, read_checkpoint
from asr.model.config import load_config
from asr.model.transducer import Transducer
from asr.training import train as loop
from lm_zoo.training.distributed import Ranks
from tests.asr.training.test_train import batch, batches, config, records, run, vocabulary


def spoilt(batch: dict[str, Any]) -> dict[str, Any]:
    """The second utterance of each batch has no words, the third a symbol that the tokens lack."""
    batch["texts"] = [batch["texts"][0], " ", "LOW Ω", batch["texts"][3]]
    return batch


def test_bad_utterances_are_counted_named_and_left_out(tmp_path: Path) -> None:
    lines: list[str] = []
    progress = run(tmp_path, config(max_steps=20), train_batches=batches(10, spoilt), remark=lines.append)
    assert progress.step == 20
    assert "utterance utt1001-1 not used: no words" in lines
    assert "utterance utt1001-2 not used: unknown symbols (in 'Ω')" in lines
    assert lines[-1] == "not used: 20 x no words, 20 x unknown symbols"
    assert sum("no words" in line for line in lines) == 11  # ten are named


def test_utterances_beside_a_process_that_has_none_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A step that one process has nothing for is left out by all of them."""
    whole, steps = Ranks.sum, itertools.count()

    def beside_another(ranks: Ranks, *values: float) -> list[float]:
        found = whole(ranks, *values)
        if values[0] is False and next(steps) % 4 == 0:  # there is a batch here; whether there is none, and so on
            found[1] = 1.0
        return found

    monkeypatch.setattr(Ranks, "sum", beside_another)
    lines: list[str] = []
    run(tmp_path, config(max_steps=20), remark=lines.append)
    assert lines[-1] == "not used: 20 x in a step for which another process had none"


def with_nan(share: int) -> Any:
    def spoil(batch: dict[str, Any]) -> dict[str, Any]:
        if int(batch["ids"][0][3:].split("-")[0]) % share == 0:
            batch["features"][0, 0, 0] = 99.0  # the stand-in gives NaN for it
        return batch

    return spoil


def test_a_batch_without_a_usable_gradient_changes_nothing(tmp_path: Path) -> None:
    lines: list[str] = []
    run(tmp_path, config(), train_batches=batches(10, with_nan(5)), remark=lines.append)
    assert lines[-1] == "not used: 8 x batches without a usable gradient"
    weights = read_checkpoint(tmp_path / "checkpoint-40.pt")["model"]
    assert all(tensor.isfinite().all() for tensor in weights.values())


def test_bad_batches_between_good_ones_do_not_end_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only those on end count: the 8 of this run stand alone."""
    monkeypatch.setattr(loop, "PATIENCE", 2)
    assert run(tmp_path, config(), train_batches=batches(10, with_nan(5))).step == 40


def test_noise_begins_after_the_warm_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deviations, noisy = [], loop.noisy
    monkeypatch.setattr(loop, "noisy", lambda weights, deviation: deviations.append(deviation) or noisy(weights, 0.0))
    run(tmp_path, config(max_steps=8, warm_step=5, variational_noise=0.05))
    assert deviations == [0.0] * 5 + [0.05] * 3


def transducer() -> Transducer:
    torch.manual_seed(1)
    encoder = {"encoder.layers": 1, "encoder.dim": 16, "encoder.heads": 2}
    changes = {**encoder, "vocab_size": len(vocabulary()), "joiner_dim": 16, "decoder_dim": 16}
    return Transducer(load_config("small").with_settings(changes))


def filterbanks(number: int, loud: bool) -> dict[str, Any]:
    """Two utterances of 80 bins, the first of which may be so loud that the model overflows."""
    made = batch(number, 2)
    made["features"] = made["features"].repeat(1, 1, 10)
    made["features"][0] *= 1e38 if loud else 1.0
    return made


def test_a_batch_that_overflows_leaves_the_running_statistics_as_they_were(tmp_path: Path) -> None:
    """Its means are no numbers; with them all validation, and all that is decoded, would be none for good."""

    def epoch(number: int, skip: int) -> Iterable[dict[str, Any]]:
        return (filterbanks(index, loud=index == 2) for index in range(skip, 4))

    valid = [filterbanks(5, loud=False)]
    settings = config(max_steps=4, valid_every=4)
    run(tmp_path, settings, model=transducer(), train_batches=epoch, valid_batches=lambda epoch, skip: valid)
    assert read_checkpoint(tmp_path / "checkpoint-4.pt")["skipped"]["batches without a usable gradient"] == 1
    assert all(tensor.isfinite().all() for tensor in load_model(tmp_path / "model")[0].state_dict().values())
    assert records(tmp_path, "valid_loss")[0][1] > 0.5


def test_an_utterance_without_a_loss_does_not_lower_that_of_a_frame(tmp_path: Path) -> None:
    work = (transducer(), vocabulary(), config(), tmp_path, {}, Ranks.start("cpu"), lambda record: None)
    run = loop.TransducerRun(*work, remark=lambda line: None)
    both = filterbanks(1, loud=True)
    alone = {name: values[1:] for name, values in both.items()}
    found, expected = (run.evaluate(lambda epoch, skip, made=made: [made])["loss"] for made in (both, alone))
    assert found == pytest.approx(expected, rel=1e-5)


def test_training_that_only_gives_nan_stops(tmp_path: Path) -> None:
    with pytest.raises(AsrError, match=r"stopped at batch 20: the last 20 batches gave no usable gradient"):
        run(tmp_path, config(), train_batches=batches(10, with_nan(1)))
    with pytest.raises(DataError, match=r"gave no batch in epoch 1"):
        run(tmp_path / "none", config(), train_batches=batches(0))
