//! Groups of endpoints that are called together.

use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::time::Duration;

use gambeson_link::{Error, Group, Operation};

use crate::domain::gambeson_link_domain;
use crate::failure::{Failure, answer, done, free, gambeson_link_status};
use crate::own::{gambeson_link_own_operation, operation};
use crate::raw::{Out, bytes, fill, given, hand_out, list, make, seconds, show};
use crate::startpoint::gambeson_link_capability;

/// A set of endpoints that are called together, with their order.
///
/// Threads may share it.
pub struct gambeson_link_group(Group);

/// What the members of a group answered, in their order.
pub struct gambeson_link_results(Vec<Result<Vec<u8>, Failure>>);

/// How two answers become one. It is applied in the members' order, so it need not be commutative; and in a grouping
/// that depends on their number alone, so that sums of floating-point numbers are the same each time.
#[repr(C)]
pub enum gambeson_link_operation {
    /// One answer behind the other.
    Concatenate = 0,
    /// The sums of arrays of `i64`, little-endian, element by element; they wrap around.
    SumI64 = 1,
    /// The least of each element of arrays of `i64`, little-endian.
    MinI64 = 2,
    /// The greatest of each element of arrays of `i64`, little-endian.
    MaxI64 = 3,
    /// The sums of arrays of `f64`, little-endian, element by element.
    SumF64 = 4,
    /// The least of each element of arrays of `f64`, little-endian; NaN if one is.
    MinF64 = 5,
    /// The greatest of each element of arrays of `f64`, little-endian; NaN if one is.
    MaxF64 = 6,
}

fn operation_of(number: u32) -> Result<Operation, Failure> {
    Ok(match number {
        0 => Operation::CONCATENATE,
        1 => Operation::SUM_I64,
        2 => Operation::MIN_I64,
        3 => Operation::MAX_I64,
        4 => Operation::SUM_F64,
        5 => Operation::MIN_F64,
        6 => Operation::MAX_F64,
        other => return Err(Failure::argument(format!("{other} is no gambeson_link_operation"))),
    })
}

/// A group of the endpoints that these startpoints lead to. Nothing is connected to until it is called.
///
/// As many as `count`; they stay the caller's. With `flat` all of them are called by this domain itself: nobody passes
/// anything on.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gambeson_link_domain_group(
    domain: Option<&gambeson_link_domain>,
    members: *const Option<&gambeson_link_capability>,
    count: usize,
    flat: bool,
    group: Option<&mut MaybeUninit<Option<Box<gambeson_link_group>>>>,
) -> gambeson_link_status {
    done(|| {
        make(group, || {
            let domain = given(domain, "the domain")?;
            // SAFETY: the caller's promise.
            let members = unsafe { list(members, count, "the list of members")? };
            let members = members.iter().map(|member| given(*member, "a member").map(|member| member.0.clone()));
            let group = domain.get().group(members.collect::<Result<Vec<_>, _>>()?);
            Ok(gambeson_link_group(if flat { group.flat() } else { group }))
        })
    })
}

/// How many members it has.
#[unsafe(no_mangle)]
pub extern "C" fn gambeson_link_group_length(
    group: Option<&gambeson_link_group>,
    length: Option<&mut MaybeUninit<usize>>,
) -> gambeson_link_status {
    done(|| hand_out(length, given(group, "the group")?.0.len()))
}

/// Sends a request that nobody answers to all members; for each, whether it went, within `patience`.
///
/// `patience` is in seconds. It is `OK` whatever the members say: `gambeson_link_results_get` has that.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gambeson_link_group_send(
    group: Option<&gambeson_link_group>,
    handler: u32,
    payload: *const c_void,
    length: usize,
    patience: f64,
    results: Option<&mut MaybeUninit<Option<Box<gambeson_link_results>>>>,
) -> gambeson_link_status {
    let send = |group: &Group, payload: &[u8], patience| {
        let sent = group.send(handler, payload, patience);
        sent.into_iter().map(|one| one.map(|()| Vec::new())).collect()
    };
    // SAFETY: the caller's promise.
    unsafe { each(group, (payload, length), patience, results, send) }
}

/// Has every member asked something.
///
/// # Safety
/// As of `bytes`.
unsafe fn each(
    group: Option<&gambeson_link_group>,
    (payload, length): (*const c_void, usize),
    patience: f64,
    results: Out<'_, Option<Box<gambeson_link_results>>>,
    ask: impl FnOnce(&Group, &[u8], Duration) -> Vec<Result<Vec<u8>, Error>>,
) -> gambeson_link_status {
    done(|| {
        make(results, || {
            let (group, patience) = (given(group, "the group")?, seconds(patience)?);
            // SAFETY: the caller's promise.
            let answers = ask(&group.0, unsafe { bytes(payload, length)? }, patience);
            Ok(gambeson_link_results(answers.into_iter().map(|one| one.map_err(Failure::from)).collect()))
        })
    })
}

