"""Weights that are computed from other parameters before each call: of a learned length, or of spectral norm 1.

Keys of states are torch's: `weight_g` and `weight_v`; `weight_orig`, `weight_u` and `weight_v`. Nothing here blocks.
"""

from __future__ import annotations

from typing import Any, ClassVar, TypeVar

from ..._tensor.creation import empty
from ..._tensor.methods import Tensor
from ...autograd.modes import no_grad
from ...errors import InvalidArgument
from ...linalg import vector_norm
from .. import functional
from ..modules.conv import _ConvTransposeNd
from ..modules.module import Module
from ..parameter import Parameter

AnyModule = TypeVar("AnyModule", bound=Module)


class _Normalized:
    """A hook that computes a weight before each call.

    Args:
        name: name of the weight.
    """

    word: ClassVar[str]

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, module: Module, args: Any) -> None:
        setattr(module, self.name, self.computed(module, module.training))

    def computed(self, module: Module, training: bool) -> Tensor:
        """The weight, of a module that is in training or not."""
        raise NotImplementedError

    @classmethod
    def of(cls, module: Module, name: str) -> int | None:
        """The number of the hook of a weight; None: there is none."""
        found = [i for i, one in module._forward_pre_hooks.items() if isinstance(one, cls) and one.name == name]
        return found[0] if found else None

    @classmethod
    def weight_of(cls, module: Module, name: str) -> Parameter:
        """The parameter that is to be computed. Raises InvalidArgument: it is None, or computed already."""
        if cls.of(module, name) is not None:
            raise InvalidArgument(f"Cannot register two {cls.word} hooks on the same parameter {name}")
        weight: Parameter | None = module._parameters.get(name)
        if weight is None:
            raise InvalidArgument(f"{cls.word}: {type(module).__name__} has no parameter {name!r}")
        return weight

    @classmethod
    def remove(cls, module: Module, name: str, *sources: str) -> None:
        """Make the weight a parameter of its own again. Raises InvalidArgument: there is no hook of it."""
        number = cls.of(module, name)
        if number is None:
            raise InvalidArgument(f"{cls.word} of '{name}' not found in {module}")
        with no_grad():
            hook: Any = module._forward_pre_hooks.pop(number)
            weight = hook.computed(module, False)
        for one in (name, *sources):
            delattr(module, one)
        module.register_parameter(name, Parameter(weight))


# -- lengths -----------------------------------------------------------------------------------------------------------


def _lengths(weight: Tensor, dim: int) -> Tensor:
    """The lengths of the parts of a weight along an axis; -1: its own length."""
    if dim == -1:
        return vector_norm(weight)
    others = tuple([axis for axis in range(weight.dim()) if axis != dim % weight.dim()])
    return vector_norm(weight, 2, others, True)


class WeightNorm(_Normalized):
    """The hook of weight_norm.

    Args:
        name: name of the weight.
        dim: the axis along which lengths are learned; -1: one length.
    """

    word = "weight_norm"

    def __init__(self, name: str, dim: int) -> None:
        super().__init__(name)
        self.dim = dim

    def computed(self, module: Module, training: bool) -> Tensor:
        """The weight."""
        direction: Tensor = getattr(module, f"{self.name}_v")
        length: Tensor = getattr(module, f"{self.name}_g")
        return direction * (length / _lengths(direction, self.dim))


def weight_norm(module: AnyModule, name: str = "weight", dim: int | None = 0) -> AnyModule:
    """Compute a weight as `g * v / length of v`, with parameters `g` and `v` in its place. Returns the module.

    Args:
        module: the module.
        name: name of the weight.
        dim: the axis along which lengths are learned; None: one length.

    Raises:
        InvalidArgument: no such parameter, or it is computed already.
    """
    hook = WeightNorm(name, -1 if dim is None else dim)
    weight = hook.weight_of(module, name)
    delattr(module, name)
    module.register_parameter(f"{name}_g", Parameter(_lengths(weight.detach(), hook.dim)))
    module.register_parameter(f"{name}_v", Parameter(weight.detach()))
    hook(module, ())
    module.register_forward_pre_hook(hook)
    return module


def remove_weight_norm(module: AnyModule, name: str = "weight") -> AnyModule:
    """Undo weight_norm. Returns the module. Raises InvalidArgument: the weight is not computed."""
    WeightNorm.remove(module, name, f"{name}_g", f"{name}_v")
    return module


# -- spectral norm -----------------------------------------------------------------------------------------------------


class SpectralNorm(_Normalized):
    """The hook of spectral_norm.

    Args:
        name: name of the weight.
        n_power_iterations: steps of the power iteration in each call in training.
        dim: the axis of outputs.
        eps: the least length by which vectors are divided.
    """

    word = "spectral_norm"

    def __init__(self, name: str, n_power_iterations: int, dim: int, eps: float) -> None:
        super().__init__(name)
        if n_power_iterations <= 0:
            raise InvalidArgument(f"Expected n_power_iterations to be positive, but got {n_power_iterations=}")
        self.n_power_iterations = n_power_iterations
        self.dim = dim
        self.eps = eps

    def matrix(self, weight: Tensor) -> Tensor:
        """The weight as a matrix of outputs and inputs."""
        if self.dim:
            weight = weight.movedim(self.dim, 0)
        return weight.reshape(weight.shape[0], -1)

    def unit(self, vector: Tensor) -> Tensor:
        """A vector of length 1."""
        return functional.normalize(vector, dim=0, eps=self.eps)

    def computed(self, module: Module, training: bool) -> Tensor:
        """The weight; in training, after steps of the power iteration."""
        weight: Tensor = getattr(module, f"{self.name}_orig")
        u, v = getattr(module, f"{self.name}_u"), getattr(module, f"{self.name}_v")
        matrix = self.matrix(weight)
        if training:
            with no_grad():
                for _ in range(self.n_power_iterations):
                    v.copy_(self.unit(matrix.t() @ u))
                    u.copy_(self.unit(matrix @ v))
                u, v = u.clone(), v.clone()  # the next call changes them before a backward pass of this one
        made: Tensor = weight / (u @ (matrix @ v))
        return made


def spectral_norm(
    module: AnyModule, name: str = "weight", n_power_iterations: int = 1, eps: float = 1e-12, dim: int | None = None
) -> AnyModule:
    """Divide a weight by its largest singular value, which each call in training estimates. Returns the module.

    Args:
        module: the module.
        name: name of the weight.
        n_power_iterations: steps of the power iteration in each call.
        eps: the least length by which vectors are divided.
        dim: the axis of outputs; None: 1 of transposed convolutions, else 0.

    Raises:
        InvalidArgument: no such parameter, it is computed already, or n_power_iterations is not positive.
    """
    hook = SpectralNorm(
        name, n_power_iterations, int(isinstance(module, _ConvTransposeNd)) if dim is None else dim, eps
    )
    weight = hook.weight_of(module, name)
    with no_grad():
        vectors = [hook.unit(empty(size, dtype=weight.dtype).normal_(0, 1)) for size in hook.matrix(weight).shape]
    delattr(module, name)
    module.register_parameter(f"{name}_orig", weight)
    setattr(module, name, weight.data)
    for letter, vector in zip("uv", vectors, strict=True):
        module.register_buffer(f"{name}_{letter}", vector)
    module.register_forward_pre_hook(hook)
    return module


def remove_spectral_norm(module: AnyModule, name: str = "weight") -> AnyModule:
    """Undo spectral_norm. Returns the module. Raises InvalidArgument: the weight is not computed."""
    SpectralNorm.remove(module, name, f"{name}_orig", f"{name}_u", f"{name}_v")
    return module
