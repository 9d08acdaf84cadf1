"""The cases of the vectors: for every file what it shows, and what is given.

`python3 tests/vectors/cases.py` writes the files anew, after a change of the key schedule that was meant.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
if __name__ == "__main__":
    sys.path.insert(0, str(ROOT / "tests"))

from vectors.directory import sign_directory, verify_directory  # noqa: E402
from vectors.key_file import (  # noqa: E402
    open_export,
    open_journal_entry,
    seal_journal_entry,
    seal_key_file,
    use_label,
    wrap_data_key,
)
from vectors.master_key import MAC, SEAL, master_key_file, unwrap_by_file, wrap  # noqa: E402
from vectors.reference import OPERATIONS, Expected, Given, Refused, card_mac, encode_card, public_key  # noqa: E402
from vectors.sealed_file import offsets, read_header, sealed_file, share, signing_key  # noqa: E402
from vectors.staging import frame, read_frame, stage, staged  # noqa: E402
from vectors.startpoint import admit, decode_startpoint, link, startpoint  # noqa: E402

DIRECTORY = ROOT / "vectors"
Alter = Callable[[bytes], bytes]
STARTPOINT_OPERATIONS = {
    "startpoint": startpoint,
    "decode startpoint": decode_startpoint,
    "link": link,
    "admit": admit,
}
FILE_OPERATIONS = {
    "share": share,
    "sealed file": sealed_file,
    "offsets": offsets,
    "read header": read_header,
}
DIRECTORY_OPERATIONS = {"sign directory": sign_directory, "verify directory": verify_directory}
STAGING_OPERATIONS = {"stage": stage, "staged": staged, "frame": frame, "read frame": read_frame}
KEY_FILE_OPERATIONS = {
    "open export": open_export,
    "use label": use_label,
    "open journal entry": open_journal_entry,
    "unwrap by a master key": unwrap_by_file,
}


def answer(operation: str, given: Given) -> Expected:
    try:
        sites = DIRECTORY_OPERATIONS | FILE_OPERATIONS | KEY_FILE_OPERATIONS | STAGING_OPERATIONS
        return (OPERATIONS | STARTPOINT_OPERATIONS | sites)[operation](given)
    except Refused as refused:
        return {"refused": str(refused)}


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
    nonces = {"client_nonce": run(0xA0, 16), "server_nonce": run(0xB0, 16), "received": 2**40 + 7}
    given = {"exported": run(0x90, 32)} | nonces
    yield Case("key_schedule/session.json", "A session of links between domains of no job.", "session", given)
    yield Case("key_schedule/session-of-job.json", "A session whose ends are of one job.", "session", JOB | given)


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


OWNER, ALICE, BOB, MALLORY = (run(first, 32) for first in (0x01, 0x31, 0x61, 0x91))
TO_ALICE = {"copy": {"id": run(0x71, 16), "holder_seed": ALICE}}
TO_BOB = {"copy": {"id": run(0x81, 16), "holder_seed": BOB}}
STARTPOINT: Given = {
    "owner_seed": OWNER,
    "endpoint": 7,
    "endpoint_key": run(0xA1, 32),
    "root": run(0xC1, 16),
    "class": "control",
    "transforms": [],
    "addresses": [["tcp", "10.77.0.1:4000"], ["shm", "h1/solver"]],
    "mint": [],
    "steps": [],
}
NARROW = [
    {"methods": [1, 2, 0xFFFFFFFF]},
    {"expires": 2_000_000_000},
    {"uses": 100},
    {"memory": [[3, 4096, 8192, "rw"], [4, 0, 1, "r"]]},
    {"protection": "integrity"},
]
LINK: Given = STARTPOINT | {
    "exporter": run(0x20, 32),
    "job_id": run(0x10, 16),
    "policy_hash": run(0x40, 32),
    "suite": "aes-256-gcm",
    "opener_seed": ALICE,
    "partition": None,
    "nonce": run(0xE1, 16),
    "protection": "privacy",
}
ADMIT: Given = LINK | {"now": 1_900_000_000, "floor": "none"}


def startpoints() -> Iterator[Case]:
    def make(name: str, shows: str, **changes: Any) -> Case:
        return Case(f"startpoint/{name}.json", shows, "startpoint", STARTPOINT | changes)

    def decode(name: str, shows: str, data: bytes) -> Case:
        return Case(f"startpoint/{name}.json", shows, "decode startpoint", {"startpoint": data.hex()})

    yield make("bearer", "As its owner makes it: nobody's, and without memory.")
    yield make("minted-narrow", "Narrow from the start.", mint=NARROW)
    yield make("narrowed", "Narrowed by whoever bears it.", steps=NARROW)
    yield make("copy", "The first copy, which nobody held before.", steps=[TO_ALICE])
    steps = [TO_ALICE, {"uses": 3}, TO_BOB, {"methods": []}]
    yield make("copy-of-a-copy", "Its first holder vouches for the second.", steps=steps)
    yield make("no-address", "Its owner is to be found by other ways.", addresses=[])
    yield make("transforms", "Its links have two transform modules.", transforms=["zstd", "mask"], steps=[TO_ALICE])
    good = bytes.fromhex(startpoint(STARTPOINT | {"mint": NARROW, "steps": [TO_ALICE]})["startpoint"])
    yield decode("decodes", "A startpoint says what was encoded.", good)
    yield decode("refused-version", "Of version 2.", b"\2" + good[1:])
    yield decode("refused-cut-short", "Without its last byte.", good[:-1])
    yield decode("refused-too-long", "With a byte behind it.", good + b"\0")
    yield decode("refused-no-secret", "A secret of zeros, as wiped memory has.", good[:-32] + bytes(32))
    yield decode("refused-space-in-class", "A class with a space in it.", good.replace(b"control", b"con rol"))
    stacked = bytes.fromhex(startpoint(STARTPOINT | {"transforms": ["zstd", "mask"]})["startpoint"])
    yield decode("decodes-transforms", "The modules in their order.", stacked)
    yield decode("refused-empty-transform", "A module without a name.", stacked.replace(b"zstd,mask", b"zstd,,ask"))
    yield decode("refused-space-in-transform", "A module with a space in it.", stacked.replace(b"zstd,", b"zs d,"))
    head = good[: good.index(b"h1/solver") + 9]

    def caveats(count: int, *parts: bytes) -> bytes:
        return head + bytes([count]) + b"".join(parts) + bytes.fromhex(run(1, 32))

    yield decode("refused-unknown-caveat", "A caveat of kind 7.", caveats(1, b"\7\0\0"))
    yield decode(
        "refused-unsorted-methods", "Handlers out of order.", caveats(1, b"\1\0\x08" + bytes([0, 0, 0, 2] * 2))
    )
    window = (2**64 - 1).to_bytes(8, "big")
    overflow = b"\4\0\x19" + bytes(8) + window + window + b"\1"
    yield decode("refused-region-overflow", "A window that ends behind all memory.", caveats(1, overflow))
    yield decode("refused-17-caveats", "One caveat too many.", caveats(17, *[b"\5\0\1\1"] * 17))
    yield decode(
        "refused-too-many-bytes",
        "Few caveats, but long ones.",
        caveats(3, *[b"\4" + (450).to_bytes(2, "big") + (bytes(23) + b"\1\1") * 18] * 3),
    )


def links() -> Iterator[Case]:
    def opens(name: str, shows: str, **changes: Any) -> Case:
        return Case(f"link/{name}.json", shows, "link", LINK | changes)

    def admits(name: str, shows: str, opened: Given, judged: Given | None = None, alter: Alter = bytes) -> Case:
        activation = alter(bytes.fromhex(link(LINK | opened)["activation"]))
        given = ADMIT | opened | (judged or {}) | {"activation": activation.hex()}
        return Case(f"link/{name}.json", shows, "admit", given)

    yield opens("bearer", "A startpoint that nobody holds.")
    yield opens("holder", "A copy, opened by the one it is for.", mint=NARROW, steps=[TO_ALICE])
    yield opens("second-holder", "A copy of a copy.", steps=[TO_ALICE, NARROW[0], TO_BOB], opener_seed=BOB)
    yield opens("aes-128", "The suite is in every key.", suite="aes-128-gcm")
    yield opens("integrity", "The protection is in every key.", protection="integrity")
    yield opens("partition", "Both ends in a partition.", partition=CLINIC)
    yield opens("transforms", "The modules are in every key.", transforms=["zstd", "mask"])
    yield opens("to-itself", "A domain that opens a link to itself has two directions still.", opener_seed=OWNER)

    mine: Given = {"mint": NARROW, "steps": [TO_ALICE, {"uses": 3}, {"methods": [1]}]}
    yield admits("admitted", "A holder's activation.", mine)

    # The layout: the number of caveats is byte 50; the last two take 11 and 7 bytes and end before a proof of 16.
    def without(data: bytes, first: int, end: int) -> bytes:
        return data[:50] + bytes([data[50] - 1]) + data[51:first] + data[end:]

    def swapped(data: bytes) -> bytes:
        return data[:-34] + data[-23:-16] + data[-34:-23] + data[-16:]

    yield admits("refused-stripped", "The last caveat was left out.", mine, alter=lambda data: without(data, -23, -16))
    yield admits(
        "refused-stripped-inside", "The last but one was left out.", mine, alter=lambda data: without(data, -34, -23)
    )
    yield admits("refused-reordered", "The last two changed places.", mine, alter=swapped)
    yield admits(
        "refused-altered", "Nine uses in place of three.", mine, alter=lambda data: data[:-24] + b"\x09" + data[-23:]
    )
    yield admits("refused-other-session", "What opened a link in another session.", mine, {"exporter": run(0x21, 32)})
    yield admits("refused-other-policy", "The endpoint follows another policy.", mine, {"policy_hash": run(0x41, 32)})
    yield admits("refused-other-class", "The endpoint's links are of another class.", mine, {"class": "data"})
    yield admits(
        "refused-other-transforms", "Opened as if there were no module.", mine, {"transforms": ["zstd", "mask"]}
    )
    stacked: Given = mine | {"transforms": ["zstd", "mask"]}
    yield admits("admitted-transforms", "The modules as the endpoint has them.", stacked)
    yield admits("refused-reordered-transforms", "In another order.", stacked, {"transforms": ["mask", "zstd"]})
    yield admits("refused-unknown", "A startpoint of another root.", mine, {"root": run(0xC2, 16)})
    yield admits("refused-malformed", "A byte behind the proof.", mine, alter=lambda data: data + b"\0")
    yield admits(
        "refused-number",
        "A number that is the other end's to use.",
        mine,
        alter=lambda data: data[:8] + b"\2" + data[9:],
    )
    yield admits("refused-thief", "Alice's copy, in a session of somebody else.", mine | {"opener_seed": MALLORY})
    stolen = {"copy": {"id": run(0x91, 16), "holder_seed": MALLORY, "signer_seed": MALLORY}}
    thief: Given = {"steps": [TO_ALICE, stolen], "opener_seed": MALLORY}
    yield admits("refused-thief-copies", "A thief vouches for the copy that he made for himself.", thief)
    silent: Given = {"steps": [TO_ALICE, stolen | {"copy": stolen["copy"] | {"signer_seed": None}}]}
    yield admits(
        "refused-copied-silently", "A copy of a copy that nobody vouches for.", silent | {"opener_seed": MALLORY}
    )
    yield admits("refused-expired", "The second at which it expires.", mine, {"now": 2_000_000_000})
    yield admits("refused-unprotected", "In clear, though a caveat wants integrity.", mine | {"protection": "none"})
    yield admits(
        "refused-by-policy",
        "Integrity, though the policy wants privacy.",
        mine | {"protection": "integrity"},
        {"floor": "privacy"},
    )


ISSUED, EXPIRES = 1_795_294_330, 1_797_886_330
SITE: Given = {
    "site_seed": run(0x11, 32),
    "issued": ISSUED,
    "expires": EXPIRES,
    "text": """