/// Calls all members; their answers, in their order.
///
/// `patience` is in seconds. It is `OK` whatever the members say: `gambeson_link_results_get` has that.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gambeson_link_group_call(
    group: Option<&gambeson_link_group>,
    handler: u32,
    payload: *const c_void,
    length: usize,
    patience: f64,
    results: Option<&mut MaybeUninit<Option<Box<gambeson_link_results>>>>,
) -> gambeson_link_status {
    let call = |group: &Group, payload: &[u8], patience| group.call(handler, payload, patience);
    // SAFETY: the caller's promise.
    unsafe { each(group, (payload, length), patience, results, call) }
}

/// Calls all members and combines their answers by an operation, always in the same order and grouping, whether it is
/// called flat or not. Empty of an empty group.
///
/// `operation` is a `gambeson_link_operation`, `patience` in seconds. `into` gets the answer, as of
/// `gambeson_link_startpoint_call`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gambeson_link_group_reduce(
    group: Option<&gambeson_link_group>,
    handler: u32,
    payload: *const c_void,
    length: usize,
    operation: u32,
    into: *mut c_void,
    room: usize,
    answer_length: Option<&mut MaybeUninit<usize>>,
    patience: f64,
) -> gambeson_link_status {
    let operation = || operation_of(operation);
    // SAFETY: the caller's promise.
    unsafe { reduce(group, handler, (payload, length), operation, (into, room, answer_length), patience) }
}

/// Has the answers of all members combined.
///
/// # Safety
/// As of `bytes` and `fill`.
unsafe fn reduce(
    group: Option<&gambeson_link_group>,
    handler: u32,
    (payload, length): (*const c_void, usize),
    operation: impl FnOnce() -> Result<Operation, Failure>,
    (into, room, answer_length): (*mut c_void, usize, Out<'_, usize>),
    patience: f64,
) -> gambeson_link_status {
    done(|| {
        let (group, operation) = (given(group, "the group")?, operation()?);
        // SAFETY: the caller's promise.
        let payload = unsafe { bytes(payload, length)? };
        let answer = group.0.reduce(handler, payload, &operation, seconds(patience)?)?;
        // SAFETY: the caller's promise.
        unsafe { fill(&answer, into, room, answer_length) }
    })
}

/// As `gambeson_link_group_reduce`, by an operation of the program's own. It also stands in the `operations` of
/// `gambeson_link_handlers_forwards` where messages are passed on; where it does not, answers are passed on as they are.
///
/// `operation` stays the caller's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gambeson_link_group_reduce_own(
    group: Option<&gambeson_link_group>,
    handler: u32,
    payload: *const c_void,
    length: usize,
    own: Option<&gambeson_link_own_operation>,
    into: *mut c_void,
    room: usize,
    answer_length: Option<&mut MaybeUninit<usize>>,
    patience: f64,
) -> gambeson_link_status {
    // SAFETY: the caller's promise.
    let operation = || unsafe { operation(given(own, "the operation")?) };
    // SAFETY: the caller's promise.
    unsafe { reduce(group, handler, (payload, length), operation, (into, room, answer_length), patience) }
}

/// What the member at place `at`, from 0 on, answered: its status, and with `OK` the bytes, which are there as long as the
/// results. `END` when there are not so many.
#[unsafe(no_mangle)]
pub extern "C" fn gambeson_link_results_get(
    results: Option<&gambeson_link_results>,
    at: usize,
    bytes: Option<&mut MaybeUninit<*const c_void>>,
    length: Option<&mut MaybeUninit<usize>>,
) -> gambeson_link_status {
    answer(|| match given(results, "the results")?.0.get(at) {
        None => Ok(gambeson_link_status::End),
        Some(Err(failure)) => Err(failure.clone()),
        Some(Ok(found)) => show(found, bytes, length).map(|()| gambeson_link_status::Ok),
    })
}

/// Frees results. Null is nothing to free.
#[unsafe(no_mangle)]
pub extern "C" fn gambeson_link_results_free(results: Option<Box<gambeson_link_results>>) {
    free(results);
}

/// Frees a group. Null is nothing to free.
#[unsafe(no_mangle)]
pub extern "C" fn gambeson_link_group_free(group: Option<Box<gambeson_link_group>>) {
    free(group);
}
