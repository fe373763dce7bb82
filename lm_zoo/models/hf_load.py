"""Tokenizer and weights of a Hugging Face folder: in the dtype that is wanted, in 4 or 8 bits, with a LoRA adapter.

Where a folder is meant there may be a GGUF file, as llama.cpp has them: its few bits a weight become numbers of the
dtype.
"""

from __future__ import annotations

import importlib
import io
import json
import threading
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, redirect_stderr
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch

from lm_zoo.errors import ModelError, VocabError
from lm_zoo.hub import ADAPTER_CONFIG, GGUF, first_line
from lm_zoo.model_folder import read_tensors
from lm_zoo.reading import read_json
from lm_zoo.safe_unpickle import without_pickles

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
ADAPTER_WEIGHTS = "adapter_model.safetensors"
_PARSING = threading.Lock()
LOCAL = {"local_files_only": True, "trust_remote_code": False}
# Packages that some ways to load a model need, and the extra of this package that brings them.
EXTRAS = {"transformers": "hf", "gguf": "gguf", "peft": "lora", "accelerate": "quantized", "bitsandbytes": "quantized"}


@dataclass(frozen=True)
class Loading:
    """How a model is loaded.

    Attributes:
      dtype: of its weights, a name of `DTYPES`; with `bits` that of the products.
      bits: "4" or "8" of each weight of a layer's matrices (bitsandbytes); "" for `dtype`.
      device_map: "auto": over all GPUs, and the rest in memory (accelerate); "": on the CPU.
      device: where weights of 4 or 8 bits go.
      adapter: folder of a LoRA adapter.
    """

    dtype: str = "float32"
    bits: str = ""
    device_map: str = ""
    device: str = "cpu"
    adapter: Path | None = None

    def options(self, folder: Path) -> dict[str, Any]:
        """Those of `from_pretrained`.

        Raises:
          ModelError: no such dtype, or a package is missing.
        """
        if self.dtype not in DTYPES:
            raise ModelError(f"{folder}: {self.dtype} is for the zoo's own LMs; take float32 or bfloat16")
        options: dict[str, Any] = {"dtype": DTYPES[self.dtype]}
        if self.bits:
            package("bitsandbytes", f"{folder}: ?bits={self.bits} needs")
            options["quantization_config"] = self._quantization()
            options["device_map"] = {"": self.device}
        if self.device_map:
            options["device_map"] = self.device_map
        if "device_map" in options:
            package("accelerate", f"{folder}: ?device_map=auto and ?bits need")
        return options

    def _quantization(self) -> Any:
        config = package("transformers", "?bits needs").BitsAndBytesConfig
        if self.bits == "8":
            return config(load_in_8bit=True)
        return config(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=DTYPES[self.dtype])


def load_tokenizer(folder: Path) -> Any:
    """The tokenizer of a folder.

    Raises:
      ModelError: transformers is missing.  VocabError: no tokenizer.
    """
    transformers = package("transformers", "Hugging Face models need")
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    try:
        with quiet(folder):
            tokenizer = transformers.AutoTokenizer.from_pretrained(**source(folder), **LOCAL)
    except Exception as error:  # transformers raises whatever its parts raise
        raise VocabError(f"{folder}: no tokenizer that transformers can load ({first_line(error)})") from None
    if len(tokenizer) <= len(set(tokenizer.all_special_ids)):
        raise VocabError(f"{folder}: no tokenizer; expected the files that the tokenizer's save_pretrained writes")
    return tokenizer


def load_parts(folder: Path, auto_class: str, how: Loading) -> tuple[Any, Any]:
    """Tokenizer and model of a folder, in evaluation mode; nothing is downloaded or executed.

    The weights are read into their dtype one by one: there is never a copy of them in another one.

    Args:
      auto_class: "AutoModelForCausalLM" or "AutoModelForMaskedLM".
    Raises:
      ModelError: a package is missing, the folder has no such model or not all of its weights, or the adapter is none
        of this model.
      VocabError: no tokenizer.
    """
    with parsed_once(folder):
        return _load_parts(folder, auto_class, how)


