"""Runs of several processes: like one that accumulates, stopped and continued, errors told once."""

from __future__ import annotations

import copy
import multiprocessing.connection
import os
import random
import re
import signal
import socket
import subprocess
import sys
import time
from contextlib import nullcontext, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from lm_zoo.errors import LMError
from lm_zoo.registry import load
from lm_zoo.text.batches import TokenText
from lm_zoo.training.distributed import Ranks, in_step, start, to_start
from lm_zoo.training.train import train
from rescore.cli.main import cli
from tests.lm_zoo.training.test_train import SETTINGS, VOCAB, Killed, config, records, text


def work(out: Path, kill_at: int) -> None:
    def report(record: dict[str, Any]) -> None:
        if record["step"] == kill_at:
            raise Killed

    train("transfornn", SETTINGS | {"dropout": 0.3}, VOCAB, text(0), text(1), out, config(), report=report)


def work_twice(folder: Path, kill_at: int) -> None:
    """In the same processes, whose start takes longer than the work."""
    work(folder / "straight", 0)
    work(folder / "killed", kill_at)


@pytest.mark.parametrize(("device", "size", "index"), [("cuda", "2", 1), ("cuda:1", "1", 1), ("cuda", "1", None)])
def test_each_process_has_its_gpu_as_torchs_current_one_before_they_meet(
    monkeypatch: pytest.MonkeyPatch, device: str, size: str, index: int | None
) -> None:
    """NCCL gathers objects on the current GPU, and random states are those of it."""
    calls: list[Any] = []
    monkeypatch.setenv("WORLD_SIZE", size)
    monkeypatch.setenv("LOCAL_RANK", "1")
    monkeypatch.setattr(torch.cuda, "set_device", lambda place: calls.append(place.index))
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.distributed, "init_process_group", calls.append)
    monkeypatch.setattr(torch.distributed, "get_rank", lambda: 1)
    assert Ranks.start(device).device == torch.device("cuda", index) if index else torch.device("cuda")
    assert calls == [index] * (index is not None) + ["nccl"] * (size == "2")


def test_more_processes_than_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch's own error would be a traceback."""
    monkeypatch.setenv("WORLD_SIZE", "4")
    monkeypatch.setenv("LOCAL_RANK", "1")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(LMError, match="no GPU cuda:1 for process 2 of 4: found 1, expected one for each"):
        Ranks.start("cuda")


@pytest.mark.slow
@pytest.mark.usefixtures("forked")
def test_stopped_processes_continue_with_the_same_losses(tmp_path: Path) -> None:
    """Each process drops its own units, so each needs its own random state."""
    with pytest.raises(LMError, match="the run has ended"):
        start(work_twice, (tmp_path, 15), 2, free_port(), (Killed,))
    assert len(records(tmp_path / "killed")) == 3
    start(work, (tmp_path / "killed", 0), 2, free_port())
    assert records(tmp_path / "killed") == records(tmp_path / "straight")


def fail_together() -> None:
    """The second process ends by an error of the user, the first one for want of the second."""
    if os.environ["RANK"] == "0":
        raise RuntimeError("Connection closed by peer")
    raise Killed("the disk is full")


