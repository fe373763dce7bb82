"""Every reader over damaged files (`tests.fuzzing`): our own errors, within bounds, or a result."""

from __future__ import annotations

import gzip
import json
import lzma
import struct
import warnings
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click
import numpy as np
import pytest
import torch

from asr.dataset.kaldi import kaldi_cuts
from asr.dataset.manifests import load_cuts, split_by_speaker
from asr.model.checkpoint import load_model, read_checkpoint, save_model, write_checkpoint
from asr.model.config import EncoderConfig, TransducerConfig, load_config
from asr.model.transducer import Transducer
from lm_zoo.icefall.checkpoints import import_lm
from lm_zoo.icefall.kaldi_nnlm import import_nnlm
from lm_zoo.ngram import kenlm_check
from lm_zoo.registry import describe, load, load_ngram, save_folder
from lm_zoo.text.sentences import read_sentences
from lm_zoo.training import checkpoint as lm_checkpoint
from rescore.cli.recipe import read_defaults
from rescore.evaluation.counts import read_counts
from rescore.files import read_kaldi_text
from rescore.formats import read_lattices, read_nbest, write_lattices, write_nbest
from rescore.formats.symbols import read_symbols
from rescore.types import Alignments, Hypothesis, Lattice, NbestList
from rescore.weights import load_weights
from rescore.workflows.transcripts import KINDS, read_transcripts
from tests.asr.tiny import vocabulary
from tests.fuzzing import Target, run
from tests.lm_zoo import kenlm_files, zoo
from tests.lm_zoo.grammar_fst import write_lang
from tests.lm_zoo.icefall import test_kaldi_nnlm
from tests.lm_zoo.icefall.test_checkpoints import rnn_checkpoint

MODEL_FILES = ("config.json", "model.safetensors", "words.txt")
TRAINING_FILES = ("state.json", "model.safetensors", "optimizer.safetensors")
ASR_FILES = ("config.json", "model.safetensors", "bpe.model")
KALDI_FILES = ("wav.scp", "segments", "text", "utt2spk")

LISTS = [
    NbestList("a", [Hypothesis(("A", "B"), {"score": -1.5}), Hypothesis((), {"score": -2.0})], ("A", "B")),
    NbestList("b", [Hypothesis(("C",), {"score": 0.25}), Hypothesis(("D",), {"score": -1e-3})], ("C",)),
]
WORDS = "<eps> 0\nA 1\nB 2\n'tis 3\n#0 4\n"


def lattice(utt_id: str) -> Lattice:
    """0 -A|'tis-> 1 -eps-> 2 -B-> 3."""
    return Lattice(
        utt_id,
        4,
        np.array([0, 0, 1, 2], dtype=np.int32),
        np.array([1, 1, 2, 3], dtype=np.int32),
        np.array([1, 2, 0, 3], dtype=np.int32),
        {"am": np.array([-1.5, -2, 0, -3.25]), "graph": np.array([-1.0, -2, -3, -4])},
        ["", "A", "'tis", "B"],
        np.array([0.0, 0.25, 0.5, 1.0]),
        Alignments.of_lengths(np.array([9, 8, 0, 7]), np.ones(4, dtype=np.int64)),
    )


def text(name: str, content: str) -> Callable[[Path], Path]:
    """Writes a text file; `.gz` and `.xz` packed."""

    def make(folder: Path) -> Path:
        packed = {".gz": gzip.compress, ".xz": lzma.compress}.get(Path(name).suffix, bytes)
        (folder / "words.txt").write_text(WORDS)
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(packed(content.encode()))
        return folder / name

    return make


def written(spec: str, damaged: str = "") -> Callable[[Path], Path]:
    """Writes lists, or lattices, as `spec` says, under the folder; `damaged` is the file of what is written."""
    name, _, rest = spec.partition(":")
    path, _, options = rest.partition("?")

    def make(folder: Path) -> Path:
        (folder / "words.txt").write_text(WORDS)
        target = f"{name}:{folder / path}" + f"?{options.replace('WORDS', str(folder / 'words.txt'))}" * bool(options)
        if name in LATTICES:
            write_lattices(target, [lattice("a"), lattice("b")])
        else:
            write_nbest(target, LISTS)
        return folder / path / damaged

    return make


