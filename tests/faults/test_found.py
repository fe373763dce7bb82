"""What `tests.faults.fuzz` has found, one test for each class of fault."""

from __future__ import annotations

import json
import lzma
import tracemalloc
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest
import torch

from asr.dataset.manifests import load_cuts
from asr.dataset.synthetic_set import SetOptions, _check_options, _rows
from asr.decoding.journal import Journal
from asr.errors import AsrError, CheckpointError, ConfigError, DataError
from asr.model.average import average
from asr.model.checkpoint import read_checkpoint, write_checkpoint
from asr.model.config import TransducerConfig
from asr.seq2seq.whisper import WhisperTokens
from lm_zoo.errors import ModelError, TextError, printable
from lm_zoo.model_folder import LOG
from lm_zoo.registry import load, settings_of
from lm_zoo.text.sentences import read_sentences
from lm_zoo.training.config import TrainConfig
from lm_zoo.training.run import train_config
from lm_zoo.training.run_identity import check_run
from lm_zoo.training.run_log import lines_before
from rescore.cli.recipe import read_defaults
from rescore.errors import FormatError, RescoreError, UsageError, WeightsError
from rescore.file_names import by_numbers
from rescore.files import read_kaldi_text, write_kaldi_text
from rescore.formats import read_lattices, read_nbest, write_nbest
from rescore.sharing.parts import PLAN, Parts, Split, finished_splits, part_files, parts_inside
from rescore.types import Hypothesis, NbestList
from rescore.weights import load_weights
from rescore.workflows.curves import read_run
from rescore.workflows.recordings import find_recordings
from rescore.workflows.report.write import read_networks
from rescore.workflows.transcripts import KINDS, read_transcripts
from tests.asr.test_untrusted import cut_of
from tests.faults.damage import grown_since, limits, memory
from tests.faults.readers.recognisers import WHISPER, averaged

NODES = "VERSION=1.0\nN=3 L=2\nI=0\nI=1\nI=2\n"


def test_a_lattice_whose_arcs_are_on_no_path_is_refused(tmp_path: Path) -> None:
    """It was read as an empty sentence."""
    (tmp_path / "a.slf").write_text(NODES + "J=0 S=0 E=1 W=A a=1\nJ=1 S=1 E=0 W=B a=1\n")
    (tmp_path / "b.pfsg").write_text("name a\nnodes 2 NULL A\ninitial 0\nfinal 0\ntransitions 1\n0 1 -1\n")
    for spec in ("slf:a.slf", "pfsg:b.pfsg"):
        with pytest.raises(FormatError, match="is both start and end"):
            list(read_lattices(spec.replace(":", f":{tmp_path}/")))


@pytest.mark.parametrize("name", ["a.slf", "a.pfsg"])
def test_a_last_number_that_was_cut_is_no_number(tmp_path: Path, name: str) -> None:
    """`a=-15` cut off to `a=-1` is another score; a whole file ends with its line."""
    text = {"a.slf": NODES + "J=0 S=0 E=1 W=A a=-1\nJ=1 S=1 E=2 W=B a=-15\n"}
    text["a.pfsg"] = "name a\nnodes 2 NULL A\ninitial 0\nfinal 1\ntransitions 1\n0 1 -15\n"
    (tmp_path / name).write_text(text[name][:-2])
    with pytest.raises(FormatError, match="the line does not end: cut off"):
        list(read_lattices(str(tmp_path / name)))


def test_fields_beside_quotes_are_not_passed_over(tmp_path: Path) -> None:
    (tmp_path / "a.slf").write_text(NODES + 'J=0 S=0 E=1 W="A" junk a=1\nJ=1 S=1 E=2 W=B a=1\n')
    with pytest.raises(FormatError, match=r"a.slf:6: expected fields 'name=value'"):
        list(read_lattices(str(tmp_path / "a.slf")))


