"""A browser for each module of tests, and a page that fails its test if something happens that must not."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser

from tests.console.browser import browsing


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A browser; tests that need one are skipped where there is none."""
    executable = browsing.chromium()
    if executable is None:
        pytest.skip(browsing.NO_BROWSER)
    with browsing.started(executable) as browser:
        yield browser
