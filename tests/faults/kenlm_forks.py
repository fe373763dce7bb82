"""What loads KenLM's files elsewhere, for many files: one process that has KenLM, and forks for each."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from functools import lru_cache
from pathlib import Path

from lm_zoo.ngram.kenlm_check import LOAD

SECONDS = 0.5  # of the processor, for a file of some hundred bytes, which takes 0.002
PATIENCE = 60.0  # seconds by the clock, for one that waits
_SERVE = """
import io, json, os, signal, sys
signal.signal(signal.SIGCHLD, lambda *_: None)  # one that is ignored is not told of
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
sys.path, load = json.loads(sys.stdin.readline())
import kenlm
load = compile(load, "load", "exec")
for line in sys.stdin:
    path, words, seconds, patience = json.loads(line)
    pid = os.fork()
    if not pid:
        sys.argv = ["-c", json.dumps(sys.path), path]
        sys.stdin = io.TextIOWrapper(io.BytesIO(words.encode("utf-8", "replace")))
        code = 0
        signal.setitimer(signal.ITIMER_PROF, seconds)
        try:
            exec(load)
        except SystemExit as ended:
            code = ended.code or 0
        except BaseException:
            code = 1
        os._exit(code)
    done = signal.sigtimedwait([signal.SIGCHLD], patience)
    if not done:
        os.kill(pid, signal.SIGKILL)
        signal.sigwait([signal.SIGCHLD])
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    print(json.dumps(code if done and code != -signal.SIGPROF else None), flush=True)
"""


@lru_cache(maxsize=1)
def _server(of: int) -> subprocess.Popen[str]:
    """One for the process `of`; it ends as that does."""
    server = subprocess.Popen(
        [sys.executable, "-I", "-c", _SERVE], text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert server.stdin is not None
    print(json.dumps([sys.path, LOAD]), file=server.stdin, flush=True)
    return server


def load_in_a_fork(path: Path, words: str, seconds: float = SECONDS) -> int | None:
    """As `lm_zoo.ngram.kenlm_check.load_elsewhere`, in a twentieth of the time."""
    server = _server(os.getpid())
    assert server.stdin is not None and server.stdout is not None
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGPROF])
    try:
        print(json.dumps([str(path), words, min(seconds, SECONDS), PATIENCE]), file=server.stdin, flush=True)
        found: int | None = json.loads(server.stdout.readline())
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return found
