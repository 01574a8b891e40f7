"""Recordings of the page: they replay the same frames, from any moment; damaged files are explained."""

from __future__ import annotations

import json
import signal
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from manager_world import BOUND, World, line_of, until

from shmtensor.errors import FileDamaged, InvalidArgument
from shmtensor.manager import client
from shmtensor.manager.monitor.page import recording
from shmtensor.manager.monitor.page.picture import Picture, apply, difference


@pytest.fixture
def manager(here: World) -> Iterator[client.Manager]:
    made = client.at(here.serve())
    yield made
    made.close()


def lines_of(path: Path) -> list[Any]:
    """The whole lines of a recording that is still written."""
    return [json.loads(line) for line in path.read_bytes().splitlines(keepends=True) if line.endswith(b"\n")]


def last_of(path: Path) -> Picture:
    picture = Picture()
    for frame in lines_of(path)[1:]:
        apply(picture, frame)
    return picture


def blocks_in(picture: Picture) -> int:
    return sum(row["blocks"] for row in picture.tables["segments"].values())


def test_recorded_by_the_command_and_shown_again(here: World, manager: client.Manager, tmp_path: Path) -> None:
    path = tmp_path / "recording"
    process = here.popen("-m", "shmtensor.manager", "page", "--record", str(path), "--rate", "30", "--json")
    assert json.loads(line_of(process))["pid"] == process.pid
    kept = []
    for number in (1, 5, 12):
        kept += [manager.allocate(100) for _ in range(number - len(kept))]
        until(lambda: path.stat().st_size and blocks_in(last_of(path)) == number, f"{number} blocks to be recorded")  # noqa: B023
    process.send_signal(signal.SIGTERM)
    assert process.wait(BOUND) == 0
    assert process.stderr is not None and process.stderr.read() == ""
    assert path.stat().st_mode & 0o777 == 0o600
    content = path.read_bytes()
    assert content.endswith(b"\n") and json.loads(content.splitlines()[0]) == {"shmtensor_recording": 1}

    here.command("stop")
    process = here.popen("-m", "shmtensor.manager", "page", "--replay", str(path))
    url = line_of(process)
    with urllib.request.urlopen(url, timeout=BOUND) as page:
        assert b"<canvas" in page.read()
    with urllib.request.urlopen(url.replace("/?", "/events?") + "&from=0&speed=100", timeout=BOUND) as stream:
        seen, counts = Picture(), []
        while not counts or counts[-1] != 12:
            line = stream.readline()
            if line.startswith(b"data: "):
                apply(seen, json.loads(line[6:]))
                counts.append(blocks_in(seen))
    assert seen.blocks == {key: rows for key, rows in last_of(path).blocks.items() if rows}
    process.send_signal(signal.SIGINT)
    assert process.wait(BOUND) == 0


def test_a_recorder_that_is_killed_leaves_whole_frames(here: World, manager: client.Manager, tmp_path: Path) -> None:
    path = tmp_path / "recording"
    process = here.popen("-m", "shmtensor.manager", "page", "--record", str(path), "--rate", "30")
    line_of(process)
    kept = manager.allocate(100)
    until(lambda: path.stat().st_size and blocks_in(last_of(path)) == 1, "the block to be recorded")
    process.kill()
    process.wait(BOUND)
    path.write_bytes(path.read_bytes() + b'{"t": 5')
    picture = Picture()
    frames = recording.Replay(str(path)).frames(1e9, 1.0)
    apply(picture, next(frames) or {})
    assert blocks_in(picture) == 1 and kept is not None


def made(path: Path, count: int = 100) -> Path:
    """A recording with one client more in each frame, ten a second, and all tables each three seconds."""
    picture = Picture()
    lines: list[Any] = [{"shmtensor_recording": 1}]
    for number in range(count):
        before = picture.copy()
        picture.t, picture.now = 1000 + number / 10, number
        picture.tables["clients"] = picture.tables["clients"] | {str(number): {"pid": number}}
        lines.append(difference(None if number % 30 == 0 else before, picture))
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


@pytest.mark.parametrize("start", [0.0, 0.1, 2.95, 3.0, 3.1, 9.9, 50.0])
def test_playing_starts_anywhere(tmp_path: Path, start: float) -> None:
    replay = recording.Replay(str(made(tmp_path / "recording")))
    assert replay.seconds == pytest.approx(9.9)
    first = next(replay.frames(start, 1.0))
    assert first is not None and first["reset"]
    assert len(first["clients"]) == min(100, int(start * 10 + 0.001) + 1)
    assert first["replay"]["seconds"] == pytest.approx(9.9) and len(first["history"]) > 10


def test_playing_ends(tmp_path: Path) -> None:
    picture = Picture()
    for frame in recording.Replay(str(made(tmp_path / "recording"))).frames(0.0, 100.0):
        if frame is not None:
            apply(picture, frame)
            if frame.get("end"):
                break
    assert len(picture.tables["clients"]) == 100


@pytest.mark.parametrize(("count", "start"), [(100, 9.9), (100, 50.0), (1, 0.0)])
def test_playing_from_the_end_ends_at_once(tmp_path: Path, count: int, start: float) -> None:
    frames = recording.Replay(str(made(tmp_path / "recording", count))).frames(start, 1.0)
    first, then = next(frames), next(frames)
    assert first is not None and first["reset"] and first["end"] is True
    assert then is None


def test_a_last_frame_that_changes_nothing_ends_it_too(tmp_path: Path) -> None:
    path = made(tmp_path / "recording", 2)
    path.write_text(path.read_text() + '{"t": 1000.2, "now": 2}\n')
    frames = recording.Replay(str(path)).frames(0.1, 100.0)
    assert "end" not in (next(frames) or {})
    last = next(frames)
    assert last is not None and last["end"] is True


