"""Writes neighbours.goal: eight ranks that exchange with two neighbours, and now and then with everybody."""

from pathlib import Path

RANKS, ROUNDS, BYTES, COMPUTE_NS = 8, 12, 4096, 20_000


def rank(me: int) -> list[str]:
    lines = [f"rank {me} {{"]
    before: list[str] = []
    for number in range(ROUNDS):
        neighbours = {(me + 1) % RANKS, (me - 1) % RANKS}
        peers = neighbours if number % 4 else set(range(RANKS)) - {me}
        lines.append(f"c{number}: calc {COMPUTE_NS}")
        lines += [f"c{number} requires {label}" for label in before]
        before = []
        for peer in sorted(peers):
            lines.append(f"r{number}x{peer}: recv {BYTES}b from {peer} tag {number}")
            lines.append(f"s{number}x{peer}: send {BYTES}b to {peer} tag {number}")
            lines.append(f"s{number}x{peer} requires c{number}")
            before += [f"r{number}x{peer}", f"s{number}x{peer}"]
    return [*lines, "}"]


lines = [f"num_ranks {RANKS}", *(line for me in range(RANKS) for line in rank(me))]
(Path(__file__).parent / "neighbours.goal").write_text("\n".join(lines) + "\n")
