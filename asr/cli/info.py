"""`asr info`: the size of a recogniser."""

from __future__ import annotations

import click


@click.command()
@click.argument("name", metavar="CONFIG|MODEL_FOLDER")
def command(name: str) -> None:
    """Count the parameters of a named configuration, of a configuration file or of a trained model, by part.

    \b
    Example: asr info paper-com
    Example: asr info exp/small/model
    """
    from asr.model.parameter_count import config_of, count, lines

    config = config_of(name)
    encoder = config.encoder
    click.echo(
        f"{encoder.layers} layers, dim {encoder.dim}, {encoder.heads} heads, component {encoder.component}, "
        f"{'causal' if encoder.causal else 'offline'}, {config.vocab_size} tokens, {config.decoder} decoder"
    )
    click.echo("\n".join(lines(count(config))))
