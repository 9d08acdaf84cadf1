//! Protection by communicator (secure-nexus paper, section 6.1): which messages are to be protected otherwise than the
//! pair of processes that they go between.
//!
//! An MPI library packs the identifier of a message's communicator (MPI's context) into the tag that the message is
//! matched by. The tag is in the frame of a record, which the pair's own protection covers, so sender and receiver look
//! the identifier up each in a table of its own: the sender to choose a protection, the receiver to demand one. What the
//! header of a record claims never chooses.
//!
//! ```text
//!  tag ──Layout──> identifier ──Table──> Wish ──policy, places of both ends──> protection
//! ```
//!
//! An identifier that the table lacks has what the policy says of the pair. A wish makes messages stronger, and weaker
//! only as far as the policy has a rule about communicators that says so. Messages that carry no identifier (one-sided
//! data, messages of the endpoints' own) have the strongest protection of all communicators that the two processes share;
//! so do those of identifiers that the table lacks, where the library makes communicators that nobody is told of.
//!
//! A tag's identifier is its receiver's. In most communicators it is everybody's, but those between two groups and those of
//! sessions may have one at the one end that means another communicator at the other. So a wish makes messages weaker only
//! between processes that are both in the communicator that has it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::identity::PublicKey;
use crate::policy::Policy;
use crate::suite::Protection;

/// Where an MPI library puts a communicator's identifier in a tag.
///
/// All traffic of a communicator has one identifier: point-to-point, collective, and that of the communicators which a
/// library makes of it for its own use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// What it is called in sentences.
    pub name: &'static str,
    shift: u32,
    identifiers: u64,
    /// The bits of MPI's own tag.
    tag: u64,
    /// Bits that vary between messages of a communicator and say nothing of it.
    varying: u64,
    /// With one of these bits a tag may be no communicator's.
    foreign: u64,
    /// Whether the library makes communicators of a program's by ways of its own, with other identifiers.
    hidden: bool,
}

impl Layout {
    /// MPICH since 4.2 (ch4:ofi), where the source travels as remote data: 31 bits of tag, 4 that tell a communicator's parts
    /// apart, then the identifier. Bit 54 marks synchronous sends; those around it are acknowledgements and the messages
    /// by which processes connect.
    pub const MPICH: Layout = Layout {
        name: "MPICH",
        shift: 35,
        identifiers: 0xFFF,
        tag: 0x7FFF_FFFF,
        varying: 0xF << 31,
        foreign: !((1 << 47) - 1) & !(1 << 54),
        hidden: false,
    };
    /// Intel MPI 2021: 20 bits of tag, 4 for the parts, the identifier, and from bit 40 on the source. Bit 61 marks
    /// synchronous sends.
    pub const INTEL: Layout = Layout {
        name: "Intel MPI",
        shift: 24,
        identifiers: 0xFFF,
        tag: 0xF_FFFF,
        varying: 0xF << 20 | 0xF_FFFF << 40,
        foreign: 0xF << 36 | 0xD << 60,
        hidden: false,
    };
    /// Open MPI 4 and 5 (mtl/ofi), where the source travels as remote data: 32 bits of tag, whose negative half is the
    /// collectives', two of the protocol of synchronous sends, then the identifier. It makes communicators of its own for
    /// files, for partitioned communication and, up to Open MPI 4, for windows.
    pub const OPEN_MPI: Layout = Layout {
        name: "Open MPI",
        shift: 34,
        identifiers: 0x3FFF_FFFF,
        tag: 0xFFFF_FFFF,
        varying: 0,
        foreign: 0,
        hidden: true,
    };

    /// The layouts of the MPICH family, then Open MPI's.
    pub fn of_family(open_mpi: bool) -> &'static [Layout] {
        if open_mpi { &[Layout::OPEN_MPI] } else { &[Layout::MPICH, Layout::INTEL] }
    }

    /// The identifier in a tag.
    pub fn identifier(&self, tag: u64) -> u64 {
        tag >> self.shift & self.identifiers
    }

    /// Whether `tag` is what this layout makes of a point-to-point message with MPI's tag `probe`, where MPI's largest is
    /// `largest`. A library reserves at most two bits of its tags' for itself.
    pub fn fits(&self, tag: u64, probe: u64, largest: u64) -> bool {
        let parts = 0xF << (self.shift - 4) & self.varying;
        let free = self.identifiers << self.shift | self.varying & !parts;
        largest <= self.tag && largest >= self.tag >> 2 && tag & !free == probe
    }
}

