"""The built-in cars.

make     draws shapes and makes the cars, once; they are cached
bodies   closed meshes of cars from a few lengths and angles
panels   potential flow past a body, by source panels
wake     separation and the wake, by published correlations

May import what `cars` may, and `cars/meshes`.
"""
