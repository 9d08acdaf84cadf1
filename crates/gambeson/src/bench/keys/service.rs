//! A site and a key service made for this, on the loopback interface. They end with the benchmark.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use gambeson_keyd::client::{Client, Place};
use gambeson_launch::authority::{Authority, Identities, Kind, Member, Newcomer, Settings, Site, Subject};
use gambeson_link::{Config, Domain};
use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, kill_process, setrlimit};

use crate::failure::Failure;
use crate::machine;

/// A service that runs, and somebody of its site.
pub(super) struct Service {
    running: Child,
    folder: PathBuf,
    place: Place,
}

impl Service {
    pub(super) fn start() -> Result<Self, Failure> {
        // Clients and service have several descriptors for each connection.
        let limit = getrlimit(Resource::Nofile);
        let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
        let folder = std::env::temp_dir().join(format!("gambeson-bench-keys-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir(&folder).map_err(unwritable)?;
        match Self::begin(&folder) {
            Ok((running, place)) => Ok(Service { running, folder, place }),
            Err(failure) => {
                let _ = fs::remove_dir_all(&folder);
                Err(failure)
            }
        }
    }

    fn begin(folder: &Path) -> Result<(Child, Place), Failure> {
        let host = folder.join("host");
        let site = Site { name: "bench".into(), authority: "127.0.0.1:0".into(), identities: Vec::new(), keys: None };
        let settings = Settings { name: "bench".into(), days: 1.0, identities: Identities::default() };
        let authority = Authority::create(&host, &settings, &site, None)?;
        for (place, kind, subject) in [
            (&host, Kind::Host, Subject::host(["keys", machine::host_name().as_str()])?),
            (&user(folder), Kind::User, Subject::user("bench")?),
        ] {
            let newcomer = Newcomer::new(place, kind, false, None)?;
            newcomer.install(&authority.certify(&newcomer.request()?, &subject)?)?;
        }
        let passphrase = folder.join("passphrase");
        let made = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&passphrase);
        made.and_then(|mut file| file.write_all(b"of the benchmark")).map_err(unwritable)?;
        // It ends with this process, however that ends.
        let keyd = |what: &str| {
            let mut command = Command::new("/proc/self/exe");
            command
                .args(["start", "--own-group", "--", "/proc/self/exe", "keyd", what, "--folder"])
                .arg(&host)
                .arg("--passphrase-file")
                .arg(&passphrase);
            command.stdin(Stdio::null());
            command
        };
        let made = keyd("init").stdout(Stdio::null()).status();
        if !made.is_ok_and(|status| status.success()) {
            return Err(Failure::unavailable("no key service can be made; above it says why"));
        }
        let mut serve = keyd("serve");
        serve.args(["--listen", "127.0.0.1:0", "--host", "keys"]).stdout(Stdio::piped());
        let mut running =
            serve.spawn().map_err(|cause| Failure::system(format!("no service can be started ({cause})")))?;
        let mut line = String::new();
        let read = BufReader::new(running.stdout.take().expect("it is a pipe")).read_line(&mut line);
        let address = line.trim().strip_prefix("gambeson keyd: listening on ").filter(|_| read.is_ok());
        match address.and_then(|address| format!("keyd://keys={address}").parse().ok()) {
            Some(place) => Ok((running, place)),
            None => {
                let _ = running.kill().and_then(|()| running.wait());
                Err(Failure::unavailable("the key service has ended at once; above it says why"))
            }
        }
    }

    /// Where it is.
    pub(super) fn place(&self) -> &Place {
        &self.place
    }

    /// The folder of who asks.
    fn user(&self) -> PathBuf {
        user(&self.folder)
    }

    /// A place for files that go with the benchmark.
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Somebody with a connection of his own.
    pub(super) fn client(&self) -> Result<Client, Failure> {
        let member = Member::read(&self.user(), Kind::User)?;
        let trust = member.trust()?;
        let mut config = Config::new(member.identity, trust);
        config.shm = false;
        let domain = Domain::open(config).map_err(|cause| Failure::system(cause.to_string()))?;
        Ok(Client::over(&self.place, Arc::new(domain)))
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = kill_process(Pid::from_child(&self.running), Signal::TERM);
        let _ = self.running.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn user(folder: &Path) -> PathBuf {
    folder.join("config").join("gambeson")
}

fn unwritable(cause: std::io::Error) -> Failure {
    Failure::system(format!("the benchmark's folder cannot be made ({cause})"))
}
