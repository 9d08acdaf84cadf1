//! What this provider does not offer: every entry of a table that does nothing else refuses with
//! FI_ENOSYS. None is null, since callers follow them without looking, and none is the core's,
//! since what it carried would not be sealed.

use std::ffi::c_int;

use gambeson_libfabric_sys as sys;

/// An entry that refuses, of whatever type the table wants.
pub(crate) const fn unsupported<F: Entry>() -> Option<F> {
    Some(F::REFUSES)
}

/// A type of function in libfabric's tables.
pub(crate) trait Entry {
    /// The function of this type that refuses.
    const REFUSES: Self;
}

/// What such functions return.
trait Answer {
    const NOT_OFFERED: Self;
}

impl Answer for c_int {
    const NOT_OFFERED: c_int = -sys::FI_ENOSYS;
}

impl Answer for isize {
    const NOT_OFFERED: isize = -(sys::FI_ENOSYS as isize);
}

macro_rules! entry {
    ($($argument:ident)*) => {
        impl<R: Answer, $($argument),*> Entry for unsafe extern "C" fn($($argument),*) -> R {
            const REFUSES: Self = {
                unsafe extern "C" fn refuse<R: Answer, $($argument),*>($(_: $argument),*) -> R {
                    R::NOT_OFFERED
                }
                refuse::<R, $($argument),*>
            };
        }
    };
}

entry!(A);
entry!(A B);
entry!(A B C);
entry!(A B C D);
entry!(A B C D E);
entry!(A B C D E F);
entry!(A B C D E F G);
entry!(A B C D E F G H);
entry!(A B C D E F G H I);
entry!(A B C D E F G H I J);
entry!(A B C D E F G H I J K);
entry!(A B C D E F G H I J K L);
entry!(A B C D E F G H I J K L M);
entry!(A B C D E F G H I J K L M N);
entry!(A B C D E F G H I J K L M N O);
entry!(A B C D E F G H I J K L M N O P);

/// Remote atomic operations.
pub(crate) static ATOMIC: sys::fi_ops_atomic = sys::fi_ops_atomic {
    size: size_of::<sys::fi_ops_atomic>(),
    write: unsupported(),
    writev: unsupported(),
    writemsg: unsupported(),
    inject: unsupported(),
    readwrite: unsupported(),
    readwritev: unsupported(),
    readwritemsg: unsupported(),
    compwrite: unsupported(),
    compwritev: unsupported(),
    compwritemsg: unsupported(),
    writevalid: unsupported(),
    readwritevalid: unsupported(),
    compwritevalid: unsupported(),
};

/// The provider's own collective operations.
pub(crate) static COLLECTIVE: sys::fi_ops_collective = sys::fi_ops_collective {
    size: size_of::<sys::fi_ops_collective>(),
    barrier: unsupported(),
    broadcast: unsupported(),
    alltoall: unsupported(),
    allreduce: unsupported(),
    allgather: unsupported(),
    reduce_scatter: unsupported(),
    reduce: unsupported(),
    scatter: unsupported(),
    gather: unsupported(),
    msg: unsupported(),
    barrier2: unsupported(),
};
