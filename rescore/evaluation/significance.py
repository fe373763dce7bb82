"""Is the difference between two systems real?  Matched pairs (MAPSSWE) and the bootstrap.

MAPSSWE: L. Gillick and S. J. Cox, "Some statistical issues in the comparison of speech recognition algorithms",
ICASSP 1989, with the segments of NIST's sc_stats.  Bootstrap: M. Bisani and H. Ney, "Bootstrap estimates for
confidence intervals in ASR performance evaluation", ICASSP 2004.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rescore.errors import ReferencesError
from rescore.evaluation.wer import GAP, align
from rescore.types import Words

MIN_CORRECT = 2  # correct words of both systems that end a segment, as in sc_stats
CHUNK = 1 << 22  # resampled counts held at a time
MANY = 1_000  # utterances of a large set
ENDS = 2.5, 97.5  # percent, of a 95 % interval


@dataclass(frozen=True)
class Mapsswe:
    """Result of the matched-pairs test of system A against B; positive `mean` and `z`: A makes more errors."""

    segments: int
    mean: float
    std: float
    z: float
    p_value: float


def error_positions(ref: Words, hyp: Words) -> np.ndarray:
    """Places the errors of `hyp` on the reference.

    Returns:
      int64 `(2 * len(ref) + 1,)`: entry `2 i` is the number of words inserted before reference word `i`, entry
      `2 i + 1` is 1 if reference word `i` is deleted or substituted.  The sum is the number of errors: the alignment
      has unit costs as for the WER (sclite's own, with costs 3, 3 and 4, may have more errors).
    """
    places = np.zeros(2 * len(ref) + 1, dtype=np.int64)
    if ref == hyp:
        return places
    word = 0
    for ref_word, hyp_word in align(ref, hyp):
        if ref_word == GAP:
            places[2 * word] += 1
            continue
        places[2 * word + 1] = int(ref_word != hyp_word)
        word += 1
    return places


def segment_differences(errors_a: np.ndarray, errors_b: np.ndarray, min_correct: int = MIN_CORRECT) -> list[int]:
    """Errors of A minus errors of B in each segment of one utterance (arrays as from `error_positions`).

    A segment begins with an error of either system and ends where both are correct on `min_correct` reference words in
    a row without an insertion between them, or with the utterance.  Stretches without an error are no segment.
    """
    differences: list[int] = []
    inside, correct, difference = False, 0, 0
    for place, (a, b) in enumerate(zip(errors_a.tolist(), errors_b.tolist(), strict=True)):
        if a or b:
            inside, correct = True, 0
            difference += a - b
        elif place % 2 == 1 and inside:
            correct += 1
            if correct == min_correct:
                differences.append(difference)
                inside, difference = False, 0
    if inside:
        differences.append(difference)
    return differences


def mapsswe(errors_a: Sequence[np.ndarray], errors_b: Sequence[np.ndarray], min_correct: int = MIN_CORRECT) -> Mapsswe:
    """Matched-pairs sentence-segment word error test.

    Args:
      errors_a, errors_b: one array an utterance as from `error_positions`, for the same references in the same order.
      min_correct: words that both systems have right between two segments.

    Returns:
      The two-sided p-value from the normal approximation.  The variance has the divisor n - 1 as in sc_stats; where it
      is 0 (all segments differ alike) the second moment about 0 takes its place, which gives z = sqrt(n) and not the
      "no difference" of sc_stats.

    Raises:
      ReferencesError: the arrays do not belong to the same references.
    """
    if [len(a) for a in errors_a] != [len(b) for b in errors_b]:
        raise ReferencesError("matched pairs need the errors of both systems on the same references")
    differences = np.array(
        [d for a, b in zip(errors_a, errors_b, strict=True) for d in segment_differences(a, b, min_correct)],
        dtype=np.float64,
    )
    return _matched_pairs(differences)


def _matched_pairs(differences: np.ndarray) -> Mapsswe:
    count = len(differences)
    if count == 0:
        return Mapsswe(segments=0, mean=0.0, std=0.0, z=0.0, p_value=1.0)
    mean = float(differences.mean())
    std = float(differences.std(ddof=1)) if count > 1 else 0.0
    spread = std if std > 0 else math.sqrt(float((differences**2).mean()))
    z = mean * math.sqrt(count) / spread if spread > 0 else 0.0
    return Mapsswe(segments=count, mean=mean, std=std, z=z, p_value=math.erfc(abs(z) / math.sqrt(2.0)))


def bootstrap_wer(errors: np.ndarray, ref_words: np.ndarray, seed: int = 0, samples: int = 10_000) -> np.ndarray:
    """95 % percentile bootstrap interval of the WER, resampling utterances.

    Args:
      errors: int `(utterances,)`, or `(systems, utterances)` to resample several systems alike.
      ref_words: int `(utterances,)`.
      seed: of the resampling; the same seed gives the same interval.
      samples: number of resampled corpora.

    Returns:
      float64 `(2,)` or `(systems, 2)`: lower and upper end in percent.
    """
    errors = np.asarray(errors, dtype=np.float64)
    rates = resampled_wer(np.atleast_2d(errors), np.asarray(ref_words, dtype=np.float64), seed, samples)
    ends = np.percentile(rates, ENDS, axis=1).T
    return ends if errors.ndim == 2 else ends[0]


def resampled_wer(errors: np.ndarray, ref_words: np.ndarray, seed: int, samples: int) -> np.ndarray:
    """WER in percent of each resampled corpus: `(systems, utterances)` errors to `(systems, samples)` rates.

    Small sets draw utterances, the same for all systems.  In large ones many have as many errors and words as others:
    what is drawn there, for each system, is how often each such kind of utterance occurs, which is as likely.
    """
    if ref_words.sum() <= 0:
        raise ReferencesError("the references hold no word at all: an error rate over 0 words is not defined")
    if len(ref_words) <= MANY:
        return _resampled(errors, ref_words, np.ones(len(ref_words)), seed, samples)
    rates = []
    for system in errors:
        (kinds, words), sizes = np.unique(np.stack([system, ref_words]), axis=1, return_counts=True)
        rates.append(_resampled(kinds[None], words, sizes, seed, samples))
    return np.concatenate(rates)


def _resampled(errors: np.ndarray, words: np.ndarray, sizes: np.ndarray, seed: int, samples: int) -> np.ndarray:
    """As `resampled_wer` for kinds of utterances: errors `(systems, kinds)`, words and numbers of them `(kinds,)`."""
    rng = np.random.default_rng(seed)
    utterances = int(sizes.sum())
    rates = np.empty((len(errors), samples))
    step = max(1, CHUNK // len(words))
    for begin in range(0, samples, step):
        end = min(begin + step, samples)
        counts = rng.multinomial(utterances, sizes / utterances, size=end - begin).astype(np.float64)
        drawn = np.maximum(counts @ words, 1.0)  # empty references alone count as one word
        rates[:, begin:end] = 100.0 * (errors @ counts.T) / drawn
    return rates
