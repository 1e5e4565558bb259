"""How a training lies on several devices: an axis of a mesh divides its replicas.

Each device trains some replicas and hears of no other. Where their number does not fill the devices, the last of them
is trained again as often as it takes, and nobody reads what becomes of these. A single device has no mesh: its programs
are those of a training that knows nothing of all this.

The division is by `shard_map`, with the vmap over replicas inside: the compiler never has to guess how to divide a
vmapped convolution, at which it has crashed.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from jaxtyping import PyTree

from crossreg.devices import devices_in_use

_AXIS = "devices"


class Layout(NamedTuple):
    """Where the arrays of a training of so many replicas are. Without a mesh they are on one device."""

    mesh: Mesh | None = None
    replicas: int = 1

    @property
    def num_devices(self) -> int:
        return 1 if self.mesh is None else self.mesh.size

    @property
    def per_device(self) -> int:
        """Replicas on each device, those that only fill it up included."""
        return -(-self.replicas // self.num_devices)

    def place(self, tree: PyTree, axes: PyTree) -> PyTree:
        """A tree on the devices. `axes`, a prefix of it, has 0 for what has a replica axis, and None for what has not.

        An array that is in several places of the tree is one array there too.
        """
        if self.mesh is None:
            return tree
        mesh, placed = self.mesh, {}
        index = np.minimum(np.arange(self.per_device * self.num_devices), self.replicas - 1)

        def put(array: Any, axis: int | None) -> Any:
            if not eqx.is_array(array):
                return array
            if id(array) not in placed:
                whole = array if axis is None or index.size == self.replicas else array[index]
                placed[id(array)] = jax.device_put(whole, NamedSharding(mesh, _spec(axis)))
            return placed[id(array)]

        return _map_axes(lambda axis, part: jax.tree.map(lambda array: put(array, axis), part), axes, tree)

    def collect(self, tree: PyTree) -> PyTree:
        """What `place` has spread, together on one device, without what filled the devices up."""
        if self.mesh is None:
            return tree
        return jax.tree.map(lambda x: jnp.asarray(np.asarray(x)[: self.replicas] if x.ndim else np.asarray(x)), tree)

    def divide(self, function: Callable, *axes: PyTree) -> Callable:
        """`function` of stacked trees, as each device computes it for its replicas; `axes` are those of `place`.

        What comes out has the replica axis first.
        """
        if self.mesh is None:
            return function
        mesh = self.mesh

        def divided(*arguments):
            arrays, rest = eqx.partition(arguments, eqx.is_array)
            specs = tuple(_map_axes(lambda axis, _: _spec(axis), a, part) for a, part in zip(axes, arrays, strict=True))

            def part(*arrays):
                return function(*eqx.combine(arrays, rest))

            # Nothing goes from one device to another, so that there is nothing to check.
            return jax.shard_map(part, mesh=mesh, in_specs=specs, out_specs=P(_AXIS), check_vma=False)(*arrays)

        return divided


def _spec(axis: int | None) -> P:
    return P() if axis is None else P(_AXIS)


def _map_axes(function: Callable[[int | None, PyTree], Any], axes: PyTree, tree: PyTree) -> PyTree:
    """`function` of each axis and the part of the tree that it is said of."""
    return jax.tree.map(function, axes, tree, is_leaf=lambda node: node is None)


ALONE = Layout()


def over_replicas(replicas: int) -> Layout:
    """The devices that are in use, as many of them as so many replicas fill evenly, or nearly so."""
    devices = devices_in_use()
    each = -(-replicas // len(devices))
    devices = devices[: -(-replicas // each)]
    if len(devices) == 1:
        return Layout(None, replicas)
    return Layout(Mesh(np.asarray(devices), (_AXIS,), axis_types=(AxisType.Auto,)), replicas)
