//! A vector of processes that were started together: their startpoints as they become ready, and how they end.

use std::future::{Future, poll_fn};
use std::io::{self, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use gambeson_link::Capability;

use crate::error::Error;
use crate::requester::{Controls, Heard, Ordered};
use crate::wire::{Event, Status};

/// Where a process wrote something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// Its standard output.
    Output,
    /// Its standard error.
    Errors,
}

/// What becomes of what processes write.
pub trait Output: Send + 'static {
    /// Takes what a process has written.
    fn write(&mut self, process: u32, stream: Stream, bytes: &[u8]);
}

impl<F: FnMut(u32, Stream, &[u8]) + Send + 'static> Output for F {
    fn write(&mut self, process: u32, stream: Stream, bytes: &[u8]) {
        self(process, stream, bytes);
    }
}

/// Writes it where this program writes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Here;

impl Output for Here {
    fn write(&mut self, _: u32, stream: Stream, bytes: &[u8]) {
        // Nobody may be there to read it.
        let _ = match stream {
            Stream::Output => io::stdout().write_all(bytes).and_then(|()| io::stdout().flush()),
            Stream::Errors => io::stderr().write_all(bytes),
        };
    }
}

/// Processes that were started together, numbered from 0. Dropping it ends them.
pub struct Processes {
    board: Arc<Board>,
    controls: Controls,
    attending: Option<JoinHandle<()>>,
}

impl Processes {
    pub(crate) fn new(ordered: Ordered, board: Arc<Board>, output: impl Output) -> Result<Self, Error> {
        let (controls, theirs) = (ordered.controls(), board.clone());
        let attend = thread::Builder::new().name("gambeson-launch".into());
        let attending = attend.spawn(move || theirs.attend(ordered, output));
        let attending =
            attending.map_err(|cause| Error::Unavailable(format!("there is no thread for the processes ({cause})")))?;
        Ok(Processes { board, controls, attending: Some(attending) })
    }

    /// Ends them, and waits until their daemons were told, as dropping it does not.
    pub fn end(mut self) {
        self.controls.leave();
        // A panic of the program's own `output` was said where it happened.
        let _ = self.attending.take().map(JoinHandle::join);
    }

    /// How many there are.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "there is one at least")]
    pub fn len(&self) -> usize {
        self.board.hosts.len()
    }

    /// The host that a process is on.
    ///
    /// # Panics
    /// When there is no such process.
    #[must_use]
    pub fn host(&self, process: u32) -> &str {
        &self.board.hosts[process as usize]
    }

    /// The startpoint that a process hands over once it is ready ([`crate::child::Child::ready`]). An error says how it
    /// ended before that, or why it was not started.
    ///
    /// # Panics
    /// When there is no such process.
    pub fn startpoint(&self, process: u32) -> impl Future<Output = Result<Capability, Error>> + Send + use<> {
        self.when(process, Board::startpoint)
    }

    /// As [`Processes::startpoint`], waited for at most so long; none if it is not ready by then.
    ///
    /// # Errors
    /// As there.
    ///
    /// # Panics
    /// When there is no such process.
    pub fn wait_startpoint(&self, process: u32, patience: Duration) -> Result<Option<Capability>, Error> {
        self.board.wait(process, patience, Board::startpoint).transpose()
    }

    /// How a process ended. An error says why it was not started, or that nobody knows.
    ///
    /// # Panics
    /// When there is no such process.
    pub fn status(&self, process: u32) -> impl Future<Output = Result<Status, Error>> + Send + use<> {
        self.when(process, Board::status)
    }

    /// As [`Processes::status`], waited for at most so long; none if it runs by then.
    ///
    /// # Errors
    /// As there.
    ///
    /// # Panics
    /// When there is no such process.
    pub fn wait_status(&self, process: u32, patience: Duration) -> Result<Option<Status>, Error> {
        self.board.wait(process, patience, Board::status).transpose()
    }

