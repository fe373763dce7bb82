"""Links between the pages of the documentation lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.pages import PAGES, ROOT, name


def anchors(page: Path) -> set[str]:
    """The names under which GitHub shows the headings of a page."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", [*PAGES, *sorted(ROOT.glob("egs/**/RESULTS.md"))], ids=name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if target.startswith(("http:", "https:", "mailto:")):
            continue
        file, _, anchor = target.partition("#")
        path = page.parent / file if file else page
        assert path.exists(), f"{page}: {target}"
        assert not anchor or anchor in anchors(path), f"{page}: {target}"


def test_the_benchmarks_begin_with_a_screen_of_summary() -> None:
    head, first, *_ = (ROOT / "BENCHMARKS.md").read_text().split("\n## ")
    assert first.startswith("In short\n") and head.count("\n") <= 2 and first.count("\n") <= 35
