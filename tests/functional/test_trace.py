"""`gambeson run --trace`: what is written down is what the program sent, and `gambeson sim` replays it."""

from __future__ import annotations

import json
import stat
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from harness import traces
from harness.hosts import Hosts
from harness.jobs import Job, run_marked
from harness.mpis import Mpi, clean_environment
from harness.programs import Programs
from harness.sim import Sim
from harness.traces import RECEIVED, SEND, SENT, Trace

pytestmark = pytest.mark.usefixtures("sealed_only")
PROGRAM = "known_messages.py"
SIZES = [*range(4000, 4020), 5001, 5002, 300_001]


@pytest.fixture
def sealed_only(plain: bool) -> None:
    if plain:
        pytest.skip("a plain job has no Gambeson that writes anything down")


def machine(tmp_path: Path, trace: Path, nodes: int, more: str = "") -> Path:
    experiment = tmp_path / "machine.toml"
    experiment.write_text(f'topology = {{ kind = "mesh", dims = [{nodes}] }}\n[replay]\ntraces = ["{trace}"]\n{more}')
    return experiment


def in_order(trace: Trace) -> None:
    for records in trace.ranks:
        assert (np.diff(records["wall_ns"].astype("i8")) >= 0).all()
        for thread in set(records["thread"].tolist()):
            own = records[records["thread"] == thread]
            assert (np.diff(own["cpu_ns"].astype("i8")) >= 0).all()
            assert own["gap_ns"].sum() <= own["cpu_ns"].max()


@pytest.mark.mpis("mpich", "openmpi", "intel", "debian-openmpi")
def test_every_message_is_there_with_both_ends(
    run_job: Callable[..., Job], gambeson: Path, mpi: Mpi, programs: Programs, tmp_path: Path
) -> None:
    path, report = tmp_path / "known.gbt", tmp_path / "report.json"
    options = [f"--trace={path}", f"--json={report}"]
    job = run_job(mpi, [programs.path(PROGRAM)], n=3, options=options).check()
    assert f"{path} holds" in job.stderr and "not complete" not in job.stderr, job.describe()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    trace = traces.read(path)
    assert trace.header["name"] == "known" and trace.header["missing"] == []
    assert [rank["world_rank"] for rank in trace.header["ranks"]] == [0, 1, 2]
    assert all(rank["closed"] and rank["lost"] == 0 for rank in trace.header["ranks"])
    assert any(PROGRAM in word for word in trace.header["command"])
    # What was sent is what was received, message by message; and what each rank counted by itself.
    assert trace.messages(SEND) == trace.messages(RECEIVED)
    assert trace.header["matched"] == len(trace.messages(SEND))
    for rank in json.loads(report.read_text())["ranks"]:
        sent, got = trace.of(rank["rank"], SEND), trace.of(rank["rank"], RECEIVED)
        assert (len(sent), int(sent["bytes"].sum())) == (rank["messages_sent"], rank["bytes_sent"])
        assert (len(got), int(got["bytes"].sum())) == (rank["messages_received"], rank["bytes_received"])
    # The program's own, by their sizes: each once, each to the right, in the order in which it sent them.
    for rank in range(3):
        sent = trace.of(rank, SEND)
        own = sent[np.isin(sent["bytes"], SIZES) & (sent["peer"] == (rank + 1) % 3)]
        assert own["bytes"].tolist() == SIZES
        assert (np.diff(own["number"].astype("i8")) > 0).all()
        assert trace.of(rank, SENT)["bytes"].tolist() == [300_001], "this one alone cannot go at once"
        got = trace.of(rank, RECEIVED)["bytes"].tolist()
        assert got.index(5002) < got.index(5001)
    # Within the broadcast, two ranks get what the third has.
    sizes = Counter(size for *_, size in trace.messages(SEND))
    assert sum(count for size, count in sizes.items() if 777 <= size < 900) == 2, sizes
    in_order(trace)
    replays(gambeson, tmp_path, path)


def replays(gambeson: Path, tmp_path: Path, path: Path) -> None:
    done = Sim(gambeson, tmp_path).call("advise", path)
    assert done.returncode == 0 and "known on this machine needs a session-key cache of" in done.stdout, done.stderr
    ended = []
    for scale in ("1", "20"):
        experiment = machine(tmp_path, path, 3, f"processes = {{ gap_scale = {scale} }}\n")
        done = Sim(gambeson, tmp_path).call("run", experiment, "--json", tmp_path / "outcome.json")
        assert done.returncode == 0 and "when recorded" in done.stdout, done.stderr
        [outcome] = json.loads((tmp_path / "outcome.json").read_text())["jobs"]
        assert outcome["recorded_us"] > 0
        ended.append(outcome["ended_us"])
    assert ended[0] < ended[1] < 20 * ended[0]


