//! The job this process belongs to, and the page in which the launcher sees that every rank is protected.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use gambeson_proto::credential::{Credential, Tuning};
use gambeson_proto::endpoint::{Config, Job};
use gambeson_proto::identity::HostIndex;
use gambeson_proto::ledger::{self, Counter, Counters, Registration, State};
use gambeson_site::job;

use crate::report::{refuse_once, say_once};

/// What this process knows of its job.
pub(crate) struct Membership {
    pub(crate) job: Arc<Job>,
    pub(crate) config: Config,
    /// Rank in its MPI_COMM_WORLD, when the launcher told.
    pub(crate) rank: Option<u32>,
    pub(crate) host: HostIndex,
    pub(crate) host_name: String,
    pub(crate) directory: PathBuf,
    /// How many bytes an endpoint may write down of its messages, in a traced job.
    pub(crate) trace_limit: Option<u64>,
    page: Mutex<Option<Page>>,
}

static MEMBERSHIP: OnceLock<Membership> = OnceLock::new();
static ENDPOINTS: AtomicU64 = AtomicU64::new(0);
static REFUSED: AtomicBool = AtomicBool::new(false);

/// The job, read when first needed. Without one the provider offers nothing; it says why once, if
/// it was `asked` for by name.
pub(crate) fn membership(asked: bool) -> Option<&'static Membership> {
    if let Some(known) = MEMBERSHIP.get() {
        return Some(known);
    }
    match join() {
        Ok(membership) => Some(MEMBERSHIP.get_or_init(|| membership)),
        Err(sentence) => {
            if asked {
                refuse_once(&REFUSED, sentence);
            }
            None
        }
    }
}

/// How many endpoints of this process are open.
pub(crate) fn endpoints_open() -> u64 {
    ENDPOINTS.load(Ordering::Acquire)
}

/// How sentences begin that name this process.
pub(crate) fn prefix() -> String {
    format!("{}: ", job::who())
}

/// Leaves word for the launcher, as the guard does.
pub(crate) fn refused(sentence: &str) {
    if let Some(directory) = job::directory() {
        job::leave(&directory, "refused", &job::who(), sentence);
    }
}

/// Tells the launcher why this process ends.
pub(crate) fn failed(sentence: &str) {
    // The lock may be held by this very thread; a stop does not wait for it.
    if let Some(Ok(page)) = MEMBERSHIP.get().map(|membership| membership.page.try_lock())
        && let Some(page) = &*page
    {
        page.text(ledger::MESSAGE_OFFSET, &ledger::message(sentence));
        page.word(ledger::STATE_OFFSET).store((State::Failed as u64).to_le(), Ordering::Release);
    }
}

impl Membership {
    /// An endpoint of this process is about to talk. The launcher must see it first.
    pub(crate) fn endpoint_opens(&self) -> Result<(), String> {
        if endpoints_open() > 0 && self.job.communicators.are_protected() {
            return Err("MPI opens one more endpoint, and there are communicators that have a gambeson_protection, which needs \
                        processes of one endpoint each; leave out MPIR_CVAR_CH4_NUM_VCIS and MPIX streams, or gambeson_protection"
                .to_owned());
        }
        let mut page = self.page.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        match &*page {
            Some(page) => page.word(ledger::STATE_OFFSET).store((State::Opened as u64).to_le(), Ordering::Release),
            None => *page = Some(self.register()?),
        }
        ENDPOINTS.fetch_add(1, Ordering::AcqRel);
        self.warn_of_swap();
        Ok(())
    }

    /// An endpoint was closed. Whether it was the last.
    pub(crate) fn endpoint_closed(&self) -> bool {
        let page = self.page.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let last = ENDPOINTS.fetch_sub(1, Ordering::AcqRel) == 1;
        if let Some(page) = page.as_ref().filter(|_| last) {
            page.word(ledger::STATE_OFFSET).store((State::Closed as u64).to_le(), Ordering::Release);
        }
        last
    }

    /// Adds what an endpoint counted since it `published` last.
    pub(crate) fn publish(&self, counters: &Counters, published: &mut [u64; COUNTERS]) {
        let page = self.page.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let Some(page) = &*page else { return };
        for (counter, before) in Counter::ALL.into_iter().zip(published) {
            let (word, now) = (page.word(counter.offset()), counters.value(counter));
            let shown = u64::from_le(word.load(Ordering::Relaxed));
            let value = match counter {
                // One is a height, the other is the process's already.
                Counter::UnexpectedMax | Counter::Allocations => shown.max(now),
                _ => shown.wrapping_add(now.wrapping_sub(*before)),
            };
            word.store(value.to_le(), Ordering::Relaxed);
            *before = now;
        }
        #[cfg(feature = "nonce-oracle")]
        crate::nonce_log::flush();
    }

