"""The layers of native/ are its folders: includes point downward, and files use only what their folder may use."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from shmtensor import _native
from shmtensor.manager import protocol

NATIVE = Path(__file__).resolve().parent.parent / "native"
LAYERS = ["base", "heap", "ipc", "tensor", "python"]  # from the lowest up
FILES = sorted(path for layer in LAYERS for path in (NATIVE / layer).glob("*.?pp"))

pytestmark = pytest.mark.skipif(not NATIVE.exists(), reason="the native sources come with the source tree only")


def includes(path: Path, form: str) -> list[str]:
    return re.findall(rf"^\s*#\s*include {form}", path.read_text(), re.MULTILINE)


def name(path: Path) -> str:
    return path.relative_to(NATIVE).as_posix()


def test_every_folder_is_a_layer() -> None:
    folders = {path.name for path in NATIVE.iterdir() if path.is_dir()}
    assert folders - {"__pycache__"} == {*LAYERS, "tests", "model"}
    assert not list(NATIVE.glob("*.?pp"))
    assert all(any(path.parent.name == layer for path in FILES) for layer in LAYERS)


@pytest.mark.parametrize("path", FILES, ids=name)
def test_includes_point_downward(path: Path) -> None:
    for target in includes(path, '"([^"]+)"'):
        assert (NATIVE / target).is_file(), target
        assert LAYERS.index(target.split("/")[0]) <= LAYERS.index(path.parent.name), target


def test_headers_include_each_other_in_no_circle() -> None:
    below = {name(path): includes(path, '"([^"]+)"') for path in FILES if path.suffix == ".hpp"}
    while ends := [header for header, others in below.items() if not set(others) & set(below)]:
        for header in ends:
            del below[header]
    assert not below


@pytest.mark.parametrize("path", [path for path in FILES if path.parent.name != "python"], ids=name)
def test_only_one_layer_knows_python(path: Path) -> None:
    assert not [header for header in includes(path, "<([^>]+)>") if re.match(r"Python\.h|nanobind/|numpy/", header)]


KERNEL = r"(sys/.*|linux/.*|unistd\.h|fcntl\.h|poll\.h|sched\.h|signal\.h|time\.h|ctime|thread|chrono|fstream)$"
ALLOWED = {"heap/lock.cpp": {"linux/futex.h"}}  # the bits of a robust mutex's word


@pytest.mark.parametrize("path", [path for path in FILES if name(path) != "base/os.cpp"], ids=name)
def test_only_one_file_calls_the_kernel(path: Path) -> None:
    headers = {header for header in includes(path, "<([^>]+)>") if re.match(KERNEL, header)}
    assert headers <= ALLOWED.get(name(path), set())
    # Mutexes and fork hooks are the C library's, which calls the kernel when it has to.
    calls = re.findall(r"(?<![\w:>])::(\w+)\(", path.read_text())
    assert not [call for call in calls if not call.startswith("pthread_")]


@pytest.mark.parametrize("path", FILES, ids=name)
def test_only_the_module_knows_its_parts(path: Path) -> None:
    assert "python/module.hpp" not in includes(path, '"([^"]+)"') or path.stem.startswith("module")


SHARED = [path for path in FILES if path.parent.name in ("base", "heap", "ipc")]
ORDERED = re.compile(r"memory_order_(acquire|release|acq_rel)")


def tags(text: str) -> list[str]:
    """The names after SYNC: in the comment of a line."""
    return [tag for names in re.findall(r"(?<!`)SYNC: ([a-z]+(?:, [a-z]+)*)", text) for tag in names.split(", ")]


@pytest.mark.parametrize("path", SHARED, ids=name)
def test_every_order_of_memory_names_its_pair(path: Path) -> None:
    lines = path.read_text().splitlines()
    for before, line in zip(["", *lines], lines, strict=False):
        assert not ORDERED.search(line) or tags(line) or tags(before), line


def listed_pairs() -> dict[str, str]:
    table = re.search(
        r"// Memory order\.(.*?)\n// An atomic operation", (NATIVE / "base/layout.hpp").read_text(), re.DOTALL
    )
    assert table
    return dict(re.findall(r"^//   (\w+) +(\S.*)$", table[1], re.MULTILINE))


def test_the_layout_lists_every_pair() -> None:
    known = listed_pairs()
    found = [tag for path in SHARED for line in path.read_text().splitlines() for tag in tags(line)]
    assert set(found) == set(known)
    assert not [tag for tag in known if found.count(tag) < 2 and "in Python" not in known[tag]]


def test_every_pair_is_argued() -> None:
    """docs/memory-order.md has one row for each name, in the order of the list, with no cell empty."""
    text = (NATIVE.parent / "docs/memory-order.md").read_text()
    section = re.search(r"\n## Each pair\n(.*?)\n## ", text, re.DOTALL)
    assert section
    table = [line.strip("|").split("|") for line in section[1].splitlines() if line.startswith("|")]
    rows = [[cell.strip() for cell in row] for row in table[2:]]
    assert [row[0] for row in rows] == list(listed_pairs())
    assert all(len(row) == len(table[0]) and all(row) for row in rows)


@pytest.mark.parametrize(("struct", "message"), [("EmbryoMessage", protocol.Embryo), ("QuietHello", protocol.Hello)])
def test_messages_of_fork_hooks_are_those_of_the_protocol(struct: str, message: type[protocol.Message]) -> None:
    text = (NATIVE / "heap/protocol.hpp").read_text()
    found = re.search(rf"struct {struct} {{.*?type = (\d+), request = 0, body = (\d+)", text, re.DOTALL)
    assert found and (int(found[1]), int(found[2])) == (message.TYPE, message.FORMAT.size)


def test_versions_are_said_in_one_place() -> None:
    assert protocol.PROTOCOL_VERSION is _native.PROTOCOL_VERSION
    for constant, home in ("kProtocolVersion", "heap/protocol.hpp"), ("kLayoutVersion", "base/layout.hpp"):
        said = [name(path) for path in FILES if re.search(rf"\b{constant} = ", path.read_text())]
        assert said == [home]


def test_every_structure_in_shared_memory_can_be_checked() -> None:
    """What layout.hpp states as an invariant (I1, R1, C1, Y1, ...) is run by a check() that says its number."""
    stated = set(re.findall(r"^//   ([IRCY]\d)  ", (NATIVE / "base/layout.hpp").read_text(), re.MULTILINE))
    run = {number for path in FILES for number in re.findall(r'"([IRCY]\d): ', path.read_text())}
    assert run <= stated
    # What a reader has read, which message was the last with a number, and who sleeps, shows in no word.
    assert stated - run == {"C2", "R6", "Y4"}
