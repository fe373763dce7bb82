"""The page of `rescore report` in a browser: search, order, what opens, escaping, no error, no network."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from urllib.parse import unquote

import pytest
from click.testing import CliRunner

from rescore.cli.main import cli
from rescore.workflows.report.analyses import FREQUENCIES, label
from rescore.workflows.report.charts import bar_chart
from tests.browser import Page, find_browser
from tests.rescore.runs import LM, write_inputs

pytestmark = pytest.mark.slow

LATER = "new Promise(done => setTimeout(done, 300))"
IDS = "[...document.querySelectorAll('#list .id')].map(each => each.textContent)"
CHANGES = "[...document.querySelectorAll('#list .open')].map(each => each.children[2].textContent)"


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    program = find_browser()
    if program is None:
        pytest.skip("no Chromium on this machine")
    folder = tmp_path_factory.mktemp("run")
    write_inputs(folder, dev=12, test=120)
    places = [{"words": [["HE", 0.75], ["", 0.25]]}, {"words": [["<b>", 1.0]]}]
    (folder / "mbr.jsonl").write_text(json.dumps({"utt_id": "test-000", "risk": 0.25, "places": places}) + "\n")
    (folder / "wav.scp").write_text("test-000 audio/a b.wav\n")
    before = Path.cwd()
    os.chdir(folder)
    try:
        inputs = ["--dev", "dev.jsonl.gz", "--test", "test.jsonl.gz", "--ref", "text", "--lm", LM]
        more = ["--hyps", "2", "--word-scores", "--audio", "wav.scp", "--networks", "mbr.jsonl"]
        for line in (["run", *inputs, "--out", "out"], ["report", "out", "--out", "page.html", *more]):
            result = CliRunner().invoke(cli, line)
            assert result.exit_code == 0, result.output
    finally:
        os.chdir(before)
    opened = Page(program, tmp_path_factory.mktemp("profile"))
    opened.open((folder / "page.html").as_uri())
    yield opened
    opened.close()


def choose(page: Page, name: str, value: str) -> None:
    page.ask(
        f"{{ const it = document.getElementById('{name}'); it.value = '{value}'; "
        "it.dispatchEvent(new Event('change')); it.dispatchEvent(new Event('input')); }"
    )
    page.ask(LATER)


def count(page: Page) -> str:
    return str(page.ask("document.getElementById('count').textContent"))


def test_search_filter_and_order(page: Page) -> None:
    choose(page, "kind", "all")
    assert count(page) == "120 of 120 utterances"
    choose(page, "sort", "id")
    ids = page.ask(IDS)
    assert len(ids) == 50 and ids == sorted(ids)
    choose(page, "search", "TEST-01")
    assert count(page) == "10 of 120 utterances"
    choose(page, "search", "went home")
    assert count(page) == "20 of 120 utterances"
    choose(page, "search", "")
    choose(page, "sort", "fixed")
    assert page.ask(CHANGES)[0].endswith("fixed")
    choose(page, "kind", "fixed")
    assert all(said.endswith("fixed") for said in page.ask(CHANGES))
    choose(page, "before", "2")
    choose(page, "after", "1")
    assert count(page) == "0 of 120 utterances"
    choose(page, "kind", "broken")
    assert all(said.endswith("broken") for said in page.ask(CHANGES)) and page.ask(CHANGES)
    choose(page, "before", "1")
    choose(page, "after", "2")


def test_pages_and_keys(page: Page) -> None:
    choose(page, "kind", "all")
    choose(page, "sort", "id")
    first = page.ask(IDS)[0]
    for key, shown in (("n", "page 2 of 3"), ("p", "page 1 of 3")):
        page.ask(f"document.body.dispatchEvent(new KeyboardEvent('keydown', {{key: '{key}', bubbles: true}}))")
        assert page.ask("document.getElementById('page').textContent") == shown
    assert page.ask(IDS)[0] == first
    page.ask("document.body.dispatchEvent(new KeyboardEvent('keydown', {key: 'j', bubbles: true}))")
    assert page.ask("document.activeElement.querySelector('.id').textContent") == first
    page.ask("document.activeElement.dispatchEvent(new KeyboardEvent('keydown', {key: '/', bubbles: true}))")
    assert page.ask("document.activeElement.id") == "search"


def test_an_utterance_opens(page: Page) -> None:
    choose(page, "kind", "all")
    choose(page, "search", "test-000")
    # The third click comes before the lists of the first are unpacked.
    page.ask("for (let click = 0; click < 3; click++) document.querySelector('.open').click()")
    page.until("document.querySelector('.hyps')")
    assert page.ask("document.querySelector('.open').getAttribute('aria-expanded')") == "true"
    heads = page.ask("[...document.querySelectorAll('.hyps thead th')].map(each => each.textContent)")
    assert heads == ["#", "errors", "total", "am", "toy", "words", "words"]
    assert page.ask("document.querySelectorAll('.hyps tbody')[0].rows.length") == 2
    caption = page.ask("document.querySelector('.hyps caption').textContent")
    assert caption == "natural log-probability of each word, as toy sees it"
    network = page.ask("[...document.querySelectorAll('.network td')].map(each => each.textContent)")
    assert network == ["HE 0.75", "<b> 1.00", "\u2013 0.25", ""]
    assert page.ask("document.querySelector('audio').getAttribute('src')") == "audio/a%20b.wav"
    page.ask("document.querySelector('.open').click()")
    assert page.ask("document.querySelectorAll('.hyps').length") == 0
    choose(page, "search", "")


def test_words_and_ids_are_text(page: Page) -> None:
    choose(page, "kind", "all")
    choose(page, "search", "<script>")
    assert count(page) == "20 of 120 utterances"
    cells = page.ask("[...document.querySelectorAll('.align td')].map(each => each.textContent)")
    assert "<script>alert(1)</script>" in cells and "</script>" in cells and "&" in cells
    choose(page, "search", "test-001<b>&")
    assert page.ask(IDS) == ["test-001<b>&"]
    assert page.ask("document.querySelectorAll('main b, #list script').length") == 0
    choose(page, "search", "")


def test_dark_and_light(page: Page) -> None:
    colours = []
    for _ in range(2):
        page.ask("document.getElementById('theme').click()")
        colours.append(page.ask("getComputedStyle(document.body).backgroundColor"))
    assert sorted(colours) == ["rgb(22, 24, 26)", "rgb(255, 255, 255)"]


def test_text_from_right_to_left(page: Page) -> None:
    address = page.ask("location.href")
    file = Path(unquote(address.removeprefix("file://")))
    hebrew = file.with_name("hebrew.html")
    hebrew.write_text(file.read_text().replace("THEY WENT HOME", "הם הלכו הביתה"))
    page.open(hebrew.as_uri())
    choose(page, "kind", "all")
    for said, direction in (("הביתה", "rtl"), ("he said so", "ltr")):
        choose(page, "search", said)
        places = "[...document.querySelector('.align tr').querySelectorAll('td')].map(each => each.offsetLeft)"
        found = page.ask(places)
        assert len(found) > 2 and found == sorted(found, reverse=direction == "rtl")
        sides = "(it => [it.getBoundingClientRect().right, it.parentNode.getBoundingClientRect().right])"
        line, room = page.ask(f"{sides}(document.querySelector('.align'))")
        assert (line == pytest.approx(room, abs=1)) == (direction == "rtl")
        page.ask("document.querySelector('.open').click()")
        page.until("document.querySelector('.hyps')")
        minus, digit = page.ask(
            "[0, 1].map(at => { const it = document.createRange(), text = "
            "document.querySelector('.hyps caption ~ tr td.n').firstChild; "
            "it.setStart(text, at); it.setEnd(text, at + 1); "
            "return [it.toString(), it.getBoundingClientRect().left]; })"
        )
        assert minus[0] == "-" and digit[0].isdigit() and minus[1] < digit[1]
    page.open(address)


def test_characters_are_found_without_the_blanks_between_them(page: Page) -> None:
    address = page.ask("location.href")
    file = Path(unquote(address.removeprefix("file://")))
    chinese = file.with_name("chinese.html")
    text = file.read_text().replace("THEY WENT HOME", "今 天 气").replace('"unit":"word"', '"unit":"character"')
    chinese.write_text(text)
    page.open(chinese.as_uri())
    choose(page, "kind", "all")
    for wanted in ("天气", "天 气", "今天气"):
        choose(page, "search", wanted)
        assert count(page) == "20 of 120 utterances"
    page.open(address)


def test_on_paper(page: Page) -> None:
    """White, whatever the screen shows, and no line longer than the paper is broad."""
    address = page.ask("location.href")
    file = Path(unquote(address.removeprefix("file://")))
    long = file.with_name("paper.html")
    long.write_text(file.read_text().replace("THEY WENT HOME", " ".join(3 * ["COMPLICATED" * 3])))
    widest = "Math.max(...[...document.querySelectorAll('.align')].map(each => each.offsetWidth))"
    page.open(address)
    page.ask("document.documentElement.dataset.theme = 'dark'")
    page.call("Emulation.setEmulatedMedia", media="print")
    assert page.ask("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    page.call("Emulation.setEmulatedMedia", media="")
    page.open(long.as_uri())
    choose(page, "kind", "all")
    choose(page, "search", "COMPLICATED")
    page.ask("document.querySelector('.open').click()")
    page.until("document.querySelector('.hyps')")
    assert page.ask(widest) > 660
    page.ask("dispatchEvent(new Event('beforeprint'))")
    assert page.ask(widest) <= 660
    page.ask("dispatchEvent(new Event('afterprint'))")
    assert page.ask(widest) > 660
    assert page.ask("document.querySelectorAll('.hyps').length") > 0  # what was open stays so
    page.open(address)


def test_a_line_in_focus_is_not_behind_the_controls(page: Page) -> None:
    choose(page, "kind", "all")
    choose(page, "search", "")
    for key in 20 * "j" + 12 * "k":
        page.ask(f"document.activeElement.dispatchEvent(new KeyboardEvent('keydown', {{key: '{key}', bubbles: true}}))")
        page.ask("new Promise(done => requestAnimationFrame(done))")
    controls = page.ask("document.querySelector('.controls').getBoundingClientRect().bottom")
    assert page.ask("document.activeElement.getBoundingClientRect().top") >= controls > 0
    page.ask("document.activeElement.blur(); scrollTo(0, 0)")


def test_labels_of_bars_stand_apart_on_a_phone(page: Page) -> None:
    address = page.ask("location.href")
    chart = bar_chart([(label(*limits), [1.0]) for limits in FREQUENCIES], ["one"], "x", "y")
    try:
        page.call("Emulation.setDeviceMetricsOverride", width=320, height=700, deviceScaleFactor=1, mobile=True)
        page.ask(f"document.querySelector('figure').innerHTML = {json.dumps(chart)}")
        boxes = page.ask(
            "[...document.querySelector('figure').querySelectorAll('text')].slice(-7, -2)"
            ".map(each => each.getBoundingClientRect()).map(each => [each.left, each.right])"
        )
        assert len(boxes) == 5 and all(one[1] < other[0] for one, other in pairwise(boxes))
    finally:
        page.call("Emulation.clearDeviceMetricsOverride")
    page.open(address)


@pytest.mark.parametrize("width", [320, 360])
def test_a_phone_shows_it_without_scrolling_sideways(page: Page, width: int) -> None:
    address = page.ask("location.href")
    file = Path(unquote(address.removeprefix("file://")))
    long = file.with_name("long.html")
    long.write_text(file.read_text().replace("THEY WENT HOME", "EXTRAORDINARY COMPLICATED CIRCUMSTANCES"))
    tables = "[...document.querySelectorAll('#list li:first-child .align')].map(each => each.offsetWidth)"
    page.open(long.as_uri())
    choose(page, "kind", "all")
    choose(page, "search", "EXTRAORDINARY")
    assert len(page.ask(tables)) == 1
    try:
        page.call("Emulation.setDeviceMetricsOverride", width=width, height=700, deviceScaleFactor=1, mobile=True)
        page.until(f"document.documentElement.clientWidth === {width}")
        page.ask(LATER)
        assert page.ask("document.documentElement.scrollWidth") == width
        assert len(page.ask(tables)) > 1 and max(page.ask(tables)) <= page.ask(
            "document.getElementById('list').clientWidth"
        )
        assert page.ask(
            "[...document.querySelectorAll('figure')].every(each => each.getBoundingClientRect().right <= innerWidth)"
        )
        page.ask("document.querySelector('#list').scrollIntoView()")
        assert page.ask("document.querySelector('.controls').getBoundingClientRect().bottom <= 1")
    finally:
        page.call("Emulation.clearDeviceMetricsOverride")
    page.open(address)


def test_no_error_and_no_network(page: Page) -> None:
    assert page.errors == []
    assert page.ask("performance.getEntriesByType('resource').length") == 0
