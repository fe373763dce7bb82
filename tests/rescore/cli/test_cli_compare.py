"""`rescore compare` from end to end."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from rescore.cli.main import cli
from rescore.errors import ReferencesError, UsageError


def run_all(*args: object) -> Result:
    return CliRunner().invoke(cli, [str(arg) for arg in args], catch_exceptions=False)


def run(*args: object) -> str:
    return run_all(*args).stdout


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
    both = run_all("compare", "--ref", folder / "ref", f"one={folder / 'one'}", "--markdown", "--latex")
    assert both.exit_code == 2 and "--markdown and --latex are given, expected one of them" in both.output


def test_help_has_an_example() -> None:
    assert "Example: rescore compare" in run("compare", "-h")


SIGNATURE = (
    r"WER\|norm:none\|utts:2\|words:4\|ref:[0-9a-f]{8}\|ci:bootstrap95\|samples:10000\|seed:3\|test:mapsswe2\|version:"
)


@pytest.mark.parametrize("form", ["--latex", "--csv", "--markdown", None])
def test_every_form_has_the_signature(folder: Path, form: str | None) -> None:
    systems = (f"one_1={folder / 'one'}", f"two={folder / 'two'}")
    out = run("compare", "--ref", folder / "ref", *systems, "--seed", 3, *([form] if form else []))
    assert re.search(SIGNATURE, out)


def test_other_utterances_in_common_have_another_signature(folder: Path) -> None:
    def signed(*lines: str) -> str:
        (folder / "some").write_text("\n".join(lines) + "\n")
        out = run("compare", "--ref", folder / "ref", "--utterances", "common", f"some={folder / 'some'}")
        return str(re.sub(r"words:\d", "", out.splitlines()[-1]))

    first, second, whole = signed("a THE CAT SAT"), signed("b YES"), signed("a THE CAT SAT", "b YES")
    assert re.match(r"WER\|norm:none\|utts:1\|common:[0-9a-f]{8}\|", first)
    assert first != second and "common:" not in whole


def test_latex(folder: Path) -> None:
    out = run("compare", "--ref", folder / "ref", f"a_b|c={folder / 'one'}", f"two={folder / 'two'}", "--latex")
    lines = out.splitlines()
    assert lines[0].startswith("% WER|") and lines[1] == r"\begin{tabular}{lrrrrrrrr}" and lines[-1] == r"\end{tabular}"
    assert lines[3].startswith(r"system & WER \% & 95 \% interval &") and lines[5].startswith(r"a\_b$|$c & 50.00 & ")
    assert "--" in lines[5].split(" & ")[2] and all(line.endswith(r" \\") for line in (lines[3], *lines[5:7]))


def test_latex_takes_no_name_for_an_option(folder: Path) -> None:
    out = run("compare", "--ref", folder / "ref", f"[1]={folder / 'one'}", f"*={folder / 'two'}", "--latex")
    assert [line.partition(" & ")[0] for line in out.splitlines()[5:7]] == ["{}[1]", "{}*"]


def test_csv(folder: Path) -> None:
    out = run("compare", "--ref", folder / "ref", f"a,b={folder / 'one'}", f"two={folder / 'two'}", "--csv")
    first, second = csv.DictReader(io.StringIO(out))
    assert (first["name"], first["wer"], first["errors"], first["p_against_a,b"]) == ("a,b", "50.0", "2", "")
    assert (second["wer"], second["relative"]) == ("0.0", "-100.0") and float(second["p_against_a,b"]) < 1


def test_json_alone_on_standard_output(folder: Path) -> None:
    out = run("compare", "--ref", folder / "ref", f"one={folder / 'one'}", "--json", "-")
    assert json.loads(out)["how"]["signature"].startswith("WER|norm:none|")
