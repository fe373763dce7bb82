"""Pseudo-sentences made from a fixed seed, for the n-gram tests; plain arithmetic, so that they never change."""

from __future__ import annotations


def pseudo_text(sentences: int, seed: int = 1, vocab: int = 400) -> list[list[str]]:
    """Sentences of 1 to 10 words `w0`, `w1`, ...: a few frequent words, many rare ones, some favourite successors."""
    state, word, result = seed, 0, []

    def draw(limit: int) -> int:
        nonlocal state
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64  # Knuth's MMIX generator
        return (state >> 33) % limit

    for _ in range(sentences):
        words = []
        for _ in range(1 + draw(10)):
            rank = vocab // (1 + draw(vocab)) - 1
            word = (word * 7 + rank) % vocab if draw(10) < 7 else rank
            words.append(f"w{word}")
        result.append(words)
    return result
