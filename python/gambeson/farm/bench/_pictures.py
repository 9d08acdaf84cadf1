"""Figures as pictures, SVG and PNG, by matplotlib. Readable without colour: curves of a name have a marker; what is
plain, raw or computing is dashed and hollow beside what is not.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gambeson.farm.bench._figure import PLAIN, SEALED, Curve, Figure, Quantity, length
from gambeson.farm.bench._tasks import COMPUTES

COLOURS = ("#0b5394", "#b45f06", "#38761d", "#741b47", "#444444", "#bf9000", "#134f5c", "#990000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
HOLLOW = (COMPUTES, "raw")
FEW = 6
"""Curves whose names have room among them; and lengths, on one axis."""
SIDE, LEGEND = (4.0, 3.4), 1.6
"""Inches of one pair of axes, and of what stands beside the last."""


def draw(figure: Figure, folder: Path) -> None:
    """Draws a figure into a folder that there is.

    Raises `ImportError` without matplotlib, and `OSError`.
    """
    import matplotlib
    from matplotlib.figure import Figure as Canvas

    parts = [part for quantity in figure.quantities if quantity.form != "table" for part in _parts(quantity)]
    beside = LEGEND if any(len(part.curves) > FEW for part in parts) else 0.0
    canvas = Canvas(figsize=(SIDE[0] * len(parts) + beside, SIDE[1]), layout="constrained")
    axes = canvas.subplots(1, len(parts), squeeze=False)[0]
    for place, part in zip(axes, parts, strict=True):
        _draw(place, part)
    _legends(list(axes))
    shared = [place for place, part in zip(axes, parts, strict=True) if part.split]
    for place in shared:
        place.set_ylim(0, max(other.get_ylim()[1] for other in shared))
    canvas.supxlabel("\n".join(textwrap.wrap(figure.notes[0], 78 * len(parts))), fontsize=7, color="#444444")
    # Text stays text. Without a date, and with names that are no accident, the same values give the same file.
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": figure.name}):
        canvas.savefig(folder / f"farm-{figure.name}.svg", metadata={"Date": None})
    canvas.savefig(folder / f"farm-{figure.name}.png", dpi=100, metadata={"Software": None})


def _parts(quantity: Quantity) -> list[Quantity]:
    """Its pairs of axes."""
    if not quantity.split:
        return [quantity]
    sides = [(side, [curve for curve in quantity.curves if curve.side == side]) for side in (PLAIN, SEALED)]
    title, x, y, form = quantity.title, quantity.x, quantity.y, quantity.form
    return [Quantity(f"{title}, {side}", x, y, curves, form, True, quantity.ideal) for side, curves in sides]


def _draw(axes: Any, quantity: Quantity) -> None:
    names = list(dict.fromkeys(curve.name for curve in quantity.curves))
    if quantity.form == "bars":
        _bars(axes, quantity, names)
    else:
        for curve in quantity.curves:
            at = names.index(curve.name) % len(COLOURS)
            hollow = curve.manner in HOLLOW or (curve.side == PLAIN and not quantity.split)
            axes.plot(
                *zip(*curve.medians(), strict=True),
                color=COLOURS[at],
                marker=MARKERS[at],
                markersize=4.5,
                linewidth=1.3,
                linestyle="--" if hollow else "-",
                markerfacecolor="white" if hollow else COLOURS[at],
                label=str(Curve(curve.name, "", curve.manner)) if quantity.split else str(curve),
            )
    points = sorted({x for curve in quantity.curves for x in curve.points})
    if quantity.ideal:
        axes.plot(points, points, color="#999999", linewidth=0.8, linestyle=":", label="ideal")
    if quantity.form == "lengths":
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.minorticks_off()
        shown = points[::2] if len(points) > FEW else points
        axes.set_xticks(shown, [length(int(x)) for x in shown], fontsize=7)
    else:
        axes.set_xticks(points)
        axes.set_ylim(bottom=0)
    axes.set(title=quantity.title, xlabel=quantity.x, ylabel=quantity.y)
    axes.title.set_fontsize(10)
    axes.grid(color="#dddddd", linewidth=0.5)


def _legends(axes: Sequence[Any]) -> None:
    """One for all axes that have the same curves, and beside them if they are many."""
    labels = [place.get_legend_handles_labels()[1] for place in axes]
    for at, place in enumerate(axes):
        if labels[at] in labels[at + 1 :]:
            continue
        if len(labels[at]) > FEW:
            place.legend(fontsize=6.5, frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))
        else:
            place.legend(fontsize=6.5, frameon=False)


def _bars(axes: Any, quantity: Quantity, names: list[str]) -> None:
    """Beside each other, by name."""
    wide = 0.8 / len(names)
    for at, curve in enumerate(quantity.curves):
        places = [x + (at - (len(names) - 1) / 2) * wide for x, _ in curve.medians()]
        axes.bar(
            places,
            _heights(curve),
            wide * 0.9,
            color=COLOURS[at],
            hatch=("", "//", "..", "xx")[at % 4],
            label=str(curve),
        )
    axes.set_axisbelow(True)
    axes.margins(y=0.35)


def _heights(curve: Curve) -> list[float]:
    return [value for _, value in curve.medians()]