/// What a communicator asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wish {
    /// How its messages are to be protected.
    pub protection: Protection,
    /// Its name for the policy's rules, if it has one.
    pub class: Option<Box<str>>,
}

/// A wish by its number; 0 is to ask for nothing.
pub type WishNumber = u8;

/// One step in giving a communicator its protection. In between, all its processes have heard from each other: nothing
/// that was sent before the step is still on its way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Sends with these identifiers satisfy both wishes from now on, and all that goes to these peers without an
    /// identifier satisfies them, too.
    Send([WishNumber; 2]),
    /// What arrives has to satisfy this wish from now on.
    Demand(WishNumber),
}

/// The communicators of a process, shared by its endpoints.
#[derive(Default)]
pub struct Communicators {
    version: AtomicU64,
    table: Mutex<Arc<Table>>,
}

/// What is known of them at a time.
#[derive(Clone, Default)]
pub(crate) struct Table {
    layout: Option<Layout>,
    /// By identifier.
    send: Vec<[WishNumber; 2]>,
    demand: Vec<WishNumber>,
    wishes: Vec<Wish>,
    /// The wishes of communicators shared with a peer, ever: what is sent to it, and what is demanded of it.
    shared: [HashMap<PublicKey, Vec<WishNumber>>; 2],
    /// The communicators that a peer is in.
    members: HashMap<PublicKey, Identifiers>,
}

/// A set of identifiers, a bit each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Identifiers(Vec<u64>);

/// Why a communicator can't have a protection of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The policy allows nobody so little.
    Policy,
    /// Its identifier is larger than any that is kept.
    Identifier,
    /// The tags look otherwise than before.
    Layout,
    /// There are too many different wishes.
    Wishes,
}

/// Identifiers are below this, and so many the tables may have entries of.
const IDENTIFIERS_MAX: u64 = 1 << 16;

impl Communicators {
    /// The number of a wish, if the policy allows it anywhere.
    pub fn number(&self, policy: &Policy, wish: Wish) -> Result<WishNumber, Refused> {
        if !policy.allows_communicator(wish.protection, wish.class.as_deref()) {
            return Err(Refused::Policy);
        }
        let mut table = self.lock();
        let known = table.wishes.iter().position(|known| *known == wish);
        let place = match known {
            Some(place) => place,
            None if table.wishes.len() >= usize::from(WishNumber::MAX) => return Err(Refused::Wishes),
            None => {
                let changed = Arc::make_mut(&mut table);
                changed.wishes.push(wish);
                changed.wishes.len() - 1
            }
        };
        Ok(WishNumber::try_from(place + 1).expect("checked above"))
    }

    /// The wish of a number.
    pub fn wish(&self, number: WishNumber) -> Option<Wish> {
        self.lock().wish(number).cloned()
    }

    /// Fixes where identifiers stand in tags, for as long as the process lives.
    pub fn set_layout(&self, layout: Layout) -> Result<(), Refused> {
        let mut table = self.lock();
        if table.layout.is_some_and(|known| known != layout) {
            return Err(Refused::Layout);
        }
        Arc::make_mut(&mut table).layout = Some(layout);
        Ok(())
    }

    /// Takes a step for the communicator of an identifier, whose other processes are `peers`.
    pub fn take(&self, identifier: u64, peers: &[PublicKey], step: Step) -> Result<(), Refused> {
        let index = usize::try_from(identifier).ok().filter(|_| identifier < IDENTIFIERS_MAX);
        let index = index.ok_or(Refused::Identifier)?;
        let mut table = self.lock();
        let table = Arc::make_mut(&mut table);
        let (direction, wishes) = match step {
            Step::Send(wishes) => {
                set(&mut table.send, index, wishes);
                (0, wishes)
            }
            Step::Demand(wish) => {
                set(&mut table.demand, index, wish);
                (1, [wish; 2])
            }
        };
        table.members.values_mut().for_each(|identifiers| identifiers.remove(index));
        for peer in peers {
            table.members.entry(*peer).or_default().insert(index);
            let shared = table.shared[direction].entry(*peer).or_default();
            for wish in wishes {
                if wish != 0 && !shared.contains(&wish) {
                    shared.push(wish);
                }
            }
        }
        self.version.fetch_add(1, Ordering::Release);
        Ok(())
    }

    /// Whether any has a protection of its own now.
    pub fn are_protected(&self) -> bool {
        let table = self.lock();
        table.demand.iter().chain(table.send.iter().flatten()).any(|&wish| wish != 0)
    }

