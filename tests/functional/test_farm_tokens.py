"""What goes to workers and comes back is what it was, whatever goes beside its pickle."""

from __future__ import annotations

from pathlib import Path

from harness.python import Package


def test_long_bytes_go_beside_the_pickle_and_come_back_as_bytes(package: Package, tmp_path: Path) -> None:
    program = """
import json, os
from gambeson import farm
from gambeson.farm._token import LONG, Token

def same(x): return x
def kind(x): return type(x).__name__

class Own(bytes): pass

long, longer = os.urandom(LONG), os.urandom(5 * LONG)
items = [long, b"", longer, 7, long[1:], [longer], bytearray(long), long, Own(long)]
with farm.Manager(same, parallelism=1) as manager:
    checks = [manager.compute(items) == items, manager.compute(items[::-1]) == items[::-1]]
with farm.Manager(kind, parallelism=1) as manager:
    kinds = manager.compute(items)
token = Token.of([long, longer, long])
back = token.items()
sizes = [memoryview(part).nbytes for part in token.parts]
checks += [back == [long, longer, long], back[0] is back[2], sizes[1:] == [LONG, 5 * LONG], sizes[0] < 200]
print(json.dumps([checks, kinds]))
"""
    checks, kinds = package.run(program, tmp_path)
    assert all(checks), checks
    assert kinds == ["bytes", "bytes", "bytes", "int", "bytes", "list", "bytearray", "bytes", "Own"]
