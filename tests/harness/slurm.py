"""A real Slurm on this machine: munged, slurmctld and a slurmd per node, out of one folder, on loopback.

Nodes are names of this one machine, the first its own, so that with two of them Slurm believes in another host.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import socket
import subprocess
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from harness.jobs import MARK, Job, end_marked, run_marked
from harness.mpis import Unavailable, clean_environment

PROGRAMS = ("munged", "slurmctld", "slurmd", "srun", "salloc", "sbatch", "scontrol", "scancel")
PATIENCE_S = 30.0

# More CPUs than the machine may have: ranks share them here as everywhere in these tests.
_CONF = """\
ClusterName={name}
SlurmctldHost={controller}
SlurmctldPort={ctld}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={socket}
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
MailProg=/bin/true
ReturnToService=2
SlurmdParameters=config_overrides
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
KillWait=2
MessageTimeout=30
SchedulerParameters=batch_sched_delay=0
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
PlugStackConfig={folder}/plugstack.conf
{lines}
PartitionName=all Nodes=ALL Default=YES State=UP OverSubscribe=FORCE:8
"""


class Slurm:
    """A cluster that runs; `env` is what its commands need."""

    def __init__(self, folder: Path, nodes: int = 1) -> None:
        missing = [program for program in PROGRAMS if _which(program) is None]
        if missing:
            raise Unavailable(f"{', '.join(missing)} of Slurm are missing: run tools/bootstrap.sh test as root")
        self.folder = folder
        self.mark = uuid.uuid4().hex
        own = socket.gethostname().split(".")[0]
        self.nodes = [own, *(f"{own}-{number}" for number in range(2, nodes + 1))]
        self.env = {
            **clean_environment(),
            "PATH": f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin",
            "SLURM_CONF": str(folder / "slurm.conf"),
        }
        self.daemons: list[subprocess.Popen[bytes]] = []

    def up(self) -> None:
        folder, (ctld, *ports) = self.folder, _free_ports(1 + len(self.nodes))
        (folder / "state").mkdir()
        (folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")
        nodes = [
            f"NodeName={node} NodeHostname={self.nodes[0]} NodeAddr=127.0.0.1 Port={port} CPUs=8 State=UNKNOWN"
            for node, port in zip(self.nodes, ports, strict=True)
        ]
        self._configure("localhost(127.0.0.1)", ctld, f"{folder}/munge.socket", nodes)
        self._munged("munged", f"{folder}/munge.socket")
        self._wait("munged", (folder / "munge.socket").exists)
        self._daemon("slurmctld", "-D", "-c")
        for node in self.nodes:
            self._daemon("slurmd", "-D", "-N", node)
        self._wait("its nodes", self._idle)

    def _configure(self, controller: str, ctld: int, socket: str, lines: Sequence[str]) -> None:
        folder = self.folder
        text = _CONF.format(
            name=f"gbt{os.getpid()}",
            controller=controller,
            ctld=ctld,
            user=_user(),
            folder=folder,
            socket=socket,
            lines="\n".join(lines),
        )
        (folder / "slurm.conf").write_text(text)
        (folder / "plugstack.conf").touch()
        key = folder / "munge.key"
        key.touch(mode=0o600)
        key.write_bytes(os.urandom(128))
        for node in self.nodes:
            (folder / f"spool-{node}").mkdir()

    def _munged(self, name: str, socket: str, prefix: Sequence[str] = ()) -> None:
        folder = self.folder
        # --force: a temporary folder is closed to others, which munged wants open.
        self._daemon(
            "munged",
            "--foreground",
            "--force",
            f"--key-file={folder}/munge.key",
            f"--socket={socket}",
            f"--pid-file={folder}/{name}.pid",
            f"--seed-file={folder}/{name}.seed",
            f"--log-file={folder}/{name}.log",
            prefix=prefix,
        )

    def down(self) -> None:
        # Steps end with their jobs; what is left after that carries the mark.
        self.run(["scancel", "--user", _user()], timeout=20)
        for daemon in reversed(self.daemons):
            daemon.terminate()
        for daemon in self.daemons:
            with contextlib.suppress(subprocess.TimeoutExpired):
                daemon.wait(timeout=5)
        end_marked(self.mark)

    def run(
        self,
        command: Sequence[str | Path],
        *,
        env: Mapping[str, str] | None = None,
        timeout: float = 60,
        cwd: Path | None = None,
    ) -> Job:
        return run_marked(
            [str(word) for word in command], env={**self.env, **(env or {})}, timeout=timeout, cwd=cwd or self.folder
        )

    def _daemon(self, program: str, *arguments: str, prefix: Sequence[str] = ()) -> None:
        path = _which(program)
        assert path is not None
        with (self.folder / f"{program}.out").open("ab") as output:
            self.daemons.append(
                subprocess.Popen(
                    [*prefix, path, *arguments],
                    env={**self.env, MARK: self.mark},
                    cwd=self.folder,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    start_new_session=True,
                )
            )

    def _idle(self) -> bool:
        shown = subprocess.run(["sinfo", "-h", "-N", "-o", "%T"], env=self.env, capture_output=True, text=True).stdout
        return shown.split() == ["idle"] * len(self.nodes)

    def _wait(self, what: str, ready: object) -> None:
        assert callable(ready)
        deadline = time.monotonic() + PATIENCE_S
        while not ready():
            ended = [daemon.args for daemon in self.daemons if daemon.poll() is not None]
            if ended or time.monotonic() > deadline:
                self.down()
                raise RuntimeError(f"Slurm does not start: {what} not ready; ended: {ended}\n{self._logs()}")
            time.sleep(0.1)

    def _logs(self) -> str:
        logs = [*self.folder.glob("*.out"), *self.folder.glob("*.log")]
        return "\n".join(f"--- {log.name}\n{log.read_text(errors='replace')[-2000:]}" for log in logs)


def _user() -> str:
    return pwd.getpwuid(os.geteuid()).pw_name


def _which(program: str) -> str | None:
    return shutil.which(program) or shutil.which(program, path="/usr/sbin:/sbin")


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


@contextlib.contextmanager
def slurm(folder: Path, nodes: int = 1) -> Iterator[Slurm]:
    cluster = Slurm(folder, nodes)
    cluster.up()
    try:
        yield cluster
    finally:
        cluster.down()
