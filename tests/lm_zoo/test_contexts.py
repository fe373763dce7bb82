"""Sentences behind others: every LM of the zoo against the score of the whole text, word by word."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from lm_zoo.base import LONGEST, Context, LanguageModel
from lm_zoo.errors import LMError
from lm_zoo.inference import scoring
from lm_zoo.inference import trie as tries
from lm_zoo.models.bayesian import BayesianAverage
from lm_zoo.registry import load, save_folder
from tests.lm_zoo import hugging_face, zoo

CONTEXTS: list[Context] = [
    (),
    (("A", "B"),),
    (("A", "B"), ("C",)),
    (("A",), ("ZZZ", "B", "A")),
    (("D", "C", "B", "A", "D", "D", "C"),),
]


def some_sentences(seed: int = 0, count: int = 40) -> tuple[list[tuple[str, ...]], list[Context]]:
    """Sentences with shared prefixes, empty ones too, behind contexts in no order."""
    rng = np.random.default_rng(seed)
    sentences = [tuple(map(str, rng.choice(["A", "B", "C", "ZZZ"], rng.integers(0, 6)))) for _ in range(count)]
    return sentences, [CONTEXTS[number] for number in rng.integers(0, len(CONTEXTS), count)]


@torch.no_grad()
def reference(lm: Any, words: tuple[str, ...], context: Context, boundary: tuple[int, ...]) -> list[float]:
    """The slow way: the whole text as one sequence, of whose scores those of the last sentence are taken."""
    before = [token for sentence in context for word in sentence for token in lm.vocab.encode_word(word)]
    if boundary:
        encoded = [[token for word in sentence for token in lm.vocab.encode_word(word)] for sentence in context]
        before = [token for tokens in encoded for token in [*tokens, *boundary]]
    parts = [lm.vocab.encode_word(word) for word in words]
    tokens = torch.tensor([before + [token for part in parts for token in part]], dtype=torch.long)
    scores = lm.score(tokens, torch.tensor([tokens.shape[1]]))[0, len(before) :].tolist()
    values = iter(scores)
    return [sum(next(values) for _ in part) for part in [*parts, (lm.vocab.eos,)]]


@pytest.mark.parametrize("name", [*zoo.NEURAL, "interpolated", "bayesian-average", "hf", "hf-recurrent"])
def test_a_sentence_behind_others_has_the_score_that_it_has_in_the_whole_text(name: str, tmp_path: Path) -> None:
    lm = zoo.make(name, tmp_path)
    boundary = () if name.startswith("hf") else (lm.vocab.eos,)
    sentences, contexts = some_sentences()
    found = lm.score_hypotheses(sentences, contexts=contexts)
    for words, context, got in zip(sentences, contexts, found, strict=True):
        assert got == pytest.approx(reference(lm, words, context, boundary), abs=2e-4)
    assert lm.score_sentences(sentences, None, contexts) == pytest.approx([sum(row) for row in found], abs=1e-4)
    alone = lm.score_hypotheses(sentences)
    assert any(got != pytest.approx(row, abs=1e-2) for got, row in zip(found, alone, strict=True))
    assert lm.score_hypotheses(sentences, contexts=[()] * len(sentences)) == [
        pytest.approx(row, abs=1e-4) for row in alone
    ]


@pytest.mark.parametrize("name", ["transformer", "lstm", "hf", "interpolated"])
@pytest.mark.parametrize("context", ["A B", ("A", "B"), ("A B",)])
def test_a_context_is_sentences_of_words(name: str, context: Any, tmp_path: Path) -> None:
    with pytest.raises(LMError, match=r"text before a sentence is .*A.*, expected \(tuple\("):
        zoo.make(name, tmp_path).score_hypotheses([("A",)], contexts=[context])


def test_parts_that_memory_has_room_for_make_no_difference() -> None:
    lm = zoo.neural("transfornn")
    sentences, contexts = some_sentences(1)
    whole = lm.score_hypotheses(sentences, contexts=contexts)
    for nodes in (1, 20):
        parts = scoring.score_by_tree(lm, sentences, nodes, contexts)
        assert [pytest.approx(row, abs=1e-4) for row in whole] == parts


def test_a_context_is_evaluated_once_and_its_words_are_not_predicted(monkeypatch: pytest.MonkeyPatch) -> None:
    lm, seen, asked = zoo.neural("transformer"), [], []
    inner, normalisers = lm.tree_hidden, scoring.log_normalisers
    monkeypatch.setattr(lm, "tree_hidden", lambda tree: seen.append(len(tree.inputs)) or inner(tree))
    monkeypatch.setattr(
        scoring, "log_normalisers", lambda output, hidden: asked.append(len(hidden)) or normalisers(output, hidden)
    )
    context = (("A", "B", "C", "D"),)
    lm.score_hypotheses([("A", "B"), ("A", "C"), ("B",)], contexts=[context] * 3)
    assert seen == [1 + 5 + 4]  # the begin, the context with its end, A, A B, A C, B
    assert asked == [1 + 4]


def test_the_context_of_a_list_is_evaluated_once_however_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It does not count where parts of so many prefixes are made; contexts of further lists do."""
    lm, seen = zoo.neural("transformer"), list[int]()
    inner = lm.tree_hidden
    monkeypatch.setattr(lm, "tree_hidden", lambda tree: seen.append(len(tree.inputs)) or inner(tree))
    contexts: list[Context] = [(("A", "B") * 20,), (("B", "C") * 20,)]
    hypotheses = [(first, second) for first in "ABC" for second in "ABC"]  # 3 + 9 prefixes
    behind = [context for context in contexts for _ in hypotheses]
    found = scoring.score_by_tree(lm, hypotheses * 2, 12, behind)
    assert seen == [1 + 41 + 12] * 2
    for row, expected in zip(found, lm.score_hypotheses(hypotheses * 2, None, behind), strict=True):
        assert row == pytest.approx(expected, abs=1e-4)


