"""`rescore icefall-decode`."""

from __future__ import annotations

from pathlib import Path

import click

from rescore.cli.outputs import OutputPath


@click.command("icefall-decode", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option(
    "--zoo-lm", is_flag=True, help="LMs come from the zoo: --lm-exp-dir of SCRIPT is a model folder or a name."
)
@click.option(
    "--lattices", type=OutputPath(folder=True), help="Keep the lattices in DIR/SET, to be read as k2:DIR/SET."
)
@click.argument("script", type=click.Path(path_type=Path))
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def command(zoo_lm: bool, lattices: Path | None, script: Path, arguments: tuple[str, ...]) -> None:
    """Run SCRIPT, the decode.py of an icefall recipe, with its own ARGUMENTS, and nothing in icefall edited.

    \b
    Example: rescore icefall-decode --lattices exp/lattices zipformer/decode.py --epoch 30 --avg 15 \\
               --exp-dir zipformer/exp --decoding-method fast_beam_search
    Example: rescore icefall-decode --zoo-lm zipformer/decode.py --epoch 30 --avg 15 --exp-dir zipformer/exp \\
               --decoding-method modified_beam_search_lm_shallow_fusion --use-shallow-fusion 1 \\
               --lm-exp-dir exp/transfornn --lm-scale 0.3
    """
    from rescore.workflows.icefall_decode import run_script

    scorer: type | None = None
    if zoo_lm:
        from lm_zoo.icefall.lm_scorer import LmScorer

        scorer = LmScorer
    run_script(script, list(arguments), scorer, lattices)
