//! `gambeson proxy keygen|serve|connect`: encrypting proxies in front of a TCP service.

use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, ToSocketAddrs};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::thread;

use clap::{Args, Subcommand};
use gambeson_link::{Attributes, Config, Domain, Error, KeyHash, Trust};
use serde_json::json;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::failure::{Failure, STATUSES};
use crate::machine;
use crate::policy_files;
use crate::proxy::far::Service;
use crate::proxy::near::{self, Near, Way};
use crate::proxy::{CHUNK, CLASS, allow_connections, identity, say};

/// Puts a pair of encrypting proxies in front of a TCP service
///
/// One stands beside the service, one beside its clients. What goes between them is sealed, and
/// both have proved who they are; the service and its clients stay as they are. PostgreSQL, say:
///
///   gambeson proxy keygen far.pem           on the database's host; prints its key, FAR
///   gambeson proxy keygen near.pem          on the clients' host; prints its key, NEAR
///
///   gambeson proxy serve --identity far.pem --listen 0.0.0.0:7000 --service 127.0.0.1:5432 \
///     --accept NEAR=laptop
///   gambeson proxy connect --identity near.pem --listen 127.0.0.1:5432 --to db.example:7000 \
///     --expect FAR
///
///   psql -h 127.0.0.1                       on the clients' host
#[derive(Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    Keygen(Keygen),
    Serve(Serve),
    Connect(Connect),
}

