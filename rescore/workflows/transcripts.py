"""Plain text for LMs from the transcripts of corpora: Switchboard, Fisher, NIST STM, CHAT (DementiaBank).

Words are kept as they were said, fillers included; noises, laughter, pauses and comments are left out, and so are the
marks of the transcribers.  Cut-off words keep their hyphen (`ab-`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from rescore.errors import FormatError, UsageError
from rescore.files import read_lines


@dataclass(frozen=True)
class Kind:
    """A kind of transcript.

    Attributes:
      files: the files of a folder, as a glob pattern at any depth.
      utterances: lines -> the text of every utterance, as the transcribers wrote it.  Raises ValueError for a line that
        is none of the kind.
      words: such a text -> its words.
    """

    files: str
    utterances: Callable[[Iterable[str]], Iterator[str]]
    words: Callable[[str], list[str]]


def read_transcripts(kind: str, source: Path, files: str | None = None) -> Iterator[list[str]]:
    """The words of every utterance that has any, of a file or of all files of a folder in the order of their names.

    Args:
      files: a glob pattern for the files of the folder, instead of the kind's own.
    Raises:
      UsageError: an unknown kind, a pattern that is none, or a folder without such files.
      FormatError: a line that is none of the kind; names file and line.
    """
    if kind not in KINDS:
        raise UsageError(f"no kind of transcript is called '{kind}'; there are: {', '.join(KINDS)}")
    rules = KINDS[kind]
    pattern = files or rules.files
    paths = _files_in(source, pattern) if source.is_dir() else [source]
    if not paths:
        raise UsageError(f"{source}: no file '{pattern}' in this folder, expected transcripts of the kind {kind}")
    for path in paths:
        yield from _read(path, rules)


def _files_in(folder: Path, pattern: str) -> list[Path]:
    try:
        return sorted(path for path in folder.rglob(pattern) if path.is_file())
    except (ValueError, NotImplementedError) as error:
        raise UsageError(f"--files '{pattern}': {error}; expected a pattern of names such as '*.txt'") from None


def _read(path: Path, rules: Kind) -> Iterator[list[str]]:
    number = 0

    def lines() -> Iterator[str]:
        nonlocal number
        for number, line in read_lines(path):  # noqa: B007 (kept for the message)
            yield line

    try:
        for text in rules.utterances(lines()):
            words = [word for word in rules.words(text) if any(map(str.isalnum, word))]
            if words:
                yield words
    except ValueError as error:
        raise FormatError(path, str(error), number) from None


# -- Switchboard: the transcripts of the Mississippi State University (ISIP), `sw2001A-ms98-a-trans.text` ----

_LAUGHED = re.compile(r"^(-?)\[laughter-(.+)\](-?)$", re.IGNORECASE)
_VARIANT = re.compile(r"^\[(.+)/[^/]+/?\](-?)$")
_LEFT_OPEN = re.compile(r"^([^][/]+\[[^][/]+\]-?)/[^][/]+\]$")
_NOT_SAID = re.compile(r"-?(?:\[[^][]+\]-?)+")


def _swbd_utterances(lines: Iterable[str]) -> Iterator[str]:
    """Lines `sw2001A-ms98-a-0001 0.000000 0.977625 TEXT`."""
    for line in lines:
        fields = line.split(None, 3)
        if not fields:
            continue
        if len(fields) < 4 or not (_is_time(fields[1]) and _is_time(fields[2])):
            raise ValueError(f"found '{line[:60]}', expected 'UTTERANCE BEGIN END TEXT'")
        yield fields[3]


def swbd_words(text: str) -> list[str]:
    """`[laughter-so] [it'n/isn't] ab[solute]- -[an]y ammu[n]it- {yuppiedom} them_1 [noise]` -> so it'n ab- -y ammu-it-
    yuppiedom them.

    One slip of the corpus is read as it is meant: `ex[specially]-/especially]` lacks its first bracket.
    """
    words = []
    for word in text.split():
        word = _LAUGHED.sub(r"\1\2\3", word)
        word = _VARIANT.sub(r"\1\2", word)
        word = _LEFT_OPEN.sub(r"\1", word)
        if _NOT_SAID.fullmatch(word):  # [noise]
            continue
        word = _NOT_SAID.sub("-", word)
        word = re.sub(r"^\{(.+)\}$", r"\1", word)
        word = re.sub(r"_\d", "", word)
        if not (set("[]<>") & set(word)):  # <b_aside>
            words.append(word)
    return words


# -- Fisher: `fe_03_00001.txt` -------------------------------------------------------------------------------


def _fisher_utterances(lines: Iterable[str]) -> Iterator[str]:
    """Lines `3.76 5.54 B: TEXT`; comments begin with #."""
    for line in lines:
        if not line.strip() or line.startswith("#"):
            continue
        fields = line.split(None, 3)
        if (
            len(fields) < 3
            or not (_is_time(fields[0]) and _is_time(fields[1]))
            or not re.match(r"^[AB]\d?:$", fields[2])
        ):
            raise ValueError(f"found '{line[:60]}', expected 'BEGIN END A: TEXT'")
        yield fields[3] if len(fields) == 4 else ""


