"""The XReg training step as a PyTorch user writes it: an eager loop, `torch.fft.rfft`, two Adams.

The same work as the default of crossreg: batch, samples, width, modes, five sites with one σ and one ε per channel, the
three heads, log-mean-exp on train, the scaled CRPS of distinct samples on reg. `weights_of` reads a crossreg model, so
that a benchmark can show that both compute the same function.
"""

import math
from collections.abc import Callable

import numpy as np
import torch
from torch import nn

from crossreg.config import Config
from crossreg.nn.surrogate import Surrogate

_SQRT_2PI = math.sqrt(2 * math.pi)


class SpectralConv1d(nn.Module):
    """The lowest modes times complex weights."""

    def __init__(self, channels: int, modes: int):
        super().__init__()
        self.modes = modes
        self.weight = nn.Parameter(torch.randn(channels, channels, modes, dtype=torch.cfloat) / channels**2)

    def forward(self, h: torch.Tensor) -> torch.Tensor:
        kept = torch.fft.rfft(h)[..., : self.modes]
        mixed = torch.einsum("bik,oik->bok", kept, self.weight)
        return torch.fft.irfft(mixed, n=h.shape[-1])


class NoisyFNO(nn.Module):
    """FNO in one dimension, with multiplicative noise sites: ε per channel, or per element."""

    dims = 1

    def __init__(self, config: Config, in_channels: int = 1, out_channels: int = 1):
        super().__init__()
        model = config.model
        width, blocks = model.width, model.num_blocks
        self.element = model.epsilon_per == "element"
        head = nn.Conv1d if self.dims == 1 else nn.Conv2d
        self.lift = nn.Conv1d(in_channels, width, 1)
        self.spectral = nn.ModuleList(SpectralConv1d(width, model.num_modes) for _ in range(blocks))
        self.pointwise = nn.ModuleList(nn.Conv1d(width, width, 1) for _ in range(blocks))
        self.mean, self.log_pred, self.log_gen = (head(width, out_channels, 1) for _ in range(3))
        ones = (1,) * self.dims
        self.log_sigma = nn.ParameterList(nn.Parameter(torch.full((width, *ones), -5.0)) for _ in range(blocks + 1))

    def rho(self) -> list[nn.Parameter]:
        return [*self.log_sigma.parameters(), *self.log_gen.parameters()]

    def theta_psi(self) -> list[nn.Parameter]:
        owned = {id(p) for p in self.rho()}
        return [p for p in self.parameters() if id(p) not in owned]

    def _noise(self, h: torch.Tensor, site: int, scale: float) -> torch.Tensor:
        shape = h.shape if self.element else (*h.shape[:2], *(1,) * self.dims)
        return h * (1 + scale * self.log_sigma[site].exp() * torch.randn(shape, device=h.device))

    def forward(self, x: torch.Tensor, samples: int, scale: float = 1.0) -> tuple[torch.Tensor, ...]:
        """Mean, log σ_pred and log σ_gen, each (sample, batch, channel, x)."""
        h = self.lift(x.repeat(samples, 1, 1))
        last = len(self.spectral) - 1
        for i, (spectral, pointwise) in enumerate(zip(self.spectral, self.pointwise, strict=True)):
            h = spectral(h) + pointwise(h)
            if i == last:
                h = self._noise(h, i, scale)
            h = nn.functional.gelu(h, approximate="tanh")
            h = self._noise(h, i + (i == last), scale)
        heads = self.mean(h), self.log_pred(h), self.log_gen(h.detach())
        return tuple(head.unflatten(0, (samples, x.shape[0])) for head in heads)


def train_loss(mean, log_pred, log_gen, y) -> torch.Tensor:
    pred, gen = (2 * log_pred).exp(), (2 * log_gen).exp().detach()
    log_p = -0.5 * (math.log(2 * math.pi) + 2 * log_pred + ((y - mean) ** 2 + gen) / pred)
    return (math.log(mean.shape[0]) - log_p.logsumexp(0)).mean()


