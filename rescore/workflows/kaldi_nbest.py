"""N-best rescoring in the steps and files of Kaldi's `steps/pytorchnn/lmrescore_nbest_pytorchnn.sh`.

A job's lattices become linear ones, one a hypothesis with the key `utt-k` (`nbest1.JOB.gz`), and a folder
`archives.JOB` with a line a hypothesis in each of its files; costs, that is, lower is better:

    words words_text     word ids; words
    ali                  transition ids
    acwt                 acoustic cost, unscaled
    lmwt.withlm          graph cost with the LM that the lattices were made with
    lmwt.nolm            graph cost without it: transitions and pronunciations
    lmwt.lmonly          withlm - nolm
    lmwt.nn lmwt.nn.sum  cost of each word and of the sentence end under the new LM; their sum
    lmwt.interp.W        nolm + W * nn + (1 - W) * lmonly

From these files the lattices of the new decoding folder are made: the hypotheses side by side, graph costs interp.W.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from itertools import accumulate, chain, groupby, pairwise
from pathlib import Path

import numpy as np

from lm_zoo.base import LanguageModel, WordLM
from lm_zoo.reading import kaldi_fields
from lm_zoo.text.coverage import MOST_UNKNOWN, Coverage, said
from lm_zoo.text.view import View
from rescore.console import remark
from rescore.errors import FormatError, ScoreError, UsageError
from rescore.files import atomic_text, read_lines
from rescore.formats.common import KeyedFile, Place, split_key, split_line, text_score
from rescore.formats.kaldi_archive import read_all, write_records
from rescore.formats.kaldi_fst import RawLattice
from rescore.formats.kaldi_lattice import from_lattice, to_lattice
from rescore.formats.symbols import SymbolTable
from rescore.lattices.build import EPSILON, build_lattice
from rescore.lattices.log_zero import LOG_ZERO
from rescore.lattices.nbest import exact_paths
from rescore.lattices.paths import best_path_words
from rescore.text import TextNormalizer
from rescore.types import Alignments, Lattice, Words

NBEST = "nbest1"
FILES = ("words", "words_text", "ali", "acwt", "lmwt.withlm", "lmwt.nolm", "lmwt.lmonly")


def linear_lattices(lattice: Lattice, lmwt: float, n: int, keep_ali: bool = True) -> list[Lattice]:
    """The `n` best different word sequences at Kaldi's LM weight, each a lattice of one path, `utt-k`."""
    lattice, paths = exact_paths(lattice, {"graph": 1.0, "am": 1.0 / lmwt}, n)
    return [_linear(lattice, f"{lattice.utt_id}-{rank}", arcs, keep_ali) for rank, arcs in enumerate(paths, start=1)]


def _linear(lattice: Lattice, key: str, arcs: list[int], keep_ali: bool) -> Lattice:
    rows = np.array(arcs, dtype=np.int64)
    strings = lattice.alignments
    states = np.arange(len(rows))
    return build_lattice(
        key,
        len(rows) + 1,
        states,
        states + 1,
        lattice.labels[rows],
        {name: column[rows] for name, column in lattice.scores.items()},
        lattice.symbols,
        0,
        len(rows),
        alignments=strings.take(rows) if strings is not None and keep_ali else None,
    )


def write_archives(
    lattices: Iterable[Lattice],
    out: Path,
    job: int,
    old_lm: WordLM,
    table: SymbolTable,
    lmwt: float,
    n: int,
    keep_ali: bool = True,
    max_unknown: float = MOST_UNKNOWN,
) -> int:
    """Writes `out/nbest1.JOB.gz` and `out/archives.JOB`; returns the number of hypotheses.

    Other costs that an earlier run left there, `lmwt.nn` and the like, go.

    Args:
      old_lm: the n-gram LM that the lattices were made with.
      max_unknown: the largest share of the words on best paths that it may not know.
    Raises:
      ScoreError: a word that the old LM does not have, so that it cannot be the one that is in the graph cost.
      VocabError: words that do not suit the old LM (see `lm_zoo.text.coverage`).
    """
    coverage = Coverage(old_lm, "the old LM", max_unknown)
    with ExitStack() as stack:
        files = {name: stack.enter_context(atomic_text(out / f"archives.{job}" / name)) for name in FILES}

        def records() -> Iterator[RawLattice]:
            for lattice in lattices:
                words = best_path_words(lattice, {"graph": lmwt, "am": 1.0})
                coverage.add(words, f"the old LM, lattice '{lattice.utt_id}'")
                for path in linear_lattices(lattice, lmwt, n, keep_ali):
                    for name, text in _lines(path, old_lm, table).items():
                        files[name].write(f"{path.utt_id} {text}\n")
                    yield from_lattice(path, table)
            coverage.check()

        count = write_records(out / f"{NBEST}.{job}.gz", records(), {})
        for path in (out / f"archives.{job}").glob("lmwt.*"):  # costs of the hypotheses that stood there before
            if path.name not in FILES:
                path.unlink()
    remark(f"{coverage.name}: {said(coverage, 'words on best paths')}")
    return count


