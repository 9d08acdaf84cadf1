//! Others' libraries on the same work: programs that are built from bench/peers, two processes each.

use std::io::{BufRead, BufReader, Lines, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use super::side::{Cost, Kind, Side, Work};
use crate::failure::Failure;

/// Programs, what they are called and what carries them: those that can seal there.
const PEERS: [(&str, &str, &str, &str); 4] = [
    ("zeromq", "tcp", "ZeroMQ, CURVE", "TCP"),
    ("nng", "tcp", "nng, TLS", "TCP"),
    ("grpc", "tcp", "gRPC, TLS", "TCP"),
    ("zeromq", "ipc", "ZeroMQ, CURVE", "shared memory"),
];

/// All of them.
///
/// # Errors
/// When one is not there or does not start.
pub(super) fn all(dir: &Path) -> Result<Vec<Box<dyn Side>>, Failure> {
    PEERS.iter().map(|peer| Ok(Box::new(Peer::start(dir, peer)?) as _)).collect()
}

struct Peer {
    name: &'static str,
    carrier: &'static str,
    server: Child,
    client: Child,
    to: ChildStdin,
    from: Lines<BufReader<ChildStdout>>,
}

impl Peer {
    fn start(
        dir: &Path,
        &(program, word, name, carrier): &(&str, &str, &'static str, &'static str),
    ) -> Result<Self, Failure> {
        let start = |role: &str| {
            let path = dir.join(program);
            let mut command = Command::new(&path);
            command.arg(role).arg(dir).arg(word).stdin(Stdio::piped()).stdout(Stdio::piped());
            command.spawn().map_err(|error| {
                let path = path.display();
                Failure::unavailable(format!("{path} cannot be started: {error}; `make bench-peers` builds it"))
            })
        };
        let lines = |process: &mut Child| BufReader::new(process.stdout.take().expect("it is a pipe")).lines();
        let mut server = start("serve")?;
        let place = lines(&mut server).next().and_then(Result::ok).unwrap_or_default();
        let mut client = start("ask")?;
        let (to, from) = (client.stdin.take().expect("it is a pipe"), lines(&mut client));
        let mut peer = Peer { name, carrier, server, client, to, from };
        peer.say(&place)?;
        Ok(peer)
    }

    fn say(&mut self, line: &str) -> Result<(), Failure> {
        writeln!(self.to, "{line}").map_err(|_| self.ended())
    }

    fn ended(&self) -> Failure {
        Failure::system(format!("{} over {} ended early; what it said of it is above", self.name, self.carrier))
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        for process in [&mut self.client, &mut self.server] {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

impl Side for Peer {
    fn carrier(&self) -> &str {
        self.carrier
    }

    fn name(&self) -> &str {
        self.name
    }

    fn perform(&mut self, work: Work) -> Result<Cost, Failure> {
        let kind = match work.kind {
            Kind::Trips => "trips",
            Kind::Outstanding => "outstanding",
            Kind::Stream => "stream",
        };
        self.say(&format!("{kind} {} {}", work.length, work.count))?;
        let line = self.from.next().and_then(Result::ok).ok_or_else(|| self.ended())?;
        let values: Vec<f64> = line.split(' ').filter_map(|value| value.parse().ok()).collect();
        let [seconds, cpu] = values[..] else { return Err(self.ended()) };
        Ok(Cost { seconds, cpu })
    }
}