    /// The process's number on its host, once it runs.
    ///
    /// # Panics
    /// When there is no such process.
    #[must_use]
    pub fn pid(&self, process: u32) -> Option<u32> {
        self.board.states()[process as usize].pid
    }

    /// Input, signals and windows for them.
    #[must_use]
    pub fn controls(&self) -> &Controls {
        &self.controls
    }

    fn when<T: Send>(
        &self,
        process: u32,
        find: fn(&Board, u32, &State) -> Option<T>,
    ) -> impl Future<Output = T> + Send + use<T> {
        assert!((process as usize) < self.len(), "there is no process {process}");
        let board = self.board.clone();
        poll_fn(move |context| board.poll(process, context, find))
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        self.controls.leave();
    }
}

/// What is known of processes that were started together.
pub(crate) struct Board {
    hosts: Vec<String>,
    states: Mutex<Vec<State>>,
    changed: Condvar,
}

/// What is known of one.
#[derive(Default)]
struct State {
    pid: Option<u32>,
    startpoint: Option<Capability>,
    ended: Option<Result<Status, String>>,
    wakers: Vec<Waker>,
}

impl Board {
    pub(crate) fn new(hosts: impl Iterator<Item = String>) -> Self {
        let hosts: Vec<String> = hosts.collect();
        let states = hosts.iter().map(|_| State::default()).collect();
        Board { hosts, states: Mutex::new(states), changed: Condvar::new() }
    }

    /// A process has handed over its startpoint.
    pub(crate) fn ready(&self, process: u32, startpoint: Capability) -> Result<(), String> {
        let mut states = self.states();
        match states.get_mut(process as usize) {
            None => return Err(format!("the order has no process {process}")),
            Some(State { startpoint: Some(_), .. }) => {
                return Err(format!("process {process} has said already that it is ready"));
            }
            Some(state) => state.startpoint = Some(startpoint),
        }
        self.tell(states, process);
        Ok(())
    }

    /// Writes down what is said of the processes, until all have ended.
    fn attend(&self, mut ordered: Ordered, mut output: impl Output) {
        loop {
            let (process, event) = match ordered.next(LONG) {
                Heard::Event(process, event) => (process, event),
                Heard::Nothing => continue,
                Heard::End => return,
            };
            let mut states = match &event {
                Event::Output(bytes) => {
                    output.write(process, Stream::Output, bytes);
                    continue;
                }
                Event::Errors(bytes) => {
                    output.write(process, Stream::Errors, bytes);
                    continue;
                }
                _ => self.states(),
            };
            let Some(state) = states.get_mut(process as usize) else { continue };
            match event {
                Event::Started(pid) => state.pid = Some(pid),
                Event::Ended(status) => state.ended = Some(Ok(status)),
                Event::Failed(why) => state.ended = Some(Err(why)),
                Event::Output(_) | Event::Errors(_) => {}
            }
            self.tell(states, process);
        }
    }

    fn startpoint(&self, process: u32, state: &State) -> Option<Result<Capability, Error>> {
        if let Some(startpoint) = &state.startpoint {
            return Some(Ok(startpoint.clone()));
        }
        let how = match state.ended.as_ref()? {
            Err(why) => return Some(Err(self.failed(process, why))),
            Ok(Status::Exited(code)) => format!("ended with status {code}"),
            Ok(Status::Killed(signal)) => format!("was ended by signal {signal}"),
        };
        let host = &self.hosts[process as usize];
        let why =
            format!("process {process} on {host} {how} before it was ready; its program has to call init_process");
        Some(Err(Error::Unavailable(why)))
    }

    fn status(&self, process: u32, state: &State) -> Option<Result<Status, Error>> {
        state.ended.as_ref().map(|ended| ended.as_ref().copied().map_err(|why| self.failed(process, why)))
    }

    fn failed(&self, process: u32, why: &str) -> Error {
        let host = &self.hosts[process as usize];
        let why = why.strip_prefix(&format!("{host}: ")).unwrap_or(why);
        Error::Unavailable(format!("process {process} on {host} has failed: {why}"))
    }

