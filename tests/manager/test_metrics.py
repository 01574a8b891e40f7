"""`shmtensor-manager metrics`: the output for Prometheus and node_exporter, from real managers and clients."""

from __future__ import annotations

import http.client
import json
import os
import re
import select
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import pytest
from manager_world import BOUND, ROOT, World, kill, line_of, tell, until
from prometheus_client import CollectorRegistry, parser
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from prometheus_client.registry import Collector
from tiers import first

from shmtensor.manager import client
from shmtensor.manager.monitor import endpoint, metrics, openmetrics, serving

OPENMETRICS = "application/openmetrics-text; version=1.0.0"
LABELS = {"kind", "name", "version", "protocol", "layout"}
COUNTERS = ("shmtensor_requests", "shmtensor_refused_requests", "shmtensor_reaped_clients", "shmtensor_takeovers")

PRODUCER = """
import sys, shmtensor as st, shmtensor.multiprocessing as mp
frames, other = mp.Queue(name="frames"), mp.Queue()
lock = mp.Lock(name="a_lock")
for _ in range(3):
    frames.put(st.ones(1000))
other.put(1)
print("ready", flush=True)
for line in sys.stdin:
    frames.put(st.ones(10))
    print(frames.qsize(), flush=True)
"""


def get(url: str, path: str = "/metrics", method: str = "GET", accept: str = OPENMETRICS) -> tuple[int, str, str]:
    """Status, content type and text of an answer."""
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=BOUND)
    try:
        connection.request(method, path, headers={"Accept": accept})
        answer = connection.getresponse()
        return answer.status, answer.headers["Content-Type"], answer.read().decode()
    finally:
        connection.close()


def samples(text: str, parse: Any = text_string_to_metric_families) -> dict[str, float]:
    """Values by name, which is followed by the values of the labels."""
    return {
        " ".join([sample.name, *(value for _, value in sorted(sample.labels.items()))]): sample.value
        for family in parse(text)
        for sample in family.samples
    }


def scraped(url: str) -> dict[str, float]:
    return samples(get(url)[2])


def start(here: World, *options: str) -> dict[str, str]:
    """Start `shmtensor-manager metrics`; gives what it printed."""
    process = here.popen("-m", "shmtensor.manager", "metrics", "--json", *options)
    document: dict[str, str] = json.loads(line_of(process))
    return document


@pytest.fixture
def url(here: World) -> str:
    """An endpoint for a manager at the default place, which is not started yet."""
    return start(here, "--port", "0")["url"]


@contextmanager
def joined(address: bytes) -> Iterator[client.Manager]:
    made = client.at(address)
    try:
        yield made
    finally:
        made.close()


STORE = """
import sys, time
import shmtensor as st
store = st.Store("features", max_bytes=900_000, create=True)
store.put("short", 1, ttl=0.001)
time.sleep(0.01)
for number in range(3):
    store.put(str(number), st.ones(100_000))
print("ready", flush=True)
sys.stdin.readline()
"""


def test_values_of_stores_outlive_their_manager(here: World, url: str) -> None:
    here.serve()
    program = here.script(STORE)
    assert line_of(program) == "ready"

    def of_stores() -> dict[str, float]:
        return {
            name.removeprefix("shmtensor_store_"): value for name, value in scraped(url).items() if "_store" in name
        }

    values = until(of_stores, "the store to be seen")
    table = values.pop("table_bytes features")
    assert 0 < table < 1 << 20
    nbytes = values.pop("bytes features")
    assert 800_000 <= nbytes <= 900_000
    assert values == {
        "objects features": 2, "limit_bytes features": 900_000, "spilled_objects features": 0,
        "spilled_bytes features": 0, "evictions_total features": 1, "expirations_total features": 1,
    }  # fmt: skip
    assert not any("_ring_" in name for name in scraped(url))
    documented = re.findall(r"^\| `shmtensor_store_(\w+)`", (ROOT / "docs/operating.md").read_text(), re.MULTILINE)
    seen = {name.removesuffix(" features") for name in values} | {"bytes", "table_bytes", "spilled_limit_bytes"}
    assert set(documented) == seen
    kill(here.server)
    here.serve()
    until(lambda: of_stores().get("evictions_total features") == 1, "the next manager to tell them")


