"""A program that others attach to by name, while it runs.

    sh keys.sh           # once: certificates for both programs
    python model.py      # here, and in another terminal:
    python coupler.py

It knows nobody's key and nobody's address: an authority says who is a coupler, and couplers get a startpoint.
"""

import itertools
import sys
from pathlib import Path

from gambeson import link

HEAT, STOP = 0, 1


def main(listen: str = "127.0.0.1:4747") -> None:
    identity = link.Identity.from_pem(Path("model.pem").read_bytes(), Path("model.key").read_bytes())
    trust = link.Trust().authorities(Path("authority.pem").read_bytes())
    with link.Domain(identity, trust, listen=[listen]) as domain:
        steps = itertools.count(1)

        def heat(request: link.Request) -> bytes:
            print(f"{request.peer.name} brings {request.payload.decode()} joules")
            return b"step %d" % next(steps)

        # Who attaches may call HEAT and nothing else.
        endpoint = domain.endpoint({HEAT: heat, STOP: lambda _: sys.exit("nobody can")})
        endpoint.publish("model/ocean", ["coupler"], link.Caveat.methods([HEAT]))
        print(f"model/ocean is published at {domain.listening[0]}; Enter ends it", flush=True)
        sys.stdin.readline()


if __name__ == "__main__":
    main(*sys.argv[1:])