    /// Changes whenever the table does.
    pub(crate) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    pub(crate) fn table(&self) -> Arc<Table> {
        Arc::clone(&self.lock())
    }

    fn lock(&self) -> MutexGuard<'_, Arc<Table>> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    /// The wishes that a message with this tag has to satisfy, and whether the tag may be no communicator's that has them:
    /// one of those `with` its peer in them.
    pub(crate) fn send(&self, tag: u64, with: &Identifiers) -> ([WishNumber; 2], bool) {
        self.entry(&self.send, tag, with)
    }

    /// The wish that is demanded of a message with this tag, and whether the tag may be no communicator's that has it.
    pub(crate) fn demand(&self, tag: u64, with: &Identifiers) -> (WishNumber, bool) {
        self.entry(&self.demand, tag, with)
    }

    fn entry<T: Copy + Default>(&self, entries: &[T], tag: u64, with: &Identifiers) -> (T, bool) {
        let Some(layout) = &self.layout else { return (T::default(), false) };
        let identifier = usize::try_from(layout.identifier(tag)).unwrap_or(usize::MAX);
        let foreign = tag & layout.foreign != 0 || !with.contains(identifier);
        (entries.get(identifier).copied().unwrap_or_default(), foreign)
    }

    pub(crate) fn wish(&self, number: WishNumber) -> Option<&Wish> {
        self.wishes.get(usize::from(number).checked_sub(1)?)
    }

    /// The wishes of communicators shared with a peer: of what is sent, and of what arrives.
    pub(crate) fn shared(&self, peer: &PublicKey) -> [&[WishNumber]; 2] {
        self.shared.each_ref().map(|peers| peers.get(peer).map_or(&[][..], Vec::as_slice))
    }

    /// Whether messages of identifiers that ask for nothing may be of communicators that were made of one that does.
    pub(crate) fn has_hidden(&self) -> bool {
        self.layout.is_some_and(|layout| layout.hidden)
    }

    /// The communicators that a peer is in, as far as they were given anything.
    pub(crate) fn with(&self, peer: &PublicKey) -> Identifiers {
        self.members.get(peer).cloned().unwrap_or_default()
    }
}

impl Identifiers {
    fn contains(&self, identifier: usize) -> bool {
        self.0.get(identifier / 64).is_some_and(|word| word >> (identifier % 64) & 1 != 0)
    }

    fn insert(&mut self, identifier: usize) {
        if self.0.len() <= identifier / 64 {
            self.0.resize(identifier / 64 + 1, 0);
        }
        self.0[identifier / 64] |= 1 << (identifier % 64);
    }

    fn remove(&mut self, identifier: usize) {
        if let Some(word) = self.0.get_mut(identifier / 64) {
            *word &= !(1 << (identifier % 64));
        }
    }
}

