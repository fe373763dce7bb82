"""Kneser-Ney estimation against lmplz's values, and against an estimation with dictionaries, word by word."""

from __future__ import annotations

import gzip
import json
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from lm_zoo.errors import LMError, TextError
from lm_zoo.ngram.arpa import read_vocabulary, write_arpa
from lm_zoo.ngram.counts import _parts, count_ngram_types, read_ids
from lm_zoo.ngram.kneser_ney import FALLBACK_DISCOUNTS, KneserNeyModel, _frequencies, adjusted_counts, estimate
from tests.lm_zoo.golden.recreate import GOLDEN, VOCAB, read_arpa
from tests.lm_zoo.pseudo import pseudo_text

Ngram = tuple[str, ...]
CASES = json.loads(GOLDEN.read_text())


def as_dict(model: KneserNeyModel) -> dict[Ngram, list[float]]:
    """N-gram -> log10 probability and, below the highest order, log10 back-off."""
    result = {}
    for n, table in enumerate(model.tables, start=1):
        for row, ids in enumerate(model.word_ids(n, table.kept).tolist()):
            values = [float(table.log_prob[row])]
            if table.backoff is not None:
                values.append(float(table.backoff[row]))
            result[tuple(model.words[index] for index in ids)] = values
    return result


@pytest.mark.parametrize("case", CASES, ids=[f"{case['options']} seed {case['seed']}" for case in CASES])
def test_equals_lmplz(case: dict, tmp_path: Path) -> None:
    """lmplz of the kenlm 0.3.0 source distribution; golden/recreate.py made the values."""
    flags = {name: values.split() for name, _, values in (part.partition(" ") for part in case["options"].split(" -"))}
    model = estimate(
        pseudo_text(case["sentences"], case["seed"]),
        int(flags["-o"][0]),
        prune=list(map(int, flags.get("-prune", []))),
        vocab=VOCAB if "-limit_vocab_file" in flags else None,
        discount_fallback=FALLBACK_DISCOUNTS if "-discount_fallback" in flags else None,
    )
    assert [len(table.kept) for table in model.tables] == case["counts"]
    write_arpa(model, tmp_path / "lm.arpa")
    ngrams = read_arpa((tmp_path / "lm.arpa").read_text())
    for ngram, values in case["ngrams"].items():
        assert ngrams[ngram] == pytest.approx(values, abs=2e-6), ngram


class Reference:
    """Interpolated modified Kneser-Ney as in the paper, one n-gram at a time, with fixed discounts."""

    def __init__(self, sentences: Sequence[Sequence[str]], order: int, prune: Sequence[int]) -> None:
        self.counts: Counter[Ngram] = Counter({("<unk>",): 0, ("<s>",): 0})
        for sentence in sentences:
            words = ("<s>", *sentence, "</s>")
            for end in range(2, len(words) + 1):
                for begin in range(max(0, end - order), end):
                    self.counts[words[begin:end]] += 1
        left: defaultdict[Ngram, set[str]] = defaultdict(set)
        for ngram in self.counts:
            left[ngram[1:]].add(ngram[0])
        self.adjusted = {
            ngram: count if len(ngram) == order or ngram[0] == "<s>" else len(left[ngram])
            for ngram, count in self.counts.items()
        }
        special = {("<unk>",), ("<s>",), ("</s>",)}
        self.kept = {ngram for ngram, count in self.counts.items() if ngram in special or count > prune[len(ngram) - 1]}
        self.vocab = [ngram[0] for ngram in self.kept if len(ngram) == 1 and ngram != ("<s>",)]
        self.followers: defaultdict[Ngram, list[Ngram]] = defaultdict(list)
        for ngram in self.counts:
            self.followers[ngram[:-1]].append(ngram)

    def discount(self, ngram: Ngram) -> float:
        adjusted = self.adjusted[ngram]
        return (0.0, *FALLBACK_DISCOUNTS)[min(adjusted, 3)] if ngram in self.kept else adjusted

    def backoff(self, context: Ngram) -> float:
        followers = self.followers[context]
        total = sum(self.adjusted[ngram] for ngram in followers)
        return sum(self.discount(ngram) for ngram in followers) / total if total else 1.0

    def prob(self, ngram: Ngram) -> float:
        """Interpolated probability of the last word after the others; any n-gram of known words."""
        if not ngram:
            return 1.0 / len(self.vocab)
        total = sum(self.adjusted[other] for other in self.followers[ngram[:-1]])
        seen = (self.adjusted[ngram] - self.discount(ngram)) / total if ngram in self.kept and total else 0.0
        return seen + self.backoff(ngram[:-1]) * self.prob(ngram[1:])