def _lines(path: Lattice, old_lm: WordLM, table: SymbolTable) -> dict[str, str]:
    """What the files of the archive say of one hypothesis."""
    labels = path.labels[path.labels != EPSILON]
    words = [path.symbols[label] for label in labels]
    scores = old_lm.score_words([words], max_unknown=None)[0]
    for word, score in zip([*words, "the sentence end"], scores, strict=True):
        if not LOG_ZERO < score < math.inf:
            raise ScoreError(
                f"utterance '{path.utt_id}': the old LM gives '{word}' the score {score}; is it the LM that the "
                "lattices were made with?"
            )
    with_lm, lm_only = 0.0 - float(path.scores["graph"].sum()), 0.0 - sum(scores)
    ids = [] if path.alignments is None else path.alignments.ids.tolist()
    return {
        "words": " ".join(map(str, table.to_ids(labels, path.symbols).tolist())),
        "words_text": " ".join(words),
        "ali": " ".join(map(str, ids)),
        "acwt": repr(0.0 - float(path.scores["am"].sum())),
        "lmwt.withlm": repr(with_lm),
        "lmwt.nolm": repr(with_lm - lm_only),
        "lmwt.lmonly": repr(lm_only),
    }


def write_lm_costs(
    folder: Path,
    lm: LanguageModel,
    normalizer: TextNormalizer | None = None,
    max_unknown: float = MOST_UNKNOWN,
    view: View | None = None,
) -> None:
    """Writes `lmwt.nn` and `lmwt.nn.sum` of an `archives.JOB` folder.

    Args:
      normalizer: of the words, for the LM alone.
      max_unknown: the largest share of them that the LM may not know.
      view: what the LM sees of each normalised word; None: the word.
    Raises:
      FormatError: no `words_text`.
      VocabError: words that do not suit the LM (see `lm_zoo.text.coverage`).
      ScoreError: a score that is not finite.
    """
    normal, view = normalizer or TextNormalizer(), view or View(None)
    keys, texts = [], list[Words]()
    for number, line in read_lines(folder / "words_text"):
        key, text = split_line(folder / "words_text", number, line)
        keys.append(key)
        texts.append(tuple(kaldi_fields(text)))
    pieces = [[view.words(normal.words((word,))) for word in words] for words in texts]
    sentences = [tuple(word for part in parts for word in part) for parts in pieces]

    def place(word: str) -> str:
        key = next(key for key, sentence in zip(keys, sentences, strict=True) if word in sentence)
        return f"{folder / 'words_text'}, {key}"

    coverage = Coverage(lm, str(folder / "words_text"), max_unknown)
    coverage.add(Counter(chain.from_iterable(sentences)), place)
    coverage.check()
    remark(f"{folder}: {said(coverage, 'hypothesis words')}, scored as <unk>")
    for words in texts:
        view.count(tuple(chain.from_iterable(normal.words((word,)) for word in words)))
    scored = lm.score_hypotheses(sentences, max_unknown=None)
    for shown in filter(None, (view.said(), lm.said())):
        remark(f"{folder}: {shown}")
    with atomic_text(folder / "lmwt.nn") as each, atomic_text(folder / "lmwt.nn.sum") as sums:
        for key, parts, scores in zip(keys, pieces, scored, strict=True):
            costs = _costs_of_words([len(part) for part in parts], scores)
            if not all(map(math.isfinite, costs)):
                raise ScoreError(f"{folder / 'words_text'}, {key}: the LM gave a score that is not finite")
            each.write(" ".join((key, *(f"{cost:.6f}" for cost in costs))) + "\n")
            sums.write(f"{key} {sum(costs)!r}\n")


