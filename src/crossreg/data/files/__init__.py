"""Trajectories in a user's own files: one module per format, and what all formats share.

axes.py          letters for axes, and an array in a file whose axes have letters
source.py        trajectories in files, read as needed; which format a path is of
numpy_files.py   NPY and NPZ
hdf5_files.py    any HDF5 file
pdebench.py      the layouts of PDEBench
the_well.py      the layout of The Well
zarr_stores.py   what a Zarr store must be before it is read
xarray_files.py  NetCDF and Zarr, by the extra `xarray`
split.py         which trajectories, or times, are train, reg and test
pool.py          files that many runs of a sweep read, kept in memory
load.py          from a config to the three splits
streamed.py      splits that are not in memory: their pairs are read when they are needed
check.py         `crossreg data check`
"""
