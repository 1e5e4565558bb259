r"""Outward normals of a surface, from its triangles or from its points alone.

With triangles (a, b, c), the normal of a vertex is the mean of its triangles' normals by area,

$$ n_i \propto \sum_{f \ni i} (b_f - a_f) \times (c_f - a_f) . $$

Without triangles, it is the direction in which the nearest points spread least, the eigenvector of their covariance
with the least eigenvalue. Its sign is open. Neighbours agree where $n_i \cdot n_j > 0$; the signs spread over the
neighbours' spanning tree of least $1 - |n_i \cdot n_j|$, so around edges rather than across them (Hoppe et al., Surface
reconstruction from unorganized points, 1992). One sign per connected piece remains; by the divergence theorem, normals
point out where

$$ \oint (x - \bar x) \cdot n \, dA = 3 V > 0 . $$

Triangles wound against their neighbours are reversed in the same way: two agree if they run along their common edge
in opposite directions.
"""

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.sparse import csr_array
from scipy.sparse.csgraph import breadth_first_order, connected_components, minimum_spanning_tree
from scipy.spatial import KDTree

# Of 6, 8, 10 and 14, this has the least mean angle to the faces' normals on four real cars; all but 6 get 99.6% of the
# signs right.
_NUM_NEIGHBOURS = 10


def area_vectors(
    vertices: Float[np.ndarray, "vertex 3"], faces: Int[np.ndarray, "face 3"]
) -> Float[np.ndarray, "face 3"]:
    """Return each triangle's normal, with twice its area as length."""
    a, b, c = (vertices[faces[:, corner]] for corner in range(3))
    return np.cross(b - a, c - a)


def vertex_normals(
    vertices: Float[np.ndarray, "vertex 3"], faces: Int[np.ndarray, "face 3"]
) -> Float[np.ndarray, "vertex 3"]:
    """Return the area-weighted unit normals of the vertices; zero where no triangle of a vertex has an area."""
    vectors = area_vectors(vertices, faces)
    summed = np.stack(
        [np.bincount(faces.ravel(), np.repeat(vectors[:, axis], 3), len(vertices)) for axis in range(3)], axis=1
    )
    length = np.linalg.norm(summed, axis=1, keepdims=True)
    return np.divide(summed, length, out=np.zeros_like(summed), where=length > 0)


def edges_of(faces: Int[np.ndarray, "face 3"]) -> tuple[Int[np.ndarray, " side"], Int[np.ndarray, " edge"]]:
    """Return the edge of each triangle side (ab of all triangles, then bc, then ca), and the sides of each edge."""
    _, edge_of_side, count = np.unique(side_numbers(faces), return_inverse=True, return_counts=True)
    return edge_of_side, count


def side_numbers(faces: Int[np.ndarray, "face 3"]) -> Int[np.ndarray, " side"]:
    """Return a number for each triangle side, equal for sides between the same two vertices."""
    return _pair_number(faces.T.ravel(), np.roll(faces, -1, axis=1).T.ravel(), int(faces.max()) + 1)


def turn_outward(
    vertices: Float[np.ndarray, "vertex 3"], faces: Int[np.ndarray, "face 3"]
) -> Int[np.ndarray, "face 3"]:
    """Return the triangles, reversed where they are wound against their neighbours or around a negative volume."""
    edge_of_side, count = edges_of(faces)
    # Sort sides by their edges, so that the two sides of an edge are adjacent.
    order = np.argsort(edge_of_side, kind="stable")
    shared = order[count[edge_of_side[order]] == 2].reshape(-1, 2)
    forward = (faces < np.roll(faces, -1, axis=1)).T.ravel()
    agrees = forward[shared[:, 0]] != forward[shared[:, 1]]
    first, second = shared.T % len(faces)
    signs, piece = _spread_signs(len(faces), first, second, agrees, np.ones(len(first)))
    # A closed piece has a volume of its own; open pieces are turned together.
    num_pieces = piece.max() + 1
    is_open = np.zeros(num_pieces, bool)
    is_open[piece[np.flatnonzero(count[edge_of_side] != 2) % len(faces)]] = True
    piece = np.where(is_open[piece], num_pieces, piece)
    vectors = signs[:, None] * area_vectors(vertices, faces)
    signs = signs * _outward_signs(vertices[faces].mean(axis=1), vectors, piece)
    return np.where(signs[:, None] < 0, faces[:, ::-1], faces)


