"""gensim's Word2Vec, for comparison: threads of one process, code in C."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Watch = Callable[[float, NDArray[np.float32], NDArray[np.float32]], None]


def learn(
    words: Sequence[str], stretches: Sequence[Sequence[str]], threads: int, settings: dict[str, Any], watch: Watch
) -> None:
    """Train by skip-gram with negative sampling, and call `watch(seconds, middle, neighbour)` before and after epochs.

    The time that `watch` takes is not counted. Rows of the tables are in the order of `words`.
    """
    from gensim.models import Word2Vec
    from gensim.models.callbacks import CallbackAny2Vec

    model = Word2Vec(sg=1, hs=0, min_count=1, min_alpha=1e-6, workers=threads, **settings)
    model.build_vocab(stretches)
    known = [i for i, word in enumerate(words) if word in model.wv.key_to_index]
    rows = [model.wv.key_to_index[words[i]] for i in known]

    def in_order(table: NDArray[np.float32]) -> NDArray[np.float32]:
        ordered = np.zeros((len(words), table.shape[1]), table.dtype)
        ordered[known] = table[rows]
        return ordered

    class Epochs(CallbackAny2Vec):
        seconds = 0.0

        def show(self) -> None:
            watch(self.seconds, in_order(model.wv.vectors), in_order(model.syn1neg))
            self.start = time.perf_counter()

        def on_epoch_end(self, _: Any) -> None:
            self.seconds += time.perf_counter() - self.start
            self.show()

    epochs = Epochs()
    epochs.show()
    model.train(stretches, total_words=model.corpus_total_words, epochs=model.epochs, callbacks=[epochs])
