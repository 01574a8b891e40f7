"""The manager: the daemon that creates segments, passes their descriptors and reclaims what the dead held.

`client` is the one way to reach it from Python; `server` is the daemon itself and imports neither NumPy nor tensors.
"""
