//! What is called of the MPI library. Handles and numbers are a machine word each, as in the stand-ins.

use std::ffi::{CStr, c_int, c_void};
use std::ptr;
use std::sync::OnceLock;

use crate::real;

/// The functions of the library that the guard needs, and the constants of its ABI.
pub(crate) struct Mpi {
    pub(crate) is_open_mpi: bool,
    /// Whether handles are pointers, and not an `int`.
    has_pointers: bool,
    pub(crate) world: usize,
    comm_null: usize,
    pub(crate) info_null: usize,
    byte: usize,
    int: usize,
    max: usize,
    status_ignore: usize,
    tag_ub: usize,
}

/// A request of the library.
pub(crate) struct Request(usize);

/// More than an MPI_Status takes in any MPI.
type Status = [u64; 8];

macro_rules! call {
    ($name:literal $(, $argument:expr)*) => {{
        let address = real::function($name, ptr::null()).ok_or(Missing($name))?;
        // SAFETY: the address is that of the MPI library's function of this name, which takes so many arguments, a word
        // each; MPI is started, and what they point to is ours.
        unsafe { std::mem::transmute::<*const c_void, call!(@type $($argument)*)>(address)($($argument),*) }
    }};
    (@type $($argument:expr)*) => { unsafe extern "C" fn($(call!(@word $argument)),*) -> c_int };
    (@word $argument:expr) => { usize };
}

/// The library lacks a function.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Missing(pub(crate) &'static str);

impl Mpi {
    /// The library of this process.
    pub(crate) fn find() -> Self {
        let object = |name| real::object(name).map(|address| address as usize);
        // Open MPI's handles are the addresses of objects. MPICH's and those of the standard ABI (MPI-5 chapter 20) are
        // numbers.
        let open_mpi = || {
            Some(Mpi {
                is_open_mpi: true,
                has_pointers: true,
                world: object(c"ompi_mpi_comm_world")?,
                comm_null: object(c"ompi_mpi_comm_null")?,
                info_null: object(c"ompi_mpi_info_null")?,
                byte: object(c"ompi_mpi_byte")?,
                int: object(c"ompi_mpi_int")?,
                max: object(c"ompi_mpi_op_max")?,
                status_ignore: 0,
                tag_ub: 0,
            })
        };
        if real::is_of_standard_abi() {
            return Mpi {
                is_open_mpi: false,
                has_pointers: true,
                world: 0x101,
                comm_null: 0x100,
                info_null: 0x130,
                byte: 0x247,
                int: 0x209,
                max: 0x23,
                status_ignore: 0,
                tag_ub: 501,
            };
        }
        open_mpi().unwrap_or(Mpi {
            is_open_mpi: false,
            has_pointers: false,
            world: 0x4400_0000,
            comm_null: 0x0400_0000,
            info_null: 0x1c00_0000,
            byte: 0x4c00_010d,
            int: 0x4c00_0405,
            max: 0x5800_0001,
            status_ignore: 1,
            tag_ub: 0x6440_0001,
        })
    }

    /// A handle as a stand-in got it: of MPICH's only half a word means something.
    pub(crate) fn handle(&self, word: usize) -> usize {
        if self.has_pointers { word } else { word & 0xFFFF_FFFF }
    }

    /// The communicator at an address that a program passed; none for the null handle.
    pub(crate) fn communicator_at(&self, address: usize) -> Option<usize> {
        if address == 0 {
            return None;
        }
        // SAFETY: MPI itself has written or read a handle there.
        let handle = unsafe {
            if self.has_pointers { (address as *const usize).read() } else { (address as *const u32).read() as usize }
        };
        (handle != self.comm_null).then_some(handle)
    }

    fn number(&self, status: c_int, number: c_int) -> Option<c_int> {
        (status == 0).then_some(number)
    }

    pub(crate) fn rank(&self, comm: usize) -> Result<Option<c_int>, Missing> {
        let mut rank: c_int = 0;
        let status = call!("PMPI_Comm_rank", comm, (&raw mut rank) as usize);
        Ok(self.number(status, rank))
    }

    pub(crate) fn size(&self, comm: usize) -> Result<Option<c_int>, Missing> {
        let mut size: c_int = 0;
        let status = call!("PMPI_Comm_size", comm, (&raw mut size) as usize);
        Ok(self.number(status, size))
    }

    /// How many ranks the other group has; none in an intracommunicator.
    pub(crate) fn remote_size(&self, comm: usize) -> Result<Option<c_int>, Missing> {
        let (mut inter, mut size): (c_int, c_int) = (0, 0);
        call!("PMPI_Comm_test_inter", comm, (&raw mut inter) as usize);
        if inter == 0 {
            return Ok(None);
        }
        let status = call!("PMPI_Comm_remote_size", comm, (&raw mut size) as usize);
        Ok(self.number(status, size))
    }

    /// Whether MPI was started otherwise than by sessions, so that there is a world.
    pub(crate) fn has_world(&self) -> Result<bool, Missing> {
        let mut flag: c_int = 0;
        call!("PMPI_Initialized", (&raw mut flag) as usize);
        Ok(flag != 0)
    }

    /// The largest tag, which is an attribute of the world and of communicators that were made in a session. Open MPI's
    /// that are made of those lack it, so once it is known it is kept.
    pub(crate) fn largest_tag(&self, comm: usize) -> Result<Option<u64>, Missing> {
        let (mut value, mut flag): (*const c_int, c_int) = (ptr::null(), 0);
        let from = if self.has_world()? { self.world } else { comm };
        let status =
            call!("PMPI_Comm_get_attr", from, self.tag_ub, (&raw mut value) as usize, (&raw mut flag) as usize);
        static KNOWN: OnceLock<u64> = OnceLock::new();
        if status != 0 || flag == 0 || value.is_null() {
            return Ok(KNOWN.get().copied());
        }
        // SAFETY: the attribute is a pointer to an int of the library's.
        let largest = u64::try_from(unsafe { value.read() }).ok();
        Ok(largest.inspect(|&largest| _ = KNOWN.set(largest)))
    }

