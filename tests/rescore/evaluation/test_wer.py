"""Error counts against an independent slow Levenshtein, formats against Kaldi's and icefall's output."""

from __future__ import annotations

import random
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rescore.errors import ReferencesError
from rescore.evaluation.icefall_errs import marked_alignment, write_errs
from rescore.evaluation.wer import (
    GAP,
    ErrorCounts,
    align,
    check_same_form,
    corpus_errors,
    count_errors,
    edit_distance,
    kaldi_lines,
    oracle_errors,
    split_characters,
    utterance_errors,
)
from rescore.types import Hypothesis, NbestList, Words

words = st.lists(st.sampled_from("ABCD"), max_size=8).map(tuple)


def slow_distance(ref: Words, hyp: Words) -> int:
    """Levenshtein distance straight from its definition."""

    @cache
    def distance(i: int, j: int) -> int:
        if i == 0 or j == 0:
            return i + j
        same = distance(i - 1, j - 1) + (ref[i - 1] != hyp[j - 1])
        return min(same, distance(i - 1, j) + 1, distance(i, j - 1) + 1)

    return distance(len(ref), len(hyp))


def kaldi_counts(ref: Words, hyp: Words) -> tuple[int, int, int]:
    """(ins, del, sub) by the rule of Kaldi: of equal costs an insertion, then a deletion, only then a substitution.

    A match goes by the substitution's way, and so also only where it is cheaper than both others.
    """
    table = [[(i, 0, i, 0) for i in range(len(ref) + 1)]]  # (cost, ins, del, sub)
    for j, hyp_word in enumerate(hyp, start=1):
        row = [(j, j, 0, 0)]
        for i, ref_word in enumerate(ref, start=1):
            above, left, corner = table[j - 1][i], row[i - 1], table[j - 1][i - 1]
            wrong = int(ref_word != hyp_word)
            costs = above[0] + 1, left[0] + 1, corner[0] + wrong
            if costs[2] < min(costs[:2]):
                row.append((costs[2], corner[1], corner[2], corner[3] + wrong))
            elif costs[1] < costs[0]:
                row.append((costs[1], left[1], left[2] + 1, left[3]))
            else:
                row.append((costs[0], above[1] + 1, above[2], above[3]))
        table.append(row)
    return table[-1][-1][1:]


@given(words, words)
@settings(max_examples=300, deadline=None)
def test_counts_agree_with_the_slow_reference_and_with_kaldis_rule(ref: Words, hyp: Words) -> None:
    counts = count_errors(ref, hyp)
    assert counts.errors == slow_distance(ref, hyp) == edit_distance(ref, hyp)
    assert (counts.ins, counts.dele, counts.sub) == kaldi_counts(ref, hyp)
    assert counts.ins - counts.dele == len(hyp) - len(ref)
    assert counts.wrong_sentences == (ref != hyp)


@given(words, words)
@settings(max_examples=100, deadline=None)
def test_alignments_hold_both_sides_and_as_many_errors(ref: Words, hyp: Words) -> None:
    pairs = align(ref, hyp)
    assert tuple(r for r, _ in pairs if r != GAP) == ref
    assert tuple(h for _, h in pairs if h != GAP) == hyp
    assert sum(r != h for r, h in pairs) == slow_distance(ref, hyp)


def test_long_sentences_agree_with_the_slow_reference() -> None:
    rng = random.Random(1)
    for _ in range(5):
        ref = tuple(rng.choices("ABCDEFGH", k=60))
        hyp = tuple(w for w in ref if rng.random() > 0.1) + tuple(rng.choices("ABCDEFGH", k=5))
        assert edit_distance(ref, hyp) == slow_distance(ref, hyp)


def test_lines_are_those_of_kaldi() -> None:
    # from a Kaldi recipe's wer_10_0.0 (tri1, written by compute-wer)
    counts = ErrorCounts(ins=24, dele=7, sub=72, ref_words=2315, sentences=217, wrong_sentences=52)
    assert kaldi_lines(counts) == ["%WER 4.45 [ 103 / 2315, 24 ins, 7 del, 72 sub ]", "%SER 23.96 [ 52 / 217 ]"]
    assert kaldi_lines(counts, "CER")[0].startswith("%CER 4.45 [")
    assert [line.endswith(" sub ] [PARTIAL]") for line in kaldi_lines(counts, absent=1)] == [True, False]


