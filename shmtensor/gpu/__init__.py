"""What talks to a GPU: the driver, the order of streams, memory of devices, registered memory of the host.

`docs/gpu.md` has the design. Nothing here is imported before a program asks for a device; without a GPU, or without
CuPy, `driver.status()` says why there is none.
"""
