//! A process that was forked after its domain was opened: it has no keys, does the parent no harm, and may open its own.

use std::time::Duration;

use gambeson_link::{Capability, Config, Domain, Error, Handlers, Identity, Startpoint, Trust};
use gambeson_proto::key_schedule::JobKeys;
use gambeson_proto::secret::Secret32;
use gambeson_proto::suite::Suite;

const PATIENCE: Duration = Duration::from_secs(10);

fn open(shm: bool) -> Domain {
    let (job_id, job_secret, policy_hash) = ([1; 16], Secret32::from_bytes([1; 32]), [1; 32]);
    let job = JobKeys { job_id, job_secret, policy_hash, suite: Suite::Aes256Gcm };
    let mut config = Config::new(Identity::generate().expect("a key"), Trust::default().job(job));
    config.shm = shm;
    Domain::open(config.listen("127.0.0.1:0".parse().expect("an address"))).expect("a domain")
}

/// What went wrong in the child, as its exit status.
fn child(domain: Domain, startpoint: Startpoint, capability: &Capability) -> i32 {
    let refused = |outcome: Result<(), Error>| match outcome {
        Err(Error::Lost(why)) => why.contains("forked"),
        _ => false,
    };
    if !refused(startpoint.send(0, b"from the child")) || !refused(domain.progress(Duration::ZERO).map(drop)) {
        return 1;
    }
    drop(startpoint);
    drop(domain);
    let own = open(false);
    match own.startpoint(capability, PATIENCE).map(|startpoint| startpoint.call(0, b"own", PATIENCE)) {
        Ok(Ok(answer)) if answer == b"own" => 0,
        Ok(Ok(_)) => 2,
        Ok(Err(_)) => 3,
        Err(_) => 4,
    }
}

#[test]
fn a_forked_child_has_no_links_and_leaves_its_parents_alone() {
    for shm in [true, false] {
        let server = open(shm);
        let handlers = Handlers::new().inline(0, |call| call.answer(call.payload));
        let endpoint = server.endpoint(gambeson_link::Attributes::default(), handlers).expect("an endpoint");
        // The parent's own secret, kept where the child finds it: in bytes, as a program that passes it on does.
        let encoded = endpoint.startpoint([]).expect("a startpoint").encode();
        let capability = Capability::decode(&encoded).expect("what was encoded");
        let client = open(shm);
        let startpoint = client.startpoint(&capability, PATIENCE).expect("it can be bound");
        assert_eq!(startpoint.call(0, b"before", PATIENCE).expect("an answer"), b"before");
        // SAFETY: the child ends by _exit. What it does on the way takes no lock that another thread of ours holds but
        // those of the C library, which fork knows of.
        let process = unsafe { libc::fork() };
        assert!(process >= 0, "no fork");
        if process == 0 {
            let status = Capability::decode(&encoded).map_or(9, |capability| child(client, startpoint, &capability));
            // SAFETY: nothing of the parent's is run on the way out.
            unsafe { libc::_exit(status) };
        }
        let mut status = 0;
        // SAFETY: our own child, and an integer of ours.
        assert_eq!(unsafe { libc::waitpid(process, &mut status, 0) }, process);
        assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0, "see `child`: {status:#x}, shm {shm}");
        assert_eq!(startpoint.call(0, b"after", PATIENCE).expect("an answer"), b"after");
        drop(endpoint);
    }
}
