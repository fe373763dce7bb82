"""The option `--set` of the commands that take a configuration."""

from __future__ import annotations

import click

settings_option = click.option(
    "--set",
    "changes",
    multiple=True,
    metavar="NAME=VALUE",
    help="A value in place of the configuration's, e.g. encoder.s4_dim=4; may be repeated.",
)