def test_a_recording_that_changes_while_it_is_played(tmp_path: Path) -> None:
    path = made(tmp_path / "recording")
    replay = recording.Replay(str(path))
    path.write_text("[" * 100_000)
    with pytest.raises(FileDamaged, match="was changed while it is played"):
        next(replay.frames())


def test_the_timeline_of_a_long_recording_keeps_peaks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording, "POINTS", 10)
    path = tmp_path / "recording"
    lines: list[Any] = [{"shmtensor_recording": 1}]
    for number in range(95):
        ring = {"messages": 7 if number == 40 else 1}
        lines.append({"t": number, "now": 1, "reset": number == 0, "rings": {"8192": ring}})
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    first = next(recording.Replay(str(path)).frames()) or {}
    assert len(first["history"]) == 10 and first["history"][-1][0] == 94
    assert [point[4] for point in first["history"]].count(7) == 1


def test_a_clock_that_was_set_back(tmp_path: Path) -> None:
    path = made(tmp_path / "recording", 10)
    frames = [json.loads(line) for line in path.read_text().splitlines()]
    frames[5]["t"] = 3.0
    path.write_text("".join(json.dumps(line) + "\n" for line in frames))
    assert recording.Replay(str(path)).seconds == pytest.approx(0.9)


FULL = '{"t": 1.0, "now": 1, "reset": true}'
DAMAGED = {
    "empty": ("", "it has no frames"),
    "only its first line": ('{"shmtensor_recording": 1}\n', "it has no frames"),
    "another file": ("hello\n", "line 1"),
    "another JSON": ("[1, 2]\n", "line 1"),
    "a later version": ('{"shmtensor_recording": 2}\n' + FULL + "\n", "it has version 2, and not 1"),
    "no tables first": ('{"shmtensor_recording": 1}\n{"t": 1.0, "now": 1}\n', "line 2"),
    "a damaged line": ('{"shmtensor_recording": 1}\n' + FULL + "\n{\n" + FULL + "\n", "line 3"),
    "a row that is not one": (
        '{"shmtensor_recording": 1}\n{"t": 1.0, "now": 1, "reset": true, "segments": {"1": {}}}\n', "line 2",
    ),
    "a time that is not one": ('{"shmtensor_recording": 1}\n{"t": Infinity, "now": 1, "reset": true}\n', "line 2"),
    "a deep line": ('{"shmtensor_recording": 1}\n{"t": ' + "[" * 100_000 + "\n", "line 2: it is nested"),
    "no number": ('{"shmtensor_recording": 1}\n' + FULL[:-1] + ', "x": NaN}\n', "line 2: NaN is not a number"),
    "a number that is too large": ('{"shmtensor_recording": 1}\n' + FULL[:-1] + ', "x": 1e999}\n', "line 2: 1e999"),
    "bytes": ("\0\x01\x02\n" * 5, "line 1"),
}  # fmt: skip


@pytest.mark.parametrize("kind", DAMAGED)
def test_damaged_recordings(tmp_path: Path, kind: str) -> None:
    content, said = DAMAGED[kind]
    path = tmp_path / "recording"
    path.write_text(content)
    with pytest.raises(FileDamaged, match=said):
        recording.Replay(str(path))


def test_places_that_cannot_be_used(here: World, tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "missing"):
        with pytest.raises(InvalidArgument, match="cannot read the recording"):
            recording.Replay(str(path))
    there = tmp_path / "there"
    there.write_text("mine")
    here.serve()
    for place in (there, tmp_path / "missing" / "file"):
        done = here.command("page", "--record", str(place))
        assert done.returncode == 1 and "cannot record to" in done.stderr
    assert there.read_text() == "mine"
    done = here.command("page", "--record", "x", "--replay", "y")
    assert done.returncode == 1 and "exclude each other" in done.stderr


def test_a_disk_that_is_full(here: World, manager: client.Manager) -> None:
    """The recording ends with a message; the page goes on."""
    if not Path("/dev/full").exists():
        pytest.skip("there is no /dev/full")
    problems: list[str] = []

    class Full(recording.Recorder):
        def __init__(self) -> None:
            self._path = "/dev/full"
            self._file = Path("/dev/full").open("wb", buffering=0)  # noqa: SIM115
            self._stopped = False

    recorder = Full()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("builtins.print", lambda text, file: problems.append(text))
        recorder._run()
    assert problems == ["shmtensor-manager: recording to /dev/full ended: No space left on device"]


@pytest.mark.parametrize(
    "options",
    [
        ["--port", "65536"],
        ["--port", "x"],
        ["--rate", "0"],
        pytest.param(["--rate", "x"], marks=pytest.mark.exhaustive),
        ["--rate", "nan"],
        ["--rate", "31"],
    ],
    ids=" ".join,
)
def test_wrong_options(here: World, options: list[str]) -> None:
    done = here.command("page", *options)
    assert done.returncode == 2 and "is not a" in done.stderr


def test_no_manager(here: World) -> None:
    done = here.command("page")
    assert done.returncode == 1 and "no manager runs at" in done.stderr


def test_a_port_that_is_in_use(here: World, manager: client.Manager) -> None:
    process = here.popen("-m", "shmtensor.manager", "page", "--json")
    port = json.loads(line_of(process))["url"].split(":")[2].split("/")[0]
    done = here.command("page", "--port", port)
    assert done.returncode == 1 and f"cannot listen at port {port}" in done.stderr
