"""If in PYTHONPATH, gives every process of a program the GPU of gpu_world, for programs that a test starts."""

import gpu_world

gpu_world.install()
