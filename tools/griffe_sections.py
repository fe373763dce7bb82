"""For the reference of Python: griffe wants a blank line before each section of a docstring; ours have none."""

from __future__ import annotations

import re

import griffe

SECTION = re.compile(r"\n(?=(?:Args|Returns|Yields|Raises|Attributes|Example):\n)")


class Sections(griffe.Extension):
    """Puts a blank line before each section."""

    def on_object(self, *, obj: griffe.Object, **kwargs: object) -> None:
        if obj.docstring:
            obj.docstring.value = SECTION.sub("\n\n", obj.docstring.value)
