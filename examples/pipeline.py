"""Decoders, a batcher and a trainer: programs on one machine or on several, connected by channels.

             files                 images             batches
    batcher -------> decoders ----------> batcher ------------> trainer

The batcher hands out PNG files, each with a digit. Decoders decode, rotate, shift and scale them. The batcher collects
their images into batches, and the trainer trains a small convolutional network on those.

    python examples/pipeline.py                 # all programs here: they share memory
    python examples/pipeline.py --groups        # the same through TCP, as if they could not share memory
    python examples/pipeline.py --namespaces    # each in network, PID and mount namespaces of its own (root)

On several machines: `a` trains, `b` batches, and any number of others decode (docs/channel.md explains keys):

    python examples/pipeline.py train  --listen tcp://a:7000 --keys KEYS
    python examples/pipeline.py batch  --listen tcp://b:7000 --to tcp://a:7000 --keys KEYS
    python examples/pipeline.py decode --to tcp://b:7000 --keys KEYS

The code is the same in all cases. The batcher uses two channels: images arrive at the address at which it listens, and
files are handed out at the next port. The trainer exits with 0 if the test accuracy is at least 0.95.

Kill a decoder: the others continue. The batcher knows which files are undone. When no more images arrive, it hands
these files out again, and ignores duplicates. At the end, it puts end marks into the channel of files until each
decoder has answered with a mark of its own, or no decoder answers any more; the trainer gets a mark after the last
batch.
"""

from __future__ import annotations

import argparse
import io
import math
import os
import signal
import socket
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
from common import digits, hosts
from common.hosts import Host, HostsError
from common.workers import tell
from numpy.typing import NDArray
from PIL import Image
from tqdm import tqdm

import shmtensor as st
from shmtensor import channel, hogwild, nn, optim
from shmtensor.channel import Channel, ConnectionLost, Empty, Full
from shmtensor.errors import ShmTensorError
from shmtensor.nn.functional import cross_entropy

FILE_PIXELS = 96  # of each side of an image in a file
PIXELS = 24  # of each side of a decoded one
TURN = 10.0  # degrees, at most, to either side
SHIFT = 0.05  # of a side, at most, in each direction
PIECE = 32  # files that a decoder gets at a time
BATCH = 64
INSIDE = 4  # messages in a channel, at most
RATE = 0.006  # initial learning rate; falls to 0 as a cosine
WANTED = 0.95  # test accuracy
STARTING = 30.0  # seconds that the other programs may need to start
SILENCE = 60.0  # seconds after which a program that hears nothing gives up
PATIENCE = 3.0  # seconds without an image after which undone files are handed out again


# ---- a decoder -------------------------------------------------------------------------------------------------------


def decode(arguments: argparse.Namespace) -> int:
    """Decode files until there are no more."""
    files = connect(next_port(arguments.to), arguments)
    images = connect(arguments.to, arguments)
    while (piece := files.get(timeout=SILENCE)) is not None:
        random = np.random.default_rng(piece["number"])
        decoded = st.empty(len(piece["files"]), PIXELS, PIXELS, dtype=st.uint8, shared=True)
        for image, file in zip(decoded.numpy(), piece["files"], strict=True):
            image[...] = decoded_and_moved(file, random)
        result = {"from": arguments.name, "number": piece["number"], "images": decoded, "labels": piece["labels"]}
        images.put(result, timeout=SILENCE)
    images.put({"from": arguments.name, "number": None}, timeout=SILENCE)
    images.flush(timeout=SILENCE)  # the container of this process, and its link process, may end with it
    return 0


def decoded_and_moved(file: bytes, random: np.random.Generator | None) -> NDArray[np.uint8]:
    """The image in a file, rotated and shifted at random if there is a generator, and scaled."""
    image = Image.open(io.BytesIO(file)).convert("L")
    if random is not None:
        right, down = (round(image.width * shift) for shift in random.uniform(-SHIFT, SHIFT, 2))
        image = image.rotate(random.uniform(-TURN, TURN), Image.Resampling.BILINEAR, translate=(right, down))
    return np.asarray(image.resize((PIXELS, PIXELS), Image.Resampling.BOX))


