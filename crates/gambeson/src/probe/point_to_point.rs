//! The audit's point-to-point operations.

use crate::mpi::{Abi, Layout, Mode, Outcome};

use super::operation::{GO_ON, Role, TAG, Trial};
use super::plan::{Exchange, Probing, Shape, Way};

/// Two sizes: one that libraries send at once, and one for which they first ask the receiver.
const SIZES: [usize; 2] = [1 << 10, 256 << 10];
/// Up to this size the ladder goes both ways.
const BOTH_WAYS: usize = 1 << 20;

impl<A: Abi> Trial<'_, A> {
    /// `MPI_Send` of `size` bytes there, and back if that is not too long.
    pub(crate) fn sized(&self, size: usize) -> Outcome {
        match self.role() {
            Role::First(peer) => {
                let data = self.block(size, peer, 0);
                self.world.send(Mode::Standard, self.mpi.source(&data), peer, TAG)?;
                if size <= BOTH_WAYS { self.receive(size, peer, 1) } else { Ok(()) }
            }
            Role::Last(peer) => {
                self.receive(size, peer, 0)?;
                let data = self.block(if size <= BOTH_WAYS { size } else { 0 }, peer, 1);
                if size <= BOTH_WAYS {
                    self.world.send(Mode::Standard, self.mpi.source(&data), peer, TAG)
                } else {
                    Ok(())
                }
            }
            Role::Bystander => Ok(()),
        }
    }

    /// One of the twelve ways to send, there and back in two sizes.
    pub(crate) fn send_modes(&self, mode: Mode, way: Way) -> Outcome {
        for (round, size) in SIZES.into_iter().enumerate() {
            let round = 2 * round as u32;
            match self.role() {
                Role::First(peer) => {
                    self.send_once(mode, way, size, peer, round)?;
                    self.receive_when_ready(way, size, peer, round + 1)?;
                }
                Role::Last(peer) => {
                    self.receive_when_ready(way, size, peer, round)?;
                    self.send_once(mode, way, size, peer, round + 1)?;
                }
                Role::Bystander => {}
            }
        }
        Ok(())
    }

    fn send_once(&self, mode: Mode, way: Way, size: usize, peer: i32, round: u32) -> Outcome {
        self.world.receive(self.mpi.target(&mut []), peer, GO_ON)?;
        let data = self.block(size, peer, round);
        let source = self.mpi.source(&data);
        let send = || match way {
            Way::Blocking => self.world.send(mode, source, peer, TAG),
            Way::Nonblocking => self.world.together(|requests| requests.send(mode, source, peer, TAG)),
            Way::Persistent => {
                self.world.persistently(|requests| requests.send_init(mode, source, peer, TAG), || Ok(()))
            }
        };
        match mode {
            Mode::Buffered => self.world.with_buffer(size, send),
            _ => send(),
        }
    }

    /// Receives a message whose sender waits until the receive is posted, as `MPI_Rsend` demands.
    fn receive_when_ready(&self, way: Way, size: usize, peer: i32, round: u32) -> Outcome {
        let mut room = vec![0; size];
        let go_on = || self.world.send(Mode::Standard, self.mpi.source(&[]), peer, GO_ON);
        let target = self.mpi.target(&mut room);
        match way {
            Way::Persistent => {
                self.world.persistently(|requests| requests.receive_init(target, peer, TAG), go_on)?;
            }
            Way::Blocking | Way::Nonblocking => self.world.together(|requests| {
                requests.receive(target, peer, TAG)?;
                go_on()
            })?,
        }
        self.check(&room, peer, self.world.rank, round)
    }

    /// A message that is looked at before it is received.
    pub(crate) fn probing(&self, probing: Probing) -> Outcome {
        for (round, size) in SIZES.into_iter().enumerate() {
            let round = round as u32;
            match self.role() {
                Role::First(peer) => {
                    let data = self.block(size, peer, round);
                    self.world.send(Mode::Standard, self.mpi.source(&data), peer, TAG)?;
                }
                Role::Last(peer) => self.look_and_receive(probing, size, peer, round)?,
                Role::Bystander => {}
            }
        }
        Ok(())
    }

    fn look_and_receive(&self, probing: Probing, size: usize, peer: i32, round: u32) -> Outcome {
        let mut room = vec![0; size];
        let length = match probing {
            Probing::Probe | Probing::Iprobe => {
                let (from, tag, length) = match probing {
                    Probing::Probe => self.world.probe(None, None)?,
                    _ => loop {
                        if let Some(found) = self.world.probe_now(peer, TAG)? {
                            break found;
                        }
                    },
                };
                self.demand(
                    from == peer && tag == TAG,
                    "the probe found a message from another sender or with another tag",
                )?;
                self.world.receive(self.mpi.target(&mut room), peer, TAG)?;
                length
            }
            Probing::Mprobe => {
                let message = self.world.match_probe(peer, TAG)?;
                let length = message.length;
                self.world.receive_matched(message, self.mpi.target(&mut room))?;
                length
            }
            Probing::Improbe => {
                let message = loop {
                    if let Some(found) = self.world.match_probe_now(peer, TAG)? {
                        break found;
                    }
                };
                let length = message.length;
                self.world.receive_matched_nonblocking(message, self.mpi.target(&mut room))?;
                length
            }
        };
        self.demand(length == size, &format!("the probe says {length} bytes where {size} were sent"))?;
        self.check(&room, peer, self.world.rank, round)
    }

    /// Sending and receiving in one call.
    pub(crate) fn exchange(&self, exchange: Exchange) -> Outcome {
        let (Role::First(peer) | Role::Last(peer)) = self.role() else { return Ok(()) };
        for (round, size) in SIZES.into_iter().enumerate() {
            let round = round as u32;
            let mut data = self.block(size, peer, round);
            let mut room = vec![0; size];
            match exchange {
                Exchange::Sendrecv => {
                    self.world.exchange(self.mpi.source(&data), self.mpi.target(&mut room), peer, TAG)?
                }
                Exchange::Isendrecv => {
                    self.world.exchange_nonblocking(self.mpi.source(&data), self.mpi.target(&mut room), peer, TAG)?;
                }
                Exchange::SendrecvReplace => self.world.replace(self.mpi.target(&mut data), peer, TAG)?,
                Exchange::IsendrecvReplace => self.world.replace_nonblocking(self.mpi.target(&mut data), peer, TAG)?,
            }
            let received = match exchange {
                Exchange::Sendrecv | Exchange::Isendrecv => &room,
                Exchange::SendrecvReplace | Exchange::IsendrecvReplace => &data,
            };
            self.check(received, peer, self.world.rank, round)?;
        }
        Ok(())
    }

    /// A message in eight partitions.
    pub(crate) fn partitioned(&self) -> Outcome {
        for (round, size) in SIZES.into_iter().enumerate() {
            let round = round as u32;
            match self.role() {
                Role::First(peer) => self.world.send_partitioned(&self.block(size, peer, round), 8, peer, TAG)?,
                Role::Last(peer) => {
                    let mut room = vec![0; size];
                    self.world.receive_partitioned(&mut room, 8, peer, TAG)?;
                    self.check(&room, peer, self.world.rank, round)?;
                }
                Role::Bystander => {}
            }
        }
        Ok(())
    }

    /// A message whose bytes lie apart in memory, received into the same layout.
    pub(crate) fn derived(&self, shape: Shape) -> Outcome {
        let (Role::First(peer) | Role::Last(peer)) = self.role() else { return Ok(()) };
        for (round, blocks) in [16usize, 2048].into_iter().enumerate() {
            let (round, layout) = (round as u32, self.layout(shape, blocks)?);
            let mut data = vec![0x55; layout.span()];
            for &(at, length) in layout.blocks() {
                data[at..at + length].copy_from_slice(&self.block(length, peer, round));
            }
            let mut room = vec![0xaa; layout.span()];
            self.world.exchange(layout.source(&data), layout.target(&mut room), peer, TAG)?;
            for &(at, length) in layout.blocks() {
                self.check(&room[at..at + length], peer, self.world.rank, round)?;
                room[at..at + length].fill(0xaa);
            }
            self.demand(
                room.iter().all(|&byte| byte == 0xaa),
                "bytes between the blocks of a derived type were written",
            )?;
        }
        Ok(())
    }

    fn layout(&self, shape: Shape, blocks: usize) -> Outcome<Layout<A>> {
        match shape {
            Shape::Vector => Layout::vector(self.mpi, blocks, 64, 96),
            Shape::Indexed => {
                let places: Vec<_> = (0..blocks).map(|block| (block * 160, 48 + 16 * (block % 4))).collect();
                Layout::indexed(self.mpi, &places)
            }
            Shape::Struct => {
                let places: Vec<_> = (0..blocks).map(|block| (block * 128, 64 + 8 * (block % 3))).collect();
                Layout::structure(self.mpi, &places)
            }
        }
    }

    fn receive(&self, size: usize, peer: i32, round: u32) -> Outcome {
        let mut room = vec![0; size];
        self.world.receive(self.mpi.target(&mut room), peer, TAG)?;
        self.check(&room, peer, self.world.rank, round)
    }
}
