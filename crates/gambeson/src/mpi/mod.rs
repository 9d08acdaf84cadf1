//! Calls an MPI library that is found at run time, so that `gambeson` itself can be an MPI program
//! on a machine without a compiler.
//!
//! The library is loaded with [`library::load`]; [`Mpi::start`] is `MPI_Init_thread`. Everything
//! takes slices and checks their lengths against what the C function will touch, so that the
//! callers are safe code. It binds what the audit and the benchmark use and nothing else
//! (MPI 4.0 numbering: chapters 3 to 7, 11 to 12 and 14).

mod abi;
mod collective;
mod file;
mod layout;
mod library;
pub(crate) mod locate;
mod one_sided;
mod partitioned;
mod point_to_point;
mod request;
mod spawn;
mod symbols;

use std::ffi::{c_char, c_int};
use std::marker::PhantomData;
use std::rc::Rc;

pub(crate) use abi::{ANY_TAG, Abi, Mpich, OpenMpi};
pub(crate) use collective::{Blocks, Form};
pub(crate) use file::{Access, File, Filetype, Mode as FileMode};
pub(crate) use layout::{Layout, Source, Target};
pub(crate) use library::{Flavour, load};
pub(crate) use one_sided::{Epoch, Room, Window};
pub(crate) use point_to_point::Mode;

use abi::Handles;
use symbols::Symbols;

/// Why an operation did not do what it should.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The library has no such function.
    Missing(&'static str),
    /// The library refused.
    Refused { call: &'static str, message: String },
    /// The library said yes and delivered something else.
    WrongData(String),
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Missing(call) => write!(f, "this MPI library has no {call}"),
            Self::Refused { call, message } => write!(f, "{call} failed: {message}"),
            Self::WrongData(what) => f.write_str(what),
        }
    }
}

/// Outcome of an MPI call.
pub(crate) type Outcome<T = ()> = Result<T, Failure>;

/// A function from the table with its name, or the word that it is missing.
macro_rules! function {
    ($mpi:expr, $field:ident) => {{
        let (name, entry) = $mpi.symbols.$field;
        match entry {
            Some(entry) => Ok((name, entry)),
            None => Err($crate::mpi::Failure::Missing(name)),
        }
    }};
}

/// Calls a function from the table and turns its return code into an [`Outcome`].
macro_rules! call {
    ($mpi:expr, $field:ident($($argument:expr),* $(,)?)) => {
        match $crate::mpi::function!($mpi, $field) {
            Ok((name, entry)) => {
                let code = entry($($argument),*);
                $mpi.check(name, code)
            }
            Err(missing) => Err(missing),
        }
    };
}
use {call, function};

/// An initialised MPI library. One per process; not to be shared between threads.
pub(crate) struct Mpi<A: Abi> {
    symbols: Symbols<A::Handle>,
    handles: Handles<A::Handle>,
    thread_bound: PhantomData<*const ()>,
}

impl<A: Abi> Mpi<A> {
    /// `MPI_Init_thread`, and errors returned from then on.
    ///
    /// # Errors
    /// When the library lacks what every MPI has, or refuses to start.
    pub(crate) fn start() -> Outcome<Rc<Self>> {
        let symbols = Symbols::resolve();
        let handles = A::handles().map_err(|name| Failure::Missing(name.to_str().unwrap_or("a predefined handle")))?;
        let mpi = Self { symbols, handles, thread_bound: PhantomData };
        // MPI_THREAD_FUNNELED is 1 in both ABIs: a watchdog thread makes no MPI call.
        let (mut provided, funneled) = (0, 1);
        // SAFETY: the standard allows null for both argc and argv, and `provided` is an int.
        unsafe { call!(mpi, init_thread(std::ptr::null_mut(), std::ptr::null_mut(), funneled, &mut provided)) }?;
        // SAFETY: both handles are predefined and MPI is initialised.
        unsafe { call!(mpi, comm_set_errhandler(mpi.handles.world, mpi.handles.errors_return)) }?;
        Ok(Rc::new(mpi))
    }

    /// `MPI_COMM_WORLD`.
    pub(crate) fn world(self: &Rc<Self>) -> Outcome<Communicator<A>> {
        Communicator::adopt(self, self.handles.world, Ownership::Predefined)
    }

    /// What the library calls itself, in a few words: "Open MPI v5.0.11".
    pub(crate) fn library_version(&self) -> String {
        // MPI_MAX_LIBRARY_VERSION_STRING is 8192 in MPICH and 256 in Open MPI.
        let mut text = vec![0u8; 8193];
        let mut length = 0;
        // SAFETY: the buffer is as long as the longest string of either ABI, and a byte more.
        match unsafe { call!(self, library_version(text.as_mut_ptr().cast::<c_char>(), &mut length)) } {
            Ok(()) => short_name(&first_line(&text, length)),
            Err(_) => A::NAME.to_string(),
        }
    }

    /// `MPI_Finalize`.
    pub(crate) fn finish(self: Rc<Self>) -> Outcome {
        // SAFETY: MPI is initialised (there is an `Mpi`), and communicators and windows hold the
        // `Rc`; what is left of them is not touched again because the process ends.
        unsafe { call!(self, finalize()) }
    }

