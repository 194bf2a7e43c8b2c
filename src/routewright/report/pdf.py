"""A report as PDF, printed by a headless browser."""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path

from routewright.errors import BackendError
from routewright.files import write_bytes_atomic
from routewright.report.figures.image import find_browser

_TIMEOUT_S = 120

BROWSER_OPTIONS = (
    "--headless=new",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-extensions",
    "--no-first-run",
    "--no-default-browser-check",
)


def write_pdf(page: str, path: Path) -> None:
    """Print an HTML page and write the PDF.

    Args:
        page: The page; it must need no network.
        path: Where the PDF goes.

    Raises:
        BackendError: There is no Chrome or Chromium, or it did not print the page.
        StorageError: The file cannot be written.
    """
    browser = find_browser()
    with tempfile.TemporaryDirectory(prefix="routewright-pdf-") as folder:
        source, printed = Path(folder, "report.html"), Path(folder, "report.pdf")
        source.write_text(page, encoding="utf-8")
        command = [
            str(browser),
            *BROWSER_OPTIONS,
            f"--user-data-dir={folder}/profile",
            "--no-pdf-header-footer",
            f"--print-to-pdf={printed}",
            source.as_uri(),
        ]
        if os.geteuid() == 0:
            # Chromium refuses to start as root with its sandbox; the page is our own and its
            # policy loads nothing.
            command.insert(1, "--no-sandbox")
        try:
            done = subprocess.run(
                command, capture_output=True, timeout=_TIMEOUT_S, check=False, text=True
            )
        except subprocess.TimeoutExpired as error:
            raise BackendError(
                f"the browser {browser} did not print the report in {_TIMEOUT_S} s; write it with "
                "--html and print that"
            ) from error
        except OSError as error:
            raise BackendError(f"cannot start the browser {browser}: {error.strerror}") from error
        if not printed.exists():
            said = (done.stderr.strip().splitlines() or ["nothing"])[-1]
            raise BackendError(
                f"the browser {browser} did not print the report ({said}); write it with --html "
                "and print that"
            )
        write_bytes_atomic(path, printed.read_bytes())