@pytest.mark.exhaustive
def test_values_are_those_of_the_group(here: World, url: str) -> None:
    path = here.serve("--max-bytes", "1G")
    producer = here.script(PRODUCER)
    assert line_of(producer) == "ready"
    with joined(path) as user:
        kept = user.allocate(10_000)
        user.ticket(kept)
        found = here.observe(path)
        values = until(
            lambda: (seen := scraped(url)).get("shmtensor_clients") == 2 and seen, "the endpoint to see both clients"
        )
        stats = found["stats"]
        for name, key in {
            "segments": "segments", "rings": "rings", "blocks": "live_blocks", "live_bytes": "live_bytes",
            "reserved_bytes": "reserved_bytes", "limit_bytes": "max_bytes", "charged_bytes": "charged_bytes",
        }.items():  # fmt: skip
            assert values[f"shmtensor_{name}"] == stats[key], name
        assert values["shmtensor_up"] == 1 and values["shmtensor_limit_bytes"] == 1 << 30
        assert "shmtensor_client_limit_bytes" not in values
        for kind in ("client", "ticket", "message"):
            rows = [row for segment in found["segments"] for row in segment["holders"] if row["kind"] == kind]
            assert values[f"shmtensor_holds {kind}"] == sum(row["blocks"] for row in rows) > 0
        named = next(row for row in found["rings"] if row["messages"] == 3)
        assert {name: value for name, value in values.items() if "_ring_" in name} == {
            "shmtensor_ring_messages frames": 3, "shmtensor_ring_bytes frames": named["bytes"],
        }  # fmt: skip
        assert values["shmtensor_takeovers_total"] == 0 and values["shmtensor_requests_total"] >= 4
        oldest = "shmtensor_oldest_ticket_seconds"
        assert until(lambda: scraped(url)[oldest], "the ticket to become a second old") >= 1
        user.gc(in_flight=0)
        until(lambda: scraped(url)[oldest] == 0, "the ticket to go")
        tell(producer)
        assert line_of(producer) == "4"
        until(lambda: scraped(url)["shmtensor_ring_messages frames"] == 4, "the fourth message")
        before = user.stats()
        assert user.find(b"/nothing") is None
        kill(producer)
        until(lambda: scraped(url)["shmtensor_clients"] == 1, "the end of the killed client to be seen")
        values = scraped(url)
        assert values["shmtensor_reaped_clients_total"] == before.reaped + 1
        assert values["shmtensor_refused_requests_total"] == before.refused + 1
        assert values["shmtensor_requests_total"] > before.requests + 1
        del kept


def test_both_formats_parse_and_no_label_tells_who(here: World, url: str) -> None:
    path = here.serve()
    producer = here.script(PRODUCER)
    assert line_of(producer) == "ready"
    with joined(path) as user:
        user.export(block := user.allocate(64))
        status, kind, text = get(url)
        assert status == 200 and kind.startswith("application/openmetrics-text") and text.endswith("# EOF\n")
        families = list(text_string_to_metric_families(text))
        assert all(family.name.startswith("shmtensor_") and family.documentation for family in families)
        of_stores = {"shmtensor_store_evictions", "shmtensor_store_expirations"}
        assert {family.name for family in families if family.type == "counter"} == set(COUNTERS) | of_stores
        assert {label for family in families for sample in family.samples for label in sample.labels} == LABELS
        assert "/torch_" not in text and f"{user.stats().group}" not in text
        for family in families:
            assert family.unit == (family.name.rpartition("_")[2] if family.unit else "")
            assert bool(family.unit) == family.name.endswith(("_bytes", "_seconds"))
        status, kind, text = get(url, accept="*/*")
        assert status == 200 and kind.startswith("text/plain; version=0.0.4")
        assert samples(text, parser.text_string_to_metric_families)["shmtensor_clients"] == 2
        documented = set(re.findall(r"^\| `(shmtensor_\w+)`", (ROOT / "docs/operating.md").read_text(), re.MULTILINE))
        documented = {name for name in documented if not name.startswith("shmtensor_store_")}  # there is none
        seen = {sample.name for family in families for sample in family.samples}
        assert documented == seen | {"shmtensor_limit_bytes", "shmtensor_client_limit_bytes"}
        del block


def counters(manager: client.Manager) -> tuple[int, int, int, int]:
    found = manager.stats()
    return found.requests, found.refused, found.reaped, found.epoch


