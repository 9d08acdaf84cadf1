//! Getting another carrier for a session that lost its own: the side that connected does that, on a thread that lives
//! as long as the search.

use std::io::IoSlice;
use std::sync::Weak;
use std::time::{Duration, Instant};

use gambeson_proto::key_schedule::Resumption;
use gambeson_proto::startpoint::Address;

use crate::carrier::Carrier;
use crate::domain::random;
use crate::error::Error;
use crate::resumption;
use crate::route::reach;
use crate::shared::{Shared, wait_for};
use crate::state::SessionKey;

/// Between two attempts, at first and at most.
const PAUSES: [Duration; 2] = [Duration::from_millis(20), Duration::from_secs(1)];
/// How long one attempt may take.
const ATTEMPT: Duration = Duration::from_secs(5);
/// A domain listens until it closes: a host that says for so long that nobody does has lost the process.
const DEAD: Duration = Duration::from_secs(2);

/// Starts looking.
pub(crate) fn begin(shared: Weak<Shared>, key: SessionKey) {
    let thread = std::thread::Builder::new().name("gambeson-reconnect".into());
    if let Err(cause) = thread.spawn(move || search(&shared, key)) {
        eprintln!("gambeson: no thread to look for a lost connection: {cause}");
    }
}

fn search(shared: &Weak<Shared>, key: SessionKey) {
    let mut pause = PAUSES[0];
    let mut refused: Option<Instant> = None;
    loop {
        let sought = shared.upgrade().and_then(|shared| shared.sought(key));
        let Some((addresses, resumption, received)) = sought else { return };
        match attempt(&addresses, &resumption, received) {
            Ok((carrier, arrived, rest)) => {
                if let Some(shared) = shared.upgrade() {
                    shared.found(key, carrier, arrived, &rest);
                }
                return;
            }
            Err(nobody) => {
                refused = nobody.then(|| refused.unwrap_or_else(Instant::now));
                if refused.is_some_and(|since| since.elapsed() > DEAD) {
                    if let Some(shared) = shared.upgrade() {
                        shared.gone(key);
                    }
                    return;
                }
            }
        }
        std::thread::sleep(pause);
        pause = (2 * pause).min(PAUSES[1]);
    }
}

type Found = (Box<dyn Carrier>, u64, Vec<u8>);

/// One attempt; if it fails, whether all hosts say that nobody listens there.
fn attempt(addresses: &[Address], resumption: &Resumption, received: u64) -> Result<Found, bool> {
    let carrier = reach(addresses, Instant::now() + ATTEMPT).map_err(|unreachable| unreachable.nobody)?;
    resume(carrier, resumption, received).map_err(|_| false)
}

fn resume(mut carrier: Box<dyn Carrier>, resumption: &Resumption, received: u64) -> Result<Found, Error> {
    let deadline = Instant::now() + ATTEMPT;
    let client = random()?;
    send(&mut *carrier, &resumption::offer(resumption, &client), deadline)?;
    let mut came = Vec::new();
    let answer = loop {
        if let Some(answer) = came.first_chunk() {
            break *answer;
        }
        let mut buffer = [0; resumption::ANSWER];
        match carrier.read(&mut buffer).map_err(Error::system("the session cannot go on there"))? {
            0 => wait_for(&mut *carrier, false, deadline)?,
            count => came.extend_from_slice(&buffer[..count]),
        }
    };
    let unproved = || Error::Refused("the other end is not in the session".into());
    let (server, arrived) = resumption::read_answer(resumption, &client, &answer).ok_or_else(unproved)?;
    send(&mut *carrier, &resumption::consent(resumption, &client, &server, received), deadline)?;
    Ok((carrier, arrived, came[resumption::ANSWER..].to_vec()))
}

fn send(carrier: &mut dyn Carrier, mut bytes: &[u8], deadline: Instant) -> Result<(), Error> {
    while !bytes.is_empty() {
        match carrier.write(&[IoSlice::new(bytes)]).map_err(Error::system("the session cannot go on there"))? {
            0 => wait_for(carrier, true, deadline)?,
            count => bytes = &bytes[count..],
        }
    }
    Ok(())
}
