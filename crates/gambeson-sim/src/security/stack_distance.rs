//! Stack distances: how many other keys were used since a key was used last, which tells the hits of a fully associative
//! LRU cache of every size from one run.

/// The stack distances of the keys that one adapter looks up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StackDistances {
    /// The keys so far, the most recent first.
    recent: Vec<u64>,
    /// How often each distance came; a cache of more entries than that hits.
    counts: Vec<u64>,
    firsts: u64,
}

impl StackDistances {
    /// A key is looked up.
    pub fn access(&mut self, key: u64) {
        match self.recent.iter().position(|&other| other == key) {
            Some(distance) => {
                self.recent[..=distance].rotate_right(1);
                self.counts[distance] += 1;
            }
            None => {
                self.recent.insert(0, key);
                self.counts.push(0);
                self.firsts += 1;
            }
        }
    }

    /// Counts those of another adapter, which has a cache of its own, too.
    pub fn merge(&mut self, other: &Self) {
        if self.counts.len() < other.counts.len() {
            self.counts.resize(other.counts.len(), 0);
        }
        self.counts.iter_mut().zip(&other.counts).for_each(|(sum, count)| *sum += count);
        self.firsts += other.firsts;
    }

    /// Look-ups.
    #[must_use]
    pub fn lookups(&self) -> u64 {
        self.firsts + self.counts.iter().sum::<u64>()
    }

    /// The most keys that one adapter used: a larger cache hits no more often.
    #[must_use]
    pub fn keys(&self) -> u32 {
        self.counts.len() as u32
    }

    /// The share of look-ups that hit in a cache of so many entries; 1 without any.
    #[must_use]
    pub fn hit_rate(&self, entries: u32) -> f64 {
        let hits: u64 = self.counts.iter().take(entries as usize).sum();
        if self.lookups() == 0 { 1.0 } else { hits as f64 / self.lookups() as f64 }
    }

    /// The fewest entries that reach a hit rate; none, when the first use of each key already misses too often.
    #[must_use]
    pub fn entries_for(&self, rate: f64) -> Option<u32> {
        (1..=self.keys().max(1)).find(|&entries| self.hit_rate(entries) >= rate)
    }
}

#[cfg(test)]
mod tests {
    use rand::{Rng, SeedableRng};
    use rand_xoshiro::Xoshiro256PlusPlus;

    use super::super::{CacheConfig, KeyCache};
    use super::*;

    #[test]
    fn a_cache_of_every_size_hits_as_often_as_the_distances_say() {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(3);
        let streams: Vec<Vec<u64>> = (0..2)
            .map(|_| (0..5_000).map(|_| random.random_range(0..40_u64).min(random.random_range(0..40))).collect())
            .collect();
        let mut sum = StackDistances::default();
        for stream in &streams {
            let mut distances = StackDistances::default();
            stream.iter().for_each(|&key| distances.access(key));
            sum.merge(&distances);
        }
        assert_eq!((sum.lookups(), sum.keys()), (10_000, 40));
        for entries in 1..=45 {
            let mut hits = 0_u32;
            for stream in &streams {
                let mut cache = KeyCache::new(&CacheConfig::of_entries(entries));
                for &key in stream {
                    if cache.find(key).is_some() {
                        hits += 1;
                    } else {
                        cache.insert(key, 0, 0);
                    }
                }
            }
            assert!((sum.hit_rate(entries) - f64::from(hits) / 1e4).abs() < 1e-12, "{entries} entries");
        }
        let entries = sum.entries_for(0.9).expect("90 % can be had");
        assert!(sum.hit_rate(entries) >= 0.9 && sum.hit_rate(entries - 1) < 0.9);
        assert_eq!(sum.entries_for(0.9999), None);
        assert_eq!(StackDistances::default().entries_for(1.0), Some(1));
    }
}
