"""What happens around every command: errors become one line and exit code 2; code 3 says what was left out."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

import click

from lm_zoo.errors import LMError
from lm_zoo.files import explain
from lm_zoo.inference.limits import is_want_of_memory
from rescore.console import remark, sources_named_once
from rescore.errors import RescoreError
from rescore.skipping import SOME_SKIPPED, all_skipped, forget_skipped, told_skipped
from rescore.waiting import sleep_early

# Packages that may be absent, and the extra of this package that brings them ("" is every install).
EXTRAS = {
    **dict.fromkeys(("lhotse", "lilcom", "soundfile", "kaldi_native_fbank"), "asr"),
    **dict.fromkeys(("ttspico", "espeakng_loader", "pocketsphinx"), "demo"),
    **dict.fromkeys(("kaldialign", "sentencepiece", "safetensors", "torch", "numpy", "yaml", "rich"), ""),
    "kenlm": "ngram",
    "ray": "ray",
    **dict.fromkeys(("transformers", "huggingface_hub"), "hf"),
    "peft": "lora",
    **dict.fromkeys(("accelerate", "bitsandbytes"), "quantized"),
    "matplotlib": "plot",
    **dict.fromkeys(("num2words", "whisper_normalizer", "more_itertools", "regex"), "text"),
    "tensorboard": "train",
}

NO_MEMORY = "memory does not suffice; give it more, or fewer --workers"


def run(name: str, command: click.Command) -> None:
    """Runs the program `name`, whose arguments are those of this process; see `watched`."""
    watched(name, lambda: command(standalone_mode=True))


def watched(name: str, work: Callable[[], Any]) -> None:
    """Does the work of the program `name`; exit status 2 after an error of the user, 3 if utterances were left out."""
    forget_skipped()
    sleep_early()
    try:
        with sources_named_once():
            work()
    except SystemExit as ended:
        if ended.code or not all_skipped():
            raise
        remark(told_skipped())
        sys.exit(SOME_SKIPPED)
    except (RescoreError, LMError) as error:
        message = str(error)
    except (MemoryError, RuntimeError) as error:
        if not is_want_of_memory(error):
            raise
        message = NO_MEMORY
    except OSError as error:  # a full disk, a folder without permission
        message = explain(error)
    except ImportError as error:
        message = NO_MEMORY if is_want_of_memory(error) else missing_package(error)
        if not message:
            raise
    else:
        return
    click.echo(f"{name}: {message}", err=True)
    _drop_unwritten()
    sys.exit(2)


def missing_package(error: ImportError) -> str:
    """The message for a package of others that cannot be imported; "" for any other module, which is a bug."""
    package = (error.name or "").partition(".")[0]
    if package not in EXTRAS:
        return ""
    extra = EXTRAS[package]
    advice = f"pip install 'rescore[{extra}]'" if extra else "install rescore again"
    return f"this needs the package {package}, which cannot be imported ({error}); {advice}"


def _drop_unwritten() -> None:
    """Standard output that cannot be written would raise once more when the interpreter ends."""
    try:
        sys.stdout.flush()
    except OSError:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