@pytest.mark.slow
@pytest.mark.usefixtures("forked")
def test_an_error_of_the_user_is_told_though_another_process_has_ended_too(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Where they are looked at late, as on a busy machine."""
    real = multiprocessing.connection.wait

    def late(sentinels: Any, timeout: float | None = None) -> list[Any]:
        for sentinel in list(sentinels):
            real([sentinel])
        return sorted(real(list(sentinels)))

    with monkeypatch.context() as patch, pytest.raises(LMError, match="process 1 of 2 failed, see above"):
        patch.setattr(multiprocessing.connection, "wait", late)
        start(fail_together, (), 2, free_port(), (Killed,))
    assert "process 1: the disk is full" in capfd.readouterr().err


def kill_the_second() -> None:
    if os.environ["RANK"] == "1":
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(60)


@pytest.mark.slow
def test_a_process_that_is_killed_has_said_nothing() -> None:
    with pytest.raises(
        LMError, match="process 1 of 2 was killed, perhaps for want of memory; the same command goes on"
    ):
        start(kill_the_second, (), 2, free_port())


def test_a_run_holds_its_port_from_its_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two that are started at the same time would else meet one another."""
    port, begun = free_port(), list[str]()

    def spawn(*_: Any, **__: Any) -> Any:
        begun.append("first")
        with pytest.raises(LMError, match=rf"port {port} cannot be used \(.*\); give another by --master-port"):
            start(begun.append, ("second",), 2, port)
        return SimpleNamespace(join=lambda: True, processes=[])

    monkeypatch.setattr(torch.multiprocessing, "spawn", spawn)
    for _ in range(2):
        start(begun.append, ("",), 2, port)
    assert begun == ["first", "first"]


class Twin(Ranks):
    """The first of two processes, of which the other one does the same."""

    def sum(self, *values: float) -> list[float]:
        return [2.0 * value for value in values]

    def gather(self, items: list[Any]) -> list[Any]:
        return [copy.deepcopy(item) for item in items for _ in range(2)]


@pytest.mark.parametrize(("batches", "left"), [(6, 12), (8, 0)])
def test_what_is_left_out_at_the_ends_of_passes_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batches: int, left: int
) -> None:
    """Of six sentences, a batch each, each process has three, of which a step takes two."""
    monkeypatch.setattr(Ranks, "start", lambda device: Twin(0, 2, torch.device("cpu")))
    monkeypatch.setattr(torch.nn.parallel, "DistributedDataParallel", lambda lm, **options: lm)
    monkeypatch.setattr(torch.nn.Module, "no_sync", lambda lm: nullcontext(), raising=False)
    data = TokenText(text(0).tokens[: 5 * batches], np.arange(0, 5 * batches + 1, 5), 5 * batches, 0)
    lines: list[str] = []
    plan = config(batch_tokens=6, accumulate=2, passes=4, valid_every=0)
    progress = train("lstm", {"dim": 8}, VOCAB, data, text(1), tmp_path, plan, remark=lines.append)
    assert (progress.epoch, progress.left_out) == (4, 4 * left)
    assert progress.tokens == 4 * (6 * batches - left)
    said = [line for line in lines if f": {4 * left} tokens at the ends of 4 passes left out" in line]
    assert len(said) == (left > 0)


def test_torchs_name_of_the_option_for_buffers(monkeypatch: pytest.MonkeyPatch) -> None:
    """That of before 2.13 is one to warn of."""

    def older(lm: Any, broadcast_buffers: bool = True) -> Any:
        return lm, broadcast_buffers

    def newer(lm: Any, broadcast_buffers: bool | None = None, forward_sync_buffers: bool | None = None) -> Any:
        return lm, broadcast_buffers, forward_sync_buffers

    lm, found = torch.nn.Linear(1, 1), list[Any]()
    for torchs in (older, newer):
        monkeypatch.setattr(torch.nn.parallel, "DistributedDataParallel", torchs)
        found.append(in_step(lm))
    assert found == [(lm, False), (lm, None, False)]


def free_port() -> int:
    """One of those that the system gives to nobody by itself: it stays free until the processes meet there."""
    while True:
        port = random.SystemRandom().randrange(20_000, 32_000)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def under_torchrun(arguments: list[str]) -> None:
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node=2", f"--master_port={free_port()}"]
    environment = {**os.environ, "PYTHONPATH": os.getcwd(), "OMP_NUM_THREADS": "1"}
    subprocess.run([*command, "-m", "rescore.cli.main", *arguments], check=True, env=environment, capture_output=True)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["transfornn", "lookup"])
