"""Sentences of a book for the demo: read, split, normalise, choose."""

from __future__ import annotations

import re
from pathlib import Path

NUMERALS = ["I", "II", "III", "IV", "V", "VI", "VII", "VIII", "IX", "X", "XI", "XII"]


def chapters(book: str) -> dict[int, str]:
    """Prose of each chapter of the Gutenberg edition of Alice; indented lines (verse, headings) are left out."""
    begin, end = book.index("CHAPTER I."), book.index("THE END")
    parts = re.split(r"CHAPTER ([IVX]+)\. .*\n", book[begin:end])
    numbered = zip(parts[1::2], parts[2::2], strict=True)
    return {NUMERALS.index(numeral) + 1: _prose(text) for numeral, text in numbered}


def _prose(text: str) -> str:
    paragraphs = re.split(r"\n\s*\n", text)
    return "\n\n".join(p for p in paragraphs if p.strip() and not re.search(r"^[ *\[]", p, re.MULTILINE))


def sentences(prose: str) -> list[str]:
    """Sentences in their order; none goes over a paragraph's end."""
    ends = re.compile(r"(?<=[.!?])['\")]*\s+(?=['\"(]*[A-Z])")
    return [s.strip() for p in prose.split("\n\n") for s in ends.split(re.sub(r"\s+", " ", p)) if s.strip()]


def spoken(sentence: str) -> str:
    """What the synthesiser reads: no quotation marks or brackets, dashes as commas, emphasis not spelled out."""
    text = re.sub(r"--+", ", ", sentence)
    text = re.sub(r"[\"()_*\[\]]|(?<![A-Za-z])'|'(?![A-Za-z])", " ", text)
    text = re.sub(r"\b[A-Z]{2,}\b", lambda match: match.group().lower(), text)
    text = re.sub(r"\s+([,.;:!?])", r"\1", re.sub(r"-", " ", text))
    return re.sub(r"([.,;:!?])[,;: ]+", r"\1 ", re.sub(r"\s+", " ", text)).strip(" ,;:")


def reference(sentence: str) -> str:
    """Upper-case words of A-Z and apostrophe, as the LMs' training text has them."""
    return " ".join(re.findall(r"[A-Z]+(?:'[A-Z]+)*", spoken(sentence).upper()))


def usable(sentence: str, shortest: int = 8, longest: int = 25) -> bool:
    """Whether the sentence has no digit, no letter outside A-Z, and a fit number of words."""
    plain = not re.search(r"[0-9]|[^\x00-\x7f]", sentence)
    return plain and shortest <= len(reference(sentence).split()) <= longest


def choose(book: str, wanted: range, count: int, prefix: str) -> dict[str, str]:
    """`count` sentences spread evenly over the chapters `wanted`, by utterance id."""
    found = {
        f"{prefix}-{number:02d}-{index:04d}": sentence
        for number, prose in chapters(book).items()
        if number in wanted
        for index, sentence in enumerate(sentences(prose))
        if usable(sentence)
    }
    ids = list(found)
    if count > len(ids):
        raise SystemExit(f"The book has only {len(ids)} usable sentences in chapters {wanted}, asked for {count}.")
    return {utt: found[utt] for utt in (ids[i * len(ids) // count] for i in range(count))}


def read_book(path: Path) -> str:
    return path.read_text(encoding="utf-8-sig").replace("\r\n", "\n")
