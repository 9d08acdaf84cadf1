"""What a figure is: curves of values, each a list with one for every round; and its tables."""

from __future__ import annotations

import statistics
from dataclasses import asdict, dataclass, field
from typing import Any

PLAIN, SEALED = "plain", "sealed"


@dataclass
class Curve:
    """Values against what stands on the other axis."""

    name: str
    """Curves of a name belong together."""
    side: str = ""
    """Whether what is measured was plain or sealed, if that is what differs."""
    manner: str = ""
    """What else differs between curves of a name."""
    points: dict[float, list[float]] = field(default_factory=dict)

    def add(self, at: float, value: float) -> None:
        """The value of a round."""
        self.points.setdefault(at, []).append(value)

    def medians(self) -> list[tuple[float, float]]:
        """The points of the picture."""
        return [(at, statistics.median(values)) for at, values in sorted(self.points.items())]

    def __str__(self) -> str:
        return ", ".join(part for part in (self.name, self.manner, self.side) if part)


@dataclass
class Quantity:
    """Curves on the same axes."""

    title: str
    x: str
    y: str
    curves: list[Curve] = field(default_factory=list)
    form: str = "lines"
    """Lines; `lengths`: lines over lengths of messages, on logarithmic axes; bars; or a table alone."""
    split: bool = False
    """Whether plain and sealed have axes of their own, side by side."""
    ideal: bool = False
    """Whether what is at best is as much as stands on the other axis."""

    def curve(self, name: str, side: str = "", manner: str = "") -> Curve:
        """One of its curves, made if it is not there."""
        wanted = Curve(name, side, manner)
        found = next((curve for curve in self.curves if str(curve) == str(wanted)), wanted)
        if found is wanted:
            self.curves.append(wanted)
        return found

    def at(self, x: float) -> str:
        """What stands at the axis."""
        return length(int(x)) if self.form == "lengths" else f"{x:g}"

    def text(self) -> str:
        """A table: medians of the rounds, and of what is sealed to what is plain the rounds' own ratios."""
        points = sorted({x for curve in self.curves for x in curve.points})
        lines = [
            f"{self.title}: {self.y}, against {self.x}",
            "| | " + " | ".join(map(self.at, points)) + " |",
            "|---" * (len(points) + 1) + "|",
        ]
        for name, manner in dict.fromkeys((curve.name, curve.manner) for curve in self.curves):
            curves = [one for one in self.curves if (one.name, one.manner) == (name, manner)]
            for curve in curves:
                cells = [f"{statistics.median(curve.points[x]):.3g}" if x in curve.points else "" for x in points]
                lines.append(f"| {curve} | " + " | ".join(cells) + " |")
            sides = {curve.side: curve.points for curve in curves}
            if {PLAIN, SEALED} <= set(sides):
                cells = [ratios(sides[SEALED].get(x, []), sides[PLAIN].get(x, [])) for x in points]
                lines.append("| sealed / plain, median (least) | " + " | ".join(cells) + " |")
        return "\n".join(lines)


@dataclass
class Figure:
    """One of the paper's, or what it is about."""

    name: str
    title: str
    quantities: list[Quantity]
    notes: list[str] = field(default_factory=list)
    """What has to be known to read it; the first stands in the picture, too."""

    def text(self) -> str:
        """For people."""
        parts = [f"## {self.title}", *(quantity.text() for quantity in self.quantities)]
        if self.notes:
            parts.append("\n".join(self.notes))
        return "\n\n".join(parts)

    def record(self) -> dict[str, Any]:
        """For machines."""
        found = asdict(self)
        for curve in (curve for quantity in found["quantities"] for curve in quantity["curves"]):
            curve["points"] = [{"at": at, "values": values} for at, values in sorted(curve["points"].items())]
        return found


def ratios(ours: list[float], theirs: list[float]) -> str:
    """The median of the rounds' own ratios, and the least."""
    found = [own / other for own, other in zip(ours, theirs, strict=True) if other]
    return f"{statistics.median(found):.2f} ({min(found):.2f})" if found else ""


def length(count: int) -> str:
    """As people write it."""
    for shift, unit in (20, "MiB"), (10, "KiB"):
        if count >= 1 << shift and count % (1 << shift) == 0:
            return f"{count >> shift} {unit}"
    return f"{count} B"


def seconds(value: float) -> str:
    """As people write it."""
    if value >= 1:
        return f"{value:.3g} s"
    return f"{value * 1e3:.3g} ms" if value >= 1e-3 else f"{value * 1e6:.3g} us"


def sentence(text: str) -> str:
    """With a capital and a full stop."""
    return f"{text[0].upper()}{text[1:]}."
