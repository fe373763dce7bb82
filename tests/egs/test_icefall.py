"""egs/icefall: a decode script with the parts that icefall's have, run as it is; its lattices rescored to a table."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from lm_zoo.registry import build, save_folder
from lm_zoo.text.tokenizer import build_pieces
from rescore.formats.k2 import write_lattices
from tests.egs.conftest import ROOT, Recipes, write_lms

PIECES = [
    "<blk>",
    "<sos/eos>",
    "<unk>",
    "\u2581A",
    "\u2581THE",
    "\u2581C",
    "\u2581H",
    "AT",
    "\u2581DO",
    "G",
    "CK",
    "\u2581B",
]
ICEFALL = """
class LmScorer:
    @classmethod
    def add_arguments(cls, parser): parser.add_argument("--lm-exp-dir")
"""
BEAM_SEARCH = """
import torch
class Fsa:
    def __init__(self, entries): self.entries = entries
    def as_dict(self): return self.entries
def fast_beam_search(model, **kwargs):
    return Fsa(model)
def fast_beam_search_one_best(model, **kwargs):
    return fast_beam_search(model=model, **kwargs)
"""
DECODE = """
import argparse, torch
from pathlib import Path
from types import SimpleNamespace
from beam_search import fast_beam_search_one_best
from icefall import LmScorer
HERE = Path(__file__).parent
def decode_one_batch(params, model, batch):
    print("decoding", batch["name"])
    if params.decoding_method == "fast_beam_search":
        fast_beam_search_one_best(model=torch.load(HERE / (batch["name"] + ".pt")), beam=params.beam)
def store(filename, results):
    with open(filename, "w") as f:
        for cut_id, ref, hyp in results:
            print(f"{cut_id}:\\tref={ref}", file=f)
            print(f"{cut_id}:\\thyp={hyp}", file=f)
{SAVE}
def main():
    parser = argparse.ArgumentParser()
    for name in ("--exp-dir", "--beam", "--decoding-method", "--lm-type", "--lm-scale", "--skip-scoring"):
        parser.add_argument(name)
    LmScorer.add_arguments(parser)
    params = parser.parse_args()
    params.exp_dir = params.res_dir = Path(params.exp_dir)
    params.suffix = SUFFIX
    if params.lm_exp_dir:
        scale, device = float(params.lm_scale), torch.device("cpu")
        LM = LmScorer(lm_type=params.lm_type, params=params, device=device, lm_scale=scale)
        LM.eval()
        score, state = LM.score_token(torch.tensor([[1]]), torch.tensor([1]))
        print("fusion", LM.lm_type, tuple(score.shape), LM.lm_scale)
    for name in ("dev", "test"):
        for number in range(2):
            texts = TEXTS[2 * number : 2 * number + 2]
            cuts = [SimpleNamespace(id=f"{name}-{number}-{k}") for k in range(len(texts))]
            batch = {"name": f"{name}{number}", "supervisions": {"cut": cuts}}
            decode_one_batch(params=params, model=None, batch=batch)
            found = [(cut.id, ref.split(), hyp.split()) for cut, (ref, hyp) in zip(cuts, texts)]
            save = found if number == 0 else save + found
        save_all(params, name, {"fast_beam_search_beam-20": save})
if __name__ == "__main__":
    raise SystemExit("run as a script")
"""
SAVE = {  # until August 2024, and since
    "save_results": """
SUFFIX = "epoch-1-avg-1-beam-20"
def save_results(params, test_set_name, results_dict):
    for key, results in results_dict.items():
        store(params.res_dir / f"recogs-{test_set_name}-{params.suffix}.txt", sorted(results))
def save_all(params, test_set, results_dict):
    save_results(params=params, test_set_name=test_set, results_dict=results_dict)
""",
    "save_asr_output": """
SUFFIX = "epoch-1_avg-1_beam-20_max-contexts-8_max-states-64_use-averaged-model"
def save_asr_output(params, test_set_name, results_dict):
    for key, results in results_dict.items():
        store(params.res_dir / f"recogs-{test_set_name}-{params.suffix}.txt", sorted(results))
