"""Error rates of README and of the page of results are those of the recipes' own pages."""

from __future__ import annotations

import re

import pytest

from tests.docs.pages import ROOT

SOURCES = [*sorted(ROOT.glob("egs/**/RESULTS.md")), ROOT / "demo" / "README.md"]
RATE = re.compile(r"\b(\d+\.\d\d)(?: \(| \| )(\d+\.\d\d-\d+\.\d\d)\b")  # with its 95 % interval


def figures(text: str) -> list[tuple[str, str]]:
    return RATE.findall(text.replace("*", ""))


@pytest.mark.parametrize(("page", "least"), [("README.md", 20), ("docs/results.md", 30)])
def test_error_rates_are_those_of_their_recipes(page: str, least: int) -> None:
    lines = [line for source in SOURCES for line in source.read_text(encoding="utf-8").splitlines()]
    found = figures((ROOT / page).read_text(encoding="utf-8"))
    assert len(found) >= least
    for rate, interval in found:
        whole = [re.compile(rf"(?<![\d.]){re.escape(number)}(?![\d.])") for number in (rate, interval)]
        assert any(all(number.search(line) for number in whole) for line in lines), f"{rate} ({interval})"