def test_a_context_is_cut_to_the_last_words_that_there_is_room_for() -> None:
    vocab = zoo.neural("lstm").vocab
    a, b, c, end = (vocab.ids[word] for word in ("A", "B", "C", "<sos/eos>"))
    context = (("A", "B"), ("C", "A"))
    whole = [a, b, end, c, a, end]
    for most in range(8):
        cut = tries.context_tokens(vocab, context, (end,), most).tolist()
        assert cut == whole[max(0, len(whole) - most) :]
    sentences = [("A", "B", "C"), ("A",)]
    made = tries.encode_words(vocab, sentences, [context] * 2, (end,), most=5)
    assert [made.contexts[number].tolist() for number in made.after] == [[a, end], [end, c, a, end]]


@pytest.mark.parametrize("name", ["transformer", "lstm", "hf"])
def test_a_long_sentence_takes_no_context_from_the_others(name: str, tmp_path: Path) -> None:
    """Every sentence has the score that it has alone."""
    lm = zoo.make(name, tmp_path)
    if name != "hf":
        lm.most_tokens = 31  # as the other one has it
    context: Context = (("A", "B", "C", "D") * 6,)
    lengths = (0, 1, 2, 5, 6, 7, 8, 12, 28, 31)
    sentences = [tuple(("B", "A", "D", "C", "A") * 7)[:length] for length in lengths]
    alone = [lm.score_hypotheses([words], None, [context])[0] for words in sentences]
    for order in (sentences, sentences[::-1]):
        found = lm.score_hypotheses(order, None, [context] * len(order))
        for words, row in zip(order, found, strict=True):
            assert row == pytest.approx(alone[sentences.index(words)], abs=1e-4)
    boundary = () if name == "hf" else (lm.vocab.eos,)
    for words, row in zip(sentences[:4], alone, strict=False):  # all of it fits
        assert row == pytest.approx(reference(lm, words, context, boundary), abs=2e-4)
    cut = (context[0][-(19 - len(boundary)) :],)  # the room beside 12 words
    assert alone[7] == pytest.approx(reference(lm, sentences[7], cut, boundary), abs=2e-4)
    assert alone[-1] == pytest.approx(lm.score_hypotheses(sentences[-1:])[0], abs=1e-4)  # no room for any


def test_sentences_of_like_lengths_share_a_context_that_is_cut() -> None:
    vocab = zoo.neural("lstm").vocab
    context = (("A",) * 200,)
    sentences = [("B",) * length for length in range(8, 16)]
    made = tries.encode_words(vocab, sentences, [context] * 8, (vocab.eos,), most=128)
    assert [len(made.contexts[number]) for number in made.after] == [120] + [112] * 7
    whole = tries.encode_words(vocab, sentences, [(("A",) * 118,)] * 8, (vocab.eos,), most=128)
    assert [len(whole.contexts[number]) for number in whole.after] == [119] * 2 + [112] * 6


