//! People who need no enrolment: what they have anyway, a MUNGE credential or a Kerberos ticket, is exchanged for a
//! certificate of the site that is good for some hours. All else goes by certificates alone.
//!
//! ```text
//!  a person, with a key of his own                    the authority's daemon
//!    ── link, as a guest; expects the authority ───────> lets guests in to this endpoint alone
//!    ── Identification: request, credential ──────────> munged, or the host's keytab: which account is that?
//!    <─ Identified: certificate of `user:NAME` ──────── is it bound to this session, key and host?
//! ```
//!
//! A credential is bound to a hash over the session's channel binding (RFC 9266), the name that the authority's host has
//! proved, and the request with the key: who gets hold of one has nothing. That somebody owns the key TLS has proved.

mod ask;
mod gssapi;
mod kerberos;
mod library;
mod munge;
mod serve;

use std::fmt;
use std::str::FromStr;

use aws_lc_rs::digest::{SHA256, digest};
use serde::{Deserialize, Serialize};

use crate::Error;
use crate::authority::{Certified, Request};
pub use ask::{ask, ask_again, own};
pub use serve::serve;

/// What proves who somebody is to the authority.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mechanism {
    /// MUNGE: a daemon on each host, and one key for all of them.
    Munge,
    /// Kerberos 5, by GSS-API (RFC 4121).
    Kerberos,
}

impl Mechanism {
    const ALL: [Self; 2] = [Mechanism::Munge, Mechanism::Kerberos];

    /// What it is called in settings.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Mechanism::Munge => "munge",
            Mechanism::Kerberos => "kerberos",
        }
    }

    /// The role that tells in a certificate by what it was given.
    pub(crate) fn role(self) -> &'static str {
        match self {
            Mechanism::Munge => "by:munge",
            Mechanism::Kerberos => "by:kerberos",
        }
    }

    /// Of these roles the one that is such a role.
    pub(crate) fn of<'r>(roles: impl IntoIterator<Item = &'r str>) -> Option<Self> {
        roles.into_iter().find_map(|role| Self::ALL.into_iter().find(|one| one.role() == role))
    }
}

impl fmt::Display for Mechanism {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Mechanism::Munge => "MUNGE",
            Mechanism::Kerberos => "Kerberos",
        })
    }
}

impl FromStr for Mechanism {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = Self::ALL.into_iter().find(|one| one.name() == text);
        known.ok_or_else(|| format!("{text:?} is none of {}", Self::ALL.map(Self::name).join(", ")))
    }
}

/// What a guest says of himself: a line of JSON, as a request is.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Identification {
    mechanism: Mechanism,
    /// MUNGE's own text, or a token of GSS-API in base 64.
    credential: String,
    request: Request,
}

impl Identification {
    /// Reads one.
    ///
    /// # Errors
    /// When it is none, or the request's signature is not by its key.
    pub fn decode(bytes: &[u8]) -> Result<Self, Error> {
        let none = |cause: serde_json::Error| Error::Refused(format!("what came says nothing of who asks: {cause}"));
        let said: Self = serde_json::from_slice(bytes).map_err(none)?;
        let request = Request::decode(said.request.encode().as_bytes())?;
        Ok(Identification { request, ..said })
    }

    /// As one line.
    #[must_use]
    pub fn encode(&self) -> String {
        serde_json::to_string(self).expect("words are JSON")
    }
}

/// What the authority answers.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Identified {
    certified: Certified,
    /// By which the authority's host proves itself to Kerberos, too.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    reply: String,
}

/// Where the authority hears who guests are.
const NAME: &str = "identify";
const IDENTIFY: u32 = 0;
const LABEL: &[u8] = b"gambeson identification 1\0";

/// What a credential is bound to.
fn payload(binding: &[u8; 32], host: &str, request: &Request) -> [u8; 32] {
    let host = host.as_bytes();
    let bound = [LABEL, binding, &(host.len() as u64).to_be_bytes(), host, request.encode().as_bytes()].concat();
    digest(&SHA256, &bound).as_ref().try_into().expect("SHA-256 has 32 bytes")
}

#[cfg(test)]
mod tests {
    use super::*;
    use gambeson_link::Identity;

    #[test]
    fn a_credential_is_for_one_session_host_and_key() {
        let [one, other] = [(); 2].map(|()| Request::new(&Identity::generate().expect("a key")).expect("a request"));
        let bound = payload(&[1; 32], "h1", &one);
        for another in [payload(&[2; 32], "h1", &one), payload(&[1; 32], "h2", &one), payload(&[1; 32], "h1", &other)] {
            assert_ne!(bound, another);
        }
        assert_eq!(bound, payload(&[1; 32], "h1", &Request::decode(one.encode().as_bytes()).expect("it is one")));
    }

    #[test]
    fn what_says_nothing_of_who_asks_is_refused() {
        let request = Request::new(&Identity::generate().expect("a key")).expect("a request");
        let said = Identification { mechanism: Mechanism::Munge, credential: "MUNGE:x:".into(), request }.encode();
        assert_eq!(Identification::decode(said.as_bytes()).expect("it is one").encode(), said);
        let altered = said.replacen("\"time\":1", "\"time\":2", 1);
        for none in ["", "{}", &said[1..], &said.replacen("munge", "word", 1), &altered] {
            assert!(matches!(Identification::decode(none.as_bytes()), Err(Error::Refused(_))), "{none}");
        }
    }
}