def fisher_words(text: str) -> list[str]:
    """`(( i mean )) *mandatory [laughter] a._b._c. d.'s c._d.s <german ja >` -> i mean mandatory a b c d's c d's."""
    text = re.sub(r"(?<!\[)\[+[^][]*\]+", " ", _without(text, "<", ">"))
    text = re.sub(r"[*()?,\"]", "", text.replace("._", " ").replace("-- ", " "))
    return [re.sub(r"(?<=\w)\.s$", "'s", word.rstrip(".").replace(".'", "'")) for word in text.split()]


# -- NIST STM: references for sclite -------------------------------------------------------------------------


def _stm_utterances(lines: Iterable[str]) -> Iterator[str]:
    """Lines `FILE CHANNEL SPEAKER BEGIN END [<LABELS>] TEXT`; comments begin with ;; ."""
    for line in lines:
        if not line.strip() or line.startswith(";;"):
            continue
        fields = line.split(None, 5)
        if len(fields) < 5 or not (_is_time(fields[3]) and _is_time(fields[4])):
            raise ValueError(f"found '{line[:60]}', expected 'FILE CHANNEL SPEAKER BEGIN END <LABELS> TEXT'")
        text = re.sub(r"^<[^>]*>", "", fields[5]) if len(fields) == 6 else ""
        if "ignore_time_segment_in_scoring" not in text.lower():
            yield text


def stm_words(text: str) -> list[str]:
    """`{ yeah / yes / @ } (%hesitation) (i-) <b_aside>` -> yeah uh i- (the first alternative; hesitations as uh).

    TED-LIUM's has noises and numbers of pronunciations, too: `discovery(2) {NOISE}` -> discovery.
    """
    text = re.sub(r"\{[^\s{}/]+\}|(?<=[^\s(])\(\d+\)", " ", text)
    text = re.sub(r"\{([^/{}]*)(?:/[^{}]*)?\}", r" \1 ", text)
    text = re.sub(r"[()@]", " ", _without(text, "<", ">"))
    return ["uh" if word.lower() == "%hesitation" else word for word in text.split()]


# -- CHAT: TalkBank's format (MacWhinney, "Tools for Analyzing Talk", part 1) --------------------------------


def _chat_utterances(lines: Iterable[str]) -> Iterator[str]:
    """Main lines `*PAR:<tab>TEXT` with what continues them; headers (@) and dependent tiers (%) are left out."""
    spoken: str | None = None
    for line in lines:
        line = line.lstrip("\ufeff")
        if line[:1] in ("\t", " "):
            spoken = spoken + " " + line.strip() if spoken is not None else None
            continue
        if spoken is not None:
            yield spoken
        spoken = None
        if line.startswith("*"):
            _, colon, spoken = line.partition(":")
            if not colon:
                raise ValueError(f"found '{line[:60]}', expected '*SPEAKER:<tab>TEXT'")
        elif line.strip() and line[0] not in "@%":
            raise ValueError(f"found '{line[:60]}', expected a line of CHAT, which begins with @, * or %")
    if spoken is not None:
        yield spoken


def chat_words(text: str) -> list[str]:
    """`&-uh (be)cause <the boy> [//] cookie+jar xxx &=laughs 0is &w +...` -> uh because the boy cookie jar."""
    text = _without(text, "[", "]")  # codes
    text = re.sub(r"\x15[^\x15]*\x15|\b\d+_\d+\b|\(\.+\)|\([0-9.:]+\)", " ", text)  # time marks, pauses
    words = []
    for word in re.sub(r"[<>]", " ", text).split():
        filler = word.startswith("&-") or word.lower() in ("&uh", "&um", "&er", "&hm", "&mm", "&ah")
        if (word.startswith("&") and not filler) or word.startswith("0"):
            continue
        word = re.sub(r"@.*", "", word.lstrip("&-"))
        if word.lower() in ("xxx", "yyy", "www", "xx"):
            continue
        words.extend(re.sub(r"[^\w' -]", "", re.sub(r"[+_]", " ", word)).split())
    return words


def _without(text: str, begin: str, end: str) -> str:
    """The text with a blank for each part from a `begin` to the next `end`; the time is that of its length, which that
    of the regular expression is not where nothing ends."""
    parts, at = list[str](), 0
    while (start := text.find(begin, at)) >= 0 and (stop := text.find(end, start)) >= 0:
        parts += [text[at:start], " "]
        at = stop + len(end)
    return "".join([*parts, text[at:]])


def _is_time(field: str) -> bool:
    return re.match(r"^\d+(\.\d*)?$", field) is not None


KINDS = {
    "swbd": Kind("sw*-trans.text", _swbd_utterances, swbd_words),
    "fisher": Kind("trans/*/fe_03_*.txt", _fisher_utterances, fisher_words),
    "stm": Kind("*.stm", _stm_utterances, stm_words),
    "chat": Kind("*.cha", _chat_utterances, chat_words),
}
