//! What passes between who wants processes, the daemons, and the keepers of processes.
//!
//! ```text
//!  requester ── START: a Start, with the Order ──────────────> daemon      one link for each order
//!            <─ stream of Events ──────────────────────────────
//!            ── INPUT, SIGNAL, WINDOW: a process's number first ─>
//! ```
//! The link seals and proves all of it. An order is the same bytes at every host that has a part in it.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use gambeson_link::Signed;
use serde::{Deserialize, Serialize};
use zeroize::Zeroize;

use crate::authority::PORT;

/// The name under which a daemon publishes its endpoint.
pub const ENDPOINT: &str = "gambesond";
/// The class of its links.
pub const CLASS: &str = "control";
/// Handler: begins an order. A stream of [`Event`]s comes back and ends when all of it has.
pub const START: u32 = 0;
/// Handler: bytes for a process's standard input; without any, that is at its end.
pub const INPUT: u32 = 1;
/// Handler: a signal.
pub const SIGNAL: u32 = 2;
/// Handler: the size of a process's terminal.
pub const WINDOW: u32 = 3;

/// Handler: which orders run here, of those that the asker may end. Answered by a list of [`Running`].
pub const LIST: u32 = 4;
/// Handler: ends an order, named by its identifier. Answered by nothing.
pub const KILL: u32 = 5;

/// Handler: how the daemon is. Answered by a [`Health`].
pub const STATUS: u32 = 6;

/// Stands for every process of an order, where one can be named.
pub const ALL: u32 = u32::MAX;

/// A string of the system: any bytes but zero.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Text(Vec<u8>);

impl Text {
    /// As the system takes it.
    #[must_use]
    pub fn as_os(&self) -> &OsStr {
        OsStr::from_bytes(&self.0)
    }

    /// Whether the system can take it.
    fn is_whole(&self) -> bool {
        !self.0.contains(&0)
    }
}

impl<T: Into<OsString>> From<T> for Text {
    fn from(text: T) -> Self {
        Text(text.into().into_vec())
    }
}

/// A variable and its value.
pub type Variable = (Text, Text);

/// Bytes for those alone that they are meant for: not shown, and wiped when they go.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Secret(Vec<u8>);

impl Secret {
    /// The bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl From<&[u8]> for Secret {
    fn from(bytes: &[u8]) -> Self {
        Secret(bytes.to_vec())
    }
}

impl From<Vec<u8>> for Secret {
    fn from(bytes: Vec<u8>) -> Self {
        Secret(bytes)
    }
}

impl Drop for Secret {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Secret({} bytes)", self.0.len())
    }
}

/// What one process or many of them are to be (secure-nexus paper, section 5.1).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Program {
    /// Where it starts; the account's home if this is empty.
    pub directory: Text,
    /// A path, or a name to look for in `PATH`.
    pub executable: Text,
    /// All of argv, the name by which it is called first.
    pub arguments: Vec<Text>,
    /// What it finds beside the account's own variables.
    pub environment: Vec<Variable>,
    /// How its streams are connected.
    pub streams: Streams,
}

/// How a process's streams are connected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Streams {
    /// Output and errors come back, and its input is empty.
    #[default]
    Output,
    /// Input goes there, too.
    All,
    /// A terminal of so many rows and columns.
    Terminal(u16, u16),
}

/// A host of an order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Host {
    /// What its certificate must be for.
    pub name: String,
    /// Where its daemon listens, `ADDRESS:PORT`.
    pub address: String,
}

impl Host {
    /// `NAME`, or `NAME=ADDRESS:PORT` where its daemon listens elsewhere.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        match text.split_once('=') {
            Some((name, address)) => Host { name: name.into(), address: address.into() },
            None => Host { name: text.into(), address: format!("{text}:{PORT}") },
        }
    }
}

/// One process of an order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    /// Its host's place in the order.
    pub host: u32,
    /// Its program's place in the order.
    pub program: u32,
    /// What it finds beside its program's variables.
    pub environment: Vec<Variable>,
}

/// Processes that somebody wants, on any number of hosts. They are numbered as they stand here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Order {
    /// Its name, drawn at random.
    pub id: [u8; 16],
    /// Until when it may begin, in seconds since 1970.
    pub until: u64,
    /// The account that it is for; the requester's own if this is empty.
    pub account: String,
    /// Where its processes are.
    pub hosts: Vec<Host>,
    /// What they are.
    pub programs: Vec<Program>,
    /// Which they are.
    pub processes: Vec<Process>,
    /// The security context of each of them, which comes to it by a descriptor of its own; none if this is empty.
    pub context: Secret,
}

/// What [`START`] takes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Start {
    /// An encoded [`Order`].
    pub order: Secret,
    /// The places of the hosts that the daemon is to see to: its own first, then those that it passes the order on to.
    pub hosts: Vec<u32>,
    /// The requester's signature, by which those know him that the order is passed on to.
    pub signature: Option<Signature>,
}

/// A signature under an encoded order, with the certificates of who signed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Signature {
    chain: Vec<Vec<u8>>,
    scheme: u16,
    signature: Vec<u8>,
}

impl From<Signed> for Signature {
    fn from(Signed { chain, scheme, signature }: Signed) -> Self {
        Signature { chain, scheme, signature }
    }
}

impl From<Signature> for Signed {
    fn from(Signature { chain, scheme, signature }: Signature) -> Self {
        Signed { chain, scheme, signature }
    }
}

