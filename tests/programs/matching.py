"""Point to point: wildcards, order, truncation, cancellation, send modes, probes, persistence. Three ranks or more."""

import random
import time

import numpy as np
from checks import MIB, check, main, pattern, same
from mpi4py import MPI

ANY, ANYTAG = MPI.ANY_SOURCE, MPI.ANY_TAG


def scratch(size=3 * MIB):
    return np.zeros(size, np.uint8)


@check
def wildcards_keep_order(comm):
    """Sizes from nothing to several records, tags at random: what one rank sends arrives in the order it was sent."""
    count = 400
    if comm.rank:
        pick = random.Random(comm.rank)
        for number in range(count):
            size = pick.choice([8, 9, 100, 4096, 5000, 70_000, 300_000]) if number % 8 == 0 else pick.randint(8, 600)
            message = pattern(size, number).copy()
            message[:8] = np.frombuffer(np.int64(number).tobytes(), np.uint8)
            comm.Send(message, 0, pick.randint(0, 30_000))
    else:
        buffer, status = scratch(), MPI.Status()
        seen = [0] * comm.size
        for _ in range(count * (comm.size - 1)):
            comm.Recv(buffer, ANY, ANYTAG, status)
            source, size = status.source, status.Get_count(MPI.BYTE)
            number = int(buffer[:8].view(np.int64)[0])
            assert number == seen[source], f"rank {source}: {number} came for {seen[source]}"
            same(buffer[8:size], pattern(size, number)[8:], f"message {number} of rank {source}")
            seen[source] += 1
        assert seen[1:] == [count] * (comm.size - 1)


@check
def nonblocking_wildcards_keep_order(comm):
    """The same with receives posted ahead: the k-th posted receive gets the k-th message of its match."""
    count = 300
    if comm.rank == 0:
        buffers = np.full((count * (comm.size - 1), 2), -1, np.int64)
        requests = [comm.Irecv(row, ANY, ANYTAG) for row in buffers]
        comm.Barrier()
        MPI.Request.Waitall(requests)
        for source in range(1, comm.size):
            assert buffers[buffers[:, 0] == source, 1].tolist() == list(range(count))
    else:
        comm.Barrier()
        requests = [comm.Isend(np.array([comm.rank, k], np.int64), 0, k % 5) for k in range(count)]
        MPI.Request.Waitall(requests)


@check
def tags_select(comm):
    if comm.rank == 1:
        for tag in range(100):
            comm.send(("tag", tag), 0, tag)
    elif comm.rank == 0:
        for tag in random.Random(5).sample(range(100), 100):
            assert comm.recv(source=1, tag=tag) == ("tag", tag)


@check
def sources_select(comm):
    if comm.rank:
        comm.send(comm.rank, 0, 3)
    else:
        for source in reversed(range(1, comm.size)):
            assert comm.recv(source=source, tag=3) == source


@check
def the_first_posted_match_wins(comm):
    if comm.rank == 0:
        data = np.zeros(4, np.int32)
        requests = [
            comm.Irecv(data[0:1], ANY, ANYTAG),
            comm.Irecv(data[1:2], 1, ANYTAG),
            comm.Irecv(data[2:3], ANY, 7),
            comm.Irecv(data[3:4], 1, 7),
        ]
        comm.Barrier()
        MPI.Request.Waitall(requests)
        assert data.tolist() == [10, 11, 12, 13], data
    else:
        comm.Barrier()
        if comm.rank == 1:
            for value in (10, 11, 12, 13):
                comm.Send(np.array([value], np.int32), 0, 7)


