//! Processors: who has them, for how long, and what the schedulers decide (session-key-cache, section 3.3).

use super::{BOOST, CPU, Cluster, Doing, FOREVER, GANG, State};
use crate::process::{Action, Scheduler};
use crate::time::Time;

impl Cluster {
    pub(super) fn set_timer(&mut self, cpu: u32, at: Time, out: &mut Vec<Action>) {
        let timer = &mut self.cpus[cpu as usize].timer;
        *timer = timer.wrapping_add(1);
        if at < FOREVER {
            out.push(Action::Wake { at, token: CPU | u64::from(cpu) << 32 | u64::from(*timer) });
        }
    }

    /// Books the time since the last booking on the running process.
    pub(super) fn account(&mut self, cpu: u32, now: Time) {
        let cpu = &mut self.cpus[cpu as usize];
        let Some(process) = cpu.current.filter(|_| cpu.begun) else { return };
        let time = now - cpu.since;
        cpu.since = now;
        let proc = &mut self.procs[process as usize];
        match &mut proc.doing {
            Doing::Compute(left) => {
                *left -= time;
                self.stats.computing += time;
            }
            Doing::Wait { spin, .. } => {
                if *spin < FOREVER {
                    *spin -= time;
                }
                self.stats.spinning += time;
            }
            Doing::Ended => {}
        }
        if proc.standing.slice < FOREVER {
            proc.standing.run(time);
        }
    }

    /// The timer of a processor has run out: the change-over, the computation, the spinning or the time slice is over.
    pub(super) fn expired(&mut self, cpu: u32, now: Time, out: &mut Vec<Action>) {
        if !self.cpus[cpu as usize].begun {
            self.cpus[cpu as usize].begun = true;
            self.cpus[cpu as usize].since = now;
            return self.go_on(cpu, now, out);
        }
        self.account(cpu, now);
        let process = self.cpus[cpu as usize].current.expect("only a process sets the timer");
        let standing = &mut self.procs[process as usize].standing;
        if standing.slice > 0 {
            return self.go_on(cpu, now, out);
        }
        standing.slice = self.times.quantum;
        standing.boosted = false;
        let level = standing.level();
        if self.cpus[cpu as usize].queue.is_empty() {
            return self.go_on(cpu, now, out);
        }
        self.procs[process as usize].state = State::Ready;
        self.cpus[cpu as usize].queue.expire(process, level, now);
        self.leave(cpu, now, out);
    }

    /// The running process gives up its processor to the next.
    pub(super) fn leave(&mut self, cpu: u32, now: Time, out: &mut Vec<Action>) {
        let state = &mut self.cpus[cpu as usize];
        state.current = None;
        state.timer = state.timer.wrapping_add(1);
        self.next(cpu, now, out);
    }

    pub(super) fn next(&mut self, cpu: u32, now: Time, out: &mut Vec<Action>) {
        if let Some(process) = self.cpus[cpu as usize].queue.pop() {
            self.dispatch(cpu, process, now, 0, out);
        }
    }

    /// Gives an idle processor to a process, `delay` after the present and what the change costs.
    pub(super) fn dispatch(&mut self, cpu: u32, process: u32, now: Time, delay: Time, out: &mut Vec<Action>) {
        self.procs[process as usize].state = State::Running;
        let state = &mut self.cpus[cpu as usize];
        let mut begins = now + delay;
        if state.last.is_some_and(|last| last != process) {
            begins += self.times.switch;
            self.stats.context_switches += 1;
        }
        state.last = Some(process);
        state.current = Some(process);
        state.begun = begins == now;
        state.since = begins;
        if state.begun {
            self.go_on(cpu, now, out);
        } else {
            self.set_timer(cpu, begins, out);
        }
    }

    /// What a blocked process waits for has happened.
    pub(super) fn unblock(&mut self, process: u32, now: Time, out: &mut Vec<Action>) {
        self.stats.interrupts += 1;
        let proc = &mut self.procs[process as usize];
        proc.state = State::Ready;
        proc.standing.sleep(now - proc.blocked_at);
        if self.config.scheduler == Scheduler::DcsSpinBlock {
            proc.standing.boosted = true;
            self.stats.boosts += 1;
        }
        let (cpu, level) = (proc.cpu, proc.standing.level());
        let interrupt = self.times.interrupt;
        let Some(current) = self.cpus[cpu as usize].current else {
            return self.dispatch(cpu, process, now, interrupt, out);
        };
        if level < self.procs[current as usize].standing.level() {
            return self.preempt(cpu, process, now, out);
        }
        self.cpus[cpu as usize].queue.push(process, level);
        // The interrupt takes its time from who runs.
        self.account(cpu, now);
        if !self.cpus[cpu as usize].begun {
            let begins = self.cpus[cpu as usize].since + interrupt;
            self.cpus[cpu as usize].since = begins;
            self.set_timer(cpu, begins, out);
        } else if let Doing::Compute(left) = &mut self.procs[current as usize].doing {
            *left += interrupt;
            self.go_on(cpu, now, out);
        }
    }

    /// Takes the processor from its process and gives it to another.
    pub(super) fn preempt(&mut self, cpu: u32, process: u32, now: Time, out: &mut Vec<Action>) {
        self.account(cpu, now);
        if let Some(current) = self.cpus[cpu as usize].current.take() {
            let proc = &mut self.procs[current as usize];
            proc.state = State::Ready;
            self.cpus[cpu as usize].queue.push(current, proc.standing.level());
        }
        self.dispatch(cpu, process, now, self.times.interrupt, out);
    }

