"""waiting.py FOLDER: talks, leaves each rank's process id in FOLDER, and goes on talking until FOLDER/end appears."""

import os
import sys
import time
from pathlib import Path

from mpi4py import MPI

world = MPI.COMM_WORLD
folder = Path(sys.argv[1])
# What a core dump of ordinary memory must show.
marker = bytearray(b"ordinary" + b" memory of rank %d " % world.rank * 8)
world.sendrecv(os.urandom(100_000), (world.rank + 1) % world.size, source=(world.rank - 1) % world.size)
unfinished = folder / f"rank-{world.rank}.new"
unfinished.write_text(str(os.getpid()))
unfinished.rename(folder / f"rank-{world.rank}")
while not world.allreduce(int((folder / "end").exists())):
    time.sleep(0.05)
