//! What a program adds in functions of its own: transform modules, and operations that combine answers of groups.

use std::ffi::{c_char, c_void};
use std::mem::MaybeUninit;
use std::sync::Arc;

use gambeson_link::transform::End;
use gambeson_link::{Mapping, Operation, Transform};

use crate::domain::{gambeson_link_config, set};
use crate::endpoint::User;
use crate::failure::{Failure, done, gambeson_link_status};
use crate::raw::{given, hand_out, room_for, text};

/// A message that a function of the program's own reads and writes.
///
/// It is there until that function returns.
pub struct gambeson_link_message {
    bytes: Vec<u8>,
    failed: Option<String>,
}

impl gambeson_link_message {
    /// Has a function work on these bytes.
    fn worked_on(bytes: &mut Vec<u8>, work: impl FnOnce(*mut gambeson_link_message)) -> Result<(), String> {
        let mut message = gambeson_link_message { bytes: std::mem::take(bytes), failed: None };
        work(&raw mut message);
        *bytes = message.bytes;
        message.failed.map_or(Ok(()), Err)
    }
}

/// Where the message is, to be read and altered.
///
/// The bytes are there until it is resized.
#[unsafe(no_mangle)]
pub extern "C" fn gambeson_link_message_bytes(
    message: Option<&mut gambeson_link_message>,
    bytes: Option<&mut MaybeUninit<*mut c_void>>,
    length: Option<&mut MaybeUninit<usize>>,
) -> gambeson_link_status {
    done(|| {
        let message = given(message, "the message")?;
        hand_out(bytes, message.bytes.as_mut_ptr().cast())?;
        hand_out(length, message.bytes.len())
    })
}

/// Gives the message another length, in bytes. What it gains is zero.
#[unsafe(no_mangle)]
pub extern "C" fn gambeson_link_message_resize(
    message: Option<&mut gambeson_link_message>,
    length: usize,
) -> gambeson_link_status {
    done(|| {
        let message = given(message, "the message")?;
        if length > message.bytes.capacity() {
            let mut larger = room_for(length)?;
            larger.extend_from_slice(&message.bytes);
            message.bytes = larger;
        }
        message.bytes.resize(length, 0);
        Ok(())
    })
}

/// Says that there is no such message, and why: the request ends with that sentence.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gambeson_link_message_fail(
    message: Option<&mut gambeson_link_message>,
    why: *const c_char,
) -> gambeson_link_status {
    done(|| {
        // SAFETY: the caller's promise.
        let why = unsafe { text(why, "the reason")? };
        given(message, "the message")?.failed = Some(why.to_owned());
        Ok(())
    })
}

/// An own one. Endpoints that pass messages on are given it with `gambeson_link_handlers_forwards`, under the same name
/// of 1 to 64 bytes, which must not begin with `+`; where it is missing, answers are passed on as they are.
#[repr(C)]
pub struct gambeson_link_own_operation {
    /// 1 to 64 bytes, the same at all ends, which do not begin with `+`.
    pub name: *const c_char,
    /// Makes `combined`, which is empty, of two answers, of which `one` is the earlier member's. It runs in threads of the
    /// library's, several at a time. No exception may leave it.
    pub combine: Option<
        unsafe extern "C" fn(
            one: *const c_void,
            one_length: usize,
            other: *const c_void,
            other_length: usize,
            combined: *mut gambeson_link_message,
            user: *mut c_void,
        ),
    >,
    /// Given to the function.
    pub user: *mut c_void,
}

/// The operation that C describes.
///
/// # Safety
/// Its name is a text, its function is what the header says, and both function and `user` may be used in any thread.
pub(crate) unsafe fn operation(own: &gambeson_link_own_operation) -> Result<Operation, Failure> {
    // SAFETY: the caller's promise.
    let name = unsafe { text(own.name, "the operation's name")? };
    if !Operation::is_name(name) {
        return Err(Failure::argument(format!("{name:?} is no name of an operation")));
    }
    let (combine, user) = (given(own.combine, "the operation's function")?, User::new(own.user));
    Ok(Operation::own(name, move |one, other| {
        let mut combined = Vec::new();
        let work = |message| {
            let (one, other) = ((one.as_ptr().cast(), one.len()), (other.as_ptr().cast(), other.len()));
            // SAFETY: the caller's promise; the bytes and the message are there until it returns.
            unsafe { combine(one.0, one.1, other.0, other.1, message, user.get()) }
        };
        gambeson_link_message::worked_on(&mut combined, work).map(|()| combined)
    }))
}

/// Which end of a link we are.
#[repr(C)]
pub enum gambeson_link_end {
    /// The one that opened it. Of a control link: the one that opened the session.
    Startpoint = 0,
    /// The one it was opened to.
    Endpoint = 1,
}

