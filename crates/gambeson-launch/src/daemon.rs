//! `gambesond`: the daemon of one host, which starts processes for those whom the site knows.
//!
//! ```text
//!  requester ══ link ══ daemon ── rules: who may start what, as whom
//!                         │ ├──── audit log: a line before anything is done
//!                         │ └──── nursery ── keeper ── processes
//!                         └ a thread for each order: streams, signals, how processes end
//! ```

use std::collections::{BTreeSet, HashMap};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::Duration;

use gambeson_link::{Attributes, Config, Domain, Endpoint, Handlers, LinkName, Peer, Protection, Request};
use gambeson_proto::directory::date;
use gambeson_site::directory::now;
use serde_json::{Value, json};
use zeroize::{Zeroize, Zeroizing};

use crate::audit_log::AuditLog;
use crate::authority::{self, Authority, Kind, Member, Renewer, renew};
use crate::branches::{Controls, Passed, pass_on};
use crate::error::Error;
use crate::identities;
use crate::keeper::Work;
use crate::nursery::Nursery;
use crate::partitions::{Desk, Distribution, Folder, Holder, Logged};
use crate::rules::{Permission, Rules};
use crate::serve::{Inbox, Serving, Unwanted, summary};
use crate::wire::{
    self, CLASS, ENDPOINT, Health, INPUT, KILL, LIST, Order, Running, SIGNAL, START, STATUS, Signature, Start, WINDOW,
};

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
    _authority: (Option<Endpoint>, Option<Endpoint>),
    _partitions: (Option<Distribution>, Option<Desk>),
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
        // The authority's own host renews its certificate even when it has expired; others are told what to do then.
        if member.validity.until < now() {
            renew(&member, false)?;
        }
        let member = Member::read(&folder, Kind::Host)?;
        let authority = Authority::is_in(&folder).then(|| Authority::open(&folder).map(Arc::new)).transpose()?;
        let mut log = AuditLog::open(&log).map_err(Error::Unavailable)?;
        let version = env!("CARGO_PKG_VERSION");
        log.add("open", &[("host", host.as_str().into()), ("version", version.into())]).map_err(Error::Unavailable)?;
        let hears_guests = authority.clone().filter(|one| !one.settings().identities.mechanisms.is_empty());
        let trust = member.trust()?;
        let trust = if hears_guests.is_some() { trust.guests() } else { trust };
        let mut config = Config::new(member.again()?, trust);
        config.listen.clone_from(&rules.listen);
        (config.host, config.shm) = (host.clone(), false);
        (config.patience, config.silence, config.watch) = (PATIENCE, SILENCE, true);
        let domain = Arc::new(Domain::open(config).map_err(unavailable)?);
        let log = Arc::new(Mutex::new(log));
        let admitted = rules.partitions.clone();
        let office = Office {
            nursery,
            rules,
            log: log.clone(),
            orders: Mutex::default(),
            passed: Mutex::default(),
            domain: Arc::downgrade(&domain),
            since: now(),
        };
        let attributes = Attributes::default().class(CLASS).protection(Protection::Privacy).message_max(ORDER_MAX);
        let endpoint = domain.endpoint(attributes, Arc::new(office).handlers()).map_err(unavailable)?;
        endpoint.publish(ENDPOINT, &["user", "host"], []).map_err(unavailable)?;
        let certifies = authority.clone().map(|authority| authority::serve(&domain, authority)).transpose()?;
        let called = member.host().unwrap_or_else(|| host.clone());
        let identifies = hears_guests.map(|authority| identities::serve(&domain, authority, &called, log.clone()));
        let say = |why: &str| eprintln!("gambesond: {why}");
        let cabinet = || Arc::new(Logged { folder: Folder::of(&folder), log: log.clone() });
        let hands_out = authority.is_some().then(|| Distribution::open(&domain, cabinet(), Some(folder.clone()), say));
        let desk = Desk::open(Holder::new(&domain, folder.clone(), &host), &folder, admitted, log);
        // Somebody else may have taken the name to be in the way; what needs no partition goes on.
        let desk = desk.inspect_err(|cause| say(&cause.to_string())).ok();
        let renewer = Renewer::start(&domain, folder, Kind::Host, authority, say)?;
        Ok(Daemon {
            _renewer: renewer,
            _authority: (certifies, identifies.transpose()?),
            _partitions: (hands_out.transpose()?, desk),
            _endpoint: endpoint,
            domain,
        })
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
    log: Arc<Mutex<AuditLog>>,
    orders: Mutex<HashMap<LinkName, Kept>>,
    /// Orders that were passed on to this host, with its place in each, and until when they could begin: none begins twice.
    passed: Mutex<HashMap<([u8; 16], u32), u64>>,
    domain: Weak<Domain>,
    since: u64,
}

