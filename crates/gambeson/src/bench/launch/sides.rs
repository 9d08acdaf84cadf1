//! Who starts processes: daemons of a site made for this, and an sshd with keys made for this. All end with the benchmark.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use gambeson_launch::authority::{Authority, Identities, Kind, Newcomer, Settings, Site, Subject};
use gambeson_launch::wire::Host;

use crate::failure::Failure;
use crate::machine;

/// Daemons h1, h2, ... on this host's loopback interface, and who may order at them.
pub(super) struct Daemons {
    running: Vec<Child>,
    /// Where they are.
    pub(super) hosts: Vec<Host>,
    /// The files of who orders.
    pub(super) user: PathBuf,
}

impl Daemons {
    pub(super) fn start(folder: &Folder, count: usize) -> Result<Self, Failure> {
        let own = machine::host_name();
        let first = folder.path.join("h1");
        let site = Site { name: "bench".into(), authority: "127.0.0.1:0".into(), identities: Vec::new(), keys: None };
        let authority = Authority::create(
            &first,
            &Settings { name: "bench".into(), days: 1.0, identities: Identities::default() },
            &site,
            None,
        )?;
        let user = folder.path.join("user");
        let newcomer = Newcomer::new(&user, Kind::User, false, None)?;
        newcomer.install(&authority.certify(&newcomer.request()?, &Subject::user("bench")?)?)?;
        let mut daemons = Daemons { running: Vec::new(), hosts: Vec::new(), user };
        for number in 1..=count {
            let name = format!("h{number}");
            let place = folder.path.join(&name);
            let newcomer = Newcomer::new(&place, Kind::Host, false, None)?;
            let certified = authority.certify(&newcomer.request()?, &Subject::host([name.as_str(), own.as_str()])?)?;
            newcomer.install(&certified)?;
            let account = rustix::process::geteuid().as_raw();
            let rules = format!("[[allow]]\nidentity = \"user:bench\"\naccounts = [\"{account}\"]\n");
            fs::write(place.join("daemon.toml"), rules).map_err(unwritable)?;
            let address = daemons.one(&place, &name)?;
            daemons.hosts.push(Host { name, address });
        }
        Ok(daemons)
    }

    fn one(&mut self, folder: &Path, name: &str) -> Result<String, Failure> {
        let mut command = bound("/proc/self/exe");
        command.args(["daemon", "--listen", "127.0.0.1:0", "--host", name, "--folder"]).arg(folder);
        command.arg("--log").arg(folder.join("audit.log"));
        let started = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
        let mut process = started.map_err(|cause| Failure::system(format!("no daemon can be started ({cause})")))?;
        let mut line = String::new();
        let read = BufReader::new(process.stdout.take().expect("it is a pipe")).read_line(&mut line);
        self.running.push(process);
        let address = line.trim().strip_prefix("gambesond: listening on ").map(str::to_owned);
        let address = address.filter(|_| read.is_ok());
        address.ok_or_else(|| Failure::unavailable("a daemon has ended at once; above it says why"))
    }

    /// A command that orders at the first of them.
    pub(super) fn exec(&self, words: &[&str]) -> Command {
        let mut command = Command::new("/proc/self/exe");
        let Host { name, address } = &self.hosts[0];
        command.arg("exec").arg("--folder").arg(&self.user).arg(format!("{name}={address}")).arg("--").args(words);
        command
    }

    /// Seconds of processor time that they have had, with all that has ended below them.
    pub(super) fn processor_time(&self) -> f64 {
        processor_time(&self.running)
    }
}

impl Drop for Daemons {
    fn drop(&mut self) {
        end(&mut self.running);
    }
}

/// An sshd, and a key that it accepts.
pub(super) struct Ssh {
    running: Vec<Child>,
    config: PathBuf,
}

