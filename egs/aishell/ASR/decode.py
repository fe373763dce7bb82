#!/usr/bin/env python3
"""Decode a set (asr decode) with the settings of conf/decode.yaml, or --conf FILE."""

from asr.cli.decode import command
from rescore.cli.recipe import main

if __name__ == "__main__":
    main(command, "conf/decode.yaml")
