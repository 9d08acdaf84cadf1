"""`gambeson relay`: those are reached who can only connect outward, and nobody else gets anything out of it."""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from functional.test_proxy import (
    CANARY,
    PATIENCE,
    End,
    Place,
    between,
    client,
    echo,
    everything,
    exactly,
    service,
    text,
)
from harness.hosts import Hosts, hosts

MAGIC = b"gambeson-relay/1"


@pytest.fixture
def place(gambeson: Path, tmp_path: Path) -> Iterator[Place]:
    place = Place(gambeson, tmp_path)
    with place.ends:
        yield place


def relay(place: Place, *more: str, listen: str = "127.0.0.1:0") -> End:
    return place.end("relay", "--listen", listen, "--allow", f"{place.keys['far']}=database", *more)


def waits(place: Place, at: tuple[str, int], of: tuple[str, int], *more: str, identity: str = "far.pem") -> End:
    """The far end, which listens nowhere."""
    accept = f"{place.keys['near']}=laptop"
    words = ("--identity", identity, "--via", text(at), "--service", text(of), "--accept", accept)
    return place.end("proxy", "serve", *words, *more)


def goes(place: Place, via: tuple[str, int], *more: str) -> End:
    words = ("--identity", "near.pem", "--listen", "0", "--via", text(via), "--expect", place.keys["far"])
    return place.end("proxy", "connect", *words, *more)


def serves(near: End, sent: bytes = CANARY * 10_000) -> None:
    with client(near) as one:
        one.sendall(sent)
        one.shutdown(socket.SHUT_WR)
        assert everything(one) == sent


@pytest.mark.parametrize("protection", ["privacy", "none"])
def test_what_goes_through_a_relay_is_sealed_whatever_policies_say(place: Place, protection: str) -> None:
    policy = place.folder / "policy.toml"
    policy.write_text(f'[[rule]]\nclass = "proxy"\nbetween = ["*", "*"]\nprotection = "{protection}"\n')
    with service(echo) as address:
        middle = relay(place)
        with between(middle.address) as heard:
            waits(place, heard.address, address, "--policy", str(policy))
            near = goes(place, heard.address, "--policy", str(policy))
            serves(near)
            assert len(heard.heard) > 4 * 10_000 * len(CANARY)
            assert CANARY not in heard.heard


def test_many_reach_the_same_end_and_a_relay_that_is_gone_for_a_while_breaks_nothing(place: Place) -> None:
    with service(echo) as address:
        middle = relay(place)
        waits(place, middle.address, address)
        nears = [goes(place, middle.address) for _ in range(6)]
        for near in nears:
            serves(near)
        with client(nears[0]) as one:
            one.sendall(b"before")
            assert exactly(one, 6) == b"before"
            assert middle.close() == 0
            one.sendall(b"meanwhile")
            time.sleep(0.5)
            relay(place, listen=text(middle.address))
            assert exactly(one, 9) == b"meanwhile"
        serves(nears[1])


def test_a_far_end_that_can_be_connected_to_may_wait_at_a_relay_too(place: Place) -> None:
    with service(echo) as address:
        middle = relay(place)
        far = waits(place, middle.address, address, "--listen", "127.0.0.1:0")
        serves(goes(place, middle.address))
        serves(place.connect(far.address))


def test_nobody_waits_there_who_is_not_allowed_or_has_not_the_key(place: Place) -> None:
    with service(echo) as address:
        middle = relay(place)
        stranger = waits(place, middle.address, address, identity="stranger.pem")
        stranger.says("cannot be reached through the relay")
        stranger.says("it does not let this key be offered")
        middle.says("may not wait here as the owner of " + place.keys["stranger"])
        # Its key is no secret; what proves it is.
        with socket.create_connection(middle.address, timeout=PATIENCE) as one:
            one.sendall(MAGIC + b"O" + bytes.fromhex(place.keys["far"]))
            assert len(exactly(one, 32)) == 32
            one.sendall(secrets.token_bytes(96))
            assert everything(one) == b"x"
        with socket.create_connection(middle.address, timeout=PATIENCE) as one:
            one.sendall(MAGIC + b"S" + bytes.fromhex(place.keys["far"]))
            assert everything(one) == b"-"
        near = goes(place, middle.address)
        near.says("the far end is not there yet")
        near.says("nobody waits there under this key")


def test_a_far_end_behind_a_relay_is_who_was_expected(place: Place) -> None:
    """Somebody on the way to the relay has it join who seeks one key to the owner of another."""
    far, stranger = (bytes.fromhex(place.keys[name]) for name in ("far", "stranger"))
    with service(echo) as address:
        middle = place.end("relay", "--listen", "127.0.0.1:0", "--allow", place.keys["stranger"])
        waits(place, middle.address, address, identity="stranger.pem")
        with between(middle.address, lambda piece: piece.replace(far, stranger)) as liar:
            words = ("--identity", "near.pem", "--listen", "0", "--via", text(liar.address))
            said = place.refuses(70, "connect", *words, "--expect", place.keys["far"])
            assert "is not used: " in said


