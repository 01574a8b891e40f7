"""Tensors: what each is (`core`), and functions and methods, a module for each family, imported at its first use.

What lies above imports Tensor from `methods`: there it has all of them. (The folder has an underscore because
`shmtensor.tensor` is the function that makes a tensor, as in torch.)
"""
