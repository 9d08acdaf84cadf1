//! Where the hosts of a step of Slurm's srun bring what their ranks leave: a link to `gambeson run`.
//!
//! ```text
//! keep --step  arrived(hosts of the step)   its tasks start after the answer; the host counts as lost until it is done
//!              report(name, offset, bytes)  a part of a file of the job's directory, as often as it changes
//!              done()
//! ```
//! Both ends prove that they hold the job's secret; everything is sealed.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use gambeson_launch::wire;
use gambeson_link::{Attributes, Capability, Config, Domain, Endpoint, Handlers, Protection, Request, Startpoint};
use gambeson_proto::credential::Credential;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};

use crate::commands::agent::{MARK, safe};
use crate::failure::{Failure, Status};
use crate::job::reports::Refusal;
use crate::job::{Job, bundle};

/// `gambeson run`'s end.
pub(crate) struct Home {
    arrivals: Arc<Mutex<Arrivals>>,
    endpoint: Endpoint,
    _domain: Domain,
}

#[derive(Default)]
struct Arrivals {
    hosts: BTreeSet<String>,
    /// How many there are to be, as they say.
    expected: usize,
}

impl Arrivals {
    fn arrive(&mut self, host: &str, said: &[u8]) -> Result<(), String> {
        self.expected = wire::decode::<u32>(said)? as usize;
        self.hosts.insert(host.to_owned());
        Ok(())
    }
}

impl Home {
    /// Listens at all addresses of this host, for processes of the job alone.
    pub(crate) fn open(credential: Credential, job: &Path) -> Result<Self, Failure> {
        let cannot = |cause: gambeson_link::Error| {
            Failure::refused(format!("the hosts of the step would have nowhere to report to ({cause})"))
        };
        let mut config = Config::of_job(credential).map_err(cannot)?;
        config.listen = own_addresses().into_iter().map(|address| SocketAddr::new(address, 0)).collect();
        config.shm = false;
        let domain = Domain::open(config).map_err(cannot)?;
        let arrivals = Arc::new(Mutex::<Arrivals>::default());
        let arriving = arrivals.clone();
        let [arrived, report, done] = [(); 3].map(|()| job.to_owned());
        let handlers = Handlers::new()
            .queued(ARRIVED, move |request| {
                answer(request, |host, said| {
                    arriving.lock().unwrap_or_else(PoisonError::into_inner).arrive(host, said)?;
                    Ok(fs::write(mark(&arrived, host), b"")?)
                });
            })
            .queued(REPORT, move |request| answer(request, |host, said| file(&report, host, said)))
            .queued(DONE, move |request| answer(request, |host, _| Ok(fs::remove_file(mark(&done, host))?)));
        let attributes = Attributes::default().protection(Protection::Privacy).message_max(2 * PART);
        let endpoint = domain.endpoint(attributes, handlers).map_err(cannot)?;
        Ok(Self { arrivals, endpoint, _domain: domain })
    }

    /// Of a step that has failed: whether hosts are missing, which cannot say so themselves without the job's secret. If
    /// none has come, srun may have failed by itself.
    pub(crate) fn missing(&self, status: ExitStatus) -> Option<Refusal> {
        let arrivals = self.arrivals.lock().unwrap_or_else(PoisonError::into_inner);
        let who = match (arrivals.hosts.len(), status.code()) {
            (0, Some(REFUSED | TERMINATED)) => "all hosts of the step".to_owned(),
            (came, _) if came < arrivals.expected => {
                format!("{} of the step's {} hosts", arrivals.expected - came, arrivals.expected)
            }
            _ => return None,
        };
        let sentence =
            "gambeson: the job's secret did not arrive there; what srun and the ranks said above names the cause";
        Some(Refusal { who, sentence: sentence.to_owned() })
    }

