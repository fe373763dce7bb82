"""N-best lists scored with LMs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lm_zoo.text.coverage import MOST_UNKNOWN
from rescore.api.language_models import by_column
from rescore.api.lists import Lists, lists_of
from rescore.api.numbers import number_from
from rescore.console import progress, remark
from rescore.errors import UsageError

if TYPE_CHECKING:
    import torch

    from rescore.api.language_models import LMs


def score(
    nbest: Lists,
    lms: LMs,
    *,
    dtype: str | None = None,
    device: str | torch.device | None = None,
    max_unknown: float = MOST_UNKNOWN,
    text_view: str = "lm",
) -> Lists:
    """The lists with a new column an LM: the natural-log probability of each hypothesis, its end included.

    Args:
      nbest: lists; they stay as they are.
      lms: an LM, several, or by the names of their columns; LMs may be given as `load_lm` takes them.
      dtype: of their products, "float32", "bfloat16" or "int8"; None: as each LM was loaded.
      device: as of `load_lm`; None: where each LM is.
      max_unknown: the largest share of words that an LM may not know.
      text_view: "lm": each LM sees words in the form of its own text; "exact": as they are, and text of another case
        is refused.
    Raises:
      LMError: text in another case than the LM's, too many unknown words, too long a hypothesis.
      RescoreError: no lists, a column that they have already, or a score that is not finite.
    """
    from rescore.workflows.columns import prepared_scorer
    from rescore.workflows.scoring import score_lists
    from rescore.workflows.seen import said_counts, seen_counts, seen_lines

    if text_view not in ("lm", "exact"):
        raise UsageError(f"text_view is '{text_view}', expected 'lm' or 'exact'")
    number_from("max_unknown", max_unknown, 0, 1)
    nbest = lists_of(nbest)
    given, exact = by_column(lms, dtype, device).items(), text_view == "exact"
    scorers = [prepared_scorer(column, lm, dtype, device, max_unknown, exact) for column, lm in given]
    if not nbest.lists:
        raise UsageError("there is no utterance to score; the lists are empty")
    for scorer in scorers:
        if scorer.has_limit:
            for each in nbest:
                scorer.check_lengths(each)
    loaded = {scorer.column: scorer.lm for scorer in scorers}
    before = said_counts(loaded)  # of other lists
    scored = list(progress(score_lists(nbest, scorers), "scoring", len(nbest)))
    seen = seen_counts((scorer.coverage for scorer in scorers), {scorer.column: scorer.view for scorer in scorers})
    for line in seen_lines(seen + (said_counts(loaded) - before), "hypothesis words", "hypotheses", all_known=False):
        remark(line)
    return Lists(scored)
