//! `gambeson partition`: hosts that share a secret which no other host gets.

use std::process::ExitCode;

use clap::{Args, Subcommand};
use gambeson_keyd::client::{Client, Partitions};
use gambeson_launch::authority::{Kind, Member, Site};
use gambeson_launch::partitions::{Change, Folder, Listed, Source, list};
use gambeson_launch::requester::Requester;
use gambeson_proto::directory::date;
use serde_json::json;

use crate::commands::counted;
use crate::commands::site::Place;
use crate::failure::{Failure, STATUSES};
use crate::keys;
use crate::machine;

/// Makes partitions: hosts whose jobs no other host can take part in
///
///   gambeson partition create clinic h1 h2     on the authority's host, or where a key service is named
///   gambeson run --partition clinic -- mpiexec ...
///
/// A partition has members, hosts by the names that the site's authority certified, and a secret,
/// which each member's daemon has from the site's key service if site.toml names one, and else from
/// the daemon of the authority's host. A job in it gets a key of its own on each host from the daemon
/// there; on a host that is no member there is none.
///
/// Where the site has a key service its keyd.toml says who may do this: partitions = ["user:olga"].
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
    Move(Move),
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
/// The key services of both sites speak to each other, or the daemons of their authorities' hosts, and
/// know each other by their keys alone: neither site accepts the other's certificates for anything
/// else. Then `gambeson partition add NAME HOST --site SITE` says which hosts they are. If another
/// host there has the partitions from now on, give its key in the same way.
#[derive(Args)]
#[command(verbatim_doc_comment, after_long_help = STATUSES)]
struct Share {
    /// The partition
    name: String,
    /// What to call the other site here
    #[arg(long, value_name = "SITE")]
    with: String,
    /// The key of its key service's or its authority's host, as `gambeson partition list` prints it there
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
///
/// Done again it says where the partition is to be had from now on.
#[derive(Args)]
#[command(after_long_help = STATUSES)]
struct Follow {
    /// The partition, as it is called there
    name: String,
    /// The key service there, or the daemon of the authority's host
    #[arg(long, value_name = "HOST:PORT")]
    from: String,
    /// That host's key, as `gambeson partition list` prints it there
    #[arg(long, value_name = "KEY")]
    key: String,
    #[command(flatten)]
    place: Place,
}

/// Moves the partitions from the files of this host to the site's key service
///
/// On the authority's host, once site.toml there names the service. Their secrets and epochs stay, and
/// jobs go on. The files are removed when the service has written all of it down.
#[derive(Args)]
#[command(verbatim_doc_comment, after_long_help = STATUSES)]
struct Move {
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
        Action::Move(moves) => moves.execute()?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Where the site has its partitions.
enum Kept {
    /// In files of this host, the authority's.
    Folder(Folder),
    /// In its key service.
    Service(Client),
}

impl Kept {
    fn of(place: &Place) -> Result<Self, Failure> {
        let folder = Folder::of(&place.of(Kind::Host));
        let Some(client) = service(place)? else {
            place.authority()?;
            return Ok(Kept::Folder(folder));
        };
        if !folder.is_empty()? {
            return Err(Failure::refused(format!(
                "the site has its partitions in the key service {}, and there are others in files of this host; \
                 `gambeson partition move` takes them there",
                client.place()
            )));
        }
        Ok(Kept::Service(client))
    }

    fn change(&self, name: &str, change: Change) -> Result<Option<u32>, Failure> {
        Ok(match self {
            Kept::Folder(folder) => folder.change(name, &change)?,
            Kept::Service(client) => client.change_partition(name, change)?,
        })
    }

    /// A new epoch's number.
    fn begin(&self, name: &str, change: Change) -> Result<u32, Failure> {
        self.change(name, change)?.ok_or_else(|| Failure::refused("the key service says nothing of an epoch"))
    }

