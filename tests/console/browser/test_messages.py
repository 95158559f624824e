"""Messages in the console: what each level sees, everything of one message, strange ones as text, a search by key."""

from __future__ import annotations

import re
from contextlib import closing

import pytest
from playwright.sync_api import Browser, Locator, Page, Route, expect

from tests.console.browser.browsing import PHONE, Watch, overflow
from tests.console.browser.conftest import Shown
from tests.console.demo import BOOKINGS, ORDERS

STRANGE = "strange"
_HTML = "<img src=x onerror=\"console.error('ran')\"><script>console.error('ran')</script>"
_TURNED = "abc\u202egpj.exe"


@pytest.fixture(scope="module", autouse=True)
def _strange_messages(shown: Shown) -> None:
    """A topic of what nobody should send, but somebody does."""
    shown.log.create_topic(STRANGE)
    with shown.log.producer(STRANGE, name=_HTML) as producer:
        producer.send(_HTML, key="html", properties={_HTML: _HTML})
        producer.send(_TURNED, key="turned")
        producer.send("line\nline\x00end", key="control")
        producer.send(b"\xff\x00\xfe", key=b"\xff\x00")
        producer.send(None, key="nothing")
        producer.send("", key="empty")
        producer.send("ä" * (1 << 19), key="long" * 100)
        producer.flush()


def rows(page: Page) -> Locator:
    """The messages that are shown."""
    return page.get_by_role("table", name="Messages of").get_by_role("row").filter(has=page.get_by_role("rowheader"))


def count(page: Page, text: str) -> Locator:
    return page.get_by_role("main").get_by_text(text)


@pytest.mark.long
def test_each_level_shows_what_its_readers_see(page: Page, shown: Shown) -> None:
    page.goto("#/messages")
    page.get_by_role("list", name="Topics").get_by_role("link", name=BOOKINGS).click()
    expect(page.get_by_text("1 message behind open transactions is not shown at this level.")).to_be_visible()
    expect(rows(page)).to_have_count(1)
    expect(rows(page)).to_contain_text("Zürich ✈")
    expect(page.get_by_role("columnheader", name="Status")).to_have_count(0)
    page.get_by_role("radio", name="read_uncommitted").check()
    expect(rows(page)).to_have_count(2)
    expect(page.get_by_text("behind open transactions")).to_have_count(0)
    expect(rows(page).filter(has_text="booked")).to_contain_text("… open")
    expect(rows(page).filter(has_text="Zürich ✈")).to_contain_text("plain")
    assert "level=read_uncommitted" in page.url
    page.goto(f"#/topics/{ORDERS}?tab=messages&level=read_uncommitted&from=earliest")
    expect(rows(page)).to_have_count(50)
    expect(rows(page).filter(has_text="✕ aborted").first).to_contain_text("aborted")
    expect(rows(page).filter(has_text="✓ committed").first).to_contain_text("in a transaction")


@pytest.mark.long
def test_message_unfolds_by_keyboard_to_all_that_is_known(page: Page, shown: Shown) -> None:
    page.goto(f"#/messages?topic={BOOKINGS}&level=read_uncommitted")
    button = rows(page).filter(has_text="booked").get_by_role("button")
    expect(button).to_have_attribute("aria-expanded", "false")
    button.focus()
    page.keyboard.press("Enter")
    expect(button).to_have_attribute("aria-expanded", "true")
    expect(button).to_be_focused()
    details = page.get_by_role("cell").filter(has_text="Properties")
    expect(details).to_contain_text("sourcedesk")
    expect(details).to_contain_text("<b>booking</b>")
    [txn] = [txn for txn in shown.log.transactions() if any(part.topic == BOOKINGS for part in txn.partitions)]
    expect(details.get_by_role("link", name=str(txn.id))).to_have_attribute("href", re.compile("^#/blockers"))
    page.keyboard.press("Enter")
    expect(details).to_have_count(0)


