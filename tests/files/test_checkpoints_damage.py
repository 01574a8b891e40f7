"""Damaged checkpoints: each causes a clear error, without executing code or allocating what they claim."""

from __future__ import annotations

import io
import json
import os
import pickle
import pickletools
import struct
import tracemalloc
import zipfile
import zlib
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shmtensor
from shmtensor import load, save
from shmtensor.errors import EndOfFile, FileDamaged, NotSupported, ShmTensorError
from shmtensor.files import safetensors, torch_pickle

pytestmark = pytest.mark.any_python

FORMATS = ("shmtensor", "torch")
HUGE = 1 << 40


def whole() -> Any:
    base = shmtensor.arange(24, dtype=shmtensor.float32).reshape(4, 6)
    return OrderedDict(
        base=base, t=base.t(), part=[base[1:, 2], base.storage()], words=shmtensor.ones(3, dtype=shmtensor.uint16),
        numbers=(1, -2.5, 3 + 4j, 2**70, None, True), text={"x": "y", 1: b"z", (2, "a"): bytearray(b"w")}, few={1, 2},
        type=shmtensor.int8, device=base.device, wide=shmtensor.ones(2, dtype=shmtensor.complex128),
    )  # fmt: skip


def content_of(obj: Any, format: str) -> bytes:
    file = io.BytesIO()
    save(obj, file, format=format)
    return file.getvalue()


def loaded(content: bytes, format: str | None = None, **how: Any) -> Any:
    """What `load` makes of a file, and that it took no memory that the file does not justify."""
    tracemalloc.start()
    try:
        return load(io.BytesIO(content), format=format, **how)
    finally:
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 3_000_000 + 100 * len(content), f"{peak} bytes for a file of {len(content)}"


def shown(value: Any) -> str:
    """An object with the content of its tensors, and where they lie."""
    if isinstance(value, shmtensor.Tensor):
        return f"{value.dtype}{value.shape}{value.stride()}{value.storage_offset()}{value.tolist()}"
    if isinstance(value, dict):
        return f"{type(value)}{[(shown(key), shown(one)) for key, one in value.items()]}"
    return f"{type(value)}{[shown(one) for one in value]}" if isinstance(value, list | tuple) else repr(value)


# -- seeded damage ----------------------------------------------------------------------------------------------------


def damaged(content: bytes, seed: int) -> bytes:
    """A file with a few changes: bits, bytes, runs of them, copied or lost pieces, and its end."""
    random = np.random.default_rng(seed)
    changed = bytearray(content)
    for _ in range(random.integers(1, 4)):
        at = int(random.integers(len(changed) or 1))
        length = int(random.integers(1, 20))
        match random.integers(7) if changed else 6:
            case 0:
                changed[at] ^= 1 << int(random.integers(8))
            case 1:
                changed[at : at + length] = random.bytes(len(changed[at : at + length]))
            case 2:
                del changed[at:]
            case 3:
                del changed[at : at + length]
            case 4:
                changed[at:at] = random.bytes(length)
            case 5:
                other = int(random.integers(len(changed)))
                changed[at : at + length] = changed[other : other + length]
            case 6:
                changed[at : at + length] = random.choice([0, 255, 48]).tobytes()[:1] * length
    return bytes(changed)


def check_damaged(format: str, seeds: range) -> None:
    content = content_of(whole(), format)
    wanted = shown(load(io.BytesIO(content)))
    refused = 0
    for seed in seeds:
        try:
            found = loaded(damaged(content, seed), format)
        except ShmTensorError:
            refused += 1
        else:
            assert shown(found) == wanted, seed  # what was changed means nothing: a date, the order of members
    assert refused > len(seeds) * 0.6


@pytest.mark.parametrize("format", FORMATS)
def test_500_damaged_files(format: str) -> None:
    check_damaged(format, range(500))