    fn poll<T>(&self, process: u32, context: &mut Context<'_>, find: fn(&Board, u32, &State) -> Option<T>) -> Poll<T> {
        let state = &mut self.states()[process as usize];
        match find(self, process, state) {
            Some(found) => Poll::Ready(found),
            None => {
                if !state.wakers.iter().any(|waker| waker.will_wake(context.waker())) {
                    state.wakers.push(context.waker().clone());
                }
                Poll::Pending
            }
        }
    }

    fn wait<T>(&self, process: u32, patience: Duration, find: fn(&Board, u32, &State) -> Option<T>) -> Option<T> {
        let deadline = Instant::now() + patience;
        let mut states = self.states();
        loop {
            if let Some(found) = find(self, process, &states[process as usize]) {
                return Some(found);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return None;
            }
            states = self.changed.wait_timeout(states, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn tell(&self, mut states: MutexGuard<'_, Vec<State>>, process: u32) {
        let wakers = std::mem::take(&mut states[process as usize].wakers);
        drop(states);
        self.changed.notify_all();
        wakers.into_iter().for_each(Waker::wake);
    }

    fn states(&self) -> MutexGuard<'_, Vec<State>> {
        self.states.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

const LONG: Duration = Duration::from_secs(3600);

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::task::Wake;

    use gambeson_link::{Attributes, Config, Domain, Handlers, Identity, Trust};

    use super::*;

    fn board() -> Arc<Board> {
        Arc::new(Board::new(["h1", "h2"].map(String::from).into_iter()))
    }

    fn startpoint() -> Capability {
        let domain = Domain::open(Config::new(Identity::generate().unwrap(), Trust::default())).unwrap();
        domain.endpoint(Attributes::default(), Handlers::new()).unwrap().startpoint([]).unwrap()
    }

    fn ends(board: &Board, process: u32, how: Result<Status, String>) {
        let mut states = board.states();
        states[process as usize].ended = Some(how);
        board.tell(states, process);
    }

    struct Count(AtomicU32);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_process_is_ready_once() {
        let (board, startpoint) = (board(), startpoint());
        assert!(board.wait(1, Duration::ZERO, Board::startpoint).is_none());
        board.ready(1, startpoint.clone()).unwrap();
        assert!(board.ready(1, startpoint.clone()).unwrap_err().contains("said already"));
        assert!(board.ready(2, startpoint.clone()).unwrap_err().contains("no process 2"));
        assert_eq!(board.wait(1, Duration::ZERO, Board::startpoint).unwrap().unwrap().name(), startpoint.name());
        // That it ended later changes nothing of that.
        ends(&board, 1, Ok(Status::Exited(0)));
        assert!(board.wait(1, Duration::ZERO, Board::startpoint).unwrap().is_ok());
    }

    #[test]
    fn a_process_that_ends_before_that_is_waited_for_no_more() {
        let board = board();
        let count = Arc::new(Count(AtomicU32::new(0)));
        let waker = Waker::from(count.clone());
        let coming = board.clone();
        let mut future = pin!(poll_fn(move |context| coming.poll(0, context, Board::startpoint)));
        assert!(future.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        ends(&board, 1, Ok(Status::Exited(0)));
        assert_eq!(count.0.load(Ordering::Relaxed), 0, "another one's end is none of its");
        ends(&board, 0, Ok(Status::Killed(9)));
        assert_eq!(count.0.load(Ordering::Relaxed), 1);
        let Poll::Ready(Err(why)) = future.as_mut().poll(&mut Context::from_waker(&waker)) else { panic!("it waits") };
        assert!(why.to_string().starts_with("process 0 on h1 was ended by signal 9 before it was ready"), "{why}");
        ends(&board, 1, Err("h2: nobody is there".into()));
        let why = board.wait(1, Duration::ZERO, Board::status).unwrap().unwrap_err();
        assert_eq!(why.to_string(), "process 1 on h2 has failed: nobody is there");
    }
}
