//! Which communicator of a rank is which of the job: the members of one make new ones together, in the same order.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::calls::{Calls, Creation};
use crate::Error;
use crate::error::Place;
use crate::trace::program::Program;

/// The numbers that DUMPI gives the communicators every rank begins with, and to none.
pub(super) const NULL: u16 = 1;
const WORLD: u16 = 2;
const SELF: u16 = 3;

/// A communicator of a rank: its number in the job, and its members.
pub(super) type Known = HashMap<u16, (u16, Arc<[u32]>)>;

/// For each rank, what its communicators are.
pub(super) fn resolve(program: &mut Program, ranks: &[Calls], file: &str) -> Result<Vec<Known>, Error> {
    let world: Arc<[u32]> = (0..ranks.len() as u32).collect();
    let mut made: HashMap<Arc<[u32]>, u32> = HashMap::from([(world.clone(), 1)]);
    let mut known = Vec::with_capacity(ranks.len());
    let mut used = ranks.iter().enumerate().map(|(rank, calls)| (rank as u32, calls.uses(SELF)));
    for _ in ranks {
        known.push(HashMap::from([(WORLD, (0, world.clone()))]));
        if let Some((rank, true)) = used.next() {
            let alone: Arc<[u32]> = [rank].into();
            let number =
                program.communicator(&alone, *made.entry(alone.clone()).and_modify(|nth| *nth += 1).or_default())?;
            known[rank as usize].insert(SELF, (number, alone));
        }
    }
    let mut next = vec![0; ranks.len()];
    loop {
        let mut progress = false;
        for rank in 0..ranks.len() {
            let Some(creation) = ranks[rank].creations.get(next[rank]) else { continue };
            let Some((parent, members)) = known[rank].get(&creation.old).cloned() else { continue };
            // All members must be about to make one of the same parent.
            let creations: Option<Vec<(u32, &Creation)>> = members
                .iter()
                .map(|&member| {
                    let creation = ranks[member as usize].creations.get(next[member as usize])?;
                    let same = known[member as usize].get(&creation.old).is_some_and(|(number, _)| *number == parent);
                    same.then_some((member, creation))
                })
                .collect();
            let Some(creations) = creations else { continue };
            progress = true;
            let mut groups: BTreeMap<i32, Vec<(i32, usize, u32, u16)>> = BTreeMap::new();
            for (place, (member, creation)) in creations.into_iter().enumerate() {
                next[member as usize] += 1;
                if creation.new != NULL {
                    let (color, key) = creation.split.unwrap_or((0, 0));
                    groups.entry(color).or_default().push((key, place, member, creation.new));
                }
            }
            for mut group in groups.into_values() {
                group.sort_unstable();
                let members: Arc<[u32]> = group.iter().map(|entry| entry.2).collect();
                let nth = made.entry(members.clone()).and_modify(|nth| *nth += 1).or_default();
                let number = program.communicator(&members, *nth)?;
                for (_, _, member, new) in group {
                    if known[member as usize].insert(new, (number, members.clone())).is_some() {
                        let what =
                            format!("communicator {new} is made a second time, which this reader cannot tell apart");
                        return Err(Error::trace(file, Some(member), None, what));
                    }
                }
            }
        }
        if !progress {
            break;
        }
    }
    match (0..ranks.len()).find(|&rank| next[rank] < ranks[rank].creations.len()) {
        None => Ok(known),
        Some(rank) => {
            let creation = &ranks[rank].creations[next[rank]];
            let what = format!(
                "communicator {} is made of {}, whose other members do not make one with it; record the trace whole",
                creation.new, creation.old
            );
            Err(Error::trace(file, Some(rank as u32), Some(Place::Record(creation.record)), what))
        }
    }
}
