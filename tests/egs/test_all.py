"""Every recipe on disk: its scripts explain themselves, its settings are known, it imports and repeats no other."""

from __future__ import annotations

import ast
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import click
import pytest
import yaml

from asr.model.config import load_config
from rescore.cli.recipe import read_defaults
from rescore.errors import UsageError
from tests.egs.conftest import ROOT

EGS = ROOT / "egs"
MADE = ("data", "exp", "download")  # what recipes make
LONGEST = 80  # lines of a recipe's file; more belongs into the packages, or into egs/shared
ENTRY = 3  # lines of a function that may stand in two recipes


def found(*patterns: str) -> list[Path]:
    """The files of all recipes that fit a pattern, without what recipes make."""
    paths = {path for pattern in patterns for path in EGS.glob(f"**/{pattern}") if path.is_file()}
    return sorted(path for path in paths if not any(part.startswith(MADE) for part in path.relative_to(EGS).parts[:-1]))


def label(path: Path) -> str:
    return str(path.relative_to(EGS))


def recipe_of(path: Path) -> Path:
    """The folder of the recipe: `egs/CORPUS/{ASR,LM}`, or `egs/NAME`."""
    parts = path.relative_to(EGS).parts
    return EGS.joinpath(*parts[: 2 if len(parts) > 1 and parts[1] in ("ASR", "LM") else 1])


FILES = found("*.sh", "*.py", "*.yaml", "*.json")
SCRIPTS, PROGRAMS = ([path for path in FILES if path.suffix == suffix] for suffix in (".sh", ".py"))
CONFS = [path for path in FILES if path.suffix in (".yaml", ".json")]
STARTED = [path for path in SCRIPTS if path.read_text(encoding="utf-8").startswith("#!")]  # the others are sourced
RECIPES = sorted({recipe_of(path) for path in SCRIPTS} - {EGS / "shared"})
CORPORA = [folder for folder in RECIPES if folder.name in ("ASR", "LM")]


class Entry(NamedTuple):
    """`main(command, conf)` in a Python file."""

    command: click.Command
    conf: Path


def entry(path: Path) -> Entry | None:
    """What a Python entry runs, and its settings; None for another program."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and ast.unparse(node.func) == "main"]
    if not any(isinstance(node, ast.ImportFrom) and node.module == "rescore.cli.recipe" for node in tree.body):
        return None
    conf = calls[0].args[1]
    assert isinstance(conf, ast.Constant), f"{label(path)}: expected main(command, 'conf/FILE.yaml')"
    return Entry(runpy.run_path(str(path), run_name="entry")["command"], path.parent / conf.value)


def reads(conf: Path, command: click.Command) -> str:
    """What is wrong with a YAML file of this command's options, values included; empty if nothing is."""
    try:
        defaults, _ = read_defaults(conf, command)
        context = click.Context(command)
        for item in command.params:
            if item.name in defaults:
                item.type_cast_value(context, defaults[item.name])
    except (UsageError, click.ClickException) as error:
        return f"{command.callback.__module__ if command.callback else ''}: {error}"
    return ""


def test_recipes_are_found() -> None:
    names = {label(folder) for folder in RECIPES}
    assert {"librispeech/ASR", "librispeech/LM", "ptb/LM", "kaldi", "icefall", "pocketsphinx"} <= names
    assert len(CONFS) > 30 and len(STARTED) > 15


@pytest.mark.parametrize("script", SCRIPTS, ids=label)
def test_scripts_are_bash(script: Path) -> None:
    done = subprocess.run(["bash", "-n", script], stderr=subprocess.PIPE, text=True)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("script", SCRIPTS, ids=label)
def test_numbers_have_points_in_every_locale(script: Path) -> None:
    """In German `sort -n` takes 5.31 for 5, and mawk writes 1,5 for 1.5: where they see numbers, they are in C."""
    numeric = re.compile(r"(LC_ALL=C )?\b(sort (?=[^|]*-\S*n|[^|]*-k\S*n)|awk \"BEGIN)")
    for line in script.read_text(encoding="utf-8").splitlines():
        assert all(found[1] for found in numeric.finditer(line)), line


