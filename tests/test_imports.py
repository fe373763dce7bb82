"""Who may know whom: rescore -> lm_zoo; lm_zoo knows nothing of rescore; heavy packages are imported lazily."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("rescore", "lm_zoo", "asr")

# What the core of rescore may know of the zoo.
ZOO_OF_RESCORE = {"base", "budget", "devices", "errors", "files", "histories", "interpolation", "ngram", "precision"}
ZOO_OF_RESCORE |= {"coverage", "identity", "reading", "registry", "torch_file", "trie"}
# Commands may call any of the zoo's functions, and `rescore ppl` is the measuring of LMs itself.
ZOO_ALL = ("rescore/cli/", "rescore/perplexity.py")

# Packages that are imported inside functions only, and where.
LAZY = {
    "k2": ("rescore/formats/k2_load.py", "rescore/k2_rescoring.py", "asr/"),
    "kenlm": ("lm_zoo/ngram.py",),
    "lhotse": ("asr/",),
    "kaldiio": ("rescore/formats/", "asr/"),
    "tensorboard": ("lm_zoo/",),
    "transformers": ("lm_zoo/hf.py", "lm_zoo/hf_masked.py"),
    "pocketsphinx": (),
    "ttspico": ("asr/synthesis.py",),
    "espeakng_loader": ("asr/synthesis.py",),
}

WRITERS = (".write_text", ".write_bytes", "torch.save", "np.save", ".rename")
MAY_WRITE = {
    "lm_zoo/files.py",  # for all
    "lm_zoo/checkpoint.py",  # two renames, of the old folder and the new one
    "rescore/cli/door.py",  # standard output that is gone
    "rescore/icefall_run.py",  # the folder of a set that is whole
    "rescore/scoring.py",  # parts of a run, into one temporary file
}


def python_files(*packages: str) -> list[Path]:
    return sorted(file for package in packages for file in (ROOT / package).rglob("*.py"))


def imports(file: Path, top_level_only: bool = False) -> Iterator[tuple[str, int]]:
    """`(module, line)` of every import; `from a import b` gives `a.b`, since `b` may be a module."""
    tree = ast.parse(file.read_text(encoding="utf-8"), str(file))
    for node in top_level(tree) if top_level_only else ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}:{node.lineno}: relative import; this project writes them in full"
            yield from ((f"{node.module}.{alias.name}", node.lineno) for alias in node.names)


def top_level(tree: ast.AST) -> Iterator[ast.AST]:
    """All nodes that run when the module is imported: those in no function and not for the type checker alone."""
    for node in ast.iter_child_nodes(tree):
        checker = isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
        if not checker and not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            yield node
            yield from top_level(node)


def name(file: Path) -> str:
    return file.relative_to(ROOT).as_posix()


def violations(files: list[Path], forbidden: tuple[str, ...]) -> list[str]:
    return [
        f"{name(file)}:{line} imports {module}"
        for file in files
        for module, line in imports(file)
        if module.split(".")[0] in forbidden
    ]


def test_lm_zoo_knows_nothing_of_rescore_and_asr() -> None:
    assert violations(python_files("lm_zoo"), ("rescore", "asr", "egs", "demo")) == []


def test_rescore_does_not_know_asr() -> None:
    assert violations(python_files("rescore"), ("asr", "egs", "demo")) == []


def test_nothing_imports_recipes_or_demo() -> None:
    assert violations(python_files(*PACKAGES), ("egs", "demo", "tests")) == []


def test_core_of_rescore_knows_few_modules_of_the_zoo() -> None:
    found = [
        f"{name(file)}:{line} imports {module}"
        for file in python_files("rescore")
        if not name(file).startswith(ZOO_ALL)
        for module, line in imports(file)
        if module.split(".")[0] == "lm_zoo" and module.split(".")[1] not in ZOO_OF_RESCORE
    ]
    assert found == []


def test_asr_knows_the_agreed_modules_only() -> None:
    allowed = ("asr", "rescore.types", "rescore.formats", "rescore.errors", "rescore.console", "rescore.files")
    allowed += (
        "rescore.cli.door",
        "rescore.file_names",
        "rescore.cli.lazy",
        "rescore.cli.outputs",
        "rescore.cli.processes",
        "rescore.wer",
        "rescore.workers",
        "rescore.lattice",
        "rescore.nbest",
        "rescore.__version__",
    )
    allowed += ("lm_zoo.base", "lm_zoo.errors", "lm_zoo.registry", "lm_zoo.tokenizer", "lm_zoo.optimizers")
    allowed += ("lm_zoo.ranks", "lm_zoo.run_log", "lm_zoo.torch_file", "lm_zoo.histories", "lm_zoo.dropout")
    allowed += ("lm_zoo.files", "lm_zoo.reading", "lm_zoo.weights")
    found = [
        f"{name(file)}:{line} imports {module}"
        for file in python_files("asr")
        for module, line in imports(file)
        if module.split(".")[0] in PACKAGES and not module.startswith(allowed)
    ]
    assert found == []


@pytest.mark.parametrize("package", LAZY)
def test_optional_packages_are_imported_in_their_place_and_lazily(package: str) -> None:
    found = []
    for file in python_files(*PACKAGES):
        top = {line for module, line in imports(file, top_level_only=True) if module.split(".")[0] == package}
        for module, line in imports(file):
            if module.split(".")[0] == package and (line in top or not name(file).startswith(LAZY[package])):
                found.append(f"{name(file)}:{line} imports {module}")
    assert found == []


def writes(file: Path) -> Iterator[int]:
    """The lines on which a file is opened for writing, written or renamed without the help of `lm_zoo.files`."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.Call):
            continue
        called, constants = ast.unparse(node.func), [arg.value for arg in node.args if isinstance(arg, ast.Constant)]
        opened = called == "open" and len(node.args) > 1 and str(constants[-1:]).strip("[]'")[:1] in ("w", "a", "x")
        if opened or called.endswith(WRITERS) or called in ("os.replace", "os.rename", "soundfile.write", "save_file"):
            yield node.lineno


