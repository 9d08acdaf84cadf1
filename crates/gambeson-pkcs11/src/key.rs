//! A key pair on P-256 in a token: found or made there, and used there.

use std::fmt;
use std::sync::{Mutex, PoisonError};

use aws_lc_rs::digest::{SHA256, digest};
use cryptoki::mechanism::Mechanism;
use cryptoki::object::{Attribute, AttributeType, KeyType, ObjectClass, ObjectHandle};
use cryptoki::session::Session;
use cryptoki::slot::Slot;

use crate::module::{Lease, Module};
use crate::uri::Kind;
use crate::{Error, Uri};

/// secp256r1, the curve that every TPM 2.0 has (SEC 2), as an object identifier in DER.
const P256: [u8; 10] = [0x06, 0x08, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07];
/// What stands before the point in a SubjectPublicKeyInfo for it (RFC 5480).
const INFO: [u8; 26] = [
    0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a, 0x86, 0x48, 0xce,
    0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00,
];

/// A key pair in a token. Whoever has this can sign with it, as long as the token is there.
pub struct Key {
    lease: Lease,
    uri: Uri,
    point: [u8; 65],
    place: Mutex<Place>,
}

/// Where a key is, in one of its module's beginnings.
struct Place {
    generation: u64,
    slot: Slot,
    private: ObjectHandle,
}

/// Whether a key was there before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Made {
    /// It was made now.
    Now,
    /// It was there.
    Before,
}

impl Key {
    /// The key that a URI names.
    ///
    /// # Errors
    /// When its module, its token or itself is not there, the PIN is wrong, or it could leave the token.
    pub fn open(uri: &Uri) -> Result<Self, Error> {
        uri.expect(Kind::Private)?;
        let lease = Lease::of(uri.module())?;
        let mut module = lease.lock()?;
        let found = find(&mut module, uri, true)?;
        let (place, point) = found.ok_or_else(|| absent(uri))?;
        drop(module);
        Ok(Key { lease, uri: uri.clone(), point, place: Mutex::new(place) })
    }

    /// The key that a URI names, made in the token if there is none. What is made never leaves it.
    ///
    /// # Errors
    /// As [`Key::open`], and when the token cannot make one.
    pub fn open_or_make(uri: &Uri) -> Result<(Self, Made), Error> {
        uri.expect(Kind::Private)?;
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

    /// The public key: a point, not compressed (SEC 1, 2.3.3).
    #[must_use]
    pub fn point(&self) -> &[u8; 65] {
        &self.point
    }

    /// The public key as a SubjectPublicKeyInfo in DER.
    #[must_use]
    pub fn public_key(&self) -> Vec<u8> {
        [&INFO[..], &self.point].concat()
    }

    /// Signs a message: ECDSA with SHA-256, in DER as TLS and X.509 have it. The token does it, so this may take a while.
    ///
    /// # Errors
    /// When the token does not answer, also after its module was begun anew.
    pub fn sign(&self, message: &[u8]) -> Result<Vec<u8>, Error> {
        let hash = digest(&SHA256, message);
        let signed = self.lease.does(|module| self.sign_hash(module, hash.as_ref()))?;
        der(&signed).ok_or_else(|| {
            Error::Refused(format!("what the token {} signs is no signature on P-256", self.uri.token()))
        })
    }

    fn sign_hash(&self, module: &mut Module, hash: &[u8]) -> Result<Vec<u8>, Error> {
        let mut place = self.place.lock().unwrap_or_else(PoisonError::into_inner);
        if place.generation != module.generation() {
            let (new, point) = find(module, &self.uri, false)?.ok_or_else(|| absent(&self.uri))?;
            if point != self.point {
                let what = format!("{} is another key now; enroll again, or put the first token back", self.uri.name());
                return Err(Error::Refused(what));
            }
            *place = new;
        }
        let session = module.session_in(place.slot).ok_or_else(|| absent(&self.uri))?;
        session.sign(&Mechanism::Ecdsa, place.private, hash).map_err(|cause| module.silent(&cause))
    }
}

#[cfg(feature = "certificates")]
impl rcgen::PublicKeyData for Key {
    fn der_bytes(&self) -> &[u8] {
        &self.point
    }

    fn algorithm(&self) -> &'static rcgen::SignatureAlgorithm {
        &rcgen::PKCS_ECDSA_P256_SHA256
    }
}

/// Signs certificates. Its error has no room for a sentence: who wants that signs something else first.
#[cfg(feature = "certificates")]
impl rcgen::SigningKey for Key {
    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, rcgen::Error> {
        Key::sign(self, message).map_err(|_| rcgen::Error::RemoteKeyError)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Key({})", self.uri.name())
    }
}

fn absent(uri: &Uri) -> Error {
    Error::Refused(format!("the token {} has no key {}; `gambeson enroll --pkcs11` makes one", uri.token(), uri.name()))
}

/// The attributes of a URI that objects have, too.
pub(crate) fn named(uri: &Uri, class: ObjectClass) -> Vec<Attribute> {
    let object = uri.object.as_ref().map(|label| Attribute::Label(label.clone().into_bytes()));
    let id = uri.id.clone().map(Attribute::Id);
    [Attribute::Class(class)].into_iter().chain(object).chain(id).collect()
}

