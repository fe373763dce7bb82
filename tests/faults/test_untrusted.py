"""Files of others at the doors of the commands: nothing in them is run, no name in them leaves the output folder."""

from __future__ import annotations

import io
import json
import pickle
import sys
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest
import torch

from asr.cli.main import main as asr_main
from asr.dataset.loader import load_errors
from asr.dataset.manifests import load_cuts
from lm_zoo.errors import LMError
from lm_zoo.registry import save_folder
from rescore.cli.main import main as rescore_main
from rescore.cli.recipe import read_defaults
from rescore.errors import RescoreError, UsageError
from rescore.file_names import LONGEST
from rescore.formats import read_lattices, read_nbest, write_lattices, write_nbest
from rescore.formats.table import FORMATS
from rescore.types import Hypothesis, NbestList
from tests.asr.test_untrusted import Makes, cut_of, features_of
from tests.commands import run_line
from tests.faults.readers.lattices import lattice
from tests.faults.readers.recognisers import averaged
from tests.lm_zoo.zoo import neural

ESCAPES = ["../up", "../../up", "/tmp/rescore-absolute", "a/../../up", "a/b", "..", "a\nb", "a\x00b", "a\x1bb", "\x7f"]
IDS = [*ESCAPES, "x" * 5000, "\u00fc" * 2500]


def pickles(evil: Any) -> dict[str, bytes]:
    """What runs code where it is unpickled: alone, as old and new torch files, and beside tensors."""
    contents = {"model": {"w": torch.ones(1)}, "evil": evil}
    made = {"alone": pickle.dumps(contents, protocol=2)}
    for name, new in (("old torch", False), ("torch", True)):
        stream = io.BytesIO()
        torch.save(contents, stream, _use_new_zipfile_serialization=new)
        made[name] = stream.getvalue()
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr("x/data.pkl", made["alone"])
    return {**made, "zip": stream.getvalue()}


RECOGNISER = "--epoch 2 --avg 1 --exp-dir FOLDER"
DOORS: dict[str, tuple[str, Callable[[], None], str]] = {  # the file, the command
    "k2 lattices": ("a.pt", rescore_main, "lattice best-path k2:FOLDER/a.pt?words=ids"),
    "a folder of k2 lattices": (
        "k2/a.pt",
        rescore_main,
        "lattice nbest --jobs 1 k2:FOLDER/k2?words=ids FOLDER/o.jsonl",
    ),
    "icefall's LM": ("a.pt", rescore_main, "import-lm FOLDER/a.pt --bpe FOLDER/bpe.model --out FOLDER/lm"),
    "Kaldi's LM": ("a.pt", rescore_main, "import-lm FOLDER/a.pt --words FOLDER/words --out FOLDER/lm"),
    "ESPnet's LM": ("a.pt", rescore_main, "import-lm FOLDER/a.pt --config FOLDER/config.yaml --out FOLDER/lm"),
    "SpeechBrain's LM": (
        "a.pt",
        rescore_main,
        "import-lm FOLDER/a.pt --config FOLDER/hyperparams.yaml --bpe FOLDER/bpe.model --out FOLDER/lm",
    ),
    "asr average": ("epoch-2.pt", asr_main, f"average {RECOGNISER} --out FOLDER/model"),
    "asr decode": ("epoch-2.pt", asr_main, f"decode FOLDER/cuts.jsonl {RECOGNISER} --out FOLDER/out"),
    "safetensors that are none": ("lm/model.safetensors", rescore_main, "ppl --lm FOLDER/lm --text FOLDER/words"),
}


@pytest.mark.parametrize("door", DOORS)
def test_no_door_unpickles(door: str, tmp_path: Path) -> None:
    """Every command gets as far as the file (for Hugging Face's see `tests/lm_zoo/models/test_hf_causal.py`)."""
    target = tmp_path / "made-by-a-file"
    name, main, line = DOORS[door]
    averaged("epoch-2.pt")(tmp_path)
    save_folder(tmp_path / "lm", neural("lstm"), "lstm", {})
    (tmp_path / "words").write_text("<eps> 0\n<s> 1\nA 2\n")
    (tmp_path / "config.yaml").write_text("lm: transformer\ntoken_list: [<unk>, <sos/eos>]\ntoken_type: word\n")
    (tmp_path / "hyperparams.yaml").write_text("lm: !new:speechbrain.lobes.models.RNNLM.RNNLM {dnn_blocks: 1}\n")
    (tmp_path / "cuts.jsonl").write_text("")
    (tmp_path / name).parent.mkdir(exist_ok=True)
    for kind, data in pickles(Makes(target)).items():
        (tmp_path / name).write_bytes(data)
        code, said = run_line(main.__module__.partition(".")[0], main, line.replace("FOLDER", str(tmp_path)))
        assert code == 2 and name in said and not target.exists(), (kind, said)


@pytest.mark.parametrize("kind", ["numpy_files", "memory_raw", "lilcom_files", "kaldiio"])
def test_features_are_not_unpickled(tmp_path: Path, kind: str) -> None:
    """Arrays of Python objects (`.npy`), and whatever else lhotse reads features from."""
    target = tmp_path / "made-by-a-file"
    np.save(tmp_path / "y.npy", np.array([Makes(target)], dtype=object))
    features = features_of(storage_type=kind, storage_path=str(tmp_path), storage_key="y.npy")
    (tmp_path / "cuts.jsonl").write_text(json.dumps({**cut_of(tmp_path / "a.wav"), "features": features}) + "\n")
    with pytest.raises((RescoreError, *load_errors())):
        for cut in load_cuts(tmp_path / "cuts.jsonl"):
            cut.load_features()
    assert not target.exists()


