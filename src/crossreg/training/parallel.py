r"""How a training is divided among devices: by one axis of a mesh, over its replicas or its batches.

replica   Each device trains some replicas on its own. Where their number does not fill the devices, the last replica is
          trained again as often as needed, and these results are discarded.
batch     All devices, of one or of several processes, train the same replicas. Each has its part of every batch, with
          the noise that these pairs have on a single device; a batch that does not fill the devices ends in pairs of
          weight 0. A loss is a mean with weights w, so that device d has the share $\sum_{i \in d} w_i / \sum_i w_i$ of
          it, and the sum over devices of losses and gradients is that of the whole batch.

A single device has no mesh, and its programs contain nothing of this. The division is by `shard_map`, with the vmap
over replicas inside: the compiler does not have to guess how to divide a vmapped convolution, at which it has crashed.
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
# The axis of arrays of which every device has its own part, along their first axis.
PART = "part"
Axis = Literal[0, "part"] | None


class Share(NamedTuple):
    """The part of a batch that this device computes inside a divided program: one of `parts`, or all of it."""

    parts: int = 1

    def numbers(self, size: int) -> Int[Array, " number"]:
        """Return which of 0 … size − 1 belong to this part; the last part may go beyond them."""
        if self.parts == 1:
            return jnp.arange(size)
        each = -(-size // self.parts)
        return jax.lax.axis_index(_AXIS) * each + jnp.arange(each)

    def of(self, mean: Float[Array, ""], weight: Float[Array, "..."]) -> Float[Array, ""]:
        """Return what the mean over this part, with these weights, adds to the mean over all parts."""
        if self.parts == 1:
            return mean
        here = jnp.sum(weight)
        total = jax.lax.psum(here, _AXIS)
        return mean * (here / jnp.maximum(total, jnp.finfo(total.dtype).tiny))

    def total(self, tree: PyTree) -> PyTree:
        """Return the sum over all parts."""
        return tree if self.parts == 1 else jax.lax.psum(tree, _AXIS)

    def together(self, tree: PyTree) -> PyTree:
        """Concatenate the parts of all devices."""
        return tree if self.parts == 1 else jax.lax.all_gather(tree, _AXIS, tiled=True)


WHOLE = Share()


class Layout(NamedTuple):
    """How the arrays of a training are divided among devices. Without a mesh they are on one device."""

    mesh: Mesh | None = None
    replicas: int = 1
    divides: Literal["replica", "batch"] = "replica"

    @property
    def num_devices(self) -> int:
        return 1 if self.mesh is None else self.mesh.size

    @property
    def per_device(self) -> int:
        """The number of replicas on each device, including those that only fill it up."""
        return self.replicas if self.divides == "batch" else -(-self.replicas // self.num_devices)

    @property
    def share(self) -> Share:
        """The part of a batch that each device has."""
        return Share(self.num_devices if self.divides == "batch" else 1)

    @property
    def communicates(self) -> bool:
        """Whether devices wait for each other inside programs: all must then run the same programs in one order."""
        return self.mesh is not None and self.divides == "batch"

    @property
    def spans_processes(self) -> bool:
        return self.mesh is not None and jax.process_count() > 1

    def place(self, tree: PyTree, axes: PyTree) -> PyTree:
        """Put a tree on the devices.

        Args:
            tree: Arrays and other leaves. An array that occurs twice in it is put there once.
            axes: A prefix of the tree, with 0 for arrays that have a replica axis, and None for those without one.
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
        """Collect a tree from `place` on one device of this process, without replicas that only filled the devices."""
        if self.mesh is None:
            return tree
        if self.divides == "batch":
            return jax.tree.map(lambda x: x.addressable_data(0) if isinstance(x, jax.Array) else x, tree)
        return jax.tree.map(lambda x: jnp.asarray(np.asarray(x)[: self.replicas] if x.ndim else np.asarray(x)), tree)

    def divide(self, function: Callable, *axes: PyTree) -> Callable:
        """Return a function that each device computes for its part of the arguments.

        Args:
            function: A function of trees, whose results have a leading replica axis.
            axes: The axes of each argument, as for `place`, or `PART`.
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

            # Devices compute alike what they share. JAX need not check that, and the check would change the loops.
            return jax.shard_map(part, mesh=mesh, in_specs=specs, out_specs=self._spec(0), check_vma=False)(*arrays)

        return divided

    def from_parts(self, parts: list[PyTree]) -> PyTree:
        """Join the trees of this process's devices: each device has its own arrays, and scalars are shared."""
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
        """Return the places in a batch of each device of this process: those of `Share.numbers`, up to the last."""
        assert self.mesh is not None
        each = -(-size // self.num_devices)
        numbers = [n for n, d in enumerate(self.mesh.devices.flat) if d.process_index == jax.process_index()]
        return [np.minimum(number * each + np.arange(each), size - 1) for number in numbers]

    def _spec(self, axis: Axis, ndim: int = 1) -> P:
        divided = axis == PART if self.divides == "batch" else axis == 0
        return P(_AXIS) if divided and ndim else P()


ALONE = Layout()


def _map_axes(function: Callable[[Axis, PyTree], Any], axes: PyTree, tree: PyTree) -> PyTree:
    """Apply `function` to each axis and the part of the tree that it belongs to."""
    return jax.tree.map(function, axes, tree, is_leaf=lambda node: node is None)


def _put(array: Array, sharding: NamedSharding) -> Array:
    """Put an array that all processes have on all devices."""
    if jax.process_count() == 1:
        return jax.device_put(array, sharding)
    if jnp.issubdtype(array.dtype, jax.dtypes.prng_key):
        return jax.random.wrap_key_data(_put(jax.random.key_data(array), sharding))
    host = np.asarray(array)
    return jax.make_array_from_callback(host.shape, sharding, lambda index: host[index])


def over_replicas(replicas: int) -> Layout:
    """Divide replicas among the devices in use, as many of them as the replicas fill evenly, or nearly so."""
    devices = devices_in_use()
    each = -(-replicas // len(devices))
    devices = devices[: -(-replicas // each)]
    return Layout(_mesh(devices), replicas) if len(devices) > 1 else Layout(None, replicas)


def over_batches() -> Layout:
    """Divide batches among the devices in use, in every process."""
    ordered = sorted(jax.devices(), key=lambda device: (device.process_index, device.id))
    by_process = [[d for d in ordered if d.process_index == process] for process in range(jax.process_count())]
    devices = [device for own in by_process for device in own[: len(devices_in_use())]]
    return Layout(_mesh(devices), 1, "batch") if len(devices) > 1 else ALONE


def _mesh(devices: list) -> Mesh:
    return Mesh(np.asarray(devices), (_AXIS,), axis_types=(AxisType.Auto,))
