"""LMs for Python: by name, folder or file, or as a model object of Hugging Face."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from copy import copy
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lm_zoo.base import DTYPES, LanguageModel
from lm_zoo.errors import ModelError
from lm_zoo.plugins import check_methods
from rescore.errors import UsageError
from rescore.waiting import sleep_early

if TYPE_CHECKING:  # n-grams are not to load torch
    import torch
    from torch.nn import Module

    LM = str | Path | LanguageModel | Module  # as `load_lm` takes it
    LMs = LM | Mapping[str, LM] | Iterable[LM]


def load_lm(
    source: str | Path | Any,
    tokenizer: Any = None,
    case: str = "",
    name: str = "",
    *,
    dtype: str = "float32",
    device: str | torch.device = "cpu",
) -> LanguageModel:
    """Loads an LM, in evaluation mode.

    Args:
      source: what `--lm` takes (the name of an LM that ships, a model folder, an ARPA, `hf:gpt2`, ...), or a causal
        or masked LM of Hugging Face, which is used as it is: in its dtype, on its device, with the weights that it has
        when it scores; never with dropout, though a training may go on.  An LM that is loaded is given back as it is,
        or with another `name` as another object with the same weights.
      tokenizer: of a Hugging Face model object; None: that of the folder, or of the hub's model, that it is from.
      case: "lower" lower-cases words for a Hugging Face model object alone, "mixed" takes them as they are; by default
        text that is all upper case is refused.
      name: the column of its scores; by default it follows from `source`.
      dtype: "float32", "bfloat16" or "int8", in which `score` multiplies; of Hugging Face, whose weights are loaded in
        it, not "int8".
      device: where it is put, "cpu", "cuda" or "cuda:N", or a device of torch; a model object stays where it is.
    Raises:
      LMError: no such LM or device, a damaged one, or a model object without a tokenizer.
    """
    if "torch" not in sys.modules:
        sleep_early()
    from rescore.workflows.columns import column_of, place_for

    if dtype not in DTYPES:
        raise UsageError(f"dtype is {dtype!r}, expected one of {', '.join(DTYPES)}")
    if not isinstance(name, str):
        raise UsageError(f"name is {name!r}, expected a string")
    if isinstance(source, LanguageModel):
        lm, found = _checked(source), source.name
        if name not in ("", found):
            lm = copy(lm)  # with the same weights; what was given keeps its name
    elif isinstance(source, (str, Path)):
        from lm_zoo.inference.precision import ready
        from lm_zoo.registry import load

        if tokenizer is not None or case:
            raise UsageError("tokenizer and case are for model objects; a name takes options: hf:NAME?case=lower")
        found, path = column_of(str(source))
        if str(device) == "cpu":  # an LM that has chosen its own device stays there
            lm = load(path, dtype)
        else:
            place = place_for(device, dtype)
            lm = load(path, dtype, str(place))
            lm.move_to(place)
        lm = lm if dtype == "float32" else ready(lm, dtype)
    else:
        lm = _of_hugging_face(source, tokenizer, case)
        found = Path(str(getattr(source, "name_or_path", ""))).name or "hf"
    lm.name = name or found
    return lm


def _checked(lm: LanguageModel) -> LanguageModel:
    check_methods(lm)
    return lm


def _of_hugging_face(model: Any, tokenizer: Any, case: str) -> LanguageModel:
    from lm_zoo.models.hf_causal import HFCausalLM
    from lm_zoo.models.hf_masked import HFMaskedLM

    if not hasattr(model, "get_output_embeddings"):
        raise ModelError(
            f"a {type(model).__name__} is no LM; expected a name, a folder, a LanguageModel of lm_zoo, or a causal or "
            "masked LM of Hugging Face"
        )
    model = _adapted(model)
    tokenizer = _tokenizer_of(model) if tokenizer is None else tokenizer
    cls = HFMaskedLM if type(model).__name__.endswith("ForMaskedLM") else HFCausalLM
    place = Path(str(getattr(model, "name_or_path", "")) or type(model).__name__)
    made: LanguageModel = cls(place, case, parts=(tokenizer, model))
    return made


def _adapted(model: Any) -> Any:
    """The model in a `PeftModel`, whose layers have the adapter in them; others as they are.

    Raises:
      ModelError: an adapter that is not in the layers.
    """
    peft = sys.modules.get("peft")  # who has such a model has imported it
    if peft is None or not isinstance(model, peft.PeftModel):
        return model
    config = model.active_peft_config
    if config.is_prompt_learning:
        kind = config.peft_type.value
        raise ModelError(
            f"an adapter of the type {kind}, which puts a prompt before the text; expected LoRA or the like"
        )
    return model.get_base_model()


def _tokenizer_of(model: Any) -> Any:
    """The tokenizer beside the weights that a model object of Hugging Face was loaded from."""
    from lm_zoo.hub import find_folders
    from lm_zoo.models.hf_load import load_tokenizer

    place = str(getattr(model, "name_or_path", ""))
    try:
        found = find_folders(f"hf:{place}") if place else None
    except ModelError:
        found = None  # neither a folder nor a name of the hub
    if found is None:
        raise ModelError("this Hugging Face model needs its tokenizer: load_lm(model, tokenizer=tokenizer)")
    return load_tokenizer(found.folder)


def by_column(lms: LMs, dtype: str | None = None, device: str | torch.device | None = None) -> dict[str, LanguageModel]:
    """The LMs by the names of their columns; those that are no LanguageModel are loaded, as `load_lm` says.

    Raises:
      UsageError: none at all, two with one name, one without a name, or with that of a column that is not for LMs.
    """
    from rescore.workflows.columns import check_columns

    if isinstance(lms, Mapping):
        if not lms:
            raise UsageError("no LM given")
        for column in lms:
            if not column or not isinstance(column, str):
                raise UsageError(f"an LM's column is {column!r}, expected a name: {{'column': lm}}")
        check_columns(list(lms))
        return {
            column: _checked(lm)
            if isinstance(lm, LanguageModel)
            else load_lm(lm, name=column, dtype=dtype or "float32", device=device or "cpu")
            for column, lm in lms.items()
        }
    found: dict[str, LanguageModel] = {}
    for given in lms if isinstance(lms, Iterable) and not isinstance(lms, (str, LanguageModel)) else [lms]:
        lm = (
            _checked(given)
            if isinstance(given, LanguageModel)
            else load_lm(given, dtype=dtype or "float32", device=device or "cpu")
        )
        if not lm.name:
            raise UsageError(f"a {type(lm).__name__} without a name: give LMs as {{'column': lm}}, or set lm.name")
        if lm.name in found:
            raise UsageError(f"two LMs would write the column '{lm.name}'; give them as {{'column': lm, ...}}")
        found[lm.name] = lm
    if not found:
        raise UsageError("no LM given")
    check_columns(list(found))
    return found
