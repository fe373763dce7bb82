"""Work that is shared out: the same bytes as one process gives, whoever dies in between."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from threading import Thread
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from lm_zoo.files import locked
from lm_zoo.registry import save_folder
from rescore.errors import FormatError, RescoreError, UsageError
from rescore.formats import write_nbest
from rescore.sharing.executors import LocalWorkers, RayWorkers, _do, _in_ray, _join_ray, take_threads
from rescore.sharing.parts import FOLDER, Parts, Split, finished_splits, parse_split
from rescore.sharing.shares import MOST_DEATHS, Sharing, share_out
from rescore.types import Hypothesis, NbestList
from rescore.workers import WorkerDied
from tests.lm_zoo.zoo import neural
from tests.rescore.slow_worker import fail_at_three, note, take_time
from tests.rescore.workflows.test_scoring import run

ROOT = Path(__file__).parents[3]
OUTPUTS = ("scores.jsonl.gz", "lms.json", "scored.json", "nbest.jsonl.gz", "1best.txt", "weights.json")


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Lists of three batches, and an LM beside them."""

    def lists() -> Iterator[NbestList]:
        for i in range(250):
            words = [("A", "B", "HE", "SAID")[(i * k + k * k) % 4] for k in range(20)]
            yield NbestList(f"u{i}", [Hypothesis((*words[: 20 - k], "A"), {"am": -0.5 * k}) for k in range(3)])

    folder = tmp_path_factory.mktemp("shared")
    write_nbest(f"jsonl:{folder / 'lists.jsonl'}", lists())
    save_folder(folder / "small", neural("lstm"), "lstm", {})
    assert run(*nbest(folder), "--out", folder / "whole").exit_code == 0
    return folder


def nbest(source: Path) -> list[object]:
    return ["nbest", "--nbest", source / "lists.jsonl", "--lm", source / "small"]


def same(one: Path, other: Path) -> bool:
    return all((one / name).read_bytes() == (other / name).read_bytes() for name in OUTPUTS)


