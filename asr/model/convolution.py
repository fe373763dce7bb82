"""The convolution module of the Conformer and the component in it (Shan et al. 2024, Fig. 1)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from asr.model.cached_module import Remembering
from asr.model.config import EncoderConfig
from asr.model.masks import window
from asr.model.s4 import S4D

State = tuple[Tensor, ...]  # what a component remembers of the frames before, batch first


class Depthwise(nn.Module):
    """A convolution of each channel by itself."""

    def __init__(self, channels: int, kernel: int, causal: bool) -> None:
        super().__init__()
        self.future = 0 if causal else (kernel - 1) // 2
        self.past = kernel - 1 - self.future
        conv = nn.Conv1d(channels, channels, kernel, groups=channels)  # for its initialisation
        self.weight, self.bias = conv.weight, conv.bias

    def forward(self, x: Tensor) -> Tensor:
        """`(B, T, H)`, zero in the padding -> `(B, T, H)`."""
        return depthwise(F.pad(x, (0, 0, self.past, self.future)), self.weight, self.bias)

    def initial(self, batch: int) -> Tensor:
        """The padding before the first frame, `(B, K - 1, H)`."""
        return self.weight.new_zeros(batch, self.past, len(self.weight))

    def step(self, x: Tensor, lengths: Tensor, past: Tensor) -> tuple[Tensor, Tensor]:
        """x `(B, C, H)` of which the first `lengths` `(B,)` count, behind `past` -> `(B, C, H)` and the next past."""
        joined = torch.cat([past, x], dim=1)
        return depthwise(joined, self.weight, self.bias), window(joined, lengths, self.past)


def depthwise(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """x `(B, T + K - 1, H)`, weight `(H, 1, K)`, bias `(H,)` -> `(B, T, H)`."""
    x, weight = x.transpose(1, 2).unsqueeze(-1), weight.unsqueeze(-1)  # in 2-D, as that is faster on a CPU
    return F.conv2d(x, weight, bias, groups=len(weight)).squeeze(-1).transpose(1, 2)


class Component(nn.Module):
    """What stands between the GLU and the BN, on `(B, T, H)` that is zero in the padding."""

    def forward(self, x: Tensor) -> Tensor:
        """`(B, T, H)` -> `(B, T, H)`."""
        raise NotImplementedError

    def initial(self, batch: int) -> State:
        """What `step` remembers before the first frame."""
        raise NotImplementedError

    def step(self, x: Tensor, lengths: Tensor, state: State) -> tuple[Tensor, State]:
        """The causal component on `(B, C, H)`, of which the first `lengths` `(B,)` count, behind `state`."""
        raise NotImplementedError


class Convolution(Component):
    """`conv`: the Conformer's depth-wise convolution alone."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.conv = Depthwise(config.dim, config.kernel, config.causal)

    def forward(self, x: Tensor) -> Tensor:
        return self.conv(x)

    def initial(self, batch: int) -> State:
        return (self.conv.initial(batch),)

    def step(self, x: Tensor, lengths: Tensor, state: State) -> tuple[Tensor, State]:
        y, past = self.conv.step(x, lengths, state[0])
        return y, (past,)


class DropIn(Component):
    """`dir`: an S4 in place of the convolution."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.s4 = S4D(config.dim, config.s4_dim, config.s4_init)

    def forward(self, x: Tensor) -> Tensor:
        return self.s4(x)

    def initial(self, batch: int) -> State:
        return (self.s4.initial(batch),)

    def step(self, x: Tensor, lengths: Tensor, state: State) -> tuple[Tensor, State]:
        y, memory = self.s4.chunk(x, lengths, state[0])
        return y, (memory,)


class Combination(Component):
    """`com`: a local convolution, then an S4."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.conv = Depthwise(config.dim, config.kernel, config.causal)
        self.s4 = S4D(config.dim, config.s4_dim, config.s4_init)

    def forward(self, x: Tensor) -> Tensor:
        return self.s4(self.conv(x))

    def initial(self, batch: int) -> State:
        return (self.conv.initial(batch), self.s4.initial(batch))

    def step(self, x: Tensor, lengths: Tensor, state: State) -> tuple[Tensor, State]:
        y, past = self.conv.step(x, lengths, state[0])
        y, memory = self.s4.chunk(y, lengths, state[1])
        return y, (past, memory)