[[host]]
name = "Ocean1"
addresses = ["10.1.0.1"]
transports = ["shm", "libfabric", "tcp"]
authentication = ["job", "pinned"]

[[host]]
name = "sky.site"
transports = ["tcp"]
authentication = ["certificate"]
attach = { addresses = ["10.1.0.7:4000"], role = "model" }

[[network]]
subnet = "10.9.0.0/16"
protection = "privacy"
""",
}


def directories() -> Iterator[Case]:
    def sign(name: str, shows: str, **changes: Any) -> Case:
        return Case(f"directory/{name}.json", shows, "sign directory", SITE | changes)

    def verify(name: str, shows: str, signed: Given, **changes: Any) -> Case:
        given = {"site_key": site["site_key"], "directory": signed["directory"], "now": ISSUED, "seen": 0}
        return Case(f"directory/{name}.json", shows, "verify directory", given | changes)

    site = answer("sign directory", SITE)
    other = answer("sign directory", SITE | {"site_seed": run(0x12, 32)})
    text = site["directory"]
    yield sign("signed", "Its times in front, and its signature at the end.")
    yield sign("signed-empty", "A site that says nothing of anybody.", text="")
    yield verify("verified", "In the second in which it is issued.", site)
    yield verify("verified-last-second", "In the last second before it expires.", site, now=EXPIRES - 1, seen=ISSUED)
    yield verify("verified-clock-behind", "By a clock that is five minutes behind.", site, now=ISSUED - 300)
    yield verify("refused-early", "By a clock that is further behind.", site, now=ISSUED - 301)
    yield verify("refused-stale", "In the second in which it expires.", site, now=EXPIRES)
    yield verify("refused-rolled-back", "One was seen that was issued a second later.", site, seen=ISSUED + 1)
    yield verify("refused-other-key", "Signed by another site.", other)
    yield verify("refused-altered", "A network less.", {"directory": text.replace("10.9.0.0/16", "10.8.0.0/16")})
    yield verify("refused-unsigned", "Without its last line.", {"directory": text[: text.rindex("# signature")]})
    short = {"directory": text[:-3] + "\n"}
    yield verify("refused-short-signature", "A signature of 63 bytes.", short)
    nonsense = answer("sign directory", SITE | {"text": "[[host]\n"})
    yield verify("refused-senseless", "Signed, and no TOML.", nonsense)


SHARE: Given = {
    "suite": "xaes-256-gcm",
    "key": run(0x20, 32),
    "file": run(0xF0, 16),
    "region": 0,
    "epoch": 0,
    "block": 5,
    "generation": 7,
    "nonce": run(0x80, 24),
    "plain": run(1, 40),
}
SMALL: Given = {
    "block_len": 4096,
    "header_len": 4096,
    "shares": 1,
    "group_blocks": 2,
    "groups": 2,
    "two_slots": False,
    "detached": False,
}
CLINICAL: Given = {"name": "clinical", "version": 1, "seed": run(0x31, 32)}
RESEARCH: Given = {"name": "research", "version": 4, "seed": run(0x51, 32)}


def wrapped(epoch: int, label: int, first: int) -> Given:
    """The wrapped key is the key store's: any bytes here."""
    return {"epoch": epoch, "label": label, "key": run(first, 32), "wrapped": run(first + label + 1, 72)}


