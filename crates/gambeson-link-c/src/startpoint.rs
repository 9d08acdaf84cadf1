//! Startpoints: as bytes, narrowed and copied; bound, with requests that go out from them.

use std::cell::Cell;
use std::ffi::{c_char, c_void};
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use gambeson_link::{Answers, Capability, Caveat, Error, Expected, KeyHash, Pending, Startpoint};

use crate::domain::gambeson_link_domain;
use crate::failure::{Failure, answer, done, free, gambeson_link_status};
use crate::raw::{Out, array, bytes, fill, fill_text, given, hand_out, list, make, protection_of, seconds, show, text};
use crate::region::{gambeson_link_window, memory};

/// Room enough for any startpoint's bytes.
pub const GAMBESON_LINK_CAPABILITY_BYTES: usize = 4096;

/// A capability to an endpoint of another process, or of ours.
pub struct gambeson_link_capability(pub(crate) Capability);

/// One end of a link, from which remote service requests go to its endpoint. It is released when it is dropped.
///
/// Threads may share it.
pub struct gambeson_link_startpoint(Arc<Startpoint>);

/// A request that is under way; dropping it cancels it. A future, too, with `GAMBESON_LINK_PROGRESS_AUTO`.
///
/// One thread at a time. It may outlive its startpoint's handle.
pub struct gambeson_link_pending {
    request: Pending<Arc<Startpoint>>,
    answer: Vec<u8>,
    here: bool,
}

/// A stream of answers; dropping it cancels the request.
///
/// One thread at a time. It may outlive its startpoint's handle.
pub struct gambeson_link_answers {
    stream: Answers<Arc<Startpoint>>,
    last: Vec<u8>,
}

impl gambeson_link_startpoint {
    pub(crate) fn new(bound: Startpoint) -> Self {
        gambeson_link_startpoint(Arc::new(bound))
    }

    pub(crate) fn get(&self) -> &Arc<Startpoint> {
        &self.0
    }
}

impl gambeson_link_pending {
    pub(crate) fn new(request: Pending<Arc<Startpoint>>) -> Self {
        gambeson_link_pending { request, answer: Vec::new(), here: false }
    }
}

impl gambeson_link_answers {
    pub(crate) fn new(stream: Answers<Arc<Startpoint>>) -> Self {
        gambeson_link_answers { stream, last: Vec::new() }
    }
}

/// Reads what `Startpoint::encode` wrote. Whether its endpoint takes it, only its owner can tell.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gambeson_link_capability_decode(
    encoded: *const c_void,
    length: usize,
    capability: Option<&mut MaybeUninit<Option<Box<gambeson_link_capability>>>>,
) -> gambeson_link_status {
    done(|| {
        make(capability, || {
            // SAFETY: the caller's promise.
            let decoded = Capability::decode(unsafe { bytes(encoded, length)? });
            decoded.map(gambeson_link_capability).map_err(Failure::startpoint)
        })
    })
}

/// Its bytes, secret and all: they travel only where secrets may.
///
/// `length` gets how many there are, also when there is too little room: `GAMBESON_LINK_CAPABILITY_BYTES` is always enough.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gambeson_link_capability_encode(
    capability: Option<&gambeson_link_capability>,
    into: *mut c_void,
    room: usize,
    length: Option<&mut MaybeUninit<usize>>,
) -> gambeson_link_status {
    done(|| {
        let encoded = given(capability, "the startpoint")?.0.encode();
        // SAFETY: the caller's promise.
        unsafe { fill(&encoded, into, room, length) }
    })
}

/// The domain that owns the endpoint: sessions must lead there.
///
/// The bytes of a public key's hash: 32.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gambeson_link_capability_owner(
    capability: Option<&gambeson_link_capability>,
    hash: *mut u8,
) -> gambeson_link_status {
    done(|| {
        let owner = given(capability, "the startpoint")?.0.owner();
        // SAFETY: the caller's promise.
        unsafe { fill(owner, hash.cast(), owner.len(), None) }
    })
}

