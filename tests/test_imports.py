"""Who may know whom: floors of rooms, no circles, packages in one direction, heavy packages imported lazily.

An upper room knows those below it, never the other way, types and imports inside functions included.
"""

from __future__ import annotations

import ast
import builtins
import gc
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("rescore", "lm_zoo", "asr")

# Floors from the top: a folder or a module; rooms on one floor do not know each other.
FLOORS: dict[str, list[tuple[str, ...]]] = {
    "rescore": [
        ("__main__", "k2_rescoring"),  # the latter is an old name
        ("api", "cli"),
        ("workflows",),
        ("formats", "tuning"),
        ("lattices",),
        ("evaluation", "sharing", "weights"),
        ("files", "text"),
        ("file_names", "skipping", "types", "waiting", "workers"),
        ("shown",),
        ("console", "tables", "errors"),
    ],
    "lm_zoo": [
        ("icefall_scorer",),  # an old name
        ("icefall", "testing", "training"),
        ("identity",),
        ("registry",),
        ("models", "plugins"),
        ("inference",),
        ("ngram",),
        ("base",),
        ("text",),
        ("layers",),
        ("hub", "safe_unpickle"),
        ("allowance", "model_folder"),
        ("files", "reading"),
        ("deadline", "errors"),
    ],
    "asr": [
        ("__main__",),
        ("cli",),
        ("decoding", "training"),
        ("dataset",),
        ("model", "seq2seq"),
        ("errors",),
    ],
}

# What a package may know of another: rooms, or one module of a room.  What is not named knows nothing of the others.
ZOO = (
    "lm_zoo.hub",
    "lm_zoo.identity",
    "lm_zoo.safe_unpickle",
    "lm_zoo.text.coverage",
    "lm_zoo.base",
    "lm_zoo.deadline",
    "lm_zoo.errors",
    "lm_zoo.files",
    "lm_zoo.inference",
    "lm_zoo.ngram",
    "lm_zoo.reading",
)
NEIGHBOURS: dict[str, tuple[str, ...]] = {
    "rescore": (*ZOO, "lm_zoo.registry"),
    "rescore.api": ("lm_zoo",),
    "rescore.cli": ("lm_zoo",),
    "rescore.workflows": (*ZOO, "lm_zoo.registry", "lm_zoo.text"),
    "asr": (
        "lm_zoo.allowance",
        "lm_zoo.base",
        "lm_zoo.errors",
        "lm_zoo.files",
        "lm_zoo.identity",
        "lm_zoo.inference.devices",
        "lm_zoo.inference.history_cache",
        "lm_zoo.inference.viewed",
        "lm_zoo.layers.dropout",
        "lm_zoo.layers.positions",
        "lm_zoo.layers.processor",
        "lm_zoo.reading",
        "lm_zoo.registry",
        "lm_zoo.safe_unpickle",
        "lm_zoo.text",
        "lm_zoo.training",
        "lm_zoo.model_folder",
        "rescore.__version__",
        "rescore.cli.device",
        "rescore.cli.door",
        "rescore.cli.lazy",
        "rescore.cli.normalise",
        "rescore.cli.numbers",
        "rescore.cli.outputs",
        "rescore.cli.processes",
        "rescore.cli.results",
        "rescore.cli.settings",
        "rescore.cli.sharing",
        "rescore.console",
        "rescore.errors",
        "rescore.evaluation",
        "rescore.file_names",
        "rescore.files",
        "rescore.formats",
        "rescore.lattices",
        "rescore.sharing",
        "rescore.skipping",
        "rescore.types",
        "rescore.workers",
    ),
}

# Packages that are imported inside functions only, and where.
LAZY = {
    "k2": ("rescore.formats.k2_load", "rescore.lattices.k2_compose", "asr"),
    "kenlm": ("lm_zoo.ngram.kenlm_lm",),
    "lhotse": ("asr",),
    "tensorboard": ("lm_zoo",),
    "transformers": ("lm_zoo.models.hf_causal", "lm_zoo.models.hf_load"),
    "huggingface_hub": ("lm_zoo.hub",),
    "peft": ("lm_zoo.models.hf_load",),
    "wandb": ("lm_zoo.training.wandb_log",),
    "matplotlib": ("rescore.workflows.curves",),
    "num2words": ("lm_zoo.text.spoken",),
    "whisper_normalizer": ("lm_zoo.text.normalise",),
    "pocketsphinx": (),
    "onnxruntime": ("asr.seq2seq.session",),
    "moonshine_voice": (),
    "ttspico": ("asr.dataset.synthesis",),
    "espeakng_loader": ("asr.dataset.synthesis",),
}


