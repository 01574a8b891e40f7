"""The checks of `shmtensor-manager doctor`: each takes a `Machine` and returns its findings. They change nothing."""
