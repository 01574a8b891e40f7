"""Functions of SciPy for the stand-in for CuPy."""
