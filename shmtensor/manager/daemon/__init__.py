"""The manager daemon. `run` starts and ends it, `server` is its event loop.

It imports neither NumPy nor tensors.
"""