small_texts = st.lists(st.lists(st.sampled_from("abcd"), min_size=1, max_size=5), min_size=1, max_size=12)
thresholds = st.lists(st.integers(0, 3), min_size=1, max_size=4).map(sorted)


@given(small_texts, st.integers(1, 5), thresholds)
@settings(max_examples=60, deadline=None)
def test_equals_the_reference(sentences: list[list[str]], order: int, prune: list[int]) -> None:
    prune = prune[:order] + [prune[:order][-1]] * (order - len(prune))
    model = with_fixed_discounts(sentences, order, prune)
    reference = Reference(sentences, order, prune)
    assert model.keys() == reference.kept
    for ngram, (log_prob, *backoff) in model.items():
        if ngram != ("<s>",):
            assert 10**log_prob == pytest.approx(reference.prob(ngram), rel=1e-5), ngram
        if backoff:
            assert 10 ** backoff[0] == pytest.approx(reference.backoff(ngram), rel=1e-5), ngram


def test_parts_have_few_ngrams_and_occurrences() -> None:
    """So that keys have room for both: n-grams at sentence ends, of which nothing follows, may be very many."""
    assert list(_parts(np.array([0, 0, 0, 0, 0, 0, 1, 2, 9, 9, 10]), 3)) == [(3, 6), (6, 7), (7, 8), (8, 10)]


@pytest.mark.parametrize("bits", [0, 1, 5])
def test_parts_change_nothing(bits: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Counting and interpolation of few n-grams at a time: parts of one n-gram, and parts that an n-gram exceeds."""
    expected = as_dict(estimate(pseudo_text(1000, 3), 4, [0, 0, 1]))
    monkeypatch.setattr("lm_zoo.ngram.counts.PART_BITS", bits)
    monkeypatch.setattr("lm_zoo.ngram.kneser_ney.PART", 1 << bits)
    found = as_dict(estimate(pseudo_text(1000, 3), 4, [0, 0, 1]))
    assert found.keys() == expected.keys()
    for ngram, values in expected.items():
        assert found[ngram] == pytest.approx(values, rel=1e-6), ngram


def with_fixed_discounts(sentences: list[list[str]], order: int, prune: Sequence[int]) -> dict[Ngram, list[float]]:
    """Estimates with the fall-back discounts at every order, whether the text would give its own or not."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("lm_zoo.ngram.kneser_ney._discounts", lambda *_: np.array([0.0, *FALLBACK_DISCOUNTS]))
        return as_dict(estimate(sentences, order, prune))


def backed_off(model: dict[Ngram, list[float]], ngram: Ngram) -> float:
    """What a reader of the ARPA file makes of it: the longest n-gram that is there, and back-offs for the rest."""
    if ngram in model:
        return 10 ** model[ngram][0]
    backoff = model[ngram[:-1]][1] if ngram[:-1] in model else 0.0
    return 10**backoff * backed_off(model, ngram[1:])


@given(small_texts, st.integers(1, 4), thresholds)
@settings(max_examples=60, deadline=None)
def test_every_history_sums_to_one(sentences: list[list[str]], order: int, prune: list[int]) -> None:
    model = with_fixed_discounts(sentences, order, prune[:order])
    words = [ngram[0] for ngram in model if len(ngram) == 1 and ngram != ("<s>",)]
    histories = {ngram for ngram in model if len(ngram) < order} | {()}
    for history in [*histories, ("<s>", *"dcba"), ("zz",)]:
        context = history[-(order - 1) :] if order > 1 else ()
        assert sum(backed_off(model, (*context, word)) for word in words) == pytest.approx(1.0, abs=1e-5), history


def test_unknown_words_in_the_text_are_ordinary() -> None:
    text = [[word if word != "w1" else "<unk>" for word in words] for words in pseudo_text(1000)]
    model, plain = as_dict(estimate(text, 2)), as_dict(estimate(pseudo_text(1000), 2))
    assert model[("w0", "<unk>")][0] == pytest.approx(plain[("w0", "w1")][0], abs=1e-3)
    assert model[("<unk>",)] == pytest.approx(plain[("w1",)], abs=1e-3)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"order": 0}, "order 0: expected 1 to 6"),
        ({"order": 7}, "order 7: expected 1 to 6"),
        ({"order": 2, "prune": [0, 0, 1]}, "3 pruning thresholds for a model of order 2"),
        ({"order": 3, "prune": [0, 2, 1]}, "never decrease"),
        ({"order": 2, "prune": [-1]}, "numbers from 0"),
        ({"order": 2, "discount_fallback": (3, 3, 3)}, "expected three above 0, at most 1, 2 and 3"),
        ({"order": 2, "discount_fallback": (0, 1, 1.5)}, "expected three above 0"),
        ({"order": 2, "discount_fallback": (0.5, float("nan"), 1.5)}, "expected three above 0"),
        ({"order": 2, "discount_fallback": (0.5,)}, "expected three above 0"),
        ({"order": 3}, r"cannot estimate the discounts of order 1: too few 1-grams.*--discount-fallback"),
    ],
)
def test_bad_settings(arguments: dict, problem: str) -> None:
    with pytest.raises(LMError, match=problem):
        estimate([["a", "b"], ["a"]], **arguments)


