"""Pressure with error bars on car surfaces, by an optimal transport neural operator.

meshes/       cars from files: readers, splits into train, reg and test, outward normals
family/       the built-in cars: parametric bodies and the flow past them
grid/         where a car becomes a grid: the map from its vertices to the cells of a torus, and the nine channels there
pairs         cars as pairs: channels on the grid in, pressure at the vertices out
study         `crossreg car`: trains all methods (training, vertex_mean), scores them (metrics, summary), stores
              test cars and predictions (stored)
prediction    `crossreg predict` on the folder of a car experiment

May import the packages before it (`crossreg/__init__.py` has the order).
"""
