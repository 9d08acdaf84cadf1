//! Domains, and what they are opened with.

use std::ffi::c_char;
use std::mem::MaybeUninit;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::path::Path;
use std::sync::Arc;

use gambeson_link::{Config, Domain, KeyHash, Policy, Progress};

use crate::failure::{Failure, answer, done, free, gambeson_link_status};
use crate::identity::{gambeson_link_identity, gambeson_link_trust};
use crate::raw::{array, fill, fill_text, given, make, protection_of, seconds, text};
use crate::startpoint::gambeson_link_capability;

/// Who moves bytes while the program computes (libfabric's FI_PROGRESS_MANUAL and FI_PROGRESS_AUTO).
#[repr(C)]
pub enum gambeson_link_progress {
    /// A thread of the domain's own.
    Auto = 0,
    /// The program, whenever it calls or waits: the shortest way, and nothing happens in between.
    Manual = 1,
}

/// How the messages of a pair are protected, strongest first.
#[repr(C)]
pub enum gambeson_link_protection {
    /// Sealed: nobody reads or alters.
    Privacy = 1,
    /// Authenticated, in clear: nobody alters.
    Integrity = 2,
    /// Neither.
    None = 3,
}

/// What a domain is opened with.
pub struct gambeson_link_config(Config);

/// A process's place among links.
///
/// Freed, it closes. What belongs to it and is used afterwards says that the link is over.
pub struct gambeson_link_domain(Arc<Domain>);

/// A domain that listens nowhere, moves bytes by itself and seals everything.
///
/// It takes `identity` and `trust` over, whatever it returns: they are not to be used or freed any more.
#[unsafe(no_mangle)]
pub extern "C" fn gambeson_link_config_new(
    identity: Option<Box<gambeson_link_identity>>,
    trust: Option<Box<gambeson_link_trust>>,
    config: Option<&mut MaybeUninit<Option<Box<gambeson_link_config>>>>,
) -> gambeson_link_status {
    done(|| {
        make(config, || {
            let (identity, trust) = (given(identity, "the identity")?, given(trust, "the trust")?);
            Ok(gambeson_link_config(Config::new(identity.0, trust.0)))
        })
    })
}

/// A domain of the job that this process belongs to: a fresh key, the job's secret to prove, its rank and host, and the
/// policy of the job, and the directory of the site that the job was started at. It listens nowhere yet.
#[unsafe(no_mangle)]
pub extern "C" fn gambeson_link_config_from_job(
    config: Option<&mut MaybeUninit<Option<Box<gambeson_link_config>>>>,
) -> gambeson_link_status {
    done(|| make(config, || Ok(gambeson_link_config(Config::from_job()?))))
}

/// Goes by the directory of the site that this host is of: `/etc/gambeson/directory.toml`, which the owner of
/// `/etc/gambeson/site.pub` has signed. A host without a site's key is of none, and the policy decides alone.
#[unsafe(no_mangle)]
pub extern "C" fn gambeson_link_config_site(config: Option<&mut gambeson_link_config>) -> gambeson_link_status {
    set(config, |config| Ok(config.site()?))
}

/// Goes by this directory, which the owner of the key in the other file has signed. When its time is over no session
/// begins, until a newer one lies in its place.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gambeson_link_config_directory(
    config: Option<&mut gambeson_link_config>,
    file: *const c_char,
    site_key: *const c_char,
) -> gambeson_link_status {
    set(config, |config| {
        // SAFETY: the caller's promise.
        let (file, key) = unsafe { (text(file, "the directory's file")?, text(site_key, "the site key's file")?) };
        Ok(config.directory(Path::new(file), Path::new(key))?)
    })
}

pub(crate) fn set(
    config: Option<&mut gambeson_link_config>,
    change: impl FnOnce(&mut Config) -> Result<(), Failure>,
) -> gambeson_link_status {
    done(|| change(&mut given(config, "the configuration")?.0))
}

