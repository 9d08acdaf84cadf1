//! What goes between the processes of the coupled model, all of it over links: rows to the neighbours within a component,
//! surface temperature and fluxes to the partner in the other one.

use std::collections::VecDeque;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use gambeson_link::{Attributes, Capability, Domain, Endpoint, Handlers, Policy, Progress, Protection, Startpoint};
use serde::{Deserialize, Serialize};

use crate::bench::part::{self, Job, no_link};
use crate::failure::Failure;

const PATIENCE: Duration = Duration::from_secs(30);
/// Whoever waits asks so often before it sleeps, where each process has a processor to itself.
const ASKED: u32 = 2000;
/// And where they share them.
const ASKED_SHARED: u32 = 10;

/// Where a message comes from, which is the number of its handler.
#[derive(Clone, Copy)]
pub(super) enum From {
    South = 0,
    North = 1,
    Partner = 2,
}

/// Startpoints to a process: to its endpoint for neighbours, and to that for its partner.
#[derive(Clone, Deserialize, Serialize)]
pub(super) struct Offer {
    pub(super) halo: Vec<u8>,
    pub(super) coupler: Vec<u8>,
}

/// Startpoints for a process: to its neighbours, where there are any, and to its partner.
#[derive(Deserialize, Serialize)]
pub(super) struct Peers {
    pub(super) south: Option<Vec<u8>>,
    pub(super) north: Option<Vec<u8>>,
    pub(super) partner: Vec<u8>,
}

type Mail = Arc<[Mutex<VecDeque<Vec<f64>>>; 3]>;

/// This process's ends of them. Within a component they go over shared memory or TCP, to the other always over TCP, as if
/// the two ran on two computers: hence two domains.
pub(super) struct Exchange {
    within: Domain,
    between: Domain,
    mail: Mail,
    south: Option<Startpoint>,
    north: Option<Startpoint>,
    partner: Option<Startpoint>,
    asked: u32,
    _endpoints: [Endpoint; 2],
}