def region(*keys: Given, suite: str = "xaes-256-gcm", parts: list[Given] | None = None) -> Given:
    return {"suite": suite, "keys": list(keys), "parts": parts or []}


def piece_of(block: int, length: int, first: int, **more: Any) -> Given:
    write: Given = {"block": block, "region": 0, "length": length, "epoch": 0, "generation": 3, "nonce": run(first, 24)}
    return write | more


FILE: Given = {
    "file": run(0xF0, 16),
    "geometry": SMALL,
    "labels": [CLINICAL],
    "regions": [region(wrapped(0, 0, 0x40))],
    "state": {"serial": 6, "generation": 3, "status": "closed", "size": 4796, "closed": 3, "base": 3},
    "signer": 0,
    "copy": "A",
    "writes": [piece_of(0, 4096, 0x61), piece_of(1, 700, 0x71)],
}
COLUMNS: list[Given] = [{"displacement": 100, "extent": 48, "pieces": [[0, 16], [20, 4]]}]
FAR = 2**63 - 1


def files() -> Iterator[Case]:
    def one(name: str, shows: str, **changes: Any) -> Case:
        return Case(f"file/share-{name}.json", shows, "share", SHARE | changes)

    def whole(name: str, shows: str, **changes: Any) -> Case:
        return Case(f"file/{name}.json", shows, "sealed file", FILE | changes)

    def state(**changes: Any) -> Given:
        return FILE["state"] | changes

    yield one("xaes", "A key for each nonce.")
    yield one("xaes-one-byte", "The shortest share.", plain="07")
    yield one("xaes-place", "Region, block, generation and epoch are authenticated.", region=3, block=2**40, epoch=2)
    yield one("siv", "The first half of the nonce.", suite="aes-256-gcm-siv")
    yield one("xts", "Twelve bytes more than whole AES blocks have.", suite="aes-256-xts", plain=run(1, 44))
    yield one("xts-short", "Less than one AES block.", suite="aes-256-xts", plain=run(1, 5))

    yield whole("one-region", "A block and a short last one.")
    yield whole("empty", "Nothing was written yet.", writes=[], state=state(size=0), copy="B")
    yield whole(
        "holes",
        "In the second chapter: what is before it, and the end, were never written.",
        state=state(size=5 * 4096 + 600),
        writes=[piece_of(5, 50, 0x61)],
    )
    yield whole(
        "open",
        "A session that was never closed: its block has an entry that is not anchored.",
        state=state(generation=4, status="open", serial=7),
        writes=[piece_of(0, 60, 0x61), piece_of(1, 90, 0x71, generation=4, anchored=False)],
    )
    for suite in ("aes-256-gcm-siv", "aes-256-xts"):
        regions = [region(wrapped(0, 0, 0x40), suite=suite)]
        writes = [piece_of(0, 100, 0x61), piece_of(1, 7, 0x71)]
        yield whole(suite, "Another suite.", regions=regions, writes=writes)
    sealed, columns = region(wrapped(0, 0, 0x40)), region(wrapped(0, 1, 0x50), parts=COLUMNS)
    both: Given = {"labels": [CLINICAL, RESEARCH], "geometry": SMALL | {"shares": 2}, "regions": [sealed, columns]}
    yield whole(
        "two-regions",
        "Columns of the second label, the rest of the first; one share has a hole's entry.",
        **both,
        signer=1,
        writes=[piece_of(0, 200, 0x61), piece_of(0, 120, 0x81, region=1), piece_of(1, 33, 0x91, region=1)],
    )
    behind = region(wrapped(0, 1, 0x50), parts=[COLUMNS[0] | {"displacement": 4804}])
    strip: list[Given] = [{"displacement": 0, "extent": FAR, "pieces": [[4000, 200]]}]
    yield whole(
        "plain-between",
        "A plain region across two blocks has no entry, and stands behind the sealed shares.",
        **both | {"regions": [sealed, behind, region(parts=strip)]},
        writes=[
            piece_of(0, 50, 0x61),
            piece_of(0, 96, 0, region=2),
            piece_of(1, 104, 0, region=2),
            piece_of(1, 60, 0x91, region=1),
        ],
    )
    yield whole(
        "plain-rest",
        "The rest is plain, by decision; everything from byte 4500 on is sealed.",
        labels=[RESEARCH],
        regions=[
            region(),
            region(wrapped(0, 0, 0x50), parts=[{"displacement": 4500, "extent": 1, "pieces": [[0, 1]]}]),
        ],
        writes=[piece_of(0, 80, 0), piece_of(1, 70, 0), piece_of(1, 50, 0x61, region=1)],
    )
    yield whole(
        "epochs",
        "Two labels can open the second epoch, one the first; a share says under which it was sealed.",
        labels=[CLINICAL, RESEARCH],
        regions=[region(wrapped(0, 0, 0x40), wrapped(1, 0, 0x50), wrapped(1, 1, 0x50))],
        writes=[piece_of(0, 64, 0x61), piece_of(1, 65, 0x71, epoch=1)],
    )
    yield whole(
        "two-slots",
        "What the last close anchored stays beside what an open session wrote.",
        geometry=SMALL | {"two_slots": True},
        state=state(generation=5, status="open", closed=4, base=4),
        writes=[
            piece_of(0, 64, 0x61),
            piece_of(0, 80, 0x71, generation=5, half=1, anchored=False),
            piece_of(1, 64, 0x81, generation=4, half=1),
            piece_of(1, 90, 0x91, generation=5, anchored=False),
        ],
    )
    yield whole(
        "detached",
        "Entries here, data at the program's offsets in a file of its own.",
        geometry=SMALL | {"detached": True},
        writes=[piece_of(0, 64, 0x61), piece_of(1, 700, 0x71)],
    )

    default = SMALL | {"block_len": 65536, "header_len": 16384, "group_blocks": 256, "groups": 512}
    far = [0, 1, 255, 256, 131071, 131072, 2**40]
    for name, shows, geometry in (
        ("default", "Of a file of which nobody says otherwise.", default),
        (
            "small-blocks",
            "Three entries before each.",
            default | {"block_len": 4096, "shares": 3, "group_blocks": 4096},
        ),
        ("two-slots", "Slots of two halves.", default | {"two_slots": True}),
        ("detached", "Slots of entries alone.", default | {"detached": True}),
    ):
        yield Case(f"file/offsets-{name}.json", shows, "offsets", {"geometry": geometry, "blocks": far})
    yield from headers(FILE | both)