def lists(name: str, up: int = 0, options: str = "") -> Callable[[Path], Any]:
    """Reads N-best lists, and writes them as every format that has place for them."""

    def read(path: Path) -> None:
        source = path.parents[up - 1] if up else path
        found = list(read_nbest(f"{name}:{source}{options.replace('DIR', str(path.parent))}"))
        with TemporaryDirectory() as out:
            write_nbest(f"jsonl:{out}/lists.jsonl", found)
            write_nbest(f"kaldi:{out}/kaldi", found)

    return read


LATTICES = ("slf", "kaldi-lat", "openfst", "k2")


def graphs(name: str, options: str = "", up: int = 0) -> Callable[[Path], Any]:
    """Reads lattices and writes them as SLF, where ids are the names of files."""

    def read(path: Path) -> None:
        source = path.parents[up - 1] if up else path
        found = list(read_lattices(f"{name}:{source}{options.replace('DIR', str(path.parent))}"))
        with TemporaryDirectory() as out:
            write_lattices(f"slf:{out}/lattices", found)

    return read


def model(kind: str, damaged: str) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        lm = zoo.neural(kind)
        if damaged == "bpe.model":
            from lm_zoo.registry import build

            lm = build("lstm", vocabulary(), {"dim": 8})
        save_folder(folder / "lm", lm, "lstm" if damaged == "bpe.model" else zoo.NEURAL[kind][0], {})
        return folder / "lm" / damaged

    return make


def use_model(path: Path) -> None:
    describe([path.parent])
    load(str(path.parent)).score_hypotheses([["A", "B"], []])


def ngram(name: str, content: bytes) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        (folder / name).write_bytes(content)
        return folder / name

    return make


def use_ngram(path: Path) -> None:
    lm = load_ngram(str(path))
    lm.score_words([["A", "B", "X"], []])
    assert len(lm.vocab) >= 2


def grammar(damaged: str) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        write_lang(folder, zoo.ARPA)
        return folder / damaged

    return make


def use_grammar(path: Path) -> None:
    lm = load_ngram(str(path.with_name("G.fst")))
    lm.score_words([["A", "B", "X"], []])
    assert len(lm.vocab) >= 2


def icefall(damaged: str) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        from tests.asr.tiny import vocabulary

        tensors = rnn_checkpoint()
        rows = len(vocabulary())
        for name, tensor in tensors.items():
            if name.startswith(("input_embedding", "output_linear")):
                tensors[name] = torch.ones(rows, *tensor.shape[1:])
        torch.save({"model": tensors, "epoch": 3}, folder / "epoch-1.pt")
        (folder / "bpe.model").write_bytes(vocabulary().model)
        return folder / damaged

    return make


def nnlm(damaged: str) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        test_kaldi_nnlm.made(folder, test_kaldi_nnlm.Recurrent)
        (folder / "words.txt").write_text("".join(f"{word} {k}\n" for k, word in enumerate(test_kaldi_nnlm.WORDS)))
        return folder / damaged

    return make


def use_nnlm(path: Path) -> None:
    import_nnlm(path.with_name("model.pt"), path.with_name("words.txt"), path.with_name("out"))


def training(damaged: str) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        lm = zoo.neural("lstm")
        lm_checkpoint.save(folder / "last", lm, [torch.optim.Adam(lm.parameters())], {"step": 3})
        return folder / "last" / damaged

    return make


def use_training(path: Path) -> None:
    lm = zoo.neural("lstm")
    lm_checkpoint.read_state(path.parent)
    lm_checkpoint.restore(path.parent, lm, [torch.optim.Adam(lm.parameters())])


