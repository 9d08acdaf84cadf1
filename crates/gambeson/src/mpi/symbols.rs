//! The C functions of MPI used here, one line each, as the standard declares them.
//!
//! `H` is whatever the ABI uses as a handle. A function the library does not have is `None`: that
//! is how partitioned communication or persistent collectives are found to be missing.

use std::ffi::{CStr, c_char, c_int, c_void};

use super::abi::Status;
use super::library;

macro_rules! symbols {
    ($($field:ident = $symbol:ident($($argument:ty),*);)*) => {
        /// Entry points of one MPI library.
        pub(crate) struct Symbols<H> {
            $(pub(crate) $field: (&'static str, Option<unsafe extern "C" fn($($argument),*) -> c_int>),)*
        }

        impl<H> Symbols<H> {
            /// Looks every function up in the library that was loaded last.
            pub(crate) fn resolve() -> Self {
                Self {
                    $($field: (stringify!($symbol), {
                        const NAME: &CStr = match CStr::from_bytes_with_nul(concat!(stringify!($symbol), "\0").as_bytes()) {
                            Ok(name) => name,
                            Err(_) => panic!("an MPI function's name holds a zero byte"),
                        };
                        // SAFETY: the address is that of the C function of this name, whose
                        // prototype in the MPI standard is the type written in this table.
                        library::symbol(NAME).map(|address| unsafe {
                            std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($argument),*) -> c_int>(address)
                        })
                    }),)*
                }
            }
        }
    };
}

type Bytes = *const c_void;
type Room = *mut c_void;
type Ints = *const c_int;
type Out<T> = *mut T;

/// `MPI_Aint`.
pub(crate) type Aint = isize;
/// `MPI_Count`.
pub(crate) type Count = i64;
/// `MPI_Offset`.
pub(crate) type Offset = i64;
/// `MPI_File`, the address of an object in both ABIs.
pub(crate) type File = *mut c_void;

symbols! {
    // Environment
    init_thread = MPI_Init_thread(Out<c_int>, Out<*mut *mut c_char>, c_int, Out<c_int>);
    finalize = MPI_Finalize();
    abort = MPI_Abort(H, c_int);
    library_version = MPI_Get_library_version(*mut c_char, Out<c_int>);
    error_string = MPI_Error_string(c_int, *mut c_char, Out<c_int>);
    comm_rank = MPI_Comm_rank(H, Out<c_int>);
    comm_size = MPI_Comm_size(H, Out<c_int>);
    comm_set_errhandler = MPI_Comm_set_errhandler(H, H);
    comm_free = MPI_Comm_free(Out<H>);
    cart_create = MPI_Cart_create(H, c_int, Ints, Ints, c_int, Out<H>);

    // Point to point
    send = MPI_Send(Bytes, c_int, H, c_int, c_int, H);
    ssend = MPI_Ssend(Bytes, c_int, H, c_int, c_int, H);
    bsend = MPI_Bsend(Bytes, c_int, H, c_int, c_int, H);
    rsend = MPI_Rsend(Bytes, c_int, H, c_int, c_int, H);
    isend = MPI_Isend(Bytes, c_int, H, c_int, c_int, H, Out<H>);
    issend = MPI_Issend(Bytes, c_int, H, c_int, c_int, H, Out<H>);
    ibsend = MPI_Ibsend(Bytes, c_int, H, c_int, c_int, H, Out<H>);
    irsend = MPI_Irsend(Bytes, c_int, H, c_int, c_int, H, Out<H>);
    send_init = MPI_Send_init(Bytes, c_int, H, c_int, c_int, H, Out<H>);
    ssend_init = MPI_Ssend_init(Bytes, c_int, H, c_int, c_int, H, Out<H>);
    bsend_init = MPI_Bsend_init(Bytes, c_int, H, c_int, c_int, H, Out<H>);
    rsend_init = MPI_Rsend_init(Bytes, c_int, H, c_int, c_int, H, Out<H>);
    recv = MPI_Recv(Room, c_int, H, c_int, c_int, H, Out<Status>);
    irecv = MPI_Irecv(Room, c_int, H, c_int, c_int, H, Out<H>);
    recv_init = MPI_Recv_init(Room, c_int, H, c_int, c_int, H, Out<H>);
    psend_init = MPI_Psend_init(Bytes, c_int, Count, H, c_int, c_int, H, H, Out<H>);
    precv_init = MPI_Precv_init(Room, c_int, Count, H, c_int, c_int, H, H, Out<H>);
    pready = MPI_Pready(c_int, H);
    start = MPI_Start(Out<H>);
    wait = MPI_Wait(Out<H>, Out<Status>);
    waitall = MPI_Waitall(c_int, Out<H>, Out<Status>);
    cancel = MPI_Cancel(Out<H>);
    request_free = MPI_Request_free(Out<H>);
    get_count = MPI_Get_count(*const Status, H, Out<c_int>);
    probe = MPI_Probe(c_int, c_int, H, Out<Status>);
    iprobe = MPI_Iprobe(c_int, c_int, H, Out<c_int>, Out<Status>);
    mprobe = MPI_Mprobe(c_int, c_int, H, Out<H>, Out<Status>);
    improbe = MPI_Improbe(c_int, c_int, H, Out<c_int>, Out<H>, Out<Status>);
    mrecv = MPI_Mrecv(Room, c_int, H, Out<H>, Out<Status>);
    imrecv = MPI_Imrecv(Room, c_int, H, Out<H>, Out<H>);
    sendrecv = MPI_Sendrecv(Bytes, c_int, H, c_int, c_int, Room, c_int, H, c_int, c_int, H, Out<Status>);
    sendrecv_replace = MPI_Sendrecv_replace(Room, c_int, H, c_int, c_int, c_int, c_int, H, Out<Status>);
    isendrecv = MPI_Isendrecv(Bytes, c_int, H, c_int, c_int, Room, c_int, H, c_int, c_int, H, Out<H>);
    isendrecv_replace = MPI_Isendrecv_replace(Room, c_int, H, c_int, c_int, c_int, c_int, H, Out<H>);
    buffer_attach = MPI_Buffer_attach(Room, c_int);
    buffer_detach = MPI_Buffer_detach(Room, Out<c_int>);

    // Derived types
    type_vector = MPI_Type_vector(c_int, c_int, c_int, H, Out<H>);
    type_indexed = MPI_Type_indexed(c_int, Ints, Ints, H, Out<H>);
    type_create_struct = MPI_Type_create_struct(c_int, Ints, *const Aint, *const H, Out<H>);
    type_create_subarray = MPI_Type_create_subarray(c_int, Ints, Ints, Ints, c_int, H, Out<H>);
    type_commit = MPI_Type_commit(Out<H>);
    type_free = MPI_Type_free(Out<H>);

    // Collectives: blocking, nonblocking, persistent
    barrier = MPI_Barrier(H);
    bcast = MPI_Bcast(Room, c_int, H, c_int, H);
    ibcast = MPI_Ibcast(Room, c_int, H, c_int, H, Out<H>);
    bcast_init = MPI_Bcast_init(Room, c_int, H, c_int, H, H, Out<H>);
    reduce = MPI_Reduce(Bytes, Room, c_int, H, H, c_int, H);
    ireduce = MPI_Ireduce(Bytes, Room, c_int, H, H, c_int, H, Out<H>);
    reduce_init = MPI_Reduce_init(Bytes, Room, c_int, H, H, c_int, H, H, Out<H>);
    allreduce = MPI_Allreduce(Bytes, Room, c_int, H, H, H);
    iallreduce = MPI_Iallreduce(Bytes, Room, c_int, H, H, H, Out<H>);
    allreduce_init = MPI_Allreduce_init(Bytes, Room, c_int, H, H, H, H, Out<H>);
    scan = MPI_Scan(Bytes, Room, c_int, H, H, H);
    iscan = MPI_Iscan(Bytes, Room, c_int, H, H, H, Out<H>);
    scan_init = MPI_Scan_init(Bytes, Room, c_int, H, H, H, H, Out<H>);
    exscan = MPI_Exscan(Bytes, Room, c_int, H, H, H);
    iexscan = MPI_Iexscan(Bytes, Room, c_int, H, H, H, Out<H>);
    exscan_init = MPI_Exscan_init(Bytes, Room, c_int, H, H, H, H, Out<H>);
    reduce_scatter = MPI_Reduce_scatter(Bytes, Room, Ints, H, H, H);
    ireduce_scatter = MPI_Ireduce_scatter(Bytes, Room, Ints, H, H, H, Out<H>);
    reduce_scatter_init = MPI_Reduce_scatter_init(Bytes, Room, Ints, H, H, H, H, Out<H>);
    reduce_scatter_block = MPI_Reduce_scatter_block(Bytes, Room, c_int, H, H, H);
    ireduce_scatter_block = MPI_Ireduce_scatter_block(Bytes, Room, c_int, H, H, H, Out<H>);
    reduce_scatter_block_init = MPI_Reduce_scatter_block_init(Bytes, Room, c_int, H, H, H, H, Out<H>);
    gather = MPI_Gather(Bytes, c_int, H, Room, c_int, H, c_int, H);
    igather = MPI_Igather(Bytes, c_int, H, Room, c_int, H, c_int, H, Out<H>);
    gather_init = MPI_Gather_init(Bytes, c_int, H, Room, c_int, H, c_int, H, H, Out<H>);
    gatherv = MPI_Gatherv(Bytes, c_int, H, Room, Ints, Ints, H, c_int, H);
    igatherv = MPI_Igatherv(Bytes, c_int, H, Room, Ints, Ints, H, c_int, H, Out<H>);
    gatherv_init = MPI_Gatherv_init(Bytes, c_int, H, Room, Ints, Ints, H, c_int, H, H, Out<H>);
    scatter = MPI_Scatter(Bytes, c_int, H, Room, c_int, H, c_int, H);
    iscatter = MPI_Iscatter(Bytes, c_int, H, Room, c_int, H, c_int, H, Out<H>);
    scatter_init = MPI_Scatter_init(Bytes, c_int, H, Room, c_int, H, c_int, H, H, Out<H>);
    scatterv = MPI_Scatterv(Bytes, Ints, Ints, H, Room, c_int, H, c_int, H);
    iscatterv = MPI_Iscatterv(Bytes, Ints, Ints, H, Room, c_int, H, c_int, H, Out<H>);
    scatterv_init = MPI_Scatterv_init(Bytes, Ints, Ints, H, Room, c_int, H, c_int, H, H, Out<H>);
    allgather = MPI_Allgather(Bytes, c_int, H, Room, c_int, H, H);
    iallgather = MPI_Iallgather(Bytes, c_int, H, Room, c_int, H, H, Out<H>);
    allgather_init = MPI_Allgather_init(Bytes, c_int, H, Room, c_int, H, H, H, Out<H>);
    allgatherv = MPI_Allgatherv(Bytes, c_int, H, Room, Ints, Ints, H, H);
    iallgatherv = MPI_Iallgatherv(Bytes, c_int, H, Room, Ints, Ints, H, H, Out<H>);
    allgatherv_init = MPI_Allgatherv_init(Bytes, c_int, H, Room, Ints, Ints, H, H, H, Out<H>);
    alltoall = MPI_Alltoall(Bytes, c_int, H, Room, c_int, H, H);
    ialltoall = MPI_Ialltoall(Bytes, c_int, H, Room, c_int, H, H, Out<H>);
    alltoall_init = MPI_Alltoall_init(Bytes, c_int, H, Room, c_int, H, H, H, Out<H>);
    alltoallv = MPI_Alltoallv(Bytes, Ints, Ints, H, Room, Ints, Ints, H, H);
    ialltoallv = MPI_Ialltoallv(Bytes, Ints, Ints, H, Room, Ints, Ints, H, H, Out<H>);
    alltoallv_init = MPI_Alltoallv_init(Bytes, Ints, Ints, H, Room, Ints, Ints, H, H, H, Out<H>);
    alltoallw = MPI_Alltoallw(Bytes, Ints, Ints, *const H, Room, Ints, Ints, *const H, H);
    ialltoallw = MPI_Ialltoallw(Bytes, Ints, Ints, *const H, Room, Ints, Ints, *const H, H, Out<H>);
    alltoallw_init = MPI_Alltoallw_init(Bytes, Ints, Ints, *const H, Room, Ints, Ints, *const H, H, H, Out<H>);

    // Neighbourhood collectives
    neighbor_allgather = MPI_Neighbor_allgather(Bytes, c_int, H, Room, c_int, H, H);
    ineighbor_allgather = MPI_Ineighbor_allgather(Bytes, c_int, H, Room, c_int, H, H, Out<H>);
    neighbor_allgather_init = MPI_Neighbor_allgather_init(Bytes, c_int, H, Room, c_int, H, H, H, Out<H>);
    neighbor_allgatherv = MPI_Neighbor_allgatherv(Bytes, c_int, H, Room, Ints, Ints, H, H);
    ineighbor_allgatherv = MPI_Ineighbor_allgatherv(Bytes, c_int, H, Room, Ints, Ints, H, H, Out<H>);
    neighbor_allgatherv_init = MPI_Neighbor_allgatherv_init(Bytes, c_int, H, Room, Ints, Ints, H, H, H, Out<H>);
    neighbor_alltoall = MPI_Neighbor_alltoall(Bytes, c_int, H, Room, c_int, H, H);
    ineighbor_alltoall = MPI_Ineighbor_alltoall(Bytes, c_int, H, Room, c_int, H, H, Out<H>);
    neighbor_alltoall_init = MPI_Neighbor_alltoall_init(Bytes, c_int, H, Room, c_int, H, H, H, Out<H>);
    neighbor_alltoallv = MPI_Neighbor_alltoallv(Bytes, Ints, Ints, H, Room, Ints, Ints, H, H);
    ineighbor_alltoallv = MPI_Ineighbor_alltoallv(Bytes, Ints, Ints, H, Room, Ints, Ints, H, H, Out<H>);
    neighbor_alltoallv_init = MPI_Neighbor_alltoallv_init(Bytes, Ints, Ints, H, Room, Ints, Ints, H, H, H, Out<H>);
    neighbor_alltoallw = MPI_Neighbor_alltoallw(Bytes, Ints, *const Aint, *const H, Room, Ints, *const Aint, *const H, H);
    ineighbor_alltoallw = MPI_Ineighbor_alltoallw(Bytes, Ints, *const Aint, *const H, Room, Ints, *const Aint, *const H, H, Out<H>);
    neighbor_alltoallw_init = MPI_Neighbor_alltoallw_init(Bytes, Ints, *const Aint, *const H, Room, Ints, *const Aint, *const H, H, H, Out<H>);

    // One-sided
    win_create = MPI_Win_create(Room, Aint, c_int, H, H, Out<H>);
    win_allocate = MPI_Win_allocate(Aint, c_int, H, H, Room, Out<H>);
    win_free = MPI_Win_free(Out<H>);
    win_set_errhandler = MPI_Win_set_errhandler(H, H);
    win_fence = MPI_Win_fence(c_int, H);
    win_lock = MPI_Win_lock(c_int, c_int, c_int, H);
    win_unlock = MPI_Win_unlock(c_int, H);
    win_post = MPI_Win_post(H, c_int, H);
    win_start = MPI_Win_start(H, c_int, H);
    win_complete = MPI_Win_complete(H);
    win_wait = MPI_Win_wait(H);
    comm_group = MPI_Comm_group(H, Out<H>);
    group_incl = MPI_Group_incl(H, c_int, Ints, Out<H>);
    group_free = MPI_Group_free(Out<H>);
    put = MPI_Put(Bytes, c_int, H, c_int, Aint, c_int, H, H);
    rput = MPI_Rput(Bytes, c_int, H, c_int, Aint, c_int, H, H, Out<H>);
    get = MPI_Get(Room, c_int, H, c_int, Aint, c_int, H, H);
    rget = MPI_Rget(Room, c_int, H, c_int, Aint, c_int, H, H, Out<H>);
    accumulate = MPI_Accumulate(Bytes, c_int, H, c_int, Aint, c_int, H, H, H);
    raccumulate = MPI_Raccumulate(Bytes, c_int, H, c_int, Aint, c_int, H, H, H, Out<H>);
    get_accumulate = MPI_Get_accumulate(Bytes, c_int, H, Room, c_int, H, c_int, Aint, c_int, H, H, H);
    rget_accumulate = MPI_Rget_accumulate(Bytes, c_int, H, Room, c_int, H, c_int, Aint, c_int, H, H, H, Out<H>);
    fetch_and_op = MPI_Fetch_and_op(Bytes, Room, H, c_int, Aint, H, H);
    compare_and_swap = MPI_Compare_and_swap(Bytes, Bytes, Room, H, c_int, Aint, H);

    // Files
    file_open = MPI_File_open(H, *const c_char, c_int, H, Out<File>);
    file_close = MPI_File_close(Out<File>);
    file_sync = MPI_File_sync(File);
    file_set_view = MPI_File_set_view(File, Offset, H, H, *const c_char, H);
    file_write_at = MPI_File_write_at(File, Offset, Bytes, c_int, H, Out<Status>);
    file_write_at_all = MPI_File_write_at_all(File, Offset, Bytes, c_int, H, Out<Status>);
    file_read_at = MPI_File_read_at(File, Offset, Room, c_int, H, Out<Status>);
    file_read_at_all = MPI_File_read_at_all(File, Offset, Room, c_int, H, Out<Status>);
    file_set_encryption_map =
        MPIX_File_set_encryption_map(File, Offset, H, H, *const c_char, *const c_char, *const c_char, c_int, H);

    // Processes started by processes
    comm_spawn = MPI_Comm_spawn(*const c_char, *mut *mut c_char, c_int, H, c_int, H, Out<H>, Out<c_int>);
    comm_get_parent = MPI_Comm_get_parent(Out<H>);
    comm_disconnect = MPI_Comm_disconnect(Out<H>);
}