@pytest.mark.parametrize("kind", ["transformer", "transfornn"])
def test_no_more_is_read_than_in_training(kind: str, tmp_path: Path) -> None:
    """Of runs of 6 tokens: behind three words and their end there is room for two words of another sentence."""
    lm = zoo.neural(kind)
    save_folder(tmp_path / "joined", lm, kind, {"training": {"text": "sentences", "join": 6}})
    save_folder(tmp_path / "alone", lm, kind, {"training": {"text": "sentences", "join": 0}})
    sentences, long, short = [("A", "B", "C")], (("C", "B", "A", "B"),), (("A", "B"),)
    joined, alone = load(str(tmp_path / "joined")), load(str(tmp_path / "alone"))
    assert joined.score_sentences(sentences, None, [long]) == joined.score_sentences(sentences, None, [short])
    assert alone.score_sentences(sentences, None, [long]) != alone.score_sentences(sentences, None, [short])
    assert joined.score_sentences(sentences, None, [short]) == alone.score_sentences(sentences, None, [short])


@pytest.mark.parametrize(
    ("kind", "training", "most"),
    [
        ("transformer", {"text": "windows", "window": 6, "join": 0, "carry": False}, 5),  # behind the begin of sentence
        ("transformer", {"text": "windows", "window": 6}, 5),
        ("transformer", {"text": "windows", "window": 1}, 1),
        ("transformer", {"text": "windows", "window": 6, "carry": True}, LONGEST),
        ("transformer", {"text": "windows", "window": "six"}, LONGEST),
        ("transformer-gelu-no-positions", {"text": "windows", "window": 6}, LONGEST),
        ("lstm", {"text": "windows", "window": 6}, LONGEST),
    ],
)
def test_no_more_is_read_than_a_window_of_training(
    kind: str, training: dict[str, Any], most: int, tmp_path: Path
) -> None:
    save_folder(tmp_path / "lm", zoo.neural(kind), zoo.NEURAL[kind][0], {"training": training})
    lm: Any = load(str(tmp_path / "lm"))
    assert lm.most_tokens == most


def test_uncertainty_behind_other_sentences() -> None:
    lm = BayesianAverage(zoo.neural("bayesian"), samples=3, with_uncertainty=True)
    sentences, contexts = some_sentences(2, 8)
    scores, spread = lm.score_with_uncertainty(sentences, contexts)
    assert scores == lm.score_hypotheses(sentences, contexts=contexts)
    each = [one.score_hypotheses(sentences, contexts=contexts) for one in lm.lms]
    for row, *rows in zip(spread, *each, strict=True):
        assert row == pytest.approx(np.std(np.array(rows), axis=0).tolist(), abs=1e-4)


# n-grams across sentences: made up, log10; whole sentences are followed by </s> <s>.
ACROSS = """\\data\\
ngram 1=6
ngram 2=5
ngram 3=2

\\1-grams:
-1.2\t<unk>\t0
-99\t<s>\t-0.3
-0.9\t</s>\t-0.6
-0.7\tA\t-0.2
-0.8\tB\t-0.4
-1.0\tC\t-0.1

\\2-grams:
-0.4\t<s> A\t-0.15
-0.3\tA B\t0
-0.5\tB </s>\t-0.25
-0.35\t</s> <s>\t-0.45
-0.2\tC B\t0

\\3-grams:
-0.11\t</s> <s> A
-0.22\t</s> <s> B

\\end\\
"""


def test_an_ngram_lm_across_sentences(tmp_path: Path) -> None:
    pytest.importorskip("kenlm", reason="n-gram LMs need kenlm")
    from lm_zoo.ngram.kenlm_lm import LN10, NgramLM

    path = tmp_path / "across.arpa"
    path.write_text(ACROSS)
    lm = NgramLM(path)
    sentences, contexts = [("A",), ("B",), ("C",), ("A",)], [(("C", "B"),), (("C", "B"),), (("B",),), ()]
    found = lm.score_hypotheses(sentences, 1.0, contexts)
    # After </s> <s>: A and B by trigrams, C by two back-offs; then A </s> and C </s> by back-offs, B </s> by a bigram.
    assert found[0][0] == pytest.approx(-0.11 * LN10)
    assert found[1] == pytest.approx([-0.22 * LN10, -0.5 * LN10])
    assert found[2][0] == pytest.approx((-0.45 - 0.3 - 1.0) * LN10)
    assert found[3] == pytest.approx(lm.score_words([("A",)])[0])
    assert lm.score_sentences(sentences, 1.0, contexts) == pytest.approx([sum(row) for row in found], abs=1e-4)


