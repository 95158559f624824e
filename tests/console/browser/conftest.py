"""A browser, and a console over a lively log, for each module of tests; a page that fails its test if it does what it
must not: errors, violations of the policy of content, requests to other hosts.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page

from tests.access.authority import Signer
from tests.console.browser import browsing
from tests.console.demo import console_over, fill
from txn_source import Log, connect
from txn_source.client.target import open_service
from txn_source.console.serving import Console
from txn_source.metadata.access.door import Door
from txn_source.metadata.access.keys import Keys
from txn_source.metadata.access.tokens import Verifier
from txn_source.storage.object_root import root_at


@dataclass(frozen=True)
class Guarded:
    """The address of a console that asks for tokens, and who signs them."""

    address: str
    signer: Signer


@dataclass(frozen=True)
class Shown:
    """A log and the address of its console, which ends with a slash."""

    log: Log
    root: Path
    address: str
    console: Console

    def changed(self) -> None:
        """Let the console look at the log anew, which it does once a second."""
        self.console.snapshots.forget()


@pytest.fixture(scope="module")
def shown(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shown]:
    """The log of ``tests.console.demo``, which the module's tests share, and its console."""
    root = tmp_path_factory.mktemp("console") / "log"
    with connect(root) as log:
        fill(log, messages=80)
        with console_over(root) as console:
            yield Shown(log, root, console.address, console)


@pytest.fixture
def context(browser: Browser, shown: Shown) -> Iterator[BrowserContext]:
    """A window's surroundings, such as what it keeps."""
    with closing(
        browser.new_context(viewport=browsing.DESKTOP, base_url=shown.address, reduced_motion="reduce")
    ) as context:
        context.set_default_timeout(60_000)
        yield context


@pytest.fixture
def watch(context: BrowserContext, shown: Shown) -> Iterator[browsing.Watch]:
    """What pages did that they must not; a test names here what it provokes."""
    watch = browsing.Watch(context, shown.address)
    yield watch
    watch.check()


@pytest.fixture
def page(context: BrowserContext, watch: browsing.Watch) -> Page:
    """A page on which nothing was opened; ``page.goto("#/topics")`` opens one of the console's."""
    return context.new_page()


@pytest.fixture
def guarded(shown: Shown, watch: browsing.Watch, tmp_path: Path) -> Iterator[Guarded]:
    """A console over the module's log that asks for tokens."""
    signer = Signer(tmp_path)
    door = Door(Verifier(Keys([signer.public_file])))
    with (
        closing(open_service(str(shown.root), None)) as service,
        Console(service, root_at(shown.root), "127.0.0.1", 0, door=door) as console,
    ):
        watch.allow(console.address)
        yield Guarded(console.address, signer)
