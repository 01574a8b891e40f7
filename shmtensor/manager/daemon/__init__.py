"""What only the daemon runs. `run` is its beginning and its end, `server` its loop.

It imports neither NumPy nor tensors.
"""
