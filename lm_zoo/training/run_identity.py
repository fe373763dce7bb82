"""What a training run is made of (`run.json`): a folder's run goes on as the one that it was, or not at all."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from lm_zoo.errors import ModelError, TextError
from lm_zoo.files import write_text
from lm_zoo.identity import content, feed
from lm_zoo.model_folder import CONFIG, LOG, RUN, WEIGHTS
from lm_zoo.reading import is_read_once, read_json
from lm_zoo.registry import settings_of
from lm_zoo.text.sentences import parse_text_spec
from lm_zoo.text.vocabulary import PieceVocabulary, WordVocabulary
from lm_zoo.training.transfer import find_trained

VOCAB = "vocab"  # folder of the run's own vocabulary
VOCABULARIES = (PieceVocabulary.FILE, PieceVocabulary.LIST, WordVocabulary.FILE)  # that of a model folder
CHECKPOINTS = ("checkpoint", "checkpoint.old")
# Settings of the training that may change when a run goes on: how long it is, what is looked at on the way.
FREE = ("steps", "passes", "epochs", "patience", "valid_every", "save_every", "log_every", "wandb")
_DIGEST = re.compile(r" \(blake2b \w+\)$")
TOKENS, LISTS = "a token of text", "expected errors of N-best lists"  # validation losses


def text_identity(spec: str) -> str:
    """Name and content of a text, `NAME (blake2b DIGEST)`; `kaldi:NAME ...` where utterance ids are left out of it.

    Raises:
      ModelError: it cannot be read.
      TextError: it can be read once alone, and training reads it again.
    """
    ids, path = parse_text_spec(spec)
    if is_read_once(path):
        raise TextError(f"{spec}: a pipe, which can be read once alone, but is read several times; write it to a file")
    digest = feed(hashlib.blake2b(digest_size=8), path)
    return f"{'kaldi:' if ids else ''}{os.path.basename(path)} (blake2b {digest.hexdigest()})"


def lm_identity(name: str | None) -> str | None:
    """Name and content, weights and vocabulary, of the LM that a run starts from; as `text_identity`.

    Raises:
      ModelError: as `lm_zoo.training.transfer.find_trained`.
    """
    return None if name is None else _of_folder(name, (WEIGHTS, *VOCABULARIES))


def vocab_identity(name: str | None) -> str | None:
    """Name and content of what a vocabulary is taken from, a file or an LM; raises as the two above."""
    if name is None:
        return None
    if is_read_once(name) or os.path.isfile(name) or name.endswith(".model"):
        return text_identity(f"text:{name}")
    return _of_folder(name, VOCABULARIES)


def _of_folder(name: str, files: tuple[str, ...]) -> str:
    folder = find_trained(name)
    return f"{os.path.basename(os.path.abspath(name))} (blake2b {content(folder / file for file in files)[:16]})"


def plain_name(identity: Any) -> str:
    """The name in what `text_identity`, `lm_identity` and `vocab_identity` give; of older runs that of a path."""
    return Path(_DIGEST.sub("", str(identity))).name


def measured_on(folder: Path) -> dict[str, Any]:
    """What the validation loss of the run in a folder depends on beside the model, as far as it is known."""
    vocabulary = {"vocabulary": content(folder / file for file in VOCABULARIES)}
    try:
        run = read_json(folder / RUN)
        if "lists" in run:
            lists = {name: value for name, value in run["lists"].items() if name != "nbest"}
            return {"loss": LISTS, "lists or scales": {**lists, "posterior": run["train"]["posterior"]}}
        digest, way = _DIGEST.search(run["recipe"]["valid"]), _way(run.get("train", {}))
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return vocabulary
    return {"loss": TOKENS, **vocabulary, **({"validation text": digest[0]} if digest else {}), **way}


def _way(plan: dict[str, Any]) -> dict[str, Any]:
    """How a run reads its validation text: what stands before a token decides how well it can be told."""
    if "text" not in plan:
        return {}
    windows = [plan["window"], bool(plan.get("carry"))] if plan["text"] == "windows" else []
    return {"way to read the text (sentences or windows, window, carry)": [plan["text"], *windows]}


def first_incomparable(folders: Sequence[Path]) -> tuple[Path, str] | None:
    """The first folder whose validation losses cannot be held against those of the first one, and what differs."""
    first = measured_on(folders[0])
    for folder in folders[1:]:
        other = measured_on(folder)
        if differs := [what for what in first if what in other and first[what] != other[what]]:
            return folder, differs[0]
    return None


def check_run(folder: Path, parts: dict[str, Any]) -> None:
    """Writes what the run in `folder` is made of, or compares it with what is written there.

    A run has begun when its log has a record: what failed before that leaves nothing to compare with, and its
    vocabulary goes unless all is the same again.  A model that is there must be that of a run.

    Args:
      parts: name -> value, or a dict of such.
    Raises:
      ModelError: the run there differs in something that cannot change in mid-run; names it.  Or there is a model
        without the run that made it, which would pass for the new one's until its first validation.
    """
    path, text = folder / RUN, json.dumps(parts, indent=2) + "\n"
    begun, same = _has_begun(folder), path.exists() and path.read_bytes() == text.encode()
    if (folder / CONFIG).exists() and not (same or (begun and (path.exists() or _has_checkpoint(folder)))):
        without = f"has a model in it ({CONFIG}), but not the run that made it ({RUN}, {LOG})"
        raise ModelError(f"{folder}: {without}; choose another --out")
    if path.exists() and begun:
        try:
            before = read_json(path)
            _flat(before)
        except (OSError, ValueError, AttributeError) as error:
            raise ModelError(f"{path}: damaged ({error}); remove it to go on without this check") from None
        check_same(folder, before, json.loads(text))
    elif path.exists() and not same:
        shutil.rmtree(folder / VOCAB, ignore_errors=True)
    write_text(path, text)


def _has_begun(folder: Path) -> bool:
    log = folder / LOG
    return (log.exists() and log.stat().st_size > 0) or _has_checkpoint(folder)


def _has_checkpoint(folder: Path) -> bool:
    return any((folder / name).exists() for name in CHECKPOINTS)


def check_same(folder: Path, before: dict[str, Any], parts: dict[str, Any]) -> None:
    """Raises ModelError, naming the first difference, unless all parts but those in `FREE` are equal.

    A setting that there was none of when the run began had what is its default now.
    """
    new = _flat(parts)
    old = {**_defaults(parts["kind"]), **_flat(before)}
    for name in [*new, *(name for name in old if name not in new)]:
        if name[-1] in FREE or (name in old and name in new and _is_same(old[name], new[name])):
            continue
        found, wanted = (json.dumps(values[name]) if name in values else "none" for values in (old, new))
        there = f"{folder}: the run there has {name[-1]} {found}, not {wanted}"
        raise ModelError(f"{there}; choose another --out, or remove that folder")


def _defaults(kind: str) -> dict[tuple[str, ...], Any]:
    """Of all settings of a kind of LM and of its training."""
    from lm_zoo.training.config import TrainConfig

    return _flat({"settings": settings_of(kind, {}), "train": asdict(TrainConfig())})


def _is_same(old: Any, new: Any) -> bool:
    """Whether two values are equal; of older runs, which know LMs by their paths alone, whether the names are."""
    if old == new or not (isinstance(old, str) and isinstance(new, str)):
        return bool(old == new)
    return not _DIGEST.search(old) and _DIGEST.search(new) is not None and Path(old).name == plain_name(new)


def _flat(parts: dict[str, Any]) -> dict[tuple[str, ...], Any]:
    flat: dict[tuple[str, ...], Any] = {}
    for name, value in parts.items():
        if isinstance(value, dict):
            flat |= {(name, key): each for key, each in value.items()}
        else:
            flat[name,] = value
    return flat
