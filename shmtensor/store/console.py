"""The command `shmtensor-manager store`: list, show, put and remove objects of stores (docs/store.md)."""

from __future__ import annotations

import argparse
import dataclasses
import math
import reprlib
import sys
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any, Final

import numpy as np

from .. import files
from .._tensor.core import Tensor
from ..errors import InvalidArgument, UnknownHandle
from ..ipc.reductions import name_of
from ..manager import client
from ..manager.cli import common_arguments, say
from ..manager.display import duration, table
from ..manager.ring_kinds import STORE
from ..manager.selection import observe
from ..manager.shortage import size
from .store import ObjectStats, Store

_ITEMS: Final = 20  # of a container that are shown
_CHARACTERS: Final = 200  # of a string that are shown


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the commands of stores and their arguments."""
    commands = parser.add_subparsers(dest="store_command", required=True, metavar=" | ".join(_COMMANDS))
    common = common_arguments(default=argparse.SUPPRESS)

    def command(name: str, line: str) -> argparse.ArgumentParser:
        return commands.add_parser(name, parents=[common], help=line, description=line)

    def of_object(name: str, line: str) -> argparse.ArgumentParser:
        made = command(name, line)
        made.add_argument("store", metavar="NAME", help="name of the store")
        made.add_argument("key", metavar="KEY", type=_text)
        return made

    ls = command("ls", "list all stores of the group, or the objects of one")
    ls.add_argument("store", metavar="NAME", nargs="?", help="name of a store whose objects are listed")
    ls.add_argument("--prefix", type=_text, default="", metavar="P", help="only objects whose keys begin with P")
    of_object("stat", "show the statistics of an object")
    get = of_object("get", "show an object, or write it to a file")
    get.add_argument(
        "--output", metavar="FILE",
        help="write it there instead; the suffix selects the format: a tensor as .npy, a dict of tensors as "
        ".safetensors or .npz, other objects as .shmt or .pt",
    )  # fmt: skip
    put = of_object("put", "put the content of a file under a key")
    put.add_argument("file", metavar="FILE", help=".npy, .npz, .safetensors, .shmt or .pt")
    put.add_argument("--ttl", type=float, metavar="S", help="remove it after S seconds (default: never)")
    put.add_argument("--pin", action="store_true", help="never evict it")
    put.add_argument("--replace", action="store_true", help="replace the object of that key, if there is one")
    rm = command("rm", "remove objects; processes that read one keep it")
    rm.add_argument("store", metavar="NAME", help="name of the store")
    rm.add_argument("keys", metavar="KEY", nargs="*", type=_text)
    rm.add_argument("--prefix", type=_text, metavar="P", help="remove all objects whose keys begin with P")


def run(options: argparse.Namespace) -> int:
    """Run one command, as a client of the chosen manager. Returns the exit code: 0: done, 1: no such object."""
    if sys.stdout is not None:
        sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    with observe(options.address) as observer:
        manager = client.at(observer.address)
    return _COMMANDS[options.store_command](options, manager)


def _text(argument: str) -> str:
    try:
        argument.encode()
    except UnicodeEncodeError:
        raise argparse.ArgumentTypeError(f"{argument!r} is not text in UTF-8") from None
    return argument


# --------------------------------------------------------------------------------------------------------------- stores


def _named_stores(listing: dict[str, Any]) -> list[str]:
    """Return the names of the stores in a LIST document."""
    stores = {row["segment"] for row in listing["rings"] if row["kind"] == STORE}
    return sorted(row["name"].removeprefix("/") for row in listing["names"] if row["segment"] in stores)


def _open(manager: client.Manager, name: str) -> Store:
    """Open a store without extending its lifetime. Raises UnknownHandle, InvalidArgument."""
    block = manager.find(name_of(name))
    listing = manager.list()
    if block is None:
        names = ", ".join(_named_stores(listing)) or "none"
        raise UnknownHandle(f"no store is named {name!r} at {manager.address.decode()}; stores there: {names}")
    if not any(row["segment"] == block.segment and row["kind"] == STORE for row in listing["rings"]):
        raise InvalidArgument(f"{name!r} is not the name of a store; `shmtensor-manager store ls` lists them")
    store = Store.__new__(Store)
    store._name = name
    store._open(manager, block)
    return store


def _ls(options: argparse.Namespace, manager: client.Manager) -> int:
    if options.store is not None:
        return _ls_objects(options, _open(manager, options.store))
    listing = manager.list()
    rows = []
    for name in _named_stores(listing):
        try:
            rows.append({"name": name, **dataclasses.asdict(_open(manager, name).stats())})
        except (UnknownHandle, InvalidArgument):
            continue  # it has ended meanwhile
    unnamed = sum(row["kind"] == STORE for row in listing["rings"]) - len(_named_stores(listing))
    texts = [
        [
            row["name"],
            str(row["objects"]),
            size(row["nbytes"]),
            "-" if row["max_bytes"] is None else size(row["max_bytes"]),
            f"{row['spilled']} ({size(row['spilled_nbytes'])})" if row["spilled"] else "-",
            str(row["evicted"]),
            str(row["expired"]),
            size(row["table_nbytes"]),
        ]
        for row in rows
    ]
    header = ["NAME", "OBJECTS", "BYTES", "LIMIT", "IN FILES", "EVICTED", "EXPIRED", "TABLE"]
    lines = table(header, texts, {1, 2, 3, 4, 5, 6, 7}) if rows else ["no stores with names"]
    if unnamed > 0:
        lines.append(f"and {unnamed} without a name")
    if listing["names_total"] > len(listing["names"]):
        lines.append(f"looked at {len(listing['names'])} of {listing['names_total']} names")
    say(options, {"stores": rows, "unnamed": unnamed}, "\n".join(lines))
    return 0


def _ls_objects(options: argparse.Namespace, store: Store) -> int:
    found = [stats for key in store.keys(options.prefix) if (stats := store._stat(key)) is not None]
    rows = [
        [str(stats.version), size(stats.nbytes), _place(stats), str(stats.holders), *_ending(stats)] for stats in found
    ]
    lines = table(["VERSION", "BYTES", "IN", "HOLDERS", "EXPIRES IN", "PINNED", "KEY"], rows, {0, 1, 3, 4})
    say(options, [dataclasses.asdict(stats) for stats in found], "\n".join(lines) if found else "no objects")
    return 0


def _place(stats: ObjectStats) -> str:
    return "file" if stats.spilled else "memory"


def _ending(stats: ObjectStats) -> list[str]:
    left = "never" if stats.expires_in is None else duration(stats.expires_in)
    return [left, "yes" if stats.pinned else "no", escaped(stats.key)]


# -------------------------------------------------------------------------------------------------------------- objects


def _stat(options: argparse.Namespace, manager: client.Manager) -> int:
    stats = _open(manager, options.store).stat(options.key)
    left, pinned, key = _ending(stats)
    rows = [
        ("key", key),
        ("version", str(stats.version)),
        ("bytes", f"{stats.nbytes} ({size(stats.nbytes)}) in {'a file' if stats.spilled else 'memory'}"),
        ("created", datetime.fromtimestamp(stats.created).astimezone().isoformat(" ", "seconds")),
        ("expires in", left),
        ("pinned", pinned),
        ("holders", str(stats.holders)),
    ]
    say(options, dataclasses.asdict(stats), "\n".join(f"{name:<12} {value}" for name, value in rows))
    return 0


def _get(options: argparse.Namespace, manager: client.Manager) -> int:
    value = _open(manager, options.store).get(options.key)
    if options.output is None:
        say(options, _form(value), _short(value))
        return 0
    _with_file(lambda: files.save(value, options.output))
    say(options, {"file": options.output}, f"wrote {options.output}")
    return 0


def _put(options: argparse.Namespace, manager: client.Manager) -> int:
    store = _open(manager, options.store)
    value = _with_file(lambda: files.load(options.file))
    version = store.put(options.key, value, options.ttl, pin=options.pin, replace=options.replace)
    say(options, {"version": version}, f"put {escaped(options.key)}, version {version}")
    return 0


def _rm(options: argparse.Namespace, manager: client.Manager) -> int:
    if bool(options.keys) == (options.prefix is not None):
        raise InvalidArgument("give the keys of objects, or --prefix P, and not both")
    store = _open(manager, options.store)
    keys: Iterable[str] = options.keys if options.prefix is None else store.keys(options.prefix)
    removed: list[str] = []
    missing: list[str] = []
    for key in keys:
        (removed if store.delete(key) else missing).append(key)
    lines = [f"removed {len(removed)} objects"]
    if options.prefix is None:
        lines += [f"no object {escaped(key)}" for key in missing]
    say(options, {"removed": removed, "missing": missing}, "\n".join(lines))
    return 1 if missing and options.prefix is None else 0


_COMMANDS: Final[dict[str, Callable[[argparse.Namespace, client.Manager], int]]] = {
    "ls": _ls, "stat": _stat, "get": _get, "put": _put, "rm": _rm
}  # fmt: skip


def _with_file(action: Callable[[], Any]) -> Any:
    """Return the result of `action`, which reads or writes a file. Raises InvalidArgument in place of OSError."""
    try:
        return action()
    except OSError as problem:
        raise InvalidArgument(str(problem)) from None


# -------------------------------------------------------------------------------------------------------------- display


def escaped(key: str) -> str:
    r"""Return a key with backslashes and unprintable characters as escapes of Python: "a\nb", "\u202e"."""
    return "".join(
        one if one.isprintable() and one != "\\" else one.encode("unicode_escape").decode() for one in key
    )  # fmt: skip


class _Shortened(reprlib.Repr):
    """Shows the first items of containers, and the shape and type of tensors in them."""

    def __init__(self) -> None:
        super().__init__()
        self.maxdict = self.maxlist = self.maxtuple = _ITEMS
        self.maxstring = self.maxlong = _CHARACTERS

    def repr_Tensor(self, tensor: Tensor, _: int) -> str:  # noqa: N802
        return f"Tensor({tuple(tensor.shape)}, {tensor.dtype})"

    def repr_ndarray(self, array: np.ndarray[Any, Any], _: int) -> str:
        return f"ndarray({array.shape}, {array.dtype})"

    def repr_bytes(self, value: bytes, _: int) -> str:
        return repr(value) if len(value) <= _CHARACTERS else f"{value[:_CHARACTERS]!r}... ({len(value)} bytes)"


def _short(value: Any) -> str:
    if isinstance(value, Tensor | np.ndarray):
        return f"{value!r}\nshape {tuple(value.shape)}, {value.dtype}"
    return _Shortened().repr(value)


def _form(value: Any) -> Any:
    """Return a value for JSON: tensors as shape and type; values that JSON lacks (nan, bytes) as type and text."""
    if isinstance(value, Tensor | np.ndarray):
        return {
            "type": type(value).__name__,
            "shape": list(value.shape),
            "dtype": str(value.dtype).removeprefix("shmtensor."),
        }
    if isinstance(value, dict):
        return {str(key): _form(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_form(one) for one in value]
    if value is None or isinstance(value, bool | int | str) or (isinstance(value, float) and math.isfinite(value)):
        return value
    return {"type": type(value).__name__, "repr": reprlib.repr(value)}
