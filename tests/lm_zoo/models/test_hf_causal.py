"""Hugging Face models: causal ones through the protocol, masked ones by pseudo-log-likelihood; tiny folders."""

from __future__ import annotations

import copy
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner

from lm_zoo.errors import LMError, ModelError, VocabError
from lm_zoo.inference.precision import ready
from lm_zoo.models.hf_causal import HFCausalLM
from lm_zoo.registry import find, load, load_ngram
from lm_zoo.testing.test_lm import padded, random_sequences, step_scores
from rescore.api.language_models import load_lm
from rescore.cli.main import cli
from rescore.errors import UsageError
from rescore.formats import write_nbest
from rescore.types import Hypothesis, NbestList
from rescore.workflows.columns import open_scorers
from rescore.workflows.combine import read_scores
from rescore.workflows.nbest import Request, rescore_nbest
from tests.lm_zoo import hugging_face

SENTENCES = [
    ("the", "cat", "sat"),
    (),
    ("the", "dog"),
    ("the", "cat", "sat", "on", "don't"),
    ("zebra",),
    ("the", "cat"),
]


def test_without_the_package(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(
        ModelError, match=r"need the package transformers.*install it with: pip install 'rescore\[hf\]'"
    ):
        load(f"hf:{tmp_path}")


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    pytest.importorskip("transformers", reason="Hugging Face models need transformers")
    base = tmp_path_factory.mktemp("hf")
    return {kind: getattr(hugging_face, kind)(base / kind) for kind in ("gpt2", "llama", "bert")}


@pytest.mark.parametrize("word", ["<unk>", "<UNK>", "[unk]", "[UNK]", "\u2047"])
@pytest.mark.parametrize("name", ["hf:llama", "hf-mlm:bert"])
def test_an_unknown_word_is_the_unknown_token_however_it_is_written(
    folders: dict[str, Path], name: str, word: str
) -> None:
    kind, _, folder = name.partition(":")
    lm = load(f"{kind}:{folders[folder]}")
    assert lm.vocab.encode_word(word) == (lm.tokenizer.unk_token_id,) and not lm.knows(word)


def test_an_unknown_token_that_ends_sentences_is_not_taken_for_an_unknown_word(folders: dict[str, Path]) -> None:
    lm = load(f"hf:{folders['gpt2']}")
    assert lm.vocab.unk == lm.vocab.eos and lm.vocab.eos not in lm.vocab.encode_word("<unk>")


def test_windows_of_perplexity_are_not_for_it(folders: dict[str, Path], tmp_path: Path) -> None:
    (tmp_path / "text").write_text("the cat\n")
    line = ["ppl", "--lm", f"nn=hf:{folders['gpt2']}", "--text", str(tmp_path / "text"), "--window", "4"]
    with pytest.raises(UsageError, match="--window is for neural LMs of the zoo; 'nn' is none"):
        CliRunner().invoke(cli, line, catch_exceptions=False)


@pytest.fixture(params=["gpt2", "llama"])
def lm(request: pytest.FixtureRequest, folders: dict[str, Path]) -> Any:
    return load(f"hf:{folders[request.param]}")


@torch.no_grad()
def reference(lm: Any, words: tuple[str, ...]) -> float:
    """One sentence, encoded as a whole by the tokenizer, unpadded, by transformers' own forward pass."""
    text = " ".join(("", *words)) if lm.model.config.model_type == "gpt2" else " ".join(words)
    tokens = [*lm.tokenizer.encode(text, add_special_tokens=False), lm.vocab.eos]
    rows = lm.model(torch.tensor([[lm.vocab.bos, *tokens[:-1]]])).logits[0].log_softmax(-1)
    return sum(float(rows[place, token]) for place, token in enumerate(tokens))


def test_sentence_scores_are_those_of_transformers(lm: Any) -> None:
    expected = [reference(lm, words) for words in SENTENCES]
    for way in (lm.score_words(SENTENCES), lm.score_hypotheses(SENTENCES)):
        assert [len(row) for row in way] == [len(words) + 1 for words in SENTENCES]
        assert [sum(row) for row in way] == pytest.approx(expected, abs=1e-4)


def test_score_is_the_chain_of_steps(lm: Any) -> None:
    sequences = random_sequences(lm, count=10)
    scores = lm.score(*padded(lm, sequences))
    for row, sequence in enumerate(sequences):
        assert scores[row, : len(sequence) + 1].tolist() == pytest.approx(step_scores(lm, sequence), abs=1e-4)


def test_hypotheses_in_one_pass(lm: Any) -> None:
    """Tree attention by positions and a 4-D mask, and stepping with a shared cache, give what padded batches give."""
    sentences = [("the", "cat"), ("the", "cat", "sat"), ("the", "dog"), (), ("a", "dog", "sat", "down"), ("the", "cat")]
    expected = lm.score_words(sentences)
    assert lm.takes_trees()
    other = copy.copy(lm)
    other._takes_trees = False
    for way in (lm, other):
        for got, wanted in zip(way.score_hypotheses(sentences), expected, strict=True):
            assert got == pytest.approx(wanted, abs=1e-4)
    cast = ready(lm, "bfloat16")
    assert cast.takes_trees() and lm.dtype == torch.float32
    for got, wanted in zip(cast.score_hypotheses(sentences), expected, strict=True):
        assert got == pytest.approx(wanted, abs=0.2)
    with pytest.raises(ModelError, match="int8 is for the zoo's own LMs"):
        ready(lm, "int8")


def test_logits_that_are_capped_are_not_those_of_the_output_layer(lm: Any) -> None:
    from transformers import Gemma2Config, Gemma2ForCausalLM

    sizes = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2}
    torch.manual_seed(0)
    model = Gemma2ForCausalLM(Gemma2Config(vocab_size=len(lm.tokenizer), num_key_value_heads=1, head_dim=8, **sizes))
    for parameter in model.parameters():
        parameter.data.add_(0.5 * torch.randn_like(parameter))
    capped = load_lm(model.bfloat16(), lm.tokenizer)
    expected = [sum(row) for row in capped.score_words(SENTENCES)]
    assert capped.score_sentences(SENTENCES) == pytest.approx(expected, abs=0.2)


