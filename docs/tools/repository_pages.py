"""Pages of the site that are documents of the repository: they lie at its root and have links that fit there."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = {"ARCHITECTURE.md": "internals.md", "CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}
_LINK = re.compile(r"\]\((?!https?:|#)([^)#\s]+)(#[^)\s]*)?\)")
_MERMAID = re.compile(r"```mermaid\n.*?```", re.DOTALL)


def pages() -> dict[str, str]:
    """Return the text of each page by its name on the site."""
    found = {page: site_text((ROOT / source).read_text(encoding="utf-8")) for source, page in PAGES.items()}
    _, _, limits = (ROOT / "README.md").read_text(encoding="utf-8").partition("## Limits of this release\n")
    return {**found, "limits.md": f"# Limits of this release\n{site_text(limits)}"}


def site_text(text: str) -> str:
    """Return a document with links that fit the site; what has no page there is named without a link."""
    picture = "![Each part imports those that its lines lead down to](pictures/layers.svg)"
    return _MERMAID.sub(picture, _LINK.sub(_target, text))


def _target(link: re.Match[str]) -> str:
    path, anchor = link[1], link[2] or ""
    if path in PAGES:
        return f"]({PAGES[path]}{anchor})"
    return f"]({path.removeprefix('docs/')}{anchor})" if path.startswith("docs/") else "]"
