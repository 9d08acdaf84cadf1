//! The C ABIs that an MPI library on Linux comes in, as tables of constants: which one it is shows at run time.
//!
//! MPICH's (Intel MPI, MVAPICH and Cray MPICH keep it) has handles of 32 bits with fixed values, Open MPI's has addresses
//! of objects that the library exports, and the standard ABI (MPI-5 chapter 20) has pointers of which the predefined ones
//! are small numbers. `MPI_File` is a pointer in all of them. The values are those of the `mpi.h` files.

use std::ffi::{CStr, c_int};

use gambeson_interpose::object;

/// What has to be known of an MPI library's ABI before it can be called.
#[derive(Debug)]
pub(crate) struct Abi {
    /// Whether handles other than files are an `int`.
    int_handles: bool,
    pub(crate) file_null: usize,
    /// Whether its error handler can be called by name. Open MPI takes that for a mistake, and ends the program.
    pub(crate) calls_file_null: bool,
    pub(crate) datatype_null: usize,
    pub(crate) request_null: usize,
    pub(crate) info_null: usize,
    pub(crate) comm_self: usize,
    pub(crate) comm_world: usize,
    pub(crate) byte: usize,
    /// `MPI_INT64_T`, the element of every reduction here.
    pub(crate) int64: usize,
    pub(crate) max: usize,
    pub(crate) sum: usize,
    pub(crate) errors_return: usize,
    pub(crate) status_ignore: usize,
    pub(crate) displacement_current: i64,
    pub(crate) seek: Seek,
    pub(crate) mode: Mode,
    pub(crate) order_c: c_int,
    pub(crate) distribute: Distribute,
    pub(crate) combiner: Combiners,
    pub(crate) class: Classes,
    /// Bytes of an error string, its zero included.
    pub(crate) error_string_max: usize,
}

#[derive(Debug)]
pub(crate) struct Seek {
    pub(crate) set: c_int,
    pub(crate) current: c_int,
    pub(crate) end: c_int,
}

#[derive(Debug)]
pub(crate) struct Mode {
    pub(crate) create: c_int,
    pub(crate) delete_on_close: c_int,
    pub(crate) unique_open: c_int,
    pub(crate) read_only: c_int,
    pub(crate) write_only: c_int,
    pub(crate) read_write: c_int,
    pub(crate) append: c_int,
    pub(crate) sequential: c_int,
}

impl Mode {
    /// MPICH and Open MPI have them from ROMIO.
    const BEFORE_MPI_5: Mode = Mode {
        create: 1,
        read_only: 2,
        write_only: 4,
        read_write: 8,
        delete_on_close: 16,
        unique_open: 32,
        append: 128,
        sequential: 256,
    };
}

#[derive(Debug)]
pub(crate) struct Distribute {
    pub(crate) block: c_int,
    pub(crate) cyclic: c_int,
    pub(crate) default: c_int,
}

#[derive(Debug)]
pub(crate) struct Combiners {
    pub(crate) named: c_int,
    pub(crate) dup: c_int,
    pub(crate) contiguous: c_int,
    pub(crate) vector: c_int,
    pub(crate) hvector: c_int,
    pub(crate) indexed: c_int,
    pub(crate) hindexed: c_int,
    pub(crate) indexed_block: c_int,
    pub(crate) hindexed_block: c_int,
    pub(crate) structure: c_int,
    pub(crate) subarray: c_int,
    pub(crate) darray: c_int,
    pub(crate) resized: c_int,
    /// Types of one element that a program gets without naming them: F90_REAL, F90_COMPLEX, F90_INTEGER, VALUE_INDEX.
    pub(crate) elements: [c_int; 4],
}

#[derive(Debug)]
pub(crate) struct Classes {
    pub(crate) access: c_int,
    pub(crate) argument: c_int,
    pub(crate) count: c_int,
    pub(crate) io: c_int,
    pub(crate) no_space: c_int,
    pub(crate) not_same: c_int,
    pub(crate) quota: c_int,
    pub(crate) read_only: c_int,
    pub(crate) datatype: c_int,
    pub(crate) unsupported_datarep: c_int,
    pub(crate) unsupported_operation: c_int,
}

