"""S4D: a diagonal structured state-space model on each of H series (Gu et al. 2022; Shan et al. 2024, Sec. 2).

Discretised by the zero-order hold (Shan et al., Eq. 1), with A diagonal and tied over the series and B = 1:

    x_k = exp(A dt) x_{k-1} + (exp(A dt) - 1) / A  u_k        y_k = C x_k + D u_k

which is the causal convolution of u with K_k = C exp(A dt)^k (exp(A dt) - 1) / A (Eq. 2), and D u_k.  Where A is
complex, twice the real parts of C x_k and K_k are taken: each state stands for its conjugate too (Gu et al., Sec. 3).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from asr.model.cached_module import Remembering

STEP_RANGE = (0.001, 0.1)  # of the initial step sizes, log-uniform (Gu et al. 2022, Sec. 4.3)


class S4D(Remembering):
    """H one-dimensional S4s of N states each.

    Trained: A (N, tied over the series), C (H, N), D (H) and the step sizes (H); at H = 512, N = 4 that makes 3,076 for
    `real` and 5,128 for `lin`, whose A and C are complex.  The paper's "around 4000" are A, B and C with the fixed B.
    """

    def __init__(self, channels: int, states: int, init: str = "real") -> None:
        """`init`: `real` (S4D-Real, A_n = -(n + 1)) or `lin` (S4D-Lin, A_n = -1/2 + i pi n)."""
        super().__init__()
        self.channels, self.states = channels, states
        self.complex = init == "lin"
        order = torch.arange(states, dtype=torch.float32)
        if self.complex:
            self.log_decay = nn.Parameter(torch.full((states,), math.log(0.5)))
            self.frequency = nn.Parameter(math.pi * order)
            self.readout = nn.Parameter(torch.randn(channels, states, 2) * math.sqrt(0.5))
        else:
            self.log_decay = nn.Parameter(torch.log(order + 1))
            self.readout = nn.Parameter(torch.randn(channels, states))
        self.skip = nn.Parameter(torch.ones(channels))
        low, high = (math.log(bound) for bound in STEP_RANGE)
        self.log_step = nn.Parameter(low + (high - low) * torch.rand(channels))

    def forward(self, inputs: Tensor) -> Tensor:
        """`(B, T, H)` -> `(B, T, H)`, by FFT; in float32 (or float64) whatever autocast says."""
        with torch.autocast(inputs.device.type, enabled=False):
            u = inputs.to(torch.promote_types(inputs.dtype, torch.float32))
            length = u.shape[1]
            size = _fft_size(2 * length - 1)
            kernel = self.remembered("spectrum", length, lambda: torch.fft.rfft(self.kernel(length), n=size))
            spectrum = torch.fft.rfft(u.transpose(1, 2), n=size) * kernel
            y = torch.fft.irfft(spectrum, n=size)[..., :length].transpose(1, 2)
            return y + u * self.skip

    def kernel(self, length: int) -> Tensor:
        """K of Eq. 2 and 3 `(H, length)`, D not in it.

        Of k = a S + b, exp(A dt k) is the product of the powers a S and b: two short tables in place of all `length`.
        """
        rate, weight = self._rates(), self._weights()
        size = math.isqrt(max(length - 1, 0)) + 1
        times = torch.arange(size, device=rate.device, dtype=self.log_step.dtype)
        fine = torch.exp(rate.unsqueeze(-1) * times)  # (H, N, S)
        coarse = torch.exp(rate.unsqueeze(-1) * (size * times[: -(-length // size)]))
        powers = (weight.unsqueeze(-1) * coarse).transpose(1, 2) @ fine
        return self._real(powers).flatten(1)[:, :length]

    def initial(self, batch: int) -> Tensor:
        """The state before the first frame, zeros `(B, H, N)`."""
        dtype = self._rates().dtype
        return torch.zeros(batch, self.channels, self.states, dtype=dtype, device=self.log_step.device)

    def system(self) -> tuple[Tensor, Tensor, Tensor]:
        """What `step` computes with, `(H, N)` each: exp(A dt) - 1, (exp(A dt) - 1) / A, C."""
        rate = self._rates()
        return _expm1(rate), self._inputs(rate), self._readout()

    def step(self, u: Tensor, x: Tensor, system: tuple[Tensor, Tensor, Tensor] | None = None) -> tuple[Tensor, Tensor]:
        """One frame `u` `(B, H)` and the state `(B, H, N)` -> output `(B, H)` and the next state.

        `system`: of `system()`, for who takes many steps.
        """
        change, weight, readout = system or self.system()
        x = x + change * x + weight * u.unsqueeze(-1)  # x + change * x: exp(A dt) near 1 would be rounded
        return self._real((readout * x).sum(-1)) + self.skip * u, x

    def chunk(self, inputs: Tensor, lengths: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        """Some frames at once: inputs `(B, T, H)` of which the first `lengths` `(B,)` count, state `(B, H, N)` before.

        Returns:
          outputs `(B, T, H)` and the state after each stream's `lengths` frames.
        """
        with torch.autocast(inputs.device.type, enabled=False):
            u = inputs.to(self.log_step.dtype)
            frames = u.shape[1]
            powers, readout, weight = self.remembered("powers", frames, lambda: self._powers(frames))
            y = self.forward(u) + self._real((x.unsqueeze(1) * readout).sum(-1))
            ago = lengths.unsqueeze(1) - 1 - torch.arange(frames, device=u.device)  # (B, T): that follow in the chunk
            u = u * (ago >= 0).unsqueeze(-1)
            new = (powers[ago.clamp(min=0)] * (weight * u.unsqueeze(-1))).sum(1)
            return y, powers[lengths] * x + new

    def _powers(self, frames: int) -> tuple[Tensor, Tensor, Tensor]:
        """exp(A dt)^t for t of 0 to `frames` `(frames + 1, H, N)`, C times those from t = 1, and the discrete B."""
        rate = self._rates()
        times = torch.arange(frames + 1, device=rate.device, dtype=self.log_step.dtype)
        powers = torch.exp(rate * times[:, None, None])
        return powers, self._readout() * powers[1:], self._inputs(rate)

    def _rates(self) -> Tensor:
        """A dt `(H, N)`; its real part is negative by -exp."""
        decay = -torch.exp(self.log_decay)
        a = torch.complex(decay, self.frequency) if self.complex else decay
        return torch.exp(self.log_step).unsqueeze(1) * a

    def _inputs(self, rate: Tensor) -> Tensor:
        """The discrete B of Eq. 1 `(H, N)`: (exp(A dt) - 1) / A."""
        return _expm1(rate) * torch.exp(self.log_step).unsqueeze(1) / rate

    def _readout(self) -> Tensor:
        return torch.view_as_complex(self.readout) if self.complex else self.readout

    def _weights(self) -> Tensor:
        return self._readout() * self._inputs(self._rates())

    def _real(self, y: Tensor) -> Tensor:
        """Complex states stand for themselves and their conjugates (Gu et al. 2022, Sec. 3)."""
        return 2 * y.real if self.complex else y


def _expm1(z: Tensor) -> Tensor:
    """exp(z) - 1 without cancellation, for complex numbers too."""
    if not z.is_complex():
        return torch.expm1(z)
    real = torch.expm1(z.real) * torch.cos(z.imag) - 2 * torch.sin(z.imag / 2) ** 2
    return torch.complex(real, torch.exp(z.real) * torch.sin(z.imag))


def _fft_size(least: int) -> int:
    """The smallest 2^a, 3 * 2^a or 5 * 2^a that is not below `least`: such lengths are fast."""
    power = 1 << max(least - 1, 0).bit_length()
    return min(size for size in (power, power * 3 // 4, power * 5 // 8) if size >= least)
