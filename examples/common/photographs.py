"""Photographs that scikit-learn and matplotlib ship, as JPEG files, and random crops of them."""

from __future__ import annotations

import io
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from shmtensor.data import Dataset, SharedList, sample_generator

PIXELS = 32  # of each side of a crop
SIDES = (80.0, 120.0)  # side of the square in the photograph that a crop is scaled from, in pixels: least, most
TESTED = 0.25  # part of each photograph, from the left, for test crops; training uses the rest
LIGHT = 0.4  # largest relative change of brightness and contrast of a training crop


def files() -> dict[str, bytes]:
    """The content of each file, by its name."""
    import matplotlib
    import sklearn

    folders = [Path(sklearn.__file__).parent / "datasets" / "images", Path(matplotlib.get_data_path()) / "sample_data"]
    return {path.stem: path.read_bytes() for folder in folders for path in sorted(folder.glob("*.jpg"))}


def decoded(file: bytes) -> Image.Image:
    return Image.open(io.BytesIO(file)).convert("RGB")


class Crops(Dataset[tuple[NDArray[np.uint8], int]]):
    """Training crops, (32, 32, 3) uint8, different in each epoch, and the number of the photograph of each.

    A whole photograph is decoded for each crop, as if each sample had a file of its own.
    """

    def __init__(self, photographs: Iterable[bytes], length: int) -> None:
        self.photographs, self.length = SharedList(photographs), length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> tuple[NDArray[np.uint8], int]:
        label = index % len(self.photographs)
        photograph, random = decoded(self.photographs[label]), self.random(index)
        crop = cut(photograph, TESTED * photograph.width, photograph.width, random)
        if random.random() < 0.5:
            crop = crop.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        contrast, brightness = random.uniform(1 - LIGHT, 1 + LIGHT), random.uniform(-64 * LIGHT, 64 * LIGHT)
        return np.clip(np.asarray(crop) * contrast + brightness, 0, 255).astype(np.uint8), label

    def random(self, index: int) -> np.random.Generator:
        """The generator of a sample, from the loader's seed, the epoch and the index, whichever process loads it."""
        return sample_generator()


def crops_to_test(photographs: Iterable[bytes], length: int) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Crops (length, 32, 32, 3) of the parts that are not used for training, always the same, and their labels."""
    images, random = [decoded(file) for file in photographs], np.random.default_rng(0)
    labels = np.arange(length) % len(images)
    crops = [np.asarray(cut(images[label], 0, TESTED * images[label].width, random)) for label in labels]
    return np.stack(crops), labels


def cut(photograph: Image.Image, left: float, right: float, random: np.random.Generator) -> Image.Image:
    """A square of random size and place between two columns, scaled to the size of a crop."""
    side = random.uniform(*SIDES)
    x, y = random.uniform(left, right - side), random.uniform(0, photograph.height - side)
    return photograph.resize((PIXELS, PIXELS), Image.Resampling.BILINEAR, box=(x, y, x + side, y + side))
