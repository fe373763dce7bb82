#!/usr/bin/env python3
"""Train the recogniser (asr train) with the settings of conf/train.yaml, or --conf FILE."""

from asr.cli.train import command
from rescore.cli.recipe import main

if __name__ == "__main__":
    main(command, "conf/train.yaml")
