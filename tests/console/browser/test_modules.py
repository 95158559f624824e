"""The console's own modules, called in a real browser: figures as texts, children made like others, strips."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import Page

_DAY = 86_400_000


@pytest.fixture
def opened(page: Page) -> Page:
    page.goto("#/policies")
    page.get_by_role("heading").first.wait_for()
    return page


def _ask(page: Page, module: str, body: str, given: Any = None) -> Any:
    """Return what a function body gives that may use a module ``m`` and what is given."""
    path = "new URL(path, document.querySelector('script[type=module]').src)"
    script = f"async ([path, given]) => {{ const m = await import({path}); {body} }}"
    return page.evaluate(script, [f"{module}.js", given])


def test_figures_as_texts(opened: Page) -> None:
    cases: list[tuple[str, list[Any], str]] = [
        ("number", [12400], "12,400"),
        ("number", [None], "–"),
        ("compact", [9999], "9,999"),
        ("compact", [64200], "64.2K"),
        ("compact", [56000], "56.0K"),
        ("compact", [2147483648], "2.15B"),
        ("count", [1, "message"], "1 message"),
        ("count", [0, "message"], "0 messages"),
        ("bytes", [0], "0 B"),
        ("bytes", [1023], "1.0 KiB"),
        ("bytes", [1536], "1.5 KiB"),
        ("bytes", [123 * 2**20], "123 MiB"),
        ("rate", [0.04], "0/s"),
        ("rate", [12.34], "12.3/s"),
        ("rate", [None], "–"),
        ("duration", [252_000], "4 min 12 s"),
        ("duration", [3_600_000], "1 h"),
        ("duration", [3 * _DAY + 7_200_000 + 1], "3 d 2 h"),
        ("duration", [-5000], "0 s"),
        ("duration", [999.6], "1 s"),
        ("href", [["topics", "a/b ?#&%"], {"tab": "x y", "no": None}], "#/topics/a%2Fb%20%3F%23%26%25?tab=x+y"),
        ("time", [9e15], "9000000000000000"),
    ]
    told = _ask(opened, "format", "return given.map(([name, args]) => m[name](...args));", [list(c[:2]) for c in cases])
    assert told == [wanted for _, _, wanted in cases]


def test_children_made_like_others_keep_what_stays(opened: Page) -> None:
    body = """
        const at = m.h('div');
        document.body.append(at);
        const row = (key, ...rest) => m.h('p', { key }, m.h('input', { value: key }), ...rest);
        m.patch(at, row('a'), row('b'), row('c'));
        const [a, b, c] = at.children;
        b.firstChild.focus();
        b.firstChild.value = 'typed';
        m.patch(at, 'text', row('c'), null, row('b', ' more'), row('a'));
        const order = [...at.children].map((child) => [a, b, c].indexOf(child));
        const focus = document.activeElement === b.firstChild && b.firstChild.value;
        m.patch(at, row('a', 1), row('a', 2), m.h('i', { style: { width: '10%' } }));
        const twice = [...at.querySelectorAll('p')].map((p) => p.textContent);
        m.patch(at, row('a', 1), m.h('i', { style: { width: '10%' } }));
        const bar = at.querySelector('i');
        m.patch(at, row('a', 1), m.h('i', { style: { width: '20%' } }, '<b>'));
        const markup = at.querySelector('i').innerHTML;
        let pressed = 0;
        m.patch(at, m.h('button', { onclick: () => pressed += 1, hidden: true }));
        m.patch(at, m.h('button', { onclick: () => pressed += 10 }));
        const shown = !at.firstChild.hidden;
        at.firstChild.click();
        m.patch(at, m.h('button'));
        at.firstChild.click();
        at.remove();
        return { order, focus, twice, width: bar.style.width, markup, shown, pressed };"""
    assert _ask(opened, "dom", body) == {
        "order": [2, 1, 0],
        "focus": "typed",
        "twice": ["1", "2"],
        "width": "20%",
        "markup": "&lt;b&gt;",
        "shown": True,
        "pressed": 10,
    }
