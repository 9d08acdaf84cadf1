//! MUNGE by its library (munge(3)): who made a credential, says the local munged, which shares a key with those of the
//! site's other hosts. It also sees to it that each is decoded once, and while it is fresh.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr;
use std::sync::OnceLock;

use super::library::Library;

type Encode = unsafe extern "C" fn(*mut *mut c_char, *mut c_void, *const c_void, c_int) -> c_int;
type Decode = unsafe extern "C" fn(
    *const c_char,
    *mut c_void,
    *mut *mut c_void,
    *mut c_int,
    *mut libc::uid_t,
    *mut libc::gid_t,
) -> c_int;
type Strerror = unsafe extern "C" fn(c_int) -> *const c_char;

struct Munge {
    encode: Encode,
    decode: Decode,
    strerror: Strerror,
}

/// Errors as munge.h numbers them.
mod error {
    pub(super) const SOCKET: i32 = 6;
    pub(super) const CRED_INVALID: i32 = 14;
    pub(super) const CRED_EXPIRED: i32 = 15;
    pub(super) const CRED_REWOUND: i32 = 16;
    pub(super) const CRED_REPLAYED: i32 = 17;
}

#[allow(unsafe_code)]
fn library() -> Result<&'static Munge, String> {
    static MUNGE: OnceLock<Result<Munge, String>> = OnceLock::new();
    let load = || {
        let library = Library::open(c"libmunge.so.2", "libmunge2 (munge-libs), and munge itself")?;
        // SAFETY: munge.h has them with these types.
        unsafe {
            Ok(Munge {
                encode: library.function::<Encode>(c"munge_encode")?,
                decode: library.function::<Decode>(c"munge_decode")?,
                strerror: library.function::<Strerror>(c"munge_strerror")?,
            })
        }
    };
    MUNGE.get_or_init(load).as_ref().map_err(String::clone)
}

impl Munge {
    #[allow(unsafe_code)]
    fn sentence(&self, number: c_int) -> String {
        // SAFETY: munge_strerror takes any number, and gives a constant string.
        let word = unsafe { CStr::from_ptr((self.strerror)(number)) }.to_string_lossy().into_owned();
        match number {
            error::SOCKET => format!("this host's munged does not answer ({word}); start it, or have it started"),
            error::CRED_EXPIRED | error::CRED_REWOUND => {
                format!(
                    "the MUNGE credential is out of its time ({word}): the clocks of the two hosts differ; set them"
                )
            }
            error::CRED_REPLAYED => format!("the MUNGE credential was used before ({word})"),
            error::CRED_INVALID => {
                format!(
                    "the MUNGE credential is not of this site ({word}): the two hosts have different keys for munged"
                )
            }
            _ => format!("MUNGE says no ({word})"),
        }
    }
}

/// A credential of whoever runs this.
///
/// # Errors
/// A sentence.
#[allow(unsafe_code)]
pub(super) fn encode(payload: &[u8; 32]) -> Result<String, String> {
    let munge = library()?;
    let mut credential: *mut c_char = ptr::null_mut();
    // SAFETY: without a context all is as the site has it; the payload is as long as is said.
    let number = unsafe {
        (munge.encode)(&raw mut credential, ptr::null_mut(), payload.as_ptr().cast(), payload.len() as c_int)
    };
    let text = if credential.is_null() {
        String::new()
    } else {
        // SAFETY: it is a C string, which malloc made for us.
        unsafe {
            let text = CStr::from_ptr(credential).to_string_lossy().into_owned();
            libc::free(credential.cast());
            text
        }
    };
    if number == 0 { Ok(text) } else { Err(munge.sentence(number)) }
}

/// Who made a credential, and for what.
#[derive(Debug)]
pub(super) struct Decoded {
    pub(super) uid: u32,
    pub(super) payload: Vec<u8>,
}

/// # Errors
/// A sentence; also for a credential that is genuine, and was used before or is out of its time.
#[allow(unsafe_code)]
pub(super) fn decode(credential: &str) -> Result<Decoded, String> {
    let munge = library()?;
    let credential = CString::new(credential).map_err(|_| "a MUNGE credential has no zero byte".to_owned())?;
    let (mut payload, mut length): (*mut c_void, c_int) = (ptr::null_mut(), 0);
    let (mut uid, mut gid) = (libc::uid_t::MAX, libc::gid_t::MAX);
    // SAFETY: all that is pointed to is there for the call.
    let number = unsafe {
        (munge.decode)(
            credential.as_ptr(),
            ptr::null_mut(),
            &raw mut payload,
            &raw mut length,
            &raw mut uid,
            &raw mut gid,
        )
    };
    let bytes = if payload.is_null() {
        Vec::new()
    } else {
        // SAFETY: malloc made so many bytes of it for us.
        unsafe {
            let bytes = std::slice::from_raw_parts(payload.cast::<u8>(), usize::try_from(length).unwrap_or(0)).to_vec();
            libc::free(payload);
            bytes
        }
    };
    if number == 0 { Ok(Decoded { uid, payload: bytes }) } else { Err(munge.sentence(number)) }
}
