"""LMs of others: `package.module:Class?option=value`, or a name that an installed package gives by an entry point.

Entry points are of the group `rescore.lms`; each names a class, or a function, that is called with the options as
keyword arguments, all strings, and gives a `LanguageModel`.
"""

from __future__ import annotations

import importlib
import inspect
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from lm_zoo.base import LanguageModel
from lm_zoo.errors import ModelError

GROUP = "rescore.lms"
_PLACE = re.compile(r"([A-Za-z_][\w.]*):([A-Za-z_]\w*)")


@dataclass(frozen=True)
class PlugIn:
    """Where an LM is, and its options.

    Attributes:
      name: the class's, or that of the entry point.
    """

    name: str
    module: str
    attribute: str
    options: tuple[tuple[str, str], ...]

    @property
    def where(self) -> str:
        return f"{self.module}:{self.attribute}"

    def load(self) -> LanguageModel:
        """Makes the LM.

        Raises:
          ModelError: the module, the class or an option is not there, or what is made is no `LanguageModel`.
        """
        make, options = self._callable(), dict(self.options)
        try:
            inspect.signature(make).bind(**options)
        except TypeError as error:
            known = ", ".join(inspect.signature(make).parameters) or "none"
            raise ModelError(f"{self.where}: the options do not fit ({error}); it has: {known}") from None
        lm = make(**options)
        if not isinstance(lm, LanguageModel):
            raise ModelError(f"{self.where} gives a {type(lm).__name__}, expected a lm_zoo.base.LanguageModel")
        check_methods(lm)
        return lm

    def files(self) -> Iterator[Path]:
        """The module's file, and the files and folders that options name."""
        self._callable()
        yield from map(Path, filter(None, [sys.modules[self.module].__file__]))
        yield from (Path(value) for _, value in self.options if value and Path(value).exists())

    def _callable(self) -> Callable[..., Any]:
        module = _imported(self.module)
        found = getattr(module, self.attribute, None)
        if not callable(found):
            known = [
                name
                for name, value in vars(module).items()
                if inspect.isclass(value) and value.__module__ == self.module
            ]
            raise ModelError(
                f"{self.where}: no class '{self.attribute}' in {module.__file__}; it has: {', '.join(known)}"
            )
        made: Callable[..., Any] = found
        return made


def check_methods(lm: LanguageModel) -> None:
    """Raises a ModelError unless the LM has the methods for which there is no default, with the arguments they get."""
    for name, arguments in (("score_words", ("sentences", "max_unknown")), ("knows", ("word",))):
        method, expected = getattr(type(lm), name), f"expected {name}(self, {', '.join(arguments)})"
        if method is getattr(LanguageModel, name):
            raise ModelError(f"a {type(lm).__name__} has no {name}; {expected}, as docs/bring-your-lm.md has it")
        try:
            inspect.signature(method).bind(lm, *arguments)  # some callers name the last one
            inspect.signature(method).bind(lm, arguments[0], **dict.fromkeys(arguments[1:]))
        except TypeError:
            found = f"{name}{inspect.signature(method)}"
            raise ModelError(f"a {type(lm).__name__} has {found}; {expected}") from None


def plug_in(name: str) -> PlugIn | None:
    """The LM that `name` means as `package.module:Class?option=value` or as a name of an entry point; None: neither.

    Raises:
      ModelError: options that are not `NAME=VALUE`, with `&` between them, each name once.
    """
    body, mark, query = name.partition("?")
    found = _PLACE.fullmatch(body) or _PLACE.fullmatch(installed().get(body, ""))
    if found is None:
        return None
    pairs = [part.partition("=") for part in query.split("&")] if mark else []
    if not all(key and equals for key, equals, _ in pairs) or len({key for key, *_ in pairs}) < len(pairs):
        raise ModelError(f"{name}: found the options '{query}', expected NAME=VALUE, joined by '&', each name once")
    options = tuple((key, value) for key, _, value in pairs)
    return PlugIn(found[2] if body == found[0] else body, found[1], found[2], options)


@cache
def installed() -> dict[str, str]:
    """Name -> `module:attribute` of the LMs that installed packages bring."""
    return {point.name: point.value for point in entry_points(group=GROUP)}


def _imported(module: str) -> Any:
    """The module, looked for in the working folder too, behind all other places."""
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.append(here)
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise  # a package that the module itself needs
        raise ModelError(f"there is no Python module '{module}'; expected package.module:Class") from None