def test_two_processes_train_like_one_that_accumulates(
    tmp_path: Path, kind: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """Two processes with a batch each step like one with two; started by torchrun (lookup) or by --world-size."""
    lines = tmp_path / "text.txt"
    rng = np.random.default_rng(0)
    lines.write_text("".join(" ".join(rng.choice(list("ABCDEFGH"), 6)) + "\n" for _ in range(288)))
    settings = {**SETTINGS, "dropout": 0.0}
    if kind == "lookup":
        del settings["rnn_layers"]
        settings |= {"slots": 5, "entries": 4, "update_after": 3}
    model = [f"--set={name}={value}" for name, value in settings.items()]
    plan = {"batch_tokens": 128, "steps": 12, "warmup": 2, "valid_every": 6, "log_every": 1}
    common = ["train-lm", kind, "--text", str(lines), "--valid", str(lines), "--tokens", "word", *model]
    common += [f"--train={name}={value}" for name, value in plan.items()]
    single, double = tmp_path / "single", tmp_path / "double"
    assert cli.main([*common, "--out", str(single), "--train=accumulate=2"], standalone_mode=False) is None
    if kind == "lookup":
        under_torchrun([*common, "--out", str(double)])
    else:
        processes = ["--world-size", "2", "--master-port", str(free_port())]
        assert "tokens/s" in capfd.readouterr().err
        cli.main(["--quiet", *common, "--out", str(double), *processes], standalone_mode=False)
        assert not re.search("tokens/s|sentences|Warning", capfd.readouterr().err), "quiet like the command"
    assert len(records(single)) == 12
    for key in ("loss", "valid_loss"):
        assert [step for step, _ in records(double, key)] == [step for step, _ in records(single, key)]
        assert dict(records(double, key)) == pytest.approx(dict(records(single, key)), rel=1e-5)
    one, two = (load_file(folder / "checkpoint" / "model.safetensors") for folder in (single, double))
    for name, tensor in one.items():
        torch.testing.assert_close(
            two[name], tensor, rtol=1e-5, atol=1e-5, msg=lambda text, name=name: f"{name}: {text}"
        )
    assert kind != "lookup" or load(str(double)).dictionary.abs().sum() > 0


@pytest.mark.slow
@pytest.mark.usefixtures("forked")
def test_processes_that_cannot_start_or_fail(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "text.txt").write_text("A B\nB A\n")
    (tmp_path / "marked.txt").write_text("A </s> B\n")
    common = ["train-lm", "lstm", "--valid", str(tmp_path / "marked.txt"), "--out", str(tmp_path / "lm")]
    common += ["--tokens", "word", "--text", str(tmp_path / "text.txt"), "--world-size", "2"]
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(LMError, match=rf"port {port} cannot be used \(.*\); give another by --master-port"):
            cli.main([*common, "--master-port", str(port)], standalone_mode=False)
    with pytest.raises(LMError, match=r"process [01] of 2 failed, see above"):
        cli.main(["--quiet", *common, "--master-port", str(free_port())], standalone_mode=False)
    assert re.search("^process [01]: .*marked.txt, sentence 1: found <s> or </s>", capfd.readouterr().err, re.MULTILINE)
    common[common.index("--valid") + 1] = str(tmp_path / "text.txt")
    for length in ("steps=2", "passes=2"):  # one batch for two processes: neither without an end nor without a step
        with pytest.raises(LMError, match=r"process [01] of 2 failed, see above"):
            again = ["--quiet", *common, "--master-port", str(free_port()), "--train", length]
            cli.main([*again, "--out", str(tmp_path / length)], standalone_mode=False)
        few = "a pass over the text has fewer batches than a step takes: 2 processes with accumulate=1"
        assert few in capfd.readouterr().err


def test_torchruns_number_of_processes_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    assert to_start(2) and not to_start(1)
    monkeypatch.setenv("WORLD_SIZE", "4")
    assert not to_start(1) and not to_start(4)
    with pytest.raises(LMError, match=r"--world-size 2, but torchrun started 4 processes"):
        to_start(2)