def headers(given: Given) -> Iterator[Case]:
    def case(name: str, shows: str, data: bytes, pinned: list[Given]) -> Case:
        return Case(f"file/header-{name}.json", shows, "read header", {"copy": data.hex(), "pinned": pinned})

    def pin(label: Given) -> Given:
        key = signing_key(label).public_key().public_bytes_raw().hex()
        return {"name": label["name"], "version": label["version"], "verifying_key": key}

    good = bytes.fromhex(answer("sealed file", given | {"writes": []})["file"][0][1])
    good = good[: 18 + int.from_bytes(good[14:18], "big") + 32]

    def altered(at: int, data: bytes) -> bytes:
        body = good[: at % len(good)] + data + good[at % len(good) + len(data) : -32]
        return body + hashlib.sha256(body).digest()

    yield case("known", "One label of two is known: that is enough.", good, [pin(RESEARCH)])
    yield case("refused-unknown", "No label is known.", good, [pin(CLINICAL | {"name": "other"})])
    yield case("refused-version", "The label is known at another version.", good, [pin(CLINICAL | {"version": 2})])
    yield case(
        "refused-other-key", "The label is known with another key.", good, [pin(CLINICAL | {"seed": run(9, 32)})]
    )
    yield case("refused-damaged", "One bit is wrong.", good[:40] + bytes([good[40] ^ 1]) + good[41:], [pin(CLINICAL)])
    yield case("refused-format", "Of version 2.", altered(8, b"\0\2"), [pin(CLINICAL)])
    yield case("refused-foreign", "An HDF5 file.", b"\x89HDF\r\n\x1a\n" + good[8:], [pin(CLINICAL)])
    # The signatures end 171 bytes before the end: behind them are state, signer, signature and SHA-256.
    yield case("refused-table", "A signature of the table is wrong.", altered(-171 - 1, b"\x55"), [pin(RESEARCH)])
    yield case("other-label-altered", "The same, seen by the other label.", altered(-171 - 1, b"\x55"), [pin(CLINICAL)])
    yield case("refused-state", "A byte less.", altered(-171 + 24, b"\xbb"), [pin(CLINICAL), pin(RESEARCH)])


