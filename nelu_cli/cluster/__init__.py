"""Data larger than memory and larger than a machine: OME-Zarr, Dask."""