# ---- the batcher -----------------------------------------------------------------------------------------------------


class Work:
    """Pieces of work: each has a number, and is undone until its images have arrived."""

    def __init__(self, files: list[bytes], labels: NDArray[np.int64], epochs: int) -> None:
        random = np.random.default_rng(0)
        orders = [random.permutation(len(files)) for _ in range(epochs)]
        rows = [order[first : first + PIECE] for order in orders for first in range(0, len(order), PIECE)]
        self.files, self.labels, self.undone = files, labels, dict(enumerate(rows))
        self.waiting = deque(self.undone)  # to be handed out
        self.count = epochs * len(files)
        self.nbytes = 0  # of the files handed out

    def hand_out(self, channel: Channel) -> None:
        """Put pieces, and end marks after the last one, as long as the queue has room."""
        while not channel.full():
            if not self.undone:
                channel.put(None)
                continue
            while self.waiting and self.waiting[0] not in self.undone:
                self.waiting.popleft()  # its images have arrived in the meantime
            if not self.waiting:
                return
            number = self.waiting.popleft()
            rows = self.undone[number]
            piece = [self.files[row] for row in rows]
            channel.put({"number": number, "files": piece, "labels": st.from_numpy(self.labels[rows])})
            self.nbytes += sum(map(len, piece))

    def hand_out_again(self) -> None:
        """Hand out all pieces that were taken and are undone: the decoders may have been killed."""
        self.waiting = deque(self.undone)


def batch(arguments: argparse.Namespace) -> int:
    """Hand out files, make batches of the images that come back, and send them to the trainer."""
    images = listen(arguments.listen, arguments)
    files = listen(next_port(arguments.listen), arguments)
    data, _ = digits.load()
    work = Work(*as_files(data), arguments.epochs)
    batches = connect(arguments.to, arguments)
    count, steps = 0, math.ceil(work.count / BATCH)
    senders: Counter[str] = Counter()
    rows: list[st.Tensor] = []
    labels: list[st.Tensor] = []
    begun = ended = 0.0
    for result in results(work, files, images):
        begun = begun or time.monotonic()
        if not senders[result["from"]]:
            tell(f"{result['from']} has sent its first images")
        senders[result["from"]] += len(result["images"])
        count += len(result["images"])
        rows.append(result["images"])
        labels.append(result["labels"])
        while sum(map(len, rows)) >= BATCH or (rows and count == work.count):
            all_rows, all_labels = st.cat(rows), st.cat(labels)
            message = {"images": all_rows[:BATCH].clone(), "labels": all_labels[:BATCH].clone(), "of": steps}
            rows, labels = ([tensor[BATCH:]] if len(tensor) > BATCH else [] for tensor in (all_rows, all_labels))
            batches.put(message, timeout=SILENCE)
        ended = time.monotonic()
    amounts = {"files, to decoders": work.nbytes, "images, to the batcher": count * (PIXELS**2 + 8)}
    batches.put({"of": 0, "senders": dict(senders), "amounts": amounts, "seconds": ended - begun}, timeout=SILENCE)
    batches.flush(timeout=SILENCE)
    return 0


def results(work: Work, files: Channel, images: Channel) -> Iterator[dict[str, Any]]:
    """The results of all pieces, each once; then wait until the decoders have ended."""
    here: set[str] = set()  # decoders that have not sent an end mark
    heard = time.monotonic()
    while work.undone or (here and time.monotonic() < heard + PATIENCE):
        work.hand_out(files)
        try:
            result = images.get(timeout=PATIENCE if work.undone else PATIENCE / 10)
        except Empty:
            if time.monotonic() > heard + SILENCE:
                raise
            if work.undone and files.empty():
                work.hand_out_again()
            continue
        heard = time.monotonic()
        if result["number"] is None:
            here.discard(result["from"])
            continue
        here.add(result["from"])
        if work.undone.pop(result["number"], None) is not None:
            yield result


