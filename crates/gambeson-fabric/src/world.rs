//! Whether MPI takes each address of its MPI_COMM_WORLD for the rank that owns it.
//!
//! All cards of a job are genuine, so whoever controls their exchange could swap two of them or
//! hand one out twice, and what is meant for one rank would go, sealed, to another. A card tells
//! its owner's rank; for which rank MPI takes it shows twice:
//!
//! - While MPI starts it inserts the addresses of its world in an order that follows the ranks
//!   ([`Order`]). That comes before any message, but not all orders tell all swaps apart.
//! - Then the guard calls the roll: it sends an empty message to every rank through MPI, and the
//!   address that arrives here with it is the one that MPI takes for that rank. Nothing is sent.

use std::collections::{HashMap, HashSet};
use std::env;
use std::ffi::c_int;
use std::net::IpAddr;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use gambeson_proto::endpoint::{Lane, PeerName};
use gambeson_proto::identity::{Card, PublicKey};

use crate::job::Membership;
use crate::report::stop;

/// The order in which the addresses of the world come while MPI starts.
///
/// MPI libraries insert them by rank, or first those of one rank a host and then the others; some
/// put their own first. So from any one host they come by rank, and so do the first of the hosts.
#[derive(Default)]
pub(crate) struct Order {
    keys: HashSet<PublicKey>,
    ranks: HashSet<u32>,
    /// The rank that came last from a host, our own first one aside.
    last: HashMap<IpAddr, Option<u32>>,
    first_of_hosts: FirstOfHosts,
    /// Ranks have several endpoints each: their order is not known.
    several_each: bool,
}

/// The first addresses, as long as no host comes twice.
#[derive(Default)]
enum FirstOfHosts {
    #[default]
    None,
    Last(u32),
    Over,
}

impl Order {
    /// Takes the next card into account. `Err`: no MPI library inserts this one here; why.
    pub(crate) fn follow(&mut self, card: &Card, own: Option<u32>, size: usize) -> Result<(), Disorder> {
        // What comes after the world are processes that were spawned or connected to.
        if self.keys.len() >= size || self.several_each {
            return Ok(());
        }
        if !self.keys.insert(card.public_key) {
            return Err(Disorder::Again);
        }
        let Some(rank) = card.rank else { return Ok(()) };
        if rank as usize >= size {
            return Err(Disorder::Stranger);
        }
        if !self.ranks.insert(rank) {
            // Another key, so another endpoint of that rank: nobody but the rank could make its card.
            self.several_each = true;
            return Ok(());
        }
        if own == Some(rank) && self.keys.len() == 1 {
            self.last.insert(card.address.ip(), None);
            return Ok(());
        }
        let before = self.last.insert(card.address.ip(), Some(rank));
        self.first_of_hosts = match (&self.first_of_hosts, before) {
            (FirstOfHosts::Over, _) | (_, Some(_)) => FirstOfHosts::Over,
            (&FirstOfHosts::Last(first), None) if first > rank => return Err(Disorder::After(first)),
            _ => FirstOfHosts::Last(rank),
        };
        match before.flatten() {
            Some(last) if last > rank => Err(Disorder::After(last)),
            _ => Ok(()),
        }
    }
}

/// Why a card can't be the one that MPI means to insert.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Disorder {
    /// The card was inserted before.
    Again,
    /// The world has no such rank.
    Stranger,
    /// It follows that of a later rank.
    After(u32),
}

/// Looks at a card that MPI inserts, if MPI is just starting.
pub(crate) fn inserted(order: &mut Order, card: &Card, membership: &Membership) {
    let Some(size) = size().filter(|_| mpi_starts()) else { return };
    let Err(disorder) = order.follow(card, membership.rank, size) else { return };
    let of = name(card, membership);
    let why = match disorder {
        Disorder::Again => "was given to MPI for two ranks".to_owned(),
        Disorder::Stranger => "was given to MPI for another process than its owner".to_owned(),
        Disorder::After(rank) => format!("was given to MPI where that of a rank after {rank} belongs"),
    };
    stop(format_args!("the address of {of} {why}: {SWAPPED}"));
}

