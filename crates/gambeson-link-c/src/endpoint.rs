//! Endpoints: handlers in C, and what they are asked.

use std::ffi::{c_char, c_void};
use std::mem::MaybeUninit;

use gambeson_link::{Attributes, Call, Endpoint, Handlers, Request};

use crate::domain::gambeson_link_domain;
use crate::failure::{Failure, done, free, gambeson_link_status};
use crate::identity::gambeson_link_peer;
use crate::own::{gambeson_link_own_operation, operation};
use crate::raw::{bytes, given, hand_out, list, make, protection_of, show, text, texts};
use crate::region::{gambeson_link_window, memory};
use crate::startpoint::gambeson_link_capability;

/// What an endpoint is made with, and its startpoints inherit.
pub struct gambeson_link_attributes(Attributes);

/// The handlers of an endpoint, before it is there.
pub struct gambeson_link_handlers(Handlers);

/// Handlers that others can be given startpoints to. It stays as long as its domain, or until it is dropped.
pub struct gambeson_link_endpoint(Endpoint);

/// A request at its endpoint, as an inline handler sees it.
///
/// It is there until the handler returns.
#[cfg_attr(all(), repr(transparent))]
pub struct gambeson_link_call<'c>(Call<'c>);

/// A request at its endpoint, as a threaded or queued handler gets it.
///
/// It is the handler's to keep, and to answer from any thread, also later; what ends it frees it.
pub struct gambeson_link_request(Request);

/// What a handler that is not threaded is: it runs in the domain's thread or, with manual progress, in whoever makes some.
/// It must not wait, and no exception may leave it.
pub type gambeson_link_inline_handler =
    Option<unsafe extern "C" fn(call: *mut gambeson_link_call<'_>, user: *mut c_void)>;

/// What a threaded handler is: it runs in a thread of the domain's pool, several at a time, and owns the request. No
/// exception may leave it.
pub type gambeson_link_threaded_handler =
    Option<unsafe extern "C" fn(request: Option<Box<gambeson_link_request>>, user: *mut c_void)>;

/// What C gave for its own use.
#[derive(Clone, Copy)]
pub(crate) struct User(*mut c_void);

// SAFETY: nothing here looks behind it, and the header asks of C that handlers may run in any thread.
unsafe impl Send for User {}
// SAFETY: as above.
unsafe impl Sync for User {}

impl User {
    pub(crate) fn new(given: *mut c_void) -> Self {
        User(given)
    }

    pub(crate) fn get(self) -> *mut c_void {
        self.0
    }
}

/// Makes attributes of class `data`, protected as the policy says, for messages of up to 64 MiB.
#[unsafe(no_mangle)]
pub extern "C" fn gambeson_link_attributes_new(
    attributes: Option<&mut MaybeUninit<Option<Box<gambeson_link_attributes>>>>,
) -> gambeson_link_status {
    done(|| make(attributes, || Ok(gambeson_link_attributes(Attributes::default()))))
}

fn set(
    attributes: Option<&mut gambeson_link_attributes>,
    change: impl FnOnce(Attributes) -> Result<Attributes, Failure>,
) -> gambeson_link_status {
    done(|| {
        let attributes = given(attributes, "the attributes")?;
        attributes.0 = change(attributes.0.clone())?;
        Ok(())
    })
}

/// The class of its links, by which policy rules go; up to 32 letters, digits, `-`, `_` and `.`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gambeson_link_attributes_class(
    attributes: Option<&mut gambeson_link_attributes>,
    name: *const c_char,
) -> gambeson_link_status {
    // SAFETY: the caller's promise.
    set(attributes, |attributes| Ok(attributes.class(unsafe { text(name, "the class")? })))
}

/// How its links are protected at the least, whatever the policies of both ends say.
///
/// A `gambeson_link_protection`.
#[unsafe(no_mangle)]
pub extern "C" fn gambeson_link_attributes_protection(
    attributes: Option<&mut gambeson_link_attributes>,
    protection: u32,
) -> gambeson_link_status {
    set(attributes, |attributes| Ok(attributes.protection(protection_of(protection)?)))
}

/// The longest message that it takes, in bytes, as the handler gets it. What is longer is refused, and its link goes
/// on.
#[unsafe(no_mangle)]
pub extern "C" fn gambeson_link_attributes_message_max(
    attributes: Option<&mut gambeson_link_attributes>,
    bytes: usize,
) -> gambeson_link_status {
    set(attributes, |attributes| Ok(attributes.message_max(bytes)))
}

