"""A comparison as LaTeX and CSV, and the signature that says in one line how its figures were made."""

from __future__ import annotations

import csv
import io
from typing import Any

from rescore.workflows.compare import Comparison, cells, json_row
from rescore.workflows.normalising import KEY

_LATEX = str.maketrans(
    {char: f"\\{char}" for char in "&%$#_{}"}
    | {
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "\\": r"\textbackslash{}",
        "<": "$<$",
        ">": "$>$",
        "|": "$|$",
    }
)


def signature(comparison: Comparison) -> str:
    """What others need to get the same figures, in the manner of sacreBLEU's: `WER|norm:none|...|version:0.1.0`.

    Where a part of the references' utterances is counted, their ids count as well.
    """
    how = comparison.how
    tail = [f"tail:{how['tail_counts']['sha256'][:8]}"] if "tail_counts" in how else []
    ref = [f"ref:{how['ref']['sha256'][:8]}"] if "ref" in how else []
    some = [f"common:{how['utterances_sha256'][:8]}"] if "utterances_sha256" in how else []
    parts = [f"norm:{how.get(KEY, 'none')}", f"utts:{how['utterances']}", *some, f"words:{how['words']}", *ref, *tail]
    parts += ["ci:bootstrap95", f"samples:{how['samples']}", f"seed:{how['seed']}", "test:mapsswe2"]
    return "|".join([how["rate"], *parts, f"version:{how['version']}"])


def flat_rows(comparison: Comparison) -> tuple[list[str], list[list[Any]]]:
    """Heads and values, a system a row, one value a cell: for data frames and CSV."""
    rows = []
    for row in comparison.rows:
        found = json_row(row, comparison.against[0])
        found |= {"ci_low": found["ci"][0], "ci_high": found["ci"][1]}
        found |= {f"p_against_{name}": found["p_values"][name] for name in comparison.against}
        for name in [name for name in found if name.startswith("tail")]:
            found[f"{name}_wer"] = found.pop(name)["wer"]
        rows.append({name: value for name, value in found.items() if name not in ("ci", "p_values", "p_value")})
    heads = list(rows[0])
    return heads, [[row[name] for name in heads] for row in rows]


def to_csv(comparison: Comparison) -> str:
    """Rates in percent, an empty cell where a value makes no sense; the last column is the signature."""
    heads, rows = flat_rows(comparison)
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow([*heads, "signature"])
    writer.writerows([*row, signature(comparison)] for row in rows)
    return stream.getvalue()


def to_latex(comparison: Comparison) -> str:
    """A `tabular` for the package booktabs, below its signature as a comment."""
    heads, lines = cells(comparison)
    ranges = heads.index("95 % interval")
    lines = [[cell.replace("-", "--") if k == ranges else cell for k, cell in enumerate(line)] for line in lines]
    texts = [[cell.translate(_LATEX) for cell in line] for line in (heads, *lines)]
    begins = ("[", "*")  # after a line's end or a rule, LaTeX takes these for an option of it
    body = ["{}" * line[0].startswith(begins) + " & ".join(line) + r" \\" for line in texts]
    shape = "l" + "r" * (len(heads) - 1)
    table = [rf"\begin{{tabular}}{{{shape}}}", r"\toprule", body[0], r"\midrule", *body[1:], r"\bottomrule"]
    return "\n".join([f"% {signature(comparison)}", *table, r"\end{tabular}"]) + "\n"