WRITER = {
    "number": 1,
    "created": ISSUED,
    "changed": ISSUED,
    "expires": None,
    "wrapping_key": run(0x20, 32),
    "seed": run(0x40, 32),
}
READER = WRITER | {"number": 2, "changed": ISSUED + 1, "expires": 4_102_444_800, "seed": None}
READER |= {"wrapping_key": run(0x21, 32), "verifying_key": run(0x50, 32)}
EXPORT: Given = {
    "kind": 2,
    "id": run(0x10, 16),
    "serial": 1,
    "cost": [64, 2, 1],
    "salt": run(0x30, 16),
    "passphrase": "correct horse",
    "master": run(0x60, 32),
    "master_nonce": run(0x70, 12),
    "nonce": run(0x80, 12),
    "anchor_key": "00" * 32,
    "labels": [{"name": "clinical", "versions": [WRITER, READER]}, {"name": "open.data", "versions": [READER]}],
}


def key_files() -> Iterator[Case]:
    def seal(**changes: Any) -> str:
        file: str = seal_key_file(EXPORT | changes)["file"]
        return file

    def opened(name: str, shows: str, file: str, passphrase: str = "correct horse") -> Case:
        return Case(f"key_file/{name}.json", shows, "open export", {"file": file, "passphrase": passphrase})

    def used(name: str, shows: str, label: str, version: int, wraps: int = 1, **changes: Any) -> Case:
        keys = {1: WRITER, 2: READER}[wraps]
        context = b"gambeson file wrap v1".hex() + run(0x90, 16)
        given = {"wrapping_key": keys["wrapping_key"], "nonce": run(0xA0, 12), "context": context}
        wrapped = wrap_data_key(given | {"key": run(0xB0, 32), "seed": WRITER["seed"]})["wrapped"]
        given = {"file": seal(), "passphrase": "correct horse", "label": label, "version": version}
        return Case(
            f"key_file/{name}.json", shows, "use label", given | {"context": context, "wrapped": wrapped} | changes
        )

    def entry(name: str, shows: str, label: str, version: int, wraps: int = 1, **changes: Any) -> Case:
        keys = {1: WRITER, 2: READER}[wraps]
        given = {"label": label, "version": version, "id": run(0xE0, 16), "of": run(0xC0, 40)}
        secret = {"wrapping_key": keys["wrapping_key"], "key": run(0xB0, 32), "plain": run(0x01, 50)}
        made = seal_journal_entry(given | secret | {"wrap_nonce": run(0xA0, 12), "nonce": run(0x90, 12)})
        given |= {"file": seal(), "passphrase": "correct horse"}
        return Case(f"key_file/{name}.json", shows, "open journal entry", given | made | changes)

    good = seal()
    yield opened("export", "Two labels, one of them in part for writing.", good)
    yield opened(
        "export-empty", "No labels, under a passphrase that is not ASCII.", seal(labels=[], passphrase="Käse"), "Käse"
    )
    yield opened("refused-passphrase", "Another passphrase.", good, "correct horsf")
    yield opened("refused-altered", "The last bit is another.", good[:-1] + f"{int(good[-1], 16) ^ 1:x}")
    yield opened("refused-cut", "The last byte is gone.", good[:-2])
    yield opened(
        "refused-serial", "Bytes in front of what is sealed are another.", good.replace(f"{1:016x}", f"{2:016x}", 1)
    )
    yield opened(
        "refused-cheaper", "It says that its passphrase costs less.", good.replace(f"{64:08x}", f"{32:08x}", 1)
    )
    yield opened("refused-store", "A store is no export.", seal(kind=1))
    yield opened("refused-version", "Another version of the format.", good.replace("4b45590001", "4b45590002", 1))
    yield used("label", "A data key is unwrapped, and the same bytes signed.", "clinical", 1)
    yield used("label-for-reading", "A data key is unwrapped by who may only read.", "open.data", 2, 2)
    yield used("refused-context", "It was wrapped in another context.", "clinical", 1, context=run(0x90, 16))
    yield used("refused-other-version", "It was wrapped by another version.", "clinical", 2)
    yield entry("journal-entry", "An entry of a journal is found by what it is of, and opened.", "clinical", 1)
    yield entry("journal-other-entry", "What another one is of does not open it.", "clinical", 1, of=run(0xC0, 5))
    yield entry("refused-journal", "The data key is another journal's.", "clinical", 1, id=run(0xD0, 16))
    yield entry("refused-journal-for-reading", "Who may only read does not go on with one.", "open.data", 2, 2)


