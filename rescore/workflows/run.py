"""The whole of `rescore run`: a plan of commands, each done once for the input that it has.

OUT/ref/{dev,test}.txt          the references of the utterances that are there
OUT/lists/{dev,test}.jsonl.gz   of lattices: their N best
OUT/{dev,test}/                 scores by name (`rescore nbest`)
OUT/weights/SYSTEM.json         scales (`rescore tune`)
OUT/test/SYSTEM/                decisions (`rescore combine`)
OUT/table.json                  the comparison (`rescore compare`)
OUT/run.json                    systems, the one decided for, where it ran, and for each step its command and input
"""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lm_zoo.identity import content, lm_identity
from lm_zoo.reading import read_json
from lm_zoo.text.coverage import MOST_UNKNOWN
from rescore import __version__
from rescore.console import remark
from rescore.errors import UsageError
from rescore.files import atomic_text, write_kaldi_text
from rescore.formats import is_lattice, source_identity
from rescore.weights import NGRAM, load_weights
from rescore.workflows.columns import column_of
from rescore.workflows.combine import SCORES_FILE
from rescore.workflows.normalising import Normaliser
from rescore.workflows.run_checks import PartOfRun, check_lms, check_part, read_references, say_unused

RUN_FILE, TABLE_FILE, REPORT_FILE = "run.json", "table.json", "report.html"
REPORT_STEP = "report"
FIRST, TUNED, ALL = "first-pass", "tuned", "all"
PARTS = ("dev", "test")


@dataclass(frozen=True)
class Run:
    """What is asked for; see `rescore run`."""

    dev: str
    test: str
    refs: Sequence[Path]
    ngram: str | None
    lms: Sequence[str]
    n: int
    dtype: str
    device: str
    max_unknown: float
    normalise: str | None
    seed: int
    out: Path
    common: bool = False
    cer: bool = False

    def source(self, part: str) -> str:
        return self.dev if part == "dev" else self.test

    @property
    def baseline(self) -> str:
        """The system without the LMs that each LM is compared with."""
        return TUNED if self.ngram is None else NGRAM


@dataclass(frozen=True)
class Step:
    """One command.

    Attributes:
      reads: what it reads, `[FORMAT:]PATH` or files.
      lms: the LMs that it loads.
      writes: the file that is there when it is done.
      shows: what else goes into what it writes.
    """

    name: str
    arguments: list[str]
    reads: list[str]
    writes: Path
    lms: Sequence[str] = ()
    shows: Sequence[str] = ()

    def identity(self) -> str:
        """Changes when the command, what it reads, or the version does."""
        read = [content([Path(spec)]) if Path(spec).is_file() else source_identity(spec) for spec in self.reads]
        return content([], [__version__, *self.arguments, *read, *map(lm_identity, self.lms), *self.shows])


@dataclass
class Manifest:
    """`OUT/run.json`; see the module's description."""

    path: Path
    made: dict[str, Any]
    steps: dict[str, dict[str, str]] = field(default_factory=dict)

    def write(self, **more: Any) -> None:
        self.made |= more
        with atomic_text(self.path) as stream:
            found = {"version": __version__, **self.made, "steps": self.steps}
            stream.write(json.dumps(found, indent=2, ensure_ascii=False) + "\n")


def execute(run: Run, do: Callable[[list[str]], None]) -> str:
    """Checks everything, then does the steps by `do`, which gets the arguments of a command.

    Returns:
      a line on the system that was decided for.
    Raises:
      RescoreError, LMError: what is missing or does not fit, before anything is computed; or the error of a step.
    """
    _check_names(run)
    refs, normaliser = read_references(run.refs), Normaliser(run.normalise or "none", run.cer)
    checked = {part: check_part(run.source(part), part, refs, normaliser, run.common) for part in PARTS}
    say_unused(refs, checked)
    new = check_lms(run.lms, run.ngram, checked, run.max_unknown)
    remark(f"checked: {', '.join(f'{len(each.refs)} utterances of {part}' for part, each in checked.items())}")
    for part, each in checked.items():
        write_kaldi_text(run.out / "ref" / f"{part}.txt", each.refs)
    manifest = _manifest(run, checked, new)
    steps = plan(run, new)
    names = [*(step.name for step in steps), REPORT_STEP]
    manifest.steps = {name: manifest.steps[name] for name in names if name in manifest.steps}
    for step in steps:
        _do(step, manifest, do)
    chosen, line = decide(run, list(systems(run, new)))
    manifest.write(chosen=chosen)
    _do(_report_step(run, list(systems(run, new)), manifest), manifest, do)
    return line


