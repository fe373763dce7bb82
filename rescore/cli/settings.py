"""Values of options NAME=VALUE, such as `--set dim=512`."""

from __future__ import annotations

from lm_zoo.reading import parse_json
from rescore.errors import UsageError

_PYTHON = {"True": True, "False": False}  # as Python writes what JSON has as true and false


def parse_settings(pairs: tuple[str, ...]) -> dict[str, object]:
    """`("dim=512", "tied=false")` -> typed values (JSON where it is JSON, or True or False, else a string)."""
    settings: dict[str, object] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals:
            raise UsageError(f"found '{pair}', expected NAME=VALUE such as dim=512")
        try:
            settings[name] = parse_json(value)
        except ValueError:
            settings[name] = _PYTHON.get(value, value)
    return settings
