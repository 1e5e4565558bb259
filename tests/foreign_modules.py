"""Modules that the package does not own, and where noise goes in them."""

import equinox as eqx
import jax
import jax.numpy as jnp
import pdequinox as pdeqx

WIDTH = 6


class Perceptron(eqx.Module):
    """A plain MLP over all points of a field at once."""

    layers: list
    points: int = eqx.field(static=True)

    def __init__(self, in_channels: int, points: int, *, key):
        first, second = jax.random.split(key)
        self.layers = [
            eqx.nn.Linear(in_channels * points, 11, key=first),
            eqx.nn.Linear(11, WIDTH * points, key=second),
        ]
        self.points = points

    def __call__(self, x):
        h = jax.nn.gelu(self.layers[0](x.reshape(-1)))
        return self.layers[1](h).reshape(WIDTH, self.points)


class DeepONet(eqx.Module):
    """A branch that reads the field, a trunk that reads the place, and their products as features."""

    branch: eqx.nn.MLP
    trunk: eqx.nn.MLP
    points: int = eqx.field(static=True)

    def __init__(self, in_channels: int, points: int, *, key):
        first, second = jax.random.split(key)
        self.branch = eqx.nn.MLP(in_channels * points, WIDTH, 9, 1, key=first)
        self.trunk = eqx.nn.MLP(2, WIDTH, 9, 1, key=second)
        self.points = points

    def __call__(self, x):
        angle = 2 * jnp.pi * jnp.arange(self.points) / self.points
        places = jax.vmap(self.trunk)(jnp.stack([jnp.cos(angle), jnp.sin(angle)], axis=1))
        return self.branch(x.reshape(-1))[:, None] * places.T


def unet(in_channels, points, *, key):
    return pdeqx.arch.ClassicUNet(1, in_channels, WIDTH, hidden_channels=4, num_levels=1, key=key)


def resnet(in_channels, points, *, key):
    return pdeqx.arch.ClassicResNet(1, in_channels, WIDTH, hidden_channels=5, num_blocks=2, key=key)


def dilated(in_channels, points, *, key):
    return pdeqx.arch.DilatedResNet(
        1, in_channels, WIDTH, hidden_channels=4, num_blocks=2, dilation_rates=(1, 2), key=key
    )


# How to make each, where its noise goes, and what the sites are then called.
FOREIGN = {
    "unet": (
        unet,
        lambda m: (m.lifting, m.down_sampling_blocks[0], m.projection),
        ["lifting", "down_sampling_blocks[0]", "projection"],
    ),
    "resnet": (resnet, lambda m: m.blocks, ["blocks[0]", "blocks[1]"]),
    "dilated": (dilated, lambda m: (m.blocks[1], m.lifting), ["blocks[1]", "lifting"]),
    "mlp": (Perceptron, lambda m: m.layers[0], ["layers[0]"]),
    "deeponet": (DeepONet, lambda m: (m.branch.layers[0], m.trunk), ["branch.layers[0]", "trunk"]),
}
