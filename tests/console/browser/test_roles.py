"""What the console shows and does in a browser for visitors whose tokens allow a part of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.console.browser.browsing import DESKTOP, Watch
from tests.console.test_roles import BANK, SHOP, Roled

Visit = Callable[..., Page]


@pytest.fixture(scope="module")
def roled(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Roled]:
    """A console that asks for tokens, over two tenants' topics."""
    with Roled(tmp_path_factory.mktemp("roled")) as made:
        yield made


@pytest.fixture
def visit(browser: Browser, roled: Roled) -> Iterator[Visit]:
    """Opens a page with a token of the given roles; refusals are expected there, and nothing else."""
    with closing(browser.new_context(viewport=DESKTOP, base_url=roled.console.address)) as context:
        watch = Watch(context, roled.console.address)
        watch.expected |= {401, 403}

        def open_page(path: str, **roles: list[str]) -> Page:
            page = context.new_page()
            page.goto(path)
            page.get_by_label("Paste the token").fill(roled.token(**roles))
            page.keyboard.press("Enter")
            return page

        yield open_page
        watch.check()


@pytest.mark.long
def test_refused_seek_and_messages_are_told_where_they_were_asked_for(visit: Visit, roled: Roled) -> None:
    """A monitor sees figures, and no bytes."""
    page = visit(f"#/subscriptions/{BANK.replace('/', '%2F')}/s", monitor=["*"])
    page.get_by_text("Seek: deliver messages again").click()
    page.get_by_role("button", name="Preview").click()
    expect(page.get_by_role("group").get_by_role("alert")).to_contain_text("PERMISSION_DENIED")
    page.goto(f"#/messages?topic={BANK}&level=read_uncommitted")
    expect(page.get_by_role("region", name="Messages").get_by_role("alert")).to_contain_text("PERMISSION_DENIED")
    expect(page.get_by_text("secret")).to_have_count(0)
    expect(page.get_by_label("Paste the token")).to_have_count(0)
    assert roled.log.subscription(BANK, "s").epoch == 0


@pytest.mark.long
def test_lists_show_what_the_token_covers(visit: Visit) -> None:
    page = visit("#/subscriptions", consume=["bank/*"])
    expect(page.get_by_role("main").get_by_text("1 subscription", exact=True)).to_be_visible()
    expect(page.get_by_role("main")).to_contain_text("bank/main/payments")
    page.goto(f"#/messages?topic={BANK}&level=read_uncommitted")
    expect(page.get_by_role("cell", name="secret")).to_be_visible()
    page.goto(f"#/messages?topic={SHOP}")
    expect(page.get_by_role("alert").filter(has_text="PERMISSION_DENIED")).to_be_visible()