def test_no_reference_word_is_an_error_and_not_a_division_by_zero() -> None:
    with pytest.raises(ReferencesError, match="no word at all"):
        kaldi_lines(corpus_errors({"a": ()}, {"a": ("X",)}))


def test_empty_hypotheses_and_references_count() -> None:
    refs = {"a": ("A", "B"), "b": (), "c": ("C",)}
    counts = corpus_errors(refs, {"a": (), "b": ("X",), "c": ("C",)})
    assert counts == ErrorCounts(ins=1, dele=2, sub=0, ref_words=3, sentences=3, wrong_sentences=2)
    assert list(utterance_errors(refs, {"c": ("C",), "b": (), "a": ()})) == ["a", "b", "c"]


def test_utterances_on_one_side_only_are_named_and_counted() -> None:
    refs = {f"u{i}": ("A",) for i in range(9)}
    missing = r"8 of 9 references have no hypotheses \(u1, u2, u3, u4, u5 and 3 more\)"
    with pytest.raises(ReferencesError, match=missing):
        corpus_errors(refs, {"u0": ("A",)})
    with pytest.raises(ReferencesError, match=r"1 of 2 hypotheses have no reference \(x\)"):
        corpus_errors({"a": ("A",)}, {"a": ("A",), "x": ("A",)})


def test_wrong_letter_case_is_an_error() -> None:
    with pytest.raises(ReferencesError, match="letter case"):
        corpus_errors({"a": ("HE", "SAID")}, {"a": ("he", "said")})
    with pytest.raises(ReferencesError, match="letter case"):
        corpus_errors({"a": ("HE", "[noise]", "{cough}", "SAID")}, {"a": ("he", "said", "!SIL")})
    check_same_form([("HE", "said")], [("he",)])
    check_same_form([("HE",)], [("[noise]",)])
    check_same_form([("HE",)], [("她", "说")])
    check_same_form([("HE",)], [()])
    check_same_form([("HE",)], [("<unk>",)])


def test_a_few_words_in_another_form_are_not_told(capsys: pytest.CaptureFixture[str]) -> None:
    ref = tuple(f"w{k}" for k in range(20))
    check_same_form([ref], [(*ref[:9], "W9", "W10", *"abcdefghi")])  # 45 % of the words, and 55 % without case
    assert capsys.readouterr().err == ""
    check_same_form([ref], [(*ref[:4], *(word.upper() for word in ref[4:12]), *"abcdefgh")])  # 20 % and 60 %
    assert "written in different ways ('w4', 'W4'): 4 of 20 words" in capsys.readouterr().err


def test_blanks_on_one_side_alone_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    whole, divided = [("今天天气很好",)] * 4, [tuple("今天天汽很好")] * 4
    check_same_form(whole, divided)
    said = "references have 24 characters in 4 words, hypotheses 24 in 24: one side has blanks where the other has none"
    assert said in capsys.readouterr().err
    check_same_form(divided, whole)
    assert "in 24 words, hypotheses 24 in 4: one side" in capsys.readouterr().err
    check_same_form(divided, divided)
    check_same_form(whole, [("昨天天气很好",)] * 4)
    check_same_form([tuple("ABCDEFGHIJ")] * 4, [tuple("KLM")] * 4)  # deletions
    assert capsys.readouterr().err == ""


def test_pieces_are_not_compared_with_words() -> None:
    pieces, words = {"a": ("\u2581HE", "LL", "O")}, {"a": ("HELLO",)}
    with pytest.raises(ReferencesError, match=r"hypotheses alone are pieces .*HE'.*--pieces"):
        corpus_errors(words, pieces)
    with pytest.raises(ReferencesError, match="references alone are pieces"):
        corpus_errors(pieces, words)
    assert corpus_errors(pieces, pieces).errors == 0


@pytest.mark.parametrize(
    ("hyp", "remarked"),
    [
        (("He", "said,", "'so.'"), "('HE', 'He'): 0 of 3 words of the references are among the hypotheses, 3 without"),
        (("HE", "SAID", "so"), ""),  # most words are the same
        (("She", "said,", "no"), ""),  # others
        (("HE", "SAID", "SO"), ""),
    ],
)
def test_texts_in_other_forms_are_remarked(
    capsys: pytest.CaptureFixture[str], hyp: tuple[str, ...], remarked: str
) -> None:
    corpus_errors({"a": ("HE", "SAID", "SO")}, {"a": hyp})
    said = capsys.readouterr().err
    assert remarked in said.replace("\n", " ") and bool(remarked) == ("--normalise basic" in said)