def _manifest(run: Run, checked: dict[str, PartOfRun], new: dict[str, list[str]]) -> Manifest:
    path = run.out / RUN_FILE
    made = {
        "folder": os.getcwd(),
        "dev": run.dev,
        "test": run.test,
        "refs": [str(path) for path in run.refs],
        "lms": {column_of(name)[0]: column_of(name)[1] for name in run.lms},
        "ngram": run.ngram,
        "normalise": run.normalise or "none",
        "columns": [*checked["dev"].columns, *(column for columns in new.values() for column in columns)],
        "baseline": run.baseline,
        "systems": list(systems(run, new)),
    }
    try:
        steps = {name: dict(step) for name, step in read_json(path)["steps"].items()}
    except (FileNotFoundError, ValueError, LookupError, TypeError, AttributeError):
        steps = {}  # all are done again
    return Manifest(path, made, steps)


def _do(step: Step, manifest: Manifest, do: Callable[[list[str]], None]) -> None:
    """Does a step unless it was done for the same input."""
    identity = step.identity()
    if step.writes.exists() and manifest.steps.get(step.name, {}).get("input") == identity:
        remark(f"{step.name}: done already, {step.writes} is there")
        return
    if step.name in manifest.steps:  # until it is done, what is there may be of either input
        manifest.steps[step.name]["input"] = ""
        manifest.write()
    do(step.arguments)
    manifest.steps[step.name] = {"command": shlex.join(["rescore", *step.arguments]), "input": identity}
    manifest.write()


def _check_names(run: Run) -> None:
    columns = [column_of(name)[0] for name in run.lms]
    for column in columns:
        if column in (FIRST, TUNED, ALL, NGRAM):
            raise UsageError(f"'{column}' is the name of a system of every run; name the LM: --lm NEWNAME=NAME|DIR")
        if column.startswith("-"):
            raise UsageError(f"the column '{column}' reads as an option; name the LM: --lm NEWNAME=NAME|DIR")
        if "=" in column:
            raise UsageError(f"the column '{column}' has a '=', which ends names; name the LM: --lm NEWNAME=NAME|DIR")
        if columns.count(column) > 1:
            raise UsageError(f"two LMs would write the column '{column}'; name one of them: --lm NEWNAME=FOLDER")


def systems(run: Run, new: dict[str, list[str]]) -> dict[str, list[str]]:
    """System -> the columns whose scales are held at 0; all but `first-pass`.

    Args:
      new: LM (or `ngram`) -> the columns that it writes.
    """

    def without(*kept: str) -> list[str]:
        return [column for lm, columns in new.items() if lm not in kept for column in columns]

    lms = [lm for lm in new if lm != NGRAM]
    found = {TUNED: without()}
    if NGRAM in new:
        found[NGRAM] = without(NGRAM)
    found |= {lm: without(NGRAM, lm) for lm in lms}
    return found | ({ALL: []} if len(lms) > 1 else {})


def plan(run: Run, new: dict[str, list[str]]) -> list[Step]:
    """The steps in their order, the report apart."""
    steps = []
    for part in PARTS:
        steps += _list_steps(run, part)
    for name, held in systems(run, new).items():
        steps += [_tune_step(run, name, held), _combine_step(run, name)]
    return [*steps, _compare_step(run, list(systems(run, new)))]