/// The private key of a URI in its token, and the point of its public one.
fn find(module: &mut Module, uri: &Uri, asking: bool) -> Result<Option<(Place, [u8; 65])>, Error> {
    let generation = module.generation();
    let (slot, session) = module.session(uri, asking)?;
    let found = look(session, uri).map_err(|cause| module.silent(&cause))?.transpose()?;
    Ok(found.map(|(private, point)| (Place { generation, slot, private }, point)))
}

type Found = Option<Result<(ObjectHandle, [u8; 65]), Error>>;

fn look(session: &Session, uri: &Uri) -> Result<Found, cryptoki::error::Error> {
    let refused = |why: &str| Ok(Some(Err(Error::Refused(format!("the key {} is not used: {why}", uri.name())))));
    let keys = session.find_objects(&named(uri, ObjectClass::PRIVATE_KEY))?;
    let &[private] = &keys[..] else {
        return if keys.is_empty() { Ok(None) } else { refused("there are several of that name; say id= as well") };
    };
    let wanted = [AttributeType::KeyType, AttributeType::Sensitive, AttributeType::Extractable, AttributeType::Id];
    let mut is_ec = false;
    let mut stays = [false; 2];
    let mut public = named(uri, ObjectClass::PUBLIC_KEY);
    for attribute in session.get_attributes(private, &wanted)? {
        match attribute {
            Attribute::KeyType(kind) => is_ec = kind == KeyType::EC,
            Attribute::Sensitive(sensitive) => stays[0] = sensitive,
            Attribute::Extractable(extractable) => stays[1] = !extractable,
            Attribute::Id(id) if uri.id.is_none() && !id.is_empty() => public.push(Attribute::Id(id)),
            _ => {}
        }
    }
    if stays != [true; 2] {
        return refused("it can leave the token; make another one there, under another name");
    }
    let curve = || refused("it is not on the curve P-256 (secp256r1), or its public key is not beside it");
    let [public] = session.find_objects(&public)?[..] else { return curve() };
    let mut is_p256 = false;
    let mut point = None;
    for attribute in session.get_attributes(public, &[AttributeType::EcParams, AttributeType::EcPoint])? {
        match attribute {
            Attribute::EcParams(params) => is_p256 = params == P256,
            // An OCTET STRING in DER; some tokens leave that out.
            Attribute::EcPoint(octets) => {
                let octets = if octets.len() == 67 { octets.strip_prefix(&[4, 65]) } else { Some(&octets[..]) };
                point = octets.and_then(|point| <[u8; 65]>::try_from(point).ok()).filter(|point| point[0] == 4);
            }
            _ => {}
        }
    }
    match point.filter(|_| is_ec && is_p256) {
        Some(point) => Ok(Some(Ok((private, point)))),
        None => curve(),
    }
}

/// What an object is made with that stays in a token under the name of a URI.
pub(crate) fn stored(uri: &Uri) -> Result<Vec<Attribute>, Error> {
    let mut id = vec![0; 16];
    getrandom::fill(&mut id)
        .map_err(|cause| Error::Unavailable(format!("the kernel gives no random numbers: {cause}")))?;
    let mut attributes = vec![Attribute::Token(true), Attribute::Id(uri.id.clone().unwrap_or(id))];
    attributes.extend(uri.object.as_ref().map(|label| Attribute::Label(label.clone().into_bytes())));
    Ok(attributes)
}

fn make(module: &mut Module, uri: &Uri) -> Result<(), Error> {
    let both = stored(uri)?;
    let mut public = both.clone();
    public.extend([Attribute::Verify(true), Attribute::EcParams(P256.to_vec())]);
    let mut private = both;
    private.extend([
        Attribute::Private(true),
        Attribute::Sensitive(true),
        Attribute::Extractable(false),
        Attribute::Sign(true),
    ]);
    let (_, session) = module.session(uri, true)?;
    let made = session.generate_key_pair(&Mechanism::EccKeyPairGen, &public, &private);
    made.map(drop).map_err(|cause| module.silent(&cause))
}

/// A signature as tokens give it, r and s of 32 bytes each, in DER: SEQUENCE of two INTEGERs (RFC 3279, 2.2.3).
fn der(signature: &[u8]) -> Option<Vec<u8>> {
    let (r, s) = signature.split_at_checked(32).filter(|(_, s)| s.len() == 32)?;
    let mut integers = Vec::with_capacity(72);
    for number in [r, s] {
        let zeros = number.iter().take_while(|&&byte| byte == 0).count().min(31);
        let digits = &number[zeros..];
        // A positive number does not begin with a one.
        let sign = usize::from(digits[0] & 0x80 != 0);
        integers.extend([0x02, (digits.len() + sign) as u8]);
        integers.extend(std::iter::repeat_n(0, sign));
        integers.extend(digits);
    }
    Some([&[0x30, integers.len() as u8][..], &integers].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signatures_in_der() {
        let mut raw = [0; 64];
        (raw[31], raw[32], raw[63]) = (1, 0x80, 2);
        let mut expected = vec![0x30, 38, 0x02, 1, 1, 0x02, 33, 0, 0x80];
        expected.extend([0; 30]);
        expected.push(2);
        assert_eq!(der(&raw).unwrap(), expected);
        assert_eq!(der(&[0xff; 64]).unwrap().len(), 2 + 2 * 35);
        assert_eq!(der(&[0; 64]).unwrap(), [0x30, 6, 2, 1, 0, 2, 1, 0]);
        assert!(der(&[0; 63]).is_none() && der(&[0; 65]).is_none());
    }
}
