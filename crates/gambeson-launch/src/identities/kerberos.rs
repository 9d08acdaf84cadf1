//! Kerberos 5 by GSS-API (RFC 2743, RFC 2744, RFC 4121), as MIT's library has it.
//!
//! The one who asks has a ticket for `host@HOST`, the service of the authority's host; that has the key in its keytab.
//! Both give the payload as channel bindings. MIT's library lets one in who gave none, and says so by a flag that is not
//! there: here he is refused.

use std::ffi::c_int;
use std::ptr;
use std::time::Duration;

use super::gssapi::{Bindings, Bytes, Context, Credential, KERBEROS, Made, Name, Oids, library, oid};

const SERVICE: &str = "host";
const ACCEPT: c_int = 2;
const MUTUAL: u32 = 2;
/// GSS_C_CHANNEL_BOUND_FLAG (MIT 1.19): both ends gave channel bindings, and the same.
const BOUND: u32 = 0x800;
const COMPLETE: u32 = 0;
const CONTINUE: u32 = 1;
/// Routine errors (RFC 2744, 3.9.1).
const BAD_BINDINGS: u32 = 4 << 16;
const INDEFINITE: u32 = u32::MAX;
/// MIT's library accepts tickets for so many seconds longer, as clocks differ, and counts those in.
const SKEW: u32 = 300;

/// The side of whoever has a ticket.
pub(super) struct Initiator {
    service: Name,
    context: Context,
    payload: [u8; 32],
}

impl Initiator {
    /// Begins with the authority's host; what goes there.
    ///
    /// # Errors
    /// A sentence.
    pub(super) fn begin(host: &str, payload: [u8; 32]) -> Result<(Self, Vec<u8>), String> {
        let told = |why: String| {
            format!(
                "Kerberos gives no ticket for {SERVICE}@{host} ({why}); `klist` shows what there is, and `kinit` gets a ticket"
            )
        };
        let service = library()?.import(&format!("{SERVICE}@{host}")).map_err(told)?;
        let mut initiator = Initiator { service, context: Context(ptr::null_mut()), payload };
        match initiator.step(&[]).map_err(told)? {
            (CONTINUE, token, _) => Ok((initiator, token)),
            _ => Err(told("it does not ask who is at the other end".into())),
        }
    }

    /// Whether the other end is that host by Kerberos, too.
    ///
    /// # Errors
    /// A sentence.
    pub(super) fn finish(mut self, reply: &[u8]) -> Result<(), String> {
        match self.step(reply) {
            Ok((COMPLETE, _, flags)) if flags & MUTUAL != 0 => Ok(()),
            Ok(_) => Err("the authority's host does not prove itself to Kerberos".into()),
            Err(why) => Err(format!("the authority's host does not prove itself to Kerberos ({why})")),
        }
    }

    #[allow(unsafe_code)]
    fn step(&mut self, input: &[u8]) -> Result<(u32, Vec<u8>, u32), String> {
        let gss = library()?;
        let (mut minor, mut token, mut flags) = (0, Made(Bytes::none()), 0);
        let (mechanism, bindings, input) = (oid(KERBEROS), Bindings::of(&self.payload), Bytes::of(input));
        // SAFETY: all that is pointed to is there for the call; without a credential the user's own is taken.
        let major = unsafe {
            (gss.init)(
                &raw mut minor,
                ptr::null_mut(),
                &raw mut self.context.0,
                self.service.0,
                &raw const mechanism,
                MUTUAL,
                0,
                &raw const bindings,
                &raw const input,
                ptr::null_mut(),
                &raw mut token.0,
                &raw mut flags,
                ptr::null_mut(),
            )
        };
        gss.check((major, minor)).map(|major| (major, token.to_vec(), flags))
    }
}

/// Who has proved himself.
pub(super) struct Accepted {
    /// The principal, for people.
    pub(super) principal: String,
    /// The account that this host's Kerberos has for him.
    pub(super) account: String,
    /// For how long his ticket is good.
    pub(super) left: Duration,
    /// What goes back.
    pub(super) reply: Vec<u8>,
}

/// Hears who somebody is, by the keys that this host's keytab has for itself.
///
/// # Errors
/// A sentence.
#[allow(unsafe_code)]
pub(super) fn accept(token: &[u8], payload: &[u8; 32]) -> Result<Accepted, String> {
    let gss = library()?;
    let (mut minor, mechanism, bindings) = (0, oid(KERBEROS), Bindings::of(payload));
    let (mut own, kinds) = (Credential(ptr::null_mut()), Oids { count: 1, elements: &raw const mechanism });
    // Keys of this service alone: one who has a ticket for another of this host's is not to come in by that.
    let service = gss.import(SERVICE)?;
    // SAFETY: all that is pointed to is there for the call.
    let major = unsafe {
        let (own, kinds) = (&raw mut own.0, &raw const kinds);
        (gss.acquire)(&raw mut minor, service.0, 0, kinds, ACCEPT, own, ptr::null_mut(), ptr::null_mut())
    };
    gss.check((major, minor)).map_err(|why| {
        format!("the authority's host has no keytab with keys of {SERVICE}/ that its daemon can read ({why})")
    })?;
    let (mut context, mut client, mut reply) = (Context(ptr::null_mut()), Name(ptr::null_mut()), Made(Bytes::none()));
    let (mut flags, mut seconds) = (0, 0);
    // SAFETY: all that is pointed to is there for the call.
    let major = unsafe {
        (gss.accept)(
            &raw mut minor,
            &raw mut context.0,
            own.0,
            &Bytes::of(token),
            &raw const bindings,
            &raw mut client.0,
            ptr::null_mut(),
            &raw mut reply.0,
            &raw mut flags,
            &raw mut seconds,
            ptr::null_mut(),
        )
    };
    let unbound = || "the ticket was shown for another session, host or key: somebody may have caught it".to_owned();
    if major & 0xffff_0000 == BAD_BINDINGS {
        return Err(unbound());
    }
    let state = gss.check((major, minor)).map_err(|why| format!("Kerberos says no ({why})"))?;
    let left = match seconds {
        INDEFINITE => Duration::MAX,
        seconds => Duration::from_secs(seconds.saturating_sub(SKEW).into()),
    };
    if state != COMPLETE || left.is_zero() {
        return Err("the ticket has expired, or does as good as at once; `kinit` gets another one".into());
    }
    if flags & BOUND == 0 {
        return Err(unbound());
    }
    let mut principal = Made(Bytes::none());
    // SAFETY: all that is pointed to is there for the call.
    let major = unsafe { (gss.display_name)(&raw mut minor, client.0, &raw mut principal.0, ptr::null_mut()) };
    gss.check((major, minor))?;
    let (principal, mut account) = (principal.text(), Made(Bytes::none()));
    // SAFETY: all that is pointed to is there for the call.
    let major = unsafe { (gss.localname)(&raw mut minor, client.0, &raw const mechanism, &raw mut account.0) };
    gss.check((major, minor)).map_err(|why| {
        format!("{principal} has no account by the rules of the authority's host (auth_to_local in krb5.conf: {why})")
    })?;
    Ok(Accepted { principal, account: account.text(), left, reply: reply.to_vec() })
}
