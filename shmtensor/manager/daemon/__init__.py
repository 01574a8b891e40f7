"""The manager daemon. `run` starts and ends it, `server` is its event loop over `connections`, `state` has its state.

It imports neither NumPy nor tensors.
"""
