"""Car surfaces: readers, a family of our own, and the map from a surface to a torus."""
