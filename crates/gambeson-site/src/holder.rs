//! Who holds a job's secrets, and gives them to the job's processes: `gambeson run` on its own host, `gambeson keep` on others.
//!
//! They are in no file. A process asks for them at a socket in the job's directory, and is its own ticket: the kernel says which
//! process is at the other end, and it gets them if it is of the same user and below the holder, which is a subreaper, so that
//! whatever the job has started stays below it.
//!
//! ```text
//! request   length u32 | name, or "adopt" 0 and a credential, or the name of a question, 0 and the question
//! answer    status u8 (0 given, 1 there is none, 2 refused) | length u32 | the secret, or why not
//! ```
//! Big endian.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use gambeson_pages::PageSlice;
use gambeson_proto::credential::Credential;
use gambeson_proto::secret::Secret32;
use rustix::net::sockopt::socket_peercred;
use rustix::process::{getpid, set_child_subreaper};
use zeroize::Zeroizing;

/// The job's credential, which every process of it needs.
pub const CREDENTIAL: &str = "credential";

/// A secret on pages that a fork wipes and a core dump leaves out, for as long as the job runs.
type Held = Arc<PageSlice<u8>>;

/// Answers a question of one of the job's processes.
type Answers = dyn Fn(&[u8]) -> Zeroizing<Vec<u8>> + Send + Sync;

/// Holds a job's secrets for its processes.
pub struct Holder {
    job_secret: Secret32,
    /// By name.
    secrets: Mutex<BTreeMap<&'static str, Held>>,
    /// Who answers questions, by their name.
    answers: Mutex<BTreeMap<&'static str, Arc<Answers>>>,
    /// Below whom the job's processes are.
    tops: Mutex<Vec<Process>>,
    /// Whether Slurm's daemon may start processes of the job.
    slurm: bool,
}

impl Holder {
    /// Makes this process a subreaper, and serves the job's processes from a thread of its own for as long as it lives. Where
    /// `slurm` says that srun may start them, all of the user's processes below Slurm's daemon count.
    ///
    /// # Errors
    /// When the socket cannot be made.
    pub fn serve(directory: &Path, credential: &Credential, slurm: bool) -> io::Result<Arc<Self>> {
        let own = Process::of(std::process::id()).ok_or(io::ErrorKind::NotFound)?;
        let holder = Arc::new(Holder {
            job_secret: credential.job_secret.clone(),
            secrets: Mutex::new(BTreeMap::from([(CREDENTIAL, held(&credential.encode()))])),
            answers: Mutex::default(),
            tops: Mutex::new(vec![own]),
            slurm,
        });
        set_child_subreaper(Some(getpid()))?;
        let listener = UnixListener::bind(directory.join(SOCKET))?;
        let serving = holder.clone();
        thread::Builder::new().name("secrets".into()).spawn(move || {
            for stream in listener.incoming().flatten() {
                let serving = serving.clone();
                // Who is slow keeps nobody else waiting; who gets no thread is told nothing.
                let _ = thread::Builder::new().spawn(move || serving.attend(stream));
            }
        })?;
        Ok(holder)
    }

    /// One more secret for the job's processes.
    pub fn hold(&self, name: &'static str, secret: &[u8]) {
        self.secrets.lock().unwrap_or_else(PoisonError::into_inner).insert(name, held(secret));
    }

    /// Answers questions of this name from the job's processes, each on a thread of its own.
    pub fn answer_by(&self, name: &'static str, answer: impl Fn(&[u8]) -> Zeroizing<Vec<u8>> + Send + Sync + 'static) {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner).insert(name, Arc::new(answer));
    }

    /// Counts to the job what is below another process, too: the one that Slurm starts a step's tasks from.
    pub fn counts(&self, pid: u32) {
        self.tops.lock().unwrap_or_else(PoisonError::into_inner).extend(Process::of(pid));
    }

    fn attend(&self, mut stream: UnixStream) {
        let _ = stream.set_read_timeout(Some(PATIENCE)).and_then(|()| stream.set_write_timeout(Some(PATIENCE)));
        let answered = receive(&mut stream).and_then(|request| match self.answer(&stream, &request) {
            Ok(Some(secret)) => send(&mut stream, &[GIVEN], &secret),
            Ok(None) => send(&mut stream, &[NONE], &[]),
            Err(why) => send(&mut stream, &[REFUSED], why.as_bytes()),
        });
        // Who is gone needs no answer.
        drop(answered);
    }

    fn answer(&self, stream: &UnixStream, request: &[u8]) -> Result<Option<Held>, String> {
        let peer = socket_peercred(stream).map_err(|error| format!("nobody knows who asks ({error})"))?;
        let (user, pid) = (peer.uid.as_raw(), peer.pid.as_raw_pid().unsigned_abs());
        if user != rustix::process::geteuid().as_raw() {
            return Err(format!("process {pid} is of user {user}"));
        }
        if let Some(credential) = request.strip_prefix(ADOPT) {
            let theirs = Credential::decode_travelling(credential).map_err(|error| error.to_string())?;
            if theirs.job_secret != self.job_secret {
                return Err("it is another job's credential".into());
            }
            self.counts(pid);
            return Ok(Some(held(&[])));
        }
        if !self.is_of_job(pid) {
            return Err(format!("process {pid} was not started by this job"));
        }
        if let Some(end) = request.iter().position(|&byte| byte == 0) {
            let (name, question) = (str::from_utf8(&request[..end]).ok(), &request[end + 1..]);
            let answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
            let found = name.and_then(|name| answers.get(name)).cloned();
            // Others are not kept waiting by who is slow to answer.
            drop(answers);
            return Ok(found.map(|answer| held(&answer(question))));
        }
        let secrets = self.secrets.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(str::from_utf8(request).ok().and_then(|name| secrets.get(name)).cloned())
    }

    /// Whether a process is below one of those at the top. One whose parent ends meanwhile is below the holder then.
    fn is_of_job(&self, pid: u32) -> bool {
        let tops = self.tops.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut next = Process::of(pid);
        while let Some(process) = next {
            if tops.contains(&process) || (self.slurm && process.is_slurms()) {
                return true;
            }
            next = Process::of(process.parent);
        }
        false
    }
}

