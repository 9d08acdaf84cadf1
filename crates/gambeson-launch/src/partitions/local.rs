//! How the accounts of a host ask its daemon for the key of a job: over a socket of the host's own.
//!
//! The socket has an abstract name (unix(7)), which the folder of the daemon's files is part of: there is one for each
//! network namespace, and nothing of it stays behind. Anybody could take the name before the daemon; so who asks looks
//! whose process answers, root's or his own, and the daemon looks who asks.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use gambeson_proto::key_schedule::PartitionKey;
use rustix::net::sockopt::socket_peercred;
use rustix::process::geteuid;
use zeroize::Zeroizing;

use super::holder::Holder;
use super::message::{Ask, Grant, LENGTH_MAX, decode, encode};
use crate::Error;
use crate::account::Account;
use crate::audit_log::AuditLog;
use crate::authority::user_folder;
use crate::wire;

/// Which accounts may have jobs in which partitions; in those that are not named all may.
pub(crate) type Admitted = BTreeMap<String, Vec<String>>;

/// Answers the accounts of this host, as long as it is held.
pub(crate) struct Desk {
    office: Arc<Office>,
    address: SocketAddr,
}

struct Office {
    holder: Holder,
    admitted: Admitted,
    log: Arc<Mutex<AuditLog>>,
    busy: AtomicUsize,
    closing: AtomicBool,
}

impl Desk {
    /// # Errors
    /// When another process has the socket's name.
    pub(crate) fn open(
        holder: Holder,
        folder: &Path,
        admitted: Admitted,
        log: Arc<Mutex<AuditLog>>,
    ) -> Result<Self, Error> {
        let cannot = |cause: io::Error| {
            Error::Unavailable(format!(
                "no job on this host can run in a partition: the socket for that cannot be opened ({cause}); see \
                 whether another daemon runs here"
            ))
        };
        let address = address(folder).map_err(cannot)?;
        let listener = UnixListener::bind_addr(&address).map_err(cannot)?;
        let office =
            Arc::new(Office { holder, admitted, log, busy: AtomicUsize::new(0), closing: AtomicBool::new(false) });
        let shared = office.clone();
        let accept = move || {
            for stream in listener.incoming() {
                if shared.closing.load(Ordering::Relaxed) {
                    return;
                }
                let Ok(stream) = stream else { continue };
                // Who is turned away hears that nobody answers, and may ask again.
                if shared.busy.fetch_add(1, Ordering::Relaxed) >= ASKING_MAX {
                    shared.busy.fetch_sub(1, Ordering::Relaxed);
                    continue;
                }
                let office = shared.clone();
                let thread = thread::Builder::new().name("gambeson-desk".into()).spawn(move || {
                    let _ = office.serve(stream);
                    office.busy.fetch_sub(1, Ordering::Relaxed);
                });
                if thread.is_err() {
                    shared.busy.fetch_sub(1, Ordering::Relaxed);
                }
            }
        };
        thread::Builder::new().name("gambeson-desk".into()).spawn(accept).map_err(cannot)?;
        Ok(Desk { office, address })
    }
}

impl Drop for Desk {
    fn drop(&mut self) {
        self.office.closing.store(true, Ordering::Relaxed);
        // Wakes it, so that it sees.
        let _ = UnixStream::connect_addr(&self.address);
    }
}

impl Office {
    fn serve(&self, mut stream: UnixStream) -> io::Result<()> {
        stream.set_read_timeout(Some(QUESTION))?;
        stream.set_write_timeout(Some(QUESTION))?;
        let uid = socket_peercred(&stream)?.uid;
        let mut asked = Vec::new();
        Read::by_ref(&mut stream).take(LENGTH_MAX as u64).read_to_end(&mut asked)?;
        let outcome = wire::decode(&asked).map_err(Error::Refused).and_then(|ask| self.answer(&ask, uid.as_raw()));
        stream.write_all(&encode(&outcome))
    }

