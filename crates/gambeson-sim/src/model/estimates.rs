//! The papers' estimates on paper: collisions, forging, storage, area and power, and what their figures imply.

/// Packets of so many bytes that a link carries in a second. The papers take the signalling rate for the data rate.
#[must_use]
pub fn packets_per_second(rate_gbps: f64, bytes: u32) -> f64 {
    rate_gbps * 1e9 / 8.0 / f64::from(bytes)
}

/// Random numbers that so many nodes use up in so many years of 365.25 days, one for each packet.
#[must_use]
pub fn numbers_used(nodes: f64, packets_per_second: f64, years: f64) -> f64 {
    nodes * packets_per_second * years * 31_557_600.0
}

/// P_collision: that two of `n` random numbers of `bits` bits are the same (IBA paper, eq. 1).
#[must_use]
pub fn collision_probability(n: f64, bits: u32) -> f64 {
    -(-n * (n - 1.0) / 2.0 / 2f64.powi(bits as i32)).exp_m1()
}

/// Seconds until a packet under a random tag is taken, on average over half of all tags, as the paper counts.
#[must_use]
pub fn forging_seconds(tag_bits: u32, packets_per_second: f64) -> f64 {
    2f64.powi(tag_bits as i32 - 1) / packets_per_second
}

/// Seconds until a sequence number of so many bits comes again.
#[must_use]
pub fn sequence_wrap_seconds(bits: u32, packets_per_second: f64) -> f64 {
    2f64.powi(bits as i32) / packets_per_second
}

/// Pairs of `n` adapters, each of which has a key.
#[must_use]
pub fn pairs(n: u64) -> u64 {
    n * n.saturating_sub(1) / 2
}

/// Seconds in which AES makes so many 128-bit keys.
#[must_use]
pub fn generation_seconds(keys: u64, rate_gbps: f64) -> f64 {
    keys as f64 * 128.0 / (rate_gbps * 1e9)
}

/// Hops between the most distant switches of a mesh: 38 for 20 x 20, where the paper prints 39.
#[must_use]
pub fn mesh_diameter(sides: &[u32]) -> u32 {
    sides.iter().map(|side| side.saturating_sub(1)).sum()
}

/// The latency without security that an overhead in time and the same as a share imply, in nanoseconds.
#[must_use]
pub fn implied_base_ns(overhead_ns: f64, share: f64) -> f64 {
    overhead_ns / share
}

/// The share of accesses that miss, from two latencies above the one without security: with the cache and without.
#[must_use]
pub fn implied_miss_rate(overhead_cached: f64, overhead_uncached: f64, overhead_gcm: f64) -> f64 {
    (overhead_cached - overhead_gcm) / (overhead_uncached - overhead_gcm)
}

/// Area and power of a part of the adapter, at 45 nm (SKC paper, section 3.1).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Silicon {
    /// What it is.
    pub part: &'static str,
    /// Square millimetres.
    pub area_mm2: f64,
    /// Watts.
    pub power_w: f64,
}

/// A circuit of so many gates at a clock rate: 1480 kgates/mm2 and 2.6 nW/MHz/gate.
#[must_use]
pub fn silicon(part: &'static str, gates: f64, clock_mhz: f64) -> Silicon {
    Silicon { part, area_mm2: gates / 1_480_000.0, power_w: gates * clock_mhz * 2.6e-9 }
}

/// The adapter's parts and their sum: GCM by the technology's figures, the memories as the paper has them from CACTI.
#[must_use]
pub fn adapter_silicon() -> [Silicon; 4] {
    let gcm = silicon("GCM, 500,000 gates at 271 MHz", 500_000.0, 271.0);
    let cache = Silicon { part: "SKC, 16 KB of 32 B blocks", area_mm2: 2.3, power_w: 0.1 };
    let buffer = Silicon { part: "prefetch buffer, 16 entries", area_mm2: 0.19, power_w: 0.09 };
    let total = Silicon {
        part: "total",
        area_mm2: gcm.area_mm2 + cache.area_mm2 + buffer.area_mm2,
        power_w: gcm.power_w + cache.power_w + buffer.power_w,
    };
    [gcm, cache, buffer, total]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(found: f64, expected: f64, digits: f64) {
        assert!((found / expected - 1.0).abs() < digits, "{found} in place of {expected}");
    }

    #[test]
    fn collisions_by_the_papers_count_and_by_the_right_one() {
        check(collision_probability(2f64.powi(61), 128), 0.00778, 1e-3);
        let used = numbers_used(1024.0, packets_per_second(2.5, 1024), 10.0);
        check(used.log2(), 56.45, 1e-3);
        check(collision_probability(used, 128), 1.4e-5, 0.03);
        check(collision_probability(1e3, 128), 1e6 / 2f64.powi(129), 2e-3);
    }

    #[test]
    fn forging_takes_hours_at_2_5_gbps_and_a_minute_at_100() {
        check(forging_seconds(32, 2f64.powi(18)) / 3600.0, 2.28, 0.005);
        check(forging_seconds(32, packets_per_second(2.5, 1024)) / 3600.0, 1.95, 0.005);
        check(forging_seconds(32, packets_per_second(2.5, 64)) / 60.0, 7.33, 0.005);
        check(forging_seconds(32, packets_per_second(100.0, 256)), 44.0, 0.005);
        check(sequence_wrap_seconds(24, packets_per_second(2.5, 1024)), 55.0, 0.005);
    }

    #[test]
    fn keys_of_a_thousand_adapters() {
        assert_eq!(pairs(1024), 523_776);
        check(generation_seconds(pairs(1024), 30.0), 2.2e-3, 0.02);
        assert_eq!(mesh_diameter(&[20, 20]), 38);
    }

    #[test]
    fn silicon_adds_up() {
        let [gcm, .., total] = adapter_silicon();
        check(gcm.area_mm2, 0.34, 0.01);
        check(gcm.power_w, 0.35, 0.01);
        check(total.area_mm2, 2.83, 0.005);
        check(total.power_w, 0.54, 0.01);
    }

    #[test]
    fn what_the_figures_imply() {
        let shares = [0.124, 0.055, 0.026, 0.012, 0.007];
        for (share, base) in shares.into_iter().zip([2581.0, 5818.0, 12_308.0, 26_667.0, 45_714.0]) {
            check(implied_base_ns(320.0, share), base, 1e-3);
        }
        check(implied_base_ns(5000.0 + 222.0, 1.6), 3264.0, 1e-3);
        // SKC-6 adds 29 % and NoSKC 160 % to 3.26 us, 222 ns of it GCM.
        check(implied_miss_rate(0.29, 1.6, 222.0 / 3264.0), 0.145, 0.01);
    }
}