/// Sends requests and answers through this module, behind those that were named before and in front of the protection,
/// which is always there. `zstd` is one of every domain; more come with `gambeson_link_config_transform`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gambeson_link_attributes_transform(
    attributes: Option<&mut gambeson_link_attributes>,
    name: *const c_char,
) -> gambeson_link_status {
    // SAFETY: the caller's promise.
    set(attributes, |attributes| Ok(attributes.transform(unsafe { text(name, "the module's name")? })))
}

/// Frees attributes. Null is nothing to free.
#[unsafe(no_mangle)]
pub extern "C" fn gambeson_link_attributes_free(attributes: Option<Box<gambeson_link_attributes>>) {
    free(attributes);
}

/// None yet.
#[unsafe(no_mangle)]
pub extern "C" fn gambeson_link_handlers_new(
    handlers: Option<&mut MaybeUninit<Option<Box<gambeson_link_handlers>>>>,
) -> gambeson_link_status {
    done(|| make(handlers, || Ok(gambeson_link_handlers(Handlers::new()))))
}

/// A handler that runs where the request arrives, between two others: the fastest way, for what only answers. It must
/// not wait for anything, and may not use its own domain but to answer.
///
/// `user` is given to it, and must stay as long as the domain.
#[unsafe(no_mangle)]
pub extern "C" fn gambeson_link_handlers_inline(
    handlers: Option<&mut gambeson_link_handlers>,
    number: u32,
    handler: gambeson_link_inline_handler,
    user: *mut c_void,
) -> gambeson_link_status {
    done(|| {
        let (handlers, handler) = (given(handlers, "the list of handlers")?, given(handler, "the handler")?);
        let user = User(user);
        let run = move |call: &mut Call<'_>| {
            // SAFETY: the function is what the header says, the call is transparent and there until it returns.
            unsafe { handler((&raw mut *call).cast(), user.get()) }
        };
        handlers.0 = std::mem::take(&mut handlers.0).inline(number, run);
        Ok(())
    })
}

/// A handler that runs on a thread of its own among few, and may do what it likes.
///
/// `user` is given to it, and must stay as long as the domain and the requests that handlers keep.
#[unsafe(no_mangle)]
pub extern "C" fn gambeson_link_handlers_threaded(
    handlers: Option<&mut gambeson_link_handlers>,
    number: u32,
    handler: gambeson_link_threaded_handler,
    user: *mut c_void,
) -> gambeson_link_status {
    done(|| {
        let (handlers, handler) = (given(handlers, "the list of handlers")?, given(handler, "the handler")?);
        let user = User(user);
        let run = move |request| {
            // SAFETY: the function is what the header says.
            unsafe { handler(Some(Box::new(gambeson_link_request(request))), user.get()) }
        };
        handlers.0 = std::mem::take(&mut handlers.0).threaded(number, run);
        Ok(())
    })
}

/// Passes messages of groups on (`gambeson_link_domain_group`), on threads of the domain's, and combines the answers,
/// also by these operations of the program's own. Whoever may call that handler (`FORWARD`) has this domain connect
/// where the startpoints lead that he hands it.
///
/// `operations` are `count`, and stay the caller's; their functions, and what their `user` leads to, must stay as long as
/// the domain.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gambeson_link_handlers_forwards(
    handlers: Option<&mut gambeson_link_handlers>,
    operations: *const gambeson_link_own_operation,
    count: usize,
) -> gambeson_link_status {
    done(|| {
        let handlers = given(handlers, "the list of handlers")?;
        // SAFETY: the caller's promise.
        let operations = unsafe { list(operations, count, "the list of operations")? };
        // SAFETY: the caller's promise.
        let own = operations.iter().map(|own| unsafe { operation(own) }).collect::<Result<Vec<_>, _>>()?;
        handlers.0 = std::mem::take(&mut handlers.0).forwards(own);
        Ok(())
    })
}

/// Frees handlers that no endpoint took. Null is nothing to free.
#[unsafe(no_mangle)]
pub extern "C" fn gambeson_link_handlers_free(handlers: Option<Box<gambeson_link_handlers>>) {
    free(handlers);
}

/// Makes an endpoint.
///
/// It takes `handlers` over, whatever it returns; `attributes` stay the caller's, and may be null: those of
/// `gambeson_link_attributes_new`.
#[unsafe(no_mangle)]
pub extern "C" fn gambeson_link_domain_endpoint(
    domain: Option<&gambeson_link_domain>,
    attributes: Option<&gambeson_link_attributes>,
    handlers: Option<Box<gambeson_link_handlers>>,
    endpoint: Option<&mut MaybeUninit<Option<Box<gambeson_link_endpoint>>>>,
) -> gambeson_link_status {
    done(|| {
        make(endpoint, || {
            let (domain, handlers) = (given(domain, "the domain")?, given(handlers, "the list of handlers")?);
            let attributes = attributes.map(|attributes| attributes.0.clone()).unwrap_or_default();
            Ok(gambeson_link_endpoint(domain.get().endpoint(attributes, handlers.0)?))
        })
    })
}