def _costs_of_words(counts: list[int], scores: list[float]) -> list[float]:
    """Costs of words of which each has become so many, and of the sentence end."""
    ends = [0, *accumulate(counts)]
    costs = [0.0 - sum(scores[low:high]) for low, high in pairwise(ends)]
    return [*costs, 0.0 - scores[-1]]


def write_interpolated(folder: Path, weight: str) -> None:
    """Writes `lmwt.interp.W` of an `archives.JOB` folder; `weight` is W as it shall stand in the file's name.

    Raises:
      UsageError: W is no finite number.
      FormatError: a hypothesis that has no line in one of the files, or a line without a hypothesis.
    """
    try:
        new = float(weight)
    except ValueError:
        new = math.nan
    if not math.isfinite(new):
        raise UsageError(f"the weight is '{weight}', expected a number such as 0.8")
    parts = [KeyedFile(folder / name) for name in ("lmwt.lmonly", "lmwt.nn.sum")]
    with atomic_text(folder / f"lmwt.interp.{weight}") as stream:
        for number, line in read_lines(folder / "lmwt.nolm"):
            key, text = split_line(folder / "lmwt.nolm", number, line)
            no_lm = text_score(text, "lmwt.nolm", 1, Place(folder / "lmwt.nolm", number))
            lm_only, neural = (_take(file, key) for file in parts)
            stream.write(f"{key} {no_lm + new * neural + (1.0 - new) * lm_only!r}\n")
        for file in parts:
            file.finish(folder / "lmwt.nolm")


def _take(file: KeyedFile, key: str) -> float:
    found = file.take(key)
    if found is None:
        raise FormatError(file.path, f"no line with the key '{key}'; make the file again")
    return text_score(found[1], file.path.name, 1, Place(file.path, found[0]))


def write_rescored(out: Path, job: int, name: str) -> int:
    """Writes `out/lat.JOB.gz` from `out/nbest1.JOB.gz` with graph costs of the file `name`; returns their number."""
    path, costs = out / f"{NBEST}.{job}.gz", KeyedFile(out / f"archives.{job}" / name)
    table = SymbolTable()  # words stay their ids

    def utterance(raw: RawLattice) -> str:
        return split_key(raw.utt_id, Place(path))[0]

    def records() -> Iterator[RawLattice]:
        for utt_id, group in groupby((raw for _, raw in read_all(path)), utterance):
            hyps = [to_lattice(raw, table) for raw in group]
            yield from_lattice(side_by_side(utt_id, hyps, [0.0 - _take(costs, hyp.utt_id) for hyp in hyps]), table)
        costs.finish(path)

    return write_records(out / f"lat.{job}.gz", records(), {})


def side_by_side(utt_id: str, hyps: list[Lattice], graph_scores: list[float]) -> Lattice:
    """Lattices of one path with their first states in one and their last ones in one.

    Args:
      graph_scores: what `graph` shall sum to along each; the last arc has what it changes by.
    """
    final = 1 + sum(hyp.num_states - 2 for hyp in hyps)
    symbols = {"": EPSILON}
    src, dst, labels, columns = [], [], [], []
    offset = 0
    for hyp, graph in zip(hyps, graph_scores, strict=True):
        number = np.arange(hyp.num_states) + offset
        number[0], number[-1] = 0, final
        offset += hyp.num_states - 2
        src.append(number[hyp.src])
        dst.append(number[hyp.dst])
        labels.append(np.array([symbols.setdefault(hyp.symbols[label], len(symbols)) for label in hyp.labels]))
        column = np.stack([hyp.scores["graph"], hyp.scores["am"]])
        column[0, -1] += graph - column[0].sum()
        columns.append(column)
    scores = np.concatenate(columns, axis=1)
    strings = [hyp.alignments for hyp in hyps if hyp.alignments is not None]
    joined = Alignments.of_lengths(
        np.concatenate([part.ids for part in strings]), np.concatenate([part.lengths for part in strings])
    )
    return build_lattice(
        utt_id,
        final + 1,
        np.concatenate(src),
        np.concatenate(dst),
        np.concatenate(labels),
        {"graph": scores[0], "am": scores[1]},
        list(symbols),
        0,
        final,
        alignments=joined,
    )
