"""A zoo of language models for rescoring: one protocol, one training loop, one folder format."""

import os

KERNELS = 128  # that oneDNN and torch each keep, up to 600 KB each, one for each shape of a product; else 1,024

for _capacity in ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY"):  # read at the first product of a process
    os.environ.setdefault(_capacity, str(KERNELS))
