"""Overview, the list of topics, and partitions as strips."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.console.browser.browsing import Watch
from tests.console.browser.conftest import Shown
from tests.console.demo import console_over
from txn_source import connect

_POLL_MS = 2100
_MANY = 150


@pytest.fixture(scope="module")
def many(shown: Shown) -> list[str]:
    """More topics than a screen has room for."""
    names = [f"many-{number:03}" for number in range(_MANY)]
    for name in names:
        shown.log.create_topic(name)
    return names


def test_overview_shows_what_waits(page: Page) -> None:
    page.goto("")
    expect(page.get_by_role("heading", name="Held back", exact=True)).to_be_visible()
    expect(page.get_by_text("2 open transactions, oldest")).to_be_visible()
    card = page.get_by_role("article").filter(has_text="shop-frontend")
    expect(card).to_contain_text("holds back")
    expect(card.get_by_role("link", name="billing")).to_be_visible()
    page.get_by_role("link", name="All topics").click()
    expect(page.get_by_role("heading", name="Topics", exact=True)).to_be_focused()


@pytest.mark.long
def test_empty_log_says_what_to_do(page: Page, watch: Watch, tmp_path: Path) -> None:
    connect(tmp_path / "empty").close()
    with console_over(tmp_path / "empty") as console:
        watch.allow(console.address)
        page.goto(console.address)
        expect(page.get_by_text("txnlog topics create")).to_be_visible()
        page.goto(f"{console.address}#/blockers")
        expect(page.get_by_text("No transaction is open.")).to_be_visible()


@pytest.mark.long
def test_list_has_only_the_rows_near_the_screen(page: Page, many: list[str]) -> None:
    page.goto("#/topics")
    table = page.get_by_role("table", name="Topics")
    expect(table).to_have_attribute("aria-rowcount", str(_MANY + 4 + 1))
    page.keyboard.press("End")
    last = page.get_by_role("row").filter(has=page.get_by_role("link", name="orders"))
    expect(last).to_have_attribute("aria-rowindex", str(_MANY + 4 + 1))
    assert page.locator("tbody:not(.gap) tr").count() < _MANY
    expect(page.locator(".awaited")).to_have_count(0)
    page.keyboard.press("/")
    page.keyboard.type("many-07")
    expect(table).to_have_attribute("aria-rowcount", "11")
    page.keyboard.type("nothing")
    expect(page.get_by_text("No topic matches “many-07nothing”.")).to_be_visible()


@pytest.mark.long
def test_rows_stay_where_they_are_under_the_pointer(page: Page, shown: Shown, many: list[str]) -> None:
    page.clock.install()
    page.goto("#/topics?sort=messages&descending=1&search=many-00")
    names = page.locator("tbody:not(.gap) th")
    expect(names).to_have_count(10)
    first, last = names.first, names.last
    before, below = str(first.text_content()), str(last.text_content())
    last.hover()
    with shown.log.producer(below) as producer:
        producer.send(b"one")
    page.clock.run_for(_POLL_MS)
    row = page.get_by_role("row").filter(has_text=below)
    expect(row.get_by_title("1 message", exact=True)).to_be_visible()
    expect(first).to_have_text(before)
    expect(page.get_by_text("Order kept")).to_be_visible()
    page.mouse.move(5, 5)
    page.clock.run_for(_POLL_MS)
    expect(first).to_have_text(below)
    expect(page.get_by_text("Order kept")).to_have_count(0)


@pytest.mark.long
def test_strips_tell_in_words_what_they_draw(page: Page) -> None:
    page.goto("#/topics/orders")
    strip = page.get_by_role("img", name=re.compile(r"^Partition 0: \d+ messages in 2 ledgers"))
    expect(strip).to_have_accessible_name(re.compile(r"1 open transaction; \d+ messages held back\.$"))
    expect(page.get_by_role("list", name="Legend")).to_contain_text("aborted transaction")
    page.get_by_role("radio", name="What is held back").check()
    expect(page.get_by_role("row").filter(has=page.get_by_role("link", name="3", exact=True))).to_contain_text(
        "nothing held back"
    )
    page.reload()
    expect(page.get_by_role("radio", name="What is held back")).to_be_checked()


@pytest.mark.long
def test_partition_names_its_bounds_and_who_holds_it_back(page: Page) -> None:
    page.goto("#/topics/orders/0")
    expect(page.get_by_role("figure").first).to_contain_text("last stable")
    expect(page.get_by_role("table", name="Ledgers of orders, partition 0")).to_contain_text("tiered")
    held = page.get_by_role("region", name="held back")
    expect(held).to_contain_text("shop-frontend")
    page.get_by_role("link", name="Next →").click()
    expect(page.get_by_role("heading", name="orders / 1")).to_be_focused()
    held.get_by_role("link", name="transaction").click()
    expect(page.get_by_role("heading", name="Who blocks whom")).to_be_focused()


@pytest.mark.long
def test_topic_that_is_deleted_meanwhile_is_told(page: Page, shown: Shown, watch: Watch) -> None:
    watch.expected.add(404)
    shown.log.create_topic("short-lived")
    page.clock.install()
    page.goto("#/topics/short-lived")
    expect(page.get_by_role("img", name="Partition 0: 0 messages")).to_be_visible()
    shown.log.delete_topic("short-lived")
    page.clock.run_for(_POLL_MS)
    expect(page.get_by_role("alert")).to_contain_text("TOPIC_NOT_FOUND")
    expect(page.get_by_role("heading", name="short-lived")).to_be_visible()
