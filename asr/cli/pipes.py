"""The option `--allow-pipes` of the commands that read manifests."""

from __future__ import annotations

import click

pipes_option = click.option(
    "--allow-pipes",
    is_flag=True,
    help="Run the commands in wav.scp, feats.scp and manifests: whoever wrote these can then run any program here.",
)
