"""Subscriptions in the console: how far each is, and moving one after a look at what that will do."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from tests.console.browser.browsing import PHONE, Watch, overflow, poll
from tests.console.browser.conftest import Shown
from tests.console.demo import BOOKINGS, ORDERS

_SUMMARY = "Seek: deliver messages again, or skip some"


@pytest.mark.long
def test_list_shows_levels_backlogs_and_what_is_held_back(page: Page, shown: Shown) -> None:
    page.goto("#/subscriptions")
    expect(page.get_by_role("main").get_by_text("4 subscriptions")).to_be_visible()
    row = page.get_by_role("row").filter(has=page.get_by_role("link", name="billing"))
    of_orders = [part for txn in shown.log.transactions() for part in txn.partitions if part.topic == ORDERS]
    held_back = sum(part.held_back_messages for part in of_orders)
    expect(row).to_contain_text("● read_committed")
    expect(row.get_by_role("link", name=f"{held_back:,}", exact=True)).to_have_attribute("href", re.compile("blockers"))
    page.get_by_role("radio", name="read_uncommitted").check()
    expect(page.get_by_role("main").get_by_text("1 subscription", exact=True)).to_be_visible()
    expect(page.get_by_role("link", name="search-index")).to_be_visible()
    assert "level=read_uncommitted" in page.url


@pytest.mark.long
def test_subscription_stands_on_the_strips_of_its_partitions(page: Page, shown: Shown) -> None:
    with shown.log.subscribe(BOOKINGS, "mail", "failover", None, consumer_name="postman"):
        page.goto(f"#/subscriptions/{BOOKINGS}/mail")
        strips = page.get_by_role("img", name="Partition")
        expect(strips).to_have_count(3)
        expect(page.get_by_role("row").filter(has_text="postman")).to_contain_text("active")
    shown.changed()
    poll(page)
    expect(page.get_by_text("No consumer is connected.")).to_be_visible()


def test_seek_is_previewed_confirmed_by_name_and_done_by_keyboard(page: Page, shown: Shown) -> None:
    log = shown.log
    log.create_subscription(ORDERS, "rewound")
    page.goto(f"#/subscriptions/{ORDERS}/rewound")
    page.get_by_text(_SUMMARY).focus()
    for key in ("Enter", "Tab", "Tab", "Enter"):  # unfold, past the place, to the preview
        page.keyboard.press(key)
    visible = log.count(ORDERS)
    act = f"Seek: {visible:,} messages will be delivered again"
    expect(page.get_by_role("table", name="What the seek does")).to_contain_text("Delivered again")
    expect(page.get_by_role("button", name=act)).to_be_visible()
    dialog = page.get_by_role("dialog", name="Move subscription “rewound”?")
    for answer in ("Escape", "Enter"):  # the button that does nothing has the focus
        page.get_by_role("button", name=act).press("Enter")
        expect(dialog.get_by_role("button", name="Cancel")).to_be_focused()
        page.keyboard.press(answer)
        expect(dialog).to_be_hidden()
        expect(page.get_by_role("button", name=act)).to_be_focused()
    assert log.subscription(ORDERS, "rewound").epoch == 0
    for key in ("Enter", "Tab", "Enter"):
        page.keyboard.press(key)
    expect(page.get_by_role("main").get_by_text("It was moved, and is in epoch 1.")).to_be_visible()
    expect(page.get_by_role("button", name="Preview")).to_be_focused()
    found = log.subscription(ORDERS, "rewound")
    assert (found.epoch, sum(part.backlog for part in found.partitions)) == (1, visible)
    expect(page.get_by_text(f"{visible:,} messages", exact=True)).to_be_visible()


@pytest.mark.long
def test_seek_is_refused_if_somebody_was_faster(page: Page, shown: Shown, watch: Watch) -> None:
    log = shown.log
    log.create_subscription(ORDERS, "raced")
    page.goto(f"#/subscriptions/{ORDERS}/raced")
    page.get_by_text(_SUMMARY).click()
    page.get_by_role("button", name="Preview").click()
    page.get_by_role("button", name="Seek:").click()
    log.seek(ORDERS, "raced", "latest")
    watch.expected.add(409)
    page.get_by_role("dialog").get_by_role("button", name="Seek:").click()
    told = page.get_by_role("dialog").get_by_role("alert")
    expect(told).to_contain_text("has epoch 1, and the preview had 0")
    assert log.subscription(ORDERS, "raced").epoch == 1
    page.keyboard.press("Escape")
    expect(page.get_by_role("group").get_by_role("alert")).to_contain_text("has epoch 1, and the preview had 0")
    expect(page.get_by_role("button", name="Seek:")).to_have_count(0)
    page.get_by_role("button", name="Preview").click()
    expect(page.get_by_role("button", name="Seek:")).to_be_visible()
    log.seek(ORDERS, "raced", "latest")
    shown.changed()
    poll(page)  # the page hears of it before somebody presses the button
    expect(page.get_by_text("The subscription was moved meanwhile: it is in epoch 2.")).to_be_visible()
    expect(page.get_by_role("button", name="Seek:")).to_have_count(0)


@pytest.mark.long
def test_seek_by_time_and_by_position(page: Page, shown: Shown) -> None:
    log = shown.log
    log.create_subscription(ORDERS, "placed", initial_position="earliest")
    page.goto(f"#/subscriptions/{ORDERS}/placed")
    page.get_by_text(_SUMMARY).click()
    page.get_by_role("combobox", name="To").select_option("Time")
    page.get_by_role("button", name="Preview").click()
    expect(page.get_by_text("No time is given.")).to_be_visible()
    page.get_by_label("Time", exact=True).fill("2100-01-01T00:00:00")
    page.get_by_role("button", name="Preview").click()
    expect(page.get_by_role("button", name=f"Seek: {log.count(ORDERS):,} messages will be skipped")).to_be_visible()
    page.get_by_role("combobox", name="To").select_option("Position")
    expect(page.get_by_role("button", name="Seek:")).to_have_count(0)  # it was of another place
    page.get_by_label("Position", exact=True).fill("nowhere")
    page.get_by_role("button", name="Preview").click()
    expect(page.get_by_text("“nowhere” is no position.")).to_be_visible()
    first = log.stats(ORDERS).partitions[1].log_start
    page.get_by_label("Partition", exact=True).fill("1")
    page.get_by_label("Position", exact=True).fill(str(first))
    page.get_by_role("button", name="Preview").click()
    expect(
        page.get_by_role("main").get_by_text("No message will be delivered again, and none will be skipped.")
    ).to_be_visible()


@pytest.mark.long
def test_position_of_another_partition_is_refused_in_words(page: Page, shown: Shown, watch: Watch) -> None:
    page.goto(f"#/subscriptions/{ORDERS}/billing")
    page.get_by_text(_SUMMARY).click()
    page.get_by_role("combobox", name="To").select_option("Position")
    page.get_by_label("Partition", exact=True).fill("9")
    page.get_by_label("Position", exact=True).fill("1:0")
    watch.expected.add(400)
    page.get_by_role("button", name="Preview").click()
    expect(page.get_by_role("alert").filter(has_text="partition")).to_be_visible()


@pytest.mark.long
def test_pages_fit_a_phone(page: Page, shown: Shown) -> None:
    page.set_viewport_size(PHONE)
    page.goto("#/subscriptions")
    expect(page.get_by_role("cell").first).to_be_visible()
    assert overflow(page) == 0
    with shown.log.subscribe(ORDERS, "billing", consumer_name="a-consumer-with-a-name-that-does-not-end"):
        page.goto(f"#/subscriptions/{ORDERS}/billing")
        page.get_by_text(_SUMMARY).click()
        page.get_by_role("button", name="Preview").click()
        expect(page.get_by_role("button", name="Seek:")).to_be_visible()
        expect(page.get_by_role("row").filter(has_text="a-consumer-with")).to_be_visible()
        assert overflow(page) == 0
