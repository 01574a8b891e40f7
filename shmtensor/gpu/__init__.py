"""GPU support: the driver, the order of streams, memory of devices, registered host memory.

`docs/gpu.md` has the design. Nothing here is imported before a program uses a device. Without a GPU or CuPy,
`driver.status()` returns the reason.
"""
