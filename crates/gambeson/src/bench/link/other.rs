//! The process at the other end of what `gambeson bench link` measures: it answers requests, and at its asker's word it
//! does the same work by hand over a bare carrier.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use gambeson_link::carrier::{Carrier, shm, tcp};
use gambeson_link::{Attributes, Domain, Endpoint, Handlers, Policy, Progress, Protection};
use serde::{Deserialize, Serialize};

use super::bare;
use super::side::{Work, cpu_ns};
use crate::bench::part::{self, Job, no_link};
use crate::failure::Failure;

/// How the links between the two processes are protected, an endpoint for each.
pub(crate) const PROTECTIONS: [Protection; 3] = [Protection::None, Protection::Integrity, Protection::Privacy];

/// Handlers: answers with what it got.
pub(crate) const ECHO: u32 = 0;
/// Takes a message; who waits for an answer gets an empty one.
pub(crate) const TAKE: u32 = 1;
/// Answers how long this process has had a processor, in ns.
pub(crate) const CPU: u32 = 2;
/// Goes to the bare carrier for a work.
pub(crate) const BARE: u32 = 3;

/// What it is told first.
#[derive(Deserialize, Serialize)]
pub(crate) struct Setting {
    pub(crate) job: Job,
    /// Shared memory, or TCP.
    pub(crate) shm: bool,
    /// Whether its domain has a thread of its own; else the program's moves bytes, and asks for them without a sleep.
    pub(crate) own_thread: bool,
}

/// What it says then.
#[derive(Deserialize, Serialize)]
pub(crate) struct Offer {
    /// Startpoints, in the order of [`PROTECTIONS`].
    pub(crate) startpoints: Vec<Vec<u8>>,
    /// Where its bare carrier is to be found: a name in shared memory, or an address.
    pub(crate) bare: String,
}

/// With nothing to do it asks for so long before it sleeps, so that it takes no processor from what is measured between.
const IDLE: Duration = Duration::from_millis(2);
const ASKED_BETWEEN: u32 = 256;

enum Door {
    Shm(shm::Listener),
    Tcp(tcp::Listener),
}

impl Door {
    fn open(shm: bool) -> std::io::Result<(Self, String)> {
        if shm {
            let name = format!("bench-{}", std::process::id());
            return Ok((Self::Shm(shm::Folder::of_user()?.listen(&name)?), name));
        }
        let listener = tcp::Listener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
        let address = listener.address().to_string();
        Ok((Self::Tcp(listener), address))
    }

    fn accept(&self) -> std::io::Result<Box<dyn Carrier>> {
        loop {
            let came: Option<Box<dyn Carrier>> = match self {
                Self::Shm(listener) => listener.accept()?.map(|carrier| Box::new(carrier) as _),
                Self::Tcp(listener) => listener.accept()?.map(|carrier| Box::new(carrier) as _),
            };
            match came {
                Some(carrier) => return Ok(carrier),
                None => std::thread::sleep(Duration::from_millis(1)),
            }
        }
    }
}

/// The endpoints say how their links are protected.
pub(super) fn each_for_itself() -> Policy {
    Policy::uniform(Protection::None)
}

/// Is that process, until its asker ends it.
pub(crate) fn run() -> Result<(), Failure> {
    let setting: Setting = part::hear()?;
    let progress = if setting.own_thread { Progress::Auto } else { Progress::Manual };
    let mut config =
        setting.job.config(progress, each_for_itself())?.listen(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
    config.shm = setting.shm;
    let domain = Domain::open(config).map_err(no_link)?;
    let asked: Arc<Mutex<Option<Work>>> = Arc::default();
    let mut endpoints = Vec::new();
    for protection in PROTECTIONS {
        endpoints.push(endpoint(&domain, protection, &asked)?);
    }
    let startpoints = endpoints.iter().map(|endpoint| Ok(endpoint.startpoint([]).map_err(no_link)?.encode().to_vec()));
    let (door, bare) = Door::open(setting.shm).map_err(no_carrier)?;
    part::tell(&Offer { startpoints: startpoints.collect::<Result<_, Failure>>()?, bare })?;
    if setting.own_thread {
        // Whoever started this process ends it.
        let _: Result<(), Failure> = part::hear();
        return Ok(());
    }
    let mut carrier: Option<Box<dyn Carrier>> = None;
    let mut buffer = Vec::new();
    let mut idle: Option<Instant> = None;
    loop {
        let mut busy = false;
        for _ in 0..ASKED_BETWEEN {
            busy |= domain.progress(Duration::ZERO).map_err(no_link)?;
            if let Some(work) = asked.lock().unwrap_or_else(PoisonError::into_inner).take() {
                if carrier.is_none() {
                    carrier = Some(door.accept().map_err(no_carrier)?);
                }
                let carrier = carrier.as_mut().expect("it is there now");
                bare::answer(&mut **carrier, work, &mut buffer).map_err(no_carrier)?;
                busy = true;
            }
        }
        match idle {
            _ if busy => idle = None,
            None => idle = Some(Instant::now()),
            Some(since) if since.elapsed() > IDLE => drop(domain.progress(Duration::from_secs(1)).map_err(no_link)?),
            Some(_) => {}
        }
    }
}

fn endpoint(domain: &Domain, protection: Protection, asked: &Arc<Mutex<Option<Work>>>) -> Result<Endpoint, Failure> {
    let asked = asked.clone();
    let handlers = Handlers::new()
        .inline(ECHO, |call| call.answer(call.payload))
        .inline(TAKE, |call| call.answer(&[]))
        .inline(CPU, |call| call.answer(&cpu_ns().to_le_bytes()))
        .inline(BARE, move |call| match serde_json::from_slice(call.payload) {
            Ok(work) => {
                *asked.lock().unwrap_or_else(PoisonError::into_inner) = Some(work);
                call.answer(&[]);
            }
            Err(_) => call.refuse("that is no work of a measurement"),
        });
    domain.endpoint(Attributes::default().class("bench").protection(protection), handlers).map_err(no_link)
}

fn no_carrier(error: std::io::Error) -> Failure {
    Failure::system(format!("the bare carrier failed: {error}"))
}