def recogniser(damaged: str) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        vocab = vocabulary()
        sizes: dict[str, Any] = {"channels": 2, "dim": 8, "layers": 1, "heads": 2, "feedforward": 8}
        config = TransducerConfig(len(vocab), EncoderConfig(**sizes), "stateless", decoder_dim=8, joiner_dim=8)
        made = Transducer(config)
        save_model(folder / "asr", made, vocab, {"trained": {"steps": 1}})
        write_checkpoint(folder / "asr" / "epoch-1.pt", {"model": made.state_dict(), "batch_idx_train": 3})
        return folder / "asr" / damaged

    return make


def wav(path: Path) -> None:
    data = b"\0\0" * 1600
    head = struct.pack("<4sI4s4sIHHIIHH4sI", b"RIFF", 36 + len(data), b"WAVE", b"fmt ", 16, 1, 1, 16000, 32000, 2, 16,
                       b"data", len(data))  # fmt: skip
    path.write_bytes(head + data)


def kaldi_folder(damaged: str) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        wav(folder / "r1.wav")
        (folder / "wav.scp").write_text("r1 r1.wav\n")
        (folder / "segments").write_text("a r1 0.0 0.05\nb r1 0.05 0.1\n")
        (folder / "text").write_text("a A B\nb C\n")
        (folder / "utt2spk").write_text("a s\nb s\n")
        return folder / damaged

    return make


CUT = {
    "id": "a",
    "start": 0.0,
    "duration": 0.1,
    "channel": 0,
    "supervisions": [{"id": "a", "recording_id": "r1", "start": 0.0, "duration": 0.1, "channel": 0, "text": "A"}],
    "recording": {
        "id": "r1",
        "sources": [{"type": "file", "channels": [0], "source": "r1.wav"}],
        "sampling_rate": 16000,
        "num_samples": 1600,
        "duration": 0.1,
        "channel_ids": [0],
    },
    "type": "MonoCut",
}
TIMED = "A ( st: 0.1 et: 0.2 g: -3 a: -4 )"
SPOKEN = {
    "swbd": "sw1-a 0.0 1.5 [laughter-so] it's {x} ab[solute]-\n",
    "fisher": "# c\n\n3.76 5.54 B: (( i mean )) [noise] a._b.\n",
    "stm": ";; c\nf 1 s 0.0 1.0 <o,f0> { yeah / yes } (%hesitation)\n",
    "chat": "@Begin\n*PAR:\t&-uh (be)cause <the boy> [//] xxx 0is .\n\tmore .\n%mor:\tx\n@End\n",
}
KALDI = "a-1 A B\na-2\nb-1 C\nb-2 D\n"
COSTS = "a-1 1.5\na-2 2.0\nb-1 -0.25\nb-2 0.001\n"
SLF = "VERSION=1.0\nbase=2.7\nN=3 L=2\nI=0 t=0.0\nI=1 t=0.5\nI=2 t=1.0\n"
SLF += 'J=0 S=0 E=1 W=A a=1.0 l=-1\nJ=1 S=1 E=2 W="B" a=2 l=0\n'
MANIFEST = '{"audio_filepath": "x/a.wav", "text": "A B"}\n{"utt_id": "b", "text": "C"}\n'
YAML = "max-duration: 200\nset: {a: 1, b: [1, 2.5]}\nflag: true\nname: 'x'\n"
ESPNET1 = (
    '{"utts": {"a": {"output": [{"text": "A B", "rec_text": "\u2581A\u2581B<eos>", "score": -7.1}], "x": 1}}, "y": 2}'
)
SRILM = (
    "NBestList1.0\n(-7) A B\n(-8) C\n",
    f"NBestList2.0\n(-7) {TIMED} {TIMED.replace('A', 'B')}\n",
    "-1.5 -2 2 A B\n-2 -3 1 C\n",
)
PFSG = "name a\nnodes 4 NULL A B NULL\ninitial 0\nfinal 3\ntransitions 3\n0 1 -100\n1 2 0\n2 3 -50.5\n"
TEXT_ARCHIVE = "a \n0 1 1 1.0,2.0,3_4\n1 2 2 0.5,0.25,\n2 0.0,0.0,\n\nb \n0 1 3 1.0,2.0,3\n1\n\n"


