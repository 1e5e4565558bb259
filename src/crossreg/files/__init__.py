"""Safe reading and writing of files from any source.

    regular.py       regular files only: no links, no pipes
    whole.py         files and folders that are written whole or not at all; reading JSON
    sealed.py        arrays in an NPZ file with a checksum
    arrays.py        NPY and NPZ files
    hdf5.py          HDF5 files
    yaml_files.py    settings in YAML
    memory.py        how much memory is available
    cache_folder.py  the folder of cached data and compiled programs

May import `errors` only. Formats of trajectory files are in `data/formats`.
"""
