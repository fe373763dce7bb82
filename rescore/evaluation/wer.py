"""Word error rates: counts as Kaldi's compute-wer gives them, details as icefall's errs files.

`count_errors` uses kaldialign's edit distance, which breaks ties between insertions, deletions and substitutions as
Kaldi's `LevenshteinEditDistance` (util/edit-distance-inl.h) does, so that the counts are those of compute-wer.  The
alignments of `write_errs` are kaldialign's `align`, as in icefall; where several alignments have the same number of
errors, the two may divide it differently among the three kinds.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import kaldialign

from lm_zoo.reading import is_piece, is_tag
from rescore.console import remark, some_names
from rescore.errors import ReferencesError
from rescore.types import NbestList, Words

FEW, MORE = 0.5, 0.3  # shares of the words of references that show a difference in form
MOST = 0.8  # share of the characters that two texts both have
DIVIDED = 1.5  # times the words, of as many characters, that show blanks in other places
ENOUGH, NEARLY_ALL = 20, 0.9  # words of references, and the share of them that is wrong with another table of words
_CHARACTER = re.compile(r"<unk>|<UNK>|.", re.DOTALL)
GAP = "\0"  # stands for "no word" in alignments; no word of a text file can contain it


@dataclass(frozen=True)
class ErrorCounts:
    """Insertions, deletions and substitutions over `ref_words` words of `sentences` utterances."""

    ins: int = 0
    dele: int = 0
    sub: int = 0
    ref_words: int = 0
    sentences: int = 0
    wrong_sentences: int = 0

    def __add__(self, other: ErrorCounts) -> ErrorCounts:
        return ErrorCounts(
            self.ins + other.ins,
            self.dele + other.dele,
            self.sub + other.sub,
            self.ref_words + other.ref_words,
            self.sentences + other.sentences,
            self.wrong_sentences + other.wrong_sentences,
        )

    @property
    def errors(self) -> int:
        return self.ins + self.dele + self.sub

    @property
    def wer(self) -> float:
        """Word error rate in percent.  Raises ReferencesError if there is no reference word."""
        if self.ref_words == 0:
            raise ReferencesError("the references hold no word at all: an error rate over 0 words is not defined")
        return 100.0 * self.errors / self.ref_words

    @property
    def ser(self) -> float:
        """Sentence error rate in percent."""
        if self.sentences == 0:
            raise ReferencesError("there is no utterance: a sentence error rate is not defined")
        return 100.0 * self.wrong_sentences / self.sentences


def count_errors(ref: Sequence[str], hyp: Sequence[str]) -> ErrorCounts:
    """Counts the errors of one utterance as Kaldi's compute-wer does."""
    if ref == hyp:
        return ErrorCounts(ref_words=len(ref), sentences=1)
    counts = kaldialign.edit_distance(ref, hyp)
    return ErrorCounts(
        ins=int(counts["ins"]),
        dele=int(counts["del"]),
        sub=int(counts["sub"]),
        ref_words=len(ref),
        sentences=1,
        wrong_sentences=int(counts["total"] > 0),
    )


def edit_distance(ref: Sequence[str], hyp: Sequence[str]) -> int:
    """The number of errors alone; quicker than `count_errors` as what both share at the ends is cut off first."""
    shortest = min(len(ref), len(hyp))
    begin = 0
    while begin < shortest and ref[begin] == hyp[begin]:
        begin += 1
    end = 0
    while end < shortest - begin and ref[-1 - end] == hyp[-1 - end]:
        end += 1
    ref, hyp = ref[begin : len(ref) - end], hyp[begin : len(hyp) - end]
    if not ref or not hyp:
        return len(ref) + len(hyp)
    return int(kaldialign.edit_distance(ref, hyp)["total"])


def align(ref: Sequence[str], hyp: Sequence[str]) -> list[tuple[str, str]]:
    """Pairs (ref word, hyp word) of a best alignment; `GAP` on the left is an insertion, on the right a deletion."""
    return kaldialign.align(ref, hyp, GAP)


def corpus_errors(refs: Mapping[str, Words], hyps: Mapping[str, Words]) -> ErrorCounts:
    """Sums the errors of all utterances.

    Raises:
      ReferencesError: the two do not hold the same utterances, or differ in letter case throughout.
    """
    return sum(utterance_errors(refs, hyps).values(), ErrorCounts())


def utterance_errors(refs: Mapping[str, Words], hyps: Mapping[str, Words]) -> dict[str, ErrorCounts]:
    """The errors of each utterance in the order of `refs`; raises as `corpus_errors`."""
    check_same_utterances(refs, hyps)
    check_same_form(refs.values(), hyps.values())
    return {utt_id: count_errors(ref, hyps[utt_id]) for utt_id, ref in refs.items()}


