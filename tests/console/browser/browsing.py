"""A real browser that looks at the console, and what must not happen while it does."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, Request, sync_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome")
NO_BROWSER = (
    f"no browser: none of {', '.join(NAMES)} is on PATH, and TXNLOG_CHROMIUM names none;"
    " on Debian or Ubuntu: apt-get install chromium"
)
_FLAGS = [
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost",
]
_STATUS = re.compile(r"the server responded with a status of (\d{3})")
_NO_ANSWER = "net::ERR_"
_TELL_VIOLATIONS = """addEventListener("securitypolicyviolation", event =>
    console.error(`CSP: ${event.violatedDirective} refused ${event.blockedURI || event.sourceFile}`))"""
DESKTOP = {"width": 1440, "height": 900}
PHONE = {"width": 360, "height": 740}


def chromium() -> Path | None:
    """Return the browser that tests use, or None where there is none."""
    named = os.environ.get("TXNLOG_CHROMIUM")
    found = named or next(filter(None, map(shutil.which, NAMES)), None)
    return Path(found) if found else None


@contextmanager
def started(executable: Path) -> Iterator[Browser]:
    """Start a browser without a window, which resolves no name but this machine's."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable, args=_FLAGS, headless=True)
        try:
            yield browser
        finally:
            browser.close()


class Watch:
    """What a browser's pages did that a page of the console must not do.

    ``faults`` has errors in the browser's console, exceptions that nobody caught, violations of the policy of content,
    and requests to another host. An answer with an error is told by the browser as an error, too: a test names the
    statuses that it provokes in ``expected``, and says ``absent`` while no service is there.
    """

    def __init__(self, context: BrowserContext, address: str) -> None:
        """Watch all pages of a context, which may ask the given address alone (``http://127.0.0.1:1234``)."""
        self.faults: list[str] = []
        self.expected: set[int] = set()
        self.absent = False
        self._own = {urlsplit(address).netloc}
        context.add_init_script(_TELL_VIOLATIONS)
        context.on("console", self._hear)
        context.on("weberror", lambda error: self.faults.append(f"exception: {error.error}"))
        context.on("request", self._see)

    def allow(self, address: str) -> None:
        """Let pages ask another address, too: of a console that the test has made."""
        self._own.add(urlsplit(address).netloc)

    def check(self) -> None:
        """Fail if there was a fault."""
        assert not self.faults, self.faults

    def _hear(self, message: ConsoleMessage) -> None:
        if message.type not in ("error", "warning") or self._is_expected(message.text):
            return
        self.faults.append(f"{message.type}: {message.text}")

    def _is_expected(self, text: str) -> bool:
        found = _STATUS.search(text)
        return (found is not None and int(found[1]) in self.expected) or (self.absent and _NO_ANSWER in text)

    def _see(self, request: Request) -> None:
        where = urlsplit(request.url)
        if where.scheme not in ("data", "blob") and where.netloc not in self._own:
            self.faults.append(f"foreign request: {request.url}")


def overflow(page: Page) -> int:
    """Return by how many pixels the page can be scrolled sideways."""
    return int(
        page.evaluate("() => { scrollTo(10_000, scrollY); const far = scrollX; scrollTo(0, scrollY); return far }")
    )


def poll(page: Page) -> None:
    """Let the page ask the service now, as it does when somebody looks at it again."""
    page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
