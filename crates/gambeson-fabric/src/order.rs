//! Brings records back into the order in which they arrived, for cores that keep messages in order
//! as they match but may complete a small one before the large one ahead of it (ofi_rxm).
//!
//! Receives are matched in the order of posting. A record that is not due waits while a receive
//! that was posted earlier is still with the core, since the missing record may be in that one.
//! When all of those are back, what is missing was lost, and the protocol says so.

use std::collections::VecDeque;

use crate::ring::Buffer;

/// Which receives the core has, and records that wait for one of them.
#[derive(Default)]
pub(crate) struct Order {
    /// Posted receives from the oldest that the core still has, on; `true` once it is back.
    back: VecDeque<bool>,
    /// Number of the first of them.
    first: u64,
    /// Records that wait, by the number of their receive, lowest first.
    waiting: Vec<(u64, Buffer, usize)>,
}

impl Order {
    /// The number for a receive that is being posted.
    pub(crate) fn posted(&mut self) -> u64 {
        self.back.push_back(false);
        self.first + self.back.len() as u64 - 1
    }

    /// A receive is back from the core, or was not taken by it.
    pub(crate) fn returned(&mut self, number: u64) {
        let index = usize::try_from(number - self.first).expect("a few receives are posted at a time");
        self.back[index] = true;
        while self.back.front() == Some(&true) {
            self.back.pop_front();
            self.first += 1;
        }
    }

    /// Whether the core still has a receive that was posted before this one.
    pub(crate) fn may_wait(&self, number: u64) -> bool {
        self.first < number
    }

    /// Keeps a record until an earlier one came.
    pub(crate) fn hold(&mut self, number: u64, buffer: Buffer, len: usize) {
        let at = self.waiting.partition_point(|&(other, ..)| other < number);
        self.waiting.insert(at, (number, buffer, len));
    }

    /// The first waiting record that need not wait any more. `due` says whether its turn has come.
    pub(crate) fn release(&mut self, mut due: impl FnMut(&mut Buffer, usize) -> bool) -> Option<(Buffer, usize)> {
        let first = self.first;
        let ready = |(number, buffer, len): &mut (u64, Buffer, usize)| first >= *number || due(buffer, *len);
        let at = self.waiting.iter_mut().position(ready)?;
        let (_, buffer, len) = self.waiting.remove(at);
        Some((buffer, len))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ring::Store;

    /// Posts receives, brings them back in `arrival` order, and tells in which order the records,
    /// each due only after the one before it, are let through.
    fn check(arrival: &[u64], expected: &[u64]) {
        let mut store = Store::new(4096, None).unwrap();
        let mut order = Order::default();
        for number in 0..arrival.len() as u64 {
            assert_eq!(order.posted(), number);
        }
        let mut through = Vec::new();
        for &number in arrival {
            let mut buffer = store.take(1).unwrap();
            buffer.set_number(number);
            order.returned(number);
            let due = |through: &Vec<u64>, buffer: &Buffer| buffer.number() <= through.len() as u64;
            if order.may_wait(number) && !due(&through, &buffer) {
                order.hold(number, buffer, 1);
            } else {
                through.push(number);
                store.give(buffer);
            }
            while let Some((buffer, _)) = order.release(|buffer, _| due(&through, buffer)) {
                through.push(buffer.number());
                store.give(buffer);
            }
        }
        assert_eq!(through, expected, "after {arrival:?}");
        assert!(store.all_sent(), "every buffer is back");
    }

    #[test]
    fn what_overtook_waits() {
        check(&[0, 1, 2], &[0, 1, 2]);
        check(&[1, 2, 0], &[0, 1, 2]);
        check(&[2, 1, 0, 4, 3], &[0, 1, 2, 3, 4]);
        check(&[3, 0, 2, 1], &[0, 1, 2, 3]);
    }

    #[test]
    fn nothing_waits_when_the_core_has_no_earlier_receive() {
        let mut order = Order::default();
        let (lost, late) = (order.posted(), order.posted());
        order.returned(lost);
        assert!(!order.may_wait(late), "record {lost} is lost for good, and the protocol has to learn it");
    }
}