/// What a daemon says of a process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Event {
    /// It runs, under this process identifier of its host.
    Started(u32),
    /// It wrote to its standard output.
    Output(Vec<u8>),
    /// It wrote to its standard error.
    Errors(Vec<u8>),
    /// It has ended: the last event of it.
    Ended(Status),
    /// It was not started, or nobody knows what became of it: the last event of it.
    Failed(String),
}

/// An order that runs on a host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Running {
    /// The order's identifier.
    pub id: [u8; 16],
    /// Who ordered it.
    pub identity: String,
    /// The host that it came from.
    pub from: String,
    /// As whom it runs.
    pub account: String,
    /// Its programs.
    pub programs: Vec<String>,
    /// How many processes it has on this host.
    pub processes: u32,
    /// When it began, in seconds since 1970.
    pub since: u64,
}

/// How a daemon is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Health {
    /// Its Gambeson's version.
    pub version: String,
    /// When it began to serve, in seconds since 1970.
    pub since: u64,
    /// How many orders run there, whosever they are.
    pub orders: u32,
    /// Its clock, in seconds since 1970.
    pub now: u64,
}

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Status {
    /// By itself, with this status.
    Exited(u8),
    /// By this signal.
    Killed(u8),
}

impl Status {
    /// As a shell has it: 128 and the signal.
    #[must_use]
    pub fn code(self) -> u8 {
        match self {
            Status::Exited(code) => code,
            Status::Killed(signal) => signal.saturating_add(128),
        }
    }
}

impl Order {
    /// The numbers of its processes on one host.
    pub(crate) fn numbers(&self, host: u32) -> impl Iterator<Item = u32> {
        let numbered = self.processes.iter().enumerate();
        numbered.filter(move |(_, process)| process.host == host).map(|(number, _)| number as u32)
    }

    /// Reads one, and looks that its numbers and strings are in order.
    ///
    /// # Errors
    /// A sentence.
    pub fn decode(bytes: &[u8]) -> Result<Self, String> {
        let order: Order = decode(bytes)?;
        let (hosts, programs) = (order.hosts.len(), order.programs.len());
        let beyond = |process: &Process| process.host as usize >= hosts || process.program as usize >= programs;
        if order.processes.is_empty() || order.processes.iter().any(beyond) {
            return Err("the order names a host or a program that is not in it, or no process".into());
        }
        let variables = order.programs.iter().flat_map(|program| &program.environment);
        let variables = variables.chain(order.processes.iter().flat_map(|process| &process.environment));
        let named = |(name, value): &Variable| !name.0.is_empty() && !name.0.contains(&b'=') && value.is_whole();
        let whole = |program: &Program| {
            let Program { directory, executable, arguments, .. } = program;
            directory.is_whole()
                && executable.is_whole()
                && !arguments.is_empty()
                && arguments.iter().all(Text::is_whole)
        };
        if !order.programs.iter().all(whole) || !variables.clone().all(|pair| named(pair) && pair.0.is_whole()) {
            return Err("the order has a string that no system takes: with a zero byte in it, or an empty name".into());
        }
        Ok(order)
    }
}

/// As bytes.
///
/// # Panics
/// Never: everything here can be encoded.
pub fn encode<T: Serialize>(message: &T) -> Vec<u8> {
    postcard::to_stdvec(message).expect("plain data has an encoding")
}

/// From bytes, all of them.
///
/// # Errors
/// A sentence.
pub fn decode<'b, T: Deserialize<'b>>(bytes: &'b [u8]) -> Result<T, String> {
    let foreign = || "the message is none of this version of Gambeson; install the same one on all hosts".to_owned();
    match postcard::take_from_bytes(bytes) {
        Ok((message, [])) => Ok(message),
        _ => Err(foreign()),
    }
}

/// A process's number in front of what is for it.
pub(crate) fn numbered(process: u32, rest: &[u8]) -> Vec<u8> {
    [&process.to_be_bytes()[..], rest].concat()
}

/// The number, and what is for the process.
pub(crate) fn number(bytes: &[u8]) -> Option<(u32, &[u8])> {
    let (number, rest) = bytes.split_first_chunk()?;
    Some((u32::from_be_bytes(*number), rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order() -> Order {
        let program = Program { executable: "true".into(), arguments: vec!["true".into()], ..Program::default() };
        Order {
            id: [7; 16],
            until: 9,
            account: String::new(),
            hosts: vec![Host { name: "h1".into(), address: "10.77.0.1:7200".into() }],
            programs: vec![program],
            processes: vec![Process { host: 0, program: 0, environment: Vec::new() }; 3],
            context: Secret::from(&b"between them"[..]),
        }
    }

    #[test]
    fn an_order_arrives_as_it_was_sent() {
        let bytes = encode(&order());
        assert_eq!(Order::decode(&bytes), Ok(order()));
        for end in 0..bytes.len() {
            assert!(Order::decode(&bytes[..end]).is_err());
        }
        assert!(Order::decode(&[&bytes[..], &[0]].concat()).is_err(), "more than an order");
    }

    #[test]
    fn an_order_that_cannot_be_is_refused() {
        let spoil: [fn(&mut Order); 7] = [
            |order| order.processes.clear(),
            |order| order.processes[1].host = 1,
            |order| order.processes[2].program = 1,
            |order| order.programs[0].arguments.clear(),
            |order| order.programs[0].executable = Text(vec![b'a', 0]),
            |order| order.programs[0].environment.push((Text(b"A=B".to_vec()), "c".into())),
            |order| order.processes[0].environment.push((Text(Vec::new()), "c".into())),
        ];
        for spoil in spoil {
            let mut order = order();
            spoil(&mut order);
            assert!(Order::decode(&encode(&order)).is_err(), "{order:?}");
        }
    }
}
