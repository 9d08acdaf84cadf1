//! Where the ranks of each job run.

use rand::seq::SliceRandom;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::SeedableRng;

/// The node of every rank of every job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    /// How many nodes there are.
    pub nodes: u32,
    /// For each job, the node of each rank.
    pub jobs: Vec<Vec<u32>>,
}

impl Placement {
    /// Rank r of every job on node r, around again where the nodes are fewer: ranks of a job that follow each other
    /// are neighbours, and jobs of as many ranks as nodes share all of them.
    #[must_use]
    pub fn cyclic(sizes: &[usize], nodes: u32) -> Self {
        let job = |&size: &usize| (0..size).map(|rank| rank as u32 % nodes).collect();
        Self { nodes, jobs: sizes.iter().map(job).collect() }
    }

    /// As [`Placement::cyclic`], each job over the nodes in an order of its own.
    #[must_use]
    pub fn random(sizes: &[usize], nodes: u32, seed: u64) -> Self {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut order: Vec<u32> = (0..nodes).collect();
        let mut job = |&size: &usize| {
            order.shuffle(&mut random);
            (0..size).map(|rank| order[rank % order.len()]).collect()
        };
        Self { nodes, jobs: sizes.iter().map(&mut job).collect() }
    }
}
