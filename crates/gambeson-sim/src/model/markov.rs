//! How many of n processes communicate at a time, if each is ON and OFF for exponential times: a birth-death chain
//! (SKC paper, section 3.2, Fig. 2 and 3).
//!
//! State i is left upwards at (n - i) lambda and downwards at i mu, lambda = 1 / mean OFF, mu = 1 / mean ON. (The paper
//! prints a_{i+1,i} for both.) Its solution is the binomial distribution with q = lambda / (lambda + mu).
//!
//! The paper calls P(X <= x) the hit rate of a cache of x keys. It is the share of time in which the keys of all
//! active processes would fit; [`super::on_off`] has hit rates.

use rand::Rng;

/// The share of its time that a process is ON, from the ratio of its mean OFF to its mean ON.
#[must_use]
pub fn active_share(off_over_on: f64) -> f64 {
    1.0 / (1.0 + off_over_on)
}

/// P_i for i = 0 to n, in closed form: C(n, i) q^i (1 - q)^(n - i), eq. 1 and 2.
#[must_use]
pub fn state_probabilities(n: u64, q: f64) -> Vec<f64> {
    let logs = log_probabilities(n, n, q);
    logs.iter().map(|log| log.exp()).collect()
}

/// F_n(x), the probability that at most x of n are active: eq. 3.
#[must_use]
pub fn at_most(n: u64, x: u64, q: f64) -> f64 {
    if x >= n {
        return 1.0;
    }
    log_probabilities(n, x, q).iter().map(|log| log.exp()).sum::<f64>().min(1.0)
}

/// Cache capacity: the most processes (the paper: keys) of which, with probability `p`, at most `x` are active.
/// `None` if there is no limit, as they never are.
#[must_use]
pub fn capacity(x: u64, p: f64, q: f64) -> Option<u64> {
    if q <= 0.0 || p <= 0.0 {
        return None;
    }
    // F falls with n: double until it is below p, then halve the rest.
    let (mut enough, mut too_many) = (x, 2 * x + 1);
    while at_most(too_many, x, q) >= p {
        enough = too_many;
        too_many = too_many.checked_mul(2).filter(|&n| n < 1 << 52)?;
    }
    while too_many - enough > 1 {
        let middle = enough + (too_many - enough) / 2;
        if at_most(middle, x, q) >= p {
            enough = middle;
        } else {
            too_many = middle;
        }
    }
    Some(enough)
}

/// The least `x` such that at most so many of n are active with probability `p`: the other way round.
#[must_use]
pub fn entries(n: u64, p: f64, q: f64) -> u64 {
    let mut sum = 0.0;
    let below = log_probabilities(n, n, q).into_iter().take_while(|log| {
        sum += log.exp();
        sum < p
    });
    (below.count() as u64).min(n)
}

/// The share of time spent in each state, by stepping the chain through so many transitions from state 0.
#[must_use]
pub fn stepped(n: u64, off_over_on: f64, transitions: u64, random: &mut impl Rng) -> Vec<f64> {
    let (lambda, mu) = (1.0 / off_over_on, 1.0);
    let mut times = vec![0.0; n as usize + 1];
    let mut state = 0u64;
    for _ in 0..transitions {
        let (up, down) = ((n - state) as f64 * lambda, state as f64 * mu);
        times[state as usize] += exponential(random) / (up + down);
        if random.random::<f64>() * (up + down) < up {
            state += 1;
        } else {
            state -= 1;
        }
    }
    let total: f64 = times.iter().sum();
    times.iter().map(|time| time / total).collect()
}

/// An exponential time of mean 1.
pub(super) fn exponential(random: &mut impl Rng) -> f64 {
    -(1.0 - random.random::<f64>()).ln()
}

/// ln P_i for i = 0 to `last`, as P_0 alone is too small for a number at some thousand processes.
fn log_probabilities(n: u64, last: u64, q: f64) -> Vec<f64> {
    if q >= 1.0 {
        return (0..=last).map(|i| if i == n { 0.0 } else { f64::NEG_INFINITY }).collect();
    }
    let odds = (q / (1.0 - q)).ln();
    let mut log = n as f64 * (-q).ln_1p();
    (0..=last)
        .map(|i| {
            if i > 0 {
                log += ((n - i + 1) as f64 / i as f64).ln() + odds;
            }
            log
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use rand_xoshiro::Xoshiro256PlusPlus;

    fn check(found: f64, expected: f64) {
        assert!((found - expected).abs() < 1e-12, "{found} in place of {expected}");
    }

    #[test]
    fn the_papers_example() {
        for (found, expected) in state_probabilities(4, 0.5).iter().zip([1.0, 4.0, 6.0, 4.0, 1.0]) {
            check(*found, expected / 16.0);
        }
        check(at_most(4, 3, 0.5), 15.0 / 16.0);
        check(at_most(5, 3, 0.5), 13.0 / 16.0);
        assert_eq!(capacity(3, 0.9, 0.5), Some(4));
    }

    #[test]
    fn capacities_of_bt_on_the_origin_2000() {
        let q = active_share(7.67);
        let capacities = [128, 256, 512, 1024].map(|entries| capacity(entries, 0.9, q));
        assert_eq!(capacities, [Some(1001), Some(2062), Some(4212), Some(8553)]);
        assert_eq!([1001, 1002, 8553, 8554].map(|keys| entries(keys, 0.9, q)), [128, 129, 1024, 1025]);
        assert_eq!([(5, 0.0), (5, 1.0), (0, 0.5)].map(|(keys, q)| entries(keys, 0.9, q)), [0, 5, 0]);
    }

    #[test]
    fn capacity_is_where_the_distribution_crosses() {
        for x in [0, 1, 7, 50, 300] {
            for q in [0.01, 0.3, 0.9, 1.0] {
                for p in [0.5, 0.9, 0.999] {
                    let n = capacity(x, p, q).expect("q is not 0");
                    assert!(at_most(n, x, q) >= p && at_most(n + 1, x, q) < p, "x {x}, q {q}, p {p}: {n}");
                }
            }
        }
        assert_eq!(capacity(3, 0.9, 0.0), None);
    }

    #[test]
    fn probabilities_add_up_where_the_first_is_too_small_for_a_number() {
        let sum: f64 = state_probabilities(100_000, 0.5).iter().sum();
        assert!((sum - 1.0).abs() < 1e-6, "{sum}");
    }

    #[test]
    fn the_stepped_chain_spends_the_time_of_the_closed_form() {
        for (n, off_over_on) in [(4, 1.0), (5, 7.67), (40, 0.28), (128, 7.67)] {
            let mut random = Xoshiro256PlusPlus::seed_from_u64(n);
            let shares = stepped(n, off_over_on, 2_000_000, &mut random);
            let expected = state_probabilities(n, active_share(off_over_on));
            let far = std::iter::zip(&shares, &expected).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
            assert!(far < 0.005, "n {n}, OFF/ON {off_over_on}: {far}");
        }
    }
}