def _list_steps(run: Run, part: str) -> list[Step]:
    """Lattices to lists, and the scores of the LMs."""
    source, ngram, steps = run.source(part), run.ngram, []
    unknown = ["--max-unknown", str(run.max_unknown)] if run.max_unknown != MOST_UNKNOWN else []
    if is_lattice(source):
        lists = run.out / "lists" / f"{part}.jsonl.gz"
        lm = [] if ngram is None else ["--ngram", ngram, *unknown]
        arguments = ["convert", source, str(lists), "-n", str(run.n), *lm]
        steps.append(Step(f"lists of {part}", arguments, [source], lists, [] if ngram is None else [ngram]))
        source, ngram = str(lists), None
    arguments = ["nbest", "--nbest", source]
    for name in run.lms:
        arguments += ["--lm", name]
    arguments += [] if ngram is None else ["--ngram", ngram]
    arguments += ["--dtype", run.dtype] if run.dtype != "float32" else []
    arguments += ["--device", run.device] if run.device != "cpu" else []
    arguments += [*unknown, "--reuse", "--out", str(run.out / part)]
    lms = [column_of(name)[1] for name in run.lms] + ([] if ngram is None else [ngram])
    return [*steps, Step(f"scores of {part}", arguments, [source], run.out / part / SCORES_FILE, lms)]


def _tune_step(run: Run, name: str, held: list[str]) -> Step:
    ref, weights = run.out / "ref" / "dev.txt", run.out / "weights" / f"{name}.json"
    arguments = ["tune", "--scores", str(run.out / "dev"), "--ref", str(ref), "--seed", str(run.seed)]
    for column in held:
        arguments += ["--fix", f"{column}=0"]
    arguments += _as_asked(run)
    reads = [str(run.out / "dev" / SCORES_FILE), str(ref)]
    return Step(f"scales of {name}", [*arguments, "--out", str(weights)], reads, weights)


def _as_asked(run: Run) -> list[str]:
    """The options of the run that go to every command with references."""
    form = [*(["--cer"] if run.cer else []), *(["--normalise", run.normalise] if run.normalise else [])]
    return [*form, *(["--utterances", "common"] if run.common else [])]


def _combine_step(run: Run, name: str) -> Step:
    weights, out = run.out / "weights" / f"{name}.json", run.out / "test" / name
    arguments = ["combine", "--scores", str(run.out / "test"), "--weights", str(weights), "--out", str(out)]
    return Step(
        f"decisions of {name}", arguments, [str(run.out / "test" / SCORES_FILE), str(weights)], out / "1best.txt"
    )


def _compare_step(run: Run, names: list[str]) -> Step:
    ref, table = run.out / "ref" / "test.txt", run.out / TABLE_FILE
    first = f"jsonl:{run.out / 'test' / SCORES_FILE}"
    arguments = ["compare", "--ref", str(ref), "--seed", str(run.seed), "--json", str(table)]
    arguments += [word for name in dict.fromkeys([TUNED, run.baseline]) for word in ("--against", name)]
    arguments += _as_asked(run)
    arguments += [f"{FIRST}={first}", *(f"{name}={run.out / 'test' / name}" for name in names)]
    reads = [str(ref), first, *(str(run.out / "test" / name / "1best.txt") for name in names)]
    return Step("comparison", arguments, reads, table)


def _report_step(run: Run, names: list[str], manifest: Manifest) -> Step:
    """The page shows scores, references and weights besides the table, and what `run.json` says."""
    page = run.out / REPORT_FILE
    reads = [run.out / TABLE_FILE, *(run.out / "weights" / f"{name}.json" for name in names)]
    reads += [file for part in PARTS for file in (run.out / "ref" / f"{part}.txt", run.out / part / SCORES_FILE)]
    commands = [step["command"] for name, step in manifest.steps.items() if name != REPORT_STEP]
    arguments = ["report", str(run.out), "--out", str(page)]
    return Step(REPORT_STEP, arguments, [*map(str, reads)], page, shows=[json.dumps(manifest.made), *commands])


def decide(run: Run, names: Sequence[str]) -> tuple[str, str]:
    """The system with the lowest rate on dev, cross-validated where it can be, the first of equals; a line on it."""
    infos = {name: load_weights(run.out / "weights" / f"{name}.json").info for name in names}
    rates = {name: info["wer"] if info["cv_wer"] is None else info["cv_wer"] for name, info in infos.items()}
    chosen = min(names, key=rates.__getitem__)
    rate = f"{Normaliser(cer=run.cer).rate} {rates[chosen]:.2f} %"
    without = f"{run.baseline} {rates[run.baseline]:.2f} %"
    return chosen, f"decided on dev: {chosen} ({rate}, {without}); {run.out / REPORT_FILE}"
