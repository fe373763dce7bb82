"""Makes lmplz.json, the golden values of test_kneser_ney.py: `python -m tests.lm_zoo.golden.recreate PATH/TO/lmplz`.

lmplz is built from the source distribution of kenlm 0.3.0 on PyPI, with cmake and Boost.  Of each model the counts,
all n-grams of `<unk>`, `<s>` and `</s>` and a sample of the others are kept.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.lm_zoo.pseudo import pseudo_text

GOLDEN = Path(__file__).with_name("lmplz.json")
CASES = [  # sentences, seed, lmplz options
    *((1000, 1, f"-o {order}") for order in range(1, 6)),
    (1000, 2, "-o 3 --prune 0 0 1"),
    (1000, 3, "-o 4 --prune 0 0 1 1"),
    (1000, 4, "-o 5 --prune 0 1 1 2 3"),
    (1000, 5, "-o 3 --prune 1 1 2"),
    (1000, 6, "-o 1 --prune 2"),
    (1000, 7, "-o 3 --limit_vocab_file VOCAB"),
    (1000, 8, "-o 4 --prune 0 0 1 --limit_vocab_file VOCAB"),
    (1000, 30, "-o 3"),  # the last n-gram in lmplz's order has another adjusted count than count
    (8, 9, "-o 4 --discount_fallback"),
    (30, 10, "-o 3 --prune 0 1 --discount_fallback"),
]
VOCAB = [f"w{index}" for index in range(60)]


def read_arpa(text: str) -> dict[str, list[float]]:
    """N-gram -> log10 probability and, below the highest order, log10 back-off."""
    rows = (line.split("\t") for line in text.splitlines() if "\t" in line)
    return {row[1]: [float(row[0]), *map(float, row[2:])] for row in rows}


def run(lmplz: str, sentences: int, seed: int, options: str) -> dict[str, object]:
    corpus = "".join(" ".join(words) + "\n" for words in pseudo_text(sentences, seed))
    with tempfile.NamedTemporaryFile("w", suffix=".vocab") as vocab:
        vocab.write("\n".join(VOCAB))
        vocab.flush()
        command = [lmplz, "-S", "1G", *options.replace("VOCAB", vocab.name).split()]
        arpa = subprocess.run(command, input=corpus, capture_output=True, text=True, check=True).stdout
    ngrams = read_arpa(arpa)
    counts = [sum(len(ngram.split()) == n for ngram in ngrams) for n in range(1, 6)]
    special = [ngram for ngram in ngrams if ngram in ("<unk>", "<s>", "</s>")]
    others = [ngram for ngram in ngrams if ngram not in special]
    kept = special + others[:: max(1, len(others) // 60)]
    return {
        "sentences": sentences,
        "seed": seed,
        "options": options,
        "counts": [count for count in counts if count],
        "ngrams": {ngram: ngrams[ngram] for ngram in kept},
    }


if __name__ == "__main__":
    rows = ",\n".join(json.dumps(run(sys.argv[1], *case)) for case in CASES)
    GOLDEN.write_text(f"[\n{rows}\n]\n", encoding="utf-8")