/// The domain that it is bound to; `None` is a bearer's.
///
/// The bytes of a public key's hash: 32. `END` for a bearer's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gambeson_link_capability_holder(
    capability: Option<&gambeson_link_capability>,
    hash: *mut u8,
) -> gambeson_link_status {
    answer(|| {
        let Some(holder) = given(capability, "the startpoint")?.0.holder() else {
            return Ok(gambeson_link_status::End);
        };
        // SAFETY: the caller's promise.
        unsafe { fill(holder, hash.cast(), holder.len(), None)? };
        Ok(gambeson_link_status::Ok)
    })
}

/// The class of its links, by which policies choose.
///
/// As `gambeson_link_peer_name` does.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gambeson_link_capability_class(
    capability: Option<&gambeson_link_capability>,
    name: *mut c_char,
    room: usize,
    length: Option<&mut MaybeUninit<usize>>,
) -> gambeson_link_status {
    done(|| {
        let capability = given(capability, "the startpoint")?;
        // SAFETY: the caller's promise.
        unsafe { fill_text(capability.0.class(), name, room, length) }
    })
}

/// The transform modules of its links.
///
/// The one at place `at`, from 0 on, as `gambeson_link_peer_name` does; `END` when there are not so many.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gambeson_link_capability_transform(
    capability: Option<&gambeson_link_capability>,
    at: usize,
    name: *mut c_char,
    room: usize,
    length: Option<&mut MaybeUninit<usize>>,
) -> gambeson_link_status {
    answer(|| {
        let transforms = given(capability, "the startpoint")?.0.transforms();
        let Some(found) = transforms.iter().nth(at) else { return Ok(gambeson_link_status::End) };
        // SAFETY: the caller's promise.
        unsafe { fill_text(found, name, room, length)? };
        Ok(gambeson_link_status::Ok)
    })
}

fn narrow(capability: Option<&mut gambeson_link_capability>, caveat: Caveat) -> Result<(), Failure> {
    given(capability, "the startpoint")?.0.narrow(caveat).map_err(Failure::startpoint)
}

/// Only these handlers, in whatever order.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gambeson_link_capability_narrow_methods(
    capability: Option<&mut gambeson_link_capability>,
    handlers: *const u32,
    count: usize,
) -> gambeson_link_status {
    done(|| {
        // SAFETY: the caller's promise.
        let handlers = unsafe { list(handlers, count, "the list of handlers")? };
        narrow(capability, Caveat::methods(handlers.iter().copied()))
    })
}

/// So many requests, counted over everything that descends from here. The endpoint keeps the count until the earliest
/// expiry that stands before it, so there should be one.
#[unsafe(no_mangle)]
pub extern "C" fn gambeson_link_capability_narrow_uses(
    capability: Option<&mut gambeson_link_capability>,
    uses: u64,
) -> gambeson_link_status {
    done(|| narrow(capability, Caveat::Uses(uses)))
}

/// Nothing from this second on (since 1970, by the endpoint's clock).
#[unsafe(no_mangle)]
pub extern "C" fn gambeson_link_capability_narrow_expires(
    capability: Option<&mut gambeson_link_capability>,
    second: u64,
) -> gambeson_link_status {
    done(|| narrow(capability, Caveat::Expires(second)))
}

/// Links at least so protected.
///
/// A `gambeson_link_protection`.
#[unsafe(no_mangle)]
pub extern "C" fn gambeson_link_capability_narrow_protection(
    capability: Option<&mut gambeson_link_capability>,
    protection: u32,
) -> gambeson_link_status {
    done(|| narrow(capability, Caveat::Protection(protection_of(protection)?)))
}

/// Memory inside one of these windows only. A startpoint without this caveat reaches no memory: its endpoint's owner
/// puts one into each.
///
/// As many windows as `count`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gambeson_link_capability_narrow_memory(
    capability: Option<&mut gambeson_link_capability>,
    windows: *const gambeson_link_window,
    count: usize,
) -> gambeson_link_status {
    // SAFETY: the caller's promise.
    done(|| narrow(capability, unsafe { memory(windows, count)? }))
}

/// Frees a startpoint that is not bound. Null is nothing to free.
#[unsafe(no_mangle)]
pub extern "C" fn gambeson_link_capability_free(capability: Option<Box<gambeson_link_capability>>) {
    free(capability);
}

