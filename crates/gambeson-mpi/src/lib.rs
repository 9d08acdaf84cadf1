//! Sealed files for programs that use MPI-IO (MPI-4.1 chapter 14).
//!
//! `gambeson run` puts this library in `LD_PRELOAD`. It stands in front of MPI's file routines and owns what MPI-IO means
//! for files that are sealed: the view, the pointers, the size. The file below is bytes at offsets. Every other file goes
//! straight on to the MPI library.
//!
//! ```text
//! calls ──> completion ──> file: one Request ──> engine: extents and packed bytes
//!   │                       │     ├─ memory ──┐
//!   ├──> control, open      │     └─ view ────┴─> datatype: flattened
//!   └──> handles, plain     └─ shared_pointer
//! pnetcdf: the one question that PnetCDF asks past MPI
//! mpi: the library's functions ── abi: its constants, fortran: its handles there       error: classes and sentences
//! ```

mod abi;
mod calls;
mod completion;
mod control;
mod datatype;
mod decide;
mod encryption_map;
mod engine;
mod error;
mod file;
mod fortran;
mod handles;
mod memory;
mod mpi;
mod no_keys;
mod open;
mod plain;
mod pnetcdf;
mod sealed;
mod shared_pointer;
mod view;
