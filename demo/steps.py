"""Steps that are skipped when they have been done with the same inputs."""

from __future__ import annotations

import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import click

from lm_zoo.identity import content

Action = Callable[[], None] | list[str]  # a function, or a command line to show and run


def digest(paths: Sequence[Path], words: Sequence[str]) -> str:
    """A checksum of words and of the files (all files below a folder)."""
    for path in paths:
        if not path.exists():
            raise SystemExit(f"{path} is missing: run make demo again, or rm -r demo/work first")
    return content(paths, words)


class Steps:
    """Runs steps in order; remembers in `folder` what each was made from.

    Args:
      folder: of the stamps, one a step.
      total: number of steps, for the heads.
    """

    def __init__(self, folder: Path, total: int) -> None:
        self.folder, self.total, self.count, self.begin = folder, total, 0, time.monotonic()
        folder.mkdir(parents=True, exist_ok=True)

    def run(
        self, name: str, title: str, inputs: Sequence[Path], output: Path, action: Action, setting: str = ""
    ) -> None:
        """Calls `action` unless `output` is there and was made from the same inputs by the same command or setting."""
        self.count += 1
        head = f"[{self.count}/{self.total}] {title}"
        words = action if isinstance(action, list) else [setting]
        state, stamp = digest(inputs, words), self.folder / name
        if output.exists() and stamp.exists() and stamp.read_text() == state:
            click.secho(f"{head}: already done", dim=True, err=True)
            return
        click.secho(f"{head}  ({time.monotonic() - self.begin:.0f} s)", bold=True, err=True)
        stamp.unlink(missing_ok=True)
        if isinstance(action, list):
            command(action)
        else:
            action()
        stamp.write_text(state)


def command(words: list[str]) -> None:
    """Shows a command line and runs it; `rescore` and `python` are those of this environment."""
    click.secho(f"    $ {shlex.join(words)}", fg="cyan", err=True)
    program = Path(sys.executable).with_name(words[0])
    if not program.exists():
        raise SystemExit(f"{program} is missing: run make venv")
    done = subprocess.run([str(program), *words[1:]], stdin=subprocess.DEVNULL)
    if done.returncode:
        raise SystemExit(f"The demo stopped: '{shlex.join(words)}' ended with code {done.returncode}.")