def as_files(data: digits.Digits) -> tuple[list[bytes], NDArray[np.int64]]:
    """The digits, enlarged, as PNG files, and their labels."""
    files = []
    for pixels in (data.images.squeeze(1) * 255).byte().numpy():
        file = io.BytesIO()
        Image.fromarray(pixels).resize((FILE_PIXELS, FILE_PIXELS), Image.Resampling.BICUBIC).save(file, "PNG")
        files.append(file.getvalue())
    return files, data.labels.numpy()


# ---- the trainer -----------------------------------------------------------------------------------------------------


def train(arguments: argparse.Namespace) -> int:
    """Train a network on the batches that arrive, and print its accuracy and the amounts sent through the channels."""
    batches = listen(arguments.listen, arguments)
    _, test = digits.load()
    files, labels = as_files(test)
    test_images = as_input(st.from_numpy(np.stack([decoded_and_moved(file, None) for file in files])))
    st.manual_seed(0)
    model = new_model()
    optimizer = optim.Adam(model.parameters(), lr=RATE)
    step = count = nbytes = 0
    bar = tqdm(desc="training", unit=" batches", disable=None, dynamic_ncols=True)
    begun = ended = 0.0
    while steps := (message := batches.get(timeout=SILENCE))["of"]:
        begun = begun or time.monotonic()
        hogwild.scale_rates(optimizer, (1 + math.cos(math.pi * step / steps)) / 2)
        loss = cross_entropy(model(as_input(message["images"])), message["labels"])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
        count += len(message["images"])
        nbytes += sum(message[part].nbytes for part in ("images", "labels"))
        bar.total = steps
        bar.update()
        bar.set_postfix(loss=f"{loss.item():.3f}", refresh=False)
        ended = time.monotonic()
    seconds = ended - begun
    bar.close()
    with st.no_grad():
        accuracy = (model(test_images).argmax(1) == st.from_numpy(labels)).float().mean().item()

    amounts = [(name, amount, message["seconds"]) for name, amount in message["amounts"].items()]
    print("\nchannel                        MB      MB/s")
    for name, amount, took in (*amounts, ("batches, to the trainer", nbytes, seconds)):
        print(f"{name:25}{amount / 1e6:8.1f}{amount / 1e6 / took:10.2f}")
    shares = ", ".join(f"{name} {share:,}" for name, share in sorted(message["senders"].items()))
    print(f"images decoded by {shares}")
    print(f"{count:,} images in {seconds:.2f} s: {count / seconds:,.0f} images/s; test accuracy {accuracy:.3f}")
    if accuracy < WANTED:
        print(f"pipeline: test accuracy {accuracy:.3f} is below {WANTED}; train for more --epochs", file=sys.stderr)
        return 1
    return 0


