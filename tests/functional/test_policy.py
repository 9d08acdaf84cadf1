"""The policy's files: what applies to whom, and who may say so."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from harness.mpis import clean_environment

WEAK = 'protection = "none"\n'
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to be another user or to have another /etc")


def gambeson_run(
    gambeson: Path, words: Sequence[str], cwd: Path, prefix: Sequence[str] = ()
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*prefix, str(gambeson), *words],
        cwd=cwd,
        env=clean_environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def check(gambeson: Path, cwd: Path, *words: str, prefix: Sequence[str] = ()) -> dict[str, Any]:
    done = gambeson_run(gambeson, ["policy", "check", "--json", *words], cwd, prefix)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


def protections(report: dict[str, Any]) -> dict[tuple[str, str], str]:
    return {tuple(pair["hosts"]): pair["protection"] for pair in report["pairs"]}


@pytest.fixture
def floor(tmp_path: Path) -> Any:
    """floor(text, mode) -> a command prefix under which /etc/gambeson/gambeson.toml says `text`."""

    def make(text: str, mode: int = 0o644) -> list[str]:
        etc = tmp_path / "etc"
        (etc / "gambeson").mkdir(parents=True)
        for name in ("passwd", "group", "hosts", "nsswitch.conf", "ld.so.cache"):
            if Path("/etc", name).exists():
                (etc / name).write_bytes(Path("/etc", name).read_bytes())
        path = etc / "gambeson" / "gambeson.toml"
        path.write_text(text)
        path.chmod(mode)
        return ["unshare", "-m", "bash", "-c", f'mount --make-rprivate / && mount --bind {etc} /etc && exec "$@"', "sh"]

    return make


def test_every_file_is_explained_with_its_rule(gambeson: Path, tmp_path: Path) -> None:
    policy = tmp_path / "policy.toml"
    policy.write_text(
        '[[file]]\npattern = "*.h5"\nlabel = "clinical"\nblock = "16 KiB"\nslots = 2\n'
        '[[file]]\npattern = "/data/open/**"\nlabel = "none"\n'
        '[[file]]\npattern = "*.dat"\nlabel = "clinical"\ndetached = true\n'
    )
    paths = ["/data/a.h5", "/data/open/x/b.nc", "/data/b.nc", "/data/c.dat"]
    report = check(gambeson, tmp_path, "--policy", str(policy), *(word for path in paths for word in ("--file", path)))
    sealed: dict[str, Any] = {
        "pattern": "*.h5",
        "label": "clinical",
        "suite": "xaes-256-gcm",
        "block_bytes": 16384,
        "slots": 2,
    }
    sealed["detached"] = False
    said = {filed["path"]: filed["rule"] for filed in report["sealed_files"]}
    assert list(said) == paths
    assert said["/data/a.h5"] == sealed == report["file_rules"][0]
    assert said["/data/open/x/b.nc"]["label"] is None and said["/data/b.nc"] is None
    assert said["/data/c.dat"]["detached"] and said["/data/c.dat"]["slots"] == 1
    asked = ["policy", "check", "--policy", str(policy), "--file", paths[0], "--file", paths[3]]
    text = gambeson_run(gambeson, asked, tmp_path).stdout
    explained = 'sealed under "clinical" by pattern "*.h5": xaes-256-gcm, blocks of 16 KiB, two slots each'
    assert f"/data/a.h5  {explained}\n" in text
    assert 'pattern "*.dat": xaes-256-gcm, blocks of 64 KiB, detached\n' in text


def test_every_pair_is_explained_with_its_rule(gambeson: Path, tmp_path: Path) -> None:
    policy = tmp_path / "policy.toml"
    policy.write_text(
        '[[partition]]\nname = "clinic"\nhosts = ["h1", "h2"]\nepoch = 3\nsecret_file = "clinic.secret"\n'
        '[[rule]]\nbetween = ["partition:clinic", "partition:clinic"]\nprotection = "privacy"\n'
        '[[rule]]\nbetween = ["10.77.0.0/24", "10.77.0.0/24"]\nprotection = "integrity"\n'
        '[[rule]]\nbetween = ["h3", "*"]\nprotection = "none"\n'
    )
    hosts = ["h1=10.77.0.1", "h2=10.77.0.2", "h3=10.77.1.3", "h4=10.77.0.4"]
    report = check(gambeson, tmp_path, "--policy", str(policy), *hosts)
    rules = {tuple(pair["hosts"]): (pair["protection"], pair["rule"], pair["partition"]) for pair in report["pairs"]}
    assert rules == {
        ("h1", "h2"): ("privacy", f"the rule at {policy}:6", "clinic"),
        ("h1", "h3"): ("none", f"the rule at {policy}:12", None),
        ("h1", "h4"): ("integrity", f"the rule at {policy}:9", None),
        ("h2", "h3"): ("none", f"the rule at {policy}:12", None),
        ("h2", "h4"): ("integrity", f"the rule at {policy}:9", None),
        ("h3", "h4"): ("none", f"the rule at {policy}:12", None),
    }
    text = gambeson_run(gambeson, ["policy", "check", "--policy", str(policy), *hosts], tmp_path).stdout
    assert f"h1  h2  privacy    by the rule at {policy}:6, with the key of partition clinic" in text, text


def test_links_are_judged_by_their_class(gambeson: Path, tmp_path: Path) -> None:
    policy = tmp_path / "policy.toml"
    policy.write_text(
        '[[rule]]\nbetween = ["10.77.0.0/24", "*"]\nclass = "fluxes"\nprotection = "integrity"\n'
        '[[rule]]\nbetween = ["h1", "h2"]\nprotection = "none"\n'
    )
    words = ["--policy", str(policy), "h1=10.77.0.1", "h2=10.77.0.2"]
    decided = {}
    for name in (None, "fluxes", "control", "data"):
        report = check(gambeson, tmp_path, *(["--class", name] if name else []), *words)
        assert (report["class"], report["classes"]) == (name, ["fluxes"])
        decided[name] = (report["pairs"][0]["protection"], report["pairs"][0]["rule"])
    assert decided == {
        None: ("none", f"the rule at {policy}:5"),
        "fluxes": ("integrity", f"the rule at {policy}:1"),
        "control": ("integrity", 'what links of class "control" always have'),
        "data": ("none", f"the rule at {policy}:5"),
    }
    text = gambeson_run(gambeson, ["policy", "check", "--class", "fluxes", *words], tmp_path).stdout
    assert "for          links of class fluxes" in text and f"h1  h2  integrity  by the rule at {policy}:1" in text
    policy.write_text('[[rule]]\nbetween = ["*", "*"]\nclass = "control"\nprotection = "none"\n')
    done = gambeson_run(gambeson, ["policy", "check", *words], tmp_path)
    assert done.returncode == 78 and f'{policy}:4: links of class "control" are never without' in done.stderr, done


def test_communicators_are_judged_by_their_name(gambeson: Path, tmp_path: Path) -> None:
    policy = tmp_path / "policy.toml"
    policy.write_text('[[rule]]\nbetween = ["10.77.0.0/24", "*"]\ncommunicator = "ocean"\nprotection = "none"\n')
    words = ["--policy", str(policy), "h1=10.77.0.1", "h2=10.77.0.2"]
    for name, decided in {"ocean": ("none", f"the rule at {policy}:1"), "sky": ("privacy", "the default")}.items():
        report = check(gambeson, tmp_path, "--communicator", name, *words)
        assert (report["communicator"], report["communicators"]) == (name, ["ocean"])
        assert (report["pairs"][0]["protection"], report["pairs"][0]["rule"]) == decided
    assert check(gambeson, tmp_path, *words)["pairs"][0]["protection"] == "privacy"
    text = gambeson_run(gambeson, ["policy", "check", "--communicator", "ocean", *words], tmp_path).stdout
    assert "communicators ocean\n" in text and f"h1  h2  none       by the rule at {policy}:1" in text


def test_nothing_written_is_privacy(gambeson: Path, tmp_path: Path) -> None:
    report = check(gambeson, tmp_path, "a=10.0.0.1", "b=::1")
    assert report["files"] == []
    assert report["pairs"] == [{"hosts": ["a", "b"], "protection": "privacy", "partition": None, "rule": "the default"}]


def test_a_named_policy_may_weaken_the_default(gambeson: Path, tmp_path: Path) -> None:
    (tmp_path / "weak.toml").write_text(WEAK)
    report = check(gambeson, tmp_path, "--policy", "weak.toml", "a=10.0.0.1", "b=10.0.0.2")
    assert protections(report) == {("a", "b"): "none"}
    assert report["notes"] == []


def test_a_planted_policy_achieves_nothing(gambeson: Path, tmp_path: Path) -> None:
    (tmp_path / "gambeson.toml").write_text(WEAK)
    report = check(gambeson, tmp_path, "a=10.0.0.1", "b=10.0.0.2")
    assert report["files"] == ["gambeson.toml"]
    assert protections(report) == {("a", "b"): "privacy"}
    assert "can only strengthen; the floor holds" in report["notes"][0]


def test_a_policy_beside_the_job_may_strengthen(gambeson: Path, tmp_path: Path) -> None:
    (tmp_path / "gambeson.toml").write_text('intra_host = "sealed"\ngap_timeout = "5 s"\n')
    report = check(gambeson, tmp_path, "a=10.0.0.1", "b=10.0.0.2")
    assert (report["intra_host"], report["gap_timeout_ms"], report["notes"]) == ("sealed", 5000, [])


@needs_root
def test_nobody_goes_below_the_floor(gambeson: Path, tmp_path: Path, floor: Any) -> None:
    (tmp_path / "weak.toml").write_text(WEAK + 'suite = "aes-128-gcm"\nintra_host = "mpi"\n')
    under = floor(
        'protection = "integrity"\nintra_host = "sealed"\n[[rule]]\nbetween = ["a", "b"]\nprotection = "privacy"\n'
    )
    report = check(gambeson, tmp_path, "--policy", "weak.toml", "a=10.0.0.1", "b=10.0.0.2", "c=10.0.0.3", prefix=under)
    assert report["files"] == ["/etc/gambeson/gambeson.toml", "weak.toml"]
    assert protections(report) == {("a", "b"): "privacy", ("a", "c"): "integrity", ("b", "c"): "integrity"}
    assert (report["suite"], report["intra_host"]) == ("aes-256-gcm", "sealed")
    assert len(report["notes"]) == 3, report["notes"]


@needs_root
def test_a_floor_that_others_can_write_is_refused(gambeson: Path, tmp_path: Path, floor: Any) -> None:
    done = gambeson_run(gambeson, ["policy", "check", "a=10.0.0.1"], tmp_path, floor("", 0o666))
    assert done.returncode == 70
    assert "/etc/gambeson/gambeson.toml can be written by others (mode 0666)" in done.stderr
    assert "chmod go-w it" in done.stderr


@pytest.mark.parametrize("mode", [0o666, 0o664, 0o646])
@pytest.mark.parametrize("name", ["gambeson.toml", "named.toml"])
def test_a_policy_that_others_can_write_is_refused(gambeson: Path, tmp_path: Path, name: str, mode: int) -> None:
    path = tmp_path / name
    path.write_text("")
    path.chmod(mode)
    words = ["--policy", name] if name.startswith("named") else []
    done = gambeson_run(gambeson, ["policy", "check", *words, "a=10.0.0.1"], tmp_path)
    assert done.returncode == 70, done.stderr
    assert f"the policy {name} can be written by others (mode {mode:04o}); check what it says" in done.stderr


@needs_root
def test_somebody_elses_policy_is_refused(gambeson: Path, tmp_path: Path) -> None:
    path = tmp_path / "gambeson.toml"
    path.write_text("")
    os.chown(path, 65534, 65534)
    done = gambeson_run(gambeson, ["policy", "check", "a=10.0.0.1"], tmp_path)
    assert done.returncode == 70
    assert "belongs to user 65534, who could weaken it; remove it" in done.stderr


def test_a_policy_that_is_not_there_is_refused(gambeson: Path, tmp_path: Path) -> None:
    done = gambeson_run(gambeson, ["policy", "check", "--policy", "none.toml", "a=10.0.0.1"], tmp_path)
    assert done.returncode == 70
    assert "the policy none.toml cannot be read (No such file" in done.stderr
    assert "make it readable for you, or name another one" in done.stderr


def test_a_policy_that_cannot_be_understood_is_78(gambeson: Path, tmp_path: Path) -> None:
    (tmp_path / "bad.toml").write_text('\nprotection = "secret"\n')
    done = gambeson_run(gambeson, ["policy", "check", "--policy", "bad.toml", "a=10.0.0.1"], tmp_path)
    assert done.returncode == 78
    assert 'bad.toml:2: protection "secret" is unknown; write "privacy", "integrity" or "none"' in done.stderr


def test_a_host_without_address_is_64(gambeson: Path, tmp_path: Path) -> None:
    done = gambeson_run(gambeson, ["policy", "check", "no-such-host.invalid"], tmp_path)
    assert done.returncode == 64
    assert "write no-such-host.invalid=ADDRESS" in done.stderr
