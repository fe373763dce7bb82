"""A tiny random encoder-decoder in ONNX, with the inputs of optimum's merged decoders."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper, save

from asr.seq2seq.models import Recogniser, load

FRAME, HEADS, SIZE = 160, 2, 4  # samples of a frame
DIM = HEADS * SIZE
PIECES = ["<unk>", "<s>", "</s>", "\u2581a", "\u2581A", "\u2581b", ",", "c", "'s", "\u2581-", ".", "<<ST_0>>"]
FLOAT, INT = TensorProto.FLOAT, TensorProto.INT64


class Graph:
    """Nodes of a graph that grows; names of what they make are numbered."""

    def __init__(self, prefix: str) -> None:
        self.prefix, self.nodes, self.weights = prefix, list[Any](), list[Any]()

    def add(self, op: str, *inputs: str, name: str = "", **attributes: Any) -> str:
        name = name or f"{self.prefix}{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(inputs), [name], **attributes))
        return name

    def constant(self, values: Any, kind: type = np.int64) -> str:
        name = f"{self.prefix}_{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.array(values, dtype=kind), name))
        return name

    def heads(self, states: str, weight: str) -> str:
        """`(B, T, DIM)` by a matrix, to `(B, HEADS, T, SIZE)`."""
        split = self.add("Reshape", self.add("MatMul", states, weight), self.constant([0, -1, HEADS, SIZE]))
        return self.add("Transpose", split, perm=[0, 2, 1, 3])

    def attention(self, query: str, key: str, value: str, bias: str | None) -> str:
        scores = self.add("MatMul", query, self.add("Transpose", key, perm=[0, 1, 3, 2]))
        if bias is not None:
            scores = self.add("Add", scores, bias)
        found = self.add("MatMul", self.add("Softmax", scores, axis=-1), value)
        return self.add("Reshape", self.add("Transpose", found, perm=[0, 2, 1, 3]), self.constant([0, -1, DIM]))


def value(name: str, kind: int = FLOAT, shape: list[Any] | None = None) -> Any:
    return helper.make_tensor_value_info(name, kind, shape)


def cache(kind: str, side: str, part: str) -> str:
    return f"{kind}.0.{side}.{part}"


CACHES = [(side, part) for side in ("decoder", "encoder") for part in ("key", "value")]


def branch(cached: bool) -> Any:
    """The decoder with caches, or without."""
    graph = Graph("c" if cached else "n")
    states = graph.add("Gather", "embedding", "input_ids")
    own = {}
    for part in ("key", "value"):
        new = graph.heads(states, f"own_{part}")
        name = cache("present", "decoder", part) + graph.prefix
        own[part] = graph.add("Concat", cache("past_key_values", "decoder", part), new, axis=2, name=name)
    bias = None
    if not cached:
        length = graph.add("Shape", "input_ids", start=1, end=2)
        square = graph.add("Concat", length, length, axis=0)
        low = numpy_helper.from_array(np.array([-1e9], dtype=np.float32))
        after = graph.add("ConstantOfShape", square, value=low)
        bias = graph.add("Trilu", after, graph.constant(1), upper=1)
    context = graph.attention(graph.heads(states, "own_query"), own["key"], own["value"], bias)
    cross = {}
    for part in ("key", "value"):
        name = cache("present", "encoder", part) + graph.prefix
        source = (
            cache("past_key_values", "encoder", part)
            if cached
            else graph.heads("encoder_hidden_states", f"cross_{part}")
        )
        cross[part] = graph.add("Identity", source, name=name)
    steps = [graph.constant(numbers) for numbers in ([0], [10**9], [1], [FRAME])]
    frames = graph.add("Cast", graph.add("Slice", "encoder_attention_mask", *steps), to=FLOAT)
    mask = graph.add("Mul", graph.add("Sub", frames, graph.constant(1.0, np.float32)), graph.constant(1e9, np.float32))
    mask = graph.add("Unsqueeze", mask, graph.constant([1, 2]))
    heard = graph.attention(graph.heads(states, "cross_query"), cross["key"], cross["value"], mask)
    total = graph.add("Tanh", graph.add("Add", states, graph.add("Add", context, graph.add("MatMul", heard, "heard"))))
    logits = graph.add("MatMul", total, "output", name=f"logits{graph.prefix}")
    outputs = [logits, *(cache("present", *which) + graph.prefix for which in CACHES)]
    return helper.make_graph(graph.nodes, graph.prefix, [], [value(name) for name in outputs], graph.weights)


def write(folder: Path, seed: int = 3, end: float = 0.0) -> Path:
    """`encoder_model.onnx`, `decoder_model_merged.onnx` and `tokenizer.bin`; a larger `end` gives shorter texts."""
    folder.mkdir(parents=True, exist_ok=True)
    draw = np.random.default_rng(seed)

    def matrix(name: str, rows: int, columns: int, scale: float = 1.0) -> Any:
        return numpy_helper.from_array((scale * draw.standard_normal((rows, columns))).astype(np.float32), name)

    graph = Graph("e")
    heard = graph.add("Mul", "input_values", graph.add("Cast", "attention_mask", to=FLOAT))
    frames = graph.add("Reshape", heard, graph.constant([0, -1, FRAME]))
    graph.add("Tanh", graph.add("MatMul", frames, "frames"), name="last_hidden_state")
    inputs = [value("input_values", FLOAT, ["B", "N"]), value("attention_mask", INT, ["B", "N"])]
    weights = [*graph.weights, matrix("frames", FRAME, DIM, 3.0)]
    _save(folder / "encoder_model.onnx", graph.nodes, inputs, [value("last_hidden_state")], weights)

    caches = [value(cache("past_key_values", *which), FLOAT, ["B", HEADS, "T", SIZE]) for which in CACHES]
    inputs = [value("encoder_attention_mask", INT, ["B", "N"]), value("input_ids", INT, ["B", "L"])]
    inputs += [value("encoder_hidden_states", FLOAT, ["B", "S", DIM]), *caches]
    inputs += [value("use_cache_branch", TensorProto.BOOL, [1])]
    outputs = ["logits", *(cache("present", *which) for which in CACHES)]
    node = helper.make_node("If", ["use_cache_branch"], outputs, then_branch=branch(True), else_branch=branch(False))
    names = [f"{side}_{part}" for side in ("own", "cross") for part in ("query", "key", "value")]
    weights = [matrix(name, DIM, DIM) for name in [*names, "heard"]]
    output = draw.standard_normal((DIM, len(PIECES))).astype(np.float32)
    output[:, 2] += end
    weights += [matrix("embedding", len(PIECES), DIM), numpy_helper.from_array(output, "output")]
    _save(folder / "decoder_model_merged.onnx", [node], inputs, [value(name) for name in outputs], weights)
    spelled = [piece.encode() for piece in PIECES]
    (folder / "tokenizer.bin").write_bytes(b"".join(bytes([len(piece)]) + piece for piece in spelled))
    return folder


def _save(path: Path, nodes: list[Any], inputs: list[Any], outputs: list[Any], weights: list[Any]) -> None:
    graph = helper.make_graph(nodes, path.stem, inputs, outputs, weights)
    save(helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)]), str(path))


def recogniser(folder: Path, **settings: Any) -> Recogniser:
    return load(write(folder, **settings), "tiny")


def speech(frames: int, seed: int = 1) -> np.ndarray:
    """Samples float32 `(FRAME * frames,)`."""
    return np.random.default_rng(seed).standard_normal(FRAME * frames).astype(np.float32)
