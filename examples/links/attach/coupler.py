"""Attaches to model.py, which runs in another terminal, by the name of what it publishes.

    python coupler.py            # as a coupler
    python coupler.py visitor    # as somebody whom the name is not for

Of the model it knows where it runs and that it must prove to be a model: nobody else who listens there is talked to.
"""

import sys
from pathlib import Path

from gambeson import link

HEAT, STOP = 0, 1


def main(who: str = "coupler", address: str = "127.0.0.1:4747") -> None:
    identity = link.Identity.from_pem(Path(f"{who}.pem").read_bytes(), Path(f"{who}.key").read_bytes())
    trust = link.Trust().authorities(Path("authority.pem").read_bytes())
    with link.Domain(identity, trust) as domain, domain.attach(address, "model/ocean", role="model") as ocean:
        for joules in (5, 7):
            print("the model is at", ocean.call(HEAT, b"%d" % joules, timeout=5).decode())
        try:
            ocean.call(STOP, b"", timeout=5)
        except link.HandlerRefused as refused:
            print("and what was not published:", refused)


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except link.Error as error:
        sys.exit(f"coupler: {error}")
