//! A PKCS #11 module: loaded once for all keys that are in its tokens, and called by one thread at a time.
//!
//! A token that was taken out and put back, or a TPM whose driver was restarted, shows to most modules after a new
//! beginning alone. So a call that fails ends all sessions, begins anew, and is tried once more; not more often than
//! [`RESTART`] allows, as whoever knocks at a listening domain wants a signature.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use aws_lc_rs::digest::{SHA256, digest};
use cryptoki::context::{CInitializeArgs, CInitializeFlags, Pkcs11};
use cryptoki::error::{Error as Cause, RvError};
use cryptoki::session::{Session, SessionState, UserType};
use cryptoki::slot::{Slot, TokenInfo};
use cryptoki::types::RawAuthPin;
use gambeson_site::policy::others_cannot_write;

use crate::pin::pin_of;
use crate::{Error, Uri};

/// A module that does not answer is begun anew so often at the most.
const RESTART: Duration = Duration::from_secs(1);

/// The modules that are in use.
static LOADED: Mutex<Vec<Arc<Shared>>> = Mutex::new(Vec::new());

struct Shared {
    path: PathBuf,
    /// A forked child has the library's memory and none of what that stands for.
    process: u32,
    module: Mutex<Module>,
}

/// A module for as long as it is used: the last user ends it.
pub(crate) struct Lease(Arc<Shared>);

impl Lease {
    /// The module of a path, loaded if it is not.
    pub(crate) fn of(path: &Path) -> Result<Self, Error> {
        let mut loaded = LOADED.lock().unwrap_or_else(PoisonError::into_inner);
        let process = std::process::id();
        if let Some(shared) = loaded.iter().find(|shared| shared.path == path && shared.process == process) {
            return Ok(Lease(shared.clone()));
        }
        let module = Mutex::new(Module::load(path)?);
        let shared = Arc::new(Shared { path: path.to_owned(), process, module });
        loaded.push(shared.clone());
        Ok(Lease(shared))
    }

