//! How the answers of a group become one.

use std::fmt;
use std::sync::Arc;

/// How two answers become one. It is applied in the members' order, so it need not be commutative; and in a grouping that
/// depends on their number alone, so that sums of floating-point numbers are the same each time.
#[derive(Clone)]
pub struct Operation(How);

/// One answer of two, or why there is none.
type Combined = Result<Vec<u8>, String>;
type Own = dyn Fn(&[u8], &[u8]) -> Combined + Send + Sync;

#[derive(Clone)]
enum How {
    BuiltIn(&'static BuiltIn),
    Own(Arc<str>, Arc<Own>),
}

struct BuiltIn {
    name: &'static str,
    combine: fn(&[u8], &[u8]) -> Combined,
}

const CONCATENATE: &BuiltIn = &BuiltIn { name: "+", combine: |one, other| Ok([one, other].concat()) };
const SUM_I64: &BuiltIn = &BuiltIn { name: "+sum-i64", combine: |one, other| i64s(one, other, i64::wrapping_add) };
const MIN_I64: &BuiltIn = &BuiltIn { name: "+min-i64", combine: |one, other| i64s(one, other, i64::min) };
const MAX_I64: &BuiltIn = &BuiltIn { name: "+max-i64", combine: |one, other| i64s(one, other, i64::max) };
const SUM_F64: &BuiltIn =
    &BuiltIn { name: "+sum-f64", combine: |one, other| f64s(one, other, |one, other| one + other) };
const MIN_F64: &BuiltIn = &BuiltIn { name: "+min-f64", combine: |one, other| f64s(one, other, min) };
const MAX_F64: &BuiltIn =
    &BuiltIn { name: "+max-f64", combine: |one, other| f64s(one, other, |one, other| -min(-one, -other)) };
static ALL: [Operation; 7] = [
    Operation::CONCATENATE,
    Operation::SUM_I64,
    Operation::MIN_I64,
    Operation::MAX_I64,
    Operation::SUM_F64,
    Operation::MIN_F64,
    Operation::MAX_F64,
];

/// Longest name of an operation.
const NAME_MAX: usize = 64;

impl Operation {
    /// One answer behind the other.
    pub const CONCATENATE: Operation = Operation(How::BuiltIn(CONCATENATE));
    /// The sums of arrays of `i64`, little-endian, element by element; they wrap around.
    pub const SUM_I64: Operation = Operation(How::BuiltIn(SUM_I64));
    /// The least of each element of arrays of `i64`, little-endian.
    pub const MIN_I64: Operation = Operation(How::BuiltIn(MIN_I64));
    /// The greatest of each element of arrays of `i64`, little-endian.
    pub const MAX_I64: Operation = Operation(How::BuiltIn(MAX_I64));
    /// The sums of arrays of `f64`, little-endian, element by element.
    pub const SUM_F64: Operation = Operation(How::BuiltIn(SUM_F64));
    /// The least of each element of arrays of `f64`, little-endian; NaN if one is.
    pub const MIN_F64: Operation = Operation(How::BuiltIn(MIN_F64));
    /// The greatest of each element of arrays of `f64`, little-endian; NaN if one is.
    pub const MAX_F64: Operation = Operation(How::BuiltIn(MAX_F64));

    /// An own one. Endpoints that pass messages on are given it with [`crate::Handlers::forwards`], under the same name of
    /// 1 to 64 bytes, which must not begin with `+`; where it is missing, answers are passed on as they are.
    ///
    /// # Panics
    /// When the name is none.
    #[must_use]
    pub fn own(name: &str, combine: impl Fn(&[u8], &[u8]) -> Result<Vec<u8>, String> + Send + Sync + 'static) -> Self {
        assert!(
            Self::is_name(name),
            "an operation's name has 1 to {NAME_MAX} bytes and does not begin with +: {name:?}"
        );
        Operation(How::Own(name.into(), Arc::new(combine)))
    }

    /// Whether an operation of a program's own may be called so.
    #[must_use]
    pub fn is_name(name: &str) -> bool {
        !name.is_empty() && name.len() <= NAME_MAX && !name.starts_with('+')
    }

    /// The built-in one of a name.
    pub(super) fn built_in(name: &str) -> Option<&'static Operation> {
        ALL.iter().find(|operation| operation.name() == name)
    }