def test_an_ngram_lm_across_sentences_sees_more_than_the_last_word(tmp_path: Path) -> None:
    pytest.importorskip("kenlm", reason="n-gram LMs need kenlm")
    from lm_zoo.ngram.kenlm_lm import LN10, NgramLM

    longest = ("A", "B", "</s>", "<s>", "C")
    grams = [[("<unk>",), ("<s>",), ("</s>",), ("A",), ("B",), ("C",)]]
    grams += [[longest[at : at + n] for at in range(6 - n)] for n in (2, 3, 4, 5)]
    path = tmp_path / "across.arpa"
    with path.open("w") as stream:
        print("\\data\\", *(f"ngram {n}={len(each)}" for n, each in enumerate(grams, 1)), sep="\n", file=stream)
        for n, each in enumerate(grams, 1):
            print(f"\n\\{n}-grams:", *(f"-{0.1 * n:.1f}\t{' '.join(words)}" for words in each), sep="\n", file=stream)
        print("\n\\end\\", file=stream)
    (of_two,), (of_one,) = (
        [row[0]] for row in NgramLM(path).score_hypotheses([("C",)] * 2, 1.0, [(("A", "B"),), (("B",),)])
    )
    assert (of_two, of_one) == pytest.approx((-0.5 * LN10, -0.4 * LN10))


def test_an_ngram_lm_of_sentences_has_no_memory_of_others(tmp_path: Path) -> None:
    lm = zoo.make("ngram", tmp_path)
    sentences, contexts = some_sentences(3)
    assert lm.score_hypotheses(sentences, 1.0, contexts) == lm.score_hypotheses(sentences, 1.0)
    assert lm.score_sentences(sentences, 1.0, contexts) == lm.score_sentences(sentences, 1.0)


def test_an_lm_that_takes_no_context_says_so() -> None:
    class Words(LanguageModel):
        def score_words(self, sentences: Any, max_unknown: float | None = 0.5) -> list[list[float]]:
            return [[0.0] * (len(words) + 1) for words in sentences]

    assert Words().score_hypotheses([("A",)]) == [[0.0, 0.0]]
    with pytest.raises(LMError, match="a Words scores sentences alone, without the text before them"):
        Words().score_sentences([("A",)], contexts=[(("B",),)])


def test_hugging_face_contexts_within_the_positions(tmp_path: Path) -> None:
    pytest.importorskip("transformers", reason="Hugging Face models need transformers")
    from lm_zoo.registry import load

    lm = load(f"hf:{hugging_face.words(tmp_path / 'words')}")
    lm.positions = 8  # the begin, and 7 words
    words, long = ("A", "B", "C"), (("A", "A", "D"), ("B", "C", "D"))
    expected = lm.score_hypotheses([words], contexts=[(("D", "B", "C", "D"),)])
    assert lm.score_hypotheses([words], contexts=[long]) == [pytest.approx(expected[0], abs=1e-5)]


@pytest.mark.parametrize("make", ["gpt2", "llama", "sliding", "alibi"])
def test_hugging_face_contexts_are_running_text(make: str, tmp_path: Path) -> None:
    pytest.importorskip("transformers", reason="Hugging Face models need transformers")
    from lm_zoo.registry import load

    models = {"sliding": hugging_face.mistral_model, "alibi": hugging_face.bloom_model}
    folder = tmp_path / make
    made = hugging_face.words(folder, models[make]) if make in models else getattr(hugging_face, make)(folder)
    lm = load(f"hf:{made}?case=mixed")
    words = ("A", "B", "C", "D") if make in models else ("the", "cat", "dog", "sat")
    rng = np.random.default_rng(4)
    sentences = [tuple(map(str, rng.choice(words, size))) for size in (0, 1, 2, 2, 3)]
    contexts: list[Context] = [((words[0], words[1]), words), (), (words,), (words,), (words[:2],)]
    for words, context, got in zip(sentences, contexts, lm.score_hypotheses(sentences, contexts=contexts), strict=True):
        assert got == pytest.approx(reference(lm, words, context, ()), abs=2e-4)


def test_a_masked_lm_sees_the_words_before_and_masks_none_of_them(tmp_path: Path) -> None:
    pytest.importorskip("transformers", reason="Hugging Face models need transformers")
    from lm_zoo.registry import load

    lm = load(f"hf-mlm:{hugging_face.bert(tmp_path / 'bert')}")
    sentences, contexts = [("the", "cat"), ("a", "dog", "sat"), ()], [(("a", "cat"), ("the",)), (), (("a",),)]
    found = lm.score_hypotheses(sentences, contexts=contexts)
    for words, context, got in zip(sentences, contexts, found, strict=True):
        text = (*(word for sentence in context for word in sentence), *words)
        assert got == pytest.approx(lm.score_hypotheses([text])[0][len(text) - len(words) :], abs=1e-4)
