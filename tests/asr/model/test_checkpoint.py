"""Model folders and checkpoints: written and read back, damaged, of other models, averaged."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from asr.errors import CheckpointError
from asr.model.average import average, between, choose, mean
from asr.model.checkpoint import (
    find_checkpoints,
    load_model,
    read_checkpoint,
    read_tokens,
    remove_checkpoints,
    save_model,
    write_checkpoint,
)
from asr.model.config import EncoderConfig, TransducerConfig
from asr.model.transducer import Transducer
from asr.training.step import update_average
from lm_zoo.text.tokenizer import build_pieces
from lm_zoo.text.vocabulary import PieceVocabulary

SIZES = {"channels": 4, "dim": 8, "layers": 1, "heads": 2, "feedforward": 8}
VOCAB = build_pieces({"LOW": 3, "HIGH": 2}, 12, "bpe")
CONFIG = TransducerConfig(len(VOCAB), EncoderConfig(**SIZES), "lstm", decoder_dim=8, joiner_dim=8)


def model(seed: int = 1) -> Transducer:
    torch.manual_seed(seed)
    return Transducer(CONFIG)


def test_a_model_folder_is_read_back(tmp_path: Path) -> None:
    saved = model()
    save_model(tmp_path / "whole", saved, VOCAB, {"licence": "MIT"})
    save_model(tmp_path / "half", saved, VOCAB, {}, half=True)
    whole, vocab = load_model(tmp_path / "whole")
    half, _ = load_model(tmp_path / "half")
    assert whole.config == CONFIG and vocab.model == VOCAB.model and vocab.case == "upper" and not whole.training
    for name, tensor in saved.state_dict().items():
        assert torch.equal(whole.state_dict()[name], tensor)
        torch.testing.assert_close(half.state_dict()[name], tensor, rtol=1e-3, atol=1e-5)
    sizes = [(tmp_path / name / "model.safetensors").stat().st_size for name in ("whole", "half")]
    assert sizes[1] < 0.7 * sizes[0]
    assert (tmp_path / "half" / "tokens.txt").read_text().splitlines()[:3] == ["<blk> 0", "<sos/eos> 1", "<unk> 2"]
    assert json.loads((tmp_path / "whole" / "config.json").read_text())["licence"] == "MIT"


def test_damaged_model_folders_are_told(tmp_path: Path) -> None:
    def damaged(name: str, change: Any) -> Path:
        save_model(tmp_path / name, model(), VOCAB, {})
        change(tmp_path / name)
        return tmp_path / name

    def other_config(folder: Path) -> None:
        info = json.loads((folder / "config.json").read_text())
        info["config"]["joiner_dim"] = 6
        (folder / "config.json").write_text(json.dumps(info))

    def other_tokens(folder: Path) -> None:
        build_pieces({"LOW": 3, "HIGH": 2}, 11, "bpe").save(folder)

    def cut(file: str) -> Any:
        return lambda folder: (folder / file).write_bytes((folder / file).read_bytes()[:60])

    cases = [
        ("config", lambda folder: (folder / "config.json").unlink(), r"not a model folder, it has no config.json"),
        ("json", cut("config.json"), r"config.json: not JSON"),
        ("kind", lambda folder: (folder / "config.json").write_text('{"kind": "lstm"}'), r"not a recogniser's"),
        ("weights", lambda folder: (folder / "model.safetensors").unlink(), r"model.safetensors is missing"),
        ("short", cut("model.safetensors"), r"model.safetensors: damaged or truncated"),
        ("pieces", lambda folder: (folder / "bpe.model").unlink(), r"bpe.model: no such file, expected the sente"),
        ("other", other_config, r"'joiner.\S+' has the shape \(\S+ ?\S*\), the configuration calls for"),
        ("tokens", other_tokens, r"bpe.model has 11 tokens, but the model is for 12"),
    ]
    for name, change, message in cases:
        with pytest.raises(CheckpointError, match=message):
            load_model(damaged(name, change))


def test_pieces_without_a_blank_are_refused(tmp_path: Path) -> None:
    import sentencepiece

    plan = {"vocab_size": 12, "model_type": "bpe", "minloglevel": 2, "user_defined_symbols": ["<sos/eos>"]}
    lines = iter(["LOW HIGH"] * 5)
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=lines, model_prefix=str(tmp_path / "m"), **plan)
    with pytest.raises(CheckpointError, match=r"m.model: piece 0 is '<unk>', expected the blank '<blk>'"):
        read_tokens(tmp_path / "m.model")


def contents(weights: dict[str, torch.Tensor], batches: int, **more: Any) -> dict[str, Any]:
    return {"model": weights, "model_avg": weights, "batch_idx_train": batches, "best_valid_loss": 0.25, **more}


def test_a_checkpoint_is_read_back_without_running_code(tmp_path: Path) -> None:
    weights = {"a": torch.randn(2, 3), "b": torch.tensor([1, 2])}
    written = contents(weights, 7, rng=torch.get_rng_state(), optimizer=[{"lr": 0.1, "betas": (0.9, 0.98)}])
    write_checkpoint(tmp_path / "epoch-1.pt", written)
    found = read_checkpoint(tmp_path / "epoch-1.pt")
    assert torch.equal(found["model"]["a"], weights["a"]) and torch.equal(found["rng"], written["rng"])
    assert found["optimizer"] == written["optimizer"] and found["batch_idx_train"] == 7
    if torch.__version__ >= "2":
        assert torch.load(tmp_path / "epoch-1.pt", weights_only=True)["best_valid_loss"] == 0.25
    write_checkpoint(tmp_path / "ddp.pt", contents({f"module.{name}": t for name, t in weights.items()}, 7))
    assert read_checkpoint(tmp_path / "ddp.pt")["model"].keys() == weights.keys()
    write_checkpoint(tmp_path / "path.pt", contents(weights, 7, exp_dir=Path("exp")))  # as icefall's
    assert read_checkpoint(tmp_path / "path.pt")["batch_idx_train"] == 7


def test_damaged_checkpoints_are_told(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"epoch-1.pt: no such checkpoint"):
        read_checkpoint(tmp_path / "epoch-1.pt")
    write_checkpoint(tmp_path / "epoch-1.pt", contents({"a": torch.zeros(1000)}, 1))
    (tmp_path / "short.pt").write_bytes((tmp_path / "epoch-1.pt").read_bytes()[:700])
    with pytest.raises(CheckpointError, match=r"short.pt: .*damaged or truncated"):
        read_checkpoint(tmp_path / "short.pt")
    torch.save({"weights": 1}, tmp_path / "other.pt")
    with pytest.raises(CheckpointError, match=r"other.pt: expected a dict with the key 'model'"):
        read_checkpoint(tmp_path / "other.pt")
    weights = {"a": torch.zeros(2)}
    for key, value in (("model", 7), ("model", [1]), ("model", {"a": "text"}), ("model", {3: torch.zeros(1)})):
        torch.save({"model": weights, "model_avg": weights, key: value}, tmp_path / "other.pt")
        with pytest.raises(CheckpointError, match=r"other.pt: 'model' is no state dict"):
            read_checkpoint(tmp_path / "other.pt")
    torch.save({"model": weights, "model_avg": torch.zeros(3)}, tmp_path / "other.pt")
    with pytest.raises(CheckpointError, match=r"other.pt: 'model_avg' is no state dict"):
        read_checkpoint(tmp_path / "other.pt")


def test_the_newest_checkpoints_are_found_and_kept(tmp_path: Path) -> None:
    for name in ("checkpoint-900.pt", "checkpoint-1000.pt", "checkpoint-20.pt", "epoch-9.pt", "epoch-10.pt", "best.pt"):
        (tmp_path / name).touch()
    assert [path.name for path in find_checkpoints(tmp_path)] == [f"checkpoint-{n}.pt" for n in (1000, 900, 20)]
    remove_checkpoints(tmp_path, 1)
    assert {path.name for path in tmp_path.iterdir()} == {"checkpoint-1000.pt", "epoch-10.pt", "best.pt"}


def test_the_running_average_is_the_mean_of_all_models_since_the_start() -> None:
    now, running, seen = nn.Linear(2, 2), nn.Linear(2, 2).double(), []
    for step in range(10, 60, 10):
        with torch.no_grad():
            now.weight.normal_()
        seen.append(now.weight.detach().clone())
        update_average(running, now, 10 / step)
    torch.testing.assert_close(running.weight.float(), torch.stack(seen).mean(0))


def run_of(folder: Path, epochs: int, vocab: PieceVocabulary = VOCAB) -> list[dict[str, torch.Tensor]]:
    """Checkpoints of a run of three batches an epoch; the weights of each epoch."""
    vocab.save(folder)
    total, kept = None, []
    for epoch in range(1, epochs + 1):
        weights = model(epoch).state_dict()
        kept.append(weights)
        double = {name: tensor.double() for name, tensor in weights.items()}
        total = double if total is None else {name: total[name] + double[name] for name in double}
        running = {name: tensor / epoch for name, tensor in total.items()}
        made = {"model": weights, "model_avg": running, "batch_idx_train": 3 * epoch}
        made |= {"model_config": CONFIG.to_dict(), "case": "upper", "average_period": 3}
        for name in (f"epoch-{epoch}.pt", f"checkpoint-{3 * epoch}.pt"):
            write_checkpoint(folder / name, made)
    return kept


def test_integers_are_those_of_the_last_checkpoint(tmp_path: Path) -> None:
    """Such as the batches that a normalisation has seen: they have no mean."""
    ends = [{"a": torch.tensor([value]), "batches": torch.tensor(seen)} for value, seen in ((4.0, 9), (1.0, 7))]
    paths = [tmp_path / f"epoch-{epoch}.pt" for epoch in (2, 1)]
    for path, weights in zip(paths, ends, strict=True):
        write_checkpoint(path, {"model": weights})
    end, start = (
        {"model_avg": weights, "batch_idx_train": batch, "average_period": 10}
        for weights, batch in zip(ends, (29, 11), strict=True)
    )
    found = mean(paths)
    assert found["a"].tolist() == [2.5] and int(found["batches"]) == 9
    found = between(end, start, paths)
    assert found["a"].tolist() == [7.0] and int(found["batches"]) == 9  # (20 * 4 - 10 * 1) / 10
    for before in (None, {**start, "batch_idx_train": 9}):  # no update yet: the initial weights do not count
        assert between(end, before, paths)["a"].tolist() == [4.0]


@pytest.mark.parametrize("count", [1, 3, 5])
def test_averages_are_the_mean_of_the_last_epochs(tmp_path: Path, count: int) -> None:
    kept = run_of(tmp_path, 5)[-count:]
    for choice in ((5, None), (None, 16)):
        for averaged in (False, True) if choice[0] or count < 5 else (False,):
            made = average(tmp_path, *choice, count, averaged)
            found = made.model.state_dict()
            for name in found:
                expected = torch.stack([weights[name].double() for weights in kept]).mean(0)
                torch.testing.assert_close(found[name], expected.to(found[name].dtype), rtol=1e-5, atol=1e-6)
            made.save(tmp_path / "saved" / made.name)
            saved, vocab = load_model(tmp_path / "saved" / made.name)
            assert all(torch.equal(tensor, found[name]) for name, tensor in saved.state_dict().items())
            assert vocab.case == made.vocab.case == "upper" and not made.model.training
    assert (tmp_path / "saved" / f"epoch-5-avg-{count}-use-averaged-model").is_dir()


def test_averages_that_cannot_be_made(tmp_path: Path) -> None:
    run_of(tmp_path, 2)
    cases: list[tuple[tuple[Any, ...], str]] = [
        ((2, None, 3, False), r"found --epoch 2 --avg 3, expected --avg 2 or less"),
        ((3, None, 1, False), r"epoch-3.pt: no such checkpoint"),
        ((None, 6, 2, True), r"found 2 files checkpoint-BATCH.pt up to batch 6, expected 3"),
        ((2, 6, 1, False), r"give either an epoch or an iteration"),
        ((None, None, 1, False), r"give either an epoch or an iteration"),
        ((0, None, 1, False), r"give either an epoch or an iteration \(--epoch N, --iter N\), from 1"),
        ((None, 0, 1, False), r"give either an epoch or an iteration \(--epoch N, --iter N\), from 1"),
    ]
    for arguments, message in cases:
        with pytest.raises(CheckpointError, match=message):
            average(tmp_path, *arguments)
    write_checkpoint(tmp_path / "epoch-3.pt", {"model": {"a": torch.zeros(2)}, "batch_idx_train": 9})
    with pytest.raises(CheckpointError, match=r"epoch-3.pt: has no model_avg"):
        average(tmp_path, 3, None, 1, True)
    with pytest.raises(CheckpointError, match=r"has other weights than epoch-3.pt"):
        mean(choose(tmp_path, 3, None, 2, False))
    same = read_checkpoint(tmp_path / "epoch-1.pt")
    paths = [tmp_path / "epoch-2.pt", tmp_path / "epoch-1.pt"]
    cannot: list[tuple[dict[str, Any], dict[str, Any] | None, str]] = [
        ({"average_period": 100}, {"average_period": 100}, r"epoch-2.pt: is of batch 6, .* begins at batch 100"),
        ({"average_period": 100}, None, r"epoch-2.pt: is of batch 6, .* begins at batch 100"),
        ({"average_period": 2}, {"average_period": 3}, r"has average_period 2, epoch-1.pt has 3, expected the same"),
        ({"average_period": 5}, {"average_period": 5, "batch_idx_train": 5}, r"of batch 5 \(one every 5\); expected"),
        ({"average_period": None}, {}, r"epoch-2.pt: has no model_avg, batch_idx_train and average_period"),
    ]
    for end, start, message in cannot:
        with pytest.raises(CheckpointError, match=message):
            between(read_checkpoint(paths[0]) | end, None if start is None else same | start, paths)
    with pytest.raises(CheckpointError, match=r"expected it later"):
        between(same, same, [tmp_path / "epoch-1.pt", tmp_path / "epoch-1.pt"])
