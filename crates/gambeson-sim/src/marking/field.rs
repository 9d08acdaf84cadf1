//! The marking field: the 38 bits of the destination GID that are zero in link-local and in site-local addresses, how
//! far they reach, and what writing them does to the packet's tag (IBA paper, sections 5.4.1 and 6.2, Tables 2 and 3).
//!
//! ```text
//!  bit 127   118 117                    80 79        64 63                 0
//!      | prefix  |     marking field      |  (subnet)  |   interface        |
//! ```
//!
//! The GID belongs to what the ICRC covers, and so to what the tag in its place covers: a switch that marks breaks the
//! tag. The paper says nothing of it. [`protected`] with `masked` is the remedy: both ends compute the tag with the
//! field as zero, as they do for the fields that the standard calls variant.

/// Bits of the marking field.
pub const FIELD_BITS: u32 = 38;

const FIELD_SHIFT: u32 = 80;
const FIELD_MASK: u128 = ((1 << FIELD_BITS) - 1) << FIELD_SHIFT;
const PREFIX_SHIFT: u32 = 118;
const LINK_LOCAL: u128 = 0b11_1111_1010;
const SITE_LOCAL: u128 = 0b11_1111_1011;

/// The GID with a mark in its field. A packet that leaves the site is not marked, as its address needs all bits.
#[must_use]
pub fn with_mark(gid: u128, mark: u64) -> u128 {
    if stays_in_site(gid) { (gid & !FIELD_MASK) | ((u128::from(mark) << FIELD_SHIFT) & FIELD_MASK) } else { gid }
}

/// The mark in a GID; 0 in one that leads out of the site.
#[must_use]
pub fn mark(gid: u128) -> u64 {
    if stays_in_site(gid) { ((gid & FIELD_MASK) >> FIELD_SHIFT) as u64 } else { 0 }
}

/// The bits of a GID that the tag covers: all of them, or with `masked` those that no switch writes.
#[must_use]
pub fn protected(gid: u128, masked: bool) -> u128 {
    if masked && stays_in_site(gid) { gid & !FIELD_MASK } else { gid }
}

/// Whether a GID has the link-local or the site-local prefix.
#[must_use]
pub fn stays_in_site(gid: u128) -> bool {
    matches!(gid >> PREFIX_SHIFT, LINK_LOCAL | SITE_LOCAL)
}

/// A link-local GID, its field zero.
#[must_use]
pub fn link_local(interface: u64) -> u128 {
    LINK_LOCAL << PREFIX_SHIFT | u128::from(interface)
}

/// A site-local GID, its field zero.
#[must_use]
pub fn site_local(subnet: u16, interface: u64) -> u128 {
    SITE_LOCAL << PREFIX_SHIFT | u128::from(subnet) << 64 | u128::from(interface)
}

/// The field shared by marks and time stamps (section 6.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Split {
    /// Bits of the mark.
    pub mark: u32,
    /// Bits of the time stamp.
    pub stamp: u32,
}

impl Split {
    /// What is left for time stamps beside marks of so many bits.
    pub fn beside(mark: u32) -> Result<Self, String> {
        match FIELD_BITS.checked_sub(mark) {
            Some(stamp) => Ok(Split { mark, stamp }),
            None => Err(too_small(mark, FIELD_BITS)),
        }
    }

    /// Ticks until stamps repeat.
    #[must_use]
    pub fn stamps(&self) -> u64 {
        1 << self.stamp
    }
}

/// Table 2 as printed: hops that the field holds at so many ports a switch, rounded up.
#[must_use]
pub fn dpm_hops_printed(ports: u32, field_bits: u32) -> u32 {
    (f64::from(field_bits) / f64::from(ports).log2()).ceil() as u32
}

/// Table 2 corrected: the most hops whose ways, ports to the power of hops, the field can tell apart.
#[must_use]
pub fn dpm_hops(ports: u32, field_bits: u32) -> u32 {
    let mut ways = u128::from(ports.max(2));
    let mut hops = 0;
    while ways <= 1 << field_bits {
        ways *= u128::from(ports.max(2));
        hops += 1;
    }
    hops
}

/// What is left of them when each switch writes its port in whole bits of its own, as section 5.4.2 and
/// [`super::Dpm`] do: the same where ports are a power of two, else fewer.
#[must_use]
pub fn dpm_hops_in_whole_bits(ports: u32, field_bits: u32) -> u32 {
    field_bits / index_bits(ports).max(1)
}

/// The largest fat tree of switches with so many ports each, as Table 2 counts: ports to the power of hops.
#[must_use]
pub fn dpm_largest(ports: u32, hops: u32) -> f64 {
    f64::from(ports).powi(hops as i32)
}

