"""Every reader with a small valid input: what `tests.faults.fuzz` damages."""

from __future__ import annotations

from tests.faults.damage import Target
from tests.faults.readers.lattices import LATTICE_TARGETS
from tests.faults.readers.lists import LIST_TARGETS
from tests.faults.readers.lms import LM_TARGETS
from tests.faults.readers.recognisers import ASR_TARGETS
from tests.faults.readers.texts import TEXT_TARGETS

TARGETS: list[Target] = [*LIST_TARGETS, *LATTICE_TARGETS, *TEXT_TARGETS, *LM_TARGETS, *ASR_TARGETS]
