//! Contiguous accesses as IOR makes them (-b, -s, -t): write, read from the page cache, read from disk.

use crate::mpi::{Abi, Access, File, FileMode, Outcome};

use super::stage::{Stage, wrong};
use super::work::{Quantity, Transfers};

const FILE: &str = "transfers";

/// Times it all; every byte is looked at apart from that, and in what is timed a word of each page.
pub(super) fn perform<A: Abi>(stage: &Stage<'_, A>, wanted: &Transfers) -> Outcome {
    let pass = Pass { stage, wanted };
    let bytes = (stage.ranks() * wanted.segments * wanted.block) as u64;
    let mut buffer = stage.pattern.buffer(wanted.transfer);
    let quantity = if wanted.synced { Quantity::WriteSynced } else { Quantity::Write };
    stage.timed(quantity, bytes, || {
        let file = stage.world.open(&stage.path(FILE), FileMode::Create)?;
        pass.each(|at, offset| {
            stage.pattern.stamp(&mut buffer, stage.rank(), at);
            file.write(pass.access(), offset, &buffer)
        })?;
        if wanted.synced {
            file.sync()?;
        }
        file.close()
    })?;
    stage.tell(FILE)?;
    if wanted.synced {
        return stage.remove(&[FILE]);
    }
    let file = stage.world.open(&stage.path(FILE), FileMode::Read)?;
    pass.read(&file, &mut buffer, |data, at| stage.pattern.check(data, stage.rank(), at))?;
    file.close()?;
    let mut timed = |quantity| {
        stage.timed(quantity, bytes, || {
            let file = stage.world.open(&stage.path(FILE), FileMode::Read)?;
            pass.read(&file, &mut buffer, |data, at| stage.pattern.glance(data, stage.rank(), at))?;
            file.close()
        })
    };
    timed(Quantity::Read)?;
    if stage.has_disk() {
        stage.evict(FILE)?;
        timed(Quantity::ReadDisk)?;
    }
    stage.remove(&[FILE])
}

struct Pass<'s, A: Abi> {
    stage: &'s Stage<'s, A>,
    wanted: &'s Transfers,
}

impl<A: Abi> Pass<'_, A> {
    fn access(&self) -> Access {
        if self.wanted.collective { Access::Collective } else { Access::Independent }
    }

    /// This rank's transfers: where they are behind the displacement, and in the file.
    fn each(&self, mut step: impl FnMut(u64, u64) -> Outcome) -> Outcome {
        let Transfers { block, segments, transfer, displacement, .. } = *self.wanted;
        for segment in 0..segments {
            let start = (segment * self.stage.ranks() + self.stage.rank()) * block;
            for place in (start..start + block).step_by(transfer) {
                step(place as u64, place as u64 + displacement)?;
            }
        }
        Ok(())
    }

    fn read(&self, file: &File<A>, buffer: &mut [u8], look: impl Fn(&[u8], u64) -> Result<(), String>) -> Outcome {
        self.each(|at, offset| {
            file.read(self.access(), offset, buffer)?;
            look(buffer, at).map_err(wrong)
        })
    }
}
