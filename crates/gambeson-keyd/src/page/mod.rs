//! The officers' page: what is there, who may have it and what was done, to be read in a browser; and metrics.
//!
//! ```text
//!  browser, Prometheus ── TLS 1.3 ── admission: whose certificate, which role ── routes
//!                                                                                 │ overview, label, log, metrics
//!                              certificate: page.pem, from the authority          ▼
//!                                                       inventory: the database as it is now, without keys
//! ```
//!
//! One thread with a runtime of its own serves it, and a few that wait for the database. It changes nothing: it answers GET
//! and HEAD alone. No page has a script, or anything from elsewhere.
//!
//! Who comes has to prove that he owns the key of his certificate, which TLS sees to; whether anybody certified it is asked
//! afterwards, for each request. So who is not let in is told why, and nothing else.

mod admission;
mod certificate;
mod frame;
mod inventory;
mod label;
mod live;
mod log;
mod metrics;
mod overview;
mod partitions;
mod routes;
mod server;

use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread::{self, JoinHandle};

use gambeson_launch::authority::{Kind, Member};
use tokio::sync::oneshot;

use crate::{Database, Error};
use admission::Admission;
use certificate::Shown;
pub use live::{Following, Live, Standby};
use metrics::Metrics;
use routes::Office;

/// What a page is opened with.
pub struct Setup {
    /// What it shows.
    pub database: Database,
    /// The file of that.
    pub path: PathBuf,
    /// The folder of the host's identity, where the page's certificate is, too.
    pub folder: PathBuf,
    /// What the host is called.
    pub host: String,
    /// Where it listens.
    pub listen: SocketAddr,
    /// Who sees everything: roles of certificates.
    pub officers: Vec<String>,
    /// Who fetches the metrics alone.
    pub metrics: Vec<String>,
    /// What no row tells.
    pub live: Arc<dyn Live>,
    /// Hears sentences that an administrator should read.
    pub say: Arc<dyn Fn(&str) + Send + Sync>,
}

/// A page that is served until this is dropped.
pub struct Page {
    stop: Option<oneshot::Sender<()>>,
    renew: Option<Sender<()>>,
    threads: Vec<JoinHandle<()>>,
    listening: SocketAddr,
}

impl Page {
    /// Begins to serve. A certificate that is not to be had yet is asked for again and again; until then nobody is served.
    ///
    /// # Errors
    /// When the address cannot be listened on, or the host has no identity.
    pub fn open(setup: Setup) -> Result<Self, Error> {
        let Setup { database, path, folder, host, listen, officers, metrics, live, say } = setup;
        let unusable = |why: String| Error::Site { why: format!("the officers' page cannot be served: {why}") };
        let trust = Member::read(&folder, Kind::Host).and_then(|member| member.trust());
        let trust = trust.map_err(|cause| unusable(cause.to_string()))?;
        let listener = TcpListener::bind(listen)
            .and_then(|listener| listener.set_nonblocking(true).map(|()| listener))
            .map_err(|cause| unusable(format!("{listen} cannot be listened on ({cause}); name another address")))?;
        let listening = listener.local_addr().map_err(|cause| unusable(cause.to_string()))?;
        let shown = Arc::new(Shown::default());
        let tls = server::tls(&trust, shown.clone()).map_err(|cause| unusable(cause.to_string()))?;
        let address = format!("https://{host}:{}", listening.port());
        let admission = Admission::new(trust, host.clone(), officers, metrics);
        let counters = Metrics::new(&database, path, shown.clone());
        let office = Arc::new(Office::new(database, admission, host, live, counters, say.clone()));
        let (stop, stopped) = oneshot::channel();
        let (renew, renewed) = channel();
        let mut page = Page { stop: Some(stop), renew: Some(renew), threads: Vec::new(), listening };
        let start = |name: &str, work: Box<dyn FnOnce() + Send>| {
            let thread = thread::Builder::new().name(name.into()).spawn(work);
            thread.map_err(|cause| unusable(format!("no thread can be started ({cause})")))
        };
        let (certificates, heard) = (shown, say.clone());
        let keep = move || certificate::keep(&certificates, &folder, &address, &renewed, &*heard);
        page.threads.push(start("gambeson-page-renewal", Box::new(keep))?);
        let serve = move || server::run(listener, tls, office, stopped, &*say);
        page.threads.push(start("gambeson-page", Box::new(serve))?);
        Ok(page)
    }

    /// Where it listens.
    #[must_use]
    pub fn listening(&self) -> SocketAddr {
        self.listening
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        drop((self.stop.take(), self.renew.take()));
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}
