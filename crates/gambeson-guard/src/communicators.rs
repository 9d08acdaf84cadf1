//! Protection by communicator: the info key `gambeson_protection`, and what communicators inherit.
//!
//! All processes of a communicator call MPI's functions that make one or set its info, so that is where they agree:
//!
//! ```text
//!  same word on all ranks? ──> identifier, learned by the provider from receives that are cancelled again
//!       ──> the same on all ranks, and in the tags of these collectives?
//!       ──> senders satisfy the old and the new wish ──> everybody has heard from everybody
//!       ──> receivers demand the new one ──> everybody has heard from everybody ──> senders satisfy the new one
//! ```
//!
//! So no message is ever weaker than its receiver demands, whichever way a communicator changes. When something is not
//! as it must be, all ranks find the same, and the call fails on all of them.

use std::collections::HashMap;
use std::ffi::{CStr, CString, c_int};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use crate::mpi::{Missing, Mpi};
use crate::provider::Communicators;
use crate::refusal::{self, Refusal};
use crate::{environment, provider};

/// What a communicator was given.
#[derive(Clone)]
struct Given {
    /// How its messages are known to the provider, if any pass it.
    identifier: Option<u64>,
    wish: u8,
    word: &'static CStr,
}

/// By handle.
static GIVEN: Mutex<Option<HashMap<usize, Given>>> = Mutex::new(None);

/// The library and the provider, in a process of a job whose endpoint is open.
struct Parties {
    mpi: Mpi,
    provider: Communicators,
}

fn parties() -> Option<&'static Parties> {
    static PARTIES: LazyLock<Option<Parties>> =
        LazyLock::new(|| Some(Parties { mpi: Mpi::find(), provider: provider::communicators()? }));
    environment::job()?;
    PARTIES.as_ref()
}

/// What an info object asks for.
enum Asked {
    Nothing,
    Wish(Given),
    Wrong(String),
}

/// What becomes of a communicator, or why not: a sentence.
type Outcome<T> = Result<T, String>;

/// A communicator was made: of `parent` if of one, with this info if with any; its handle stands at `made`.
pub(crate) fn made(parent: Option<usize>, info: Option<usize>, made: usize) -> c_int {
    let Some(parties) = parties() else { return 0 };
    let mpi = &parties.mpi;
    let Some(comm) = mpi.communicator_at(made) else { return 0 };
    let parent = parent.map(|parent| mpi.handle(parent));
    let inherited = parent.and_then(given);
    let outcome = match (info, inherited) {
        (None, None) => return 0,
        // Everybody who is in it is in the communicator that it was made of.
        (None, Some(inherited)) => parties.give(comm, None, inherited),
        (Some(info), inherited) => {
            parties.asked(info, comm).and_then(|asked| match (parties.agree(comm, asked)?, inherited) {
                (Some(wish), _) | (None, Some(wish)) => parties.give(comm, None, wish),
                (None, None) => Ok(()),
            })
        }
    };
    let Err(sentence) = outcome else { return 0 };
    let code = fail(mpi, parent.unwrap_or(comm), &sentence);
    // Nobody is left with a communicator that is not what he asked for.
    if mpi.free_at(made).is_err() {
        stop(&sentence);
    }
    code
}

/// A program gives hints to a communicator.
pub(crate) fn set_info(comm: usize, info: usize) -> c_int {
    let Some(parties) = parties() else { return 0 };
    let comm = parties.mpi.handle(comm);
    let outcome = parties.asked(info, comm).and_then(|asked| match parties.agree(comm, asked)? {
        Some(wish) => parties.give(comm, given(comm), wish),
        None => Ok(()),
    });
    outcome.map_or_else(|sentence| fail(&parties.mpi, comm, &sentence), |()| 0)
}

/// A program asks for the hints that hold; `info` is where MPI has put them.
pub(crate) fn add_info(comm: usize, info: usize) -> c_int {
    let Some(parties) = parties() else { return 0 };
    let (Some(given), Some(info)) = (given(parties.mpi.handle(comm)), parties.mpi.communicator_at(info)) else {
        return 0;
    };
    parties.mpi.set_info(info, PROTECTION, given.word).unwrap_or(0)
}