/// A startpoint to give away, for whoever holds it, narrowed so.
///
/// It reaches `count` windows of memory regions, none if `windows` is null; `gambeson_link_capability_narrow_uses` and
/// its like narrow it further.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gambeson_link_endpoint_startpoint(
    endpoint: Option<&gambeson_link_endpoint>,
    windows: *const gambeson_link_window,
    count: usize,
    capability: Option<&mut MaybeUninit<Option<Box<gambeson_link_capability>>>>,
) -> gambeson_link_status {
    done(|| {
        make(capability, || {
            let endpoint = given(endpoint, "the endpoint")?;
            // SAFETY: the caller's promise.
            let memory = (count > 0).then(|| unsafe { memory(windows, count) }).transpose()?;
            Ok(gambeson_link_capability(endpoint.0.startpoint(memory)?))
        })
    })
}

/// Puts this endpoint under a name, for who attaches to this domain (`gambeson_link_domain_attach`) and proves to have
/// one of the roles: `rank` for processes of the job, else those of pinned keys and certificates. Each gets a
/// startpoint narrowed so, bound to its own key; uses are counted over all of them.
///
/// `roles` are texts, as many as `role_count`. Narrowed as `like` is, a startpoint of this endpoint, which stays the
/// caller's; not at all, if it is null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gambeson_link_endpoint_publish(
    endpoint: Option<&gambeson_link_endpoint>,
    name: *const c_char,
    roles: *const *const c_char,
    role_count: usize,
    like: Option<&gambeson_link_capability>,
) -> gambeson_link_status {
    done(|| {
        let endpoint = given(endpoint, "the endpoint")?;
        // SAFETY: the caller's promise.
        let (name, roles) = unsafe { (text(name, "the name")?, texts(roles, role_count, "the list of roles")?) };
        let caveats = like.into_iter().flat_map(|like| like.0.caveats().cloned());
        Ok(endpoint.0.publish(name, &roles, caveats)?)
    })
}

/// Takes a name away from this endpoint: all that was attached by it has ended.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gambeson_link_endpoint_withdraw(
    endpoint: Option<&gambeson_link_endpoint>,
    name: *const c_char,
) -> gambeson_link_status {
    done(|| {
        let endpoint = given(endpoint, "the endpoint")?;
        // SAFETY: the caller's promise.
        Ok(endpoint.0.withdraw(unsafe { text(name, "the name")? })?)
    })
}

/// Ends a startpoint of this endpoint and all that descend from it.
#[unsafe(no_mangle)]
pub extern "C" fn gambeson_link_endpoint_revoke(
    endpoint: Option<&gambeson_link_endpoint>,
    capability: Option<&gambeson_link_capability>,
) -> gambeson_link_status {
    done(|| Ok(given(endpoint, "the endpoint")?.0.revoke(&given(capability, "the startpoint")?.0)?))
}

/// Closes an endpoint and frees it. Null is nothing to free.
#[unsafe(no_mangle)]
pub extern "C" fn gambeson_link_endpoint_free(endpoint: Option<Box<gambeson_link_endpoint>>) {
    free(endpoint);
}

/// The handler's number.
#[unsafe(no_mangle)]
pub extern "C" fn gambeson_link_call_handler(
    call: Option<&gambeson_link_call<'_>>,
    handler: Option<&mut MaybeUninit<u32>>,
) -> gambeson_link_status {
    done(|| hand_out(handler, given(call, "the call")?.0.handler))
}

/// What was sent.
///
/// The bytes are there until the handler returns.
#[unsafe(no_mangle)]
pub extern "C" fn gambeson_link_call_payload(
    call: Option<&gambeson_link_call<'_>>,
    payload: Option<&mut MaybeUninit<*const c_void>>,
    length: Option<&mut MaybeUninit<usize>>,
) -> gambeson_link_status {
    done(|| show(given(call, "the call")?.0.payload, payload, length))
}

/// Who sent it, proved.
#[unsafe(no_mangle)]
pub extern "C" fn gambeson_link_call_peer(call: Option<&gambeson_link_call<'_>>) -> *const gambeson_link_peer {
    call.map_or(std::ptr::null(), |call| gambeson_link_peer::of(call.0.peer))
}

