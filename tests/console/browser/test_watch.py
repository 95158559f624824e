"""The tests' own watch over a browser: each thing that the console must not do is seen, and so fails its test."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from tests.console.browser.browsing import PHONE, Watch, overflow
from tests.log.reading import eventually
from txn_source.http.listener import Listener

pytestmark = pytest.mark.xdist_group("browser")

_PAGES = {
    "good": "<p>Nothing happens here.",
    "error": "<script>console.error('it broke')</script>",
    "exception": "<script>throw Error('it broke')</script>",
    "missing": "<img src=/nowhere.png>",
    "foreign": "<img src=http://example.com/x.png>",
    "wide": "<meta name=viewport content='width=device-width'><div style='width: 500px'>wide</div>",
}
_FAULTS = {
    "error": "error: it broke",
    "exception": "exception: it broke",
    "missing": "status of 404",
    "foreign": "foreign request: http://example.com/x.png",
    "policy/error": "CSP: script-src-elem refused inline",
}
_POLICY = "default-src 'none'"


@pytest.fixture(scope="module")
def faulty() -> Iterator[str]:
    """The address of a server of pages with one fault each; ``/policy/`` forbids scripts."""

    async def page(request: Request) -> Response:
        headers = {"Content-Security-Policy": _POLICY} if request.url.path.startswith("/policy/") else {}
        if request.path_params["name"] not in _PAGES:
            return Response(status_code=404)
        text = f"<!doctype html><link rel=icon href=data:,>{_PAGES[request.path_params['name']]}"
        return HTMLResponse(text, headers=headers)

    app = Starlette(routes=[Route("/{name}", page), Route("/policy/{name}", page)])
    with Listener(app, "127.0.0.1", 0) as listener:
        yield f"http://127.0.0.1:{listener.port}"


@pytest.mark.parametrize(
    ("path", "fault"),
    [
        each if each[0] in ("foreign", "policy/error") else pytest.param(*each, marks=pytest.mark.long)
        for each in _FAULTS.items()
    ],
)
@pytest.mark.long
def test_each_fault_of_a_page_is_seen(browser: Browser, faulty: str, path: str, fault: str) -> None:
    with contextlib.closing(browser.new_context()) as context:
        page = context.new_page()
        watch = Watch(context, faulty)
        page.goto(f"{faulty}/{path}")
        eventually(lambda: page.evaluate("true") and fault in str(watch.faults))  # the browser tells it by and by
        with pytest.raises(AssertionError):
            watch.check()


@pytest.mark.long
def test_page_without_faults_and_an_expected_error_pass(browser: Browser, faulty: str) -> None:
    with contextlib.closing(browser.new_context()) as context:
        watch = Watch(context, faulty)
        watch.expected.add(404)
        page = context.new_page()
        page.goto(f"{faulty}/good")
        page.goto(f"{faulty}/missing")
        watch.check()


@pytest.mark.long
def test_page_that_is_too_wide_for_a_phone_is_seen(browser: Browser, faulty: str) -> None:
    with contextlib.closing(browser.new_context(viewport=PHONE)) as context:
        page = context.new_page()
        page.goto(f"{faulty}/wide")
        assert overflow(page) > 100
        page.goto(f"{faulty}/good")
        assert overflow(page) == 0
