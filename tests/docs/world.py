"""A working folder with small files under the names that the documentation's commands have."""

from __future__ import annotations

import json
import lzma
import shutil
from pathlib import Path

from click.testing import CliRunner

import rescore as rs
from lm_zoo.registry import build, save_folder
from lm_zoo.text.tokenizer import build_pieces
from rescore.cli.main import cli
from rescore.cli.sample import SAMPLE
from rescore.weights import save_weights
from tests.egs.corpora import text
from tests.lm_zoo.icefall import test_speechbrain_lm
from tests.lm_zoo.icefall.test_espnet_lm import MARKS
from tests.lm_zoo.icefall.test_espnet_lm import written as write_espnet

UTTERANCES, HYPOTHESES = 4, 4
TINY = {"dim": 16, "heads": 2, "feedforward": 16}
KALDI = {  # folders of Kaldi's lattices: whose they are
    "exp/chain/decode_dev": "dev",
    "exp/chain/decode_test": "test",
    "exp/tri1/decode": "dev",
    "exp/decode": "dev",
    "exp/decode_dev": "dev",
}


def make(folder: Path) -> None:
    """Writes lists, references, texts, LMs and lattices of a few utterances of the sample into `folder`."""
    lists = {name: _part_of_the_sample(folder, name) for name in ("dev", "test")}
    sentences = "".join(hyp.partition(" ")[2] for name in lists for hyp in _lines(folder / f"{name}.txt"))
    _write_lists(folder, lists)
    _write_texts(folder, sentences)
    _write_lms(folder, sentences)
    words = {word for nbest in lists.values() for item in nbest for hyp in item.hyps for word in hyp.words}
    table = ["<eps>", "<unk>", *sorted(words | set(sentences.split()))]
    for name in ("words.txt", "data/lang/words.txt", "data/lang_bpe_500/words.txt"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("".join(f"{word} {number}\n" for number, word in enumerate(table)))
    _write_lattices(folder, lists)


def _lines(path: Path) -> list[str]:
    return path.read_text().splitlines(keepends=True)


def _rescore(*arguments: object) -> None:
    result = CliRunner().invoke(cli, [str(argument) for argument in arguments])
    assert result.exit_code == 0, result.output + repr(result.exception)


def _write_lists(folder: Path, lists: dict[str, rs.Lists]) -> None:
    """The same lists and references in other formats, and under other names."""
    for name, nbest in lists.items():
        _copy(folder / f"{name}.txt", folder / f"data/{name}/text")
        (folder / "exp").mkdir(exist_ok=True)
        nbest.write(f"espnet:{folder / f'exp/decode_{name}'}?score=am")
        nbest.write(f"nemo:{folder / f'preds_{name}.tsv'}?score=am")
        rows = (line.split(maxsplit=1) for line in _lines(folder / f"{name}.txt"))
        manifest = (json.dumps({"audio_filepath": f"{utt}.wav", "text": words.strip()}) + "\n" for utt, words in rows)
        (folder / f"{name}.json").write_text("".join(manifest))
    for copy in ("lists", "whisper"):
        _copy(folder / "dev.jsonl.gz", folder / f"{copy}.jsonl.gz")
    save_weights(folder / "exp/weights.json", rs.Weights({"am": 1.0, "transfornn": 0.5, "words": 0.0}))
    rs.Lists([*lists["dev"], *lists["test"]]).write(folder / "train.jsonl.gz")
    (folder / "text").write_text("".join((folder / f"{name}.txt").read_text() for name in lists))


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)


def _part_of_the_sample(folder: Path, name: str) -> rs.Lists:
    """Writes `NAME.jsonl.gz` and `NAME.txt`."""
    lists = []
    for item in list(rs.read_nbest(SAMPLE / f"{name}.jsonl.gz"))[:UTTERANCES]:
        hyps = [rs.Hypothesis(hyp.words, {"am": hyp.scores["am"]}) for hyp in item.hyps[:HYPOTHESES]]
        lists.append(rs.NbestList(item.utt_id, hyps))
    rs.Lists(lists).write(folder / f"{name}.jsonl.gz")
    (folder / f"{name}.txt").write_text("".join((SAMPLE / f"{name}.txt").read_text().splitlines(True)[:UTTERANCES]))
    return rs.Lists(lists)


def _write_texts(folder: Path, sentences: str) -> None:
    train = text(300) + sentences * 3
    for name in ("train", "target", "valid"):
        (folder / f"{name}.txt").write_text(train if name != "valid" else sentences)
    for name in ("books", "other"):
        (folder / f"{name}.txt.xz").write_bytes(lzma.compress(train.encode()))


def _write_lms(folder: Path, sentences: str) -> None:
    """An n-gram, counts, two untrained LMs over pieces, and one each as ESPnet and SpeechBrain leave it."""
    counts = dict.fromkeys(sentences.split(), 9)
    vocab = build_pieces(counts, 60, "bpe")
    train = ("--text", folder / "train.txt", "--out")
    _rescore("train-ngram", "--order", 2, "--discount-fallback", *train, folder / "4gram.arpa")
    _rescore("count", *train, folder / "counts.txt.gz")
    for kind, name in (("transfornn", "exp/lm"), ("transformer", "exp/transformer")):
        save_folder(folder / name, build(kind, vocab, TINY), kind, {})
    trained = folder / "exp/lm_train"
    trained.mkdir()
    tokens = ["<blank>", "<unk>", *(piece for piece in vocab.pieces if piece not in MARKS), "<sos/eos>"]
    write_espnet(trained, tokens=tokens, bpemodel="exp/lm_train/bpe.model")
    (trained / "bpe.model").write_bytes(vocab.model)
    test_speechbrain_lm.written(folder, test_speechbrain_lm.rnn_tensors(), test_speechbrain_lm.RNN)


def _write_lattices(folder: Path, lists: dict[str, rs.Lists]) -> None:
    for name, nbest in lists.items():
        (folder / name).mkdir()
        for item in nbest:
            (folder / name / f"{item.utt_id}.slf").write_text(_slf(item))
    shutil.copytree(folder / "dev", folder / "lattices")
    (folder / "lattices/dev-01.slf").rename(folder / "lattices/utt1.slf")
    for decoded, name in KALDI.items():
        target = f"kaldi:{folder / decoded / 'lat.1.gz'}"
        _rescore("lattice", "convert", f"slf:{folder / name}", target, "--words", folder / "words.txt")
    _copy(folder / "exp/decode/lat.1.gz", folder / "lat.1.gz")


def _slf(item: rs.NbestList) -> str:
    """A lattice of the hypotheses side by side, words on nodes, half a second each."""
    nodes, links = ["I=0 t=0 W=!NULL"], []
    end = 1 + sum(len(hyp.words) for hyp in item.hyps)
    for hyp in item.hyps:
        before, acoustic = 0, hyp.scores["am"] / len(hyp.words)
        for place, word in enumerate(hyp.words, start=1):
            node = len(nodes)
            nodes.append(f"I={node} t={place / 2} W={word}")
            links.append(f"S={before} E={node} a={acoustic} l=-2.0")
            before = node
        links.append(f"S={before} E={end} a=0 l=-1.0")
    nodes.append(f"I={end} t=20 W=!NULL")
    head = f"VERSION=1.0\nUTTERANCE={item.utt_id}\nN={len(nodes)} L={len(links)}\n"
    return head + "\n".join([*nodes, *(f"J={number} {link}" for number, link in enumerate(links))]) + "\n"
