"""gambesond: processes on other hosts, for those whom the site knows, and nothing left of what nobody wants."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import pty
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness.daemons import RULES, STRAY, audit_log, exec_on, gone, keeper_of, serving
from harness.hosts import hosts
from harness.mpis import clean_environment
from harness.site import Site

pytestmark = [pytest.mark.namespaces]


@pytest.fixture(scope="module")
def site(gambeson: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """h1 and h2, both served by a daemon, h3, which is not yet, and a person on h1 whom the site knows as root."""
    folder = tmp_path_factory.mktemp("daemon")
    with hosts(folder, 3) as made:
        site = Site(made, gambeson, folder / "site")
        site.does("h1", "init")
        site.does("h1", "enroll", "h2")
        site.does("h1", "enroll", "h3")
        with serving(site, "h1"), serving(site, "h2"):
            yield site


def log(site: Site, host: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in audit_log(site, host).read_text().splitlines()]


def test_streams_status_and_place_are_the_commands(site: Site) -> None:
    done = exec_on(site, "h2", "sh", "-c", "cat; hostname; pwd; echo error >&2; exit 3", stdin="in\n")
    assert (done.returncode, done.stdout, done.stderr) == (3, "in\nh2\n/root\n", "error\n")
    done = exec_on(site, "h2", "sh", "-c", "kill -TERM $$")
    assert done.returncode == 128 + signal.SIGTERM
    done = exec_on(site, "h2", "printf", "%s|", "a b", "", "$HOME", "*")
    assert done.stdout == "a b||$HOME|*|"
    done = exec_on(site, "h2", "sh", "-c", "pwd; umask; env", options=("--directory", "/usr", "--env", "PART=1"))
    assert done.stdout.startswith("/usr\n0022\n") and "PART=1\n" in done.stdout
    # What is on the requester's host stays there.
    assert "GAMBESON" not in done.stdout and str(site.root) not in done.stdout


def test_long_streams_go_both_ways_whole(site: Site) -> None:
    sent = site.root / "sent"
    cat = site.words(["exec", "h2", "--", "cat"])
    script = f"head -c 20000000 /dev/urandom > {sent}; {cat} < {sent} | cmp - {sent}"
    done = site.shell("h1", script)
    assert done.returncode == 0, done


def test_many_on_several_hosts(site: Site) -> None:
    done = exec_on(site, "h1,h2", "sh", "-c", "hostname", options=("-n", "20", "--label"))
    assert done.returncode == 0, done
    assert sorted(done.stdout.splitlines()) == ["h1: h1"] * 20 + ["h2: h2"] * 20
    done = exec_on(site, "h1,h2", "sh", "-c", "test $(hostname) = h1")
    assert done.returncode == 1
    done = exec_on(site, "h2,h9=10.77.0.9:7200", "true")
    assert done.returncode == 69 and "process 1 on h9 has failed" in done.stderr, done


def test_an_order_for_many_hosts_is_passed_on(site: Site) -> None:
    # As many places as take a tree: each daemon has several of them.
    places = ",".join(["h1", "h2"] * 30)
    done = exec_on(site, places, "sh", "-c", "hostname", options=("-n", "2", "--label"))
    assert done.returncode == 0, done
    assert sorted(done.stdout.splitlines()) == ["h1: h1"] * 60 + ["h2: h2"] * 60
    started = {host: [line for line in log(site, host) if line["event"] == "start"][-30:] for host in ("h1", "h2")}
    assert 3 in [line["passed_on"] for line in started["h1"]], started
    assert {(line["identity"], line["passed_on"]) for line in started["h2"]} == {("user:root", 0)}, started
    # A host that is not there costs its own processes, wherever it is in the tree.
    done = exec_on(site, f"{places},h9=10.77.0.9:7200,h3,h1", "sh", "-c", "hostname; exit 4")
    assert done.returncode == 69 and done.stdout.count("h1\n") == 31 and done.stdout.count("h2\n") == 30, done
    failed = done.stderr.splitlines()
    assert len(failed) == 2 and "process 60 on h9" in failed[0] + failed[1] and "process 61 on h3" in done.stderr, done
    # Signals go down it, and nothing is left when nobody wants it any more.
    with site.stays("h1", "exec", places, "--", "sh -c 'echo on; exec sleep 7321'") as (requester, said):
        assert said == "on"
        for _ in range(59):
            assert requester.stdout is not None and requester.stdout.readline() == "on\n"
        requester.send_signal(signal.SIGTERM)
        assert requester.wait(20) == 128 + signal.SIGTERM
    assert gone("sleep 7321", within=2)
    with site.stays("h1", "exec", places, "--", "sh -c 'echo on; exec sleep 7322'") as (requester, _):
        requester.kill()
        assert gone("sleep 7322", within=25)


def test_accounts_are_those_of_the_rules(site: Site) -> None:
    done = exec_on(site, "h2", "id", "-u", "-n", options=("--account", "nobody"))
    assert done.stdout == "nobody\n", done
    done = exec_on(site, "h2", "sh", "-c", "id -G; cat /proc/self/status", options=("--account", "nobody"))
    groups, status = done.stdout.split("\n", 1)
    assert groups == subprocess.run(["id", "-G", "nobody"], capture_output=True, text=True, check=True).stdout.strip()
    assert "Uid:\t65534\t65534\t65534\t65534" in status
    done = exec_on(site, "h2", "true", options=("--account", "daemon"))
    assert done.returncode == 69 and "user:root may not use the account daemon here" in done.stderr, done
    refused = [line for line in log(site, "h2") if line["event"] == "refuse"]
    assert refused and "may not use the account daemon" in str(refused[-1]["why"])


def test_loaders_variables_do_not_cross_accounts(site: Site) -> None:
    for name in ("LD_PRELOAD", "FI_PROVIDER_PATH", "PATH", "PYTHONPATH", "BASH_ENV"):
        done = exec_on(site, "h2", "true", options=("--account", "nobody", "--env", f"{name}=/tmp"))
        assert done.returncode == 69 and f"{name} may not be set from outside for the account nobody" in done.stderr, (
            done
        )
    # To oneself one may do what one could do after a login, too.
    assert exec_on(site, "h2", "true", options=("--env", "LD_LIBRARY_PATH=/tmp")).returncode == 0


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that everybody may enter."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


def test_only_certain_programs(site: Site, open_folder: Path) -> None:
    folder = open_folder / "programs"
    folder.mkdir()
    for place in (folder, open_folder):
        shutil.copy("/bin/echo", place / "echo")
    (folder / "script").write_text("#!/bin/sh\necho script $1\n")
    (folder / "open").write_text("#!/bin/sh\necho open\n")
    (folder / "script").chmod(0o755)
    (folder / "open").chmod(0o777)
    (folder / "link").symlink_to("/bin/echo")
    pinned = hashlib.sha256(Path("/bin/echo").read_bytes()).hexdigest()
    of_folder = f'[[allow]]\nidentity = "user:root"\naccounts = ["nobody"]\nfolder = "{folder}"\n'
    of_digest = f'[[allow]]\nidentity = "user:root"\naccounts = ["nobody"]\npinned = ["{pinned}"]\n'
    with serving(site, "h3", of_folder):
        assert exec_on(site, "h3", f"{folder}/echo", "hi").stdout == "hi\n"
        assert exec_on(site, "h3", f"{folder}/script", "1").stdout == "script 1\n"
        for name in (f"{open_folder}/echo", f"{folder}/open", f"{folder}/link", f"{folder}/../echo"):
            done = exec_on(site, "h3", name)
            assert done.returncode == 69 and "is not among the programs of" in done.stderr, (name, done)
    with serving(site, "h3", of_digest):
        assert exec_on(site, "h3", f"{open_folder}/echo", "hi").stdout == "hi\n"
        done = exec_on(site, "h3", f"{folder}/script", "1")
        assert done.returncode == 69 and "is not among the programs that are pinned" in done.stderr, done


def test_limits_are_the_processes(site: Site) -> None:
    rules = RULES.replace('"nobody"]', '"nobody"]\nlimits = { open_files = 77, core = 0 }')
    with serving(site, "h3", rules):
        done = exec_on(site, "h3", "sh", "-c", "ulimit -n; ulimit -Hn; ulimit -c")
    assert done.stdout == "77\n77\n0\n", done


def test_rules_that_cannot_be_followed_are_named(site: Site) -> None:
    site.etc("h3", "daemon.toml").write_text("[[allow]]\nidentity = 'x'\n")
    assert "daemon.toml cannot be followed" in site.refuses(78, "h3", "daemon", "--log", str(audit_log(site, "h3")))
    site.etc("h3", "daemon.toml").write_text(RULES)
    site.etc("h3", "daemon.toml").chmod(0o666)
    assert "can be written by others" in site.refuses(70, "h3", "daemon", "--log", str(audit_log(site, "h3")))
    site.etc("h3", "daemon.toml").unlink()


def test_nothing_is_left_of_a_command_that_has_ended(site: Site) -> None:
    done = exec_on(site, "h2", "sh", "-c", STRAY.format(mark="7301") + "echo done")
    assert done.stdout == "done\n"
    assert gone("sleep 7301", within=1), "the command's end is said when nothing is left"


@pytest.mark.parametrize("killed", ["requester", "daemon", "keeper"])
def test_nothing_is_left_when_somebody_is_killed(site: Site, killed: str) -> None:
    mark = {"requester": "7311", "daemon": "7312", "keeper": "7313"}[killed]
    command = STRAY.format(mark=mark) + f"echo begun; sleep {mark}"
    with serving(site, "h3") as daemon, site.stays("h1", "exec", "h3", "--", f"sh -c '{command}'") as (requester, said):
        assert said == "begun"
        victim = {"requester": requester.pid, "daemon": daemon.pid, "keeper": 0}[killed] or keeper_of(f"sleep {mark}")
        os.kill(victim, signal.SIGKILL)
        assert gone(f"sleep {mark}", within=25)
        _, said = requester.communicate(timeout=40)
        if killed == "requester":
            assert requester.returncode == -signal.SIGKILL
        else:
            assert requester.returncode == 69 and "process 0 on h3 has failed: " in said, said


def test_signals_reach_the_command(site: Site) -> None:
    command = 'trap "echo told; exit 5" USR1; echo ready; while :; do sleep 0.05; done'
    with site.stays("h1", "exec", "h2", "--", f"sh -c '{command}'") as (requester, said):
        assert said == "ready"
        requester.send_signal(signal.SIGUSR1)
        output, _ = requester.communicate(timeout=20)
        assert (output, requester.returncode) == ("told\n", 5)


def test_orders_are_seen_and_ended(site: Site) -> None:
    with site.stays("h1", "exec", "h2", "--", "sh -c 'echo on; exec sleep 7331'") as (requester, said):
        assert said == "on"
        (order,) = json.loads(site.does("h1", "ps", "--json", "h2"))
        assert (order["host"], order["identity"], order["from"], order["processes"]) == ("h2", "user:root", "h1", 1)
        assert order["order"][:8] in site.does("h1", "ps", "h2")
        assert "no order ffff" in site.refuses(69, "h1", "kill", "ffff", "h2")
        site.does("h1", "kill", order["order"][:8], "h2")
        _, errors = requester.communicate(timeout=20)
        assert requester.returncode == 69 and "user:root has ended it with `gambeson kill`" in errors
        assert gone("sleep 7331", within=5)
    assert json.loads(site.does("h1", "ps", "--json", "h2")) == []
    assert [line["event"] for line in log(site, "h2")][-3:] == ["start", "kill", "end"]


def test_the_sites_hosts_and_how_they_are(site: Site) -> None:
    done = site.shell("h1", site.words(["hosts", "--json"]))
    assert done.returncode == 69, done
    said = {one["host"]: one for one in json.loads(done.stdout)}
    assert [said[name]["up"] for name in ("h1", "h2", "h3")] == [True, True, False]
    assert said["h2"]["orders"] == 0 and "nobody listens there" in said["h3"]["why"]
    with site.stays("h1", "exec", "h2", "--", "sh -c 'echo on; sleep 7341'"):
        assert "1 orders" in site.does("h1", "hosts", "h2")
    assert "h3  does not answer: " in site.shell("h1", site.words(["hosts"])).stdout


def test_a_terminal_is_one(site: Site) -> None:
    ours, theirs = pty.openpty()
    command = site.words(["exec", "-t", "h2", "--", "sh -c 'stty size; read line; echo got $line; tty'"])
    requester = subprocess.Popen(
        [str(site.ssh), "h1", "stty rows 33 cols 99; " + command],
        env=clean_environment(),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    seen = b""
    with contextlib.suppress(OSError):
        while piece := os.read(ours, 4096):
            seen += piece
            if b"33 99" in seen and b"word" not in seen:
                os.write(ours, b"word\n")
    assert requester.wait(20) == 0
    assert b"33 99" in seen and b"got word" in seen and b"/dev/pts/" in seen, seen


def test_strangers_are_nobody(site: Site, gambeson: Path, tmp_path: Path) -> None:
    # Of another site that calls its people and hosts the same.
    home = tmp_path / "home"
    made = site.shell("h1", f"HOME={home} {gambeson} init --folder {tmp_path}/other --name other")
    assert made.returncode == 0, made
    done = site.shell("h1", f"{gambeson} exec --folder {tmp_path}/other h2 -- id")
    assert done.returncode == 69 and "neither pinned here nor certified" in done.stderr, done
    # A host of the site in another's place, and a person's certificate in a host's.
    done = exec_on(site, "h1=10.77.0.2:7200", "id")
    assert done.returncode == 69 and 'has not the role "dns:h1"' in done.stderr, done
    folder = tmp_path / "posing"
    shutil.copytree(site.home("h1", ""), folder)
    shutil.copy(folder / "identity.pem", folder / "host.pem")
    for name in ("authority.pem", "site.toml"):
        shutil.copy(site.etc("h1", name), folder / name)
    # A host of the site may pass orders on, and give none of its own.
    shutil.copy(site.etc("h3", "host.pem"), folder / "identity.pem")
    done = site.shell("h3", f"{gambeson} exec --folder {folder} h2 -- id")
    assert done.returncode == 69 and "no rule of this host's is for h3" in done.stderr, done
    posing = ["daemon", "--folder", str(folder), "--listen", "10.77.0.3:7300", "--log", str(tmp_path / "log")]
    with site.stays("h3", *posing) as (_, said):
        assert said.startswith("gambesond: listening")
        done = exec_on(site, "h3=10.77.0.3:7300", "id")
        assert done.returncode == 69 and "uid=" not in done.stdout, done


def test_every_order_is_in_the_log_before_it_begins(site: Site) -> None:
    exec_on(site, "h2", "sh", "-c", f"cp {audit_log(site, 'h2')} {site.root}/seen")
    seen = [json.loads(line) for line in (site.root / "seen").read_text().splitlines()][-1]
    assert (seen["event"], seen["identity"], seen["account"]) == ("start", "user:root", "root")
    end = log(site, "h2")[-1]
    assert (end["event"], end["order"], end["ended"]) == ("end", seen["order"], {"status 0": 1})
    said = site.does("h2", "audit-log", "verify", str(audit_log(site, "h2")))
    tail = said.split()[-1]
    exec_on(site, "h2", "true")
    site.does("h2", "audit-log", "verify", str(audit_log(site, "h2")), "--since", tail)
    spoiled = site.root / "spoiled"
    spoiled.write_text(audit_log(site, "h2").read_text().replace('"account":"root"', '"account":"boot"', 1))
    assert "is broken at line " in site.refuses(70, "h2", "audit-log", "verify", str(spoiled))
    lines = audit_log(site, "h2").read_text().splitlines(keepends=True)
    spoiled.write_text("".join(lines[:-3]))
    assert "never ended with" in site.refuses(70, "h2", "audit-log", "verify", str(spoiled), "--since", tail)


def test_a_full_disk_under_the_log_starts_nothing_and_breaks_nothing(site: Site, tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(small)], check=True)
    try:
        with serving(site, "h3", log=small / "audit.log"):
            assert exec_on(site, "h3", "true").returncode == 0
            with contextlib.suppress(OSError):
                (small / "rest").write_bytes(b"x" * (1 << 20))
            refused = None
            for _ in range(40):
                done = exec_on(site, "h3", "touch", f"{tmp_path}/started")
                if done.returncode != 0:
                    refused = done
                    break
                (tmp_path / "started").unlink()
            assert refused and "audit.log cannot be written (No space left" in refused.stderr, refused
            assert not (tmp_path / "started").exists()
            (small / "rest").unlink()
            assert exec_on(site, "h3", "true").returncode == 0
        site.does("h3", "audit-log", "verify", str(small / "audit.log"))
    finally:
        subprocess.run(["umount", str(small)], check=True)


def test_sixty_four_at_once(site: Site) -> None:
    script = f"for i in $(seq 64); do {site.words(['exec', 'h2', '--', 'true'])} || echo failed & done; wait"
    done = site.shell("h1", script)
    assert done.stdout == "" and done.stderr == "", done
