//! Who may start what on this host, as whom: `daemon.toml`.
//!
//! ```toml
//! listen = ["0.0.0.0:7200"]
//!
//! [[allow]]
//! identity = "user:alice"              # a role that the requester's certificate has; `user:*` is everybody's
//! accounts = ["alice", "project"]      # the first is taken unless the order names another; "same" is the one called so
//! folder = "/opt/programs"             # or pinned = ["<SHA-256>", ...]; without either, whatever the account may run
//! limits = { address_space = 8589934592, cpu_seconds = 86400, open_files = 4096, processes = 1000, core = 0 }
//!
//! [partitions]
//! clinic = ["alice"]                   # who may have jobs in that partition here; all may in one that is not named
//! ```
//!
//! The first entry that fits the requester and the account decides. Without the file everybody that the site knows may
//! start what he likes as the account that is called as he is, but not as root; a daemon that is not root serves its own
//! account alone, whatever the file says.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use gambeson_link::Peer;
use serde::Deserialize;

use crate::account::Account;
use crate::authority::PORT;
use crate::error::Error;
use crate::execute::{Execution, Limits, What};

/// The rules of one host.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Rules {
    /// Where the daemon listens.
    pub listen: Vec<SocketAddr>,
    allow: Vec<Allow>,
    /// Which accounts may have jobs in which partitions; in those that are not named all may.
    pub(crate) partitions: BTreeMap<String, Vec<String>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Allow {
    identity: String,
    accounts: Vec<String>,
    folder: Option<PathBuf>,
    pinned: Option<Vec<String>>,
    #[serde(default)]
    limits: Limits,
}

impl Default for Rules {
    fn default() -> Self {
        let everybody = Allow {
            identity: "user:*".into(),
            accounts: vec![SAME.into()],
            folder: None,
            pinned: None,
            limits: Limits::default(),
        };
        Rules {
            listen: vec![SocketAddr::from(([0, 0, 0, 0], PORT))],
            allow: vec![everybody],
            partitions: BTreeMap::new(),
        }
    }
}

/// What somebody may do.
#[derive(Clone, Debug)]
pub(crate) struct Permission {
    pub(crate) account: Account,
    pub(crate) execution: Execution,
    /// The identity that the rule went by.
    pub(crate) identity: String,
}

impl Rules {
    /// Reads a host's rules; those that hold without a file, if there is none.
    ///
    /// # Errors
    /// When the file cannot be read, says what cannot be, or others could have written it.
    pub fn read(path: &Path) -> Result<Self, Error> {
        let text = match fs::read_to_string(path) {
            Ok(text) => text,
            Err(cause) if cause.kind() == io::ErrorKind::NotFound => return Ok(Self::default()),
            Err(cause) => {
                return Err(Error::Unavailable(format!(
                    "the daemon's rules {} cannot be read ({cause})",
                    path.display()
                )));
            }
        };
        let metadata =
            fs::metadata(path).map_err(|cause| Error::Unavailable(format!("{}: {cause}", path.display())))?;
        gambeson_site::policy::others_cannot_write("the daemon's rules", path, &metadata).map_err(Error::Refused)?;
        let senseless =
            |why: String| Error::Rules(format!("the daemon's rules {} cannot be followed: {why}", path.display()));
        let rules: Self = toml::from_str(&text).map_err(|cause| senseless(cause.to_string()))?;
        for allow in &rules.allow {
            allow.what().map_err(senseless)?;
            if allow.accounts.is_empty() {
                return Err(senseless(format!("{} has no account", allow.identity)));
            }
        }
        Ok(rules)
    }

    /// What a requester may do here, as this account or, if it is empty, as the first of his.
    pub(crate) fn judge(&self, peer: &Peer, account: &str) -> Result<Permission, String> {
        let mut known = false;
        for allow in &self.allow {
            let Some(role) = peer.roles.iter().find(|role| allow.covers(role)) else { continue };
            known = true;
            let own = role.split_once(':').map_or(role.as_str(), |(_, name)| name);
            let names = |name: &String| if name == SAME { own.to_owned() } else { name.clone() };
            let mut accounts = allow.accounts.iter().map(names);
            let Some(chosen) = accounts.find(|name| account.is_empty() || name == account) else { continue };
            // That somebody is called root at the site, or 0, makes nobody root here: the entry has to name that account.
            let is_delicate = chosen == "root" || chosen.parse::<u32>().is_ok();
            if is_delicate && !allow.accounts.contains(&chosen) {
                continue;
            }
            let account = serves(Account::find(&chosen)?)?;
            let what = allow.what()?;
            let as_login = chosen == own && matches!(what, What::Any);
            let execution = Execution { what, as_login, limits: allow.limits };
            return Ok(Permission { account, execution, identity: role.clone() });
        }
        let who = peer.roles.iter().find(|role| role.starts_with("user:")).unwrap_or(&peer.name);
        Err(match (known, account) {
            (false, _) => format!("no rule of this host's is for {who}; its administrator can add one to daemon.toml"),
            (true, "") => format!("{who} may use no account here; root needs a rule that names it, in daemon.toml"),
            (true, account) => {
                format!("{who} may not use the account {account} here; its administrator can allow it in daemon.toml")
            }
        })
    }
}