@pytest.mark.long
def test_strange_messages_are_text_and_nothing_else(page: Page, shown: Shown) -> None:
    page.goto(f"#/messages?topic={STRANGE}&from=earliest")
    expect(rows(page)).to_have_count(7)
    expect(rows(page).nth(0)).to_contain_text(_HTML)
    expect(rows(page).nth(1)).to_contain_text("abc⟨U+202E⟩gpj.exe")
    expect(rows(page).nth(2)).to_contain_text("line ↵ line␀end")
    expect(rows(page).nth(3).get_by_role("cell")).to_contain_text(["0xff00", "0xff00fe"])
    expect(rows(page).nth(4)).to_contain_text("null")
    expect(rows(page).nth(5)).to_contain_text("empty")
    for number in range(6):
        rows(page).nth(number).get_by_role("button").click()
    expect(page.locator("tr.unfolded").first).to_contain_text(f"Properties{_HTML}{_HTML}")
    expect(page.locator("main img, main script")).to_have_count(0)


@pytest.mark.long
def test_long_value_is_shortened_and_shown_whole_when_asked(page: Page, shown: Shown) -> None:
    page.set_viewport_size(PHONE)
    page.goto(f"#/messages?topic={STRANGE}")
    rows(page).first.get_by_role("button").click()
    value = page.locator("tr.unfolded pre").last
    expect(value).to_have_text("ä" * 1000)
    assert overflow(page) == 0
    page.get_by_role("button", name="Show the whole message (1.0 MiB)").click()
    expect(page.get_by_text("It is shortened here.")).to_have_count(0)
    assert value.evaluate("element => element.textContent.length") == 1 << 19
    assert overflow(page) == 0


@pytest.mark.long
def test_search_by_key_finds_texts_and_bytes(page: Page, shown: Shown) -> None:
    page.goto(f"#/messages?topic={STRANGE}")
    expect(rows(page)).to_have_count(7)
    page.keyboard.press("/")
    page.keyboard.type("turned")
    page.keyboard.press("Enter")
    expect(count(page, "1 message with this key, 7 of 7 searched")).to_be_visible()
    expect(rows(page)).to_have_count(1)
    page.get_by_role("searchbox").fill("0xff00")
    page.keyboard.press("Enter")
    expect(rows(page)).to_contain_text(["0xff00fe"])
    page.get_by_role("searchbox").fill("turne")
    page.keyboard.press("Enter")
    expect(page.get_by_text("No message has this key.")).to_be_visible()
    page.reload()
    expect(page.get_by_text("No message has this key.")).to_be_visible()


@pytest.mark.long
def test_search_shows_how_far_it_is_and_can_be_stopped_and_go_on(page: Page, shown: Shown) -> None:
    held: list[Route] = []

    def first_a_part(route: Route) -> None:
        """Let the first part of a search find nothing, and the second one take for ever."""
        if held:
            return
        held.append(route)
        part = {
            "rows": [],
            "next": None,
            "order": "oldest_first",
            "searched_messages": 3,
            "to_search": 7,
            "done": False,
        }
        route.fulfill(json=part)

    page.route(re.compile("/api/messages"), first_a_part)
    page.goto(f"#/messages?topic={STRANGE}&key=turned")
    expect(count(page, "0 messages with this key, 3 of 7 searched")).to_be_visible()
    bar = page.get_by_role("progressbar", name="How far the search is")
    assert (bar.get_attribute("value"), bar.get_attribute("max")) == ("3", "7")
    page.get_by_role("button", name="Stop").click()
    expect(bar).to_have_count(0)
    page.unroute_all()
    page.get_by_role("button", name="Search on").click()
    expect(rows(page)).to_have_count(1)
    expect(page.get_by_role("button", name="Search on")).to_have_count(0)


@pytest.mark.long
def test_pages_go_on_where_they_ended_while_messages_come(page: Page, shown: Shown) -> None:
    log, topic = shown.log, "growing"
    log.create_topic(topic, partitions=2)
    with log.producer(topic) as producer:
        for number in range(60):
            producer.send(f"n{number}", partition=number % 2)
    page.goto(f"#/messages?topic={topic}&from=earliest")
    expect(rows(page)).to_have_count(50)
    with log.producer(topic) as producer:
        producer.send("n60", partition=0)
    page.get_by_role("button", name="More messages").click()
    expect(rows(page)).to_have_count(61)
    with log.producer(topic) as producer:
        producer.send("n61", partition=1)
    page.get_by_role("button", name="Look for newer messages").click()
    expect(rows(page)).to_have_count(62)
    found = [text.split()[-1] for text in rows(page).all_inner_texts()]
    assert sorted(found) == sorted(f"n{number}" for number in range(62))
    page.get_by_role("combobox", name="From").select_option("Latest")
    page.get_by_role("button", name="Show").click()
    expect(count(page, "50 messages, the newest first")).to_be_visible()
    page.get_by_role("button", name="Older messages").click()
    expect(rows(page)).to_have_count(62)
    expect(page.get_by_role("button", name="Older messages")).to_have_count(0)