def test_computing_is_told_from_waiting(
    run_job: Callable[..., Job], mpi: Mpi, programs: Programs, tmp_path: Path
) -> None:
    """Each rank computes 5 ms after each of 20 messages; that they wait for each other is no computing.

    Where something else has the processors, polls come further apart than waiting is known by: the least of three.
    """
    path = tmp_path / "waits.gbt"
    least = [float("inf")] * 2
    for _ in range(3):
        run_job(mpi, [programs.path(PROGRAM), "wait"], options=[f"--trace={path}"]).check()
        trace = traces.read(path)
        for rank in range(2):
            records = trace.ranks[rank]
            [first] = np.flatnonzero((records["bytes"] == 4000) & (records["kind"] == SEND))
            [last] = np.flatnonzero((records["bytes"] == 5001) & (records["kind"] == SEND))
            computed = int(records["gap_ns"][first + 1 : last + 1].sum())
            assert computed > 99e6, f"rank {rank} computed 100 ms, and the trace says {computed / 1e6}"
            least[rank] = min(least[rank], computed)
        if max(least) < 150e6:
            return
    raise AssertionError(f"the ranks computed 100 ms each, and the trace says {[least / 1e6 for least in least]}")


def test_a_killed_rank_leaves_what_it_had(
    run_job: Callable[..., Job], gambeson: Path, mpi: Mpi, programs: Programs, tmp_path: Path
) -> None:
    path = tmp_path / "killed.gbt"
    job = run_job(mpi, [programs.path(PROGRAM), "kill"], options=[f"--trace={path}"], timeout=60)
    assert job.status != 0 and not job.survivors and not job.timed_out, job.describe()
    trace = traces.read(path)
    assert not trace.header["ranks"][1]["closed"]
    said = "rank 1 on "
    assert any(sentence.startswith(said) and "without closing" in sentence for sentence in trace.header["missing"])
    for sentence in trace.header["missing"]:
        assert f"gambeson: the trace is not complete: {sentence}" in job.stderr, job.describe()
    for rank in range(2):
        own = trace.of(rank, SEND)["bytes"].tolist()
        assert [size for size in own if size in SIZES] == SIZES, "all that went before is there"
    # It says so itself when it is replayed, or replays what there is.
    done = Sim(gambeson, tmp_path).call("run", machine(tmp_path, path, 2))
    assert done.returncode == 0 or (done.returncode == 65 and "killed.gbt, rank" in done.stderr), done.stderr
    assert "when recorded" not in done.stdout


def test_what_has_no_room_is_counted(run_job: Callable[..., Job], mpi: Mpi, gambeson: Path, tmp_path: Path) -> None:
    """A limit of one MiB holds 21,845 records."""
    path = tmp_path / "full.gbt"
    program = "from mpi4py import MPI\nw = MPI.COMM_WORLD\nb = bytearray(8)\nfor n in range(15_000):\n"
    program += "    w.Send(b, 1) if w.rank == 0 else w.Recv(b, 0)\n    w.Recv(b, 1) if w.rank == 0 else w.Send(b, 0)\n"
    options = [f"--trace={path}", "--trace-limit=1"]
    job = run_job(mpi, [mpi.python, "-c", program], options=options).check()
    assert "rank 0 could not write down" in job.stderr and "--trace-limit" in job.stderr, job.describe()
    trace = traces.read(path)
    for rank, records in zip(trace.header["ranks"], trace.ranks, strict=True):
        assert len(records) <= (1 << 20) // 48 and rank["lost"] > 8_000
        assert rank["lost"] + rank["records"] > 30_000


@pytest.mark.mpis("openmpi")
def test_a_small_file_limit_ends_the_trace_and_not_the_job(
    run_job: Callable[..., Job], mpi: Mpi, programs: Programs, tmp_path: Path
) -> None:
    """A rank that wrote beyond `ulimit -f`, here 5 KiB, would be ended by a signal. Only Open MPI lives with that."""
    path = tmp_path / "limit.gbt"
    words = ["bash", "-c", 'ulimit -f 5; exec "$@"', "sh", mpi.python, str(programs.path(PROGRAM))]
    job = run_job(mpi, words, options=[f"--trace={path}"]).check()
    assert "could not write down" in job.stderr, job.describe()
    trace = traces.read(path)
    assert all(
        0 < len(records) <= 1024 // 48 and rank["lost"]
        for rank, records in zip(trace.header["ranks"], trace.ranks, strict=True)
    )


@pytest.mark.mpis("mpich")
def test_bad_outputs_are_refused_before_the_job_starts(run_job: Callable[..., Job], mpi: Mpi, tmp_path: Path) -> None:
    for path, why in ((tmp_path / "missing" / "t.gbt", "No such file"), (tmp_path, "directory")):
        job = run_job(mpi, ["echo", "started"], options=[f"--trace={path}"])
        assert job.status == 71 and "started" not in job.stdout, job.describe()
        assert f"the trace cannot be written to {path}" in job.stderr and why in job.stderr, job.describe()
    job = run_job(mpi, ["echo", "started"], options=["--trace=/dev/null"])
    assert job.status == 71 and "it is no regular file" in job.stderr, job.describe()
    path = tmp_path / "t.gbt"
    job = run_job(mpi, ["echo", "started"], options=[f"--trace={path}"]).check()
    assert f"no process wrote anything down, so there is no trace in {path}" in job.stderr and not path.exists()


