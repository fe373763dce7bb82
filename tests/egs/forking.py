"""The commands that recipes call, forked from one process that has imported the heavy packages already.

    python forking.py SOCKET        serves until its standard input ends
    stubs(FOLDER, SOCKET)           writes `rescore`, `asr`, `lhotse`, `python3` and so on, which are run by the server

A recipe runs dozens of commands, each of which would import torch for seconds.

Where the variable KILLED names a file, the script that calls a command is killed in it, twice for each command line:
when the command is about to open a second file to write, and when it has ended, before the script could note that.
The file has the kills so far.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import runpy
import signal
import socket
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
NAMES = ("rescore", "asr", "lhotse", "python", "python3")
PACKAGES = ("rescore", "lm_zoo", "asr")  # all of whose modules are imported
HEAVY = ("torch._dynamo", "torch.utils.tensorboard", "lhotse.bin", "rich.table", "rich.progress")  # and of others
NO_ANSWER = 70
KILLED = "EGS_KILLED"

CLIENT = """#!{python} -SE
import json, os, signal, socket, sys
command, kill = [os.path.basename(sys.argv[0]), *sys.argv[1:]], ""
if {killed!r} in os.environ:
    with open(os.environ[{killed!r}], "a+") as stream:
        stream.seek(0)
        before = stream.read().splitlines()
        kill = ([kill for kill in ("within", "after") if json.dumps([kill, *command]) not in before] + [""])[0]
        if kill:
            print(json.dumps([kill, *command]), file=stream)
server = socket.socket(socket.AF_UNIX)
server.connect({address!r})
socket.send_fds(server, [json.dumps([kill, *command, os.getcwd()]).encode()], [0, 1, 2])
answer = server.recv(16)
if kill == "after" or kill and not answer:
    os.killpg(0, signal.SIGKILL)
sys.exit(int(answer or {no_answer}))
"""


def stubs(folder: Path, address: Path) -> None:
    """Writes the commands NAMES into a folder that is to stand first in PATH."""
    for name in NAMES:
        path = folder / name
        parts = {"python": sys.executable, "address": str(address), "no_answer": NO_ANSWER, "killed": KILLED}
        path.write_text(CLIENT.format(**parts))
        path.chmod(0o755)


def modules(package: str) -> Iterator[str]:
    """All modules of a package of this repository."""
    for path in sorted((ROOT / package).rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        if parts[-1] != "__main__":
            yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def serve(address: str) -> None:
    """Answers until standard input ends."""
    for name in (*HEAVY, *chain.from_iterable(map(modules, PACKAGES))):
        with suppress(ImportError):  # a command that needs it says so
            importlib.import_module(name)
    gc.freeze()  # a collection in a child would copy all that they share
    server = socket.socket(socket.AF_UNIX)
    server.bind(f"{address}.new")
    server.listen()
    os.rename(f"{address}.new", address)  # which is there once it can be called
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    if os.fork() == 0:
        sys.stdin.read()
        os.kill(os.getppid(), signal.SIGTERM)
        os._exit(0)
    while True:
        client, _ = server.accept()
        if os.fork() == 0:
            server.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            answer(client)
        client.close()


def answer(client: socket.socket) -> None:
    """Runs one command with the streams of the client, and sends its exit code."""
    message, streams, _, _ = socket.recv_fds(client, 1 << 20, 3)
    for place, stream in enumerate(streams):
        os.dup2(stream, place)
        os.close(stream)
    kill, name, *arguments, folder = json.loads(message)
    os.chdir(folder)
    if kill == "within":
        end_at_second_file()
    code = exit_code(name, arguments)
    sys.stdout.flush()
    sys.stderr.flush()
    client.send(str(code).encode())
    os._exit(0)


def end_at_second_file() -> None:
    """Ends this process, as if killed, when it opens a second file to write."""
    opened = 0

    def watch(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal opened
        if event == "open" and arguments[2] & (os.O_WRONLY | os.O_RDWR) and "/dev/" not in str(arguments[0]):
            opened += 1
            if opened == 2:
                os._exit(1)

    sys.addaudithook(watch)


def exit_code(name: str, arguments: list[str]) -> int:
    try:
        sys.argv = [name, *arguments]
        entry(name, arguments)()
    except SystemExit as ended:
        if isinstance(ended.code, str):
            print(ended.code, file=sys.stderr)
        return ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def entry(name: str, arguments: list[str]) -> Callable[[], Any]:
    """What the command NAME does."""
    if name in ("rescore", "asr"):
        return importlib.import_module(f"{name}.cli.main").main  # type: ignore[no-any-return]
    if name == "lhotse":
        return importlib.import_module("lhotse.bin").cli  # type: ignore[no-any-return]
    if arguments[0] == "-m":
        sys.argv = arguments[1:]
        return lambda: runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
    sys.argv = arguments
    sys.path[0] = str(Path(arguments[0]).resolve().parent)
    return lambda: runpy.run_path(arguments[0], run_name="__main__")


if __name__ == "__main__":
    serve(sys.argv[1])