CODE: Given = {
    "owner_seed": run(0x01, 32),
    "job": run(0x61, 16),
    "stage": "sharpen + render",
    "version": 3,
    "hash": run(0xA1, 32),
}


def stagings() -> Iterator[Case]:
    def check(name: str, shows: str, **changes: Any) -> Case:
        given = {name: CODE[name] for name in ("job", "stage", "version", "hash")}
        return Case(f"staging/{name}.json", shows, "staged", given | signed | changes)

    def reads(name: str, shows: str, data: bytes) -> Case:
        return Case(f"staging/{name}.json", shows, "read frame", {"frame": data.hex()})

    signed = answer("stage", CODE)
    other = answer("stage", CODE | {"owner_seed": run(0x02, 32)})
    yield Case("staging/signed.json", "A stage's code, as its owner signs it.", "stage", CODE)
    yield check("checked", "A worker loads it.")
    yield check("refused-other-owner", "Signed by somebody who is not its manager.", key=other["key"])
    yield check("refused-other-job", "Signed for another job.", job=run(0x62, 16))
    yield check("refused-other-stage", "Under another stage's name.", stage="sharpen")
    yield check("refused-other-version", "Another version.", version=4)
    yield check("refused-other-code", "Other code.", hash=run(0xA2, 32))
    buffers = [run(0x01, 21), "", run(0x21, 32), run(0x51, 5)]
    message = {"number": 7, "word": 1 << 25, "buffers": buffers}
    yield Case("staging/frame.json", "Each buffer begins at a multiple of 16 bytes.", "frame", message)
    yield Case(
        "staging/frame-one.json", "One buffer has no table of lengths.", "frame", message | {"buffers": [buffers[0]]}
    )
    good = bytes.fromhex(answer("frame", message)["frame"])
    yield reads("frame-read", "Buffers come out as they went in.", good)
    yield reads("frame-read-none", "A message without buffers.", good[:12] + bytes(4))
    yield reads("refused-frame-cut", "A byte less than it says.", good[:-1])
    yield reads("refused-frame-longer", "A byte more than it says.", good + b"\0")