fn held(secret: &[u8]) -> Held {
    let mut place = PageSlice::zeroed(secret.len());
    place.copy_from_slice(secret);
    Arc::new(place)
}

/// A process for all time: its id and when it started, in this boot.
#[derive(Clone, Debug)]
struct Process {
    pid: u32,
    started: u64,
    parent: u32,
    name: String,
}

impl Process {
    fn of(pid: u32) -> Option<Self> {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name in parentheses may hold anything.
        let (front, rest) = stat.rsplit_once(')')?;
        let name = front.split_once('(')?.1.to_owned();
        let mut fields = rest.split_whitespace().skip(1);
        let parent = fields.next()?.parse().ok()?;
        let started = fields.nth(17)?.parse().ok()?;
        Some(Self { pid, started, parent, name })
    }

    /// Whether it is what Slurm starts a step's processes from. Nobody but root gives a process of root's that name.
    fn is_slurms(&self) -> bool {
        let of_root = || std::fs::metadata(format!("/proc/{}", self.pid)).is_ok_and(|process| process.uid() == 0);
        self.name == "slurmstepd" && of_root()
    }
}

impl PartialEq for Process {
    fn eq(&self, other: &Self) -> bool {
        (self.pid, self.started) == (other.pid, other.started)
    }
}

/// Asks the holder of this process's job for a secret; none if the job has none of that name.
///
/// # Errors
/// Why it was not to be had, as the middle of a sentence.
pub fn ask(directory: &Path, name: &str) -> Result<Option<Zeroizing<Vec<u8>>>, String> {
    request(directory, name.as_bytes())
}

/// Asks the holder of this process's job a question; none if nobody answers those of that name.
///
/// # Errors
/// As [`ask`].
pub fn call(directory: &Path, name: &str, question: &[u8]) -> Result<Option<Zeroizing<Vec<u8>>>, String> {
    request(directory, &Zeroizing::new([name.as_bytes(), &[0], question].concat()))
}

/// Has the holder of a job here count to the job what is below this process, which becomes a subreaper: `gambeson keep` on the
/// host of `gambeson run`. Whether there is such a job.
#[must_use]
pub fn adopt(directory: &Path, credential: &[u8]) -> bool {
    request(directory, &Zeroizing::new([ADOPT, credential].concat())).is_ok()
        && set_child_subreaper(Some(getpid())).is_ok()
}

fn request(directory: &Path, request: &[u8]) -> Result<Option<Zeroizing<Vec<u8>>>, String> {
    let stream = UnixStream::connect(directory.join(SOCKET)).and_then(|stream| {
        let holder = socket_peercred(&stream)?;
        Ok((stream, holder.uid.as_raw()))
    });
    let (mut stream, holder) =
        stream.map_err(|error| format!("nobody holds it here ({error}), as when `gambeson run` has ended"))?;
    let user = rustix::process::geteuid().as_raw();
    if holder != user {
        return Err(format!("it is held by user {holder} and this process runs as user {user}"));
    }
    let mut status = [0];
    let answered = stream
        .set_read_timeout(Some(PATIENCE))
        .and_then(|()| send(&mut stream, &[], request))
        .and_then(|()| stream.read_exact(&mut status))
        .and_then(|()| receive(&mut stream));
    let answer = answered.map_err(|error| format!("its holder does not answer ({error})"))?;
    match status {
        [GIVEN] => Ok(Some(answer)),
        [NONE] => Ok(None),
        _ => Err(String::from_utf8_lossy(&answer).into_owned()),
    }
}

fn send(stream: &mut UnixStream, head: &[u8], bytes: &[u8]) -> io::Result<()> {
    let length = u32::try_from(bytes.len()).map_err(io::Error::other)?;
    stream.write_all(&[head, &length.to_be_bytes()].concat()).and_then(|()| stream.write_all(bytes))
}

/// Into one allocation: a vector that grows leaves copies of a secret behind.
fn receive(stream: &mut UnixStream) -> io::Result<Zeroizing<Vec<u8>>> {
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let length = u32::from_be_bytes(length) as usize;
    if length > LENGTH_MAX {
        return Err(io::Error::other("longer than any secret of a job"));
    }
    let mut bytes = Zeroizing::new(vec![0; length]);
    stream.read_exact(&mut bytes)?;
    Ok(bytes)
}

const SOCKET: &str = "secrets";
const ADOPT: &[u8] = b"adopt\0";
const GIVEN: u8 = 0;
const NONE: u8 = 1;
const REFUSED: u8 = 2;
/// Longer than any credential or key ring.
const LENGTH_MAX: usize = 16 << 20;
/// On a host that is busy starting a job, too.
const PATIENCE: Duration = Duration::from_secs(60);
