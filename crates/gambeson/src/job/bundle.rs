//! What hosts tell each other of a job as one stream of files: its directory, the credential and the keys one way, the ranks'
//! reports the other.
//!
//! ```text
//! magic "GBSNFIL1" | count u32 | count x { name length u16, name, length u32, bytes }
//! ```
//! Big endian. The stream passes by a daemon or over ssh; it is no protection by itself.

use std::fs;
use std::io::{self, Read, Seek, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use gambeson_keys::OF_JOB;
use gambeson_proto::credential::Credential;
use gambeson_proto::trace::{self, EndpointFile};
use gambeson_site::directory::{DIRECTORY, SITE_KEY};
use gambeson_site::holder::{self, CREDENTIAL};
use zeroize::Zeroizing;

/// Names and contents, wiped when they go.
pub(crate) type Files = Vec<(String, Zeroizing<Vec<u8>>)>;

/// The files that a host gets.
pub(crate) const CARRIED: [&str; 10] = [
    "version",
    "rules",
    SITE_KEY,
    DIRECTORY,
    "environment",
    "one-sided",
    "one-sided-threads",
    "vendor",
    "trace",
    "launchers",
];

/// How the line begins that says the files are in place; behind it are the port that stands in for the launcher's, and an
/// address of the host.
pub(crate) const KEPT: &str = "gambeson keeps the job ";

/// Whether a file is what a rank left.
pub(crate) fn is_report(name: &str) -> bool {
    let numbered = |rest: &str| !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_digit());
    let endpoint =
        |rest: &str| rest.split_once('-').is_some_and(|(process, count)| numbered(process) && numbered(count));
    ["rank-", "started-", "linked-", "refused-"].iter().any(|kind| name.strip_prefix(kind).is_some_and(numbered))
        || name.strip_prefix("trace-").is_some_and(endpoint)
}

/// Reads the files of a directory that `wanted` picks.
pub(crate) fn pack(directory: &Path, wanted: impl Fn(&str) -> bool) -> io::Result<Files> {
    let mut files = Files::new();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if wanted(&name) && entry.file_type()?.is_file() {
            let bytes = read(&entry.path(), name.starts_with("trace-"))?;
            files.push((name, bytes));
        }
    }
    Ok(files)
}

/// The secrets that a host gets, from their holder on this one; the credential as it travels.
pub(crate) fn secrets(directory: &Path) -> Result<Files, String> {
    let credential = holder::ask(directory, CREDENTIAL)?.ok_or("its holder has no credential")?;
    let credential = Credential::decode(&credential).map_err(|error| error.to_string())?.encode_to_travel();
    let mut files = vec![(CREDENTIAL.to_owned(), credential)];
    files.extend(holder::ask(directory, OF_JOB)?.map(|keys| (OF_JOB.to_owned(), keys)));
    Ok(files)
}

/// Reads a file into one allocation: a vector that grows leaves copies behind.
fn read(path: &Path, is_trace: bool) -> io::Result<Zeroizing<Vec<u8>>> {
    let mut file = fs::File::open(path)?;
    let length = if is_trace { in_use(&mut file)? } else { file.metadata()?.len() };
    let length = usize::try_from(length).map_err(io::Error::other)?;
    let mut bytes = Zeroizing::new(vec![0; length]);
    file.read_exact(&mut bytes)?;
    Ok(bytes)
}

/// What a process that was killed left of its trace has room for more than it holds.
fn in_use(file: &mut fs::File) -> io::Result<u64> {
    let length = file.metadata()?.len();
    let mut page = [0; trace::PAGE_LEN];
    let used = file.read_exact(&mut page).ok().and_then(|()| EndpointFile::used(&page));
    file.rewind()?;
    Ok(used.map_or(length, |used| used.min(length)))
}

/// What another host gets of a job: its files, its secrets, and the directory that they are for.
pub(crate) fn to_travel(job: &Path) -> Result<Files, String> {
    let mut files = pack(job, |name| CARRIED.contains(&name)).map_err(|error| error.to_string())?;
    files.extend(secrets(job)?);
    files.push(("directory".to_owned(), Zeroizing::new(job.as_os_str().as_bytes().to_vec())));
    Ok(files)
}

pub(crate) fn send(to: &mut impl Write, files: &Files) -> io::Result<()> {
    to.write_all(&MAGIC)?;
    to.write_all(&length(files.len())?)?;
    for (name, bytes) in files {
        to.write_all(&u16::try_from(name.len()).map_err(io::Error::other)?.to_be_bytes())?;
        to.write_all(name.as_bytes())?;
        to.write_all(&length(bytes.len())?)?;
        to.write_all(bytes)?;
    }
    to.flush()
}

pub(crate) fn receive(from: &mut impl Read) -> io::Result<Files> {
    let bad = || io::Error::new(io::ErrorKind::InvalidData, "not Gambeson's words");
    if array(from)? != MAGIC {
        return Err(bad());
    }
    let count = u32::from_be_bytes(array(from)?);
    if count > FILES_MAX {
        return Err(bad());
    }
    let mut files = Files::new();
    for _ in 0..count {
        let mut name = vec![0; usize::from(u16::from_be_bytes(array(from)?))];
        from.read_exact(&mut name)?;
        let name = String::from_utf8(name).map_err(|_| bad())?;
        let length = u32::from_be_bytes(array(from)?);
        if length > LENGTH_MAX {
            return Err(bad());
        }
        let mut bytes = Zeroizing::new(vec![0; usize::try_from(length).map_err(io::Error::other)?]);
        from.read_exact(&mut bytes)?;
        files.push((name, bytes));
    }
    Ok(files)
}

fn length(length: usize) -> io::Result<[u8; 4]> {
    u32::try_from(length).map(u32::to_be_bytes).map_err(io::Error::other)
}

fn array<const N: usize>(from: &mut impl Read) -> io::Result<[u8; N]> {
    let mut array = [0; N];
    from.read_exact(&mut array)?;
    Ok(array)
}

const MAGIC: [u8; 8] = *b"GBSNFIL1";
const FILES_MAX: u32 = 1 << 16;
const LENGTH_MAX: u32 = 1 << 31;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_arrive_as_they_were_sent() {
        let files: Files =
            vec![("a".to_owned(), Zeroizing::new(vec![1, 2])), ("b".to_owned(), Zeroizing::new(Vec::new()))];
        let mut stream = Vec::new();
        send(&mut stream, &files).unwrap();
        assert_eq!(receive(&mut stream.as_slice()).unwrap(), files);
        for end in 0..stream.len() {
            assert!(receive(&mut &stream[..end]).is_err());
        }
        stream[8] = 1;
        assert!(receive(&mut stream.as_slice()).is_err(), "too many files");
    }

    #[test]
    fn only_what_ranks_leave_is_a_report() {
        for name in ["rank-1", "started-22", "linked-4", "refused-333", "trace-1-0"] {
            assert!(is_report(name), "{name}");
        }
        for name in ["credential", "trace", "trace-1", "trace-1-../x", "rank-", "rank-../x", "rank-1/2", "owner-1"] {
            assert!(!is_report(name), "{name}");
        }
    }
}
