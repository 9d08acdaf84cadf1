//! A secret key in a token: what it says of messages (HMAC-SHA-256, RFC 2104), which nothing but it can say.
//!
//! Of all that tokens do with secret keys this is what they have in common: SoftHSM and hardware security modules have many
//! ciphers, but not the same ones, and a TPM 2.0 has none that authenticates.

use std::fmt;
use std::sync::{Mutex, PoisonError};

use cryptoki::error::{Error as Cause, RvError};
use cryptoki::mechanism::Mechanism;
use cryptoki::object::{Attribute, AttributeType, KeyType, ObjectClass, ObjectHandle};
use cryptoki::session::Session;
use cryptoki::slot::Slot;
use zeroize::Zeroizing;

use crate::key::{named, stored};
use crate::module::{Lease, Module};
use crate::uri::Kind;
use crate::{Error, Made, Uri};

/// A secret key in a token. Whoever has this can ask it, as long as the token is there.
pub struct SecretKey {
    lease: Lease,
    uri: Uri,
    /// What it says of [`CHECK`]: another key of its name says something else.
    check: Mac,
    place: Mutex<Place>,
}

/// What a key says of a message.
pub type Mac = Zeroizing<[u8; 32]>;

/// Where a key is, in one of its module's beginnings.
#[derive(Clone, Copy)]
struct Place {
    generation: u64,
    slot: Slot,
    key: ObjectHandle,
}

impl SecretKey {
    /// The key that a URI names.
    ///
    /// # Errors
    /// When its module, its token or itself is not there, the PIN is wrong, or it could leave the token.
    pub fn open(uri: &Uri) -> Result<Self, Error> {
        uri.expect(Kind::Secret)?;
        let lease = Lease::of(uri.module())?;
        let mut module = lease.lock()?;
        let place = find(&mut module, uri, true)?.ok_or_else(|| absent(uri))?;
        let check = mac_in(&module, uri, place, CHECK)?;
        drop(module);
        Ok(SecretKey { lease, uri: uri.clone(), check, place: Mutex::new(place) })
    }

    /// The key that a URI names, made in the token if there is none. What is made never leaves it.
    ///
    /// # Errors
    /// As [`SecretKey::open`], and when the token cannot make one.
    pub fn open_or_make(uri: &Uri) -> Result<(Self, Made), Error> {
        uri.expect(Kind::Secret)?;
        let lease = Lease::of(uri.module())?;
        let mut module = lease.lock()?;
        let mut made = Made::Before;
        if find(&mut module, uri, true)?.is_none() {
            make(&mut module, uri)?;
            made = Made::Now;
        }
        drop(module);
        Self::open(uri).map(|key| (key, made))
    }

    /// By what it is named.
    #[must_use]
    pub fn uri(&self) -> &Uri {
        &self.uri
    }

    /// HMAC-SHA-256 of a message under it. The token does it, so this may take a while. TPMs take up to 1024 bytes.
    ///
    /// # Errors
    /// When the token does not answer, also after its module was begun anew.
    pub fn mac(&self, message: &[u8]) -> Result<Mac, Error> {
        self.lease.does(|module| {
            let mut place = self.place.lock().unwrap_or_else(PoisonError::into_inner);
            if place.generation != module.generation() {
                let found = find(module, &self.uri, false)?.ok_or_else(|| absent(&self.uri))?;
                if mac_in(module, &self.uri, found, CHECK)? != self.check {
                    let what = format!("{} is another key now; put the first token back", self.uri.name());
                    return Err(Error::Refused(what));
                }
                *place = found;
            }
            mac_in(module, &self.uri, *place, message)
        })
    }
}

impl fmt::Debug for SecretKey {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "SecretKey({})", self.uri.name())
    }
}

fn absent(uri: &Uri) -> Error {
    Error::Refused(format!(
        "the token {} has no secret key {}; make one there, or name another",
        uri.token(),
        uri.name()
    ))
}

