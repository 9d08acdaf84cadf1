//! Kerberos 5 by GSS-API (RFC 2743, RFC 2744, RFC 4121), as MIT's library has it.
//!
//! The one who asks has a ticket for `host@HOST`, the service of the authority's host; that has the key in its keytab.
//! Both give the payload as channel bindings. MIT's library lets one in who gave none, and says so by a flag that is not
//! there: here he is refused.

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::OnceLock;
use std::time::Duration;

use super::library::Library;

/// gss_buffer_desc
#[repr(C)]
struct Bytes {
    length: usize,
    value: *mut c_void,
}

impl Bytes {
    const fn none() -> Self {
        Bytes { length: 0, value: ptr::null_mut() }
    }

    /// Bytes of ours, which nobody writes to.
    fn of(bytes: &[u8]) -> Self {
        Bytes { length: bytes.len(), value: bytes.as_ptr().cast_mut().cast() }
    }
}

/// gss_OID_desc
#[repr(C)]
struct Oid {
    length: u32,
    elements: *const u8,
}

/// gss_OID_set_desc
#[repr(C)]
struct Oids {
    count: usize,
    elements: *const Oid,
}

/// gss_channel_bindings_struct; without addresses, which change on the way.
#[repr(C)]
struct Bindings {
    initiator_type: u32,
    initiator: Bytes,
    acceptor_type: u32,
    acceptor: Bytes,
    application: Bytes,
}

impl Bindings {
    fn of(payload: &[u8; 32]) -> Self {
        Bindings {
            initiator_type: 0,
            initiator: Bytes::none(),
            acceptor_type: 0,
            acceptor: Bytes::none(),
            application: Bytes::of(payload),
        }
    }
}

type Handle = *mut c_void;
type Import = unsafe extern "C" fn(*mut u32, *const Bytes, *const Oid, *mut Handle) -> u32;
type Acquire =
    unsafe extern "C" fn(*mut u32, Handle, u32, *const Oids, c_int, *mut Handle, *mut *mut Oids, *mut u32) -> u32;
type Init = unsafe extern "C" fn(
    *mut u32,
    Handle,
    *mut Handle,
    Handle,
    *const Oid,
    u32,
    u32,
    *const Bindings,
    *const Bytes,
    *mut *const Oid,
    *mut Bytes,
    *mut u32,
    *mut u32,
) -> u32;
type Accept = unsafe extern "C" fn(
    *mut u32,
    *mut Handle,
    Handle,
    *const Bytes,
    *const Bindings,
    *mut Handle,
    *mut *const Oid,
    *mut Bytes,
    *mut u32,
    *mut u32,
    *mut Handle,
) -> u32;
type Localname = unsafe extern "C" fn(*mut u32, Handle, *const Oid, *mut Bytes) -> u32;
type DisplayName = unsafe extern "C" fn(*mut u32, Handle, *mut Bytes, *mut *const Oid) -> u32;
type DisplayStatus = unsafe extern "C" fn(*mut u32, u32, c_int, *const Oid, *mut u32, *mut Bytes) -> u32;
type Release = unsafe extern "C" fn(*mut u32, *mut Handle) -> u32;
type ReleaseBytes = unsafe extern "C" fn(*mut u32, *mut Bytes) -> u32;
type Delete = unsafe extern "C" fn(*mut u32, *mut Handle, *mut Bytes) -> u32;

struct Gss {
    import: Import,
    acquire: Acquire,
    init: Init,
    accept: Accept,
    localname: Localname,
    display_name: DisplayName,
    display_status: DisplayStatus,
    release_name: Release,
    release_credential: Release,
    release_bytes: ReleaseBytes,
    delete: Delete,
}

