"""What stands around each page: ways to go, keys, theme, sign-in, and what shows while the service is away."""

from __future__ import annotations

from contextlib import closing
from datetime import UTC, datetime, timedelta

import pytest
from playwright.sync_api import Page, expect

from tests.console.browser import browsing
from tests.console.browser.browsing import Watch
from tests.console.browser.conftest import Guarded, Shown
from tests.console.demo import console_over
from tests.log.test_kills import lasting_port

_POLL_MS = 2100
_FIGURES_MS = 13_000


@pytest.mark.long
def test_links_beside_text_are_underlined(page: Page) -> None:
    """Colour alone doesn't tell them to everybody: look at what waits, and at a hint in a sentence."""
    for address, text in (("#/blockers", "billing"), ("#/messages?topic=orders", "Who blocks them")):
        page.goto(address)
        link = page.locator("main").get_by_role("link", name=text).first
        expect(link).to_have_css("text-decoration-line", "underline")


def test_keys_lead_everywhere(page: Page) -> None:
    page.goto("")
    expect(page.get_by_role("heading", name="Overview")).to_be_visible()
    page.keyboard.press("g")
    page.keyboard.press("t")
    expect(page.get_by_role("heading", name="Topics", exact=True)).to_be_focused()
    expect(page).to_have_title("Topics · txnlog")
    page.keyboard.press("/")
    expect(page.get_by_role("searchbox", name="Search topics")).to_be_focused()
    page.keyboard.type("g?")  # no key leads away from a field
    page.keyboard.press("Escape")
    page.keyboard.press("?")
    keys = page.get_by_role("dialog", name="Keys")
    expect(keys).to_be_visible()
    page.keyboard.press("Escape")
    expect(keys).to_be_hidden()
    page.keyboard.press("g")
    page.keyboard.press("b")
    expect(page.get_by_role("heading", name="Who blocks whom")).to_be_focused()
    expect(page.get_by_role("link", name="Who blocks whom").first).to_have_attribute("aria-current", "page")


@pytest.mark.long
def test_back_and_reload_keep_the_page_and_what_was_chosen(page: Page) -> None:
    page.goto("#/topics")
    page.get_by_role("searchbox", name="Search topics").fill("ord")
    expect(page.get_by_role("status").filter(has_text="1 topic")).to_have_count(1)
    page.get_by_role("button", name="Messages").click()
    page.get_by_role("link", name="orders").click()
    expect(page.get_by_role("heading", name="orders")).to_be_focused()
    page.go_back()
    expect(page.get_by_role("searchbox", name="Search topics")).to_have_value("ord")
    expect(page.get_by_role("columnheader", name="Messages")).to_have_attribute("aria-sort", "descending")
    page.go_forward()
    page.reload()
    expect(page.get_by_role("heading", name="orders")).to_be_visible()


@pytest.mark.long
def test_addresses_that_lead_nowhere_say_so(page: Page, watch: Watch) -> None:
    watch.expected |= {400, 404}
    page.goto("#/nothing/here")
    expect(page.get_by_text("There is no such page.")).to_be_visible()
    expect(page.get_by_role("heading", name="No such page")).to_be_visible()
    page.goto("#/topics/%E0%A4%A")
    expect(page.get_by_text("There is no such page.")).to_be_visible()
    for path, said in [
        ("#/topics/gone", "TOPIC_NOT_FOUND"),
        ("#/policies?topic=nothing", "nothing"),
        ("#/policies?namespace=a/b/c", "a/b/c"),
        ("#/subscriptions/orders/nobody", "has no subscription 'nobody'"),
    ]:
        page.goto(path)
        expect(page.get_by_role("alert").filter(has_text=said)).to_be_visible()


@pytest.mark.long
def test_chosen_theme_is_kept(page: Page) -> None:
    page.emulate_media(color_scheme="light")
    page.goto("")
    colour = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(colour)
    page.get_by_label("Theme").select_option("Dark")
    dark = page.evaluate(colour)
    page.reload()
    expect(page.get_by_label("Theme")).to_have_value("dark")
    assert light != dark == page.evaluate(colour)


@pytest.mark.long
def test_pages_fit_narrow_screens(page: Page) -> None:
    for path, title, text in [
        ("", "Overview", "orders"),
        ("#/blockers", "Who blocks whom", "orders"),
        ("#/topics", "Topics", "orders"),
        ("#/topics/orders", "orders", "orders"),
        ("#/topics/orders/0", "orders / 0", "orders"),
        ("#/policies?topic=orders", "Policies", "hot_copies"),
    ]:
        page.set_viewport_size(browsing.PHONE)  # type: ignore[arg-type]
        page.goto(path)
        expect(page.get_by_role("heading", level=1)).to_have_text(title)
        expect(page.locator("main")).to_contain_text(text)
        for width in (320, browsing.PHONE["width"], 721, 1024):
            page.set_viewport_size({"width": width, "height": 740})
            assert browsing.overflow(page) == 0, (path, width)


@pytest.mark.long
def test_service_that_is_away_is_told_and_found_again(page: Page, shown: Shown, watch: Watch) -> None:
    page.clock.install()
    port = lasting_port()
    with console_over(shown.root, port) as console:
        address = console.address
        # Another console than the module's: requests to it are this test's own.
        watch.allow(address)
        page.goto(f"{address}#/topics")
        expect(page.get_by_role("link", name="orders")).to_be_visible()
    watch.absent = True
    page.clock.run_for(_POLL_MS)
    expect(page.get_by_text("No answer since")).to_be_visible()
    expect(page.get_by_role("link", name="orders")).to_be_visible()
    page.get_by_role("link", name="Policies").click()
    expect(page.get_by_text("This page couldn't be loaded.")).to_be_visible()
    page.clock.run_for(_POLL_MS)
    page.clock.pause_at(
        datetime.now(UTC) + timedelta(hours=1)
    )  # else the page may try again by itself before the click
    expect(page.get_by_text("No answer since")).to_be_visible()
    with console_over(shown.root, port):
        page.get_by_role("button", name="Try now").click()
        expect(page.get_by_text("No answer since")).to_be_hidden()


