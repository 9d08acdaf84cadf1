//! Who a domain is, whom it accepts, and who is at the other end.

use std::ffi::{c_char, c_void};
use std::mem::MaybeUninit;

use gambeson_link::{Identity, KeyHash, Peer, Trust};
use gambeson_proto::key_schedule::JobKeys;
use gambeson_proto::secret::Secret32;
use gambeson_proto::suite::Suite;
use zeroize::Zeroizing;

use crate::failure::{answer, done, free, gambeson_link_status};
use crate::raw::{array, bytes, fill, fill_text, given, make, text, texts};

/// A domain's own key, with the certificate that shows it.
pub struct gambeson_link_identity(pub(crate) Identity);

/// Whom a domain talks to. Without anything it talks to nobody.
pub struct gambeson_link_trust(pub(crate) Trust);

/// Who is at the other end of a session, proved.
///
/// It belongs to the call or request that it was asked of, and is there as long as that.
#[cfg_attr(all(), repr(transparent))]
pub struct gambeson_link_peer(Peer);

impl gambeson_link_peer {
    pub(crate) fn of(peer: &Peer) -> &Self {
        // SAFETY: transparent, so that both have one layout.
        unsafe { &*(&raw const *peer).cast() }
    }
}

/// A fresh Ed25519 key in a certificate of its own: what ranks of a job use, and whoever is known by a pinned key.
#[unsafe(no_mangle)]
pub extern "C" fn gambeson_link_identity_generate(
    identity: Option<&mut MaybeUninit<Option<Box<gambeson_link_identity>>>>,
) -> gambeson_link_status {
    done(|| make(identity, || Ok(gambeson_link_identity(Identity::generate()?))))
}

/// A certificate with its chain and its private key, both in PEM (RFC 7468). In the place of a key that is in a token
/// stands a line with its PKCS #11 URI (RFC 7512): the token is opened, by the module that the URI names.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gambeson_link_identity_from_pem(
    chain: *const c_void,
    chain_length: usize,
    key: *const c_void,
    key_length: usize,
    identity: Option<&mut MaybeUninit<Option<Box<gambeson_link_identity>>>>,
) -> gambeson_link_status {
    done(|| {
        make(identity, || {
            // SAFETY: the caller's promise.
            let (chain, key) = unsafe { (bytes(chain, chain_length)?, bytes(key, key_length)?) };
            Ok(gambeson_link_identity(Identity::from_pem(chain, key)?))
        })
    })
}

/// By what others know this domain.
///
/// It has 32 bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gambeson_link_identity_key_hash(
    identity: Option<&gambeson_link_identity>,
    hash: *mut u8,
) -> gambeson_link_status {
    done(|| {
        let KeyHash(key) = given(identity, "the identity")?.0.key_hash();
        // SAFETY: the caller's promise.
        unsafe { fill(&key, hash.cast(), key.len(), None) }
    })
}

/// Frees an identity that no configuration took. Null is nothing to free.
#[unsafe(no_mangle)]
pub extern "C" fn gambeson_link_identity_free(identity: Option<Box<gambeson_link_identity>>) {
    free(identity);
}

/// Makes one that accepts nobody yet.
#[unsafe(no_mangle)]
pub extern "C" fn gambeson_link_trust_new(
    trust: Option<&mut MaybeUninit<Option<Box<gambeson_link_trust>>>>,
) -> gambeson_link_status {
    done(|| make(trust, || Ok(gambeson_link_trust(Trust::default()))))
}

/// Accepts who proves that it has this job's secret; its roles are `rank`. Both ends need the job.
///
/// `job` has 16 bytes and is no secret; `secret` and `policy_hash` have 32. The secret should be wiped afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gambeson_link_trust_job(
    trust: Option<&mut gambeson_link_trust>,
    job: *const u8,
    secret: *const u8,
    policy_hash: *const u8,
) -> gambeson_link_status {
    done(|| {
        let trust = given(trust, "the trust")?;
        // SAFETY: the caller's promise.
        let (job_id, policy_hash) =
            unsafe { (array(job, "the job's name")?, array(policy_hash, "the policy's hash")?) };
        // SAFETY: the caller's promise.
        let secret = Zeroizing::new(unsafe { array(secret, "the job's secret")? });
        let job_secret = Secret32::from_bytes(*secret);
        let keys = JobKeys { job_id, job_secret, policy_hash, suite: Suite::Aes256Gcm };
        trust.0 = std::mem::take(&mut trust.0).job(keys);
        Ok(())
    })
}

