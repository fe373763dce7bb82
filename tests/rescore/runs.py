"""Small inputs of `rescore run`: lists where an LM that likes the right words helps."""

from __future__ import annotations

import random
from pathlib import Path

from rescore.formats import write_nbest
from rescore.types import Hypothesis, NbestList

TEXT = [
    "HE SAID SO",
    "THEY WENT HOME",
    "SHE SAW THE OLD MAN",
    "IT WAS A COLD DAY",
    "WE HAVE SEEN IT",
    'THE <script>alert(1)</script> & "MAN" WENT </script>',
]
WRONG = {"HE": "HEY", "SAID": "SAD", "HOME": "HUM", "OLD": "HOLD", "COLD": "GOLD", "SEEN": "SCENE", "MAN": "MEN"}
LIKES = ",".join(sorted({word for line in TEXT for word in line.split()} - {"&"}))
LM = f"toy=tests.toy_lm:Toy?likes={LIKES}"


def make_lists(part: str, utterances: int) -> list[NbestList]:
    """Three hypotheses an utterance; the recogniser's scores are of little help."""
    rng, made = random.Random(part), []
    for number in range(utterances):
        ref = tuple(TEXT[number % len(TEXT)].split())
        wrong = tuple(WRONG.get(word, word) for word in ref)
        texts = dict.fromkeys([ref, wrong, (*wrong, "UH"), ref[1:]])
        hyps = [Hypothesis(words, {"am": -10.0 - rng.gauss(0, 2)}) for words in texts]
        utt_id = f"{part}-{number:03d}" + ("<b>&" if number == 1 else "")
        made.append(NbestList(utt_id, sorted(hyps, key=lambda hyp: -hyp.scores["am"]), ref))
    return made


def write_inputs(folder: Path, dev: int = 12, test: int = 24) -> None:
    """`dev.jsonl.gz`, `test.jsonl.gz` and `text` in the folder."""
    parts = {"dev": make_lists("dev", dev), "test": make_lists("test", test)}
    for part, lists in parts.items():
        write_nbest(f"jsonl:{folder / part}.jsonl.gz", lists)
    lines = [f"{each.utt_id} {' '.join(each.ref or ())}\n" for lists in parts.values() for each in lists]
    (folder / "text").write_text("".join(lines))