/// Notices an MPI_Init that does not end. A rank that has the address of another in a third one's place waits for a
/// message that went elsewhere, and the roll is called only when MPI_Init is over.
pub(crate) struct StartUp {
    over: bool,
    since_ns: u64,
    /// Messages and peers when something moved last.
    moved: (u64, usize),
}

impl StartUp {
    pub(crate) fn new(now_ns: u64) -> Self {
        Self { over: false, since_ns: now_ns, moved: (0, 0) }
    }

    pub(crate) fn is_over(&self) -> bool {
        self.over
    }

    /// Ends the process when MPI still starts and no message went or came for `limit_ns`; zero: never. `peers` are those
    /// that were talked to.
    pub(crate) fn look<'p>(
        &mut self,
        now_ns: u64,
        limit_ns: u64,
        messages: u64,
        peers: impl ExactSizeIterator<Item = &'p PeerName>,
    ) {
        self.over = limit_ns == 0 || !mpi_starts();
        if self.moved != (messages, peers.len()) {
            (self.moved, self.since_ns) = ((messages, peers.len()), now_ns);
        }
        let waited_ns = now_ns.saturating_sub(self.since_ns);
        if !self.over && peers.len() > 0 && waited_ns > limit_ns {
            let more = peers.len().saturating_sub(NAMED);
            let mut named = peers.take(NAMED).map(PeerName::to_string).collect::<Vec<_>>().join(", ");
            if more > 0 {
                named += &format!(" and {more} more");
            }
            stop(format_args!(
                "MPI_Init talks to {named} and nothing has come or gone for {} s: a rank hangs, or somebody swaps or copies \
                 addresses in their exchange so that messages reach the wrong rank; the job ends here. \
                 Where ranks start that slowly, raise gap_timeout in the policy",
                waited_ns / 1_000_000_000
            ));
        }
    }
}

/// Peers that a sentence names.
const NAMED: usize = 3;

/// How the card's owner is named in sentences.
fn name(card: &Card, membership: &Membership) -> PeerName {
    let host = membership.job.policy.host_name(card.host).map(str::to_owned);
    PeerName { rank: card.rank, host: host.unwrap_or_else(|| card.address.ip().to_string()) }
}

/// How many ranks the world has, when the launcher told.
fn size() -> Option<usize> {
    let names = ["PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS"];
    names.iter().find_map(|name| env::var(name).ok()?.parse().ok())
}

/// Whether this process is inside MPI_Init, as the guard in front of it says.
fn mpi_starts() -> bool {
    // SAFETY: a C string; the guard stands in LD_PRELOAD, so its symbol is global.
    let symbol = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"gambeson_mpi_starts".as_ptr()) };
    // SAFETY: the guard exports this function with this prototype.
    !symbol.is_null() && unsafe { std::mem::transmute::<*mut libc::c_void, extern "C" fn() -> c_int>(symbol)() } != 0
}

/// The rank that is called, or none.
static CALLED: AtomicI64 = AtomicI64::new(NOBODY);
static ANSWERS: AtomicU64 = AtomicU64::new(0);

/// The guard is about to send the message of the roll call to `rank` of MPI_COMM_WORLD; below zero: to nobody any more.
/// How many addresses were seen for the rank before.
pub(crate) fn call(rank: i64) -> u64 {
    CALLED.store(rank.max(NOBODY), Ordering::Release);
    ANSWERS.swap(0, Ordering::AcqRel)
}

/// Whether a send is the roll call's.
pub(crate) fn is_call(lane: Lane, tag: u64, len: usize) -> bool {
    CALLED.load(Ordering::Relaxed) != NOBODY && lane == Lane::Tagged && len == 0 && tag & 0xFFFF == CALL_TAG
}

