//! Looks whether the provider is loaded in this process and has opened an endpoint of this job.

use std::ffi::{CStr, c_char, c_int, c_void};

use crate::real::{loaded, symbol};
use crate::refusal::Refusal;

/// How the provider is told which rank of the world the next empty message is for; it answers how many addresses
/// it saw since the last time.
pub(crate) type RollCall = extern "C" fn(i64) -> u64;

/// The provider's ear for a roll call.
pub(crate) fn roll_call() -> Option<RollCall> {
    let address = loaded(is_provider).iter().find_map(|object| symbol(object, c"gambeson_roll_call"))?;
    // SAFETY: the provider exports this function with this prototype.
    Some(unsafe { std::mem::transmute::<*const c_void, RollCall>(address) })
}

/// The provider's functions for communicators.
pub(crate) struct Communicators {
    watch: extern "C" fn(c_int),
    learn: extern "C" fn(u64, u64, c_int) -> i64,
    saw: extern "C" fn(u64) -> c_int,
    wish: unsafe extern "C" fn(c_int, *const c_char) -> c_int,
    mark: extern "C" fn(u8) -> c_int,
    step: extern "C" fn(u64, c_int, u8, u8) -> c_int,
}

/// The provider, where it knows of communicators.
pub(crate) fn communicators() -> Option<Communicators> {
    let objects = loaded(is_provider);
    let object = objects.first()?;
    macro_rules! function {
        ($name:literal, $type:ty) => {
            // SAFETY: the provider exports this function with this prototype.
            unsafe { std::mem::transmute::<*const c_void, $type>(symbol(object, $name)?) }
        };
    }
    Some(Communicators {
        watch: function!(c"gambeson_communicator_watch", extern "C" fn(c_int)),
        learn: function!(c"gambeson_communicator_learn", extern "C" fn(u64, u64, c_int) -> i64),
        saw: function!(c"gambeson_communicator_saw", extern "C" fn(u64) -> c_int),
        wish: function!(c"gambeson_communicator_wish", unsafe extern "C" fn(c_int, *const c_char) -> c_int),
        mark: function!(c"gambeson_communicator_mark", extern "C" fn(u8) -> c_int),
        step: function!(c"gambeson_communicator_step", extern "C" fn(u64, c_int, u8, u8) -> c_int),
    })
}

impl Communicators {
    /// Begins or ends looking at what this thread sends.
    pub(crate) fn watch(&self, on: bool) {
        (self.watch)(c_int::from(on));
    }

    /// The identifier in the receives that came since with MPI's tag `probe`.
    pub(crate) fn learn(&self, probe: u64, largest: u64, is_open_mpi: bool) -> Result<u64, c_int> {
        let answer = (self.learn)(probe, largest, c_int::from(is_open_mpi));
        u64::try_from(answer).map_err(|_| answer as c_int)
    }

    /// Whether messages that this thread sent since had this identifier, if it sent any.
    pub(crate) fn saw(&self, identifier: u64) -> bool {
        (self.saw)(identifier) != 0
    }

    /// The number of a protection for communicators of a class.
    pub(crate) fn wish(&self, protection: c_int, class: &CStr) -> Result<u8, c_int> {
        // SAFETY: a C string.
        let answer = unsafe { (self.wish)(protection, class.as_ptr()) };
        u8::try_from(answer).map_err(|_| answer)
    }

    /// What tells a wish from others in every process alike; never 0.
    pub(crate) fn mark(&self, wish: u8) -> c_int {
        (self.mark)(wish)
    }

    pub(crate) fn step(&self, identifier: u64, demand: bool, one: u8, other: u8) -> Result<(), c_int> {
        let answer = (self.step)(identifier, c_int::from(demand), one, other);
        if answer == 0 { Ok(()) } else { Err(answer) }
    }
}

/// Counts the endpoints opened with the job's secret in this process.
pub(crate) fn check() -> Result<(), Refusal> {
    let mut seen = false;
    for object in loaded(is_provider) {
        let Some(address) = symbol(&object, c"gambeson_endpoints_open") else {
            continue;
        };
        seen = true;
        // SAFETY: the provider exports this function with this prototype.
        let endpoints_open = unsafe { std::mem::transmute::<*const std::ffi::c_void, extern "C" fn() -> u64>(address) };
        if endpoints_open() > 0 {
            return Ok(());
        }
    }
    Err(if seen { Refusal::no_endpoint() } else { Refusal::no_provider() })
}

fn is_provider(object: &CStr) -> bool {
    let path = object.to_bytes();
    let name = path.rsplit(|&byte| byte == b'/').next().unwrap_or(path);
    name.starts_with(b"libgambeson-fi.so") || name.starts_with(b"libgambeson_fi.so")
}
