//! `gambesond`: the daemon of one host, which starts processes for those whom the site knows.
//!
//! ```text
//!  requester ══ link ══ daemon ── rules: who may start what, as whom
//!                         │ ├──── audit log: a line before anything is done
//!                         │ └──── nursery ── keeper ── processes
//!                         └ a thread for each order: streams, signals, how processes end
//! ```

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use gambeson_link::{Attributes, Config, Domain, Endpoint, Handlers, LinkName, Protection, Request};
use serde_json::{Value, json};

use crate::audit_log::AuditLog;
use crate::authority::{self, Authority, Kind, Member, Renewer};
use crate::error::Error;
use crate::keeper::Work;
use crate::nursery::Nursery;
use crate::rules::{Permission, Rules};
use crate::serve::{Early, Inbox, Serving, summary};
use crate::wire::{self, CLASS, ENDPOINT, INPUT, Order, SIGNAL, START, Start, WINDOW};

/// What a daemon is opened with.
pub struct Setup {
    /// Made before anything else.
    pub nursery: Nursery,
    /// Where its host's identity is, the authorities that it accepts, and on one host the authority itself.
    pub folder: PathBuf,
    /// The name of its host, which its certificate is for.
    pub host: String,
    /// Who may start what.
    pub rules: Rules,
    /// Where it writes down what it does.
    pub log: PathBuf,
}

/// A daemon that serves until it is dropped.
pub struct Daemon {
    _renewer: Renewer,
    _authority: Option<Endpoint>,
    _endpoint: Endpoint,
    domain: Arc<Domain>,
}

impl Daemon {
    /// Begins to serve.
    ///
    /// # Errors
    /// When the identity or the log cannot be used, or an address not be listened on.
    pub fn open(setup: Setup) -> Result<Self, Error> {
        let Setup { nursery, folder, host, rules, log } = setup;
        let unavailable = |cause: gambeson_link::Error| Error::Unavailable(cause.to_string());
        let member = Member::read(&folder, Kind::Host)?;
        let authority = Authority::is_in(&folder).then(|| Authority::open(&folder).map(Arc::new)).transpose()?;
        let mut log = AuditLog::open(&log).map_err(Error::Unavailable)?;
        let version = env!("CARGO_PKG_VERSION");
        log.add("open", &[("host", host.as_str().into()), ("version", version.into())]).map_err(Error::Unavailable)?;
        let mut config = Config::new(member.again()?, member.trust()?);
        config.listen.clone_from(&rules.listen);
        (config.host, config.shm) = (host, false);
        (config.patience, config.silence) = (PATIENCE, SILENCE);
        let domain = Arc::new(Domain::open(config).map_err(unavailable)?);
        let office = Office { nursery, rules, log: Mutex::new(log), orders: Mutex::default() };
        let attributes = Attributes::default().class(CLASS).protection(Protection::Privacy).message_max(ORDER_MAX);
        let endpoint = domain.endpoint(attributes, Arc::new(office).handlers()).map_err(unavailable)?;
        endpoint.publish(ENDPOINT, &["user", "host"], []).map_err(unavailable)?;
        let certifies = authority.clone().map(|authority| authority::serve(&domain, authority)).transpose()?;
        let say = |why: &str| eprintln!("gambesond: {why}");
        let renewer = Renewer::start(&domain, folder, Kind::Host, authority, say)?;
        Ok(Daemon { _renewer: renewer, _authority: certifies, _endpoint: endpoint, domain })
    }

    /// Where it listens.
    #[must_use]
    pub fn listening(&self) -> &[SocketAddr] {
        self.domain.listening()
    }
}

/// What all orders share.
struct Office {
    nursery: Nursery,
    rules: Rules,
    log: Mutex<AuditLog>,
    orders: Mutex<HashMap<LinkName, Arc<Inbox>>>,
}

impl Office {
    fn handlers(self: Arc<Self>) -> Handlers {
        let passing = [INPUT, SIGNAL, WINDOW].map(|number| (number, self.clone()));
        let handlers = Handlers::new().queued(START, move |request| self.begin(request));
        passing.into_iter().fold(handlers, |handlers, (number, office)| {
            handlers.queued(number, move |request| {
                // What comes for an order that is over is for nobody.
                if let Some(inbox) = office.orders().get(&request.link()) {
                    inbox.put(request);
                }
            })
        })
    }