def test_shares_by_hand_give_the_same_bytes(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    for number in (3, 1):
        result = run(*nbest(source), "--split", f"{number}/3", "--out", out)
        assert f"utterances of share {number}/3 scored" in result.output
    assert {path.name for path in out.iterdir()} == {FOLDER}
    missing = run("merge", out)
    assert isinstance(missing.exception, FormatError) and "not finished: 2/3" in str(missing.exception)
    assert run(*nbest(source), "--split", "2/3", "--out", out).exit_code == 0
    merged = run("merge", out)
    assert merged.exit_code == 0 and "250 utterances scored, in 3 shares" in merged.output
    assert "hypothesis words unknown" in merged.output
    assert same(out, source / "whole")
    assert {path.name for path in out.iterdir()} == set(OUTPUTS)


def test_more_shares_than_parts(source: Path, tmp_path: Path) -> None:
    for number in range(1, 6):
        assert run(*nbest(source), "--split", f"{number}/5", "--out", tmp_path).exit_code == 0
    assert run("merge", tmp_path, "--scale", "am=1").exit_code == 0
    assert (tmp_path / OUTPUTS[0]).read_bytes() == (source / "whole" / OUTPUTS[0]).read_bytes()


def test_a_whole_run_takes_the_parts_of_shares(source: Path, tmp_path: Path) -> None:
    run(*nbest(source), "--split", "1/3", "--out", tmp_path)
    result = run(*nbest(source), "--out", tmp_path)
    assert "of them by a run that was stopped" in result.output
    assert same(tmp_path, source / "whole")


@pytest.mark.slow
def test_processes_give_the_same_bytes(source: Path, tmp_path: Path) -> None:
    result = run(*nbest(source), "--executor", "local", "--workers", 2, "--shards", 3, "--out", tmp_path / "out")
    assert result.exit_code == 0, result.output
    assert same(tmp_path / "out", source / "whole")


def test_shares_of_another_plan_are_refused(source: Path, tmp_path: Path) -> None:
    run(*nbest(source), "--split", "1/2", "--out", tmp_path)
    result = run(*nbest(source), "--dtype", "bfloat16", "--split", "2/2", "--out", tmp_path)
    assert isinstance(result.exception, UsageError)
    assert "parts of a run with another --dtype" in str(result.exception)


def test_shares_hold_their_folder_together(source: Path, tmp_path: Path) -> None:
    with locked(tmp_path, shared=True):
        refused = run(*nbest(source), "--out", tmp_path)
        assert "is writing it" in str(refused.exception)
        with locked(tmp_path / FOLDER / "split-1-of-2"):
            assert run(*nbest(source), "--split", "2/2", "--out", tmp_path).exit_code == 0
            twice = run(*nbest(source), "--split", "1/2", "--out", tmp_path)
            assert "is writing it" in str(twice.exception)
    assert not list(tmp_path.parent.glob(".*.lock")) and not list(tmp_path.glob(".*.lock"))


def test_options_that_contradict(source: Path, tmp_path: Path) -> None:
    for options, message in (
        (["--shards", "2"], "need --executor"),
        (["--executor", "local", "--ray-address", "auto"], "for --executor ray"),
        (["--split", "1/2", "--executor", "local"], "either --split K/N"),
        (["--split", "1/2", "--scale", "am=1"], "to rescore merge"),
        (["--split", "3/2"], "K from 1 to N"),
        (["--split", "half"], "K from 1 to N"),
    ):
        result = run(*nbest(source), *options, "--out", tmp_path / "out")
        assert isinstance(result.exception, UsageError) and message in str(result.exception), options


def test_a_pipe_cannot_be_shared(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="found a pipe"):
        Parts(tmp_path / FOLDER, None, Split(1, 2))


def test_every_part_has_one_share() -> None:
    assert parse_split("3/8") == Split(3, 8)
    for of in (1, 3, 8):
        owners = Counter(part for number in range(1, of + 1) for part in range(20) if Split(number, of).has(part))
        assert owners == Counter(range(20))


def test_a_job_with_some_of_the_cores_has_as_many_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as one of Slurm; each worker with its part of them."""
    monkeypatch.setattr("os.cpu_count", lambda: 64)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {3, 5, 8, 9}, raising=False)
    made: list[LocalWorkers] = []

    def workers(*arguments: Any) -> LocalWorkers:
        made.append(LocalWorkers(*arguments))
        made[0].start = lambda split: fail_at_three(Split(3, 3))  # type: ignore[method-assign]
        return made[0]

    monkeypatch.setattr("rescore.sharing.shares.LocalWorkers", workers)
    with pytest.raises(RescoreError, match="not JSON"):
        share_out(fail_at_three, Sharing("local"))
    assert made[0].count == 4 and made[0]._prepare.args[:2] == (1, 4)
    assert LocalWorkers(fail_at_three, 2)._prepare.args[:2] == (2, 2)


@pytest.mark.parametrize(("asked", "share"), [("7", 3), ("2", 2), ("", 3)])
def test_a_worker_that_has_torch_already_takes_its_threads_too(
    asked: str, share: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the script of a user imports it, which spawned processes import anew; never more than the user allows."""
    threads = torch.get_num_threads()
    monkeypatch.setenv("OMP_NUM_THREADS", asked)
    try:
        take_threads(3)
        assert torch.get_num_threads() == share and os.environ["OMP_NUM_THREADS"] == str(share)
    finally:
        torch.set_num_threads(threads)


@pytest.mark.parametrize("message", ["libtorch_cpu.so: cannot map zero-fill pages", "No module named 'torch'"])
def test_a_limit_that_torch_does_not_fit_is_want_of_memory(message: str) -> None:
    def work(_: Split) -> None:
        raise ImportError(message)

    if "map" in message:
        assert _do(work, Split()) == (False, None)
    else:
        with pytest.raises(ImportError, match=message):
            _do(work, Split())


@pytest.mark.slow
def test_a_share_whose_process_dies_is_begun_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    share_out(partial(note, tmp_path, MOST_DEATHS - 1), Sharing("local", shards=4, workers=2))
    assert set((tmp_path / "done").read_text().split()) == {"1/4", "2/4", "3/4", "4/4"}
    assert capsys.readouterr().err.count("a worker has died") == MOST_DEATHS - 1
    with pytest.raises(WorkerDied, match="a worker process has died"):
        share_out(partial(note, tmp_path, 99), Sharing("local", shards=2, workers=1))


@pytest.mark.slow
def test_the_error_of_a_share_ends_all() -> None:
    with pytest.raises(RescoreError, match=r"lists\.jsonl:7: not JSON"):
        share_out(fail_at_three, Sharing("local", shards=4, workers=2))


@pytest.fixture
def two_nodes() -> Iterator[Any]:
    """A Ray cluster of two nodes of one core each, on this machine."""
    cluster_utils = pytest.importorskip("ray.cluster_utils")
    patch = pytest.MonkeyPatch()
    patch.setenv("PYTHONPATH", str(ROOT), prepend=os.pathsep)  # Ray tells its processes only the command's own folder
    cluster = cluster_utils.Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    cluster.second = cluster.add_node(num_cpus=1)
    yield cluster
    import ray

    ray.shutdown()
    cluster.shutdown()
    patch.undo()


@pytest.mark.slow
def test_a_node_of_ray_is_taken_away(tmp_path: Path, two_nodes: Any) -> None:
    def take_away() -> None:
        deadline = time.monotonic() + 60
        while len(list(tmp_path.glob("begun-*"))) < 2 and time.monotonic() < deadline:  # both nodes are at work
            time.sleep(0.05)
        two_nodes.remove_node(two_nodes.second, allow_graceful=False)

    thread = Thread(target=take_away)
    thread.start()
    share_out(partial(take_time, tmp_path), Sharing("ray", shards=6, address=two_nodes.address))
    thread.join()
    assert len(list(tmp_path.glob("done-*"))) == 6
    with pytest.raises(RescoreError, match=r"lists\.jsonl:7: not JSON"):
        share_out(fail_at_three, Sharing("ray", shards=4, address=two_nodes.address))


@pytest.mark.slow
def test_relative_paths_are_of_the_folder_of_the_command(
    tmp_path: Path, two_nodes: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And not of the one where the cluster was started."""
    monkeypatch.chdir(tmp_path)
    share_out(partial(take_time, Path()), Sharing("ray", shards=2, address=two_nodes.address))
    assert len(list(tmp_path.glob("done-*"))) == 2


def test_a_node_without_the_folder_of_the_command() -> None:
    lived, message = _in_ray(fail_at_three, Split(1, 4), "/not/there", {}, 1, None, None)
    assert lived and message is not None and "/not/there: the machine " in message


def test_a_node_downloads_nothing_for_an_offline_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its environment is that of the cluster, which was started by another command."""
    ray = pytest.importorskip("ray")
    tasks: list[Any] = []
    monkeypatch.setattr(ray, "is_initialized", lambda: True)
    monkeypatch.setattr(ray, "cluster_resources", lambda: {"CPU": 1})
    monkeypatch.setattr(ray, "nodes", list)
    monkeypatch.setattr(ray, "remote", lambda **_: lambda task: SimpleNamespace(remote=partial(partial, task)))
    monkeypatch.setattr("rescore.sharing.executors._begin", lambda *_: None)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    workers = RayWorkers(lambda split: tasks.append(os.environ.get("HF_HUB_OFFLINE")), None, None)
    workers.start(Split())
    (task,) = workers._running
    monkeypatch.delenv("HF_HUB_OFFLINE")
    assert task() == (True, None) and tasks == ["1"]


@pytest.mark.parametrize("address", ["auto", "127.0.0.1:1"])
def test_a_cluster_of_ray_that_is_not_there(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ray = pytest.importorskip("ray")

    def init(**_: object) -> None:  # waits half a minute for some addresses
        raise (ConnectionError if address == "auto" else RuntimeError)("Could not find\nany running Ray instance")

    monkeypatch.setattr(ray, "init", init)
    with pytest.raises(RescoreError, match=rf"{address}: the cluster cannot be reached \(Could not find any running"):
        share_out(fail_at_three, Sharing("ray", shards=4, address=address))


def test_another_process_s_cluster_of_ray_is_not_joined(monkeypatch: pytest.MonkeyPatch) -> None:
    """It ends with that process; Ray's own default would find it on this machine."""
    ray = pytest.importorskip("ray")
    found: list[object] = []

    def init(*, address: str, **_: object) -> None:
        found.append(address)
        raise RuntimeError

    monkeypatch.setattr(ray, "init", init)
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    for variable, given in ((None, None), ("head:6379", None), ("head:6379", "auto")):
        if variable is not None:
            monkeypatch.setenv("RAY_ADDRESS", variable)
        with pytest.raises(RescoreError):
            share_out(fail_at_three, Sharing("ray", shards=4, address=given))
    assert found == ["local", "head:6379", "auto"]


def test_sigterm_under_ray_ends_the_work_as_ctrl_c_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray's own handler, which it sets as it begins, aborts with a trace; that of the caller stays."""
    ray = pytest.importorskip("ray")
    monkeypatch.setattr(ray, "init", lambda **_: signal.signal(signal.SIGTERM, lambda *_: os.abort()))

    def of_the_caller(*_: object) -> None:
        pass

    before = signal.getsignal(signal.SIGTERM)
    try:
        for handler, expected in ((signal.SIG_DFL, signal.default_int_handler), (of_the_caller, of_the_caller)):
            signal.signal(signal.SIGTERM, handler)
            _join_ray(None)
            assert signal.getsignal(signal.SIGTERM) is expected
    finally:
        signal.signal(signal.SIGTERM, before)


def test_a_cluster_of_ray_that_ends_while_it_works(monkeypatch: pytest.MonkeyPatch) -> None:
    """`ray stop`, or its node's daemon killed; an error of the work that is a bug keeps its traceback."""
    ray = pytest.importorskip("ray")
    workers = RayWorkers.__new__(RayWorkers)
    monkeypatch.setattr(ray, "wait", lambda tasks: (tasks, []))
    errors = {
        ray.exceptions.LocalRayletDiedError(): (RescoreError, "the Ray cluster has ended.* run the same command again"),
        ray.exceptions.RayTaskError("work", "traceback", ValueError()): (ray.exceptions.RayTaskError, "traceback"),
    }
    for error, (kind, message) in errors.items():
        workers._running = {"task": Split()}
        monkeypatch.setattr(ray, "get", lambda _, error=error: (_ for _ in ()).throw(error))
        with pytest.raises(kind, match=message):
            workers.next()


def test_work_that_was_divided_again_is_merged(source: Path, tmp_path: Path) -> None:
    """A share of four is left of a run that was stopped; it went on with two."""
    out = tmp_path / "out"
    assert run(*nbest(source), "--split", "1/4", "--out", out).exit_code == 0
    for number in (1, 2):
        assert run(*nbest(source), "--split", f"{number}/2", "--out", out).exit_code == 0
    assert run("merge", out).exit_code == 0
    assert same(out, source / "whole")


def test_nothing_to_merge(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="no finished share"):
        finished_splits(tmp_path / FOLDER)
    for name in ("", "lists.jsonl.gz"):  # an empty folder, and a file that is not there
        nothing = run("merge", tmp_path / name)
        expected = f"{tmp_path / name}: no shares to be merged; run the command with --split"
        assert nothing.exit_code and str(nothing.exception).startswith(expected)