@pytest.mark.parametrize("rounds", first([2, 30]))
def test_counters_outlive_managers(here: World, url: str, rounds: int) -> None:
    """Killed and restarted, with requests under way: no counter goes down, and none forgets what was published."""
    path = here.serve()
    with joined(path) as user:
        last, ended = counters(user), threading.Event()

        def ask() -> None:
            while not ended.wait(0.001):
                user.gc()

        asking = threading.Thread(target=ask)
        asking.start()
        try:
            for number in range(rounds):
                here.run("from shmtensor.manager import client; client.default()")
                until(lambda known=last: counters(user)[2] > known[2], "the end of a client to be counted")
                if number % 2:
                    assert here.command("restart").returncode == 0
                else:
                    os.kill(user.stats().pid, signal.SIGKILL)
                now = counters(user)
                assert all(new >= old for new, old in zip(now, last, strict=True)), (last, now)
                assert now[0] > last[0] and now[3] > last[3]
                last = now
        finally:
            ended.set()
            asking.join()
        names = [f"{name}_total" for name in COUNTERS]
        until(lambda: set(names) <= scraped(url).keys(), "the last manager to answer")
        seen = [scraped(url)[name] for name in names]
        assert all(value >= known for value, known in zip(seen, (*last[:3], last[3] - 1), strict=True)), (last, seen)
        assert seen[3] >= rounds and seen[2] >= 1


def test_without_a_manager_only_up_is_there(here: World) -> None:
    process = here.popen("-m", "shmtensor.manager", "metrics", "--port", "0")
    line = line_of(process)
    assert str(here.directory / "manager.sock") in line
    url = line.split()[-1]
    assert scraped(url) == {"shmtensor_up": 0}
    here.serve()
    until(lambda: scraped(url).get("shmtensor_clients") == 0, "the manager to be found")
    kill(here.server)
    until(lambda: scraped(url) == {"shmtensor_up": 0}, "the end of the manager to be seen")
    process.terminate()
    assert process.wait(BOUND) == 0
    said = process.communicate()[1].splitlines()
    assert ["is 0" in row for row in said] == [True, False, True], said


@pytest.mark.exhaustive
def test_a_stopped_manager_is_down_and_back_when_it_goes_on(here: World, url: str) -> None:
    here.serve()
    until(lambda: scraped(url)["shmtensor_up"], "the manager to be seen")
    here.server.send_signal(signal.SIGSTOP)
    try:
        until(lambda: scraped(url) == {"shmtensor_up": 0}, "its silence to be seen")
    finally:
        here.server.send_signal(signal.SIGCONT)
    until(lambda: scraped(url)["shmtensor_up"], "the manager to be seen again")


def test_scrapes_ask_the_manager_at_most_once_a_second(here: World, url: str) -> None:
    with joined(here.serve()) as user:
        before, begun = user.stats().requests, time.monotonic()
        crowd = [threading.Thread(target=lambda: [scraped(url) for _ in range(10)]) for _ in range(4)]
        for one in crowd:
            one.start()
        for one in crowd:
            one.join()
        asked = user.stats().requests - before - 1
        assert 2 <= asked <= 2 * (2 + (time.monotonic() - begun) / openmetrics.KEEP_SECONDS)


def test_only_get_of_metrics_is_answered(here: World, url: str) -> None:
    for path, status in (
        ("/", 404),
        ("/metrics/", 404),
        ("/../metrics", 404),
        ("/favicon.ico", 404),
        ("/metrics?a", 200),
    ):
        assert get(url, path)[0] == status, path
    for method in "POST", "HEAD", "PUT":
        assert get(url, method=method)[0] == 501, method


class Slow(Collector):
    """Figures that a scrape waits for."""

    def __init__(self) -> None:
        self.asked = threading.Semaphore(0)
        self.go_on = threading.Event()

    def collect(self) -> list[Any]:
        self.asked.release()
        assert self.go_on.wait(BOUND)
        return []


@pytest.fixture
def slow() -> Slow:
    return Slow()


@pytest.fixture
def served(slow: Slow) -> Iterator[endpoint.Endpoint]:
    """An endpoint whose answers wait for `slow`."""
    made = CollectorRegistry()
    slow.go_on.set()
    made.register(slow)  # collects once
    made_at = endpoint.Endpoint("127.0.0.1", 0, made)
    thread = threading.Thread(target=made_at.serve_forever, args=(0.02,))
    thread.start()
    yield made_at
    slow.go_on.set()
    made_at.shutdown()
    made_at.server_close()
    thread.join(BOUND)