@pytest.mark.parametrize("unit", ["\\", "\\'", 'a\\"', "'"])
def test_long_quoted_words_take_little_memory(tmp_path: Path, unit: str) -> None:
    """A regular expression took 480 bytes for each character."""
    word = 'W="' + unit * (1_000_000 // len(unit))
    (tmp_path / "a.slf").write_text(NODES + f'J=0 S=0 E=1 {word} a"\nJ=1 S=1 E=2 W=B a=1\n')
    before = memory()
    with pytest.raises(FormatError):
        list(read_lattices(str(tmp_path / "a.slf")))
    assert not grown_since(before)


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_transcripts_take_time_by_their_length(tmp_path: Path, kind: str) -> None:
    """Marks that are opened and never closed took hours."""
    before = {"swbd": "a 0 1 ", "fisher": "0 1 A: ", "stm": "f 1 s 0 1 ", "chat": "*P:\t"}[kind]
    for run in ("[", "<", "{", "(", "/", "[/", "{a/", "<a", "\x15", "(1", "]", "[a/"):
        (tmp_path / "t").write_text(f"{before}a {run * 200_000}\n{before}b {run * 200_000}]\n")
        list(read_transcripts(kind, tmp_path / "t"))


@pytest.mark.parametrize("suffix", [".gz", ".xz"])
def test_a_packed_file_of_no_bytes_is_no_empty_text(tmp_path: Path, suffix: str) -> None:
    """So is one that a full disk or a stopped copy left."""
    path = tmp_path / f"text{suffix}"
    path.write_bytes(b"")
    with pytest.raises(TextError, match="it is empty, which no packed file is"):
        list(read_sentences(path))
    with pytest.raises(FormatError, match="compressed file is truncated or damaged"):
        read_kaldi_text(path)


def test_weights_with_infinite_notes_are_refused(tmp_path: Path) -> None:
    (tmp_path / "w.json").write_text('{"scales": {"am": 1}, "info": {"wer": 1e999}}')
    with pytest.raises(WeightsError, match=r'"info" has a number that is not finite'):
        load_weights(tmp_path / "w.json")


def test_true_is_no_number_in_settings() -> None:
    with pytest.raises(ModelError, match="setting 'heads' is True, expected something like"):
        settings_of("transformer", {"heads": True})
    with pytest.raises(ModelError, match="'steps' is True"):
        train_config({"steps": True})
    assert train_config({"steps": 3}) == TrainConfig(steps=3)


@pytest.mark.parametrize("name", ["../lm.arpa", "/etc/passwd", "x" * 300, "", "..", 7])
def test_a_model_folder_names_files_of_its_own(tmp_path: Path, name: object) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"kind": "ngram", "file": name, "case": "upper"}))
    with pytest.raises(ModelError, match=r"config.json: expected JSON with 'file'|no such file"):
        load(str(tmp_path))


SHARE = {"parts": 1}


BAD_SHARES = ["", "[]", "{", "\xff", '"\\ud800"', "{}", "9" * 5000, "[" * 100_000]
BAD_SHARES += [f'{{"parts": {parts}}}' for parts in ("-1", "true", '"1"')]


@pytest.mark.parametrize("text", BAD_SHARES)
def test_damaged_records_of_shares(tmp_path: Path, text: str) -> None:
    folder = tmp_path / ".parts"
    folder.mkdir()
    (folder / "split-1-of-2.json").write_text(json.dumps(SHARE))
    (folder / "split-2-of-2.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(FormatError, match=r"split-2-of-2.json: damaged \(.*\); remove it and run its share again"):
        finished_splits(folder)


def test_a_number_of_parts_is_not_trusted(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match=r"000000.jsonl.gz: no such part"):
        part_files(tmp_path, 10**15)


@pytest.mark.parametrize("line", ["{", "[]", '{"id": 3}', '{"x": "a"}', "\xff", '{"id": "\\ud800"}'])
def test_damaged_journals(tmp_path: Path, line: str) -> None:
    path = tmp_path / "journal"
    path.write_bytes(b'{"a": 1}\n{"id": "x"}\n' + line.encode("latin-1") + b"\n")
    with pytest.raises(DataError, match=r"journal(:3: damaged|: cannot be read) \(.*\); remove"):
        list(Journal(path, {"a": 1}))


def test_damaged_records_of_sets_and_trainings(tmp_path: Path) -> None:
    for text in ("{", "[1]", "7"):
        (tmp_path / "options.json").write_text(text)
        with pytest.raises(DataError, match=r"options.json: damaged"):
            _check_options(tmp_path / "options.json", vars(SetOptions()))
        (tmp_path / "shard.jsonl").write_text(f'{{"id": "a", "text": "A"}}\n{text}\n')
        with pytest.raises(DataError, match=r"shard.jsonl:2: damaged"):
            list(_rows([tmp_path]))
        (tmp_path / "log.jsonl").write_text(f'{{"step": 1}}\n{text}\n')
        with pytest.raises(ModelError, match=r"log.jsonl: damaged"):
            lines_before(tmp_path / "log.jsonl", 2, None)
        (tmp_path / "vocab").mkdir(exist_ok=True)
        (tmp_path / "vocab" / "case").write_text("upper")
        (tmp_path / "run.json").write_text(text)
        with pytest.raises(ModelError, match=r"run.json: damaged"):
            check_run(tmp_path, {"a": 1})


@pytest.mark.parametrize("numbers", [{"x": 10**12}, {"x": -1}, {"x": "1"}, {"x": True}])
def test_numbers_of_whisper_tokens_are_not_trusted(tmp_path: Path, numbers: dict[str, object]) -> None:
    for name, content in WHISPER.items():
        (tmp_path / name).write_text(content)
    (tmp_path / "vocab.json").write_text(json.dumps({**json.loads(WHISPER["vocab.json"]), **numbers}))
    with pytest.raises(CheckpointError, match=r"a token that is no number|not numbered from 0 on"):
        WhisperTokens(tmp_path)


def test_sizes_in_a_checkpoint_are_not_trusted(tmp_path: Path) -> None:
    """`asr average` made the model that a checkpoint's configuration tells of before it looked at its weights."""
    averaged("epoch-2.pt")(tmp_path)
    contents = read_checkpoint(tmp_path / "epoch-2.pt")
    contents["model_config"]["encoder"]["dim"] = 4096
    write_checkpoint(tmp_path / "epoch-2.pt", contents)
    before = memory()
    with pytest.raises(CheckpointError, match=r"epoch-2.pt: the sizes .* call for far more numbers"):
        average(tmp_path, 2, None, 1, False)
    assert not grown_since(before)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda contents: contents["model_config"]["encoder"].update(heads={2: b"x"}), "found heads .*, expected int"),
        (lambda contents: contents["model_config"].update(decoder_dim=torch.float32), "decoder_dim of type .*"),
        (lambda contents: contents.pop("batch_idx_train"), "has no batch_idx_train"),
        (lambda contents: contents.update(batch_idx_train=[3]), "has no batch_idx_train"),
    ],
)
def test_what_else_a_checkpoint_may_hold(damage: Callable[[Any], object], message: str, tmp_path: Path) -> None:
    averaged("epoch-2.pt")(tmp_path)
    contents = read_checkpoint(tmp_path / "epoch-2.pt")
    damage(contents)
    write_checkpoint(tmp_path / "epoch-2.pt", contents)
    with pytest.raises(AsrError, match=f"epoch-2.pt: .*{message}"):
        average(tmp_path, 2, None, 1, False)


