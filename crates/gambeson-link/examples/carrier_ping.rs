//! Sends 8 bytes there and back between two processes, over every carrier, both sides spinning or both sleeping, and says
//! how long a round trip takes.
//!
//!     cargo run --release -p gambeson-link --example carrier_ping [LIBFABRIC_PROVIDER[@NODE]]...

use std::io::{self, ErrorKind, IoSlice};
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use gambeson_link::carrier::{Carrier, ofi, shm, tcp};
use rustix::event::epoll::{self, EventData, EventFlags};

const SIZE: usize = 8;
const PATIENCE: Duration = Duration::from_secs(10);
/// So many short runs: on a machine that others use too, some fall between their turns.
const RUNS: usize = 101;
const TRIPS: u32 = 2_000;

#[derive(Clone, Copy)]
enum Waiting {
    Spins,
    Sleeps,
}

fn main() -> io::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match &arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["echo", "tcp", address, waiting] => {
            let address = address.parse().map_err(io::Error::other)?;
            echo(tcp::Tcp::connect(address, PATIENCE)?, waiting_of(waiting))
        }
        ["echo", "shm", name, waiting] => echo(shm::Folder::of_user()?.connect(name, PATIENCE)?, waiting_of(waiting)),
        ["echo", "fabric", provider, address, waiting] => {
            let byte = |at: usize| u8::from_str_radix(&address[at..at + 2], 16).map_err(io::Error::other);
            let address = (0..address.len()).step_by(2).map(byte).collect::<io::Result<Vec<u8>>>()?;
            echo(ofi::Ofi::connect(provider, &address, PATIENCE)?, waiting_of(waiting))
        }
        providers => measure(providers),
    }
}

fn waiting_of(word: &str) -> Waiting {
    if word == "spins" { Waiting::Spins } else { Waiting::Sleeps }
}

fn measure(providers: &[&str]) -> io::Result<()> {
    println!("8 bytes there and back, ns (median of {RUNS} runs; least)");
    for (waiting, word) in [(Waiting::Spins, "spins"), (Waiting::Sleeps, "sleeps")] {
        let listener = tcp::Listener::bind("127.0.0.1:0".parse().expect("an address"))?;
        let echo = start_echo(&["tcp", &listener.address().to_string(), word])?;
        wait_for(&listener)?;
        report("tcp", word, listener.accept()?.expect("somebody has connected"), waiting, echo)?;

        let name = format!("carrier-ping-{}", std::process::id());
        let listener = shm::Folder::of_user()?.listen(&name)?;
        let echo = start_echo(&["shm", &name, word])?;
        wait_for(&listener)?;
        report("shm", word, listener.accept()?.expect("somebody has connected"), waiting, echo)?;

        for named in providers {
            let (provider, node) = named.split_once('@').map_or((*named, None), |(name, node)| (name, Some(node)));
            let mut listener = ofi::Listener::bind(provider, node)?;
            let address: String = listener.address().iter().map(|byte| format!("{byte:02x}")).collect();
            let echo = start_echo(&["fabric", provider, &address, word])?;
            let pinged = loop {
                match listener.accept()? {
                    Some(pinged) => break pinged,
                    None => std::thread::sleep(Duration::from_millis(1)),
                }
            };
            report(named, word, pinged, waiting, echo)?;
        }
    }
    Ok(())
}

fn start_echo(arguments: &[&str]) -> io::Result<Child> {
    Command::new(std::env::current_exe()?).arg("echo").args(arguments).spawn()
}

fn report(carrier: &str, word: &str, pinged: impl Carrier, waiting: Waiting, mut echo: Child) -> io::Result<()> {
    let mut end = End::new(pinged, waiting)?;
    let mut times = Vec::new();
    for run in 0..=RUNS {
        let begun = Instant::now();
        let mut buffer = [0; SIZE];
        for _ in 0..TRIPS {
            end.write(&buffer)?;
            end.read(&mut buffer)?;
        }
        // The first run warms up.
        if run > 0 {
            times.push(begun.elapsed().as_nanos() as u64 / u64::from(TRIPS));
        }
    }
    times.sort_unstable();
    println!("{carrier}, both {word}: {} ({})", times[RUNS / 2], times[0]);
    drop(end);
    echo.wait()?;
    Ok(())
}

fn echo(carrier: impl Carrier, waiting: Waiting) -> io::Result<()> {
    let mut end = End::new(carrier, waiting)?;
    let mut buffer = [0; SIZE];
    loop {
        match end.read(&mut buffer) {
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(()),
            other => other?,
        }
        end.write(&buffer)?;
    }
}

struct End<C> {
    carrier: C,
    waiting: Waiting,
    watch: OwnedFd,
}

impl<C: Carrier> End<C> {
    fn new(carrier: C, waiting: Waiting) -> io::Result<End<C>> {
        let watch = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&watch, carrier.descriptor(), EventData::new_u64(0), carrier.interest())?;
        Ok(End { carrier, waiting, watch })
    }

    fn write(&mut self, bytes: &[u8; SIZE]) -> io::Result<()> {
        let mut at = 0;
        while at < SIZE {
            at += self.carrier.write(&[IoSlice::new(&bytes[at..])])?;
        }
        Ok(())
    }

    fn read(&mut self, into: &mut [u8; SIZE]) -> io::Result<()> {
        let (mut at, mut empty) = (0, 0u32);
        while at < SIZE {
            let count = self.carrier.read(&mut into[at..])?;
            at += count;
            if count > 0 {
                continue;
            }
            empty = empty.wrapping_add(1);
            match self.waiting {
                // Only arming notices that a peer on this host has died.
                Waiting::Spins if empty % 0x10_0000 == 0 => drop(self.carrier.arm(false)?),
                Waiting::Spins => std::hint::spin_loop(),
                Waiting::Sleeps if self.carrier.arm(false)? => {}
                Waiting::Sleeps => sleep(&self.watch)?,
            }
        }
        Ok(())
    }
}

fn sleep(watch: &OwnedFd) -> io::Result<()> {
    let mut events = Vec::with_capacity(1);
    epoll::wait(watch, rustix::buffer::spare_capacity(&mut events), None)?;
    Ok(())
}

fn wait_for(listener: impl AsFd) -> io::Result<()> {
    let watch = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    epoll::add(&watch, listener, EventData::new_u64(0), EventFlags::IN)?;
    sleep(&watch)
}