    pub(super) fn name(&self) -> &str {
        match &self.0 {
            How::BuiltIn(built_in) => built_in.name,
            How::Own(name, _) => name,
        }
    }

    pub(super) fn combine(&self, one: &[u8], other: &[u8]) -> Result<Vec<u8>, String> {
        match &self.0 {
            How::BuiltIn(built_in) => (built_in.combine)(one, other),
            How::Own(_, combine) => combine(one, other),
        }
    }
}

impl fmt::Debug for Operation {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Operation({})", self.name())
    }
}

fn min(one: f64, other: f64) -> f64 {
    if one.is_nan() || one < other { one } else { other }
}

fn i64s(one: &[u8], other: &[u8], combine: impl Fn(i64, i64) -> i64) -> Result<Vec<u8>, String> {
    words(one, other, |one, other| combine(i64::from_le_bytes(one), i64::from_le_bytes(other)).to_le_bytes())
}

fn f64s(one: &[u8], other: &[u8], combine: impl Fn(f64, f64) -> f64) -> Result<Vec<u8>, String> {
    words(one, other, |one, other| combine(f64::from_le_bytes(one), f64::from_le_bytes(other)).to_le_bytes())
}

fn words(one: &[u8], other: &[u8], combine: impl Fn([u8; 8], [u8; 8]) -> [u8; 8]) -> Result<Vec<u8>, String> {
    if one.len() != other.len() || !one.len().is_multiple_of(8) {
        let (one, other) = (one.len(), other.len());
        return Err(format!("answers of {one} and {other} bytes are no arrays of equal length of numbers of 8 bytes"));
    }
    let pairs = one.as_chunks::<8>().0.iter().zip(other.as_chunks::<8>().0);
    Ok(pairs.flat_map(|(one, other)| combine(*one, *other)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes<const N: usize>(words: [[u8; 8]; N]) -> Vec<u8> {
        words.concat()
    }

    #[test]
    fn numbers_are_combined_element_by_element() {
        let (one, other) = ([3_i64, -7, i64::MAX].map(i64::to_le_bytes), [-5_i64, 2, 1].map(i64::to_le_bytes));
        let integers = |operation: Operation| operation.combine(&bytes(one), &bytes(other)).expect("equal lengths");
        assert_eq!(integers(Operation::SUM_I64), bytes([-2, -5, i64::MIN].map(i64::to_le_bytes)));
        assert_eq!(integers(Operation::MIN_I64), bytes([-5, -7, 1].map(i64::to_le_bytes)));
        assert_eq!(integers(Operation::MAX_I64), bytes([3, 2, i64::MAX].map(i64::to_le_bytes)));
        let (one, other) = ([1.5, -2.0, f64::NAN], [0.25, 8.0, 1.0]);
        for (one, other) in [(one, other), (other, one)] {
            let floats = |operation: Operation| {
                let (one, other) = (bytes(one.map(f64::to_le_bytes)), bytes(other.map(f64::to_le_bytes)));
                let came = operation.combine(&one, &other).expect("equal lengths");
                came.as_chunks::<8>().0.iter().map(|word| f64::from_le_bytes(*word)).collect::<Vec<_>>()
            };
            for (operation, first, second) in
                [(Operation::SUM_F64, 1.75, 6.0), (Operation::MIN_F64, 0.25, -2.0), (Operation::MAX_F64, 1.5, 8.0)]
            {
                let came = floats(operation);
                assert_eq!((came[0], came[1]), (first, second));
                assert!(came[2].is_nan());
            }
        }
        assert_eq!(Operation::CONCATENATE.combine(b"ab", b"c").expect("always"), b"abc");
        for (one, other) in [(8, 16), (7, 7)] {
            Operation::SUM_F64.combine(&vec![0; one], &vec![0; other]).expect_err("no arrays of equal length");
        }
    }

    #[test]
    fn every_operation_is_found_by_its_name() {
        let names: std::collections::HashSet<&str> = ALL.iter().map(Operation::name).collect();
        assert_eq!(names.len(), ALL.len());
        assert!(names.iter().all(|name| Operation::built_in(name).is_some_and(|found| found.name() == *name)));
        assert!(Operation::built_in("sum").is_none());
    }
}
