//! Random families of startpoints against a model that reads the caveats one by one and knows nothing of secrets.
//!
//! `GAMBESON_SEED=n cargo test -p gambeson-proto startpoint::tests::model` runs that seed alone.

use std::collections::{HashMap, HashSet};

use super::*;
use crate::key_schedule::caveat_name;

const SEEDS: u64 = 150;
const STEPS: usize = 120;

struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) as usize % limit
    }

    fn window(&mut self) -> Window {
        let rights = 1 + self.below(3) as u8;
        window(self.below(2) as u64, self.below(12) as u64, 1 + self.below(12) as u64, rights)
    }

    fn caveat(&mut self, now: u64) -> Caveat {
        match self.below(8) {
            0 | 1 => {
                let count = self.below(8);
                Caveat::methods((0..count).map(|_| self.below(8) as u32).collect::<Vec<_>>())
            }
            2 | 3 => Caveat::Uses(self.below(6) as u64),
            4 => Caveat::Expires(now + self.below(40) as u64),
            5 | 6 => {
                let count = self.below(4);
                Caveat::Memory((0..count).map(|_| self.window()).collect())
            }
            _ => Caveat::Protection(Protection::ALL[self.below(3)]),
        }
    }

    fn pick<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.below(of.len())]
    }
}

/// A root and caveats from it: what a place in a chain is to the model.
type Path = (u8, Vec<u8>);

/// What the model knows: what happened, by paths.
#[derive(Default)]
struct Model {
    now: u64,
    taken: HashMap<Path, u64>,
    revoked: HashSet<Path>,
}

fn path(root: u8, caveats: &[Caveat]) -> Path {
    (root, caveats.iter().flat_map(Caveat::encoded).collect())
}

fn prefixes(caveats: &[Caveat]) -> impl Iterator<Item = (&Caveat, &[Caveat])> {
    (1..=caveats.len()).map(|len| (&caveats[len - 1], &caveats[..len]))
}

impl Model {
    /// All reasons to refuse a link or a request, whatever for.
    fn refusals(&self, root: u8, caveats: &[Caveat]) -> Vec<Refusal> {
        let mut reasons = Vec::new();
        if self.revoked.contains(&path(root, &[])) {
            reasons.extend([Refusal::Unknown, Refusal::Revoked]);
        }
        for (caveat, prefix) in prefixes(caveats) {
            match caveat {
                Caveat::Uses(limit) if self.taken.get(&path(root, prefix)).unwrap_or(&0) >= limit => {
                    reasons.push(Refusal::UsedUp);
                }
                Caveat::Expires(second) if *second <= self.now => {
                    // Once it is swept, nobody remembers it.
                    reasons.extend([Refusal::Expired, Refusal::Unknown]);
                }
                Caveat::Copy(_) if self.revoked.contains(&path(root, prefix)) => reasons.push(Refusal::Revoked),
                _ => {}
            }
        }
        reasons
    }

    fn to_open(&self, root: u8, caveats: &[Caveat], opener: &KeyHash, protection: Protection) -> Vec<Refusal> {
        let mut reasons = self.refusals(root, caveats);
        let holder = caveats.iter().rev().find_map(|caveat| match caveat {
            Caveat::Copy(copy) => Some(copy.holder),
            _ => None,
        });
        if holder.is_some_and(|holder| holder != *opener) {
            reasons.push(Refusal::NotHolder);
        }
        if caveats.iter().any(|caveat| matches!(caveat, Caveat::Protection(floor) if protection > *floor)) {
            reasons.push(Refusal::Unprotected);
        }
        reasons
    }

    fn take(&mut self, root: u8, caveats: &[Caveat]) {
        for (caveat, prefix) in prefixes(caveats) {
            if matches!(caveat, Caveat::Uses(_)) {
                *self.taken.entry(path(root, prefix)).or_default() += 1;
            }
        }
    }
}

fn reaches(caveats: &[Caveat], access: &Window) -> bool {
    let end = |window: &Window| u128::from(window.offset) + u128::from(window.length);
    caveats.iter().all(|caveat| match caveat {
        Caveat::Memory(windows) => windows.iter().any(|window| {
            window.region == access.region
                && window.rights | access.rights == window.rights
                && window.offset <= access.offset
                && end(access) <= end(window)
        }),
        _ => true,
    })
}

