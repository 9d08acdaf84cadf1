"""waiting.py FOLDER: talks, leaves the job's credential and each rank's process id in FOLDER, and goes on talking until
FOLDER/end appears."""

import os
import subprocess
import sys
import time
from pathlib import Path

from mpi4py import MPI

world = MPI.COMM_WORLD
folder = Path(sys.argv[1])
# What a core dump of ordinary memory must show.
marker = bytearray(b"ordinary" + b" memory of rank %d " % world.rank * 8)
# Under a weaker policy a communicator that asks for more has keys of its own.
sealed = world.Dup_with_info(MPI.Info.Create({"gambeson_protection": "privacy"}))
for comm in (world, sealed):
    comm.sendrecv(os.urandom(100_000), (comm.rank + 1) % comm.size, source=(comm.rank - 1) % comm.size)
if world.rank == 0 and "GAMBESON_JOB" in os.environ:
    # In a process of its own: this one's memory is searched.
    ask = Path(__file__).resolve().parents[2] / "programs" / "ask.py"
    with (folder / "credential").open("wb") as file:
        subprocess.run([sys.executable, ask, "credential"], stdout=file, check=True)
unfinished = folder / f"rank-{world.rank}.new"
unfinished.write_text(str(os.getpid()))
unfinished.rename(folder / f"rank-{world.rank}")
while not world.allreduce(int((folder / "end").exists())):
    time.sleep(0.05)