    /// The job's files for its hosts, and the way here, in memory without a name, which the launcher inherits.
    pub(crate) fn files(&self, job: &Job) -> Result<OwnedFd, Failure> {
        let cannot = |why: String| Failure::refused(format!("the job's files cannot be put together ({why})"));
        let way = self.endpoint.startpoint([]).map_err(|cause| cannot(cause.to_string()))?;
        let mut files = bundle::to_travel(job.directory()).map_err(|cause| cannot(cause.to_string()))?;
        files.push((HOME.to_owned(), way.encode()));
        let memory =
            memfd_create(c"gambeson-job", MemfdFlags::ALLOW_SEALING).map_err(|cause| cannot(cause.to_string()))?;
        let mut memory = File::from(memory);
        bundle::send(&mut memory, &files).map_err(|cause| cannot(cause.to_string()))?;
        let length = memory.metadata().map_or(u64::MAX, |about| about.len());
        if length > FILES_MAX {
            return Err(cannot(format!(
                "they have {length} bytes, and munged takes {FILES_MAX}; the policy, the site's directory and the keys of files count"
            )));
        }
        let seals = SealFlags::WRITE | SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL;
        fcntl_add_seals(&memory, seals).map_err(|cause| cannot(cause.to_string()))?;
        Ok(memory.into())
    }
}

/// The way home from a host of the step.
pub(crate) struct Way {
    startpoint: Startpoint,
    _domain: Domain,
}

impl Way {
    /// Connects, and says that this host is one of the job's.
    pub(crate) fn open(credential: Credential, way: &[u8], hosts: u32) -> Result<Self, Failure> {
        let cannot = |cause: &dyn std::fmt::Display| {
            Failure::refused(format!(
                "this host does not reach `gambeson run` ({cause}); see that the host of srun lets its nodes connect"
            ))
        };
        let way = Capability::decode(way).map_err(|cause| cannot(&cause))?;
        let mut config = Config::of_job(credential).map_err(|cause| cannot(&cause))?;
        config.patience = PATIENCE;
        let domain = Domain::open(config).map_err(|cause| cannot(&cause))?;
        let startpoint = domain.startpoint(&way, PATIENCE).map_err(|cause| cannot(&cause))?;
        startpoint.call(ARRIVED, &wire::encode(&hosts), PATIENCE).map_err(|cause| cannot(&cause))?;
        Ok(Self { startpoint, _domain: domain })
    }

    /// Brings what the ranks here have left so far.
    pub(crate) fn report(&self, files: &bundle::Files) -> Result<(), gambeson_link::Error> {
        for (name, bytes) in files {
            for (number, part) in bytes.chunks(PART).enumerate() {
                let said = wire::encode(&(name.as_str(), (number * PART) as u64, part));
                self.startpoint.call(REPORT, &said, PATIENCE)?;
            }
        }
        Ok(())
    }

    /// Nothing more will come from here.
    pub(crate) fn done(&self) -> Result<(), gambeson_link::Error> {
        self.startpoint.call(DONE, &[], PATIENCE).map(drop)
    }
}

fn mark(job: &Path, host: &str) -> PathBuf {
    job.join(format!("{MARK}{}", safe(host)))
}

type Done = Result<(), Box<dyn std::error::Error>>;

fn answer(request: Request, does: impl FnOnce(&str, &[u8]) -> Done) {
    match does(&request.peer.host, &request.payload) {
        Ok(()) => request.answer(&[]),
        Err(why) => request.refuse(&why.to_string()),
    }
}

/// Files a part of what a rank left, under the name of its host.
fn file(job: &Path, host: &str, said: &[u8]) -> Done {
    let (name, offset, bytes): (&str, u64, &[u8]) = wire::decode(said)?;
    let (kind, process) = name.split_once('-').filter(|_| bundle::is_report(name)).ok_or("no rank leaves that")?;
    let mut options = OpenOptions::new();
    let path = job.join(format!("{kind}-{}-{process}", safe(host)));
    let file = options.write(true).create(true).truncate(offset == 0).mode(0o600).open(path)?;
    Ok(file.write_all_at(bytes, offset)?)
}

