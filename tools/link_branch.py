"""What the possibility of transform modules costs links without any.

The same measurement (link_ping, 8 B over shared memory) from a build as it is shipped and from one without the
possibility (`--cfg without_transforms`), each a process of its own, in turn: `make bench-link-branch`. Prints the
medians and the least of the times, and the ratios of both.
"""

from __future__ import annotations

import os
import re
import shutil
import statistics
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
ROUNDS = int(sys.argv[1]) if len(sys.argv) > 1 else 40
BUILD = ["cargo", "build", "--release", "--locked", "-p", "gambeson-link", "--example", "link_ping"]
LINE = re.compile(r"^ *8 B:.*$", re.MULTILINE)
TIME = re.compile(r"(\w+) +([0-9.]+) us, x")


def build(name: str, wrapper: Path | None) -> Path:
    environment = os.environ | ({"RUSTC_WORKSPACE_WRAPPER": str(wrapper)} if wrapper else {})
    subprocess.run(BUILD, check=True, cwd=ROOT, env=environment)
    copy = TARGET / f"link_ping-{name}"
    shutil.copy2(TARGET / "release" / "examples" / "link_ping", copy)
    return copy


def times(binary: Path) -> dict[str, float]:
    """The least time there and back of 20 short runs in us, by protection."""
    printed = subprocess.run([binary, "20", "shm"], check=True, capture_output=True, text=True).stdout
    line = LINE.search(printed)
    if line is None:
        sys.exit(f"{binary} prints no line for 8 B")
    return {protection: float(time) for protection, time in TIME.findall(line[0])}


def main() -> None:
    without = build("without", ROOT / "tools" / "without-transforms.sh")
    shipped = build("shipped", None)
    here, there = [], []
    for _ in range(ROUNDS):
        here.append(times(shipped))
        there.append(times(without))
    for protection in here[0]:
        one, other = ([each[protection] for each in all_] for all_ in (here, there))
        ratios = [a / b for a, b in zip(one, other, strict=True)]
        print(f"{protection}: as shipped {statistics.median(one):.3f} us (least {min(one):.3f}), without", end=" ")
        print(f"{statistics.median(other):.3f} us (least {min(other):.3f}); ratio of the least", end=" ")
        print(f"{min(one) / min(other):.3f}, median of the ratios {statistics.median(ratios):.3f}")


if __name__ == "__main__":
    main()
