//! The threads of threaded handlers: a handler may wait for as long as it likes, so another thread starts while all are
//! taken, up to a bound, and ends when it has had nothing to do for a while.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

type Job = Box<dyn FnOnce() + Send>;

/// Handlers of a domain that run at the same time; those beyond wait their turn.
const THREADS_MAX: usize = 128;
/// How long a thread waits for another handler.
const IDLE: Duration = Duration::from_secs(5);

/// Threads that run handlers; they end with it.
pub(crate) struct Pool(Arc<Work>);

struct Work {
    threads_max: usize,
    queue: Mutex<Queue>,
    more: Condvar,
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    threads: usize,
    idle: usize,
    closed: bool,
}

impl Default for Pool {
    fn default() -> Self {
        Self::of(THREADS_MAX)
    }
}

impl Pool {
    /// Of so many threads at the most.
    pub(crate) fn of(threads_max: usize) -> Self {
        Pool(Arc::new(Work { threads_max, queue: Mutex::default(), more: Condvar::new() }))
    }

    /// Runs a job when a thread is free.
    pub(crate) fn run(&self, job: Job) {
        let mut queue = self.0.queue();
        queue.jobs.push_back(job);
        if queue.idle >= queue.jobs.len() || queue.threads == self.0.threads_max {
            self.0.more.notify_one();
            return;
        }
        let work = self.0.clone();
        match std::thread::Builder::new().name("gambeson-handler".into()).spawn(move || work.serve()) {
            Ok(_) => queue.threads += 1,
            // Those that there are will come to it. Without any, nobody would: the request says that it was dropped.
            Err(_) if queue.threads > 0 => {}
            Err(cause) => {
                eprintln!("gambeson: no thread to run a handler: {cause}");
                let job = queue.jobs.pop_back();
                drop(queue);
                drop(job);
            }
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.0.queue().closed = true;
        self.0.more.notify_all();
    }
}

impl Work {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn serve(&self) {
        let mut queue = self.queue();
        loop {
            if let Some(job) = queue.jobs.pop_front() {
                drop(queue);
                // A request that a panic drops says so to whoever waits: see `Reply`.
                let _ = catch_unwind(AssertUnwindSafe(job));
                queue = self.queue();
                continue;
            }
            if queue.closed {
                break;
            }
            queue.idle += 1;
            let (woken, waited) = self.more.wait_timeout(queue, IDLE).unwrap_or_else(PoisonError::into_inner);
            queue = woken;
            queue.idle -= 1;
            if waited.timed_out() && queue.jobs.is_empty() {
                break;
            }
        }
        queue.threads -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Barrier, mpsc};

    #[test]
    fn jobs_that_wait_for_one_another_all_run() {
        let pool = Pool::default();
        let all = Arc::new(Barrier::new(THREADS_MAX));
        let (done, count) = mpsc::channel();
        for _ in 0..THREADS_MAX {
            let (all, done) = (all.clone(), done.clone());
            pool.run(Box::new(move || {
                all.wait();
                let _ = done.send(());
            }));
        }
        drop(done);
        assert_eq!(count.iter().count(), THREADS_MAX);
    }

    #[test]
    fn a_job_that_panics_ends_alone_and_threads_are_used_again() {
        let pool = Pool::default();
        let (done, outcome) = mpsc::channel();
        for _ in 0..100 {
            pool.run(Box::new(|| std::panic::resume_unwind(Box::new(()))));
            let done = done.clone();
            pool.run(Box::new(move || done.send(()).expect("somebody waits")));
            outcome.recv().expect("it ran");
            // Until those who ran them are free again.
            loop {
                let queue = pool.0.queue();
                if queue.idle == queue.threads {
                    break;
                }
                drop(queue);
                std::thread::yield_now();
            }
        }
        assert!(pool.0.queue().threads <= 2);
    }
}
