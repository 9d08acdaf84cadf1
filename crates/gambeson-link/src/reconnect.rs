//! Getting another carrier for a session that lost its own or is to leave it: the side that connected does that, on a
//! thread that lives as long as the search.

use std::io::IoSlice;
use std::sync::Weak;
use std::time::{Duration, Instant};

use crate::carrier::Carrier;
use crate::domain::random;
use crate::error::Error;
use crate::resumption;
use crate::route::{self, Says, Unreachable};
use crate::session::Search;
use crate::shared::{Found, Shared, wait_for};
use crate::state::SessionKey;

/// Between two attempts, at first and at most.
const PAUSES: [Duration; 2] = [Duration::from_millis(20), Duration::from_secs(1)];
/// How long one attempt may take.
const ATTEMPT: Duration = Duration::from_secs(5);
/// While the other end is asked to let the present carrier go.
const ASKING: Duration = Duration::from_millis(1);
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
    let mut asked = Instant::now();
    loop {
        let sought = shared.upgrade().and_then(|shared| shared.search(key));
        let Some(search) = sought else { return };
        if !search.ready && asked.elapsed() < ATTEMPT {
            std::thread::sleep(ASKING);
            continue;
        }
        let failure = match attempt(shared, key, &search) {
            Ok(()) => return,
            Err(failure) => failure,
        };
        let Some(shared) = shared.upgrade() else { return };
        if !shared.stay(key, &failure.why.to_string()) {
            return;
        }
        // Who turns this session away may have forgotten it.
        if matches!(failure.why, Error::Refused(_))
            && shared.is_forgotten(key, &search, Instant::now() + ATTEMPT).unwrap_or(false)
        {
            return shared.forgotten(key);
        }
        refused = (failure.says == Says::Nobody).then(|| refused.unwrap_or_else(Instant::now));
        if refused.is_some_and(|since| since.elapsed() > DEAD) {
            return shared.gone(key);
        }
        drop(shared);
        std::thread::sleep(pause);
        pause = (2 * pause).min(PAUSES[1]);
        asked = Instant::now();
    }
}

/// One attempt.
fn attempt(shared: &Weak<Shared>, key: SessionKey, search: &Search) -> Result<(), Unreachable> {
    if !search.ready {
        let why = format!("the other end has not made ready to leave its carrier within {ATTEMPT:?}");
        return Err(Unreachable { why: Error::TimedOut(why), says: Says::Otherwise });
    }
    route::first(&search.ways, Instant::now() + ATTEMPT, |carrier, deadline| {
        let gone = || Error::Lost("the domain is closed".into());
        shared.upgrade().ok_or_else(gone)?.hold(key);
        let found = ask(carrier, search, deadline)?;
        let went_on = shared.upgrade().ok_or_else(gone)?.found(key, found);
        went_on.then_some(()).ok_or_else(|| Error::Lost("the connection was lost at once".into()))
    })
}

/// Offers to go on, and hears how far the other end is.
fn ask(mut carrier: Box<dyn Carrier>, search: &Search, deadline: Instant) -> Result<Found, Error> {
    let client = random()?;
    send(&mut *carrier, &resumption::offer(&search.resumption, &client), deadline)?;
    let mut came = Vec::new();
    let answer = loop {
        if let Some(answer) = came.first_chunk() {
            break *answer;
        }
        let mut buffer = [0; resumption::ANSWER];
        let turned_away = |cause| Error::Refused(format!("the other end does not go on with the session ({cause})"));
        match carrier.read(&mut buffer).map_err(turned_away)? {
            0 => wait_for(&mut *carrier, false, deadline)?,
            count => came.extend_from_slice(&buffer[..count]),
        }
    };
    let unproved = || Error::Refused("the other end is not in the session".into());
    let (server, arrived) = resumption::read_answer(&search.resumption, &client, &answer).ok_or_else(unproved)?;
    let rest = came[resumption::ANSWER..].to_vec();
    Ok(Found { carrier, client, server, arrived, rest })
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