/// Table 3 corrected: side of the largest mesh of so many dimensions; a distance has a sign.
#[must_use]
pub fn mesh_side(dimensions: u32, field_bits: u32) -> u64 {
    1 << (field_bits / dimensions).saturating_sub(1)
}

/// Table 3 corrected: side of the largest torus; distances are modulo the side and need no sign.
#[must_use]
pub fn torus_side(dimensions: u32, field_bits: u32) -> u64 {
    1 << (field_bits / dimensions)
}

/// Table 3 corrected: bits for a mesh of `side` in each of so many dimensions, `dimensions` x (log side + 1). Printed
/// with "- 2" and "- 3" for two and three dimensions, which should be "+ 2" and "+ 3".
#[must_use]
pub fn mesh_bits(side: u32, dimensions: u32) -> u32 {
    dimensions * (index_bits(side) + 1)
}

/// Table 3 as printed.
#[must_use]
pub fn mesh_bits_printed(side: u32, dimensions: u32) -> u32 {
    (dimensions * index_bits(side)).saturating_sub(dimensions)
}

/// Bits that tell `count` things apart.
#[must_use]
pub fn index_bits(count: u32) -> u32 {
    count.saturating_sub(1).checked_ilog2().map_or(0, |log| log + 1)
}

pub(super) fn too_small(bits: u32, field_bits: u32) -> String {
    format!(
        "marks of this topology take {bits} bits and the field has {field_bits}; use a smaller topology, fewer time \
         stamp bits or a marking with fewer bits"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_field_is_what_both_prefixes_leave_zero() {
        let gids = [link_local(u64::MAX), site_local(u16::MAX, u64::MAX)];
        let full = (1 << FIELD_BITS) - 1;
        for gid in gids {
            assert!(stays_in_site(gid));
            assert_eq!(mark(gid), 0);
            assert_eq!(gid & with_mark(0, full), 0);
            assert_eq!(mark(with_mark(gid, full)), full);
            assert_eq!(with_mark(with_mark(gid, full), 0), gid);
        }
        assert_eq!(gids.map(|gid| gid >> 64), [0xfe80_0000_0000_0000, 0xfec0_0000_0000_ffff]);
    }

    #[test]
    fn marks_break_the_tag_and_masking_mends_it() {
        for gid in [link_local(7), site_local(3, 7)] {
            let marked = with_mark(gid, 0x2a);
            assert_ne!(protected(marked, false), protected(gid, false));
            assert_eq!(protected(marked, true), protected(gid, true));
            assert_ne!(protected(marked ^ 1, true), protected(gid, true), "the address itself stays covered");
        }
    }

    #[test]
    fn a_packet_that_leaves_the_site_is_not_marked() {
        let global = 0x2001_0db8_u128 << 96 | 7;
        assert_eq!(with_mark(global, 5), global);
        assert_eq!(mark(global), 0);
        assert_eq!(protected(global, true), global);
    }

    #[test]
    fn table_2_corrected_and_printed() {
        let check = |ports, printed, corrected, whole_bits| {
            assert_eq!(dpm_hops_printed(ports, FIELD_BITS), printed, "{ports} ports");
            assert_eq!(dpm_hops(ports, FIELD_BITS), corrected, "{ports} ports");
            assert_eq!(dpm_hops_in_whole_bits(ports, FIELD_BITS), whole_bits, "{ports} ports");
        };
        check(24, 9, 8, 7);
        check(4, 19, 19, 19);
        check(16, 10, 9, 9);
        check(36, 8, 7, 6);
        check(2, 38, 38, 38);
        assert_eq!(dpm_largest(16, 9), 2f64.powi(36));
    }

    #[test]
    fn table_3_corrected_and_printed() {
        assert_eq!((mesh_side(2, FIELD_BITS), mesh_side(3, FIELD_BITS)), (1 << 18, 1 << 11));
        assert_eq!((torus_side(2, FIELD_BITS), torus_side(3, FIELD_BITS)), (1 << 19, 1 << 12));
        assert_eq!((mesh_bits(1 << 18, 2), mesh_bits(1 << 11, 3)), (38, 36));
        assert_eq!((mesh_bits_printed(1 << 18, 2), mesh_bits_printed(1 << 11, 3)), (34, 30));
        assert_eq!([1, 2, 3, 4, 5, 1 << 31].map(index_bits), [0, 1, 2, 2, 3, 31]);
    }

    #[test]
    fn stamps_beside_the_marks_of_a_64_by_64_mesh_last_194_days() {
        let split = Split::beside(mesh_bits(64, 2)).expect("14 of 38 bits");
        assert_eq!((split.mark, split.stamp), (14, 24));
        assert_eq!(split.stamps() / 86_400, 194);
        assert_eq!(Split::beside(0).expect("no marks").stamps() / 31_557_600, 8710);
        assert!(Split::beside(39).is_err_and(|sentence| sentence.contains("take 39 bits")));
    }
}
