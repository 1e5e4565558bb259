"""Where a car becomes a grid.

torus       the points and normals of the torus, an n × n grid that is periodic in both axes
transport   the map between the vertices of a car and the cells of the torus, of least mean squared distance
channels    the nine channels on the grid that the network reads, from a car and its map

`cars.pairs` puts the channels of many cars and the cell of each vertex, where the prediction is read, into batches.
May import what `cars` may, and `cars/meshes`.
"""