def estimate_normals(points: Float[np.ndarray, "point 3"]) -> Float[np.ndarray, "point 3"]:
    """Return outward unit normals from points alone."""
    size = min(_NUM_NEIGHBOURS + 1, len(points))
    distance, near = KDTree(points).query(points, size)
    around = points[near] - points[near].mean(axis=1, keepdims=True)
    _, directions = np.linalg.eigh(np.einsum("pki,pkj->pij", around, around))
    normals = directions[:, :, 0]
    first, second = np.repeat(np.arange(len(points)), size), near.ravel()
    cosine = np.einsum("pi,pi->p", normals[first], normals[second])
    signs, piece = _spread_signs(len(points), first, second, cosine >= 0, 1 - np.abs(cosine))
    normals = signs[:, None] * normals
    # A point represents the area up to its farthest neighbour, up to a common factor.
    area = distance[:, -1:] ** 2
    return normals * _outward_signs(points, area * normals, piece)[:, None]


def _spread_signs(
    size: int,
    first: Int[np.ndarray, " pair"],
    second: Int[np.ndarray, " pair"],
    agrees: Bool[np.ndarray, " pair"],
    cost: Float[np.ndarray, " pair"],
) -> tuple[Float[np.ndarray, " item"], Int[np.ndarray, " item"]]:
    """Return ±1 for each item, equal for agreeing pairs on the minimum spanning tree, and each item's connected piece.

    The first item of a piece has +1.
    """
    # Each pair once, since a sparse matrix adds up duplicates; no item is paired with itself.
    pair, once = np.unique(_pair_number(first, second, size), return_index=True)
    pair, once = pair[first[once] != second[once]], once[first[once] != second[once]]
    # Cost zero would mean no connection.
    graph = csr_array((cost[once] + 1e-9, (first[once], second[once])), shape=(size, size))
    num_pieces, piece = connected_components(graph, directed=False)
    tree = minimum_spanning_tree(graph).tocoo()
    # One more item, joined to the first of every piece, makes a single tree of all.
    roots = np.unique(piece, return_index=True)[1]
    rows, columns = np.append(tree.row, np.full(num_pieces, size)), np.append(tree.col, roots)
    joined = csr_array((np.ones(len(rows)), (rows, columns)), shape=(size + 1, size + 1))
    order, origins = breadth_first_order(joined, size, directed=False)
    signs = np.ones(size + 1)
    order = order[num_pieces + 1 :]
    agreement = agrees[once[np.searchsorted(pair, _pair_number(order, origins[order], size))]]
    for item, origin, same in zip(order, origins[order], agreement, strict=True):
        signs[item] = signs[origin] if same else -signs[origin]
    return signs[:size], piece


def _pair_number(
    first: Int[np.ndarray, " pair"], second: Int[np.ndarray, " pair"], size: int
) -> Int[np.ndarray, " pair"]:
    """Return a number for each pair of items, equal in either order."""
    return np.minimum(first, second) * np.int64(size) + np.maximum(first, second)


def _outward_signs(
    points: Float[np.ndarray, "item 3"], vectors: Float[np.ndarray, "item 3"], piece: Int[np.ndarray, " item"]
) -> Float[np.ndarray, " item"]:
    """Return −1 for the items of pieces whose area vectors give a negative volume, else +1."""
    size = np.maximum(np.bincount(piece), 1)
    centre = np.stack([np.bincount(piece, points[:, axis]) / size for axis in range(3)], axis=1)
    flux = np.bincount(piece, np.einsum("pi,pi->p", points - centre[piece], vectors))
    return np.where(flux < 0, -1.0, 1.0)[piece]
