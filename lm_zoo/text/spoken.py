"""Written English as it is read aloud, spelled as in LibriSpeech's transcripts: `Mr. Hale paid $5` is MISTER HALE PAID
FIVE DOLLARS.

Upper case, apostrophes inside words alone, no other punctuation, accents dropped; numbers, ordinals, years, money,
times and fractions in words; titles in full; hyphens and dots part words (`U.S.` is U S).  What has been spelled stays
as it is.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from itertools import pairwise

from lm_zoo.reading import SPECIAL

TITLES = {
    "MR": "MISTER",
    "MRS": "MISSUS",
    "DR": "DOCTOR",
    "ST": "SAINT",
    "PROF": "PROFESSOR",
    "CAPT": "CAPTAIN",
    "LT": "LIEUTENANT",
    "SGT": "SERGEANT",
    "JR": "JUNIOR",
    "SR": "SENIOR",
    "ESQ": "ESQUIRE",
    "VS": "VERSUS",
    "ETC": "ET CETERA",
}
WITH_DOT = {  # which are words as well, if no dot follows
    "GEN": "GENERAL",
    "COL": "COLONEL",
    "MAJ": "MAJOR",
    "REV": "REVEREND",
    "HON": "HONORABLE",
    "GOV": "GOVERNOR",
    "SEN": "SENATOR",
    "MT": "MOUNT",
}
SYMBOLS = {"%": "PER CENT", "&": "AND", "@": "AT", "°": "DEGREES", "¢": "CENTS", "+": "PLUS", "#": "NUMBER"}
MONEY = {"$": ("DOLLAR", "CENT"), "€": ("EURO", "CENT"), "£": ("POUND", "PENNY")}
SHORT = {"K": "THOUSAND", "M": "MILLION", "B": "BILLION", "T": "TRILLION"}  # behind money, as in $5m and £2bn
MAGNITUDES = ("HUNDRED", "THOUSAND", "MILLION", "BILLION", "TRILLION")
LONGEST = 15  # digits of a number that is read as one; longer ones are read digit by digit
DIGITS = ("ZERO", "ONE", "TWO", "THREE", "FOUR", "FIVE", "SIX", "SEVEN", "EIGHT", "NINE")

_NUMBER = r"(?:[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])|[0-9]+)(?:\.[0-9]+)?|\.[0-9]+"
_LETTERS = r"[^\W0-9_]+"
_TOKEN = re.compile(
    rf"(?P<money>(?:(?<![\w-])-)?[$€£](?:{_NUMBER})(?:(?:K|MN?|BN?|TN?|-(?:{'|'.join(MAGNITUDES)}))(?![^\W_]))?)"
    r"|(?P<time>(?<![0-9:])[0-9]{1,2}:[0-5][0-9](?![0-9:])|(?<![0-9.])[0-9]{1,2}\.[0-5][0-9](?=[AP]M(?![^\W_])))"
    r"|(?P<fraction>(?<![0-9/])[0-9]{1,2}/[0-9]{1,2}(?![0-9/]))"
    rf"|(?P<ordinal>(?:[0-9]{{1,3}}(?:,[0-9]{{3}})+|[0-9]+)(?:ST|ND|RD|TH)(?![^\W_]))"
    r"|(?P<plural>[0-9]+'?S(?![^\W_]))"
    r"|(?P<single>(?<![0-9.,])1[¢°])"
    rf"|(?P<number>(?:(?<![\w-])-)?(?:{_NUMBER}))"
    r"|(?P<letters>(?<=[0-9])[AP]M(?![^\W_]))"  # 3pm, as 3 p.m.
    r"|(?P<numero>NOS?\.(?=[0-9]))"
    rf"|(?P<word>{_LETTERS}(?:'{_LETTERS})*\.?)"
    r"|(?P<symbol>[%&@°¢]|[+#](?=[0-9]))"
)
_MONEY = re.compile(rf"[^\w-]*?(?P<minus>-?)(?P<money>[$€£](?:{_NUMBER}))\W*")
_DOTTED = re.compile(r"\W*(?P<time>[0-9]{1,2}\.[0-5][0-9])")
_HOUR = re.compile(r"[0-9]{1,2}:00")
_CLOCK = re.compile(r"\W*(?:0?[1-9]|1[0-2])(?:[:.][0-5][0-9])?")
_WHOLE = re.compile(r"\W*[1-9][0-9]*")
_OVER = re.compile(r"([1-9][0-9]?)/([1-9][0-9]?)(?![0-9/])")
OCLOCK = "O'CLOCK"
VULGAR = re.compile(r"(?<=[0-9])(?=[\u00bc-\u00be\u2150-\u215e])")  # between 3 and the fraction that follows
_CHARACTERS = str.maketrans(
    {
        **dict.fromkeys("\u2019\u2018\u02bc\u02b9\u2032`", "'"),
        **dict.fromkeys("\u2212\u2010\u2011", "-"),
        **{"\u2044": "/", "Æ": "AE", "Œ": "OE", "Ø": "O", "Ł": "L", "Đ": "D", "Ð": "D", "Þ": "TH"},
    }
)


def spoken(words: Sequence[str]) -> list[tuple[str, ...]]:
    """For each word of a sentence the words that are read for it: none for mere punctuation, several for numbers.

    Each word is read by itself (`spoken_word`) but for `$5 million`, `No.` before a number, `10:00 a.m.`, `3 pm`, and
    `2 1/2`, which is read as `2½` is.
    """
    result = [spoken_word(word) for word in words]
    for i, (word, after) in enumerate(pairwise(words)):
        found = _MONEY.fullmatch(word)
        if found and result[i + 1][:1] and result[i + 1][0] in MAGNITUDES:
            result[i] = tuple(_amount(found["minus"] + found["money"][1:]))
            result[i + 1] = (result[i + 1][0], f"{MONEY[found['money'][0]][0]}S", *result[i + 1][1:])
        elif word in ("No.", "NO.", "Nos.") and after[:1].isdecimal():
            result[i] = ("NUMBER" if word != "Nos." else "NUMBERS",)
        elif _HOUR.fullmatch(word) and _before_noon_or_after(result[i + 1]):
            result[i] = tuple(part for part in result[i] if part != OCLOCK)
        elif (dotted := _DOTTED.fullmatch(word)) and _before_noon_or_after(result[i + 1]):
            result[i] = _timed(dotted["time"])
        elif _WHOLE.fullmatch(word) and _is_fraction(after):
            result[i + 1] = ("AND", *result[i + 1])
        if result[i + 1] in (("AM",), ("PM",)) and _CLOCK.fullmatch(word):
            result[i + 1] = tuple(result[i + 1][0])
    return result


def _is_fraction(word: str) -> bool:
    """Whether a word begins with a fraction below 1."""
    found = _OVER.match(_folded(word))
    return found is not None and int(found[1]) < int(found[2]) and found[0] != "9/11"


def _before_noon_or_after(words: Sequence[str]) -> bool:
    """Whether the words begin with AM, A M, PM or P M."""
    return "".join(words[:2]) in ("AM", "PM") or words[:1] in (("AM",), ("PM",))


@lru_cache(maxsize=100_000)
def spoken_word(word: str) -> tuple[str, ...]:
    """The words that are read for one word whose neighbours are not known."""
    if SPECIAL.fullmatch(word):
        return (word,)
    parts = tuple(part for token in _TOKEN.finditer(_folded(word)) for part in _read(token))
    if OCLOCK in parts and _before_noon_or_after(parts[parts.index(OCLOCK) + 1 :]):  # 10:00am
        return tuple(part for part in parts if part != OCLOCK)
    return parts


def _folded(word: str) -> str:
    """Upper case without accents; one kind of apostrophe and of hyphen."""
    text = unicodedata.normalize("NFKD", VULGAR.sub("&", word))
    text = unicodedata.normalize("NFKD", text.upper())
    text = "".join(character for character in text if unicodedata.category(character) not in ("Mn", "Mc", "Me", "Cf"))
    return unicodedata.normalize("NFC", text).translate(_CHARACTERS)


def _read(token: re.Match[str]) -> Iterator[str]:
    kind = token.lastgroup
    assert kind is not None
    yield from _READERS[kind](token[0])


def _word(text: str) -> Iterator[str]:
    stem = text.removesuffix(".")
    found = TITLES.get(stem) or (WITH_DOT.get(stem) if text != stem else None)
    yield from (found or stem).split()


def _symbol(text: str) -> Iterator[str]:
    yield from SYMBOLS[text].split()


def _single(text: str) -> Iterator[str]:
    """`1¢` is ONE CENT."""
    yield from ("ONE", SYMBOLS[text[1]].removesuffix("S"))


def _money(text: str) -> Iterator[str]:
    """`$5.50` is FIVE DOLLARS AND FIFTY CENTS, `$5.5m` and `$5.5-million` FIVE POINT FIVE MILLION DOLLARS."""
    if text.startswith("-"):
        yield "MINUS"
        text = text[1:]
    unit, small = MONEY[text[0]]
    amount, _, magnitude = text[1:].partition("-")
    if not magnitude:
        amount = text[1:].rstrip("KMBTN")
        magnitude = SHORT.get(text[1 + len(amount) : 2 + len(amount)], "")
    whole, _, cents = amount.replace(",", "").partition(".")
    if magnitude or len(cents) != 2:
        yield from _amount(amount)
        yield from [magnitude] if magnitude else []
        yield unit if text[1:] == "1" else f"{unit}S"
        return
    parts = [(whole or "0", unit), (cents.lstrip("0") or "0", small)]
    said = [(number, name) for number, name in parts if number.strip("0")] or [("0", unit)]
    for place, (number, name) in enumerate(said):
        yield from ["AND"] if place else []
        yield from _cardinal(number)
        yield name if number == "1" else {"PENNY": "PENCE"}.get(name, f"{name}S")


def _numero(text: str) -> Iterator[str]:
    yield "NUMBER" if text == "NO." else "NUMBERS"


def _timed(text: str) -> tuple[str, ...]:
    """`10.30`, and the hour alone of `10.00`."""
    return tuple(part for part in _time(text) if part != OCLOCK)


def _time(text: str) -> Iterator[str]:
    hour, minute = re.split("[:.]", text)
    yield from _cardinal(hour.lstrip("0") or "0")
    if minute != "00":
        yield from ["O"] if minute[0] == "0" else []
        yield from _cardinal(minute.lstrip("0"))
    elif 1 <= int(hour) <= 12:
        yield OCLOCK
    else:
        yield "HUNDRED"


def _fraction(text: str) -> Iterator[str]:
    """`2/3` is TWO THIRDS; what is none, such as `24/7` and the day `9/11`, is read as two numbers."""
    over, _, under = text.partition("/")
    if not 0 < int(over) < int(under) or text.startswith("0") or text == "9/11":
        yield from (*_cardinal(over), *_cardinal(under))
        return
    yield from _cardinal(over)
    names = {2: ["HALF"], 4: ["QUARTER"]}.get(int(under)) or _said(under, "ordinal")
    yield from names if over == "1" else [*names[:-1], f"{names[-1]}S"]


def _ordinal(text: str) -> Iterator[str]:
    number = text[:-2].replace(",", "")
    yield from _said(number, "ordinal") if len(number) <= LONGEST else _cardinal(number)


def _plural(text: str) -> Iterator[str]:
    """`1920s` is NINETEEN TWENTIES."""
    *first, last = _number(text.rstrip("S").rstrip("'"))
    yield from first
    if last.endswith("Y"):
        yield f"{last[:-1]}IES"
    else:
        yield f"{last}ES" if last.endswith("X") else f"{last}S"


def _number(text: str) -> Iterator[str]:
    """`1920` is NINETEEN TWENTY, `1,920` ONE THOUSAND NINE HUNDRED AND TWENTY, `1.5` ONE POINT FIVE."""
    if _is_year(text.removeprefix("-")):
        yield from ["MINUS"] if text.startswith("-") else []
        yield from _said(text.removeprefix("-"), "year")
    else:
        yield from _amount(text)


def _amount(text: str) -> Iterator[str]:
    """A number that is no year."""
    if text.startswith("-"):
        yield "MINUS"
        text = text[1:]
    whole, dot, decimals = text.replace(",", "").partition(".")
    if whole:
        yield from _cardinal(whole)
    if dot:
        yield "POINT"
        yield from (DIGITS[int(digit)] for digit in decimals)


def _is_year(text: str) -> bool:
    """Whether a number is read in two halves: 1010 to 1999, 2010 to 2099."""
    return len(text) == 4 and text.isdecimal() and (1010 <= int(text) <= 1999 or 2010 <= int(text) <= 2099)


def _cardinal(digits: str) -> list[str]:
    """A number of digits; digit by digit if it begins with a zero or is very long."""
    if len(digits) > LONGEST or (digits[0] == "0" and len(digits) > 1):
        return [DIGITS[int(digit)] for digit in digits]
    return _said(digits, "cardinal")


def _said(digits: str, kind: str) -> list[str]:
    """What num2words says, in LibriSpeech's form; `kind` is "cardinal", "ordinal" or "year"."""
    from num2words import num2words

    said = num2words(int(digits), lang="en", to=kind).upper().replace(",", "").replace("-", " ").split()
    return ["O" if word == "OH" else word for word in said]


_READERS: dict[str, Callable[[str], Iterator[str]]] = {
    "money": _money,
    "time": _time,
    "fraction": _fraction,
    "ordinal": _ordinal,
    "plural": _plural,
    "single": _single,
    "number": _number,
    "letters": iter,
    "numero": _numero,
    "word": _word,
    "symbol": _symbol,
}
