//! Stops a rank whose MPI library came up without the Gambeson provider (nothing fails open).
//!
//! `gambeson run` puts this library in `LD_PRELOAD`. It stands in front of the functions that
//! start MPI, calls the real ones, and then looks whether the provider is loaded and has opened
//! an endpoint with the job's secret. If not, the process says why and ends with status 70
//! before its first message leaves it. In every other process, and wherever `GAMBESON_JOB` is
//! unset, it does nothing at all.
//!
//! The Fortran entries of all three MPIs call the C functions through the dynamic linker, by
//! their MPI or their PMPI name, so both names of each are enough. The real function is looked
//! up under the name that was called, which leaves profilers in the chain where they were.

mod children;
mod environment;
mod provider;
mod real;
mod refusal;
mod roll_call;

use std::ffi::{c_int, c_void};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use refusal::Refusal;

/// Declares the stand-in for a C function of MPI whose arguments are integers or pointers.
///
/// Handles are an `int` in some MPIs and a pointer in others; a machine word carries both, as
/// the callee reads only the half it needs.
macro_rules! stand_in {
    ($before:ident, $after:ident: $($name:ident)+, $arguments:tt) => {
        $(stand_in!(@one $before $after $name $arguments);)+
    };
    (@one $before:ident $after:ident $name:ident ($($argument:ident),*)) => {
        /// Stands in front of the MPI function of the same name.
        ///
        /// # Safety
        /// As the MPI standard demands of the function's callers.
        #[unsafe(no_mangle)]
        #[allow(non_snake_case)]
        pub unsafe extern "C" fn $name($($argument: usize),*) -> c_int {
            type Real = unsafe extern "C" fn($(stand_in!(@word $argument)),*) -> c_int;
            let ours: Real = $name;
            $before();
            let Some(address) = real::function(stringify!($name), ours as *const c_void) else {
                return missing(stringify!($name));
            };
            // SAFETY: the address is that of the MPI library's function of this name, which takes
            // these arguments, a word each, and they are the caller's own.
            let status = unsafe { std::mem::transmute::<*const c_void, Real>(address)($($argument),*) };
            $after(status);
            status
        }
    };
    (@word $argument:ident) => { usize };
}

stand_in!(begin, check_world: MPI_Init PMPI_Init, (argc, argv));
stand_in!(begin, check_world: MPI_Init_thread PMPI_Init_thread, (argc, argv, required, provided));
// A session need not open an endpoint before its first communicator.
stand_in!(check_environment, nothing: MPI_Session_init PMPI_Session_init, (info, errhandler, session));
stand_in!(check_environment, check_provider: MPI_Comm_create_from_group PMPI_Comm_create_from_group,
    (group, tag, info, errhandler, communicator));
stand_in!(check_environment, check_provider: MPI_Intercomm_create_from_groups PMPI_Intercomm_create_from_groups,
    (local, local_leader, remote, remote_leader, tag, info, errhandler, communicator));
// A shared window is shared memory by the program's own wish, and stays.
stand_in!(check_one_sided, nothing: MPI_Win_create PMPI_Win_create MPI_Win_create_c PMPI_Win_create_c,
    (base, size, unit, info, communicator, window));
stand_in!(check_one_sided, nothing: MPI_Win_allocate PMPI_Win_allocate MPI_Win_allocate_c PMPI_Win_allocate_c,
    (size, unit, info, communicator, base, window));
stand_in!(check_one_sided, nothing: MPI_Win_create_dynamic PMPI_Win_create_dynamic, (info, communicator, window));

/// Ends the process if its environment would lead MPI around the provider.
fn check_environment() {
    end_unless(environment::check);
}

/// MPI is about to start, and with it its world.
fn begin() {
    check_environment();
    STARTING.store(true, Ordering::Release);
}

/// Ends the process if MPI came up without the provider, or takes a rank's address for another's.
fn check_world(status: c_int) {
    STARTING.store(false, Ordering::Release);
    check_provider(status);
    if status == 0 && job_is_given() {
        roll_call::call();
    }
}

static STARTING: AtomicBool = AtomicBool::new(false);

/// Whether this process is inside MPI_Init: the provider asks, because the addresses that come then are the world's.
#[unsafe(no_mangle)]
pub extern "C" fn gambeson_mpi_starts() -> c_int {
    c_int::from(STARTING.load(Ordering::Acquire))
}

/// Ends the process if MPI came up without the provider.
fn check_provider(status: c_int) {
    // MPI's own failure is MPI's to report.
    if status == 0 {
        end_unless(|_| provider::check());
    }
}

/// Ends the process if this MPI would move one-sided data past the provider.
fn check_one_sided() {
    end_unless(environment::check_one_sided);
}

fn nothing(_status: c_int) {}

/// What a program finds that calls a function its MPI lacks. Only mpi4py does, which looks
/// whether a newer MPI's functions are there: it takes ours for the library's, and knows this
/// status as its own word for "not implemented".
fn missing(name: &str) -> c_int {
    if name.contains("Init") && job_is_given() {
        refusal::end(&Refusal::unknown_mpi(name));
    }
    MPI4PY_UNAVAILABLE
}

fn job_is_given() -> bool {
    environment::job().is_some()
}

/// PyMPI_ERR_UNAVAILABLE of mpi4py.
const MPI4PY_UNAVAILABLE: c_int = -1_431_655_766;

fn end_unless(check: impl FnOnce(&Path) -> Result<(), Refusal>) {
    if let Some(job) = environment::job()
        && let Err(refusal) = check(&job)
    {
        refusal::end(&refusal);
    }
}