/// A daemon that is not root can only serve its own account.
fn serves(account: Account) -> Result<Account, String> {
    let own = rustix::process::geteuid();
    if own.is_root() || own.as_raw() == account.uid {
        return Ok(account);
    }
    let own = Account::own()?;
    Err(format!(
        "this host's daemon runs for the account {} alone, and cannot start anything as {}",
        own.name, account.name
    ))
}

impl Allow {
    fn covers(&self, role: &str) -> bool {
        match self.identity.strip_suffix('*') {
            Some(start) => role.len() > start.len() && role.starts_with(start),
            None => role == self.identity,
        }
    }

    fn what(&self) -> Result<What, String> {
        match (&self.folder, &self.pinned) {
            (None, None) => Ok(What::Any),
            (Some(folder), None) => Ok(What::Folder(folder.clone())),
            (None, Some(pinned)) => pinned.iter().map(|text| digest(text)).collect::<Result<_, _>>().map(What::Pinned),
            (Some(_), Some(_)) => Err(format!("{} has a folder and pinned programs; take one", self.identity)),
        }
    }
}

fn digest(text: &str) -> Result<[u8; 32], String> {
    let parsed = gambeson_link::KeyHash::parse(text).map(|hash| hash.0);
    parsed.ok_or_else(|| format!("{text:?} is no SHA-256 digest: 64 hexadecimal digits, as sha256sum prints them"))
}

/// Stands for the account that is called as the requester is.
const SAME: &str = "same";

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(roles: &[&str]) -> Peer {
        Peer {
            key: gambeson_link::KeyHash([1; 32]),
            name: "somebody".into(),
            roles: roles.iter().map(|&role| role.to_owned()).collect(),
            host: "h1".into(),
            address: None,
        }
    }

    fn rules(text: &str) -> Rules {
        toml::from_str(text).expect("rules")
    }

    #[test]
    fn without_a_file_nobody_is_root_and_strangers_are_nobody() {
        let rules = Rules::default();
        for called in ["user:root", "user:0"] {
            assert!(rules.judge(&peer(&["user", called]), "").is_err(), "{called}");
            // Another account beside "same" is no permission to be root.
            let mixed = self::rules("[[allow]]\nidentity = 'user:*'\naccounts = ['same', 'nobody']\n");
            let judged = mixed.judge(&peer(&["user", called]), called.trim_start_matches("user:"));
            assert!(judged.is_err(), "{called}");
        }
        assert!(rules.judge(&peer(&["host", "dns:h2"]), "").is_err());
        assert!(rules.judge(&peer(&["user:"]), "").is_err());
        let own = Account::own().expect("an account");
        if own.uid != 0 {
            assert_eq!(rules.judge(&peer(&[&format!("user:{}", own.name)]), "").expect("his own").account.uid, own.uid);
        }
    }

    #[test]
    fn the_first_rule_that_fits_decides() {
        let own = Account::own().expect("an account").name;
        let text = format!(
            "[[allow]]\nidentity = 'user:a'\naccounts = ['nobody']\nfolder = '/opt'\n\
             [[allow]]\nidentity = 'user:*'\naccounts = ['{own}']\nlimits = {{ core = 0 }}\n"
        );
        let rules = rules(&text);
        let b = rules.judge(&peer(&["user", "user:b"]), "").expect("a rule for all");
        assert!(b.account.name == own && !b.execution.as_login && b.execution.limits.core == Some(0), "{b:?}");
        assert!(rules.judge(&peer(&["user:b"]), "nobody").is_err());
        let a = rules.judge(&peer(&["user:a"]), &own).expect("the second rule is for him, too");
        assert!(matches!(a.execution.what, What::Any));
    }

    #[test]
    fn what_cannot_be_is_said_when_the_rules_are_read() {
        for text in
            ["[[allow]]\nidentity = 'x'\naccounts = ['y']\npinned = ['12']", "[[allow]]\nidentity = 'x'", "alow = []"]
        {
            let parsed = toml::from_str::<Rules>(text);
            assert!(parsed.is_err() || parsed.is_ok_and(|rules| rules.allow[0].what().is_err()), "{text}");
        }
    }
}
