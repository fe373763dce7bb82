"""Utterances that references and several inputs have in common."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from rescore.console import remark, some_names
from rescore.evaluation.wer import check_same_utterances, none_in_common
from rescore.types import Words


def shared_references(
    refs: Mapping[str, Words], inputs: Mapping[str, Collection[str]], common: bool = False
) -> dict[str, Words]:
    """The references of the utterances that count, in their order.

    Args:
      inputs: what each input is called in messages -> the ids of its utterances.
      common: count the utterances that all of them have, with remarks on the others; else all must have the same.
    Raises:
      ReferencesError: they do not have the same utterances, or with `common` none that all of them have.
    """
    if not common:
        for name, utt_ids in inputs.items():
            check_same_utterances(refs, utt_ids, name)
        return dict(refs)
    has = [set(utt_ids) for utt_ids in inputs.values()]
    found = {utt_id: words for utt_id, words in refs.items() if all(utt_id in ids for ids in has)}
    left = {"references": list(refs), **{name: list(dict.fromkeys(utt_ids)) for name, utt_ids in inputs.items()}}
    if not found:
        raise none_in_common(left)
    for name, utt_ids in left.items():
        out = [utt_id for utt_id in utt_ids if utt_id not in found]
        if out:
            remark(f"{len(out)} of {len(utt_ids)} {name} left out ({some_names(out)}): not everywhere")
    remark(f"--utterances common: {len(found)} utterances that all have are counted")
    return found
