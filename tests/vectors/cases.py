"""The cases of the vectors: for every file what it shows, and what is given.

`python3 tests/vectors/cases.py` writes the files anew, after a change of the key schedule that was meant.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
if __name__ == "__main__":
    sys.path.insert(0, str(ROOT / "tests"))

from vectors.reference import Given, answer, card_mac, encode_card, public_key  # noqa: E402

DIRECTORY = ROOT / "vectors"


@dataclass(frozen=True)
class Case:
    """One file."""

    path: str
    shows: str
    operation: str
    given: Given

    def document(self) -> dict[str, Any]:
        expected = answer(self.operation, self.given)
        return {"shows": self.shows, "operation": self.operation, "given": self.given, "expect": expected}


def run(first: int, length: int) -> str:
    """Bytes that count up: long enough to show an exchange of any two."""
    return bytes((first + at) % 256 for at in range(length)).hex()


JOB: Given = {"job_id": run(0x10, 16), "job_secret": run(0x20, 32)}
PAIR: Given = JOB | {
    "policy_hash": run(0x40, 32),
    "suite": "aes-256-gcm",
    "own_seed": run(0x60, 32),
    "peer_seed": run(0x80, 32),
    "partition": None,
}
CLINIC: Given = {"name": "clinic", "epoch": 7, "secret": run(0xA0, 32)}
KEY: Given = {"suite": "aes-256-gcm", "key": run(0, 32), "iv": run(0xC0, 12)}
KEY_128: Given = {"suite": "aes-128-gcm", "key": run(0, 16), "iv": run(0xC0, 12)}
CARD: Given = JOB | {
    "ip": "10.77.0.1",
    "port": 40000,
    "public_key": public_key(run(0x60, 32)).hex(),
    "rank": 3,
    "host": 1,
}


def aead() -> Iterator[Case]:
    def seal(name: str, shows: str, key: Given, sequence: int, data: str, plain: str) -> Case:
        given = key | {"sequence": sequence, "associated_data": data, "plain": plain}
        return Case(f"aead/{name}.json", shows, "seal", given)

    yield seal("first-record", "Sequence 0 leaves the IV as the nonce.", KEY, 0, run(1, 24), run(2, 40))
    yield seal("aes-128", "The other suite has a key of 16 bytes.", KEY_128, 1, run(1, 24), run(2, 40))
    yield seal("empty", "A record without bytes has a tag all the same.", KEY, 2, "", "")
    yield seal("region-in-clear", "GMAC: nothing is sealed, the region is the data.", KEY, 3, run(5, 100), "")
    yield seal(
        "payload-nonce", "The top bit of the sequence gives a record a second nonce.", KEY, 1 << 63, "", run(7, 33)
    )
    yield seal("last-sequence", "All 64 bits of the sequence reach the nonce.", KEY, 2**64 - 1, run(8, 5), run(9, 16))
    yield seal(
        "many-blocks", "Past the strides of every implementation.", KEY, 0x0102030405060708, run(1, 77), run(3, 1037)
    )
    sealed = answer("seal", KEY | {"sequence": 9, "associated_data": run(1, 24), "plain": run(2, 40)})
    good = KEY | {"sequence": 9, "associated_data": run(1, 24), "sealed": sealed["sealed"], "tag": sealed["tag"]}
    yield Case("aead/opens.json", "What was sealed opens.", "open", good)
    altered = good | {"tag": f"{int(sealed['tag'], 16) ^ 1:032x}"}
    yield Case("aead/refused-tag.json", "One bit of the tag is wrong.", "open", altered)
    yield Case("aead/refused-sequence.json", "Sealed as record 9, shown as record 10.", "open", good | {"sequence": 10})
    altered = good | {"associated_data": run(1, 23)}
    yield Case("aead/refused-data.json", "The associated data lost a byte.", "open", altered)


def card() -> Iterator[Case]:
    def encode(name: str, shows: str, **changes: Any) -> Case:
        return Case(f"card/{name}.json", shows, "encode card", CARD | changes)

    def decode(name: str, shows: str, card: str, job: Given = JOB) -> Case:
        return Case(f"card/{name}.json", shows, "decode card", job | {"card": card})

    yield encode("ipv4", "An IPv4 address stands in front of twelve zeros.")
    yield encode("ipv6", "An IPv6 address takes all sixteen bytes.", ip="2001:db8::77:1")
    yield encode("rank-unknown", "A rank that is not known is all ones.", rank=None)
    yield encode("last-rank-host-and-port", "The largest of everything.", rank=0xFFFFFE, host=0xFFFF, port=0xFFFF)
    good = encode_card(CARD)["card"]
    yield decode("decodes", "A card says what was encoded.", good)
    other = JOB | {"job_secret": run(0x21, 32)}
    yield decode("refused-other-secret", "The card of a job with another secret.", good, other)
    yield decode(
        "refused-other-job", "The card of another job with the same secret.", good, JOB | {"job_id": run(0x11, 16)}
    )
    yield decode("refused-altered-port", "The port was changed on the way.", good[:5] + "1" + good[6:])
    yield decode("refused-too-short", "A card without its last byte.", good[:-2])

    def vouched(content: bytes) -> str:
        return (content + card_mac(JOB, content)).hex()

    content = bytes.fromhex(good)[:56]
    yield decode("malformed-version", "Version 2, with a right MAC.", vouched(b"\x24" + content[1:]))
    yield decode("malformed-family", "Neither 4 nor 6, with a right MAC.", vouched(b"\x15" + content[1:]))
    padded = content[:18] + b"\x01" + content[19:]
    yield decode("malformed-padding", "A byte behind the IPv4 address, with a right MAC.", vouched(padded))


def key_schedule() -> Iterator[Case]:
    def pair(name: str, shows: str, **changes: Any) -> Case:
        given = PAIR | changes
        if "peer_public" in changes:
            del given["peer_seed"]
        return Case(f"key_schedule/{name}.json", shows, "pair", given)

    yield pair("pair", "Two endpoints without a partition.")
    yield pair("other-end", "The same pair seen from its other end.", own_seed=run(0x80, 32), peer_seed=run(0x60, 32))
    yield pair("partition", "A partition both belong to, at its epoch 7.", partition=CLINIC)
    yield pair("partition-epoch", "The partition's next epoch, with the same secret.", partition=CLINIC | {"epoch": 8})
    yield pair("aes-128", "The suite is in every key.", suite="aes-128-gcm")
    yield pair("other-policy", "Two ends with another policy have other keys.", policy_hash=run(0x41, 32))
    own = public_key(run(0x60, 32))
    yield pair("refused-own-key", "Reflection: the peer's key is our own.", peer_public=own.hex())
    spelling = own[:31] + bytes([own[31] | 0x80])
    yield pair(
        "refused-own-key-respelled", "Our own key with the bit set that X25519 ignores.", peer_public=spelling.hex()
    )
    yield pair("refused-zero", "The point of order 2, whose secret is all zero.", peer_public=bytes(32).hex())
    order_8 = "e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800"
    yield pair("refused-order-8", "A point of order 8, whose secret is all zero.", peer_public=order_8)
    given = CLINIC | {"job_id": JOB["job_id"]}
    yield Case("key_schedule/partition-key.json", "What a job gets of a partition.", "partition", given)
    given = JOB | {"pid": 4711, "rank": 3}
    yield Case("key_schedule/registration.json", "A rank proves that it has the job's secret.", "registration", given)


def epoch() -> Iterator[Case]:
    def case(name: str, shows: str, number: int, protection: str, sequence: int, **changes: Any) -> Case:
        content = {"associated_data": run(1, 24), "plain": run(2, 40) if protection == "privacy" else ""}
        given = PAIR | {"epoch": number, "protection": protection, "sequence": sequence} | content | changes
        return Case(f"epoch/{name}.json", shows, "epoch", given)

    yield case("first", "The epoch that every session begins with.", 0, "privacy", 0)
    yield case("next", "Another key and IV; the sequence goes on.", 1, "privacy", 1 << 32)
    yield case("last", "The last epoch there is.", 2**32 - 1, "privacy", (1 << 63) - 1)
    yield case("integrity", "Integrity has a key of its own.", 0, "integrity", 0)
    yield case("aes-128", "A shorter key; the IV stands where it stood.", 0, "privacy", 0, suite="aes-128-gcm")
    yield case("partition", "Of a pair in a partition.", 2, "privacy", 5, partition=CLINIC)


CASES = [*aead(), *card(), *key_schedule(), *epoch()]


def main() -> None:
    for case in CASES:
        path = DIRECTORY / case.path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(case.document(), indent=2) + "\n")


if __name__ == "__main__":
    main()
