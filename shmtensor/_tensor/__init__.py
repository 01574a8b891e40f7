"""Tensors: the class (`core`), and functions and methods, a module for each family, imported at its first use.

Other packages import Tensor from `methods`, where it has all its methods. (The folder has an underscore because
`shmtensor.tensor` is the function that makes a tensor, as in torch.)
"""
