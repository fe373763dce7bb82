"""The demo's own parts; nothing here is synthesised from a real book or fetched."""

from __future__ import annotations

import importlib
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

DEMO = Path(__file__).resolve().parents[2] / "demo"

BOOK = """A licence text with CHAPTER I. in the list of contents... no, not even there.

CHAPTER I. In the Garden

'Look!' said the gardener to the boy,--'there are nine ripe pears on that old tree--and one in the grass.'
The boy did not even look up at them. He had seen PEARS before, many of them.

     A verse about a pear that hangs,
     and hangs, and falls, and lies.

She was born in 1850 and had never left the house (so they said) until now.

CHAPTER II. In the House

Nobody answered when the two of them knocked at the heavy old door.

* * *

THE END
"""


@pytest.fixture
def demo(monkeypatch: pytest.MonkeyPatch) -> dict[str, ModuleType]:
    monkeypatch.syspath_prepend(str(DEMO))
    names = ("text", "steps")
    for name in names:
        sys.modules.pop(name, None)
    modules = {name: importlib.import_module(name) for name in names}
    for name in names:
        monkeypatch.delitem(sys.modules, name)
    return modules


def test_chapters_without_verse_and_headings(demo: dict[str, ModuleType]) -> None:
    chapters = demo["text"].chapters(BOOK.partition("\n\n")[2])
    assert list(chapters) == [1, 2]
    assert "verse" not in chapters[1] and "Garden" not in chapters[1] and "THE END" not in chapters[2]
    (sentence,) = demo["text"].sentences(chapters[2])
    assert sentence.startswith("Nobody answered") and sentence.endswith("heavy old door.")


def test_sentences_end_at_marks_before_a_capital(demo: dict[str, ModuleType]) -> None:
    found = demo["text"].sentences("One went there. 'Two came back!' said he. (Three\nstayed?) Four.\n\nFive")
    assert found == ["One went there.", "'Two came back!' said he.", "(Three stayed?", "Four.", "Five"]


def test_spoken_and_reference(demo: dict[str, ModuleType]) -> None:
    sentence = "'Oh, there's NO need--not yet!' said the well-known _Mr_ O'Hara; \"none.\""
    assert demo["text"].spoken(sentence) == "Oh, there's no need, not yet! said the well known Mr O'Hara; none."
    assert demo["text"].reference(sentence) == "OH THERE'S NO NEED NOT YET SAID THE WELL KNOWN MR O'HARA NONE"


def test_choice_is_usable_even_and_repeatable(demo: dict[str, ModuleType]) -> None:
    book = BOOK.partition("\n\n")[2]
    chosen = demo["text"].choose(book, range(1, 3), 3, "garden")
    assert chosen == demo["text"].choose(book, range(1, 3), 3, "garden")
    assert all(re.fullmatch(r"garden-0[12]-\d{4}", utt_id) for utt_id in chosen)
    assert all(8 <= len(demo["text"].reference(sentence).split()) <= 25 for sentence in chosen.values())
    assert not any("1850" in sentence for sentence in chosen.values())
    with pytest.raises(SystemExit, match=r"only .* usable sentences"):
        demo["text"].choose(book, range(1, 3), 100, "garden")


def test_a_step_is_done_once_and_again_when_its_inputs_change(demo: dict[str, ModuleType], tmp_path: Path) -> None:
    source, output, calls = tmp_path / "in", tmp_path / "out", []
    source.write_text("one")

    def action() -> None:
        calls.append(source.read_text())
        output.write_text("made")

    def run(setting: str = "") -> int:
        demo["steps"].Steps(tmp_path / "done", 1).run("step", "A step", [source], output, action, setting)
        return len(calls)

    assert [run(), run()] == [1, 1]
    source.write_text("two")
    assert [run(), run()] == [2, 2]
    assert [run("other"), run("other")] == [3, 3]
    output.unlink()
    assert run("other") == 4


def test_a_step_that_fails_is_not_taken_for_done(demo: dict[str, ModuleType], tmp_path: Path) -> None:
    steps = demo["steps"].Steps(tmp_path / "done", 2)
    (tmp_path / "out").write_text("half")
    with pytest.raises(SystemExit, match="ended with code 3"):
        steps.run("step", "A step", [], tmp_path / "out", ["python", "-c", "raise SystemExit(3)"])
    assert not (tmp_path / "done" / "step").exists()
    with pytest.raises(SystemExit, match="missing"):
        steps.run("next", "A step", [tmp_path / "nothing"], tmp_path / "out", ["python", "-c", ""])


def test_recogniser_writes_lattices_and_text(tmp_path: Path, demo: dict[str, ModuleType]) -> None:
    for package in ("pocketsphinx", "ttspico", "lhotse"):
        pytest.importorskip(package)
    from click.testing import CliRunner

    from asr.cli.main import cli
    from rescore.files import read_kaldi_text
    from rescore.formats import read_lattices

    (tmp_path / "ref.txt").write_text("utt NOBODY ANSWERED WHEN THEY KNOCKED AT THE DOOR\n")
    words = ["synthesise", str(tmp_path / "ref.txt"), str(tmp_path / "speech"), "--ids", "--pico", "1"]
    assert CliRunner().invoke(cli, words, catch_exceptions=False).exit_code == 0
    sys.path.insert(0, str(DEMO))
    try:
        recognise = importlib.import_module("recognise")
    finally:
        sys.path.remove(str(DEMO))
    words = ["--cuts", str(tmp_path / "speech" / "cuts.jsonl.gz"), "--out", str(tmp_path / "out"), "--jobs", "1"]
    assert CliRunner().invoke(recognise.main, words, catch_exceptions=False).exit_code == 0
    assert set(read_kaldi_text(tmp_path / "out" / "first.txt")) == {"utt"}
    (lattice,) = read_lattices(f"slf:{tmp_path / 'out' / 'lattices'}")
    assert lattice.utt_id == "utt" and lattice.num_arcs > 100


def test_every_system_of_the_demo_has_its_scores(demo: dict[str, ModuleType], monkeypatch: pytest.MonkeyPatch) -> None:
    """The scales given for a recogniser are those of scores that the demo makes."""
    monkeypatch.syspath_prepend(str(DEMO))
    run = importlib.import_module("run")
    of_lattices = [recogniser for recogniser in run.RECOGNISERS.values() if recogniser.lattices]
    assert len(of_lattices) == 2
    for recogniser in run.RECOGNISERS.values():
        assert set(recogniser.scales) == ({run.NGRAM, "words"} if recogniser.lattices else set())
        assert set(recogniser.lattice_scales) == ({run.NGRAM, run.BEST, "words"} if recogniser.lattices else set())
    monkeypatch.delitem(sys.modules, "run")