fn calls(caveats: &[Caveat], method: u32) -> bool {
    caveats.iter().all(|caveat| !matches!(caveat, Caveat::Methods(methods) if !methods.contains(&method)))
}

fn agree<T>(verdict: &Result<T, Refusal>, reasons: &[Refusal]) {
    match verdict {
        Ok(_) => assert!(reasons.is_empty(), "it should be refused: {reasons:?}"),
        Err(refusal) => assert!(reasons.contains(refusal), "{refusal:?} is none of {reasons:?}"),
    }
}

struct Play {
    random: Random,
    world: World,
    model: Model,
    startpoints: Vec<(u8, Startpoint)>,
    grants: Vec<(u8, Vec<Caveat>, Grant)>,
    activations: Vec<(Session, Vec<u8>)>,
}

impl Play {
    fn domain(&self, hash: Option<&KeyHash>) -> &Domain {
        let world = &self.world;
        let all = [&world.alice, &world.bob, &world.mallory];
        hash.map_or(&world.owner, |hash| all.into_iter().find(|domain| domain.hash == *hash).expect("somebody"))
    }

    fn somebody(&mut self) -> KeyHash {
        let world = &self.world;
        *self.random.pick(&[world.alice.hash, world.bob.hash, world.mallory.hash])
    }

    fn startpoint(&mut self) -> (u8, Startpoint) {
        self.random.pick(&self.startpoints).clone()
    }

    fn step(&mut self) {
        match self.random.below(14) {
            0 | 1 => {
                let (root, mut startpoint) = self.startpoint();
                if startpoint.narrow(self.random.caveat(self.model.now)).is_ok() {
                    self.startpoints.push((root, startpoint));
                }
            }
            2 | 3 => self.copy(),
            4 | 5 => self.open(),
            6 => self.edit(),
            7 => self.replay(),
            8 if self.random.below(3) == 0 => self.revoke(),
            9 => {
                self.model.now += self.random.below(4) as u64;
                if self.random.below(2) == 0 {
                    self.world.book.sweep(self.model.now);
                }
            }
            _ => self.request(),
        }
    }

    fn copy(&mut self) {
        let (root, startpoint) = self.startpoint();
        let (holder, id) = (self.somebody(), self.random.below(256) as u8);
        let giver = self.domain(startpoint.holder());
        if let Ok(copy) = startpoint.copy_for(holder, [id; 16], |message| giver.voucher(message)) {
            // It goes over the wire.
            let copy = Startpoint::decode(&copy.encode()).expect("it was just encoded");
            self.startpoints.push((root, copy));
        }
    }

    fn open(&mut self) {
        let (root, startpoint) = self.startpoint();
        let opener = match startpoint.holder() {
            Some(holder) if self.random.below(4) > 0 => *holder,
            _ => self.somebody(),
        };
        let protection = Protection::ALL[self.random.below(3)];
        let (here, mut there) = self.world.session(&opener);
        let (activation, keys) = forge(&startpoint, &here.keys, 1 + 2 * self.random.below(5) as u64, protection);
        let bytes = activation.encode();
        let verdict = self.world.book.admit(&mut there, &bytes, self.model.now, |_| ANY);
        let caveats: Vec<Caveat> = startpoint.caveats().cloned().collect();
        agree(&verdict, &self.model.to_open(root, &caveats, &opener, protection));
        self.activations.push((there, bytes));
        if let Ok(admitted) = verdict {
            assert_eq!(print(&admitted.keys), print(&keys));
            self.grants.push((root, caveats, admitted.grant));
        }
    }

    /// A holder that changes the list, and computes what can be computed from its secret.
    fn edit(&mut self) {
        let (_, startpoint) = self.startpoint();
        let (_, other) = self.startpoint();
        let own: Vec<Caveat> = startpoint.caveats().cloned().collect();
        let mut list = own.clone();
        for _ in 0..=self.random.below(2) {
            let at = self.random.below(list.len().max(1));
            match self.random.below(5) {
                0 if !list.is_empty() => drop(list.remove(at)),
                1 if !list.is_empty() => {
                    let to = self.random.below(list.len());
                    list.swap(at, to);
                }
                2 if !list.is_empty() => list[at] = self.random.caveat(self.model.now),
                3 => list.insert(at.min(list.len()), self.random.caveat(self.model.now)),
                _ => {
                    let from = self.random.below(other.caveats().count() + 1);
                    list.truncate(at);
                    list.extend(other.caveats().skip(from).cloned());
                }
            }
        }
        let mut caveats = Caveats::default();
        let mut name = startpoint.origin.name();
        for caveat in &list {
            let Ok(bytes) = caveats.push(caveat.clone()) else { return };
            name = caveat_name(&name, &bytes);
        }
        let edited = Startpoint { caveats, chain: Chain { name, ..startpoint.chain.clone() }, ..startpoint };
        let opener = edited.holder().copied().unwrap_or(self.world.mallory.hash);
        let verdict = self.world.force(&edited, &opener);
        if list != own {
            let refusal = verdict.map(|_| ()).expect_err("the list was changed");
            assert!([Refusal::Unproven, Refusal::Unknown].contains(&refusal), "{refusal:?}");
        }
    }

