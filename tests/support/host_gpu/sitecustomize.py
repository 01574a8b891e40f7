"""In PYTHONPATH, this gives every process the GPU of gpu_world: of programs that a test starts, as a user does."""

import gpu_world

gpu_world.install()
