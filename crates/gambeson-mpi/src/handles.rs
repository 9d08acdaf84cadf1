//! The handles of sealed files, by the library's own.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, PoisonError, RwLock};

use crate::file::Sealed;
use crate::mpi::Inside;

/// The sealed file of a handle. While none is open, and for calls from within the library, nothing is looked up.
pub(crate) fn sealed(file: usize) -> Option<Arc<Sealed>> {
    if OPEN.load(Ordering::Acquire) == 0 || Inside::is() {
        return None;
    }
    files().read().unwrap_or_else(PoisonError::into_inner).get(&file).cloned()
}

pub(crate) fn insert(file: Sealed) {
    files().write().unwrap_or_else(PoisonError::into_inner).insert(file.file, Arc::new(file));
    OPEN.fetch_add(1, Ordering::Release);
}

pub(crate) fn remove(file: usize) {
    if files().write().unwrap_or_else(PoisonError::into_inner).remove(&file).is_some() {
        OPEN.fetch_sub(1, Ordering::Release);
    }
}

fn files() -> &'static RwLock<HashMap<usize, Arc<Sealed>>> {
    static FILES: OnceLock<RwLock<HashMap<usize, Arc<Sealed>>>> = OnceLock::new();
    FILES.get_or_init(RwLock::default)
}

static OPEN: AtomicUsize = AtomicUsize::new(0);
