"""Derived datatypes on either side and on both, below and above the thresholds. Two ranks."""

import numpy as np
from checks import check, main, pattern, same
from mpi4py import MPI


def cross(comm, sent, sent_type, received, received_type, wanted):
    """Rank 0 sends `sent`; what rank 1 has in `received` afterwards must equal `wanted`."""
    for datatype in (sent_type, received_type):
        datatype.Commit()
    for ahead in (True, False):
        if comm.rank == 0:
            if ahead:
                comm.Barrier()
            comm.Send([sent, 1, sent_type], 1, 3)
            if not ahead:
                comm.send(None, 1, 4)
        else:
            buffer = received.copy()
            if ahead:
                request = comm.Irecv([buffer, 1, received_type], 0, 3)
                comm.Barrier()
                request.Wait()
            else:
                # Overtaken by nothing: same source, but another tag was asked for first.
                while not comm.Iprobe(0, 3):
                    pass
                status = MPI.Status()
                comm.Recv([buffer, 1, received_type], 0, 3, status)
                comm.recv(source=0, tag=4)
                assert status.Get_elements(MPI.BYTE) == sent_type.Get_size()
            same(buffer, wanted)
    for datatype in (sent_type, received_type):
        datatype.Free()


@check
def strided_to_contiguous(comm):
    for rows, width, pitch in ((3, 5, 8), (100, 64, 100), (3000, 100, 128), (9000, 100, 110)):
        source = pattern(rows * pitch, 1).copy()
        wanted = source.reshape(rows, pitch)[:, :width].ravel()
        cross(
            comm,
            source,
            MPI.BYTE.Create_vector(rows, width, pitch),
            np.zeros(rows * width, np.uint8),
            MPI.BYTE.Create_contiguous(rows * width),
            wanted,
        )


@check
def contiguous_to_strided(comm):
    for rows, width, pitch in ((3, 5, 8), (100, 64, 100), (3000, 100, 128), (9000, 100, 110)):
        target = np.full(rows * pitch, 0xEE, np.uint8)
        wanted = target.copy()
        wanted.reshape(rows, pitch)[:, :width] = pattern(rows * width, 2).reshape(rows, width)
        cross(
            comm,
            pattern(rows * width, 2).copy(),
            MPI.BYTE.Create_contiguous(rows * width),
            target,
            MPI.BYTE.Create_vector(rows, width, pitch),
            wanted,
        )


@check
def strided_to_differently_strided(comm):
    source = pattern(1200 * 1000, 3).copy()
    target = np.full(800_000, 0x11, np.uint8)
    wanted = target.copy()
    wanted.reshape(4000, 200)[:, :150] = source.reshape(1200, 1000)[:, :500].reshape(4000, 150)
    cross(comm, source, MPI.BYTE.Create_vector(1200, 500, 1000), target, MPI.BYTE.Create_vector(4000, 150, 200), wanted)


@check
def indexed(comm):
    lengths = [1, 7, 100, 5000, 70_000, 2]
    starts = [3, 10, 40, 1000, 9000, 90_000]
    source = pattern(100_000, 4).copy()
    wanted = np.concatenate([source[s : s + n] for s, n in zip(starts, lengths, strict=True)])
    cross(
        comm,
        source,
        MPI.BYTE.Create_indexed(lengths, starts),
        np.zeros(sum(lengths), np.uint8),
        MPI.BYTE.Create_contiguous(sum(lengths)),
        wanted,
    )


@check
def structures(comm):
    record = np.dtype([("id", np.int32), ("weight", np.float64), ("name", "S7"), ("flag", np.int8)], align=True)
    for count in (1, 10, 5000, 40_000):
        values = np.zeros(count, record)
        values["id"] = np.arange(count)
        values["weight"] = np.sqrt(np.arange(count))
        values["name"] = [b"n%06d" % (k % 1_000_000) for k in range(count)]
        values["flag"] = np.arange(count) % 3
        fields = record.fields
        kinds = [MPI.INT32_T, MPI.DOUBLE, MPI.CHAR, MPI.INT8_T]
        raw = MPI.Datatype.Create_struct([1, 1, 7, 1], [fields[name][1] for name in record.names], kinds)
        datatype = raw.Create_resized(0, record.itemsize).Commit()
        if comm.rank == 0:
            comm.Send([values, count, datatype], 1)
        else:
            found = np.zeros(count, record)
            comm.Recv([found, count, datatype], 0)
            for name in record.names:
                assert (found[name] == values[name]).all(), name
        datatype.Free()
        raw.Free()


@check
def subarrays(comm):
    whole = pattern(60 * 70 * 80, 5).copy().reshape(60, 70, 80)
    part = MPI.BYTE.Create_subarray([60, 70, 80], [40, 50, 60], [5, 6, 7]).Commit()
    for _ in range(3):
        if comm.rank == 0:
            comm.Send([whole, 1, part], 1)
        else:
            found = np.zeros_like(whole)
            comm.Recv([found, 1, part], 0)
            wanted = np.zeros_like(whole)
            wanted[5:45, 6:56, 7:67] = whole[5:45, 6:56, 7:67]
            same(found, wanted)
    part.Free()


@check
def many_small_blocks(comm):
    """Every other double of a large array: thousands of pieces in one message."""
    count = 100_000
    pairs = MPI.DOUBLE.Create_vector(count, 1, 2).Commit()
    values = np.arange(2.0 * count)
    if comm.rank == 0:
        comm.Ssend([values, 1, pairs], 1)
    else:
        found = np.full(2 * count, -1.0)
        comm.Recv([found, 1, pairs], 0)
        same(found[::2], values[::2])
        assert (found[1::2] == -1).all()
    pairs.Free()


@check
def packed(comm):
    if comm.rank == 0:
        room = bytearray(200_000)
        position = MPI.INT.Pack(np.arange(100, dtype=np.int32), room, 0, comm)
        position = MPI.DOUBLE.Pack(np.arange(20_000.0), room, position, comm)
        comm.Send([room, position, MPI.PACKED], 1)
    else:
        room = bytearray(200_000)
        comm.Recv([room, MPI.PACKED], 0)
        integers, doubles = np.zeros(100, np.int32), np.zeros(20_000)
        position = MPI.INT.Unpack(room, 0, integers, comm)
        MPI.DOUBLE.Unpack(room, position, doubles, comm)
        same(integers, np.arange(100, dtype=np.int32))
        same(doubles, np.arange(20_000.0))


main()
