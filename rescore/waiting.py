"""How torch's threads wait for each other; needs no torch."""

import os

SPINS = "1000"  # of a waiting OpenMP thread before it sleeps; GNU has 300,000


def sleep_early() -> None:
    """Makes torch's threads sleep soon when they wait for each other, where the user has not said how they wait.

    Where other work holds a core, a thread that spins keeps the one waited for from running: scoring takes ten times as
    long (BENCHMARKS.md).  GNU's OpenMP, that of torch's wheels on Linux, reads it when it is loaded: call this before
    torch is imported.
    """
    if not {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT"} & os.environ.keys():
        os.environ["GOMP_SPINCOUNT"] = SPINS
