//! How long AES-GCM takes a packet: latency of the first block, of those behind it and of the tag, and how long the
//! pipeline is taken (SKC paper section 4.1, IBA paper section 7.2).

use serde::{Deserialize, Serialize};

use crate::time::Time;

const BLOCK_LEN: u32 = 16;
const FEMTOSECONDS: f64 = 1e9;

/// The GCM hardware: `units` pipelines of AES and GHASH side by side (1X to 12X), each cycle as long as the clock says.
///
/// A packet of n blocks of 16 bytes keeps the pipelines for `interval` x ceil(n / units) cycles and leaves
/// `first_block` + `next_block` x (ceil(n / units) - 1) + `tag` cycles after it entered.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Gcm {
    /// Clock rate in MHz.
    pub clock_mhz: f64,
    /// Cycles until the first block is through AES.
    pub first_block: f64,
    /// Cycles that each further block adds to the latency; 0 where the link is the slower one and hides them.
    pub next_block: f64,
    /// Cycles from the last block to the tag.
    pub tag: f64,
    /// Cycles between two blocks that enter one pipeline: what limits the throughput.
    pub interval: f64,
    /// Pipelines side by side.
    pub units: u32,
}

impl Gcm {
    /// SKC paper: 12 cycles, 1 for each further block, 2 for the tag, at 270 MHz (34.6 Gb/s).
    ///
    /// The paper counts "30 cycles" for 256 bytes, its own rule gives 29; the rule is what holds here: 107.4 ns an
    /// end, 214.8 ns both, where the paper has "approximately 220".
    pub const SKC_PAPER: Gcm =
        Gcm { clock_mhz: 270.0, first_block: 12.0, next_block: 1.0, tag: 2.0, interval: 1.0, units: 1 };

    /// IBA paper: 80 ns for AES and 80 ns for the last multiplication by H, 320 ns for both ends, whatever the length.
    /// The throughput is the lower end of the 30 to 70 Gb/s that the paper cites, per unit.
    pub const IBA_PAPER: Gcm =
        Gcm { clock_mhz: 1000.0, first_block: 80.0, next_block: 0.0, tag: 80.0, interval: 128.0 / 30.0, units: 1 };

    /// Bits that all pipelines together take in a second, in Gb/s.
    #[must_use]
    pub fn throughput_gbps(&self) -> f64 {
        128.0 * f64::from(self.units) * self.clock_mhz / self.interval / 1e3
    }

    pub(super) fn validate(&self) -> Result<(), String> {
        let cycles = [self.first_block, self.next_block, self.tag, self.interval];
        if !(1.0..=1e6).contains(&self.clock_mhz) {
            return Err(format!("gcm.clock_mhz is {}; give a rate from 1 to 1e6 MHz", self.clock_mhz));
        }
        if !cycles.iter().all(|cycles| (0.0..=1e6).contains(cycles)) {
            return Err("gcm: a count of cycles is below 0 or above a million; give what the pipeline takes".into());
        }
        if !(1..=4096).contains(&self.units) {
            return Err(format!("gcm.units is {}; give 1 to 4096 pipelines, the papers have 1 to 12", self.units));
        }
        if self.next_block > self.interval {
            return Err(format!(
                "gcm.next_block ({}) is longer than gcm.interval ({}), so that blocks would leave slower than they \
                 enter; raise the interval",
                self.next_block, self.interval
            ));
        }
        Ok(())
    }
}

impl Default for Gcm {
    fn default() -> Self {
        Gcm::SKC_PAPER
    }
}

/// The same, ready to be asked for every packet: whole femtoseconds in place of cycles.
#[derive(Clone, Copy, Debug)]
pub(super) struct GcmTiming {
    once_fs: u64,
    next_fs: u64,
    interval_fs: u64,
    pub(super) first_block: Time,
    block_bytes: u32,
}

impl GcmTiming {
    pub(super) fn new(gcm: &Gcm) -> Self {
        let femtoseconds = |cycles: f64| (cycles / gcm.clock_mhz * FEMTOSECONDS).round() as u64;
        GcmTiming {
            once_fs: femtoseconds(gcm.first_block + gcm.tag),
            next_fs: femtoseconds(gcm.next_block),
            interval_fs: femtoseconds(gcm.interval),
            first_block: picoseconds(femtoseconds(gcm.first_block)),
            block_bytes: BLOCK_LEN * gcm.units,
        }
    }

    /// From the first byte in to the tag.
    pub(super) fn latency(&self, bytes: u32) -> Time {
        picoseconds(self.once_fs + self.next_fs * (self.rounds(bytes) - 1))
    }

    /// How long no other packet can enter.
    pub(super) fn occupancy(&self, bytes: u32) -> Time {
        picoseconds(self.interval_fs * self.rounds(bytes))
    }

    fn rounds(&self, bytes: u32) -> u64 {
        u64::from(bytes.div_ceil(self.block_bytes).max(1))
    }
}

fn picoseconds(femtoseconds: u64) -> Time {
    (femtoseconds + 500) / 1000
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(gcm: Gcm, bytes: u32, latency_ps: Time, occupancy_ps: Time) {
        let timing = GcmTiming::new(&gcm);
        assert_eq!(timing.latency(bytes), latency_ps, "{bytes} B");
        assert_eq!(timing.occupancy(bytes), occupancy_ps, "{bytes} B");
    }

    #[test]
    fn skc_preset_follows_the_papers_rule() {
        // 29 and 16 cycles of 1/270 us, then 14 and 1, 15 and 2.
        check(Gcm::SKC_PAPER, 256, 107_407, 59_259);
        check(Gcm::SKC_PAPER, 16, 51_852, 3_704);
        check(Gcm::SKC_PAPER, 17, 55_556, 7_407);
        check(Gcm::SKC_PAPER, 0, 51_852, 3_704);
        assert!((Gcm::SKC_PAPER.throughput_gbps() - 34.56).abs() < 1e-9);
    }

    #[test]
    fn iba_preset_is_160_ns_an_end_at_any_length() {
        for bytes in [64, 128, 256, 512, 1024] {
            check(Gcm::IBA_PAPER, bytes, 160_000, u64::from(bytes) * 8000 / 30 + u64::from(bytes * 8000 % 30 >= 15));
        }
        let wide = Gcm { units: 12, ..Gcm::IBA_PAPER };
        assert!((wide.throughput_gbps() - 360.0).abs() < 1e-9);
        // 64 blocks are 6 rounds of 12.
        check(wide, 1024, 160_000, 25_600);
    }

    #[test]
    fn width_divides_the_blocks() {
        check(Gcm { units: 4, ..Gcm::SKC_PAPER }, 256, 62_963, 14_815);
    }
}
