"""Who blocks whom: what an open transaction holds back shows, and an operator ends it. Each test has its own topic."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest
from playwright.sync_api import Locator, Page, expect

from tests.console.browser.browsing import Watch
from tests.console.browser.conftest import Guarded, Shown
from txn_source import Transaction

_POLL_MS = 2100

Hanging = Callable[[str], Transaction]


@pytest.fixture
def hanging(shown: Shown) -> Iterator[Hanging]:
    """Open a transaction that holds back 5 messages of a new topic, 2 of them its own; its subscription waits."""
    log = shown.log
    opened = []

    def open_one(topic: str) -> Transaction:
        log.create_topic(topic, partitions=2)
        log.create_subscription(topic, f"reader-of-{topic}", initial_position="earliest")
        txn = log.begin_transaction(timeout=600)
        opened.append(txn)
        with log.producer(topic, name=f"writer-of-{topic}") as producer:
            producer.send_batch(_values(b"own", 2), txn=txn, partition=1)
            producer.flush()
            producer.send_batch(_values(b"other", 3), partition=1)
        return txn

    yield open_one
    for each in log.transactions():
        if each.id in [txn.id for txn in opened]:
            log.abort_transaction(each.id)


def _values(value: bytes, count: int) -> pa.Table:
    return pa.table({"key": pa.nulls(count, pa.binary()), "value": pa.array([value] * count, pa.binary())})


def _card(page: Page, txn: Transaction) -> Locator:
    return page.get_by_role("article", name=f"Transaction {txn.id}")


@pytest.mark.long
def test_card_tells_who_holds_back_what_and_who_waits(page: Page, hanging: Hanging) -> None:
    txn = hanging("told")
    page.goto("#/blockers")
    card = _card(page, txn)
    expect(card).to_contain_text("holds back 5 messages")
    expect(card).to_contain_text("writer-of-told")
    expect(card).to_contain_text("so 1 subscription waits")
    expect(card.get_by_role("link", name="told / 1")).to_be_visible()
    expect(card.get_by_role("img", name="2 of its own among 5 messages")).to_be_visible()
    card.get_by_role("button", name="1 partition as a strip").click()
    expect(card.get_by_role("img", name="told, partition 1: 5 messages in 1 ledger")).to_be_visible()
    card.get_by_role("link", name="reader-of-told").click()
    expect(page.get_by_role("heading", name="reader-of-told")).to_be_visible()


@pytest.mark.long
def test_abort_by_keyboard_alone(page: Page, shown: Shown, hanging: Hanging) -> None:
    txn = hanging("pressed")
    page.goto("#/blockers")
    _card(page, txn).get_by_role("button", name="Abort…").focus()
    page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog", name=f"Abort transaction {txn.id}?")
    expect(dialog).to_contain_text("writer-of-pressed")
    expect(dialog).to_contain_text("Lost: 2 messages of its own")
    expect(dialog).to_contain_text("reader-of-pressed")
    # Who only goes on pressing keys ends nothing.
    expect(dialog.get_by_role("button", name="Cancel")).to_be_focused()
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    expect(_card(page, txn).get_by_role("button", name="Abort…")).to_be_focused()
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    expect(dialog.get_by_role("button", name=f"Abort transaction {txn.id}")).to_be_focused()
    page.keyboard.press("Enter")
    expect(
        page.get_by_role("status").filter(has_text="is aborted: 3 messages released on 1 partition.")
    ).to_be_visible()
    expect(_card(page, txn)).to_have_count(0)
    assert txn.id not in [each.id for each in shown.log.transactions()]


@pytest.mark.long
def test_polls_leave_an_open_question_alone(page: Page, shown: Shown, hanging: Hanging) -> None:
    txn = hanging("asked")
    page.clock.install()
    page.goto("#/blockers")
    _card(page, txn).get_by_role("button", name="Abort…").click()
    txn.commit()
    with page.expect_response("**/api/blockers*"):
        page.clock.run_for(_POLL_MS)
    expect(_card(page, txn)).to_have_count(0)
    expect(page.get_by_role("dialog")).to_be_visible()


@pytest.mark.long
def test_question_ends_with_its_page(page: Page, hanging: Hanging) -> None:
    txn = hanging("left")
    page.goto("#/topics")
    page.goto("#/blockers")
    _card(page, txn).get_by_role("button", name="Abort…").click()
    expect(page.get_by_role("dialog")).to_be_visible()
    page.go_back()
    expect(page.get_by_role("heading", name="Topics", exact=True)).to_be_visible()
    expect(page.get_by_role("dialog")).to_have_count(0)


@pytest.mark.long
def test_commit_that_was_faster_is_told(page: Page, hanging: Hanging, watch: Watch) -> None:
    watch.expected.add(409)
    txn = hanging("faster")
    page.goto("#/blockers")
    _card(page, txn).get_by_role("button", name="Abort…").click()
    txn.commit()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name=f"Abort transaction {txn.id}").click()
    expect(dialog.get_by_role("alert")).to_contain_text("TXN_ENDED")
    expect(dialog.get_by_role("button", name=f"Abort transaction {txn.id}")).to_be_hidden()
    dialog.get_by_role("button", name="Close").click()
    expect(dialog).to_be_hidden()


@pytest.mark.long
def test_who_may_not_abort_is_told_so(page: Page, hanging: Hanging, guarded: Guarded, watch: Watch) -> None:
    watch.expected.add(401)
    txn = hanging("watched")
    page.goto(f"{guarded.address}#/blockers")
    page.get_by_label("Paste the token").fill(guarded.signer.token("eve", monitor=["*"]))
    page.keyboard.press("Enter")
    expect(_card(page, txn)).to_contain_text("To abort it takes the role admin")
    expect(page.get_by_role("button", name="Abort…")).to_have_count(0)


@pytest.mark.long
def test_overview_leads_there(page: Page) -> None:
    page.goto("")
    page.get_by_role("link", name="among who blocks whom").first.click()
    expect(page.get_by_role("heading", name="Who blocks whom")).to_be_focused()
    expect(page.get_by_role("button", name="Hide the strips")).to_have_count(1)


@pytest.mark.long
def test_transaction_that_has_ended_is_told(page: Page) -> None:
    page.goto("#/blockers?txn=(0%2C1)")
    expect(page.get_by_role("status").filter(has_text="Transaction (0,1) is not open any more")).to_be_visible()