MASTER: Given = {
    "cost": [64, 2, 1],
    "salt": run(0x30, 16),
    "passphrase": "correct horse",
    "master": run(0x60, 32),
    "nonce": run(0x70, 12),
}


def master_keys() -> Iterator[Case]:
    context = b"gambeson keyd".hex() + run(0x10, 16)
    wrapped = wrap(
        {
            "master": MASTER["master"],
            "salt": run(0x20, 32),
            "nonce": run(0x80, 12),
            "context": context,
            "key": run(0xB0, 32),
        }
    )
    good: Given = {
        "file": master_key_file(MASTER).hex(),
        "passphrase": "correct horse",
        "context": context,
        "wrapped": wrapped.hex(),
    }

    def case(name: str, shows: str, **changes: Any) -> Case:
        return Case(f"master_key/{name}.json", shows, "unwrap by a master key", good | changes)

    def altered(at: int) -> str:
        return (wrapped[:at] + bytes([wrapped[at] ^ 1]) + wrapped[at + 1 :]).hex()

    other = master_key_file(MASTER | {"master": run(0x61, 32)}).hex()
    yield case("key", "A key that a master key in a file has wrapped.")
    yield case("refused-passphrase", "Another passphrase.", passphrase="correct horsf")
    yield case(
        "refused-cheaper",
        "It says that its passphrase costs less.",
        file=good["file"].replace(f"{64:08x}", f"{32:08x}", 1),
    )
    yield case("refused-format", "Another version of the file.", file=good["file"].replace("0001", "0002", 1))
    yield case("refused-master", "Another master key.", file=other)
    yield case("refused-context", "Another context.", context=context[:-2])
    yield case("refused-salt", "Another salt.", wrapped=altered(4))
    yield case("refused-altered", "The last bit is another.", wrapped=altered(len(wrapped) - 1))
    by_server = wrapped.replace(bytes([1, MAC]), bytes([1, SEAL]), 1)
    yield case("refused-server", "It says that a key server has wrapped it.", wrapped=by_server.hex())


CASES = [
    *aead(), *card(), *key_schedule(), *epoch(), *startpoints(), *links(), *directories(), *stagings(), *files(),
    *key_files(), *master_keys(),
]  # fmt: skip


def main() -> None:
    for case in CASES:
        path = DIRECTORY / case.path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(case.document(), indent=2) + "\n")


if __name__ == "__main__":
    main()