/// The address that MPI takes for the rank that is called is this card.
pub(crate) fn answer(card: &[u8], membership: &Membership) {
    ANSWERS.fetch_add(1, Ordering::AcqRel);
    let rank = CALLED.load(Ordering::Acquire);
    // The vector took the card in, so it decodes.
    let Ok(card) = Card::decode(card, &membership.job.admission) else { return };
    if card.rank.is_some_and(|owner| i64::from(owner) != rank) {
        stop(format_args!("MPI takes the address of {} for that of rank {rank}: {SWAPPED}", name(&card, membership)));
    }
}

const NOBODY: i64 = -1;
/// The low bits of an MPI tag, which every library here puts into the low bits of libfabric's.
const CALL_TAG: u64 = 0x4742;
const SWAPPED: &str = "somebody swaps or copies addresses in their exchange, and messages would reach the wrong rank; \
                       the job ends here";

#[cfg(test)]
mod tests {
    use super::*;
    use gambeson_proto::identity::HostIndex;

    /// A world given as ranks with their hosts, in the order of insertion.
    fn check(own: u32, world: &[(u32, u8)]) -> Result<(), Disorder> {
        let mut order = Order::default();
        world.iter().try_for_each(|&(rank, host)| {
            let card = Card {
                address: ([10, 0, 0, host], 1000 + rank as u16).into(),
                public_key: [rank as u8; 32],
                rank: Some(rank),
                host: HostIndex::UNLISTED,
            };
            order.follow(&card, Some(own), 4)
        })
    }

    #[test]
    fn orders_of_honest_libraries_pass() {
        for own in 0..4 {
            check(own, &[(0, 0), (1, 0), (2, 0), (3, 0)]).unwrap();
            check(own, &[(0, 0), (1, 1), (2, 0), (3, 1)]).unwrap();
            // One of each host first.
            check(own, &[(0, 0), (2, 1), (1, 0), (3, 1)]).unwrap();
        }
        // Its own first.
        check(2, &[(2, 0), (0, 0), (1, 0), (3, 0)]).unwrap();
        check(0, &[(0, 0), (2, 1), (1, 0), (3, 1)]).unwrap();
        check(3, &[(3, 1), (0, 0), (2, 1), (1, 0)]).unwrap();
        // Then processes that joined later, in any order and with ranks of their own worlds.
        check(0, &[(0, 0), (1, 0), (2, 0), (3, 0), (9, 0), (8, 0), (1, 0), (1, 0)]).unwrap();
    }

    #[test]
    fn ranks_may_have_several_endpoints_each() {
        let mut order = Order::default();
        for (rank, endpoint) in [(0, 0), (0, 1), (1, 0), (1, 1), (0, 2), (1, 2)] {
            let card = Card {
                address: ([10, 0, 0, 0], 1000 + 10 * endpoint + rank).into(),
                public_key: [10 * endpoint as u8 + rank as u8; 32],
                rank: Some(rank.into()),
                host: HostIndex::UNLISTED,
            };
            order.follow(&card, Some(0), 4).unwrap();
        }
    }

    #[test]
    fn swapped_and_copied_cards_are_noticed() {
        assert_eq!(check(0, &[(0, 0), (2, 0), (1, 0), (3, 0)]), Err(Disorder::After(2)));
        assert_eq!(check(3, &[(0, 0), (2, 0), (1, 0), (3, 0)]), Err(Disorder::After(2)));
        assert_eq!(check(0, &[(1, 0), (0, 0), (2, 0), (3, 0)]), Err(Disorder::After(1)));
        assert_eq!(check(0, &[(0, 0), (2, 2), (1, 1), (3, 3)]), Err(Disorder::After(2)));
        assert_eq!(check(0, &[(0, 0), (1, 0), (1, 0)]), Err(Disorder::Again));
        assert_eq!(check(0, &[(0, 0), (1, 0), (4, 0)]), Err(Disorder::Stranger));
    }
}
