"""`python -m asr`: the command `asr`."""

from asr.cli.main import main

main()