def named(folder: Path, name: str) -> Path:
    """A YAML file that would run a program if it were not read by a safe loader."""
    path = folder / "c.yaml"
    path.write_text(f"name: !!python/object/apply:os.system ['touch {folder / name}']\n")
    return path


def test_yaml_makes_no_objects(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="could not determine a constructor for the tag"):
        read_defaults(named(tmp_path, "made"), click.Command("x", params=[click.Option(["--name"])]))
    assert not (tmp_path / "made").exists()


@contextmanager
def opened() -> Iterator[list[tuple[str, bool]]]:
    """The files that are opened from here on, and whether to write."""
    found, here = list[tuple[str, bool]](), True

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if here and event == "open" and isinstance(arguments[0], (str, bytes, Path)):
            flags = arguments[2] if isinstance(arguments[2], int) else 0
            found.append((str(arguments[0]), bool(flags & 0o1103)))  # write, read and write, create, truncate

    sys.addaudithook(hook)
    try:
        yield found
    finally:
        here = False


FILES = {"words", "numbers", "ids", "manifest", "weights"}  # options that name a file to read


@pytest.mark.parametrize("value", ["../secret", "/etc/passwd", "..", "a/../../secret", "-", "|touch x"])
def test_options_of_formats_reach_no_files(tmp_path: Path, value: str) -> None:
    """Options but FILES open nothing, and none of them writes outside the output folder."""
    inside = tmp_path / "in" / "side"
    inside.mkdir(parents=True)
    (tmp_path / "in" / "secret").write_text("secret\n")
    for name, entry in FORMATS.items():
        for option in entry.options:
            spec = f"{name}:{inside / 'out'}?{option}={value}"
            lists = [NbestList("a", [Hypothesis(("A",), {"score": -1.0})])]
            with opened() as found:
                for work in (
                    lambda spec=spec: list(read_nbest(spec)),
                    lambda spec=spec: list(read_lattices(spec)),
                    lambda spec=spec, lists=lists: write_nbest(spec, lists),
                    lambda spec=spec: write_lattices(spec, [lattice("a")]),
                ):
                    try:
                        work()
                    except (RescoreError, LMError) as error:
                        assert option in FILES or "root:" not in str(error)
            written = [path for path, to_write in found if to_write and path != "/dev/null"]
            assert all(str(inside) in path for path in written), (spec, written)
            if option not in FILES:
                assert not [path for path, _ in found if "secret" in path or path == "/etc/passwd"], spec
    assert (tmp_path / "in" / "secret").read_text() == "secret\n" and not Path("x").exists()


def lists_of(ids: list[str]) -> list[NbestList]:
    return [NbestList(utt_id, [Hypothesis(("A",), {"score": -1.0})]) for utt_id in ids]


WRITERS: dict[str, Callable[[Path, str], object]] = {
    **{
        name: lambda out, utt_id, name=name: write_nbest(f"{name}:{out}/lists", lists_of([utt_id]))  # type: ignore[misc]
        for name, entry in FORMATS.items()
        if entry.kind == "nbest" and not entry.read_only
    },
    **{
        name: lambda out, utt_id, name=name: write_lattices(  # type: ignore[misc]
            f"{name}:{out}/lats" + ("?words=ids" if name in ("kaldi-lat", "k2") else ""), [numbered(utt_id)]
        )
        for name, entry in FORMATS.items()
        if entry.kind == "lattice" and not entry.read_only
    },
}


def numbered(utt_id: str) -> Any:
    """A lattice whose words are numbers, for formats without a table."""
    made = lattice(utt_id)
    made.symbols = ["", "1", "2", "3"]
    return made


@pytest.mark.parametrize("name", WRITERS)
def test_ids_do_not_leave_the_output(name: str, tmp_path: Path) -> None:
    """Refused, or written within the folder that was named, under names that a file system takes."""
    out = tmp_path / "deep" / "er"
    out.mkdir(parents=True)
    for utt_id in IDS:
        try:
            WRITERS[name](out, utt_id)
        except RescoreError as error:
            assert len(str(error)) < 1000 and "\x1b" not in str(error) and "\n" not in str(error)
        for path in out.iterdir():
            for file in [path, *path.rglob("*")] if path.is_dir() else [path]:
                assert len(file.name.encode()) <= LONGEST + 10 and file.name.isprintable()
        left = [path for path in tmp_path.rglob("*") if out not in path.parents and path not in (out, out.parent)]
        assert not left and not Path("/tmp/rescore-absolute").exists()


@pytest.mark.parametrize("pipe", ["touch TARGET |", "| touch TARGET", "touch TARGET|"])
def test_pipes_of_lattices_are_refused_by_name(tmp_path: Path, pipe: str) -> None:
    (tmp_path / "lat.scp").write_text(f"a {pipe.replace('TARGET', str(tmp_path / 'made'))}\n")
    line = f"lattice best-path kaldi-lat:{tmp_path / 'lat.scp'}?words=ids"
    code, said = run_line("rescore", rescore_main, line)
    assert code == 2 and "lat.scp:1: 'a' is the output of a command" in said and "never run for lattices" in said
    assert not (tmp_path / "made").exists()