# Calls by which a file is written; and the modules that do so themselves, not by `lm_zoo.files`.
WRITERS = (".write_text", ".write_bytes", "torch.save", "np.save", ".rename")
WRITING = {
    "lm_zoo.files",  # for all
    "lm_zoo.training.checkpoint",  # two renames, of the old folder and the new one
    "rescore.cli.door",  # standard output that is gone
    "rescore.workflows.icefall_decode",  # the folder of a set that is whole
    "rescore.sharing.parts",  # parts of a run, into one temporary file
}


BUILTINS = {name for name in dir(builtins) if not name.startswith("_")}

# Classes of one name, in the order of the modules, and why they have it.
SAME_NAME = {
    "Lattice": ["rescore.api.lattices", "rescore.types"],  # the user's, which has the other one inside
}


def module_of(file: Path) -> str:
    return ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


@cache
def files() -> dict[str, Path]:
    """Module -> file, of all packages."""
    return {module_of(file): file for package in PACKAGES for file in sorted((ROOT / package).rglob("*.py"))}


@cache
def tree_of(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"), str(file))


@pytest.fixture(autouse=True, scope="module")
def trees_are_dropped() -> Iterator[None]:
    """Collections of garbage look through millions of objects, again and again: none while they grow."""
    gc.disable()
    yield
    tree_of.cache_clear()
    gc.enable()


def imports(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """`(module, line)` of every import; `from a import b` gives `a.b`, since `b` may be a module."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: relative import; this project writes them in full"
            yield from ((f"{node.module}.{alias.name}", node.lineno) for alias in node.names)


def at_import(tree: ast.AST) -> Iterator[ast.stmt]:
    """The statements that run when the module is imported: those in no function and not for the type checker alone."""
    for node in ast.iter_child_nodes(tree):
        checker = isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
        if isinstance(node, ast.stmt) and not checker and not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node
            yield from at_import(node)


def eager(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """As `imports`, of those that run when the module is imported."""
    for node in at_import(tree):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            yield from imports(node)


@cache
def imports_of(file: Path) -> list[tuple[str, int]]:
    return list(imports(tree_of(file)))


@cache
def eager_of(file: Path) -> set[tuple[str, int]]:
    return set(eager(tree_of(file)))


@cache
def known() -> dict[str, dict[str, int]]:
    """Module -> modules of the packages that it imports anywhere, with a line."""
    graph: dict[str, dict[str, int]] = {}
    for module, file in files().items():
        found = graph.setdefault(module, {})
        for name, line in imports_of(file):
            while name and name not in files():
                name = name.rpartition(".")[0]
            if name and name != module:
                found.setdefault(name, line)
    return graph


def within(module: str, rooms: tuple[str, ...]) -> bool:
    return any(module == room or module.startswith(f"{room}.") for room in rooms)


def room_of(module: str) -> tuple[str, str]:
    package, _, rest = module.partition(".")
    return package, rest.split(".")[0]


def test_every_module_is_in_a_room_of_the_plan() -> None:
    planned = {(package, room) for package, floors in FLOORS.items() for floor in floors for room in floor}
    assert {room_of(module) for module in files()} - {(package, "") for package in PACKAGES} == planned


def test_upper_rooms_know_lower_ones_and_never_the_other_way() -> None:
    floor_of = {
        (package, room): floor
        for package, floors in FLOORS.items()
        for floor, rooms in enumerate(floors)
        for room in rooms
    }
    found = [
        f"{module}:{line} imports {other}"
        for module, others in known().items()
        for other, line in others.items()
        if room_of(module) in floor_of and room_of(other) in floor_of and room_of(module)[0] == room_of(other)[0]
        if room_of(module) != room_of(other) and floor_of[room_of(module)] >= floor_of[room_of(other)]
    ]
    assert found == []


def test_packages_know_the_agreed_rooms_of_others() -> None:
    found = []
    for module, file in files().items():
        package, room = room_of(module)
        allowed = NEIGHBOURS.get(f"{package}.{room}", NEIGHBOURS.get(package, ()))
        for name, line in imports_of(file):
            other = name.split(".")[0]
            if other in {*PACKAGES, "egs", "demo", "tests"} - {package} and not within(name, allowed):
                found.append(f"{module}:{line} imports {name}")
    assert found == []


def test_there_is_no_circle() -> None:
    """Modules that know none that is left, or that none that is left knows, are taken away; circles are what stays."""
    left = {module: set(others) for module, others in known().items()}
    while True:
        wanted = set().union(*left.values())
        kept = {module for module, others in left.items() if others & left.keys() and module in wanted}
        if len(kept) == len(left):
            break
        left = {module: left[module] & kept for module in kept}
    assert left == {}


def test_names_are_imported_from_where_they_are_defined() -> None:
    defined = {module: set(_defined(tree_of(file))) for module, file in files().items()}
    found = [
        f"{file.relative_to(ROOT)}:{node.lineno} imports {alias.name} from {node.module}, which has it from elsewhere"
        for folder in (*PACKAGES, "tests", "benchmarks", "demo")
        for file in (ROOT / folder).rglob("*.py")
        for node in ast.walk(tree_of(file))
        if isinstance(node, ast.ImportFrom) and node.module in defined
        for alias in node.names
        if f"{node.module}.{alias.name}" not in files() and alias.name not in defined[node.module]
    ]
    assert found == []


def test_no_class_name_has_two_meanings() -> None:
    """`rescore.api`, the Python face, has the names of what it stands for."""
    homes: dict[str, list[str]] = {}
    for module, file in files().items():
        if not within(module, ("rescore.api",)):
            for node in ast.walk(tree_of(file)):
                if isinstance(node, ast.ClassDef):
                    homes.setdefault(node.name, []).append(module)
    assert {name: modules for name, modules in homes.items() if len(modules) > 1} == {}


def _defined(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            yield node.name
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id


def test_no_helper_is_there_twice() -> None:
    """No two functions of four lines or more do the same, line by line; the docstring does not count."""
    places: dict[str, list[str]] = {}
    for module, file in files().items():
        for node in ast.walk(tree_of(file)):
            if isinstance(node, ast.FunctionDef):
                body = node.body[1:] if ast.get_docstring(node) else node.body
                lines = "\n".join(map(ast.unparse, body))
                if lines.count("\n") >= 3:
                    places.setdefault(lines, []).append(f"{module}.{node.name}")
    assert [names for names in places.values() if len(names) > 1] == []


def test_a_name_means_one_thing() -> None:
    """No class is called as another one is, and no function or class of a module as a builtin."""
    places: dict[str, list[str]] = {}
    shadows = []
    for module, file in files().items():
        for node in tree_of(file).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places.setdefault(node.name, []).append(module)
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and node.name in BUILTINS:
                shadows.append(f"{module}.{node.name}")
    assert shadows == []
    assert {name: found for name, found in places.items() if len(found) > 1} == SAME_NAME


@pytest.mark.parametrize("package", LAZY)
def test_optional_packages_are_imported_in_their_place_and_lazily(package: str) -> None:
    found = []
    for module, file in files().items():
        top = {line for name, line in eager_of(file) if name.split(".")[0] == package}
        for name, line in imports_of(file):
            if name.split(".")[0] == package and (line in top or not within(module, LAZY[package])):
                found.append(f"{module}:{line} imports {name}")
    assert found == []


def writes(tree: ast.AST) -> bool:
    """Whether a file is opened for writing, written or renamed without the help of `lm_zoo.files`."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        called, constants = ast.unparse(node.func), [arg.value for arg in node.args if isinstance(arg, ast.Constant)]
        opened = called == "open" and len(node.args) > 1 and str(constants[-1:]).strip("[]'")[:1] in ("w", "a", "x")
        if opened or called.endswith(WRITERS) or called in ("os.replace", "os.rename", "soundfile.write", "save_file"):
            return True
    return False


def test_one_module_writes() -> None:
    assert {module for module, file in files().items() if writes(tree_of(file))} == WRITING


def test_packed_files_are_opened_in_one_place() -> None:
    """`lm_zoo.reading` bounds what they become; `lm_zoo.files` writes them, `lm_zoo.safe_unpickle` reads zips."""
    packed = ("gzip", "lzma", "bz2", "zipfile")
    found = {module for module, file in files().items() if any(name in packed for name, _ in imports_of(file))}
    assert found == {"lm_zoo.reading", "lm_zoo.files", "lm_zoo.safe_unpickle"}


def test_a_lazy_import_is_told_from_an_eager_one() -> None:
    tree = ast.parse("import k2\nif True:\n    import lhotse\ndef f():\n    from kenlm import Model\n")
    assert [module for module, _ in eager(tree)] == ["k2", "lhotse"]
    assert [module for module, _ in imports(tree)] == ["k2", "lhotse", "kenlm.Model"]


def test_every_room_says_what_lives_there() -> None:
    """The `__init__.py` of a folder is a docstring: what lives there, and what it may know."""
    for module, file in files().items():
        if file.name == "__init__.py":
            lines = (ast.get_docstring(tree_of(file)) or "").splitlines()
            assert lines and lines[0].endswith("."), f"{module}: no line that says what lives there"
