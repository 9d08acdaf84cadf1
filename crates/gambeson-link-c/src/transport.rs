//! What links go over.

use std::ffi::c_char;
use std::mem::MaybeUninit;

use gambeson_link::Transport;

use crate::domain::{gambeson_link_config, gambeson_link_domain, set};
use crate::failure::{Failure, answer, done, gambeson_link_status};
use crate::raw::{Out, fill_text, given, make, seconds, text};
use crate::startpoint::{gambeson_link_capability, gambeson_link_startpoint};

/// How to get to an address.
#[repr(C)]
pub enum gambeson_link_transport {
    /// TCP.
    Tcp = 1,
    /// Shared memory on one host.
    Shm = 2,
    /// An endpoint of one of libfabric's providers.
    Fabric = 3,
}

fn transport_of(number: u32) -> Result<Transport, Failure> {
    let found = [Transport::Tcp, Transport::Shm, Transport::Fabric].into_iter().find(|one| *one as u32 == number);
    found.ok_or_else(|| Failure::argument(format!("{number} is no gambeson_link_transport")))
}

/// Listens over this provider of libfabric too, on the interface of `node`, or on its first.
///
/// `node` may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gambeson_link_config_listen_fabric(
    config: Option<&mut gambeson_link_config>,
    provider: *const c_char,
    node: *const c_char,
) -> gambeson_link_status {
    set(config, |config| {
        // SAFETY: the caller's promise.
        let provider = unsafe { text(provider, "the provider")? };
        // SAFETY: the caller's promise.
        let node = (!node.is_null()).then(|| unsafe { text(node, "the node") }).transpose()?;
        config.fabric.push((provider.into(), node.map(str::to_owned)));
        Ok(())
    })
}

/// As `gambeson_link_domain_startpoint`, over this transport, whatever the rule says. Links to one owner share a
/// session if they wish for the same.
///
/// `transport` is a `gambeson_link_transport`.
#[unsafe(no_mangle)]
pub extern "C" fn gambeson_link_domain_startpoint_over(
    domain: Option<&gambeson_link_domain>,
    transport: u32,
    capability: Option<&gambeson_link_capability>,
    patience: f64,
    startpoint: Option<&mut MaybeUninit<Option<Box<gambeson_link_startpoint>>>>,
) -> gambeson_link_status {
    done(|| {
        make(startpoint, || {
            let (domain, capability) = (given(domain, "the domain")?, given(capability, "the startpoint")?);
            let bound = domain.get().startpoint_over(transport_of(transport)?, &capability.0, seconds(patience)?)?;
            Ok(gambeson_link_startpoint::new(bound))
        })
    })
}

/// What it goes over at present; `None` while the connection is lost.
///
/// `PENDING` then. `transport`, unless it is null, gets a `gambeson_link_transport`; `where`, unless `room` is 0, a text
/// such as `tcp 10.1.2.3:4000`, and `length`, unless it is null, its bytes without the zero byte at its end.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gambeson_link_startpoint_carrier(
    startpoint: Option<&gambeson_link_startpoint>,
    transport: Option<&mut MaybeUninit<u32>>,
    r#where: *mut c_char,
    room: usize,
    length: Option<&mut MaybeUninit<usize>>,
) -> gambeson_link_status {
    answer(|| {
        let Some(carrier) = given(startpoint, "the startpoint")?.get().carrier()? else {
            return Ok(gambeson_link_status::Pending);
        };
        if let Some(transport) = transport {
            transport.write(carrier.transport() as u32);
        }
        match room {
            0 => tell(length, carrier.to_string().len()),
            // SAFETY: the caller's promise.
            _ => unsafe { fill_text(&carrier.to_string(), r#where, room, length)? },
        }
        Ok(gambeson_link_status::Ok)
    })
}

fn tell(out: Out<'_, usize>, value: usize) {
    if let Some(out) = out {
        out.write(value);
    }
}

/// Goes on over this transport, or over what the rule says, and waits for the change at most so long. All links of its
/// session go with it: a link that is to go its own way is bound by `gambeson_link_domain_startpoint_over`. Nothing is
/// lost and nothing comes twice.
///
/// `transport` is a `gambeson_link_transport`, or 0 for what the rule says; `patience` is in seconds.
#[unsafe(no_mangle)]
pub extern "C" fn gambeson_link_startpoint_prefer(
    startpoint: Option<&gambeson_link_startpoint>,
    transport: u32,
    patience: f64,
) -> gambeson_link_status {
    done(|| {
        let transport = (transport != 0).then(|| transport_of(transport)).transpose()?;
        Ok(given(startpoint, "the startpoint")?.get().prefer(transport, seconds(patience)?)?)
    })
}
