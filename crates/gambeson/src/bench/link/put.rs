//! Sealing inside `put` against sealing one contiguous buffer (secure-nexus paper, section 6): a request made of pieces is
//! sealed as they are put, or from where they are all at once, or they are copied together first.

use std::rc::Rc;

use gambeson_link::Startpoint;

use super::other::{ECHO, TAKE};
use super::side::{Cost, Other, PATIENCE, Side, Work, name};
use crate::bench::part::no_link;
use crate::failure::Failure;

/// A message is made of so many.
pub(super) const PIECES: usize = 16;

/// What is compared, by how it is called.
pub(super) const TOGETHER: &str = "copied together";
pub(super) const GATHERED: &str = "gathered";
pub(super) const INSIDE: &str = "sealed inside put";

/// Requests whose message is made of pieces, over a sealed link.
struct Pieces {
    carrier: &'static str,
    name: &'static str,
    other: Rc<Other>,
    pieces: Vec<Vec<u8>>,
    buffer: Vec<u8>,
    answer: Vec<u8>,
}

/// All ways over one link.
///
/// # Errors
/// When the other process does not come up.
pub(super) fn sides(shm: bool) -> Result<Vec<Box<dyn Side>>, Failure> {
    let other = Rc::new(Other::start(shm, false)?);
    let side = |side: &'static str| {
        let (pieces, buffer, answer) = (Vec::new(), Vec::new(), Vec::new());
        Box::new(Pieces { carrier: name(shm), name: side, other: other.clone(), pieces, buffer, answer }) as _
    };
    Ok([TOGETHER, GATHERED, INSIDE].map(side).into())
}

impl Side for Pieces {
    fn carrier(&self) -> &str {
        self.carrier
    }

    fn name(&self) -> &str {
        self.name
    }

    fn perform(&mut self, work: Work) -> Result<Cost, Failure> {
        self.pieces.resize(PIECES, Vec::new());
        self.pieces.iter_mut().for_each(|piece| piece.resize(work.length / PIECES, 1));
        let Pieces { name, other, pieces, buffer, answer, .. } = self;
        let link: &Startpoint = other.control();
        link.call_into(ECHO, &pieces[0], answer, PATIENCE).map_err(no_link)?;
        let pieces: Vec<&[u8]> = pieces.iter().map(Vec::as_slice).collect();
        let mut ask = || match *name {
            INSIDE => {
                let mut pack = link.pack(TAKE, work.length)?;
                pieces.iter().try_for_each(|piece| pack.put(piece))?;
                pack.call(PATIENCE).map(drop)
            }
            GATHERED => link.gather(TAKE, &pieces).call_into(answer, PATIENCE),
            _ => {
                buffer.clear();
                pieces.iter().for_each(|piece| buffer.extend_from_slice(piece));
                link.call_into(TAKE, buffer, answer, PATIENCE)
            }
        };
        ask().map_err(no_link)?;
        other.measured(|| (0..work.count).try_for_each(|_| ask()).map_err(no_link))
    }
}
