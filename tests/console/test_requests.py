"""Whose requests the console answers, and with which headers: other sites' pages get nothing, and change nothing."""

from __future__ import annotations

import gzip
import json
import re
import socket
import sqlite3
from pathlib import Path

import pytest

from tests.console.asked import CHANGING, Asked
from tests.console.demo import fill
from tests.selection import for_each
from txn_source.console import app, static_files
from txn_source.console.app import CHANGES, HEADERS, LOOKS
from txn_source.http import listener
from txn_source.metadata.service import ports

pytestmark = pytest.mark.xdist_group("console_requests")

QUERY = "topic=orders&name=orders&partition=0"


def rows_of(file: Path) -> dict[str, list[tuple[object, ...]]]:
    """Return all rows of a database."""
    database = sqlite3.connect(file)
    try:
        tables = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        return {name: sorted(database.execute(f"SELECT * FROM {name}").fetchall(), key=repr) for name in tables}
    finally:
        database.close()


def test_nothing_changes_by_get(asked: Asked) -> None:
    """Ask for everything by GET, what changes something too: no row of the database is another one then."""
    fill(asked.log, messages=40)
    before = rows_of(asked.root / "metadata.db")
    for path in (*LOOKS, *CHANGES):
        for query in (QUERY, QUERY.replace("name=orders", "name=billing"), f"{QUERY}&full=1&position=1:0"):
            asked.console.snapshots.forget()
            answer = asked.ask("GET", f"/api/{path}?{query}")
            assert answer.status < 500, (path, answer)
            if path in CHANGES:
                assert answer.status == 404
    for path in CHANGES:
        for method in ("HEAD", "PUT", "DELETE", "PATCH", "OPTIONS"):
            assert asked.ask(method, f"/api/{path}", b"{}", CHANGING).status in (404, 405)
    assert rows_of(asked.root / "metadata.db") == before


@for_each(
    ("headers", "status"),
    [
        ({}, 415),
        ({"Content-Type": "application/json"}, 415),
        ({"X-Txnlog-Console": "1"}, 415),
        ({"X-Txnlog-Console": "1", "Content-Type": "text/plain"}, 415),
        ({"X-Txnlog-Console": "1", "Content-Type": "application/x-www-form-urlencoded"}, 415),
        ({**CHANGING, "Origin": "http://evil.example"}, 403),
        ({**CHANGING, "Origin": "null"}, 403),
        ({**CHANGING, "Origin": "http://127.0.0.1:1"}, 403),
        ({**CHANGING, "Sec-Fetch-Site": "cross-site"}, 403),
        ({**CHANGING, "Sec-Fetch-Site": "same-site"}, 403),
        ({**CHANGING, "Sec-Fetch-Site": "same-origin"}, 200),
    ],
)
def test_only_the_own_page_changes_something(shared: Asked, headers: dict[str, str], status: int) -> None:
    """Abort a transaction as pages of other sites could ask for it, and as the own one does."""
    txn = shared.log.begin_transaction()
    with shared.log.producer("shared") as producer:
        producer.send(b"m", txn=txn)
    body = json.dumps({"txn": str(txn.id)}).encode()
    assert shared.ask("POST", "/api/transactions/abort", body, headers).status == status
    assert str(shared.log.transaction(txn.id).state) == ("aborted" if status == 200 else "open")


def test_an_origin_that_is_the_host_may(shared: Asked) -> None:
    """Send the origin that a browser sends for the page itself; a transaction that isn't there is another matter."""
    own = f"http://127.0.0.1:{shared.console.listener.port}"
    assert shared.post("transactions/abort", {"txn": "(0,9999)"}, Origin=own).code == "TXN_NOT_FOUND"


@pytest.mark.parametrize("path", ["/", "/api/about", "/api/overview", "/js/app.js", "/nothing"])
@pytest.mark.parametrize("host", ["evil.example", "evil.example:6651", "localhost.evil.example", "", "a, b"])
def test_other_names_lead_nowhere(shared: Asked, path: str, host: str) -> None:
    """Ask under names that somebody else's DNS may have led here by: nothing but an error comes."""
    answer = shared.ask("GET", path, headers={"Host": host})
    assert answer.status == 421
    assert b"log_id" not in answer.body


@for_each(
    "host", ["127.0.0.1", "127.0.0.1:1", "localhost:6651", "LOCALHOST.", "[::1]:6651", "10.0.0.1", socket.gethostname()]
)
def test_addresses_and_own_names_do(shared: Asked, host: str) -> None:
    """Ask under an address, which nobody can give a name's owner, and under names of this machine."""
    assert shared.ask("GET", "/api/about", headers={"Host": host}).status == 200


def test_a_name_that_was_given_does(tmp_path: Path) -> None:
    """Name the console as a proxy knows it."""
    with Asked(tmp_path / "log", names=["Console.Example"]) as asked:
        assert asked.ask("GET", "/api/about", headers={"Host": "console.example:443"}).status == 200
        assert asked.ask("GET", "/api/about", headers={"Host": "other.example"}).status == 421