def save_wer_results(params, test_set_name, results_dict):
    with open(params.res_dir / f"wer-summary-{test_set_name}-{params.suffix}.txt", "w") as f:
        print("settings\\tWER", file=f)
        for key in results_dict:
            print(f"{key}\\t50.0", file=f)
def save_all(params, test_set, results_dict):
    save_asr_output(params=params, test_set_name=test_set, results_dict=results_dict)
    if not params.skip_scoring:
        save_wer_results(params=params, test_set_name=test_set, results_dict=results_dict)
""",
}


@pytest.fixture(params=["save_asr_output"])
def recipe(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A recipe folder of the generation that saves by this function; each reference is in its lattice, spelled by
    pieces, beside a word that is a little better."""
    folder = tmp_path / "icefall/zipformer"
    folder.mkdir(parents=True)
    (tmp_path / "icefall/icefall").mkdir()
    (tmp_path / "icefall/icefall/__init__.py").write_text(ICEFALL)
    (tmp_path / "icefall/icefall/lm_wrapper.py").write_text(ICEFALL)
    (folder / "beam_search.py").write_text(BEAM_SEARCH)
    texts = [("THE CAT", "THE HAT"), ("A DOG", "A DOCK"), ("A CAT", "A HAT"), ("THE DOG", "THE DOCK")]
    (folder / "decode.py").write_text(f"TEXTS = {texts}\n{DECODE.replace('{SAVE}', SAVE[request.param])}")
    (folder / "tokens.txt").write_text("".join(f"{piece} {k}\n" for k, piece in enumerate(PIECES)))
    for name in ("dev", "test"):
        for number in range(2):
            write_batch(folder / f"{name}{number}.pt", texts[2 * number : 2 * number + 2])
    return folder


def write_batch(path: Path, texts: list[tuple[str, str]]) -> None:
    """An FsaVec of both texts of each utterance, the second one better by 0.5, as `torch.save(as_dict)`."""
    import numpy as np
    import torch

    spelled = {"A": [3], "THE": [4], "CAT": [5, 7], "HAT": [6, 7], "DOG": [8, 9], "DOCK": [8, 10]}
    arcs, states, ends = [], [0], [0]
    for pair in texts:
        rows, nodes = [], 1
        for text, score in zip(pair, (-1.0, -0.5), strict=True):
            tokens, here = [token for word in text.split() for token in spelled[word]], 0
            for token in tokens:
                rows.append((here, nodes, token, score))
                here, nodes, score = nodes, nodes + 1, 0.0
            rows.append((here, -2, -1, 0.0))
        rows = sorted((source, nodes if onto == -2 else onto, label, score) for source, onto, label, score in rows)
        arcs += rows
        states.append(states[-1] + nodes + 1)
        ends.append(len(arcs))
    flat = np.array([row[:3] for row in arcs], dtype=np.int32)
    bits = np.array([row[3] for row in arcs], dtype=np.float32).view(np.int32)
    head = np.array([len(texts), 0, *states, *ends], dtype=np.int32)
    body = np.concatenate([flat, bits[:, None]], axis=1).reshape(-1)
    torch.save({"arcs": torch.from_numpy(np.concatenate([head, body]))}, path)