    /// Starts the jobs whose turn it is, in order, as long as each finds its processors free.
    pub(super) fn start_batch(&mut self, now: Time, out: &mut Vec<Action>) {
        while let Some(job) = self.jobs.iter().position(|job| job.started.is_none()) {
            let procs = self.jobs[job].first..self.jobs[job].first + self.jobs[job].job.ranks.len() as u32;
            let cpu = |process: u32| self.procs[process as usize].cpu;
            if procs.clone().any(|process| self.cpus[cpu(process) as usize].owner.is_some()) {
                return;
            }
            for process in procs.clone() {
                let cpu = self.procs[process as usize].cpu;
                self.cpus[cpu as usize].owner = Some(job as u32);
            }
            self.begin(job as u32, now, out);
            for process in procs {
                if self.procs[process as usize].state == State::Ready {
                    self.dispatch(self.procs[process as usize].cpu, process, now, 0, out);
                }
            }
        }
    }

    /// Jobs that need no processor in common share a row, and rows take turns.
    pub(super) fn start_gang(&mut self, out: &mut Vec<Action>) {
        let mut taken: Vec<Vec<bool>> = Vec::new();
        for job in 0..self.jobs.len() as u32 {
            let cpus: Vec<usize> =
                self.procs.iter().filter(|proc| proc.job == job).map(|proc| proc.cpu as usize).collect();
            let row = taken.iter().position(|taken| cpus.iter().all(|&cpu| !taken[cpu])).unwrap_or_else(|| {
                taken.push(vec![false; self.cpus.len()]);
                self.rows.push(Vec::new());
                taken.len() - 1
            });
            cpus.iter().for_each(|&cpu| taken[row][cpu] = true);
            self.rows[row].push(job);
        }
        for job in 0..self.jobs.len() as u32 {
            self.begin(job, 0, out);
        }
        self.row = self.rows.len().saturating_sub(1);
        self.gang(0, out);
    }

    pub(super) fn row_has_ended(&self) -> bool {
        let ended = |&job: &u32| self.jobs[job as usize].finished.is_some();
        self.rows.get(self.row).is_none_or(|row| row.iter().all(ended))
    }

    /// The next row of jobs gets the processors.
    pub(super) fn gang(&mut self, now: Time, out: &mut Vec<Action>) {
        self.gang_timer = self.gang_timer.wrapping_add(1);
        let before = self.row;
        if self.unfinished == 0 {
            return;
        }
        loop {
            self.row = (self.row + 1) % self.rows.len();
            if !self.row_has_ended() {
                break;
            }
        }
        let at = now + self.times.gang;
        out.push(Action::Wake { at, token: GANG | u64::from(self.gang_timer) });
        if before == self.row && now > 0 {
            return;
        }
        for cpu in 0..self.cpus.len() as u32 {
            self.account(cpu, now);
            let state = &mut self.cpus[cpu as usize];
            state.timer = state.timer.wrapping_add(1);
            if let Some(current) = state.current.take() {
                self.procs[current as usize].state = State::Ready;
            }
        }
        let turn = self.gang_timer;
        for place in 0..self.rows[self.row].len() {
            let job = &self.jobs[self.rows[self.row][place] as usize];
            for process in job.first..job.first + job.job.ranks.len() as u32 {
                if self.procs[process as usize].state == State::Ready {
                    self.dispatch(self.procs[process as usize].cpu, process, now, 0, out);
                }
                // The last to end at once has called the next row already.
                if self.gang_timer != turn {
                    return;
                }
            }
        }
    }

    /// The next process of a processor that has unconsumed messages gets it.
    pub(super) fn boost(&mut self, cpu: u32, now: Time, out: &mut Vec<Action>) {
        let state = &self.cpus[cpu as usize];
        let count = state.procs.len();
        if state.procs.iter().all(|&process| self.procs[process as usize].doing == Doing::Ended) {
            return;
        }
        out.push(Action::Wake { at: now + self.times.boost, token: BOOST | u64::from(cpu) << 32 });
        let waiting = |&place: &usize| {
            let proc = &self.procs[self.cpus[cpu as usize].procs[place] as usize];
            proc.unconsumed > 0 && matches!(proc.state, State::Ready | State::Running)
        };
        let next = self.cpus[cpu as usize].boost_next;
        let Some(place) = (next..next + count).map(|place| place % count).find(waiting) else { return };
        self.cpus[cpu as usize].boost_next = place + 1;
        self.stats.boosts += 1;
        for other in 0..count {
            let process = self.cpus[cpu as usize].procs[other];
            let proc = &mut self.procs[process as usize];
            if std::mem::take(&mut proc.standing.boosted) && proc.state == State::Ready {
                let level = proc.standing.level();
                self.cpus[cpu as usize].queue.remove(process);
                self.cpus[cpu as usize].queue.push(process, level);
            }
        }
        let process = self.cpus[cpu as usize].procs[place];
        self.procs[process as usize].standing.boosted = true;
        if self.procs[process as usize].state == State::Ready {
            self.cpus[cpu as usize].queue.remove(process);
            self.preempt(cpu, process, now, out);
        }
    }
}
