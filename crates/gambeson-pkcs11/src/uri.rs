//! By what a key in a token is named: a PKCS #11 URI (RFC 7512).
//!
//! ```text
//! pkcs11:token=site;object=host?module-path=/usr/lib/x86_64-linux-gnu/softhsm/libsofthsm2.so&pin-source=file:/etc/gambeson/pin
//! ```
//!
//! Read strictly: what is not understood could mean another key.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use crate::Error;

/// What every such URI begins with.
pub const SCHEME: &str = "pkcs11:";
const LENGTH_MAX: usize = 2048;

/// The name of a key in a token, with the module that reaches it and the file of its PIN.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Uri {
    text: String,
    pub(crate) token: Option<String>,
    pub(crate) serial: Option<String>,
    pub(crate) manufacturer: Option<String>,
    pub(crate) model: Option<String>,
    pub(crate) object: Option<String>,
    pub(crate) id: Option<Vec<u8>>,
    /// Whether it says that it names a private key, or a secret one.
    pub(crate) kind: Option<Kind>,
    pub(crate) module: PathBuf,
    pub(crate) pin: Option<PathBuf>,
}

/// What a key in a token is, which both a URI may say and who opens it knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Private,
    Secret,
}

impl Uri {
    /// The module that reaches the token.
    #[must_use]
    pub fn module(&self) -> &Path {
        &self.module
    }

    /// The token and the key in it, for people.
    #[must_use]
    pub fn name(&self) -> &str {
        self.text.split_once('?').map_or(&*self.text, |(name, _)| name)
    }

    /// That it does not say that it names another kind of key.
    pub(crate) fn expect(&self, kind: Kind) -> Result<(), Error> {
        let (is, wanted) = match kind {
            Kind::Private => ("a secret key", "private"),
            Kind::Secret => ("a private key", "secret-key"),
        };
        match self.kind.is_none_or(|said| said == kind) {
            true => Ok(()),
            false => Err(Error::Uri(format!("{} names {is} by its type=, which has to be {wanted} here", self.name()))),
        }
    }

    /// The token alone, for people.
    pub(crate) fn token(&self) -> String {
        let label = self.token.as_ref().map(|label| format!("{label:?}"));
        label.or_else(|| self.serial.as_ref().map(|serial| format!("of serial number {serial:?}"))).unwrap_or_default()
    }
}

impl fmt::Display for Uri {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.text)
    }
}

impl FromStr for Uri {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let rest = text.strip_prefix(SCHEME).ok_or_else(|| none("it does not begin with pkcs11:"))?;
        if text.len() > LENGTH_MAX {
            return Err(none("it is too long"));
        }
        let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
        let mut path = Attributes::new(path, ';', IN_PATH)?;
        let words = |value: Vec<u8>| String::from_utf8(value).map_err(|_| none("a name in it is not UTF-8"));
        let [token, serial, manufacturer, model, object] =
            ["token", "serial", "manufacturer", "model", "object"].map(|name| path.take(name).map(words).transpose());
        let (token, serial, manufacturer, model, object) = (token?, serial?, manufacturer?, model?, object?);
        let id = path.take("id");
        let kind = match path.take("type").as_deref() {
            None => None,
            Some(b"private") => Some(Kind::Private),
            Some(b"secret-key") => Some(Kind::Secret),
            Some(_) => return Err(none("its type is neither private nor secret-key, and it has to name such a key")),
        };
        path.end(
            "it says \"{}\", which is not understood here; token, serial, manufacturer, model, object and id are",
        )?;
        if token.is_none() && serial.is_none() {
            return Err(none("it names no token; say token=LABEL or serial=NUMBER"));
        }
        if object.is_none() && id.is_none() {
            return Err(none("it names no key; say object=LABEL or id=..."));
        }
        let mut query = Attributes::new(query, '&', IN_QUERY)?;
        if query.take("pin-value").is_some() {
            return Err(none(
                "it has the PIN in it, which others could see; put that into a file, and say pin-source=",
            ));
        }
        let file = |value: Vec<u8>, what: &str| {
            let path = words(value)?;
            let absolute = path.starts_with('/') && !path.chars().any(char::is_control);
            absolute.then(|| PathBuf::from(path)).ok_or_else(|| none(&format!("its {what} is no absolute path")))
        };
        let module = query.take("module-path");
        let module = module.ok_or_else(|| none("it names no module; say module-path=/usr/lib/...so"))?;
        let module = file(module, "module-path")?;
        let pin = query.take("pin-source").map(|source| match source.strip_prefix(b"file:") {
            // file:/path and file:///path (RFC 8089).
            Some(path) => file(
                path.strip_prefix(b"//").filter(|rest| rest.starts_with(b"/")).unwrap_or(path).to_vec(),
                "pin-source",
            ),
            None => file(source, "pin-source"),
        });
        query.end("it says \"{}\", which is not understood here; module-path and pin-source are")?;
        let (text, pin) = (text.to_owned(), pin.transpose()?);
        Ok(Uri { text, token, serial, manufacturer, model, object, id, kind, module, pin })
    }
}

fn none(why: &str) -> Error {
    Error::Uri(format!("that is no PKCS #11 URI of a key: {why}"))
}

/// Characters that need no escape, besides letters, digits and `-._~`.
const IN_PATH: &[u8] = b":[]@!$'()*+,=&";
const IN_QUERY: &[u8] = b":[]@!$'()*+,=/?|";

