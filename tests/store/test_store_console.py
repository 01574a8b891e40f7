"""The command `shmtensor-manager store`."""

from __future__ import annotations

import gc
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from manager_world import World, until

import shmtensor as st
import shmtensor.multiprocessing as mp
from shmtensor import errors
from shmtensor._loading import load
from shmtensor.manager import cli, client
from shmtensor.store import Store
from shmtensor.store.console import escaped

ODD = "a\nb\\\u202e\u732b"
Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def store() -> Iterator[Store]:
    made = Store("features", max_bytes="8M")
    yield made
    made.destroy()
    made._native.check_invariants()


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Command:
    """Run a command on the manager of this process. Returns its exit code, and what it printed and complained."""

    def run(*arguments: str) -> tuple[int, str, str]:
        try:
            code = cli.main(["store", "--address", os.fsdecode(client.default().address), *arguments])
        except SystemExit as end:
            code = int(end.code or 0)
        return code, *capsys.readouterr()

    return run


def document(command: Command, *arguments: str) -> Any:
    code, out, err = command(*arguments, "--json")
    assert (code, err) == (0, "")
    return json.loads(out)


@pytest.mark.parametrize("name", cli.MODULES)
def test_modules_of_commands_have_what_the_command_line_calls(name: str) -> None:
    module = load(cli.MODULES[name][0])
    assert callable(module.add_arguments) and callable(module.run)


def test_ls_of_all_stores(command: Command, store: Store) -> None:
    other, unnamed, jobs = Store("another"), Store(), mp.Queue(name="jobs")
    store.put("x", st.zeros(1000))
    found = document(command, "ls")
    assert [row["name"] for row in found["stores"]] == ["another", "features"] and found["unnamed"] >= 1
    row = found["stores"][1]
    assert (row["objects"], row["max_bytes"], row["evicted"]) == (1, 8 << 20, 0) and row["nbytes"] >= 4000
    text = command("ls")[1]
    assert "features" in text and "8.0 MiB" in text and "without a name" in text and "jobs" not in text
    other.destroy()
    del unnamed, jobs


def test_ls_of_objects(command: Command, store: Store) -> None:
    store.put_many({ODD: 1, "x/2": st.zeros(10)}, pin=True)
    store.put("x/1", st.zeros(1000), ttl=1000)
    held = store.get("x/1")
    rows = {row["key"]: row for row in document(command, "ls", "features")}
    assert list(rows) == sorted(rows) == [ODD, "x/1", "x/2"]
    assert rows["x/1"]["holders"] == 1 and 0 < rows["x/1"]["expires_in"] <= 1000 and not rows["x/1"]["pinned"]
    assert rows["x/2"]["pinned"] and rows["x/2"]["expires_in"] is None
    assert [row["key"] for row in document(command, "ls", "features", "--prefix", "x/")] == ["x/1", "x/2"]
    text = command("ls", "features")[1]
    assert "a\\nb\\\\\\u202e\u732b\n" in text and len(text.splitlines()) == 4
    assert command("ls", "features", "--prefix", "no") == (0, "no objects\n", "")
    del held


def test_escapes() -> None:
    assert escaped("plain key \u00e9") == "plain key \u00e9"
    assert escaped("\x1b[31m\t\x00\U000e0001") == r"\x1b[31m\t\x00\U000e0001"


def test_stat(command: Command, store: Store) -> None:
    version = store.put("x", st.zeros(1000), pin=True)
    found = document(command, "stat", "features", "x")
    assert (found["key"], found["version"], found["pinned"], found["holders"]) == ("x", version, True, 0)
    assert "expires in   never" in command("stat", "features", "x")[1]


def test_get_shows_a_short_form(command: Command, store: Store) -> None:
    store.put("t", st.arange(100_000))
    store.put(
        "d", {"w": st.zeros(10, 100), "n": np.ones(3), "l": list(range(1000)), "b": b"x" * 10_000, "s": "y" * 10_000}
    )
    out = command("get", "features", "t")[1]
    assert "..." in out and "99999" in out and "(100000,)" in out and "int64" in out and len(out) < 500
    out = command("get", "features", "d")[1]
    assert "Tensor((10, 100), shmtensor.float32)" in out and "ndarray((3,), float64)" in out and len(out) < 2000
    found = document(command, "get", "features", "d")
    assert found["w"] == {"type": "Tensor", "shape": [10, 100], "dtype": "float32"}
    assert found["l"] == list(range(1000)) and found["b"]["type"] == "bytes"
    store.put("f", [float("nan"), -float("inf"), 1.5])
    nan, infinity, number = document(command, "get", "features", "f")  # JSON has no such numbers
    assert (nan, infinity, number) == ({"type": "float", "repr": "nan"}, {"type": "float", "repr": "-inf"}, 1.5)


