//! `gambeson partition`: hosts that share a secret which no other host gets.

use std::process::ExitCode;

use clap::{Args, Subcommand};
use gambeson_launch::authority::{Kind, Member, Site};
use gambeson_launch::partitions::{Listed, Registry, Source};
use gambeson_proto::directory::date;
use serde_json::json;

use crate::commands::site::Place;
use crate::failure::{Failure, STATUSES};
use crate::machine;

/// Makes partitions: hosts whose jobs no other host can take part in
///
///   gambeson partition create clinic h1 h2     on the authority's host; gambesond hands the secret out
///   gambeson run --partition clinic -- mpiexec ...
///
/// A partition has members, hosts by the names that the site's authority certified, and a secret,
/// which each member's daemon has from the daemon of the authority's host. A job in it gets a key
/// of its own on each host from the daemon there; on a host that is no member there is none.
/// Secrets have epochs: a job begins in the one that the partition is in, and keeps its key. All its
/// hosts have to come in that epoch; a job that meets a rotation while it starts is started again.
#[derive(Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    Create(Create),
    Add(Add),
    Remove(Remove),
    Rotate(Named),
    List(List),
    Share(Share),
    Unshare(Unshare),
    Follow(Follow),
}

/// Makes a partition of some hosts, with a secret of its own
#[derive(Args)]
#[command(after_long_help = STATUSES)]
struct Create {
    /// What to call it
    name: String,
    /// Its members
    #[arg(value_name = "HOST")]
    hosts: Vec<String>,
    #[command(flatten)]
    place: Place,
}

/// Makes hosts members
#[derive(Args)]
#[command(after_long_help = STATUSES)]
struct Add {
    /// The partition
    name: String,
    /// Hosts, as they are certified
    #[arg(value_name = "HOST", required = true)]
    hosts: Vec<String>,
    /// The partner site that they are of, if they are not of this one
    #[arg(long, value_name = "SITE")]
    site: Option<String>,
    #[command(flatten)]
    place: Place,
}

/// Makes hosts members no longer, and begins a new epoch
///
/// The secret that a host has nobody can take from it: jobs that run go on in their epoch, and have
/// to begin anew to be kept from it. With --no-rotate new jobs begin in that epoch, too.
#[derive(Args)]
#[command(verbatim_doc_comment, after_long_help = STATUSES)]
struct Remove {
    /// The partition
    name: String,
    /// Its members that are to go
    #[arg(value_name = "HOST", required = true)]
    hosts: Vec<String>,
    /// Begin no new epoch: the hosts could still take part in new jobs
    #[arg(long)]
    no_rotate: bool,
    #[command(flatten)]
    place: Place,
}

/// Begins a new epoch, with a new secret, for jobs that start from now on
#[derive(Args)]
#[command(after_long_help = STATUSES)]
struct Named {
    /// The partition
    name: String,
    #[command(flatten)]
    place: Place,
}

