"""A few shapes as SVG, legible on light and on dark pages.

Colours are named (``ink``, ``plain`` ...) and are variables: a page that has the drawing in it gives them its own, and
a drawing that is shown as a file has those of its style.
"""

from __future__ import annotations

from html import escape

LIGHT = {
    "ink": "#1f2933", "faint": "#6b7785", "line": "#9aa5b1", "plain": "#dbe2ea", "one": "#bfdcf5", "two": "#ffe0a8",
    "aborted": "#f6c9c4", "marker": "#ffffff", "good": "#1b7f4b", "bad": "#b3261e",
}  # fmt: skip
DARK = {
    "ink": "#e6e9ee", "faint": "#a3adb8", "line": "#6b7785", "plain": "#3d4652", "one": "#1f4a6e", "two": "#66500f",
    "aborted": "#6b2b26", "marker": "#1d222b", "good": "#6fd19b", "bad": "#ff9c92",
}  # fmt: skip
BOX, GAP, HEIGHT = 78, 6, 34


def _variables(colours: dict[str, str]) -> str:
    return " ".join(f"--{name}: {value};" for name, value in colours.items())


STYLE = (
    f"svg.drawing {{ {_variables(LIGHT)} }}"
    f" @media (prefers-color-scheme: dark) {{ svg.drawing {{ {_variables(DARK)} }} }}"
)
"""Of a drawing that is a file of its own; a page with other colours leaves it out."""


class Drawing:
    """Shapes, in the order in which they are drawn. Lengths are pixels at full size."""

    def __init__(self, title: str, width: int, height: int) -> None:
        self._title = title
        self._size = (width, height)
        self._shapes: list[str] = []

    def box(self, x: float, y: float, text: str, colour: str, *, width: float = BOX, dashed: bool = False) -> None:
        """Draw a box with a text in its middle."""
        dash = ' stroke-dasharray="4 3"' if dashed else ""
        self._shapes.append(
            f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{HEIGHT}" rx="4" fill="var(--{colour})"'
            f' stroke="var(--line)"{dash}/>'
        )
        self.text(x + width / 2, y + HEIGHT / 2 + 4.5, text)

    def frame(self, x: float, y: float, width: float, height: float, *, dashed: bool = False) -> None:
        """Draw a frame around other shapes."""
        dash = ' stroke-dasharray="5 4"' if dashed else ""
        self._shapes.append(
            f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="7" fill="none"'
            f' stroke="var(--line)"{dash}/>'
        )

    def text(
        self, x: float, y: float, text: str, colour: str = "ink", *, anchor: str = "middle", size: int = 13
    ) -> None:
        """Write a line of text, its base line at ``y``."""
        self._shapes.append(
            f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}" font-size="{size}" fill="var(--{colour})">'
            f"{escape(text)}</text>"
        )

    def line(self, x1: float, y1: float, x2: float, y2: float, colour: str = "ink", *, arrow: bool = False) -> None:
        """Draw a line, from one point to another, with a head at its end if it is an arrow."""
        head = ' marker-end="url(#head)"' if arrow else ""
        self._shapes.append(
            f'<path d="M{x1:g} {y1:g}L{x2:g} {y2:g}" stroke="var(--{colour})" stroke-width="1.5" fill="none"{head}/>'
        )

    def bound(self, x: float, top: float, bottom: float, name: str, where: str) -> None:
        """Draw a bound between two entries: a line with its name and position above it."""
        self.line(x, top, x, bottom, "bad")
        self.text(x, top - 20, name, "ink")
        self.text(x, top - 5, where, "faint", size=12)

    def reach(self, x1: float, x2: float, y: float, text: str) -> None:
        """Draw how far a reader reads."""
        self.line(x1, y, x2, y, "good", arrow=True)
        self.text(x1, y + 17, text, "good", anchor="start")

    def __str__(self) -> str:
        width, height = self._size
        head = (
            '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7"'
            ' orient="auto-start-reverse"><path d="M0 0L8 4L0 8z" fill="context-stroke"/></marker></defs>'
        )
        return "\n".join(
            [
                (
                    f'<svg xmlns="http://www.w3.org/2000/svg" class="drawing" viewBox="0 0 {width} {height}" role="img"'
                    f' width="{width}" font-family="system-ui, sans-serif">'
                ),
                f"<title>{escape(self._title)}</title>",
                f"<style>{STYLE}</style>",
                head,
                *self._shapes,
                "</svg>\n",
            ]
        )