def kaldi_archive(damaged: str) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        (folder / "archives.1").mkdir()
        for name, content in {"words_text": KALDI, "acwt": COSTS, "lmwt.nolm": COSTS, "lmwt.lmonly": COSTS}.items():
            (folder / "archives.1" / name).write_text(content)
        return folder / "archives.1" / damaged

    return make


def nemo(damaged: str) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        (folder / "beams.tsv").write_text("A B\t-1.5\n\t-2.0\nC\t0.25\nD\t-0.001\n")
        (folder / "manifest").write_text(MANIFEST)
        return folder / damaged

    return make


def options_of(path: Path) -> object:
    names = ("max-duration", "set", "flag", "name")
    return read_defaults(path, click.Command("x", params=[click.Option([f"--{name}"]) for name in names]))


KEYED = "?words=DIR/words.txt"
BEAMS = "?n=2&manifest=DIR/manifest"


def archive_beside(path: Path) -> None:
    path.with_name("a.ark").write_text(TEXT_ARCHIVE)
    graphs("kaldi-lat", KEYED)(path.with_name("a.ark"))


def both_sides(path: Path) -> None:
    read_kaldi_text(path)
    read_kaldi_text(path, "hyp")


def transcripts(kind: str) -> Callable[[Path], object]:
    return lambda path: list(read_transcripts(kind, path))


def use_icefall(path: Path) -> None:
    import_lm(path.with_name("epoch-1.pt"), path.with_name("bpe.model"), path.with_name("out"))


def use_kaldi_folder(path: Path) -> None:
    kaldi_cuts(path.parent, path.parent / "out")


