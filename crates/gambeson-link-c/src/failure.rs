//! Status codes, and the sentence behind the last one.

use std::cell::RefCell;
use std::ffi::{CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};

use gambeson_link::Error;

/// What every function returns; `gambeson_link_error` has the sentence behind what is not `OK`, `PENDING` or `END`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum gambeson_link_status {
    /// It worked.
    Ok = 0,
    /// Not yet: ask or wait again.
    Pending = 1,
    /// A stream of answers is at its end.
    End = 2,
    /// An argument is null or makes no sense.
    Argument = 3,
    /// The answer or text is longer than the room for it; its length was filled in.
    Room = 4,
    /// An own certificate, key, list of authorities or site directory is not usable.
    Identity = 5,
    /// The other end is not who it should be, or does not accept us.
    Refused = 6,
    /// The bytes are not what a domain sends: altered on the way, or of another version.
    Protocol = 7,
    /// A startpoint does not allow it.
    Startpoint = 8,
    /// The handler at the endpoint says no.
    Handler = 9,
    /// Nothing came in time.
    TimedOut = 10,
    /// The other end is gone.
    Lost = 11,
    /// The operating system says no.
    System = 12,
    /// A defect of this library. The call had no further effect.
    Defect = 13,
    /// A transform module is missing, or does not take a message.
    Transform = 14,
    /// It is not the message that it was to be.
    Message = 15,
    /// A policy is not usable.
    Policy = 16,
}

use gambeson_link_status as Status;

/// Why a call failed.
#[derive(Clone)]
pub(crate) struct Failure(Status, String);

impl Failure {
    pub(crate) fn argument(what: impl Into<String>) -> Self {
        Failure(Status::Argument, what.into())
    }

    pub(crate) fn room(needed: usize, room: usize) -> Self {
        Failure(Status::Room, format!("{needed} bytes are to be written, and there is room for {room}"))
    }

    pub(crate) fn startpoint(cause: impl ToString) -> Self {
        Failure(Status::Startpoint, cause.to_string())
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let status = match &error {
            Error::Identity(_) => Status::Identity,
            Error::Refused(_) => Status::Refused,
            Error::Protocol(_) => Status::Protocol,
            Error::Startpoint(_) => Status::Startpoint,
            Error::Transform(_) => Status::Transform,
            Error::Message(_) => Status::Message,
            Error::Policy(_) => Status::Policy,
            Error::Handler(_) => Status::Handler,
            Error::TimedOut(_) => Status::TimedOut,
            Error::Lost(_) => Status::Lost,
            _ => Status::System,
        };
        Failure(status, error.to_string())
    }
}

impl From<gambeson_launch::Error> for Failure {
    fn from(error: gambeson_launch::Error) -> Self {
        use gambeson_launch::Error::{Refused, Rules, Senseless};
        let status = match &error {
            Senseless(_) => Status::Argument,
            Rules(_) | Refused(_) => Status::Refused,
            _ => Status::Lost,
        };
        Failure(status, error.to_string())
    }
}

thread_local! {
    static SENTENCE: RefCell<CString> = RefCell::default();
}

/// Why something with a link did not work.
///
/// Of the last call on this thread that failed; empty if none did. It is there until the next one does.
#[unsafe(no_mangle)]
pub extern "C" fn gambeson_link_error() -> *const c_char {
    SENTENCE.with_borrow(|sentence| sentence.as_ptr())
}

/// Does a call's work. What fails leaves its sentence, and no panic reaches C.
pub(crate) fn answer(work: impl FnOnce() -> Result<Status, Failure>) -> Status {
    let outcome = catch_unwind(AssertUnwindSafe(work));
    let outcome = outcome.unwrap_or_else(|_| Err(Failure(Status::Defect, "this is a defect of Gambeson".into())));
    outcome.unwrap_or_else(|Failure(status, sentence)| {
        let sentence = CString::new(sentence.replace('\0', "\u{fffd}")).expect("there is no zero left");
        SENTENCE.set(sentence);
        status
    })
}

/// [`answer`] for what works or fails.
pub(crate) fn done(work: impl FnOnce() -> Result<(), Failure>) -> Status {
    answer(|| work().map(|()| Status::Ok))
}

/// Frees a handle.
pub(crate) fn free<T>(handle: Option<Box<T>>) {
    // What a panic leaves behind is not freed a second time.
    let _ = catch_unwind(AssertUnwindSafe(|| drop(handle)));
}
