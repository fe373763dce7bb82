"""`rescore push-lm`: which files go to the hub, to a stand-in of its API."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from lm_zoo.errors import ModelError
from lm_zoo.registry import pretrained, save_folder
from rescore.cli.main import cli
from rescore.workflows.push_lm import push_lm
from tests.lm_zoo import zoo

MODEL = ["config.json", "model.safetensors", "words.txt"]


class Api:
    """In the place of huggingface_hub.HfApi."""

    def __init__(self, error: Exception | None = None) -> None:
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.error = error

    def create_repo(self, **options: Any) -> Any:
        if self.error:
            raise self.error
        self.calls.append(("create_repo", options))
        return SimpleNamespace(repo_id=options["repo_id"])

    def upload_folder(self, **options: Any) -> None:
        self.calls.append(("upload_folder", options))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    save_folder(tmp_path / "lm", zoo.neural("lstm"), "lstm", {})
    (tmp_path / "lm" / "checkpoint").mkdir()
    (tmp_path / "lm" / "secret.txt").write_text("of nobody's business")
    return tmp_path / "lm"


def test_the_files_of_the_lm_go_and_no_others(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "log.jsonl").write_text("")
    api = Api()
    push_lm(folder, "me/lm", True, "first", api)
    (_, made), (_, sent) = api.calls
    assert made == {"repo_id": "me/lm", "private": True, "exist_ok": True}
    assert sorted(sent.pop("allow_patterns")) == sorted([*MODEL, "log.jsonl"])
    assert sent == {"repo_id": "me/lm", "folder_path": str(folder), "commit_message": "first"}
    assert "there is no README.md" in capsys.readouterr().err


def test_a_dry_run_lists(folder: Path) -> None:
    (folder / "README.md").write_text("what it is\n")
    done = CliRunner().invoke(cli, ["push-lm", str(folder), "me/lm", "--dry-run"])
    assert done.exit_code == 0, done.output
    assert [line.split()[1] for line in done.stdout.splitlines()] == [*MODEL, "README.md"]
    assert f"{(folder / 'model.safetensors').stat().st_size:,}  model.safetensors" in done.stdout


def test_what_is_not_brought(folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    api = Api(PermissionError("401 Client Error\nrequest id"))
    with pytest.raises(
        ModelError, match=r"cannot be pushed to me/lm \(PermissionError: 401 Client Error\); log in with"
    ):
        push_lm(folder, "me/lm", False, "", api)
    with pytest.raises(ModelError, match="expected a name of the hub, USER/NAME"):
        push_lm(folder, "../lm", False, "", api)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(ModelError, match="--offline or HF_HUB_OFFLINE forbids it"):
        push_lm(folder, "me/lm", False, "", api)
    (folder / "model.safetensors").write_bytes(b"x")
    with pytest.raises(ModelError, match=r"model.safetensors: damaged"):
        push_lm(folder, "me/lm", False, "", api)
    with pytest.raises(ModelError, match="not a model folder"):
        push_lm(tmp_path / "none", "me/lm", False, "", api)
    with pytest.raises(ModelError, match=r"ngram: an n-gram LM, which no name of the hub \(hf:NAME\) loads"):
        push_lm(pretrained()["ngram"], "me/lm", False, "", api)