/// A communicator is about to be given up: what was on its way in it arrives first, and its identifier means nothing more.
pub(crate) fn give_up(address: usize) -> Option<c_int> {
    let parties = parties()?;
    let comm = parties.mpi.communicator_at(address)?;
    let held = given(comm)?;
    let plain = Given { identifier: held.identifier, wish: 0, word: c"" };
    let outcome = parties.change(comm, held.identifier, held.wish, plain.wish);
    known().get_or_insert_default().remove(&comm);
    outcome.err().map(|sentence| fail(&parties.mpi, comm, &sentence))
}

/// A communicator would be made behind the program's back, where its processes can't agree on anything.
pub(crate) fn refuse_later(parent: usize, info: Option<usize>) -> Option<c_int> {
    let parties = parties()?;
    let parent = parties.mpi.handle(parent);
    let asks = |info| parties.mpi.info(info, PROTECTION).is_ok_and(|word| word.is_some());
    if given(parent).is_none() && !info.is_some_and(asks) {
        return None;
    }
    let sentence = "MPI_Comm_idup and MPI_Comm_idup_with_info can't give a communicator its gambeson_protection, because its \
                    ranks agree on that when it is made; use MPI_Comm_dup or MPI_Comm_dup_with_info";
    Some(fail(&parties.mpi, parent, sentence))
}

impl Parties {
    /// What an info object asks for, as far as this process can tell.
    fn asked(&self, info: usize, comm: usize) -> Outcome<Asked> {
        let info = self.mpi.handle(info);
        if info == self.mpi.info_null {
            return Ok(Asked::Nothing);
        }
        let Some(word) = self.mpi.info(info, PROTECTION)? else { return Ok(Asked::Nothing) };
        let Some(number) = WORDS.iter().position(|known| known.to_bytes() == word.as_bytes()) else {
            return Ok(Asked::Wrong(format!(
                "gambeson_protection = \"{word}\" is unknown; write \"privacy\", \"integrity\" or \"none\""
            )));
        };
        let class = match self.mpi.info(info, CLASS)? {
            Some(class) => class,
            None => self.mpi.name(comm)?,
        };
        let class = CString::new(class).unwrap_or_default();
        Ok(match self.provider.wish(number as c_int + 1, &class) {
            Ok(wish) => Asked::Wish(Given { identifier: None, wish, word: WORDS[number] }),
            Err(POLICY) => Asked::Wrong(format!(
                "gambeson_protection = \"{word}\" is weaker than the policy allows a communicator {}; have a rule written \
                 with communicator = \"...\" and protection = \"{word}\", or ask for more",
                if class.is_empty() { "without a name".to_owned() } else { format!("called {class:?}") }
            )),
            Err(error) => Asked::Wrong(reason(error)),
        })
    }

    /// What all of its processes ask for alike.
    fn agree(&self, comm: usize, asked: Asked) -> Outcome<Option<Given>> {
        // Wishes have one number for one word and one class in a process; between processes their words are compared,
        // with what tells classes apart.
        let (value, wrong) = match &asked {
            Asked::Nothing => (0, None),
            Asked::Wish(given) => (self.provider.mark(given.wish), None),
            Asked::Wrong(sentence) => (0, Some(sentence.clone())),
        };
        match self.same(comm, Some(value), wrong.is_some())? {
            Verdict::Same => Ok(match asked {
                Asked::Wish(given) => Some(given),
                _ => None,
            }),
            Verdict::Differs => Err(wrong.unwrap_or_else(|| {
                "the ranks of this communicator ask for different protections, or one of them for what it can't have; give \
                 gambeson_protection (and gambeson_class) the same value on all of them"
                    .to_owned()
            })),
        }
    }

