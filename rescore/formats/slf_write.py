"""Writing HTK's Standard Lattice Format: words on links, natural logs, a file `UTT.slf.gz` for each utterance.

Scores that HTK has a field for are written as such (`am` a=, `lm` l=, `pron` r=), `graph` as l= where there is no `lm`,
all others as x1=, x2=, ...; a comment `# rescore x1=NAME` keeps their names, which `rescore.formats.slf` reads.  Words
that are none to that reader (`<sil>`, `<s>`, ...) stand in a comment `# rescore-words`, which makes them words again.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from lm_zoo.reading import kaldi_fields
from rescore.errors import FormatError
from rescore.file_names import is_file_name
from rescore.files import atomic_binary, atomic_folder
from rescore.formats.common import Place, encoded, formed, put
from rescore.lattices.build import EPSILON
from rescore.skipping import OnError, fail
from rescore.text import short
from rescore.types import Lattice

NULL = "!NULL"
_FIELDS = {"am": "a", "lm": "l", "pron": "r", "n": "n"}
_SPARE = [f"x{digit}" for digit in range(1, 10)]


def write_lattices(path: Path, lattices: Iterable[Lattice], on_error: OnError = fail) -> int:
    """Writes a folder of files; returns their number.  `on_error` as for `formed`."""
    count = 0

    def form(lattice: Lattice) -> tuple[str, bytes]:
        return lattice.utt_id, encoded(format_lattice(lattice, Place(path, utt_id=lattice.utt_id)))

    with atomic_folder(path) as folder:
        for utt_id, text in formed(lattices, form, path, on_error):
            if not is_file_name(utt_id):
                advice = "which each lattice is here; write them to another format, such as kaldi-lat:PATH"
                raise FormatError(path, f"utterance id {short(utt_id)} cannot be the name of a file, {advice}")
            with atomic_binary(folder / f"{utt_id}.slf.gz") as stream:
                put(stream, text)
            count += 1
    return count


def format_lattice(lattice: Lattice, place: Place) -> str:
    """The text of one file.

    Raises:
      FormatError: more scores than HTK has fields for, a word with white space in it, or the word `!NULL`.
    """
    fields = _fields(lattice, place)
    lines = ["VERSION=1.0", f"UTTERANCE={_quote(lattice.utt_id)}"]
    renamed = " ".join(f"{field}={name}" for name, field in fields.items() if _FIELDS.get(name) != field)
    if renamed:
        lines.append(f"# rescore {renamed}")
    lines += _null_words(lattice, place)
    lines.append(f"start=0 end={lattice.num_states - 1}")
    lines.append(f"N={lattice.num_states} L={lattice.num_arcs}")
    for state in range(lattice.num_states):
        lines.append(f"I={state}" if lattice.times is None else f"I={state} t={float(lattice.times[state])!r}")
    words = [_quote(word) for word in lattice.symbols]
    for label, word in enumerate(words):
        if label != EPSILON and kaldi_fields(lattice.symbols[label]) != [lattice.symbols[label]]:
            raise place.format_error(f"word {word} is empty or has white space in it")
    words[EPSILON] = NULL
    columns = [[f" {field}={value!r}" for value in lattice.scores[name].tolist()] for name, field in fields.items()]
    scores = ["".join(row) for row in zip(*columns, strict=True)] if columns else [""] * lattice.num_arcs
    ends = zip(lattice.src.tolist(), lattice.dst.tolist(), lattice.labels.tolist(), scores, strict=True)
    lines.extend(f"J={arc} S={src} E={dst} W={words[label]}{row}" for arc, (src, dst, label, row) in enumerate(ends))
    return "\n".join(lines) + "\n"


def _null_words(lattice: Lattice, place: Place) -> list[str]:
    """The comment about words that would be read back as none, if there are such."""
    used = {lattice.symbols[label] for label in np.unique(lattice.labels).tolist() if label != EPSILON}
    if NULL in used:
        raise place.format_error(f"the word {NULL} is HTK's for no word; rename it before")
    found = sorted(used & NULL_WORDS)
    return [WORDS_COMMENT + " ".join(found)] if found else []


def _fields(lattice: Lattice, place: Place) -> dict[str, str]:
    """Score name -> HTK's field."""
    fields = {name: _FIELDS[name] for name in lattice.scores if name in _FIELDS}
    if "graph" in lattice.scores and "lm" not in lattice.scores:
        fields["graph"] = "l"
    spare = iter(field for field in _SPARE if field not in lattice.scores)
    for name in lattice.scores:
        if name not in fields:
            if kaldi_fields(name) != [name] or "=" in name:
                raise place.format_error(f"a score cannot be called '{name}' in this format")
            field = name if name in _SPARE else next(spare, None)
            if field is None:
                raise place.format_error(
                    f"scores {', '.join(lattice.scores)}: HTK's format has place for {len(_SPARE)} more"
                )
            fields[name] = field
    return fields


def _quote(word: str) -> str:
    """As HTK reads it back: quoted where it begins with a quote, or has a backslash or `="` in it."""
    if word[:1] not in "\"'" and "\\" not in word and "='" not in word and '="' not in word:
        return word
    escaped = word.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


NULL_WORDS = frozenset(("", "!NULL", "!SENT_START", "!SENT_END", "!ENTER", "!EXIT", "<s>", "</s>", "<sil>", "<eps>"))


WORDS_COMMENT = "# rescore-words "  # of our writer: NULL_WORDS that are words in this file