def test_values_nested_too_deeply_to_be_shown() -> None:
    made: list[Any] = []
    for _ in range(10**5):
        made = [made]
    with pytest.raises(ConfigError, match="found decoder_dim of type list, expected int"):
        TransducerConfig.from_dict({"decoder_dim": made})


def test_names_that_no_system_takes_in_manifests(tmp_path: Path) -> None:
    (tmp_path / "cuts.jsonl").write_text(json.dumps(cut_of(Path("x" * 5000))) + "\n")
    with pytest.raises(FormatError, match=r"cuts.jsonl:1: not a lhotse cut \(.*name too long"):
        list(load_cuts(tmp_path / "cuts.jsonl"))


def test_messages_are_one_line_without_control_characters() -> None:
    """An id with an escape sequence could move a terminal's cursor, or begin a line of its own."""
    assert printable("a\x1b[2Jb\nc\x9bd\te") == "a\\x1b[2Jb\\nc\\x9bd\\te"


@pytest.mark.parametrize("line", ["a-1 {}A B", "a-1 -1.5 {}A", "a-1 -{}e B", "a-1 1.{}A", "a-1 .{}A", "a-1 1e{}A"])
def test_long_numbers_take_time_by_their_length(tmp_path: Path, line: str) -> None:
    """A regular expression took hours for digits that a letter ends."""
    (tmp_path / "a.nbest").write_text(line.format("1" * 1_000_000) + "\n")
    try:
        assert len(list(read_nbest(f"srilm:{tmp_path}/a.nbest"))) == 1
    except RescoreError as error:
        assert len(str(error)) <= 1500


def test_ids_of_thousands_of_digits_have_an_order() -> None:
    """int() takes 4,300 digits at most."""
    ids = ["a-" + "9" * 5000, "a-1" + "0" * 5000, "a-10", "a-\u00b2", "a-2", "a-02-1", "a"]
    assert [len(utt_id) for utt_id in sorted(ids, key=by_numbers)] == [1, 3, 6, 4, 5002, 5003, 3]
    assert by_numbers("a-02") == by_numbers("a-2") < by_numbers("a-10")


MARKED = {
    "text": ("\ufeffa A\n", read_kaldi_text),
    "a.nbest": ("\ufeffa-1 1.0 A\n", lambda path: list(read_nbest(f"srilm:{path}"))),
    "a.jsonl": (
        '{"utt_id": "\ufeffa", "hyps": [{"words": "A", "scores": {}}]}\n',
        lambda path: list(read_nbest(f"jsonl:{path}")),
    ),
}


@pytest.mark.parametrize("name", MARKED)
@pytest.mark.parametrize("joined", [False, True])
def test_ids_do_not_begin_with_a_byte_order_mark(tmp_path: Path, name: str, joined: bool) -> None:
    """Written on a first line it was lost in reading; on others it stayed, unseen, where files were joined."""
    text, read = MARKED[name]
    first = text.replace("\ufeffa", "b") if joined else "\ufeff"
    (tmp_path / name).write_text(first + text)
    with pytest.raises(FormatError, match=f"{name}:{1 + joined}.*begins with a byte order mark.*remove it"):
        read(tmp_path / name)


