//! The stand-in for SPECjbb2000, whose traffic the SKC paper's authors recorded in a full-system simulator: a load of
//! requests and replies between servers. All that it shares with the benchmark is that everybody waits for answers.
//!
//! In each round every process computes, asks another one, answers who asks it, and waits for its own answer. Whom it
//! asks is drawn anew, so that all keys are used alike.

use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::time::{Time, US};
use crate::trace::{Call, Context, Job, Op};

/// The load; nothing of it is in the paper.
#[derive(Clone, Copy, Debug)]
pub(super) struct RequestReply {
    pub(super) processes: u32,
    pub(super) rounds: u32,
    /// Mean of the exponential times between an answer and the next request.
    pub(super) think_us: f64,
    /// Computation of an answer.
    pub(super) service_us: f64,
    pub(super) request_bytes: u32,
    pub(super) reply_bytes: u32,
}

impl Default for RequestReply {
    fn default() -> Self {
        Self { processes: 16, rounds: 500, think_us: 50.0, service_us: 5.0, request_bytes: 256, reply_bytes: 1024 }
    }
}

const REQUEST: i32 = 0;
const REPLY: i32 = 1;

impl RequestReply {
    /// The load as a job; always the same.
    pub(super) fn job(&self) -> Job {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
        let mut ranks = vec![Vec::new(); self.processes as usize];
        for round in 0..self.rounds {
            let servers = self.derangement(&mut random);
            let mut clients = vec![0; servers.len()];
            (0..).zip(&servers).for_each(|(client, &server)| clients[server as usize] = client);
            for ((ops, to), from) in ranks.iter_mut().zip(servers).zip(clients) {
                let think = -libm::log(1.0 - random.random::<f64>()) * self.think_us;
                let context = Context::program(0);
                let mut push = |gap_us: f64, call| {
                    ops.push(Op { gap: (gap_us * US as f64) as Time, call, record: round });
                };
                push(think, Call::Isend { to, bytes: self.request_bytes, tag: REQUEST, context, slot: 1 });
                push(0.0, Call::Irecv { from: to, tag: REPLY, context, slot: 2 });
                push(0.0, Call::Recv { from, tag: REQUEST, context });
                let answer = Call::Isend { to: from, bytes: self.reply_bytes, tag: REPLY, context, slot: 3 };
                push(self.service_us, answer);
                (1..=3).for_each(|slot| push(0.0, Call::Wait { slot }));
            }
        }
        let name = "request-reply".to_owned();
        Job { file: name.clone(), name, ranks, communicators: vec![(0..self.processes).collect()], ..Job::default() }
    }

    /// Another process for each, no two the same.
    fn derangement(&self, random: &mut Xoshiro256PlusPlus) -> Vec<u32> {
        loop {
            let mut order: Vec<u32> = (0..self.processes).collect();
            for place in (1..order.len()).rev() {
                order.swap(place, random.random_range(0..=place));
            }
            if (0..).zip(&order).all(|(process, &other)| process != other) {
                return order;
            }
        }
    }
}