def test_each_answer_has_its_headers(shared: Asked) -> None:
    """Look at answers of all kinds: the policy of content among the headers, and nothing kept of the API."""
    for path in ("/", "/nothing", "/api/about", "/api/nothing", "/api/topic?name=nothing", "/api/topics?limit=x"):
        answer = shared.ask("GET", path)
        for name, value in HEADERS.items():
            assert answer.headers[name.lower()] == value, path
        if "/api/" in path:
            assert answer.headers["cache-control"] == "no-store"
        assert "server" not in answer.headers
    refused = shared.ask("POST", "/api/transactions/abort", b"{}")
    assert refused.headers["content-security-policy"] == HEADERS["Content-Security-Policy"]


@for_each(
    "path",
    [
        "/../app.py",
        "/..%2fapp.py",
        "/%2e%2e/app.py",
        "/js/../../app.py",
        "/js/..%2f..%2fapp.py",
        "//etc/passwd",
        "/%2fetc/passwd",
        "/js",
        "/js/",
        "/.",
        "/js/app.js%00.html",
        "/js\\app.js",
        "/index.html/",
        "/JS/APP.JS",
        "/" + "a" * 10_000,
        "/%ff%fe",
    ],
)
def test_only_files_of_the_page_are_served(shared: Asked, path: str) -> None:
    """Ask for files above, beside and below the page's."""
    assert shared.ask("GET", path).status in (400, 404)


def test_a_file_that_has_not_changed_is_not_sent_again(shared: Asked) -> None:
    """Ask for the page again with its tag, and with another one's."""
    first = shared.ask("GET", "/")
    assert (first.status, first.headers["cache-control"]) == (200, "no-cache")
    assert first.headers["content-type"] == "text/html; charset=utf-8"
    assert shared.ask("GET", "/index.html", headers={"If-None-Match": first.headers["etag"]})[:2] == (304, b"")
    assert shared.ask("GET", "/", headers={"If-None-Match": '"another"'})[:2] == (200, first.body)


def test_the_page_names_files_that_may_be_kept_for_ever(shared: Asked, tmp_path: Path) -> None:
    """Ask for what the page names: it may be kept, since another content has another address; old ones are gone."""
    index = shared.ask("GET", "/").body.decode()
    named = [name for name in re.findall(r'(?:href|src)="([^"#]*)"', index) if not name.startswith("data:")]
    edition = shared.ask("GET", "/api/about").headers["x-txnlog-page"]
    assert len(named) == len(set(named)) == 6
    for name in named:
        assert name.startswith(f"page-{edition}/")
        answer = shared.ask("GET", f"/{name}")
        assert (answer.status, answer.headers["cache-control"]) == (200, "public, max-age=31536000, immutable")
        assert shared.ask("GET", "/" + name.replace(edition, "0" * 16)).status == 404
        assert shared.ask("GET", "/" + name.partition("/")[2]).headers["cache-control"] == "no-cache"
    (tmp_path / "index.html").write_text("a")
    before = static_files.StaticFiles(tmp_path).edition
    (tmp_path / "index.html").write_text("b")
    assert before != static_files.StaticFiles(tmp_path).edition


@for_each(
    ("takes", "is_packed"),
    [("gzip, deflate, br", True), ("GZIP;q=0.5", True), ("gzip; q=0.000", False), ("br", False), ("", False)],
)
def test_answers_are_compressed_for_who_takes_it(shared: Asked, takes: str, is_packed: bool) -> None:
    """Ask for files and for an answer with much text: the same comes, smaller, if it is taken so."""
    for path in ("/", "/js/app.js", "/api/policies?topic=shared"):
        plain, answer = (shared.ask("GET", path, headers=h) for h in ({}, {"Accept-Encoding": takes}))
        assert plain.headers["vary"] == answer.headers["vary"] == "Accept-Encoding"
        assert ("content-encoding" in answer.headers) == is_packed
        found = gzip.decompress(answer.body) if is_packed else answer.body
        assert re.sub(rb'"now_ms":\d+', b"", found) == re.sub(rb'"now_ms":\d+', b"", plain.body)
        assert len(answer.body) < len(plain.body) or not is_packed
    assert "content-encoding" not in shared.ask("GET", "/api/about", headers={"Accept-Encoding": takes}).headers


def test_no_file_names_another_host() -> None:
    """Look for addresses in the page's files: only names of XML are there, which nobody loads."""
    files = [path for path in static_files.STATIC.rglob("*") if path.is_file()]
    assert files
    for path in files:
        assert path.suffix in static_files.TYPES, path
        found = re.findall(r"(?:https?:)?//[\w.-]+\.\w+[\w./-]*", path.read_text(encoding="utf-8"))
        assert set(found) <= {"http://www.w3.org/2000/svg"}, path


