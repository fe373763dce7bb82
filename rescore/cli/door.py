"""What happens around every command: errors of the user and of the system become one line and exit code 2."""

from __future__ import annotations

import os
import sys

import click

from lm_zoo.errors import LMError
from lm_zoo.files import explain
from rescore.errors import RescoreError

# Packages that may be absent, and the extra of this package that brings them ("" is every install).
EXTRAS = {
    **dict.fromkeys(("lhotse", "lilcom", "soundfile", "kaldi_native_fbank", "kaldiio"), "asr"),
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


def run(name: str, command: click.Command) -> None:
    """Runs the program `name`, whose arguments are those of this process."""
    try:
        command(standalone_mode=True)
    except (RescoreError, LMError) as error:
        message = str(error)
    except OSError as error:  # a full disk, a folder without permission
        message = explain(error)
    except ImportError as error:
        message = missing_package(error)
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
