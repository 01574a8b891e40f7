"""Tables of vectors: Embedding, and EmbeddingBag, which reduces several vectors to one."""

from __future__ import annotations

from typing import Any, Self

from ..._tensor.creation import empty
from ..._tensor.methods import Tensor
from ...autograd.modes import no_grad
from ...errors import InvalidArgument
from .. import functional, init
from ..parameter import Parameter
from .module import Module


def _table(
    num_embeddings: int, embedding_dim: int, padding_idx: int | None, given: Tensor | None, device: Any, dtype: Any
) -> tuple[Tensor, int | None]:
    """The weight and the number of the padding row, from 0. Raises InvalidArgument: they do not match."""
    if padding_idx is not None:
        if not -num_embeddings <= padding_idx < num_embeddings:
            raise InvalidArgument(f"Padding_idx must be within num_embeddings; got {padding_idx} of {num_embeddings}")
        padding_idx %= num_embeddings
    if given is None:
        return empty(num_embeddings, embedding_dim, device=device, dtype=dtype), padding_idx
    if given.shape != (num_embeddings, embedding_dim):
        raise InvalidArgument(
            f"Shape of weight {given.shape} does not match num_embeddings {num_embeddings} and embedding_dim "
            f"{embedding_dim}"
        )
    return given, padding_idx


def _shape_of(embeddings: Tensor) -> tuple[int, ...]:
    if embeddings.dim() != 2:
        raise InvalidArgument(f"Embeddings parameter is expected to be 2-dimensional; got shape {embeddings.shape}")
    return embeddings.shape


class _Table(Module):
    """The base of both tables."""

    weight: Parameter
    num_embeddings: int
    embedding_dim: int
    padding_idx: int | None
    max_norm: float | None
    norm_type: float
    scale_grad_by_freq: bool

    def reset_parameters(self) -> None:
        """Draw the vectors from a normal distribution; that of the padding is 0."""
        init.normal_(self.weight)
        self._fill_padding_idx_with_zero()

    def _fill_padding_idx_with_zero(self) -> None:
        if self.padding_idx is not None:
            with no_grad():
                self.weight[self.padding_idx].fill_(0)

    def _settings(self) -> list[str]:
        """The arguments that are not defaults and that both tables show."""
        shown = []
        if self.max_norm is not None:
            shown.append(f"max_norm={self.max_norm}")
        if self.norm_type != 2:
            shown.append(f"norm_type={self.norm_type}")
        if self.scale_grad_by_freq:
            shown.append(f"scale_grad_by_freq={self.scale_grad_by_freq}")
        return shown


