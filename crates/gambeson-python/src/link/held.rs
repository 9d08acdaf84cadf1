//! What is dropped without Python's lock.
//!
//! To drop a startpoint, a request and the like takes their domain's lock, and who has that may wait for Python's: a
//! transform module does. So nobody who has Python's lock may wait for a domain's, not even where Python frees an object.

use std::ops::Deref;
use std::sync::Arc;

use pyo3::prelude::*;

/// Shared, and dropped without Python's lock by who has it last.
pub(crate) struct Held<T: Send + Sync>(Option<Arc<T>>);

impl<T: Send + Sync> Held<T> {
    pub(crate) fn new(inner: T) -> Self {
        Held(Some(Arc::new(inner)))
    }

    /// What others may have, too.
    pub(crate) fn shared(inner: Arc<T>) -> Self {
        Held(Some(inner))
    }

    /// It, for who has it last.
    pub(crate) fn last(mut self) -> Option<T> {
        self.0.take().and_then(Arc::into_inner)
    }
}

impl<T: Send + Sync> Clone for Held<T> {
    fn clone(&self) -> Self {
        Held(self.0.clone())
    }
}

impl<T: Send + Sync> Deref for Held<T> {
    type Target = Arc<T>;

    fn deref(&self) -> &Arc<T> {
        self.0.as_ref().expect("it is there until it is dropped")
    }
}

impl<T: Send + Sync> Drop for Held<T> {
    fn drop(&mut self) {
        if let Some(last) = self.0.take().and_then(Arc::into_inner) {
            apart(last);
        }
    }
}

/// Drops something without Python's lock.
pub(crate) fn apart<T: Send>(inner: T) {
    let mut inner = Some(inner);
    Python::try_attach(|py| {
        let inner = inner.take();
        py.detach(|| drop(inner));
    });
}
