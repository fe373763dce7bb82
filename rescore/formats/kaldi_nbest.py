"""The N-best archives of Kaldi's rescoring scripts (steps/pytorchnn, scripts/rnnlm): folders `archives.JOB`.

Each file of an archive has a line `utt-k value` a hypothesis.  Read are the words (`words_text`) and the costs, which
are negated: `acwt` as `am`, `lmwt.nolm` (graph cost without LM) as `nolm`, `lmwt.lmonly` as `lm`, any other `lmwt.NAME`
as `NAME`, its values summed (`lmwt.nn` may have one a word).  Not read is what follows from these: `lmwt.withlm` (but
without `lmwt.lmonly`, `lm` is `withlm - nolm`), `lmwt.interp.*`, and `lmwt.NAME.sum` where there is `lmwt.NAME`.
Written are `words_text` and the costs; `words` and `ali` would need Kaldi's symbol table and alignments.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import IO

from lm_zoo.reading import kaldi_fields
from rescore.console import remark_on_source
from rescore.errors import FormatError, RescoreError
from rescore.files import atomic_folder, atomic_text
from rescore.formats.common import (
    KeyedFile,
    KeyLine,
    Place,
    UniqueIds,
    join_words,
    make_list,
    of_jobs,
    plain_or_packed,
    read_groups,
    text_score,
)
from rescore.types import Hypothesis, NbestList

_NAMES = {"acwt": "am", "lmwt.lmonly": "lm"}
_FILES = {name: file for file, name in _NAMES.items()}


def _lattices_hint(path: Path, pattern: str) -> str:
    """What to do where lattices are at `path`: itself, or in it, by the names of their files."""
    lattices = next((path if path.is_dir() else path.parent).glob(pattern), None)
    if lattices is None:
        return ""
    return (
        f", but lattices ({lattices.name}); make N-best lists of them: "
        f"rescore lattice nbest kaldi:{path} lists.jsonl.gz --words words.txt"
    )


def read(path: Path, options: Mapping[str, str]) -> Iterator[NbestList]:
    """Reads `archives.1`, `archives.2`, ... of a folder in this order, none missing, or `path` as one of these."""
    if not path.is_dir():
        is_archive = path.name.startswith("lat.") or path.suffix in (".ark", ".scp")
        hint = _lattices_hint(path, path.name) if is_archive else ""
        raise FormatError(path, f"no such folder, expected one with archives.JOB or with words_text{hint}")
    folders = [path] if plain_or_packed(path / "words_text") else of_jobs(path, "archives.{}", r"archives\.(\d+)")
    if not folders:
        raise FormatError(path, f"no archives.JOB and no words_text in this folder{_lattices_hint(path, 'lat.*')}")
    unique = UniqueIds()
    said = set[str]()  # names of files that are not read, which all jobs have
    for folder in folders:
        yield from _read_archive(folder, unique, said)


def _read_archive(folder: Path, unique: UniqueIds, said: set[str]) -> Iterator[NbestList]:
    text = plain_or_packed(folder / "words_text")
    if text is None:
        problem = "no words_text; make it with utils/int2sym.pl -f 2- words.txt < words > words_text"
        raise FormatError(folder, problem)
    costs = _cost_files(folder, said)
    for utt_id, lines in read_groups(text, unique):
        hyps = [_hypothesis(line, rank, costs, text) for rank, line in enumerate(lines, start=1)]
        yield make_list(utt_id, hyps, None, Place(text, lines[0].line, utt_id))
    for file in costs.values():
        file.finish(text)


def _hypothesis(line: KeyLine, rank: int, costs: dict[str, KeyedFile], text: Path) -> Hypothesis:
    utt_id = line.key.rsplit("-", 1)[0]
    scores = {}
    for name, file in costs.items():
        found = file.take(line.key)
        if found is None:
            problem = f"hypothesis {rank} has no score '{name}': key '{line.key}' of {text}:{line.line} is missing"
            raise Place(file.path, utt_id=utt_id).score_error(problem)
        place = Place(file.path, found[0], utt_id)
        values = [text_score(value, name, rank, place) for value in kaldi_fields(found[1]) or [""]]
        scores[name] = -sum(values) + 0.0  # no -0.0
    if "withlm" in scores and "nolm" in scores and "lm" not in scores:
        scores["lm"] = scores.pop("withlm") - scores["nolm"]
    return Hypothesis(tuple(kaldi_fields(line.rest)), scores)


def _cost_files(folder: Path, said: set[str]) -> dict[str, KeyedFile]:
    """Score name -> file, for the files that are to be read; remarks on others that are not `said` yet."""
    found = {file.name.removesuffix(".gz"): file for file in sorted(folder.glob("lmwt.*"))}
    acoustic = plain_or_packed(folder / "acwt")
    if acoustic:
        found = {"acwt": acoustic, **found}
    skipped = [name for name in found if _follows(name, found)]
    if not said.issuperset(skipped):
        remark_on_source(f"{folder}: not read, as they follow from the others: {', '.join(skipped)}")
        said.update(skipped)
    files = {_score_name(name): KeyedFile(file) for name, file in found.items() if name not in skipped}
    if not files:
        raise Place(folder).score_error("no scores: neither acwt nor lmwt.* in this folder")
    return files


def _follows(name: str, found: Mapping[str, Path]) -> bool:
    """Whether the costs in file `name` are the sum or a mixture of those in other files."""
    if name == "lmwt.withlm":
        return "lmwt.lmonly" in found and "lmwt.nolm" in found
    return name.startswith("lmwt.interp.") or (name.endswith(".sum") and name.removesuffix(".sum") in found)


def _score_name(file: str) -> str:
    return _NAMES.get(file, file.removeprefix("lmwt.").removesuffix(".sum"))


def write(path: Path, lists: Iterable[NbestList], options: Mapping[str, str]) -> int:
    """Writes a folder with the one archive `archives.1`; the first list says which scores there are."""
    count = 0
    with atomic_folder(path) as temporary, ExitStack() as stack:
        folder = temporary / "archives.1"
        text = stack.enter_context(atomic_text(folder / "words_text"))
        files: dict[str, IO[str]] = {}
        for nbest in lists:
            place = Place(path, utt_id=nbest.utt_id)
            names = nbest.hyps[0].scores.keys()
            if not count:
                files = {name: stack.enter_context(atomic_text(folder / _file_name(name, path))) for name in names}
            if names != files.keys() or not files:
                raise place.score_error(f"scores {', '.join(names) or 'none'}, expected {', '.join(files) or 'some'}")
            for rank, hyp in enumerate(nbest.hyps, start=1):
                key = f"{nbest.utt_id}-{rank}"
                text.write(f"{key} {join_words(hyp.words, place)}\n")
                for name, file in files.items():
                    file.write(f"{key} {-float(hyp.scores[name])!r}\n")
            count += 1
    return count


def _file_name(name: str, path: Path) -> str:
    file = _FILES.get(name, f"lmwt.{name}")
    readable = _score_name(file) == name and not file.endswith(".gz") and file not in ("lmwt.withlm", "lmwt.interp")
    if not readable or name.startswith("interp.") or kaldi_fields(name) != [name] or "/" in name:
        raise RescoreError(f"{path}: a score cannot be called '{name}' in this format; call it otherwise")
    return file
