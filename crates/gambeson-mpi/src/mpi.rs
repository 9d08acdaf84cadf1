//! The MPI library behind the stand-ins: its ABI, and those of its functions that are called here.

use std::cell::Cell;
use std::ffi::{c_char, c_int, c_void};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use gambeson_interpose::{file_of, next};

use crate::abi::Abi;
use crate::error::Failure;

/// Declares the functions: a field each, looked up by its name in the MPI library.
macro_rules! functions {
    ($($(#[$optional:ident])? $field:ident = $name:ident($($argument:ty),*);)+) => {
        /// The functions of the library.
        #[allow(clippy::type_complexity, reason = "the prototypes of the standard")]
        #[derive(Debug)]
        pub(crate) struct Functions {
            $(pub(crate) $field: functions!(@field $($optional)? ($($argument),*)),)+
        }

        impl Functions {
            /// The name of the first function that is missing, if one is.
            fn find() -> Result<Self, &'static str> {
                Ok(Functions {
                    $($field: functions!(@find $($optional)? $name ($($argument),*)),)+
                })
            }
        }
    };
    (@field ($($argument:ty),*)) => { unsafe extern "C" fn($($argument),*) -> c_int };
    (@field optional ($($argument:ty),*)) => { Option<unsafe extern "C" fn($($argument),*) -> c_int> };
    (@find $name:ident ($($argument:ty),*)) => {
        functions!(@find optional $name ($($argument),*)).ok_or(stringify!($name))?
    };
    (@find optional $name:ident ($($argument:ty),*)) => {{
        const NAME: &std::ffi::CStr = match std::ffi::CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
            Ok(name) => name,
            Err(_) => panic!("a name holds no zero"),
        };
        // SAFETY: the function has this prototype in every ABI, with handles in a machine word.
        next(NAME, Functions::find as *const c_void).map(|address| unsafe {
            std::mem::transmute::<*const c_void, unsafe extern "C" fn($($argument),*) -> c_int>(address)
        })
    }};
}

/// A handle.
type H = usize;
/// Where a handle goes.
type Out = *mut usize;
type Int = *mut c_int;
/// An `MPI_Aint`, `MPI_Count` or `MPI_Offset`, which have 64 bits in every ABI here.
type Long = *mut i64;
type Data = *const c_void;
type Room = *mut c_void;

