"""Recipes in a folder of their own, with commands that start at once."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from tests.egs import forking

ROOT = Path(__file__).resolve().parents[2]
LEFT = shutil.ignore_patterns("exp*", "data", "download*", "__pycache__")


class Recipes:
    """A copy of `egs`, so that data and models of a test do not lie in the repository.

    Attributes:
      folder: the copy, `egs`.
    """

    def __init__(self, folder: Path, commands: Path) -> None:
        self.folder, self._commands = folder / "egs", commands
        shutil.copytree(ROOT / "egs", self.folder, symlinks=True, ignore=LEFT)

    def run(self, script: str, *arguments: object, code: int = 0) -> str:
        """Runs `egs/SCRIPT`; gives all that it prints, and fails with that where its exit code is not `code`."""
        done = self.start(script, *arguments)
        assert done.returncode == code, f"{script}: exit code {done.returncode}\n{done.stdout}"
        return done.stdout

    def start(self, script: str, *arguments: object, killed: Path | None = None) -> subprocess.CompletedProcess[str]:
        """Runs `egs/SCRIPT`, and kills it in each command that the file `killed` does not name yet (see forking.py)."""
        path = self.folder / script
        environment = {"PATH": f"{self._commands}:{os.environ['PATH']}", "OMP_NUM_THREADS": "1"}
        return subprocess.run(
            ["bash", str(path), *map(str, arguments)],
            env=os.environ | environment | ({forking.KILLED: str(killed)} if killed else {}),
            cwd=path.parent,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )


def write_lms(folder: Path, words: Iterable[str]) -> tuple[Path, Path]:
    """An LSTM of these words in a folder `tiny`; an n-gram: a tenth for each of them, a hundredth for all others."""
    from lm_zoo.registry import build, save_folder
    from lm_zoo.text.vocabulary import SOS_EOS, UNK, WordVocabulary

    words = sorted(set(words))
    unigrams = ["-2.0\t<unk>\t0", "-99\t<s>\t0", "-1.0\t</s>", *(f"-1.0\t{word}\t0" for word in words)]
    head = f"\\data\\\nngram 1={len(unigrams)}\nngram 2=1\n\n\\1-grams:\n"
    arpa = folder / "tiny.arpa"
    arpa.write_text(head + "\n".join(unigrams) + f"\n\n\\2-grams:\n-1.0\t<s> {words[0]}\n\n\\end\\\n", encoding="utf-8")
    lm = build("lstm", WordVocabulary([SOS_EOS, UNK, *words], "upper"), {"dim": 8})
    save_folder(folder / "tiny", lm, "lstm", {})
    return folder / "tiny", arpa


@pytest.fixture(scope="session")
def commands(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with the commands that recipes call."""
    folder = tmp_path_factory.mktemp("bin")
    address = folder / "socket"
    forking.stubs(folder, address)
    command = [sys.executable, forking.__file__, str(address)]
    path = f"{ROOT}:{os.environ.get('PYTHONPATH', '')}".rstrip(":")
    with subprocess.Popen(command, stdin=subprocess.PIPE, env=os.environ | {"PYTHONPATH": path}) as server:
        while not address.exists():
            assert server.poll() is None, "the server of commands ended"
            time.sleep(0.05)
        yield folder
        assert server.stdin is not None
        server.stdin.close()


@pytest.fixture
def recipes(tmp_path: Path, commands: Path) -> Recipes:
    return Recipes(tmp_path / "repository", commands)