impl Abi {
    /// The ABI of the library in which a function was found.
    ///
    /// # Errors
    /// Names the object that an Open MPI lacks.
    pub(crate) fn of(library: &str) -> Result<Self, &'static CStr> {
        let name = library.rsplit('/').next().unwrap_or(library);
        if name.starts_with("libmpi_abi.") {
            Ok(Self::standard())
        } else if object(c"ompi_mpi_comm_world").is_some() {
            Self::open_mpi()
        } else {
            Ok(Self::mpich())
        }
    }

    /// A handle as the library passes it, without what the caller left in the register's upper half.
    pub(crate) fn handle(&self, word: usize) -> usize {
        if self.int_handles { extend(word as i32) } else { word }
    }

    /// Where a program keeps a handle: reads it.
    ///
    /// # Safety
    /// The address is that of a handle.
    pub(crate) unsafe fn read_handle(&self, address: usize) -> usize {
        // SAFETY: the caller's promise; a handle is an `int` or a pointer.
        unsafe { if self.int_handles { extend(*(address as *const i32)) } else { *(address as *const usize) } }
    }

    /// Where a program keeps a handle: writes it.
    ///
    /// # Safety
    /// The address is that of a handle.
    pub(crate) unsafe fn write_handle(&self, address: usize, handle: usize) {
        // SAFETY: as for `read_handle`.
        unsafe {
            if self.int_handles {
                *(address as *mut i32) = handle as i32;
            } else {
                *(address as *mut usize) = handle;
            }
        }
    }

    /// Bytes of a handle.
    pub(crate) fn handle_size(&self) -> usize {
        if self.int_handles { 4 } else { 8 }
    }

    fn mpich() -> Self {
        Abi {
            int_handles: true,
            file_null: 0,
            calls_file_null: true,
            datatype_null: 0x0c00_0000,
            request_null: 0x2c00_0000,
            info_null: 0x1c00_0000,
            comm_self: 0x4400_0001,
            comm_world: 0x4400_0000,
            byte: 0x4c00_010d,
            int64: 0x4c00_083a,
            max: 0x5800_0001,
            sum: 0x5800_0003,
            errors_return: 0x5400_0001,
            status_ignore: 1,
            displacement_current: -54_278_278,
            seek: Seek { set: 600, current: 602, end: 604 },
            mode: Mode::BEFORE_MPI_5,
            order_c: 56,
            distribute: Distribute { block: 121, cyclic: 122, default: -49767 },
            combiner: Combiners {
                named: 1,
                dup: 2,
                contiguous: 3,
                vector: 4,
                hvector: 6,
                indexed: 7,
                hindexed: 9,
                indexed_block: 10,
                structure: 12,
                subarray: 13,
                darray: 14,
                elements: [15, 16, 17, 20],
                resized: 18,
                hindexed_block: 19,
            },
            class: Classes {
                count: 2,
                datatype: 3,
                argument: 12,
                access: 20,
                io: 32,
                not_same: 35,
                no_space: 36,
                quota: 39,
                read_only: 40,
                unsupported_datarep: 43,
                unsupported_operation: 44,
            },
            error_string_max: 512,
        }
    }

    fn open_mpi() -> Result<Self, &'static CStr> {
        let address = |name: &'static CStr| object(name).map(|address| address as usize).ok_or(name);
        Ok(Abi {
            int_handles: false,
            file_null: address(c"ompi_mpi_file_null")?,
            calls_file_null: false,
            datatype_null: address(c"ompi_mpi_datatype_null")?,
            request_null: address(c"ompi_request_null")?,
            info_null: address(c"ompi_mpi_info_null")?,
            comm_self: address(c"ompi_mpi_comm_self")?,
            comm_world: address(c"ompi_mpi_comm_world")?,
            byte: address(c"ompi_mpi_byte")?,
            int64: address(c"ompi_mpi_int64_t")?,
            max: address(c"ompi_mpi_op_max")?,
            sum: address(c"ompi_mpi_op_sum")?,
            errors_return: address(c"ompi_mpi_errors_return")?,
            status_ignore: 0,
            displacement_current: -54_278_278,
            seek: Seek { set: 600, current: 602, end: 604 },
            mode: Mode::BEFORE_MPI_5,
            order_c: 0,
            distribute: Distribute { block: 0, cyclic: 1, default: -1 },
            combiner: Combiners {
                named: 0,
                dup: 1,
                contiguous: 2,
                vector: 3,
                hvector: 5,
                indexed: 6,
                hindexed: 8,
                indexed_block: 9,
                structure: 11,
                subarray: 12,
                darray: 13,
                // It has no VALUE_INDEX.
                elements: [14, 15, 16, 14],
                resized: 17,
                hindexed_block: 18,
            },
            class: Classes {
                count: 2,
                datatype: 3,
                argument: 13,
                access: 20,
                io: 35,
                not_same: 40,
                no_space: 41,
                quota: 44,
                read_only: 45,
                unsupported_datarep: 51,
                unsupported_operation: 52,
            },
            error_string_max: 256,
        })
    }

    fn standard() -> Self {
        Abi {
            int_handles: false,
            file_null: 0x118,
            calls_file_null: true,
            datatype_null: 0x200,
            request_null: 0x180,
            info_null: 0x130,
            comm_self: 0x102,
            comm_world: 0x101,
            byte: 0x247,
            int64: 0x258,
            max: 0x23,
            sum: 0x21,
            errors_return: 0x143,
            status_ignore: 0,
            displacement_current: -1,
            seek: Seek { set: 403, current: 401, end: 402 },
            mode: Mode {
                append: 1,
                create: 2,
                delete_on_close: 4,
                read_only: 16,
                read_write: 32,
                sequential: 64,
                unique_open: 128,
                write_only: 256,
            },
            order_c: 0xc,
            distribute: Distribute { block: 17, cyclic: 18, default: 19 },
            combiner: Combiners {
                named: 101,
                dup: 102,
                contiguous: 103,
                vector: 104,
                hvector: 105,
                indexed: 106,
                hindexed: 107,
                indexed_block: 108,
                hindexed_block: 109,
                structure: 110,
                subarray: 111,
                darray: 112,
                elements: [113, 114, 115, 117],
                resized: 116,
            },
            class: Classes {
                count: 2,
                datatype: 3,
                argument: 13,
                access: 20,
                io: 35,
                not_same: 40,
                no_space: 41,
                quota: 44,
                read_only: 45,
                unsupported_datarep: 54,
                unsupported_operation: 55,
            },
            error_string_max: 512,
        }
    }
}

fn extend(handle: i32) -> usize {
    handle as isize as usize
}
