"""Writing whole or not at all: links, devices, full disks, what dead processes leave, two runs with one output."""

from __future__ import annotations

import errno
import os
import signal
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lm_zoo import files
from lm_zoo.errors import WriteError
from lm_zoo.files import append_line, atomic_folder, atomic_path, explain, locked, write_bytes, write_text
from lm_zoo.training.run_log import RunLog
from tests.full_disk import full_disk

LONG = "".join(f"{number * 7919 % 100003}\n" for number in range(3000))


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def start(code: str, *arguments: Path) -> subprocess.Popen[str]:
    """A process that has said `ready` and waits."""
    code = "import sys, time\nfrom lm_zoo.files import *\n" + code
    process = subprocess.Popen([sys.executable, "-c", code, *map(str, arguments)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    return process


def kill(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGKILL)
    process.communicate()


WAIT = "print('ready', flush=True); time.sleep(60)"


# -- what is in place ----------------------------------------------------------------------------------------------


def test_a_link_stays_and_its_target_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "link").symlink_to("data/file")  # at first to nothing
    (tmp_path / "folder").symlink_to("data/new")
    for text in ("one", "two"):
        write_text(tmp_path / "link", text)
        assert (tmp_path / "data/file").read_text() == text
    with atomic_folder(tmp_path / "folder") as folder:
        (folder / "a").write_text("text")
    assert (tmp_path / "link").is_symlink() and (tmp_path / "folder").is_symlink()
    assert (tmp_path / "data/new/a").read_text() == "text"
    assert names(tmp_path) == ["data", "folder", "link"] and names(tmp_path / "data") == ["file", "new"]


@pytest.mark.parametrize("write", [write_text, lambda path, text: write_whole(path, text)])
def test_a_device_is_written_to(write: Callable[[str, str], None]) -> None:
    reader, terminal = os.openpty()
    path = os.ttyname(terminal)
    write(path, "text\n")
    assert os.read(reader, 100) == b"text\r\n"
    assert stat.S_ISCHR(os.stat(path).st_mode)
    os.close(reader)
    os.close(terminal)


def write_whole(path: str, text: str) -> None:
    with atomic_path(path) as temporary:
        temporary.write_text(text)


def test_a_fifo_is_written_to(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    found: list[str] = []
    reader = threading.Thread(target=lambda: found.append((tmp_path / "fifo").read_text()))
    reader.start()
    write_text(tmp_path / "fifo", LONG)
    reader.join()
    assert found == [LONG] and names(tmp_path) == ["fifo"]


@pytest.mark.parametrize("name", ["-", "/dev/stdout", "/dev/fd/1"])
def test_standard_output_is_written_to(name: str, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("before\n")
    code = f"print('first'); write_text({name!r}, 'text\\n'); print('last')"
    with open(path, "a") as stream:
        subprocess.run([sys.executable, "-c", f"from lm_zoo.files import *; {code}"], stdout=stream, check=True)
    assert path.read_text() == "before\nfirst\ntext\nlast\n" and names(tmp_path) == ["file"]


def test_an_open_descriptor_is_written_to() -> None:
    reader, writer = os.pipe()
    write_text(f"/dev/fd/{writer}", "text")
    os.write(writer, b" goes on")
    assert os.read(reader, 100) == b"text goes on"
    os.close(reader)
    os.close(writer)


def test_other_kinds_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # the name of a socket is short
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("socket")
        with pytest.raises(WriteError, match="socket: is a socket or the like, expected the name of a file"):
            write_text("socket", "text")
    with pytest.raises(WriteError, match="-: a folder is to be written"), atomic_folder("-"):
        pass
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(WriteError, match="loop: cannot be written"):
        write_text("loop", "text")
    assert names(tmp_path) == ["loop", "socket"]


# -- temporary files -----------------------------------------------------------------------------------------------


def test_a_link_under_the_temporary_name_is_not_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "victim").write_text("old")
    (tmp_path / f".a.{'0' * 16}.tmp").symlink_to("victim")
    tokens = iter(["0" * 16, "1" * 16])
    monkeypatch.setattr(files.secrets, "token_hex", lambda size: next(tokens))
    write_text(tmp_path / "a", "new")
    assert (tmp_path / "a").read_text() == "new" and (tmp_path / "victim").read_text() == "old"


def test_permissions_are_those_of_other_new_files(tmp_path: Path) -> None:
    write_text(tmp_path / "a", "text")
    (tmp_path / "b").write_text("text")
    with atomic_folder(tmp_path / "c"):
        pass
    (tmp_path / "d").mkdir()
    for ours, other in (("a", "b"), ("c", "d")):
        assert (tmp_path / ours).stat().st_mode == (tmp_path / other).stat().st_mode


def test_long_names(tmp_path: Path) -> None:
    for name in ("x" * 255, "é" * 127):
        write_text(tmp_path / name, "text")
        with locked(tmp_path / name):
            pass
        assert (tmp_path / name).read_text() == "text"
    assert len(names(tmp_path)) == 2


def test_a_process_that_writes_for_days_remembers_few_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MOST_SWEPT", 5)
    for number in range(20):
        write_text(tmp_path / str(number) / "file", "text")
        assert len(files._swept) <= 5


def test_what_dead_processes_left_is_removed_and_no_more(tmp_path: Path) -> None:
    in_file = f"with atomic_text(sys.argv[1]) as stream: stream.write('x' * 100000); {WAIT}"
    in_folder = f"with atomic_folder(sys.argv[1]) as folder: (folder / 'a').write_text('x'); {WAIT}"
    dead, living = [start(code, tmp_path / "a") for code in (in_file, in_folder)], start(in_file, tmp_path / "b")
    for process in dead:
        kill(process)
    (tmp_path / ".mine.tmp").write_text("of somebody else")
    assert len(names(tmp_path)) == 4
    write_text(tmp_path / "c", "text")
    left = names(tmp_path)
    kill(living)
    assert left[1:] == [".mine.tmp", "c"] and left[0].startswith(".b.") and len(left) == 3


# -- full disks ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", ["", ".gz", ".xz"])
@pytest.mark.parametrize("room", [0, 1000])
def test_a_full_disk(tmp_path: Path, suffix: str, room: int) -> None:
    path = tmp_path / f"a{suffix}"
    path.write_text("old")
    with full_disk(room), pytest.raises(WriteError, match=rf"a{suffix}: cannot be written \(File too large\)$"):
        write_text(path, LONG)
    assert path.read_text() == "old" and names(tmp_path) == [path.name]


def test_a_full_disk_while_a_folder_is_written(tmp_path: Path) -> None:
    with full_disk(1000), pytest.raises(WriteError) as raised, atomic_folder(tmp_path / "new") as folder:
        write_text(folder / "whole", "text")
        write_text(folder / "long", LONG)
    assert str(raised.value) == f"{tmp_path}/new/long: cannot be written (File too large)"
    assert names(tmp_path) == []


def test_a_device_that_is_full() -> None:
    with pytest.raises(WriteError, match=r"^/dev/full: cannot be written \(No space left on device\); make room on"):
        write_text("/dev/full", "text")


def test_an_error_of_the_system_is_told_in_a_line(tmp_path: Path) -> None:
    with pytest.raises(OSError) as raised:
        (tmp_path / f".a.{'0' * 16}.tmp" / "b").read_text()
    assert explain(raised.value) == f"{tmp_path}/a/b: No such file or directory"
    short = explain(OSError("24 requested and 0 written"))  # by numpy
    assert short.startswith("a file cannot be written (24 requested and 0 written); make room on the disk")
    many = explain(OSError(errno.EMFILE, "Too many open files"))
    assert many == "Too many open files; let a process have more open (ulimit -n 1024)"


def test_a_line_is_appended_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "log"
    append_line(path, "one")
    with full_disk(10), pytest.raises(WriteError, match="log: cannot be written"):
        append_line(path, "a line of more than ten bytes")
    append_line(path, "two")
    assert path.read_text() == "one\ntwo\n"


def test_records_behind_a_checkpoint_and_one_that_is_cut_off_are_dropped(tmp_path: Path) -> None:
    seen: list[dict[str, Any]] = []
    log = RunLog(tmp_path, seen.append, print)
    log.open(0)
    for step in (1, 2, 3):
        log.write({"step": step}, {"loss": 0.5})
    log.close()
    with open(tmp_path / "log.jsonl", "a") as stream:
        stream.write('{"step": 2, "lo')
    RunLog(tmp_path, seen.append, print).open(2)
    assert (tmp_path / "log.jsonl").read_text() == '{"step": 1, "loss": 0.5}\n{"step": 2, "loss": 0.5}\n'
    assert [record["step"] for record in seen] == [1, 2, 3]


@pytest.mark.slow
def test_a_process_of_a_training_says_that_the_disk_is_full() -> None:
    code = """
from lm_zoo.training.distributed import _process
def work():
    raise OSError(28, "No space left on device", "out/model.pt")
_process(1, work, (), 2, 12354, ())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    said = "process 1: out/model.pt: No space left on device; make room on the disk and run the command again\n"
    assert (done.returncode, done.stderr) == (2, said)


# -- locks ---------------------------------------------------------------------------------------------------------


def test_a_second_run_is_refused_while_the_first_lives(tmp_path: Path) -> None:
    out = tmp_path / "new/out"
    first = start(f"with locked(sys.argv[1]): {WAIT}", out)
    (tmp_path / "link").symlink_to(out)
    who = f"process {first.pid} on {os.uname().nodename} is writing it; wait until it has ended, or choose another name"
    for name in (out, tmp_path / "link"):
        with pytest.raises(WriteError) as raised, locked(name):
            pass
        assert str(raised.value) == f"{name}: {who}"
    kill(first)
    with locked(out), locked(tmp_path / "new/another"):
        pass
    assert names(tmp_path / "new") == []


def test_a_lock_leaves_nothing_but_what_was_written(tmp_path: Path) -> None:
    with locked(tmp_path / "a/b/c"):
        assert names(tmp_path / "a/b") == [".c.lock"]
    assert names(tmp_path) == []
    with locked(tmp_path / "a/b/c"):
        write_bytes(tmp_path / "a/b/c", b"text")
    assert names(tmp_path / "a/b") == ["c"]


def test_a_folder_in_one_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "folder").mkdir()
    real = os.open

    def denied(path: Any, *rest: Any) -> int:
        if Path(path).parent == tmp_path:
            raise PermissionError(13, "Permission denied")
        return real(path, *rest)

    monkeypatch.setattr(os, "open", denied)
    with locked(tmp_path / "folder"):
        assert names(tmp_path / "folder") == [".lock"]
        with pytest.raises(WriteError, match=r"folder: process .* is writing it"), locked(tmp_path / "folder"):
            pass
    with pytest.raises(WriteError, match=r"file: cannot be written \(Permission denied\)"), locked(tmp_path / "file"):
        pass


@pytest.mark.parametrize("path", ["-", "/dev/null", "/dev/fd/1"])
def test_what_is_written_in_place_is_not_locked(path: str) -> None:
    with locked(path), locked(path):
        pass


def test_a_link_under_the_name_of_the_lock_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "victim").write_text("old")
    (tmp_path / ".a.lock").symlink_to("victim")
    with pytest.raises(WriteError, match="a: cannot be written"), locked(tmp_path / "a"):
        pass
    assert (tmp_path / "victim").read_text() == "old"