/// Binds a startpoint that came from elsewhere: connects to its owner, unless there is a session with it, and opens a
/// link.
///
/// `patience` is in seconds. `capability` stays the caller's.
#[unsafe(no_mangle)]
pub extern "C" fn gambeson_link_domain_startpoint(
    domain: Option<&gambeson_link_domain>,
    capability: Option<&gambeson_link_capability>,
    patience: f64,
    startpoint: Option<&mut MaybeUninit<Option<Box<gambeson_link_startpoint>>>>,
) -> gambeson_link_status {
    done(|| {
        make(startpoint, || {
            let (domain, capability) = (given(domain, "the domain")?, given(capability, "the startpoint")?);
            Ok(gambeson_link_startpoint::new(domain.get().startpoint(&capability.0, seconds(patience)?)?))
        })
    })
}

/// Attaches to a program that runs: asks at an address, `10.0.0.1:4000` or a host's name and a port, for the endpoint
/// that is published there under a name (`gambeson_link_endpoint_publish`), and binds a startpoint to it. Both prove
/// who they are, and who is there must be who is `expected`.
///
/// Expected is the owner of `key`, which has 32 bytes, or whoever has `role`; the other of the two is null. `patience` is
/// in seconds.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gambeson_link_domain_attach(
    domain: Option<&gambeson_link_domain>,
    address: *const c_char,
    key: *const u8,
    role: *const c_char,
    name: *const c_char,
    patience: f64,
    startpoint: Option<&mut MaybeUninit<Option<Box<gambeson_link_startpoint>>>>,
) -> gambeson_link_status {
    done(|| {
        make(startpoint, || {
            let domain = given(domain, "the domain")?;
            // SAFETY: the caller's promise.
            let (address, name) = unsafe { (text(address, "the address")?, text(name, "the name")?) };
            let expected = match (key.is_null(), role.is_null()) {
                // SAFETY: the caller's promise.
                (false, true) => Expected::Key(KeyHash(unsafe { array(key, "the key's hash")? })),
                // SAFETY: the caller's promise.
                (true, false) => Expected::Role(unsafe { text(role, "the role")? }.into()),
                _ => {
                    return Err(Failure::argument("expect the owner of a key or somebody with a role, one of them"));
                }
            };
            let attached = domain.get().attach(address, &expected, name, seconds(patience)?)?;
            Ok(gambeson_link_startpoint::new(attached))
        })
    })
}

/// As `gambeson_link_domain_attach`, to the program that the site directory has on a host: it says where that listens,
/// and who has to be there.
///
/// `patience` is in seconds.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gambeson_link_domain_attach_host(
    domain: Option<&gambeson_link_domain>,
    host: *const c_char,
    name: *const c_char,
    patience: f64,
    startpoint: Option<&mut MaybeUninit<Option<Box<gambeson_link_startpoint>>>>,
) -> gambeson_link_status {
    done(|| {
        make(startpoint, || {
            let domain = given(domain, "the domain")?;
            // SAFETY: the caller's promise.
            let (host, name) = unsafe { (text(host, "the host")?, text(name, "the name")?) };
            Ok(gambeson_link_startpoint::new(domain.get().attach_host(host, name, seconds(patience)?)?))
        })
    })
}

/// What it is bound by.
///
/// The copy is to be freed by itself.
#[unsafe(no_mangle)]
pub extern "C" fn gambeson_link_startpoint_capability(
    startpoint: Option<&gambeson_link_startpoint>,
    capability: Option<&mut MaybeUninit<Option<Box<gambeson_link_capability>>>>,
) -> gambeson_link_status {
    done(|| {
        make(capability, || Ok(gambeson_link_capability(given(startpoint, "the startpoint")?.0.capability().clone())))
    })
}

/// How the link is protected: as the policies of both ends, the endpoint and the startpoint want it.
///
/// A `gambeson_link_protection`.
#[unsafe(no_mangle)]
pub extern "C" fn gambeson_link_startpoint_protection(
    startpoint: Option<&gambeson_link_startpoint>,
    protection: Option<&mut MaybeUninit<u32>>,
) -> gambeson_link_status {
    done(|| hand_out(protection, given(startpoint, "the startpoint")?.0.protection() as u32))
}

