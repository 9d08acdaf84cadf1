//! Somebody who has connected and proved nothing yet: to begin a session, or to go on with one.

use std::io::IoSlice;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::time::{Duration, Instant};

use crate::carrier::Carrier;
use crate::domain::random;
use crate::error::Error;
use crate::handshake::{Agreed, Handshake};
use crate::resumption;
use crate::session::Session;
use crate::shared::Shared;
use crate::state::{SessionKey, State};

/// How long a stranger may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// Of it so long in any case, if others want its place: who says nothing, and who has begun.
const LISTENED: Duration = Duration::from_millis(250);
const GREETED: Duration = Duration::from_secs(1);

pub(crate) struct Stranger {
    carrier: Option<Box<dyn Carrier>>,
    came: Vec<u8>,
    out: Vec<u8>,
    since: Instant,
    stage: Stage,
}

enum Stage {
    Silent,
    Beginning(Box<Handshake>),
    Signing(Signing),
    Begun(Box<Agreed>),
    Resuming { session: SessionKey, client: [u8; 16], server: [u8; 16], told: u64, carriers: u64 },
}

/// A handshake that goes on in another thread, as this end's key is in a token, which may take long; the domain is not
/// locked for so long.
struct Signing {
    back: Receiver<Back>,
    /// Whose handshake nobody waits for any more is not gone on with.
    _wanted: Arc<()>,
}

struct Back {
    handshake: Box<Handshake>,
    came: Vec<u8>,
    out: Vec<u8>,
    agreed: Result<Option<Agreed>, Error>,
}

impl Signing {
    fn start(mut handshake: Box<Handshake>, came: Vec<u8>, shared: &Shared) -> Self {
        let (send, back) = channel();
        let (wanted, me) = (Arc::new(()), shared.me.clone());
        let still = Arc::downgrade(&wanted);
        shared.signing.run(Box::new(move || {
            if still.strong_count() == 0 {
                return;
            }
            let (mut rest, mut out) = (&came[..], Vec::new());
            let agreed = handshake.advance(&mut rest, &mut out);
            let came = rest.to_vec();
            // Who is gone hears nothing.
            let _ = send.send(Back { handshake, came, out, agreed });
            if let Some(shared) = me.upgrade() {
                shared.ring();
            }
        }));
        Signing { back, _wanted: wanted }
    }
}

/// What became of it.
pub(crate) enum Met {
    /// It is not its turn.
    Waits,
    /// It is a session's carrier now.
    Done,
    /// It is nobody to talk to; it may have shown why.
    Refused(Option<Error>),
}

impl Stranger {
    pub(crate) fn new(carrier: Box<dyn Carrier>) -> Self {
        Stranger {
            carrier: Some(carrier),
            came: Vec::new(),
            out: Vec::new(),
            since: Instant::now(),
            stage: Stage::Silent,
        }
    }

    /// Goes on as far as what has come allows.
    pub(crate) fn proceed(&mut self, shared: &Shared, state: &mut State) -> Met {
        let mut buffer = [0; 16 << 10];
        loop {
            match self.flush() {
                None => return Met::Refused(None),
                Some(false) => return self.waits(),
                Some(true) => {}
            }
            if matches!(self.stage, Stage::Begun(_)) {
                let Stage::Begun(agreed) = std::mem::replace(&mut self.stage, Stage::Silent) else { unreachable!() };
                let carrier = self.carrier.take().expect("nobody took it yet");
                let session = Session::new(*agreed, carrier, (&[], None), &self.came);
                return state.insert(session, shared).map_or_else(|cause| Met::Refused(Some(cause)), |_| Met::Done);
            }
            let stepped = match &self.stage {
                Stage::Signing(signing) => match signing.back.try_recv() {
                    Err(TryRecvError::Empty) => return self.waits(),
                    Err(TryRecvError::Disconnected) => return Met::Refused(None),
                    Ok(Back { handshake, came, out, agreed }) => {
                        (self.came, self.out) = (came, out);
                        agreed.map(|agreed| {
                            self.stage =
                                agreed.map_or(Stage::Beginning(handshake), |agreed| Stage::Begun(Box::new(agreed)));
                            None
                        })
                    }
                },
                _ => {
                    let read = self.carrier.as_mut().expect("nobody took it yet").read(&mut buffer);
                    match read {
                        Ok(0) => return self.waits(),
                        Ok(count) => self.came.extend_from_slice(&buffer[..count]),
                        Err(_) => return Met::Refused(None),
                    }
                    self.step(shared, state)
                }
            };
            match stepped {
                Ok(None) => {}
                Ok(Some(met)) => return met,
                Err(cause) => {
                    self.flush();
                    let carrier = self.carrier.as_ref().expect("nobody took it yet");
                    let why = format!("a connection over {} was refused: {cause}", carrier.kind());
                    return Met::Refused(Some(Error::Refused(why)));
                }
            }
        }
    }