fn set<T: Copy + Default>(entries: &mut Vec<T>, index: usize, value: T) {
    if entries.len() <= index {
        entries.resize(index + 1, T::default());
    }
    entries[index] = value;
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROBE: u64 = 0x4742;

    /// Tags as the libraries made them, seen over the provider.
    #[test]
    fn layouts_are_those_of_the_libraries() {
        for (layout, tag, identifier, foreign) in [
            (Layout::MPICH, 0x0000_00f8_0000_0077, 0x1f, false),
            (Layout::MPICH, 0x0000_00f8_8000_000e, 0x1f, false),
            (Layout::MPICH, 0x0000_00db_8000_000e, 0x1b, false),
            (Layout::MPICH, 0x0040_00f8_0000_0005, 0x1f, false),
            (Layout::MPICH, 0x0010_0000_0000_0003, 0, true),
            (Layout::INTEL, 0x0000_0100_1f00_0005, 0x1f, false),
            (Layout::INTEL, 0x0000_0100_1930_000e, 0x19, false),
            (Layout::INTEL, 0x2000_0000_1f00_0005, 0x1f, false),
            (Layout::INTEL, 0x1000_0100_1f00_0005, 0x1f, true),
            (Layout::OPEN_MPI, 0x0000_0010_0000_0077, 4, false),
            (Layout::OPEN_MPI, 0x0000_000c_ffff_fff0, 3, false),
            (Layout::OPEN_MPI, 0x0000_000d_0000_0005, 3, false),
        ] {
            assert_eq!(layout.identifier(tag), identifier, "{} {tag:#x}", layout.name);
            assert_eq!(tag & layout.foreign != 0, foreign, "{} {tag:#x}", layout.name);
        }
    }

    #[test]
    fn a_layout_fits_only_its_own_tags() {
        let (mpich, intel, open) = (0x3FFF_FFFF, 0x7_FFFF, 0x7FFF_FFFF);
        let probe = |largest: u64| largest & !0xFFFF | PROBE;
        let check = |layout: Layout, tag, largest, fits| {
            assert_eq!(layout.fits(tag, probe(largest), largest), fits, "{} {tag:#x}", layout.name);
        };
        check(Layout::MPICH, 0x1f << 35 | probe(mpich), mpich, true);
        check(Layout::INTEL, 7 << 40 | 0x1f << 24 | probe(intel), intel, true);
        check(Layout::OPEN_MPI, 3 << 34 | probe(open), open, true);
        // The parts of a communicator, other tags, another width of the tag.
        check(Layout::MPICH, 1 << 31 | 0x1f << 35 | probe(mpich), mpich, false);
        check(Layout::MPICH, 0x1f << 35 | probe(mpich) ^ 1, mpich, false);
        check(Layout::MPICH, 7 << 40 | 0x1f << 24 | probe(intel), intel, false);
        check(Layout::MPICH, 1 << 52 | 0x1f << 35 | probe(mpich), mpich, false);
        check(Layout::INTEL, 0x1f << 35 | probe(mpich), mpich, false);
        check(Layout::OPEN_MPI, 1 << 32 | probe(open), open, false);
    }

    #[test]
    fn wishes_are_numbered_once_and_only_if_allowed() {
        let policy = "[[rule]]\nbetween = [\"*\", \"*\"]\ncommunicator = \"ocean\"\nprotection = \"integrity\"";
        let policy = Policy::parse(policy, "p").unwrap();
        let communicators = Communicators::default();
        let number = |protection, class: Option<&str>| {
            communicators.number(&policy, Wish { protection, class: class.map(Into::into) })
        };
        assert_eq!(number(Protection::Integrity, Some("ocean")), Ok(1));
        assert_eq!(number(Protection::Privacy, None), Ok(2));
        assert_eq!(number(Protection::Integrity, Some("ocean")), Ok(1));
        assert_eq!(number(Protection::None, Some("ocean")), Err(Refused::Policy));
        assert_eq!(number(Protection::Integrity, None), Err(Refused::Policy));
        assert_eq!(number(Protection::Integrity, Some("sky")), Err(Refused::Policy));
    }

    #[test]
    fn unknown_identifiers_ask_for_nothing() {
        let communicators = Communicators::default();
        assert_eq!(communicators.take(1 << 16, &[], Step::Demand(1)), Err(Refused::Identifier));
        assert!(!communicators.are_protected());
        communicators.take(3, &[[1; 32]], Step::Send([1, 2])).unwrap();
        assert!(communicators.are_protected());
        let with = |peer| communicators.table().with(&[peer; 32]);
        assert_eq!(communicators.table().send(3 << 34, &with(1)), ([0; 2], false), "no layout, no identifiers");
        communicators.set_layout(Layout::OPEN_MPI).unwrap();
        assert_eq!(communicators.set_layout(Layout::MPICH), Err(Refused::Layout));
        let table = communicators.table();
        assert_eq!(table.send(3 << 34 | 0xFFFF_FFF0, &with(1)), ([1, 2], false));
        assert_eq!(table.send(4 << 34, &with(1)).0, [0; 2]);
        assert_eq!(table.send(u64::MAX, &with(1)).0, [0; 2]);
        assert_eq!(table.demand(3 << 34, &with(1)).0, 0);
        assert_eq!(table.shared(&[1; 32]), [&[1, 2][..], &[]]);
        assert!(table.shared(&[2; 32]).iter().all(|wishes| wishes.is_empty()));
        communicators.take(3, &[], Step::Send([0; 2])).unwrap();
        assert!(!communicators.are_protected());
    }

    #[test]
    fn who_is_not_in_a_communicator_may_mean_another_by_its_identifier() {
        let communicators = Communicators::default();
        communicators.set_layout(Layout::OPEN_MPI).unwrap();
        communicators.take(100, &[[1; 32], [2; 32]], Step::Send([1; 2])).unwrap();
        let send = |peer| {
            let table = communicators.table();
            table.send(100 << 34, &table.with(&[peer; 32]))
        };
        assert_eq!([1, 2, 3].map(send), [([1; 2], false), ([1; 2], false), ([1; 2], true)]);
        // Freed, and another has the identifier.
        communicators.take(100, &[[3; 32]], Step::Send([2; 2])).unwrap();
        assert_eq!([1, 3].map(send), [([2; 2], true), ([2; 2], false)]);
    }
}