    fn replay(&mut self) {
        if self.activations.is_empty() {
            return;
        }
        let at = self.random.below(self.activations.len());
        let (session, bytes) = &mut self.activations[at];
        let again = self.world.book.admit(session, bytes, self.model.now, |_| ANY).map(|_| ());
        assert_eq!(again, Err(Refusal::Replayed));
        let bytes = bytes.clone();
        let opener = self.somebody();
        let (_, mut other) = self.world.session(&opener);
        let elsewhere = self.world.book.admit(&mut other, &bytes, self.model.now, |_| ANY).map(|_| ());
        assert!([Err(Refusal::Unproven), Err(Refusal::Unknown)].contains(&elsewhere), "{elsewhere:?}");
    }

    fn revoke(&mut self) {
        let (root, startpoint) = self.startpoint();
        let caveats: Vec<Caveat> = startpoint.caveats().cloned().collect();
        let last = caveats.iter().rposition(|caveat| matches!(caveat, Caveat::Copy(_)));
        // A root takes all with it, so seldom.
        if last.is_none() && self.random.below(4) > 0 {
            return;
        }
        self.world.book.revoke(&startpoint.name());
        self.model.revoked.insert(path(root, last.map_or(&[], |last| &caveats[..=last])));
    }

    fn request(&mut self) {
        if self.grants.is_empty() {
            return;
        }
        let at = self.random.below(self.grants.len());
        let (access, method) = (self.random.window(), self.random.below(8) as u32);
        let (root, caveats, grant) = &self.grants[at];
        let mut reasons = self.model.refusals(*root, caveats);
        let verdict = if self.random.below(2) == 0 {
            if !calls(caveats, method) {
                reasons.push(Refusal::Method);
            }
            grant.permit(method, self.model.now)
        } else {
            if !reaches(caveats, &access) {
                reasons.push(Refusal::Memory);
            }
            grant.access(&access, WHOLE, self.model.now)
        };
        agree(&verdict, &reasons);
        if verdict.is_ok() {
            self.model.take(*root, caveats);
        }
        if self.random.below(6) == 0 {
            self.grants.swap_remove(at);
        }
    }
}

fn play(seed: u64) -> usize {
    let mut world = World::new();
    let mut random = Random(seed);
    let mut startpoints = Vec::new();
    for root in 1..=2 {
        let caveats: Vec<Caveat> = (0..random.below(3)).map(|_| random.caveat(NOW + 50)).collect();
        startpoints.push((root, world.mint(root, caveats)));
    }
    let model = Model { now: NOW, ..Model::default() };
    let mut play = Play { random, world, model, startpoints, grants: Vec::new(), activations: Vec::new() };
    let mut permitted = 0;
    for _ in 0..STEPS {
        play.step();
        permitted = permitted.max(play.model.taken.values().sum::<u64>() as usize + play.grants.len());
    }
    permitted
}

#[test]
fn a_random_family_does_what_its_caveats_say() {
    let seeds = match std::env::var("GAMBESON_SEED") {
        Ok(seed) => vec![seed.parse().expect("GAMBESON_SEED is a number")],
        Err(_) => (0..SEEDS).collect(),
    };
    let mut permitted = 0;
    for seed in seeds {
        match std::panic::catch_unwind(|| play(seed)) {
            Ok(some) => permitted += some,
            Err(cause) => {
                eprintln!("failed with GAMBESON_SEED={seed}");
                std::panic::resume_unwind(cause);
            }
        }
    }
    assert!(permitted > 0, "links were opened");
}