@pytest.mark.parametrize(
    "said",
    [
        b"CONNECT {service} HTTP/1.1\r\nHost: {service}\r\n\r\n" + b" " * 49,
        b"GET / HTTP/1.1\r\nHost: {service}\r\n\r\n" + b" " * 49,
        b"\x05\x01\x00" + b"\x05\x01\x00\x01\x7f\x00\x00\x01" + b" " * 49,
        MAGIC + b"?" + bytes(32),
        MAGIC[:-1] + b"2S" + bytes(32),
    ],
)
def test_it_connects_nowhere(place: Place, said: bytes) -> None:
    came: list[socket.socket] = []
    with service(came.append) as address:
        middle = relay(place)
        with socket.create_connection(middle.address, timeout=PATIENCE) as one:
            one.sendall(said.replace(b"{service}", text(address).encode()))
            with pytest.raises((ConnectionResetError, AssertionError)):
                assert everything(one) != b""
        assert not came
        middle.says("speaks no relay's language")


def test_who_says_nothing_is_closed_and_keeps_nobody_out(place: Place) -> None:
    with service(echo) as address:
        middle = relay(place)
        waits(place, middle.address, address)
        near = goes(place, middle.address)
        silent = [socket.create_connection(middle.address, timeout=PATIENCE) for _ in range(300)]
        began = time.monotonic()
        serves(goes(place, middle.address))
        assert time.monotonic() - began < 5
        serves(near)
        for one in silent:
            assert one.recv(1) == b""
            one.close()
        # The first of them made room for others, and the last took too long.
        middle.says("does not say what he wants: it closed the connection")
        assert 5 < time.monotonic() - began < 20


def test_pairs_are_bounded_and_those_that_are_idle_are_parted(place: Place) -> None:
    with service(echo) as address:
        middle = relay(place, "--connections", "1", "--idle", "1")
        waits(place, middle.address, address)
        near = goes(place, middle.address)
        with client(near) as one:
            for _ in range(3):
                one.sendall(b"here")
                assert exactly(one, 4) == b"here"
                # Its session comes again over another pair.
                time.sleep(2.2)


def test_what_cannot_be_is_said_in_a_sentence(place: Place) -> None:
    far = place.keys["far"]
    assert "64 hexadecimal digits" in place.refuses(64, "--listen", "127.0.0.1:0", "--allow", "x", command="relay")
    assert "--allow" in place.refuses(64, "--listen", "127.0.0.1:0", command="relay")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        at = text(taken.getsockname())
        said = place.refuses(71, "--listen", at, "--allow", far, command="relay")
        assert f"{at} cannot be listened on" in said
    connect = ("connect", "--identity", "near.pem", "--listen", "0", "--expect", far)
    assert "--via" in place.refuses(64, *connect, "--to", "h:1", "--via", "h:2")
    assert "--to" in place.refuses(64, *connect)
    assert "--listen" in place.refuses(64, "serve", "--identity", "far.pem", "--service", "h:1", "--accept", far)


@pytest.mark.namespaces
def test_two_hosts_that_let_nobody_in_meet_at_a_relay(place: Place, tmp_path: Path) -> None:
    if not shutil.which("nft"):
        pytest.skip("no nft, by which a host drops what comes in (Debian: nftables)")
    with hosts(tmp_path, 3) as three:
        for closed in ("h2", "h3"):
            no_newcomer = 'type filter hook input priority 0; iifname != "lo" tcp flags & (syn | ack) == syn drop'
            rules = f"table inet closed {{\nchain incoming {{\n{no_newcomer}\n}}\n}}"
            inside = ["ip", "netns", "exec", three.namespace(closed), "nft", rules]
            subprocess.run(inside, check=True, capture_output=True)
        one_of(three, place)


def one_of(three: Hosts, place: Place) -> None:
    def on(host: str) -> Callable[[list[str]], list[str]]:
        return lambda command: three.command(host, command)

    keys, address = place.keys, three.address("h1")
    serving = (
        "import socket\n"
        "listener = socket.create_server(('0.0.0.0', 9))\n"
        "print('ready', flush=True)\n"
        "while True:\n"
        "    one, _ = listener.accept()\n"
        "    while piece := one.recv(65536): one.sendall(piece)\n"
        "    one.close()\n"
    )
    asking = (
        "import socket, sys\n"
        "one = socket.create_connection(('127.0.0.1', 5432), 10)\n"
        "one.sendall(b'through two walls'); one.shutdown(socket.SHUT_WR)\n"
        "print(one.makefile('rb').read().decode())\n"
    )
    server = subprocess.Popen(three.command("h2", ["python3", "-c", serving]), stdout=subprocess.PIPE)
    try:
        assert server.stdout and server.stdout.readline() == b"ready\n"
        # Nobody comes in there.
        refused = "import socket; socket.create_connection(('10.77.0.2', 9), 1)"
        knocked = three.run("h3", ["python3", "-c", refused], env=dict(os.environ))
        assert knocked.status != 0 and "timed out" in knocked.stderr, knocked
        middle = place.end("relay", "--listen", f"{address}:7100", "--allow", keys["far"], host=on("h1"))
        via = ("--via", text(middle.address))
        serve = ("--identity", "far.pem", *via, "--service", "127.0.0.1:9", "--accept", keys["near"])
        place.end("proxy", "serve", *serve, host=on("h2"))
        connect = ("--identity", "near.pem", "--listen", "5432", *via, "--expect", keys["far"])
        place.end("proxy", "connect", *connect, host=on("h3"))
        asked = three.run("h3", ["python3", "-c", asking], env=dict(os.environ))
        assert asked.check().stdout.strip() == "through two walls"
    finally:
        place.ends.close()
        server.kill()
        server.wait()