/// The addresses of this host that others may know it by; the loopback address if it has no others.
fn own_addresses() -> Vec<IpAddr> {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let mut addresses = local_v4(&read("/proc/net/fib_trie"));
    addresses.extend(global_v6(&read("/proc/net/if_inet6")));
    addresses.truncate(ADDRESSES_MAX);
    if addresses.is_empty() {
        addresses.push(Ipv4Addr::LOCALHOST.into());
    }
    addresses
}

/// The kernel's table has an address on one line, and on the next whether it is the host's own.
fn local_v4(table: &str) -> Vec<IpAddr> {
    let lines: Vec<_> = table.lines().map(str::trim).collect();
    let mut found = Vec::new();
    for pair in lines.windows(2).filter(|pair| pair[1] == "/32 host LOCAL") {
        let address = pair[0].strip_prefix("|-- ").and_then(|address| address.parse::<Ipv4Addr>().ok());
        let address = address.filter(|address| !address.is_loopback()).map(IpAddr::from);
        found.extend(address.filter(|address| !found.contains(address)));
    }
    found
}

/// An address in hexadecimal, an interface's number, the prefix's length, the scope (0 is global), flags, and the name.
fn global_v6(table: &str) -> Vec<IpAddr> {
    let lines = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let global = lines.filter(|words| words.get(3) == Some(&"00"));
    global.filter_map(|words| Some(Ipv6Addr::from(u128::from_str_radix(words[0], 16).ok()?).into())).collect()
}

/// What of the job's files says where `gambeson run` is.
pub(crate) const HOME: &str = "home";
/// What a rank without the job's files ends with, and what srun then ends the others with.
const REFUSED: i32 = Status::Refused as i32;
const TERMINATED: i32 = 128 + 15;
const ARRIVED: u32 = 1;
const REPORT: u32 = 2;
const DONE: u32 = 3;
/// As many bytes as the plug-in takes.
const FILES_MAX: u64 = 512 << 10;
/// Of a file in one message, in bytes.
const PART: usize = 256 << 10;
/// A host is tried at so many addresses.
const ADDRESSES_MAX: usize = 8;
const PATIENCE: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_tells_a_hosts_addresses() {
        let table = "Main:\n  +-- 0.0.0.0/0 3 0 5\n     |-- 127.0.0.1\n        /32 host LOCAL\n     |-- 10.77.0.0\n        \
                     /24 link UNICAST\n     |-- 10.77.0.1\n        /32 host LOCAL\nLocal:\n     |-- 10.77.0.1\n        \
                     /32 host LOCAL\n";
        assert_eq!(local_v4(table), [IpAddr::from([10, 77, 0, 1])]);
        let table = "fe8000000000000000fc00fffe000001 04 40 20 80     eth0\nfd000000000000000000000000000002 04 40 00 82 \
                     eth0\n00000000000000000000000000000001 01 80 10 80       lo\n";
        assert_eq!(global_v6(table), ["fd00::2".parse::<IpAddr>().unwrap()]);
    }

    #[test]
    fn a_host_files_what_ranks_leave_and_nothing_else() {
        let job = std::env::temp_dir().join(format!("gambeson-home-{}", std::process::id()));
        fs::create_dir_all(&job).unwrap();
        for (offset, bytes) in [(0, b"ab"), (2, b"cd")] {
            file(&job, "h-2", &wire::encode(&("rank-7", offset as u64, &bytes[..]))).unwrap();
        }
        assert_eq!(fs::read(job.join("rank-h_2-7")).unwrap(), b"abcd");
        for name in ["credential", "rank-../x", "agent-h1"] {
            assert!(file(&job, "h2", &wire::encode(&(name, 0_u64, &b"x"[..]))).is_err(), "{name}");
        }
        fs::remove_dir_all(&job).unwrap();
    }
}
