"""Scripts of recipes and tools as modules."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[1]


def load_script(path: str) -> ModuleType:
    """The module in ROOT/PATH, which finds those beside it, as it does when it is run."""
    spec = importlib.util.spec_from_file_location(Path(path).stem, ROOT / path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str((ROOT / path).parent))
        patch.setitem(sys.modules, spec.name, module)  # where dataclasses look for types
        spec.loader.exec_module(module)
    return module
