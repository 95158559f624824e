"""Subscriptions in the console: how far each is, and moving one after a look at what that will do."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from tests.console.browser.browsing import Watch
from tests.console.browser.conftest import Shown


def test_list_shows_levels_and_backlogs(page: Page, shown: Shown) -> None:
    page.goto("#/subscriptions")
    row = page.get_by_role("row").filter(has_text="billing")
    expect(row).to_contain_text("committed")
    expect(page.get_by_text("4 subscriptions")).to_be_visible()
    page.get_by_role("radio", name="Uncommitted").check()
    expect(page.get_by_text("1 subscription", exact=True)).to_be_visible()
    expect(page.get_by_role("link", name="search-index")).to_be_visible()