    /// Gives a communicator its protection.
    fn give(&self, comm: usize, before: Option<Given>, wish: Given) -> Outcome<()> {
        self.provider.watch(true);
        let identifier = self.learn(comm);
        let identifier = identifier.and_then(|known| self.confirm(comm, known));
        self.provider.watch(false);
        let identifier = identifier?;
        self.change(comm, identifier, before.map_or(0, |before| before.wish), wish.wish)?;
        known().get_or_insert_default().insert(comm, Given { identifier, ..wish });
        Ok(())
    }

    /// The communicator's identifier, if any of its messages pass the provider, or why it can't be known.
    fn learn(&self, comm: usize) -> Outcome<Outcome<Option<u64>>> {
        static WORLD: Mutex<bool> = Mutex::new(false);
        let mpi = &self.mpi;
        let Some(largest) = mpi.largest_tag(comm)? else { return Ok(Err(reason(TAGS))) };
        let mut seen = WORLD.lock().unwrap_or_else(PoisonError::into_inner);
        if !*seen && mpi.has_world()? {
            // The world has an identifier that everybody knows: so the tags are read right.
            if self
                .look(mpi.world, largest)?
                .is_ok_and(|identifier| identifier.is_some_and(|identifier| identifier != 0))
            {
                return Ok(Err(reason(LAYOUT)));
            }
            *seen = true;
        }
        let identifier = self.look(comm, largest)?;
        if comm != mpi.world && identifier == Ok(Some(0)) {
            return Ok(Err(reason(LAYOUT)));
        }
        Ok(identifier)
    }

    /// Posts a receive for every other rank, and takes it back.
    fn look(&self, comm: usize, largest: u64) -> Outcome<Outcome<Option<u64>>> {
        let mpi = &self.mpi;
        let probe = largest & !0xFFFF | PROBE;
        let tag = c_int::try_from(probe).map_err(|_| reason(LAYOUT))?;
        let (own, ranks) = match mpi.remote_size(comm)? {
            Some(remote) => (None, remote),
            None => (mpi.rank(comm)?, mpi.size(comm)?.unwrap_or(0)),
        };
        for rank in (0..ranks).filter(|&rank| Some(rank) != own) {
            let receive = mpi.receive(comm, rank, tag)?;
            if !mpi.cancel(receive)? {
                stop(&format!(
                    "rank {rank} has sent a message with tag {tag}, which Gambeson needs to learn of communicators; use another"
                ));
            }
        }
        match self.provider.learn(probe, largest, mpi.is_open_mpi) {
            Ok(identifier) => Ok(Ok(Some(identifier))),
            Err(NOTHING) => Ok(Ok(None)),
            Err(error) => Ok(Err(reason(error))),
        }
    }

    /// Whether all of a communicator's processes know it by one identifier, and its collectives bear that.
    fn confirm(&self, comm: usize, learned: Outcome<Option<u64>>) -> Outcome<Option<u64>> {
        let wrong = learned.as_ref().err().cloned();
        let identifier = learned.unwrap_or(None);
        let value = identifier.map(|identifier| c_int::try_from(identifier).expect("identifiers have 30 bits at most"));
        let other = || wrong.clone().unwrap_or_else(|| reason(DIFFERENT));
        let Verdict::Same = self.same(comm, value, wrong.is_some())? else { return Err(other()) };
        let unseen = identifier.is_some_and(|identifier| !self.provider.saw(identifier));
        match self.same(comm, Some(0), unseen)? {
            Verdict::Same => Ok(identifier),
            Verdict::Differs => Err(reason(UNSEEN)),
        }
    }

    fn change(&self, comm: usize, identifier: Option<u64>, before: u8, wish: u8) -> Outcome<()> {
        let ranks = match self.mpi.remote_size(comm)? {
            Some(remote) => remote,
            None => self.mpi.size(comm)?.unwrap_or(0),
        };
        let step = |demand, one, other| {
            let taken = identifier.map_or(Ok(()), |identifier| self.provider.step(identifier, demand, one, other));
            // The identifier was learned and the wish has a number: what is left is one of too large an identifier, on all
            // ranks alike, before anything has changed.
            taken.map_err(reason)
        };
        step(false, before, wish)?;
        self.mpi.exchange(comm, ranks)?;
        step(true, wish, wish)?;
        self.mpi.exchange(comm, ranks)?;
        step(false, wish, wish)
    }

