"""Work that says that it has begun, and then takes a minute; light to import, as each worker does."""

from __future__ import annotations

import os
import time


def work() -> None:
    os.write(1, b"ready\n")
    time.sleep(60)
