//! The text of a site directory: read strictly, and what is wrong is said with its line.

use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use serde::Deserialize;
use toml::Spanned;
use toml::value::Datetime;

use super::{
    Attach, Authentication, Directory, DirectoryError, Expected, Host, LENGTH_MAX, Network, hexadecimal, seconds,
    transport_name,
};
use crate::policy::Subnet;
use crate::startpoint::AddressKind;
use crate::suite::Protection;

/// Reads the text before the signature.
pub(super) fn read(text: &[u8]) -> Result<Directory, DirectoryError> {
    let senseless = |what: &str| DirectoryError::Senseless(None, what.to_owned());
    if text.len() > LENGTH_MAX {
        return Err(senseless("it has more than 1 MiB"));
    }
    let text = std::str::from_utf8(text).map_err(|_| senseless("it is no UTF-8 text"))?;
    let raw: RawDirectory = toml::from_str(text).map_err(|error| {
        let line = error.span().map(|span| line_of(text, span.start));
        let help = "see `gambeson directory sign --help` for the words a directory knows";
        DirectoryError::Senseless(line, format!("{}; {help}", error.message().replace('\n', " ")))
    })?;
    Reader { text }.directory(&raw)
}

/// Turns words into values that are legal already.
struct Reader<'t> {
    text: &'t str,
}