class Embedding(_Table):
    """A table of vectors: indices of shape (...) -> (..., embedding_dim).

    Args:
        num_embeddings: number of vectors.
        embedding_dim: their size.
        padding_idx: index of a vector that is 0 at first and gets no gradient.
        max_norm: vectors that are longer are scaled to this length when they are used.
        norm_type: the norm that max_norm means.
        scale_grad_by_freq: divide gradients by the number of times that an index occurs.
        sparse: the gradient of the weight is sparse.
        _weight: the table.
        _freeze: its gradients are not recorded.
        device: None or the CPU; `cuda()` moves the module to a GPU.
        dtype: type of the vectors.

    Raises:
        InvalidArgument: padding_idx is not an index, or a table of another shape.
    """

    def __init__(
        self, num_embeddings: int, embedding_dim: int, padding_idx: int | None = None, max_norm: float | None = None,
        norm_type: float = 2.0, scale_grad_by_freq: bool = False, sparse: bool = False, _weight: Tensor | None = None,
        _freeze: bool = False, device: Any = None, dtype: Any = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.num_embeddings = num_embeddings
        self.embedding_dim = embedding_dim
        weight, place = _table(num_embeddings, embedding_dim, padding_idx, _weight, device, dtype)
        self.padding_idx: int | None = place
        self.max_norm = max_norm
        self.norm_type = norm_type
        self.scale_grad_by_freq = scale_grad_by_freq
        self.weight: Parameter = Parameter(weight, requires_grad=not _freeze)
        if _weight is None:
            self.reset_parameters()
        self.sparse = sparse

    def forward(self, input: Tensor) -> Tensor:
        """The vectors of indices."""
        return functional.embedding(
            input, self.weight, self.padding_idx, self.max_norm, self.norm_type, self.scale_grad_by_freq, self.sparse
        )

    def extra_repr(self) -> str:
        """The arguments that are not defaults."""
        padding = [] if self.padding_idx is None else [f"padding_idx={self.padding_idx}"]
        sparse = ["sparse=True"] * bool(self.sparse)
        return ", ".join([f"{self.num_embeddings}, {self.embedding_dim}", *padding, *self._settings(), *sparse])

    @classmethod
    def from_pretrained(
        cls, embeddings: Tensor, freeze: bool = True, padding_idx: int | None = None, max_norm: float | None = None,
        norm_type: float = 2.0, scale_grad_by_freq: bool = False, sparse: bool = False,
    ) -> Self:  # fmt: skip
        """A table over the memory of a matrix, by default without gradients. Raises InvalidArgument: not a matrix."""
        rows, columns = _shape_of(embeddings)
        return cls(rows, columns, padding_idx, max_norm, norm_type, scale_grad_by_freq, sparse, embeddings, freeze)


class EmbeddingBag(_Table):
    """A table of vectors; the result for each bag of indices is the mean, sum or maximum of its vectors.

    Args:
        num_embeddings: number of vectors.
        embedding_dim: their size.
        max_norm: vectors that are longer are scaled to this length when they are used.
        norm_type: the norm that max_norm means.
        scale_grad_by_freq: divide gradients by the number of times that an index occurs.
        mode: "mean", "sum" or "max".
        sparse: the gradient of the weight is sparse.
        _weight: the table.
        include_last_offset: the last offset is the end of the last bag.
        padding_idx: index of a vector that is not counted, is 0 at first and gets no gradient.
        device: None or the CPU; `cuda()` moves the module to a GPU.
        dtype: type of the vectors.

    Raises:
        InvalidArgument: padding_idx is not an index, or a table of another shape.
    """

    def __init__(
        self, num_embeddings: int, embedding_dim: int, max_norm: float | None = None, norm_type: float = 2.0,
        scale_grad_by_freq: bool = False, mode: str = "mean", sparse: bool = False, _weight: Tensor | None = None,
        include_last_offset: bool = False, padding_idx: int | None = None, device: Any = None, dtype: Any = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.num_embeddings = num_embeddings
        self.embedding_dim = embedding_dim
        self.max_norm = max_norm
        self.norm_type = norm_type
        self.scale_grad_by_freq = scale_grad_by_freq
        weight, place = _table(num_embeddings, embedding_dim, padding_idx, _weight, device, dtype)
        self.padding_idx: int | None = place
        self.weight: Parameter = Parameter(weight)
        if _weight is None:
            self.reset_parameters()
        self.mode = mode
        self.sparse = sparse
        self.include_last_offset = include_last_offset

    def forward(self, input: Tensor, offsets: Tensor | None = None, per_sample_weights: Tensor | None = None) -> Tensor:
        """One vector for each bag.

        Args:
            input: indices; of two axes, a bag in each row.
            offsets: where each bag begins, if the indices have one axis.
            per_sample_weights: factors of the vectors, in mode "sum".
        """
        return functional.embedding_bag(
            input, self.weight, offsets, self.max_norm, self.norm_type, self.scale_grad_by_freq, self.mode, self.sparse,
            per_sample_weights, self.include_last_offset, self.padding_idx,
        )  # fmt: skip

    def extra_repr(self) -> str:
        """The arguments that are not defaults."""
        padding = [] if self.padding_idx is None else [f"padding_idx={self.padding_idx}"]
        return ", ".join(
            [f"{self.num_embeddings}, {self.embedding_dim}", *self._settings(), f"mode={self.mode!r}", *padding]
        )

    @classmethod
    def from_pretrained(
        cls, embeddings: Tensor, freeze: bool = True, max_norm: float | None = None, norm_type: float = 2.0,
        scale_grad_by_freq: bool = False, mode: str = "mean", sparse: bool = False, include_last_offset: bool = False,
        padding_idx: int | None = None,
    ) -> Self:  # fmt: skip
        """A table over the memory of a matrix, by default without gradients. Raises InvalidArgument: not a matrix."""
        rows, columns = _shape_of(embeddings)
        made = cls(
            rows, columns, max_norm, norm_type, scale_grad_by_freq, mode, sparse, embeddings, include_last_offset,
            padding_idx,
        )  # fmt: skip
        made.weight.requires_grad = not freeze
        return made
