"""Curves of training runs: validation perplexity against passes over the text, tokens and core-hours, as a picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lm_zoo.files import atomic_path
from lm_zoo.reading import parse_json
from rescore.errors import UsageError
from rescore.file_names import split_name
from rescore.files import read_lines

LOG = "log.jsonl"
PPL = "valid_ppl"
# Axis -> what a validation's record has for it, and how much of that is one of the axis.
AXES = {
    "passes over the training text": ("passes", 1.0),
    "million tokens": ("tokens", 1e6),
    "core-hours": ("cpu_seconds", 3600.0),
}
# Okabe and Ito's colours, which the colour-blind tell apart; more runs than these get other lines.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00", "#56B4E9")
LINES = ("-", "--", ":", "-.")
TOP = 1.3


def read_run(folder: Path) -> list[dict[str, float]]:
    """The validations of a run, in order: perplexity, passes, tokens and processor time.

    Logs of older versions have no passes; there they follow from the tokens and the whole passes of all records.

    Raises:
      UsageError: there is no log, it is damaged, or it has no validation with a perplexity and its processor time.
      FormatError: it cannot be read.
    """
    path = folder / LOG
    if not path.is_file():
        raise UsageError(f"{folder}: no {LOG}; expected the folder of a run of rescore train-lm")
    found, a_pass = list[dict[str, float]](), float("inf")
    for number, line in read_lines(path):
        try:
            record = parse_json(line)
            if record.get("epoch"):
                a_pass = min(a_pass, record["tokens"] / record["epoch"])
            if PPL in record and "cpu_seconds" in record:
                found.append({name: float(record[name]) for name in (PPL, "tokens", "cpu_seconds")})
                found[-1]["passes"] = float(record.get("passes", "nan"))
        except (ValueError, TypeError, LookupError, AttributeError, OverflowError):
            raise UsageError(f"{path}:{number}: expected a record of rescore train-lm") from None
        if found and not 0.0 < found[-1][PPL] < float("inf"):
            raise UsageError(f"{path}:{number}: {PPL} is {found[-1][PPL]}, expected a finite number above 0")
    if not found:
        raise UsageError(f"{path}: no validation with {PPL} and cpu_seconds yet")
    for one in found:
        one["passes"] = one["tokens"] / a_pass if one["passes"] != one["passes"] else one["passes"]
    return found


def named_runs(given: Sequence[str]) -> dict[str, Path]:
    """Name -> folder of `[NAME=]DIR`; without a name it is the last part of the folder's.

    Raises:
      UsageError: two of one name.
    """
    named: dict[str, Path] = {}
    for run in given:
        name, folder = split_name(run)
        path = Path(folder)
        name = name or path.resolve().name
        if name in named:
            raise UsageError(f"two runs are called '{name}'; name one of them: NEWNAME=DIR")
        named[name] = path
    return named


def draw(runs: Mapping[str, Sequence[Mapping[str, float]]], out: Path) -> Any:
    """Writes a PNG with a picture an axis side by side, a line a run; returns matplotlib's figure.

    Perplexities are on a logarithmic axis, one for all pictures. It ends at TOP times the worst run's best: where the
    runs end is to be told apart; how they began is left out.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator, StrMethodFormatter

    figure = Figure(figsize=(4.5 * len(AXES), 5.2), layout="constrained")
    FigureCanvasAgg(figure)
    pictures = figure.subplots(1, len(AXES), sharey=True)
    for number, (name, records) in enumerate(runs.items()):
        ppl = [record[PPL] for record in records]
        style: dict[str, Any] = {
            "color": COLOURS[number % len(COLOURS)],
            "linestyle": LINES[number // len(COLOURS) % len(LINES)],
            "linewidth": 1.2,
            "marker": ".",
            "markersize": 4,
        }
        for picture, (figure_name, unit) in zip(pictures, AXES.values(), strict=True):
            picture.plot([record[figure_name] / unit for record in records], ppl, label=name, **style)
    bests = [min(record[PPL] for record in records) for records in runs.values()]
    low, high = min(bests) / 1.03, max(bests) * TOP
    ticks = MaxNLocator(10, steps=[1, 2, 5, 10]) if high < 5 * low else LogLocator(subs=(1, 2, 5))
    pictures[0].set_ylim(low, high)
    for picture, label in zip(pictures, AXES, strict=True):
        picture.set_xlabel(label)
        picture.set_xlim(left=0)
        picture.set_yscale("log")
        picture.grid(True, which="both", alpha=0.25)
        picture.yaxis.set_major_locator(ticks)
        picture.yaxis.set_minor_locator(NullLocator())
        picture.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    pictures[0].set_ylabel("validation perplexity a token")
    numbers = [str(number) for number in range(len(runs))]  # matplotlib leaves out names that begin with _
    legend = figure.legend(pictures[0].get_lines(), numbers, loc="outside upper center", ncols=min(4, len(runs)))
    for text, name in zip(legend.get_texts(), runs, strict=True):
        text.set(text=name, parse_math=False)
    with atomic_path(out) as made:
        figure.savefig(made, dpi=120, format="png")
    return figure
