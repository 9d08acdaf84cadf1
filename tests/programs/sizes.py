"""Every size around every threshold, both ways, into a posted receive and as an unexpected message. Two ranks."""

import numpy as np
from checks import MIB, check, main, pattern, same

THRESHOLDS = (4096, 16384, 65536, 262144, 524288, MIB)
AROUND = (-65, -64, -41, -40, -39, -24, -16, -8, -1, 0, 1, 8, 16, 39, 40, 41, 64, 65)
SMALL = [*range(131), 255, 256, 257, 1000, 2000, 3000]
LARGE = [3 * MIB + 1, 16 * MIB - 1, 40 * MIB]


def sizes():
    near = [threshold + delta for threshold in THRESHOLDS for delta in AROUND]
    double = [2 * threshold + delta for threshold in THRESHOLDS[2:] for delta in (-40, -1, 0, 1, 40)]
    return sorted({*SMALL, *near, *double, *LARGE})


def exchange(comm, posted):
    peer = 1 - comm.rank
    for number, size in enumerate(sizes()):
        outgoing = pattern(size, number + comm.rank)
        # A guard byte beyond the message: nothing may be written there.
        incoming = np.full(size + 1, 0xA5, np.uint8)
        if posted:
            request = comm.Irecv(incoming[:size], peer, number)
            comm.Barrier()
            comm.Send(outgoing, peer, number)
            request.Wait()
        else:
            request = comm.Isend(outgoing, peer, number)
            # What comes later has been received: the earlier message waits unexpected.
            comm.sendrecv(None, peer, 32000, source=peer, recvtag=32000)
            comm.Recv(incoming[:size], peer, number)
            request.Wait()
        same(incoming[:size], pattern(size, number + peer), f"{size} bytes")
        assert incoming[size] == 0xA5, f"{size} bytes: written past the end"


@check
def posted(comm):
    exchange(comm, posted=True)


@check
def unexpected(comm):
    exchange(comm, posted=False)


@check
def into_larger_buffers(comm):
    peer = 1 - comm.rank
    for number, size in enumerate((0, 1, 4095, 4096, 65537, 262145, 524289, 3 * MIB)):
        incoming = np.full(size + 1000, 0x5A, np.uint8)
        comm.Sendrecv(pattern(size, number), peer, 1, incoming, peer, 1)
        same(incoming[:size], pattern(size, number), f"{size} bytes")
        assert (incoming[size:] == 0x5A).all(), f"{size} bytes: written past the end"


@check
def many_in_flight(comm):
    """Large messages both ways at once, more than any ring of buffers holds."""
    peer = 1 - comm.rank
    size, count = 700_001, 24
    incoming = [np.empty(size, np.uint8) for _ in range(count)]
    requests = [comm.Irecv(incoming[k], peer, k) for k in range(count)]
    requests += [comm.Isend(pattern(size, k + 7 * comm.rank), peer, k) for k in range(count)]
    for request in requests:
        request.Wait()
    for k in range(count):
        same(incoming[k], pattern(size, k + 7 * peer), f"message {k}")


main()