def new_model() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 12, 3, stride=2, padding=1), nn.ReLU(),
        nn.Conv2d(12, 24, 3, stride=2, padding=1), nn.ReLU(),
        nn.Flatten(), nn.Linear(24 * (PIXELS // 4) ** 2, 10),
    )  # fmt: skip


def as_input(images: st.Tensor) -> st.Tensor:
    """The network's input for images (n, 24, 24) uint8: (n, 1, 24, 24) float32, centred at 0."""
    return images.unsqueeze(1).float() / 255 - 0.5


# ---- channels --------------------------------------------------------------------------------------------------------


def listen(address: str, arguments: argparse.Namespace) -> Channel:
    return channel.listen(address, maxsize=INSIDE, keys=arguments.keys)


def connect(address: str, arguments: argparse.Namespace) -> Channel:
    """Connect to a program that may still be starting."""
    deadline = time.monotonic() + STARTING
    while True:
        try:
            return channel.connect(address, keys=arguments.keys)
        except ConnectionLost:
            if time.monotonic() > deadline:
                raise


def next_port(address: str) -> str:
    host, _, port = address.rpartition(":")
    return f"{host}:{int(port) + 1}"


# ---- all of them -----------------------------------------------------------------------------------------------------


def run_all(arguments: argparse.Namespace, places: Callable[..., AbstractContextManager[list[Host]]]) -> int:
    """Start all programs, and wait for them. Decoders may be killed as long as one is left."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # the programs and the namespaces end, too
    names = ["trainer", "batcher", *(f"decoder{number}" for number in range(1, arguments.decoders + 1))]
    with places(names, 2) as (trainer, batcher, *others):
        script, epochs = __file__, str(arguments.epochs)
        started = {"trainer": trainer.start(script, "train", "--listen", trainer.url())}
        try:
            started["batcher"] = batcher.start(
                script, "batch", "--listen", batcher.url(), "--to", trainer.url(), "--epochs", epochs
            )
            for name, place in zip(names[2:], others, strict=True):
                started[name] = place.start(script, "decode", "--to", batcher.url(), "--name", name)
            pids = ", ".join(f"{name} {process.pid}" for name, process in started.items())
            tell(f"pids: {pids}: kill a decoder, and the others go on")
            return wait_for(dict(started))
        finally:
            hosts.end(list(started.values()))


def wait_for(running: dict[str, Any]) -> int:
    """Wait until all have ended. Returns 1 as soon as one that the others need has failed."""
    is_decoded = False  # a decoder ends with 0 when there are no more files
    while running:
        time.sleep(0.05)
        for name, process in list(running.items()):
            if process.poll() is None:
                continue
            del running[name]
            if process.returncode:
                tell(f"{name} {hosts.name_of(process.returncode)}")
            if name.startswith("decoder"):
                is_decoded |= not process.returncode
            elif process.returncode:
                return 1
        if not is_decoded and not any(name.startswith("decoder") for name in running):
            print("pipeline: no decoder is left", file=sys.stderr)
            return 1
    return 0


def parse_arguments() -> argparse.Namespace:
    def at_least_one(text: str) -> int:
        if (number := int(text)) < 1:
            raise argparse.ArgumentTypeError(f"{number} is less than 1")
        return number

    parser = argparse.ArgumentParser(
        description="Decoders, a batcher and a trainer, connected by channels. Without a program, all of them run here."
    )
    programs = parser.add_subparsers(dest="program", metavar="PROGRAM")
    decoder = programs.add_parser("decode", help="decode files")
    batcher = programs.add_parser("batch", help="hand out files, and make batches of the images that come back")
    trainer = programs.add_parser("train", help="train on batches")
    for program in (batcher, trainer):
        program.add_argument("--listen", required=True, metavar="ADDRESS", help="such as tcp://10.0.0.1:7000")
    for program in (decoder, batcher):
        program.add_argument("--to", required=True, metavar="ADDRESS", help="that the next program listens at")
    for program in (decoder, batcher, trainer):
        program.add_argument("--keys", metavar="DIRECTORY", help="needed for addresses beyond the loopback")
    name = f"{socket.gethostname()}:{os.getpid()}"
    decoder.add_argument("--name", default=name, help="of this decoder, other than all others (default: host and pid)")
    for program in (parser, batcher):
        program.add_argument("--epochs", type=at_least_one, default=10, metavar="N", help="default: %(default)s")
    add = parser.add_argument
    add("--quick", action="store_const", dest="epochs", const=6, help="6 epochs")
    add("--decoders", type=at_least_one, default=2, metavar="N", help="default: %(default)s")
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--groups", action="store_true", help="a group for each program: all goes through TCP")
    where.add_argument("--namespaces", action="store_true", help="namespaces, and keys, for each program (needs root)")
    return parser.parse_args()


def main() -> int:
    arguments = parse_arguments()
    hogwild.set_single_thread()  # the programs may share the cores of one machine
    try:
        if arguments.program is not None:
            return {"decode": decode, "batch": batch, "train": train}[arguments.program](arguments)
        if arguments.namespaces:
            return run_all(arguments, hosts.in_namespaces)
        return run_all(arguments, hosts.in_groups if arguments.groups else hosts.on_this_machine)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    except (Empty, Full):
        problem = f"nothing was heard from the other programs for {SILENCE:g} s"
    except (ShmTensorError, HostsError) as error:
        problem = str(error)
    print(f"pipeline: {problem}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
