"""`python -m rescore`: the command `rescore`."""

from rescore.cli.main import main

main()