    /// Begins to send nothing to a rank.
    pub(crate) fn send(&self, comm: usize, rank: c_int, tag: c_int) -> Result<Request, Missing> {
        let (mut nothing, mut request) = (0_u8, 0_usize);
        let (buffer, into) = ((&raw mut nothing) as usize, (&raw mut request) as usize);
        call!("PMPI_Isend", buffer, 0, self.byte, rank as usize, tag as usize, comm, into);
        Ok(Request(request))
    }

    /// Begins to receive nothing from a rank.
    pub(crate) fn receive(&self, comm: usize, rank: c_int, tag: c_int) -> Result<Request, Missing> {
        let (mut nothing, mut request) = (0_u8, 0_usize);
        let (buffer, into) = ((&raw mut nothing) as usize, (&raw mut request) as usize);
        call!("PMPI_Irecv", buffer, 0, self.byte, rank as usize, tag as usize, comm, into);
        Ok(Request(request))
    }

    pub(crate) fn wait(&self, mut request: Request) -> Result<(), Missing> {
        call!("PMPI_Wait", (&raw mut request.0) as usize, self.status_ignore);
        Ok(())
    }

    /// Takes a receive back. Whether that came in time.
    pub(crate) fn cancel(&self, mut request: Request) -> Result<bool, Missing> {
        let (mut status, mut flag): (Status, c_int) = (Status::default(), 0);
        let at = (&raw mut request.0) as usize;
        call!("PMPI_Cancel", at);
        call!("PMPI_Wait", at, (&raw mut status) as usize);
        call!("PMPI_Test_cancelled", (&raw mut status) as usize, (&raw mut flag) as usize);
        Ok(flag != 0)
    }

    /// The greatest of each number over all ranks; in an intercommunicator over those of the other group.
    pub(crate) fn greatest<const N: usize>(&self, comm: usize, numbers: [c_int; N]) -> Result<[c_int; N], Missing> {
        let mut greatest = numbers;
        let (from, into) = (numbers.as_ptr() as usize, greatest.as_mut_ptr() as usize);
        call!("PMPI_Allreduce", from, into, N, self.int, self.max, comm);
        Ok(greatest)
    }

    /// Every rank has a byte from each of the others, straight from it.
    pub(crate) fn exchange(&self, comm: usize, ranks: c_int) -> Result<(), Missing> {
        let count = usize::try_from(ranks).unwrap_or(0);
        let (counts, places): (Vec<c_int>, Vec<c_int>) = (vec![1; count], (0..ranks).collect());
        let (from, mut into) = (vec![0_u8; count], vec![0_u8; count]);
        let (counts, places) = (counts.as_ptr() as usize, places.as_ptr() as usize);
        let (from, into) = (from.as_ptr() as usize, into.as_mut_ptr() as usize);
        call!("PMPI_Alltoallv", from, counts, places, self.byte, into, counts, places, self.byte, comm);
        Ok(())
    }

    /// The communicator's name.
    pub(crate) fn name(&self, comm: usize) -> Result<String, Missing> {
        // MPI_MAX_OBJECT_NAME is 64 to 128 in the MPIs there are.
        let (mut text, mut length) = ([0_u8; 1024], 0 as c_int);
        let status = call!("PMPI_Comm_get_name", comm, text.as_mut_ptr() as usize, (&raw mut length) as usize);
        Ok(if status == 0 { text_of(&text) } else { String::new() })
    }

    /// What an info object says under a key.
    pub(crate) fn info(&self, info: usize, key: &CStr) -> Result<Option<String>, Missing> {
        let (mut text, mut flag) = ([0_u8; 256], 0 as c_int);
        let (key, into, length) = (key.as_ptr() as usize, text.as_mut_ptr() as usize, text.len() - 1);
        let status = call!("PMPI_Info_get", info, key, length, into, (&raw mut flag) as usize);
        Ok((status == 0 && flag != 0).then(|| text_of(&text)))
    }

    pub(crate) fn set_info(&self, info: usize, key: &CStr, value: &CStr) -> Result<c_int, Missing> {
        Ok(call!("PMPI_Info_set", info, key.as_ptr() as usize, value.as_ptr() as usize))
    }

    /// Frees a communicator that was just made, and leaves the null handle.
    pub(crate) fn free_at(&self, address: usize) -> Result<(), Missing> {
        call!("PMPI_Comm_free", address);
        Ok(())
    }

    /// Makes an error of MPI that says this, and calls the communicator's error handler with it; the error's code.
    pub(crate) fn fail(&self, comm: usize, sentence: &str) -> Result<c_int, Missing> {
        let (mut class, mut code): (c_int, c_int) = (0, 0);
        // MPI_MAX_ERROR_STRING is 256 at least.
        let mut text: Vec<u8> = sentence.bytes().filter(|&byte| byte != 0).take(255).collect();
        text.push(0);
        call!("PMPI_Add_error_class", (&raw mut class) as usize);
        call!("PMPI_Add_error_code", class as usize, (&raw mut code) as usize);
        call!("PMPI_Add_error_string", code as usize, text.as_ptr() as usize);
        call!("PMPI_Comm_call_errhandler", comm, code as usize);
        Ok(code)
    }
}

fn text_of(bytes: &[u8]) -> String {
    let text = CStr::from_bytes_until_nul(bytes).map(CStr::to_string_lossy);
    text.unwrap_or_default().into_owned()
}