/// `name=value` with something in between, each name once.
struct Attributes<'u>(Vec<(&'u str, Vec<u8>)>);

impl<'u> Attributes<'u> {
    fn new(text: &'u str, between: char, plain: &[u8]) -> Result<Self, Error> {
        let mut all: Vec<(&str, Vec<u8>)> = Vec::new();
        for one in text.split(between).filter(|_| !text.is_empty()) {
            let (name, value) = one.split_once('=').ok_or_else(|| none("a part of it is not NAME=VALUE"))?;
            if all.iter().any(|(known, _)| *known == name) {
                return Err(none("it says something twice"));
            }
            if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-') {
                return Err(none("a name in it is no word"));
            }
            let value = unescaped(value, plain).filter(|value| !value.is_empty());
            all.push((
                name,
                value.ok_or_else(|| none("a value in it is empty, or has a character that has to be %XX"))?,
            ));
        }
        Ok(Attributes(all))
    }

    fn take(&mut self, name: &str) -> Option<Vec<u8>> {
        let at = self.0.iter().position(|(known, _)| *known == name)?;
        Some(self.0.remove(at).1)
    }

    /// Whether all of it was taken.
    fn end(&self, why: &str) -> Result<(), Error> {
        self.0.first().map_or(Ok(()), |(name, _)| Err(none(&why.replace("{}", name))))
    }
}

fn unescaped(value: &str, plain: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = value.bytes();
    let mut all = Vec::with_capacity(value.len());
    while let Some(byte) = bytes.next() {
        all.push(match byte {
            b'%' => {
                let mut digit = || char::from(bytes.next()?).to_digit(16);
                (digit()? << 4 | digit()?) as u8
            }
            _ if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) || plain.contains(&byte) => byte,
            _ => return None,
        });
    }
    Some(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MODULE: &str = "?module-path=/m.so";

    fn read(text: &str) -> Result<Uri, Error> {
        format!("pkcs11:{text}").parse()
    }

    #[test]
    fn names_tokens_and_keys() {
        let text = "pkcs11:token=My%20site;serial=0a;object=h%c3%b6st;id=%01%ff;type=private\
                    ?pin-source=file:/etc/gambeson/pin&module-path=/usr/lib/x.so";
        let uri: Uri = text.parse().unwrap();
        assert_eq!(uri.to_string(), text);
        assert_eq!((uri.token.as_deref(), uri.serial.as_deref()), (Some("My site"), Some("0a")));
        assert_eq!((uri.object.as_deref(), uri.id.as_deref()), (Some("höst"), Some(&[1, 255][..])));
        assert_eq!(
            (uri.module(), uri.pin.as_deref()),
            (Path::new("/usr/lib/x.so"), Some(Path::new("/etc/gambeson/pin")))
        );
        assert_eq!(uri.name(), "pkcs11:token=My%20site;serial=0a;object=h%c3%b6st;id=%01%ff;type=private");
        for (source, path) in [("file:///pin", "/pin"), ("/pin", "/pin"), ("file:/a%20b", "/a b")] {
            let uri = read(&format!("token=t;object=o{MODULE}&pin-source={source}")).unwrap();
            assert_eq!(uri.pin.as_deref(), Some(Path::new(path)));
        }
    }

    #[test]
    fn refuses_what_it_does_not_understand() {
        for (text, why) in [
            ("object=o?module-path=/m.so", "names no token"),
            ("token=t?module-path=/m.so", "names no key"),
            ("token=t;object=o", "names no module"),
            ("token=t;object=o?module-path=m.so", "no absolute path"),
            ("token=t;object=o?module-path=/m.so&pin-source=%7Ccat%20/pin", "no absolute path"),
            ("token=t;object=o?module-path=/m.so&pin-source=file:%2Fpin%0a", "no absolute path"),
            ("token=t;object=o?module-path=/m.so&pin-value=1234", "the PIN in it"),
            ("token=t;object=o?module-path=/m.so&module-name=m", "\"module-name\""),
            ("token=t;object=o;slot-id=1?module-path=/m.so", "\"slot-id\""),
            ("token=t;object=o;type=cert?module-path=/m.so", "neither private nor secret-key"),
            ("token=t;token=u;object=o?module-path=/m.so", "twice"),
            ("token=t;object?module-path=/m.so", "not NAME=VALUE"),
            ("token=t;;object=o?module-path=/m.so", "not NAME=VALUE"),
            ("token=;object=o?module-path=/m.so", "empty"),
            ("token=a b;object=o?module-path=/m.so", "%XX"),
            ("token=a%2;object=o?module-path=/m.so", "%XX"),
            ("token=a%zz;object=o?module-path=/m.so", "%XX"),
            ("token=%ff;object=o?module-path=/m.so", "UTF-8"),
            ("token=a\nb;object=o?module-path=/m.so", "%XX"),
            ("TOKEN=a;object=o?module-path=/m.so", "no word"),
        ] {
            let refused = read(text).expect_err(text).to_string();
            assert!(refused.contains(why), "{text}: {refused}");
            assert!(!refused.contains("1234"), "{refused}");
        }
        assert!("PKCS11:token=t;object=o?module-path=/m.so".parse::<Uri>().is_err());
        assert!(read(&format!("token={};object=o{MODULE}", "t".repeat(LENGTH_MAX))).is_err());
    }
}