impl Ssh {
    /// None where there is no sshd.
    pub(super) fn start(folder: &Folder) -> Result<Option<Self>, Failure> {
        let Some(sshd) = ["/usr/sbin/sshd", "/usr/local/sbin/sshd"].into_iter().find(|path| Path::new(path).exists())
        else {
            return Ok(None);
        };
        let there = |name: &str| folder.path.join(name);
        for key in ["host", "user-key"] {
            let mut keygen = Command::new("ssh-keygen");
            let made = keygen.args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(there(key)).status();
            if !made.is_ok_and(|status| status.success()) {
                return Err(Failure::unavailable("ssh-keygen makes no keys; Debian's package is openssh-client"));
            }
        }
        fs::copy(there("user-key.pub"), there("authorized")).map_err(unwritable)?;
        let address = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
        let address: SocketAddr = address.map_err(|cause| Failure::system(format!("no port is free ({cause})")))?;
        let (port, path) = (address.port(), folder.path.display());
        // What sshd does by itself, but for the names of files. What a user's shell does when it begins is not ssh's cost.
        let text = format!(
            "ListenAddress 127.0.0.1:{port}\nHostKey {path}/host\nAuthorizedKeysFile {path}/authorized\nPidFile none\n\
             UsePAM no\nStrictModes no\nPermitRootLogin yes\nSetEnv HOME={path}\n"
        );
        fs::write(there("sshd"), text).map_err(unwritable)?;
        let text = format!(
            "Host h1\n HostName 127.0.0.1\n Port {port}\n IdentityFile {path}/user-key\n IdentitiesOnly yes\n \
             StrictHostKeyChecking no\n UserKnownHostsFile /dev/null\n LogLevel ERROR\n BatchMode yes\n"
        );
        fs::write(there("ssh"), text).map_err(unwritable)?;
        let mut command = bound(sshd);
        let started = command.args(["-D", "-q", "-f"]).arg(there("sshd")).stdin(Stdio::null()).spawn();
        let started = started.map_err(|cause| Failure::system(format!("sshd cannot be started ({cause})")))?;
        let mut ssh = Ssh { running: vec![started], config: there("ssh") };
        let deadline = Instant::now() + PATIENCE;
        while TcpStream::connect(address).is_err() {
            let ended = ssh.running[0].try_wait().is_ok_and(|status| status.is_some());
            if ended || Instant::now() > deadline {
                return Err(Failure::unavailable("sshd does not listen; above it says why (it may want /run/sshd)"));
            }
            thread::sleep(Duration::from_millis(20));
        }
        Ok(Some(ssh))
    }

    pub(super) fn exec(&self, words: &[&str]) -> Command {
        let mut command = Command::new("ssh");
        command.arg("-F").arg(&self.config).arg("h1").args(words);
        command
    }

    /// As [`Daemons::processor_time`].
    pub(super) fn processor_time(&self) -> f64 {
        processor_time(&self.running)
    }
}

impl Drop for Ssh {
    fn drop(&mut self) {
        end(&mut self.running);
    }
}

/// A program that ends with this one, however that ends.
fn bound(program: &str) -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.args(["start", "--own-group", "--", program]);
    command
}

fn end(running: &mut [Child]) {
    for process in running {
        let _ = process.kill();
        let _ = process.wait();
    }
}

/// Of these processes, of those below them, and of all that ended below them and was waited for (proc(5)).
fn processor_time(processes: &[Child]) -> f64 {
    let ticks = rustix::param::clock_ticks_per_second() as f64;
    let mut left: Vec<u32> = processes.iter().map(Child::id).collect();
    let mut sum = 0.0;
    while let Some(process) = left.pop() {
        let Ok(text) = fs::read_to_string(format!("/proc/{process}/stat")) else { continue };
        let fields = text.rsplit_once(')').map_or("", |(_, fields)| fields).split_whitespace().skip(11);
        sum += fields.take(4).filter_map(|field| field.parse::<f64>().ok()).sum::<f64>() / ticks;
        let children = fs::read_to_string(format!("/proc/{process}/task/{process}/children")).unwrap_or_default();
        left.extend(children.split_whitespace().filter_map(|child| child.parse::<u32>().ok()));
    }
    sum
}

const PATIENCE: Duration = Duration::from_secs(10);

/// Where all files are; it goes when this does.
pub(super) struct Folder {
    path: PathBuf,
}

impl Folder {
    pub(super) fn new() -> Result<Self, Failure> {
        let path = std::env::temp_dir().join(format!("gambeson-bench-launch-{}", std::process::id()));
        fs::create_dir(&path).map_err(unwritable)?;
        Ok(Folder { path })
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}

fn unwritable(cause: std::io::Error) -> Failure {
    Failure::system(format!("files cannot be written for the daemons ({cause})"))
}
