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

mod environment;
mod provider;
mod real;
mod refusal;

use std::ffi::{c_char, c_int, c_void};

use refusal::Refusal;

/// Declares the stand-in for a C function of MPI whose arguments are integers or pointers.
///
/// Handles are an `int` in some MPIs and a pointer in others; a machine word carries both, as
/// the callee reads only the half it needs.
macro_rules! stand_in {
    ($check:ident: $($name:ident)+, $arguments:tt) => {
        $(stand_in!(@one $check $name $arguments);)+
    };
    (@one $check:ident $name:ident ($($argument:ident: $type:ty),*)) => {
        /// Stands in front of the MPI function of the same name.
        ///
        /// # Safety
        /// As the MPI standard demands of the function's callers.
        #[unsafe(no_mangle)]
        #[allow(non_snake_case)]
        pub unsafe extern "C" fn $name($($argument: $type),*) -> c_int {
            type Real = unsafe extern "C" fn($($type),*) -> c_int;
            let name = concat!(stringify!($name), "\0");
            let ours: Real = $name;
            before(name);
            let Some(address) = real::function(name, ours as *const c_void) else {
                refusal::end(&Refusal::unknown_mpi(stringify!($name)));
            };
            // SAFETY: the address is that of the MPI library's function of this name, whose C
            // prototype `Real` is, and the arguments are the caller's own.
            let status = unsafe { std::mem::transmute::<*const c_void, Real>(address)($($argument),*) };
            $check(status);
            status
        }
    };
}

stand_in!(after: MPI_Init PMPI_Init, (argc: *mut c_int, argv: *mut *mut *mut c_char));
stand_in!(after: MPI_Init_thread PMPI_Init_thread, (argc: *mut c_int, argv: *mut *mut *mut c_char, required: c_int, provided: *mut c_int));
// A session need not open an endpoint before its first communicator.
stand_in!(ignore: MPI_Session_init PMPI_Session_init, (info: usize, errhandler: usize, session: usize));
stand_in!(after: MPI_Comm_create_from_group PMPI_Comm_create_from_group, (group: usize, tag: usize, info: usize, errhandler: usize, communicator: usize));
stand_in!(after: MPI_Intercomm_create_from_groups PMPI_Intercomm_create_from_groups, (local: usize, local_leader: usize, remote: usize, remote_leader: usize, tag: usize, info: usize, errhandler: usize, communicator: usize));

/// Ends the process if its environment would lead MPI around the provider.
fn before(_name: &str) {
    let Some(job) = environment::job() else {
        return;
    };
    if let Err(refusal) = environment::check(&job) {
        refusal::end(&refusal);
    }
}

/// Ends the process if MPI came up without the provider.
fn after(status: c_int) {
    // MPI's own failure is MPI's to report.
    if status != 0 || environment::job().is_none() {
        return;
    }
    if let Err(refusal) = provider::check() {
        refusal::end(&refusal);
    }
}

fn ignore(_status: c_int) {}