functions! {
    comm_dup = PMPI_Comm_dup(H, Out);
    comm_free = PMPI_Comm_free(Out);
    comm_rank = PMPI_Comm_rank(H, Int);
    comm_size = PMPI_Comm_size(H, Int);
    comm_set_errhandler = PMPI_Comm_set_errhandler(H, H);
    comm_group = PMPI_Comm_group(H, Out);
    comm_create_group = PMPI_Comm_create_group(H, H, c_int, Out);
    group_size = PMPI_Group_size(H, Int);
    group_translate_ranks = PMPI_Group_translate_ranks(H, c_int, *const c_int, H, Int);
    group_free = PMPI_Group_free(Out);
    info_free = PMPI_Info_free(Out);
    ibarrier = PMPI_Ibarrier(H, Out);
    ibcast = PMPI_Ibcast(Room, c_int, H, c_int, H, Out);
    iallreduce = PMPI_Iallreduce(Data, Room, c_int, H, H, H, Out);
    iscan = PMPI_Iscan(Data, Room, c_int, H, H, H, Out);
    iallgather = PMPI_Iallgather(Data, c_int, H, Room, c_int, H, H, Out);
    ialltoall = PMPI_Ialltoall(Data, c_int, H, Room, c_int, H, H, Out);
    isend = PMPI_Isend(Data, c_int, H, c_int, c_int, H, Out);
    irecv = PMPI_Irecv(Room, c_int, H, c_int, c_int, H, Out);
    test = PMPI_Test(Out, Int, usize);

    type_size = PMPI_Type_size_x(H, Long);
    type_extent = PMPI_Type_get_extent_x(H, Long, Long);
    type_true_extent = PMPI_Type_get_true_extent_x(H, Long, Long);
    type_envelope = PMPI_Type_get_envelope(H, Int, Int, Int, Int);
    type_contents = PMPI_Type_get_contents(H, c_int, c_int, c_int, Int, Long, Room);
    #[optional] type_envelope_large = PMPI_Type_get_envelope_c(H, Long, Long, Long, Long, Int);
    #[optional] type_contents_large = PMPI_Type_get_contents_c(H, i64, i64, i64, i64, Int, Long, Long, Room);
    type_dup = PMPI_Type_dup(H, Out);
    type_free = PMPI_Type_free(Out);
    type_create_hindexed = PMPI_Type_create_hindexed(c_int, *const c_int, *const i64, H, Out);
    type_commit = PMPI_Type_commit(Out);
    get_count = PMPI_Get_count(usize, H, Int);
    unpack = PMPI_Unpack(Data, c_int, Int, Room, c_int, H, H);
    pack_external = PMPI_Pack_external(*const c_char, Data, c_int, H, Room, i64, Long);
    pack_external_size = PMPI_Pack_external_size(*const c_char, c_int, H, Long);
    unpack_external = PMPI_Unpack_external(*const c_char, Data, i64, Long, Room, c_int, H);

    status_set_elements = PMPI_Status_set_elements_x(usize, H, i64);
    status_set_cancelled = PMPI_Status_set_cancelled(usize, c_int);
    grequest_start = PMPI_Grequest_start(
        unsafe extern "C" fn(*mut c_void, usize) -> c_int,
        unsafe extern "C" fn(*mut c_void) -> c_int,
        unsafe extern "C" fn(*mut c_void, c_int) -> c_int,
        *mut c_void,
        Out
    );
    grequest_complete = PMPI_Grequest_complete(H);

    add_error_code = PMPI_Add_error_code(c_int, Int);
    add_error_string = PMPI_Add_error_string(c_int, *const c_char);
    error_class = PMPI_Error_class(c_int, Int);
    error_string = PMPI_Error_string(c_int, *mut c_char, Int);
    errhandler_free = PMPI_Errhandler_free(Out);
    file_call_errhandler = PMPI_File_call_errhandler(H, c_int);
    file_get_errhandler = PMPI_File_get_errhandler(H, Out);
    file_set_errhandler = PMPI_File_set_errhandler(H, H);

    file_open = PMPI_File_open(H, *const c_char, c_int, H, Out);
    file_close = PMPI_File_close(Out);
    file_get_group = PMPI_File_get_group(H, Out);
    file_get_info = PMPI_File_get_info(H, Out);
    file_get_size = PMPI_File_get_size(H, Long);
    file_get_view = PMPI_File_get_view(H, Long, Out, Out, *mut c_char);
    file_get_position = PMPI_File_get_position(H, Long);
    file_get_atomicity = PMPI_File_get_atomicity(H, Int);
    file_sync = PMPI_File_sync(H);
    file_set_view = PMPI_File_set_view(H, i64, H, H, *const c_char, H);
    file_read_at = PMPI_File_read_at(H, i64, Room, c_int, H, usize);
    file_write_at = PMPI_File_write_at(H, i64, Data, c_int, H, usize);
    file_write_at_all = PMPI_File_write_at_all(H, i64, Data, c_int, H, usize);
    file_set_info = PMPI_File_set_info(H, H);
}

/// The library and its ABI.
#[derive(Debug)]
pub(crate) struct Mpi {
    pub(crate) abi: Abi,
    pub(crate) call: Functions,
}

impl Mpi {
    /// The library of this process, once MPI is started.
    ///
    /// # Errors
    /// What is missing in it.
    pub(crate) fn get() -> Result<&'static Self, &'static str> {
        static MPI: OnceLock<Result<Mpi, String>> = OnceLock::new();
        MPI.get_or_init(|| {
            let library = next(c"PMPI_Type_get_envelope", Functions::find as *const c_void).and_then(file_of);
            let library = library.ok_or("no MPI library is loaded")?;
            let abi = Abi::of(&library.to_string_lossy())
                .map_err(|name| format!("{} lacks {}", library.display(), name.to_string_lossy()))?;
            let call = Functions::find().map_err(|name| format!("{} lacks {name}", library.display()))?;
            Ok(Mpi { abi, call })
        })
        .as_ref()
        .map_err(String::as_str)
    }

    /// A status of the library as a result, with the library's own words.
    ///
    /// # Errors
    /// The library's class and sentence.
    pub(crate) fn check(&self, status: c_int, doing: &str) -> Result<(), Failure> {
        if status == 0 {
            return Ok(());
        }
        let mut class = 0;
        let mut text = [0_u8; 8192];
        let mut length = 0;
        // SAFETY: error strings are shorter than that in every ABI.
        unsafe {
            (self.call.error_class)(status, &raw mut class);
            (self.call.error_string)(status, text.as_mut_ptr().cast(), &raw mut length);
        }
        let text = text.split(|&byte| byte == 0).next().unwrap_or_default();
        Err(Failure { class, sentence: format!("{doing}: {}", String::from_utf8_lossy(text)) })
    }

    /// The bytes of a type's data.
    pub(crate) fn size(&self, datatype: usize) -> Result<i64, Failure> {
        let mut size = 0;
        // SAFETY: the library says whether this is a type.
        self.check(unsafe { (self.call.type_size)(datatype, &raw mut size) }, "MPI_Type_size")?;
        Ok(size)
    }

