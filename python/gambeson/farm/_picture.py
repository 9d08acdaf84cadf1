"""Pictures of graphs: boxes from left to right, those with a graph inside around its boxes."""

from __future__ import annotations

from dataclasses import dataclass, field
from xml.sax.saxutils import escape

LETTER = 7.2
"""Width of a letter of 12 points, as good as all are."""
LINE = 16
PAD = 12
GAP = 36


@dataclass
class Picture:
    """A box: its name, notes below that, and boxes inside. Sizes are in pixels."""

    name: str
    notes: list[str]
    inside: list[Picture] = field(default_factory=list)
    width: float = 0.0
    height: float = 0.0

    def measure(self) -> None:
        """Finds its size, by those of what is inside."""
        for box in self.inside:
            box.measure()
        texts = max((len(text) for text in (self.name, *self.notes)), default=0) * LETTER
        row = sum(box.width for box in self.inside) + GAP * max(0, len(self.inside) - 1)
        self.width = max(texts, row) + 2 * PAD
        inner = max((box.height for box in self.inside), default=0.0)
        self.height = LINE * (1 + len(self.notes)) + 2 * PAD + (inner + PAD if self.inside else 0)


def draw(boxes: list[Picture]) -> str:
    """An SVG document of boxes in a row, from `in` to `out`."""
    for box in boxes:
        box.measure()
    width = sum(box.width for box in boxes) + GAP * (len(boxes) + 1) + 2 * PAD + 60
    height = max(box.height for box in boxes) + 2 * PAD
    middle = height / 2
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" font-family="sans-serif" font-size="12">',
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 0 L8 4 L0 8 z" fill="#444"/></marker></defs>',
        f'<rect width="{width:.0f}" height="{height:.0f}" fill="white"/>',
        f'<text x="{PAD}" y="{middle + 4:.1f}">in</text>',
    ]
    end = _row(boxes, PAD + 18 + GAP, middle, out, came=PAD + 18)
    out.append(_arrow(end, end + GAP - 4, middle))
    out.append(f'<text x="{end + GAP:.1f}" y="{middle + 4:.1f}">out</text>')
    out.append("</svg>")
    return "\n".join(out)


def _arrow(start: float, end: float, at: float) -> str:
    return f'<path d="M{start:.1f} {at:.1f} H{end:.1f}" stroke="#444" fill="none" marker-end="url(#tip)"/>'


def _row(boxes: list[Picture], left: float, middle: float, out: list[str], came: float | None) -> float:
    """Draws boxes around a middle line, with arrows between; where the last one ends."""
    for box in boxes:
        if came is not None:
            out.append(_arrow(came, left, middle))
        top = middle - box.height / 2
        fill = "#fdf1dc" if any("sensitive" in note for note in box.notes) else "#eef3f8"
        out.append(
            f'<rect x="{left:.1f}" y="{top:.1f}" width="{box.width:.1f}" height="{box.height:.1f}" rx="6" '
            f'fill="{fill}" fill-opacity="0.8" stroke="#456"/>'
        )
        for line, text in enumerate((box.name, *box.notes)):
            weight = ' font-weight="bold"' if line == 0 else ' fill="#7a4b00"'
            y = top + PAD + LINE * line + 11
            out.append(f'<text x="{left + PAD:.1f}" y="{y:.1f}"{weight}>{escape(text)}</text>')
        if box.inside:
            texts = LINE * (1 + len(box.notes))
            inner = top + PAD + texts + (box.height - 2 * PAD - texts) / 2
            row = sum(part.width for part in box.inside) + GAP * (len(box.inside) - 1)
            _row(box.inside, left + (box.width - row) / 2, inner, out, came=None)
        came = left + box.width
        left = came + GAP
    return came or left