def decode(recipe: Path, *arguments: object, code: int = 0) -> str:
    """`rescore icefall-decode` as a user of icefall calls it, with icefall on PYTHONPATH."""
    done = subprocess.run(
        [sys.executable, "-m", "rescore.cli.main", "icefall-decode", *map(str, arguments)],
        cwd=recipe.parent,
        env={"PYTHONPATH": f"{ROOT}:{recipe.parent}", "PATH": "/usr/bin:/bin", "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert done.returncode == code, done.stdout
    return done.stdout


@pytest.mark.parametrize("recipe", SAVE, indirect=True)
def test_lattices_are_kept_and_rescored(recipe: Path, recipes: Recipes, tmp_path: Path) -> None:
    method = ("--exp-dir", recipe, "--decoding-method", "fast_beam_search", "--beam", 20)
    said = decode(recipe, "--lattices", tmp_path / "lat", "zipformer/decode.py", *method)
    assert "4 lattices kept in" in said
    assert sorted(file.name for file in (tmp_path / "lat/dev").iterdir()) == ["dev-0-0.pt", "dev-1-0.pt"]
    write_lms(tmp_path, ["A", "CAT", "DOG", "THE"])
    sets = [f"--{name}={tmp_path / 'lat' / name}" for name in ("dev", "test")]
    recogs = [f"--{name}-recogs={next(recipe.glob(f'recogs-{name}-*'))}" for name in ("dev", "test")]
    given = [part for option in (*sets, *recogs) for part in option.split("=", 1)]
    symbols = ["--symbols", recipe / "tokens.txt", "--pieces", "true"]
    lms = ["--lms", tmp_path / "tiny", "--ngram", tmp_path / "tiny.arpa"]
    recipes.run("icefall/rescore.sh", *given, *symbols, *lms, "--out", tmp_path / "out")
    rows = {row["name"]: row for row in json.loads((tmp_path / "out/results.json").read_text())["rows"]}
    assert list(rows) == ["icefall", "+ tiny", "+ ngram", "+ all"]
    assert rows["icefall"]["wer"] == pytest.approx(50.0) and rows["+ ngram"]["wer"] == 0.0
    assert (tmp_path / "out/test/ngram/1best.txt").read_text().splitlines()[0] == "test-0-0 THE CAT"
    assert "there is no option --case" in recipes.run("icefall/rescore.sh", *given, "--case", "lower", code=2)
    assert "decode with icefall first" in recipes.run("icefall/rescore.sh", *given, "--dev", "none", code=2)


def test_a_lattice_without_a_path_stops_or_is_left_out(recipe: Path, recipes: Recipes, tmp_path: Path) -> None:
    """As icefall has them behind LG, where no word ends with the last frame: its own result is empty."""
    import torch

    write_lms(tmp_path, ["A", "CAT", "DOG", "THE"])
    given: list[object] = ["--symbols", recipe / "tokens.txt", "--pieces", "true", "--out", tmp_path / "out"]
    for name in ("dev", "test"):
        (tmp_path / "lat" / name).mkdir(parents=True)
        entries = torch.load(recipe / f"{name}0.pt")
        write_lattices(entries, ["u0", "u1"], tmp_path / f"lat/{name}/a.pt")
        empty = torch.tensor([1, 0, 0, 3, 0, 1, 0, 1, 3, 0], dtype=torch.int32)  # no arc into the last state
        write_lattices({"arcs": empty}, ["lost"], tmp_path / f"lat/{name}/b.pt")
        texts = {"u0": ("THE CAT", "THE HAT"), "u1": ("A DOG", "A DOCK"), "lost": ("A CAT", "")}
        lines = [f"{utt}:\tref={ref.split()}\n{utt}:\thyp={hyp.split()}\n" for utt, (ref, hyp) in texts.items()]
        (tmp_path / f"recogs-{name}.txt").write_text("".join(lines))
        given += [f"--{name}", tmp_path / "lat" / name, f"--{name}-recogs", tmp_path / f"recogs-{name}.txt"]
    lms = ["--lms", tmp_path / "tiny"]
    assert "'lost': no path from start" in recipes.run("icefall/rescore.sh", *given, *lms, code=2)
    said = recipes.run("icefall/rescore.sh", *given, *lms, "--on-error", "skip")
    assert "'lost': no path from start" in said and "1 of 3 references left out (lost)" in said
    rows = {row["name"]: row for row in json.loads((tmp_path / "out/results.json").read_text())["rows"]}
    assert rows["icefall"]["wer"] == pytest.approx(50.0)


def test_fusion_with_an_lm_of_the_zoo(recipe: Path, tmp_path: Path) -> None:
    vocab = build_pieces({"HELLO": 5, "WORLD": 3, "HELL": 2, "WORD": 9}, 20, "bpe")
    save_folder(tmp_path / "lm", build("lstm", vocab, {"dim": 8}), "lstm", {})
    options = ("--exp-dir", recipe, "--lm-type", "rnn", "--lm-scale", 0.25, "--lm-exp-dir", tmp_path / "lm")
    assert "fusion rnn (1, 20) 0.25" in decode(recipe, "--zoo-lm", "zipformer/decode.py", *options)


def test_what_is_wrong_is_said(recipe: Path, tmp_path: Path) -> None:
    given = ("zipformer/decode.py", "--exp-dir", recipe, "--decoding-method", "greedy_search")
    said = decode(recipe, "--lattices", tmp_path / "lat", *given, code=2)
    assert "this decoding method makes no lattice" in said
    assert "decoding dev0" in said and "decoding dev1" not in said  # nobody waits for the whole set
    said = decode(recipe, "--zoo-lm", *given, code=2)
    assert "the script has made no LmScorer" in said and "decoding dev0" not in said
    (recipe / "lost.py").write_text("import icefall.no_such_part\n")
    said = decode(recipe, "--lattices", tmp_path / "lat", "zipformer/lost.py", code=2)
    assert "Traceback" not in said and "No module named 'icefall.no_such_part'; run this where icefall runs" in said
    assert "none.py: no such file, expected the decode.py" in decode(recipe, "none.py", code=2)
    (recipe / "other.py").write_text("def main(): pass\n")
    assert "no lattices to keep" in decode(recipe, "--lattices", tmp_path / "lat2", "zipformer/other.py", code=2)


@pytest.mark.parametrize(
    "form", ["beam_size_4_my_lm_lm_scale_{}\t{}", "modified_beam_search_beam-size-4_rnn-lm-scale-{}\t{}"]
)
def test_the_best_scale_of_summaries_of_both_generations(form: str, tmp_path: Path) -> None:
    for scale, wer in ((0.1, 5.2), (0.25, 4.96), (0.3, 10.1)):
        lines = f"settings\tWER\n{form.format(scale, wer)}\n"
        (tmp_path / f"wer-summary-dev-epoch-1_avg-1__my-lm-lm-scale-{scale}.txt").write_text(lines)
    (tmp_path / "wer-summary-dev-epoch-1_avg-1.txt").write_text("settings\tWER\ngreedy_search\t1.0\n")
    older = tmp_path / "wer-summary-dev-clean-epoch-1_avg-1__my-lm-lm-scale-0.9-word-reward-2.0.txt"
    older.write_text(f"settings\tWER\n{form.format(0.9, 1.0)}\n")  # another set, or other settings
    os.utime(older, (0, 0))
    assert in_asr_sh(tmp_path, "best_lm_scale dev exp/my-lm 3") == "0.25\n"


def test_the_last_lattices_are_taken(tmp_path: Path) -> None:
    for name, time in (("beam-15.0", 2), ("beam-20.0", 1)):
        (tmp_path / f"lattices-dev-small-{name}").mkdir()
        os.utime(tmp_path / f"lattices-dev-small-{name}", (time, time))
    assert in_asr_sh(tmp_path, "lattices dev") == f"slf:{tmp_path}/lattices-dev-small-beam-15.0\n"
    (file := tmp_path / "lattices-dev-small-beam-8.0.pt").touch()
    assert in_asr_sh(tmp_path, "lattices dev") == f"k2:{file}?words={file.with_suffix('')}.words.txt\n"
    with pytest.raises(subprocess.CalledProcessError):
        in_asr_sh(tmp_path, "lattices test")


def in_asr_sh(decoded: Path, command: str) -> str:
    """What a command of the recipes' shared functions prints."""
    script = f"set -eou pipefail; . {ROOT}/egs/shared/asr.sh; decoded={decoded}; {command}"
    env = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    return subprocess.run(["bash", "-c", script], stdout=subprocess.PIPE, text=True, check=True, env=env).stdout
