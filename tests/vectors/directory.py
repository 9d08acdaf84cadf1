"""The signed site directory, written a second time: composed, signed, and refused."""

from __future__ import annotations

import re
import tomllib
from datetime import UTC, datetime

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from vectors.reference import Expected, Given, Refused

CONTEXT = b" " * 64 + b"Gambeson, site directory\0"
SIGNATURE = re.compile(rb"# signature = ([0-9a-fA-F]{128})\n")
CLOCKS_APART = 300


def site_key(seed: str) -> Ed25519PrivateKey:
    return Ed25519PrivateKey.from_private_bytes(bytes.fromhex(seed))


def date(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def sign_directory(given: Given) -> Expected:
    """A text that says nothing of its times yet, with them and a signature."""
    text = f"issued = {date(given['issued'])}\nexpires = {date(given['expires'])}\n{given['text']}"
    key = site_key(given["site_seed"])
    signature = key.sign(CONTEXT + text.encode()).hex()
    public = key.public_key().public_bytes_raw().hex()
    return {"site_key": public, "directory": f"{text}# signature = {signature}\n"}


def verify_directory(given: Given) -> Expected:
    signed = given["directory"].encode()
    end = signed.rfind(b"\n", 0, -1) + 1
    signature = SIGNATURE.fullmatch(signed, end)
    if not signature:
        raise Refused("Unsigned")
    try:
        public = Ed25519PublicKey.from_public_bytes(bytes.fromhex(given["site_key"]))
        public.verify(bytes.fromhex(signature[1].decode()), CONTEXT + signed[:end])
    except InvalidSignature:
        raise Refused("Forged") from None
    try:
        said = tomllib.loads(signed[:end].decode())
    except tomllib.TOMLDecodeError:
        raise Refused("Senseless") from None
    issued, expires = (int(said[name].timestamp()) for name in ("issued", "expires"))
    if issued < given["seen"]:
        raise Refused("RolledBack")
    if given["now"] + CLOCKS_APART < issued:
        raise Refused("Early")
    if expires <= given["now"]:
        raise Refused("Stale")
    hosts = []
    for host in said.get("host", []):
        attach = host.get("attach")
        listed = {address.rsplit(":", 1)[0] for address in attach["addresses"]} if attach else set()
        hosts.append(
            {
                "name": host["name"].lower(),
                "addresses": sorted(listed | set(host.get("addresses", []))),
                "transports": host["transports"],
                "authentication": host["authentication"],
                "attach": attach,
            }
        )
    networks = [[network["subnet"], network["protection"]] for network in said.get("network", [])]
    return {"issued": issued, "expires": expires, "hosts": hosts, "networks": networks}
