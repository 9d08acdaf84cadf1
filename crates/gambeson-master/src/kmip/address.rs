//! By what a key in a key server is named, with what it is reached by.
//!
//! ```text
//! kmip://kms.example:5696/17?certificate=/etc/gambeson/kmip.pem&key=/etc/gambeson/kmip-key.pem&authority=/etc/gambeson/kms-ca.pem
//! ```
//! Read strictly: what is not understood could mean another key.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use rustls::pki_types::ServerName;

use crate::MasterError;

/// What every such address begins with.
pub(crate) const SCHEME: &str = "kmip://";
/// Of KMIP (IANA).
const PORT: u16 = 5696;
const LENGTH_MAX: usize = 2048;

/// A key server, what this end shows there and whom it believes, and a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    host: String,
    name: ServerName<'static>,
    port: u16,
    id: Option<String>,
    certificate: PathBuf,
    key: PathBuf,
    authority: PathBuf,
}

impl Address {
    /// A DNS name, or an IP address.
    pub(crate) fn name(&self) -> &ServerName<'static> {
        &self.name
    }

    /// For the resolver.
    pub(crate) fn host(&self) -> (&str, u16) {
        (self.host.trim_start_matches('[').trim_end_matches(']'), self.port)
    }

    /// The server alone, for people.
    pub(crate) fn server(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }

    /// What the server calls the key, if that is said.
    pub(crate) fn id(&self) -> Option<&str> {
        self.id.as_deref()
    }

    /// The same server, and a key in it.
    pub(crate) fn with_id(&self, id: &str) -> Self {
        Address { id: Some(id.to_owned()), ..self.clone() }
    }

    /// The file with the certificate that this end shows.
    pub(crate) fn certificate(&self) -> &Path {
        &self.certificate
    }

    /// The file with that certificate's key.
    pub(crate) fn key(&self) -> &Path {
        &self.key
    }

    /// The file with the certificates of those who certify the server.
    pub(crate) fn authority(&self) -> &Path {
        &self.authority
    }
}

impl fmt::Display for Address {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{SCHEME}{}", self.host)?;
        if self.port != PORT {
            write!(out, ":{}", self.port)?;
        }
        write!(out, "/{}", escaped(self.id.as_deref().unwrap_or_default()))?;
        for (mark, name, file) in
            [('?', CERTIFICATE, &self.certificate), ('&', KEY, &self.key), ('&', AUTHORITY, &self.authority)]
        {
            write!(out, "{mark}{name}={}", escaped(file.to_str().expect("it was read from text")))?;
        }
        Ok(())
    }
}

impl FromStr for Address {
    type Err = MasterError;

    fn from_str(text: &str) -> Result<Self, MasterError> {
        let rest = text.strip_prefix(SCHEME).ok_or_else(|| none("it does not begin with kmip://"))?;
        if text.len() > LENGTH_MAX {
            return Err(none("it is too long"));
        }
        let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (server, id) = path.split_once('/').unwrap_or((path, ""));
        let (host, port) = match server.rsplit_once(':').filter(|(_, port)| !port.ends_with(']')) {
            None => (server, PORT),
            Some((host, port)) => {
                let digits = port.bytes().all(|byte| byte.is_ascii_digit());
                let port = port.parse().ok().filter(|&port| digits && port > 0);
                (host, port.ok_or_else(|| none("its port is no number of one"))?)
            }
        };
        let unbracketed = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
        let name = ServerName::try_from(unbracketed.unwrap_or(host)).ok().map(|name| name.to_owned());
        let fits = |name: &ServerName<'_>| match name {
            ServerName::IpAddress(address) => unbracketed.is_some() == std::net::IpAddr::from(*address).is_ipv6(),
            _ => unbracketed.is_none(),
        };
        let name = name.filter(fits).ok_or_else(|| none("it names no host; say kmip://HOST/ID"))?;
        let id = unescaped(id).ok_or_else(|| none("the key's name in it has a character that has to be %XX"))?;
        let [mut certificate, mut key, mut authority] = [const { None }; 3];
        for part in query.split('&').filter(|_| !query.is_empty()) {
            let (name, value) = part.split_once('=').ok_or_else(|| none("a part of it is not NAME=VALUE"))?;
            let place = match name {
                CERTIFICATE => &mut certificate,
                KEY => &mut key,
                AUTHORITY => &mut authority,
                _ => return Err(none("it says what is not understood here; certificate, key and authority are")),
            };
            let file = unescaped(value).filter(|file| file.starts_with('/'));
            let file =
                file.ok_or_else(|| none(&format!("its {name} is no absolute path, with %XX for what is special")))?;
            if place.replace(PathBuf::from(file)).is_some() {
                return Err(none("it says something twice"));
            }
        }
        let said = |file: Option<PathBuf>, name: &str| {
            file.ok_or_else(|| {
                none(&format!("it does not say {name}=FILE; certificate, key and authority are all needed"))
            })
        };
        Ok(Address {
            host: host.to_owned(),
            name,
            port,
            id: Some(id).filter(|id| !id.is_empty()),
            certificate: said(certificate, CERTIFICATE)?,
            key: said(key, KEY)?,
            authority: said(authority, AUTHORITY)?,
        })
    }
}