def test_models_that_refuse_the_mask(lm: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    other = copy.copy(lm)
    other._takes_trees = None

    def refuse(prefixes: Any) -> Any:
        raise ValueError("2-D masks only")

    monkeypatch.setattr(other, "tree_hidden", refuse)
    assert not other.takes_trees()
    assert other.score_hypotheses([("the", "cat")])[0] == pytest.approx(lm.score_words([("the", "cat")])[0], abs=1e-4)


def test_the_output_layer_is_where_the_model_is(folders: dict[str, Path]) -> None:
    """The bias, which the model does not have, too; also where the model was used somewhere else before."""
    for used in (False, True):
        lm = load(f"hf:{folders['gpt2']}")
        if used:
            assert lm.score_hypotheses([("the", "cat")]) and lm.takes_trees()
        lm.move_to(torch.device("meta"))
        assert (lm.device.type, lm.output.weight.device.type, lm.output.bias.device.type) == ("meta",) * 3
        assert lm._takes_trees is None


LISTS = [("A", "B"), ("A", "B", "C", "D", "E", "F", "A"), ("A", "C"), (), ("A", "B", "C", "D", "E", "F", "B"), ("A",)]


def counted_inputs(lm: Any, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many tokens each later call of the model reads."""
    counts: list[int] = []
    forward = lm.model.forward

    def counting(*args: Any, **options: Any) -> Any:
        counts.append(options["input_ids"].numel())
        return forward(*args, **options)

    monkeypatch.setattr(lm.model, "forward", counting)
    return counts


def test_parts_of_large_lists_share_few_prefixes(
    folders: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However the hypotheses are ordered."""
    lm = load(f"hf:{hugging_face.words(tmp_path / 'words')}")
    lists = [(first, second, third) for third in "ABCD" for second in "AB" for first in "ABCDEFGH"]
    assert lm.takes_trees()
    expected = lm.score_words(lists)
    monkeypatch.setattr("lm_zoo.models.hf_causal.TREE_NODES", 20)
    sizes: list[int] = []
    tree_hidden = lm.tree_hidden
    monkeypatch.setattr(lm, "tree_hidden", lambda tree: (sizes.append(len(tree.inputs)), tree_hidden(tree))[1])
    for got, wanted in zip(lm.score_hypotheses(lists), expected, strict=True):
        assert got == pytest.approx(wanted, abs=1e-4)
    assert len(sizes) > 3 and sum(sizes) < 1 + 8 + 16 + 64 + 3 * len(sizes)


def test_models_with_alibi_evaluate_each_prefix_once(
    folders: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lm = load(f"hf:{hugging_face.words(tmp_path / 'bloom', hugging_face.bloom_model)}")
    assert not lm.takes_trees()
    counts = counted_inputs(lm, monkeypatch)
    found = lm.score_hypotheses(LISTS)
    assert sum(counts) == 1 + len({words[:end] for words in LISTS for end in range(1, len(words) + 1)})
    monkeypatch.undo()
    for got, words in zip(found, LISTS, strict=True):
        assert sum(got) == pytest.approx(reference(lm, words), abs=1e-4)


def test_sentences_beyond_a_window(folders: dict[str, Path], tmp_path: Path) -> None:
    lm = load(f"hf:{hugging_face.words(tmp_path / 'mistral', hugging_face.mistral_model)}")
    assert lm.takes_trees()  # with sentences within the window
    for lists in (LISTS, LISTS[:1]):
        for got, words in zip(lm.score_hypotheses(lists), lists, strict=True):
            assert sum(got) == pytest.approx(reference(lm, words), abs=1e-4)


def test_words_are_encoded_as_inside_a_sentence(folders: dict[str, Path]) -> None:
    gpt2 = load(f"hf:{folders['gpt2']}").vocab
    assert gpt2.encode_word("cat") == tuple(gpt2.tokenizer.encode(" cat"))
    assert gpt2.encode_word("don't") == tuple(gpt2.tokenizer.encode(" don't"))
    assert (gpt2.bos, gpt2.eos, len(gpt2)) == (0, 0, len(gpt2.tokenizer))
    llama = load(f"hf:{folders['llama']}")
    assert (llama.vocab.bos, llama.vocab.eos, llama.vocab.unk) == (1, 2, 0)
    assert llama.vocab.encode_word("cat") == tuple(llama.tokenizer.encode("cat"))
    assert llama.knows("cat") and not llama.knows("Ж")
    with pytest.raises(ModelError, match=r"stay in their own folder"):
        gpt2.save(folders["gpt2"])


def test_tokenizers_across_words_are_refused(folders: dict[str, Path], tmp_path: Path) -> None:
    with pytest.raises(VocabError, match=r"has tokens across words \('a THE'\)"):
        load(f"hf:{hugging_face.llama(tmp_path / 'joined', split=False)}")


def test_case(folders: dict[str, Path]) -> None:
    upper, lower = [("THE", "CAT")], [("the", "cat")]
    plain, lowering, mixed = (load(f"hf:{folders['gpt2']}{case}") for case in ("", "?case=lower", "?case=mixed"))
    for score in (plain.score_words, plain.score_hypotheses):
        with pytest.raises(VocabError, match=r"the text is upper case \('CAT'\).*hf:PATH\?case=lower"):
            score(upper)
    assert plain.score_words([("I", "saw", "A", "DOG")])
    assert lowering.score_words(upper) == plain.score_words(lower)
    assert mixed.score_words(upper) != mixed.score_words(lower)
    bert = load(f"hf-mlm:{folders['bert']}")  # its tokenizer lower-cases
    assert bert.score_hypotheses(upper) == bert.score_hypotheses(lower)
    with pytest.raises(ModelError, match=r"found the option 'case=upper', expected case=lower or case=mixed"):
        load(f"hf:{folders['gpt2']}?case=upper")


def test_sentences_beyond_the_positions(folders: dict[str, Path]) -> None:
    gpt2 = load(f"hf:{folders['gpt2']}")
    fits, long = ("cat",) * 31, ("cat",) * 32
    assert len(gpt2.score_words([fits])[0]) == 32
    for score in (gpt2.score_words, gpt2.score_hypotheses):
        with pytest.raises(LMError, match=r"'cat cat cat cat cat ...' has 33 tokens .* takes 32 at most"):
            score([fits, long])
    with pytest.raises(LMError, match=r"a sentence has 33 tokens"):
        gpt2.score(torch.ones(1, 32, dtype=torch.long), torch.tensor([32]))
    with pytest.raises(LMError, match=r"has 17 tokens .* takes 16 at most"):
        load(f"hf-mlm:{folders['bert']}").score_hypotheses([("a",) * 15])


def test_a_hypothesis_beyond_the_positions_is_named_before_any_is_scored(
    folders: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lists = [NbestList(f"utt{k}", [Hypothesis(("the", "cat"), {"am": 0.0})]) for k in range(3)]
    lists[2].hyps.append(Hypothesis(("cat",) * 32, {"am": -1.0}))
    write_nbest(f"jsonl:{tmp_path / 'lists.jsonl'}", lists)
    monkeypatch.setattr(HFCausalLM, "score_hypotheses", None)
    with pytest.raises(LMError, match=r"utterance utt2: hypothesis 2 has 33 tokens .* takes 32 at most"):
        rescore_nbest(Request(str(tmp_path / "lists.jsonl"), [f"hf:{folders['gpt2']}"], tmp_path / "out"))


@torch.no_grad()
def pseudo_likelihoods(lm: Any, words: tuple[str, ...]) -> list[float]:
    """Each token masked on its own, one forward pass each, the sentence encoded as a whole."""
    tokens = lm.tokenizer.encode(" ".join(words))
    scores = []
    for place in range(1, len(tokens) - 1):
        masked = [*tokens[:place], lm.tokenizer.mask_token_id, *tokens[place + 1 :]]
        scores.append(float(lm.model(torch.tensor([masked])).logits[0, place].log_softmax(-1)[tokens[place]]))
    return scores


def test_masked_lms_score_by_pseudo_likelihood(folders: dict[str, Path]) -> None:
    lm = load(f"hf-mlm:{folders['bert']}")
    scores = lm.score_hypotheses(SENTENCES)
    for words, row in zip(SENTENCES, scores, strict=True):
        assert len(row) == len(words) + 1 and row[-1] == 0.0
        assert sum(row) == pytest.approx(sum(pseudo_likelihoods(lm, words)), abs=1e-4)
    assert scores[0][0] == pytest.approx(pseudo_likelihoods(lm, SENTENCES[0])[0], abs=1e-4)
    lm.batch_tokens = 10
    for row, small in zip(scores, lm.score_hypotheses(SENTENCES), strict=True):
        assert small == pytest.approx(row, abs=1e-4)


def test_masked_lms_that_see_behind_the_end_of_a_sentence(folders: dict[str, Path]) -> None:
    """FNet has no attention, and so no mask: a sentence that is padded to the length of another has other scores."""
    from transformers import FNetConfig, FNetForMaskedLM

    tokenizer = load(f"hf-mlm:{folders['bert']}").tokenizer  # type: ignore[attr-defined]
    sizes = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "max_position_embeddings": 16}
    torch.manual_seed(2)
    lm: Any = load_lm(FNetForMaskedLM(FNetConfig(vocab_size=len(tokenizer), **sizes)).eval(), tokenizer)
    for words, row in zip(SENTENCES, lm.score_hypotheses(SENTENCES), strict=True):
        assert sum(row) == pytest.approx(sum(pseudo_likelihoods(lm, words)), abs=1e-4)


def test_masked_lms_with_a_full_stop_behind_the_sentence(folders: dict[str, Path]) -> None:
    """As mlm-scoring's --eos: the stop is masked in turn, too."""
    folder, stopped = folders["bert"], [(*words[:-1], f"{words[-1]}.") if words else (".",) for words in SENTENCES]
    lm = load(f"hf-mlm:{folder}?eos=true")
    for words, whole, row in zip(SENTENCES, stopped, lm.score_hypotheses(SENTENCES), strict=True):
        expected = pseudo_likelihoods(lm, whole)
        assert len(row) == len(words) + 1 and row[-1] == pytest.approx(expected[-1], abs=1e-4)
        assert sum(row) == pytest.approx(sum(expected), abs=1e-4)
    assert load(f"hf-mlm:{folder}?case=lower&eos=true").stop == lm.stop
    with pytest.raises(LMError, match=r"has 17 tokens .* takes 16 at most"):
        lm.score_hypotheses([("a",) * 14])
    for name in (f"hf:{folders['gpt2']}?eos=true", f"hf-mlm:{folder}?eos=no", f"hf-mlm:{folder}?eos=true&x=1"):
        with pytest.raises(ModelError, match=r"found the option '.*', expected case=lower or case=mixed"):
            load(name)


def test_masked_lms_have_no_prefixes(folders: dict[str, Path]) -> None:
    lm = load(f"hf-mlm:{folders['bert']}")
    one = torch.zeros(1, dtype=torch.long)
    ways = (lm.initial_state, lambda: lm.step(None, one, one), lambda: lm.score(one[None], one))
    for way in (*ways, lambda: lm.score_words(SENTENCES)):
        with pytest.raises(LMError, match=r"for N-best only"):
            way()


def broken(folder: Path, target: Path, **config: Any) -> str:
    shutil.copytree(folder, target)
    known = json.loads((target / "config.json").read_text())
    (target / "config.json").write_text(json.dumps(known | config))
    return f"hf:{target}"


def test_pickled_weights_run_no_code(folders: dict[str, Path], tmp_path: Path) -> None:
    """`pytorch_model.bin` is read by our own reader; the scores are those of the same weights as safetensors."""
    from safetensors.torch import load_file

    words = [("the", "cat", "sat")]
    expected = load(f"hf:{folders['gpt2']}").score_words(words)
    name = broken(folders["gpt2"], tmp_path / "pickled")
    stored = tmp_path / "pickled" / "model.safetensors"
    weights = load_file(stored)
    stored.unlink()
    half = len(weights) // 2
    for part, names in enumerate((list(weights)[:half], list(weights)[half:]), start=1):
        torch.save({name: weights[name] for name in names}, stored.with_name(f"pytorch_model-0000{part}-of-00002.bin"))
    assert load(name).score_words(words) == expected
    torch.save({**weights, "evil": Makes(tmp_path / "made")}, stored.with_name("pytorch_model.bin"))
    with pytest.raises(ModelError, match=r"pytorch_model.bin: something else than tensors in it"):
        load(name)
    torch.jit.script(torch.nn.Linear(1, 1)).save(str(stored.with_name("pytorch_model.bin")))
    with pytest.raises(ModelError, match=r"pytorch_model.bin: a TorchScript file"):
        load(name)
    assert not (tmp_path / "made").exists()


class Makes:
    """Pickles as a call that makes a file."""

    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> Any:
        return Path.touch, (self.target,)


def test_folders_that_do_not_fit(folders: dict[str, Path], tmp_path: Path) -> None:
    gpt2 = folders["gpt2"]
    with pytest.raises(ModelError, match=r"is not a folder with a config.json; expected a Hugging Face model"):
        load("hf:./nowhere")
    with pytest.raises(ModelError, match=r"'transformer.h.0.attn.c_attn.bias' has the shape \(48,\).*\(96,\)"):
        load(broken(gpt2, tmp_path / "shape", n_embd=32))
    with pytest.raises(ModelError, match=r"the weights lack 'transformer.h.2.attn.c_attn.bias'"):
        load(broken(gpt2, tmp_path / "lack", n_layer=3))
    with pytest.raises(ModelError, match=r"cannot load an AutoModelForCausalLM .*model type `odd`"):
        load(broken(gpt2, tmp_path / "odd", model_type="odd"))
    name = broken(gpt2, tmp_path / "damaged")
    (tmp_path / "damaged" / "model.safetensors").write_bytes(b"x")
    with pytest.raises(ModelError, match=r"damaged: transformers cannot load an AutoModelForCausalLM"):
        load(name)
    for number, file in enumerate(("tokenizer.json", "tokenizer_config.json")):
        (tmp_path / "damaged" / file).unlink()
        with pytest.raises(VocabError, match=r"damaged: no tokenizer"):
            load(name)
        assert number < 2
    with pytest.raises(VocabError, match=r"tokens, but the weights are for 40"):
        load(f"hf:{small_model(gpt2, tmp_path / 'small')}")


def small_model(folder: Path, target: Path) -> Path:
    """The tokenizer of the folder with a model of 40 tokens."""
    shutil.copytree(folder, target)
    hugging_face.gpt2_model(40).save_pretrained(target)
    return target


def test_the_wrong_kind_of_model(folders: dict[str, Path]) -> None:
    with pytest.raises(ModelError, match=r"not a causal LM, it looks ahead; score N-best lists with hf-mlm:PATH"):
        load(f"hf:{folders['bert']}")
    with pytest.raises(ModelError, match=r"cannot load an AutoModelForMaskedLM"):
        load(f"hf-mlm:{folders['gpt2']}")
    with pytest.raises(ModelError, match=r"a Hugging Face model; give it as hf:PATH"):
        load(str(folders["gpt2"]))
    with pytest.raises(ModelError, match=r"a Hugging Face model"):
        load_ngram(f"hf:{folders['gpt2']}")
    assert find(f"hf:{folders['gpt2']}?case=lower") == folders["gpt2"]


def run(*args: object) -> Any:
    return CliRunner().invoke(cli, [str(arg) for arg in args])


def test_commands(folders: dict[str, Path], tmp_path: Path) -> None:
    lists = tmp_path / "lists.jsonl"
    hyps = [{"words": text, "scores": {"am": -1.0}} for text in ("THE CAT", "THE DOG SAW", "")]
    lists.write_text(json.dumps({"utt_id": "a", "hyps": hyps}) + "\n")
    bert, gpt2 = f"hf-mlm:{folders['bert']}", f"hf:{folders['gpt2']}?case=lower"
    done = run("nbest", "--nbest", lists, "--lm", bert, "--lm", gpt2, "--out", tmp_path / "out")
    assert done.exit_code == 0, done.output
    assert "bert: a masked LM; the column is a pseudo-log-likelihood, for N-best only" in done.output
    best = next(iter(read_scores(tmp_path / "out"))).hyps
    assert [hyp.words for hyp in best] == [("THE", "CAT"), ("THE", "DOG", "SAW"), ()]
    assert list(best[0].scores) == ["am", "bert", "gpt2"] and best[2].scores["bert"] == 0.0

    (tmp_path / "text").write_text("the cat\n")
    failed = run("ppl", "--lm", bert, "--text", tmp_path / "text")
    assert isinstance(failed.exception, LMError) and "for N-best only" in str(failed.exception)
    done = run("ppl", "--lm", gpt2, "--text", tmp_path / "text", "--json", "-")
    assert json.loads(done.stdout)[0]["lm"] == "gpt2"
    (tmp_path / "mix.json").write_text(json.dumps({"scales": {"bert": 0.5, "gpt2": 0.5}}))
    options = ("--lm", bert, "--lm", gpt2, "--mix", tmp_path / "mix.json", "--out", tmp_path / "mixed")
    failed = run("nbest", "--nbest", lists, *options)
    assert isinstance(failed.exception, UsageError) and "'bert' is a masked LM" in str(failed.exception)


def test_names_of_columns(folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folders["gpt2"].parent)
    names = ["hf:gpt2?case=lower", "x=hf:gpt2?case=lower", f"hf:{folders['llama']}/"]
    assert [scorer.column for scorer in open_scorers(names, None)] == ["gpt2", "x", "llama"]