@pytest.mark.parametrize("suffix", [".npy", ".safetensors", ".shmt"])
def test_what_is_written_to_a_file_can_be_put(command: Command, store: Store, tmp_path: Path, suffix: str) -> None:
    tensor = st.arange(12, dtype=st.float32).reshape(3, 4)
    store.put("x", tensor if suffix == ".npy" else {"a": tensor})
    file = str(tmp_path / f"x{suffix}")
    assert command("get", "features", "x", "--output", file) == (0, f"wrote {file}\n", "")
    version = document(command, "put", "features", ODD, file, "--ttl", "100", "--pin")["version"]
    found = store.stat(ODD)
    assert found.version == version and found.pinned and 0 < (found.expires_in or 0) <= 100
    got = store.get(ODD)
    assert (got if suffix == ".npy" else got["a"]).tolist() == tensor.tolist()
    code, _, err = command("put", "features", "x", file)
    assert code == 1 and "'x' already" in err
    assert document(command, "put", "features", "x", file, "--replace")["version"] == store.stat("x").version > version


def test_rm(command: Command, store: Store) -> None:
    store.put_many(dict.fromkeys(("a", "x/1", "x/2", ODD), 1))
    assert command("rm", "features", "a", "a") == (1, "removed 1 objects\nno object a\n", "")
    assert document(command, "rm", "features", "--prefix", "x/") == {"removed": ["x/1", "x/2"], "missing": []}
    assert command("rm", "features", ODD)[0] == 0 and len(store) == 0


def test_looking_at_a_store_does_not_keep_it(command: Command) -> None:
    ending = Store("ending")
    ending.destroy()
    assert [row["name"] for row in document(command, "ls")["stores"]] == ["ending"]
    del ending
    gc.collect()
    until(lambda: client.default().find(b"/ending") is None, "the store to end")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("ls", "nothing"), "no store is named 'nothing' .* stores there: features"),
        (("ls", "bad name"), "not a valid name"),
        (("ls", "jobs"), "'jobs' is not the name of a store"),
        (("stat", "features", "x"), "no object 'x'"),
        (("get", "features", "x"), "no object 'x'"),
        (("get", "features", "one", "--output", "/nowhere/one.npy"), "No such file"),
        (("get", "features", "one", "--output", "one.safetensors"), "needs a dict of tensors"),
        (("get", "features", "one", "--output", "one.txt"), "the suffix selects the format"),
        (("put", "features", "x", "/nowhere/x.npy"), "No such file"),
        (("put", "features", "", str(Path(__file__).with_name("x.npy"))), "No such file"),
        (("rm", "features"), "give the keys of objects, or --prefix P"),
        (("rm", "features", "one", "--prefix", "o"), "and not both"),
    ],
    ids=lambda value: None if isinstance(value, str) else " ".join(value[:2]),
)  # fmt: skip
def test_refusals(command: Command, store: Store, arguments: tuple[str, ...], said: str) -> None:
    jobs = mp.Queue(name="jobs")
    store.put("one", st.ones(1))
    code, out, err = command(*arguments)
    assert (code, out) == (1, "")
    with pytest.raises(errors.ShmTensorError, match=said):
        raise errors.ShmTensorError(err)
    assert err.startswith("shmtensor-manager: ") and store.keys() == ["one"]
    del jobs


@pytest.mark.parametrize("ttl", ["-1", "nan", "x"])
def test_times_to_live_that_are_none(command: Command, store: Store, tmp_path: Path, ttl: str) -> None:
    np.save(tmp_path / "x.npy", np.ones(3))
    code, _, err = command("put", "features", "x", str(tmp_path / "x.npy"), "--ttl", ttl)
    assert code == (2 if ttl == "x" else 1) and "ttl" in err and "x" not in store


def test_keys_that_are_not_text_are_wrong_usage(command: Command, store: Store) -> None:
    code, _, err = command("stat", "features", "\udc80")
    assert code == 2 and "not text in UTF-8" in err


def test_as_a_user_types_it(here: World) -> None:
    done = here.command("store", "ls")
    assert done.returncode == 1 and "no manager runs at" in done.stderr
    here.serve()
    here.run(f"import shmtensor as st; st.Store('a').put({ODD!r}, st.arange(3))")
    done = here.command("store", "ls", "a", env={"PYTHONIOENCODING": "ascii"})
    assert done.stdout.splitlines()[1].endswith("\\u732b") and not done.stderr
    assert here.command("store", "get", "a", ODD).stdout.startswith("tensor([0, 1, 2]")
    here.run("import shmtensor as st; st.Store('a').destroy()")  # or the manager would stay
