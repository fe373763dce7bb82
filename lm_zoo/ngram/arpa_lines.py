"""The lines of an ARPA file, many at a time: columns of bytes side by side, whose padding is then taken out."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

LONGEST = 40  # bytes of a word; lines with a longer one are formatted one by one
DECIMALS = 10  # what 7 digits of a number from 1e-4 on need
WIDTH = 4 + DECIMALS  # a sign, two digits, a point, decimals
POWERS = 10.0 ** np.arange(DECIMALS + 1)
FOUR_DIGITS = np.array([b"%04d" % number for number in range(10_000)]).view(np.uint32)


class ArpaLines:
    """Formats lines `log_prob TAB word word ... [TAB backoff]`."""

    def __init__(self, words: Sequence[str], digits: int) -> None:
        """
        Args:
          words: by id.
          digits: significant ones of a number, 2 to 7.
        """
        self.words, self.digits = words, digits
        encoded = [word.encode() for word in words]
        self.plain = np.array([len(word) > LONGEST or b"\0" in word for word in encoded])
        table = np.array([b"" if plain else b" " + word for word, plain in zip(encoded, self.plain, strict=True)])
        self.table = table.view(np.uint8).reshape(len(words), -1)

    def __call__(self, log_prob: np.ndarray, ids: np.ndarray, backoff: np.ndarray | None) -> bytes:
        """The lines of some n-grams.

        Args:
          log_prob: float32 `(ngrams,)`.
          ids: int `(ngrams, order)`, words.
          backoff: float32 `(ngrams,)`; None at the highest order.
        """
        if self.plain[ids].any():
            return plain_lines([[self.words[index] for index in row] for row in ids], log_prob, backoff, self.digits)
        parts = [number_bytes(log_prob, self.digits), *(self.table.take(column, axis=0) for column in ids.T)]
        ends = np.cumsum([part.shape[1] for part in parts])
        if backoff is not None:
            parts += [np.full((len(ids), 1), ord("\t"), np.uint8), number_bytes(backoff, self.digits)]
        lines = np.concatenate([*parts, np.full((len(ids), 1), ord("\n"), np.uint8)], axis=1)
        lines[:, ends[0]] = ord("\t")  # before the first word
        return lines.tobytes().translate(None, b"\0")


def plain_lines(words: Sequence[Sequence[str]], log_prob: np.ndarray, backoff: np.ndarray | None, digits: int) -> bytes:
    """As `ArpaLines`, one line at a time."""
    columns = [log_prob.tolist(), map(" ".join, words), *([] if backoff is None else [backoff.tolist()])]
    number = f"%.{digits}g"
    template = "\t".join([number, "%s", number][: len(columns)]) + "\n"
    return "".join(map(template.__mod__, zip(*columns, strict=True))).encode()


def number_bytes(values: np.ndarray, digits: int) -> np.ndarray:
    """Numbers as `%.{digits}g` writes them, with zero bytes anywhere between: uint8 `(numbers, WIDTH)`.

    Exact: a float32 from 1e-4 to 100 times the power of ten that makes `digits` digits an integer has 48 bits at most.

    Args:
      values: float32 `(numbers,)`.
      digits: 2 to 7.
    """
    size = np.abs(values.astype(np.float64))
    shown = (size == 0) | (size >= 1e-4) & (size < 99)
    size[~shown] = 0
    exponent = (size >= POWERS[1]).astype(np.int64) - sum(size < 10.0**-power for power in range(4))
    exponent[size == 0] = 0
    shift = digits - 1 - exponent
    number = np.rint(size * POWERS[shift]).astype(np.int64) * POWERS.astype(np.int64)[DECIMALS - shift]
    quads = np.stack([number // 10**8, number // 10**4 % 10**4, number % 10**4], axis=1)
    ascii_digits = FOUR_DIGITS[quads].view(np.uint8)
    result = np.zeros((len(values), WIDTH), np.uint8)
    result[:, 0] = np.where(np.signbit(values), ord("-"), 0)
    result[:, 1:3] = ascii_digits[:, :2]
    result[:, 1][number < 10 ** (DECIMALS + 1)] = 0
    needed = np.zeros(len(values), bool)
    for column in range(11, 1, -1):
        needed |= ascii_digits[:, column] != ord("0")
        result[:, column + 2] = np.where(needed, ascii_digits[:, column], 0)
    result[:, 3] = np.where(needed, ord("."), 0)
    for row in np.flatnonzero(~shown):
        text = f"{values[row]:.{digits}g}".encode()
        result[row] = np.frombuffer(text.ljust(WIDTH, b"\0"), np.uint8)
    return result
