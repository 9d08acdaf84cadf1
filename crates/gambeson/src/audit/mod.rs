//! What an eavesdropper on this host's interfaces sees of each MPI operation, with Gambeson and
//! without.

#[allow(unsafe_code)] // speaks C to the kernel: packet sockets
mod capture;
mod listen;
mod search;
mod side;
mod tcpdump;
mod verdict;

use indicatif::ProgressBar;

use crate::failure::{Failure, Status};
use crate::probe::job::{Side, Starter};
use crate::probe::marker::{Marker, Seed};
use crate::probe::plan::{self, Operation};

use listen::{Heard, Listener};
use search::Search;
use side::{Abandoned, Play, Played};

pub(crate) use verdict::{Conclusion, Report};

/// Runs both sides and puts them together. `limit`: seconds for one operation.
///
/// # Errors
/// When this process may not listen, or a job does not come up.
pub(crate) fn audit(starter: &Starter, limit: u64, progress: &ProgressBar) -> Result<Report, Failure> {
    let plan = plan::operations();
    progress.set_length(2 * plan.len() as u64);
    let plain = well_heard(starter, Side::Plain, &plan, limit, progress)?;
    let sealed = well_heard(starter, Side::Sealed, &plan, limit, progress)?;
    Ok(Report::new(&plan, plain, sealed))
}

/// Times that a side is played when the listener could not keep up.
const ATTEMPTS: usize = 3;

/// One side without lost frames, or the attempt with the fewest.
fn well_heard(
    starter: &Starter,
    side: Side,
    plan: &[Operation],
    limit: u64,
    progress: &ProgressBar,
) -> Result<(Played, Heard), Failure> {
    let before = progress.position();
    let mut best = one_side(starter, side, plan, limit, progress)?;
    for _ in 1..ATTEMPTS {
        // In plain a loss matters only where nothing at all was seen; a marker seen sealed is final.
        let unseen = plan.iter().zip(&best.1.hits).any(|(operation, &hits)| hits == 0 && operation.is_visible());
        let seen = best.1.hits.iter().any(|&hits| hits > 0);
        let enough = match side {
            Side::Plain => !unseen,
            Side::Sealed => seen,
        };
        if best.1.lost == 0 || enough {
            break;
        }
        progress.set_position(before);
        let again = one_side(starter, side, plan, limit, progress)?;
        if again.1.lost < best.1.lost || again.1.hits.iter().any(|&hits| hits > 0) && side == Side::Sealed {
            best = again;
        }
    }
    Ok(best)
}

fn one_side(
    starter: &Starter,
    side: Side,
    plan: &[Operation],
    limit: u64,
    progress: &ProgressBar,
) -> Result<(Played, Heard), Failure> {
    progress.set_prefix(side.name());
    let seed = Seed::random().map_err(Failure::system)?;
    let markers: Vec<Marker> = plan.iter().map(|operation| seed.marker(&operation.name)).collect();
    let search = Search::new(markers.iter().zip(plan.iter().map(Operation::visible)));
    let listener = Listener::start().map_err(|(sentence, permission)| match permission {
        true => Failure::new(Status::NotPermitted, sentence),
        false => Failure::system(sentence),
    })?;
    let play = Play { starter, side, seed, plan, limit, progress };
    let (played, heard) = listener.during(search, || play.play());
    let played = played.map_err(|Abandoned { sentence, status }| match status {
        Some(70) => Failure::refused(sentence),
        _ => Failure::unavailable(sentence),
    })?;
    Ok((played, heard))
}
