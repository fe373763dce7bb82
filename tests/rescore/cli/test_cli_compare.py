"""`rescore compare` from end to end."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from rescore.cli.main import cli
from rescore.errors import ReferencesError, UsageError


def run(*args: object) -> str:
    return CliRunner().invoke(cli, [str(arg) for arg in args], catch_exceptions=False).stdout


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "ref").write_text("a THE CAT SAT\nb YES\n")
    (tmp_path / "one").write_text("a THE HAT SAT DOWN\nb YES\n")
    (tmp_path / "two").write_text("a THE CAT SAT\nb YES\n")
    return tmp_path


def test_table_markdown_and_json(folder: Path) -> None:
    systems = (f"one={folder / 'one'}", f"two={folder / 'two'}")
    out = run("compare", "--ref", folder / "ref", *systems, "--json", folder / "t.json")
    assert "50.00" in out and "p against one" in out and "p against two" not in out
    content = json.loads((folder / "t.json").read_text())
    assert [(row["name"], row["wer"]) for row in content["rows"]] == [("one", 50.0), ("two", 0.0)]
    assert content["how"]["ref"]["file"] == "ref" and len(content["how"]["ref"]["sha256"]) == 64
    assert str(folder) not in (folder / "t.json").read_text()
    out = run("compare", "--ref", folder / "ref", "--markdown", "--against", "two", *systems)
    assert out.startswith("| system | WER % |") and "p against two" in out


def test_characters(folder: Path) -> None:
    """THE/HAT/SAT/DOWN against THE/CAT/SAT: one substitution, four insertions; `<unk>` is one character."""
    (folder / "lists.jsonl").write_text(
        "".join(
            json.dumps({"utt_id": utt_id, "hyps": [{"words": words.split(), "scores": {"am": 0.0}} for words in texts]})
            + "\n"
            for utt_id, texts in {"a": ["<unk> HE CAT", "THE CATSAT"], "b": ["Y E S"]}.items()
        )
    )
    systems = (f"one={folder / 'one'}", f"lists={folder / 'lists.jsonl'}")
    out = run("compare", "--ref", folder / "ref", *systems, "--cer", "--markdown", "--json", folder / "t.json")
    assert out.startswith("| system | CER % |") and "2 utterances, 12 characters." in out
    one, lists = json.loads((folder / "t.json").read_text())["rows"]
    assert (one["sub"], one["ins"], one["words"]) == (1, 4, 12)
    assert (lists["errors"], lists["oracle_wer"]) == (4 + 3 - 3, 0.0)
    (folder / "text").write_text("THE CAT\n")
    run("count", "--text", folder / "text", "--out", folder / "counts")
    with pytest.raises(UsageError, match="rescore count --characters"):
        run("compare", "--ref", folder / "ref", *systems, "--cer", "--tail", folder / "counts")


def test_bad_input(folder: Path) -> None:
    with pytest.raises(UsageError, match="expected NAME=HYP"):
        run("compare", "--ref", folder / "ref", folder / "one")
    (folder / "two").write_text("a THE\n")
    with pytest.raises(ReferencesError, match="hypotheses of 'two'"):
        run("compare", "--ref", folder / "ref", f"one={folder / 'one'}", f"two={folder / 'two'}")


def test_help_has_an_example() -> None:
    assert "Example: rescore compare" in run("compare", "-h")
