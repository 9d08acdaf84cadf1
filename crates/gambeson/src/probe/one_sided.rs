//! The audit's one-sided operations: the first process accesses the memory of the last.

use crate::mpi::{Abi, Epoch, Outcome, Room, Window};

use super::marker::WORD;
use super::operation::Trial;
use super::plan::{Access, Provision};

/// Two sizes, as for messages.
const SIZES: [usize; 2] = [1 << 10, 256 << 10];
/// Words that operations on a single word go through one after the other.
const WORDS: usize = 16;

impl<A: Abi> Trial<'_, A> {
    /// One access under one kind of synchronisation.
    pub(crate) fn one_sided(&self, access: Access, epoch: Epoch, provision: Provision) -> Outcome {
        match access {
            Access::FetchAndOp | Access::CompareAndSwap => self.word_access(access, epoch, provision),
            _ => SIZES
                .into_iter()
                .enumerate()
                .try_for_each(|(round, size)| self.block_access(access, epoch, provision, size, round as u32)),
        }
    }

    fn block_access(&self, access: Access, epoch: Epoch, provision: Provision, size: usize, round: u32) -> Outcome {
        let (origin, target) = (0, self.world.size - 1);
        let data = self.block(size, target, round);
        let former = Room::new(size);
        let mut window = match provision {
            Provision::Create => Window::create(self.world, size)?,
            Provision::Allocate => Window::allocate(self.world, size)?,
        };
        let reads = matches!(access, Access::Get | Access::Rget);
        if reads && self.world.rank == target {
            window.set_local(&self.block(size, origin, round));
        }
        self.world.barrier()?;
        window.epoch(epoch, origin, target, || match access {
            Access::Put => window.put(&data, target),
            Access::Rput => window.put_request(&data, target),
            Access::Get => window.get(&former, target),
            Access::Rget => window.get_request(&former, target),
            Access::Accumulate => window.accumulate(&data, target),
            Access::Raccumulate => window.accumulate_request(&data, target),
            Access::GetAccumulate => window.get_accumulate(&data, &former, target),
            _ => window.get_accumulate_request(&data, &former, target),
        })?;
        if self.world.rank == target && !reads {
            self.check(&self.local(&window, epoch, target)?, origin, target, round)?;
        }
        if self.world.rank == origin && reads {
            self.check(&former.content(), target, origin, round)?;
        }
        if matches!(access, Access::GetAccumulate | Access::RgetAccumulate) && self.world.rank == origin {
            self.demand(
                former.content().iter().all(|&byte| byte == 0),
                "the former content of the window was zero and came back otherwise",
            )?;
        }
        self.world.barrier()
    }

    /// Replaces words one by one; each access has an epoch of its own.
    fn word_access(&self, access: Access, epoch: Epoch, provision: Provision) -> Outcome {
        let (origin, target) = (0, self.world.size - 1);
        let (value, zero) = (self.marker.word(), [0; WORD]);
        let former: Vec<_> = (0..WORDS).map(|_| Room::new(WORD)).collect();
        let window = match provision {
            Provision::Create => Window::create(self.world, WORDS * WORD)?,
            Provision::Allocate => Window::allocate(self.world, WORDS * WORD)?,
        };
        self.world.barrier()?;
        for (at, former) in former.iter().enumerate() {
            window.epoch(epoch, origin, target, || match access {
                Access::FetchAndOp => window.fetch_and_replace(&value, former, target, at),
                _ => window.compare_and_swap(&value, &zero, former, target, at),
            })?;
        }
        if self.world.rank == target {
            let local = self.local(&window, epoch, target)?;
            self.demand(
                local.chunks(WORD).all(|word| word == value),
                "a word of the window is not what was written to it",
            )?;
        }
        if self.world.rank == origin {
            self.demand(
                former.iter().all(|former| former.content() == zero),
                "the former content of a word was zero and came back otherwise",
            )?;
        }
        self.world.barrier()
    }

    /// The target's memory. After passive synchronisation a lock of its own makes it current; the
    /// other two have ended an exposure epoch here, which does the same.
    fn local(&self, window: &Window<'_, A>, epoch: Epoch, target: i32) -> Outcome<Vec<u8>> {
        match epoch {
            Epoch::Lock => window.locked(target, || window.local()),
            Epoch::Fence | Epoch::Pscw => Ok(window.local()),
        }
    }
}