/// Sends a request that nobody answers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gambeson_link_startpoint_send(
    startpoint: Option<&gambeson_link_startpoint>,
    handler: u32,
    payload: *const c_void,
    length: usize,
) -> gambeson_link_status {
    // SAFETY: the caller's promise.
    done(|| Ok(given(startpoint, "the startpoint")?.0.send(handler, unsafe { bytes(payload, length)? })?))
}

/// Sends a request that nobody answers, and does not wait: what finds no room stays in memory. Who posts much asks
/// `gambeson_link_startpoint_flush` now and then.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gambeson_link_startpoint_post(
    startpoint: Option<&gambeson_link_startpoint>,
    handler: u32,
    payload: *const c_void,
    length: usize,
) -> gambeson_link_status {
    // SAFETY: the caller's promise.
    done(|| Ok(given(startpoint, "the startpoint")?.0.post(handler, unsafe { bytes(payload, length)? })?))
}

/// Waits until there was room for all that was sent, at most so long; whether there was.
///
/// `patience` is in seconds; `PENDING` when there was no room.
#[unsafe(no_mangle)]
pub extern "C" fn gambeson_link_startpoint_flush(
    startpoint: Option<&gambeson_link_startpoint>,
    patience: f64,
) -> gambeson_link_status {
    answer(|| match given(startpoint, "the startpoint")?.0.flush(seconds(patience)?)? {
        true => Ok(gambeson_link_status::Ok),
        false => Ok(gambeson_link_status::Pending),
    })
}

thread_local! {
    /// Memory of answers, before they are in the caller's.
    static ANSWER: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// More is not kept for the next answer.
const KEPT: usize = 1 << 20;

/// Has an answer put into that memory, and fills the caller's from it.
///
/// # Safety
/// As of `fill`.
pub(crate) unsafe fn answered(
    into: *mut c_void,
    room: usize,
    length: Out<'_, usize>,
    ask: impl FnOnce(&mut Vec<u8>) -> Result<(), Error>,
) -> Result<(), Failure> {
    let mut answer = ANSWER.take();
    let asked = ask(&mut answer).map_err(Failure::from);
    // SAFETY: the caller's promise.
    let done = asked.and_then(|()| unsafe { fill(&answer, into, room, length) });
    if answer.capacity() <= KEPT {
        ANSWER.set(answer);
    }
    done
}

/// `Startpoint::call` into memory that is there: `answer` is emptied first.
///
/// `patience` is in seconds. `into` gets the answer; `answer_length`, unless it is null, gets its length. Of an answer
/// longer than `room` nothing is written, and it is lost: `gambeson_link_startpoint_start` takes answers of any length.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gambeson_link_startpoint_call(
    startpoint: Option<&gambeson_link_startpoint>,
    handler: u32,
    payload: *const c_void,
    length: usize,
    into: *mut c_void,
    room: usize,
    answer_length: Option<&mut MaybeUninit<usize>>,
    patience: f64,
) -> gambeson_link_status {
    done(|| {
        let startpoint = given(startpoint, "the startpoint")?;
        // SAFETY: the caller's promise.
        let payload = unsafe { bytes(payload, length)? };
        let patience = seconds(patience)?;
        // SAFETY: the caller's promise.
        unsafe {
            answered(into, room, answer_length, |answer| startpoint.0.call_into(handler, payload, answer, patience))
        }
    })
}

/// Sends a request whose answer is waited for later, or awaited.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gambeson_link_startpoint_start(
    startpoint: Option<&gambeson_link_startpoint>,
    handler: u32,
    payload: *const c_void,
    length: usize,
    pending: Option<&mut MaybeUninit<Option<Box<gambeson_link_pending>>>>,
) -> gambeson_link_status {
    done(|| {
        make(pending, || {
            // SAFETY: the caller's promise.
            let payload = unsafe { bytes(payload, length)? };
            let request = given(startpoint, "the startpoint")?.0.start_owned(handler, payload)?;
            Ok(gambeson_link_pending::new(request))
        })
    })
}

