"""What mkdocs calls while it builds the site: generated pages, drawings inside their pages, comments left out."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))  # mkdocs loads this file by its path

from docs.tools import reference, repository_pages  # noqa: E402
from docs.tools.layers import layers  # noqa: E402
from docs.tools.svg import STYLE  # noqa: E402

_FENCE = re.compile(r"^( *)(`{3,}|~{3,}).*?^\1\2 *$", re.MULTILINE | re.DOTALL)
_COMMENT = re.compile(r"<!--.*?-->\n?", re.DOTALL)
_PICTURE = re.compile(r"^!\[([^\]]*)\]\(pictures/(\w+)\.svg\)$", re.MULTILINE)


def on_files(files: Files, config: Any) -> Files:
    """Add the pages that are made of the code, and of the repository's other documents."""
    for name, text in {**reference.pages(), **repository_pages.pages()}.items():
        files.append(File.generated(config, name, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Leave out what is for tests, and put drawings into the page, where they have its colours."""
    parts, end = [], 0
    for fence in _FENCE.finditer(markdown):
        parts += [_COMMENT.sub("", markdown[end : fence.start()]), fence.group()]
        end = fence.end()
    text = "".join([*parts, _COMMENT.sub("", markdown[end:])])
    return _PICTURE.sub(lambda found: _drawing(found[1], found[2]), text)


def _drawing(says: str, name: str) -> str:
    picture = ROOT / "docs" / "pictures" / f"{name}.svg"
    svg = str(layers()) if name == "layers" else picture.read_text(encoding="utf-8")
    shown = svg.replace(f"<style>{STYLE}</style>", "").strip()
    return f'<figure markdown="0">{shown}<figcaption>{says}</figcaption></figure>'
