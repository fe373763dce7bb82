"""`rescore ppl` shared out: each process scores its parts of the text; the figures are those of one process."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from lm_zoo.identity import content
from lm_zoo.inference.perplexity import SENTENCES_AT_A_TIME, WordScores, score_text
from lm_zoo.reading import is_read_once
from lm_zoo.text.sentences import parse_text_spec
from rescore.console import progress, remark
from rescore.errors import UsageError
from rescore.evaluation.tail import TailMarker, load_tail
from rescore.files import file_identity
from rescore.formats.part_files import TEXTS, ScoredText
from rescore.sharing.parts import MAX_UNKNOWN, finished_splits, notes, part_files, whole_plan
from rescore.sharing.shares import Sharing
from rescore.skipping import OnError
from rescore.weights import NGRAM, load_mixture
from rescore.workflows.columns import LMColumn, column_of, identities, open_scorers
from rescore.workflows.perplexity import Row, rows_of, seen_sentences, viewed
from rescore.workflows.scored_by import in_plan
from rescore.workflows.seen import check_unknown, said_counts, said_lines
from rescore.workflows.streams import Job, run_shared


@dataclass(frozen=True)
class TextRequest:
    """What `rescore ppl` is asked for, of what can be shared out; names as of its options."""

    lms: tuple[str, ...]
    ngram: str | None
    text: str
    out: Path
    mix: Path | None = None
    tail: Path | None = None
    device: str = "cpu"
    max_unknown: float = 1.0
    exact: bool = False

    @property
    def columns(self) -> list[str]:
        return [column for column, _ in map(column_of, self.lms)] + ([NGRAM] if self.ngram else [])

    def open(self) -> TextDoer:
        """With its LMs loaded."""
        return TextDoer(self, open_scorers(self.lms, self.ngram, "float32", self.device, exact=self.exact))


@dataclass(frozen=True)
class TextJob(Job):
    """The job of a request, whose source is text."""

    @property
    def target_path(self) -> Path:
        return Path(self.target)

    @property
    def identity(self) -> str:
        kind, path = parse_text_spec(self.source)
        if is_read_once(path) or path.is_dir():
            raise UsageError(f"{self.source} is no file; every process reads the text for itself")
        return content([path], [str(kind)])


@dataclass(frozen=True)
class Sentence:
    """A sentence of the text; `utt_id` says which one."""

    number: int
    words: list[str]

    @property
    def utt_id(self) -> str:
        return f"(sentence {self.number + 1})"


@dataclass
class TextDoer:
    """Scores sentences; see `rescore.workflows.streams.Doer`."""

    request: TextRequest
    scorers: list[LMColumn]
    size: int = SENTENCES_AT_A_TIME
    said: list[str] = field(default_factory=list)

    @property
    def source(self) -> str:
        return self.request.text

    def groups(self, on_error: OnError) -> Iterator[Iterable[Sentence]]:
        sentences = (
            Sentence(*each) for each in enumerate(seen_sentences(self.scorers, self.request.text, self.said.append))
        )
        while group := list(islice(sentences, self.size)):
            yield group

    def __call__(self, items: list[Sentence]) -> list[ScoredText]:
        words = [item.words for item in items]
        scores = score_text(viewed(self.scorers), words, self.request.text, 1.0, items[0].number)
        return [ScoredText([" ".join(sentence) for sentence in words], scores)]

    def counted(self) -> Counter[str]:
        return said_counts({scorer.column: scorer.lm for scorer in self.scorers})

    def check(self) -> None:
        """Unknown words are looked at when all are there."""


def measure_shared(request: TextRequest, sharing: Sharing, finish: Callable[[Path], None]) -> None:
    """Does a share, or shares all out and calls `finish` with the folder of the parts; see `rescore ppl`."""
    settings: dict[str, Any] = {
        **in_plan(identities(request.lms, request.ngram)),
        "columns": request.columns,
        "--mix": [*load_mixture(request.mix, request.columns).items()] if request.mix else None,
        "--tail": request.tail and [str(request.tail), file_identity(request.tail)],
        "--device": request.device,
        MAX_UNKNOWN: request.max_unknown,
        "--text-view": "exact" if request.exact else "lm",
    }
    job = TextJob("ppl", request.text, str(request.out), "texts", settings, request.open)
    run_shared(job, sharing, finish=finish)


def merged_rows(folder: Path) -> list[Row]:
    """The figures of the parts in a folder.

    Raises:
      FormatError: a share or a part is missing.
      VocabError: too many words are unknown to an LM.
    """
    shares, plan = finished_splits(folder), whole_plan(folder, "--tail", "--mix", MAX_UNKNOWN, "columns")
    marker = TailMarker(load_tail(plan["--tail"][0])) if plan["--tail"] else None
    parts: list[WordScores] = []

    def sentences() -> Iterator[list[str]]:
        for path in progress(part_files(folder, shares[0]["parts"], TEXTS.suffix), "merging"):
            for found in TEXTS.read(path):
                parts.append(found.scores)
                yield from (sentence.split(" ") for sentence in found.sentences)

    deque(marker.watch(sentences()) if marker else sentences(), maxlen=0)
    scores = WordScores.joined(parts)
    for index, column in enumerate(plan["columns"]):
        check_unknown(column, scores.perplexity(index), plan[MAX_UNKNOWN])
    for line in shares[0].get("said", ()):  # of all the text, which every share reads
        remark(line)
    for line in said_lines(notes(folder, shares[0]["parts"]).counts):
        remark(line)
    mixed = [dict(plan["--mix"])] if plan["--mix"] else []
    return rows_of(plan["columns"], scores, marker, mixed)
