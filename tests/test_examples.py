"""The examples, run as a user runs them: in separate processes. They must leave nothing behind."""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from examples_world import BOUND, Place, a_place, pids_of, read_table
from tiers import first

import shmtensor as st

pytestmark = [pytest.mark.any_python, pytest.mark.timeout(400)]


@pytest.fixture
def place() -> Iterator[Place]:
    with a_place() as made:
        yield made


def test_names_of_other_programs_are_theirs() -> None:
    names = [Path(f"/dev/shm/{name}") for name in (f"sem.mp-{os.getpid()}", "torch_1_1")]  # pid 1 always runs
    try:
        with a_place():
            for name in names:
                name.touch()
    finally:
        for name in names:
            name.unlink(missing_ok=True)


# ---- handle_exchange.py ----------------------------------------------------------------------------------------------


def test_unrelated_processes_exchange_a_tensor(place: Place) -> None:
    first = place.start("handle_exchange.py", "--timeout", str(BOUND))
    assert first.stdout is not None
    line = first.stdout.readline().strip()
    assert re.fullmatch(r"\(b'/.+', b'/torch_\d+_\d+', 25\)", line), (line, first.poll())

    second = place.start("handle_exchange.py", line)
    output, errors = second.communicate(timeout=BOUND)
    assert second.returncode == 0, errors
    assert output.count("1.") == 25  # it saw the ones

    output, errors = first.communicate(timeout=BOUND)
    assert first.returncode == 0, errors
    numbers = [float(word) for word in re.findall(r"\d+\.", output)]
    assert numbers == [float(number) for number in range(2, 27)]


def test_nobody_changes_the_tensor(place: Place) -> None:
    process = place.start("handle_exchange.py", "--timeout", "0.2")
    _, errors = process.communicate(timeout=BOUND)
    assert process.returncode == 1
    assert "nobody changed the tensor within 0.2 s" in errors


@pytest.mark.parametrize("text", ["", "(1, 2, 3)", "__import__('os')", "(b'a', b'b'", "(b'/tmp/x', b'/torch_1_2')"])
def test_text_that_is_no_handle(place: Place, text: str) -> None:
    process = place.start("handle_exchange.py", text)
    _, errors = process.communicate(timeout=BOUND)
    assert process.returncode == 2
    assert "is not a tuple (bytes, bytes, int)" in errors


def test_handle_of_a_manager_that_is_not_there(place: Place) -> None:
    process = place.start("handle_exchange.py", f"(b'{place.folder}/none.sock', b'/torch_1_2', 25)")
    _, errors = process.communicate(timeout=BOUND)
    assert process.returncode == 1
    assert errors.startswith("handle_exchange: ") and "Traceback" not in errors
    assert f"{place.folder}/none.sock" in errors


# ---- hogwild.py, hogwild_cnn.py, word2vec_hogwild.py, a3c.py, actor_learner.py ---------------------------------------


@pytest.fixture
def example_libraries() -> None:
    for name in ("sklearn", "matplotlib", "tqdm"):
        pytest.importorskip(name, reason="the extra 'examples' is not installed")


def need_torch() -> None:
    if importlib.util.find_spec("torch") is None:  # not imported here: only the example needs it
        pytest.skip("no torch")


@pytest.mark.usefixtures("example_libraries")
@pytest.mark.parametrize("method", first(["fork", "spawn"]))
def test_hogwild_learns(place: Place, tmp_path: Path, method: str) -> None:
    plot = tmp_path / "plots" / "hogwild.png"
    process = place.start("hogwild.py", "--processes", "2", "--quick", "--start-method", method, "--plot", str(plot))
    output, errors = process.communicate(timeout=BOUND)
    assert process.returncode == 0, errors
    (one, (*_, accuracy_of_one, _)), (two, (*_, accuracy_of_two, _)) = read_table(output)
    assert (one, two) == ("1", "2")
    assert min(accuracy_of_one, accuracy_of_two) >= 0.95
    assert plot.read_bytes().startswith(b"\x89PNG")
    assert "\r" not in errors  # no bar where no terminal is