@pytest.mark.long
def test_topic_that_is_deleted_while_it_is_looked_at_says_so(page: Page, shown: Shown, watch: Watch) -> None:
    log = shown.log
    log.create_topic("doomed")
    with log.producer("doomed") as producer:
        producer.send("x" * 3000)
    page.goto("#/messages?topic=doomed&from=earliest")
    rows(page).first.get_by_role("button").click()
    log.delete_topic("doomed")
    watch.expected.add(404)
    page.get_by_role("button", name="Show the whole message").click()
    expect(page.get_by_role("alert").filter(has_text="doomed")).to_be_visible()
    page.get_by_role("button", name="Look for newer messages").click()
    expect(page.get_by_role("alert").filter(has_text="doomed")).to_have_count(2)
    expect(rows(page)).to_have_count(1)  # what was there can still be read


@pytest.mark.long
def test_what_can_not_be_asked_for_is_told_in_words(page: Page, shown: Shown, watch: Watch) -> None:
    watch.expected |= {400, 404}
    alert = page.get_by_role("alert").filter(has_text=re.compile("."))
    page.goto(f"#/messages?topic={ORDERS}&partition=99")
    expect(alert).to_contain_text("It has 4, numbered from 0.")
    page.get_by_role("textbox", name="Partition").fill("one")
    page.get_by_role("button", name="Show").click()
    expect(alert).to_contain_text("“one” is no partition.")
    page.get_by_role("textbox", name="Partition").fill("")
    page.get_by_role("combobox", name="From").select_option("Position")
    page.get_by_role("textbox", name="Position").fill("1:0")
    page.get_by_role("button", name="Show").click()
    expect(alert).to_contain_text("A position is one of a partition, and none is named.")
    page.goto(f"#/messages?topic={ORDERS}&partition=0&from=999999:0")
    expect(page.get_by_text("It is beyond the end, or a position of another partition.")).to_be_visible()
    page.goto(f"#/messages?topic={ORDERS}&from=@4102444800000")
    expect(page.get_by_text("No message was published then or later.")).to_be_visible()
    page.goto("#/messages?topic=nothing")
    expect(alert).to_contain_text("nothing")


@pytest.mark.parametrize(
    ("typed", "means"),
    [
        ("2026-03-29T02:30:00", "2026-03-29T01:30:00.000Z"),  # clocks leave this hour out
        ("2026-10-25T02:30:00", "2026-10-25T00:30:00.000Z"),  # and have this one twice: the first
    ],
)
def test_time_is_taken_in_the_readers_zone(zoned: Page, typed: str, means: str) -> None:
    """The zone is Berlin's, which moves its clocks."""
    zoned.get_by_label("Time", exact=True).fill(typed)
    utc = means[:19].replace("T", " ")
    expect(zoned.get_by_text(f"= {utc} UTC")).to_be_visible()
    zoned.get_by_role("combobox", name="Time zone").select_option("UTC")
    expect(zoned.get_by_label("Time", exact=True)).to_have_value(re.compile(f"^{means[:16]}"))
    zoned.get_by_role("combobox", name="Time zone").select_option("Europe/Berlin (here)")
    expect(zoned.get_by_text(f"= {utc} UTC")).to_be_visible()


@pytest.fixture(scope="module")
def berlin(browser: Browser, shown: Shown) -> Page:
    """A page in another zone, with a time to be typed; tests share it."""
    with closing(browser.new_context(timezone_id="Europe/Berlin", base_url=shown.address)) as context:
        page = context.new_page()
        page.goto(f"#/messages?topic={ORDERS}")
        page.get_by_role("combobox", name="From").select_option("Time")
        yield page


@pytest.fixture
def zoned(berlin: Page) -> Page:
    """The same, for the reader's zone."""
    berlin.get_by_role("combobox", name="Time zone").select_option("Europe/Berlin (here)")
    return berlin