#[allow(unsafe_code)]
fn library() -> Result<&'static Gss, String> {
    static GSS: OnceLock<Result<Gss, String>> = OnceLock::new();
    let load = || {
        let library = Library::open(c"libgssapi_krb5.so.2", "libgssapi-krb5-2 (krb5-libs)")?;
        // SAFETY: RFC 2744 has them with these types; gss_localname is in MIT's gssapi_ext.h.
        unsafe {
            Ok(Gss {
                import: library.function::<Import>(c"gss_import_name")?,
                acquire: library.function::<Acquire>(c"gss_acquire_cred")?,
                init: library.function::<Init>(c"gss_init_sec_context")?,
                accept: library.function::<Accept>(c"gss_accept_sec_context")?,
                localname: library.function::<Localname>(c"gss_localname")?,
                display_name: library.function::<DisplayName>(c"gss_display_name")?,
                display_status: library.function::<DisplayStatus>(c"gss_display_status")?,
                release_name: library.function::<Release>(c"gss_release_name")?,
                release_credential: library.function::<Release>(c"gss_release_cred")?,
                release_bytes: library.function::<ReleaseBytes>(c"gss_release_buffer")?,
                delete: library.function::<Delete>(c"gss_delete_sec_context")?,
            })
        }
    };
    GSS.get_or_init(load).as_ref().map_err(String::clone)
}

/// Kerberos 5 itself (RFC 4121), and names of the form SERVICE@HOST (RFC 2743, 4.1).
const KERBEROS: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x12, 0x01, 0x02, 0x02];
const HOST_BASED: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x12, 0x01, 0x02, 0x01, 0x04];
const SERVICE: &str = "host";

const fn oid(elements: &'static [u8]) -> Oid {
    Oid { length: elements.len() as u32, elements: elements.as_ptr() }
}

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

/// What has to be given back to the library.
struct Name(Handle);
struct Credential(Handle);
struct Context(Handle);
/// Bytes that the library has made.
struct Made(Bytes);

// SAFETY: contexts and names of MIT's library belong to no thread; each has one owner here.
#[allow(unsafe_code)]
unsafe impl Send for Initiator {}

#[allow(unsafe_code)]
impl Made {
    fn to_vec(&self) -> Vec<u8> {
        if self.0.value.is_null() {
            return Vec::new();
        }
        // SAFETY: the library has made so many bytes, and they stay until they are released.
        unsafe { std::slice::from_raw_parts(self.0.value.cast::<u8>(), self.0.length) }.to_vec()
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.to_vec()).trim_end_matches('\0').to_owned()
    }
}

macro_rules! released {
    ($($of:ident by $release:ident),*) => {$(
        #[allow(unsafe_code)]
        impl Drop for $of {
            fn drop(&mut self) {
                if let Ok(gss) = library() {
                    let mut minor = 0;
                    // SAFETY: it was made by this library, or is none, and nobody uses it any more.
                    unsafe { (gss.$release)(&raw mut minor, &raw mut self.0) };
                }
            }
        }
    )*};
}
released!(Name by release_name, Credential by release_credential, Made by release_bytes);

#[allow(unsafe_code)]
impl Drop for Context {
    fn drop(&mut self) {
        if let Ok(gss) = library() {
            let mut minor = 0;
            // SAFETY: it was made by this library, or is none, and nobody uses it any more.
            unsafe { (gss.delete)(&raw mut minor, &raw mut self.0, ptr::null_mut()) };
        }
    }
}

#[allow(unsafe_code)]
impl Gss {
    fn check(&self, (major, minor): (u32, u32)) -> Result<u32, String> {
        if major & 0xffff_0000 == 0 { Ok(major) } else { Err(self.sentence(major, minor)) }
    }

    /// What the library says of two numbers: the mechanism's own words, or the interface's where it has none.
    fn sentence(&self, major: u32, minor: u32) -> String {
        let say = |number: u32, kind: c_int| {
            let (mut own, mut more, mut text) = (0, 0, Made(Bytes::none()));
            let mechanism = oid(KERBEROS);
            // SAFETY: all that is pointed to is there for the call; more than the first sentence is not asked for.
            unsafe {
                (self.display_status)(&raw mut own, number, kind, &raw const mechanism, &raw mut more, &raw mut text.0)
            };
            text.text()
        };
        let (general, own) = (say(major, 1), say(minor, 2));
        if minor == 0 || own.is_empty() { general } else { own }
    }

    fn import(&self, name: &str) -> Result<Name, String> {
        let (mut minor, mut imported, kind) = (0, Name(ptr::null_mut()), oid(HOST_BASED));
        // SAFETY: all that is pointed to is there for the call.
        let major =
            unsafe { (self.import)(&raw mut minor, &Bytes::of(name.as_bytes()), &raw const kind, &raw mut imported.0) };
        self.check((major, minor)).map(|_| imported)
    }
}

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