@pytest.mark.torch
@pytest.mark.exhaustive
@pytest.mark.usefixtures("example_libraries")
def test_hogwild_with_torch_learns(place: Place, tmp_path: Path) -> None:
    need_torch()
    plot = tmp_path / "plots" / "torch.png"
    process = place.start(
        "hogwild_torch.py", "--processes", "2", "--quick", "--start-method", "forkserver", "--plot", str(plot)
    )
    output, errors = process.communicate(timeout=BOUND)
    assert process.returncode == 0, errors
    (one, (*_, accuracy_of_one, _)), (two, (*_, accuracy_of_two, _)) = read_table(output)
    assert (one, two) == ("1", "2")
    assert min(accuracy_of_one, accuracy_of_two) >= 0.95
    assert plot.read_bytes().startswith(b"\x89PNG")


@pytest.mark.exhaustive
@pytest.mark.usefixtures("example_libraries")
@pytest.mark.parametrize("method", first(["spawn", "forkserver"]))
def test_a_network_learns_digits_that_move(place: Place, tmp_path: Path, method: str) -> None:
    plot = tmp_path / "plots" / "cnn.png"
    process = place.start(
        "hogwild_cnn.py", "--processes", "2", "--quick", "--start-method", method, "--plot", str(plot)
    )
    output, errors = process.communicate(timeout=BOUND)
    assert process.returncode == 0, errors
    (_, (_, _, accuracy, without, _)), (_, (_, _, accuracy_too, moved, _)) = read_table(output)
    assert min(accuracy, accuracy_too) >= 0.97
    assert without < 0.85 and moved >= 0.93
    assert plot.read_bytes().startswith(b"\x89PNG")


@pytest.mark.exhaustive
@pytest.mark.usefixtures("example_libraries")
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_words_that_mean_similar_things_are_near(place: Place, tmp_path: Path, method: str) -> None:
    plot = tmp_path / "plots" / "words.png"
    process = place.start(
        "word2vec_hogwild.py", "--processes", "2", "--quick", "--start-method", method, "--plot", str(plot)
    )
    output, errors = process.communicate(timeout=BOUND)
    assert process.returncode == 0, errors
    (one, (*_, accuracy_of_one, _)), (two, (*_, accuracy_of_two, _)) = read_table(output)
    assert (one, two) == ("1", "2")
    assert min(accuracy_of_one, accuracy_of_two) >= 0.75
    near = dict(re.findall(r"^ +(\w+): (.+)$", output, re.MULTILINE))
    assert {"day", "days", "year", "years", "months", "week", "weekday"} & set(near["month"].split(", "))
    assert plot.read_bytes().startswith(b"\x89PNG")


@pytest.mark.exhaustive
@pytest.mark.usefixtures("example_libraries")
def test_actors_learn_to_balance_poles(place: Place, tmp_path: Path) -> None:
    plot = tmp_path / "plots" / "a3c.png"
    process = place.start("a3c.py", "--processes", "2", "--quick", "--start-method", "forkserver", "--plot", str(plot))
    output, errors = process.communicate(timeout=BOUND)
    assert process.returncode == 0, errors
    (one, (*_, score_of_one, _)), (two, (*_, score_of_two, _)) = read_table(output)
    assert (one, two) == ("1", "2")
    assert 475 <= min(score_of_one, score_of_two) <= max(score_of_one, score_of_two) <= 500
    assert plot.read_bytes().startswith(b"\x89PNG")


@pytest.mark.exhaustive
@pytest.mark.usefixtures("example_libraries")
def test_actors_that_have_not_learnt_enough(place: Place, tmp_path: Path) -> None:
    process = place.start("a3c.py", "--processes", "2", "--steps", "1", "--plot", str(tmp_path / "plot.png"))
    output, errors = process.communicate(timeout=BOUND)
    assert process.returncode == 1
    assert len(read_table(output)) == 2
    assert re.search(r"a3c: test score \d+\.\d is below 475", errors)


@pytest.mark.exhaustive
@pytest.mark.usefixtures("example_libraries")
def test_a_learner_learns_from_actors(place: Place, tmp_path: Path) -> None:
    plot = tmp_path / "plots" / "actor_learner.png"
    process = place.start("actor_learner.py", "--workers", "2", "--start-method", "forkserver", "--plot", str(plot))
    output, errors = process.communicate(timeout=3 * BOUND)
    assert process.returncode == 0, errors
    ((workers, (_, _, score, replaced)),) = read_table(output)
    assert workers == "2" and 475 <= score <= 500 and replaced == 0
    assert plot.read_bytes().startswith(b"\x89PNG")