    /// Who goes first when there are too many: those who are silent, and of them the oldest.
    pub(crate) fn turn(&self) -> (bool, Instant) {
        (!matches!(self.stage, Stage::Silent), self.since)
    }

    /// Whether it has had its time, so that its place is another's where there are too many. Who comes with a thousand others
    /// is not sent away for that: they wait in the system's queue until there is a place.
    pub(crate) fn has_had_its_time(&self) -> bool {
        let time = if matches!(self.stage, Stage::Silent) { LISTENED } else { GREETED };
        self.since.elapsed() > time
    }

    /// Before a sleep; whether there is something to do after all.
    pub(crate) fn arm(&mut self) -> bool {
        // Who signs for it ends the sleep.
        if matches!(self.stage, Stage::Signing(_)) {
            return false;
        }
        let want_write = !self.out.is_empty();
        self.carrier.as_mut().is_some_and(|carrier| carrier.arm(want_write).unwrap_or(true))
    }

    fn waits(&self) -> Met {
        if self.since.elapsed() > PATIENCE { Met::Refused(None) } else { Met::Waits }
    }

    fn step(&mut self, shared: &Shared, state: &mut State) -> Result<Option<Met>, Error> {
        match &mut self.stage {
            Stage::Silent if self.came.first() == Some(&resumption::FIRST) => {
                let Some(offer) = self.came.first_chunk() else { return Ok(None) };
                let (name, client) = resumption::read_offer(offer);
                let unknown = || Error::Refused("it wants to go on with a session that is not here (any more)".into());
                let key = state.session_named(&name).ok_or_else(unknown)?;
                let session = state.sessions.get(key).ok_or_else(unknown)?;
                let carrier = self.carrier.as_ref().expect("nobody took it yet");
                if carrier.kind().is_relayed() && !session.is_relayed() {
                    let what = "a session whose links need not be sealed does not go on through a relay";
                    return Err(Error::Refused(what.into()));
                }
                shared.party.site().carries(&session.peer.host, carrier.kind().transport())?;
                let (server, told, carriers) = (random()?, session.received(), session.carriers());
                self.out.extend(resumption::answer(session.resumption(), &client, &server, told));
                self.came.drain(..resumption::OFFER);
                self.stage = Stage::Resuming { session: key, client, server, told, carriers };
                Ok(None)
            }
            Stage::Silent => {
                shared.party.site().is_valid()?;
                let over = self.carrier.as_ref().expect("nobody took it yet").kind().transport();
                self.stage = Stage::Beginning(Box::new(Handshake::accept(&shared.party, over)?));
                self.step(shared, state)
            }
            Stage::Beginning(_) if shared.party.is_slow() => {
                let Stage::Beginning(handshake) = std::mem::replace(&mut self.stage, Stage::Silent) else {
                    unreachable!()
                };
                self.stage = Stage::Signing(Signing::start(handshake, std::mem::take(&mut self.came), shared));
                Ok(None)
            }
            Stage::Beginning(handshake) => {
                let mut rest = &self.came[..];
                let agreed = handshake.advance(&mut rest, &mut self.out);
                let taken = self.came.len() - rest.len();
                self.came.drain(..taken);
                if let Some(agreed) = agreed? {
                    self.stage = Stage::Begun(Box::new(agreed));
                }
                Ok(None)
            }
            Stage::Signing(_) | Stage::Begun(_) => Ok(None),
            Stage::Resuming { session: key, client, server, told, carriers } => {
                let Some(consent) = self.came.first_chunk() else { return Ok(None) };
                let State { sessions, cache, .. } = state;
                let Some(session) = sessions.get_mut(*key) else { return Ok(Some(Met::Refused(None))) };
                let arrived = resumption::read_consent(session.resumption(), client, server, consent);
                let arrived = arrived.ok_or_else(|| Error::Refused("it names a session that it is not in".into()))?;
                // The peer has given the carrier before up, and may have gone on over yet another one since.
                if session.carriers() != *carriers {
                    return Ok(Some(Met::Refused(None)));
                }
                session.lose("the other end goes on over another connection");
                if session.over().is_some() {
                    return Ok(Some(Met::Refused(None)));
                }
                let carrier = self.carrier.take().expect("nobody took it yet");
                shared.watch(&*carrier, Some(*key))?;
                let resumed = session.resume(cache, carrier, (*told, arrived), &self.came[resumption::CONSENT..]);
                Ok(Some(if resumed { Met::Done } else { Met::Refused(None) }))
            }
        }
    }

    /// Whether all went out; `None`: the connection is lost.
    fn flush(&mut self) -> Option<bool> {
        let carrier = self.carrier.as_mut()?;
        while !self.out.is_empty() {
            let sent = carrier.write(&[IoSlice::new(&self.out)]).ok()?;
            self.out.drain(..sent);
            if sent == 0 {
                return Some(false);
            }
        }
        Some(true)
    }
}
