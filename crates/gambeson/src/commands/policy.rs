//! `gambeson policy check HOST...`: what applies to every pair of hosts, and by which rule.

use std::net::{IpAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Subcommand};
use gambeson_proto::directory::Directory;
use gambeson_proto::policy::{FileRule, Place, Policy};
use gambeson_site::directory::{self, FOLDER};
use gambeson_site::policy::decide_file;
use serde_json::json;

use crate::failure::{Failure, STATUSES};
use crate::policy_files::{self, Loaded};

/// Explains the policy
#[derive(Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    Check(Check),
}

/// Says for every pair of hosts what applies and by which rule
///
/// The policy is made of /etc/gambeson/gambeson.toml, which nothing can weaken, and of the file
/// that --policy names or else of ./gambeson.toml, which can only strengthen. A policy knows these
/// words, all optional:
///
///   protection = "privacy" | "integrity" | "none"   for pairs that no rule matches
///   suite = "aes-256-gcm" | "aes-128-gcm"
///   gap_timeout = "30 s"
///   intra_host = "mpi" | "sealed"
///   [[partition]]   name, hosts = [...], epoch = 1, secret_file = "..."   32 bytes or 64 hex digits, mode 0600
///                   or name alone: the site's (`gambeson partition`), which all hosts of a job have to be in
///   [[file]]        pattern = "*.h5", label = "clinical" | "none", suite = "xaes-256-gcm" | "aes-256-gcm-siv", block = "64 KiB"
///   [[rule]]        between = [SIDE, SIDE], class = "...", protection = "..."   the first that matches holds
///                   or communicator = "..." in place of class
///
/// A SIDE is a host, a subnet such as 10.77.0.0/24, "partition:NAME" or "*". A rule with a class speaks of links of that
/// class alone, one without of messages and of all links. Links of class "control" have integrity at least. A rule with a
/// communicator ("*": any) says how little messages on communicators of that name may have if they ask for it by the info
/// key gambeson_protection; without one they can only ask for more than other messages have.
/// A pattern without a slash is matched against names in any folder, one with a slash against whole paths; `*` and `?` stay
/// within a name, `**` does not. Files that MPI programs make and that match are sealed under the label; label "none" and
/// files that no rule matches are in clear.
/// With --class, the networks of the site directory under /etc/gambeson count as well.
#[derive(Args)]
#[command(verbatim_doc_comment, after_long_help = STATUSES)]
struct Check {
    /// The policy to check
    #[arg(long, value_name = "FILE")]
    policy: Option<PathBuf>,
    /// What applies to links of this class, instead of to messages
    #[arg(long, value_name = "CLASS")]
    class: Option<String>,
    /// The least that messages may have on communicators of this name that ask for a protection of their own
    #[arg(long, value_name = "NAME", conflicts_with = "class")]
    communicator: Option<String>,
    /// What applies to a file that an MPI program makes there
    #[arg(long = "file", value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// A host, and its address if the system cannot look it up
    #[arg(required_unless_present = "paths", value_name = "HOST[=ADDRESS]")]
    hosts: Vec<String>,
}

pub(crate) fn execute(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let Action::Check(check) = &arguments.action;
    let loaded = policy_files::load(check.policy.as_deref())?;
    let places = check.hosts.iter().map(|host| place(host)).collect::<Result<Vec<_>, _>>()?;
    let asked = match (&check.class, &check.communicator) {
        (Some(class), _) => Asked::Links(class),
        (None, Some(name)) => Asked::Communicators(name),
        (None, None) => Asked::Messages,
    };
    let site = check.class.as_ref().map(|_| directory::look(Path::new(FOLDER))).transpose();
    let site = site.map_err(|error| Failure::refused(error.to_string()))?.flatten();
    let pairs = pairs(&loaded.resolution.policy, asked, site.as_ref(), &places);
    let files = files(&loaded.resolution.policy, &check.paths)?;
    if check.json {
        print_json(&loaded, check, &pairs, &files);
    } else {
        print_text(&loaded, asked, &pairs, &files);
    }
    Ok(ExitCode::SUCCESS)
}

fn place(text: &str) -> Result<(String, IpAddr), Failure> {
    let (host, address) = match text.split_once('=') {
        Some((host, address)) => {
            let address = address.parse().map_err(|_| {
                Failure::usage(format!(
                    "\"{address}\" in \"{text}\" is no address; write {host}=10.77.0.1 or {host}=fd00::1"
                ))
            })?;
            (host, address)
        }
        None => (text, look_up(text)?),
    };
    Ok((host.to_owned(), address))
}

fn look_up(host: &str) -> Result<IpAddr, Failure> {
    let found = (host, 0).to_socket_addrs().ok().and_then(|mut addresses| addresses.next());
    found.map(|address| address.ip()).ok_or_else(|| {
        Failure::usage(format!(
            "no address of \"{host}\" is known here, so rules about subnets cannot be judged; write {host}=ADDRESS"
        ))
    })
}

/// What holds for a file.
struct Filed<'p> {
    path: PathBuf,
    rule: Option<&'p FileRule>,
}

fn files<'p>(policy: &'p Policy, paths: &[PathBuf]) -> Result<Vec<Filed<'p>>, Failure> {
    let file = |path: &PathBuf| {
        let path = std::path::absolute(path).map_err(|error| Failure::usage(format!("{}: {error}", path.display())))?;
        let rule = decide_file(policy, &path);
        Ok(Filed { path, rule })
    };
    paths.iter().map(file).collect()
}

