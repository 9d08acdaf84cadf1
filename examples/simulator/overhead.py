"""What does sealing cost, over load and for several sizes of the session-key cache? A sweep, a table and a picture.

    make install-python && python -m pip install polars matplotlib
    python examples/simulator/overhead.py overhead.png

An interrupted sweep goes on where it was when a folder is given: overhead.py overhead.png FOLDER
"""

from __future__ import annotations

import sys
from pathlib import Path

import matplotlib

matplotlib.use("agg")
import matplotlib.pyplot as plt
import polars as pl
from gambeson import sim

LOADS = [0.1, 0.2, 0.3, 0.4, 0.5]
ENTRIES = [4, 8, 12, 16]


def measure(folder: Path | None) -> pl.DataFrame:
    """Mean latency in ns and hit rate for each load and cache, over three seeds; without security, entries are 0."""
    mesh = sim.load(Path(__file__).with_name("mesh.toml"))
    plain = sim.sweep(mesh, {"security": ["{ level = 'none' }"], "traffic.0.load": LOADS}, repeat=3, resume=folder)
    sealed = sim.sweep(mesh, {"security.cache.entries": ENTRIES, "traffic.0.load": LOADS}, repeat=3, resume=folder)
    tables = [
        pl.DataFrame(plain.table()).with_columns(entries=pl.lit(0.0)),
        pl.DataFrame(sealed.table()).rename({"security.cache.entries": "entries"}),
    ]
    rows = pl.concat(tables, how="diagonal")
    means = (pl.col(name).mean() for name in ("mean_ns", "hit_rate"))
    return rows.group_by("entries", "traffic.0.load").agg(*means).sort("entries", "traffic.0.load")


def draw(measured: pl.DataFrame, picture: Path) -> None:
    """Two panels over load: latency that sealing adds, in percent, and key look-ups that hit."""
    plain = measured.filter(pl.col("entries") == 0).select("traffic.0.load", plain_ns="mean_ns")
    sealed = measured.filter(pl.col("entries") > 0).join(plain, on="traffic.0.load")
    figure, (cost, hits) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
    for entries in ENTRIES:
        line = sealed.filter(pl.col("entries") == entries).sort("traffic.0.load")
        added = (line["mean_ns"] / line["plain_ns"] - 1) * 100
        cost.plot(line["traffic.0.load"], added, marker="o", label=f"{entries} keys")
        hits.plot(line["traffic.0.load"], line["hit_rate"] * 100, marker="o", label=f"{entries} keys")
    cost.set(title="Mean latency that sealing adds, %", yscale="log")
    hits.set(title="Keys found in the adapter's cache, %", ylim=(0, 104))
    for panel in (cost, hits):
        panel.set(xlabel="offered load, share of a link's rate", xticks=LOADS)
        panel.grid(color="0.9")
        panel.spines[["top", "right"]].set_visible(False)
    cost.set_yticks([20, 50, 100, 200, 500, 1000, 2000], labels=["20", "50", "100", "200", "500", "1000", "2000"])
    cost.minorticks_off()
    cost.legend(title="cache of", frameon=False)
    figure.savefig(picture, dpi=120)


if __name__ == "__main__":
    picture, *folder = sys.argv[1:]
    draw(measure(Path(folder[0]) if folder else None), Path(picture))
    print(picture)