def test_one_module_writes() -> None:
    found = {name(file): list(writes(file)) for file in python_files(*PACKAGES)}
    assert {file for file, lines in found.items() if lines} == MAY_WRITE


def test_packed_files_are_opened_in_one_place() -> None:
    """`lm_zoo.reading` bounds what they become; `lm_zoo.files` writes them, `lm_zoo.torch_file` reads zips."""
    found = {
        (module, name(file))
        for file in python_files(*PACKAGES)
        for module, _ in imports(file)
        if module in ("gzip", "lzma", "bz2", "zipfile")
    }
    assert {file for _, file in found} == {"lm_zoo/reading.py", "lm_zoo/files.py", "lm_zoo/torch_file.py"}


def test_a_lazy_import_is_told_from_an_eager_one(tmp_path: Path) -> None:
    file = tmp_path / "module.py"
    file.write_text("import k2\nif True:\n    import lhotse\ndef f():\n    from kenlm import Model\n")
    assert [module for module, _ in imports(file, top_level_only=True)] == ["k2", "lhotse"]
    assert [module for module, _ in imports(file)] == ["k2", "lhotse", "kenlm.Model"]


def test_the_command_line_loads_no_heavy_package() -> None:
    """Help and argument checks are quick: importing every command loads neither torch nor an LM's packages."""
    program = (
        "import importlib, sys\n"
        "from rescore.cli.main import COMMANDS\n"
        "for name in COMMANDS: importlib.import_module('rescore.cli.' + name.replace('-', '_'))\n"
        "print(*sorted({module.split('.')[0] for module in sys.modules}))"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    heavy = {"torch", "numpy", "kenlm", "k2", "lhotse", "sentencepiece", "scipy", "kaldialign", "transformers"}
    assert heavy.intersection(done.stdout.split()) == set()