LIST_TARGETS = [
    Target("jsonl", written("jsonl:a.jsonl"), lists("jsonl")),
    Target("jsonl.gz", written("jsonl:a.jsonl.gz"), lists("jsonl")),
    Target("jsonl.xz", written("jsonl:a.jsonl.xz"), lists("jsonl"), 0.5),
    Target("mlm", written("mlm:a.json"), lists("mlm")),
    Target("nemo", nemo("beams.tsv"), lists("nemo", options=BEAMS)),
    Target("nemo manifest", nemo("manifest"), lambda path: lists("nemo", 0, BEAMS)(path.with_name("beams.tsv"))),
    Target("srilm", written("srilm:a.nbest"), lists("srilm")),
    Target("espnet text", written("espnet:e", "1best_recog/text"), lists("espnet", 2)),
    Target("espnet score", written("espnet:e", "1best_recog/score"), lists("espnet", 2)),
    Target("espnet 1", text("data.json", ESPNET1), lists("espnet")),
    Target(
        "lattice-rescore", text("a.nbest", "a-0 -1.5 2 | A B\na-1 -2 0.5 | C\nb-0 1 1 |\n"), lists("lattice-rescore")
    ),
    *(Target(f"srilm form {n}", text("lists/a", form), lists("srilm", 1)) for n, form in enumerate(SRILM, start=1)),
    *(Target(f"kaldi {name}", kaldi_archive(name), lists("kaldi", 2)) for name in ("words_text", "acwt", "lmwt.nolm")),
]
LATTICE_TARGETS = [
    Target("slf", text("a.slf", SLF), graphs("slf")),
    Target("slf.gz", written("slf:lattices", "a.slf.gz"), graphs("slf", up=1)),
    Target("kaldi-lat binary", written("kaldi-lat:a.ark?words=WORDS"), graphs("kaldi-lat", KEYED)),
    Target("kaldi-lat text", text("a.ark", TEXT_ARCHIVE), graphs("kaldi-lat", KEYED)),
    Target("kaldi-lat words", text("words.txt", WORDS), archive_beside),
    Target("openfst", written("openfst:a.fst.txt?score=am"), graphs("openfst")),
    Target("openfst numbers", text("a.fst.txt", "a\n0 1 1 0.5\n0 1 2 2\n1 2 0\n2 0.5\n\n"), graphs("openfst", KEYED)),
    Target("pfsg", text("a.pfsg", PFSG), graphs("pfsg")),
    Target("k2", written("k2:a.pt?words=WORDS"), graphs("k2", KEYED)),
]
TEXT_TARGETS = [
    Target("words.txt", text("words.txt", WORDS), read_symbols),
    Target("Kaldi text", text("text", "a A B\nb\nc D\n"), read_kaldi_text),
    Target("recogs", text("recogs", "a:\tref=['A', 'B']\na:\thyp=['A']\n"), both_sides),
    Target("counts", text("counts", "3 A\n2 B\n2 <s> A\n1 A B\n1 A A\n1 B B\n"), read_counts),
    *(Target(f"transcripts {kind}", text("t", SPOKEN[kind]), transcripts(kind)) for kind in KINDS),
    Target("weights", text("w.json", '{"scales": {"am": 1.0, "lm": 0.5}, "info": {"x": [1]}}'), load_weights),
    Target("YAML", text("c.yaml", YAML), options_of),
    Target("sentences", text("t.txt", "A B\n\nC\n"), lambda path: list(read_sentences(path))),
    Target("sentences.gz", text("t.gz", "a A B\n\nb C\n"), lambda path: list(read_sentences(f"kaldi:{path}"))),
]
LM_TARGETS = [
    *(Target(f"LM {name}", model("transformer", name), use_model) for name in MODEL_FILES),
    Target("LM bpe.model", model("lstm", "bpe.model"), use_model),
    Target("ARPA", ngram("a.arpa", zoo.ARPA.encode()), use_ngram),
    Target("ARPA.gz", ngram("a.arpa.gz", gzip.compress(zoo.ARPA.encode())), use_ngram),
    Target("KenLM probing", ngram("a.bin", kenlm_files.PROBING), use_ngram, 0.2),
    Target("KenLM trie", ngram("a.bin", kenlm_files.TRIE), use_ngram, 0.2),
    Target("G.fst", grammar("G.fst"), use_grammar),
    Target("G.fst words", grammar("words.txt"), use_grammar),
    *(Target(f"icefall LM {name}", icefall(name), use_icefall) for name in ("epoch-1.pt", "bpe.model")),
    *(Target(f"pytorchnn LM {name}", nnlm(name), use_nnlm) for name in ("model.pt", "words.txt")),
    *(Target(f"LM training {name}", training(name), use_training) for name in TRAINING_FILES),
]
ASR_TARGETS = [
    *(Target(f"asr {name}", recogniser(name), lambda path: load_model(path.parent), 0.5) for name in ASR_FILES),
    Target("asr epoch-1.pt", recogniser("epoch-1.pt"), read_checkpoint),
    Target("asr named config", text("c.json", json.dumps(TransducerConfig().to_dict())), load_config),
    Target("cuts", text("cuts.jsonl", json.dumps(CUT) + "\n"), lambda path: list(load_cuts(path))),
    Target("speakers", text("s.json", '{"train": ["1", "2"], "test": ["3"]}'), lambda path: split_by_speaker({}, path)),
    *(Target(f"Kaldi folder {name}", kaldi_folder(name), use_kaldi_folder) for name in KALDI_FILES),
]
TARGETS = [*LIST_TARGETS, *LATTICE_TARGETS, *TEXT_TARGETS, *LM_TARGETS, *ASR_TARGETS]


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_damaged_files(target: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kenlm_check, "SECONDS", 5)  # that a table without an end may be searched
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        faults = run(target, tmp_path)
    assert not faults, "\n".join(faults)
