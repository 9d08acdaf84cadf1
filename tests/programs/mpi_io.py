"""Random MPI-IO on two files at once: one that is sealed and one that is not must behave alike, byte for byte.

    mpi_io.py FOLDER SEED FIRST CASES

Case number c of a seed is the same whatever was run before it. Every rank compares what it sees, and the first
difference ends the job; FOLDER/failure-RANK has the case's number, its steps and both results.
"""

from __future__ import annotations

import random
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mpi4py import MPI

WORLD = MPI.COMM_WORLD
# Intel MPI's data sieving fills holes with ones, whatever the hints say.
HOLES = "Intel" not in MPI.Get_library_version()
# MPICH cannot convert these, and Intel MPI aborts when a view has them.
PAIRS = [MPI.SHORT_INT, MPI.DOUBLE_INT]
# Elsewhere the plain file is written and read by the simplest call that does the same: Open MPI and Intel MPI have
# errors in nonblocking and collective access.
EXACT = "MPICH" in MPI.Get_library_version()
OPEN_MPI = "Open MPI" in MPI.Get_library_version()
ELEMENTS = [MPI.BYTE, MPI.SHORT, MPI.INT, MPI.FLOAT, MPI.DOUBLE, MPI.INT64_T, *(PAIRS if HOLES else [])]
BASE = 400_000
"""Files stay about as short."""
ROOM = 40_000
"""What a rank has to itself in a view of its own."""
Result = dict[str, Any]


