"""What is looked at before KenLM opens a file of others: it trusts counts and offsets, and wrong ones end the process.

An ARPA file is checked by its counts.  Of a binary file, whose tables are mapped as they are, all that KenLM follows is
looked at (`lm_zoo.ngram.kenlm_tables`); then it is loaded and asked by another process.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from itertools import islice
from pathlib import Path

from lm_zoo.errors import ModelError
from lm_zoo.ngram.arpa import BINARY_MAGIC, read_vocabulary
from lm_zoo.ngram.kenlm_tables import check_tables
from lm_zoo.reading import DAMAGED, RATIO, open_text

BINARY = b"mmap lm http://kheafield.com/code"
HEAD = 10_000  # lines of an ARPA file among which its counts must be
LEAST_LINE = 4  # bytes of an n-gram: a number, a tab, a letter, a newline
SMALL = 1 << 20  # bytes that are taken for a packed file's at least
SECONDS, BYTES_A_SECOND = 30, 10**7  # that loading may take
WORDS = 1000  # that the other process asks for

_COUNT = re.compile(r"ngram\s+([^=]*)=(.*)")
LOAD = """
import json, sys
sys.path = json.loads(sys.argv[1])
import kenlm
config = kenlm.Config()
config.show_progress = False
try:
    model = kenlm.Model(sys.argv[2], config)
except Exception:
    sys.exit(0)
words = sys.stdin.buffer.read().decode("utf-8", "replace").split("\\0")
for part in (words, words[::-1], words[1::2]):
    model.score(" ".join(part))
"""


def check_file(path: Path) -> None:
    """Looks whether KenLM can open a file; what it reports itself is left to it.

    Raises:
      ModelError: counts that are impossible for the size of an ARPA file; a binary file whose tables point out of
        them, or which ends, or stops, a process.
    """
    try:
        with open(path, "rb") as stream:
            begin = stream.read(len(BINARY_MAGIC))
        if begin == BINARY_MAGIC:
            check_tables(path)
        if begin.startswith(BINARY):
            _try_elsewhere(path)
        else:
            _check_counts(path)
    except UnicodeDecodeError as error:
        raise ModelError(f"{path}: not an ARPA file nor a KenLM binary file (not UTF-8: {error})") from None
    except (OSError, *DAMAGED) as error:
        raise ModelError(f"{path}: cannot be read ({error})") from None


def _check_counts(path: Path) -> None:
    size = path.stat().st_size
    most = max(SMALL, RATIO * size) if path.suffix in (".gz", ".xz") else size
    with open_text(path) as stream:
        for line in islice(stream, HEAD):
            found = _COUNT.fullmatch(line.strip())
            if found and not _is_possible(found[2].strip(), most):
                stated = f"ngram {found[1][:9]}={found[2][:20]}"
                raise ModelError(
                    f"{path}: says '{stated}', expected a number of n-grams that a file of its size can hold; "
                    "it is damaged"
                )
            if line.startswith("\\1-grams:"):
                return


def _is_possible(count: str, most: int) -> bool:
    """Whether so many n-grams fit into `most` bytes; KenLM takes a number with a sign for a huge one."""
    return count.isascii() and count.isdecimal() and len(count) <= 15 and int(count) * LEAST_LINE <= most


def _try_elsewhere(path: Path) -> None:
    try:
        words = read_vocabulary(path)
    except ModelError:
        words = ["a"]  # a file without its words
    asked = words[:: max(1, len(words) // WORDS)]
    seconds = SECONDS + path.stat().st_size / BYTES_A_SECOND
    ended = load_elsewhere(path, "\0".join(asked), seconds)
    if ended is not None and ended >= 0:
        return
    problem = f"did not end in {seconds:.0f} s" if ended is None else f"ended in signal {-ended}"
    raise ModelError(f"{path}: a damaged KenLM binary file (loading it {problem}); build it again")


def load_elsewhere(path: Path, words: str, seconds: float) -> int | None:
    """How a process ended that loaded the file and asked for the words; None if it did not in this time."""
    try:
        return subprocess.run(
            [sys.executable, "-I", "-c", LOAD, json.dumps(sys.path), str(path)],
            input=words.encode("utf-8", "replace"),
            capture_output=True,
            timeout=seconds,
        ).returncode
    except subprocess.TimeoutExpired:
        return None