def test_an_old_bash_is_refused_in_one_line(tmp_path: Path) -> None:
    """`BASH_VERSINFO` cannot be set, so a copy of the check asks for another name."""
    check = (EGS / "shared" / "bash.sh").read_text().replace("BASH_VERSINFO", "found").replace("BASH_VERSION", "said")
    (tmp_path / "run.sh").write_text(f"set -eu\n. ./versions.sh\n{check}\necho on\n")
    for versions, code, output in (("3 2", 2, ""), ("4 3", 2, ""), ("4 4", 0, "on\n"), ("5 2", 0, "on\n")):
        (tmp_path / "versions.sh").write_text(f"found=({versions})\nsaid={versions.replace(' ', '.')}\n")
        done = subprocess.run(["bash", "run.sh"], cwd=tmp_path, capture_output=True, text=True)
        assert (done.returncode, done.stdout) == (code, output)
        assert not code or re.fullmatch(r"run.sh: found bash [34.]*[23], expected 4.4 or newer; .*\n", done.stderr)


@pytest.mark.parametrize("script", STARTED, ids=label)
def test_scripts_explain_themselves(script: Path, tmp_path: Path) -> None:
    assert os.access(script, os.X_OK)
    command = ["bash", os.path.relpath(script, tmp_path), "--help"]  # from a folder that is not the script's
    done = subprocess.run(command, cwd=tmp_path, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert "Usage: " in done.stdout and script.name in done.stdout


@pytest.mark.parametrize("program", PROGRAMS, ids=label)
def test_programs_explain_themselves(
    program: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", [str(program), "--help"])
    monkeypatch.syspath_prepend(str(program.parent))  # as where it is started
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(program), run_name="__main__")
    assert ended.value.code == 0 and "Usage: " in capsys.readouterr().out
    assert entry(program) is None or os.access(program, os.X_OK)


@pytest.mark.parametrize("conf", CONFS, ids=label)
def test_configurations_load(conf: Path) -> None:
    """A YAML file is for the entry that has one of its name by default, else for one that trains."""
    if conf.suffix == ".json":
        load_config(conf)
        return
    entries = {path.stem: runs for path in recipe_of(conf).glob("*.py") if (runs := entry(path))}
    named = [each for each in entries.values() if each.conf.stem == conf.stem]
    takers = named or [each for name, each in entries.items() if name.startswith("train")]
    problems = [reads(conf, each.command) for each in takers]
    assert takers and not all(problems), problems
    name = (yaml.safe_load(conf.read_text(encoding="utf-8")) or {}).get("config")
    if name:
        load_config(recipe_of(conf) / name if name.endswith(".json") else name)


@pytest.mark.parametrize("program", PROGRAMS, ids=label)
def test_the_settings_of_an_entry_are_there(program: Path) -> None:
    runs = entry(program)
    assert runs is None or (runs.conf.is_file() and reads(runs.conf, runs.command) == "")


@pytest.mark.parametrize("folder", CORPORA, ids=label)
def test_a_recipe_of_a_corpus_is_complete(folder: Path) -> None:
    expected = {"prepare.sh", "run.sh", "train.py", "conf", "README.md", "RESULTS.md"}
    expected |= {"decode.py" if folder.name == "ASR" else "rescore.sh"}
    assert expected - {path.name for path in folder.iterdir()} == set()
    for script in ("prepare.sh", "run.sh"):
        lines = (folder / script).read_text(encoding="utf-8").splitlines()
        assert {"stage=0"} <= set(lines) and any(line.startswith("stop_stage=") for line in lines)
    assert "once " in "".join(path.read_text(encoding="utf-8") for path in sourced(folder / "prepare.sh"))


@pytest.mark.parametrize("folder", CORPORA, ids=label)
def test_stages_of_preparation_tell_time_and_size(folder: Path) -> None:
    """In the title, before they run; `run_stage` tells both afterwards, the size of what it is given."""
    lines = (folder / "prepare.sh").read_text(encoding="utf-8").splitlines()
    stages = [line.split("run_stage ")[1] for line in lines if "run_stage " in line]
    assert len(stages) >= 2
    for stage in stages:
        assert re.fullmatch(r'\d+ ".*\(.*(second|minute|hour).*\)" \w+ \S+', stage), stage
        assert re.search(r"\d [MG]B", stage), stage


def sourced(script: Path) -> list[Path]:
    """A script and the files of egs/shared that it sources but recipe.sh, which every one does."""
    lines = script.read_text(encoding="utf-8").splitlines()
    names = [line.rsplit("/", 1)[1] for line in lines if line.startswith(". ../../shared/")]
    assert "recipe.sh" in names
    return [script, *(EGS / "shared" / name for name in names if name != "recipe.sh")]


@pytest.mark.parametrize("folder", RECIPES, ids=label)
def test_a_recipe_has_a_readme(folder: Path) -> None:
    assert (folder / "README.md").is_file()


@pytest.mark.parametrize("folder", RECIPES, ids=label)
def test_files_are_short(folder: Path) -> None:
    files = [path for path in FILES if recipe_of(path) == folder and EGS / "shared" not in path.resolve().parents]
    lengths = {label(path): len(path.read_text(encoding="utf-8").splitlines()) for path in files}
    assert {name: lines for name, lines in lengths.items() if lines > LONGEST} == {}


@pytest.mark.parametrize("program", PROGRAMS, ids=label)
def test_no_recipe_imports_another(program: Path) -> None:
    own = {path.stem for path in program.parent.glob("*.py")}
    others = {path.stem for path in PROGRAMS} - own
    tree = ast.parse(program.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or "."]
            assert not {name.split(".")[0] for name in names} & (others | {"egs", "", "importlib"}), names
        assert not (isinstance(node, ast.Attribute) and ast.unparse(node) == "sys.path")


def logic(function: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    """The body of a function without its docstring, names being numbered in the order in which they come."""
    body = function.body[1:] if ast.get_docstring(function) is not None else function.body
    numbers: dict[str, int] = {}
    arguments = [item.arg for item in ast.walk(function.args) if isinstance(item, ast.arg)]
    for name in arguments:
        numbers.setdefault(name, len(numbers))
    tree = ast.parse(ast.unparse(ast.Module(body, [])))
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            node.id = f"name{numbers.setdefault(node.id, len(numbers))}"
    return ast.unparse(tree)


def repeated(programs: list[Path]) -> list[list[str]]:
    """Functions of more than a few lines that stand in several files; a link is the file that it leads to."""
    places: dict[str, list[str]] = {}
    for program in sorted({path.resolve() for path in programs}):
        for node in ast.walk(ast.parse(program.read_text(encoding="utf-8"))):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                body = logic(node)
                if len(body.splitlines()) > ENTRY:
                    places.setdefault(body, []).append(f"{program.name}:{node.lineno} {node.name}")
    return [names for names in places.values() if len(names) > 1]


def test_no_logic_is_repeated() -> None:
    assert repeated(PROGRAMS) == []


def test_code_outside_functions_is_an_entry() -> None:
    """A docstring, imports, constants, and a call where the file is run: no logic that could be repeated."""
    plain = (ast.Import, ast.ImportFrom, ast.Assign, ast.AnnAssign, ast.FunctionDef, ast.ClassDef, ast.Expr)
    for program in PROGRAMS:
        *body, last = ast.parse(program.read_text(encoding="utf-8")).body
        assert all(isinstance(node, plain) for node in body), label(program)
        assert isinstance(last, ast.If) and len(last.body) <= ENTRY and not last.orelse, label(program)


def test_repeated_logic_is_seen_under_other_names(tmp_path: Path) -> None:
    body = "{0} = []\n    for {1} in {2}:\n        {0}.append({1} + 1)\n    return {0}\n"
    for name, words in {"one": ("out", "x", "rows"), "two": ("result", "value", "items")}.items():
        (tmp_path / f"{name}.py").write_text(f'def {name}({words[2]}):\n    """{name}"""\n    {body.format(*words)}')
    (tmp_path / "three.py").write_text("def one(rows):\n    return rows\n")
    (tmp_path / "four.py").symlink_to(tmp_path / "three.py")
    assert repeated(sorted(tmp_path.glob("*.py"))) == [["one.py:1 one", "two.py:1 two"]]