def test_other_forms_are_remarked_though_many_words_are_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    refs = {"a": ("HE", "SAID", "SO", "TO", "HER")}
    corpus_errors(refs, {"a": ("He", "sat", "so,", "to", "err.")})
    assert "0 of 5 words of the references are among the hypotheses, 3 without" in capsys.readouterr().err
    corpus_errors(refs, {"a": ("HE", "SAT", "S0", "TWO", "err")})
    assert not capsys.readouterr().err


def test_characters_leave_blanks_out() -> None:
    assert split_characters(("AB", "C")) == ("A", "B", "C")
    counts = corpus_errors({"a": split_characters(("AB", "C"))}, {"a": split_characters(("A", "BC"))})
    assert counts.errors == 0 and counts.ref_words == 3


def test_an_unknown_character_is_one() -> None:
    """ESPnet joins the tokens of Chinese without blanks; Kaldi and icefall's lang folders have `<UNK>`."""
    words = ("今天<unk>气", "<UNK>", "<unk>", "a<b>")
    assert split_characters(words) == ("今", "天", "<unk>", "气", "<UNK>", "<unk>", "a", "<", "b", ">")


def test_oracle_takes_the_nearest_hypothesis() -> None:
    lists = [
        NbestList("a", [Hypothesis(("X", "Y")), Hypothesis(("A", "Y")), Hypothesis(("A", "B", "C", "D"))]),
        NbestList("b", [Hypothesis(())]),
    ]
    counts = oracle_errors(lists, {"a": ("A", "B"), "b": ("C",)})
    assert (counts.sub, counts.dele, counts.ins, counts.ref_words) == (1, 1, 0, 3)
    with pytest.raises(ReferencesError, match=r"1 of 1 references have no N-best lists \(z\)"):
        oracle_errors(lists, {"z": ("A",)})


def test_the_oracle_of_an_empty_list_is_no_word() -> None:
    counts = oracle_errors([NbestList("a", []), NbestList("b", [])], {"a": ("A", "B"), "b": ()})
    assert (counts.dele, counts.errors, counts.wrong_sentences, counts.sentences) == (2, 2, 1, 2)


def test_adjacent_errors_are_one_mark() -> None:
    pairs = [("A", "A"), ("B", GAP), ("C", "X"), ("D", "D"), (GAP, "Y")]
    assert marked_alignment(pairs) == "A (B C->X) D (*->Y)"


def test_errs_file_is_icefalls(tmp_path: Path) -> None:
    # Worked out by hand after icefall's write_error_stats (icefall/utils.py).
    refs = {"u1": ("THE", "CAT", "SAT"), "u2": ("A", "CAT", "*"), "u3": ()}
    hyps = {"u1": ("THE", "HAT", "SAT", "DOWN"), "u2": ("CAT", "*"), "u3": ("DOWN",)}
    path = tmp_path / "errs.txt"
    write_errs(path, refs, hyps)
    assert path.read_text() == (
        "%WER = 66.67\n"
        "Errors: 2 insertions, 1 deletions, 1 substitutions, over 6 reference words (4 correct)\n"
        "Search below for sections starting with PER-UTT DETAILS:, SUBSTITUTIONS:, DELETIONS:, INSERTIONS:, "
        "PER-WORD STATS:\n"
        "\n"
        "PER-UTT DETAILS: corr or (ref->hyp)  \n"
        "u1:\tTHE (CAT->HAT) SAT (*->DOWN)\n"
        "u2:\t(A->*) CAT *\n"
        "u3:\t(*->DOWN)\n"
        "\n"
        "SUBSTITUTIONS: count ref -> hyp\n"
        "1   CAT -> HAT\n"
        "\n"
        "DELETIONS: count ref\n"
        "1   A\n"
        "\n"
        "INSERTIONS: count hyp\n"
        "2   DOWN\n"
        "\n"
        "PER-WORD STATS: word  corr tot_errs count_in_ref count_in_hyp\n"
        "DOWN   0 2 0 2\n"
        "HAT   0 1 0 1\n"
        "CAT   1 1 2 1\n"
        "A   0 1 1 0\n"
        "THE   1 0 1 1\n"
        "SAT   1 0 1 1\n"
        "*   1 0 1 1\n"
    )


def test_errs_file_is_not_left_half_written(tmp_path: Path) -> None:
    with pytest.raises(ReferencesError):
        write_errs(tmp_path / "errs.txt", {"a": ("A",)}, {"b": ("A",)})
    assert not list(tmp_path.iterdir())