fn mac_in(module: &Module, uri: &Uri, place: Place, message: &[u8]) -> Result<Mac, Error> {
    let session = module.session_in(place.slot).ok_or_else(|| absent(uri))?;
    let signed = session.sign(&Mechanism::Sha256Hmac, place.key, message).map(Zeroizing::new);
    let signed = signed.map_err(|cause| module.silent(&cause))?;
    let mut mac = Zeroizing::new([0; 32]);
    if signed.len() != mac.len() {
        let what = format!("what the token {} says of a message is no HMAC-SHA-256", uri.token());
        return Err(Error::Refused(what));
    }
    mac.copy_from_slice(&signed);
    Ok(mac)
}

/// The secret key of a URI in its token.
fn find(module: &mut Module, uri: &Uri, asking: bool) -> Result<Option<Place>, Error> {
    let generation = module.generation();
    let (slot, session) = module.session(uri, asking)?;
    let found = look(session, uri).map_err(|cause| module.silent(&cause))?.transpose()?;
    Ok(found.map(|key| Place { generation, slot, key }))
}

type Found = Option<Result<ObjectHandle, Error>>;

fn look(session: &Session, uri: &Uri) -> Result<Found, cryptoki::error::Error> {
    let refused = |why: &str| Ok(Some(Err(Error::Refused(format!("the key {} is not used: {why}", uri.name())))));
    let keys = session.find_objects(&named(uri, ObjectClass::SECRET_KEY))?;
    let &[key] = &keys[..] else {
        return if keys.is_empty() { Ok(None) } else { refused("there are several of that name; say id= as well") };
    };
    let mut is_for_macs = false;
    let mut stays = [false; 2];
    let wanted = [AttributeType::KeyType, AttributeType::Sensitive, AttributeType::Extractable];
    for attribute in session.get_attributes(key, &wanted)? {
        match attribute {
            Attribute::KeyType(kind) => is_for_macs = [KeyType::GENERIC_SECRET, KeyType::SHA256_HMAC].contains(&kind),
            Attribute::Sensitive(sensitive) => stays[0] = sensitive,
            Attribute::Extractable(extractable) => stays[1] = !extractable,
            _ => {}
        }
    }
    if stays != [true; 2] {
        return refused("it can leave the token; make another one there, under another name");
    }
    match is_for_macs {
        true => Ok(Some(Ok(key))),
        false => refused("it is for a cipher, not for HMAC-SHA-256 (CKK_GENERIC_SECRET or CKK_SHA256_HMAC)"),
    }
}

fn make(module: &mut Module, uri: &Uri) -> Result<(), Error> {
    let mut attributes = stored(uri)?;
    attributes.extend([
        Attribute::Class(ObjectClass::SECRET_KEY),
        Attribute::KeyType(KeyType::GENERIC_SECRET),
        Attribute::ValueLen(32.into()),
        Attribute::Private(true),
        Attribute::Sensitive(true),
        Attribute::Extractable(false),
        Attribute::Sign(true),
        Attribute::Verify(true),
    ]);
    let (_, session) = module.session(uri, true)?;
    match session.generate_key(&Mechanism::GenericSecretKeyGen, &attributes) {
        Ok(_) => Ok(()),
        // tpm2-pkcs11 has such keys, and makes them by its own tool alone.
        Err(Cause::Pkcs11(RvError::FunctionNotSupported | RvError::MechanismInvalid, _)) => {
            Err(Error::Refused(format!(
                "the token {} makes no secret keys by PKCS #11; make one by its own tools, for a TPM 2.0 with `tpm2_ptool addkey \
                 --algorithm=hmac:sha256 --label=TOKEN --key-label=OBJECT`, and then say {} again",
                uri.token(),
                uri.name()
            )))
        }
        Err(cause) => Err(module.silent(&cause)),
    }
}

/// What a key is told from another one by. Nothing else begins so that is asked of one.
const CHECK: &[u8] = b"gambeson: is this the same key?";
