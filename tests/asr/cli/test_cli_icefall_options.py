"""icefall's options of LibriSpeech: --manifest-dir, --full-libri, --bpe-model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from asr.cli.main import cli
from asr.decoding.load import check_tokens
from asr.errors import DataError
from rescore.errors import UsageError
from tests.asr.tiny import vocabulary


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("fbank").mkdir()
    for part in ("train-clean-100", "dev-clean", "test-clean", "test-other"):
        Path(f"fbank/librispeech_cuts_{part}.jsonl.gz").touch()
    return tmp_path


def plans(monkeypatch: pytest.MonkeyPatch, place: str) -> list[Any]:
    """What the command would run."""
    found: list[Any] = []

    def keep(plan: Any, *more: object) -> dict[str, None]:
        found.append(plan)
        return {}

    monkeypatch.setattr(place, keep)
    return found


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, list(arguments), catch_exceptions=False)


def names(paths: tuple[Path, ...]) -> list[str]:
    return [path.name.removeprefix("librispeech_cuts_").removesuffix(".jsonl.gz") for path in paths]


def test_training_sets(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = plans(monkeypatch, "asr.training.run.run")
    train = ("train", "--exp-dir", "exp", "--config", "small", "--manifest-dir", "fbank")
    run(*train, "--full-libri", "0")
    assert names(found[0].train_cuts) == ["train-clean-100"] and names(found[0].valid_cuts) == ["dev-clean"]
    with pytest.raises(DataError, match=r"train-clean-360.*train-other-500.*--full-libri false takes train-clean-100"):
        run(*train)
    for part in ("train-clean-360", "train-other-500"):
        Path(f"fbank/librispeech_cuts_{part}.jsonl.gz").touch()
    run(*train)
    assert names(found[1].train_cuts) == ["train-clean-100", "train-clean-360", "train-other-500"]
    Path("fbank/librispeech_cuts_train-all-shuf.jsonl.gz").touch()
    run(*train)
    assert names(found[2].train_cuts) == ["train-all-shuf"]
    with pytest.raises(UsageError, match="either --manifest-dir or --train-cuts"):
        run(*train, "--train-cuts", "x.jsonl.gz")
    with pytest.raises(UsageError, match="give --train-cuts FILE, or --manifest-dir"):
        run(*train[:-2])


def test_test_sets(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = plans(monkeypatch, "asr.decoding.run.run")
    run("decode", "--model", "exp/model", "--manifest-dir", "fbank")
    assert names(found[0].cuts) == ["test-clean", "test-other"]
    with pytest.raises(UsageError, match="give either CUTS or --manifest-dir"):
        run("decode", "--model", "exp/model")
    with pytest.raises(DataError, match=r"test-clean.jsonl.gz or .*test-other.jsonl.gz; expected the manifests"):
        run("decode", "--model", "exp/model", "--manifest-dir", ".")


def test_pieces_of_another_model_are_refused(tmp_path: Path) -> None:
    vocab = vocabulary()
    (tmp_path / "bpe.model").write_bytes(vocab.model)
    check_tokens(vocab, tmp_path / "bpe.model", tmp_path)
    (tmp_path / "bpe.model").write_bytes(b"other")
    with pytest.raises(DataError, match=r"not the pieces that .* was trained with"):
        check_tokens(vocab, tmp_path / "bpe.model", tmp_path)
    with pytest.raises(DataError, match="none: cannot be read"):
        check_tokens(vocab, tmp_path / "none", tmp_path)
