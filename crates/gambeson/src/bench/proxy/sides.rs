//! What stands between the client and the service: nothing, a pair of ours, or a pair of stunnel's.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use gambeson_link::KeyHash;
use serde_json::Value;

use crate::failure::Failure;
use crate::proxy::identity;

/// One of the sides; its processes end with it.
pub(super) struct Side {
    pub(super) name: &'static str,
    /// Where the client connects to.
    pub(super) address: SocketAddr,
    pair: Vec<Child>,
}

impl Side {
    pub(super) fn direct(service: SocketAddr) -> Self {
        Side { name: "direct", address: service, pair: Vec::new() }
    }

    pub(super) fn gambeson(folder: &Folder, service: SocketAddr) -> Result<Self, Failure> {
        let [near, far] = folder.keys.map(|key| key.to_string());
        let mut serve = ours(folder, &["serve", "--identity", "far.pem", "--listen", "127.0.0.1:0"]);
        serve.args(["--service", &service.to_string(), "--accept", &near]);
        let mut side = Side { name: "gambeson", address: service, pair: Vec::new() };
        let there = side.ready(&mut serve)?;
        let mut connect = ours(folder, &["connect", "--identity", "near.pem", "--listen", "0"]);
        connect.args(["--to", &there.to_string(), "--expect", &far]);
        side.address = side.ready(&mut connect)?;
        Ok(side)
    }

    /// Starts a proxy of ours; where it listens.
    fn ready(&mut self, command: &mut Command) -> Result<SocketAddr, Failure> {
        let started = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
        let mut process = started.map_err(|cause| Failure::system(format!("no proxy can be started ({cause})")))?;
        let mut line = String::new();
        let read = BufReader::new(process.stdout.take().expect("it is a pipe")).read_line(&mut line);
        self.pair.push(process);
        let said: Option<Value> = read.ok().and_then(|_| serde_json::from_str(&line).ok());
        let listening = said.and_then(|said| said["listening"].as_str()?.parse().ok());
        listening.ok_or_else(|| Failure::unavailable("a proxy has ended at once; above it says why"))
    }

    /// The same with stunnel: TLS 1.3, and each end has the other's certificate.
    pub(super) fn stunnel(folder: &Folder, service: SocketAddr) -> Result<Self, Failure> {
        let [there, here] = [free(), free()];
        let [there, here] = [there?, here?];
        let mut side = Side { name: "stunnel", address: here, pair: Vec::new() };
        for (name, other, client, accept, connect) in
            [("far", "near", "no", there, service), ("near", "far", "yes", here, there)]
        {
            let text = format!(
                "foreground = yes\npid =\ndebug = err\nsocket = l:TCP_NODELAY=1\nsocket = r:TCP_NODELAY=1\n\
                 [service]\nclient = {client}\naccept = {accept}\nconnect = {connect}\ncert = {name}.pem\n\
                 CAfile = {other}.pem\nverifyPeer = yes\nsslVersion = TLSv1.3\n"
            );
            let file = folder.path.join(format!("{name}.conf"));
            fs::write(&file, text).map_err(unwritable)?;
            let mut command = Command::new("stunnel");
            let started = command.arg(&file).current_dir(&folder.path).stdin(Stdio::null()).spawn();
            side.pair.push(started.map_err(|cause| {
                Failure::unavailable(format!("stunnel cannot be started ({cause}); Debian's package is stunnel4"))
            })?);
            let deadline = Instant::now() + PATIENCE;
            while TcpStream::connect(accept).is_err() {
                if Instant::now() > deadline {
                    return Err(Failure::unavailable("stunnel does not listen; above it says why"));
                }
                std::thread::sleep(Duration::from_millis(20));
            }
        }
        Ok(side)
    }

    /// Seconds of processor time that its processes have had.
    pub(super) fn processor_time(&self) -> f64 {
        let ticks = rustix::param::clock_ticks_per_second() as f64;
        let of = |process: &Child| -> Option<f64> {
            let text = fs::read_to_string(format!("/proc/{}/stat", process.id())).ok()?;
            let mut fields = text.rsplit_once(')')?.1.split_whitespace().skip(11);
            let mut next = || fields.next()?.parse::<f64>().ok();
            Some((next()? + next()?) / ticks)
        };
        self.pair.iter().filter_map(of).sum()
    }
}

impl Drop for Side {
    fn drop(&mut self) {
        for process in &mut self.pair {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

fn ours(folder: &Folder, words: &[&str]) -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.arg("proxy").args(words).arg("--json").current_dir(&folder.path);
    command
}

/// An address that nobody listens on, for who cannot choose one by itself.
fn free() -> Result<SocketAddr, Failure> {
    let address = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
    address.map_err(|cause| Failure::system(format!("no port is free ({cause})")))
}

const PATIENCE: Duration = Duration::from_secs(10);

/// Where the identities of both ends are; it goes when this does.
pub(super) struct Folder {
    path: PathBuf,
    /// Of the near end, and of the far one.
    keys: [KeyHash; 2],
}

impl Folder {
    pub(super) fn new() -> Result<Self, Failure> {
        let path = std::env::temp_dir().join(format!("gambeson-bench-proxy-{}", std::process::id()));
        fs::create_dir(&path).map_err(unwritable)?;
        let made = |path: &Path| Ok([identity::make(&path.join("near.pem"))?, identity::make(&path.join("far.pem"))?]);
        match made(&path) {
            Ok(keys) => Ok(Folder { path, keys }),
            Err(failure) => {
                let _ = fs::remove_dir_all(&path);
                Err(failure)
            }
        }
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}

fn unwritable(cause: std::io::Error) -> Failure {
    Failure::system(format!("files cannot be written for the proxies ({cause})"))
}