@pytest.mark.exhaustive
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("start", range(0, 10_000, 1000))
@pytest.mark.parametrize("format", FORMATS)
def test_10_000_damaged_files(format: str, start: int) -> None:
    check_damaged(format, range(start, start + 1000))


@pytest.mark.parametrize("format", FORMATS)
def test_files_that_are_cut_anywhere(format: str) -> None:
    content = content_of(whole(), format)
    for length in range(0, len(content), 7):
        with pytest.raises(FileDamaged):
            load(io.BytesIO(content[:length]), format=format)
        if format == "shmtensor" or length < 3:
            with pytest.raises(FileDamaged):
                load(io.BytesIO(content[:length]))


@pytest.mark.parametrize("format", FORMATS)
def test_every_changed_bit_of_the_elements_is_found(format: str) -> None:
    content = bytearray(content_of(shmtensor.full((4,), 1.5), format))
    at = content.index(np.full(4, 1.5, np.float32).tobytes())
    for bit in range(16 * 8):
        content[at + bit // 8] ^= 1 << bit % 8
        with pytest.raises(FileDamaged, match="checksum"):
            load(io.BytesIO(content))
        content[at + bit // 8] ^= 1 << bit % 8


# -- pickles ----------------------------------------------------------------------------------------------------------


def archive(pickled: bytes, storages: dict[str, bytes] | None = None, **records: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as target:
        target.writestr("archive/data.pkl", pickled)
        for name, data in ({f"data/{key}": data for key, data in (storages or {}).items()} | records).items():
            target.writestr(f"archive/{name}", data)
    return file.getvalue()


class Reduced:
    """Is pickled as a call."""

    def __init__(self, *reduced: Any) -> None:
        self.reduced = reduced

    def __reduce__(self) -> Any:
        return self.reduced


TOUCHED = "/tmp/shmtensor-was-here"
CALLS: dict[str, tuple[Any, str]] = {
    "os.system": (Reduced(os.system, (f"touch {TOUCHED}",)), "posix.system"),
    "eval": (Reduced(eval, (f"open({TOUCHED!r}, 'w')",)), "builtins.eval"),
    "exec": (Reduced(exec, (f"open({TOUCHED!r}, 'w')",)), "builtins.exec"),
    "open": (Reduced(open, (TOUCHED, "w")), r"_?io.open"),
    "getattr": (Reduced(getattr, (Reduced(__import__, ("os",)), "system")), "builtins.getattr"),
    "import": (Reduced(__import__, ("os",)), "builtins.__import__"),
    "in a dict": ({"a": [shmtensor.float32, Reduced(os.system, ("true",))]}, r"shmtensor.dtypes._\w+|posix.system"),
    "as a state": (Reduced(OrderedDict, (), {"_metadata": Reduced(os.system, ("true",))}), "posix.system"),
    "as items": (Reduced(list, (), None, iter([Reduced(os.system, ("true",))])), "builtins.list"),
    "our own": (shmtensor.ones(2), r"builtins\.getattr|shmtensor"),
    "an exception": (SystemExit(3), r"(builtins|exceptions)\.SystemExit"),
}  # fmt: skip


@pytest.mark.parametrize("protocol", [0, 1, 2, 3, 4, 5])
@pytest.mark.parametrize("case", CALLS)
def test_nothing_is_called(case: str, protocol: int) -> None:
    obj, name = CALLS[case]
    with pytest.raises(NotSupported, match=rf"asks for ({name})|opcode 0x"):
        loaded(archive(pickle.dumps(obj, protocol)))
    if protocol == 2:
        with pytest.raises(NotSupported, match=rf"asks for ({name}).*, which is not loaded; only tensors"):
            loaded(archive(pickle.dumps(obj, protocol)))
    assert not Path(TOUCHED).exists()


def text(value: str) -> bytes:
    data = value.encode()
    return b"X" + struct.pack("<I", len(data)) + data


def reference(key: str = "0", kind: bytes = b"ctorch\nFloatStorage\n", count: bytes = b"K\4") -> bytes:
    return b"(" + text("storage") + kind + text(key) + text("cpu") + count + b"tQ"


def tensor(
    offset: bytes = b"K\0", size: bytes = b"K\4\x85", stride: bytes = b"K\1\x85", of: bytes | None = None
) -> bytes:
    storage = reference() if of is None else of
    return b"ctorch._utils\n_rebuild_tensor_v2\n(" + storage + offset + size + stride + b"\x89)tR"


LONG = b"\x8a\x08" + struct.pack("<q", HUGE)
AXES = b"(" + b"K\1" * 65 + b"t"
DAMAGED: dict[str, tuple[bytes, type[Exception], str]] = {
    # name: (opcodes, error, message)
    "nothing": (b"", FileDamaged, "it is truncated"),
    "no end": (b"N", FileDamaged, "it is truncated"),
    "an unknown protocol": (b"\x80\x06N.", FileDamaged, "an unknown protocol"),
    "nothing on the stack": (b".", FileDamaged, "damaged"),
    "too much on the stack": (b"NN.", FileDamaged, "damaged"),
    "a mark at the end": (b"N(.", FileDamaged, "damaged"),
    "an unknown opcode": (b"\xff.", NotSupported, "opcode 0xff at byte 0"),
    "an instance": (b"(iposix\nsystem\n.", NotSupported, r"posix\.system"),
    "a name without end": (b"c" + b"x" * 5000, FileDamaged, "a name has no end"),
    "a name that is no text": (b"c\xff\n\xff\n.", FileDamaged, "damaged"),
    "a name from numbers": (b"K\1K\2\x93.", FileDamaged, "not a string"),
    "a dotted name": (b"\x8c\x05torch\x8c\x0bFloatTensor\x93.", NotSupported, r"torch\.FloatTensor"),
    "a way through": (b"\x8c\x05torch\x8c\x0a_utils.sys\x93.", NotSupported, r"torch\._utils\.sys"),
    "a long string": (b"X\xff\xff\xff\xff.", FileDamaged, "it is truncated"),
    "long bytes": (b"B\xff\xff\xff\x7f.", FileDamaged, "it is truncated"),
    "a string that is no text": (b"X\1\0\0\0\xff.", FileDamaged, "damaged"),
    "a memo of nothing": (b"h\7.", FileDamaged, "damaged"),
    "a memo far away": (b"Nr\xff\xff\xff\xff0.", NotSupported, "opcode 0x30"),
    "pops of nothing": (b"R.", FileDamaged, "damaged"),
    "a tuple of nothing": (b"\x87.", FileDamaged, "not enough values"),
    "items without a mark": (b"}u.", FileDamaged, "damaged"),
    "half an item": (b"}(K\1u.", FileDamaged, "damaged"),
    "an item of a number": (b"K\1K\1K\1s.", FileDamaged, "an item of a int is set"),
    "an item for a tensor": (tensor() + b"K\0K\0s.", FileDamaged, "an item of a Tensor is set"),
    "appended to a tuple": (b")K\1a.", FileDamaged, "appended to a tuple"),
    "a list as a key": (b"}]Ns.", FileDamaged, "a list is a key"),
    "a list in a key": (b"}]\x85Ns.", FileDamaged, "a tuple is a key"),
    "a deep key": (b"})" + b"\x85" * 100_000 + b"Ns.", FileDamaged, "a tuple is a key"),
    "a key of keys": (b"})" + b"q\0h\0\x86" * 60 + b"Ns.", FileDamaged, "a tuple is a key"),
    "an enormous key": (b"}\x8a\xff" + b"\1" * 255 + b"Ns.", FileDamaged, "a int is a key"),
    "a list in a set": (b"\x8f(]\x90.", FileDamaged, "an invalid value in a set"),
    "a call of a string": (text("x") + b")R.", FileDamaged, "a str is called"),
    "a call of a storage class": (b"ctorch\nFloatStorage\n)R.", FileDamaged, "_Kind is called"),
    "a call of a tensor": (tensor() + b")R.", FileDamaged, "a Tensor is called"),
    "arguments that are none": (b"ccollections\nOrderedDict\n]R.", FileDamaged, "not a tuple"),
    "too many arguments": (b"ctorch\ndevice\n(K\1K\1K\1K\1tR.", FileDamaged, "damaged"),
    "other encodings": (b"c_codecs\nencode\n" + text("x") + text("rot13") + b"\x86R.", FileDamaged, "not a latin1"),
    "a complex of strings": (b"c__builtin__\ncomplex\n" + text("1") * 2 + b"\x86R.", FileDamaged, "not numbers"),
    "an enormous bytearray": (b"c__builtin__\nbytearray\n" + LONG + b"\x85R.", FileDamaged, "is not bytes"),
    "an enormous set": (b"c__builtin__\nset\n" + LONG + b"\x85R.", FileDamaged, "an invalid value in a set"),
    "an order of numbers": (b"ccollections\nOrderedDict\n(K\1K\1ttR.", FileDamaged, "damaged|mark"),
    "sizes of strings": (b"ctorch\nSize\n(" + text("x") + b"t\x85R.", FileDamaged, "not integers"),
    "a function as a value": (b"ccollections\nOrderedDict\n.", FileDamaged, "a .*Function is among the values"),
    "a storage class as a value": (b"]ctorch\nFloatStorage\na.", FileDamaged, "_Kind is among the values"),
    "attributes of a tensor": (tensor() + b"}b.", NotSupported, "attributes of a Tensor"),
    "attributes of a dict": (b"}" + text("keys") + b"Nsb.", FileDamaged, "damaged"),
    "other attributes": (
        b"ccollections\nOrderedDict\n)R}" + text("items") + b"Nsb.", NotSupported, "attributes of a .*Ordered",
    ),
    "another persistent id": (text("x") + b"Q.", FileDamaged, "other than a storage"),
    "an id of other things": (b"(" + text("module") + b"NNNNtQ.", FileDamaged, "other than a storage"),
    "a storage that is not there": (reference("1") + b".", FileDamaged, "there is no storage '1'"),
    "a storage elsewhere": (reference("../data.pkl") + b".", FileDamaged, "there is no storage"),
    "a storage of another size": (reference(count=b"K\5") + b".", FileDamaged, "of 5 elements, and the file has 16"),
    "an enormous storage": (reference(count=LONG) + b".", FileDamaged, "and the file has 16 bytes"),
    "a storage of two types": (
        b"]" + reference() + b"a" + reference(kind=b"ctorch\nIntStorage\n") + b"a.", FileDamaged, "and a IntStorage",
    ),
    "a tensor without a storage": (tensor(of=b"N") + b".", FileDamaged, "without a storage"),
    "an enormous tensor": (tensor(size=LONG + b"\x85") + b".", FileDamaged, "reaches beyond its 16 bytes"),
    "an enormous shape": (tensor(size=LONG * 2 + b"\x86", stride=b"K\1K\1\x86") + b".", FileDamaged, "can have"),
    "an enormous stride": (tensor(stride=LONG + b"\x85") + b".", FileDamaged, "reaches beyond"),
    "a negative stride": (tensor(stride=b"J\xff\xff\xff\xff\x85") + b".", FileDamaged, "reaches beyond"),
    "a negative offset": (tensor(b"J\xff\xff\xff\xff") + b".", FileDamaged, "reaches beyond"),
    "an offset beyond": (tensor(b"K\1") + b".", FileDamaged, "reaches beyond"),
    "an enormous offset": (tensor(b"\x8a\xfe" + b"\x7f" * 254) + b".", FileDamaged, "must be integers"),
    "an offset that is a string": (tensor(text("0")) + b".", FileDamaged, "must be integers"),
    "a negative size": (tensor(size=b"J\xff\xff\xff\xff\x85") + b".", FileDamaged, "not a list of sizes"),
    "a size that is a truth": (tensor(size=b"\x88\x85") + b".", FileDamaged, "not a list of sizes"),
    "fewer strides": (tensor(stride=b")") + b".", FileDamaged, "as many sizes as strides"),
    "many axes": (tensor(size=AXES, stride=AXES) + b".", FileDamaged, "at most 64"),
    "a parameter of a string": (
        b"ctorch._utils\n_rebuild_parameter\n" + text("x") + b"\x89)\x87R.", FileDamaged, "a str instead of a tensor",
    ),
    "deep lists": (b"]" * 20_000 + b"a" * 19_999 + b".", FileDamaged, "nested more than 1000 deep"),
    "deep tuples": (b")" + b"\x85" * 20_000 + b".", FileDamaged, "nested more than 1000 deep"),
    "many marks": (b"(" * 20_000 + b".", FileDamaged, "damaged"),
}  # fmt: skip


@pytest.mark.parametrize("how", [{}, {"map_location": "shared"}])
@pytest.mark.parametrize("case", DAMAGED)
def test_pickles_that_lie(case: str, how: dict[str, Any]) -> None:
    code, error, message = DAMAGED[case]
    with pytest.raises(error, match=message):
        loaded(archive(code, {"0": bytes(16)}), **how)


def test_the_pickle_of_these_tests_is_valid() -> None:
    assert loaded(archive(tensor() + b".", {"0": bytes(16)})).tolist() == [0, 0, 0, 0]


def test_a_list_in_itself() -> None:
    found = loaded(archive(b"]q\0h\0a."))
    assert found[0] is found


def test_bombs_of_references_are_small() -> None:
    """Each list has the one before twice: 2 ** 900 values if they were copied, or looked through."""
    found = loaded(archive(b")" + b"q\0h\0\x86" * 900 + b"."))
    assert found[0] is found[1]


@pytest.mark.parametrize("call", [b"c_codecs\nencode\n", b"c__builtin__\nset\n", b"ctorch\nSize\n"])
def test_calls_cannot_multiply(call: bytes) -> None:
    """Many values that a small opcode copies, thousands of times."""
    what = (text("x" * 200_000) if b"encode" in call else b"(" + b"K\1" * 20_000 + b"t") + b"q\0"
    arguments = b"h\0" + (text("latin1") + b"\x86" if b"encode" in call else b"\x85")
    code = b"]" + what + b"a" + (call + arguments + b"Ra") * 20_000
    code = code[:300_000] + b"."
    with pytest.raises((FileDamaged, NotSupported), match=r"calls make more than|damaged"):
        loaded(archive(code))


def test_opcodes_are_those_of_pickle() -> None:
    assert {bytes([code]).decode("latin1") for code in torch_pickle._OPCODES} < set(pickletools.code2op)


# -- archives ---------------------------------------------------------------------------------------------------------

ARCHIVES: dict[str, tuple[bytes, type[Exception], str]] = {
    "nothing": (b"", EndOfFile, "the file is empty"),
    "text": (b"hello, world" * 100, FileDamaged, "not a zip archive"),
    "an old file": (pickle.dumps(0x1950A86A20F9469CFC6C, 2) + b"more", NotSupported, "save it again: torch.save"),
    "an older file": (bytes(257) + b"ustar" + bytes(300), NotSupported, "save it again: torch.save"),
    "no pickle": (content_of({"x": np.ones(1)}, "npz"), FileDamaged, "without data.pkl"),
    "a program": (archive(b"N.", **{"constants.pkl": b"N."}), NotSupported, "TorchScript"),
    "another byte order": (archive(b"N.", byteorder=b"middle"), FileDamaged, "byte order is b'middle'"),
}


@pytest.mark.parametrize("case", ARCHIVES)
def test_archives_that_lie(case: str) -> None:
    content, error, message = ARCHIVES[case]
    with pytest.raises(error, match=message):
        loaded(content, "torch")


def test_archives_that_are_compressed_or_have_a_record_twice() -> None:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as target:
        target.writestr("archive/data.pkl", b"N." * 100)
    with pytest.raises(FileDamaged, match=r"is compressed, which torch\.save does not do"):
        loaded(file.getvalue())
    with zipfile.ZipFile(file := io.BytesIO(), "w") as target:
        target.writestr("a/data.pkl", b"N.")
        target.writestr("b/data.pkl", b"N.")
    with pytest.raises(FileDamaged, match="is a duplicate"):
        loaded(file.getvalue())


def test_the_other_byte_order() -> None:
    values = np.arange(4, dtype=">f4")
    found = loaded(archive(tensor() + b".", {"0": values.tobytes()}, byteorder=b"big"))
    assert found.tolist() == [0, 1, 2, 3]
    untyped = reference(kind=b"ctorch.storage\nUntypedStorage\n", count=b"K\x10")
    with pytest.raises(NotSupported, match="untyped elements in the other byte order"):
        loaded(archive(untyped + b".", {"0": values.tobytes()}, byteorder=b"big"))


# -- shmtensor's format -----------------------------------------------------------------------------------------------


def checkpoint(value: Any, blocks: Any = (("float32", 4),), **metadata: str) -> bytes:
    """A file with this structure over 16 bytes, and right checksums."""
    structure = value if isinstance(value, str) else json.dumps({"blocks": blocks, "value": value})
    header = {
        safetensors.METADATA: {"shmtensor": "1", "structure": structure} | metadata,
        "0": {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]},
        "checksums": {"dtype": "U8", "shape": [8], "data_offsets": [16, 24]},
    }
    encoded = json.dumps(header).encode()
    sums = struct.pack("<II", zlib.crc32(structure.encode()), zlib.crc32(bytes(16)))
    return struct.pack("<Q", len(encoded)) + encoded + bytes(16) + sums


def where(offset: Any = 0, shape: Any = (4,), stride: Any = (1,), block: Any = 0, dtype: Any = "float32") -> Any:
    return {"tensor": [block, dtype, offset, shape, stride]}


STRUCTURES: dict[str, tuple[bytes, type[Exception], str]] = {
    "a later version": (checkpoint(1, shmtensor="2"), NotSupported, "version '2' of the format"),
    "no structure": (checkpoint(1, structure=""), FileDamaged, "checksum of the structure is wrong"),
    "no JSON": (checkpoint("{"), FileDamaged, "the structure is invalid"),
    "no object": (checkpoint("3"), FileDamaged, "the structure is invalid"),
    "no value": (checkpoint('{"blocks": []}'), FileDamaged, "the structure is invalid"),
    "a deep structure": (checkpoint("[" * 200_000), FileDamaged, "the structure is invalid"),
    "deep lists": (
        checkpoint('{"blocks": [], "value": ' + "[" * 2000 + "]" * 2000 + "}"),
        FileDamaged,
        "invalid|too deep",
    ),
    "a field twice": (checkpoint('{"blocks": [], "value": {"a": 1, "a": 2}}'), FileDamaged, "duplicate key"),
    "NaN": (checkpoint('{"blocks": [], "value": NaN}'), FileDamaged, "not valid JSON"),
    "an unknown kind": (checkpoint({"function": "os.system"}), FileDamaged, "the kind 'function', which this version"),
    "a hidden kind": (checkpoint({"_keep": 1}), FileDamaged, "which this version does not know"),
    "two kinds": (checkpoint({"tuple": [], "set": []}), FileDamaged, "without exactly one field"),
    "an unknown type": (checkpoint({"dtype": "object"}), FileDamaged, "'object' is not a type"),
    "a type of a block": (checkpoint(1, (("object", 4),)), FileDamaged, "'object' is not a type"),
    "more blocks": (checkpoint(1, (("float32", 4),) * 2), FileDamaged, "block 1 is not"),
    "another block": (checkpoint(1, (("int32", 4),)), FileDamaged, r"block 0 is not int32\[4\]"),
    "an enormous block": (checkpoint(1, (("float32", HUGE),)), FileDamaged, "block 0 is not"),
    "no bytes": (checkpoint({"bytes": "é"}), FileDamaged, "bytes 'é'"),
    "no integer": (checkpoint({"int": "x"}), FileDamaged, "int 'x'"),
    "a reference to nothing": (checkpoint({"same": 3}), FileDamaged, "same 3"),
    "a reference to itself": (checkpoint([{"same": 0}]), FileDamaged, "same 0"),
    "a reference back": (checkpoint([[], {"same": -1}]), FileDamaged, "a reference to -1"),
    "half an item": (checkpoint({"dict": ["a"]}), FileDamaged, "dict"),
    "items that are no list": (checkpoint({"dict": 5}), FileDamaged, "5 instead of a list"),
    "a key twice": (checkpoint({"dict": [1, 2, 1, 3]}), FileDamaged, "have the same key"),
    "a list as a key": (checkpoint({"dict": [[], 3]}), FileDamaged, "a? ?list is not a key"),
    "a list in a set": (checkpoint({"set": [[]]}), FileDamaged, "a set with an invalid value"),
    "a device of numbers": (checkpoint({"device": [1, 2]}), FileDamaged, "the device"),
    "no fields": (checkpoint({"tensor": [0]}), FileDamaged, "tensor"),
    "no block": (checkpoint(where(block=1)), FileDamaged, "block 1 of 1"),
    "a block before": (checkpoint(where(block=-1)), FileDamaged, "block -1 of 1"),
    "a tensor beyond": (checkpoint(where(1)), FileDamaged, "reaches beyond its 16 bytes"),
    "a tensor before": (checkpoint(where(0, stride=(-1,))), FileDamaged, "reaches beyond its 16 bytes"),
    "wider elements": (checkpoint(where(dtype="float64")), FileDamaged, "reaches beyond its 16 bytes"),
    "an enormous tensor": (checkpoint(where(shape=(HUGE,))), FileDamaged, "reaches beyond its 16 bytes"),
    "a storage beyond": (checkpoint({"storage": [0, 1, 4]}), FileDamaged, "not in its block of 16 bytes"),
    "a part of another type beyond": (
        checkpoint({"storage": [0, 8, 2, "float64"]}), FileDamaged, "2 elements of float64 are not in a block of 16"
    ),
    "a storage before": (checkpoint({"storage": [0, -1, 4]}), FileDamaged, "not in its block of 16 bytes"),
}  # fmt: skip


@pytest.mark.parametrize("how", [{}, {"map_location": "shared"}])
@pytest.mark.parametrize("case", STRUCTURES)
def test_structures_that_lie(case: str, how: dict[str, Any]) -> None:
    content, error, message = STRUCTURES[case]
    with pytest.raises(error, match=message):
        if "deep" in case:
            load(io.BytesIO(content), **how)
        else:
            loaded(content, **how)


def test_the_structure_of_these_tests_is_valid() -> None:
    found = loaded(checkpoint([where(), {"storage": [0, 1, 2]}]))
    assert found[0].tolist() == [0, 0, 0, 0] and found[1].size() == 2


def test_values_that_torch_itself_writes_otherwise() -> None:
    """A set as later protocols have it, and a bytearray as protocol 2 has it."""
    assert loaded(archive(b"\x8f(K\1K\2\x90.")) == {1, 2}
    code = b"c__builtin__\nbytearray\n" + text("a\xe9") + text("latin-1") + b"\x86R."
    assert loaded(archive(code)) == bytearray(b"a\xe9")
