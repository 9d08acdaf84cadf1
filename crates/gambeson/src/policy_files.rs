//! The policy of a job, and the keys of its partitions.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use gambeson_launch::partitions::job_key;
use gambeson_proto::credential::Credential;
use gambeson_proto::key_schedule::PartitionKey;
use gambeson_proto::policy::{Policy, Resolution, SecretFile};
use gambeson_proto::secret::Secret32;
use gambeson_site::policy::{self, Error};
use zeroize::{Zeroize, Zeroizing};

use crate::failure::{Failure, Status};
use crate::machine;

pub(crate) use gambeson_site::policy::Loaded;

/// Reads the floor and the file named, or else the file beside the job, and resolves them.
pub(crate) fn load(named: Option<&Path>) -> Result<Loaded, Failure> {
    policy::load(named).map_err(|error| {
        let status = if matches!(error, Error::Policy(_)) { Status::Policy } else { Status::Refused };
        Failure::new(status, error.to_string())
    })
}

/// The job's keys of all partitions of a policy: derived from their secret files, and for the one that the job runs in asked
/// of this host's daemon, which also says the epoch that the job begins in.
pub(crate) fn partition_keys(loaded: &Resolution, job_id: &[u8; 16]) -> Result<(Policy, Vec<PartitionKey>), Failure> {
    let (mut policy, mut keys) = (loaded.policy.clone(), Vec::new());
    for (number, (partition, file)) in loaded.policy.partitions().iter().zip(&loaded.secret_files).enumerate() {
        keys.push(match file {
            Some(file) => {
                let secret = read_secret(partition.name(), file)?;
                PartitionKey::derive(&secret, partition.epoch(), partition.name(), job_id)
            }
            None => {
                let key = job_key(partition.name(), 0, job_id).map_err(|cause| no_key(partition.name(), &cause))?;
                policy = policy.with_epoch(number, key.epoch);
                key
            }
        });
    }
    Ok((policy, keys))
}

/// Puts the keys in place that a credential does not travel with: this host's daemon has them, if the host is a member.
pub(crate) fn complete(credential: &mut Credential) -> Result<(), Failure> {
    while let Some(lacking) = credential.lacking() {
        let partition = &credential.policy.partitions()[lacking];
        let key = job_key(partition.name(), partition.epoch(), &credential.job_id);
        credential.partitions[lacking] = key.map_err(|cause| no_key(partition.name(), &cause))?;
    }
    Ok(())
}

fn no_key(partition: &str, cause: &gambeson_launch::Error) -> Failure {
    Failure::refused(format!(
        "{} has no key for this job, which runs in partition {partition}: {cause}",
        machine::host_name()
    ))
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