/// Lists the site's partitions, and the key by which other sites know this one
#[derive(Args)]
#[command(after_long_help = STATUSES)]
struct List {
    #[command(flatten)]
    place: Place,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Lets the hosts of another site be members
///
/// The daemons of both authorities' hosts speak to each other, and know each other by their keys
/// alone: neither site accepts the other's certificates for anything else. Then
/// `gambeson partition add NAME HOST --site SITE` says which hosts they are.
#[derive(Args)]
#[command(verbatim_doc_comment, after_long_help = STATUSES)]
struct Share {
    /// The partition
    name: String,
    /// What to call the other site here
    #[arg(long, value_name = "SITE")]
    with: String,
    /// The key of its authority's host, as `gambeson partition list` prints it there
    #[arg(long, value_name = "KEY")]
    key: String,
    #[command(flatten)]
    place: Place,
}

/// Ends that: its hosts are members no longer, and a new epoch begins
#[derive(Args)]
#[command(after_long_help = STATUSES)]
struct Unshare {
    /// The partition
    name: String,
    /// The other site
    #[arg(long, value_name = "SITE")]
    with: String,
    #[command(flatten)]
    place: Place,
}

/// Takes part in a partition of another site, which shares it
#[derive(Args)]
#[command(after_long_help = STATUSES)]
struct Follow {
    /// The partition, as it is called there
    name: String,
    /// The daemon of the authority's host there
    #[arg(long, value_name = "HOST:PORT")]
    from: String,
    /// That host's key, as `gambeson partition list` prints it there
    #[arg(long, value_name = "KEY")]
    key: String,
    #[command(flatten)]
    place: Place,
}

pub(crate) fn execute(arguments: &Arguments) -> Result<ExitCode, Failure> {
    machine::close_to_others()?;
    match &arguments.action {
        Action::Create(create) => create.execute()?,
        Action::Add(add) => add.execute()?,
        Action::Remove(remove) => remove.execute()?,
        Action::Rotate(rotate) => rotate.execute()?,
        Action::List(list) => list.execute()?,
        Action::Share(share) => share.execute()?,
        Action::Unshare(unshare) => unshare.execute()?,
        Action::Follow(follow) => follow.execute()?,
    }
    Ok(ExitCode::SUCCESS)
}

/// The partitions of the authority on this host.
fn registry(place: &Place) -> Result<Registry, Failure> {
    place.authority()?;
    Ok(Registry::of(&place.of(Kind::Host)))
}

/// A name with a slip in it would be nobody's, or one day somebody else's.
fn are_certified(place: &Place, hosts: &[String]) -> Result<(), Failure> {
    let certified = place.authority()?.standings()?;
    for host in hosts {
        let name = host.to_ascii_lowercase();
        if !certified.iter().any(|one| one.subject.is_host() && one.subject.is_called(&name)) {
            eprintln!("gambeson: note: this site's authority has certified no host {host}; `gambeson enroll` does");
        }
    }
    Ok(())
}

impl Create {
    fn execute(&self) -> Result<(), Failure> {
        are_certified(&self.place, &self.hosts)?;
        registry(&self.place)?.create(&self.name, &self.hosts)?;
        println!("{} is there, in epoch 1, with {} members", self.name, self.hosts.len());
        Ok(())
    }
}

impl Add {
    fn execute(&self) -> Result<(), Failure> {
        if self.site.is_none() {
            are_certified(&self.place, &self.hosts)?;
        }
        registry(&self.place)?.add(&self.name, &self.hosts, self.site.as_deref())?;
        println!("{}: members of {} from now on", self.hosts.join(", "), self.name);
        Ok(())
    }
}

impl Remove {
    fn execute(&self) -> Result<(), Failure> {
        let epoch = registry(&self.place)?.remove(&self.name, &self.hosts, !self.no_rotate)?;
        let hosts = self.hosts.join(", ");
        match epoch {
            Some(epoch) => println!(
                "{hosts}: no longer members of {}, which is in epoch {epoch}; jobs that run go on in theirs",
                self.name
            ),
            None => println!(
                "{hosts}: no longer members of {}; they know the secret of the epoch that it is in until \
                 `gambeson partition rotate {}`",
                self.name, self.name
            ),
        }
        Ok(())
    }
}

impl Named {
    fn execute(&self) -> Result<(), Failure> {
        let epoch = registry(&self.place)?.rotate(&self.name)?;
        println!("{} is in epoch {epoch}; jobs that run go on in theirs", self.name);
        Ok(())
    }
}

impl List {
    fn execute(&self) -> Result<(), Failure> {
        let listed = registry(&self.place)?.list()?;
        let folder = self.place.of(Kind::Host);
        let (key, site) = (Member::read(&folder, Kind::Host)?.identity.key_hash(), Site::read(&folder)?);
        if self.json {
            let partitions = listed.iter().map(|one| {
                let members = one.members.iter().map(|(host, site)| json!({ "host": host, "site": site }));
                let sites = one.sites.iter().map(|(site, key)| json!({ "site": site, "key": key }));
                json!({ "name": one.name, "epoch": one.epoch.map(|(epoch, _)| epoch),
                        "began": one.epoch.map(|(_, began)| date(began)),
                        "members": members.collect::<Vec<_>>(), "sites": sites.collect::<Vec<_>>(),
                        "from": one.source })
            });
            let report = json!({ "site": site.name, "address": site.authority, "key": key.to_string(),
                                 "partitions": partitions.collect::<Vec<_>>() });
            println!("{report:#}");
            return Ok(());
        }
        listed.iter().for_each(print);
        println!("other sites know {} by the key {key}, at {}", site.name, site.authority);
        Ok(())
    }
}

fn print(one: &Listed) {
    match (&one.epoch, &one.source) {
        (Some((epoch, began)), _) => println!("{}  epoch {epoch} since {}", one.name, date(*began)),
        (None, source) => println!("{}  from {}", one.name, source.as_deref().unwrap_or("nowhere")),
    }
    for (host, site) in &one.members {
        println!("  {host}{}", site.as_ref().map(|site| format!("  of {site}")).unwrap_or_default());
    }
    for (site, key) in &one.sites {
        println!("  shared with {site}, by the key {key}");
    }
}

impl Share {
    fn execute(&self) -> Result<(), Failure> {
        let registry = registry(&self.place)?;
        let folder = self.place.of(Kind::Host);
        let (key, site) = (Member::read(&folder, Kind::Host)?.identity.key_hash(), Site::read(&folder)?);
        let certified = self.place.authority()?.standings()?;
        if certified.iter().any(|one| one.key.eq_ignore_ascii_case(&self.key)) {
            return Err(Failure::usage(
                "that is the key of a host or a person of this site; a partner site's is needed",
            ));
        }
        registry.share(&self.name, &self.with, &self.key)?;
        println!("{} is shared with {}", self.name, self.with);
        println!("there      gambeson partition follow {} --from {} --key {key}", self.name, site.authority);
        println!("here       gambeson partition add {} HOST --site {}", self.name, self.with);
        Ok(())
    }
}

impl Unshare {
    fn execute(&self) -> Result<(), Failure> {
        let epoch = registry(&self.place)?.unshare(&self.name, &self.with)?;
        println!("{} is shared with {} no longer, and in epoch {epoch}", self.name, self.with);
        Ok(())
    }
}

impl Follow {
    fn execute(&self) -> Result<(), Failure> {
        let source = Source { address: self.from.clone(), key: self.key.clone() };
        registry(&self.place)?.follow(&self.name, source)?;
        println!(
            "{} is followed: hosts of this site have it from {}, once they are members there",
            self.name, self.from
        );
        Ok(())
    }
}
