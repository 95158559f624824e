"""Draw the layers of the code from the list of arrows in ARCHITECTURE.md, which a test holds against the imports."""

from __future__ import annotations

import re
from pathlib import Path

from docs.tools.svg import HEIGHT, Drawing

ROOT = Path(__file__).resolve().parents[2]
WIDE, ACROSS, DOWN = 136, 150, 62


def arrows() -> list[tuple[str, str]]:
    """Return the pairs of the picture: which part imports which other one."""
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    return re.findall(r"^ *([\w.]+) --> ([\w.]+)$", text, re.MULTILINE)


def layers() -> Drawing:
    """Return the parts in rows: each lies above all that it imports."""
    edges = arrows()
    parts = sorted({part for edge in edges for part in edge})
    row = dict.fromkeys(parts, 0)
    for _ in parts:
        for upper, lower in edges:
            row[lower] = max(row[lower], row[upper] + 1)
    rows = [[part for part in parts if row[part] == number] for number in range(max(row.values()) + 1)]
    place = {part: float(index) for names in rows for index, part in enumerate(names)}
    for names in rows:  # a part stands below those that import it
        above = {part: [place[u] for u, low in edges if low == part] for part in names}
        names.sort(key=lambda part: (sum(above[part]) / len(above[part]) if above[part] else 0, part))
        shift = (4 - len(names)) / 2
        place |= {part: index + shift for index, part in enumerate(names)}
    width = int(max(place.values()) * ACROSS + WIDE + 40)
    drawing = Drawing(
        "The layers: each part imports those below it that its lines lead to", width, len(rows) * DOWN + 10
    )
    for upper, lower in edges:
        drawing.line(
            20 + place[upper] * ACROSS + WIDE / 2, 10 + row[upper] * DOWN + HEIGHT,
            20 + place[lower] * ACROSS + WIDE / 2, 10 + row[lower] * DOWN, "line",
        )  # fmt: skip
    for part in parts:
        drawing.box(20 + place[part] * ACROSS, 10 + row[part] * DOWN, part, "plain", width=WIDE)
    return drawing
