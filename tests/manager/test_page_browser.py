"""The page in a headless browser: its drawing of a running group, and of a recording."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from manager_world import BOUND, World, kill, line_of, until

webdriver = pytest.importorskip("selenium.webdriver")
CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
pytestmark = [
    pytest.mark.skipif(not CHROMIUM or not DRIVER, reason="needs chromium and chromium-driver (Debian's packages)"),
    pytest.mark.any_python,
]

CHILD = """
import sys, shmtensor as st
import shmtensor.multiprocessing as mp
kept = [st.zeros(2000, shared=True) for _ in range(300)]
queue = mp.Queue(maxsize=10)
for _ in range(6):
    queue.put(st.zeros(100))
print("ready", flush=True)
sys.stdin.readline()
"""


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    profile = tmp_path_factory.mktemp("profile")
    sizes = ("--window-size=1400,1000", "--disable-dev-shm-usage", "--disable-gpu", "--disable-background-networking")
    for argument in ("--headless=new", "--no-sandbox", f"--user-data-dir={profile}", *sizes):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    made = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    made.set_script_timeout(BOUND)
    yield made
    made.quit()


@pytest.fixture
def browser(here: World, chromium: Any) -> Iterator[Any]:
    """Leaves the page before its server ends: else it would try to connect again, during the next test."""
    yield chromium
    chromium.get("about:blank")
    chromium.get_log("browser")


def page_of(here: World, *options: str) -> str:
    return line_of(here.popen("-m", "shmtensor.manager", "page", *options))


def value(browser: Any, expression: str) -> Any:
    return browser.execute_script(f"return {expression}")


def text(browser: Any, name: str) -> str:
    return str(value(browser, f"document.getElementById('{name}').innerText"))


COLOURS = """(() => {
  const canvas = document.getElementById("map");
  const pixels = new Uint32Array(canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data.buffer);
  return new Set(pixels).size;
})()"""


def check_console(browser: Any) -> None:
    """Nothing was refused by the Content-Security-Policy, and no script failed."""
    assert [row for row in browser.get_log("browser") if row["level"] == "SEVERE"] == []


def test_a_group_and_a_child_that_is_killed(here: World, browser: Any) -> None:
    address = here.serve()
    child = here.script(CHILD, env={"SHMTENSOR_MANAGER": os.fsdecode(address)})
    line_of(child)
    browser.get(page_of(here))
    until(lambda: value(browser, "shmtensor.map.drawn") >= 306, "the blocks to be drawn")
    until(lambda: f"pid {child.pid}" in text(browser, "holders"), "the holder to be listed")
    assert value(browser, COLOURS) > 5
    until(lambda: "6 of 10" in text(browser, "queues"), "the queue to be listed")
    assert "messages in queues\n6" in text(browser, "figures") and text(browser, "state") == "live"
    assert value(browser, "document.querySelectorAll('#charts canvas').length") == 2
    until(lambda: value(browser, "shmtensor.timeline[0].length") > 1, "the timeline to go on")
    found = value(browser, "[...shmtensor.map.blocks.values()].reduce((sum, words) => sum + words.length, 0)")
    assert found >= 6 * 306
    kill(child)
    until(lambda: value(browser, "shmtensor.map.drawn") == 0, "the blocks to go from the map")
    until(lambda: str(child.pid) not in text(browser, "holders"), "the holder to go from the list")
    check_console(browser)


MANY = """
import random, select, sys, shmtensor as st
kept = [st.zeros(16, shared=True) for _ in range(100_000)]
print("ready", flush=True)
while not select.select([sys.stdin], [], [], 0.05)[0]:
    for _ in range(500):
        kept[random.randrange(100_000)] = st.zeros(16, shared=True)
"""


@pytest.mark.exhaustive
def test_a_hundred_thousand_blocks_that_change(here: World, browser: Any) -> None:
    address = here.serve()
    child = here.script(MANY, env={"SHMTENSOR_MANAGER": os.fsdecode(address)})
    line_of(child)
    browser.get(page_of(here))
    until(lambda: value(browser, "shmtensor.map.drawn") >= 99_999, "the blocks to be drawn")
    drawn = value(browser, "shmtensor.drawing.draws")
    until(lambda: value(browser, "shmtensor.drawing.draws") > drawn + 30, "thirty pictures more")
    assert abs(value(browser, "shmtensor.map.drawn") - 100_000) < 1000  # pictures may be torn
    kill(child)
    until(lambda: value(browser, "shmtensor.map.drawn") == 0, "the blocks to go from the map")
    check_console(browser)


def test_a_block_is_described_under_the_pointer(here: World, browser: Any) -> None:
    address = here.serve()
    child = here.script(CHILD, env={"SHMTENSOR_MANAGER": os.fsdecode(address)})
    line_of(child)
    browser.get(page_of(here))
    until(lambda: value(browser, "shmtensor.map.drawn") >= 306, "the blocks to be drawn")
    canvas = browser.find_element("id", "map")
    left, top = (canvas.size["width"] // 2 - 170) * -1, canvas.size["height"] // 2 * -1 + 8

    def described() -> bool:
        move = webdriver.ActionChains(browser, duration=0)
        move.move_to_element_with_offset(canvas, left, top).move_by_offset(1, 0).perform()
        said = str(value(browser, "document.getElementById('tip').textContent"))
        return f"held by pid {child.pid}" in said and "7.8 KiB" in said

    until(described, "the block to be described")
    until(lambda: str(child.pid) in text(browser, "holders"), "the holder to be listed")
    browser.execute_script("document.querySelector('tr.owner').onmousedown()")
    assert value(browser, "shmtensor.map.chosen !== null")
    check_console(browser)


def test_a_recording(here: World, browser: Any, tmp_path: Path) -> None:
    address = here.serve()
    recorded = tmp_path / "recording"
    page_of(here, "--record", str(recorded), "--rate", "30")
    child = here.script(CHILD, env={"SHMTENSOR_MANAGER": os.fsdecode(address)})
    line_of(child)
    until(lambda: b'"messages":6' in recorded.read_bytes(), "the child to be recorded")
    kill(child)
    until(lambda: b'"rings":{"8192":null}' in recorded.read_bytes(), "its end to be recorded")
    browser.get(page_of(here, "--replay", str(recorded)))
    until(lambda: text(browser, "state") == "recording", "the recording to be shown")
    until(lambda: text(browser, "play") == "play again", "its end")
    assert value(browser, "shmtensor.map.drawn") == 0
    most = "shmtensor.timeline[3].indexOf(Math.max(...shmtensor.timeline[3]))"
    browser.execute_script(f"paused = true; seek(shmtensor.timeline[0][{most}] - shmtensor.timeline[0][0] + 0.001)")
    until(lambda: value(browser, "shmtensor.map.drawn") > 0, "the blocks of that moment")
    assert text(browser, "play") == "play"
    browser.find_element("id", "play").click()
    until(lambda: text(browser, "play") == "play again", "the end once more")
    check_console(browser)


def test_without_the_token(here: World, browser: Any) -> None:
    here.serve()
    browser.get(page_of(here).partition("?")[0])
    assert "the token is missing or wrong" in value(browser, "document.body.innerText")
    assert value(browser, "typeof window.shmtensor") == "undefined"