    fn orders(&self) -> MutexGuard<'_, HashMap<LinkName, Arc<Inbox>>> {
        self.orders.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn log(&self, event: &str, about: &[(&str, Value)]) -> Result<(), String> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner).add(event, about)
    }

    fn begin(self: &Arc<Self>, request: Request) {
        let link = request.link();
        let mut orders = self.orders();
        if orders.contains_key(&link) {
            return request.refuse("the link carries an order already; take a link for each");
        }
        if orders.len() >= ORDERS_MAX {
            return request.refuse(&format!("this host's daemon serves {ORDERS_MAX} orders, and no more at once"));
        }
        let office = self.clone();
        let started = Inbox::new().and_then(|inbox| {
            let inbox = Arc::new(inbox);
            orders.insert(link, inbox.clone());
            let thread = thread::Builder::new().name("gambeson-order".into()).stack_size(STACK);
            thread.spawn(move || office.serve(request, &inbox)).map(drop)
        });
        if started.is_err() {
            // The request is gone with the thread that was not, and its stream has ended without a word of any process.
            orders.remove(&link);
        }
    }

    fn serve(&self, mut request: Request, inbox: &Inbox) {
        let outcome = self.admit(&request).and_then(|admitted| self.fulfil(&mut request, inbox, admitted));
        self.orders().remove(&request.link());
        if let Err(why) = outcome {
            request.refuse(&why);
        }
    }

    /// Whether an order may begin, with what each process is to be.
    fn admit(&self, request: &Request) -> Result<Admitted, String> {
        let judged = wire::decode::<Start>(&request.payload).and_then(|start| {
            let order = Order::decode(&start.order)?;
            let here = *start.hosts.first().ok_or("the order is for no host")?;
            let permission = self.rules.judge(&request.peer, &order.account)?;
            Ok(Admitted { order, here, permission })
        });
        judged.inspect_err(|why| {
            let who = request.peer.roles.join(" ");
            // That the log is full hinders nobody from being refused.
            let _ = self.log(
                "refuse",
                &[("from", who.into()), ("host", request.peer.host.as_str().into()), ("why", why.as_str().into())],
            );
        })
    }

    fn fulfil(&self, request: &mut Request, inbox: &Inbox, admitted: Admitted) -> Result<(), String> {
        let Admitted { order, here, permission } = admitted;
        let id: String = order.id.iter().map(|byte| format!("{byte:02x}")).collect();
        let mine = order.processes.into_iter().enumerate().filter(|(_, process)| process.host == here);
        let mine: Vec<_> =
            mine.map(|(number, process)| (number as u32, process.program, process.environment)).collect();
        let numbers: Vec<u32> = mine.iter().map(|(number, ..)| *number).collect();
        let names = |program: &wire::Program| program.executable.as_os().to_string_lossy().into_owned();
        let programs: Vec<_> = order.programs.iter().map(names).collect();
        let about = [
            ("order", id.as_str().into()),
            ("identity", permission.identity.as_str().into()),
            ("from", request.peer.host.as_str().into()),
            ("account", permission.account.name.as_str().into()),
            ("programs", programs.into()),
            ("processes", numbers.len().into()),
        ];
        self.log("start", &about)?;
        let Permission { account, execution, .. } = permission;
        let work = wire::encode(&Work { account, execution, programs: order.programs, processes: mine });
        let keeper = self.nursery.keeper(&work);
        let keeper = keeper.map_err(|cause: io::Error| format!("this host's daemon can make no process ({cause})"))?;
        let mut serving = Serving::new(request, inbox, keeper, &numbers);
        let why = match serving.run() {
            Ok(()) => None,
            Err(Early::Because(why)) => {
                serving.give_up(&why);
                Some(why)
            }
            Err(Early::Unwanted) => Some("the requester is gone".to_owned()),
        };
        let (left, ended) = (serving.left().len(), summary(&serving.ended));
        drop(serving);
        self.log("end", &[("order", id.into()), ("ended", json!(ended)), ("killed", left.into()), ("why", why.into())])
    }
}

/// An order that may begin here.
struct Admitted {
    order: Order,
    /// This host's place in it.
    here: u32,
    permission: Permission,
}

/// The longest order, in bytes: argv and environment of all its programs.
const ORDER_MAX: usize = 64 << 20;
const ORDERS_MAX: usize = 4096;
const STACK: usize = 256 << 10;
/// So long a requester whose connection is lost may take to come back before his processes are ended.
const PATIENCE: Duration = Duration::from_secs(10);
/// So long he may say nothing.
const SILENCE: Duration = Duration::from_secs(10);
