"""Docstrings and signatures as Markdown."""

from __future__ import annotations

import inspect
import re
from typing import Any

_SECTION = re.compile(r"^(Args|Raises|Returns|Yields):$", re.MULTILINE)
_TITLES = {"Args": "Arguments", "Raises": "Raises", "Returns": "Returns", "Yields": "Yields"}
_ITEM = re.compile(r"^(\*{0,2}\w+): ", re.MULTILINE)


def signature(name: str, function: Any) -> str:
    """Return a function's signature as it is called, a line for each argument if there are many."""
    try:
        found = inspect.signature(function)
    except (TypeError, ValueError):
        return f"{name}(...)"
    arguments = [str(p).replace("'", "") for p in found.parameters.values() if p.name not in ("self", "cls")]
    kinds = [p.kind for p in found.parameters.values() if p.name not in ("self", "cls")]
    if inspect.Parameter.KEYWORD_ONLY in kinds and inspect.Parameter.VAR_POSITIONAL not in kinds:
        arguments.insert(kinds.index(inspect.Parameter.KEYWORD_ONLY), "*")
    returns = (
        "" if found.return_annotation is inspect.Signature.empty else f" -> {found.return_annotation}".replace("'", "")
    )
    line = f"{name}({', '.join(arguments)}){returns}"
    if len(line) <= 90:
        return line
    return f"{name}(\n" + "".join(f"    {argument},\n" for argument in arguments) + f"){returns}"


def as_markdown(doc: str | None) -> str:
    """Return a docstring with its sections as lists."""
    text = inspect.cleandoc(doc or "").replace("``", "`")
    parts = _SECTION.split(text)
    found = [parts[0].strip()]
    for title, body in zip(parts[1::2], parts[2::2], strict=True):
        body, rest = _section(body)
        if title in ("Returns", "Yields"):
            found.append(f"**{_TITLES[title]}.** {' '.join(body.split())}")
        else:
            body = re.sub(r"\n(?=  )\s+", " ", body)
            found.append(
                f"**{_TITLES[title]}**\n\n" + "\n".join(f"- {_ITEM.sub(_named, line)}" for line in body.splitlines())
            )
        found.append(rest)
    return "\n\n".join(part for part in found if part)


def _named(item: re.Match[str]) -> str:
    return f"`{item[1]}`: "


def _section(text: str) -> tuple[str, str]:
    """Return the indented lines at a section's start, without their indent, and what comes behind them."""
    lines = text.strip("\n").splitlines()
    end = next((i for i, line in enumerate(lines) if line and not line.startswith(" ")), len(lines))
    return inspect.cleandoc("\n" + "\n".join(line for line in lines[:end] if line.strip())), "\n".join(
        lines[end:]
    ).strip()
