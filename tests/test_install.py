"""The set-up scripts: finding CPython 3.10, and taking files out of packages."""

from __future__ import annotations

import hashlib
import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from rescore.errors import K2_INSTALL
from tests.needs import missing, pinned

ROOT = Path(__file__).resolve().parents[1]
BASICS = "/usr/bin:/bin"


def executable(path: Path, script: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A copy of the tools alone, so that nothing is written into this checkout."""
    tools = tmp_path / "checkout" / "tools"
    tools.mkdir(parents=True)
    for name in ("find_python.sh", "fetch.py"):
        (tools / name).write_text((ROOT / "tools" / name).read_text())
    return tmp_path / "checkout"


def find_python(checkout: Path, path: str, home: Path) -> subprocess.CompletedProcess[str]:
    """Runs the script with nothing but `path` and a package index that does not exist."""
    env = {"PATH": path, "HOME": str(home), "PIP_INDEX_URL": (checkout / "no-index").as_uri()}
    script = str(checkout / "tools" / "find_python.sh")
    return subprocess.run(["/bin/sh", script], env=env, capture_output=True, text=True)


# A stand-in for an interpreter: passes the script's check and says where it is.
FAKE = 'case "$2" in *executable*) echo "$0" ;; esac'
needs_no_python310 = pytest.mark.skipif(
    any(Path(folder, "python3.10").exists() for folder in BASICS.split(":")), reason="the system has a python3.10"
)


def test_a_python_on_the_path_is_taken(checkout: Path, tmp_path: Path) -> None:
    executable(tmp_path / "bin" / "python3.10", FAKE)
    found = find_python(checkout, f"{tmp_path / 'bin'}:{BASICS}", tmp_path)
    assert (found.returncode, found.stdout.strip()) == (0, str(tmp_path / "bin" / "python3.10"))


def test_a_shim_that_does_not_run_is_passed_over(checkout: Path, tmp_path: Path) -> None:
    executable(tmp_path / "shims" / "python3.10", "exit 127")
    executable(tmp_path / "bin" / "python3.10", FAKE)
    found = find_python(checkout, f"{tmp_path / 'shims'}:{tmp_path / 'bin'}:{BASICS}", tmp_path)
    assert found.stdout.strip() == str(tmp_path / "bin" / "python3.10")


@needs_no_python310
def test_pyenv_is_asked(checkout: Path, tmp_path: Path) -> None:
    executable(tmp_path / "shims" / "python3.10", "exit 127")
    executable(tmp_path / "shims" / "pyenv", f"[ $1 = root ] && echo {tmp_path}/pyenv")
    executable(tmp_path / "pyenv" / "versions" / "3.10.4" / "bin" / "python", FAKE)
    found = find_python(checkout, f"{tmp_path / 'shims'}:{BASICS}", tmp_path)
    assert found.stdout.strip() == f"{tmp_path}/pyenv/versions/3.10.4/bin/python"


@needs_no_python310
def test_pyenv_that_is_not_on_the_path_is_found_too(checkout: Path, tmp_path: Path) -> None:
    executable(tmp_path / ".pyenv" / "versions" / "3.10.13" / "bin" / "python", FAKE)
    found = find_python(checkout, BASICS, tmp_path)
    assert found.stdout.strip() == f"{tmp_path}/.pyenv/versions/3.10.13/bin/python"


@needs_no_python310
def test_uv_is_the_last_way(checkout: Path, tmp_path: Path) -> None:
    executable(tmp_path / "managed" / "python3.10", FAKE)
    executable(tmp_path / "bin" / "uv", f'[ "$2" = find ] && echo {tmp_path}/managed/python3.10; exit 0')
    found = find_python(checkout, f"{tmp_path / 'bin'}:{BASICS}", tmp_path)
    assert found.stdout.strip() == f"{tmp_path}/managed/python3.10"


@needs_no_python310
def test_one_clear_error_when_there_is_none(checkout: Path, tmp_path: Path) -> None:
    executable(tmp_path / "bin" / "uv", "exit 2")
    found = find_python(checkout, f"{tmp_path / 'bin'}:{BASICS}", tmp_path)
    assert found.returncode == 1 and found.stdout == ""
    assert found.stderr.startswith("No usable CPython 3.10 found")
    for way in ("apt install python3.10", "pyenv install 3.10", "uv python install 3.10", "conda create"):
        assert way in found.stderr


@pytest.fixture
def index(tmp_path: Path) -> Iterator[str]:
    """A package index with one project of a wheel and a tar archive."""
    folder = tmp_path / "index"
    (folder / "book").mkdir(parents=True)
    with zipfile.ZipFile(folder / "book" / "book-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("book/text.txt", "of the wheel")
    with tarfile.open(folder / "book" / "book-1.0.tar.gz", "w:gz") as tar:
        member = tarfile.TarInfo("book-1.0/text.txt")
        member.size = 6
        tar.addfile(member, io.BytesIO(b"of tar"))
    names = ("book-1.0-py3-none-any.whl", "book-1.0.tar.gz")
    links = "".join(f'<a href="{name}#sha256=0">{name}</a>' for name in names)
    (folder / "book" / "index.html").write_text(links)
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder)))
    Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


def fetch(index: str, *words: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PIP_INDEX_URL": index, "no_proxy": "*"}
    script = str(ROOT / "tools" / "fetch.py")
    return subprocess.run([sys.executable, script, *words], env=env, capture_output=True, text=True)


@pytest.mark.parametrize(
    ("archive", "member", "text"),
    [("book-1.0-py3", "book/text.txt", "of the wheel"), ("book-1.0.tar.gz", "book-1.0/text.txt", "of tar")],
)
def test_fetch_takes_one_file(index: str, tmp_path: Path, archive: str, member: str, text: str) -> None:
    target = tmp_path / "new" / "text.txt"
    done = fetch(index, "book", archive, member, str(target), hashlib.sha256(text.encode()).hexdigest())
    assert (done.returncode, done.stderr) == (0, "")
    assert target.read_text() == text


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("book", "book-2.0", "x"), "no file book-2.0*"),
        (("book", "book-1.0.tar.gz", "x"), "book-1.0.tar.gz: no file x inside"),
        (("nothing", "book-1.0.tar.gz", "x"), "is the package index reachable?"),
    ],
)
def test_fetch_says_what_is_missing(index: str, tmp_path: Path, words: tuple[str, ...], message: str) -> None:
    done = fetch(index, *words, str(tmp_path / "text.txt"))
    assert done.returncode == 1 and message in done.stderr and "Traceback" not in done.stderr
    assert not (tmp_path / "text.txt").exists()


def test_fetch_refuses_another_text(index: str, tmp_path: Path) -> None:
    done = fetch(index, "book", "book-1.0.tar.gz", "book-1.0/text.txt", str(tmp_path / "text.txt"), "0" * 64)
    assert "expected 0000" in done.stderr and not (tmp_path / "text.txt").exists()


K2 = ROOT / "tools" / "requirements-k2.txt"


def test_k2_is_one_file_by_its_hash_wherever_its_install_is_told() -> None:
    """pip takes k2's files for five Pythons for valid ones, also those that cannot be imported."""
    digest = re.search(r"^k2==1\.23\.4 --hash=(sha256:[0-9a-f]{64})$", K2.read_text(), re.MULTILINE)
    assert digest and f"--hash={digest[1]}" in K2_INSTALL
    for folder in ("rescore", "lm_zoo", "asr", "egs", "demo", "tools"):
        for file in (ROOT / folder).rglob("*.*"):
            if file.suffix in (".py", ".sh", ".md", ".txt") and file != K2:
                assert not re.search(r"pip install '?k2|^k2==", file.read_text(encoding="utf-8"), re.MULTILINE), file
    assert "k2==" not in (ROOT / "setup.py").read_text()


@pytest.mark.parametrize(
    ("imported", "forced", "ends"), [(0, False, 0), (1, True, 1)], ids=["a good k2", "a k2 of another Python"]
)
def test_make_venv_imports_k2_and_ends_where_it_cannot(
    checkout: Path, tmp_path: Path, imported: int, forced: bool, ends: int
) -> None:
    """With a stand-in for Python, whose `import k2` succeeds or not."""
    for name in ("make_venv.sh", "requirements-py310.txt", "requirements-k2.txt"):
        (checkout / "tools" / name).write_text((ROOT / "tools" / name).read_text())
    executable(
        checkout / "venv" / "bin" / "python",
        f'echo "$@" >>{tmp_path}/calls\ncase "$*" in *version_info*) echo 3 10 ;; '
        f'"-c import k2") exit {imported} ;; *--version) echo pip 23.0 ;; esac',
    )
    shutil.copy(checkout / "venv" / "bin" / "python", tmp_path / "python")
    for tool in ("c++", "cmake"):
        executable(tmp_path / "bin" / tool, "exit 0")
    words = ["/bin/sh", "tools/make_venv.sh", "venv", "tools/requirements-py310.txt", str(tmp_path / "python")]
    env = {"PATH": f"{tmp_path / 'bin'}:{BASICS}"}
    done = subprocess.run([*words, "tools/requirements-k2.txt"], cwd=checkout, env=env, capture_output=True, text=True)
    assert done.returncode == ends and (checkout / "venv" / ".ready").exists() == (not ends)
    calls = (tmp_path / "calls").read_text()
    assert ("--force-reinstall -r tools/requirements-k2.txt" in calls) == forced
    assert ends == 0 or "k2 was installed from tools/requirements-k2.txt, but cannot be imported" in done.stderr


def test_a_skip_for_want_of_a_pinned_package_fails(tmp_path: Path) -> None:
    ready = tmp_path / ".ready"
    assert pinned(ready) == set()
    ready.write_text("# for k2\ntorch==1.13.1\nkaldi-native-fbank==1.0\nk2==1.23.4 --hash=sha256:0\nkenlm==1\n")
    packages = pinned(ready)
    assert packages == {"torch", "kaldi_native_fbank", "k2", "kenlm"}
    for reason, package in (
        ("Skipped: could not import 'k2': No module named '_k2'", "k2"),
        ("Skipped: k2: No module named '_k2'", "k2"),
        ("Skipped: k2 cannot be imported", "k2"),
        ("Skipped: n-gram LMs need kenlm", "kenlm"),
        ("Skipped: could not import 'kaldi_native_fbank': x", "kaldi_native_fbank"),
        ("Skipped: could not import 'transformers': x", None),
        ("Skipped: this torch has no Muon", None),
        ("Skipped: the developers' data folder ../shared/data is not here", None),
    ):
        assert missing(reason, packages) == package, reason


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["module", "test"])
def test_pytest_fails_for_it(tmp_path: Path, kind: str) -> None:
    """In an environment that says it has a package which cannot be imported."""
    skip = "pytest.importorskip('no_such_package')"
    body = f"import pytest\n{skip}\ndef test_a(): pass\n" if kind == "module" else (
        f"import pytest\ndef test_a():\n    {skip}\n"
    )  # fmt: skip
    (tmp_path / "tests").mkdir()
    for name in ("conftest.py", "needs.py", "__init__.py"):
        (tmp_path / "tests" / name).write_text((ROOT / "tests" / name).read_text())
    (tmp_path / "tests" / "test_it.py").write_text(body)
    (tmp_path / ".ready").write_text("no-such-package==1\n")
    program = f"import sys, pytest; sys.prefix = {str(tmp_path)!r}; sys.exit(pytest.main(['-q', 'tests/test_it.py']))"
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode != 0 and "make venv installs no_such_package" in done.stdout
    (tmp_path / ".ready").unlink()
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode in (0, 5) and "1 skipped" in done.stdout