    /// Lower bound and extent of a type.
    pub(crate) fn extent(&self, datatype: usize) -> Result<(i64, i64), Failure> {
        let (mut lower, mut extent) = (0, 0);
        // SAFETY: as above.
        let status = unsafe { (self.call.type_extent)(datatype, &raw mut lower, &raw mut extent) };
        self.check(status, "MPI_Type_get_extent")?;
        Ok((lower, extent))
    }

    /// The greatest of each of some numbers of all ranks of a communicator.
    ///
    /// # Errors
    /// The library's.
    pub(crate) fn max<const N: usize>(&self, own: [i64; N], communicator: usize) -> Result<[i64; N], Failure> {
        let mut greatest = [0_i64; N];
        let (int64, max) = (self.abi.int64, self.abi.max);
        let (from, to) = (own.as_ptr().cast(), greatest.as_mut_ptr().cast());
        // SAFETY: N of MPI_INT64_T go in and come out.
        let begin =
            |request| unsafe { (self.call.iallreduce)(from, to, N as c_int, int64, max, communicator, request) };
        self.complete(begin, "MPI_Iallreduce")?;
        Ok(greatest)
    }

    /// Bytes of one rank for all.
    ///
    /// # Errors
    /// The library's.
    pub(crate) fn broadcast(&self, bytes: &mut [u8], root: c_int, communicator: usize) -> Result<(), Failure> {
        let count = c_int::try_from(bytes.len()).expect("what is told to all is short");
        let room = bytes.as_mut_ptr().cast();
        // SAFETY: the buffer has this many bytes.
        let begin = |request| unsafe { (self.call.ibcast)(room, count, self.abi.byte, root, communicator, request) };
        self.complete(begin, "MPI_Ibcast")
    }

    /// Waits until all ranks of a communicator are here.
    ///
    /// # Errors
    /// The library's.
    pub(crate) fn barrier(&self, communicator: usize) -> Result<(), Failure> {
        // SAFETY: the communicator is one.
        self.complete(|request| unsafe { (self.call.ibarrier)(communicator, request) }, "MPI_Ibarrier")
    }

    /// Begins an operation and waits for it.
    ///
    /// # Errors
    /// The library's.
    pub(crate) fn complete(&self, begin: impl FnOnce(*mut usize) -> c_int, call: &str) -> Result<(), Failure> {
        let mut request = 0;
        self.check(begin(&raw mut request), call)?;
        self.wait(self.abi.handle(request), call)
    }

    /// Waits for an operation that was begun.
    ///
    /// The library's own waits spin. Where there are more ranks than processors, who is waited for then gets its turn when
    /// the scheduler ends the others', milliseconds later for each message; so this gives its processor away.
    ///
    /// # Errors
    /// The library's.
    pub(crate) fn wait(&self, mut request: usize, call: &str) -> Result<(), Failure> {
        let began = Instant::now();
        loop {
            let mut done = 0;
            // SAFETY: the request is under way, and nobody else's.
            let status = unsafe { (self.call.test)(&raw mut request, &raw mut done, self.abi.status_ignore) };
            self.check(status, call)?;
            if done != 0 {
                return Ok(());
            }
            if began.elapsed() > SPIN {
                std::thread::sleep(NAP);
            }
        }
    }

    /// Rank and number of ranks.
    ///
    /// # Errors
    /// The library's.
    pub(crate) fn rank_and_size(&self, communicator: usize) -> Result<(c_int, c_int), Failure> {
        let (mut rank, mut size) = (0, 0);
        // SAFETY: both results are ours.
        let status = unsafe {
            (self.call.comm_rank)(communicator, &raw mut rank) | (self.call.comm_size)(communicator, &raw mut size)
        };
        self.check(status, "MPI_Comm_rank")?;
        Ok((rank, size))
    }
}

/// For how long a wait spins: messages between ranks that all have processors take less, and a nap takes about as long.
const SPIN: Duration = Duration::from_micros(200);
const NAP: Duration = Duration::from_micros(20);

thread_local! {
    static INSIDE: Cell<u32> = const { Cell::new(0) };
}

/// While it lives, this thread is inside the MPI library, whose calls of its own names go straight on.
pub(crate) struct Inside;

impl Inside {
    pub(crate) fn enter() -> Self {
        INSIDE.with(|depth| depth.set(depth.get() + 1));
        Inside
    }

    /// Whether a call comes from the library.
    pub(crate) fn is() -> bool {
        INSIDE.with(|depth| depth.get() > 0)
    }

    /// What the library calls back into the program may use files as any program.
    pub(crate) fn outside<T>(call: impl FnOnce() -> T) -> T {
        let depth = INSIDE.with(|depth| depth.replace(0));
        let result = call();
        INSIDE.with(|inside| inside.set(depth));
        result
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        INSIDE.with(|depth| depth.set(depth.get() - 1));
    }
}