def _mean_absolute(difference, variance) -> torch.Tensor:
    sigma = variance.sqrt()
    z = difference / sigma
    return 2 * sigma * (-0.5 * z**2).exp() / _SQRT_2PI + difference * torch.erf(z / math.sqrt(2))


def reg_loss(mean, log_pred, log_gen, y) -> torch.Tensor:
    variance = (2 * log_pred).exp() + (2 * log_gen).exp()
    samples = mean.shape[0]
    to_truth = _mean_absolute(y - mean, variance).mean(0)
    i, j = torch.triu_indices(samples, samples, 1, device=mean.device)
    within = _mean_absolute(mean[i] - mean[j], variance[i] + variance[j]).mean(0)
    return (to_truth / within + 0.5 * within.log()).mean()


def make_steps(
    config: Config,
    x: np.ndarray,
    y: np.ndarray,
    *,
    at: np.ndarray | None = None,
    device: str = "cpu",
    compiled: bool = False,
    network: type[NoisyFNO] = NoisyFNO,
) -> Callable[[int], float]:
    """A function that runs so many steps of Algorithm 1 on pairs (x, y) and returns the last loss, synchronised.

    With `at`, y stands at these points of the grid.
    """
    torch.manual_seed(0)
    model = network(config, x.shape[1], y.shape[1]).to(device)
    run = torch.compile(model) if compiled else model
    train, samples = config.train, config.train.num_samples
    psi = torch.optim.Adam(model.theta_psi(), lr=train.learning_rate)
    rho = torch.optim.Adam(model.rho(), lr=train.site_learning_rate)
    inputs, targets = (torch.as_tensor(np.array(a), device=device) for a in (x, y))
    points = None if at is None else torch.as_tensor(np.array(at), device=device, dtype=torch.int64)
    done = 0

    def heads_and_targets():
        index = torch.randint(len(inputs), (train.batch_size,), device=device)
        heads = run(inputs[index], samples)
        if points is not None:
            where = points[index][None, :, None].expand(samples, -1, targets.shape[1], -1)
            heads = tuple(head.flatten(3).gather(-1, where) for head in heads)
        return *heads, targets[index]

    def steps(count: int) -> float:
        nonlocal done
        loss = torch.zeros(())
        for _ in range(count):
            loss = train_loss(*heads_and_targets())
            psi.zero_grad()
            for parameter, gradient in zip(
                model.theta_psi(), torch.autograd.grad(loss, model.theta_psi()), strict=True
            ):
                parameter.grad = gradient
            psi.step()
            done += 1
            if done % train.k_reg == 0:
                gradients = torch.autograd.grad(reg_loss(*heads_and_targets()), model.rho())
                for parameter, gradient in zip(model.rho(), gradients, strict=True):
                    parameter.grad = gradient
                rho.step()
        return float(loss.detach())  # waits for the device

    return steps


def weights_of(model: NoisyFNO, ours: Surrogate) -> None:
    """Copies the weights of a crossreg FNO, bounds of log σ aside."""
    blocks = [stage for stage in ours.stages if hasattr(stage, "spectral")]
    lift = ours.stages[0]
    pairs = [(model.lift, lift), (model.mean, ours.heads.mean), (model.log_pred, ours.heads.sigma_pred.linear)]
    pairs += [(theirs, block.pointwise) for theirs, block in zip(model.pointwise, blocks, strict=True)]
    with torch.no_grad():
        for theirs, mine in pairs:
            theirs.weight.copy_(torch.as_tensor(np.array(mine.weight))[..., None])
            theirs.bias.copy_(torch.as_tensor(np.array(mine.bias)).reshape(-1))
        for theirs, block in zip(model.spectral, blocks, strict=True):
            weight = np.array(block.spectral.weight_real) + 1j * np.array(block.spectral.weight_imag)  # (mode, out, in)
            theirs.weight.copy_(torch.as_tensor(np.moveaxis(weight, 0, -1).astype(np.complex64)))
