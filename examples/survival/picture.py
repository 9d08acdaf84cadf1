"""The demonstration's picture: what is on the wire, how much of it can be read, the result and the price."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.patches import FancyBboxPatch

INK, FAINT, PAPER = "#1d2433", "#8a93a6", "#fbfaf7"
RED, GREEN = "#c8352b", "#1f7a5c"
plt.rcParams.update(
    {
        "font.family": "DejaVu Sans",
        "text.color": INK,
        "axes.labelcolor": INK,
        "xtick.color": INK,
        "ytick.color": INK,
        "svg.fonttype": "path",
        "axes.facecolor": "none",
    }
)
WIDTH = 24
"""Bytes in one line of an excerpt."""


def bare(axes: Axes) -> None:
    axes.set_xticks([])
    axes.set_yticks([])
    for spine in axes.spines.values():
        spine.set_visible(False)


def excerpt(axes: Axes, data: bytes, title: str, note: str, colour: str) -> None:
    """Hexadecimal on the left, characters on the right, as every packet analyser shows it."""
    bare(axes)
    axes.set_xlim(0, 1)
    axes.set_ylim(0, 1)
    box = FancyBboxPatch((0, 0), 1, 0.87, boxstyle="round,pad=0,rounding_size=0.02", fc="white", ec=colour, lw=1.4)
    box.set_clip_on(False)
    axes.add_patch(box)
    axes.text(0, 0.94, title, fontsize=12.5, weight="bold", color=colour, va="center")
    rows = [data[at : at + WIDTH] for at in range(0, 10 * WIDTH, WIDTH)]
    axes.text(1, 0.94, note, fontsize=10, color=colour, va="center", ha="right", style="italic")
    for number, row in enumerate(rows):
        y = 0.805 - number * 0.082
        text = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)
        axes.text(0.02, y, row.hex(" "), fontsize=6.6, family="DejaVu Sans Mono", color=FAINT, va="center")
        axes.text(0.705, y, text, fontsize=8.4, family="DejaVu Sans Mono", color=colour, va="center", weight="bold")


def first_patient(data: bytes) -> str:
    """What the first record of an excerpt says, in words."""
    fields = data.split(b"\n", 1)[0].decode(errors="replace").split(",")
    if len(fields) < 8:
        return ""
    drugs = "injected drugs" if fields[6] == "1" else "no injected drugs"
    return f"patient {fields[1]}: {fields[2]} years, {float(fields[3]):.0f} kg, {drugs}"


def packets(axes: Axes, strip: list[bool], title: str, colour: str) -> None:
    """One mark per packet, in the order they passed: red where a patient's record can be read."""
    bare(axes)
    columns = 80
    shown = strip[: columns * 12]
    x = [number % columns for number in range(len(shown))]
    y = [-(number // columns) for number in range(len(shown))]
    axes.scatter(x, y, s=13, marker="s", c=[RED if readable else "#b9d8cb" for readable in shown], linewidths=0)
    axes.set_xlim(-1, columns)
    axes.set_ylim(-12, 2.6)
    share = 100 * sum(strip) / max(len(strip), 1)
    axes.text(-0.5, 1.6, title, fontsize=10.5, weight="bold", color=colour, va="center")
    more = f", the first {len(shown):,} drawn" if len(shown) < len(strip) else ""
    note = f"{sum(strip):,} of {len(strip):,} packets with data hold readable records ({share:.0f} %){more}"
    axes.text(columns - 0.5, 1.6, note, fontsize=8.2, color=INK, va="center", ha="right")


def exposed(axes: Axes, plain: dict[str, Any], sealed: dict[str, Any]) -> None:
    bare(axes)
    axes.set_title("Patients a listener can read", fontsize=11.5, weight="bold", loc="left", color=INK)
    axes.set_xlim(0, 1)
    axes.set_ylim(0, 1)
    for y, name, run, colour in ((0.72, "plain", plain, RED), (0.24, "sealed", sealed, GREEN)):
        axes.text(0.0, y, f"{run['patients read']:,}", fontsize=34, weight="bold", color=colour, va="center")
        label = f"of {run['patients']:,}\n{name}"
        axes.text(0.62, y, label, fontsize=11, color=INK, va="center", linespacing=1.5)


def ratios(axes: Axes, plain: dict[str, Any], sealed: dict[str, Any]) -> None:
    """The result of both runs over each other: rings are plain, points are sealed."""
    axes.set_title("The result: hazard ratios, 95 % intervals", fontsize=11.5, weight="bold", loc="left", color=INK)
    runs = []
    for run in (plain, sealed):
        found = re.findall(r"^(.+?)\s{2,}([\d.]+)\s+([\d.]+) - ([\d.]+)$", run["output"], re.M)
        runs.append([(label, *(float(value) for value in values)) for label, *values in found])
    for number, (label, ratio, low, high) in enumerate(runs[0]):
        axes.plot([low, high], [-number, -number], color=RED, lw=7, alpha=0.22, solid_capstyle="round")
        axes.plot(ratio, -number, "o", ms=11, mfc="none", mec=RED, mew=1.5, label=None if number else "plain")
        axes.text(0.33, -number, label, ha="right", va="center", fontsize=9.5)
    for number, (_, ratio, low, high) in enumerate(runs[1]):
        axes.plot([low, high], [-number, -number], color=GREEN, lw=1.6)
        axes.plot(ratio, -number, "o", ms=5, color=GREEN, label=None if number else "sealed")
    axes.axvline(1, color=FAINT, lw=0.8, ls=":")
    axes.set_xscale("log")
    axes.set_xlim(0.36, 2.2)
    axes.set_xticks([0.5, 1, 2], ["0.5", "1", "2"])
    axes.minorticks_off()
    axes.set_yticks([])
    axes.set_ylim(-len(runs[0]) + 0.4, 0.6)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color(FAINT)
    same = plain["output"] == sealed["output"]
    axes.set_xlabel("identical to the last digit" if same else "NOT THE SAME", fontsize=9.5)
    axes.legend(loc="upper right", frameon=False, fontsize=9)


def seconds(axes: Axes, plain: dict[str, Any], sealed: dict[str, Any]) -> None:
    axes.set_title("The price: seconds, every run", fontsize=11.5, weight="bold", loc="left", color=INK)
    best = []
    for y, run, colour in ((1, plain, RED), (0, sealed, GREEN)):
        best.append(min(run["seconds"]))
        axes.barh(y, best[-1], height=0.42, color=colour, alpha=0.85)
        axes.plot(run["seconds"], [y] * len(run["seconds"]), "|", color=INK, ms=13, mew=1)
        axes.text(best[-1] * 0.03, y, f"{best[-1]:.2f} s", color="white", va="center", weight="bold", fontsize=11)
    axes.set_yticks([1, 0], ["plain", "sealed"], fontsize=10)
    axes.set_ylim(-0.6, 1.5)
    axes.set_xlabel(f"sealed / plain, best runs: {best[1] / best[0]:.2f}", fontsize=9.5)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color(FAINT)
    axes.tick_params(left=False)


def draw(report: dict[str, Any], path: Path) -> None:
    """Saves `path`.png and `path`.svg."""
    plain, sealed = report["plain"], report["sealed"]
    figure = plt.figure(figsize=(15, 10), facecolor=PAPER)
    figure.text(0.035, 0.958, "The same MPI job on the wire, plain and sealed", fontsize=20, weight="bold")
    subtitle = (
        f"A survival analysis of {plain['patients']:,} HIV patients (trial ACTG 175), MPICH, {len(plain['strip']):,}"
    )
    figure.text(
        0.035,
        0.927,
        f"{subtitle} packets with data captured plain, {len(sealed['strip']):,} sealed",
        fontsize=11,
        color=INK,
    )
    top = figure.add_gridspec(1, 2, left=0.035, right=0.965, top=0.905, bottom=0.585, wspace=0.05)
    seen = bytes.fromhex(plain["excerpt"])
    excerpt(figure.add_subplot(top[0]), seen, "mpiexec -n 3 python hazards.py", first_patient(seen), RED)
    excerpt(
        figure.add_subplot(top[1]),
        bytes.fromhex(sealed["excerpt"]),
        "gambeson run -- mpiexec -n 3 python hazards.py",
        "",
        GREEN,
    )
    middle = figure.add_gridspec(1, 2, left=0.035, right=0.965, top=0.56, bottom=0.37, wspace=0.05)
    packets(figure.add_subplot(middle[0]), plain["strip"], "plain", RED)
    packets(figure.add_subplot(middle[1]), sealed["strip"], "sealed", GREEN)
    bottom = figure.add_gridspec(
        1, 3, left=0.035, right=0.965, top=0.305, bottom=0.075, wspace=0.14, width_ratios=[0.8, 1.75, 1.05]
    )
    exposed(figure.add_subplot(bottom[0]), plain, sealed)
    axes = figure.add_subplot(bottom[1])
    place = axes.get_position()
    axes.set_position((place.x0 + 0.11, place.y0, place.width - 0.11, place.height))
    ratios(axes, plain, sealed)
    seconds(figure.add_subplot(bottom[2]), plain, sealed)
    for ending in ("png", "svg"):
        figure.savefig(path.with_suffix(f".{ending}"), dpi=130, facecolor=PAPER)
    plt.close(figure)
