//! The far end: it stands beside the service, and connects to it for each link.

use std::collections::HashMap;
use std::io::{self, ErrorKind};
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use gambeson_link::{Handlers, LinkName, Request};

use super::socket::{Reset, Socket};
use super::{CHUNK, DATA, LOOK, OPEN, RESET, STACK, WATCH, say};

/// The service has so long to take a connection.
const CONNECT: Duration = Duration::from_secs(10);

/// A service, and the connections to it that are carried.
pub(crate) struct Service {
    address: String,
    connections_max: usize,
    carried: Mutex<HashMap<LinkName, Carried>>,
}

struct Carried {
    up: Sender<Request>,
    reset: Arc<Reset>,
}

impl Service {
    /// The service at `host:port`.
    pub(crate) fn new(address: &str, connections_max: usize) -> Arc<Self> {
        Arc::new(Service { address: address.to_owned(), connections_max, carried: Mutex::default() })
    }

    /// What the endpoint of such a service does.
    pub(crate) fn handlers(self: Arc<Self>) -> Handlers {
        let [open, data, reset] = [(); 3].map(|()| self.clone());
        Handlers::new()
            .queued(OPEN, move |request| open.open(request))
            .queued(DATA, move |request| data.pass(request))
            .queued(RESET, move |request| reset.reset(request.link()))
            .inline(WATCH, |call| call.answer(&[]))
    }

    fn carried(&self) -> MutexGuard<'_, HashMap<LinkName, Carried>> {
        self.carried.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn open(self: &Arc<Self>, request: Request) {
        let link = request.link();
        let mut carried = self.carried();
        if carried.contains_key(&link) {
            return request.refuse("the link carries a connection already");
        }
        if carried.len() == self.connections_max {
            let why = format!("the far end carries {} connections, and no more (--connections)", carried.len());
            say(format_args!("a connection of {} was refused: {why}", request.peer.name));
            return request.refuse(&why);
        }
        let started = Reset::new().and_then(|reset| {
            let (up, queue) = channel();
            let (service, ours) = (self.clone(), reset.clone());
            let thread = thread::Builder::new().name("gambeson-proxy".into()).stack_size(STACK);
            thread.spawn(move || service.carry(request, queue, &ours))?;
            Ok(Carried { up, reset })
        });
        match started {
            Ok(started) => drop(carried.insert(link, started)),
            // The request is gone, and with it the connection.
            Err(cause) => say(format_args!("a connection cannot be carried: {cause}")),
        }
    }

    /// Puts bytes into the queue to the service; who takes no more of them has dropped it.
    fn pass(&self, request: Request) {
        if let Some(carried) = self.carried().get(&request.link()) {
            let _ = carried.up.send(request);
        }
    }

    fn reset(&self, link: LinkName) {
        if let Some(carried) = self.carried().remove(&link) {
            carried.reset.now();
        }
    }

    fn carry(&self, mut request: Request, queue: Receiver<Request>, reset: &Arc<Reset>) {
        let link = request.link();
        let outcome = self.connect(reset).and_then(|socket| self.both_ways(&socket, &mut request, queue, reset));
        self.carried().remove(&link);
        match outcome {
            Ok(()) => request.answer(&[]),
            Err(End::Near) => request.refuse("the connection was reset"),
            Err(End::Service(cause)) => {
                let why = format!("the service at {} {}", self.address, told(&cause));
                say(format_args!("a connection of {} has ended: {why}", request.peer.name));
                request.refuse(&why);
            }
        }
    }

    fn connect(&self, reset: &Arc<Reset>) -> Result<Socket, End> {
        let mut failure = io::Error::new(ErrorKind::NotFound, "its name leads to no address");
        for address in self.address.to_socket_addrs()? {
            match TcpStream::connect_timeout(&address, CONNECT) {
                Ok(stream) => return Ok(Socket::new(stream, reset.clone())?),
                Err(cause) => failure = cause,
            }
        }
        Err(failure.into())
    }

    fn both_ways(
        &self,
        socket: &Socket,
        request: &mut Request,
        queue: Receiver<Request>,
        reset: &Reset,
    ) -> Result<(), End> {
        let link = request.link();
        // Whoever writes waits on the socket, or for what is put into the queue.
        let give_up = || {
            reset.now();
            self.carried().remove(&link);
        };
        thread::scope(|scope| {
            let (done, up) = channel();
            let writer = thread::Builder::new().name("gambeson-proxy".into()).stack_size(STACK);
            writer.spawn_scoped(scope, move || done.send(to_service(socket, queue)))?;
            let down = from_service(socket, request).inspect_err(|_| give_up());
            let up = loop {
                match up.recv_timeout(LOOK) {
                    Ok(outcome) => break outcome,
                    Err(RecvTimeoutError::Timeout) if request.is_cancelled() => give_up(),
                    Err(RecvTimeoutError::Timeout) => {}
                    Err(RecvTimeoutError::Disconnected) => break Err(io::Error::other("was not written to").into()),
                }
            };
            down.and(up)
        })?;
        socket.end();
        Ok(())
    }
}

/// Who ended a connection before both its directions had ended.
enum End {
    /// The near end, or nobody knows that there is one.
    Near,
    Service(io::Error),
}

impl From<io::Error> for End {
    fn from(cause: io::Error) -> Self {
        if cause.kind() == ErrorKind::ConnectionAborted { End::Near } else { End::Service(cause) }
    }
}

/// Carries what the service sends until it ends.
fn from_service(socket: &Socket, request: &mut Request) -> Result<(), End> {
    let mut buffer = vec![0; CHUNK];
    loop {
        match socket.read(&mut buffer, Some(LOOK)) {
            Ok(count) => {
                request.item(&buffer[..count]).map_err(|_| End::Near)?;
                if count == 0 {
                    return Ok(());
                }
            }
            Err(cause) if cause.kind() != ErrorKind::WouldBlock => return Err(cause.into()),
            Err(_) if request.is_cancelled() => return Err(End::Near),
            Err(_) => {}
        }
    }
}

/// Carries what is in the queue to the service until it ends.
fn to_service(socket: &Socket, queue: Receiver<Request>) -> Result<(), End> {
    for request in queue {
        if request.payload.is_empty() {
            return Ok(socket.finish()?);
        }
        socket.write_all(&request.payload)?;
    }
    Err(End::Near)
}

/// What the service did, for people.
fn told(cause: &io::Error) -> String {
    match cause.kind() {
        ErrorKind::ConnectionRefused => "refuses connections; is it running?".into(),
        ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => "has reset the connection".into(),
        ErrorKind::TimedOut => "does not answer".into(),
        _ => format!("cannot be reached ({cause})"),
    }
}
