//! `gambeson site show|revoke|renew|pages`: whom a site has certified, and for how much longer.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Subcommand};
use gambeson_launch::authority::{Authority, Kind, Member, key_place, renew};
use gambeson_pkcs11::Uri;
use gambeson_proto::directory::date;
use gambeson_site::directory::now;
use serde_json::json;

use crate::failure::{Failure, STATUSES};
use crate::machine;

/// Shows whom a site has certified, revokes and renews
#[derive(Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    Show(Show),
    Revoke(Revoke),
    Renew(Renew),
    Pages(Box<Pages>),
}

/// Lists the hosts and people that the authority on this host has certified
#[derive(Args)]
#[command(after_long_help = STATUSES)]
struct Show {
    #[command(flatten)]
    place: Place,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Renews a host's or a person's certificates no more
///
/// What is certified stays valid until it expires, which the command says; nobody is told before.
/// Who is enrolled under the name after this has a new key, and is renewed again.
#[derive(Args)]
#[command(verbatim_doc_comment, after_long_help = STATUSES)]
struct Revoke {
    /// A host's name, or user:NAME, as `gambeson site show` has them
    name: String,
    #[command(flatten)]
    place: Place,
}

/// Renews the certificates of this host and of whoever runs it, where two thirds of their time are over
#[derive(Args)]
#[command(after_long_help = STATUSES)]
struct Renew {
    /// Whatever time is left
    #[arg(long)]
    now: bool,
    #[command(flatten)]
    place: Place,
}

/// Lets hosts have pages for browsers, where the authority is
///
/// Browsers know no Ed25519. So pages are certified by another key, made here the first time, which
/// certifies nothing but servers of the names of these hosts. What it says is the file for browsers to
/// trust; a host that is added later changes it, and browsers take the new one then.
///
///   gambeson site pages keys1 keys2         says which hosts, besides those that it was said of before
///   gambeson enroll --browser ada.p12       each visitor, as herself
#[derive(Args)]
#[command(verbatim_doc_comment, after_long_help = STATUSES)]
struct Pages {
    /// Hosts' names, as `gambeson site show` has them
    #[arg(required = true)]
    hosts: Vec<String>,
    /// The key, in a token of this host, on P-256
    #[arg(long, value_name = "URI")]
    pkcs11: Option<Uri>,
    #[command(flatten)]
    place: Place,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// The folder of a site's files.
#[derive(Args)]
pub(crate) struct Place {
    /// The folder of the site's files, if it is not /etc/gambeson (root) or ~/.config/gambeson
    #[arg(long, value_name = "FOLDER")]
    folder: Option<PathBuf>,
}

impl Place {
    pub(crate) fn of(&self, kind: Kind) -> PathBuf {
        self.folder.clone().unwrap_or_else(|| kind.folder())
    }

    /// The authority on this host.
    pub(crate) fn authority(&self) -> Result<Authority, Failure> {
        Ok(Authority::open(&self.of(Kind::Host))?)
    }

    /// What was given, for the same command elsewhere.
    pub(crate) fn given(&self) -> Option<&Path> {
        self.folder.as_deref()
    }
}

pub(crate) fn execute(arguments: &Arguments) -> Result<ExitCode, Failure> {
    machine::close_to_others()?;
    match &arguments.action {
        Action::Show(show) => show.execute()?,
        Action::Revoke(revoke) => revoke.execute()?,
        Action::Renew(renew) => renew.execute()?,
        Action::Pages(pages) => pages.execute()?,
    }
    Ok(ExitCode::SUCCESS)
}

impl Show {
    fn execute(&self) -> Result<(), Failure> {
        let authority = self.place.authority()?;
        let mut standings = authority.standings()?;
        standings.sort_by(|one, other| (one.subject.name(), one.issued).cmp(&(other.subject.name(), other.issued)));
        let folder = self.place.of(Kind::Host);
        let places = [("authority", Some(authority.key_place())), ("host", key_place(&folder, Kind::Host))];
        if self.json {
            let keys: BTreeMap<_, _> = places.into_iter().collect();
            let certified = standings.iter().map(|one| {
                json!({ "name": one.subject.name(), "names": one.subject.names, "roles": one.subject.roles,
                        "key": one.key, "serial": one.serial, "issued": date(one.issued), "until": date(one.until),
                        "valid": one.until >= now(), "revoked": one.revoked })
            });
            let settings = authority.settings();
            let identities = &settings.identities;
            let report = json!({ "site": settings.name, "days": settings.days, "keys": keys,
                                 "identities": { "mechanisms": identities.mechanisms, "hours": identities.hours,
                                                 "system_accounts": identities.system_accounts },
                                 "certified": certified.collect::<Vec<_>>() });
            println!("{report:#}");
            return Ok(());
        }
        let width = standings.iter().map(|one| one.subject.name().len()).max().unwrap_or(0);
        for one in &standings {
            let state = match (one.revoked, one.until >= now()) {
                (true, true) => ", and not renewed: revoked",
                (true, false) => ": expired, revoked",
                (false, true) => "",
                (false, false) => ": expired",
            };
            let by = one.subject.mechanism().map_or_else(String::new, |mechanism| format!(" by {mechanism}"));
            println!("{:width$}  {}  until {}{by}{state}", one.subject.name(), &one.key[..16], date(one.until));
        }
        for (whose, place) in places {
            println!("{whose}'s key: {}", place.as_deref().unwrap_or("none here"));
        }
        let identities = &authority.settings().identities;
        if !identities.mechanisms.is_empty() {
            let names: Vec<_> = identities.mechanisms.iter().map(ToString::to_string).collect();
            println!("people are certified by {}, for {} h", names.join(" and "), identities.hours);
        }
        Ok(())
    }
}

impl Revoke {
    fn execute(&self) -> Result<(), Failure> {
        let (keys, until) = self.place.authority()?.revoke(&self.name)?;
        let certificates = if keys == 1 { "its certificate is" } else { "the last of its certificates is" };
        if until < now() {
            println!("{} is renewed no more; {certificates} expired", self.name);
        } else {
            println!("{} is renewed no more; {certificates} valid until {}", self.name, date(until));
        }
        Ok(())
    }
}

impl Pages {
    fn execute(&self) -> Result<(), Failure> {
        let pages = self.place.authority()?.allow_pages(&self.hosts, self.pkcs11.as_ref())?;
        let (names, file) = (pages.hosts.join(", "), pages.certificate.display().to_string());
        if self.json {
            println!("{}", json!({ "hosts": pages.hosts, "file": file }));
            return Ok(());
        }
        println!("pages of {names}: browsers know them by {file}");
        println!("next: each visitor says `gambeson enroll --browser FILE`, which brings that file, too");
        Ok(())
    }
}

impl Renew {
    fn execute(&self) -> Result<(), Failure> {
        let mut paths = Vec::new();
        for kind in [Kind::Host, Kind::User] {
            let folder = self.place.of(kind);
            let path = folder.join(kind.file());
            // A person who is not root has nothing to do with the host's.
            if !path.exists() {
                continue;
            }
            let member = Member::read(&folder, kind)?;
            let renewed = renew(&member, self.now)?;
            let until = Member::read(&folder, kind)?.validity.until;
            println!("{}  {} until {}", path.display(), if renewed { "renewed," } else { "valid" }, date(until));
            paths.push(path);
        }
        if paths.is_empty() {
            return Err(Failure::unavailable(
                "neither this host nor you have a certificate of a site; `gambeson enroll --help` says how to get one",
            ));
        }
        Ok(())
    }
}
