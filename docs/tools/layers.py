"""Draw the layers of the code from the list of arrows in ARCHITECTURE.md, which a test holds against the imports."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

from docs.tools.svg import HEIGHT, Drawing

ROOT = Path(__file__).resolve().parents[2]
WIDE, ACROSS, DOWN, LANE = 136, 150, 62, 9


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
    far = sorted((edge for edge in edges if row[edge[1]] > row[edge[0]] + 1), key=lambda edge: row[edge[1]])
    left = [edge for edge in far if place[edge[0]] + place[edge[1]] < 3]
    begin = 10 + LANE * (len(left) + 1)
    end = begin + max(place.values()) * ACROSS + WIDE
    lanes = {edge: begin - LANE * (number + 1) for number, edge in enumerate(left)}
    lanes |= {edge: end + LANE * (number + 1) for number, edge in enumerate(edge for edge in far if edge not in left)}
    drawing = Drawing(
        "The layers: each part imports those below it that its lines lead to",
        int(max([end, *lanes.values()]) + 10),
        len(rows) * DOWN + 10,
    )
    for upper, lower in edges:
        x1, y1 = begin + place[upper] * ACROSS + WIDE / 2, 10 + row[upper] * DOWN + HEIGHT
        x2, y2 = begin + place[lower] * ACROSS + WIDE / 2, 10 + row[lower] * DOWN
        corners = [(x1, y1), (x2, y2)]
        if (upper, lower) in lanes:  # around all that stands between
            number, lane = far.index((upper, lower)), lanes[upper, lower]
            down, up = y1 + 5 + 3 * number, y2 - 5 - 3 * number
            x1, x2 = x1 + 5 * number + 5, x2 + 5 * number + 5
            corners = [(x1, y1), (x1, down), (lane, down), (lane, up), (x2, up), (x2, y2)]
        for (from_x, from_y), (to_x, to_y) in pairwise(corners):
            drawing.line(from_x, from_y, to_x, to_y, "line")
    for part in parts:
        drawing.box(begin + place[part] * ACROSS, 10 + row[part] * DOWN, part, "plain", width=WIDE)
    return drawing
