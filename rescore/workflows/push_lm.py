"""What of a model folder goes to the hub of Hugging Face."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lm_zoo.errors import ModelError
from lm_zoo.hub import push
from lm_zoo.identity import files_of_lm
from lm_zoo.registry import load, read_config
from rescore.console import remark

CARD = "README.md"
MORE = (CARD, "log.jsonl", "run.json")  # beside what the LM is


def files_to_push(folder: Path) -> list[Path]:
    """The files of the LM, its card and its logs; no checkpoints, and nothing else that lies there.

    Raises:
      LMError: no model folder of the zoo, a damaged one, or that of an n-gram LM.
    """
    if read_config(folder)["kind"] == "ngram":
        raise ModelError(f"{folder}: an n-gram LM, which no name of the hub (hf:NAME) loads; expected a neural LM")
    load(str(folder))
    files = [file for file in (*files_of_lm(str(folder)), *(folder / name for name in MORE)) if file.is_file()]
    if folder / CARD not in files:
        remark(f"{folder}: there is no {CARD}; whoever finds the LM will want to know what it is")
    return files


def push_lm(folder: Path, repository: str, private: bool, message: str, api: Any = None) -> str:
    """Brings the LM to the hub and returns its address; arguments and errors as of `lm_zoo.hub.push`."""
    names = [str(file.relative_to(folder)) for file in files_to_push(folder)]
    return push(folder, repository, names, private, message, api)