/// A rule about files, in words.
fn sealed(rule: Option<&FileRule>) -> String {
    match rule {
        None => "in clear: no rule matches".to_owned(),
        Some(FileRule { pattern, label: None, .. }) => format!("in clear, by pattern \"{pattern}\""),
        Some(FileRule { pattern, label: Some(label), suite, block_len, two_slots, detached }) => {
            let kept = match (two_slots, detached) {
                (true, _) => ", two slots each",
                (_, true) => ", detached",
                _ => "",
            };
            let blocks = block_len >> 10;
            format!("sealed under \"{label}\" by pattern \"{pattern}\": {suite}, blocks of {blocks} KiB{kept}")
        }
    }
}

/// What the check is about.
#[derive(Clone, Copy)]
enum Asked<'c> {
    Messages,
    Links(&'c str),
    Communicators(&'c str),
}

/// What holds between two hosts, in words.
struct Pair {
    hosts: [String; 2],
    protection: &'static str,
    partition: Option<String>,
    why: String,
}

fn pairs(policy: &Policy, asked: Asked<'_>, site: Option<&Directory>, places: &[(String, IpAddr)]) -> Vec<Pair> {
    let mut pairs = Vec::new();
    for (number, one) in places.iter().enumerate() {
        for other in &places[number..] {
            if places.len() > 1 && std::ptr::eq(one, other) {
                continue;
            }
            pairs.push(pair(policy, asked, site, one, other));
        }
    }
    pairs
}

fn pair(
    policy: &Policy,
    asked: Asked<'_>,
    site: Option<&Directory>,
    one: &(String, IpAddr),
    other: &(String, IpAddr),
) -> Pair {
    let place = |(host, address): &(String, IpAddr)| Place { host: policy.host_index(host), address: Some(*address) };
    let decision = match asked {
        Asked::Links(class) => policy.decide_link(class, place(one), place(other)),
        Asked::Communicators(name) => policy.decide_communicator(Some(name), place(one), place(other)),
        Asked::Messages => policy.decide(place(one), place(other)),
    };
    let ends = [one, other].map(|(host, address)| (host.as_str(), Some(*address)));
    let network = site.and_then(|site| site.floor(ends)).filter(|network| network.protection < decision.protection);
    Pair {
        hosts: [one.0.clone(), other.0.clone()],
        protection: network.map_or(decision.protection, |network| network.protection).name(),
        partition: decision.partition.map(|partition| policy.partitions()[partition].name().to_owned()),
        why: match network {
            Some(network) => format!("the site directory's network {}", network.subnet()),
            None => policy.why(&decision),
        },
    }
}

fn print_text(loaded: &Loaded, asked: Asked<'_>, pairs: &[Pair], filed: &[Filed]) {
    let policy = &loaded.resolution.policy;
    let files: Vec<_> = loaded.files.iter().map(|file| file.display().to_string()).collect();
    println!(
        "policy       {}",
        if files.is_empty() { "none written: the defaults".to_owned() } else { files.join(", then ") }
    );
    println!("suite        {}", policy.suite());
    println!("gap timeout  {:?}", policy.gap_timeout());
    println!("inside hosts {}", policy.intra_host().name());
    if !policy.classes().is_empty() {
        println!("classes      {}", policy.classes().join(", "));
    }
    if !policy.communicators().is_empty() {
        println!("communicators {}", policy.communicators().join(", "));
    }
    for note in &loaded.resolution.notes {
        println!("note         {note}");
    }
    for rule in policy.file_rules() {
        println!("files        {}", sealed(Some(rule)));
    }
    if !pairs.is_empty() {
        let what = match asked {
            Asked::Messages => "messages".to_owned(),
            Asked::Links(class) => format!("links of class {class}"),
            Asked::Communicators(name) => format!("communicators called {name} that ask for this little"),
        };
        println!("for          {what}");
    }
    let width = pairs.iter().flat_map(|pair| &pair.hosts).map(String::len).max().unwrap_or(0);
    println!();
    for Pair { hosts: [one, other], protection, partition, why } in pairs {
        let partition =
            partition.as_ref().map_or_else(String::new, |name| format!(", with the key of partition {name}"));
        println!("{one:width$}  {other:width$}  {protection:9}  by {why}{partition}");
    }
    for Filed { path, rule } in filed {
        println!("{}  {}", path.display(), sealed(*rule));
    }
}

fn print_json(loaded: &Loaded, check: &Check, pairs: &[Pair], filed: &[Filed]) {
    let policy = &loaded.resolution.policy;
    let pairs: Vec<_> = pairs
        .iter()
        .map(|pair| json!({"hosts": pair.hosts, "protection": pair.protection, "partition": pair.partition, "rule": pair.why}))
        .collect();
    let describe = |rule: &FileRule| {
        json!({
            "pattern": rule.pattern,
            "label": rule.label,
            "suite": rule.suite.name(),
            "block_bytes": rule.block_len,
            "slots": 1 + u8::from(rule.two_slots),
            "detached": rule.detached,
        })
    };
    let file_rules: Vec<_> = policy.file_rules().map(describe).collect();
    let sealed: Vec<_> = filed.iter().map(|file| json!({"path": file.path, "rule": file.rule.map(describe)})).collect();
    let hash: String = policy.hash().iter().map(|byte| format!("{byte:02x}")).collect();
    let report = json!({
        "files": loaded.files,
        "hash": hash,
        "suite": policy.suite().name(),
        "gap_timeout_ms": u64::try_from(policy.gap_timeout().as_millis()).expect("at most an hour"),
        "intra_host": policy.intra_host().name(),
        "classes": policy.classes(),
        "communicators": policy.communicators(),
        "notes": loaded.resolution.notes,
        "class": check.class,
        "communicator": check.communicator,
        "pairs": pairs,
        "file_rules": file_rules,
        "sealed_files": sealed,
    });
    println!("{report:#}");
}