@for_each(
    "query",
    [
        "limit=0",
        "limit=501",
        "limit=-1",
        "limit=1e9",
        "limit=",
        "limit=%D9%A1",
        "offset=-1",
        "offset=99999999999999999999",
        "sort=nothing",
        "search=" + "a" * 201,
    ],
)
def test_lists_refuse_what_can_not_be(shared: Asked, query: str) -> None:
    """Ask for pages that can't be."""
    answer = shared.ask("GET", f"/api/topics?{query}")
    assert (answer.status, answer.code) == (400, "INVALID_ARGUMENT")


@for_each(
    "body", [b"", b"[]", b"nothing", b"{}", b'{"txn": 1}', b'{"txn": "x"}', b'{"txn": "(0,0)", "a": 1}', b"[" * 100_000]
)
def test_bodies_refuse_what_can_not_be(shared: Asked, body: bytes) -> None:
    """Send what is no request."""
    answer = shared.ask("POST", "/api/transactions/abort", body, CHANGING)
    assert (answer.status, answer.code) == (400, "INVALID_ARGUMENT")


def test_a_huge_body_is_refused(shared: Asked) -> None:
    """Send more than a request can need."""
    assert shared.ask("POST", "/api/transactions/abort", b" " * (1 << 20) + b"{}", CHANGING).status == 413


def test_names_are_compared_as_they_are(asked: Asked) -> None:
    """Ask for topics by odd names: what can't be a name is refused, what isn't there isn't found."""
    for name in ("..", "a/b", "%2F", "ü", "\x00", "a" * 300, "persistent://a/b/../c"):
        assert asked.get("topic", name=name).status == 400, name
    assert asked.get("topic", name="persistent://a/b/c").status == 404
    asked.log.create_topic("persistent://a/b/x.:=-y")
    assert asked.get("topic", name="persistent://a/b/x.:=-y").json["name"] == "persistent://a/b/x.:=-y"


@pytest.mark.parametrize("answered_before", [False, True])
def test_who_begins_and_never_ends_is_sent_away(
    shared: Asked, monkeypatch: pytest.MonkeyPatch, answered_before: bool
) -> None:
    """Send a part of a request and wait: the connection is closed, and doesn't keep its file for ever."""
    if not answered_before:
        monkeypatch.setattr(listener, "FIRST_REQUEST_S", 0.1)
    with socket.create_connection(("127.0.0.1", shared.console.listener.port), timeout=60) as connection:
        if answered_before:
            connection.sendall(b"GET /nothing HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert connection.recv(65536)
        monkeypatch.setattr(listener, "FIRST_REQUEST_S", 0.1)
        connection.sendall(b"GET /api/about HTTP/1.1\r\nHost: localhost\r\n")
        while connection.recv(65536):
            pass


def test_a_body_that_does_not_come_is_not_waited_for(shared: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    """Promise ten bytes and send one: an answer comes nevertheless."""
    monkeypatch.setattr(app, "BODY_S", 0.1)
    head = ["POST /api/transactions/abort HTTP/1.1", "Host: localhost", "Content-Length: 10"]
    head += [f"{name}: {value}" for name, value in CHANGING.items()]
    with socket.create_connection(("127.0.0.1", shared.console.listener.port), timeout=60) as connection:
        connection.sendall("\r\n".join([*head, "", "{"]).encode())
        assert connection.recv(65536).startswith(b"HTTP/1.1 400")


def sent(asked: Asked, data: bytes) -> bytes:
    """Return all that comes back until the console ends the connection."""
    found = b""
    with socket.create_connection(("127.0.0.1", asked.console.listener.port), timeout=60) as connection:
        connection.sendall(data)
        while part := connection.recv(65536):
            found += part
    return found


def test_a_request_with_two_lengths_ends_its_connection(shared: Asked) -> None:
    """Send a request whose end a proxy may see elsewhere: what follows it isn't taken for another request."""
    head = "POST /api/transactions/abort HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\nTransfer-Encoding: chunked"
    behind = "GET /api/about HTTP/1.1\r\nHost: localhost\r\n\r\n"
    found = sent(shared, f"{head}\r\n\r\n0\r\n\r\n{behind}".encode())
    assert found.startswith(b"HTTP/1.1 400")
    assert found.count(b"HTTP/1.1 ") == 1


def test_a_request_without_a_host_is_told_so(shared: Asked) -> None:
    """Ask as HTTP/1.0 may."""
    assert b"requests that name no host" in sent(shared, b"GET /api/about HTTP/1.0\r\n\r\n")


@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="only Linux ends such connections")
def test_who_never_reads_is_sent_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ask for more than fits into a connection, and read nothing: it is ended, and doesn't keep its place."""
    monkeypatch.setattr(ports, "UNREAD_S", 0.2)
    with Asked(tmp_path / "log") as asked, socket.socket() as connection:
        connection.settimeout(120)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect(("127.0.0.1", asked.console.listener.port))
        with pytest.raises(ConnectionError):
            connection.sendall(b"GET /js/app.js HTTP/1.1\r\nHost: localhost\r\n\r\n" * 200_000)
