//! `synthetic`: a simulation that writes its state after each of some steps. A step smooths a line of numbers a few times;
//! the write is collective, in pieces of 16 KiB that alternate between the ranks. At the end all states are read again.

use crate::mpi::{Abi, Access, FileMode, Filetype, Outcome};

use super::grid::ELEMENT;
use super::pattern::{bytes as bytes_of, numbers};
use super::stage::{Stage, wrong};
use super::work::{Map, Quantity};

const FILE: &str = "states";
const PIECE: usize = 16 << 10;
const STEPS: usize = 8;
/// How often a step goes over the line: some ten operations on each number.
const SWEEPS: usize = 3;

pub(super) fn perform<A: Abi>(stage: &Stage<'_, A>, bytes: usize) -> Outcome {
    let (rank, ranks) = (stage.rank(), stage.ranks());
    let own = (bytes / (STEPS * ranks * PIECE)).max(1) * PIECE;
    let view = Filetype::subarray(stage.mpi, &[ranks * PIECE], &[PIECE], &[rank * PIECE])?;
    let map = match stage.work.map {
        Map::Rule => None,
        Map::View => Some(Filetype::subarray(stage.mpi, &[ranks * PIECE], &[PIECE], &[rank * PIECE])?),
        // As long as all states: the first rank's label for the first of them, and so on.
        Map::Other => {
            let part = own * STEPS;
            Some(Filetype::subarray(stage.mpi, &[ranks * part], &[part], &[rank * part])?)
        }
    };
    let first: Vec<f64> = (0..(own / ELEMENT) as u64).map(|place| stage.pattern.small(place + rank as u64)).collect();
    let mut room = vec![0xff; own];
    stage.timed(Quantity::Run, 0, || {
        let mut state = first;
        let mut digests = Vec::with_capacity(STEPS);
        let file = stage.world.open(&stage.path(FILE), FileMode::Create)?;
        if let Some(map) = map.as_ref().filter(|_| stage.mpi.has_encryption_maps()) {
            stage.lay(&file, map)?;
        }
        file.set_view(0, Some(&view))?;
        for step in 0..STEPS {
            (0..SWEEPS).for_each(|_| smooth(&mut state));
            digests.push(digest(&state));
            file.write(Access::Collective, (step * own) as u64, &bytes_of(&state))?;
        }
        file.close()?;
        let file = stage.world.open(&stage.path(FILE), FileMode::Read)?;
        file.set_view(0, Some(&view))?;
        for (step, expected) in digests.iter().enumerate() {
            file.read(Access::Collective, (step * own) as u64, &mut room)?;
            if digest(&numbers(&room)) != *expected {
                return Err(wrong(format!("rank {rank} read another state of step {step} than it wrote")));
            }
        }
        file.close()
    })?;
    stage.tell(FILE)?;
    stage.remove(&[FILE])
}

/// Every number becomes the mean of itself and its neighbours.
fn smooth(state: &mut [f64]) {
    let mut before = state[0];
    for place in 1..state.len() - 1 {
        let own = state[place];
        state[place] = (before + own + state[place + 1]) / 3.0;
        before = own;
    }
}

/// Depends on every number and its place.
fn digest(state: &[f64]) -> u64 {
    state.iter().fold(0, |digest: u64, number| digest.rotate_left(5).wrapping_add(number.to_bits()))
}
