"""Reading and writing files: transparent gzip and xz, Kaldi text; what is written appears when it is whole."""

from __future__ import annotations

import ast
import hashlib
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path, PurePosixPath
from typing import IO, Any

from lm_zoo import files
from lm_zoo.errors import WriteError
from lm_zoo.identity import feed
from lm_zoo.inference.limits import give_back
from lm_zoo.reading import DAMAGED, is_read_once, kaldi_fields, open_bytes, open_text, packed_as, parse_json
from rescore.errors import FormatError, RescoreError
from rescore.skipping import OnError, fail
from rescore.types import Words

LINE_AT_ONCE = 1 << 18  # characters of a line
PLAIN_AT_ONCE, PACKED_AT_ONCE = 1 << 30, 8 << 20  # bytes of files whose lines are counted before they are read


def read_lines(path: str | Path, ended: bool = False, on_error: OnError = fail) -> Iterator[tuple[int, str]]:
    """Yields `(line number from 1, line without newline)` of a text file, `.gz` and `.xz` transparent.

    A byte order mark at its start is dropped.

    Args:
      ended: every line must end with a newline, as programs write them: one that does not was cut off.
      on_error: gets the FormatError of a line that memory does not suffice for; if it returns, the next one follows.
    Raises:
      FormatError: the file is missing, unreadable, truncated, not compressed as its name says, unpacks to far too much
        (`lm_zoo.reading`), or is not UTF-8.
    """
    number = 0
    try:
        with open_text(path) as stream:
            for number, line in enumerate(iter(partial(stream.readline, LINE_AT_ONCE), ""), start=1):
                if len(line) == LINE_AT_ONCE and not line.endswith("\n"):
                    yield from _long_line(stream, line, ended, path, number, on_error)
                    continue
                if ended and not line.endswith("\n"):
                    raise FormatError(path, _CUT_OFF, number)
                yield number, line.rstrip("\r\n")
    except _READ_ERRORS as error:
        raise _explain(path, error, number) from None


def _long_line(
    stream: IO[str], begin: str, ended: bool, path: str | Path, number: int, on_error: OnError
) -> Iterator[tuple[int, str]]:
    """The whole of a line that begins so; one that memory does not suffice for is passed over, and `on_error` told."""
    whole, length, last = bytearray(begin.encode()), len(begin), ""
    try:
        while last != "\n" and (part := _next_part(stream)):
            length, last = length + len(part), part[-1]
            whole += part.removesuffix("\n").encode()
        if ended and last != "\n":
            raise FormatError(path, _CUT_OFF, number)
        line = whole.decode().rstrip("\r")
    except MemoryError:
        line = ""
    whole.clear()
    if line:
        yield number, line
        return
    give_back(collect=True)
    while last != "\n" and (part := stream.readline(LINE_AT_ONCE)):
        length, last = length + len(part), part[-1]
    on_error(FormatError(path, want_of_memory(begin, length - (last == "\n")), number))


def _next_part(stream: IO[str]) -> str:
    bytearray(8 * LINE_AT_ONCE)  # what is read without room for it would be lost, and where the line ends with it
    return stream.readline(LINE_AT_ONCE)


def want_of_memory(line: str, length: int) -> str:
    """What is said of a line of so many characters that memory does not suffice for; of `line` its beginning."""
    return f"memory does not suffice for this line of {length:,} characters, which begins '{line[:60]}'"


def count_lines(path: str | Path) -> int | None:
    """Lines of a text file, if that can be known in about a second; None of large files, pipes, damaged ones."""
    path = Path(path)
    most = PACKED_AT_ONCE if path.suffix in (".gz", ".xz") else PLAIN_AT_ONCE
    try:
        if not path.is_file() or path.stat().st_size > most:
            return None
        with open_bytes(path) as stream:
            count, last = 0, b"\n"
            while chunk := stream.read(1 << 20):
                count, last = count + chunk.count(b"\n"), chunk[-1:]
            return count + (last != b"\n")
    except (OSError, *DAMAGED):  # reading will say so
        return None


def read_chunks(path: str | Path, size: int = 1 << 16) -> Iterator[str]:
    """Yields the text of a file in pieces of at most `size` characters; as `read_lines` otherwise."""
    lines = 0
    try:
        with open_text(path) as stream:
            while chunk := stream.read(size):
                lines += chunk.count("\n")
                yield chunk
    except _READ_ERRORS as error:
        raise _explain(path, error, lines) from None