@pytest.mark.exhaustive
@pytest.mark.usefixtures("example_libraries")
def test_a_learner_goes_on_when_a_worker_is_killed(place: Place, tmp_path: Path) -> None:
    plot = tmp_path / "plot.png"
    process = place.start("actor_learner.py", "--workers", "2", "--steps", "150", "--plot", str(plot))
    os.kill(pids_of(process)[1], signal.SIGKILL)
    output, errors = process.communicate(timeout=BOUND)
    assert re.search(r"^worker 1 was killed; its place is taken by pid \d+$", errors, re.MULTILINE), errors
    ((_, (_, _, score, replaced)),) = read_table(output)
    assert replaced == 1 and plot.exists()
    assert process.returncode == (score < 475)  # so few steps are rarely enough
    assert bool(re.search(r"actor_learner: test score \d+\.\d is below 475", errors)) == (score < 475)


@pytest.mark.exhaustive
@pytest.mark.usefixtures("example_libraries")
def test_words_are_learnt_by_autograd_too(place: Place, tmp_path: Path) -> None:
    plot = tmp_path / "words.png"
    process = place.start("word2vec_hogwild.py", "--autograd", "--processes", "2", "--quick", "--plot", str(plot))
    output, errors = process.communicate(timeout=BOUND)
    assert process.returncode == 0, errors
    assert min(accuracy for _, (*_, accuracy, _) in read_table(output)) >= 0.75
    assert plot.exists()


