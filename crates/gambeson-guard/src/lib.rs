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
mod communicators;
mod environment;
mod launcher;
mod mpi;
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
        $(stand_in!(@one $before $after None, 0, $name $arguments);)+
    };
    // `$instead` is what is returned without a call of the real function, if anything; `$then` what is returned after one
    // that did not fail.
    ($before:ident, $after:ident: $($name:ident)+, $arguments:tt, $instead:expr, $then:expr) => {
        $(stand_in!(@one $before $after $instead, $then, $name $arguments);)+
    };
    (@one $before:ident $after:ident $instead:expr, $then:expr, $name:ident ($($argument:ident),*)) => {
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
            let instead: Option<c_int> = $instead;
            if let Some(status) = instead {
                return status;
            }
            let Some(address) = real::function(stringify!($name), ours as *const c_void) else {
                return missing(stringify!($name));
            };
            // SAFETY: the address is that of the MPI library's function of this name, which takes
            // these arguments, a word each, and they are the caller's own.
            let status = unsafe { std::mem::transmute::<*const c_void, Real>(address)($($argument),*) };
            $after(status);
            if status == 0 { $then } else { status }
        }
    };
    (@word $argument:ident) => { usize };
}

stand_in!(begin, check_world: MPI_Init PMPI_Init, (argc, argv));
stand_in!(begin, check_world: MPI_Init_thread PMPI_Init_thread, (argc, argv, required, provided));
// A session need not open an endpoint before its first communicator.
stand_in!(check_environment, nothing: MPI_Session_init PMPI_Session_init, (info, errhandler, session));
stand_in!(check_environment, check_provider: MPI_Comm_create_from_group PMPI_Comm_create_from_group,
    (group, tag, info, errhandler, new), None, communicators::made(None, Some(info), new));
stand_in!(check_environment, check_provider: MPI_Intercomm_create_from_groups PMPI_Intercomm_create_from_groups,
    (local, local_leader, remote, remote_leader, tag, info, errhandler, new),
    None, communicators::made(None, Some(info), new));
// A shared window is shared memory by the program's own wish, and stays.
stand_in!(check_one_sided, nothing: MPI_Win_create PMPI_Win_create MPI_Win_create_c PMPI_Win_create_c,
    (base, size, unit, info, communicator, window));
stand_in!(check_one_sided, nothing: MPI_Win_allocate PMPI_Win_allocate MPI_Win_allocate_c PMPI_Win_allocate_c,
    (size, unit, info, communicator, base, window));
stand_in!(check_one_sided, nothing: MPI_Win_create_dynamic PMPI_Win_create_dynamic, (info, communicator, window));

// What is made of a communicator has its protection, unless the info that it is made with asks for another.
stand_in!(go, nothing: MPI_Comm_dup PMPI_Comm_dup, (comm, new), None, communicators::made(Some(comm), None, new));
stand_in!(go, nothing: MPI_Comm_dup_with_info PMPI_Comm_dup_with_info, (comm, info, new),
    None, communicators::made(Some(comm), Some(info), new));
stand_in!(go, nothing: MPI_Comm_create PMPI_Comm_create, (comm, group, new),
    None, communicators::made(Some(comm), None, new));
stand_in!(go, nothing: MPI_Comm_create_group PMPI_Comm_create_group, (comm, group, tag, new),
    None, communicators::made(Some(comm), None, new));
stand_in!(go, nothing: MPI_Comm_split PMPI_Comm_split, (comm, color, key, new),
    None, communicators::made(Some(comm), None, new));
stand_in!(go, nothing: MPI_Comm_split_type PMPI_Comm_split_type, (comm, kind, key, info, new),
    None, communicators::made(Some(comm), Some(info), new));
stand_in!(go, nothing: MPI_Cart_create PMPI_Cart_create, (comm, dimensions, sizes, periods, reorder, new),
    None, communicators::made(Some(comm), None, new));
stand_in!(go, nothing: MPI_Cart_sub PMPI_Cart_sub, (comm, remain, new),
    None, communicators::made(Some(comm), None, new));
stand_in!(go, nothing: MPI_Graph_create PMPI_Graph_create, (comm, nodes, index, edges, reorder, new),
    None, communicators::made(Some(comm), None, new));
stand_in!(go, nothing: MPI_Dist_graph_create PMPI_Dist_graph_create,
    (comm, count, sources, degrees, destinations, weights, info, reorder, new),
    None, communicators::made(Some(comm), Some(info), new));
stand_in!(go, nothing: MPI_Dist_graph_create_adjacent PMPI_Dist_graph_create_adjacent,
    (comm, indegree, sources, source_weights, outdegree, destinations, weights, info, reorder, new),
    None, communicators::made(Some(comm), Some(info), new));
stand_in!(go, nothing: MPI_Intercomm_merge PMPI_Intercomm_merge, (comm, high, new),
    None, communicators::made(Some(comm), None, new));
stand_in!(go, nothing: MPI_Comm_idup PMPI_Comm_idup, (comm, new, request), communicators::refuse_later(comm, None), 0);
stand_in!(go, nothing: MPI_Comm_idup_with_info PMPI_Comm_idup_with_info, (comm, info, new, request),
    communicators::refuse_later(comm, Some(info)), 0);
stand_in!(go, nothing: MPI_Comm_set_info PMPI_Comm_set_info, (comm, info), None, communicators::set_info(comm, info));
stand_in!(go, nothing: MPI_Comm_get_info PMPI_Comm_get_info, (comm, info), None, communicators::add_info(comm, info));
stand_in!(go, nothing: MPI_Comm_free PMPI_Comm_free, (comm), communicators::give_up(comm), 0);
stand_in!(go, nothing: MPI_Comm_disconnect PMPI_Comm_disconnect, (comm), communicators::give_up(comm), 0);

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

fn go() {}

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
