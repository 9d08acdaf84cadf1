//! Two or more processes of one job, which find each other by a file and ask each other over links.
//!
//! ```text
//! gambeson run -- sh -c 'neighbours FILE 2 0 & neighbours FILE 2 1; wait'
//! gambeson run -- mpiexec -n 2 neighbours FILE 2
//! ```
//! Everyone leaves a startpoint in FILE.NUMBER, which only this user can read, and asks the next one who it is. The
//! number is the process's rank, or the last argument.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::time::{Duration, Instant};

use gambeson_link::{Attributes, Capability, Config, Domain, Handlers};

const PATIENCE: Duration = Duration::from_secs(30);
const WHO: u32 = 0;
const DONE: u32 = 1;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let (file, count) = (words.first().ok_or("name a file")?, words.get(1).ok_or("how many are we?")?.parse::<u32>()?);
    let config = Config::from_job()?.listen("127.0.0.1:0".parse()?);
    let number = words.get(2).map(|word| word.parse()).transpose()?.or(config.rank).ok_or("which am I?")?;
    let domain = Domain::open(config)?;
    let (done, finished) = std::sync::mpsc::channel();
    let handlers = Handlers::new()
        .inline(WHO, move |call| {
            let answer = format!("{number}, asked by {} with the role {}", call.peer.name, call.peer.roles.join(", "));
            call.answer(answer.as_bytes());
        })
        .inline(DONE, move |call| {
            let _ = done.send(());
            call.answer(&[]);
        });
    let endpoint = domain.endpoint(Attributes::default().class("neighbours"), handlers)?;
    let mut written =
        OpenOptions::new().write(true).create_new(true).mode(0o600).open(format!("{file}.part{number}"))?;
    written.write_all(&endpoint.startpoint([])?.encode())?;
    fs::rename(format!("{file}.part{number}"), format!("{file}.{number}"))?;

    let next = format!("{file}.{}", (number + 1) % count);
    let deadline = Instant::now() + PATIENCE;
    while !fs::exists(&next)? && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(5));
    }
    let startpoint = domain.startpoint(&Capability::decode(&fs::read(&next)?)?, PATIENCE)?;
    let answer = startpoint.call(WHO, &[], PATIENCE)?;
    println!("{number}: {} ({})", String::from_utf8_lossy(&answer), startpoint.protection());
    startpoint.call(DONE, &[], PATIENCE)?;
    // The other neighbour may still be asking.
    finished.recv_timeout(PATIENCE)?;
    std::thread::sleep(Duration::from_millis(50));
    Ok(())
}
