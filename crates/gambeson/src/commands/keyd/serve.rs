//! `gambeson keyd serve`.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use clap::Args;
use gambeson_keyd::control::{Control, Controlled};
use gambeson_keyd::page::{self, Page};
use gambeson_keyd::rules::{PORT, Rules};
use gambeson_keyd::service::{Service, Setup};
use gambeson_launch::authority::{Kind, Member};
use rustix::process::{Resource, Rlimit, setrlimit};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::files::Files;
use super::master_key::change_to;
use super::{refusal, standby};
use crate::failure::{Failure, STATUSES};
use crate::machine;

/// Serves labels to the site's people, hosts and jobs
///
/// Who connects proves who he is by a certificate of the site's authority (TLS 1.3), and so does this host. What is given,
/// changed or refused stands in the log before it is answered.
#[derive(Args)]
#[command(after_long_help = STATUSES)]
pub(super) struct Serve {
    /// Where to listen, instead of where keyd.toml says (port 7201)
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: Vec<SocketAddr>,
    /// The name of this host, if its certificate is for another than it calls itself
    #[arg(long, value_name = "NAME")]
    host: Option<String>,
    #[command(flatten)]
    files: Files,
}

impl Serve {
    pub(super) fn execute(&self) -> Result<(), Failure> {
        let mut signals = Signals::new([SIGINT, SIGTERM])
            .map_err(|cause| Failure::system(format!("signals cannot be waited for ({cause})")))?;
        more_descriptors();
        let folder = self.files.folder();
        self.files.is_there()?;
        let mut rules = Rules::read(&folder.join("keyd.toml"))?;
        if !self.listen.is_empty() {
            rules.listen.clone_from(&self.listen);
        }
        if let Some(host) = &self.host {
            is_certified(&folder, host)?;
        }
        let database = self.files.open()?;
        database.health().tell(|why| eprintln!("gambeson keyd: {why}"));
        let host = self.host.clone().unwrap_or_else(machine::host_name);
        let tail = database.tail();
        let setup =
            Setup { folder: folder.clone(), host: host.clone(), rules: rules.clone(), database: database.clone() };
        let service = Service::open(setup)?;
        let page = rules.page.map(|listen| {
            Page::open(page::Setup {
                database: database.clone(),
                path: self.files.database(),
                folder,
                host,
                listen,
                officers: rules.officers,
                metrics: rules.metrics,
                live: service.live(),
                say: Arc::new(|why| eprintln!("gambeson keyd: {why}")),
            })
        });
        let page = page.transpose()?;
        let listening: Vec<_> = service.listening().iter().map(ToString::to_string).collect();
        let place = self.files.master_file();
        let controlled = Controlled {
            database,
            listening: listening.clone(),
            since: service.since(),
            duty: service.duty(),
            open_master: Box::new(move |text, passphrase| change_to(&place, text, passphrase).map_err(refusal)),
            refuse: |error| refusal(error.into()),
        };
        let control = Control::open(&self.files.socket(), controlled)?;
        let mut begun = format!("gambeson keyd: listening on {}\n", listening.join(", "));
        if let Some(page) = &page {
            let _ = writeln!(begun, "gambeson keyd: the officers' page is at {}", page.listening());
        }
        let _ = writeln!(begun, "gambeson keyd: the log goes on from {tail}");
        begun.push_str(standby::begun(&service.duty().standing()?).as_str());
        // Whoever waits for the first line may not wait for more: a service is not ended by that.
        let _ = io::stdout().write_all(begun.as_bytes()).and_then(|()| io::stdout().flush());
        signals.forever().next();
        drop((control, page));
        drop(service);
        Ok(())
    }
}

/// Refuses a name by which nobody could know this host.
fn is_certified(folder: &Path, host: &str) -> Result<(), Failure> {
    let names = Member::read(folder, Kind::Host)?.names();
    if names.iter().any(|name| name.eq_ignore_ascii_case(host)) {
        return Ok(());
    }
    let names = names.join(", ");
    Err(Failure::usage(format!(
        "the certificate of this host is for {names} and not for {host}, so whoever asks keyd://{host} would refuse it; say one of \
         its names, or have the host enrolled with --alias {host}"
    )))
}

/// A connection is a descriptor, and a site has more than the thousand that a process gets by itself.
fn more_descriptors() {
    let limit = rustix::process::getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
}

const _: () = assert!(PORT == 7201, "the texts of this command name it");