fn none(why: &str) -> MasterError {
    MasterError::Place(format!("that is no address of a key server: {why}"))
}

const CERTIFICATE: &str = "certificate";
const KEY: &str = "key";
const AUTHORITY: &str = "authority";

/// Characters that stand for themselves (RFC 3986: pchar and '/', without what divides this address).
fn plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~!$'()*+,;:@/".contains(&byte)
}

fn escaped(text: &str) -> String {
    let bytes = text.bytes();
    bytes.map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }).collect()
}

fn unescaped(text: &str) -> Option<String> {
    let mut bytes = text.bytes();
    let mut all = Vec::with_capacity(text.len());
    while let Some(byte) = bytes.next() {
        all.push(match byte {
            b'%' => {
                let mut digit = || char::from(bytes.next()?).to_digit(16);
                (digit()? << 4 | digit()?) as u8
            }
            _ if plain(byte) => byte,
            _ => return None,
        });
    }
    String::from_utf8(all).ok().filter(|text| !text.chars().any(char::is_control))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILES: &str = "?certificate=/c.pem&key=/k.pem&authority=/a.pem";

    #[test]
    fn addresses_are_read_and_written() {
        for (text, host, port, id) in [
            ("kmip://kms.example/17", "kms.example", 5696, Some("17")),
            ("kmip://kms.example:9000/a%20b/c", "kms.example", 9000, Some("a b/c")),
            ("kmip://127.0.0.1/", "127.0.0.1", 5696, None),
            ("kmip://[::1]:1/x", "::1", 1, Some("x")),
        ] {
            let text = format!("{text}{FILES}");
            let address: Address = text.parse().unwrap();
            assert_eq!((address.host(), address.id()), ((host, port), id));
            assert_eq!(address.to_string(), text);
        }
        let address: Address = format!("kmip://kms:5696{}", FILES.replace("/c", "/ein%20Pfad%3D/c")).parse().unwrap();
        assert_eq!(address.certificate(), Path::new("/ein Pfad=/c.pem"));
        assert_eq!(address.to_string().parse::<Address>().unwrap(), address);
        assert_eq!(
            address.with_id("k%").to_string(),
            format!("kmip://kms/k%25{}", FILES.replace("/c", "/ein%20Pfad%3D/c"))
        );
    }

    #[test]
    fn refuses_what_it_does_not_understand() {
        for (text, why) in [
            ("kmip:///1", "names no host"),
            ("kmip://a b/1", "names no host"),
            ("kmip://[127.0.0.1]/1", "names no host"),
            ("kmip://::1/1", "names no host"),
            ("kmip://user@kms/1", "names no host"),
            ("kmip://kms:0/1", "port"),
            ("kmip://kms:65536/1", "port"),
            ("kmip://kms:+1/1", "port"),
            ("kmip://kms/a b", "%XX"),
            ("kmip://kms/a%0a", "%XX"),
            ("kmip://kms/a%ff", "%XX"),
        ] {
            let refused = format!("{text}{FILES}").parse::<Address>().expect_err(text).to_string();
            assert!(refused.contains(why), "{text}: {refused}");
        }
        for (query, why) in [
            ("", "certificate=FILE"),
            ("?certificate=/c&key=/k", "authority=FILE"),
            ("?certificate=/c&key=k&authority=/a", "key is no absolute path"),
            ("?certificate=/c&certificate=/c&key=/k&authority=/a", "twice"),
            ("?certificate=/c&key=/k&authority=/a&password=x", "not understood"),
            ("?certificate", "NAME=VALUE"),
        ] {
            let refused = format!("kmip://kms/1{query}").parse::<Address>().expect_err(query).to_string();
            assert!(refused.contains(why), "{query}: {refused}");
        }
    }
}
