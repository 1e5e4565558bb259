"""neuraloperator's FNO in the same step: its lifting and blocks, with our noise sites behind them and our heads."""

import torch
from neuralop.models import FNO
from torch import nn

from crossreg.config import Config
from peers.torch_xreg import NoisyFNO


class NoisyNeuralop(NoisyFNO):
    """Sites behind every block; the library's own skip connections and GELUs inside."""

    def __init__(self, config: Config, in_channels: int = 1, out_channels: int = 1):
        super().__init__(config, in_channels, out_channels)
        model = config.model
        self.lift = self.spectral = self.pointwise = nn.Identity()  # the library has its own
        self.fno = FNO(
            n_modes=(2 * model.num_modes,) * self.dims,
            in_channels=in_channels,
            out_channels=out_channels,
            hidden_channels=model.width,
            n_layers=model.num_blocks,
            positional_embedding=None,
        )
        self.fno.projection = nn.Identity()

    def forward(self, x: torch.Tensor, samples: int, scale: float = 1.0) -> tuple[torch.Tensor, ...]:
        h = self.fno.lifting(x.repeat(samples, *(1,) * (x.ndim - 1)))
        for i in range(self.fno.n_layers):
            h = self._noise(self.fno.fno_blocks(h, i), i, scale)
        h = self._noise(h, self.fno.n_layers, scale)
        heads = self.mean(h), self.log_pred(h), self.log_gen(h.detach())
        return tuple(head.unflatten(0, (samples, x.shape[0])) for head in heads)


class NoisyNeuralop2d(NoisyNeuralop):
    """The same on a plane: the network of an optimal transport neural operator."""

    dims = 2