@contextmanager
def open_binary(path: str | Path, offset: int = 0) -> Iterator[Callable[[int], bytes]]:
    """Gives a function that reads at most so many of the next bytes of a file, `b""` at its end; `.gz`, `.xz` unpacked.

    Reading begins at the byte `offset` (of the unpacked file).

    Raises:
      FormatError: as `read_lines`, here or by the function; bytes before the damage are given first.
    """
    try:
        with ExitStack() as stack:
            stream: Any = stack.enter_context(open_bytes(path))
            if offset:
                stream.seek(offset)

            def read(size: int) -> bytes:
                try:
                    return bytes(stream.read1(size))
                except _READ_ERRORS as error:
                    raise _explain(path, error, None) from None

            yield read
    except FileNotFoundError:
        raise FormatError(path, "no such file") from None
    except OSError as error:
        raise FormatError(path, f"cannot be read ({error.strerror or error})") from None


_CUT_OFF = "the line does not end: cut off (if it is whole, add a newline)"
_READ_ERRORS = (OSError, UnicodeDecodeError, *DAMAGED)


def _explain(path: str | Path, error: Exception, lines: int | None) -> FormatError:
    """The error to show for one that reading raised after `lines` whole lines (None where lines do not count)."""
    after = "" if lines is None else f" after line {lines}"
    if isinstance(error, FileNotFoundError):
        return FormatError(path, "no such file")
    if isinstance(error, IsADirectoryError):
        return FormatError(path, "is a folder, expected a file")
    if isinstance(error, UnicodeDecodeError):
        packed = None if lines else packed_as(error.object)
        return FormatError(path, packed or f"not UTF-8 text after line {lines} ({error})")
    if isinstance(error, OSError) and not isinstance(error, DAMAGED):
        return FormatError(path, f"cannot be read ({error.strerror or error})")
    return FormatError(path, f"compressed file is truncated or damaged{after} ({error})")


@contextmanager
def _our_errors() -> Iterator[None]:
    try:
        yield
    except WriteError as error:
        raise RescoreError(str(error)) from None


@contextmanager
def atomic_text(path: str | Path) -> Iterator[IO[str]]:
    """As `lm_zoo.files.atomic_text`, with a RescoreError for its WriteError."""
    with _our_errors(), files.atomic_text(path) as stream:
        yield stream


@contextmanager
def atomic_binary(path: str | Path) -> Iterator[IO[bytes]]:
    """As `lm_zoo.files.atomic_binary`, with a RescoreError for its WriteError."""
    with _our_errors(), files.atomic_binary(path) as stream:
        yield stream


@contextmanager
def atomic_path(path: str | Path) -> Iterator[Path]:
    """As `lm_zoo.files.atomic_path`, with a RescoreError for its WriteError."""
    with _our_errors(), files.atomic_path(path) as temporary:
        yield temporary


@contextmanager
def atomic_folder(path: str | Path) -> Iterator[Path]:
    """As `lm_zoo.files.atomic_folder`, with a RescoreError for its WriteError."""
    with _our_errors(), files.atomic_folder(path) as temporary:
        yield temporary


