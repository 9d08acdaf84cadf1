//! The threads of threaded handlers: as many as there are processors, started when there is work for them.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};

type Job = Box<dyn FnOnce() + Send>;

/// Threads that run handlers; they end with it.
#[derive(Default)]
pub(crate) struct Pool(Mutex<Option<Sender<Job>>>);

impl Pool {
    /// Runs a job when a thread is free.
    pub(crate) fn run(&self, job: Job) {
        let mut sender = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let sender = sender.get_or_insert_with(|| {
            let (sender, receiver) = channel();
            let receiver = Arc::new(Mutex::new(receiver));
            for _ in 0..std::thread::available_parallelism().map_or(1, usize::from).max(2) {
                let receiver = receiver.clone();
                std::thread::spawn(move || work(&receiver));
            }
            sender
        });
        sender.send(job).expect("the threads outlive the sender");
    }
}

fn work(receiver: &Mutex<Receiver<Job>>) {
    loop {
        let job = receiver.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(job) = job else { return };
        // A request that a panic drops says so to whoever waits: see `Reply`.
        let _ = catch_unwind(AssertUnwindSafe(job));
    }
}
