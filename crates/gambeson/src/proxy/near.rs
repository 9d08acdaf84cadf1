//! The near end: it stands beside the clients, and gives each of their connections a link of its own.

use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use gambeson_link::{Answers, Domain, Error, Expected, KeyHash, Pending, Startpoint};

use super::socket::{Reset, Socket, reset};
use super::{CHUNK, CLASS, DATA, LOOK, OPEN, RESET, STACK, WATCH, say};

/// How long a client waits for the far end to be there.
const PATIENCE: Duration = Duration::from_secs(10);
/// Before a listener that failed is tried again.
const PAUSE: Duration = Duration::from_millis(100);

/// Where the far end is, as `host:port`.
pub(crate) enum Way {
    /// It listens there.
    To(String),
    /// It waits at a relay there.
    Via(String),
}

impl fmt::Display for Way {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Way::To(address) => out.write_str(address),
            Way::Via(relay) => write!(out, "the far end behind the relay {relay}"),
        }
    }
}

/// The near end's links.
pub(crate) struct Near {
    domain: Domain,
    way: Way,
    /// Who has to be there.
    owner: KeyHash,
    attached: Mutex<Attached>,
}

#[derive(Default)]
struct Attached {
    /// What was attached to, as long as its session lasts, and what watches over that.
    there: Option<(Arc<Startpoint>, Pending<Arc<Startpoint>>)>,
    /// When it last came to nothing, and why.
    failed: Option<(Instant, String)>,
}

impl Near {
    pub(crate) fn new(domain: Domain, way: Way, owner: KeyHash) -> Arc<Self> {
        Arc::new(Near { domain, way, owner, attached: Mutex::default() })
    }

    /// A link for a connection: no round trip, once there is a session with the far end.
    ///
    /// # Errors
    /// When that is not to be reached, is another than expected, or does not accept this end.
    pub(crate) fn link(&self) -> Result<Startpoint, Error> {
        let came = Instant::now();
        let mut attached = self.attached.lock().unwrap_or_else(PoisonError::into_inner);
        // Who has waited while another tried in vain has waited long enough.
        if let Some((when, why)) = &attached.failed
            && *when > came
        {
            return Err(Error::Lost(why.clone()));
        }
        // A far end that was started again knows none of the startpoints that it gave before.
        if attached.there.as_ref().is_none_or(|(there, _)| there.carrier().is_err()) {
            attached.there = None;
            let found =
                self.attach().inspect_err(|cause| attached.failed = Some((Instant::now(), cause.to_string())))?;
            attached.there = Some(found);
        }
        let (there, _) = attached.there.as_ref().expect("it was attached to");
        let capability = there.capability().clone();
        drop(attached);
        self.domain.startpoint(&capability, PATIENCE)
    }

    fn attach(&self) -> Result<(Arc<Startpoint>, Pending<Arc<Startpoint>>), Error> {
        let there = Arc::new(match &self.way {
            Way::To(address) => self.domain.attach(&**address, &Expected::Key(self.owner), CLASS, PATIENCE)?,
            Way::Via(relay) => self.domain.attach_via(relay, self.owner, CLASS, PATIENCE)?,
        });
        let watch = there.start_owned(WATCH, &[])?;
        Ok((there, watch))
    }
}

/// Accepts connections as long as somebody else holds the way to the far end.
pub(crate) fn accept(near: &Weak<Near>, listener: &TcpListener, connections_max: usize) {
    let places = Arc::new(Places { free: Mutex::new(connections_max), one: Condvar::new() });
    loop {
        let place = Places::take(&places);
        let started = listener.accept().and_then(|(client, who)| {
            let (near, place) = (near.clone(), place);
            let thread = thread::Builder::new().name("gambeson-proxy".into()).stack_size(STACK);
            thread.spawn(move || {
                if let Err(cause) = carry(&near, client, who) {
                    say(format_args!("the connection of {who} was reset: {cause}"));
                }
                drop(place);
            })
        });
        if let Err(cause) = started {
            say(format_args!("a connection cannot be carried: {cause}"));
            thread::sleep(PAUSE);
        }
    }
}

/// A bound for connections: those beyond wait in the kernel.
struct Places {
    free: Mutex<usize>,
    one: Condvar,
}

struct Place(Arc<Places>);

impl Places {
    fn take(places: &Arc<Self>) -> Place {
        let free = places.free.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = places.one.wait_while(free, |free| *free == 0);
        *waited.unwrap_or_else(PoisonError::into_inner) -= 1;
        Place(places.clone())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        *self.0.free.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.0.one.notify_one();
    }
}

/// Carries a connection until it ends.
///
/// # Errors
/// When it was not the client who ended it before both its directions had ended.
fn carry(near: &Weak<Near>, client: TcpStream, who: SocketAddr) -> Result<(), Error> {
    let cannot = || move |cause: io::Error| Error::System { what: format!("{who} cannot be served"), cause };
    let link = near.upgrade().ok_or_else(|| Error::Lost("the proxy ends".into())).and_then(|near| near.link());
    let startpoint = Arc::new(link.inspect_err(|_| reset(&client))?);
    let given_up = Reset::new().map_err(cannot())?;
    let socket = Socket::new(client, given_up.clone()).map_err(cannot())?;
    let answers = startpoint.stream_owned(OPEN, &[])?;
    // What the other direction hears of it is not why.
    let first = OnceLock::new();
    let end = |why| {
        let _ = first.set(why);
        given_up.now();
    };
    thread::scope(|scope| {
        let writer = thread::Builder::new().name("gambeson-proxy".into()).stack_size(STACK);
        let down = || to_client(&socket, answers, &given_up).unwrap_or_else(end);
        writer.spawn_scoped(scope, down).map_err(cannot())?;
        from_client(&socket, &startpoint).unwrap_or_else(|why| {
            end(why);
            // If there is no room for words, the far end hears it by the link's end.
            let _ = startpoint.post(RESET, &[]);
        });
        Ok::<_, Error>(())
    })?;
    match first.into_inner() {
        None => socket.end(),
        Some(End::Client) => {}
        Some(End::Link(cause)) => return Err(cause),
    }
    Ok(())
}

/// Who ended a connection before both its directions had ended.
enum End {
    Client,
    Link(Error),
}

impl From<io::Error> for End {
    fn from(_: io::Error) -> Self {
        End::Client
    }
}

impl From<Error> for End {
    fn from(cause: Error) -> Self {
        End::Link(cause)
    }
}

/// Carries what the client sends until it ends.
fn from_client(socket: &Socket, startpoint: &Startpoint) -> Result<(), End> {
    let mut buffer = vec![0; CHUNK];
    loop {
        let count = socket.read(&mut buffer, None)?;
        startpoint.send(DATA, &buffer[..count])?;
        if count == 0 {
            return Ok(());
        }
    }
}

/// Carries what the service sends until both directions have ended.
fn to_client(socket: &Socket, mut answers: Answers<Arc<Startpoint>>, given_up: &Reset) -> Result<(), End> {
    let mut ended = false;
    loop {
        match answers.next(LOOK) {
            Ok(Some(bytes)) if !bytes.is_empty() => socket.write_all(&bytes)?,
            Ok(Some(_)) if ended => return Ok(()),
            Ok(Some(_)) => {
                socket.finish()?;
                ended = true;
            }
            Ok(None) => return Err(Error::Lost("the far end broke it off".into()).into()),
            Err(Error::TimedOut(_)) if !given_up.is_rung() => {}
            Err(Error::TimedOut(_)) => return Err(End::Client),
            Err(cause) => return Err(cause.into()),
        }
    }
}
