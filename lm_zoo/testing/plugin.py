"""The options of the suite.  pytest loads this wherever the package is installed, so nothing is imported but pytest."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("lm_zoo", "the suite of lm_zoo.testing")
    group.addoption("--lm", metavar="NAME", help="LM to test: package.module:Class?option=value, a folder, a name.")
    group.addoption("--lm-words", metavar="WORDS", help="Words that it knows, three or more, with blanks between them.")