/// A module that transforms the messages of links: compression, an own encoding, a cipher or a checksum beside those
/// that are there.
///
/// Its functions run with the domain locked, in whatever thread moves its bytes, one at a time: they must not wait, and
/// use nothing of the library but what reads and alters the message. No exception may leave them. What the other end sent may have
/// been made with malice.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct gambeson_link_transform {
    /// By what endpoints name it: printable ASCII without spaces and commas. All names of one stack have 64 characters,
    /// commas between them included.
    pub name: *const c_char,
    /// A link begins, and this is that end of it, a `gambeson_link_end`. What it returns is the link's state in both
    /// directions. Null if there is nothing to do; `gambeson_link_message_fail` says that the link does not come about, and
    /// nothing is closed then.
    pub open:
        Option<unsafe extern "C" fn(end: u32, failure: *mut gambeson_link_message, user: *mut c_void) -> *mut c_void>,
    /// Transforms what goes out from this end, each message once and in the order of the link.
    pub apply: Option<unsafe extern "C" fn(message: *mut gambeson_link_message, state: *mut c_void, user: *mut c_void)>,
    /// Undoes what the other end's `apply` did, in the same order; `most` bytes are the most that may become of it.
    pub restore: Option<
        unsafe extern "C" fn(message: *mut gambeson_link_message, most: usize, state: *mut c_void, user: *mut c_void),
    >,
    /// The link is over: frees its state. Null if there is nothing to do.
    pub close: Option<unsafe extern "C" fn(state: *mut c_void, user: *mut c_void)>,
    /// Whether what becomes of a message depends on the ones before. Then a message that fails is the last of its link in
    /// that direction.
    pub remembers: bool,
    /// Given to all of them.
    pub user: *mut c_void,
}

/// Has this transform module, too, so that endpoints can name it and startpoints with it be bound.
///
/// `module` stays the caller's; its functions, and what `user` leads to, must stay as long as the domain.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gambeson_link_config_transform(
    config: Option<&mut gambeson_link_config>,
    module: Option<&gambeson_link_transform>,
) -> gambeson_link_status {
    set(config, |config| {
        let module = given(module, "the module")?;
        // SAFETY: the caller's promise.
        let name = unsafe { text(module.name, "the module's name")? }.to_owned();
        config.transforms.push(Arc::new(Module {
            name,
            functions: Arc::new(Functions {
                open: module.open,
                apply: given(module.apply, "the module's apply")?,
                restore: given(module.restore, "the module's restore")?,
                close: module.close,
                user: User::new(module.user),
            }),
            remembers: module.remembers,
        }));
        Ok(())
    })
}

struct Module {
    name: String,
    functions: Arc<Functions>,
    remembers: bool,
}

type Work = unsafe extern "C" fn(message: *mut gambeson_link_message, state: *mut c_void, user: *mut c_void);
type Undo = unsafe extern "C" fn(*mut gambeson_link_message, usize, *mut c_void, *mut c_void);

/// They are what the header says, by the promise of who gave them.
struct Functions {
    open: Option<unsafe extern "C" fn(u32, *mut gambeson_link_message, *mut c_void) -> *mut c_void>,
    apply: Work,
    restore: Undo,
    close: Option<unsafe extern "C" fn(state: *mut c_void, user: *mut c_void)>,
    user: User,
}

impl Transform for Module {
    fn name(&self) -> &str {
        &self.name
    }

    fn open(&self, end: End) -> Result<Box<dyn Mapping>, String> {
        let mut link = Link { functions: self.functions.clone(), state: User::new(std::ptr::null_mut()), open: false };
        if let Some(open) = self.functions.open {
            let end = if end == End::Startpoint { gambeson_link_end::Startpoint } else { gambeson_link_end::Endpoint };
            gambeson_link_message::worked_on(&mut Vec::new(), |failure| {
                // SAFETY: the function is what the header says.
                link.state = User::new(unsafe { open(end as u32, failure, self.functions.user.get()) });
            })?;
        }
        link.open = true;
        Ok(Box::new(link))
    }

    fn remembers(&self) -> bool {
        self.remembers
    }
}

struct Link {
    functions: Arc<Functions>,
    state: User,
    /// Whether there is something to close.
    open: bool,
}

impl Mapping for Link {
    fn apply(&mut self, message: &mut Vec<u8>) -> Result<(), String> {
        let (apply, state, user) = (self.functions.apply, self.state.get(), self.functions.user.get());
        // SAFETY: the function is what the header says, and the message is there until it returns.
        gambeson_link_message::worked_on(message, |message| unsafe { apply(message, state, user) })
    }

    fn restore(&mut self, message: &mut Vec<u8>, most: usize) -> Result<(), String> {
        let (restore, state, user) = (self.functions.restore, self.state.get(), self.functions.user.get());
        // SAFETY: as above.
        gambeson_link_message::worked_on(message, |message| unsafe { restore(message, most, state, user) })
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        if let Some(close) = self.functions.close.filter(|_| self.open) {
            // SAFETY: as above; nothing uses the state afterwards.
            unsafe { close(self.state.get(), self.functions.user.get()) }
        }
    }
}