/// Listens there too; port 0 takes a free one.
///
/// `address` is `10.1.2.3:4000`, `[::1]:4000`, or a host's name and a port.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gambeson_link_config_listen(
    config: Option<&mut gambeson_link_config>,
    address: *const c_char,
) -> gambeson_link_status {
    set(config, |config| {
        // SAFETY: the caller's promise.
        let wanted = unsafe { text(address, "the address")? };
        let found: Vec<SocketAddr> = match wanted.to_socket_addrs() {
            Ok(found) => found.collect(),
            Err(cause) => return Err(Failure::argument(format!("{wanted:?} is no address to listen at: {cause}"))),
        };
        config.listen.extend(found);
        Ok(())
    })
}

/// The host it is on, for people and policies.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gambeson_link_config_host(
    config: Option<&mut gambeson_link_config>,
    host: *const c_char,
) -> gambeson_link_status {
    set(config, |config| {
        // SAFETY: the caller's promise.
        config.host = unsafe { text(host, "the host")? }.into();
        Ok(())
    })
}

/// The address of its host that it states, for policy rules about subnets; without one the first that it listens on, if
/// that is one that others can reach. Of who states none, the stronger answer holds.
///
/// An address such as `10.1.2.3` or `fd00::1`, without a port.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gambeson_link_config_address(
    config: Option<&mut gambeson_link_config>,
    address: *const c_char,
) -> gambeson_link_status {
    set(config, |config| {
        // SAFETY: the caller's promise.
        let wanted = unsafe { text(address, "the address")? };
        let found = wanted.parse::<IpAddr>();
        config.address = Some(found.map_err(|_| Failure::argument(format!("{wanted:?} is no address of a host")))?);
        Ok(())
    })
}

/// Its rank in the job, if it has one.
#[unsafe(no_mangle)]
pub extern "C" fn gambeson_link_config_rank(
    config: Option<&mut gambeson_link_config>,
    rank: u32,
) -> gambeson_link_status {
    set(config, |config| {
        config.rank = Some(rank);
        Ok(())
    })
}

/// Whether processes of this host may come over shared memory, too, if it listens at all.
///
/// They may, unless it is said otherwise.
#[unsafe(no_mangle)]
pub extern "C" fn gambeson_link_config_shm(
    config: Option<&mut gambeson_link_config>,
    shm: bool,
) -> gambeson_link_status {
    set(config, |config| {
        config.shm = shm;
        Ok(())
    })
}

/// Who moves bytes.
///
/// A `gambeson_link_progress`; `AUTO` unless it is said otherwise.
#[unsafe(no_mangle)]
pub extern "C" fn gambeson_link_config_progress(
    config: Option<&mut gambeson_link_config>,
    progress: u32,
) -> gambeson_link_status {
    set(config, |config| {
        config.progress = match progress {
            0 => Progress::Auto,
            1 => Progress::Manual,
            other => return Err(Failure::argument(format!("{other} is no gambeson_link_progress"))),
        };
        Ok(())
    })
}

/// The weakest protection that any link of this domain may have. Links of class `control` have
/// `GAMBESON_LINK_PROTECTION_INTEGRITY` at least, whatever this says.
///
/// A `gambeson_link_protection`; `PRIVACY` unless it is said otherwise.
#[unsafe(no_mangle)]
pub extern "C" fn gambeson_link_config_weakest(
    config: Option<&mut gambeson_link_config>,
    weakest: u32,
) -> gambeson_link_status {
    set(config, |config| {
        config.policy = Policy::uniform(protection_of(weakest)?);
        Ok(())
    })
}

/// How long a session that lost its connection waits for another one before it is over.
///
/// In seconds; a minute unless it is said otherwise.
#[unsafe(no_mangle)]
pub extern "C" fn gambeson_link_config_patience(
    config: Option<&mut gambeson_link_config>,
    patience: f64,
) -> gambeson_link_status {
    set(config, |config| {
        config.patience = seconds(patience)?;
        Ok(())
    })
}

/// After how long a connection is given up over which a peer says nothing that owes an answer.
///
/// In seconds; 20 unless it is said otherwise.
#[unsafe(no_mangle)]
pub extern "C" fn gambeson_link_config_silence(
    config: Option<&mut gambeson_link_config>,
    silence: f64,
) -> gambeson_link_status {
    set(config, |config| {
        config.silence = seconds(silence)?;
        Ok(())
    })
}

