"""onnxruntime's sessions, as `open_session` sets them up."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("onnxruntime")
pytest.importorskip("onnx")

from onnx import TensorProto, helper, numpy_helper, save

from asr.seq2seq.session import open_session


def test_products_of_bytes_are_exact(tmp_path: Path) -> None:
    """Quantised models have bytes with a sign for weights; onnxruntime's own choice for processors without VNNI adds
    pairs of products in 16 bits, where these overflow: not one of the sums below was right."""
    rng = np.random.default_rng(0)
    inputs = rng.integers(200, 256, (4, 256)).astype(np.uint8)
    weights = rng.integers(100, 128, (256, 16)).astype(np.int8)
    graph = helper.make_graph(
        [helper.make_node("MatMulInteger", ["inputs", "weights", "zero", "weights_zero"], ["sums"])],
        "products",
        [helper.make_tensor_value_info("inputs", TensorProto.UINT8, [4, 256])],
        [helper.make_tensor_value_info("sums", TensorProto.INT32, [4, 16])],
        [
            numpy_helper.from_array(weights, "weights"),
            numpy_helper.from_array(np.uint8(3), "zero"),
            numpy_helper.from_array(np.int8(-2), "weights_zero"),
        ],
    )
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), tmp_path / "model.onnx")
    (sums,) = open_session(tmp_path / "model.onnx", threads=1).run(None, {"inputs": inputs})
    assert (sums == (inputs.astype(np.int32) - 3) @ (weights.astype(np.int32) + 2)).all()