def split_characters(words: Words) -> Words:
    """The characters of the words, for the character error rate (blanks do not count, as in Kaldi and icefall).

    `<unk>` (in Kaldi `<UNK>`), for one character or word that is not known, is one.  It may stand
    between others, as in what ESPnet joins without blanks.
    """
    return tuple(chain.from_iterable(_CHARACTER.findall(word) if "<" in word else word for word in words))


def units(words: Words, cer: bool) -> Words:
    """What errors are counted of: the words, or their characters."""
    return split_characters(words) if cer else words


def check_same_utterances(refs: Iterable[str], hyps: Iterable[str], hyps_name: str = "hypotheses") -> None:
    """Raises ReferencesError that counts and names the utterances which only one side has."""
    ref_ids, hyp_ids = dict.fromkeys(refs), dict.fromkeys(hyps)
    only_ref = [utt_id for utt_id in ref_ids if utt_id not in hyp_ids]
    only_hyp = [utt_id for utt_id in hyp_ids if utt_id not in ref_ids]
    if not only_ref and not only_hyp:
        return
    problems = []
    if only_ref:
        problems.append(f"{len(only_ref)} of {len(ref_ids)} references have no {hyps_name} ({some_names(only_ref)})")
    if only_hyp:
        problems.append(f"{len(only_hyp)} of {len(hyp_ids)} {hyps_name} have no reference ({some_names(only_hyp)})")
    advice = "both must hold the same utterances; filter one of them (of commands: --utterances common)"
    raise ReferencesError(f"{'; '.join(problems)}: {advice}")


def check_same_form(refs: Iterable[Words], hyps: Iterable[Words]) -> None:
    """Looks for texts that differ in how they are written, so that most words would be wrong.

    Remarks if fewer than half of the words of the references are among those of the hypotheses as they are, but more
    than half, and far more, without case, punctuation and marks; or if one side has blanks where the other has none.

    Raises:
      ReferencesError: one side is upper case throughout and the other lower case throughout, or one side alone is
        pieces of sentencepiece.
    """
    refs, hyps = list(refs), list(hyps)
    _check_pieces(refs, hyps)
    if {letter_case(refs), letter_case(hyps)} == {"upper", "lower"}:
        raise ReferencesError(
            "references and hypotheses differ in letter case (one upper, one lower throughout), so that every word "
            "would be wrong: convert one of them (rescore convert SRC DST --case upper), or, where a command has it, "
            "take --normalise basic (in Python normalise='basic')"
        )
    counts, known = Counter(chain.from_iterable(refs)), dict.fromkeys(chain.from_iterable(hyps))
    bare = {_bare(word) for word in known}
    same = sum(count for word, count in counts.items() if word in known)
    alike = sum(count for word, count in counts.items() if _bare(word) in bare)
    if same < FEW * counts.total() < alike and alike - same > MORE * counts.total():
        word = next(word for word in counts if word not in known and _bare(word) in bare)
        other = next(other for other in known if _bare(other) == _bare(word))
        remark(
            f"references and hypotheses are written in different ways ('{word}', '{other}'): {same} of {counts.total()}"
            f" words of the references are among the hypotheses, {alike} without case and punctuation; --normalise "
            "basic (in Python normalise='basic') compares them in one form"
        )
    if same < FEW * counts.total():
        _say_other_blanks(refs, hyps)


def _say_other_blanks(refs: Sequence[Words], hyps: Sequence[Words]) -> None:
    """A remark where about as many characters are divided into far more words on one side, as Chinese may be."""
    words = [sum(map(len, texts)) for texts in (refs, hyps)]
    characters = [sum(map(len, chain.from_iterable(texts))) for texts in (refs, hyps)]
    if min(characters) > MOST * max(characters) and max(words) > DIVIDED * min(words) and max(words) >= ENOUGH:
        remark(
            f"references have {characters[0]} characters in {words[0]} words, hypotheses {characters[1]} in {words[1]}"
            ": one side has blanks where the other has none; --cer (in Python cer=True) counts characters"
        )


def _check_pieces(refs: Iterable[Words], hyps: Iterable[Words]) -> None:
    """Raises ReferencesError if words of one side alone begin with sentencepiece's mark."""
    sides = {"references": refs, "hypotheses": hyps}
    found = {name: _first_piece(texts) for name, texts in sides.items()}
    pieces = {name: piece for name, piece in found.items() if piece is not None}
    if len(pieces) == 1:
        ((name, piece),) = pieces.items()
        raise ReferencesError(
            f"the {name} alone are pieces of sentencepiece ('{piece}'), so that most words would be wrong: join pieces "
            "to words first (rescore lattice nbest SRC LISTS, then rescore convert LISTS DST --pieces)"
        )


def _first_piece(texts: Iterable[Words]) -> str | None:
    return next((word for words in texts for word in words if is_piece(word)), None)