impl Reader<'_> {
    fn directory(&self, raw: &RawDirectory) -> Result<Directory, DirectoryError> {
        let (issued, expires) = (self.date(&raw.issued)?, self.date(&raw.expires)?);
        if expires <= issued {
            return Err(self.wrong(&raw.expires, "it expires before it is issued".to_owned()));
        }
        let mut hosts: Vec<Host> = Vec::with_capacity(raw.host.len());
        for raw in &raw.host {
            let host = self.host(raw)?;
            if hosts.iter().any(|other| other.name == host.name) {
                return Err(self.wrong(raw, format!("host \"{}\" is there twice", host.name)));
            }
            if let Some(address) =
                host.addresses.iter().find(|address| hosts.iter().any(|it| it.addresses.contains(address)))
            {
                return Err(
                    self.wrong(raw, format!("another host has the address {address}, too; leave it out of both"))
                );
            }
            hosts.push(host);
        }
        let networks = raw.network.iter().map(|network| self.network(network)).collect::<Result<_, _>>()?;
        Ok(Directory { issued, expires, hosts, networks })
    }

    fn date(&self, date: &Spanned<Datetime>) -> Result<u64, DirectoryError> {
        let wrong = || self.wrong(date, "a date has its time and zone, as 2026-11-21T20:52:10Z".to_owned());
        seconds(&date.get_ref().to_string()).ok_or_else(wrong)
    }

    fn host(&self, host: &Spanned<RawHost>) -> Result<Host, DirectoryError> {
        let raw = host.get_ref();
        let name = raw.name.trim_end_matches('.').to_ascii_lowercase();
        let is_legal = |character: char| character.is_ascii_alphanumeric() || "-_.".contains(character);
        if name.is_empty() || name.len() > 253 || !name.chars().all(is_legal) {
            return Err(self.wrong(host, format!("\"{}\" is no host name", raw.name)));
        }
        let mut addresses: Vec<IpAddr> = self.parsed(&raw.addresses, "address; write one as 10.1.0.1")?;
        let attach = raw.attach.as_ref().map(|attach| self.attach(attach)).transpose()?;
        addresses.extend(attach.iter().flat_map(|attach| &attach.addresses).map(SocketAddr::ip));
        let mut addresses: Vec<_> = addresses.into_iter().map(|address| address.to_canonical()).collect();
        addresses.sort_unstable();
        addresses.dedup();
        Ok(Host {
            name,
            addresses,
            transports: self.words(&raw.transports, "transport", &TRANSPORTS, transport_name)?,
            authentication: self.words(
                &raw.authentication,
                "authentication",
                &Authentication::ALL,
                Authentication::name,
            )?,
            attach,
        })
    }

    fn attach(&self, attach: &Spanned<RawAttach>) -> Result<Attach, DirectoryError> {
        let raw = attach.get_ref();
        let addresses: Vec<SocketAddr> = self.parsed(&raw.addresses, "address and port; write one as 10.1.0.1:4000")?;
        let expected = match (&raw.role, &raw.key) {
            (Some(role), None) if !role.is_empty() => Expected::Role(role.clone()),
            (None, Some(key)) => {
                let wrong = || self.wrong(key, "a key is 64 hexadecimal digits".to_owned());
                Expected::Key(hexadecimal(key.get_ref().as_bytes()).ok_or_else(wrong)?)
            }
            _ => {
                return Err(
                    self.wrong(attach, "name the role, or else the key, of who is to be expected there".to_owned())
                );
            }
        };
        if addresses.is_empty() {
            return Err(self
                .wrong(attach, "there is no address to attach at; write addresses = [\"10.1.0.1:4000\"]".to_owned()));
        }
        Ok(Attach { addresses, expected })
    }

    fn parsed<T: FromStr>(&self, words: &[Spanned<String>], what: &str) -> Result<Vec<T>, DirectoryError> {
        let parse = |word: &Spanned<String>| {
            word.get_ref().parse().map_err(|_| self.wrong(word, format!("\"{}\" is no {what}", word.get_ref())))
        };
        words.iter().map(parse).collect()
    }

    /// Some of these values, each once, by their words.
    fn words<T: Copy + PartialEq>(
        &self,
        words: &Spanned<Vec<Spanned<String>>>,
        what: &str,
        all: &[T],
        name: impl Fn(T) -> &'static str,
    ) -> Result<Vec<T>, DirectoryError> {
        let known: Vec<_> = all.iter().map(|&value| format!("\"{}\"", name(value))).collect();
        let known = known.join(", ");
        let mut values = Vec::new();
        for word in words.get_ref() {
            let value = all.iter().copied().find(|&value| name(value) == word.get_ref());
            let value = value.filter(|value| !values.contains(value));
            let wrong = || {
                self.wrong(word, format!("{what} \"{}\" is unknown, or there twice; there are {known}", word.get_ref()))
            };
            values.push(value.ok_or_else(wrong)?);
        }
        if values.is_empty() {
            return Err(self
                .wrong(words, format!("there is no {what}, so nobody could talk to the host; name some of {known}")));
        }
        Ok(values)
    }

    fn network(&self, raw: &RawNetwork) -> Result<Network, DirectoryError> {
        let (subnet, protection) = (raw.subnet.get_ref(), raw.protection.get_ref());
        let wrong = || {
            self.wrong(
                &raw.subnet,
                format!("\"{subnet}\" is no subnet; write its own address and its prefix, as 10.9.0.0/16"),
            )
        };
        let subnet = Subnet::parse(subnet).ok_or_else(wrong)?;
        let known = Protection::from_name(protection).filter(|word| *word != Protection::None);
        let wrong = || {
            self.wrong(
                &raw.protection,
                format!("protection \"{protection}\" is none; write \"privacy\" or \"integrity\""),
            )
        };
        Ok(Network { subnet, protection: known.ok_or_else(wrong)? })
    }

    fn wrong<T>(&self, at: &Spanned<T>, what: String) -> DirectoryError {
        DirectoryError::Senseless(Some(line_of(self.text, at.span().start)), what)
    }
}

fn line_of(text: &str, at: usize) -> usize {
    1 + text.as_bytes()[..at.min(text.len())].iter().filter(|&&byte| byte == b'\n').count()
}

const TRANSPORTS: [AddressKind; 3] = [AddressKind::Shm, AddressKind::Fabric, AddressKind::Tcp];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawDirectory {
    issued: Spanned<Datetime>,
    expires: Spanned<Datetime>,
    #[serde(default)]
    host: Vec<Spanned<RawHost>>,
    #[serde(default)]
    network: Vec<RawNetwork>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawHost {
    name: String,
    #[serde(default)]
    addresses: Vec<Spanned<String>>,
    transports: Spanned<Vec<Spanned<String>>>,
    authentication: Spanned<Vec<Spanned<String>>>,
    attach: Option<Spanned<RawAttach>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawAttach {
    addresses: Vec<Spanned<String>>,
    role: Option<String>,
    key: Option<Spanned<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawNetwork {
    subnet: Spanned<String>,
    protection: Spanned<String>,
}
