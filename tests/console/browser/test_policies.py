"""Policies in the console: the value in force, and who has set it."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from tests.console.browser.conftest import Shown
from tests.console.demo import BOOKINGS, PAYMENTS


@pytest.mark.long
def test_value_in_force_and_those_that_it_masks(page: Page, shown: Shown) -> None:
    log = shown.log
    log.set_policies(offload_after_age="1d", retention_bytes="10g")
    log.set_policies(namespace="bank/emea", offload_after_age="7d")
    log.set_policies(topic=PAYMENTS, offload_after_bytes="64m")
    page.goto("#/policies")
    page.get_by_role("link", name="Topic", exact=True).click()
    page.get_by_role("combobox", name="Topic").fill(PAYMENTS)
    page.keyboard.press("Enter")
    row = page.get_by_role("row").filter(has_text="offload_after_age")
    expect(row.get_by_role("cell")).to_have_text(["7 d", "namespace", "–", "7 d", "1 d", "unset"])
    row = page.get_by_role("row").filter(has_text="offload_after_bytes")
    expect(row.get_by_role("cell")).to_have_text(["64.0 MiB", "topic", "64.0 MiB", "–", "–", "unset"])
    row = page.get_by_role("row").filter(has_text="retention_bytes")
    expect(row.get_by_role("cell")).to_have_text(["10.0 GiB", "broker", "–", "–", "10.0 GiB", "unset"])
    row = page.get_by_role("row").filter(has_text="data_read_priority")
    expect(row.get_by_role("cell")).to_have_text(["tiered-first", "default", "–", "–", "–", "tiered-first"])
    page.get_by_role("link", name="Namespace").click()
    page.get_by_role("textbox", name="Namespace").fill("bank/emea")
    page.keyboard.press("Enter")
    row = page.get_by_role("row").filter(has_text="offload_after_age")
    expect(row.get_by_role("cell")).to_have_text(["7 d", "namespace", "7 d", "1 d", "unset"])


@pytest.mark.long
def test_topic_has_them_as_a_part_of_its_page(page: Page, shown: Shown) -> None:
    page.goto(f"#/topics/{BOOKINGS}?tab=policies")
    expect(page.get_by_role("table", name="Policies").get_by_role("row").nth(1)).to_contain_text("data_read_priority")
    expect(page.get_by_role("heading", level=1)).to_have_text(BOOKINGS)
