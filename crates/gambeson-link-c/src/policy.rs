//! How links are protected, by where they lead and by their class.

use std::ffi::c_char;
use std::mem::MaybeUninit;
use std::path::Path;

use gambeson_link::{Error, Policy, read_policy};

use crate::domain::{gambeson_link_config, gambeson_link_domain, set};
use crate::failure::{done, free, gambeson_link_status};
use crate::raw::{given, make, text};

/// A resolved policy: what every process of the job obeys.
///
/// It does not change; domains have copies.
pub struct gambeson_link_policy(Policy);

/// Parses and resolves one document that stands alone, without a floor.
///
/// `document` is the text of a `gambeson.toml`; sentences about it name `origin`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gambeson_link_policy_parse(
    document: *const c_char,
    origin: *const c_char,
    policy: Option<&mut MaybeUninit<Option<Box<gambeson_link_policy>>>>,
) -> gambeson_link_status {
    done(|| {
        make(policy, || {
            // SAFETY: the caller's promise.
            let (document, origin) = unsafe { (text(document, "the policy")?, text(origin, "the policy's origin")?) };
            Ok(gambeson_link_policy(Policy::parse(document, origin).map_err(Error::from)?))
        })
    })
}

/// Reads a policy from a `gambeson.toml` that nobody but its owner and root can write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gambeson_link_policy_read(
    path: *const c_char,
    policy: Option<&mut MaybeUninit<Option<Box<gambeson_link_policy>>>>,
) -> gambeson_link_status {
    done(|| {
        make(policy, || {
            // SAFETY: the caller's promise.
            let path = unsafe { text(path, "the policy's path")? };
            Ok(gambeson_link_policy(read_policy(Path::new(path))?))
        })
    })
}

/// Frees a policy. Null is nothing to free.
#[unsafe(no_mangle)]
pub extern "C" fn gambeson_link_policy_free(policy: Option<Box<gambeson_link_policy>>) {
    free(policy);
}

/// How its links are protected, by where they lead and by their class. Everything is sealed unless it says otherwise.
///
/// `policy` stays the caller's.
#[unsafe(no_mangle)]
pub extern "C" fn gambeson_link_config_policy(
    config: Option<&mut gambeson_link_config>,
    policy: Option<&gambeson_link_policy>,
) -> gambeson_link_status {
    set(config, |config| {
        config.policy = given(policy, "the policy")?.0.clone();
        Ok(())
    })
}

/// Follows another policy from now on. Links that are weaker than it allows end, and say why; the others stay as they
/// are. The domains at the other ends keep theirs.
///
/// `policy` stays the caller's.
#[unsafe(no_mangle)]
pub extern "C" fn gambeson_link_domain_set_policy(
    domain: Option<&gambeson_link_domain>,
    policy: Option<&gambeson_link_policy>,
) -> gambeson_link_status {
    done(|| Ok(given(domain, "the domain")?.get().set_policy(given(policy, "the policy")?.0.clone())?))
}
