"""The manager daemon. `run` starts and ends it, `server` is its event loop over `connections`, `state` what it knows.

It imports neither NumPy nor tensors.
"""
