"""How Hugging Face's models are loaded: dtypes, LoRA adapters, 4 and 8 bits; and texts longer than their positions."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from click.testing import CliRunner

import rescore as rs
from lm_zoo.errors import LMError, ModelError
from lm_zoo.identity import lm_identity
from lm_zoo.inference.precision import ready
from lm_zoo.models import hf_model
from lm_zoo.models.hf_load import Loading, package
from lm_zoo.registry import load
from rescore.cli.main import cli
from rescore.workflows.columns import open_scorers
from tests.lm_zoo import hugging_face

SENTENCES = [("the", "cat", "sat"), (), ("a", "dog")]
LONG = tuple(("the cat sat on the mat and the dog saw a small cat " * 8).split())  # for 32 positions


@pytest.fixture(scope="module")
def gpt2(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("transformers", reason="Hugging Face models need transformers")
    return hugging_face.gpt2(tmp_path_factory.mktemp("hf") / "gpt2")


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The arguments of every `from_pretrained` of a causal model."""
    import transformers

    calls: list[dict[str, Any]] = []
    real = transformers.AutoModelForCausalLM.from_pretrained

    def recorded(*args: Any, **options: Any) -> Any:
        calls.append(options)
        few_bits = ("quantization_config", "device_map") if "quantization_config" in options else ()
        return real(*args, **{name: value for name, value in options.items() if name not in few_bits})

    monkeypatch.setattr(transformers.AutoModelForCausalLM, "from_pretrained", recorded)
    return calls


# -- files of llama.cpp ----------------------------------------------------------------------------------------------