/// Whether the answer to a request is there: `OK` or `PENDING`, without waiting. It moves no bytes: with manual progress
/// `gambeson_link_domain_progress` does.
#[unsafe(no_mangle)]
pub extern "C" fn gambeson_link_pending_test(pending: Option<&mut gambeson_link_pending>) -> gambeson_link_status {
    answer(|| {
        let pending = given(pending, "the request")?;
        if !pending.here {
            match Pin::new(&mut pending.request).poll(&mut Context::from_waker(Waker::noop())) {
                Poll::Pending => return Ok(gambeson_link_status::Pending),
                Poll::Ready(answer) => pending.answer = answer?,
            }
            pending.here = true;
        }
        Ok(gambeson_link_status::Ok)
    })
}

/// Waits for the answer, at most so long.
///
/// In seconds. After `TIMED_OUT` it may be waited for again.
#[unsafe(no_mangle)]
pub extern "C" fn gambeson_link_pending_wait(
    pending: Option<&mut gambeson_link_pending>,
    patience: f64,
) -> gambeson_link_status {
    done(|| {
        let gambeson_link_pending { request, answer, here } = given(pending, "the request")?;
        if !*here {
            request.wait_into(answer, seconds(patience)?)?;
            *here = true;
        }
        Ok(())
    })
}

/// `gambeson_link_pending_wait` into memory that is there, and once more after a time-out: `answer` is emptied first.
#[unsafe(no_mangle)]
pub extern "C" fn gambeson_link_pending_answer(
    pending: Option<&gambeson_link_pending>,
    answer: Option<&mut MaybeUninit<*const c_void>>,
    length: Option<&mut MaybeUninit<usize>>,
) -> gambeson_link_status {
    crate::failure::answer(|| {
        let pending = given(pending, "the request")?;
        if !pending.here {
            return Ok(gambeson_link_status::Pending);
        }
        show(&pending.answer, answer, length)?;
        Ok(gambeson_link_status::Ok)
    })
}

/// Frees a request, and cancels it if it is under way. Null is nothing to free.
#[unsafe(no_mangle)]
pub extern "C" fn gambeson_link_pending_free(pending: Option<Box<gambeson_link_pending>>) {
    free(pending);
}

/// Sends a request that is answered by a stream.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gambeson_link_startpoint_stream(
    startpoint: Option<&gambeson_link_startpoint>,
    handler: u32,
    payload: *const c_void,
    length: usize,
    answers: Option<&mut MaybeUninit<Option<Box<gambeson_link_answers>>>>,
) -> gambeson_link_status {
    done(|| {
        make(answers, || {
            // SAFETY: the caller's promise.
            let payload = unsafe { bytes(payload, length)? };
            Ok(gambeson_link_answers::new(given(startpoint, "the startpoint")?.0.stream_owned(handler, payload)?))
        })
    })
}

/// The next answer, waited for at most so long; `None` at the stream's end.
///
/// In seconds; `END` at the stream's end. The bytes are there until the next one is asked for. After `TIMED_OUT` it may be
/// waited for again.
#[unsafe(no_mangle)]
pub extern "C" fn gambeson_link_answers_next(
    answers: Option<&mut gambeson_link_answers>,
    patience: f64,
    answer: Option<&mut MaybeUninit<*const c_void>>,
    length: Option<&mut MaybeUninit<usize>>,
) -> gambeson_link_status {
    crate::failure::answer(|| {
        let answers = given(answers, "the stream of answers")?;
        match answers.stream.next(seconds(patience)?)? {
            Some(came) => answers.last = came,
            None => return Ok(gambeson_link_status::End),
        }
        show(&answers.last, answer, length)?;
        Ok(gambeson_link_status::Ok)
    })
}

/// Frees a stream of answers, and cancels its request if it is under way. Null is nothing to free.
#[unsafe(no_mangle)]
pub extern "C" fn gambeson_link_answers_free(answers: Option<Box<gambeson_link_answers>>) {
    free(answers);
}

/// Frees a startpoint and releases its link. Null is nothing to free.
#[unsafe(no_mangle)]
pub extern "C" fn gambeson_link_startpoint_free(startpoint: Option<Box<gambeson_link_startpoint>>) {
    free(startpoint);
}
