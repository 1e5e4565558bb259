r"""How a training lies on several devices: one axis of a mesh, which divides its replicas or its batches.

replica   Each device trains some replicas and hears of no other. Where their number does not fill the devices, the last
          of them is trained again as often as it takes, and nobody reads what becomes of these.
batch     All devices, of one or of several processes, train the same replicas. Each has its part of every batch, with
          the noise that these pairs have on one device too; a batch that does not fill the devices ends in pairs of
          weight 0. A loss is a mean of weights w, so that device d has the share $\sum_{i \in d} w_i / \sum_i w_i$ of
          it, and the sum over devices of losses and gradients is that of the whole batch.

A single device has no mesh: its programs are those of a training that knows nothing of all this. The division is by
`shard_map`, with the vmap over replicas inside: the compiler never has to guess how to divide a vmapped convolution, at
which it has crashed.
"""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from jaxtyping import Array, Float, Int, PyTree

from crossreg.machine.devices import devices_in_use

_AXIS = "devices"
# For arrays of which every device has its own part, along their first axis.
PART = "part"
Axis = Literal[0, "part"] | None


class Share(NamedTuple):
    """What of a batch this device computes, inside of a divided program: one of so many parts, or all of it."""

    parts: int = 1

    def numbers(self, size: int) -> Int[Array, " number"]:
        """Which of 0 … size − 1 are of this part; the last part may go beyond them."""
        if self.parts == 1:
            return jnp.arange(size)
        each = -(-size // self.parts)
        return jax.lax.axis_index(_AXIS) * each + jnp.arange(each)

    def of(self, mean: Float[Array, ""], weight: Float[Array, "..."]) -> Float[Array, ""]:
        """What the mean over this part, of these weights, adds to the mean over all."""
        if self.parts == 1:
            return mean
        here = jnp.sum(weight)
        total = jax.lax.psum(here, _AXIS)
        return mean * (here / jnp.maximum(total, jnp.finfo(total.dtype).tiny))

    def total(self, tree: PyTree) -> PyTree:
        """The sum over all parts."""
        return tree if self.parts == 1 else jax.lax.psum(tree, _AXIS)

    def together(self, tree: PyTree) -> PyTree:
        """The parts of all devices, one behind the other."""
        return tree if self.parts == 1 else jax.lax.all_gather(tree, _AXIS, tiled=True)


WHOLE = Share()


class Layout(NamedTuple):
    """Where the arrays of a training of so many replicas are. Without a mesh they are on one device."""

    mesh: Mesh | None = None
    replicas: int = 1
    divides: Literal["replica", "batch"] = "replica"

    @property
    def num_devices(self) -> int:
        return 1 if self.mesh is None else self.mesh.size

    @property
    def per_device(self) -> int:
        """Replicas on each device, those that only fill it up included."""
        return self.replicas if self.divides == "batch" else -(-self.replicas // self.num_devices)

    @property
    def share(self) -> Share:
        """What each device has of a batch."""
        return Share(self.num_devices if self.divides == "batch" else 1)

    @property
    def communicates(self) -> bool:
        """Whether devices wait for each other in a program: then all must run the same ones in the same order."""
        return self.mesh is not None and self.divides == "batch"

    @property
    def spans_processes(self) -> bool:
        return self.mesh is not None and jax.process_count() > 1

    def place(self, tree: PyTree, axes: PyTree) -> PyTree:
        """A tree on the devices. `axes`, a prefix of it, has 0 for what has a replica axis, and None for what has not.

        An array that is in several places of the tree is one array there too.
        """
        if self.mesh is None:
            return tree
        mesh, placed = self.mesh, {}
        fills = self.divides == "replica" and self.replicas % self.num_devices
        index = np.minimum(np.arange(self.per_device * self.num_devices), self.replicas - 1)

        def put(array: Any, axis: Axis) -> Any:
            if not eqx.is_array(array):
                return array
            if id(array) not in placed:
                whole = array[index] if fills and axis is not None else array
                placed[id(array)] = _put(whole, NamedSharding(mesh, self._spec(axis)))
            return placed[id(array)]

        return _map_axes(lambda axis, part: jax.tree.map(lambda array: put(array, axis), part), axes, tree)

    def collect(self, tree: PyTree) -> PyTree:
        """What `place` has spread, together on one device of this process, without what filled the devices up."""
        if self.mesh is None:
            return tree
        if self.divides == "batch":
            return jax.tree.map(lambda x: x.addressable_data(0) if isinstance(x, jax.Array) else x, tree)
        return jax.tree.map(lambda x: jnp.asarray(np.asarray(x)[: self.replicas] if x.ndim else np.asarray(x)), tree)

    def divide(self, function: Callable, *axes: PyTree) -> Callable:
        """`function` of trees with these axes, as each device computes it; what comes out has the replica axis first.

        Axes are those of `place`, or `PART`.
        """
        if self.mesh is None:
            return function
        mesh = self.mesh

        def divided(*arguments):
            arrays, rest = eqx.partition(arguments, eqx.is_array)
            specs = tuple(
                _map_axes(lambda axis, part: jax.tree.map(lambda x: self._spec(axis, x.ndim), part), a, part)
                for a, part in zip(axes, arrays, strict=True)
            )

            def part(*arrays):
                return function(*eqx.combine(arrays, rest))

            # What all devices have in common they have computed alike: nothing to check, and loops are as they were.
            return jax.shard_map(part, mesh=mesh, in_specs=specs, out_specs=self._spec(0), check_vma=False)(*arrays)

        return divided

    def from_parts(self, parts: list[PyTree]) -> PyTree:
        """A tree of which every device has its own arrays, from those of this process's devices; numbers are shared."""
        mesh = self.mesh
        assert mesh is not None
        local = [device for device in mesh.devices.flat if device.process_index == jax.process_index()]

        def join(*arrays: Array) -> Array:
            first = arrays[0]
            if not first.ndim:
                return _put(first, NamedSharding(mesh, P()))
            shape = (first.shape[0] * mesh.size, *first.shape[1:])
            held = [jax.device_put(array, device) for array, device in zip(arrays, local, strict=True)]
            return jax.make_array_from_single_device_arrays(shape, NamedSharding(mesh, P(_AXIS)), held)

        return jax.tree.map(join, *parts)

    def local_slots(self, size: int) -> list[Int[np.ndarray, " slot"]]:
        """The places in a batch, for each device of this process: those of `Share.numbers`, none beyond the last."""
        assert self.mesh is not None
        each = -(-size // self.num_devices)
        numbers = [n for n, d in enumerate(self.mesh.devices.flat) if d.process_index == jax.process_index()]
        return [np.minimum(number * each + np.arange(each), size - 1) for number in numbers]

    def _spec(self, axis: Axis, ndim: int = 1) -> P:
        divided = axis == PART if self.divides == "batch" else axis == 0
        return P(_AXIS) if divided and ndim else P()


ALONE = Layout()


def _map_axes(function: Callable[[Axis, PyTree], Any], axes: PyTree, tree: PyTree) -> PyTree:
    """`function` of each axis and the part of the tree that it is said of."""
    return jax.tree.map(function, axes, tree, is_leaf=lambda node: node is None)


def _put(array: Array, sharding: NamedSharding) -> Array:
    """An array that all processes have, on all devices."""
    if jax.process_count() == 1:
        return jax.device_put(array, sharding)
    if jnp.issubdtype(array.dtype, jax.dtypes.prng_key):
        return jax.random.wrap_key_data(_put(jax.random.key_data(array), sharding))
    host = np.asarray(array)
    return jax.make_array_from_callback(host.shape, sharding, lambda index: host[index])


def over_replicas(replicas: int) -> Layout:
    """The devices that are in use, as many of them as so many replicas fill evenly, or nearly so."""
    devices = devices_in_use()
    each = -(-replicas // len(devices))
    devices = devices[: -(-replicas // each)]
    return Layout(_mesh(devices), replicas) if len(devices) > 1 else Layout(None, replicas)


def over_batches(replicas: int = 1) -> Layout:
    """The devices that are in use, in every process."""
    ordered = sorted(jax.devices(), key=lambda device: (device.process_index, device.id))
    by_process = [[d for d in ordered if d.process_index == process] for process in range(jax.process_count())]
    devices = [device for own in by_process for device in own[: len(devices_in_use())]]
    return Layout(_mesh(devices), replicas, "batch") if len(devices) > 1 else Layout(None, replicas)


def _mesh(devices: list) -> Mesh:
    return Mesh(np.asarray(devices), (_AXIS,), axis_types=(AxisType.Auto,))
