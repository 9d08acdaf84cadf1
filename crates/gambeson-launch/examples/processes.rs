//! A program that starts itself on other hosts, by their daemons (docs/processes.md):
//!
//! ```sh
//! cargo build -p gambeson-launch --example processes
//! processes h1,h2 4              # four on each of them, which all know each other then
//! ```

use std::error::Error;
use std::sync::{Arc, mpsc};
use std::time::Duration;
use std::{env, process};

use gambeson_launch::authority::user_folder;
use gambeson_launch::child::init_process;
use gambeson_launch::creator::{Creator, Wanted};
use gambeson_launch::processes::Here;
use gambeson_launch::wire::{Host, Program, Secret};
use gambeson_link::{Attributes, Capability, Handlers};

type Outcome = Result<(), Box<dyn Error>>;

/// Handler: who are you?
const WHO: u32 = 0;
/// Handler: ask this one who it is.
const ASK: u32 = 1;
/// Handler: that is all.
const LEAVE: u32 = 2;
const PATIENCE: Duration = Duration::from_secs(30);

fn main() -> Outcome {
    let mut arguments = env::args().skip(1);
    match (arguments.next(), arguments.next()) {
        (Some(word), None) if word == "member" => member(),
        (Some(hosts), Some(count)) => creator(&hosts, count.parse()?),
        _ => Err("usage: processes HOST,HOST... COUNT".into()),
    }
}

/// Starts them, and has each ask its neighbour.
fn creator(hosts: &str, count: usize) -> Outcome {
    let creator = Creator::open(&user_folder(), &[])?;
    let program = env::current_exe()?.into_os_string();
    let program = Program {
        executable: program.clone().into(),
        arguments: vec![program.into(), "member".into()],
        ..Program::default()
    };
    let hosts = hosts.split(',').flat_map(|host| vec![Host::parse(host); count]).collect();
    let wanted = Wanted { hosts, program, context: Secret::from(&b"the ocean"[..]), ..Wanted::default() };
    let processes = creator.start_process(wanted, Here)?;
    let numbers = 0..processes.len() as u32;
    let ready = |number| processes.wait_startpoint(number, PATIENCE)?.ok_or_else(|| "it is not ready in time".into());
    let capabilities: Vec<Capability> = numbers.clone().map(ready).collect::<Result<_, Box<dyn Error>>>()?;
    for (number, capability) in capabilities.iter().enumerate() {
        let next = &capabilities[(number + 1) % capabilities.len()];
        // A copy that this one alone can use.
        let copy = creator.domain().copy_for(next, gambeson_link::KeyHash(*capability.owner()))?;
        let startpoint = creator.domain().startpoint(capability, PATIENCE)?;
        let heard = startpoint.call(ASK, &copy.encode(), PATIENCE)?;
        println!("{number} on {} heard: {}", processes.host(number as u32), String::from_utf8_lossy(&heard));
    }
    for capability in &capabilities {
        creator.domain().startpoint(capability, PATIENCE)?.send(LEAVE, &[])?;
    }
    for number in numbers {
        let status = processes.wait_status(number, PATIENCE)?.ok_or("it does not end")?;
        if status.code() != 0 {
            return Err(format!("process {number} ended with status {}", status.code()).into());
        }
    }
    Ok(())
}

/// One of them.
fn member() -> Outcome {
    let child = Arc::new(init_process(&[])?);
    let (leave, left) = mpsc::channel();
    let (own, asking) = (child.clone(), child.clone());
    let handlers = Handlers::new()
        .threaded(WHO, move |request| {
            let who =
                format!("{} of {}, process {}", own.number(), String::from_utf8_lossy(own.context()), process::id());
            request.answer(who.as_bytes());
        })
        .threaded(ASK, move |request| {
            let sibling = Capability::decode(&request.payload).map_err(|cause| cause.to_string());
            let domain = asking.domain();
            let sibling =
                sibling.and_then(|sibling| domain.startpoint(&sibling, PATIENCE).map_err(|why| why.to_string()));
            match sibling.and_then(|sibling| sibling.call(WHO, &[], PATIENCE).map_err(|why| why.to_string())) {
                Ok(who) => request.answer(&who),
                Err(why) => request.refuse(&why),
            }
        })
        .threaded(LEAVE, move |_| {
            // Who says it twice says it to nobody.
            let _ = leave.send(());
        });
    let endpoint = child.domain().endpoint(Attributes::default(), handlers)?;
    child.ready(&endpoint.startpoint([])?, PATIENCE)?;
    left.recv()?;
    Ok(())
}
