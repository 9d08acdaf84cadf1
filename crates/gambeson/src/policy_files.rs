//! Finds and reads the policy files, and refuses those that others could have written (rule 8 of the threat model).

use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use gambeson_proto::key_schedule::PartitionKey;
use gambeson_proto::policy::{Chosen, Document, Resolution, SecretFile, resolve};
use gambeson_proto::secret::Secret32;
use zeroize::{Zeroize, Zeroizing};

use crate::failure::{Failure, Status};

/// What nobody can go below.
const FLOOR: &str = "/etc/gambeson/gambeson.toml";
/// What may strengthen it when nobody names a file.
const FOUND: &str = "gambeson.toml";
/// A policy of 4096 rules is far below.
const LENGTH_MAX: u64 = 1 << 20;

/// The resolved policy and where it came from.
#[derive(Debug)]
pub(crate) struct Loaded {
    pub(crate) resolution: Resolution,
    /// The files that were read, in order of their rank.
    pub(crate) files: Vec<PathBuf>,
}

/// Reads the floor and the file named, or else the file beside the job, and resolves them.
pub(crate) fn load(named: Option<&Path>) -> Result<Loaded, Failure> {
    let mut files = Vec::new();
    let floor = read_document(Path::new(FLOOR), Missing::Ignore, &mut files)?;
    let chosen = match named {
        Some(path) => read_document(path, Missing::Refuse, &mut files)?,
        None => read_document(Path::new(FOUND), Missing::Ignore, &mut files)?,
    };
    let chosen = chosen.as_ref().map(|document| match named {
        Some(_) => Chosen::Named(document),
        None => Chosen::Found(document),
    });
    let resolution = resolve(floor.as_ref(), chosen)
        .map_err(|error| Failure::new(Status::Policy, format!("the policy cannot be used: {error}")))?;
    Ok(Loaded { resolution, files })
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Missing {
    Ignore,
    Refuse,
}

fn read_document(path: &Path, missing: Missing, files: &mut Vec<PathBuf>) -> Result<Option<Document>, Failure> {
    let mut file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound && missing == Missing::Ignore => return Ok(None),
        Err(error) => return Err(unreadable(path, &error)),
    };
    let metadata = file.metadata().map_err(|error| unreadable(path, &error))?;
    others_cannot_write(path, &metadata)?;
    if !metadata.is_file() || metadata.len() > LENGTH_MAX {
        return Err(Failure::refused(format!(
            "the policy {} is no regular file of at most 1 MiB; name a gambeson.toml with --policy",
            path.display()
        )));
    }
    let mut text = String::new();
    Read::by_ref(&mut file).take(LENGTH_MAX).read_to_string(&mut text).map_err(|error| unreadable(path, &error))?;
    files.push(path.to_owned());
    Document::parse(&text, &path.display().to_string())
        .map(Some)
        .map_err(|error| Failure::new(Status::Policy, format!("the policy cannot be used: {error}")))
}

fn unreadable(path: &Path, error: &io::Error) -> Failure {
    Failure::refused(format!(
        "the policy {} cannot be read ({error}), so nothing says how the messages are to be protected; make it readable for you, or name another with --policy",
        path.display()
    ))
}

fn others_cannot_write(path: &Path, metadata: &Metadata) -> Result<(), Failure> {
    let me = rustix::process::geteuid().as_raw();
    if metadata.uid() != 0 && metadata.uid() != me {
        return Err(Failure::refused(format!(
            "the policy {} belongs to user {}, who could weaken it; remove it, or copy what you need into a file of your own",
            path.display(),
            metadata.uid()
        )));
    }
    if metadata.mode() & 0o022 != 0 {
        return Err(Failure::refused(format!(
            "the policy {} can be written by others (mode {:04o}); check what it says, then chmod go-w it",
            path.display(),
            metadata.mode() & 0o7777
        )));
    }
    Ok(())
}

/// Derives the job's keys of all partitions of a policy from their secret files.
pub(crate) fn partition_keys(loaded: &Resolution, job_id: &[u8; 16]) -> Result<Vec<PartitionKey>, Failure> {
    let partitions = loaded.policy.partitions().iter().zip(&loaded.secret_files);
    partitions
        .map(|(partition, file)| {
            let secret = read_secret(partition.name(), file)?;
            Ok(PartitionKey::derive(&secret, partition.epoch(), partition.name(), job_id))
        })
        .collect()
}

fn read_secret(partition: &str, file: &SecretFile) -> Result<Secret32, Failure> {
    // A relative path means beside the policy, wherever the job starts.
    let path = Path::new(&file.origin).parent().unwrap_or(Path::new("")).join(&file.path);
    let refused = |what: String| {
        Failure::refused(format!(
            "the secret of partition \"{partition}\", {} (named at {}:{}), {what}",
            path.display(),
            file.origin,
            file.line
        ))
    };
    let cannot = |error: io::Error| refused(format!("cannot be read ({error}); put its 32 bytes there, mode 0600"));
    let mut opened = File::open(&path).map_err(cannot)?;
    let metadata = opened.metadata().map_err(cannot)?;
    let me = rustix::process::geteuid().as_raw();
    if (metadata.uid() != me && metadata.uid() != 0) || metadata.mode() & 0o077 != 0 || !metadata.is_file() {
        return Err(refused(format!(
            "is open to others (owner {}, mode {:04o}); make it yours alone: chmod 600, and draw a new secret if others could read it",
            metadata.uid(),
            metadata.mode() & 0o7777
        )));
    }
    let mut bytes = Zeroizing::new([0_u8; 67]);
    let mut length = 0;
    loop {
        match opened.read(&mut bytes[length..]).map_err(cannot)? {
            0 => break,
            more => length += more,
        }
        if length == bytes.len() {
            break;
        }
    }
    secret(&bytes[..length]).ok_or_else(|| {
        refused("holds neither 32 bytes nor 64 hexadecimal digits; fill it with `openssl rand -hex 32`".to_owned())
    })
}

/// 32 bytes as they are, or 64 hexadecimal digits and perhaps an end of line.
fn secret(bytes: &[u8]) -> Option<Secret32> {
    let mut raw = Zeroizing::new([0_u8; 32]);
    if bytes.len() == 32 {
        raw.copy_from_slice(bytes);
    } else {
        let digits = bytes.trim_ascii_end();
        if digits.len() != 64 {
            return None;
        }
        for (byte, pair) in raw.iter_mut().zip(digits.chunks_exact(2)) {
            let digit = |digit: u8| char::from(digit).to_digit(16);
            let value = digit(pair[0])? << 4 | digit(pair[1])?;
            *byte = u8::try_from(value).expect("two hexadecimal digits");
        }
    }
    if *raw == [0; 32] {
        return None;
    }
    let secret = Secret32::from_bytes(*raw);
    raw.zeroize();
    Some(secret)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_raw_or_hexadecimal() {
        let raw: Vec<u8> = (1..=32).collect();
        let hex: String = raw.iter().map(|byte| format!("{byte:02X}")).collect();
        for bytes in [raw.as_slice(), hex.as_bytes(), format!("{hex}\n").as_bytes()] {
            assert_eq!(secret(bytes).unwrap().as_bytes().as_slice(), raw);
        }
        for bytes in [&[][..], &raw[1..], &hex.as_bytes()[1..], &[0; 32], &[b'g'; 64], &[b'1'; 67]] {
            assert!(secret(bytes).is_none(), "{bytes:?}");
        }
    }
}