@pytest.mark.parametrize(
    ("version", "names", "extras"),
    [
        ("3.10", ("requirements-py310.txt", "requirements-k2.txt"), ("all",)),
        ("3.11", ("requirements-py311.txt",), ("asr", "gguf", "lora", "moonshine", "ngram", "pandas", "text", "train")),
    ],
)
def test_the_pins_satisfy_the_package_metadata(version: str, names: tuple[str, ...], extras: tuple[str, ...]) -> None:
    """Every requirement of setup.py that applies to this CPython has an exact pin that it allows."""
    metadata = pytest.importorskip("importlib.metadata")
    packaging = pytest.importorskip("packaging.requirements")
    try:
        wanted = metadata.requires("rescore") or []
    except metadata.PackageNotFoundError:
        pytest.skip("rescore itself is not installed here (make venv does it)")
    lines = "\n".join((ROOT / "tools" / name).read_text() for name in names).splitlines()
    pins = dict(line.split(" ")[0].split("==") for line in lines if line and not line.startswith("#"))
    here = {"python_version": version, "sys_platform": "linux", "platform_machine": "x86_64"}
    for text in wanted:
        requirement = packaging.Requirement(text)
        if requirement.marker is None or any(requirement.marker.evaluate({**here, "extra": name}) for name in extras):
            assert requirement.specifier.contains(pins[requirement.name]), text


@pytest.mark.parametrize("package", ["rescore", "lm_zoo", "asr"])
def test_types_are_installed(package: str) -> None:
    """PEP 561: without the marker, type checkers take everything for Any."""
    program = (
        "from distutils.core import run_setup\n"
        f"print(*run_setup('setup.py', stop_after='init').package_data['{package}'])"
    )
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", f"import setuptools\n{program}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    found = [file.name for pattern in done.stdout.split() for file in (ROOT / package).glob(pattern)]
    assert "py.typed" in found and ("__init__.pyi" in found) == (package == "rescore")