/// Makes the identity of one end, and prints the hash of its key, by which the other end knows it
///
/// FILE holds the private key and a certificate, both in PEM, and only you can read it. The hash is
/// no secret; what matters is that the other end gets this one and no other.
#[derive(Args)]
#[command(after_long_help = STATUSES)]
struct Keygen {
    /// Where to put it
    file: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// The far end: stands beside the service, and connects to it for those it accepts
///
/// It ends at SIGINT, SIGTERM or SIGHUP; connections end with it.
#[derive(Args)]
#[command(after_long_help = STATUSES)]
struct Serve {
    #[command(flatten)]
    common: Common,
    /// Where the near ends connect to; port 0 takes a free one
    #[arg(long, value_name = "ADDRESS:PORT", required_unless_present = "via")]
    listen: Option<SocketAddr>,
    /// A `gambeson relay` to wait at for near ends, if this host cannot be connected to; everything is sealed then
    #[arg(long, value_name = "HOST:PORT", value_parser = host_and_port)]
    via: Option<String>,
    /// The service: what goes there leaves this process in clear
    #[arg(long, value_name = "HOST:PORT", value_parser = host_and_port)]
    service: String,
    /// The key of a near end that may come, and what to call it; once for each
    #[arg(long, value_name = "KEY[=NAME]", required = true, value_parser = Accepted::parse)]
    accept: Vec<Accepted>,
}

/// The near end: stands beside the clients, and takes their connections to the far end
///
/// It starts without the far end, too: whoever connects before that is there waits ten seconds for
/// it. It ends at SIGINT, SIGTERM or SIGHUP; connections end with it.
#[derive(Args)]
#[command(after_long_help = STATUSES)]
struct Connect {
    #[command(flatten)]
    common: Common,
    /// Where clients connect to: a port of this host's loopback, or ADDRESS:PORT
    #[arg(long, value_name = "[ADDRESS:]PORT", value_parser = loopback)]
    listen: SocketAddr,
    /// Let other hosts connect to --listen: whoever can then uses the service as this end
    #[arg(long)]
    allow_other_hosts: bool,
    /// Where the far end listens
    #[arg(long, value_name = "HOST:PORT", value_parser = host_and_port, required_unless_present = "via")]
    to: Option<String>,
    /// The `gambeson relay` at which the far end waits, instead; everything is sealed then
    #[arg(long, value_name = "HOST:PORT", value_parser = host_and_port, conflicts_with = "to")]
    via: Option<String>,
    /// The key of the far end
    #[arg(long, value_name = "KEY", value_parser = key)]
    expect: KeyHash,
}

#[derive(Args)]
struct Common {
    /// The identity of this end, which `gambeson proxy keygen` makes
    #[arg(long, value_name = "FILE")]
    identity: PathBuf,
    /// A policy; links of class "proxy" are protected as it says, and sealed if it says nothing
    #[arg(long, value_name = "FILE")]
    policy: Option<PathBuf>,
    /// So many connections at a time
    #[arg(long, value_name = "N", default_value_t = 500, value_parser = clap::value_parser!(u16).range(1..))]
    connections: u16,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Who may come.
#[derive(Clone)]
pub(crate) struct Accepted {
    pub(crate) key: KeyHash,
    pub(crate) name: String,
}

impl Accepted {
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let (digits, name) = text.split_once('=').map_or((text, None), |(digits, name)| (digits, Some(name)));
        let key = key(digits)?;
        let name = name.unwrap_or(&digits[..8]);
        if name.is_empty() || name.chars().any(char::is_control) {
            return Err("the name behind = is empty, or has control characters".into());
        }
        Ok(Accepted { key, name: name.into() })
    }
}

fn key(text: &str) -> Result<KeyHash, String> {
    KeyHash::parse(text).ok_or_else(|| "a key is 64 hexadecimal digits, as `gambeson proxy keygen` prints them".into())
}

fn host_and_port(text: &str) -> Result<String, String> {
    let port = text.rsplit_once(':').filter(|(host, _)| !host.is_empty()).and_then(|(_, port)| port.parse().ok());
    match port {
        Some(1_u16..) => Ok(text.into()),
        _ => Err("give a host or an address and a port, such as db.example:5432 or [::1]:5432".into()),
    }
}

fn loopback(text: &str) -> Result<SocketAddr, String> {
    if let Ok(port) = text.parse() {
        return Ok((Ipv4Addr::LOCALHOST, port).into());
    }
    text.parse().map_err(|_| "give a port, or an address and a port, such as 5432 or 127.0.0.1:5432".into())
}

pub(crate) fn execute(arguments: &Arguments) -> Result<ExitCode, Failure> {
    // A key and what is to be sealed pass through this process: no other may look into it, and no core file hold them.
    machine::close_to_others()?;
    match &arguments.action {
        Action::Keygen(keygen) => keygen.execute()?,
        Action::Serve(serve) => serve.execute()?,
        Action::Connect(connect) => connect.execute()?,
    }
    Ok(ExitCode::SUCCESS)
}

impl Keygen {
    fn execute(&self) -> Result<(), Failure> {
        let key = identity::make(&self.file)?;
        if self.json {
            println!("{}", json!({ "file": self.file, "key": key.to_string() }));
        } else {
            println!("{key}");
        }
        Ok(())
    }
}

impl Common {
    fn config(&self, trust: Trust) -> Result<Config, Failure> {
        let mut config = Config::new(identity::read(&self.identity)?, trust);
        config.policy = policy_files::load(self.policy.as_deref())?.resolution.policy;
        config.site().map_err(|cause| refused(&cause))?;
        // Bytes go where the command line says, and not beside it.
        config.shm = false;
        allow_connections();
        Ok(config)
    }

