"""Jobs whose keys come from the key service: sealed files under its labels, anchors, and who may not."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness.jobs import Job, run_marked
from harness.keyd import KeySite, Person
from harness.mpis import Mpi, clean_environment
from harness.sealed_files import RULES

pytestmark = pytest.mark.mpis("mpich", "openmpi")

UNAVAILABLE, REFUSED, NOT_PERMITTED = 69, 70, 77

# Every rank writes its part of a file, and reads all of it.
WRITE = """
import sys
from mpi4py import MPI
world = MPI.COMM_WORLD
file = MPI.File.Open(world, sys.argv[1], MPI.MODE_CREATE | MPI.MODE_RDWR)
file.Write_at_all(world.rank * 1000, bytes([65 + world.rank]) * 1000)
file.Sync()
world.Barrier()
file.Sync()
whole = bytearray(1000 * world.size)
file.Read_at_all(0, whole)
assert whole == b"".join(bytes([65 + rank]) * 1000 for rank in range(world.size)), whole[:10]
file.Close()
print("done", flush=True)
"""
READ = """
import sys
from mpi4py import MPI
file = MPI.File.Open(MPI.COMM_WORLD, sys.argv[1], MPI.MODE_RDONLY)
some = bytearray(10)
file.Read_at_all(0, some)
file.Close()
print("read " + some.decode() + "\\n", end="", flush=True)
"""


@pytest.fixture
def site(gambeson: Path, tmp_path: Path) -> Iterator[KeySite]:
    made = KeySite(gambeson, tmp_path)
    made.init()
    with made.serving():
        yield made


@pytest.fixture
def ann(site: KeySite) -> Person:
    ann = site.person("ann")
    ann.does("key", "create", "clinical")
    return ann


def run(person: Person, mpi: Mpi, text: str, *words: str, n: int = 3, env: dict[str, str] | None = None) -> Job:
    """A job of a program in Python."""
    policy, program = person.home / "gambeson.toml", person.home / "program.py"
    policy.write_text(RULES)
    policy.chmod(0o600)
    program.write_text(text)
    command = [str(person.gambeson), "run", "--quiet", "--policy", str(policy), "--", *mpi.mpiexec, "-n", str(n)]
    environment = {**clean_environment(), **mpi.common, **person.environment, **(env or {})}
    return run_marked([*command, mpi.python, str(program), *words], env=environment, timeout=120, cwd=person.home)


def test_a_job_writes_and_reads_under_a_label_of_the_service(site: KeySite, ann: Person, mpi: Mpi) -> None:
    bob = site.person("bob")
    file = ann.home / "results.sealed"
    done = run(ann, mpi, WRITE, str(file)).check()
    assert done.stdout.count("done") == 3
    assert b"AAAA" not in file.read_bytes()
    text = ann.does("file", "cat", str(file))
    assert text == "A" * 1000 + "B" * 1000 + "C" * 1000
    # One request for all of its ranks, and the row says for which job; the ranks' anchor is there, too.
    gets = [row for row in ann.audit("clinical") if row["event"] == "get" and "job" in row["about"]]
    assert len(gets) == 1 and len(gets[0]["about"]["job"]) == 16
    assert {row["who"]["name"] for row in ann.audit("clinical") if row["event"] == "anchor"} == {"user:ann"}
    # Somebody who may not read is told so, and then may.
    refused = run(bob, mpi, READ, str(file))
    assert refused.status != 0 and "gambeson key grant clinical user:bob --read" in refused.output, refused.output
    ann.does("key", "grant", "clinical", "bob", "--read")
    assert run(bob, mpi, READ, str(file)).check().stdout.count("read AAAAAAAAAA") == 3
    # Who may only read does not write.
    refused = run(bob, mpi, WRITE, str(file))
    assert refused.status != 0 and "gambeson key grant clinical user:bob --write" in refused.output, refused.output
    assert ann.does("file", "cat", str(file)) == text
    # Both are in the log, once for all ranks that tried, with the job.
    rows = [row for row in ann.audit("clinical") if row["event"] == "refusal"]
    assert [(row["who"]["name"], row["about"]["wanted"]) for row in rows] == [
        ("user:bob", "read"),
        ("user:bob", "write"),
    ]
    assert all(len(row["about"]["job"]) == 16 for row in rows)


def test_ranks_under_identities_of_their_own(site: KeySite, ann: Person, mpi: Mpi) -> None:
    """Each gets the keys of its own identity through the job's one connection, and nobody else's."""
    bob = site.person("bob")
    bob.does("key", "create", "bobs")
    ann.does("key", "create", "anns")
    identities = {person.home.name: str(person.home / ".config/gambeson") for person in (ann, bob)}
    listing = [str(ann.gambeson), "key", "list", "--json"]
    parts = [["-n", "1", "env", f"GAMBESON_IDENTITY={identities[name]}", *listing] for name in ("ann", "bob")]
    command = [str(ann.gambeson), "run", "--quiet", "--", *mpi.mpiexec, *parts[0], ":", *parts[1]]
    environment = {**clean_environment(), **mpi.common, **ann.environment}
    done = run_marked(command, env=environment, timeout=120, cwd=ann.home).check()
    assert sorted(every_json(done.stdout), key=len) == [["bobs"], ["anns", "clinical"]], done.describe()
    rows = [row for row in bob.audit("bobs") if row["event"] == "get"]
    assert [row["who"]["name"] for row in rows] == ["user:bob"]
    assert "user:ann" in rows[0]["who"]["from"], "who passed it on"
    # One that is not there: nobody was asked.
    none = ["-n", "1", "env", f"GAMBESON_IDENTITY={ann.home}/none", *listing]
    done = run_marked([*command[:4], *mpi.mpiexec, *none], env=environment, timeout=120, cwd=ann.home)
    said = next(line for line in done.stderr.splitlines() if "GAMBESON_IDENTITY" in line)
    assert said.startswith(f"gambeson: the identity {ann.home}/none") and "says no" not in said, said


def every_json(text: str) -> list[list[str]]:
    """The labels of each listing."""
    decoder, rest, seen = json.JSONDecoder(), text.strip(), []
    while rest:
        value, end = decoder.raw_decode(rest)
        seen.append([label["label"] for label in value["labels"]])
        rest = rest[end:].strip()
    return seen


def test_a_tool_of_a_job_is_refused_by_the_service(site: KeySite, ann: Person, mpi: Mpi) -> None:
    """And a label that was granted since the job began is given."""
    bob, file = site.person("bob"), ann.home / "results.sealed"
    (ann.home / "plain").write_text("plain")
    ann.does("file", "seal", "--label", "clinical", str(ann.home / "plain"), str(file))
    tries = f"""