    fn check(&self, call: &'static str, code: c_int) -> Outcome {
        match code {
            0 => Ok(()),
            _ => Err(Failure::Refused { call, message: self.error_text(code) }),
        }
    }

    fn error_text(&self, code: c_int) -> String {
        // MPI_MAX_ERROR_STRING is 512 in MPICH and 256 in Open MPI.
        let mut text = vec![0u8; 1025];
        let mut length = 0;
        match self.symbols.error_string.1 {
            // SAFETY: the buffer is longer than either library's MPI_MAX_ERROR_STRING.
            Some(entry) if unsafe { entry(code, text.as_mut_ptr().cast::<c_char>(), &mut length) } == 0 => {
                first_line(&text, length)
            }
            _ => format!("error {code}"),
        }
    }
}

fn first_line(text: &[u8], length: c_int) -> String {
    let length = usize::try_from(length).unwrap_or(0).min(text.len());
    let text = String::from_utf8_lossy(&text[..length]);
    let mut lines = text.lines().map(|line| line.trim_matches(['\0', ' ', '\t']));
    lines.find(|line| !line.is_empty()).unwrap_or("").to_string()
}

/// Drops what the libraries add to name and version.
fn short_name(line: &str) -> String {
    let name = line.split([',', '(']).next().filter(|_| !line.contains("(R)")).unwrap_or(line);
    let name = name.replace("(R)", "").replace("Version:", "").replace(" for Linux* OS", "");
    Vec::from_iter(name.split_whitespace()).join(" ")
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Ownership {
    Predefined,
    Ours,
}

/// A communicator with its size and this process's rank in it.
pub(crate) struct Communicator<A: Abi> {
    mpi: Rc<Mpi<A>>,
    handle: A::Handle,
    ownership: Ownership,
    pub(crate) rank: c_int,
    pub(crate) size: c_int,
}

impl<A: Abi> Communicator<A> {
    fn adopt(mpi: &Rc<Mpi<A>>, handle: A::Handle, ownership: Ownership) -> Outcome<Self> {
        let mut communicator = Self { mpi: mpi.clone(), handle, ownership, rank: 0, size: 0 };
        // SAFETY: the handle is a live communicator and the results are ints.
        unsafe {
            call!(mpi, comm_rank(handle, &mut communicator.rank))?;
            call!(mpi, comm_size(handle, &mut communicator.size))?;
            call!(mpi, comm_set_errhandler(handle, mpi.handles.errors_return))?;
        }
        Ok(communicator)
    }

    /// All processes of this communicator in a ring: `MPI_Cart_create`, one periodic dimension.
    pub(crate) fn ring(&self) -> Outcome<Self> {
        let mut handle = self.mpi.handles.comm_null;
        let (dimensions, periodic) = ([self.size], [1]);
        // SAFETY: both arrays have the one element that the dimension count states.
        unsafe {
            call!(self.mpi, cart_create(self.handle, 1, dimensions.as_ptr(), periodic.as_ptr(), 0, &mut handle))
        }?;
        Self::adopt(&self.mpi, handle, Ownership::Ours)
    }

    /// Number of processes, for arithmetic with buffers.
    pub(crate) fn processes(&self) -> usize {
        usize::try_from(self.size).expect("a communicator's size is not negative")
    }

    /// This process's rank, for arithmetic with buffers.
    pub(crate) fn place(&self) -> usize {
        usize::try_from(self.rank).expect("a rank is not negative")
    }

    /// `MPI_Barrier`.
    pub(crate) fn barrier(&self) -> Outcome {
        // SAFETY: the communicator is live.
        unsafe { call!(self.mpi, barrier(self.handle)) }
    }

    /// `MPI_Abort`.
    pub(crate) fn abort(&self, status: c_int) -> Outcome {
        // SAFETY: the communicator is live.
        unsafe { call!(self.mpi, abort(self.handle, status)) }
    }
}

impl<A: Abi> Drop for Communicator<A> {
    fn drop(&mut self) {
        if self.ownership == Ownership::Ours {
            // SAFETY: the handle is live and this is its last use. Every member drops its
            // communicator at the same point of the program, as the standard asks.
            let _ = unsafe { call!(self.mpi, comm_free(&mut self.handle)) };
        }
    }
}

/// A length as C wants it.
fn count(length: usize) -> c_int {
    c_int::try_from(length).expect("no buffer here is longer than 2 GiB")
}

#[cfg(test)]
mod tests {
    use super::short_name;

    #[test]
    fn libraries_are_named_in_a_few_words() {
        assert_eq!(short_name("MPICH Version:      5.0.2"), "MPICH 5.0.2");
        assert_eq!(short_name("Open MPI v4.1.4, package: Debian OpenMPI, ident: 4.1.4"), "Open MPI v4.1.4");
        assert_eq!(short_name("Intel(R) MPI Library 2021.18.1 for Linux* OS"), "Intel MPI Library 2021.18.1");
    }
}