/// Whether the other end waits for an answer.
#[unsafe(no_mangle)]
pub extern "C" fn gambeson_link_call_wants_answer(call: Option<&gambeson_link_call<'_>>) -> bool {
    call.is_some_and(|call| call.0.wants_answer())
}

/// Answers; of a stream, the last word. One-way requests take none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gambeson_link_call_answer(
    call: Option<&mut gambeson_link_call<'_>>,
    answer: *const c_void,
    length: usize,
) -> gambeson_link_status {
    done(|| {
        // SAFETY: the caller's promise.
        given(call, "the call")?.0.answer(unsafe { bytes(answer, length)? });
        Ok(())
    })
}

/// Sends one of a stream of answers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gambeson_link_call_item(
    call: Option<&mut gambeson_link_call<'_>>,
    item: *const c_void,
    length: usize,
) -> gambeson_link_status {
    done(|| {
        // SAFETY: the caller's promise.
        given(call, "the call")?.0.item(unsafe { bytes(item, length)? });
        Ok(())
    })
}

/// Ends a stream of answers.
#[unsafe(no_mangle)]
pub extern "C" fn gambeson_link_call_finish(call: Option<&mut gambeson_link_call<'_>>) -> gambeson_link_status {
    done(|| {
        given(call, "the call")?.0.finish();
        Ok(())
    })
}

/// Says no, and why.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gambeson_link_call_refuse(
    call: Option<&mut gambeson_link_call<'_>>,
    why: *const c_char,
) -> gambeson_link_status {
    done(|| {
        // SAFETY: the caller's promise.
        given(call, "the call")?.0.refuse(unsafe { text(why, "the reason")? });
        Ok(())
    })
}

/// The handler's number.
#[unsafe(no_mangle)]
pub extern "C" fn gambeson_link_request_handler(
    request: Option<&gambeson_link_request>,
    handler: Option<&mut MaybeUninit<u32>>,
) -> gambeson_link_status {
    done(|| hand_out(handler, given(request, "the request")?.0.handler))
}

/// What was sent.
///
/// The bytes are there as long as the request.
#[unsafe(no_mangle)]
pub extern "C" fn gambeson_link_request_payload(
    request: Option<&gambeson_link_request>,
    payload: Option<&mut MaybeUninit<*const c_void>>,
    length: Option<&mut MaybeUninit<usize>>,
) -> gambeson_link_status {
    done(|| show(&given(request, "the request")?.0.payload, payload, length))
}

/// Who sent it, proved.
#[unsafe(no_mangle)]
pub extern "C" fn gambeson_link_request_peer(request: Option<&gambeson_link_request>) -> *const gambeson_link_peer {
    request.map_or(std::ptr::null(), |request| gambeson_link_peer::of(&request.0.peer))
}

/// Whether nobody waits for an answer any more: the request was cancelled, it was one-way, or the link is over.
#[unsafe(no_mangle)]
pub extern "C" fn gambeson_link_request_is_cancelled(request: Option<&gambeson_link_request>) -> bool {
    request.is_some_and(|request| request.0.is_cancelled())
}

/// Answers; of a stream, the last word. One-way requests take none.
///
/// It frees the request, whatever it returns.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gambeson_link_request_answer(
    request: Option<Box<gambeson_link_request>>,
    answer: *const c_void,
    length: usize,
) -> gambeson_link_status {
    done(|| {
        let request = given(request, "the request")?;
        // SAFETY: the caller's promise; it may be the request's own payload, which is there until the end.
        request.0.answer(unsafe { bytes(answer, length)? });
        Ok(())
    })
}

/// Sends one of a stream of answers, and waits until its reader has room for it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gambeson_link_request_item(
    request: Option<&mut gambeson_link_request>,
    item: *const c_void,
    length: usize,
) -> gambeson_link_status {
    done(|| {
        // SAFETY: the caller's promise.
        Ok(given(request, "the request")?.0.item(unsafe { bytes(item, length)? })?)
    })
}

/// Says no, and why.
///
/// It frees the request, whatever it returns.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gambeson_link_request_refuse(
    request: Option<Box<gambeson_link_request>>,
    why: *const c_char,
) -> gambeson_link_status {
    done(|| {
        // SAFETY: the caller's promise.
        given(request, "the request")?.0.refuse(unsafe { text(why, "the reason")? });
        Ok(())
    })
}

/// Frees a request: a stream of answers ends, and who waits for an answer hears that there is none. Null is nothing to
/// free.
#[unsafe(no_mangle)]
pub extern "C" fn gambeson_link_request_free(request: Option<Box<gambeson_link_request>>) {
    free(request);
}

impl gambeson_link_endpoint {
    pub(crate) fn get(&self) -> &Endpoint {
        &self.0
    }
}