    /// Says where it listens, for people and for scripts that wait for it.
    fn ready(&self, listening: Option<SocketAddr>, via: Option<&str>, key: KeyHash, so: &str) {
        let listening = listening.map(|address| address.to_string());
        if self.json {
            println!("{}", json!({ "listening": listening, "via": via, "key": key.to_string() }));
        } else {
            let place = listening.unwrap_or_else(|| "this end".into());
            println!("{place} {so}; this end's key is {key}");
        }
        // Nobody has to read it.
        let _ = std::io::stdout().flush();
    }
}

fn refused(cause: &Error) -> Failure {
    Failure::refused(cause.to_string())
}

fn open(config: Config) -> Result<Domain, Failure> {
    Domain::open(config).map_err(|cause| match cause {
        Error::System { .. } => Failure::system(cause.to_string()),
        cause => refused(&cause),
    })
}

/// Waits until this process is to end. Until then its own signals do nothing else.
pub(crate) fn until_signalled() -> Result<Signals, Failure> {
    Signals::new([SIGINT, SIGTERM, SIGHUP])
        .map_err(|cause| Failure::system(format!("no signal can be awaited ({cause})")))
}

impl Serve {
    fn execute(&self) -> Result<(), Failure> {
        let mut trust = Trust::default();
        for Accepted { key, name } in &self.accept {
            trust = trust.pinned(*key, name, &[CLASS]);
        }
        let mut signals = until_signalled()?;
        let mut config = self.common.config(trust)?;
        config.listen.extend(self.listen);
        config.relays.extend(self.via.clone());
        let domain = open(config)?;
        let service = Service::new(&self.service, self.common.connections.into());
        let endpoint = domain.endpoint(Attributes::default().class(CLASS).message_max(CHUNK), service.handlers());
        let endpoint = endpoint.map_err(|cause| refused(&cause))?;
        endpoint.publish(CLASS, &[CLASS], []).map_err(|cause| refused(&cause))?;
        if !is_of_this_host(&self.service) {
            say(format_args!("{} is not on this host: what goes there from here is in clear", self.service));
        }
        let at = self.via.as_ref().map_or(String::new(), |relay| format!(" (waiting at the relay {relay}, too)"));
        let so = format!("takes links, whose connections go to {}{at}", self.service);
        self.common.ready(domain.listening().first().copied(), self.via.as_deref(), domain.key_hash(), &so);
        signals.forever().next();
        Ok(())
    }
}

/// Whether an address is this host's loopback; of a name that leads nowhere yet, nothing is said.
fn is_of_this_host(address: &str) -> bool {
    address.to_socket_addrs().is_ok_and(|mut addresses| addresses.all(|address| address.ip().is_loopback()))
}

impl Connect {
    fn execute(&self) -> Result<(), Failure> {
        let Self { common, listen, .. } = self;
        let way = match (&self.to, &self.via) {
            (_, Some(relay)) => Way::Via(relay.clone()),
            (Some(to), None) => Way::To(to.clone()),
            (None, None) => return Err(Failure::usage("say where the far end is: --to, or --via")),
        };
        let far = way.to_string();
        if !self.allow_other_hosts && !listen.ip().is_loopback() {
            return Err(Failure::usage(format!(
                "other hosts could connect to {listen}, and would use the service as this end, whoever they are, and in clear; \
                 listen on {}, or say --allow-other-hosts",
                SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), listen.port())
            )));
        }
        let mut signals = until_signalled()?;
        let domain = open(common.config(Trust::default().pinned(self.expect, "the far end", &[]))?)?;
        let key = domain.key_hash();
        let no_place =
            |cause| Failure::system(format!("{listen} cannot be listened on ({cause}); name another --listen"));
        let listener = TcpListener::bind(listen).map_err(no_place)?;
        let listening = listener.local_addr().map_err(no_place)?;
        let near = Near::new(domain, way, self.expect);
        match near.link() {
            Ok(_) => {}
            Err(cause @ (Error::Lost(_) | Error::TimedOut(_) | Error::System { .. })) => {
                say(format_args!("the far end is not there yet: {cause}; each connection looks for it again"));
            }
            Err(cause) => return Err(Failure::refused(format!("{far} is not used: {cause}"))),
        }
        if !listening.ip().is_loopback() {
            say(format_args!(
                "other hosts can connect to {listening}, and use the service as this end, in clear up to here"
            ));
        }
        let so = format!("takes connections, which go over links to {far}");
        common.ready(Some(listening), self.via.as_deref(), key, &so);
        let (way, most) = (Arc::downgrade(&near), common.connections.into());
        let accepts = thread::Builder::new().spawn(move || near::accept(&way, &listener, most));
        accepts.map_err(|cause| Failure::system(format!("no thread can be started ({cause})")))?;
        signals.forever().next();
        drop(near);
        Ok(())
    }
}