@pytest.mark.namespaces
@pytest.mark.mpis("mpich")
def test_a_full_disk_leaves_no_half_trace(run_job: Callable[..., Job], mpi: Mpi, tmp_path: Path) -> None:
    disk, kept = tmp_path / "disk", tmp_path / "kept"
    disk.mkdir()
    mount = f'mount -t tmpfs -o nr_blocks=1 tmpfs {disk} && "$@"; status=$?; ls {disk} > {kept}; exit $status'
    program = "from mpi4py import MPI\nw = MPI.COMM_WORLD\n"
    program += "for n in range(1000): w.Sendrecv(bytearray(8), 1 - w.rank, recvbuf=bytearray(8))\n"
    job = run_job(
        mpi,
        [mpi.python, "-c", program],
        options=[f"--trace={disk}/t.gbt"],
        prefix=["unshare", "-m", "bash", "-c", mount, "sh"],
    )
    assert job.status == 71 and "cannot be written" in job.stderr and "No space left" in job.stderr, job.describe()
    assert kept.read_text() == ""


@pytest.mark.mpis("mpich")
def test_traced_jobs_are_sealed_inside_hosts(gambeson: Path, mpi: Mpi, programs: Programs, tmp_path: Path) -> None:
    path, report = tmp_path / "t.gbt", tmp_path / "report.json"

    def run(*options: str) -> Job:
        words = [str(gambeson), "run", *options, f"--trace={path}", f"--json={report}", "--", *mpi.mpiexec, "-n", "2"]
        command = [*words, mpi.python, str(programs.path(PROGRAM))]
        return run_marked(command, env={**clean_environment(), **mpi.common}, timeout=60)

    job = run().check()
    assert "--trace takes messages between processes of one host through the provider too" in job.stderr
    found: dict[str, Any] = json.loads(report.read_text())
    assert found["intra_host"] == "sealed" and all(rank["records_sealed"] > 23 for rank in found["ranks"])
    job = run("--intra-host", "mpi")
    assert job.status == 64 and "leave one of them out" in job.stderr, job.describe()


@pytest.mark.mpis("mpich")
def test_nothing_of_what_messages_say_is_in_a_trace(run_job: Callable[..., Job], mpi: Mpi, tmp_path: Path) -> None:
    path = tmp_path / "secret.gbt"
    program = "from mpi4py import MPI\nw = MPI.COMM_WORLD\nb = bytearray(('HUSH' + 'NOWORD') * 50, 'ascii')\n"
    program += "for n in range(50): w.Sendrecv(b, 1 - w.rank, recvbuf=bytearray(500))\n"
    run_job(mpi, [mpi.python, "-c", program], options=[f"--trace={path}"]).check()
    records = b"".join(records.tobytes() for records in traces.read(path).ranks)
    assert len(records) > 200 * 48 and b"HUSH" not in records and b"NOWORD" not in records


@pytest.mark.mpis("mpich", "openmpi")
def test_spawned_processes_have_places_of_their_own(
    run_job: Callable[..., Job], mpi: Mpi, programs: Programs, tmp_path: Path
) -> None:
    path = tmp_path / "spawned.gbt"
    run_job(mpi, [programs.path("spawn.py")], options=[f"--trace={path}"]).check()
    trace = traces.read(path)
    ranks = [rank["world_rank"] for rank in trace.header["ranks"]]
    assert ranks[:2] == [0, 1] and len(ranks) > 2 and set(ranks[2:]) <= {0, 1, 2, 3}, trace.header
    assert trace.messages(SEND) == trace.messages(RECEIVED)


@pytest.mark.namespaces
def test_other_hosts_send_what_they_wrote_down(
    gambeson: Path, mpi: Mpi, programs: Programs, two_hosts: Hosts, tmp_path: Path
) -> None:
    path = tmp_path / "hosts.gbt"
    words, env = two_hosts.launcher(mpi.name)
    program = [mpi.python, str(programs.path(PROGRAM))]
    command = [str(gambeson), "run", f"--trace={path}", "--", *mpi.mpiexec, *words, "-n", "2", *program]
    two_hosts.run("h1", command, env={**clean_environment(), **mpi.common, **env}).check()
    trace = traces.read(path)
    assert trace.header["hosts"] == ["h1", "h2"] and [rank["host"] for rank in trace.header["ranks"]] == [0, 1]
    assert trace.header["missing"] == [] and trace.messages(SEND) == trace.messages(RECEIVED)
    # One kernel, one clock: nothing is received before it was sent.
    assert "the monotonic clock of the one host" in trace.header["clock"]
    in_order(trace)