import subprocess, time
cat = [{str(bob.gambeson)!r}, "file", "cat", {str(file)!r}]
first = subprocess.run(cat, capture_output=True, text=True)
assert first.returncode == {NOT_PERMITTED} and "gambeson key grant clinical user:bob --read" in first.stderr, first
open("refused", "w").close()
for _ in range(60):
    again = subprocess.run(cat, capture_output=True, text=True)
    if again.returncode == 0:
        break
    time.sleep(0.5)
print("then " + again.stdout)
"""

    def grant() -> None:
        while not (bob.home / "refused").exists():
            time.sleep(0.1)
        ann.does("key", "grant", "clinical", "bob", "--read")

    granting = threading.Thread(target=grant, daemon=True)
    granting.start()
    assert "then plain" in run(bob, mpi, tries, n=1).check().stdout
    granting.join(10)
    rows = [row for row in ann.audit("clinical") if row["who"]["name"] == "user:bob"]
    assert {row["event"] for row in rows} == {"refusal", "get"} and all("job" in row["about"] for row in rows)


def test_an_old_file_is_noticed_by_a_job(ann: Person, mpi: Mpi) -> None:
    file = ann.home / "results.sealed"
    run(ann, mpi, WRITE, str(file)).check()
    old = file.read_bytes()
    run(ann, mpi, WRITE, str(file)).check()
    file.write_bytes(old)
    refused = run(ann, mpi, READ, str(file))
    # Of long sentences the MPI library shows both ends.
    assert refused.status != 0 and "an old v" in refused.output, refused.output
    assert f"accept this one: gambeson file accept --older {file}" in refused.output, refused.output


def test_a_service_that_is_away(site: KeySite, ann: Person, mpi: Mpi) -> None:
    """A job is not started without the keys that its user names; one of a site that names them goes on, and says so."""
    file = ann.home / "results.sealed"
    run(ann, mpi, WRITE, str(file)).check()
    there, away = site.keys, f"keyd://{site.host}=127.0.0.1:9"
    refused = run(ann, mpi, READ, str(file), env={"GAMBESON_KEYS": away})
    assert refused.status == UNAVAILABLE and "cannot be asked" in refused.output, refused.output
    ann.environment.pop("GAMBESON_KEYS")
    of_site = ann.home / ".config/gambeson/site.toml"
    text = of_site.read_text()
    of_site.write_text(text + f'keys = "{away}"\n')
    assert run(ann, mpi, "print('went on')").check().stdout.count("went on") == 3
    of_site.write_text(text + f'keys = "{there}"\n')
    assert run(ann, mpi, READ, str(file)).check().stdout.count("read AAAAAAAAAA") == 3


def test_ranks_and_tools_of_a_job_have_its_keys(ann: Person, mpi: Mpi) -> None:
    ann.does("key", "create", "second")
    show = (
        "import subprocess, sys; print(subprocess.run(sys.argv[1:], capture_output=True, check=True).stdout.decode())"
    )
    listed = run(ann, mpi, show, str(ann.gambeson), "key", "list", "--json", n=2).check().stdout
    assert every_json(listed) == [["clinical", "second"]] * 2
    # They asked the job's holder, and not the service.
    assert len([row for row in ann.audit("second") if row["event"] == "get"]) == 1
