"""`rescore lattice oracle`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rescore.cli.lattice.options import text_options
from rescore.cli.normalise import cer_option
from rescore.cli.once import Once
from rescore.cli.outputs import OutputPath
from rescore.cli.results import json_option

if TYPE_CHECKING:
    from rescore.types import Lattice, Words


@click.command()
@text_options
@click.option(
    "--ref",
    cls=Once,
    required=True,
    type=click.Path(path_type=Path),
    help="References: Kaldi text, recogs, lists, manifests of NeMo or lhotse.",
)
@cer_option
@click.option(
    "--out", type=OutputPath(), help="Write the words of the best paths here, Kaldi text; with --cer their characters."
)
@json_option
def command(ref: Path, cer: bool, out: Path | None, json_file: Path | None, **source: Any) -> None:
    """The path of each lattice with the fewest errors, exactly, and the error rate of these paths.

    Only utterances with a lattice and a reference are counted; how many have not is said.  With --cer, it is the path
    with the fewest wrong characters.

    \b
    Example: rescore lattice oracle kaldi:exp/tri1/decode --words words.txt --ref text --out oracle.txt
    Example: rescore lattice oracle kaldi:exp/chain/decode_test --words words.txt --ref text --cer
    """
    from rescore.cli.lattice.errors import counted_in, show_errors
    from rescore.cli.lattice.options import each_normalized
    from rescore.files import read_kaldi_text, write_kaldi_text
    from rescore.lattices.oracle import as_characters, oracle

    normaliser = counted_in(ref, cer)
    refs = normaliser.texts(read_kaldi_text(ref))

    def best(lattice: Lattice) -> tuple[str, Words]:
        ref = refs.get(lattice.utt_id)
        return lattice.utt_id, () if ref is None else oracle(as_characters(lattice) if cer else lattice, ref).hyp.words

    hyps = dict(each_normalized(best, **source))
    show_errors(refs, hyps, normaliser, json_file)
    if out:
        write_kaldi_text(out, {utt_id: hyp for utt_id, hyp in hyps.items() if utt_id in refs})
