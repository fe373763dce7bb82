"""The device that a user names."""

from __future__ import annotations

import torch

from asr.errors import ConfigError


def check_device(name: str) -> torch.device:
    """The device of a name such as `cpu`, `cuda` or `cuda:1`.

    Raises:
      ConfigError: there is no such device, or this torch cannot use it.
    """
    try:
        device = torch.device(name)
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise ConfigError(
            f"device '{name}' cannot be used here ({reason}); expected cpu, or cuda where there is a GPU"
        ) from None
    return device
