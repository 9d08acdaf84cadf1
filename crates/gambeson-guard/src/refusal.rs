//! One sentence that says which rank stops, why, and what to do; then the end of the process.

use std::env;
use std::ffi::{CStr, OsStr, c_char, c_int};
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use crate::environment;
use crate::real::{loaded, symbol};

/// Why a rank must not run.
pub(crate) struct Refusal {
    cause: String,
    remedy: String,
}

impl Refusal {
    /// The job directory is not as `gambeson run` made it.
    pub(crate) fn no_job(file: &Path, error: &io::Error) -> Self {
        Self {
            cause: format!("{} cannot be read ({error})", file.display()),
            remedy: "Start the program through `gambeson run` under the same user on every host".to_owned(),
        }
    }

    /// The job was started for links, without a launcher, so nothing leads this MPI to the provider.
    pub(crate) fn no_launcher() -> Self {
        Self {
            cause: "it starts MPI, and this job was started without a launcher of an MPI, for links".to_owned(),
            remedy: "Put `gambeson run --` directly in front of the mpiexec of the program's MPI".to_owned(),
        }
    }

    /// Something changed the environment between the launcher and MPI.
    pub(crate) fn changed(name: &str, expected: &str, found: Option<&OsStr>) -> Self {
        let now = match found {
            Some(found) => format!("is \"{}\"", found.to_string_lossy()),
            None => "is not set".to_owned(),
        };
        Self {
            cause: format!("in this process {name} {now}, and sealing needs \"{expected}\""),
            remedy: format!(
                "Remove what changes {name}: an option of mpiexec, a start-up file of the shell or of MPI, or the program itself"
            ),
        }
    }

    /// The stand-in was called and no MPI library is behind it.
    pub(crate) fn unknown_mpi(name: &str) -> Self {
        Self {
            cause: format!("no MPI library with the function {name} is loaded"),
            remedy: "Link the program with a shared MPI library (libmpi.so)".to_owned(),
        }
    }

    /// MPI came up over something else.
    pub(crate) fn no_provider() -> Self {
        let libfabric = loaded(is_libfabric);
        match libfabric.first() {
            None => Self {
                cause: "the MPI library came up without libfabric, so it did not load the provider".to_owned(),
                remedy: "Start the program with the mpiexec of its own MPI, and use one that has libfabric built in (MPICH: ch4:ofi; Open MPI: mtl/ofi; Intel MPI: any); `gambeson doctor -- mpiexec ...` looks".to_owned(),
            },
            Some(path) => Self {
                cause: format!(
                    "the MPI library uses {}, which did not load the provider",
                    path.to_string_lossy()
                ),
                remedy: "Look at `gambeson doctor -- mpiexec ...`, and set FI_LOG_LEVEL=info to see what libfabric says of libgambeson-fi.so".to_owned(),
            },
        }
    }

    /// The provider is there and MPI uses another.
    pub(crate) fn no_endpoint() -> Self {
        Self {
            cause: "the provider is loaded, and MPI opened no endpoint of it".to_owned(),
            remedy: "Remove settings that choose another transport (pml, mtl, netmod, fabrics), and look at `gambeson doctor -- mpiexec ...`".to_owned(),
        }
    }

    /// Windows of this MPI bypass the provider; the launcher's words are a line each for cause and remedy.
    pub(crate) fn one_sided(why: &str) -> Self {
        let (cause, remedy) = why.split_once('\n').unwrap_or((why, ""));
        Self { cause: format!("the program makes a window, and {cause}"), remedy: remedy.trim_end().to_owned() }
    }

    /// A communicator can't have the protection that was asked for it, and MPI has nobody to tell.
    pub(crate) fn communicator(why: &str) -> Self {
        Self {
            cause: format!("a communicator can't be protected as it asks ({why})"),
            remedy: "See docs/communicators.md".to_owned(),
        }
    }

    fn sentence(&self, who: &str) -> String {
        let library = library().map_or_else(String::new, |library| format!(" ({library})"));
        format!(
            "gambeson: {who}{library} is stopped, because its messages would not be sealed: {}. {}.",
            self.cause, self.remedy
        )
    }
}

/// Says something that the program is told too.
pub(crate) fn say(sentence: &str) {
    let _ = io::stderr().write_all(format!("gambeson: {}: {sentence}\n", who()).as_bytes());
}

/// Says why, leaves word for the launcher, and ends the process at once.
pub(crate) fn end(refusal: &Refusal) -> ! {
    let sentence = refusal.sentence(&who());
    // One write, so that the lines of many ranks do not mix.
    let _ = io::stderr().write_all(format!("{sentence}\n").as_bytes());
    if let Some(job) = environment::job() {
        leave(&job, "refused", &sentence);
    }
    // SAFETY: _exit has no preconditions. Exit handlers would let MPI talk on its way out.
    unsafe { libc::_exit(STATUS_REFUSED) }
}

/// Leaves a file in the job's directory that names this rank on its first line.
pub(crate) fn leave(job: &Path, what: &str, text: &str) {
    let file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .custom_flags(libc::O_NOFOLLOW)
        .open(job.join(format!("{what}-{}", std::process::id())));
    // A process may start MPI twice, by its two names; once said is enough.
    if let Ok(mut file) = file {
        let _ = file.write_all(format!("{}\n{text}\n", who()).as_bytes());
    }
}

fn who() -> String {
    let rank = rank().map_or_else(|| format!("process {}", std::process::id()), |rank| format!("rank {rank}"));
    format!("{rank} on {}", host())
}

/// The rank as the launchers announce it; the communicator is not ours to ask.
pub(crate) fn rank() -> Option<String> {
    ["OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"].into_iter().find_map(|name| env::var(name).ok())
}

fn host() -> String {
    let mut name = [0_u8; 256];
    // SAFETY: the buffer is valid for its length less one, so that a zero stays at its end.
    unsafe { libc::gethostname(name.as_mut_ptr().cast::<c_char>(), name.len() - 1) };
    CStr::from_bytes_until_nul(&name).expect("the last byte is zero").to_string_lossy().into_owned()
}

/// The first line of what the MPI library says of itself.
fn library() -> Option<String> {
    type Version = unsafe extern "C" fn(*mut c_char, *mut c_int) -> c_int;
    let address = loaded(is_mpi).iter().find_map(|object| symbol(object, c"PMPI_Get_library_version"))?;
    // MPI_MAX_LIBRARY_VERSION_STRING is 256 to 8192 in the MPIs there are.
    let mut text = vec![0_u8; 16 * 1024];
    let mut length: c_int = 0;
    // SAFETY: the function has this prototype in every MPI, may be called at any time, and
    // writes less than the buffer holds.
    unsafe {
        std::mem::transmute::<*const std::ffi::c_void, Version>(address)(text.as_mut_ptr().cast(), &raw mut length)
    };
    let text = CStr::from_bytes_until_nul(&text).ok()?.to_string_lossy();
    let line = text.lines().next()?.split(", ").next()?;
    Some(line.split_whitespace().collect::<Vec<_>>().join(" "))
}

fn is_mpi(object: &CStr) -> bool {
    starts(object, b"libmpi")
}

fn is_libfabric(object: &CStr) -> bool {
    starts(object, b"libfabric")
}

fn starts(object: &CStr, prefix: &[u8]) -> bool {
    let path = object.to_bytes();
    path.rsplit(|&byte| byte == b'/').next().is_some_and(|name| name.starts_with(prefix))
}

/// EX_SOFTWARE of sysexits.h: what every refusal of Gambeson ends with.
const STATUS_REFUSED: c_int = 70;
