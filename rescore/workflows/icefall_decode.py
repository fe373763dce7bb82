"""A decode script of an icefall recipe, run as it is: with another LmScorer, and with its lattices kept.

Nothing in icefall is edited.  Lattices are what `beam_search.fast_beam_search` and `icefall.decode.get_lattice` give,
utterances those of the batch that the script's `decode_one_batch` is given, sets those that its `save_results` names,
or `save_asr_output`, which scripts have in its place since August 2024 (`save_wer_results` comes after it, or never).
Read were, of k2-fsa/icefall: egs/librispeech/ASR/zipformer/decode.py at commits 208839fb and 1730fce6, and
pruned_transducer_stateless2/beam_search.py at 00fefa2b.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from rescore.console import remark
from rescore.errors import RescoreError, UsageError
from rescore.file_names import file_name
from rescore.formats.k2 import write_lattices

GIVE_LATTICES = ("fast_beam_search", "get_lattice")
_WHERE = "run this where icefall runs, in its environment and with its folder on PYTHONPATH"
SAVE = ("save_asr_output", "save_results")  # the first that a script has is called once a set


def run_script(script: Path, arguments: list[str], scorer: type | None = None, lattices: Path | None = None) -> None:
    """Runs `main()` of the script with these arguments.

    Args:
      scorer: stands in for `icefall.LmScorer`.
      lattices: folder for `SET/FIRST_ID.pt`, a file a batch.
    Raises:
      UsageError: no such script, or one without `main`; no package icefall, or another that the script imports; a
        decoding method that asks for no scorer where one is given.
      RescoreError: the folder for lattices is in use, the script has no place to take them from, or its decoding method
        makes none.
    """
    if not script.is_file() or script.suffix != ".py":
        found = "is no Python script" if script.exists() else "no such file"
        raise UsageError(f"{script}: {found}, expected the decode.py of an icefall recipe")
    sys.path.insert(0, str(script.resolve().parent))
    sys.argv = [str(script), *arguments]
    made: list[Any] = []
    if scorer is not None:
        for name in ("icefall", "icefall.lm_wrapper"):
            _icefall(name).LmScorer = _noting(scorer, made)  # type: ignore[attr-defined]
    spec = importlib.util.spec_from_file_location("icefall_recipe_decode", script)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
    except ModuleNotFoundError as error:
        raise UsageError(f"{script}: {error}; {_WHERE}") from None
    if not hasattr(module, "main"):
        raise UsageError(f"{script}: has no main(), expected the decode.py of an icefall recipe")
    if lattices is not None:
        _Keeper(lattices).watch(module, script)
    if scorer is not None and hasattr(module, "decode_one_batch"):
        module.decode_one_batch = _expecting(made, module.decode_one_batch)  # type: ignore[attr-defined]
    module.main()


def _noting(scorer: type, made: list[Any]) -> type:
    """The class; those of it that are made go into `made`."""

    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        scorer.__init__(self, *args, **kwargs)  # type: ignore[misc]
        made.append(self)

    return type(scorer.__name__, (scorer,), {"__init__": init})


def _expecting(made: list[Any], function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, which is refused where nothing is in `made` by then."""

    @functools.wraps(function)
    def decode_one_batch(*args: Any, **kwargs: Any) -> Any:
        if not made:
            raise UsageError(
                "--zoo-lm: the script has made no LmScorer, so no LM of the zoo would take part; take a decoding "
                "method that asks for one, such as modified_beam_search_lm_shallow_fusion, or leave --zoo-lm out"
            )
        return function(*args, **kwargs)

    return decode_one_batch


def _icefall(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise UsageError(f"icefall cannot be imported ({error}); {_WHERE}") from None


class _Keeper:
    """Writes the lattices of a run; those of the set that is under way are in `folder/.now`."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.now = folder, folder / ".now"
        self.ids: list[str] = []
        self.written = 0
        if folder.exists() and any(folder.iterdir()):
            raise RescoreError(f"{folder}: exists already; remove it first, or name a new folder")

    def watch(self, module: ModuleType, script: Path) -> None:
        owners = [owner for owner in (module, sys.modules.get("beam_search")) if owner is not None]
        found = [(owner, name) for owner in owners for name in GIVE_LATTICES if hasattr(owner, name)]
        save = next((name for name in SAVE if hasattr(module, name)), None)
        if not found or not hasattr(module, "decode_one_batch") or save is None:
            raise RescoreError(
                f"{script}: no lattices to keep, expected one of {', '.join(GIVE_LATTICES)}, one of {', '.join(SAVE)}, "
                "and decode_one_batch"
            )
        for owner, name in found:
            setattr(owner, name, self._keeping(getattr(owner, name)))
        module.decode_one_batch = self._knowing(module.decode_one_batch)  # type: ignore[attr-defined]
        setattr(module, save, self._closing(getattr(module, save)))

    def _knowing(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def decode_one_batch(*args: Any, **kwargs: Any) -> Any:
            batch = kwargs["batch"] if "batch" in kwargs else next(arg for arg in args if isinstance(arg, dict))
            self.ids = [cut.id for cut in batch["supervisions"]["cut"]]
            result = function(*args, **kwargs)
            if not self.now.exists():  # told at once: the whole of a set may take hours
                raise RescoreError("this decoding method makes no lattice; take one such as fast_beam_search")
            return result

        return decode_one_batch

    def _keeping(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def give_lattice(*args: Any, **kwargs: Any) -> Any:
            lattice = function(*args, **kwargs)
            self.now.mkdir(parents=True, exist_ok=True)
            write_lattices(lattice, self.ids, self.now / f"{file_name(self.ids[0])}.pt")
            self.written += len(self.ids)
            return lattice

        return give_lattice

    def _closing(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def save(*args: Any, **kwargs: Any) -> Any:
            name = kwargs["test_set_name"] if "test_set_name" in kwargs else args[1]
            if not self.now.exists():
                raise RescoreError(f"set {name}: no batch was decoded, so there are no lattices")
            self.now.rename(self.folder / name)
            remark(f"{self.written} lattices kept in {self.folder / name}")
            self.written = 0
            return function(*args, **kwargs)

        return save
