"""`asr info`: the size of a recogniser."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from asr.cli.settings import settings_option
from rescore.cli.results import json_option


@click.command()
@click.argument("name", metavar="CONFIG|MODEL_FOLDER")
@settings_option
@json_option
def command(name: str, changes: tuple[str, ...], json_file: Path | None) -> None:
    """Count the parameters of a named configuration, of a configuration file or of a trained model, by part.

    \b
    Example: asr info paper-com --set encoder.s4_dim=4
    Example: asr info exp/small/model
    """
    from asr.model.parameter_count import config_of, count, lines
    from rescore.cli.results import show
    from rescore.cli.settings import parse_settings

    config = config_of(name).with_settings(parse_settings(changes))
    encoder = config.encoder
    sizes = count(config)
    first = (
        f"{encoder.layers} layers, dim {encoder.dim}, {encoder.heads} heads, component {encoder.component}, "
        f"{'causal' if encoder.causal else 'offline'}, {config.vocab_size} tokens, {config.decoder} decoder"
    )
    show({"config": asdict(config), "parameters": sizes}, [first, *lines(sizes)], json_file)
