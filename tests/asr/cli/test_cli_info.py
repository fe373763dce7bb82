"""`asr info`: parameters by part."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from asr.cli.main import cli
from asr.errors import AsrError
from asr.model.config import CONFIGS, EncoderConfig, TransducerConfig
from asr.model.parameter_count import count
from asr.model.s4former import S4former
from asr.model.transducer import Transducer

TINY = TransducerConfig(
    vocab_size=20,
    encoder=EncoderConfig(channels=4, dim=16, layers=2, heads=2, feedforward=32, s4_dim=3),
    decoder_dim=8,
    joiner_dim=8,
)


def run(*args: object) -> str:
    return CliRunner().invoke(cli, ["info", *(str(arg) for arg in args)], catch_exceptions=False).stdout


def sizes(output: str) -> dict[str, int]:
    rows = [line.rsplit(maxsplit=3) for line in output.splitlines()[1:]]
    return {row[0]: int(row[1].replace(",", "")) for row in rows}


def test_parts_of_a_file_and_of_a_model_folder(tmp_path: Path) -> None:
    file = tmp_path / "tiny.json"
    file.write_text(json.dumps(TINY.to_dict()))
    found = sizes(run(file))
    encoder = sum(parameter.numel() for parameter in S4former(TINY.encoder).parameters())
    assert found["encoder, all"] == encoder
    assert found["encoder: S4"] == 2 * (3 + 16 * 3 + 16 + 16)
    assert found["encoder: feed-forward"] == 4 * (2 * 16 + 16 * 32 + 32 + 32 * 16 + 16)
    assert found["encoder: attention"] == 2 * (2 * 16 + 16 * 48 + 48 + 16 * 16 + 2 * 16 + 16 * 16 + 16)
    assert found["encoder: last LN of the layers"] == 2 * 2 * 16
    assert found["decoder"] == 20 * 8 + 4 * (2 * 8 * 8 + 2 * 8)
    assert found["joiner"] == 16 * 8 + 8 + 8 * 8 + 8 + 8 * 20 + 20
    assert found["for recognition"] == encoder + found["decoder"] + found["joiner"]
    assert found["all"] == found["for recognition"] + found["heads for training alone"]
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"kind": "transducer", "config": TINY.to_dict()}))
    assert run(folder) == run(file)


@pytest.mark.parametrize("name", sorted(file.stem for file in CONFIGS.glob("paper-*.json")))
def test_configurations_of_the_paper_have_119_million_parameters(name: str) -> None:
    found = sizes(run(name))
    assert found["all"] == pytest.approx(119e6, abs=1e6)
    assert found["for recognition"] == pytest.approx(119e6, abs=1e6)


def test_small_is_small() -> None:
    output = run("small")
    assert "causal" in output and 4e6 < sizes(output)["all"] < 6e6


def test_bad_input(tmp_path: Path) -> None:
    with pytest.raises(AsrError, match=r"no such configuration; give a JSON file or one of .*paper-com"):
        run("paper-none")
    with pytest.raises(AsrError, match="not a model folder"):
        run(tmp_path)


def test_help_has_an_example() -> None:
    assert "Example: asr info" in run("-h")


def test_every_parameter_is_in_a_part() -> None:
    assert sum(count(TINY).values()) == sum(parameter.numel() for parameter in Transducer(TINY).parameters())


def test_other_values_by_set() -> None:
    """Each state more of a real S4D is a C of 512 and an A, in every layer."""
    two, four = (sizes(run("paper-com", "--set", f"encoder.s4_dim={dim}")) for dim in (2, 4))
    assert four["all"] - two["all"] == four["encoder: S4"] - two["encoder: S4"] == 17 * 2 * (512 + 1)
