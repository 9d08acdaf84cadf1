//! GSS-API as C has it (RFC 2744), and what of it is asked: a thin table over MIT's library.

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::OnceLock;

use super::library::Library;

/// gss_buffer_desc
#[repr(C)]
pub(super) struct Bytes {
    length: usize,
    value: *mut c_void,
}

impl Bytes {
    pub(super) const fn none() -> Self {
        Bytes { length: 0, value: ptr::null_mut() }
    }

    /// Bytes of ours, which nobody writes to.
    pub(super) fn of(bytes: &[u8]) -> Self {
        Bytes { length: bytes.len(), value: bytes.as_ptr().cast_mut().cast() }
    }
}

/// gss_OID_desc
#[repr(C)]
pub(super) struct Oid {
    length: u32,
    elements: *const u8,
}

/// gss_OID_set_desc
#[repr(C)]
pub(super) struct Oids {
    pub(super) count: usize,
    pub(super) elements: *const Oid,
}

/// gss_channel_bindings_struct; without addresses, which change on the way.
#[repr(C)]
pub(super) struct Bindings {
    initiator_type: u32,
    initiator: Bytes,
    acceptor_type: u32,
    acceptor: Bytes,
    application: Bytes,
}

impl Bindings {
    pub(super) fn of(payload: &[u8; 32]) -> Self {
        Bindings {
            initiator_type: 0,
            initiator: Bytes::none(),
            acceptor_type: 0,
            acceptor: Bytes::none(),
            application: Bytes::of(payload),
        }
    }
}

pub(super) type Handle = *mut c_void;
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

pub(super) struct Gss {
    pub(super) import: Import,
    pub(super) acquire: Acquire,
    pub(super) init: Init,
    pub(super) accept: Accept,
    pub(super) localname: Localname,
    pub(super) display_name: DisplayName,
    pub(super) display_status: DisplayStatus,
    pub(super) release_name: Release,
    pub(super) release_credential: Release,
    pub(super) release_bytes: ReleaseBytes,
    pub(super) delete: Delete,
}

#[allow(unsafe_code)]
pub(super) fn library() -> Result<&'static Gss, String> {
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
pub(super) const KERBEROS: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x12, 0x01, 0x02, 0x02];
pub(super) const HOST_BASED: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x12, 0x01, 0x02, 0x01, 0x04];

pub(super) const fn oid(elements: &'static [u8]) -> Oid {
    Oid { length: elements.len() as u32, elements: elements.as_ptr() }
}

/// What has to be given back to the library.
pub(super) struct Name(pub(super) Handle);
pub(super) struct Credential(pub(super) Handle);
pub(super) struct Context(pub(super) Handle);
/// Bytes that the library has made.
pub(super) struct Made(pub(super) Bytes);

#[allow(unsafe_code)]
impl Made {
    pub(super) fn to_vec(&self) -> Vec<u8> {
        if self.0.value.is_null() {
            return Vec::new();
        }
        // SAFETY: the library has made so many bytes, and they stay until they are released.
        unsafe { std::slice::from_raw_parts(self.0.value.cast::<u8>(), self.0.length) }.to_vec()
    }

    pub(super) fn text(&self) -> String {
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
    pub(super) fn check(&self, (major, minor): (u32, u32)) -> Result<u32, String> {
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

    pub(super) fn import(&self, name: &str) -> Result<Name, String> {
        let (mut minor, mut imported, kind) = (0, Name(ptr::null_mut()), oid(HOST_BASED));
        // SAFETY: all that is pointed to is there for the call.
        let major =
            unsafe { (self.import)(&raw mut minor, &Bytes::of(name.as_bytes()), &raw const kind, &raw mut imported.0) };
        self.check((major, minor)).map(|_| imported)
    }
}