def test_idle_connections_are_bounded(served: endpoint.Endpoint) -> None:
    where = ("127.0.0.1", served.server_port)
    idle = [socket.create_connection(where, BOUND) for _ in range(3 * serving.MAX_WAITING)]
    try:
        until(lambda: len(served._waiting) <= serving.MAX_WAITING, "older connections to be closed")
        until(lambda: threading.active_count() < 2 * serving.MAX_WAITING, "their threads to end")
        assert idle[0].recv(1) == b""
        assert get(served.url)[0] == 200
    finally:
        for one in idle:
            one.close()
    until(lambda: not served._waiting, "the connections to be forgotten")


def test_a_request_must_be_complete_in_time(served: endpoint.Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "REQUEST_SECONDS", 0.5)
    with socket.create_connection(("127.0.0.1", served.server_port), BOUND) as slow_one:
        slow_one.sendall(b"GET /metrics HTTP/1.1\r\n")
        deadline = time.monotonic() + BOUND
        while not select.select([slow_one], [], [], 0.05)[0]:
            assert time.monotonic() < deadline
            slow_one.sendall(b"X")


def test_scrapes_that_wait_are_bounded(served: endpoint.Endpoint, slow: Slow, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(served, "answers", threading.BoundedSemaphore(2))
    while slow.asked.acquire(blocking=False):
        pass
    slow.go_on.clear()
    found: list[int] = []
    waiting = [threading.Thread(target=lambda: found.append(get(served.url)[0])) for _ in range(2)]
    for one in waiting:
        one.start()
        assert slow.asked.acquire(timeout=BOUND)
    assert get(served.url)[0] == 503
    slow.go_on.set()
    for one in waiting:
        one.join(BOUND)
    assert found == [200, 200]
    assert get(served.url)[0] == 200


def test_requests_that_are_too_large(served: endpoint.Endpoint) -> None:
    assert get(served.url, "/metrics?" + "x" * serving.MAX_HEAD_BYTES)[0] == 431


def test_no_name_server_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> str:
        raise AssertionError("a name was looked up")

    monkeypatch.setattr(socket, "getfqdn", refuse)
    endpoint.Endpoint("127.0.0.1", 0, CollectorRegistry()).server_close()


def test_ipv6_loopback(here: World) -> None:
    if not Path("/proc/net/if_inet6").exists():
        pytest.skip("no IPv6")
    url = start(here, "--port", "0", "--host", "::1")["url"]
    assert urlsplit(url).hostname == "::1"
    assert scraped(url) == {"shmtensor_up": 0}


def test_refusals_say_what_to_do(here: World, url: str, tmp_path: Path) -> None:
    taken = here.command("metrics", "--port", str(urlsplit(url).port))
    assert taken.returncode == 1 and "choose another --port" in taken.stderr, taken
    where = tmp_path / "missing" / "x.prom"
    wrong = here.command("metrics", "--textfile", str(where), "--once")
    assert wrong.returncode == 1 and f"cannot write {where}: No such file" in wrong.stderr, wrong
    for options in (["--port", "65536"], ["--interval", "0"], ["--port", "1", "--textfile", "x"], ["--host", ""]):
        assert here.command("metrics", *options).returncode == 2
    (tmp_path / "prometheus_client.py").write_text("raise ModuleNotFoundError('none', name='prometheus_client')")
    hidden = {"PYTHONPATH": f"{tmp_path}:{here.env['PYTHONPATH']}"}
    missing = here.command("metrics", "--once", env=hidden)
    assert missing.returncode == 1 and "pip install 'shmtensor[metrics]'" in missing.stderr, missing
    here.serve(address=here.directory / "one.sock")
    here.serve(address=here.directory / "two.sock")
    several = here.command("metrics", "--once")
    assert several.returncode == 1 and "choose one with --address" in several.stderr, several
    chosen = here.command("metrics", "--once", "--address", str(here.directory / "one.sock"))
    assert chosen.returncode == 0 and samples(chosen.stdout)["shmtensor_up"] == 1, chosen


def test_textfile(here: World, tmp_path: Path) -> None:
    here.serve()
    where = tmp_path / "shmtensor.prom"
    once = here.command("metrics", "--textfile", str(where), "--once")
    assert (once.returncode, once.stdout, once.stderr) == (0, "", "")
    text = where.read_text()
    assert samples(text, parser.text_string_to_metric_families)["shmtensor_up"] == 1
    assert "# TYPE shmtensor_build_info gauge" in text, "node_exporter does not know the types of OpenMetrics"
    made = where.stat().st_ino
    process = here.popen("-m", "shmtensor.manager", "metrics", "--textfile", str(where), "--interval", "1")
    assert line_of(process).endswith(str(where))
    written = where.stat()
    assert written.st_ino != made
    until(lambda: where.stat().st_mtime_ns > written.st_mtime_ns, "the next file")
    process.terminate()
    assert process.wait(BOUND) == 0
    assert list(tmp_path.iterdir()) == [where]


def test_a_reader_of_the_textfile_sees_a_whole_one(here: World, tmp_path: Path) -> None:
    where, group = tmp_path / "shmtensor.prom", openmetrics.registry(here.serve())
    ended = threading.Event()
    metrics._write(str(where), group)

    def write() -> None:
        while not ended.is_set():
            metrics._write(str(where), group)

    writing = threading.Thread(target=write)
    writing.start()
    inodes, lines = set(), len(where.read_text().splitlines())

    def read() -> bool:
        """Whether the file was seen to change."""
        for _ in range(100):
            with where.open() as file:
                inodes.add(os.fstat(file.fileno()).st_ino)
                assert len(file.read().splitlines()) == lines
        return len(inodes) > 1

    try:
        for _ in range(10):
            until(read, "the file to be replaced")
            inodes.clear()
    finally:
        ended.set()
        writing.join()


def yaml_of(words: str) -> str:
    """The block of YAML in docs/operating.md that begins with these words."""
    found: list[str] = re.findall(r"```yaml\n(.*?)```", (ROOT / "docs/operating.md").read_text(), re.DOTALL)
    return next(text for text in found if text.startswith(words))


def binary(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"no {name} (Debian: apt-get install prometheus)")
    return found


def test_prometheus_scrapes_it(here: World, url: str, tmp_path: Path) -> None:
    prometheus = binary("prometheus")
    path = here.serve()
    producer = here.script(PRODUCER)
    assert line_of(producer) == "ready"
    config = tmp_path / "prometheus.yml"
    scrape = yaml_of("scrape_configs:").replace("127.0.0.1:19100", urlsplit(url).netloc)
    config.write_text(scrape.replace("scrape_interval: 15s", "scrape_interval: 1s"))
    server = subprocess.Popen(
        [prometheus, f"--config.file={config}", f"--storage.tsdb.path={tmp_path}", "--web.listen-address=127.0.0.1:0"],
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        said = []

        def listening() -> str | None:
            assert server.stderr is not None
            line = server.stderr.readline()
            said.append(line)
            assert line, "".join(said)
            match = re.search(r'msg="Listening on" address=(\S+)', line)
            return match[1] if match else None

        address = until(listening, "Prometheus to listen")
        drained = threading.Thread(target=lambda: [None for _ in server.stderr or ()])
        drained.start()

        def value(query: str) -> float | None:
            _, _, text = get(f"http://{address}", f"/api/v1/query?query={quote(query)}", accept="*/*")
            result = json.loads(text).get("data", {}).get("result")
            return float(result[0]["value"][1]) if result else None

        until(lambda: value('up{job="shmtensor"}') == 1, "the first scrape")
        assert value("shmtensor_up") == 1 and value('shmtensor_ring_messages{name="frames"}') == 3
        assert value("sum(shmtensor_holds)") == sum(here.observe(path)["stats"]["holds"].values())
        until(lambda: value("increase(shmtensor_requests_total[1m])"), "a counter to grow")
    finally:
        server.terminate()
        server.wait(BOUND)
        drained.join(BOUND)
        assert server.stderr is not None
        server.stderr.close()


def test_promtool_accepts_the_examples(tmp_path: Path) -> None:
    promtool = binary("promtool")
    for kind, words in ("config", "scrape_configs:"), ("rules", "groups:"):
        path = tmp_path / f"{kind}.yml"
        path.write_text(yaml_of(words))
        done = subprocess.run(
            [promtool, "check", kind, path], capture_output=True, text=True, timeout=BOUND, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
