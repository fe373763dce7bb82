#!/usr/bin/env python3
"""Train an LM (rescore train-lm) with the settings of conf/transfornn_2.yaml, or --conf FILE."""

from rescore.cli.recipe import main
from rescore.cli.train_lm import command

if __name__ == "__main__":
    main(command, "conf/transfornn_2.yaml")
