//! The security context that a new process finds (secure-nexus paper, section 5.1).
//!
//! The paper puts it into an environment variable, which whoever may look at the process reads, and which everything that it
//! starts inherits. Here the variable has the number of a descriptor alone: memory that the keeper filled, without a name
//! in any file system. Who takes the context wipes it, and it can be taken once.

use std::env;
use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::net::{IpAddr, SocketAddr, ToSocketAddrs, UdpSocket};
use std::os::fd::OwnedFd;

use rustix::fs::{FlockOperation, MemfdFlags, fcntl_lock, memfd_create};
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use crate::error::Error;
use crate::wire::{self, Secret};

/// The variable that has the descriptor's number.
pub(crate) const VARIABLE: &str = "GAMBESON_CONTEXT_FD";

/// What the processes of an order share with who ordered them.
#[derive(Serialize, Deserialize)]
pub(crate) struct Context {
    /// The order's name.
    pub(crate) order: [u8; 16],
    /// The job's credential.
    pub(crate) credential: Secret,
    /// The startpoint to say by that a process is ready.
    pub(crate) ready: Secret,
    /// The startpoint to the creator that the program gave, if any.
    pub(crate) creator: Secret,
    /// What the program said further.
    pub(crate) own: Secret,
}

/// Memory with a process's number and its context.
pub(crate) fn deliver(number: u32, context: &Secret) -> io::Result<OwnedFd> {
    let mut memory = File::from(memfd_create("security context", MemfdFlags::CLOEXEC)?);
    memory.write_all(&MAGIC)?;
    memory.write_all(&number.to_be_bytes())?;
    memory.write_all(context.as_bytes())?;
    Ok(memory.into())
}

/// This process's number and its context, which is nowhere else after that.
pub(crate) fn take() -> Result<(u32, Context), Error> {
    take_from(env::var_os(VARIABLE).as_deref())
}

fn take_from(variable: Option<&OsStr>) -> Result<(u32, Context), Error> {
    let Some(descriptor) = variable else {
        return Err(Error::Refused(format!(
            "this process has no security context ({VARIABLE} is not set); it must be made by start_process"
        )));
    };
    let number = descriptor.to_str().and_then(|text| text.parse::<u32>().ok());
    let number = number.ok_or_else(|| Error::Refused(format!("{VARIABLE} is no number of a descriptor")))?;
    let lost = |cause: io::Error| {
        Error::Refused(format!(
            "the security context of this process is lost ({cause}): whatever stands between it and its creator has closed \
             descriptor {number}, or changed the account"
        ))
    };
    // By its name, and not by its number: whoever else might have opened something under that keeps it.
    let opened = OpenOptions::new().read(true).write(true).open(format!("/proc/self/fd/{number}"));
    let mut memory = opened.map_err(lost)?;
    let taken = || {
        Error::Refused(
            "the security context of this process was taken already: each has one, and takes it once, by init_process"
                .into(),
        )
    };
    // Of two processes that have inherited it one gets it.
    fcntl_lock(&memory, FlockOperation::NonBlockingLockExclusive).map_err(|_| taken())?;
    let length = memory.metadata().map_err(lost)?.len() as usize;
    if length == 0 {
        return Err(taken());
    }
    let mut bytes = Zeroizing::new(vec![0; length.min(LONGEST)]);
    memory.read_exact(&mut bytes).map_err(lost)?;
    let foreign = || lost(io::Error::other("something else is there"));
    let rest = bytes.strip_prefix(&MAGIC[..]).ok_or_else(foreign)?;
    let (number, context) = wire::number(rest).ok_or_else(foreign)?;
    let context = wire::decode(context).map_err(Error::Refused)?;
    memory.rewind().and_then(|()| memory.write_all(&vec![0; length])).and_then(|()| memory.set_len(0)).map_err(lost)?;
    Ok((number, context))
}

/// This host's address on the way to one of these; nothing goes out for that.
pub(crate) fn facing(others: impl IntoIterator<Item = impl ToSocketAddrs>) -> Option<IpAddr> {
    let others = others.into_iter().filter_map(|other| other.to_socket_addrs().ok()).flatten();
    others.into_iter().find_map(|other: SocketAddr| {
        let any: SocketAddr = if other.is_ipv4() { ([0; 4], 0).into() } else { ([0u16; 8], 0).into() };
        let socket = UdpSocket::bind(any).ok()?;
        socket.connect(other).ok()?;
        socket.local_addr().ok().map(|own| own.ip())
    })
}

const MAGIC: [u8; 8] = *b"GBSNCTX1";
/// No order has more.
const LONGEST: usize = 64 << 20;

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use super::*;

    fn delivered() -> (OwnedFd, String) {
        let secret = || Secret::from(&b"between us"[..]);
        let (credential, ready, creator, own) = (secret(), secret(), Secret::default(), secret());
        let context = Context { order: [7; 16], credential, ready, creator, own };
        let memory = deliver(3, &Secret::from(wire::encode(&context).as_slice())).unwrap();
        let variable = memory.as_raw_fd().to_string();
        (memory, variable)
    }

    fn refusal(variable: &str) -> String {
        take_from(Some(variable.as_ref())).map(drop).unwrap_err().to_string()
    }

    #[test]
    fn a_context_is_taken_once() {
        let (memory, variable) = delivered();
        let (number, context) = take_from(Some(variable.as_ref())).unwrap();
        assert_eq!((number, context.own.as_bytes()), (3, &b"between us"[..]));
        assert_eq!(File::from(memory.try_clone().unwrap()).metadata().unwrap().len(), 0, "it is not there any more");
        assert!(refusal(&variable).contains("was taken already"));
    }

    #[test]
    fn what_is_no_context_is_left_alone() {
        assert!(take_from(None).map(drop).unwrap_err().to_string().contains("made by start_process"));
        assert!(refusal("first").contains("no number of a descriptor"));
        assert!(refusal("4000000").contains("is lost"));
        let mut other = File::from(memfd_create("another", MemfdFlags::CLOEXEC).unwrap());
        other.write_all(&[b'x'; 100]).unwrap();
        assert!(refusal(&other.as_raw_fd().to_string()).contains("something else is there"));
        let mut kept = Vec::new();
        other.rewind().and_then(|()| other.read_to_end(&mut kept)).unwrap();
        assert_eq!(kept, [b'x'; 100]);
        let (memory, variable) = delivered();
        File::from(memory.try_clone().unwrap()).set_len(40).unwrap();
        assert!(refusal(&variable).contains("none of this version"));
    }
}
