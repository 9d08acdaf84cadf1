"""Reads what providers with the feature `nonce-oracle` wrote, and looks for a key that met a nonce twice.

python -m security.nonces FOLDER
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path

USE = 32
"""Bytes of one use, as crates/gambeson-proto/src/nonce_oracle.rs has them: key's hash 16, nonce 12, payload 4."""
NONCE_END = 28


@dataclass
class Uses:
    """How keys were used, over all processes of a job."""

    records: dict[int, int] = field(default_factory=dict)
    """By process: how many records were sealed, which is how many envelopes."""
    payloads: int = 0
    """Payloads that have a nonce of their own."""
    keys: set[bytes] = field(default_factory=set)
    twice: list[str] = field(default_factory=list)
    """Where a use stands that had been there before."""

    @property
    def total(self) -> int:
        return sum(self.records.values()) + self.payloads


def read(folder: Path) -> Uses:
    """All files of a folder, which ends in the middle of no use."""
    uses = Uses()
    seen: set[bytes] = set()
    for path in sorted(folder.glob("nonces-*")):
        content = path.read_bytes()
        assert len(content) % USE == 0, f"{path} ends in the middle of an entry"
        records = 0
        for at in range(0, len(content), USE):
            use = content[at : at + NONCE_END]
            if use in seen:
                uses.twice.append(f"{path.name}, entry {at // USE}: key {use[:16].hex()}, nonce {use[16:].hex()}")
            seen.add(use)
            uses.keys.add(use[:16])
            payload = int.from_bytes(content[at + NONCE_END : at + USE], "little")
            assert payload in (0, 1), f"{path}, entry {at // USE}: {payload} is no kind of nonce"
            uses.payloads += payload
            records += 1 - payload
        uses.records[int(path.name.removeprefix("nonces-"))] = records
    return uses


def main() -> int:
    uses = read(Path(sys.argv[1]))
    print(
        f"{len(uses.records)} processes, {uses.total} nonces ({uses.payloads} of payloads), {len(uses.keys)} keys, "
        f"{len(uses.twice)} used twice"
    )
    print("\n".join(uses.twice[:20]), end="\n" if uses.twice else "")
    return 1 if uses.twice or not uses.total else 0


if __name__ == "__main__":
    sys.exit(main())
