"""Details of word errors as icefall's errs files have them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import IO

from rescore.evaluation.wer import GAP, ErrorCounts, align, check_same_form, check_same_utterances
from rescore.files import atomic_text
from rescore.types import Words


def write_errs(path: str | Path, refs: Mapping[str, Words], hyps: Mapping[str, Words]) -> None:
    """Writes icefall's `errs-*.txt`: totals, every alignment, and tables of the confusions and words.

    Raises:
      ReferencesError: as `corpus_errors`.
    """
    check_same_utterances(refs, hyps)
    check_same_form(refs.values(), hyps.values())
    aligned = {utt_id: align(ref, hyps[utt_id]) for utt_id, ref in refs.items()}
    pairs = Counter(pair for pairs in aligned.values() for pair in pairs)
    with atomic_text(path) as stream:
        _write_totals(stream, pairs)
        print("\nPER-UTT DETAILS: corr or (ref->hyp)  ", file=stream)
        for utt_id, utt_pairs in aligned.items():
            print(f"{utt_id}:\t{marked_alignment(utt_pairs)}", file=stream)
        _write_confusions(stream, pairs)
        _write_word_stats(stream, pairs)


def marked_alignment(pairs: Iterable[tuple[str, str]]) -> str:
    """`THE (CAT->HAT) SAT (*->DOWN)`: adjacent errors are joined into one mark, `*` stands for no word."""
    parts: list[str] = []
    ref_run: list[str] = []
    hyp_run: list[str] = []

    def close_run() -> None:
        if ref_run or hyp_run:
            parts.append(f"({' '.join(ref_run) or '*'}->{' '.join(hyp_run) or '*'})")
            ref_run.clear()
            hyp_run.clear()

    for ref, hyp in pairs:
        if ref == hyp:
            close_run()
            parts.append(ref)
            continue
        if ref != GAP:
            ref_run.append(ref)
        if hyp != GAP:
            hyp_run.append(hyp)
    close_run()
    return " ".join(parts)


def _write_totals(stream: IO[str], pairs: Counter[tuple[str, str]]) -> None:
    correct = sum(count for (ref, hyp), count in pairs.items() if ref == hyp)
    ins = sum(count for (ref, _), count in pairs.items() if ref == GAP)
    dele = sum(count for (_, hyp), count in pairs.items() if hyp == GAP)
    sub = sum(pairs.values()) - correct - ins - dele
    counts = ErrorCounts(ins, dele, sub, ref_words=correct + dele + sub)
    print(f"%WER = {counts.wer:.2f}", file=stream)
    print(
        f"Errors: {ins} insertions, {dele} deletions, {sub} substitutions, "
        f"over {counts.ref_words} reference words ({correct} correct)",
        file=stream,
    )
    print(
        "Search below for sections starting with PER-UTT DETAILS:, SUBSTITUTIONS:, DELETIONS:, INSERTIONS:, "
        "PER-WORD STATS:",
        file=stream,
    )


def _write_confusions(stream: IO[str], pairs: Counter[tuple[str, str]]) -> None:
    """Tables by falling count, then by falling word, as icefall sorts them."""
    wrong = sorted(((count, pair) for pair, count in pairs.items() if pair[0] != pair[1]), reverse=True)
    print("\nSUBSTITUTIONS: count ref -> hyp", file=stream)
    for count, (ref, hyp) in wrong:
        if GAP not in (ref, hyp):
            print(f"{count}   {ref} -> {hyp}", file=stream)
    print("\nDELETIONS: count ref", file=stream)
    for count, (ref, hyp) in wrong:
        if hyp == GAP:
            print(f"{count}   {ref}", file=stream)
    print("\nINSERTIONS: count hyp", file=stream)
    for count, (ref, hyp) in wrong:
        if ref == GAP:
            print(f"{count}   {hyp}", file=stream)


def _write_word_stats(stream: IO[str], pairs: Counter[tuple[str, str]]) -> None:
    correct: Counter[str] = Counter()
    ref_wrong: Counter[str] = Counter()
    hyp_wrong: Counter[str] = Counter()
    for (ref, hyp), count in pairs.items():
        if ref == hyp:
            correct[ref] += count
        else:
            ref_wrong[ref] += count
            hyp_wrong[hyp] += count
    words = (set(correct) | set(ref_wrong) | set(hyp_wrong)) - {GAP}
    print("\nPER-WORD STATS: word  corr tot_errs count_in_ref count_in_hyp", file=stream)
    for errors, word in sorted(((ref_wrong[word] + hyp_wrong[word], word) for word in words), reverse=True):
        in_ref, in_hyp = correct[word] + ref_wrong[word], correct[word] + hyp_wrong[word]
        print(f"{word}   {correct[word]} {errors} {in_ref} {in_hyp}", file=stream)