def _load_parts(folder: Path, auto_class: str, how: Loading) -> tuple[Any, Any]:
    tokenizer = load_tokenizer(folder)
    transformers = package("transformers", "Hugging Face models need")
    options = {"use_safetensors": True, "ignore_mismatched_sizes": True, "output_loading_info": True}
    options |= {**LOCAL, **how.options(folder)}
    try:
        with without_pickles(folder) as where, quiet(folder):
            model, found = getattr(transformers, auto_class).from_pretrained(**source(where), **options)
    except ModelError:
        raise
    except Exception as error:
        raise ModelError(f"{folder}: transformers cannot load an {auto_class} ({first_line(error)})") from None
    for name, *shapes in sorted(found["mismatched_keys"]):
        stored, wanted = (tuple(shape) for shape in shapes)
        raise ModelError(f"{folder}: '{name}' has the shape {stored}, config.json calls for {wanted}")
    if found["missing_keys"]:
        raise ModelError(f"{folder}: the weights lack '{min(found['missing_keys'])}', which an {auto_class} needs")
    if how.adapter is not None:
        model = with_adapter(model, folder, how)
    return tokenizer, model.eval()


def source(folder: Path) -> dict[str, str]:
    """The arguments of `from_pretrained` that say where a model lies.

    Raises:
      ModelError: a GGUF file, and the package gguf is missing.
    """
    if folder.suffix != GGUF:
        return {"pretrained_model_name_or_path": str(folder)}
    package("gguf", f"{folder}: GGUF files need")
    return {"pretrained_model_name_or_path": str(folder.parent), "gguf_file": folder.name}


@contextmanager
def parsed_once(folder: Path) -> Iterator[None]:
    """Within it a GGUF file is parsed once, which takes longer than to unpack its weights.

    transformers parses it for the tokenizer, for the configuration and for the weights, and makes gguf's table of names
    for each layer anew. What it takes from gguf is kept here until the model is there.
    """
    if folder.suffix != GGUF:
        yield
        return
    gguf = package("gguf", f"{folder}: GGUF files need")
    with _PARSING:  # another thread would take what is kept here for gguf's own
        plain = {name: getattr(gguf, name) for name in ("GGUFReader", "get_tensor_name_map")}
        for name, function in plain.items():
            setattr(gguf, name, cache(function))
        try:
            yield
        finally:
            for name, function in plain.items():
                setattr(gguf, name, function)


def quiet(folder: Path) -> AbstractContextManager[Any]:
    """Keeps back the progress of unpacking a GGUF file, which transformers writes whatever one asks it."""
    return redirect_stderr(io.StringIO()) if folder.suffix == GGUF else nullcontext()


def with_adapter(model: Any, folder: Path, how: Loading) -> Any:
    """The model with a LoRA adapter of peft in it: merged into the weights, or beside those of 4 or 8 bits.

    Raises:
      ModelError: peft is missing, no LoRA adapter in safetensors, or that of another model.
    """
    adapter = how.adapter
    assert adapter is not None
    peft = package("peft", f"{adapter}: an adapter needs")
    try:
        kind = read_json(adapter / ADAPTER_CONFIG)["peft_type"]
    except (OSError, ValueError, LookupError, TypeError):
        raise ModelError(f"{adapter / ADAPTER_CONFIG}: expected an object with a 'peft_type'") from None
    if kind != "LORA":
        raise ModelError(f"{adapter}: an adapter of the type {json.dumps(kind)}, expected LoRA")
    stored = set(read_tensors(adapter / ADAPTER_WEIGHTS))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what is missing is told below
            made = peft.PeftModel.from_pretrained(model, str(adapter), is_trainable=False)
        wanted = set(peft.get_peft_model_state_dict(made, save_embedding_layers=False))
    except Exception as error:
        raise ModelError(f"{adapter}: peft cannot put it into {folder} ({first_line(error)})") from None
    if lacking := wanted - stored:
        raise ModelError(f"{adapter}: lacks '{min(lacking)}', which the adapter of {folder} needs")
    if how.bits:
        return made.base_model.model
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the layers share no weights any more: so it is meant
        _untie(made, peft)
        return made.merge_and_unload()


def _untie(adapted: Any, peft: Any) -> None:
    """Gives the output layer weights of its own if it shares the embeddings' and an adapter of either changes them.

    An adapter is of one layer: merged into shared weights it would change both.
    """
    first, last = adapted.get_input_embeddings(), adapted.get_output_embeddings()
    if last is None or first.weight is not last.weight:
        return
    changed = [isinstance(layer, peft.tuners.lora.LoraLayer) for layer in (first, last)]
    if any(changed):
        head = last.get_base_layer() if changed[1] else last
        head.weight = torch.nn.Parameter(head.weight.detach().clone(), requires_grad=False)


def package(name: str, what: str) -> Any:
    """A package; `what` says who needs it.

    Raises:
      ModelError: it cannot be imported.
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ModelError(
            f"{what} the package {name}, which cannot be imported ({error}); "
            f"install it with: pip install 'rescore[{EXTRAS[name]}]'"
        ) from None