@check
def greatest_tag(comm):
    greatest = comm.Get_attr(MPI.TAG_UB)
    for tag in (0, 1, 32767, greatest // 2, greatest - 1, greatest):
        right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
        assert comm.sendrecv(tag, right, tag, source=left, recvtag=tag) == tag


def truncate(comm, ahead, cases):
    comm.Set_errhandler(MPI.ERRORS_RETURN)
    for size, room in cases:
        if comm.rank == 0:
            buffer = np.full(room + 8, 0x77, np.uint8)
            request = comm.Irecv(buffer[:room], 1, 4) if ahead else None
            comm.send(None, 1, 5)
            if not ahead:
                time.sleep(0.02)
            try:
                request.Wait() if request else comm.Recv(buffer[:room], 1, 4)
            except MPI.Exception as error:
                assert error.Get_error_class() == MPI.ERR_TRUNCATE, error
            else:
                raise AssertionError(f"{size} bytes fitted {room}")
            assert (buffer[room:] == 0x77).all(), f"{size} bytes into {room}: written past the end"
            # The next message is not affected.
            after = np.zeros(10, np.uint8)
            comm.Recv(after, 1, 6)
            same(after, pattern(10, 1))
        elif comm.rank == 1:
            comm.recv(source=0, tag=5)
            request = comm.Isend(pattern(size, 2), 0, 4)
            comm.Send(pattern(10, 1), 0, 6)
            request.Wait()


SMALL_CUTS = ((100, 50), (5000, 100), (4096, 4095))
LARGE_CUTS = ((70_000, 5000), (70_000, 66_000), (MIB, 300_000), (3 * MIB, 10))
TO_NOTHING = ((1, 0), (100, 0), (5000, 0), (70_000, 0), (MIB, 0))


@check
def truncation_small_posted(comm):
    truncate(comm, True, SMALL_CUTS)


@check
def truncation_small_unexpected(comm):
    truncate(comm, False, SMALL_CUTS)


@check
def truncation_large_posted(comm):
    truncate(comm, True, LARGE_CUTS)


@check
def truncation_large_unexpected(comm):
    truncate(comm, False, LARGE_CUTS)


@check
def truncation_to_nothing_posted(comm):
    truncate(comm, True, TO_NOTHING)


@check
def truncation_to_nothing_unexpected(comm):
    truncate(comm, False, TO_NOTHING)


@check
def cancelled_receives(comm):
    if comm.rank == 0:
        buffers = np.zeros((20, 64), np.uint8)
        requests = [comm.Irecv(row, ANY if k % 2 else 1, ANYTAG if k % 3 else 9) for k, row in enumerate(buffers)]
        for k in (0, 1, 3, 8, 19):
            status = MPI.Status()
            requests[k].Cancel()
            requests[k].Wait(status)
            assert status.Is_cancelled(), f"receive {k} was not cancelled"
        comm.send(None, 1, 1)
        for k in sorted(set(range(20)) - {0, 1, 3, 8, 19}):
            requests[k].Wait()
            same(buffers[k], pattern(64, 3), f"receive {k}")
        assert not buffers[[0, 1, 3, 8, 19]].any(), "a cancelled receive was written to"
    elif comm.rank == 1:
        comm.recv(source=0, tag=1)
        for _ in range(15):
            comm.Send(pattern(64, 3), 0, 9)


@check
def synchronous_sends_wait(comm):
    for size in (0, 8, 5000, 100_000, 600_000):
        if comm.rank == 1:
            request = comm.Issend(pattern(size, 1), 0, 2)
            until = time.monotonic() + 0.1
            while time.monotonic() < until:
                assert not request.Test(), f"a synchronous send of {size} bytes ended before its receive began"
            comm.send(None, 0, 3)
            request.Wait()
            comm.Ssend(pattern(size, 2), 0, 2)
        elif comm.rank == 0:
            comm.recv(source=1, tag=3)
            buffer = np.zeros(size, np.uint8)
            for seed in (1, 2):
                comm.Recv(buffer, 1, 2)
                same(buffer, pattern(size, seed))


@check
def buffered_and_ready_sends(comm):
    sizes = (0, 8, 5000, 100_000, 600_000)
    if comm.rank == 1:
        MPI.Attach_buffer(bytearray(sum(sizes) + 10 * MPI.BSEND_OVERHEAD + 10_000))
        for size in sizes:
            comm.Bsend(pattern(size, size), 0, 2)
        MPI.Detach_buffer()
        comm.Barrier()
        for size in sizes:
            comm.Rsend(pattern(size, size + 1), 0, 3)
    elif comm.rank == 0:
        ready = [np.zeros(size, np.uint8) for size in sizes]
        requests = [comm.Irecv(buffer, 1, 3) for buffer in ready]
        for size in sizes:
            buffer = np.zeros(size, np.uint8)
            comm.Recv(buffer, 1, 2)
            same(buffer, pattern(size, size))
        comm.Barrier()
        MPI.Request.Waitall(requests)
        for size, buffer in zip(sizes, ready, strict=True):
            same(buffer, pattern(size, size + 1))
    else:
        comm.Barrier()


PROBED = (0, 1, 4095, 4097, 65_537, 300_000, 2 * MIB)


def _send_for_probes(comm):
    for number, size in enumerate(PROBED):
        comm.Send(pattern(size, number), 0, 40 + number)
    requests = [comm.Isend(pattern(size, number), 0, 40 + number) for number, size in enumerate(PROBED)]
    MPI.Request.Waitall(requests)


@check
def probe(comm):
    if comm.rank == 1:
        _send_for_probes(comm)
    elif comm.rank == 0:
        for turn in range(2):
            for number, size in enumerate(PROBED):
                status = MPI.Status()
                comm.Probe(ANY if turn else 1, ANYTAG if number % 2 else 40 + number, status)
                found = (status.source, status.tag, status.Get_count(MPI.BYTE))
                assert found == (1, 40 + number, size), found
                buffer = np.zeros(size, np.uint8)
                comm.Recv(buffer, status.source, status.tag)
                same(buffer, pattern(size, number))


@check
def iprobe(comm):
    if comm.rank == 1:
        _send_for_probes(comm)
    elif comm.rank == 0:
        assert not comm.Iprobe(1, 30_000), "found a message nobody sent"
        for _ in range(2):
            for number, size in enumerate(PROBED):
                status = MPI.Status()
                while not comm.Iprobe(ANY, 40 + number, status):
                    pass
                assert (status.source, status.Get_count(MPI.BYTE)) == (1, size)
                buffer = np.zeros(size, np.uint8)
                comm.Recv(buffer, 1, 40 + number)
                same(buffer, pattern(size, number))


@check
def probes_leave_the_message(comm):
    if comm.rank == 1:
        comm.Send(pattern(500, 1), 0, 1)
        comm.Send(pattern(500, 2), 0, 1)
    elif comm.rank == 0:
        for _ in range(50):
            comm.Probe(ANY, ANYTAG)
        for seed in (1, 2):
            buffer = np.zeros(500, np.uint8)
            comm.Recv(buffer, 1, 1)
            same(buffer, pattern(500, seed))


@check
def matched_probe(comm):
    if comm.rank == 1:
        _send_for_probes(comm)
    elif comm.rank == 0:
        for turn in range(2):
            claimed = []
            for number, size in enumerate(PROBED):
                status = MPI.Status()
                if turn:
                    message = comm.Mprobe(ANY, ANYTAG, status)
                else:
                    while (message := comm.Improbe(1, 40 + number, status)) is None:
                        pass
                assert (status.tag, status.Get_count(MPI.BYTE)) == (40 + number, size)
                buffer = np.zeros(size, np.uint8)
                if turn:
                    # A claimed message is out of sight of everything else.
                    claimed.append((message.Irecv(buffer), buffer, number))
                else:
                    message.Recv(buffer)
                    same(buffer, pattern(size, number))
            for request, buffer, number in claimed:
                request.Wait()
                same(buffer, pattern(buffer.size, number))


@check
def claimed_messages_keep_until_received(comm):
    if comm.rank == 1:
        # A blocking send of a claimed message may wait until it is received.
        requests = [comm.Isend(pattern(1000 * 8**number, number), 0, 8) for number in range(5)]
        MPI.Request.Waitall(requests)
    elif comm.rank == 0:
        first = comm.Mprobe(1, 8)
        second = comm.Mprobe(1, 8)
        for number in (2, 3):
            buffer = np.zeros(1000 * 8**number, np.uint8)
            comm.Recv(buffer, 1, 8)
            same(buffer, pattern(buffer.size, number))
        for message, number in ((second, 1), (first, 0)):
            buffer = np.zeros(1000 * 8**number, np.uint8)
            message.Recv(buffer)
            same(buffer, pattern(buffer.size, number))
        buffer = np.zeros(1000 * 8**4, np.uint8)
        comm.Recv(buffer, 1, 8)
        same(buffer, pattern(buffer.size, 4))


@check
def persistent_requests(comm):
    right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    sizes = (0, 16, 5000, 70_000, 600_000)
    outgoing = [np.zeros(size, np.uint8) for size in sizes]
    incoming = [np.zeros(size, np.uint8) for size in sizes]
    requests = [comm.Recv_init(buffer, left, k) for k, buffer in enumerate(incoming)]
    requests += [comm.Send_init(buffer, right, k) for k, buffer in enumerate(outgoing)]
    for turn in range(20):
        for k, size in enumerate(sizes):
            outgoing[k][:] = pattern(size, turn + k + comm.rank)
        MPI.Prequest.Startall(requests)
        MPI.Request.Waitall(requests)
        for k, size in enumerate(sizes):
            same(incoming[k], pattern(size, turn + k + left), f"turn {turn}, {size} bytes")
    for request in requests:
        request.Free()


@check
def to_oneself_and_to_nobody(comm):
    for size in (0, 100, 70_000, MIB):
        buffer = np.zeros(size, np.uint8)
        comm.Sendrecv(pattern(size, 1), comm.rank, 1, buffer, comm.rank, 1)
        same(buffer, pattern(size, 1))
    status = MPI.Status()
    comm.Send(pattern(10), MPI.PROC_NULL)
    comm.Recv(buffer, MPI.PROC_NULL, status=status)
    assert status.source == MPI.PROC_NULL and status.Get_count(MPI.BYTE) == 0


@check
def any_some_all(comm):
    count = 60
    if comm.rank == 0:
        buffers = np.zeros((count, 1000), np.uint8)
        requests = [comm.Irecv(row, 1, k) for k, row in enumerate(buffers)]
        comm.Barrier()
        left = set(range(count))
        left.discard(MPI.Request.Waitany(requests))
        done = MPI.Request.Waitsome(requests)
        left -= set(done)
        while left:
            found, flag = MPI.Request.Testany(requests)
            if flag and found != MPI.UNDEFINED:
                left.discard(found)
            some = MPI.Request.Testsome(requests)
            left -= set(some or [])
        assert MPI.Request.Testall(requests)
        for k, row in enumerate(buffers):
            same(row, pattern(1000, k), f"message {k}")
    else:
        comm.Barrier()
        if comm.rank == 1:
            for k in random.Random(1).sample(range(count), count):
                comm.Send(pattern(1000, k), 0, k)


@check
def sendrecv_replace(comm):
    right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    for size in (1, 5000, 300_000):
        buffer = pattern(size, comm.rank).copy()
        comm.Sendrecv_replace(buffer, right, 0, left, 0)
        same(buffer, pattern(size, left))


@check
def communicators_are_apart(comm):
    others = [comm.Dup() for _ in range(20)]
    right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    requests = [other.isend((k, comm.rank), right, 1) for k, other in enumerate(others)]
    for k in reversed(range(20)):
        assert others[k].recv(source=ANY, tag=1) == (k, left)
    MPI.Request.waitall(requests)
    for other in others:
        other.Free()


@check
def intercommunicators(comm):
    colour = comm.rank % 2
    half = comm.Split(colour, comm.rank)
    inter = half.Create_intercomm(0, comm, 1 - colour, 12)
    remote = inter.Get_remote_size()
    if half.rank < remote:
        for size in (0, 100, 70_000, 400_000):
            buffer = np.zeros(size, np.uint8)
            inter.Sendrecv(pattern(size, colour), half.rank, 1, buffer, half.rank, 1)
            same(buffer, pattern(size, 1 - colour))
    total = inter.allreduce(comm.rank)
    assert total == sum(rank for rank in range(comm.size) if rank % 2 != colour)
    merged = inter.Merge(bool(colour))
    assert merged.allreduce(1) == comm.size
    for made in (merged, inter, half):
        made.Free()


@check
def python_objects(comm):
    right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    for size in (0, 10, 10_000):
        thing = {"rank": comm.rank, "list": list(range(size)), "text": "x" * size}
        got = comm.sendrecv(thing, right, source=left)
        assert got == {**thing, "rank": left}


@check
def freed_requests_still_deliver(comm):
    if comm.rank == 1:
        outgoing = [pattern(size, 6).copy() for size in (8, 5000, 300_000)]
        for k, buffer in enumerate(outgoing):
            comm.Isend(buffer, 0, k).Free()
        comm.recv(source=0, tag=99)
    elif comm.rank == 0:
        for k, size in enumerate((8, 5000, 300_000)):
            buffer = np.zeros(size, np.uint8)
            comm.Recv(buffer, 1, k)
            same(buffer, pattern(size, 6))
        comm.send(None, 1, 99)


main()
