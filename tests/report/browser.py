"""A real browser for tests: Debian's Chromium through Selenium; a plugin of the tests here."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.service import Service

REQUIRED = "ROUTEWRIGHT_BROWSER_TESTS"
"""Set to ``required`` where a missing browser is a failure, as on the build server."""

_WAIT_S = 60.0

DRAWN = """
return Array.from(document.querySelectorAll(".js-plotly-plot")).map(plot => ({
  title: (plot.querySelector(".gtitle") || {textContent: ""}).textContent,
  marks: plot.querySelectorAll(".trace path.point, .trace path.js-line").length,
}));
"""
"""Script that tells the title and the drawn marks of every figure on a page."""


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[webdriver.Chrome]:
    """Start a headless Chromium with an empty profile."""
    program, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if program is None or driver is None:
        message = "needs chromium and chromedriver (Debian: apt install chromium chromium-driver)"
        if os.environ.get(REQUIRED) == "required":
            pytest.fail(message, pytrace=False)
        pytest.skip(message)
    options = webdriver.ChromeOptions()
    options.binary_location = program
    for argument in (
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-extensions",
        "--no-first-run",
        "--no-default-browser-check",
        "--window-size=1400,1600",
        f"--user-data-dir={tmp_path_factory.mktemp('chromium')}",
    ):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    started = webdriver.Chrome(options=options, service=Service(driver))
    started.set_script_timeout(_WAIT_S)
    yield started
    started.quit()


def eventually(look: Callable[[], Any], *, what: str) -> Any:
    """Return what ``look`` gives once it is true; pages fill by and by."""
    end_s = time.monotonic() + _WAIT_S
    while True:
        found = look()
        if found:
            return found
        if time.monotonic() > end_s:
            raise AssertionError(f"{what} did not come within {_WAIT_S:.0f} s")
        time.sleep(0.2)


def console_errors(browser: webdriver.Chrome) -> list[str]:
    """Return what the page's console calls severe."""
    return [e["message"] for e in browser.get_log("browser") if e["level"] == "SEVERE"]


def as_url(path: Path) -> str:
    """Return the address of a file."""
    return path.absolute().as_uri()
