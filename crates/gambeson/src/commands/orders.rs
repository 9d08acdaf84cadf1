//! `gambeson hosts`, `gambeson ps` and `gambeson kill`: how daemons are, what they run, and an end to it.

use std::path::PathBuf;
use std::process::ExitCode;
use std::thread;

use clap::Args;
use gambeson_launch::authority::user_folder;
use gambeson_launch::requester::Requester;
use gambeson_launch::wire::{Health, Host};
use gambeson_proto::directory::date;
use gambeson_site::directory::now;
use serde_json::json;

use crate::failure::{Failure, STATUSES, Status};
use crate::machine;

/// Shows what runs by the daemons of hosts
///
/// Of each order that is yours: its identifier, the host, how many processes it has there, since
/// when, who ordered it from where, as whom it runs, and what it runs. Who may start something as root on a host sees
/// everybody's.
#[derive(Args)]
#[command(after_long_help = STATUSES)]
pub(crate) struct List {
    /// The hosts, with commas between them: NAME, or NAME=ADDRESS:PORT; this one without any
    #[arg(value_delimiter = ',')]
    hosts: Vec<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Where authority.pem and identity.pem are; ~/.config/gambeson
    #[arg(long, value_name = "FOLDER")]
    folder: Option<PathBuf>,
}

impl List {
    pub(crate) fn execute(&self) -> Result<ExitCode, Failure> {
        let requester = Requester::new(&self.folder.clone().unwrap_or_else(user_folder))?;
        let hosts = if self.hosts.is_empty() { vec![machine::host_name()] } else { self.hosts.clone() };
        let (mut all, mut failure) = (Vec::new(), None);
        for host in hosts.iter().map(|text| Host::parse(text)) {
            match requester.list(&host) {
                Ok(running) => all.extend(running.into_iter().map(|one| (host.name.clone(), one))),
                Err(cause) => {
                    eprintln!("gambeson: {cause}");
                    failure = Some(Failure::from(cause).status);
                }
            }
        }
        if self.json {
            let orders = all.iter().map(|(host, one)| {
                json!({ "order": hex(&one.id), "host": host, "processes": one.processes, "since": date(one.since),
                        "identity": one.identity, "from": one.from, "account": one.account, "programs": one.programs })
            });
            println!("{:#}", json!(orders.collect::<Vec<_>>()));
        } else {
            for (host, one) in &all {
                let (id, since, programs) = (hex(&one.id), date(one.since), one.programs.join(" "));
                let who = format!("{} from {} as {}", one.identity, one.from, one.account);
                println!("{id}  {host}  {} since {since}  {who}  {programs}", one.processes);
            }
        }
        Ok(failure.map_or(ExitCode::SUCCESS, Into::into))
    }
}

/// Ends what a daemon runs: all processes of an order, on the host and on those that it was passed on to
#[derive(Args)]
#[command(after_long_help = STATUSES)]
pub(crate) struct Kill {
    /// The order's identifier, as `gambeson ps` shows it, or the beginning of it
    order: String,
    /// The hosts to look on, with commas between them; this one without any
    #[arg(value_delimiter = ',')]
    hosts: Vec<String>,
    /// Where authority.pem and identity.pem are; ~/.config/gambeson
    #[arg(long, value_name = "FOLDER")]
    folder: Option<PathBuf>,
}

impl Kill {
    pub(crate) fn execute(&self) -> Result<ExitCode, Failure> {
        let requester = Requester::new(&self.folder.clone().unwrap_or_else(user_folder))?;
        let hosts = if self.hosts.is_empty() { vec![machine::host_name()] } else { self.hosts.clone() };
        let mut found = Vec::new();
        for host in hosts.iter().map(|text| Host::parse(text)) {
            let running = requester.list(&host)?;
            found.extend(
                running
                    .into_iter()
                    .filter(|one| hex(&one.id).starts_with(&self.order))
                    .map(|one| (host.clone(), one.id)),
            );
        }
        let Some((_, id)) = found.first() else {
            return Err(Failure::unavailable(format!(
                "no order {} of yours runs on {}; `gambeson ps` shows those that do",
                self.order,
                hosts.join(", ")
            )));
        };
        if found.iter().any(|(_, other)| other != id) {
            return Err(Failure::usage(format!(
                "several orders begin with {}; give more of the identifier",
                self.order
            )));
        }
        for (host, id) in &found {
            requester.kill(host, *id)?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Shows the hosts of the site, and how their daemons are
///
/// Without names the site's authority says which hosts there are. Ends with 69 if one of them does not answer.
#[derive(Args)]
#[command(after_long_help = STATUSES)]
pub(crate) struct Hosts {
    /// The hosts, with commas between them: NAME, or NAME=ADDRESS:PORT
    #[arg(value_delimiter = ',')]
    hosts: Vec<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Where authority.pem and identity.pem are; ~/.config/gambeson
    #[arg(long, value_name = "FOLDER")]
    folder: Option<PathBuf>,
}

impl Hosts {
    pub(crate) fn execute(&self) -> Result<ExitCode, Failure> {
        let requester = Requester::new(&self.folder.clone().unwrap_or_else(user_folder))?;
        let names = if self.hosts.is_empty() { requester.hosts()? } else { self.hosts.clone() };
        let hosts: Vec<_> = names.iter().map(|text| Host::parse(text)).collect();
        let ask = |host| requester.status(host);
        let ask = &ask;
        let said: Vec<_> = thread::scope(|scope| {
            let asked: Vec<_> = hosts.iter().map(|host| scope.spawn(move || ask(host))).collect();
            asked.into_iter().map(|one| one.join().expect("asking does not panic")).collect()
        });
        if self.json {
            let all = hosts.iter().zip(&said).map(|(host, said)| match said {
                Ok(one) => json!({ "host": host.name, "up": true, "version": one.version, "since": date(one.since),
                                   "orders": one.orders, "clock": date(one.now) }),
                Err(why) => json!({ "host": host.name, "up": false, "why": why.to_string() }),
            });
            println!("{:#}", json!(all.collect::<Vec<_>>()));
        } else {
            let width = hosts.iter().map(|host| host.name.len()).max().unwrap_or(0);
            for (host, said) in hosts.iter().zip(&said) {
                match said {
                    Ok(Health { version, since, orders, now: clock }) => {
                        let off = clock.abs_diff(now());
                        let clock = if off > CLOCK_OFF { format!(", its clock {off} s off") } else { String::new() };
                        println!(
                            "{:width$}  up since {}  {orders} orders  Gambeson {version}{clock}",
                            host.name,
                            date(*since)
                        );
                    }
                    Err(why) => println!(
                        "{:width$}  does not answer: {}",
                        host.name,
                        why.to_string().trim_start_matches(&format!("{}: ", host.name))
                    ),
                }
            }
        }
        Ok(if said.iter().all(Result::is_ok) { ExitCode::SUCCESS } else { Status::Unavailable.into() })
    }
}

/// Clocks may differ so much, in seconds, without a word.
const CLOCK_OFF: u64 = 5;

fn hex(id: &[u8; 16]) -> String {
    id.iter().map(|byte| format!("{byte:02x}")).collect()
}