class Reparameterisation(Remembering, Component):
    """`rep`: a convolution to the left whose kernel is the first L steps of an S4 (Eq. 3), with D on the newest frame.

    In evaluation the kernel is made once.
    """

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.length = config.kernel
        self.s4 = S4D(config.dim, config.s4_dim, config.s4_init)

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast(x.device.type, enabled=False):
            x = x.to(torch.promote_types(x.dtype, torch.float32))
            return depthwise(F.pad(x, (0, 0, self.length - 1, 0)), self.weight(), None)

    def initial(self, batch: int) -> State:
        return (self.s4.skip.new_zeros(batch, self.length - 1, len(self.s4.skip)),)

    def step(self, x: Tensor, lengths: Tensor, state: State) -> tuple[Tensor, State]:
        joined = torch.cat([state[0], x], dim=1)
        return depthwise(joined, self.weight(), None), (window(joined, lengths, self.length - 1),)

    def weight(self) -> Tensor:
        """`(H, 1, L)`, the newest frame last."""
        return self.remembered("weight", None, self._weight)

    def _weight(self) -> Tensor:
        kernel = self.s4.kernel(self.length)
        kernel = torch.cat([kernel[:, :1] + self.s4.skip.unsqueeze(1), kernel[:, 1:]], dim=1)
        return kernel.flip(1).unsqueeze(1)


COMPONENTS = {"conv": Convolution, "dir": DropIn, "com": Combination, "rep": Reparameterisation}


class MaskedBatchNorm(Remembering, nn.BatchNorm1d):
    """Batch normalisation over the frames that are no padding, of all processes of a distributed run."""

    weight: nn.Parameter
    bias: nn.Parameter
    running_mean: Tensor
    running_var: Tensor
    num_batches_tracked: Tensor

    def forward(self, x: Tensor, inside: Tensor) -> Tensor:  # type: ignore[override]
        """x `(B, T, H)`, inside bool `(B, T)` -> float32 `(B, T, H)`, zero in the padding where training."""
        rows = inside.flatten().nonzero().squeeze(1) if self.training else None
        distributed = torch.distributed.is_available() and torch.distributed.is_initialized()
        if rows is None or (len(rows) < 2 and not distributed):  # one frame has no variance
            return self.running(x)
        flat = x.flatten(0, 1).to(torch.promote_types(x.dtype, torch.float32))
        self.num_batches_tracked += 1
        if distributed:
            valid = self._of_all_processes(flat[rows])
        else:
            mean, var = self.running_mean, self.running_var
            valid = F.batch_norm(flat[rows], mean, var, self.weight, self.bias, True, self.momentum or 0.0, self.eps)
        return torch.zeros_like(flat).index_copy(0, rows, valid).view(x.shape)

    def _of_all_processes(self, x: Tensor) -> Tensor:
        """`F.batch_norm` of x `(N, H)`, with the mean and the variance of every process's frames.

        The sums are those of distances from the running mean, which lose no digits to a large mean.
        """
        from torch.distributed.nn.functional import all_reduce

        x = x - self.running_mean
        mine = torch.cat([x.sum(0), x.square().sum(0), x.new_tensor([len(x)])])
        total, squares, count = all_reduce(mine).split([x.shape[1], x.shape[1], 1])
        mean = total / count
        var = (squares / count - mean.square()).clamp(min=0.0)
        with torch.no_grad():
            momentum = self.momentum or 0.0
            self.running_mean += momentum * mean
            self.running_var.lerp_(var * count / (count - 1).clamp(min=1), momentum)
        return (x - mean) * torch.rsqrt(var + self.eps) * self.weight + self.bias

    def running(self, x: Tensor) -> Tensor:
        """x `(..., H)`, normalised by the running mean and variance, float32."""
        scale, shift = self.remembered("line", None, self._line)
        return x.to(scale.dtype) * scale + shift

    def _line(self) -> tuple[Tensor, Tensor]:
        scale = self.weight * torch.rsqrt(self.running_var + self.eps)
        return scale, self.bias - self.running_mean * scale


class ConvolutionModule(nn.Module):
    """LN, pointwise convolution and GLU, the component, BN, Swish, pointwise convolution (Fig. 1)."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(config.dim)
        self.pointwise1 = nn.Linear(config.dim, 2 * config.dim)
        self.component: Component = COMPONENTS[config.component](config)
        self.batch_norm = MaskedBatchNorm(config.dim)
        self.pointwise2 = nn.Linear(config.dim, config.dim)

    def forward(self, x: Tensor, inside: Tensor) -> Tensor:
        """x `(B, T, H)`, inside bool `(B, T)` -> `(B, T, H)`."""
        x = F.glu(self.pointwise1(self.norm(x)), dim=-1) * inside.unsqueeze(-1)
        return self.pointwise2(F.silu(self.batch_norm(self.component(x), inside)))

    def step(self, x: Tensor, lengths: Tensor, state: State) -> tuple[Tensor, State]:
        """Some frames more `(B, C, H)`, of which the first `lengths` `(B,)` count -> `(B, C, H)` and the next state."""
        x = F.glu(self.pointwise1(self.norm(x)), dim=-1)
        x, state = self.component.step(x, lengths, state)
        return self.pointwise2(F.silu(self.batch_norm.running(x))), state