    /// Whether all processes have one value, those that have none aside, and nothing is wrong with any.
    fn same(&self, comm: usize, value: Option<c_int>, wrong: bool) -> Outcome<Verdict> {
        let (least, most) = value.map_or((c_int::MIN, c_int::MIN), |value| (-value, value));
        let [others_least, others_most, wrongs] = self.mpi.greatest(comm, [least, most, c_int::from(wrong)])?;
        let one = others_most == c_int::MIN || others_most == -others_least;
        let own = value.is_none_or(|value| others_most == c_int::MIN || value == others_most);
        let differs = wrong || wrongs != 0 || !one || !own;
        // In an intercommunicator each group has seen the other: what one of them saw, all shall know.
        let [differ] = self.mpi.greatest(comm, [c_int::from(differs)])?;
        Ok(if differs || differ != 0 { Verdict::Differs } else { Verdict::Same })
    }
}

enum Verdict {
    Same,
    Differs,
}

impl From<Missing> for String {
    fn from(Missing(name): Missing) -> String {
        format!("the MPI library lacks {name}, without which no communicator can have a gambeson_protection")
    }
}

fn given(comm: usize) -> Option<Given> {
    known().as_ref()?.get(&comm).cloned()
}

fn known() -> MutexGuard<'static, Option<HashMap<usize, Given>>> {
    GIVEN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Fails as MPI does: by the communicator's error handler.
fn fail(mpi: &Mpi, comm: usize, sentence: &str) -> c_int {
    refusal::say(sentence);
    mpi.fail(comm, sentence).unwrap_or_else(|_| stop(sentence))
}

fn stop(sentence: &str) -> ! {
    refusal::end(&Refusal::communicator(sentence))
}

fn reason(error: c_int) -> String {
    match error {
        DIFFERENT => "the processes know this communicator by different identifiers (an intercommunicator of unequal groups, \
                      or Open MPI's communicators from sessions), so it can't have a gambeson_protection of its own",
        UNSEEN => "the collectives of this communicator don't go by the identifier of its other messages (those of Open MPI's \
                   intercommunicators don't), so it can't have a gambeson_protection of its own; use one that \
                   MPI_Intercomm_merge makes",
        TAGS => "this MPI does not say which tags this communicator has (Open MPI's have that from sessions only if \
                 MPI_Comm_create_from_group made them), so it can't have a gambeson_protection; give one to what it is made of",
        LAYOUT => "this MPI writes communicators into its messages' tags otherwise than any that Gambeson knows, so none can \
                   have a gambeson_protection of its own",
        IDENTIFIER => "this communicator's identifier is beyond 65535, so it can't have a gambeson_protection; free \
                       communicators that are not used any more",
        ENDPOINTS => "this process has several endpoints (MPIR_CVAR_CH4_NUM_VCIS), of which its peers don't know that they are one \
                      process's, so no communicator can have a gambeson_protection; let MPI open one",
        WISHES => "there are more than 255 different gambeson_protection and gambeson_class; use fewer classes",
        _ => "the provider can't give this communicator its gambeson_protection",
    }
    .to_owned()
}

/// What the provider answers.
const NOTHING: c_int = -1;
const POLICY: c_int = -2;
const LAYOUT: c_int = -3;
const IDENTIFIER: c_int = -4;
const WISHES: c_int = -5;
const ENDPOINTS: c_int = -8;
/// What the ranks find out among themselves.
const DIFFERENT: c_int = -100;
const UNSEEN: c_int = -101;
const TAGS: c_int = -102;

const PROTECTION: &CStr = c"gambeson_protection";
const CLASS: &CStr = c"gambeson_class";
/// By the provider's numbers, from 1 on.
const WORDS: [&CStr; 3] = [c"privacy", c"integrity", c"none"];
/// The low bits of the tag by which the provider knows our receives.
const PROBE: u64 = 0x4743;
