//! A cluster whose messages take as long as one says, without packets: for the traces here and for the fuzz target.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use gambeson_sim::process::{Action, Cluster};
use gambeson_sim::time::Time;

/// What a replay came to.
#[derive(Default)]
pub(crate) struct Replayed {
    /// When the last job ended.
    pub(crate) end: Time,
    pub(crate) messages: u64,
    /// Whether it was cut off, for it went on for too long.
    pub(crate) cut_off: bool,
}

/// Replays until nothing more happens, or until the time or so many actions are over. After `times` of the number of an
/// action, a message has left its node and is there.
pub(crate) fn replay(cluster: &mut Cluster, times: impl Fn(u64) -> [Time; 2], until: Time, actions: u64) -> Replayed {
    let mut replayed = Replayed::default();
    let mut events = BinaryHeap::new();
    let (mut out, mut number) = (Vec::new(), 0);
    cluster.start(&mut out);
    loop {
        for action in out.drain(..) {
            number += 1;
            match action {
                Action::Wake { at, token } => events.push(Reverse((at, number, 0, token))),
                Action::Send { at, message } => {
                    replayed.messages += 1;
                    let [left, there] = times(number);
                    events.push(Reverse((at + left, number, 1, message.id.into())));
                    events.push(Reverse((at + there, number, 2, message.id.into())));
                }
                Action::Finished { at, .. } => replayed.end = at,
            }
        }
        let Some(Reverse((now, _, kind, value))) = events.pop() else { break };
        match kind {
            0 => cluster.wake(now, value, &mut out),
            1 => cluster.injected(now, value as u32, &mut out),
            _ => cluster.arrived(now, value as u32, &mut out),
        }
        if now > until || number > actions {
            replayed.cut_off = true;
            break;
        }
    }
    replayed
}
