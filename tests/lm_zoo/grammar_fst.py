"""ARPA text as Kaldi's lang folder with a `G.fst`, as arpa2fst makes it: a state a history, back-off arcs with `#0`."""

from __future__ import annotations

import math
import struct
from pathlib import Path

Arcs = list[tuple[int, int, float, int]]  # input label, output label, cost, next state


def write_fst(path: Path, states: list[tuple[float, Arcs]], start: int = 0, fst_type: bytes = b"vector") -> None:
    """A binary OpenFst file; `states`: final cost and arcs of each."""
    data = struct.pack("<i", 2125659606)
    for name in (fst_type, b"standard"):
        data += struct.pack("<i", len(name)) + name
    data += struct.pack("<iiQqqq", 2, 0, 3, start, len(states), sum(len(arcs) for _, arcs in states))
    for final, arcs in states:
        data += struct.pack("<fq", final, len(arcs)) + b"".join(struct.pack("<iifi", *arc) for arc in arcs)
    path.write_bytes(data)


def write_lang(folder: Path, arpa: str, more_words: tuple[str, ...] = ()) -> Path:
    """`folder/words.txt`, unless it is there, and `folder/G.fst` of an LM; returns the latter."""
    ngrams = read_arpa(arpa)
    words = sorted({words[0] for words in ngrams if len(words) == 1} - {"<s>", "</s>"})
    words = ["<eps>", *words, *more_words, "#0", "<s>", "</s>"]
    table = folder / "words.txt"
    if table.exists():
        words = [line.split()[0] for line in table.read_text(encoding="utf-8").splitlines()]
    ids = {word: number for number, word in enumerate(words)}
    longest = max(map(len, ngrams))
    histories: list[tuple[str, ...]] = [("<s>",), ()]
    histories += [words for words in ngrams if len(words) < longest and words not in histories and words[-1] != "</s>"]
    number = {history: place for place, history in enumerate(histories)}
    states: list[tuple[float, Arcs]] = [(math.inf, []) for _ in histories]
    for history in histories:
        place = number[history]
        if history:
            backoff = ngrams[history][1]
            states[place][1].append((ids["#0"], 0, backoff, number[known(history[1:], number)]))
    for words_, (cost, _) in ngrams.items():
        history, word = words_[:-1], words_[-1]
        if word == "</s>":
            states[number[history]] = (cost, states[number[history]][1])
        elif word in ids and word != "<s>":
            states[number[history]][1].append((ids[word], ids[word], cost, number[known(words_, number)]))
    folder.mkdir(parents=True, exist_ok=True)
    table.write_text("".join(f"{word} {place}\n" for word, place in ids.items()), encoding="utf-8")
    write_fst(folder / "G.fst", states)
    return folder / "G.fst"


def known(history: tuple[str, ...], number: dict[tuple[str, ...], int]) -> tuple[str, ...]:
    """The longest end of a history that has a state."""
    while history not in number:
        history = history[1:]
    return history


def read_arpa(text: str) -> dict[tuple[str, ...], tuple[float, float]]:
    """n-gram -> cost and back-off cost, natural logs negated."""
    found = {}
    for line in text.splitlines():
        fields = line.split("\t")
        if len(fields) >= 2:
            backoff = float(fields[2]) if len(fields) > 2 else 0.0
            found[tuple(fields[1].split())] = (-float(fields[0]) * math.log(10), -backoff * math.log(10))
    return found