/// Accepts the owner of this public key, under a name and with roles.
///
/// `key` has 32 bytes. `roles` are texts, as many as `role_count`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gambeson_link_trust_pinned(
    trust: Option<&mut gambeson_link_trust>,
    key: *const u8,
    name: *const c_char,
    roles: *const *const c_char,
    role_count: usize,
) -> gambeson_link_status {
    done(|| {
        let trust = given(trust, "the trust")?;
        // SAFETY: the caller's promise.
        let (key, name) = unsafe { (array(key, "the key's hash")?, text(name, "the name")?) };
        // SAFETY: the caller's promise.
        let roles = unsafe { texts(roles, role_count, "the list of roles")? };
        trust.0 = std::mem::take(&mut trust.0).pinned(KeyHash(key), name, &roles);
        Ok(())
    })
}

/// Accepts certificates that these authorities signed, for servers and for clients. The roles are what its URIs of the
/// form `gambeson:role:NAME` name, and `dns:NAME` for each of its DNS names, in small letters. The name is the
/// certificate's first DNS name, or else the last of its roles.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gambeson_link_trust_authorities(
    trust: Option<&mut gambeson_link_trust>,
    pem: *const c_void,
    length: usize,
) -> gambeson_link_status {
    done(|| {
        let trust = given(trust, "the trust")?;
        // SAFETY: the caller's promise.
        let pem = unsafe { bytes(pem, length)? };
        trust.0 = trust.0.clone().authorities(pem)?;
        Ok(())
    })
}

/// Frees a trust that no configuration took. Null is nothing to free.
#[unsafe(no_mangle)]
pub extern "C" fn gambeson_link_trust_free(trust: Option<Box<gambeson_link_trust>>) {
    free(trust);
}

/// Its public key.
///
/// It has 32 bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gambeson_link_peer_key(
    peer: Option<&gambeson_link_peer>,
    hash: *mut u8,
) -> gambeson_link_status {
    done(|| {
        let key = given(peer, "the peer")?.0.key.0;
        // SAFETY: the caller's promise.
        unsafe { fill(&key, hash.cast(), key.len(), None) }
    })
}

/// What it is known by: `rank` of the job, the pinned key's name, or the certificate's.
///
/// Writes the text with a zero byte at its end; `length`, unless it is null, gets its bytes without that one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gambeson_link_peer_name(
    peer: Option<&gambeson_link_peer>,
    name: *mut c_char,
    room: usize,
    length: Option<&mut MaybeUninit<usize>>,
) -> gambeson_link_status {
    done(|| {
        let peer = given(peer, "the peer")?;
        // SAFETY: the caller's promise.
        unsafe { fill_text(&peer.0.name, name, room, length) }
    })
}

/// What it may be asked to be.
///
/// The one at place `at`, from 0 on, as `gambeson_link_peer_name` does; `END` when there are not so many.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gambeson_link_peer_role(
    peer: Option<&gambeson_link_peer>,
    at: usize,
    role: *mut c_char,
    room: usize,
    length: Option<&mut MaybeUninit<usize>>,
) -> gambeson_link_status {
    answer(|| {
        let Some(found) = given(peer, "the peer")?.0.roles.get(at) else { return Ok(gambeson_link_status::End) };
        // SAFETY: the caller's promise.
        unsafe { fill_text(found, role, room, length)? };
        Ok(gambeson_link_status::Ok)
    })
}

/// The host that it says it is on; vouched for by whoever vouches for it.
///
/// As `gambeson_link_peer_name` does.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gambeson_link_peer_host(
    peer: Option<&gambeson_link_peer>,
    host: *mut c_char,
    room: usize,
    length: Option<&mut MaybeUninit<usize>>,
) -> gambeson_link_status {
    done(|| {
        let peer = given(peer, "the peer")?;
        // SAFETY: the caller's promise.
        unsafe { fill_text(&peer.0.host, host, room, length) }
    })
}

/// The address that it says its host has, if it does: what policy rules about subnets go by.
///
/// As `gambeson_link_peer_name` does; `END` if it does not.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gambeson_link_peer_address(
    peer: Option<&gambeson_link_peer>,
    address: *mut c_char,
    room: usize,
    length: Option<&mut MaybeUninit<usize>>,
) -> gambeson_link_status {
    answer(|| {
        let Some(found) = given(peer, "the peer")?.0.address else { return Ok(gambeson_link_status::End) };
        // SAFETY: the caller's promise.
        unsafe { fill_text(&found.to_string(), address, room, length)? };
        Ok(gambeson_link_status::Ok)
    })
}