    fn register(&self) -> Result<Page, String> {
        let path = self.directory.join(format!("rank-{}", std::process::id()));
        let page = Page::create(&path).map_err(|error| {
            format!(
                "can't write {}: {error}; the launcher would not see that this process is protected, so it may not \
                 talk. Free space in the job's directory or start the job again",
                path.display()
            )
        })?;
        let mut bytes = [0; ledger::PAGE_LEN];
        let rank = self.rank.map_or(ledger::RANK_UNKNOWN, u64::from);
        Registration { pid: u64::from(std::process::id()), rank, host: &self.host_name }
            .write(&self.job.keys, &mut bytes);
        page.fill(&bytes);
        Ok(page)
    }

    fn warn_of_swap(&self) {
        static WARNED: AtomicBool = AtomicBool::new(false);
        let swaps = || std::fs::read_to_string("/proc/swaps").is_ok_and(|swaps| swaps.lines().count() > 1);
        if gambeson_pages::may_swap() && swaps() {
            say_once(
                &WARNED,
                "keys can't all be locked into memory (the limit of locked memory is too low) and this host swaps: \
                 raise `ulimit -l`, or use encrypted swap",
            );
        }
    }
}

/// How many counters a page has.
pub(crate) const COUNTERS: usize = Counter::ALL.len();

fn join() -> Result<Membership, String> {
    let job::Job { directory, credential } = job::find("the provider here")?;
    #[cfg(feature = "nonce-oracle")]
    crate::nonce_log::open()?;
    let config = config(&credential);
    let job = Job::from(credential);
    let host_name = job::host_name();
    Ok(Membership {
        host: job.policy.host_index(&host_name),
        job: Arc::new(job),
        config,
        rank: job::rank(),
        host_name,
        trace_limit: std::fs::read_to_string(directory.join("trace")).ok().and_then(|limit| limit.parse().ok()),
        directory,
        page: Mutex::new(None),
    })
}

fn config(credential: &Credential) -> Config {
    let gap_timeout_ns = u64::try_from(credential.policy.gap_timeout().as_nanos()).unwrap_or(u64::MAX);
    let mut config = Config { gap_timeout_ns, ..Config::default() };
    let Tuning { epoch_records, epoch_blocks, cached_sessions, unexpected_bytes } = credential.tuning;
    if epoch_records != 0 {
        config.epoch_limits.records = epoch_records;
    }
    if epoch_blocks != 0 {
        config.epoch_limits.blocks = epoch_blocks;
    }
    if cached_sessions != 0 {
        config.key_slots = cached_sessions as usize;
    }
    if unexpected_bytes != 0 {
        config.unexpected_limit = usize::try_from(unexpected_bytes).unwrap_or(usize::MAX);
    }
    config
}

/// One page of memory that the launcher reads.
struct Page(NonNull<u8>);

// SAFETY: the page is never unmapped and is only written through atomics or under the lock.
unsafe impl Send for Page {}

impl Page {
    fn create(path: &Path) -> io::Result<Self> {
        let flags = libc::O_NOFOLLOW | libc::O_CLOEXEC;
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(true).mode(0o600).custom_flags(flags);
        let file: File = options.open(path)?;
        file.set_len(ledger::PAGE_LEN as u64)?;
        // Without this a full file system ends the process later, by a signal.
        // SAFETY: the descriptor is open.
        let error = unsafe { libc::posix_fallocate(file.as_raw_fd(), 0, ledger::PAGE_LEN as libc::off_t) };
        if error != 0 {
            return Err(io::Error::from_raw_os_error(error));
        }
        let (access, len) = (libc::PROT_READ | libc::PROT_WRITE, ledger::PAGE_LEN);
        // SAFETY: a fresh shared mapping of a file of this size.
        let page = unsafe { libc::mmap(std::ptr::null_mut(), len, access, libc::MAP_SHARED, file.as_raw_fd(), 0) };
        if page == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        NonNull::new(page.cast()).map(Page).ok_or_else(|| io::Error::other("mapped at zero"))
    }

    /// Writes all of the page, the state last.
    fn fill(&self, bytes: &[u8; ledger::PAGE_LEN]) {
        let state = ledger::STATE_OFFSET;
        self.text(0, &bytes[..state]);
        self.text(state + 8, &bytes[state + 8..]);
        let value = u64::from_ne_bytes(bytes[state..state + 8].try_into().expect("eight bytes"));
        self.word(state).store(value, Ordering::Release);
    }

    fn text(&self, offset: usize, bytes: &[u8]) {
        assert!(offset + bytes.len() <= ledger::PAGE_LEN);
        // SAFETY: inside the page, checked above.
        unsafe { self.0.add(offset).copy_from_nonoverlapping(NonNull::from(bytes).cast(), bytes.len()) };
    }

    fn word(&self, offset: usize) -> &AtomicU64 {
        assert!(offset.is_multiple_of(8) && offset + 8 <= ledger::PAGE_LEN);
        // SAFETY: aligned and inside the page, which stays mapped.
        unsafe { self.0.add(offset).cast::<AtomicU64>().as_ref() }
    }
}