def whole_number(text: str, digits: int = 9) -> int | None:
    """The number that `text` is in at most so many digits of ASCII, else None; int() also takes signs, blanks and `_`,
    and raises ValueError where there are thousands of digits."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= digits else None


MARK = "\ufeff"
MARKED = "the utterance id begins with a byte order mark, which only files do (were some joined?); remove it"
STRING = r"""(?:'[^'\\]*(?:\\.[^'\\]*)*'|"[^"\\]*(?:\\.[^"\\]*)*")"""
LISTED = re.compile(rf"\s*\[\s*(?:{STRING}\s*(?:,\s*{STRING}\s*)*,?\s*)?\]\s*")  # strings, as Python writes a list
_RECOG = re.compile(r"(\S+):\t((?:timestamp_)?(?:ref|hyp))=(\[.*\])", re.ASCII)  # of icefall's recogs-SET-SUFFIX.txt

# Of STM files (file, channel, speaker, begin, end, words) and CTM (file, channel, begin, duration, word), or a comment.
_TIMED = re.compile(r";;.*|\S+\s+[12AB]\s+(\S+\s+)?\d+\.\d+\s+\d+\.\d+(\s.*)?", re.ASCII)

_AT_END = re.compile(r"\([^\s()]+\)", re.ASCII)  # the id in lines of sclite's TRN files
_IS_TRN = (
    "a TRN file of sclite ('words ... (utt-id)' a line), expected Kaldi text: 'utt-id words ...' a line; "
    r"turn it: sed -E 's/(.*)\(([^()]*)\)\s*$/\2 \1/'"
)

_LIKE_AN_ID = re.compile(r"\((?=[^)]*[A-Za-z])[^)]*[-_0-9][^)]*\)")  # `(spk1-0001)`, and no `(noise)`
_MLF = "#!MLF!#"  # the first line of HTK's master label files

_AUDIO = '"audio_filepath"'  # in each line of NeMo's manifests


def read_kaldi_text(path: str | Path, side: str = "ref") -> dict[str, Words]:
    """Reads Kaldi `text`: `utt-id word word ...` a line; a line with the id alone is an empty utterance.

    Of icefall's `recogs-SET-SUFFIX.txt`, with lines `utt-id:<tab>ref=['A', ...]` and `utt-id:<tab>hyp=[...]` (and some
    of timestamps), the lines of `side` are read, "ref" or "hyp".  References may be those of our N-best lists (JSON
    lines with `utt_id` and `ref`), of NeMo's manifests (`audio_filepath`, whose name is the id, and `text`) or of
    lhotse's cuts and supervisions, by their ids, too; hypotheses those of manifests (`pred_text`, or one
    `pred_text_MODEL`).

    Raises:
      FormatError: no line at all, an empty line, or an utterance id that occurs twice or begins with a byte order mark;
        an STM, CTM or MLF file, by its first line; a TRN file, all of whose lines end with an id in parentheses.
    """
    texts: dict[str, Words] = {}
    ends: set[str] = set()  # different ids in parentheses
    for number, line in read_lines(path):
        if number == 1 and _TIMED.fullmatch(line.strip()):
            problem = (
                "a line of an STM or CTM file, expected Kaldi text: 'utt-id words ...' a line, such as data/test/text"
            )
            raise FormatError(path, problem, line=number)
        if number == 1 and line.strip() == _MLF:
            raise FormatError(path, "an MLF of HTK, expected Kaldi text: 'utt-id words ...' a line", line=number)
        recog = _RECOG.fullmatch(line)
        if recog and recog[2] != side:
            continue
        fields = [recog[1], *_listed(path, number, recog[3])] if recog else kaldi_fields(line)
        if line.startswith('{"') and (side == "ref" or _AUDIO in line):
            fields = _text_of_json(path, number, line, side)
        if not fields:
            raise FormatError(path, "empty line, expected 'utt-id words ...'", line=number)
        if fields[0].startswith('{"'):
            raise FormatError(path, "JSON, expected Kaldi text: 'utt-id words ...' a line", line=number)
        if fields[0].startswith(MARK):
            raise FormatError(path, MARKED, line=number)
        if _AT_END.fullmatch(fields[-1]):
            ends.add(fields[-1])
        if fields[0] in texts:
            if len(ends) == number:
                raise FormatError(path, _IS_TRN)
            wanted = "expected Kaldi text: 'utt-id words ...' a line"
            if line.startswith('{"'):
                wanted = "expected an 'utt_id' each, also of parts of one audio file"
            raise FormatError(path, f"utterance '{fields[0]}' occurs a second time, {wanted}", line=number)
        texts[fields[0]] = tuple(fields[1:])
    if not texts:
        raise FormatError(path, "empty file, expected Kaldi text: 'utt-id words ...' a line")
    if len(ends) == len(texts) and (len(ends) > 1 or any(map(_LIKE_AN_ID.fullmatch, ends))):
        raise FormatError(path, _IS_TRN)
    return texts


def is_manifest(path: str | Path) -> bool:
    """Whether a file is a manifest of NeMo, and no N-best lists, by its first line."""
    if not Path(path).is_file():
        return False
    begin = next(read_chunks(path, 1 << 12), "").partition("\n")[0]
    return begin.startswith('{"') and _AUDIO in begin and not any(f'"{name}"' in begin for name in ("hyps", "nbest"))


def named_in(entry: Mapping[str, Any]) -> Any:
    """What an entry of lists or of a manifest is called: `utt_id`, or `id`, or its audio's name; None if by nothing."""
    audio = entry.get("audio_filepath")
    found = entry.get("utt_id", entry.get("id"))
    return PurePosixPath(audio).stem if found in (None, "") and isinstance(audio, str) else found