/// Frees a configuration that no domain took. Null is nothing to free.
#[unsafe(no_mangle)]
pub extern "C" fn gambeson_link_config_free(config: Option<Box<gambeson_link_config>>) {
    free(config);
}

/// Opens a domain.
///
/// It takes `config` over, whatever it returns: it is not to be used or freed any more.
#[unsafe(no_mangle)]
pub extern "C" fn gambeson_link_domain_open(
    config: Option<Box<gambeson_link_config>>,
    domain: Option<&mut MaybeUninit<Option<Box<gambeson_link_domain>>>>,
) -> gambeson_link_status {
    done(|| make(domain, || Ok(gambeson_link_domain(Arc::new(Domain::open(given(config, "the configuration")?.0)?)))))
}

/// By what others know this domain.
///
/// It has 32 bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gambeson_link_domain_key_hash(
    domain: Option<&gambeson_link_domain>,
    hash: *mut u8,
) -> gambeson_link_status {
    done(|| {
        let KeyHash(key) = given(domain, "the domain")?.0.key_hash();
        // SAFETY: the caller's promise.
        unsafe { fill(&key, hash.cast(), key.len(), None) }
    })
}

/// Where it listens for other hosts.
///
/// The address at place `at`, from 0 on, with a zero byte at its end; `END` when there are not so many. `length`, unless
/// it is null, gets its bytes without that one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gambeson_link_domain_listening(
    domain: Option<&gambeson_link_domain>,
    at: usize,
    address: *mut c_char,
    room: usize,
    length: Option<&mut MaybeUninit<usize>>,
) -> gambeson_link_status {
    answer(|| {
        let found = given(domain, "the domain")?.0.listening().get(at);
        let Some(found) = found else { return Ok(gambeson_link_status::End) };
        // SAFETY: the caller's promise.
        unsafe { fill_text(&found.to_string(), address, room, length)? };
        Ok(gambeson_link_status::Ok)
    })
}

/// A copy of a startpoint for another domain, and for it alone: stolen bytes of it open nothing. It descends from this
/// one: what narrows or ends this one narrows or ends the copy.
///
/// `holder` has 32 bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gambeson_link_domain_copy_for(
    domain: Option<&gambeson_link_domain>,
    capability: Option<&gambeson_link_capability>,
    holder: *const u8,
    copy: Option<&mut MaybeUninit<Option<Box<gambeson_link_capability>>>>,
) -> gambeson_link_status {
    done(|| {
        make(copy, || {
            let (domain, capability) = (given(domain, "the domain")?, given(capability, "the startpoint")?);
            // SAFETY: the caller's promise.
            let holder = KeyHash(unsafe { array(holder, "the holder's key")? });
            Ok(gambeson_link_capability(domain.0.copy_for(&capability.0, holder)?))
        })
    })
}

/// Does what there is to do: takes what has come, runs handlers, sends what waits. With `GAMBESON_LINK_PROGRESS_MANUAL`
/// nothing else does. Waits for it at most so long; whether there was anything.
///
/// `wait` is in seconds; `any`, unless it is null, is told whether there was something.
#[unsafe(no_mangle)]
pub extern "C" fn gambeson_link_domain_progress(
    domain: Option<&gambeson_link_domain>,
    wait: f64,
    any: Option<&mut MaybeUninit<bool>>,
) -> gambeson_link_status {
    done(|| {
        let found = given(domain, "the domain")?.0.progress(seconds(wait)?)?;
        if let Some(any) = any {
            any.write(found);
        }
        Ok(())
    })
}

/// Closes a domain and frees it. Null is nothing to free. Not from a handler of its own.
#[unsafe(no_mangle)]
pub extern "C" fn gambeson_link_domain_free(domain: Option<Box<gambeson_link_domain>>) {
    free(domain);
}

impl gambeson_link_domain {
    /// A domain that something else has, too.
    pub(crate) fn shared(domain: &Arc<Domain>) -> Self {
        gambeson_link_domain(domain.clone())
    }

    pub(crate) fn get(&self) -> &Domain {
        &self.0
    }
}
