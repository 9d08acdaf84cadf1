"""Says over which kind of address its messages to the other rank go. Two ranks."""

import subprocess

from checks import check, main, pattern, same


@check
def only_ipv6_is_connected(comm):
    data = pattern(3_000_000, comm.rank).copy()
    received = comm.sendrecv(data, 1 - comm.rank)
    same(received, pattern(3_000_000, 1 - comm.rank))
    comm.Barrier()
    if comm.rank == 0:
        shown = subprocess.run(["ss", "-tnH", "state", "established"], capture_output=True, text=True, check=True)
        assert shown.stdout.count("[fd00::1]") >= 2, shown.stdout
    comm.Barrier()


main()