@pytest.mark.usefixtures("example_libraries")
def test_steps_by_hand_change_words_as_those_by_autograd_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(Path(__file__).parent.parent / "examples")
    words = importlib.import_module("word2vec_hogwild")
    count = 2 * words.STRETCH
    numbers = st.arange(count)
    text = words.Text([], numbers.reshape(2, -1), numbers, st.full((count,), 0.7), numbers, *words.wanted_and_weight())
    found = []
    for steps in (words.steps_by_hand, words.steps_by_autograd):
        st.manual_seed(3)
        vectors = words.Vectors(count)
        learn = steps(vectors)
        for factor in (1.0, 0.5):
            learn(words.Question(text, numbers[words.STRETCH // 2 :][: words.STRETCH] // 2), factor)  # some words twice
        found.append([table.detach() for table in vectors.parameters()])
    st.manual_seed(3)
    for before, by_hand, by_autograd in zip(words.Vectors(count).parameters(), *found, strict=True):
        assert not st.equal(before, by_hand)
        assert st.allclose(by_hand - before, by_autograd - before, rtol=1e-4, atol=1e-8)


@pytest.mark.exhaustive
@pytest.mark.usefixtures("example_libraries")
def test_words_are_compared_with_gensim(place: Place, tmp_path: Path) -> None:
    pytest.importorskip("gensim")
    plot = tmp_path / "words.png"
    process = place.start("word2vec_hogwild.py", "--gensim", "--processes", "2", "--quick", "--plot", str(plot))
    output, errors = process.communicate(timeout=BOUND)
    assert process.returncode == 0, errors
    assert len(read_table(output)) == 2
    assert re.search(r"^gensim, threads.*\n +1 .*\n +2 ", output, re.MULTILINE)
    assert plot.exists()


@pytest.mark.exhaustive
@pytest.mark.usefixtures("example_libraries")
@pytest.mark.parametrize(
    "name",
    [
        *first(["hogwild", "hogwild_cnn", "word2vec_hogwild"]),
        pytest.param("hogwild_torch", marks=[pytest.mark.torch, pytest.mark.exhaustive]),
    ],
)
def test_an_example_says_when_it_has_not_learnt_enough(place: Place, tmp_path: Path, name: str) -> None:
    if name == "hogwild_torch":
        need_torch()
    process = place.start(f"{name}.py", "--processes", "2", "--epochs", "1", "--plot", str(tmp_path / "plot.png"))
    output, errors = process.communicate(timeout=BOUND)
    assert process.returncode == 1
    assert len(read_table(output)) == 2
    assert re.search(rf"{name}: test accuracy 0\.\d+ is below 0\.[79]", errors)


@pytest.mark.usefixtures("example_libraries")
@pytest.mark.parametrize("method", first(["spawn", "forkserver"]))
@pytest.mark.usefixtures("interruptible")
def test_hogwild_stops_at_an_interrupt(place: Place, tmp_path: Path, method: str) -> None:
    process = place.start(
        "hogwild.py", "--epochs", "1000000", "--start-method", method, "--plot", str(tmp_path / "plot.png")
    )
    pids_of(process)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to everyone
    output, errors = process.communicate(timeout=BOUND)
    assert process.returncode == 130
    assert errors == "interrupted\n"
    assert not read_table(output)


# ---- image_loading.py ------------------------------------------------------------------------------------------------


@pytest.mark.exhaustive
@pytest.mark.usefixtures("example_libraries")
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_network_learns_photographs_that_workers_decode(place: Place, tmp_path: Path, method: str) -> None:
    plot = tmp_path / "plots" / "images.png"
    process = place.start(
        "image_loading.py", "--quick", "--workers", "2", "--start-method", method, "--plot", str(plot)
    )
    output, errors = process.communicate(timeout=BOUND)
    assert process.returncode == 0, errors
    [(label, (*_, accuracy))] = read_table(output)
    assert label == "2 workers"
    assert accuracy >= 0.9
    assert plot.read_bytes().startswith(b"\x89PNG")


@pytest.mark.exhaustive
@pytest.mark.usefixtures("example_libraries")
def test_photographs_are_the_same_whoever_loads_them(place: Place, tmp_path: Path) -> None:
    few = ("--workers", "2", "--epochs", "1", "--crops", "72", "--no-torch")
    process = place.start("image_loading.py", *few, "--plot", str(tmp_path / "plot.png"))
    output, errors = process.communicate(timeout=BOUND)
    assert process.returncode == 1
    assert re.search(r"image_loading: test accuracy 0\.\d+ is below 0\.9", errors)
    accuracies = {label: accuracy for label, (*_, accuracy) in read_table(output)}
    assert list(accuracies) == ["no workers", "1 worker", "2 workers", "1 worker with 2 threads"]
    assert len(set(accuracies.values())) == 1


@pytest.mark.torch
@pytest.mark.exhaustive
@pytest.mark.usefixtures("example_libraries")
def test_photographs_are_loaded_by_torch_too(place: Place, tmp_path: Path) -> None:
    need_torch()
    few = ("--workers", "1", "--epochs", "1", "--crops", "48")
    process = place.start("image_loading.py", *few, "--plot", str(tmp_path / "plot.png"))
    output, _ = process.communicate(timeout=BOUND)
    assert [label for label, _ in read_table(output)][-2:] == ["torch with no workers", "torch with 1 worker"]


# ---- pipeline.py -----------------------------------------------------------------------------------------------------


def await_line(process: subprocess.Popen[str], pattern: str) -> re.Match[str]:
    """Read lines of standard error until one of them matches."""
    assert process.stderr is not None
    lines = []
    for line in process.stderr:
        if found := re.search(pattern, line):
            return found
        lines.append(line)
    raise AssertionError(f"no line {pattern!r}; the example ended with {process.wait(BOUND)}: {''.join(lines)}")


def check_pipeline(output: str) -> dict[str, int]:
    """Check what the trainer prints; returns how many images each decoder has decoded."""
    found = re.search(r"^8,622 images in [\d.]+ s: [\d,]+ images/s; test accuracy (0\.\d+)$", output, re.MULTILINE)
    assert found and float(found[1]) >= 0.95, output
    amounts = re.findall(r"^(files|images|batches), to .*? +([\d.]+) +([\d.]+)$", output, re.MULTILINE)
    assert [name for name, *_ in amounts] == ["files", "images", "batches"]
    assert all(float(megabytes) >= 5 and float(rate) > 0 for _, megabytes, rate in amounts)
    shares = {name: int(share.replace(",", "")) for name, share in re.findall(r"(decoder\d) ([\d,]*\d)", output)}
    assert sum(shares.values()) == 8622
    return shares


@pytest.mark.exhaustive
@pytest.mark.usefixtures("example_libraries")
@pytest.mark.parametrize("where", [(), ("--groups",)], ids=["one", "groups"])
def test_a_pipeline_goes_on_when_a_decoder_is_killed(place: Place, where: tuple[str, ...]) -> None:
    process = place.start("pipeline.py", "--quick", *where)
    pid = int(await_line(process, r"^pids: .*decoder1 (\d+)")[1])
    await_line(process, "decoder1 has sent its first images")
    os.kill(pid, signal.SIGKILL)
    output, errors = process.communicate(timeout=BOUND)
    assert process.returncode == 0, errors
    assert "decoder1 got SIGKILL" in errors
    shares = check_pipeline(output)
    assert 0 < shares["decoder1"] < shares["decoder2"]


@pytest.mark.exhaustive
@pytest.mark.usefixtures("example_libraries")
def test_a_pipeline_ends_when_no_decoder_is_left(place: Place) -> None:
    process = place.start("pipeline.py", "--decoders", "1", "--epochs", "1000")
    pid = int(await_line(process, r"^pids: .*decoder1 (\d+)")[1])
    await_line(process, "decoder1 has sent its first images")
    os.kill(pid, signal.SIGKILL)
    output, errors = process.communicate(timeout=BOUND)
    assert (process.returncode, output) == (1, "")
    assert errors == "decoder1 got SIGKILL\npipeline: no decoder is left\n"


def may_make_networks() -> bool:
    if os.geteuid() != 0 or shutil.which("ip") is None or importlib.util.find_spec("cryptography") is None:
        return False
    name = f"shmt{os.getpid()}-try"
    if subprocess.run(["ip", "netns", "add", name], capture_output=True).returncode:
        return False
    try:
        bridge = ["ip", "-n", name, "link", "add", "bridge", "type", "bridge"]
        return not subprocess.run(bridge, capture_output=True).returncode
    finally:
        subprocess.run(["ip", "netns", "delete", name], check=True)


@pytest.mark.usefixtures("example_libraries")
def test_a_pipeline_between_networks(place: Place) -> None:
    if not may_make_networks():
        pytest.skip("networks need root, `ip` with the right to make them, and cryptography")
    process = place.start("pipeline.py", "--quick", "--namespaces")
    output, errors = process.communicate(timeout=BOUND)
    assert process.returncode == 0, errors
    assert len(check_pipeline(output)) == 2
    left = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout
    assert f"shmt{process.pid}" not in left


@pytest.mark.usefixtures("example_libraries")
def test_a_pipeline_says_what_networks_need(place: Place) -> None:
    place.env["PATH"] = str(place.folder)  # without `ip`
    process = place.start("pipeline.py", "--namespaces")
    output, errors = process.communicate(timeout=BOUND)
    assert (process.returncode, output) == (1, "")
    assert errors == "pipeline: --namespaces needs root, and the program `ip` (package iproute2)\n"


# ---- th_dot.py -------------------------------------------------------------------------------------------------------


def test_th_dot_writes_its_files_and_prints_the_number(place: Place, tmp_path: Path) -> None:
    for _ in range(2):
        process = place.start("th_dot.py", str(tmp_path))
        assert process.communicate(timeout=BOUND) == ("275.000000\n", "")
        assert process.returncode == 0
    assert (tmp_path / "x").read_text() == "1 2 3 4 5 6 7 8 9 10\n"
    assert (tmp_path / "y").read_text() == "10 9 8 7 6 5 4 3 2 1\n"


def test_th_dot_reads_numbers_as_others_write_them(place: Place, tmp_path: Path) -> None:
    x = [0.5, -1.25, 3e-3, 100, 0, 7, 8, 9, 10, 11]
    y = [2.0**power for power in range(10)]
    (tmp_path / "x").write_text("".join(f"{value}\n" for value in x))
    (tmp_path / "y").write_text("\t".join(map(str, y)))
    process = place.start("th_dot.py", str(tmp_path))
    output, errors = process.communicate(timeout=BOUND)
    assert process.returncode == 0, errors
    assert float(output) == pytest.approx(sum(a * b for a, b in zip(x, y, strict=True)) + sum(x), rel=1e-6)


@pytest.mark.parametrize(("content", "message"), [("1 2 3", "the file ends here"), ("1 2 three", "then 'three'")])
def test_th_dot_says_what_is_wrong_with_a_file(place: Place, tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "y").write_text(content)
    process = place.start("th_dot.py", str(tmp_path))
    output, errors = process.communicate(timeout=BOUND)
    assert process.returncode == 1 and output == ""
    assert errors.startswith(f"th_dot: {tmp_path}/y at byte") and message in errors
