"""N-best lists from what `generate` of Hugging Face's transformers gives back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lm_zoo.reading import kaldi_fields
from rescore.api.lists import Lists
from rescore.console import remark
from rescore.errors import UsageError
from rescore.types import Hypothesis, NbestList

CALL = "generate(..., num_beams=N, num_return_sequences=N, return_dict_in_generate=True, output_scores=True)"
COPIES = (
    "Whisper's own generate gives copies of its best one: call GenerationMixin.generate(model, features, ...) instead"
)
UNFILLED = -1e8  # below it: a place among the sequences that no hypothesis has come to


def from_generate(
    outputs: Any, processor: Any, utt_ids: str | Sequence[str] | None = None, length_penalty: float = 1.0
) -> Lists:
    """The N-best lists of a beam search of transformers (Whisper and other encoder-decoders).

    The column `am` is the natural-log probability of each hypothesis: transformers' `sequences_scores`, which are
    divided by the number of tokens to the power of `length_penalty`, times that.

    Args:
      outputs: what `generate(..., return_dict_in_generate=True, output_scores=True)` gave; the `num_return_sequences`
        of each utterance one after the other.
      processor: or tokenizer; its `batch_decode` makes words of tokens.
      utt_ids: of the utterances, in their order; None: all sequences are of one utterance.
      length_penalty: that of the search; 1 is transformers' default.
    Raises:
      RescoreError: outputs without `sequences_scores` or `beam_indices`, not as many for each utterance, or copies of
        one hypothesis.
    """
    parts: dict[str, Any] = {
        name: getattr(outputs, name, None) for name in ("sequences", "sequences_scores", "beam_indices")
    }
    if isinstance(outputs, dict):
        parts |= {name: outputs.get(name) for name in parts}
    lacking = [name for name, value in parts.items() if value is None]
    if lacking:
        raise UsageError(f"the outputs lack {', '.join(lacking)}; expected those of {CALL}")
    texts = processor.batch_decode(parts["sequences"], skip_special_tokens=True)
    lengths = (parts["beam_indices"] >= 0).sum(-1).tolist()  # of what was generated, the end included
    scores = parts["sequences_scores"].double().tolist()
    hyps = [
        Hypothesis(tuple(kaldi_fields(text)), {"am": score * length**length_penalty}) if score > UNFILLED else None
        for text, score, length in zip(texts, scores, lengths, strict=True)
    ]
    ids = _ids(utt_ids, len(hyps))
    _refuse_copies(parts["sequences"].tolist(), hyps, ids)
    return Lists(_lists(hyps, ids))


def _refuse_copies(sequences: list[list[int]], hyps: list[Hypothesis | None], utt_ids: list[str]) -> None:
    """A beam search gives no sequence of tokens twice."""
    each, seen = len(hyps) // len(utt_ids), set[tuple[str, tuple[int, ...]]]()
    for row, (tokens, hyp) in enumerate(zip(sequences, hyps, strict=True)):
        key = utt_ids[row // each], tuple(tokens)
        if hyp is not None and key in seen:
            raise UsageError(f"utterance {key[0]}: the same sequence of tokens ({' '.join(hyp.words)}) twice; {COPIES}")
        seen.add(key)


def _ids(utt_ids: str | Sequence[str] | None, sequences: int) -> list[str]:
    if utt_ids is None:
        remark(f"{sequences} sequences, taken as hypotheses of one utterance; of several: from_generate(..., utt_ids)")
    found = ["utterance"] if utt_ids is None else [utt_ids] if isinstance(utt_ids, str) else list(utt_ids)
    if not found or sequences % len(found) or len(set(found)) < len(found):
        raise UsageError(
            f"{sequences} sequences for {len(found)} utt_ids, {len(set(found))} of them different; expected as many "
            "sequences for each"
        )
    return found


def _lists(hyps: list[Hypothesis | None], utt_ids: list[str]) -> list[NbestList]:
    """Lists of as many hypotheses each; None is a place without one."""
    each = len(hyps) // len(utt_ids)
    groups = [hyps[start : start + each] for start in range(0, len(hyps), each)]
    lists = [
        NbestList(utt_id, [hyp for hyp in group if hyp is not None])
        for utt_id, group in zip(utt_ids, groups, strict=True)
    ]
    if missing := hyps.count(None):
        remark(f"{missing} of {len(hyps)} sequences without a hypothesis left out: the search had not so many")
    for nbest in lists:
        if not nbest.hyps:
            raise UsageError(f"utterance {nbest.utt_id}: none of its {each} sequences is a finished hypothesis")
    return lists
