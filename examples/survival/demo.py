"""`make demo`: the survival analysis twice, plain and sealed, while everything on the wire is captured.

Prints one table, and saves build/demo/demo.png, demo.svg and the two captures. The jobs run in a network namespace of
their own, so that the capture sees them and nothing else, and no privilege is needed where the kernel lets users make
namespaces.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
import zipfile
from pathlib import Path
from typing import Any

import picture
from capture import Capture, payloads

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
OUT = ROOT / "build" / "demo"
RANKS, REPLICATES, ROUNDS = 3, 200, 5
INPUT = "ACTG175.csv"
PACKAGE = "lifelines==0.30.3"
INSIDE = "--inside-namespace"


def patients_file() -> Path:
    """The trial's records, out of the Python package that ships them."""
    path = OUT / INPUT
    if not path.is_file():
        OUT.mkdir(parents=True, exist_ok=True)
        pip = [sys.executable, "-m", "pip", "download", "-q", "--disable-pip-version-check", "--no-deps"]
        subprocess.run([*pip, "--only-binary", ":all:", "-d", str(OUT), PACKAGE], check=True)
        wheel = next(OUT.glob("lifelines-*.whl"))
        with zipfile.ZipFile(wheel) as archive:
            path.write_bytes(archive.read(f"lifelines/datasets/{INPUT}"))
        wheel.unlink()
    return path


def records(path: Path) -> list[bytes]:
    """The lines of the file as the program sends them: one patient each."""
    return [line.replace('"', "").encode() for line in path.read_text().splitlines()[1:] if line]


def command(sealed: bool, path: Path) -> tuple[list[str], dict[str, str]]:
    """The very same program and launcher; `gambeson run ... --` in front is the only difference."""
    bin_ = ROOT / "build" / "venv-mpich" / "bin"
    job = [str(bin_ / "mpiexec"), "-n", str(RANKS), str(bin_ / "python"), str(HERE / "hazards.py")]
    job += [str(path), str(REPLICATES)]
    if sealed:
        target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
        gambeson = os.environ.get("GAMBESON", str(target / "release" / "gambeson"))
        return [gambeson, "run", "--quiet", "--intra-host", "sealed", "--", *job], dict(os.environ)
    # One machine stands for a cluster: both runs leave MPICH's shared memory alone and use the network.
    return job, {**os.environ, "FI_PROVIDER": "tcp", "MPIR_CVAR_CH4_NETMOD": "ofi", "MPIR_CVAR_NOLOCAL": "1"}


def run(sealed: bool, path: Path) -> tuple[str, float]:
    words, env = command(sealed, path)
    started = time.perf_counter()
    done = subprocess.run(words, env=env, capture_output=True, text=True, timeout=300, stdin=subprocess.DEVNULL)
    seconds = time.perf_counter() - started
    if done.returncode != 0:
        sys.exit(f"demo: the {'sealed' if sealed else 'plain'} run ended with status {done.returncode}:\n{done.stderr}")
    return done.stdout, seconds


def look_at(capture: Path, lines: list[bytes]) -> dict[str, Any]:
    """What somebody who listened could read: which patients' lines are in which packets."""
    wanted = set(lines)
    seen: set[bytes] = set()
    strip: list[bool] = []
    total = 0
    excerpt = b""
    for payload in payloads(capture):
        total += len(payload)
        found = wanted.intersection(payload.split(b"\n"))
        seen |= found
        strip.append(bool(found))
        if found and not excerpt:
            start = payload.find(next(iter(sorted(found, key=payload.find))))
            excerpt = payload[start : start + 400]
    if not excerpt:
        # Nothing readable: the middle of the largest packet, as good as any other.
        largest = max(payloads(capture), key=len, default=b"")
        middle = len(largest) // 2
        excerpt = largest[middle : middle + 400]
    return {
        "packets": len(strip),
        "readable packets": sum(strip),
        "bytes": total,
        "patients": len(wanted),
        "patients read": len(seen),
        "strip": strip,
        "excerpt": excerpt.hex(),
    }


def inside() -> None:
    """What runs in the namespace: one captured run each, then timed runs in turn."""
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    path = patients_file()
    lines = records(path)
    report: dict[str, Any] = {}
    for sealed in (False, True):
        name = "sealed" if sealed else "plain"
        capture = OUT / f"{name}.pcap"
        with Capture("lo", capture):
            output, _ = run(sealed, path)
        report[name] = {"output": output, **look_at(capture, lines)}
    times: dict[str, list[float]] = {"plain": [], "sealed": []}
    for turn in range(ROUNDS):
        for name in ("plain", "sealed") if turn % 2 else ("sealed", "plain"):
            times[name].append(run(name == "sealed", path)[1])
    for name in times:
        report[name]["seconds"] = times[name]
    (OUT / "demo.json").write_text(json.dumps(report))


def show(report: dict[str, Any]) -> bool:
    plain, sealed = report["plain"], report["sealed"]
    same = plain["output"] == sealed["output"]
    fastest = [min(run["seconds"]) for run in (plain, sealed)]
    print(plain["output"])
    print(f"{'':38}{'plain':>14}{'sealed':>14}")
    rows = [
        ("the same hazard ratios, to the last digit", "", "yes" if same else "NO"),
        ("packets with data", f"{plain['packets']:,}", f"{sealed['packets']:,}"),
        ("packets with readable patient records", f"{plain['readable packets']:,}", f"{sealed['readable packets']:,}"),
        (f"patients read, of {plain['patients']:,}", f"{plain['patients read']:,}", f"{sealed['patients read']:,}"),
        (f"seconds, best of {ROUNDS}", f"{fastest[0]:.2f}", f"{fastest[1]:.2f}"),
        ("time, sealed / plain", "", f"{fastest[1] / fastest[0]:.2f}"),
    ]
    for label, left, right in rows:
        print(f"{label:42}{left:>10}{right:>14}")
    print(f"\npicture: {(OUT / 'demo.png').relative_to(ROOT)}, captures: build/demo/plain.pcap and sealed.pcap")
    return same and sealed["patients read"] == 0 and plain["patients read"] > 0


def main() -> None:
    if INSIDE in sys.argv:
        inside()
        return
    OUT.mkdir(parents=True, exist_ok=True)
    patients_file()
    unshare = shutil.which("unshare")
    if unshare is None or shutil.which("ip") is None:
        sys.exit("demo: unshare (util-linux) and ip (iproute2) are needed, to capture the job's traffic and no other")
    namespace = [unshare, "--net"] if os.geteuid() == 0 else [unshare, "--user", "--map-root-user", "--net"]
    done = subprocess.run([*namespace, "--", sys.executable, __file__, INSIDE])
    if done.returncode != 0:
        sys.exit(
            "demo: the runs did not succeed (see above). If unshare was refused, this machine does not let users make "
            "network namespaces: run make demo as root."
        )
    report = json.loads((OUT / "demo.json").read_text())
    picture.draw(report, OUT / "demo")
    if not show(report):
        sys.exit("demo: the sealed run is not what it should be: see the table")


if __name__ == "__main__":
    main()