impl Exchange {
    /// Makes endpoints for all that comes to this process, one of so many. It says it is on a host of that name: each component
    /// might be, and the policy may ask for more between the two.
    pub(super) fn open(
        job: &Job,
        shm: bool,
        (host, policy): (&str, &Policy),
        processes: usize,
    ) -> Result<(Self, Offer), Failure> {
        let domain = |shm: bool| {
            let mut config =
                job.config(Progress::Manual, policy.clone())?.listen(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
            (config.shm, config.host) = (shm, host.to_owned());
            Domain::open(config).map_err(no_link)
        };
        let (within, between) = (domain(shm)?, domain(false)?);
        let mail = Mail::default();
        let endpoint = |domain: &Domain, class: &str, from: &[From]| {
            let mut handlers = Handlers::new();
            for &from in from {
                let mail = mail.clone();
                handlers = handlers.inline(from as u32, move |call| {
                    let values = call.payload.chunks_exact(8);
                    let values = values.map(|bytes| f64::from_le_bytes(bytes.try_into().expect("8 bytes"))).collect();
                    mail[from as usize].lock().unwrap_or_else(PoisonError::into_inner).push_back(values);
                });
            }
            domain.endpoint(Attributes::default().class(class), handlers).map_err(no_link)
        };
        let halo = endpoint(&within, "halo", &[From::South, From::North])?;
        let coupler = endpoint(&between, "coupler", &[From::Partner])?;
        let startpoint =
            |endpoint: &Endpoint| Ok::<_, Failure>(endpoint.startpoint([]).map_err(no_link)?.encode().to_vec());
        let offer = Offer { halo: startpoint(&halo)?, coupler: startpoint(&coupler)? };
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let asked = if processes <= processors { ASKED } else { ASKED_SHARED };
        let (south, north, partner, _endpoints) = (None, None, None, [halo, coupler]);
        Ok((Exchange { within, between, mail, south, north, partner, asked, _endpoints }, offer))
    }

    /// Opens the links, and waits for the word to begin. All processes do so at once, so each answers the others' handshakes
    /// while it makes its own.
    pub(super) fn connect(&mut self, peers: &Peers) -> Result<(), Failure> {
        let (within, between) = (&self.within, &self.between);
        let open = |domain: &Domain, bytes: &[u8]| {
            let capability = Capability::decode(bytes).map_err(|error| Failure::system(error.to_string()))?;
            domain.startpoint(&capability, PATIENCE).map_err(no_link)
        };
        let connected = self.while_answering(|| {
            let neighbour = |bytes: &Option<Vec<u8>>| bytes.as_deref().map(|bytes| open(within, bytes)).transpose();
            let links = (neighbour(&peers.south)?, neighbour(&peers.north)?, open(between, &peers.partner)?);
            part::tell(&"ready")?;
            part::hear::<String>()?;
            Ok(links)
        });
        let (south, north, partner) = connected?;
        (self.south, self.north, self.partner) = (south, north, Some(partner));
        Ok(())
    }

    /// Whether the links to neighbours, where there are any, and the one to the partner are sealed.
    pub(super) fn sealed(&self) -> (Option<bool>, Option<bool>) {
        let sealed = |link: &Option<Startpoint>| Some(link.as_ref()?.protection() == Protection::Privacy);
        (sealed(&self.south).or(sealed(&self.north)), sealed(&self.partner))
    }

    /// Tells who started this process what came out, and answers whoever is not through yet until it is ended.
    pub(super) fn finish(&self, outcome: &impl Serialize) -> Result<(), Failure> {
        part::tell(outcome)?;
        self.while_answering(|| {
            let _ = part::hear::<String>();
            Ok(())
        })
    }

    /// Does something on another thread, which may block, while this one moves bytes.
    fn while_answering<T: Send>(&self, then: impl FnOnce() -> Result<T, Failure> + Send) -> Result<T, Failure> {
        std::thread::scope(|scope| {
            let thread = scope.spawn(then);
            while !thread.is_finished() {
                for domain in [&self.within, &self.between] {
                    domain.progress(Duration::from_micros(500)).map_err(no_link)?;
                }
            }
            thread.join().expect("it does not panic")
        })
    }

    /// Gives the rows at the slab's edges to the neighbours, if there are any, and takes theirs: south and north.
    pub(super) fn halo(&self, mut edge: impl FnMut(bool) -> Vec<f64>) -> Result<[Option<Vec<f64>>; 2], Failure> {
        for (link, northern, to) in [(&self.south, false, From::North), (&self.north, true, From::South)] {
            if let Some(link) = link {
                send(link, to, &[&edge(northern)])?;
            }
        }
        let receive =
            |link: &Option<Startpoint>, from| link.as_ref().map(|_| self.receive(&self.within, from)).transpose();
        Ok([receive(&self.south, From::South)?, receive(&self.north, From::North)?])
    }

    /// Gives the partner something.
    pub(super) fn give(&self, values: &[&[f64]]) -> Result<(), Failure> {
        let partner = self.partner.as_ref().ok_or_else(|| Failure::system("there is no link to the partner yet"))?;
        send(partner, From::Partner, values)
    }

    /// Takes the partner's next.
    pub(super) fn take(&self) -> Result<Vec<f64>, Failure> {
        self.receive(&self.between, From::Partner)
    }

    fn receive(&self, domain: &Domain, from: From) -> Result<Vec<f64>, Failure> {
        let deadline = Instant::now() + PATIENCE;
        let mut asked = 0;
        loop {
            if let Some(values) = self.mail[from as usize].lock().unwrap_or_else(PoisonError::into_inner).pop_front() {
                return Ok(values);
            }
            asked += 1;
            let wait = if asked < self.asked { Duration::ZERO } else { Duration::from_secs(1) };
            if !domain.progress(wait).map_err(no_link)? && !wait.is_zero() && Instant::now() > deadline {
                return Err(Failure::system("another process of the coupled model says nothing any more"));
            }
        }
    }
}

fn send(link: &Startpoint, to: From, values: &[&[f64]]) -> Result<(), Failure> {
    let bytes: Vec<u8> = values.iter().flat_map(|values| values.iter().flat_map(|value| value.to_le_bytes())).collect();
    link.send(to as u32, &bytes).map_err(no_link)
}