def _text_of_json(path: str | Path, number: int, line: str, side: str) -> list[str]:
    """Id and words of a line of N-best lists or of a manifest; hypotheses are in manifests alone."""
    try:
        entry = parse_json(line)
    except ValueError as error:
        raise FormatError(path, f"not JSON ({error})", line=number) from None
    utt_id, text = named_in(entry), entry.get("ref")
    utt_id = None if utt_id is None else str(utt_id)
    if "audio_filepath" in entry:
        text = entry.get("text") if side == "ref" else _transcribed(path, number, entry)
    elif side == "ref" and text is None:
        text = _text_of_lhotse(entry)
    if isinstance(text, list):
        text = " ".join(map(str, text))
    if not utt_id or not isinstance(text, str):
        what, expected = "hypothesis", "audio_filepath and pred_text of a manifest"
        if side == "ref":
            what, expected = "reference", "utt_id and ref of N-best lists, or text of a manifest of NeMo or lhotse"
        raise FormatError(path, f"JSON without a {what} ({', '.join(entry)}), expected {expected}", line=number)
    if len(kaldi_fields(utt_id)) != 1:
        raise FormatError(path, f"the id '{utt_id}' has blanks, which no other file of texts can have", line=number)
    return [utt_id, *kaldi_fields(text)]


def _transcribed(path: str | Path, number: int, entry: Mapping[str, Any]) -> Any:
    """`pred_text` of a NeMo manifest, or the one `pred_text_MODEL` that transcribe_speech.py adds with append_pred."""
    if "pred_text" in entry:
        return entry["pred_text"]
    names = [name for name in entry if name.startswith("pred_text_")]
    if len(names) > 1:
        problem = f"transcripts of several models ({', '.join(names)}); rename the one that is meant to pred_text"
        raise FormatError(path, problem, line=number)
    return entry[names[0]] if names else None


def _text_of_lhotse(entry: Mapping[str, Any]) -> list[str] | str | None:
    """The text of a supervision, or those of a cut in the order of their times; None if neither has one."""
    if "recording_id" in entry:
        return entry.get("text")
    try:
        cuts = [(0.0, entry), *((track.get("offset", 0.0), track["cut"]) for track in entry.get("tracks", ()))]
        spoken = [(begin + each["start"], each) for begin, cut in cuts for each in cut.get("supervisions", ())]
        texts = [each.get("text") for _, each in sorted(spoken, key=lambda pair: pair[0])]
        return [text for text in texts if text is not None] or None
    except (LookupError, TypeError, AttributeError):
        return None


def _listed(path: str | Path, number: int, text: str) -> list[str]:
    try:
        if not LISTED.fullmatch(text):  # of other expressions Python's parser takes 400 bytes a character
            raise ValueError
        return [str(word) for word in ast.literal_eval(text)]
    except (ValueError, SyntaxError, MemoryError):
        raise FormatError(path, f"found '{text[:60]}', expected a list of words as Python writes it", number) from None


def write_kaldi_text(path: str | Path, texts: dict[str, Words]) -> None:
    """Writes Kaldi `text`, one utterance a line, in the order of `texts`.

    Raises:
      FormatError: an utterance id that begins with a byte order mark, which would be lost in reading.
    """
    with atomic_text(path) as stream:
        for utt_id, words in texts.items():
            if utt_id.startswith(MARK):
                raise FormatError(path, MARKED)
            stream.write(" ".join((utt_id, *words)) + "\n")


def make_folder(path: str | Path) -> Path:
    """`path` as a folder, made if it is not there, with those above it; a clear error if it cannot be."""
    try:
        Path(path).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RescoreError(f"{path}: cannot be made a folder ({error.strerror}); name another one") from None
    return Path(path)


def require_folder(path: str | Path) -> Path:
    """`path` as a Path, or a clear error if it is not a folder."""
    path = Path(path)
    if not path.is_dir():
        raise RescoreError(f"{path}: {'is a file, expected a folder' if path.exists() else 'no such folder'}")
    return path


def file_identity(path: Path) -> dict[str, str]:
    """Name without folders and sha256 of a file; of what is read but once, no sha256."""
    if is_read_once(path):
        return {"file": path.name, "sha256": ""}
    return {"file": path.name, "sha256": feed(hashlib.sha256(), path).hexdigest()}


def texts_identity(path: Path, texts: Mapping[str, Words]) -> dict[str, str]:
    """As `file_identity`, of texts that were read from `path`; what is read but once is told by its texts."""
    if not is_read_once(path):
        return file_identity(path)
    lines = "".join(" ".join((utt_id, *words)) + "\n" for utt_id, words in texts.items())
    return {"file": path.name, "sha256": hashlib.sha256(lines.encode()).hexdigest()}
