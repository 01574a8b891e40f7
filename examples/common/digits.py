"""The UCI handwritten digits that scikit-learn ships: 1,797 images of 8x8 pixels."""

from __future__ import annotations

from dataclasses import dataclass

import shmtensor as st

TEST_IMAGES = 360  # of 1,797; the other 1,437 are for training


@dataclass(frozen=True)
class Digits:
    """Images (n, 1, 8, 8), float32 from 0 to 1, and their digits (n,), int64."""

    images: st.Tensor
    labels: st.Tensor

    def __len__(self) -> int:
        return len(self.labels)

    def share_memory(self) -> Digits:
        """Move them to shared memory, so that all processes read the same."""
        self.images.share_memory_()
        self.labels.share_memory_()
        return self

    def batch(self, step: int, size: int, seed: int) -> tuple[st.Tensor, st.Tensor]:
        """The images and labels of a step. Each image occurs once in an epoch, whichever processes make its steps."""
        epoch, number = divmod(step, len(self) // size)
        order = st.randperm(len(self), generator=st.Generator().manual_seed(1_000_003 * seed + epoch))
        rows = order[number * size : (number + 1) * size]
        return self.images[rows], self.labels[rows]


def load() -> tuple[Digits, Digits]:
    """The digits for training and those for tests; the same in each call."""
    from sklearn.datasets import load_digits

    found = load_digits()
    images = st.from_numpy(found.images).float().unsqueeze(1) / 16
    labels = st.from_numpy(found.target).long()
    order = st.randperm(len(labels), generator=st.Generator().manual_seed(0))
    test, rest = order[:TEST_IMAGES], order[TEST_IMAGES:]
    return Digits(images[rest], labels[rest]), Digits(images[test], labels[test])