    fn answer(&self, ask: &Ask, uid: u32) -> Result<Grant, Error> {
        let Ask { partition, epoch, job } = ask;
        let account = Account::find(&uid.to_string()).map_or_else(|_| uid.to_string(), |account| account.name);
        let outcome = self.admit(partition, uid, &account).and_then(|()| self.holder.secret(partition, *epoch));
        let job_id: String = job.iter().map(|byte| format!("{byte:02x}")).collect();
        let mut about = vec![
            ("partition", partition.as_str().into()),
            ("job", job_id.into()),
            ("account", account.as_str().into()),
        ];
        let event = match &outcome {
            Ok(grant) => {
                about.push(("epoch", grant.epoch.into()));
                "job"
            }
            Err(cause) => {
                about.push(("why", cause.to_string().into()));
                "refuse"
            }
        };
        let logged = self.log.lock().unwrap_or_else(PoisonError::into_inner).add(event, &about);
        let Grant { epoch, secret } = outcome?;
        logged.map_err(Error::Unavailable)?;
        let PartitionKey { epoch, key } = PartitionKey::derive(&secret, epoch, partition, job);
        Ok(Grant { epoch, secret: key })
    }

    fn admit(&self, partition: &str, uid: u32, account: &str) -> Result<(), Error> {
        let own = geteuid();
        if !own.is_root() && own.as_raw() != uid {
            return Err(Error::Refused("this host's daemon runs for another account alone".into()));
        }
        match self.admitted.get(partition) {
            Some(accounts) if !accounts.iter().any(|name| name == account) => Err(Error::Refused(format!(
                "{account} may not run jobs in partition {partition} on this host; its administrator can allow it in \
                 daemon.toml"
            ))),
            _ => Ok(()),
        }
    }
}

/// Has this host's daemon say the key of a job in a partition: of an epoch, or of the current one (0).
///
/// # Errors
/// When no daemon runs here, this host is no member, or this account may not.
pub fn job_key(partition: &str, epoch: u32, job: &[u8; 16]) -> Result<PartitionKey, Error> {
    let folders = [gambeson_site::directory::FOLDER.into(), user_folder()];
    let found = folders.iter().find_map(|folder| UnixStream::connect_addr(&address(folder).ok()?).ok());
    let stream = found.ok_or_else(|| {
        Error::Unavailable(format!(
            "the key of partition {partition} is to be had from this host's daemon, and none runs; start it: \
             `gambeson daemon`"
        ))
    })?;
    let lost = |cause: io::Error| Error::Unavailable(format!("this host's daemon did not answer ({cause}); try again"));
    let answers = socket_peercred(&stream).map_err(|cause| lost(cause.into()))?.uid;
    if !answers.is_root() && answers != geteuid() {
        return Err(Error::Refused(format!(
            "a process of user {} answers in place of this host's daemon, and is told nothing; have the administrator \
             end it",
            answers.as_raw()
        )));
    }
    let ask = wire::encode(&Ask { partition: partition.to_owned(), epoch, job: *job });
    let answer = exchange(stream, &ask).map_err(lost)?;
    let Grant { epoch, secret } = decode(&answer)?;
    Ok(PartitionKey { epoch, key: secret })
}

fn exchange(mut stream: UnixStream, ask: &[u8]) -> io::Result<Zeroizing<Vec<u8>>> {
    stream.set_read_timeout(Some(ANSWER))?;
    stream.set_write_timeout(Some(ANSWER))?;
    stream.write_all(ask)?;
    stream.shutdown(Shutdown::Write)?;
    // Of this size from the beginning, so that no copy is left where a longer one did not fit.
    let mut answer = Zeroizing::new(Vec::with_capacity(LENGTH_MAX));
    stream.take(LENGTH_MAX as u64).read_to_end(&mut answer)?;
    Ok(answer)
}

/// Where the daemon with the files of a folder is asked.
fn address(folder: &Path) -> io::Result<SocketAddr> {
    let mut name = b"gambesond\0".to_vec();
    name.extend(folder.as_os_str().as_bytes());
    SocketAddr::from_abstract_name(name)
}

/// So many may ask at once.
const ASKING_MAX: usize = 64;
/// So long somebody may take to put a question.
const QUESTION: Duration = Duration::from_secs(5);
/// So long the daemon may take: it may have to ask another site's by way of its own.
const ANSWER: Duration = Duration::from_secs(40);
