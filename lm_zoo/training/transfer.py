"""Starting a model from a trained one: fine-tuning, and Transformers that become Bayesian or get a dictionary."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lm_zoo.errors import ModelError, VocabError
from lm_zoo.hub import find_folders
from lm_zoo.registry import build, check_no_run, find, load, neural_class, read_config, save_folder, state_tensors
from lm_zoo.text.vocabulary import Vocabulary, same_tokens

if TYPE_CHECKING:
    from lm_zoo.inference.neural import NeuralLM


def find_trained(name: str) -> Path:
    """The folder of a trained LM of the zoo, by its name or path.

    Raises:
      ModelError: as `lm_zoo.registry.find`; or a model of Hugging Face, or the file of an n-gram LM.
    """
    found = find_folders(name)
    if found is not None and not found.is_of_the_zoo:
        raise ModelError(f"'{name}' is a model of Hugging Face; expected an LM of the zoo, such as train-lm writes")
    path = find(name)
    if path.is_file():
        raise ModelError(f"'{name}' is the file of an n-gram LM; expected an LM of the zoo, such as train-lm writes")
    return path


def inherit_settings(kind: str, source: str, settings: dict[str, Any]) -> dict[str, Any]:
    """The settings of a new LM of `kind`: those of the trained LM `source` that the kind has, then `settings`."""
    path = find_trained(source)
    if read_config(path)["kind"] == "ngram":
        raise ModelError(f"'{source}' is an n-gram LM; expected a neural LM to start from")
    known = {field.name for field in dataclasses.fields(neural_class(kind).Config)}
    old = read_config(path).get("settings", {})
    return {**{name: value for name, value in old.items() if name in known}, **settings}


def check_start(source: str, out: Path) -> None:
    """Raises ModelError where the LM to start from is in the folder of the run, which would write over it."""
    if find_trained(source).resolve() == out.resolve():
        raise ModelError(f"{out}: the run would write over the LM that it starts from; choose another --out")


def new_lm(kind: str, vocab: Vocabulary, settings: dict[str, Any], seed: int, init: str | None = None) -> NeuralLM:
    """A new LM, with the weights of the trained one `init` (see `start_from`) or, without it, random ones of the seed.

    Raises:
      ModelError, VocabError: as `lm_zoo.registry.build` and `start_from`.
    """
    import torch

    torch.manual_seed(seed)
    lm = build(kind, vocab, settings)
    if init is not None:
        start_from(lm, init)
    return lm


def start_from(lm: NeuralLM, source: str) -> None:
    """Copies the weights of the trained LM `source` (name or folder) into `lm`.

    A Transformer's weights become the means of a Bayesian LM (`lm.plain`).  What `lm` has and the source has not must
    be among `lm.added` (prefixes of names), and keeps its first values.  Then `lm.started_from(trained)` is called: it
    sets a Bayesian LM's prior.

    Raises:
      VocabError: the two have different vocabularies.
      ModelError: a tensor is missing, or of another shape.
    """
    from lm_zoo.inference.neural import NeuralLM

    trained = load(source)
    if not isinstance(trained, NeuralLM):
        raise ModelError(f"'{source}' is a {type(trained).__name__}; expected a neural LM of the zoo to start from")
    if not same_tokens(trained.vocab, lm.vocab):
        raise VocabError(
            f"'{source}' has {len(trained.vocab)} tokens, the new LM {len(lm.vocab)}, and not the same ones; they must "
            "share the vocabulary"
        )
    target = lm if type(trained) is type(lm) else lm.plain
    old, new = state_tensors(trained), state_tensors(target)
    for name, tensor in new.items():
        if name in old and old[name].shape == tensor.shape:
            tensor.copy_(old[name])
        elif name in old:
            found, wanted = tuple(old[name].shape), tuple(tensor.shape)
            raise ModelError(f"'{source}': '{name}' has the shape {found}, the new LM calls for {wanted}")
        elif not name.startswith(lm.added):
            raise ModelError(f"'{source}' has no '{name}', so this kind of LM cannot start from it")
    spare = sorted(name for name in old if name not in new)
    if spare:
        raise ModelError(f"'{source}' has '{spare[0]}', which the new LM has no place for")
    try:
        lm.started_from(trained)
    except ValueError as error:
        raise ModelError(f"'{source}': {error}") from None


def convert_lm(kind: str, source: str, settings: dict[str, Any], out: Path) -> NeuralLM:
    """Writes the folder of an LM of `kind` with the weights of the trained LM `source`; returns the LM.

    Raises:
      ModelError: as `start_from`, or `lm_zoo.registry.check_no_run`.
    """
    check_no_run(out)
    settings = inherit_settings(kind, source, settings)
    lm = build(kind, load(source).vocab, settings)
    start_from(lm, source)
    config = read_config(find(source))
    info: dict[str, Any] = {name: config[name] for name in ("data", "licence", "training") if name in config}
    info["started_from"] = {"kind": config["kind"], **config.get("trained", {})}
    save_folder(out, lm.eval(), kind, info)
    return lm
