//! `gambeson ps` and `gambeson kill`: what daemons run, and an end to it.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use gambeson_launch::authority::user_folder;
use gambeson_launch::requester::Requester;
use gambeson_proto::directory::date;
use serde_json::json;

use super::exec::host;
use crate::failure::{Failure, STATUSES};
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
        for host in hosts.iter().map(|text| host(text)) {
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
        for host in hosts.iter().map(|text| host(text)) {
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

fn hex(id: &[u8; 16]) -> String {
    id.iter().map(|byte| format!("{byte:02x}")).collect()
}