def test_files_are_not_written_with_a_byte_order_mark_that_is_lost(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="begins with a byte order mark"):
        write_kaldi_text(tmp_path / "text", {"b": ("A",), "\ufeffa": ("A",)})
    marked = NbestList("a", [Hypothesis(("\ufeffA",), {"am": 1.0})], None)
    with pytest.raises(FormatError, match="the first word begins with a byte order mark"):
        write_nbest(f"nemo:{tmp_path}/a.tsv", [marked])
    assert not list(tmp_path.iterdir())


def test_a_packed_file_that_wants_all_memory(tmp_path: Path) -> None:
    """The header of an xz file asked for 4 GB to unpack 60 bytes."""
    data = bytearray(lzma.compress(b'{"utt_id": "a", "hyps": []}\n'))
    size = 4 * (data[12] + 1)  # of the block's header, behind the stream's of 12 bytes
    assert data[14] == 0x21  # the filter LZMA2, whose one property is the size of its dictionary
    data[16] = 40
    data[8 + size : 12 + size] = zlib.crc32(data[12 : 8 + size]).to_bytes(4, "little")
    (tmp_path / "a.jsonl.xz").write_bytes(data)
    with limits(), pytest.raises(FormatError, match=r"damaged after line 0 \(its header asks for more memory than"):
        list(read_nbest(str(tmp_path / "a.jsonl.xz")))


@pytest.mark.parametrize("start", ["9" * 400, "-" + "9" * 400, "1e400"])
def test_a_start_that_is_no_number_of_seconds_gives_no_order(tmp_path: Path, start: str) -> None:
    path = tmp_path / "supervisions.jsonl"
    path.write_text(f'{{"id": "a", "recording_id": "r", "start": {start}, "duration": 1.0}}\n')
    with pytest.raises(FormatError, match=r"supervisions\.jsonl:1: found"):
        find_recordings([NbestList("a", [])], file=path)
    path = tmp_path / "segments"
    path.write_text("a r nan 2\n")
    with pytest.raises(FormatError, match="segments:1: found"):
        find_recordings([NbestList("a", [])], file=path)


def test_numbers_of_hundreds_of_digits_in_logs_and_networks(tmp_path: Path) -> None:
    large = "9" * 400
    (tmp_path / "log.jsonl").write_text(f'{{"valid_ppl": {large}, "tokens": 1, "cpu_seconds": 1.0}}\n')
    with pytest.raises(UsageError, match=r"log\.jsonl:1: expected a record"):
        read_run(tmp_path)
    (tmp_path / "networks.jsonl").write_text(f'{{"utt_id": "a", "places": [{{"words": [["b", {large}]]}}]}}\n')
    with pytest.raises(FormatError, match=r"networks\.jsonl:1: expected a line"):
        read_networks(tmp_path / "networks.jsonl")


def test_an_expression_in_recogs_is_not_parsed(tmp_path: Path) -> None:
    path = tmp_path / "recogs"
    path.write_text("a:\tref=['A', " + "1&" * 80_000 + "]\n")
    tracemalloc.start()
    try:
        with pytest.raises(FormatError, match="recogs:1: found"):
            read_kaldi_text(path)
        assert tracemalloc.get_traced_memory()[1] < 10 << 20  # 69 MB by Python's parser
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("depth", [100, 900, 960, 10**5])
def test_nested_plans_and_logs(depth: int, tmp_path: Path) -> None:
    """Near the depth that the stack allows, and far beyond."""
    nested = "[" * depth + "]" * depth
    folder = parts_inside(tmp_path)
    folder.mkdir(parents=True)
    (folder / PLAN).write_text(f'{{"source": "abc", "batch": {nested}}}')
    with pytest.raises(UsageError, match=r"parts of a run with another (batch|plan)"):
        Parts(folder, {"source": "abc"}, Split(1, 2))
    (tmp_path / LOG).write_text(nested)
    with pytest.raises(UsageError, match=":1: expected a record"):
        read_run(tmp_path)


@pytest.mark.parametrize(
    "value", ["1" + ":59" * 400 + ".5", "0x" + "f" * 5000, "1" + ":59" * 4000, "[0b" + "1" * 20000 + "]"]
)
def test_yaml_with_numbers_that_cannot_be_written(value: str, tmp_path: Path) -> None:
    """Of base 60 and 16: what is too large for a float, and of more digits than Python writes."""
    (tmp_path / "c.yaml").write_text(f"steps: {value}\n")
    with pytest.raises(UsageError, match=r"c\.yaml: expected a YAML file of options \(.*(too large|limit)"):
        read_defaults(tmp_path / "c.yaml", click.Command("x", params=[click.Option(["--steps"])]))
