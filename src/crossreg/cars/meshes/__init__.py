"""Cars from files: meshes and pressure, checked, with outward normals.

car_set     which cars a folder holds, and which are train, reg and test cars
readers     recognise a folder's layout and read its cars; ply_files, vtk_files, mesh_files read single files
surface     a car in memory: vertices, outward normals, pressure, faces
normals     normals of a surface from its triangles or its points
likeness    compare cars to predict for with those a network was trained on

May import what `cars` may, and nothing else of `cars`.
"""