@pytest.mark.parametrize("words", ["a <s> b", "a </s> b", "<s> a b </s>", "a </s> <s> b"])
def test_markers_in_the_text(words: str) -> None:
    with pytest.raises(TextError, match="<s> or </s> as a word"):
        estimate([words.split(), ["a"]], 2)


def test_a_discount_of_zero_is_out_of_range(tmp_path: Path) -> None:
    """A context of words with that discount would have a back-off of log10 0, with which KenLM refuses the file."""
    text = [line.split() for line in ("a a a c a", "a a b a a", "c a", "a a a")]
    lines: list[str] = []
    model = estimate(text, 2, discount_fallback=FALLBACK_DISCOUNTS, remark=lines.append)
    assert model.discounts[1].tolist() == [0.0, *FALLBACK_DISCOUNTS]
    assert "order 2: the discounts 0.6667 0.0000 0.3333 are out of range; fixed discounts" in "\n".join(lines)
    write_arpa(model, tmp_path / "lm.arpa")
    assert "inf" not in (tmp_path / "lm.arpa").read_text()


@given(st.lists(st.lists(st.sampled_from("ab"), min_size=1, max_size=5), min_size=1, max_size=12), st.integers(2, 4))
@settings(max_examples=150, deadline=None)
def test_the_last_ngram_counts_with_its_occurrences(sentences: list[list[str]], order: int) -> None:
    """As in lmplz: the last in the order of reversed words."""
    words, text = read_ids(sentences)
    types = count_ngram_types(text, len(words), order, lambda line: None)
    found = _frequencies(types, [adjusted_counts(types, n) for n in range(1, order + 1)], text)
    reference = Reference(sentences, order, [0] * order)
    ends = [
        ("<s>", *sentence, "</s>")[: end + 1][-order:] for sentence in sentences for end in range(len(sentence) + 2)
    ]
    last = max(ends, key=lambda ngram: [words.index(word) for word in reversed(ngram)])
    for n in range(1, order + 1):
        expected = Counter(count for ngram, count in reference.adjusted.items() if len(ngram) == n)
        if n < order and n <= len(last):
            expected[reference.adjusted[last[-n:]]] -= 1
            expected[reference.counts[last[-n:]]] += 1
        assert found[n - 1].tolist()[1:] == [expected[count] for count in range(1, 5)]


def test_a_text_of_more_tokens_than_the_counts_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lm_zoo.ngram.counts.MOST_TOKENS", 7)
    read_ids([["a", "b", "c", "d", "e"]])
    with pytest.raises(TextError, match="the text has 8 tokens with sentence begins and ends, expected 7 at most"):
        read_ids([["a", "b", "c", "d", "e", "f"]])


def test_no_text() -> None:
    with pytest.raises(TextError, match="no sentence"):
        estimate([], 2)


def run(*arguments: object) -> str:
    from rescore.cli.main import cli

    result = CliRunner().invoke(cli, ["train-ngram", *map(str, arguments)])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.output