def _bare(word: str) -> str:
    return "".join(filter(str.isalnum, word)).casefold()


def letter_case(texts: Iterable[Words]) -> str:
    """'upper', 'lower', 'mixed', or 'none' (no letters, or a script without case); tags do not count (see `is_tag`)."""
    seen = set()
    for words in texts:
        joined = " ".join(words)
        if any(mark in joined for mark in "<[{!"):
            joined = " ".join(word for word in words if not is_tag(word))
        if joined != joined.lower():
            seen.add("upper")
        if joined != joined.upper():
            seen.add("lower")
        if len(seen) == 2:
            return "mixed"
    return seen.pop() if seen else "none"


def oracle_errors(lists: Iterable[NbestList], refs: Mapping[str, Words]) -> ErrorCounts:
    """Errors of the hypothesis nearest to the reference in each list (the first of several).

    Raises:
      ReferencesError: lists and references do not cover the same utterances.
    """
    total, seen = ErrorCounts(), []
    for nbest in lists:
        seen.append(nbest.utt_id)
        if nbest.utt_id in refs:
            total += best_of_list(nbest, refs[nbest.utt_id])
    check_same_utterances(refs, seen, "N-best lists")
    return total


def best_of_list(nbest: NbestList, ref: Words) -> ErrorCounts:
    """Errors of the hypothesis of one list that is nearest to `ref`; an empty list counts as an empty hypothesis."""
    words = [hyp.words for hyp in nbest.hyps] or [()]
    best = min(dict.fromkeys(words), key=lambda hyp: edit_distance(ref, hyp))
    return count_errors(ref, best)


def kaldi_lines(counts: ErrorCounts, name: str = "WER", absent: int = 0) -> list[str]:
    """The two result lines of Kaldi's compute-wer; `name` is `CER` for characters.

    Where `absent` references are not scored, the first line ends with `[PARTIAL]`.
    """
    return [
        f"%{name} {counts.wer:.2f} [ {counts.errors} / {counts.ref_words}, "
        f"{counts.ins} ins, {counts.dele} del, {counts.sub} sub ]{' [PARTIAL]' if absent else ''}",
        f"%SER {counts.ser:.2f} [ {counts.wrong_sentences} / {counts.sentences} ]",
    ]


def json_counts(counts: ErrorCounts) -> dict[str, Any]:
    """What `kaldi_lines` say, as data; rates in percent, null where there is nothing to make errors on."""
    return {
        "wer": round(counts.wer, 4) if counts.ref_words else None,
        "errors": counts.errors,
        "words": counts.ref_words,
        "sub": counts.sub,
        "del": counts.dele,
        "ins": counts.ins,
        "ser": round(counts.ser, 4) if counts.sentences else None,
        "utterances": counts.sentences,
    }


def none_in_common(inputs: Mapping[str, Iterable[str]]) -> ReferencesError:
    """The error where no utterance is in all inputs, with some ids of each.

    Args:
      inputs: what each is called -> the ids of its utterances.
    """
    has = "; ".join(f"{name}: {some_names(list(utt_ids)) or 'none'}" for name, utt_ids in inputs.items())
    return ReferencesError(f"{' and '.join(inputs)} have no utterance in common ({has}); check the ids")


def present_errors(refs: Mapping[str, Words], hyps: Mapping[str, Words]) -> tuple[ErrorCounts, int]:
    """Errors over the utterances in both, as Kaldi's `compute-wer --mode=present`, and how many references are not.

    Remarks say which are in one of them only.

    Raises:
      ReferencesError: they have no utterance in common.
    """
    both = [utt_id for utt_id in refs if utt_id in hyps]
    if not both:
        raise none_in_common({"references": refs, "lattices": hyps})
    absent = [utt_id for utt_id in refs if utt_id not in hyps]
    unknown = [utt_id for utt_id in hyps if utt_id not in refs]
    if absent:
        remark(
            f"{len(absent)} references without a lattice are not scored (as Kaldi's compute-wer --mode=present): "
            f"{some_names(absent)}"
        )
    if unknown:
        remark(f"{len(unknown)} lattices without a reference are not scored: {some_names(unknown)}")
    errors = corpus_errors({utt_id: refs[utt_id] for utt_id in both}, {utt_id: hyps[utt_id] for utt_id in both})
    say_nearly_all_wrong(errors.sub + errors.dele, errors.ref_words)
    return errors, len(absent)


def say_nearly_all_wrong(wrong: int, words: int) -> None:
    """A remark where next to no word of the references is in lattices, as with the numbers of another `words.txt`."""
    if words >= ENOUGH and wrong >= NEARLY_ALL * words:
        remark(
            f"{wrong} of {words} words of the references are wrong: are these the references, and is this the "
            "words.txt that the lattices were made with? (--cer counts the characters of text without blanks)"
        )
