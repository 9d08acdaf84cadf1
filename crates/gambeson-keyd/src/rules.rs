//! What the administrator of a key service decides: `keyd.toml`.
//!
//! ```toml
//! listen = ["0.0.0.0:7201"]
//! create = ["user:*"]          # who may make labels: roles of certificates; `user:*` is everybody of the site
//! officers = ["user:olga"]     # who sees all labels, grants and the whole log, may revoke, and gets no keys
//! partitions = ["user:olga"]   # who may make partitions, change them and list them
//! metrics = ["dns:prom"]       # who may fetch the metrics alone
//! page = "0.0.0.0:7202"        # the officers' page; there is none without this line
//! standbys = ["keys2"]         # hosts that may follow this service: HOST, HOST:PORT or HOST=ADDRESS:PORT; itself is ignored
//! ```
//!
//! Without the file everybody of the site may make labels, and nobody sees those of others.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::Path;

use serde::Deserialize;

use crate::Error;

pub use gambeson_launch::services::PORT;

/// The rules of one service.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Rules {
    /// Where the service listens.
    pub listen: Vec<SocketAddr>,
    /// Who may make labels.
    pub create: Vec<String>,
    /// Who sees everything but keys, and may revoke.
    pub officers: Vec<String>,
    /// Who may change partitions, and sees them.
    pub partitions: Vec<String>,
    /// Who may fetch the metrics.
    pub metrics: Vec<String>,
    /// Where the officers' page is.
    pub page: Option<SocketAddr>,
    /// Hosts that may follow this service. Its own may be among them, so that all can have the same file.
    pub standbys: Vec<String>,
}

impl Default for Rules {
    fn default() -> Self {
        Rules {
            listen: vec![SocketAddr::from(([0, 0, 0, 0], PORT))],
            create: vec!["user:*".to_owned()],
            officers: Vec::new(),
            partitions: Vec::new(),
            metrics: Vec::new(),
            page: None,
            standbys: Vec::new(),
        }
    }
}

impl Rules {
    /// Reads a service's rules; those that hold without a file, if there is none.
    ///
    /// # Errors
    /// When the file cannot be read, says what cannot be, or others could have written it.
    pub fn read(path: &Path) -> Result<Self, Error> {
        let text = match fs::read_to_string(path) {
            Ok(text) => text,
            // One that leads to nothing was to say something.
            Err(cause) if cause.kind() == io::ErrorKind::NotFound && fs::symlink_metadata(path).is_err() => {
                return Ok(Self::default());
            }
            Err(cause) => return Err(unusable(path, &format!("it cannot be read ({cause})"))),
        };
        let metadata = fs::metadata(path).map_err(|cause| unusable(path, &cause.to_string()))?;
        gambeson_site::policy::others_cannot_write("the key service's rules", path, &metadata)
            .map_err(|why| Error::Rules { why })?;
        Self::parse(&text).map_err(|why| unusable(path, &why))
    }

    fn parse(text: &str) -> Result<Self, String> {
        let rules: Self = toml::from_str(text).map_err(|cause| cause.to_string())?;
        let lists = [&rules.create, &rules.officers, &rules.partitions, &rules.metrics];
        for role in lists.into_iter().flatten() {
            check_role(role)?;
        }
        if rules.listen.is_empty() {
            return Err(format!("listen names no address; say listen = [\"0.0.0.0:{PORT}\"], or leave it out"));
        }
        for host in &rules.standbys {
            crate::standby::host_of(host)?;
        }
        Ok(rules)
    }
}

/// Whether a role of somebody's is named in a list, where `user:*` stands for each that begins so.
#[must_use]
pub fn covers(list: &[String], roles: &[String]) -> bool {
    list.iter().any(|named| match named.strip_suffix('*') {
        Some(start) => roles.iter().any(|role| role.len() > start.len() && role.starts_with(start)),
        None => roles.contains(named),
    })
}

/// Whether that can be a role that grants and rules go by.
///
/// # Errors
/// Why not.
pub fn check_role(role: &str) -> Result<(), String> {
    let legal = |name: &str| {
        !name.is_empty()
            && name.len() <= 200
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.@".contains(&byte))
    };
    match role.split_once(':') {
        Some(("user" | "dns", name)) if legal(name) => Ok(()),
        Some(("user", "*")) => Ok(()),
        // A site's other roles, as certificates of another authority have them.
        Some((kind, name)) if legal(kind) && kind != "user" && kind != "dns" && legal(name) => Ok(()),
        _ => Err(format!(
            "{role:?} names nobody: say user:ann for a person, dns:h1 for a host, or user:* for everybody of the site"
        )),
    }
}

fn unusable(path: &Path, why: &str) -> Error {
    Error::Rules { why: format!("the key service's rules {} cannot be followed: {why}", path.display()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_is_refused() {
        for text in [
            "create = ['ann']",
            "listen = []",
            "standbys = ['h1,h2']",
            "officers = ['user:']",
            "create = ['dns:*']",
            "who = 1",
            "create = 'user:a'",
        ] {
            assert!(Rules::parse(text).is_err(), "{text}");
        }
        let rules = Rules::parse("officers = ['user:olga', 'auditor:eu']\npage = '127.0.0.1:7202'").unwrap();
        assert_eq!(rules.listen, [SocketAddr::from(([0, 0, 0, 0], PORT))]);
        assert_eq!(rules.create, ["user:*"]);
    }

    #[test]
    fn a_star_is_everybody_of_its_kind() {
        let roles = ["user".to_owned(), "user:ann".to_owned()];
        let list = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
        assert!(covers(&list(&["user:*"]), &roles) && covers(&list(&["user:bob", "user:ann"]), &roles));
        assert!(!covers(&list(&["user:an", "dns:ann"]), &roles) && !covers(&[], &roles));
        assert!(!covers(&list(&["user:*"]), &["user".to_owned(), "user:".to_owned()]));
    }
}
