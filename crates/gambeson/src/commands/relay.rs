//! `gambeson relay`: lets those be reached who can only connect outward.

use std::io::Write;
use std::net::{SocketAddr, TcpListener};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use serde_json::json;

use super::proxy::{Accepted, until_signalled};
use crate::failure::{Failure, STATUSES};
use crate::proxy::allow_connections;
use crate::relay::{Bounds, Relay};

/// Lets domains of links be reached that can only connect outward
///
/// Who can listen nowhere keeps connections waiting here under its key; who wants to reach it says
/// that key here, and the two are joined. What they say to each other the relay cannot read: it sees
/// handshakes and sealed records. It connects nowhere itself. A service behind a firewall, say:
///
///   gambeson relay --listen 0.0.0.0:7100 --allow FAR=database            where both sides reach it
///
///   gambeson proxy serve --identity far.pem --via relay.example:7100 --service 127.0.0.1:5432 \
///     --accept NEAR=laptop
///   gambeson proxy connect --identity near.pem --listen 5432 --via relay.example:7100 --expect FAR
///
/// FAR and NEAR are the keys that `gambeson proxy keygen` prints. It ends at SIGINT, SIGTERM or SIGHUP.
#[derive(Args)]
#[command(verbatim_doc_comment, after_long_help = STATUSES)]
pub(crate) struct Arguments {
    /// Where both sides connect to; port 0 takes a free one
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: SocketAddr,
    /// The key of a domain that may wait here to be reached, and what to call it; once for each
    #[arg(long, value_name = "KEY[=NAME]", required = true, value_parser = Accepted::parse)]
    allow: Vec<Accepted>,
    /// So many pairs at a time
    #[arg(long, value_name = "N", default_value_t = 500, value_parser = clap::value_parser!(u16).range(1..))]
    connections: u16,
    /// A pair between which nothing moves for so many seconds is parted; its session then comes again
    #[arg(long, value_name = "SECONDS", default_value_t = 3600, value_parser = clap::value_parser!(u32).range(1..))]
    idle: u32,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn execute(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let Arguments { listen, allow, connections, idle, json } = arguments;
    let mut signals = until_signalled()?;
    let no_place = |cause| Failure::system(format!("{listen} cannot be listened on ({cause}); name another --listen"));
    let listener = TcpListener::bind(listen).map_err(no_place)?;
    let listening = listener.local_addr().map_err(no_place)?;
    allow_connections();
    let relay = Relay::new(Bounds {
        allowed: allow.iter().map(|accepted| accepted.key).collect(),
        connections_max: (*connections).into(),
        idle: Duration::from_secs((*idle).into()),
    });
    if *json {
        println!("{}", json!({ "listening": listening.to_string() }));
    } else {
        let names: Vec<_> = allow.iter().map(|accepted| accepted.name.as_str()).collect();
        println!("{listening} joins who connects to {}", names.join(", "));
    }
    // Nobody has to read it.
    let _ = std::io::stdout().flush();
    let serves = std::thread::Builder::new().spawn(move || relay.serve(&listener));
    serves.map_err(|cause| Failure::system(format!("no thread can be started ({cause})")))?;
    signals.forever().next();
    Ok(ExitCode::SUCCESS)
}
