//! The audit's collective operations.
//!
//! Reductions combine with `MPI_BOR` words that are zero everywhere but in one process, so that
//! the marker goes through the reduction unchanged and can be both seen and checked.

use crate::mpi::{Abi, Blocks, Communicator, Form, Outcome};

use super::marker::Stamp;
use super::operation::Trial;
use super::plan::{Collective, Neighbourhood};

/// Bytes per block: two sizes, since libraries choose their algorithm by size.
const SIZES: [usize; 2] = [256, 64 << 10];
const ROOT: i32 = 0;
const ALL: i32 = Stamp::ALL;

impl<A: Abi> Trial<'_, A> {
    /// One collective operation, in two sizes.
    pub(crate) fn collective(&self, collective: Collective, form: Form) -> Outcome {
        for (round, size) in SIZES.into_iter().enumerate() {
            let round = round as u32;
            match collective {
                Collective::Bcast => self.broadcast(form, size, round)?,
                Collective::Reduce | Collective::Allreduce | Collective::Scan | Collective::Exscan => {
                    self.reduction(collective, form, size, round)?;
                }
                Collective::ReduceScatter | Collective::ReduceScatterBlock => {
                    self.scattered_reduction(collective, form, size, round)?;
                }
                Collective::Gather | Collective::Gatherv => self.gathering(collective, form, size, round)?,
                Collective::Scatter | Collective::Scatterv => self.scattering(collective, form, size, round)?,
                Collective::Allgather | Collective::Allgatherv => self.all_gathering(collective, form, size, round)?,
                Collective::Alltoall | Collective::Alltoallv | Collective::Alltoallw => {
                    self.all_to_all(collective, form, size, round)?;
                }
            }
        }
        Ok(())
    }

    fn broadcast(&self, form: Form, size: usize, round: u32) -> Outcome {
        let mut buffer = if self.world.rank == ROOT { self.block(size, ALL, round) } else { vec![0; size] };
        self.world.broadcast(form, &mut buffer, ROOT)?;
        self.check(&buffer, ROOT, ALL, round)
    }

    /// The process whose words are not zero: such that the marker has to travel.
    fn contributor(&self, collective: Collective) -> i32 {
        match collective {
            Collective::Reduce => self.world.size - 1,
            _ => 0,
        }
    }

    fn reduction(&self, collective: Collective, form: Form, size: usize, round: u32) -> Outcome {
        let (world, contributor) = (self.world, self.contributor(collective));
        let data = if world.rank == contributor { self.block(size, ALL, round) } else { vec![0; size] };
        let mut result = vec![0; size];
        match collective {
            Collective::Reduce => world.reduce(form, &data, &mut result, ROOT)?,
            Collective::Allreduce => world.all_reduce(form, &data, &mut result)?,
            Collective::Scan => world.scan(form, &data, &mut result)?,
            _ => world.exclusive_scan(form, &data, &mut result)?,
        }
        let reached = match collective {
            Collective::Reduce => world.rank == ROOT,
            Collective::Exscan => world.rank > contributor,
            _ => true,
        };
        if reached { self.check(&result, contributor, ALL, round) } else { Ok(()) }
    }

    fn scattered_reduction(&self, collective: Collective, form: Form, size: usize, round: u32) -> Outcome {
        let (world, contributor) = (self.world, self.contributor(collective));
        let mut data = vec![0; size * world.processes()];
        if world.rank == contributor {
            self.fill_each(&mut data, size, round);
        }
        let mut result = vec![0; size];
        match collective {
            Collective::ReduceScatter => world.reduce_scatter(form, &data, &mut result)?,
            _ => world.reduce_scatter_block(form, &data, &mut result)?,
        }
        self.check(&result, contributor, world.rank, round)
    }

    fn gathering(&self, collective: Collective, form: Form, size: usize, round: u32) -> Outcome {
        let world = self.world;
        let blocks = self.blocks(collective == Collective::Gatherv, size, |rank| rank);
        let block = self.block(blocks.range(world.place()).len(), ROOT, round);
        let mut room = vec![0; blocks.total()];
        match collective {
            Collective::Gather => world.gather(form, &block, &mut room, ROOT)?,
            _ => world.gather_v(form, &block, &mut room, &blocks, ROOT)?,
        }
        if world.rank == ROOT { self.check_each(&room, &blocks, ROOT, round) } else { Ok(()) }
    }

    fn scattering(&self, collective: Collective, form: Form, size: usize, round: u32) -> Outcome {
        let world = self.world;
        let blocks = self.blocks(collective == Collective::Scatterv, size, |rank| rank);
        let mut data = vec![0; blocks.total()];
        self.fill_blocks(&mut data, &blocks, round);
        let mut block = vec![0; blocks.range(world.place()).len()];
        match collective {
            Collective::Scatter => world.scatter(form, &data, &mut block, ROOT)?,
            _ => world.scatter_v(form, &data, &blocks, &mut block, ROOT)?,
        }
        self.check(&block, ROOT, world.rank, round)
    }

    fn all_gathering(&self, collective: Collective, form: Form, size: usize, round: u32) -> Outcome {
        let world = self.world;
        let blocks = self.blocks(collective == Collective::Allgatherv, size, |rank| rank);
        let block = self.block(blocks.range(world.place()).len(), ALL, round);
        let mut room = vec![0; blocks.total()];
        match collective {
            Collective::Allgather => world.all_gather(form, &block, &mut room)?,
            _ => world.all_gather_v(form, &block, &mut room, &blocks)?,
        }
        self.check_each(&room, &blocks, ALL, round)
    }

    fn all_to_all(&self, collective: Collective, form: Form, size: usize, round: u32) -> Outcome {
        let world = self.world;
        let vary = collective != Collective::Alltoall;
        // The length of a block depends on sender and receiver alike, so both know it.
        let sent = self.blocks(vary, size, |to| to + world.place());
        let mut data = vec![0; sent.total()];
        self.fill_blocks(&mut data, &sent, round);
        let mut room = vec![0; sent.total()];
        match collective {
            Collective::Alltoall => world.all_to_all(form, &data, &mut room)?,
            Collective::Alltoallv => world.all_to_all_v(form, &data, &sent, &mut room, &sent)?,
            _ => world.all_to_all_w(form, &data, &sent, &mut room, &sent)?,
        }
        self.check_each(&room, &sent, world.rank, round)
    }

    /// One neighbourhood collective on `ring`, in two sizes.
    pub(crate) fn neighbourhood(&self, ring: &Communicator<A>, which: Neighbourhood, form: Form) -> Outcome {
        for (round, size) in SIZES.into_iter().enumerate() {
            let round = round as u32;
            let blocks = Blocks::new([size, size]);
            let mut room = vec![0; 2 * size];
            let data = match which {
                Neighbourhood::Allgather | Neighbourhood::Allgatherv => self.block(size, ALL, round),
                _ => [self.block(size, ALL, round), self.block(size, ALL, round)].concat(),
            };
            match which {
                Neighbourhood::Allgather => ring.neighbour_all_gather(form, &data, &mut room)?,
                Neighbourhood::Allgatherv => ring.neighbour_all_gather_v(form, &data, &mut room, &blocks)?,
                Neighbourhood::Alltoall => ring.neighbour_all_to_all(form, &data, &mut room)?,
                Neighbourhood::Alltoallv => ring.neighbour_all_to_all_v(form, &data, &mut room, &blocks)?,
                Neighbourhood::Alltoallw => ring.neighbour_all_to_all_w(form, &data, &mut room, &blocks)?,
            }
            // The ring was made without reordering, so its ranks are those of the world.
            let (rank, number) = (ring.rank, ring.size);
            let neighbours = [(rank + number - 1) % number, (rank + 1) % number];
            for (place, neighbour) in neighbours.into_iter().enumerate() {
                self.check(&room[blocks.range(place)], neighbour, ALL, round)?;
            }
        }
        Ok(())
    }

    /// A block for each process: all of `size`, or lengths that grow with what `of` makes of the rank.
    fn blocks(&self, vary: bool, size: usize, of: impl Fn(usize) -> usize) -> Blocks {
        Blocks::new((0..self.world.processes()).map(|rank| if vary { size + 32 * of(rank) } else { size }))
    }

    fn fill_each(&self, data: &mut [u8], size: usize, round: u32) {
        for (to, block) in data.chunks_mut(size).enumerate() {
            self.marker.fill(block, Stamp { from: self.world.rank, to: to as i32, round });
        }
    }

    fn fill_blocks(&self, data: &mut [u8], blocks: &Blocks, round: u32) {
        for to in 0..self.world.processes() {
            self.marker.fill(&mut data[blocks.range(to)], Stamp { from: self.world.rank, to: to as i32, round });
        }
    }

    fn check_each(&self, room: &[u8], blocks: &Blocks, to: i32, round: u32) -> Outcome {
        (0..self.world.processes()).try_for_each(|from| self.check(&room[blocks.range(from)], from as i32, to, round))
    }
}
