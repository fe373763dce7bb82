"""`rescore lattice oracle`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rescore.cli.lattice.options import text_options
from rescore.cli.outputs import OutputPath
from rescore.cli.results import json_option

if TYPE_CHECKING:
    from rescore.types import Lattice, Words


@click.command()
@text_options
@click.option(
    "--ref",
    required=True,
    type=click.Path(path_type=Path),
    help="References: Kaldi text, recogs, lists, NeMo manifests.",
)
@click.option("--out", type=OutputPath(), help="Write the words of the best paths here, Kaldi text.")
@json_option
def command(ref: Path, out: Path | None, json_file: Path | None, **source: Any) -> None:
    """The path of each lattice with the fewest errors, exactly, and the error rate of these paths.

    Only utterances with a lattice and a reference are counted; how many have not is said.

    \b
    Example: rescore lattice oracle kaldi:exp/tri1/decode --words words.txt --ref text --out oracle.txt
    """
    from rescore.cli.lattice.options import each_normalized
    from rescore.cli.results import show
    from rescore.evaluation.wer import json_counts, kaldi_lines, present_errors
    from rescore.files import read_kaldi_text, write_kaldi_text
    from rescore.lattices.oracle import oracle

    refs = read_kaldi_text(ref)

    def best(lattice: Lattice) -> tuple[str, Words]:
        ref = refs.get(lattice.utt_id)
        return lattice.utt_id, () if ref is None else oracle(lattice, ref).hyp.words

    hyps = dict(each_normalized(best, **source))
    counts, absent = present_errors(refs, hyps)
    show({**json_counts(counts), "absent": absent}, kaldi_lines(counts, absent=absent), json_file)
    if out:
        write_kaldi_text(out, {utt_id: hyp for utt_id, hyp in hyps.items() if utt_id in refs})