/// An order that runs.
struct Kept {
    inbox: Arc<Inbox>,
    /// What others are told of it, once it was admitted.
    about: Option<Running>,
}

impl Office {
    fn handlers(self: Arc<Self>) -> Handlers {
        let passing = [INPUT, SIGNAL, WINDOW].map(|number| (number, self.clone()));
        let [list, kill, status] = [(); 3].map(|()| self.clone());
        let handlers = Handlers::new()
            .queued(LIST, move |request| list.list(request))
            .queued(STATUS, move |request| status.status(request))
            .queued(KILL, move |request| kill.kill(request))
            .queued(START, move |request| self.begin(request));
        passing.into_iter().fold(handlers, |handlers, (number, office)| {
            handlers.queued(number, move |request| {
                // What comes for an order that is over is for nobody.
                if let Some(kept) = office.orders().get(&request.link()) {
                    kept.inbox.put(request);
                }
            })
        })
    }

    fn orders(&self) -> MutexGuard<'_, HashMap<LinkName, Kept>> {
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
            orders.insert(link, Kept { inbox: inbox.clone(), about: None });
            let thread = thread::Builder::new().name("gambeson-order".into()).stack_size(STACK);
            thread.spawn(move || office.serve(request, &inbox)).map(drop)
        });
        if started.is_err() {
            // The request is gone with the thread that was not, and its stream has ended without a word of any process.
            orders.remove(&link);
        }
    }

    /// Which orders run here, of those that this peer may end.
    fn list(&self, request: Request) {
        let orders = self.orders();
        let running: Vec<_> = orders.values().filter_map(|kept| kept.about.as_ref()).collect();
        let running: Vec<_> = running.into_iter().filter(|about| self.may_end(&request.peer, about)).collect();
        request.answer(&wire::encode(&running));
    }

    fn status(&self, request: Request) {
        let orders = self.orders().len() as u32;
        let health = Health { version: env!("CARGO_PKG_VERSION").into(), since: self.since, orders, now: now() };
        request.answer(&wire::encode(&health));
    }

    /// His own, and, for who may start something as root here, everybody's.
    fn may_end(&self, peer: &Peer, about: &Running) -> bool {
        peer.roles.contains(&about.identity) || self.rules.judge(peer, "root").is_ok()
    }

    fn kill(&self, request: Request) {
        let who = request.peer.roles.last().unwrap_or(&request.peer.name).clone();
        let orders = self.orders();
        let is_it = |about: &&Running| about.id[..] == request.payload[..] && self.may_end(&request.peer, about);
        let found = orders.values().find(|kept| kept.about.as_ref().filter(is_it).is_some());
        let Some(kept) = found else { return request.refuse("no such order runs here, or it is somebody else's") };
        let id: String = request.payload.iter().map(|byte| format!("{byte:02x}")).collect();
        if let Err(why) = self.log("kill", &[("order", id.into()), ("identity", who.as_str().into())]) {
            return request.refuse(&why);
        }
        kept.inbox.kill(format!("{who} has ended it with `gambeson kill`"));
        request.answer(&[]);
    }

    fn serve(&self, mut request: Request, inbox: &Arc<Inbox>) {
        let outcome = self.admit(&request).and_then(|admitted| self.fulfil(&mut request, inbox, admitted));
        self.orders().remove(&request.link());
        if let Err(why) = outcome {
            request.refuse(&why);
        }
    }

    /// Whether an order may begin, with what each process is to be.
    fn admit(&self, request: &Request) -> Result<Admitted, String> {
        let judged = wire::decode::<Start>(&request.payload).and_then(|start| {
            let order = Order::decode(start.order.as_bytes())?;
            let Start { order: bytes, hosts, signature } = start;
            if hosts.is_empty() || hosts.iter().any(|&host| host as usize >= order.hosts.len()) {
                return Err("the order is passed on to no host, or to one that is not in it".into());
            }
            let by_another = request.peer.roles.iter().any(|role| role == "host");
            let permission = match signature.clone().filter(|_| by_another) {
                None => self.rules.judge(&request.peer, &order.account)?,
                Some(signature) => {
                    let signer = self.signer(&order, bytes.as_bytes(), hosts[0], signature)?;
                    self.rules.judge(&signer, &order.account)?
                }
            };
            Ok(Admitted { hosts, permission, passed: Arc::new(Passed { order, bytes, signature }) })
        });
        judged.inspect_err(|why| {
            let (who, host) = (request.peer.roles.join(" "), request.peer.host.as_str());
            // That the log is full hinders nobody from being refused.
            let _ = self.log("refuse", &[("from", who.into()), ("host", host.into()), ("why", why.as_str().into())]);
        })
    }

    /// Who has signed an order that another host's daemon passes on. Each begins here once, and while it is fresh.
    fn signer(&self, order: &Order, bytes: &[u8], here: u32, signature: Signature) -> Result<Peer, String> {
        let domain = self.domain.upgrade().ok_or("this daemon is closing")?;
        let signer = domain.signer_of_order(bytes, &signature.into()).map_err(|cause| cause.to_string())?;
        let now = now();
        if order.until < now || order.until > now + FRESH_MAX {
            return Err(format!(
                "the order was to begin until {}, and it is {} here; set the clocks, or order again",
                date(order.until),
                date(now)
            ));
        }
        let mut passed = self.passed.lock().unwrap_or_else(PoisonError::into_inner);
        passed.retain(|_, until| *until >= now);
        match passed.insert((order.id, here), order.until) {
            None => Ok(signer),
            Some(_) => Err("the order has begun here before".into()),
        }
    }

    fn fulfil(&self, request: &mut Request, inbox: &Arc<Inbox>, admitted: Admitted) -> Result<(), String> {
        let Admitted { hosts, permission, passed } = admitted;
        request.payload.zeroize();
        let order = &passed.order;
        let (&own, others) = hosts.split_first().expect("it was looked at");
        let id: String = order.id.iter().map(|byte| format!("{byte:02x}")).collect();
        let here: Vec<u32> = order.numbers(own).collect();
        let below: BTreeSet<u32> = others.iter().flat_map(|&host| order.numbers(host)).collect();
        let names = |program: &wire::Program| program.executable.as_os().to_string_lossy().into_owned();
        let programs: Vec<_> = order.programs.iter().map(names).collect();
        let about = [
            ("order", id.as_str().into()),
            ("identity", permission.identity.as_str().into()),
            ("from", request.peer.host.as_str().into()),
            ("account", permission.account.name.as_str().into()),
            ("programs", programs.clone().into()),
            ("processes", here.len().into()),
            ("passed_on", others.len().into()),
        ];
        self.log("start", &about)?;
        if let Some(kept) = self.orders().get_mut(&request.link()) {
            let (identity, from) = (permission.identity.clone(), request.peer.host.clone());
            let (account, processes) = (permission.account.name.clone(), here.len() as u32);
            kept.about = Some(Running { id: order.id, identity, from, account, programs, processes, since: now() });
        }
        let Permission { account, execution, .. } = permission;
        let process = |&number: &u32| {
            let process = &order.processes[number as usize];
            (number, process.program, process.environment.clone())
        };
        let processes = here.iter().map(process).collect();
        let (programs, context) = (order.programs.clone(), order.context.clone());
        let work = Work { account, execution, programs, processes, context };
        let work = Zeroizing::new(wire::encode(&work));
        let controls = Controls::default();
        if !others.is_empty() {
            let domain = self.domain.upgrade().ok_or("this daemon is closing")?;
            let say = inbox.clone();
            pass_on(&domain, &passed, others, &controls, move |number, event| say.put_below(number, event));
        }
        let keeper = self.nursery.keeper(&work);
        drop(work);
        let keeper = keeper.map_err(|cause| format!("this host's daemon can make no process ({cause})"));
        let keeper = keeper.inspect_err(|_| controls.leave())?;
        let mut serving = Serving::new(request, inbox, keeper, &here, below, controls.clone());
        let why = serving.run().err().map(|Unwanted| "the requester is gone");
        controls.leave();
        inbox.close();
        let (left, ended) = (serving.left(), summary(&serving.ended));
        drop(serving);
        self.log("end", &[("order", id.into()), ("ended", json!(ended)), ("killed", left.into()), ("why", why.into())])
    }
}

/// An order that may begin here.
struct Admitted {
    /// Its places for this host, and for those that it is passed on to.
    hosts: Vec<u32>,
    permission: Permission,
    passed: Arc<Passed>,
}

/// The longest order, in bytes: argv and environment of all its programs.
const ORDER_MAX: usize = 64 << 20;
const ORDERS_MAX: usize = 4096;
/// So far ahead an order may say that it begins, in seconds, as clocks may differ.
const FRESH_MAX: u64 = 600;
const STACK: usize = 256 << 10;
/// So long a requester whose connection is lost may take to come back before his processes are ended.
const PATIENCE: Duration = Duration::from_secs(10);
/// So long his host may answer nothing, and a host that an order is passed on to.
const SILENCE: Duration = Duration::from_secs(10);
