"""Model folders, of LMs and recognisers alike."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from lm_zoo.errors import ModelError
from lm_zoo.model_folder import CONFIG, WEIGHTS, check_shapes, read_object, read_tensors, write_model


def test_half_is_for_floats_alone(tmp_path: Path) -> None:
    """Numbers of tokens, such as a lookup dictionary's, are no float16 beyond 2048."""
    table, matrix = torch.tensor([[2049, 70_001]]), torch.tensor([[0.5, -3.0]])
    write_model(tmp_path, {"kind": "lookup"}, {"table": table, "matrix": matrix}, half=True)
    found = read_tensors(tmp_path / WEIGHTS)
    assert torch.equal(found["table"], table)
    assert found["matrix"].dtype == torch.float16 and torch.equal(found["matrix"].float(), matrix)
    assert json.loads((tmp_path / CONFIG).read_text()) == read_object(tmp_path, "") == {"kind": "lookup"}


def test_what_is_missing_or_damaged_is_told(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"it has no config.json; such folders are written by: rescore train-lm"):
        read_object(tmp_path, "rescore train-lm")
    with pytest.raises(ModelError, match=r"model.safetensors is missing"):
        read_tensors(tmp_path / WEIGHTS)
    (tmp_path / CONFIG).write_text("{")
    with pytest.raises(ModelError, match=r"config.json: not JSON"):
        read_object(tmp_path, "")


def test_names_and_shapes_are_held_against_those_of_the_model() -> None:
    plan = {"a": torch.zeros(2), "b": torch.zeros(2, 3)}
    check_shapes("here", plan, dict(plan))
    for found, message in (
        ({"a": plan["a"]}, r"here: lacks 'b', which the configuration calls for"),
        (plan | {"c": plan["a"]}, r"here: has 'c', which the configuration does not call for"),
        (plan | {"b": torch.zeros(3, 2)}, r"here: 'b' has the shape \(3, 2\), the configuration calls for \(2, 3\)"),
    ):
        with pytest.raises(ModelError, match=message):
            check_shapes("here", plan, found)
