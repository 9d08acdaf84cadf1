//! Where a site's key services are: `keyd://HOST[:PORT][,HOST[:PORT]...]`.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use crate::wire::Host;

/// What the place of a service begins with, and that of no folder.
pub const SCHEME: &str = "keyd://";
/// Where a key service listens, if nobody says otherwise.
pub const PORT: u16 = 7201;

/// One service, or several of which the first that answers is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    text: String,
    hosts: Vec<Host>,
}

impl Place {
    /// The hosts, in order. Each must prove the name by which it is called here.
    #[must_use]
    pub fn hosts(&self) -> &[Host] {
        &self.hosts
    }
}

impl fmt::Display for Place {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.text)
    }
}

impl FromStr for Place {
    type Err = String;

    /// `NAME`, `NAME:PORT`, or `NAME=ADDRESS[:PORT]` where a service is not to be found by its name.
    fn from_str(text: &str) -> Result<Self, String> {
        let none = |why: &str| {
            format!("{text:?} names no key service: {why}; one is named as keyd://h1, keyd://h1:7201 or keyd://h1,h2")
        };
        let rest = text.strip_prefix(SCHEME).ok_or_else(|| none("it does not begin with keyd://"))?;
        let host = |word: &str| {
            let (name, address) = match word.split_once('=') {
                Some((name, address)) if has_port(address) => (name, address.to_owned()),
                Some((name, address)) => (name, format!("{address}:{PORT}")),
                None => match word.rsplit_once(':') {
                    Some((name, port)) if port.parse::<u16>().is_ok() => (name, word.to_owned()),
                    Some(_) => return Err(none("a port is a number")),
                    None => (word, format!("{word}:{PORT}")),
                },
            };
            if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte)) {
                return Err(none("a host's name has letters, digits, '-' and '.'"));
            }
            if name.parse::<IpAddr>().is_ok() {
                // A certificate is for names, and whoever is at an address could have one for any.
                return Err(none("an address is no name that a certificate is for; say keyd://NAME=ADDRESS:PORT"));
            }
            Ok(Host { name: name.to_ascii_lowercase(), address })
        };
        let hosts = rest.trim_end_matches('/').split(',').map(host).collect::<Result<Vec<_>, _>>()?;
        Ok(Place { text: text.to_owned(), hosts })
    }
}

/// Whether an address ends with a port; one of IPv6 stands in brackets before it.
fn has_port(address: &str) -> bool {
    address.rsplit_once(':').is_some_and(|(before, _)| !before.contains(':') || before.ends_with(']'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_read() {
        let hosts = |text: &str| {
            let place: Place = text.parse().unwrap();
            assert_eq!(place.to_string(), text);
            place.hosts().iter().map(|host| (host.name.clone(), host.address.clone())).collect::<Vec<_>>()
        };
        let host = |name: &str, address: &str| (name.to_owned(), address.to_owned());
        assert_eq!(hosts("keyd://h1"), [host("h1", "h1:7201")]);
        assert_eq!(hosts("keyd://Keys.site:80,h2"), [host("keys.site", "Keys.site:80"), host("h2", "h2:7201")]);
        assert_eq!(hosts("keyd://h1=127.0.0.1:9"), [host("h1", "127.0.0.1:9")]);
        assert_eq!(hosts("keyd://h1=10.78.0.9"), [host("h1", "10.78.0.9:7201")]);
        assert_eq!(hosts("keyd://h1=[::1]"), [host("h1", "[::1]:7201")]);
        assert_eq!(hosts("keyd://h1=[::1]:9"), [host("h1", "[::1]:9")]);
        for none in ["h1", "keyd://", "keyd://h1,", "keyd://10.0.0.1", "keyd://h1:x", "keyd://a b", "keyd://=1:2"] {
            assert!(none.parse::<Place>().is_err(), "{none}");
        }
    }
}
