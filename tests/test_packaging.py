"""What is handed out: the source distribution, the wheel, their metadata, the changelog, the container."""

from __future__ import annotations

import fcntl
import os
import re
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from email import message_from_string
from email.message import Message
from pathlib import Path

import pytest

import rescore

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("rescore", "lm_zoo", "asr")


def run(*words: object, cwd: Path = ROOT) -> str:
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run([str(word) for word in words], cwd=cwd, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def extras() -> set[str]:
    """The extras of setup.py; setuptools puts those with a condition under names with a colon."""
    program = (
        "import setuptools\nfrom distutils.core import run_setup\n"
        "print(*run_setup('setup.py', stop_after='init').extras_require, sep='\\n')"
    )
    names = run(sys.executable, "-W", "ignore", "-c", program).splitlines()
    return {name.partition(":")[0] for name in names} - {""}


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source distribution, unpacked."""
    folder = tmp_path_factory.mktemp("sdist")
    words = ["-q", "egg_info", "--egg-base", folder, "sdist", "--formats", "tar", "--dist-dir", folder]
    with (ROOT / "setup.py").open() as alone:  # setuptools collects the files in a folder of the tree
        fcntl.flock(alone, fcntl.LOCK_EX)
        run(sys.executable, "-W", "ignore", "setup.py", *words)
    (archive,) = folder.glob("*.tar")
    assert archive.name == f"rescore-{rescore.__version__}.tar"
    with tarfile.open(archive) as tar:
        tar.extractall(folder)
    return folder / archive.stem


@pytest.fixture(scope="module")
def wheel(source: Path) -> Path:
    """The wheel that is made of the source distribution alone."""
    words = ["-q", "--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", source.parent, source]
    run(sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel", *words)
    (made,) = source.parent.glob("*.whl")
    return made


@pytest.fixture(scope="module")
def metadata(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        name = next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return message_from_string(archive.read(name).decode())


def tracked() -> set[str]:
    if not (ROOT / ".git").exists():
        pytest.skip("this is no checkout of git")
    return {name for name in run("git", "ls-files", "-z").split("\0") if name and (ROOT / name).exists()}


@pytest.mark.slow
def test_the_source_distribution_is_the_repository(source: Path) -> None:
    assert sorted(name for name in tracked() if not (source / name).exists()) == []


@pytest.mark.slow
def test_the_wheel_has_every_file_of_the_packages(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    assert (
        sorted(name for name in tracked() if name.startswith(tuple(f"{p}/" for p in PACKAGES)) and name not in names)
        == []
    )
    assert not [name for name in names if name.startswith(("tests/", "egs/", "demo/", "docs/"))]


@pytest.mark.slow
def test_it_runs_where_it_is_installed(wheel: Path, tmp_path: Path) -> None:
    """In an environment of its own, whose requirements are those of this one."""
    run(sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv")
    python = tmp_path / "venv" / "bin" / "python"
    run(sys.executable, "-m", "pip", "-q", "--python", python, "install", "--no-deps", "--no-index", wheel)
    site = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip())
    (site / "requirements.pth").write_text(sysconfig.get_path("purelib") + "\n")
    commands = python.parent
    assert "score every hypothesis" in run(commands / "rescore", "--help", cwd=tmp_path)
    assert "lhotse" in run(commands / "asr", "-h", cwd=tmp_path)
    run(commands / "rescore", "sample", "sample", cwd=tmp_path)
    where = run(
        python, "-c", "import rescore, lm_zoo.registry as r; print(rescore.__file__, *r.pretrained())", cwd=tmp_path
    )
    assert where.startswith(str(site)) and "transfornn" in where
    assert (tmp_path / "sample" / "dev.jsonl.gz").exists()


@pytest.mark.slow
def test_metadata(metadata: Message) -> None:
    assert metadata["Name"] == "rescore" and metadata["Version"] == rescore.__version__
    text = metadata.get_payload()
    assert isinstance(text, str) and "## Quick start" in text
    links = re.findall(r"\]\(([^)]*)\)", text)
    assert [link for link in links if not link.startswith("https:")] == []  # a package index has no files beside it
    classifiers = metadata.get_all("Classifier") or []
    assert len(set(classifiers)) == len(classifiers) > 10


def test_every_extra_is_in_the_table() -> None:
    table = re.findall(r"^\| `([\w-]+)` \|", (ROOT / "docs" / "install.md").read_text(), re.MULTILINE)
    assert sorted(table) == sorted(extras())


def test_the_changelog_has_this_version() -> None:
    heads = re.findall(r"^## (.*)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    versions = [head for head in heads if head != "Unreleased"]
    assert heads[:1] in (["Unreleased"], versions[:1])
    assert all(re.fullmatch(r"\d+\.\d+\.\d+ \(\d{4}-\d\d-\d\d\)", head) for head in versions), versions
    assert versions[0].split()[0] == rescore.__version__


def test_the_container_is_small_and_runs_as_a_user() -> None:
    lines = re.sub(r"\\\n", " ", (ROOT / "Dockerfile").read_text()).splitlines()
    steps = [line.split(maxsplit=1) for line in lines if line and not line.startswith("#")]
    last = [step for step in steps if step[0] == "FROM"][-1]
    final = steps[steps.index(last) + 1 :]
    assert ["USER", "rescore"] in final and not any("apt-get" in line for _, line in final)
    for word, line in steps:
        if word == "FROM":
            assert re.search(r"^python:3\.1\d-slim-\w+", line)  # a version, not what is latest
        if "apt-get install" in line:
            assert "--no-install-recommends" in line and "rm -rf /var/lib/apt/lists" in line
        if "pip install" in line:
            assert "--no-cache-dir" in line
    taken = next(re.findall(r"/src\[([\w,]+)\]", line)[0] for _, line in steps if "/src[" in line)
    assert set(taken.split(",")) <= extras()
    pins = (ROOT / "tools" / "requirements-py311.txt").read_text()
    torch = next(re.search(r"torch==\S+", line) for _, line in steps if "torch==" in line)
    assert torch and torch[0] in pins.split()
    assert {".git", ".venv*"} <= set((ROOT / ".dockerignore").read_text().split())