class Types:
    """Random datatypes; those made in a case are freed with it."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.made: list[MPI.Datatype] = []

    def keep(self, made: MPI.Datatype) -> MPI.Datatype:
        self.made.append(made)
        return made

    def commit(self, datatype: MPI.Datatype) -> MPI.Datatype:
        return datatype if datatype.is_predefined else datatype.Commit()

    def free(self) -> None:
        for datatype in self.made:
            datatype.Free()

    def nested(self, base: MPI.Datatype, depth: int, sorted_: bool) -> MPI.Datatype:
        """A type of `base` elements, with displacements that increase if `sorted_`."""
        datatype = base
        for _ in range(depth):
            if datatype.Get_size() == 0:
                # The bounds of nothing are what a library likes.
                return base
            if datatype.Get_size() > 512 or datatype.Get_extent()[1] > 4096:
                break
            datatype = self.keep(self.around(datatype, sorted_))
        return datatype

    def around(self, old: MPI.Datatype, sorted_: bool) -> MPI.Datatype:
        rng = self.rng
        # What one element covers, so that the next one never reaches into it.
        span = max(old.Get_extent()[1], sum(old.Get_true_extent()))
        dense = span == old.Get_extent()[1]
        count = rng.randint(1, 4)
        lengths = [rng.randint(0, 3) if dense else rng.randint(0, 1) for _ in range(count)]
        starts, at = [], rng.randint(0, 2)
        for length in lengths:
            starts.append(at)
            at += length + rng.randint(0, 3)
        pairs = list(zip(lengths, starts, strict=True))
        if not sorted_:
            rng.shuffle(pairs)
        lengths, starts = [length for length, _ in pairs], [start for _, start in pairs]
        kinds: list[Callable[[], MPI.Datatype]] = [
            lambda: old.Create_hvector(count, 1, span + rng.randint(0, 9)),
            lambda: old.Create_hindexed(lengths, [start * span + start // 2 for start in starts]),
            lambda: old.Create_hindexed_block(1, [start * span for start in sorted(set(starts))]),
            lambda: self.structure(old, lengths, [start * span for start in starts]),
            lambda: old.Create_resized(0, span + rng.randint(0, 17)),
            old.Dup,
        ]
        if dense:
            length = rng.randint(1, 3)
            kinds += [
                lambda: old.Create_contiguous(count),
                lambda: old.Create_vector(count, length, length + rng.randint(0, 3)),
                lambda: old.Create_indexed(lengths, starts),
                lambda: old.Create_indexed_block(length, [index * (length + 1) for index in range(count)]),
                lambda: self.subarray(old),
                lambda: self.darray(old),
            ]
        return rng.choice(kinds)()

    def structure(self, old: MPI.Datatype, lengths: list[int], places: list[int]) -> MPI.Datatype:
        # A second view of the same bytes, so that members differ.
        other = self.keep(old.Dup())
        types = [other if self.rng.random() < 0.5 else old for _ in lengths]
        return MPI.Datatype.Create_struct(lengths, places, types)

    def subarray(self, old: MPI.Datatype) -> MPI.Datatype:
        rng = self.rng
        sizes = [rng.randint(1, 5) for _ in range(rng.randint(1, 3))]
        parts = [rng.randint(1, size) for size in sizes]
        starts = [rng.randint(0, size - part) for size, part in zip(sizes, parts, strict=True)]
        return old.Create_subarray(sizes, parts, starts, rng.choice([MPI.ORDER_C, MPI.ORDER_FORTRAN]))

    def darray(self, old: MPI.Datatype, rank: int | None = None) -> MPI.Datatype:
        rng = self.rng
        sizes = [rng.randint(2, 7) for _ in range(rng.randint(1, 3))]
        kinds, arguments, grid, processes = [], [], [], 1
        for size in sizes:
            kind = rng.choice([MPI.DISTRIBUTE_BLOCK, MPI.DISTRIBUTE_CYCLIC, MPI.DISTRIBUTE_NONE])
            across = 1 if kind == MPI.DISTRIBUTE_NONE else rng.randint(1, 2)
            default = kind == MPI.DISTRIBUTE_NONE or rng.random() < 0.5
            least = -(-size // across) if kind == MPI.DISTRIBUTE_BLOCK else 1
            kinds.append(kind)
            grid.append(across)
            arguments.append(MPI.DISTRIBUTE_DFLT_DARG if default else rng.randint(least, size))
            processes *= across
        rank = rng.randrange(processes)
        order = rng.choice([MPI.ORDER_C, MPI.ORDER_FORTRAN])
        return old.Create_darray(processes, rank, sizes, kinds, arguments, grid, order)


class Case:
    """One random sequence of calls on a pair of handles."""

    def __init__(self, comm: MPI.Intracomm, folder: Path, seed: str) -> None:
        self.comm, self.folder, self.seed = comm, folder, seed
        self.rng = random.Random(seed)  # the same on every rank
        self.types = Types(self.rng)
        self.steps: list[str] = []
        # The policy tells by the name how it is sealed.
        self.kind = self.rng.choice(["sealed", "sealed", "slots", "detached"])
        self.names = [folder / "file.plain", folder / f"file.{self.kind}"]
        self.steps.append(self.kind)
        self.files: list[MPI.File] = []

    def run(self) -> None:
        rng, comm = self.rng, self.comm
        for name in self.names:
            if comm.rank == 0:
                name.unlink(missing_ok=True)
        comm.Barrier()
        self.open(MPI.MODE_CREATE | MPI.MODE_RDWR)
        if not HOLES:
            self.base()
        for _ in range(rng.randint(4, 9)):
            self.step()
        self.close()
        self.compare_whole()
        if comm.rank == 0:
            for name in self.names:
                MPI.File.Delete(str(name))
            left = [path.name for path in self.folder.iterdir()]
            assert not left, left
        comm.Barrier()
        self.types.free()

    def open(self, mode: int) -> None:
        self.mode = mode
        # ROMIO's data sieving writes what it finds in memory to bytes behind the end that nobody wrote, and Intel MPI's
        # collective buffering reads too little.
        hints = MPI.Info.Create({f"romio_{what}": "disable" for what in ("ds_write", "cb_write", "ds_read", "cb_read")})
        self.files = [MPI.File.Open(self.comm, str(name), mode, hints) for name in self.names]
        hints.Free()
        self.etype, self.filetype, self.alike, self.apart = MPI.BYTE, MPI.BYTE, True, False
        self.end = BASE
        self.displacement, self.representation = 0, "native"
        self.both("amode", lambda file: {"amode": file.Get_amode()})
        self.both("opened", self.pointers)

    def base(self) -> None:
        """Gives every byte that a case may skip a value."""
        for file in self.files:
            if self.comm.rank == 0:
                file.Write_at(0, b"." * BASE)
        self.settle()

    def close(self) -> None:
        for file in self.files:
            file.Close()

    def pointers(self, file: MPI.File) -> Result:
        found = {"size": file.Get_size(), "position": file.Get_position()}
        self.comm.Barrier()
        found["shared"] = file.Get_position_shared()
        self.comm.Barrier()
        found["atomic"] = file.Get_atomicity()
        return found

    def step(self) -> None:
        rng = self.rng
        kinds: list[tuple[int, Callable[[], None]]] = [
            (5, self.set_view),
            (12, self.write),
            (8, self.read),
            (2, self.seek),
            (1, self.resize),
            (1, self.reopen),
            (1, self.atomicity),
            (2, self.ask),
        ]
        rng.choices([kind for _, kind in kinds], [weight for weight, _ in kinds])[0]()

    def both(self, what: str, call: Callable[[MPI.File], Result]) -> None:
        """Calls on the plain and the sealed file; both must do the same."""
        self.steps.append(what)
        results = []
        for file in self.files:
            try:
                results.append(call(file))
            except MPI.Exception as error:
                # Open MPI has one class for nearly everything.
                results.append({"error": OPEN_MPI or error.Get_error_class(), "text": error.Get_error_string()})
        # Nobody changes a file while another asks about it.
        self.comm.Barrier()
        plain, sealed = results
        if {**plain, "text": ""} != {**sealed, "text": ""}:
            differing = {key for key in plain.keys() | sealed.keys() if plain.get(key) != sealed.get(key)}
            report = "\n".join(
                f"  {key}\n    plain  {show(plain.get(key))}\n    sealed {show(sealed.get(key))}"
                for key in sorted(differing)
            )
            raise AssertionError(f"rank {self.comm.rank} of {self.comm.size}: {what}\n{report}")

    def settle(self) -> None:
        """What was written is there for all."""
        if self.mode & MPI.MODE_RDONLY:
            return
        for file in self.files:
            file.Sync()
        self.comm.Barrier()
        for file in self.files:
            file.Sync()

    def set_view(self) -> None:
        rng, types, comm = self.rng, self.types, self.comm
        element = rng.choice(ELEMENTS)
        self.etype = types.commit(types.nested(element, rng.choice([0, 0, 1]), True))
        if self.etype.Get_size() == 0:
            self.etype = element
        representation = "native"
        shape = rng.choice(["bytes", "alike", "apart", "interleaved", "interleaved"])
        displacement = rng.choice([0, rng.randint(0, 100), rng.randint(0, 5000)])
        self.alike, self.apart = shape in ("bytes", "alike"), shape in ("apart", "interleaved")
        if shape == "bytes":
            self.etype = self.filetype = types.commit(element)
        elif shape == "alike":
            self.filetype = types.commit(types.nested(self.etype, rng.randint(1, 3), True))
        elif shape == "apart":
            # Each rank its own type in its own part of the file: all ranks draw all of them.
            drawn = [types.nested(self.etype, rng.randint(0, 3), True) for _ in range(comm.size)]
            self.filetype = types.commit(drawn[comm.rank])
            displacement += comm.rank * ROOM
        else:
            self.filetype = types.commit(self.interleaved())
        # HOLES: Intel MPI refuses some of these views at one rank, and then all others wait for ever.
        if rng.random() < 0.1 and element not in PAIRS and HOLES:
            representation = "external32"
        if self.filetype.Get_size() == 0:
            self.filetype = self.etype
            self.alike, self.apart = not self.apart, self.apart

        self.displacement, self.representation, self.element = displacement, representation, element
        self.end = displacement + ROOM if shape == "apart" else BASE

        def call(file: MPI.File) -> Result:
            file.Set_view(displacement, self.etype, self.filetype, representation)
            disp, etype, filetype, name = file.Get_view()
            found = {"disp": disp, "sizes": (etype.Get_size(), filetype.Get_size()), "name": name}
            for datatype in (etype, filetype):
                if not datatype.is_predefined:
                    datatype.Free()
            return {**found, "position": file.Get_position()}

        self.both(
            f"set_view {shape} at {displacement} {representation} {describe(self.etype)} {describe(self.filetype)}",
            call,
        )
        self.comm.Barrier()

    def interleaved(self) -> MPI.Datatype:
        """The ranks' slots of one tile, dealt at random."""
        rng, comm = self.rng, self.comm
        span = max(self.etype.Get_extent()[1], sum(self.etype.Get_true_extent()))
        slots = rng.randint(comm.size, 4 * comm.size)
        owners = [rng.randrange(-1, comm.size) for _ in range(slots)]
        owners[rng.randrange(slots)] = comm.size - 1
        own = [slot * span for slot, owner in enumerate(owners) if owner == comm.rank]
        if not own:
            # Behind the others' slots; nobody else's.
            own = [(slots + comm.rank) * span]
        dealt = self.types.keep(self.etype.Create_hindexed_block(1, own))
        return self.types.keep(dealt.Create_resized(0, (slots + comm.size) * span))

    def memory(self, direction: str, whole: int) -> tuple[bytearray, int, MPI.Datatype]:
        """A buffer with about `whole` etypes of data, as a random type of memory."""
        rng, types = self.rng, self.types
        # The type of memory may differ from rank to rank in nothing but its contents: all draw alike.
        depth = rng.choice([0, 1, 2])
        datatype = types.commit(types.nested(self.etype, depth, False))
        if datatype.Get_size() == 0:
            datatype = self.etype
        if self.representation != "native":
            # ... and writes outside of its memory when it converts what has gaps.
            datatype = self.element
        count = max(1, whole * self.etype.Get_size() // datatype.Get_size()) if whole else 0
        room = sum(datatype.Get_true_extent()) + max(0, count - 1) * datatype.Get_extent()[1] + 64
        if direction == "write":
            buffer = bytearray(random.Random(f"{self.seed} {len(self.steps)} {self.comm.rank}").randbytes(room))
        else:
            buffer = bytearray(b"\xee" * room)
        return buffer, count, datatype

    def write(self) -> None:
        self.access("write")

    def read(self) -> None:
        self.settle()
        self.access("read")

    def access(self, direction: str) -> None:
        rng, comm = self.rng, self.comm
        if direction == "write" and self.mode & MPI.MODE_RDONLY:
            direction = "read"
        if direction == "read" and self.mode & MPI.MODE_WRONLY:
            direction = "write"
        places = ["explicit", "individual"] + (["shared", "ordered"] if self.alike else [])
        place = rng.choice(places)
        who = {"shared": "alone", "ordered": "all"}.get(place) or rng.choice(["alone", "all"])
        how = rng.choice(["blocking", "nonblocking", "split"])
        if (how == "split" and who == "alone") or (how == "nonblocking" and place == "ordered"):
            how = "blocking"
        if how == "nonblocking" and self.representation != "native":
            # MPICH frees the converted data before it is written...
            how = "blocking"
        whole = rng.choice([0, 1, rng.randint(1, 40), rng.randint(1, 400)])
        buffer, count, datatype = self.memory(direction, whole)
        etypes = count * datatype.Get_size() // self.etype.Get_size()
        offset = rng.choice([0, rng.randint(0, 20), rng.randint(0, 300)])
        if place == "individual" and not self.apart and direction == "write":
            # Ranks at one place of one view: none writes where another does.
            self.steps.append("seek apart")
            for file in self.files:
                file.Seek(comm.rank * etypes + offset)
        elif place == "individual" and rng.random() < 0.3:
            for file in self.files:
                file.Seek(offset)
        if place == "explicit" and not self.apart:
            offset += comm.rank * etypes
        file = self.files[1]
        last = max(offset, file.Get_position(), file.Get_position_shared() if self.alike else 0) + etypes * comm.size
        if comm.allreduce(file.Get_byte_offset(last) > self.end, MPI.LOR):
            return
        short = False
        if direction == "read":
            start = offset if place == "explicit" else self.files[0].Get_position()
            short = place in ("shared", "ordered") or (start + etypes) * self.etype.Get_size() > self.end_of_data()
            if OPEN_MPI and self.representation != "native" and comm.allreduce(short, MPI.LOR):
                # Open MPI waits for ever for what lies behind the end and has to be converted.
                return
        spoken = f"{direction} {place} {who} {how}: {count} x {describe(datatype)} at {offset}, {etypes} etypes"

        def call(file: MPI.File) -> Result:
            target = bytearray(buffer)
            status = MPI.Status()
            memory = [target, count, datatype]
            turns = range(comm.size) if place == "shared" else [comm.rank]
            for turn in turns:
                if turn == comm.rank:
                    self.call(file, direction, place, who, how, memory, offset, status)
                if place == "shared":
                    comm.Barrier()
            if short:
                # MPI leaves to the library what is in the buffer behind the file's end, and libraries count there what
                # was asked for.
                file.Seek(0)
                return {}
            found: Result = {"bytes": status.Get_elements(MPI.BYTE), "position": file.Get_position()}
            if direction == "read":
                found["buffer"] = bytes(target)
            return found

        self.both(spoken, call)
        comm.Barrier()
        if self.alike:
            self.both("shared pointer", lambda file: {"shared": file.Get_position_shared()})
            comm.Barrier()
        if direction == "write":
            self.settle()
            self.both("size", lambda file: {"size": file.Get_size()})
            comm.Barrier()

    def end_of_data(self) -> int:
        """Bytes of the view's data that are wholly in the file."""
        # Open MPI looks for the end without the view.
        file = self.files[1 if OPEN_MPI else 0]
        if file.Get_size() < self.displacement:
            return 0
        position = file.Get_position()
        file.Seek(0, MPI.SEEK_END)
        end = file.Get_position()
        file.Seek(position)
        return max(0, end - 1) * self.etype.Get_size()

    def call(
        self,
        file: MPI.File,
        direction: str,
        place: str,
        who: str,
        how: str,
        memory: Any,
        offset: int,
        status: MPI.Status,
    ) -> None:
        if file is self.files[0] and not EXACT:
            who, how = "alone", "blocking"
        name = {"explicit": "_at", "individual": "", "shared": "_shared", "ordered": "_ordered"}[place]
        name += "_all" if who == "all" and place != "ordered" else ""
        arguments = [offset, memory] if place == "explicit" else [memory]
        if how == "nonblocking":
            request = getattr(file, f"I{direction}{name}")(*arguments)
            request.Wait(status)
        elif how == "split":
            getattr(file, f"{direction.capitalize()}{name}_begin")(*arguments)
            getattr(file, f"{direction.capitalize()}{name}_end")(memory, status)
        else:
            getattr(file, f"{direction.capitalize()}{name}")(*arguments, status)

    def seek(self) -> None:
        rng = self.rng
        whence = rng.choice([MPI.SEEK_SET, MPI.SEEK_CUR, MPI.SEEK_END])
        offset = rng.choice([0, rng.randint(0, 50), -rng.randint(0, 9)])
        self.settle()
        if whence == MPI.SEEK_END and OPEN_MPI and self.comm.allreduce(self.filetype != MPI.BYTE):
            # Open MPI looks for the end without the view.
            whence = MPI.SEEK_SET
        if whence == MPI.SEEK_END and self.comm.allreduce(self.files[0].Get_size() < self.displacement):
            # ROMIO finds the end of a file at negative offsets then.
            whence = MPI.SEEK_CUR
        if self.alike and rng.random() < 0.5:
            if whence == MPI.SEEK_END:
                # Open MPI finds another end.
                whence = MPI.SEEK_SET
            offset = abs(offset)

            def shared(file: MPI.File) -> Result:
                file.Seek_shared(offset, whence)
                self.comm.Barrier()
                position = file.Get_position_shared()
                self.comm.Barrier()
                return {"shared": position}

            self.both(f"seek_shared {offset} {whence}", shared)
            return

        def call(file: MPI.File) -> Result:
            file.Seek(offset, whence)
            return {"position": file.Get_position()}

        self.both(f"seek {offset} {whence}", call)
        for file in self.files:
            file.Seek(0)

    def resize(self) -> None:
        if self.mode & MPI.MODE_RDONLY or not HOLES:
            return
        size = self.rng.randint(0, 9000)
        # Open MPI writes more than it is to preallocate.
        shrinks = self.rng.random() < 0.6 or OPEN_MPI
        self.settle()

        def call(file: MPI.File) -> Result:
            if shrinks:
                file.Set_size(size)
            else:
                file.Preallocate(size)
            return {"size": file.Get_size()}

        self.both(f"{'set_size' if shrinks else 'preallocate'} {size}", call)
        self.settle()

    def reopen(self) -> None:
        self.close()
        self.comm.Barrier()
        self.compare_whole()
        mode = self.rng.choice(
            [MPI.MODE_RDWR, MPI.MODE_RDWR, MPI.MODE_WRONLY, MPI.MODE_RDONLY, MPI.MODE_RDWR | MPI.MODE_APPEND]
        )
        self.steps.append(f"reopen {mode}")
        self.open(mode)

    def atomicity(self) -> None:
        atomic = self.rng.random() < 0.5

        def call(file: MPI.File) -> Result:
            file.Set_atomicity(atomic)
            return {"atomic": file.Get_atomicity()}

        self.both(f"atomic {atomic}", call)

    def ask(self) -> None:
        offset = self.rng.randint(0, 500)
        self.both(f"byte offset of {offset}", lambda file: {"byte": file.Get_byte_offset(offset)})

    def compare_whole(self) -> None:
        """Every rank reads both files whole, through handles of its own."""
        whole = []
        for name in self.names:
            file = MPI.File.Open(MPI.COMM_SELF, str(name), MPI.MODE_RDONLY)
            size = file.Get_size()
            buffer = bytearray(size)
            file.Read_at(0, [buffer, size, MPI.BYTE])
            file.Close()
            whole.append(bytes(buffer))
        self.steps.append("compare")
        plain, sealed = whole
        if self.kind == "detached":
            # Every byte of its data is where the program wrote it.
            assert self.names[1].stat().st_size == len(plain)
        if plain != sealed:
            at = next((i for i, (a, b) in enumerate(zip(plain, sealed, strict=False)) if a != b), min(map(len, whole)))
            window = slice(at, at + 32)
            raise AssertionError(
                f"rank {self.comm.rank} of {self.comm.size}: "
                f"the files differ from byte {at} on, of {len(plain)} and {len(sealed)}\n"
                f"    plain  {plain[window].hex()}\n    sealed {sealed[window].hex()}"
            )
        self.comm.Barrier()


def describe(datatype: MPI.Datatype) -> str:
    lower, extent = datatype.Get_extent()
    return f"{datatype.combiner}({datatype.Get_size()} B in {lower}+{extent})"


def show(value: Any) -> str:
    if isinstance(value, bytes):
        return f"{len(value)} bytes {value[:64].hex()}"
    return str(value)


def main() -> None:
    folder, seed, first, cases = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
    groups = {size: WORLD.Split(0 if WORLD.rank < size else MPI.UNDEFINED) for size in range(1, WORLD.size + 1)}
    for number in range(first, first + cases):
        name = f"{seed}/{number}"
        size = random.Random(name).randint(1, WORLD.size)
        if WORLD.rank < size:
            case = Case(groups[size], folder, name)
            try:
                case.run()
            except Exception:
                steps = "\n".join(f"  {step}" for step in case.steps)
                text = traceback.format_exc()
                # Launchers lose what is printed right before an abort.
                report = f"seed {seed}, case {number}, rank {WORLD.rank} of {size}:\n{steps}\n{text}\n"
                (folder / f"failure-{WORLD.rank}").write_text(report)
                WORLD.Abort(1)
        WORLD.Barrier()
    if WORLD.rank == 0:
        print(f"{cases} cases alike", flush=True)


main()
