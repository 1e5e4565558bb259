"""Readers of file formats: each makes an `Opened` of a path, and all of them together a `Source`.

    open.py          which module reads a path (`_open_file`: a new format is added there)
    source.py        Source: trajectories that are read as needed
    axes.py          letters for axes, and arrays whose axes have letters
    numpy_files.py   NPY, NPZ, and arrays in memory
    hdf5_files.py    any HDF5 file; those of pdebench.py and the_well.py by their layout
    pdebench.py      the layouts of PDEBench
    the_well.py      the layout of The Well
    xarray_files.py  NetCDF and Zarr, with the extra `xarray`
    zarr_stores.py   checks of Zarr stores before they are read

May import `errors` and `files`.
"""
