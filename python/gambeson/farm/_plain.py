"""The plain form of tokens: data of Python's own types, arrays, and Arrow's; no objects. Nothing that is read runs
code, so what comes from a worker that nobody trusts is read so (threat-model.md, rule 13).

MessagePack, with types of its own for what that lacks:

    1 tuple   2 set   3 frozenset   4 int of any size   5 complex
    6 array: dtype, shape, in the order of Fortran or not, number of its buffer
    7 Arrow table   8 Arrow record batch   9 Arrow array: number of the buffer with its IPC stream
    10 bytes in a buffer beside, 11 bytearray so
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgpack

if TYPE_CHECKING:
    from typing_extensions import Buffer

TUPLE, SET, FROZENSET, INT, COMPLEX, ARRAY, TABLE, BATCH, ARROW, BYTES, BYTEARRAY = range(1, 12)

_DTYPE = re.compile(r"[<>|=]?(?:[biufcSUV][0-9]{1,9}|[mM]8(?:\[[0-9]{0,9}[a-zA-Z]{1,2}\])?)")

BESIDE = 4096
"""Bytes that are longer stand in a buffer beside."""
DEPTH = 64


class NotPlain(TypeError):
    """Something is not data of a plain kind."""


def dump(value: object) -> list[Buffer]:
    """Writes data: a stream, and buffers.

    Raises `NotPlain` for what is none.
    """
    beside: list[Buffer] = []
    packer = msgpack.Packer(strict_types=True, use_bin_type=True)

    def pack(inner: object, depth: int) -> bytes:
        packed = packer.pack(_reduced(inner, beside, pack, depth))
        assert isinstance(packed, bytes)
        return packed

    return [pack(value, 0), *beside]


def _reduced(value: Any, beside: list[Buffer], pack: Any, depth: int) -> Any:
    """The value in what MessagePack has."""
    if depth > DEPTH:
        raise NotPlain("it is nested too deep")
    kind = type(value)
    if kind in (type(None), bool, float, str):
        return value
    if kind is int:
        if -(1 << 63) <= value < 1 << 64:
            return value
        return msgpack.ExtType(INT, value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True))
    if kind in (bytes, bytearray):
        if kind is bytes and len(value) <= BESIDE:
            return value
        beside.append(value)
        return msgpack.ExtType(BYTES if kind is bytes else BYTEARRAY, pack(len(beside), 0))
    if kind is list:
        return [_reduced(one, beside, pack, depth + 1) for one in value]
    if kind is dict:
        return {
            _reduced(key, beside, pack, depth + 1): _reduced(one, beside, pack, depth + 1) for key, one in value.items()
        }
    if kind in (tuple, set, frozenset):
        code = TUPLE if kind is tuple else SET if kind is set else FROZENSET
        if kind is not tuple:
            # The same set is the same bytes, in whatever order its elements come.
            value = sorted(value, key=lambda one: pack(one, depth + 1))
        return msgpack.ExtType(code, pack(list(value), depth + 1))
    if kind is complex:
        return msgpack.ExtType(COMPLEX, pack([value.real, value.imag], 0))
    return _arrays(value, kind, beside, pack)


def _arrays(value: Any, kind: type, beside: list[Buffer], pack: Any) -> msgpack.ExtType:
    module = kind.__module__.partition(".")[0]
    if module == "numpy":
        import numpy

        if issubclass(kind, numpy.generic):
            value = numpy.asarray(value)
        if type(value) is numpy.ndarray and value.dtype.kind in "biufcmMSUV" and not value.dtype.hasobject:
            fortran = value.flags.f_contiguous and not value.flags.c_contiguous
            value = numpy.asarray(value, order="F" if fortran else "C")
            flat = value.T if fortran else value
            beside.append(memoryview(flat.reshape(-1).view(numpy.uint8)))
            description = value.dtype.str if value.dtype.names is None else value.dtype.descr
            return msgpack.ExtType(ARRAY, pack([description, list(value.shape), fortran, len(beside)], 0))
    if module == "pyarrow":
        import pyarrow

        if isinstance(value, (pyarrow.Table, pyarrow.RecordBatch, pyarrow.Array)):
            code = TABLE if isinstance(value, pyarrow.Table) else BATCH
            if isinstance(value, pyarrow.Array):
                code, value = ARROW, pyarrow.RecordBatch.from_arrays([value], ["it"])
            sink = pyarrow.BufferOutputStream()
            with pyarrow.ipc.new_stream(sink, value.schema) as writer:
                writer.write(value)
            beside.append(memoryview(sink.getvalue()))
            return msgpack.ExtType(code, pack(len(beside), 0))
    what = f"{kind.__module__}.{kind.__qualname__} is no plain data"
    raise NotPlain(what)


def load(parts: Sequence[Buffer]) -> Any:
    """Reads data.

    Raises `ValueError` for what nobody who keeps to the form has written.
    """

    depth = 0

    def extended(code: int, data: bytes) -> Any:
        inner = unpack(data)
        match code:
            case _ if code == TUPLE:
                return tuple(inner)
            case _ if code == SET:
                return set(inner)
            case _ if code == FROZENSET:
                return frozenset(inner)
            case _ if code == COMPLEX:
                return complex(*inner)
            case _ if code == ARRAY:
                return _array(inner, parts)
            case _ if code in (TABLE, BATCH, ARROW):
                return _arrow(code, _beside(inner, parts))
            case _ if code == BYTES:
                return bytes(_beside(inner, parts))
            case _ if code == BYTEARRAY:
                return bytearray(_beside(inner, parts))
        what = f"data of a kind {code} that there is none of"
        raise ValueError(what)

    def hook(code: int, data: bytes) -> Any:
        return int.from_bytes(data, "little", signed=True) if code == INT else extended(code, data)

    def unpack(data: Buffer) -> Any:
        nonlocal depth
        depth += 1
        if depth > DEPTH:
            raise ValueError("data that is nested too deep")
        found = msgpack.unpackb(data, ext_hook=hook, strict_map_key=False, raw=False)
        depth -= 1
        return found

    try:
        return unpack(parts[0])
    except Exception as error:
        # msgpack, numpy and Arrow have each their own.
        what = f"data that breaks the plain form: {error}"
        raise ValueError(what) from None


def _beside(number: object, parts: Sequence[Buffer]) -> Buffer:
    if not isinstance(number, int) or not 0 < number < len(parts):
        raise ValueError("data that stands in a buffer which did not come")
    return parts[number]


def _array(description: Any, parts: Sequence[Buffer]) -> Any:
    import numpy

    kind, shape, fortran, number = description
    dtype = numpy.dtype(_dtype(kind))
    if dtype.hasobject:
        raise ValueError("an array of objects")
    shape = [int(length) for length in shape]
    array = numpy.frombuffer(_beside(number, parts), dtype)
    return array.reshape(shape[::-1]).T if fortran else array.reshape(shape)


def _dtype(kind: Any) -> Any:
    """A description of a dtype, of its plain parts alone: numpy reads more than that."""
    if isinstance(kind, str) and _DTYPE.fullmatch(kind):
        return kind
    if isinstance(kind, list) and kind:
        fields = []
        for name, inner, *shape in kind:
            shapes = [tuple(int(length) for length in each) for each in shape]
            fields.append((str(name), _dtype(inner), *shapes))
        return fields
    raise ValueError("an array of a kind that is no plain one")


def _arrow(code: int, stream: Buffer) -> Any:
    import pyarrow

    # A registered extension type is Python's code, which reading the schema would call: its name is looked for before.
    schema = pyarrow.ipc.read_message(pyarrow.py_buffer(stream))
    if b"ARROW:extension:name" in memoryview(schema.metadata).tobytes():
        raise ValueError("an Arrow column of an extension type")
    with pyarrow.ipc.open_stream(pyarrow.py_buffer(stream)) as reader:
        table = reader.read_all()
    if code == TABLE:
        return table
    batches = table.combine_chunks().to_batches()
    batch = batches[0] if batches else pyarrow.RecordBatch.from_pylist([], schema=table.schema)
    return batch if code == BATCH else batch.column(0)
