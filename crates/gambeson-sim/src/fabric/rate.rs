//! Rates of links, in gigabits of data a second or by the names of InfiniBand and Ethernet.

use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::time::Time;

/// A link's data rate.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
#[serde(
    untagged,
    expecting = "a rate is gigabits a second, or a name: 1x, 2x, 4x, 8x or 12x of sdr, ddr, qdr, fdr10, fdr, edr, hdr or \
                 ndr, as in 1x-sdr, 4x-ndr; or 10g, 25g, 40g, 50g, 100g, 200g, 400g, 800g"
)]
pub enum Rate {
    /// Gigabits of data a second.
    Gbps(f64),
    /// By name; see [`Named`].
    Named(Named),
}

/// A rate's name: InfiniBand's width and generation, or Ethernet's speed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(try_from = "String", into = "String")]
pub enum Named {
    /// So many lanes of a generation, an index into [`GENERATIONS`].
    InfiniBand {
        /// 1, 2, 4, 8 or 12.
        width: u8,
        /// Which of [`GENERATIONS`].
        generation: u8,
    },
    /// Gigabits a second.
    Ethernet(u16),
}

/// InfiniBand's generations and what a lane of each carries in Gb/s after line coding: 8b/10b up to QDR, 64b/66b up to
/// EDR; HDR's and NDR's rates are named after the data.
pub const GENERATIONS: [(&str, f64); 8] = [
    ("sdr", 2.0),
    ("ddr", 4.0),
    ("qdr", 8.0),
    ("fdr10", 10.0),
    ("fdr", 14.0625 * 64.0 / 66.0),
    ("edr", 25.0),
    ("hdr", 50.0),
    ("ndr", 100.0),
];
const WIDTHS: [u8; 5] = [1, 2, 4, 8, 12];
const ETHERNET: [u16; 8] = [10, 25, 40, 50, 100, 200, 400, 800];

impl Named {
    pub(super) const EDR_4X: Named = Named::InfiniBand { width: 4, generation: 5 };

    /// Reads a name like `4x-ndr` or `400g`.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        if let Some(speed) = name.strip_suffix('g') {
            return speed.parse().ok().filter(|speed| ETHERNET.contains(speed)).map(Self::Ethernet);
        }
        let (width, generation) = name.split_once("x-")?;
        let width = width.parse().ok().filter(|width| WIDTHS.contains(width))?;
        let generation = GENERATIONS.iter().position(|&(known, _)| known == generation)? as u8;
        Some(Self::InfiniBand { width, generation })
    }
}

impl TryFrom<String> for Named {
    type Error = String;

    fn try_from(name: String) -> Result<Self, String> {
        Self::parse(&name).ok_or_else(|| format!("{name} is the name of no rate"))
    }
}

impl From<Named> for String {
    fn from(named: Named) -> Self {
        match named {
            Named::InfiniBand { width, generation } => format!("{width}x-{}", GENERATIONS[usize::from(generation)].0),
            Named::Ethernet(speed) => format!("{speed}g"),
        }
    }
}

impl Rate {
    /// Reads what an experiment would have: a number or a name.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Named::parse(text).map(Self::Named).or_else(|| text.parse().ok().map(Self::Gbps))
    }

    /// Gigabits of data a second: after line coding.
    #[must_use]
    pub fn gbps(self) -> f64 {
        match self {
            Self::Gbps(gbps) => gbps,
            Self::Named(Named::InfiniBand { width, generation }) => {
                f64::from(width) * GENERATIONS[usize::from(generation)].1
            }
            Self::Named(Named::Ethernet(speed)) => speed.into(),
        }
    }

    /// Femtoseconds of a byte.
    #[must_use]
    pub fn byte_fs(self) -> u64 {
        (8e6 / self.gbps()).round() as u64
    }

    /// Time that so many bytes take.
    #[must_use]
    pub fn serialisation(self, bytes: u32) -> Time {
        (self.byte_fs() * u64::from(bytes)).div_ceil(1000)
    }

    /// Checks that a link can have it.
    ///
    /// # Errors
    /// A sentence with the remedy.
    pub fn validate(self) -> Result<(), Error> {
        let gbps = self.gbps();
        if (0.001..=100_000.0).contains(&gbps) {
            return Ok(());
        }
        Err(Error::config(format!("a link rate of {gbps} Gb/s; give 0.001 to 100000, or a name like \"4x-ndr\"")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_rates_and_come_back() {
        for (name, gbps) in [
            ("1x-sdr", 2.0),
            ("4x-sdr", 8.0),
            ("12x-ddr", 48.0),
            ("4x-qdr", 32.0),
            ("4x-fdr", 54.545),
            ("4x-edr", 100.0),
            ("2x-hdr", 100.0),
            ("4x-hdr", 200.0),
            ("4x-ndr", 400.0),
            ("400g", 400.0),
            ("800g", 800.0),
        ] {
            let rate = Rate::parse(name).unwrap();
            assert!((rate.gbps() - gbps).abs() < 1e-3, "{name}");
            let Rate::Named(named) = rate else { panic!("{name} is a name") };
            assert_eq!(String::from(named), name);
        }
        assert_eq!(Rate::parse("2.5"), Some(Rate::Gbps(2.5)));
        for no in ["5x-sdr", "4x", "4x-zdr", "33g", "x-sdr", "fast"] {
            assert_eq!(Rate::parse(no), None, "{no}");
        }
    }
}