    /// All of them, and how other sites know who distributes them.
    fn partitions(&self, place: &Place) -> Result<Partitions, Failure> {
        match self {
            Kept::Folder(folder) => {
                let host = place.of(Kind::Host);
                let key = Member::read(&host, Kind::Host)?.identity.key_hash().to_string();
                Ok(Partitions { partitions: list(folder)?, address: Site::read(&host)?.authority, key })
            }
            Kept::Service(client) => Ok(client.partitions()?),
        }
    }
}

/// The site's files: those of this host's folder, or of who runs this.
fn site(place: &Place) -> Result<Site, Failure> {
    let of_host = Site::read(&place.of(Kind::Host));
    if place.given().is_some() || of_host.as_ref().is_ok_and(|site| site.keys.is_some()) {
        return Ok(of_host?);
    }
    let of_all = Site::read(gambeson_site::directory::FOLDER.as_ref()).ok().filter(|site| site.keys.is_some());
    Ok(of_all.map_or(of_host, Ok)?)
}

/// The key service that the site names.
fn service(place: &Place) -> Result<Option<Client>, Failure> {
    let named = site(place)?.key_services()?;
    Ok(named.map(|named| keys::client(&named)).transpose()?)
}

/// A name with a slip in it would be nobody's, or one day somebody else's.
fn are_certified(place: &Place, hosts: &[String]) -> Result<(), Failure> {
    let Ok(authority) = place.authority() else {
        are_listed(hosts);
        return Ok(());
    };
    let certified = authority.standings()?;
    for host in hosts {
        let name = host.to_ascii_lowercase();
        if !certified.iter().any(|one| one.subject.is_host() && one.subject.is_called(&name)) {
            eprintln!("gambeson: note: this site's authority has certified no host {host}; `gambeson enroll` does");
        }
    }
    Ok(())
}

/// The same from elsewhere, where the authority says one name of each host; if it does not answer nothing is said.
fn are_listed(hosts: &[String]) {
    let Ok(listed) = Requester::new(&keys::identity()).and_then(|requester| requester.hosts()) else { return };
    for host in hosts.iter().filter(|host| !listed.iter().any(|name| name.eq_ignore_ascii_case(host))) {
        eprintln!(
            "gambeson: note: this site's authority lists no host {host} (`gambeson hosts`); if that is no other name of one, \
             `gambeson enroll` certifies it"
        );
    }
}

impl Create {
    fn execute(&self) -> Result<(), Failure> {
        are_certified(&self.place, &self.hosts)?;
        Kept::of(&self.place)?.change(&self.name, Change::Create { hosts: self.hosts.clone() })?;
        let members = counted(self.hosts.len() as u64, "member", "members");
        println!("{} is there, in epoch 1, with {members}", self.name);
        Ok(())
    }
}

impl Add {
    fn execute(&self) -> Result<(), Failure> {
        if self.site.is_none() {
            are_certified(&self.place, &self.hosts)?;
        }
        let (hosts, site) = (self.hosts.clone(), self.site.clone());
        Kept::of(&self.place)?.change(&self.name, Change::Add { hosts, site })?;
        println!("{}: members of {} from now on", self.hosts.join(", "), self.name);
        Ok(())
    }
}

impl Remove {
    fn execute(&self) -> Result<(), Failure> {
        let change = Change::Remove { hosts: self.hosts.clone(), rotates: !self.no_rotate };
        let epoch = Kept::of(&self.place)?.change(&self.name, change)?;
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
        let epoch = Kept::of(&self.place)?.begin(&self.name, Change::Rotate)?;
        println!("{} is in epoch {epoch}; jobs that run go on in theirs", self.name);
        Ok(())
    }
}

impl List {
    fn execute(&self) -> Result<(), Failure> {
        let kept = Kept::of(&self.place)?;
        let Partitions { partitions: listed, address, key } = kept.partitions(&self.place)?;
        let site = site(&self.place)?;
        if self.json {
            let partitions = listed.iter().map(|one| {
                let members = one.members.iter().map(|(host, site)| json!({ "host": host, "site": site }));
                let sites = one.sites.iter().map(|(site, key)| json!({ "site": site, "key": key }));
                json!({ "name": one.name, "epoch": one.epoch.map(|(epoch, _)| epoch),
                        "began": one.epoch.map(|(_, began)| date(began)),
                        "members": members.collect::<Vec<_>>(), "sites": sites.collect::<Vec<_>>(),
                        "from": one.source })
            });
            let report = json!({ "site": site.name, "address": address, "key": key,
                                 "partitions": partitions.collect::<Vec<_>>() });
            println!("{report:#}");
            return Ok(());
        }
        listed.iter().for_each(print);
        println!("other sites know {} by the key {key}, at {address}", site.name);
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
        let kept = Kept::of(&self.place)?;
        let certified = self.place.authority().map_or_else(|_| Ok(Vec::new()), |authority| authority.standings())?;
        if certified.iter().any(|one| one.key.eq_ignore_ascii_case(&self.key)) {
            return Err(Failure::usage(
                "that is the key of a host or a person of this site; a partner site's is needed",
            ));
        }
        kept.change(&self.name, Change::Share { site: self.with.clone(), key: self.key.clone() })?;
        let Partitions { address, key, .. } = kept.partitions(&self.place)?;
        println!("{} is shared with {}", self.name, self.with);
        println!("there      gambeson partition follow {} --from {address} --key {key}", self.name);
        println!("here       gambeson partition add {} HOST --site {}", self.name, self.with);
        Ok(())
    }
}

impl Unshare {
    fn execute(&self) -> Result<(), Failure> {
        let epoch = Kept::of(&self.place)?.begin(&self.name, Change::Unshare { site: self.with.clone() })?;
        println!("{} is shared with {} no longer, and in epoch {epoch}", self.name, self.with);
        Ok(())
    }
}

impl Follow {
    fn execute(&self) -> Result<(), Failure> {
        let source = Source { address: self.from.clone(), key: self.key.clone() };
        Kept::of(&self.place)?.change(&self.name, Change::Follow { source })?;
        println!(
            "{} is followed: hosts of this site have it from {}, once they are members there",
            self.name, self.from
        );
        Ok(())
    }
}

impl Move {
    fn execute(&self) -> Result<(), Failure> {
        self.place.authority()?;
        let folder = self.place.of(Kind::Host);
        let client = service(&self.place)?.ok_or_else(|| {
            Failure::unavailable(format!(
                "{} names no key service; write keys = \"keyd://HOST\" there first",
                folder.join("site.toml").display()
            ))
        })?;
        // Who does not answer, or does not let this one, is not asked to take anything.
        client.partitions()?;
        let count = Folder::of(&folder).hand_over(|records| client.take_partitions(records))?;
        if count == 0 {
            println!("no partitions are in files of this host");
            return Ok(());
        }
        println!(
            "{} in the key service {}, as they were, and no longer in files here",
            counted(count as u64, "partition is", "partitions are"),
            client.place()
        );
        let Partitions { partitions, address, key } = client.partitions()?;
        for one in partitions {
            for (site, _) in &one.sites {
                println!("at {site}  gambeson partition follow {} --from {address} --key {key}", one.name);
            }
            if let Some(from) = &one.source {
                println!("at {from}  gambeson partition share {} --with THIS-SITE --key {key}", one.name);
            }
        }
        Ok(())
    }
}