def test_token_is_asked_for_and_kept_in_its_tab(page: Page, guarded: Guarded, watch: Watch) -> None:
    watch.expected.add(401)
    page.goto(f"{guarded.address}#/topics")
    field = page.get_by_label("Paste the token")
    expect(field).to_be_focused()
    field.fill("not a token")
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("one word")
    field.fill("nonsense")
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("UNAUTHENTICATED")
    page.get_by_label("Paste the token").fill(f"Bearer {guarded.signer.token('alice', admin=['*'])}\n")
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("link", name="orders")).to_be_visible()
    expect(page.get_by_text("alice")).to_be_visible()
    page.reload()
    expect(page.get_by_role("link", name="orders")).to_be_visible()
    # Another tab knows nothing of it.
    with closing(page.context.new_page()) as other:
        other.goto(f"{guarded.address}#/topics")
        expect(other.get_by_label("Paste the token")).to_be_visible()
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_label("Paste the token")).to_be_visible()
    assert page.evaluate("sessionStorage.length") == 0


@pytest.mark.long
def test_watcher_sees_topics_without_their_columns(page: Page, guarded: Guarded, watch: Watch) -> None:
    watch.expected |= {401, 403}
    page.goto(f"{guarded.address}#/topics/orders")
    page.get_by_label("Paste the token").fill(guarded.signer.token("eve", monitor=["*"]))
    page.keyboard.press("Enter")
    expect(page.get_by_role("table", name="Partitions of orders")).to_be_visible()
    expect(page.get_by_text("Schema")).to_have_count(0)
    page.get_by_role("button", name="Sign out").click()
    page.get_by_label("Paste the token").fill(guarded.signer.token("nobody"))
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("PERMISSION_DENIED")
    page.keyboard.press("g")
    page.keyboard.press("t")
    expect(page.get_by_text("no topic that your token may see")).to_be_visible()


@pytest.mark.long
def test_token_that_ends_leads_to_sign_in_and_back(page: Page, guarded: Guarded, watch: Watch) -> None:
    watch.expected.add(401)
    page.clock.install()
    page.goto(f"{guarded.address}#/blockers")
    page.get_by_label("Paste the token").fill(guarded.signer.token("alice", admin=["*"]))
    page.keyboard.press("Enter")
    page.get_by_role("button", name="Abort…").first.click()
    # As if its time were over: the next poll brings one that isn't taken.
    page.evaluate("sessionStorage.setItem('txnlog.token', 'ended')")
    page.clock.run_for(_POLL_MS)
    expect(page.get_by_role("dialog")).to_have_count(0)
    expect(page.get_by_role("alert")).to_contain_text("UNAUTHENTICATED")
    page.get_by_label("Paste the token").fill(guarded.signer.token("bob", admin=["*"]))
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Who blocks whom")).to_be_visible()
    expect(page.get_by_role("button", name="Abort…").first).to_be_visible()


@pytest.mark.long
def test_tab_that_is_older_than_the_service_is_told(page: Page) -> None:
    """Let the service tell that it serves another page by now, as after an upgrade, then this one again."""
    page.goto("#/topics")
    expect(page.get_by_text("4 topics")).to_be_visible()
    note = page.get_by_text("The service was upgraded.")
    page.route(
        "**/api/**",
        lambda route: (
            (answer := route.fetch())
            and route.fulfill(response=answer, headers=answer.headers | {"x-txnlog-page": "0" * 16})
        ),
    )
    browsing.poll(page)
    expect(note).to_be_visible()
    expect(page.get_by_role("link", name="orders")).to_be_visible()
    page.unroute_all()
    page.get_by_role("button", name="Reload").click()
    expect(page.get_by_text("4 topics")).to_be_visible()
    expect(note).to_be_hidden()


@pytest.mark.long
def test_answers_that_are_not_the_consoles_are_told(page: Page, watch: Watch) -> None:
    """Let something else answer, as a proxy with a page to sign in at does, also where the page asks for little."""
    banner = page.locator(".banner .no-answer")
    page.clock.install()
    page.goto("#/messages?topic=orders&level=read_uncommitted")
    expect(page.get_by_role("row").nth(1)).to_be_visible()
    page.route("**/api/**", lambda route: route.fulfill(body="<html>sign in</html>"))
    page.clock.run_for(_FIGURES_MS)
    expect(banner).to_contain_text("isn’t the console’s")
    page.unroute_all()
    page.goto("#/topics")
    expect(page.get_by_text("4 topics")).to_be_visible()
    expect(banner).to_be_empty()
    page.route("**/api/**", lambda route: route.fulfill(body="[]"))
    browsing.poll(page)
    expect(banner).to_contain_text("isn’t the console’s")
    page.unroute_all()
    page.route("**/api/topics*", lambda route: route.fulfill(json={"now_ms": 1}))
    browsing.poll(page)
    expect(page.get_by_role("alert")).to_contain_text("can’t show what the service answered")
    expect(page.get_by_role("link", name="orders")).to_be_visible()
    watch.faults.clear()  # what it couldn't show is told to the browser, too