def test_a_vocabulary_without_a_word_of_the_text_is_refused() -> None:
    with pytest.raises(LMError, match=r"has 2 words, such as 'A', none of which is among the 3 of the vocabulary"):
        estimate([["A", "B"], ["B"]], 2, vocab=["a", "b", "c"], discount_fallback=FALLBACK_DISCOUNTS)


@pytest.mark.parametrize(
    ("table", "symbols"), [("<eps> 0\nA 1\nB 2\n#0 3\n", 2), ("      2 B\n      1 A\n", 0), ("A 1\nB 2\n", 0)]
)
def test_of_a_table_of_words_the_numbers_are_no_words(table: str, symbols: int, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("A 1 B\nB 2 A\nA B\n")
    (tmp_path / "words.txt").write_text(table)
    options = ["--text", tmp_path / "text", "--order", 2, "--discount-fallback", "--out", tmp_path / "lm.arpa"]
    said = run(*options, "--vocab", tmp_path / "words.txt")
    assert f"a table of words and numbers; 2 words, {symbols} symbols left out" in said
    assert read_vocabulary(tmp_path / "lm.arpa") == ["<unk>", "<s>", "</s>", "A", "B"]


def test_command(tmp_path: Path) -> None:
    """Pruning in the three ways of writing it, plain and gzip, several texts."""
    text, more = tmp_path / "text", tmp_path / "kaldi"
    sentences = [" ".join(words) + "\n" for words in pseudo_text(1000)]
    text.write_text("".join(sentences[:600]))
    more.write_text("".join(f"utt{number} {line}" for number, line in enumerate(sentences[600:])))
    shared = ["--text", text, "--text", f"kaldi:{more}", "--order", 3]
    outputs = []
    for number, prune in enumerate((["0,0,1"], ["0 0 1"], ["0", "0", "1"])):
        out = tmp_path / f"{number}.arpa.gz"
        run(*shared, "--prune", *prune, "--out", out)
        outputs.append(gzip.decompress(out.read_bytes()).decode())
    assert outputs[0] == outputs[1] == outputs[2]
    ngrams, expected = read_arpa(outputs[0]), as_dict(estimate(pseudo_text(1000), 3, [0, 0, 1]))
    assert len(ngrams) == len(expected)
    for ngram, values in expected.items():
        assert ngrams[" ".join(ngram)] == pytest.approx(values, abs=1e-6)
    run(*shared, "--prune", "0,0,1", "--out", tmp_path / "plain.arpa")
    assert (tmp_path / "plain.arpa").read_text() == outputs[0]
    assert not list(tmp_path.glob(".*"))


def test_command_vocab_digits_fallback(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("a b c\na b\nb c d\n")
    (tmp_path / "vocab").write_text("a b\nc\n")
    out = tmp_path / "out.arpa"
    shared = ["--text", tmp_path / "text", "--order", 2, "--discount-fallback", "--out", out]
    assert "fixed discounts" in run(*shared, "--vocab", tmp_path / "vocab", "--digits", 3)
    ngrams = read_arpa(out.read_text())
    assert {"a", "b", "c", "a b"} <= ngrams.keys()
    assert not any("d" in ngram.split() for ngram in ngrams)
    assert all(
        len(f"{abs(value):g}".replace(".", "").lstrip("0")) <= 3 for values in ngrams.values() for value in values
    )


def test_command_errors(tmp_path: Path) -> None:
    from rescore.errors import UsageError

    (tmp_path / "text").write_text("a b\n")
    shared = ["--text", tmp_path / "text", "--order", 2]
    with pytest.raises(UsageError, match="expected whole numbers"):
        run(*shared, "--prune", "0,x", "--out", tmp_path / "o.arpa")
    with pytest.raises(UsageError, match="unexpected argument 'stray'"):
        run(*shared, "--out", tmp_path / "o.arpa", "stray")
    with pytest.raises(UsageError, match=r"ends in \.arpa"):
        run(*shared, "--out", tmp_path / "o.txt")
    with pytest.raises(TextError, match="no such file"):
        run("--text", tmp_path / "none", "--order", 2, "--out", tmp_path / "o.arpa")
    assert not (tmp_path / "o.arpa").exists()
