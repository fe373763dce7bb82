"""The model card of a trained LM: `README.md` in its folder, as the hub of Hugging Face shows it."""

from __future__ import annotations

import hashlib
import math
import re
import shlex
from pathlib import Path
from typing import Any

from lm_zoo.errors import ModelError
from lm_zoo.files import write_text
from lm_zoo.model_folder import CONFIG, RUN, WEIGHTS
from lm_zoo.reading import read_json, read_text
from lm_zoo.registry import KINDS, read_config, settings_of
from lm_zoo.text.vocabulary import load_vocabulary
from lm_zoo.training.config import TrainConfig, list_defaults
from lm_zoo.training.run_identity import plain_name

CARD = "README.md"
LONGEST = 256  # tokens of a sentence, where --longest is not given
_MARK = re.compile(r"<!-- written by rescore train-lm, again unless it is changed by hand: (\w+) -->\n")


def write_card(folder: Path) -> bool:
    """Writes the card of the LM in the folder of a run; a card that somebody has written or changed stays.

    Returns:
      whether it was written.
    """
    path = folder / CARD
    if path.exists() and not _is_ours(read_text(path)):
        return False
    text = card(folder)
    write_text(path, text + _mark(text))
    return True


def _is_ours(text: str) -> bool:
    found = _MARK.search(text)
    return found is not None and text == text[: found.start()] + _mark(text[: found.start()])


def _mark(text: str) -> str:
    digest = hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
    return f"<!-- written by rescore train-lm, again unless it is changed by hand: {digest} -->\n"


def card(folder: Path) -> str:
    """The text of the card, from `config.json` and `run.json`."""
    config = read_config(folder)
    try:
        run = read_json(folder / RUN)
    except (OSError, ValueError) as error:
        raise ModelError(f"{folder / RUN}: cannot be read ({error}), expected what rescore train-lm writes") from None
    kind, recipe = config["kind"], run["recipe"]
    rows = "".join(f"| {name} | {text} |\n" for name, text in _rows(folder, config, "lists" in run))
    started = f"It started from the weights of `{plain_name(recipe['init'])}`.\n\n" if recipe.get("init") else ""
    name = folder.resolve().name
    return f"""---
library_name: rescore
tags:
- language-model
- speech-recognition
- {kind}
---

# {name}: a language model for rescoring

{KINDS[kind][2]}; trained by `rescore train-lm`.

| | |
|---|---|
{rows}
{started}## Data

{_data(run, config)}
Licence and where the text comes from: (not said yet)

## Settings

{_settings(config, "lists" in run)}
## Command

    {_command(run, name)}

(Files are named without their folders.) `{CONFIG}` has all settings, `log.jsonl` the losses.

## Use

    rescore nbest --nbest lists.jsonl.gz --lm {name} --out exp/scores
    rescore ppl --lm {name} --text test.txt

"""


def _rows(folder: Path, config: dict[str, Any], on_lists: bool) -> list[tuple[str, str]]:
    case, trained = config.get("case") or "mixed", config["trained"]
    found = f"{len(load_vocabulary(folder, case)):,} tokens, text in {case} case"
    loss = trained["valid_loss"]
    figure = ("validation perplexity a token", f"{math.exp(min(loss, 700)):.2f}")
    if on_lists:
        figure = ("expected errors an utterance, validation", f"{loss:.4f}")
    unit = "lists" if on_lists else "tokens"
    seen = ("trained for", f"{trained['step']:,} steps, {trained['tokens']:,} {unit}; seed {trained['seed']}")
    size = ("size", f"{(folder / WEIGHTS).stat().st_size / 1e6:.1f} MB of weights")
    return [("kind", config["kind"]), ("vocabulary", found), size, figure, seen]


def _data(run: dict[str, Any], config: dict[str, Any]) -> str:
    """A line a file; texts with their digests."""
    training = config["data"] if "lists" in run else run["recipe"]["text"]
    valid = [f"validation: {run['recipe']['valid']}"] if run["recipe"].get("valid") else []
    return "".join(f"- {text}\n" for text in [*training, *valid])


def _settings(config: dict[str, Any], on_lists: bool) -> str:
    lines = [f"- {name}: {value}\n" for name, value in config.get("settings", {}).items()]
    training = config.get("training", {})
    return "".join(
        [*lines, *(f"- training, {name}: {value}\n" for name, value in _unusual(training, on_lists).items())]
    )


def _unusual(training: dict[str, Any], on_lists: bool) -> dict[str, Any]:
    """The settings of the training that are not the defaults."""
    usual = vars(TrainConfig()) | (list_defaults(training.get("optimizer")) if on_lists else {})
    return {name: value for name, value in training.items() if usual.get(name) != value}


def _command(run: dict[str, Any], name: str) -> str:
    """The command that trains it, with the names of files alone."""
    recipe, words = run["recipe"], ["rescore", "train-lm", run["kind"]]
    for text in recipe["text"]:
        words += ["--text", plain_name(text)]
    if "lists" in run:
        words += ["--nbest", "LISTS", "--valid", "DEV-LISTS", "--ref", "TEXT"]
        words += ["--weights", "WEIGHTS"] if _are_weighted(run["lists"]) else []
    else:
        words += ["--valid", plain_name(recipe["valid"])]
    given = recipe.get("vocab") or recipe.get("init")
    for option in ("vocab", "init") if given else ("tokens", "vocab_size"):
        if recipe.get(option) is not None:
            words += [f"--{option.replace('_', '-')}", plain_name(recipe[option])]
    if recipe["longest"] != LONGEST:
        words += ["--longest", str(recipe["longest"])]
    usual = settings_of(run["kind"], {})
    chosen = {key: value for key, value in run["settings"].items() if usual.get(key) != value}
    words += [word for key, value in chosen.items() for word in ("--set", f"{key}={_value(value)}")]
    unusual = _unusual(run["train"], "lists" in run)
    words += [word for key, value in unusual.items() for word in ("--train", f"{key}={_value(value)}")]
    return shlex.join([*words, "--out", name])


def _are_weighted(lists: dict[str, Any]) -> bool:
    """Whether the scales of a run on lists are of weights: without them, all scores count with scale 1."""
    return any(scale != 1.0 for scale in (lists["scale"], *lists.get("scales", {}).values()))


def _value(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
