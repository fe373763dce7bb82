"""Readers of language models: folders, n-grams, grammars, checkpoints of others and of our training."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from lm_zoo.icefall.checkpoints import import_lm
from lm_zoo.icefall.espnet_lm import import_espnet
from lm_zoo.icefall.kaldi_nnlm import import_nnlm
from lm_zoo.icefall.speechbrain_lm import import_speechbrain
from lm_zoo.model_folder import LOG
from lm_zoo.registry import build, describe, load, load_ngram, save_folder
from lm_zoo.text.sentences import read_sentences
from lm_zoo.text.tokenizer import build_words, count_words
from lm_zoo.training import checkpoint as lm_checkpoint
from lm_zoo.training.distributed import Ranks
from lm_zoo.training.run_identity import check_run
from lm_zoo.training.run_log import lines_before
from lm_zoo.training.runtime import random_state
from rescore.cli.hyperparams import read_hyperparams
from rescore.cli.recipe import read_yaml
from tests.asr.tiny import vocabulary
from tests.faults.damage import Target, same, within_zip
from tests.faults.readers.inputs import data, files, text
from tests.lm_zoo import kenlm_files, zoo
from tests.lm_zoo.grammar_fst import write_lang
from tests.lm_zoo.icefall import test_espnet_lm, test_kaldi_nnlm, test_speechbrain_lm
from tests.lm_zoo.icefall.test_checkpoints import rnn_checkpoint

MODEL_FILES = ("config.json", "model.safetensors", "words.txt")
TRAINING_FILES = ("state.json", "model.safetensors", "optimizer.safetensors")
RUN = {"settings": {"dim": 8}, "texts": ["text (blake2b 00)"]}
LOGGED = "".join(json.dumps({"step": step, "epoch": 1, "loss": 1.5}) + "\n" for step in (1, 2, 3))
PICKLE = within_zip(lambda name: name == "data.pkl")
NUMBERS = within_zip(str.isdigit)


def model(kind: str, damaged: str) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        pieces = damaged == "bpe.model"
        lm = build("lstm", vocabulary(), {"dim": 8}) if pieces else zoo.neural(kind)
        save_folder(folder / "lm", lm, "lstm" if pieces else zoo.NEURAL[kind][0], {})
        return folder / "lm" / damaged

    return make


def use_model(path: Path) -> object:
    describe([path.parent])
    return load(str(path.parent)).score_hypotheses([["A", "B"], []])


def ngram_folder(folder: Path) -> Path:
    (folder / "lm.arpa").write_text(zoo.ARPA)
    (folder / "config.json").write_text(json.dumps({"kind": "ngram", "file": "lm.arpa", "case": "upper"}))
    return folder / "config.json"


def use_ngram(path: Path) -> object:
    lm = load_ngram(str(path))
    assert len(lm.vocab) >= 2
    return [list(row) for row in lm.score_words([["A", "B", "X"], []])]


def grammar(damaged: str) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        write_lang(folder, zoo.ARPA)
        return folder / damaged

    return make


def icefall(damaged: str) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        tensors = rnn_checkpoint()
        rows = len(vocabulary())
        for name, tensor in tensors.items():
            if name.startswith(("input_embedding", "output_linear")):
                tensors[name] = torch.ones(rows, *tensor.shape[1:])
        torch.save({"model": tensors, "epoch": 3}, folder / "epoch-1.pt")
        (folder / "bpe.model").write_bytes(vocabulary().model)
        return folder / damaged

    return make


def use_icefall(path: Path) -> bytes:
    with TemporaryDirectory() as out:
        import_lm(path.with_name("epoch-1.pt"), path.with_name("bpe.model"), Path(out) / "lm")
        return (Path(out) / "lm" / "model.safetensors").read_bytes()


def nnlm(damaged: str) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        test_kaldi_nnlm.made(folder, test_kaldi_nnlm.Recurrent)
        (folder / "words.txt").write_text("".join(f"{word} {k}\n" for k, word in enumerate(test_kaldi_nnlm.WORDS)))
        return folder / damaged

    return make


def use_nnlm(path: Path) -> bytes:
    with TemporaryDirectory() as out:
        import_nnlm(path.with_name("model.pt"), path.with_name("words.txt"), Path(out) / "lm")
        return (Path(out) / "lm" / "model.safetensors").read_bytes()


def espnet(damaged: str) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        test_espnet_lm.written(folder)
        return folder / damaged

    return make


def use_espnet(path: Path) -> bytes:
    checkpoint, config = path.with_name("valid.loss.ave.pth"), read_yaml(path.with_name("config.yaml"))
    with TemporaryDirectory() as out:
        import_espnet(checkpoint, config, Path(out) / "lm", path.with_name("bpe.model"))
        return (Path(out) / "lm" / "model.safetensors").read_bytes()


def listed(folder: Path) -> Path:
    test_espnet_lm.written(folder)
    return test_espnet_lm.run(folder) / "token_list.txt"


def speechbrain(damaged: str) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        test_speechbrain_lm.written(folder, test_speechbrain_lm.transformer_tensors(6), test_speechbrain_lm.TRANSFORMER)
        return folder / damaged

    return make


def use_speechbrain(path: Path) -> bytes:
    checkpoint, hyperparams = path.with_name("lm.ckpt"), read_hyperparams(path.with_name("hyperparams.yaml"))
    with TemporaryDirectory() as out:
        import_speechbrain(checkpoint, hyperparams, path.with_name("tokenizer.ckpt"), Path(out) / "lm")
        return (Path(out) / "lm" / "model.safetensors").read_bytes()


def training(damaged: str) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        lm = zoo.neural("lstm")
        lm_checkpoint.save(folder / "last", lm, [torch.optim.Adam(lm.parameters())], {"step": 3}, [random_state()])
        return folder / "last" / damaged

    return make


def use_training(path: Path) -> None:
    lm = zoo.neural("lstm")
    lm_checkpoint.read_state(path.parent)
    lm_checkpoint.restore(path.parent, lm, [torch.optim.Adam(lm.parameters())], Ranks(0, 1, torch.device("cpu")))


def begun(path: Path) -> None:
    check_run(path.parent, RUN)


def logged(path: Path) -> list[str]:
    """The log of a training that goes on behind step 2."""
    return lines_before(path, 2, 1)


def word_list(path: Path) -> list[str]:
    return list(build_words(count_words(read_sentences(path))).words)


LM_TARGETS = [
    *(Target(f"LM {name}", model("transformer", name), use_model) for name in MODEL_FILES),
    Target("LM bpe.model", model("lstm", "bpe.model"), use_model),
    Target("LM n-gram config.json", ngram_folder, lambda path: use_ngram(path.parent)),
    Target("ARPA", text("a.arpa", zoo.ARPA), use_ngram, kept=same),
    Target("ARPA.gz", text("a.arpa.gz", zoo.ARPA), use_ngram, checked=True),
    Target("KenLM probing", data("a.bin", kenlm_files.PROBING), use_ngram, share=0.2),
    Target("KenLM trie", data("a.bin", kenlm_files.TRIE), use_ngram, share=0.2),
    Target("KenLM trigrams", data("a.bin", kenlm_files.TRIGRAMS), use_ngram, share=0.2),
    Target("KenLM quantised arrays", data("a.bin", kenlm_files.QUANTISED_ARRAYS), use_ngram, share=0.2),
    *(
        Target(f"G.fst {name}", grammar(name), lambda path: use_ngram(path.with_name("G.fst")), kept=same)
        for name in ("G.fst", "words.txt")
    ),
    Target("icefall LM epoch-1.pt", icefall("epoch-1.pt"), use_icefall, checked=True),
    Target("icefall LM pickle", icefall("epoch-1.pt"), use_icefall, within=PICKLE),
    Target("icefall LM numbers", icefall("epoch-1.pt"), use_icefall, within=NUMBERS),
    Target("icefall LM bpe.model", icefall("bpe.model"), use_icefall),
    Target("pytorchnn LM model.pt", nnlm("model.pt"), use_nnlm, checked=True),
    Target("pytorchnn LM pickle", nnlm("model.pt"), use_nnlm, within=PICKLE),
    Target("pytorchnn LM words.txt", nnlm("words.txt"), use_nnlm),
    Target("ESPnet LM valid.loss.ave.pth", espnet("valid.loss.ave.pth"), use_espnet, checked=True),
    Target("ESPnet LM pickle", espnet("valid.loss.ave.pth"), use_espnet, within=PICKLE),
    Target("ESPnet LM config.yaml", espnet("config.yaml"), use_espnet),
    Target("ESPnet LM token_list.txt", listed, use_model),
    Target("SpeechBrain LM lm.ckpt", speechbrain("lm.ckpt"), use_speechbrain, checked=True),
    Target("SpeechBrain LM pickle", speechbrain("lm.ckpt"), use_speechbrain, within=PICKLE),
    Target("SpeechBrain LM hyperparams.yaml", speechbrain("hyperparams.yaml"), use_speechbrain),
    Target("SpeechBrain LM tokenizer.ckpt", speechbrain("tokenizer.ckpt"), use_speechbrain),
    *(Target(f"LM training {name}", training(name), use_training) for name in TRAINING_FILES),
    Target("LM training run.json", files("run.json", {"run.json": json.dumps(RUN), "vocab/case": "upper"}), begun),
    Target("LM training log", files(LOG, {LOG: LOGGED}), logged),
    Target("LM word list", text("words", "A B\nC\n"), word_list),
]