def test_a_gguf_file_scores_as_the_folder_that_it_was_made_of(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("transformers", reason="GGUF files need transformers")
    path = hugging_face.gguf(tmp_path / "tiny.Q8.gguf", tmp_path / "folder")
    (found,) = open_scorers([f"hf:{path}?case=mixed"], None)
    folder = load(f"hf:{tmp_path / 'folder'}?case=mixed")
    assert found.column == "tiny.Q8"
    capfd.readouterr()
    lm = load(f"hf:{path}?case=mixed")
    assert capfd.readouterr() == ("", "")  # without transformers' progress
    for ours, theirs in zip(lm.score_hypotheses(SENTENCES), folder.score_hypotheses(SENTENCES), strict=True):
        assert ours == pytest.approx(theirs, abs=1e-4)
    assert next(load(f"hf:{path}?case=mixed", dtype="bfloat16").model.parameters()).dtype == torch.bfloat16


def test_a_gguf_file_is_parsed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("transformers", reason="GGUF files need transformers")
    import gguf

    path = hugging_face.gguf(tmp_path / "tiny.gguf", tmp_path / "folder")
    read = []

    class Reader(gguf.GGUFReader):  # type: ignore[misc]
        def __init__(self, *args: Any) -> None:
            read.append(str(args[0]))
            super().__init__(*args)

    monkeypatch.setattr(gguf, "GGUFReader", Reader)
    for times in (1, 2):  # another model is read anew
        load(f"hf:{path}?case=mixed")
        assert read == [str(path)] * times
    assert gguf.GGUFReader is Reader


def test_a_gguf_file_is_known_by_its_content(tmp_path: Path) -> None:
    path = tmp_path / "a.gguf"
    path.write_bytes(b"one")
    before = lm_identity(f"hf:{path}")
    path.write_bytes(b"two")
    assert lm_identity(f"hf:{path}") != before


def test_a_gguf_file_that_is_none(tmp_path: Path) -> None:
    pytest.importorskip("transformers", reason="GGUF files need transformers")
    with pytest.raises(ModelError, match=r"there is no file .*a\.gguf"):
        load(f"hf:{tmp_path / 'a.gguf'}")
    (tmp_path / "a.gguf").write_bytes(b"GGUF and nothing more")
    with pytest.raises(LMError, match=r"a\.gguf: no tokenizer that transformers can load"):
        load(f"hf:{tmp_path / 'a.gguf'}")


# -- dtypes and places ---------------------------------------------------------------------------------------------


def test_weights_are_loaded_in_the_dtype_that_is_wanted(
    gpt2: Path, asked: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """There are no float32 ones on the way, and no copy is made when scoring asks for bfloat16 once more."""
    monkeypatch.setattr(torch.nn.Module, "float", lambda model: pytest.fail("the weights become float32"))
    (scorer,) = open_scorers([f"hf:{gpt2}"], None, "bfloat16")
    assert [call["dtype"] for call in asked] == [torch.bfloat16] and ready(scorer.lm, "bfloat16") is scorer.lm
    assert {tensor.dtype for tensor in scorer.lm.model.parameters()} == {torch.bfloat16}  # type: ignore[attr-defined]
    monkeypatch.undo()
    expected = load(f"hf:{gpt2}").score_sentences(SENTENCES)
    assert scorer.lm.score_sentences(SENTENCES) == pytest.approx(expected, rel=0.02, abs=0.3)
    with pytest.raises(ModelError, match="int8 is for the zoo's own LMs; take float32 or bfloat16"):
        open_scorers([f"hf:{gpt2}"], None, "int8")


@pytest.mark.parametrize("slow", [True, False])
def test_a_processor_that_is_slow_in_bfloat16_is_told_of(
    gpt2: Path, slow: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(hf_model, "slow_in_bfloat16", lambda: slow)
    for dtype in ("float32", "bfloat16"):
        open_scorers([f"big=hf:{gpt2}", "lstm"], None, dtype)
        told = "big: in bfloat16, in which this processor is many times slower" in capsys.readouterr().err
        assert told == (slow and dtype == "bfloat16")


def test_python_loads_in_the_dtype_of_the_scoring(gpt2: Path, asked: list[dict[str, Any]]) -> None:
    lists = rs.Lists([rs.NbestList("a", [rs.Hypothesis(("the", "cat"), {"am": 0.0})])])
    assert rs.score(lists, f"hf:{gpt2}", dtype="bfloat16").columns == ["am", "gpt2"]
    rs.load_lm(f"hf:{gpt2}", dtype="bfloat16")
    assert [call["dtype"] for call in asked] == [torch.bfloat16] * 2


def test_a_map_of_devices(gpt2: Path, asked: list[dict[str, Any]]) -> None:
    pytest.importorskip("accelerate", reason="maps of devices need accelerate")
    lm = load(f"hf:{gpt2}?device_map=auto")
    assert asked[-1]["device_map"] == "auto"
    lm.model.to = None  # type: ignore[attr-defined]
    lm.move_to(torch.device("cuda"))  # stays where it is
    del lm.model.to  # type: ignore[attr-defined]
    assert lm.score_sentences(SENTENCES) == pytest.approx(load(f"hf:{gpt2}").score_sentences(SENTENCES), abs=1e-4)


@pytest.mark.parametrize("bits", ["4", "8"])
def test_weights_of_few_bits(
    gpt2: Path, asked: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch, bits: str
) -> None:
    """What bitsandbytes is asked for; it needs no GPU to be asked."""
    for name in ("bitsandbytes", "accelerate"):
        monkeypatch.setitem(sys.modules, name, SimpleNamespace())
    load(f"hf:{gpt2}?bits={bits}", "bfloat16", "cuda:1")
    found = asked[-1]["quantization_config"]
    assert asked[-1]["device_map"] == {"": "cuda:1"} and asked[-1]["dtype"] == torch.bfloat16
    assert found.load_in_4bit == (bits == "4") and found.load_in_8bit == (bits == "8")
    assert bits == "8" or found.bnb_4bit_compute_dtype == torch.bfloat16


@pytest.mark.parametrize(
    "missing, how, message",
    [
        ("bitsandbytes", Loading(bits="4"), r"\?bits=4 needs the package bitsandbytes, .*'rescore\[quantized\]'"),
        ("accelerate", Loading(device_map="auto"), r"need the package accelerate, .*'rescore\[quantized\]'"),
    ],
)
def test_packages_that_are_missing(
    missing: str, how: Loading, message: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(ModelError, match=message):
        how.options(tmp_path)
    monkeypatch.setitem(sys.modules, "peft", None)
    with pytest.raises(ModelError, match=r"an adapter needs the package peft, .*'rescore\[lora\]'"):
        package("peft", "an adapter needs")


# -- adapters ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def adapter(gpt2: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[float]]:
    return make_adapter(gpt2, tmp_path_factory.mktemp("hf") / "mine", ["c_attn"])


def make_adapter(gpt2: Path, folder: Path, targets: list[str]) -> tuple[Path, list[float]]:
    """A LoRA adapter with random weights, and what the model scores with it before it is merged."""
    peft = pytest.importorskip("peft", reason="adapters need peft")
    from transformers import AutoModelForCausalLM, AutoTokenizer

    torch.manual_seed(7)
    config = peft.LoraConfig(task_type="CAUSAL_LM", r=2, lora_alpha=4, target_modules=targets, init_lora_weights=False)
    made = peft.get_peft_model(AutoModelForCausalLM.from_pretrained(gpt2), config)
    made.save_pretrained(folder)
    tokenizer = AutoTokenizer.from_pretrained(gpt2)
    scores = []
    for words in SENTENCES:
        tokens = [0, *tokenizer.encode(" ".join(("", *words)), add_special_tokens=False), 0]
        with torch.no_grad():
            rows = made.eval()(torch.tensor([tokens[:-1]])).logits[0].log_softmax(-1)
        scores.append(sum(float(rows[place, token]) for place, token in enumerate(tokens[1:])))
    return folder, scores


def test_an_adapter_counts(gpt2: Path, adapter: tuple[Path, list[float]]) -> None:
    folder, expected = adapter
    (scorer,) = open_scorers([f"hf:{gpt2}+{folder}"], None)
    assert scorer.column == "gpt2+mine" and scorer.lm.takes_trees()  # type: ignore[attr-defined]
    assert scorer.lm.score_sentences(SENTENCES) == pytest.approx(expected, abs=1e-3)
    assert load(f"hf:{gpt2}").score_sentences(SENTENCES) != pytest.approx(expected, abs=0.1)
    assert lm_identity(f"hf:{gpt2}+{folder}") != lm_identity(f"hf:{gpt2}")


@pytest.mark.filterwarnings("ignore:Model with `tie_word_embeddings")
@pytest.mark.parametrize("targets", [["lm_head"], ["wte"], ["wte", "lm_head"]])
def test_an_adapter_of_one_of_two_layers_that_share_their_weights(
    gpt2: Path, tmp_path: Path, targets: list[str]
) -> None:
    folder, expected = make_adapter(gpt2, tmp_path / "mine", targets)
    lm = load(f"hf:{gpt2}+{folder}")
    assert lm.score_sentences(SENTENCES) == pytest.approx(expected, abs=1e-3)
    found = [sum(scores) for scores in lm.score_hypotheses(SENTENCES)]
    assert found == pytest.approx(expected, abs=1e-3) and lm.takes_trees()  # type: ignore[attr-defined]


@pytest.mark.parametrize("targets, trees", [(["c_attn"], True), (["lm_head"], False)])
@pytest.mark.filterwarnings("ignore:Model with `tie_word_embeddings")
def test_an_adapter_in_memory(gpt2: Path, tmp_path: Path, targets: list[str], trees: bool) -> None:
    from transformers import AutoModelForCausalLM

    folder, expected = make_adapter(gpt2, tmp_path / "mine", targets)
    peft = pytest.importorskip("peft", reason="adapters need peft")
    lm = rs.load_lm(peft.PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(gpt2), folder))
    assert [sum(scores) for scores in lm.score_hypotheses(SENTENCES)] == pytest.approx(expected, abs=1e-3)
    assert lm.takes_trees() == trees  # type: ignore[attr-defined]


def test_a_masked_lm_with_an_adapter_in_memory(tmp_path: Path) -> None:
    peft = pytest.importorskip("peft", reason="adapters need peft")
    from transformers import AutoModelForMaskedLM

    plain = AutoModelForMaskedLM.from_pretrained(hugging_face.bert(tmp_path / "bert"))
    expected = rs.load_lm(plain).score_hypotheses(SENTENCES)
    config = peft.LoraConfig(target_modules=["query"])  # changes nothing before it is trained
    assert rs.load_lm(peft.get_peft_model(plain, config)).score_hypotheses(SENTENCES) == expected


@pytest.mark.parametrize(
    "kind, named", [("PromptTuningConfig", "PROMPT_TUNING"), ("PrefixTuningConfig", "PREFIX_TUNING")]
)
def test_a_prompt_that_was_learned_is_refused(gpt2: Path, kind: str, named: str) -> None:
    peft = pytest.importorskip("peft", reason="adapters need peft")
    from transformers import AutoModelForCausalLM

    config = getattr(peft, kind)(num_virtual_tokens=3, task_type="CAUSAL_LM")
    with pytest.raises(ModelError, match=f"an adapter of the type {named}, .* expected LoRA"):
        rs.load_lm(peft.get_peft_model(AutoModelForCausalLM.from_pretrained(gpt2), config))


def copied(folder: Path, target: Path, **config: Any) -> Path:
    target.mkdir()
    for file in folder.iterdir():
        (target / file.name).write_bytes(file.read_bytes())
    known = json.loads((target / "adapter_config.json").read_text())
    (target / "adapter_config.json").write_text(json.dumps(known | config))
    return target


def test_adapters_that_do_not_fit(gpt2: Path, adapter: tuple[Path, list[float]], tmp_path: Path) -> None:
    folder = adapter[0]
    with pytest.raises(ModelError, match='an adapter of the type "IA3", expected LoRA'):
        load(f"hf:{gpt2}+{copied(folder, tmp_path / 'ia3', peft_type='IA3')}")
    with pytest.raises(ModelError, match=r"peft cannot put it into .*q_proj"):
        load(f"hf:{gpt2}+{copied(folder, tmp_path / 'llama', target_modules=['q_proj'])}")
    with pytest.raises(ModelError, match=r"lacks '.*c_fc.*', which the adapter of"):
        load(f"hf:{gpt2}+{copied(folder, tmp_path / 'more', target_modules=['c_attn', 'c_fc'])}")
    pickled = copied(folder, tmp_path / "pickled")
    (pickled / "adapter_model.safetensors").rename(pickled / "adapter_model.bin")
    with pytest.raises(ModelError, match=r"pickled: adapter_model.safetensors is missing"):
        load(f"hf:{gpt2}+{pickled}")


# -- texts longer than the positions ----------------------------------------------------------------------------------


@torch.no_grad()
def by_windows(lm: Any, words: tuple[str, ...]) -> float:
    """Token by token, each in the window that scores it: 32 positions, 16 of them new."""
    tokens = [lm.vocab.bos, *(token for word in words for token in lm.vocab.encode_word(word)), lm.vocab.eos]
    total = 0.0
    for place in range(1, len(tokens)):
        start = max(0, (place - 32 + 15) // 16 * 16)
        assert place - start <= 32 and (not start or place - start > 16)
        logits = lm.model(torch.tensor([tokens[start:place]])).logits[0, -1]
        total += float(logits.log_softmax(-1)[tokens[place]])
    return total


def test_long_sentences_in_windows(gpt2: Path) -> None:
    lm = load(f"hf:{gpt2}?long=windows")
    expected = [*load(f"hf:{gpt2}").score_sentences(SENTENCES), by_windows(lm, LONG)]
    for ask in (lm.score_words, lm.score_hypotheses):
        assert lm.said() == "" or ask == lm.score_hypotheses
        found = ask([*SENTENCES, LONG])
        assert [len(row) for row in found] == [4, 1, 3, len(LONG) + 1]
        assert [sum(row) for row in found] == pytest.approx(expected, abs=1e-3)
    assert lm.said().startswith("2 sentences of more than 32 tokens scored in windows of 32, each token behind half")
    before = [(("the", "dog"),)] * 4
    context = lm.score_hypotheses([*SENTENCES, LONG], contexts=before)
    assert sum(context[3]) == pytest.approx(expected[3], abs=1e-3) and sum(context[0]) != pytest.approx(expected[0])


def test_the_command_counts_long_sentences(gpt2: Path, tmp_path: Path) -> None:
    rs.Lists([rs.NbestList("a", [rs.Hypothesis(LONG, {"am": 0.0})])]).write(tmp_path / "lists.jsonl")
    nbest = ["nbest", "--nbest", str(tmp_path / "lists.jsonl"), "--out", str(tmp_path / "out"), "--lm"]
    refused = CliRunner().invoke(cli, [*nbest, f"hf:{gpt2}"])
    advice = "(of lists and lattices: --on-error skip), score it in windows with ?long=windows"  # `ppl` has none
    assert isinstance(refused.exception, LMError) and advice in str(refused.exception)
    done = CliRunner().invoke(cli, [*nbest, f"hf:{gpt2}?long=windows"])
    assert done.exit_code == 0, done.output
    assert "gpt2: 1 sentences of more than 32 tokens scored in windows of 32" in done.output
    (tmp_path / "text").write_text(" ".join(LONG) + "\n")
    done = CliRunner().invoke(cli, ["ppl", "--lm", f"hf:{gpt2}?long=windows", "--text", str(tmp_path / "text")])
    assert "gpt2: 1 sentences of more than 32 tokens" in done.output


def test_scores_of_other_lists_are_not_counted_again(gpt2: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lm = rs.load_lm(f"hf:{gpt2}?long=windows")
    for name in ("dev", "test"):
        rs.score(rs.Lists([rs.NbestList(name, [rs.Hypothesis(LONG)])]), lm)
        assert "gpt2: 1 sentences of more than 32 tokens" in capsys.readouterr().err


def test_shares_count_long_sentences(gpt2: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rescore.workflows.scoring.BATCH_WORDS", 1)  # a part each
    monkeypatch.setattr("rescore.workflows.perplexity_shares.TextDoer.size", 1)
    texts = {"a": LONG, "b": LONG[:4], "c": LONG, "d": LONG}
    rs.Lists([rs.NbestList(name, [rs.Hypothesis(text, {"am": 0.0})]) for name, text in texts.items()]).write(
        tmp_path / "lists.jsonl"
    )
    (tmp_path / "text").write_text("".join(f"{' '.join(text)}\n" for text in texts.values()))
    lm = ("--lm", f"hf:{gpt2}?long=windows")
    out, figures = str(tmp_path / "out"), str(tmp_path / "ppl.json")
    nbest = ["nbest", "--nbest", str(tmp_path / "lists.jsonl"), *lm, "--out", out]
    ppl = ["ppl", "--text", str(tmp_path / "text"), *lm, "--json", figures]
    for command, target in ((nbest, out), (ppl, figures)):
        for share in ("2/2", "1/2"):
            assert CliRunner().invoke(cli, [*command, "--split", share]).exit_code == 0
        assert "gpt2: 3 sentences of more than 32 tokens" in CliRunner().invoke(cli, ["merge", target]).output


@torch.no_grad()
def test_masked_lms_see_windows_around_each_token(tmp_path: Path, gpt2: Path) -> None:
    lm = load(f"hf-mlm:{hugging_face.bert(tmp_path / 'bert')}?long=windows")
    words = LONG[:25]  # for 14 positions beside two special ones
    short = ("a", "cat")
    tokens = [token for word in words for token in lm.vocab.encode_word(word)]
    assert len(tokens) > 16
    expected = 0.0
    for place, token in enumerate(tokens):
        start = min(max(0, place - 7), len(tokens) - 14)
        window = [2, *tokens[start : start + 14], 3]
        window[1 + place - start] = lm.tokenizer.mask_token_id
        expected += float(lm.model(torch.tensor([window])).logits[0, 1 + place - start].log_softmax(-1)[token])
    alone = lm.score_sentences([short])[0]
    for contexts in (None, [(("the", "dog"),), ()]):
        found = lm.score_sentences([words, short], contexts=contexts)
        assert found == pytest.approx([expected, alone], abs=1e-3)
    assert lm.said() == (
        "2 sentences of more than 16 tokens scored in windows of 16, each token in the middle of one, or in the first "
        "or last"
    )


def test_lattices_have_no_windows(gpt2: Path) -> None:
    lm = load(f"hf:{gpt2}?long=windows")
    state, one = lm.initial_state(), torch.zeros(1, dtype=torch.long)
    with torch.no_grad():
        for _ in range(32):
            state, _ = lm.step(state, one, one)
    with pytest.raises(LMError, match=r"33 tokens .* takes 32 at most"):
        lm.step(state, one, one)


def test_positions_of_models_with_more_than_text(tmp_path: Path) -> None:
    pytest.importorskip("transformers", reason="Hugging Face models need transformers")
    lm = load(f"hf:{hugging_face.words(tmp_path / 'gemma3', hugging_face.gemma3_model)}")
    assert lm.positions == 8 and lm.score_hypotheses([("A",) * 7])
    with pytest.raises(LMError, match=r"has 9 tokens .* takes 8 at most"):
        lm.score_hypotheses([("A",) * 8])
