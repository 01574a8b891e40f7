"""Tensors: what each is (`core`), and functions on them, a module for each family, which `methods` makes methods.

What lies above imports Tensor from `methods`: there it has all of them. (The folder has an underscore because
`shmtensor.tensor` is the function that makes a tensor, as in torch.)
"""