    /// # Errors
    /// In a forked child.
    pub(crate) fn lock(&self) -> Result<MutexGuard<'_, Module>, Error> {
        if self.0.process != std::process::id() {
            let what = "this process was forked from the one that opened the key, and has none; let it open its own";
            return Err(Error::Unavailable(what.into()));
        }
        Ok(self.0.module.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Lease {
    /// Does something in a token, and once more after a new beginning where it does not answer.
    pub(crate) fn does<T>(&self, call: impl Fn(&mut Module) -> Result<T, Error>) -> Result<T, Error> {
        let mut module = self.lock()?;
        match call(&mut module) {
            Err(cause @ Error::Unavailable(_)) => match module.restart()? {
                true => call(&mut module),
                false => Err(cause),
            },
            other => other,
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if self.0.process != std::process::id() {
            return;
        }
        let mut loaded = LOADED.lock().unwrap_or_else(PoisonError::into_inner);
        // The list's and this one: leases are made under the same lock.
        if Arc::strong_count(&self.0) == 2 {
            loaded.retain(|shared| !Arc::ptr_eq(shared, &self.0));
            self.0.module.lock().unwrap_or_else(PoisonError::into_inner).end();
        }
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Lease({})", self.0.path.display())
    }
}

/// A loaded module with its sessions.
pub(crate) struct Module {
    path: PathBuf,
    library: Pkcs11,
    /// Whether it was begun here; else another part of this program has, and ends it.
    own: bool,
    begun: Instant,
    /// Counts its beginnings: handles are good within one.
    generation: u64,
    sessions: Vec<(Slot, Session)>,
    /// PINs that tokens have refused, hashed: tokens lock themselves after a few.
    refused: Vec<[u8; 32]>,
}

impl Module {
    fn load(path: &Path) -> Result<Self, Error> {
        let cannot = |why: &dyn fmt::Display| {
            Error::Unavailable(format!(
                "the PKCS #11 module {} cannot be loaded: {why}; install the token's module, and name it with module-path=",
                path.display()
            ))
        };
        let metadata = path.metadata().map_err(|cause| cannot(&cause))?;
        others_cannot_write("the PKCS #11 module", path, &metadata).map_err(Error::Refused)?;
        let library = Pkcs11::new(path).map_err(|cause| cannot(&cause))?;
        let (path, begun) = (path.to_owned(), Instant::now());
        let mut module =
            Module { path, library, own: false, begun, generation: 0, sessions: Vec::new(), refused: Vec::new() };
        module.begin()?;
        Ok(module)
    }

    fn begin(&mut self) -> Result<(), Error> {
        let begun = self.library.initialize(CInitializeArgs::new(CInitializeFlags::OS_LOCKING_OK));
        self.begun = Instant::now();
        self.generation += 1;
        self.own = match begun {
            Ok(()) => true,
            Err(Cause::Pkcs11(RvError::CryptokiAlreadyInitialized, _)) => false,
            Err(cause) => return Err(self.silent(&cause)),
        };
        Ok(())
    }

    fn end(&mut self) {
        self.sessions.clear();
        if std::mem::take(&mut self.own) {
            // What it says then helps nobody.
            let _ = self.library.clone().finalize();
        }
    }

    /// Begins anew, if it has not lately: whether it did.
    pub(crate) fn restart(&mut self) -> Result<bool, Error> {
        if self.begun.elapsed() < RESTART {
            return Ok(false);
        }
        self.end();
        self.begin().map(|()| true)
    }

    /// In which of its beginnings it is.
    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    pub(crate) fn silent(&self, cause: &Cause) -> Error {
        let why = match cause {
            // Its own sentences are paragraphs of the standard's.
            Cause::Pkcs11(value, function) => format!("{function:?} says {value:?}"),
            other => other.to_string(),
        };
        Error::Unavailable(format!("the PKCS #11 module {} does not answer as it should: {why}", self.path.display()))
    }

    /// Where the token of a URI is.
    fn slot(&self, uri: &Uri) -> Result<(Slot, TokenInfo), Error> {
        let is = |wanted: &Option<String>, is: &str| wanted.as_ref().is_none_or(|wanted| wanted == is.trim_end());
        let slots = self.library.get_slots_with_token().map_err(|cause| self.silent(&cause))?;
        let mut found = slots.into_iter().filter_map(|slot| {
            // One that has just gone is none.
            let info = self.library.get_token_info(slot).ok()?;
            let fits = info.token_initialized()
                && is(&uri.token, info.label())
                && is(&uri.serial, info.serial_number())
                && is(&uri.manufacturer, info.manufacturer_id())
                && is(&uri.model, info.model());
            fits.then_some((slot, info))
        });
        let token = found.next().ok_or_else(|| {
            Error::Unavailable(format!(
                "the PKCS #11 module {} has no token {} now; put it back, or initialize it",
                self.path.display(),
                uri.token()
            ))
        })?;
        if found.next().is_some() {
            let what = format!("there are several tokens {}; say serial= of the one that is meant", uri.token());
            return Err(Error::Uri(what));
        }
        Ok(token)
    }

    /// The session with the token in a slot, as long as this beginning lasts.
    pub(crate) fn session_in(&self, slot: Slot) -> Option<&Session> {
        self.sessions.iter().find(|(known, _)| *known == slot).map(|(_, session)| session)
    }

    /// A session with the token of a URI, and its slot, in which its user is known. `asking`: for his PIN a person may be waited for.
    pub(crate) fn session(&mut self, uri: &Uri, asking: bool) -> Result<(Slot, &Session), Error> {
        let (slot, info) = self.slot(uri)?;
        if let Some(at) = self.sessions.iter().position(|(known, _)| *known == slot) {
            let (slot, session) = &self.sessions[at];
            return Ok((*slot, session));
        }
        let session = self.library.open_rw_session(slot).map_err(|cause| self.silent(&cause))?;
        let state = session.get_session_info().map_err(|cause| self.silent(&cause))?.session_state();
        if info.login_required() && !matches!(state, SessionState::RoUser | SessionState::RwUser) {
            self.log_in(&session, &info, uri, asking)?;
        }
        self.sessions.push((slot, session));
        Ok((slot, &self.sessions.last().expect("it is there").1))
    }

    fn log_in(&mut self, session: &Session, info: &TokenInfo, uri: &Uri, asking: bool) -> Result<(), Error> {
        let own_way = info.protected_authentication_path() && uri.pin.is_none();
        let pin = if own_way { None } else { Some(pin_of(uri, asking)?) };
        let hash: Option<[u8; 32]> =
            pin.as_ref().map(|pin| digest(&SHA256, pin).as_ref().try_into().expect("SHA-256 has 32 bytes"));
        let wrong = || {
            Error::Refused(format!(
                "the token {} refuses the PIN{}; correct it before it is tried again, as tokens lock themselves",
                uri.token(),
                uri.pin.as_ref().map_or(String::new(), |file| format!(" in {}", file.display()))
            ))
        };
        if hash.is_some_and(|hash| self.refused.contains(&hash)) {
            return Err(wrong());
        }
        let logged_in = match pin {
            Some(pin) => session.login_with_raw(UserType::User, &RawAuthPin::new(Box::new(pin.to_vec()))),
            None => session.login(UserType::User, None),
        };
        match logged_in {
            Ok(()) | Err(Cause::Pkcs11(RvError::UserAlreadyLoggedIn, _)) => Ok(()),
            Err(Cause::Pkcs11(
                RvError::PinIncorrect | RvError::PinInvalid | RvError::PinLenRange | RvError::PinExpired,
                _,
            )) => {
                self.refused.extend(hash);
                Err(wrong())
            }
            Err(Cause::Pkcs11(RvError::PinLocked, _)) => Err(Error::Refused(format!(
                "the token {} has locked itself after too many wrong PINs; unlock it with its own tools",
                uri.token()
            ))),
            Err(cause) => Err(self.silent(&cause)),
        }
    }
}
