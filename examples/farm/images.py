#!/usr/bin/env python3
"""Images of patients, filtered and rendered on workers: the program of the secure-muskel paper's figure 1.

The images are sensitive, the renderer's code is too, and how many bright points an image has is neither. By default the
workers are on this host; `--ssh node1 node2` takes others, of which the first alone may see patients' images.

    python images.py                          # two workers here
    python images.py --ssh node1 node2        # what may go where is explained at the end
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from gambeson import farm


def scan(count: int, size: int) -> Iterator[np.ndarray]:
    """What a scanner would bring: noise, and a bright spot somewhere."""
    random = np.random.default_rng(1)
    rows, columns = np.mgrid[:size, :size]
    for _ in range(count):
        row, column = random.integers(size // 4, 3 * size // 4, 2)
        spot = np.exp(-((rows - row) ** 2 + (columns - column) ** 2) / (size / 12) ** 2)
        yield spot + random.normal(0, 0.3, (size, size))


@farm.sensitive_data("inout", label="patients")
def smooth(image: np.ndarray) -> np.ndarray:
    """Takes the noise out, roughly."""
    for _ in range(12):
        image = (np.roll(image, 1, 0) + np.roll(image, -1, 0) + np.roll(image, 1, 1) + np.roll(image, -1, 1)) / 4
    return image


@farm.sensitive_code
@farm.sensitive_data("inout", label="patients")
def render(image: np.ndarray) -> np.ndarray:
    """Brings out what is bright."""
    levels = np.linspace(image.min(), image.max(), 8)
    return np.digitize(image, levels).astype(np.float64)


@farm.declassifies("patients")
def count_bright(image: np.ndarray) -> int:
    """How many points are bright: a number, and nobody's image."""
    return int((image >= 7).sum())


def main() -> None:
    """Computes, and says what was protected."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--images", type=int, default=40)
    parser.add_argument("--size", type=int, default=256, help="rows and columns of an image")
    parser.add_argument("--ssh", nargs="+", metavar="HOST", help="workers on these hosts, and not on this one")
    parser.add_argument("--picture", type=Path, help="write the program's graph here (SVG)")
    options = parser.parse_args()

    program = farm.pipeline(smooth, farm.farm(render), count_bright)
    workers, security = farm.local(), farm.Security()
    if options.ssh:
        workers = farm.ssh(*options.ssh, slots=1)
        security = farm.Security(clearance={options.ssh[0]: ["patients"]})
    with farm.Manager(program, parallelism=2, workers=workers, security=security) as manager:
        print(manager.graph)
        if options.picture:
            options.picture.write_text(manager.graph.show())
        bright = manager.compute(scan(options.images, options.size), progress=True)
        print(f"{len(bright)} images, {sum(bright)} bright points\n")
        print(manager.explain())


if __name__ == "__main__":
    main()
