//! Datatypes flattened: where the bytes of one element are, in the order of its type map (MPI-4.1 chapter 5).

use std::collections::HashMap;
use std::ffi::c_int;
use std::sync::{Arc, OnceLock, PoisonError, RwLock};

use crate::abi::Abi;
use crate::error::Failure;
use crate::mpi::Mpi;

/// Consecutive bytes, from a displacement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) at: i64,
    pub(crate) length: i64,
}

/// One element of a datatype.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    /// In the order of the type map, those that touch made one.
    pub(crate) runs: Vec<Run>,
    /// From one element to the next.
    pub(crate) extent: i64,
    /// Bytes of data.
    pub(crate) size: i64,
}

impl Layout {
    /// Whether many elements lie without gaps, in their order, from displacement zero.
    pub(crate) fn is_dense(&self) -> bool {
        self.extent == self.size && self.dense_from() == Some(0)
    }

    /// Where the data of one element begins if it has no gaps.
    pub(crate) fn dense_from(&self) -> Option<i64> {
        match self.runs[..] {
            [] => Some(0),
            [run] => Some(run.at),
            _ => None,
        }
    }

    /// The layout of a datatype.
    ///
    /// # Errors
    /// The class for types, if the library says so or a constructor is unknown.
    pub(crate) fn of(mpi: &Mpi, datatype: usize) -> Result<Arc<Self>, Failure> {
        if datatype == mpi.abi.datatype_null {
            return Err(Failure::new(mpi.abi.class.datatype, "the datatype is MPI_DATATYPE_NULL"));
        }
        // Predefined types are never freed, so their handles mean the same as long as the process lives.
        static NAMED: OnceLock<RwLock<HashMap<usize, Arc<Layout>>>> = OnceLock::new();
        let named = NAMED.get_or_init(RwLock::default);
        if let Some(layout) = named.read().unwrap_or_else(PoisonError::into_inner).get(&datatype) {
            return Ok(layout.clone());
        }
        let shape = Shape::of(mpi, datatype)?;
        if shape.is_element(&mpi.abi) {
            let layout = Arc::new(Self::element(mpi, datatype)?);
            if shape.combiner == mpi.abi.combiner.named {
                named.write().unwrap_or_else(PoisonError::into_inner).insert(datatype, layout.clone());
            }
            return Ok(layout);
        }
        Ok(Arc::new(Self { runs: shape.contents(mpi, datatype)?.runs(mpi)?, ..Self::bounds(mpi, datatype)? }))
    }

    /// Whether a type has no constructor, so that nobody frees it.
    pub(crate) fn is_named(mpi: &Mpi, datatype: usize) -> Result<bool, Failure> {
        Ok(Shape::of(mpi, datatype)?.is_element(&mpi.abi))
    }

    /// Size and extent, without the runs.
    fn bounds(mpi: &Mpi, datatype: usize) -> Result<Self, Failure> {
        Ok(Layout { runs: Vec::new(), extent: mpi.extent(datatype)?.1, size: mpi.size(datatype)? })
    }

    /// A type without a constructor. Where its bytes are shows when an element of ones is unpacked: pairs such as
    /// MPI_SHORT_INT have a gap.
    fn element(mpi: &Mpi, datatype: usize) -> Result<Self, Failure> {
        let mut layout = Self::bounds(mpi, datatype)?;
        let (mut lower, mut extent) = (0, 0);
        // SAFETY: a live type, and results of ours.
        let status = unsafe { (mpi.call.type_true_extent)(datatype, &raw mut lower, &raw mut extent) };
        mpi.check(status, "MPI_Type_get_true_extent")?;
        if extent == layout.size {
            push(&mut layout.runs, lower, layout.size);
            return Ok(layout);
        }
        let ones = vec![0xff_u8; usize::try_from(layout.size).unwrap_or(0)];
        let mut memory = vec![0_u8; usize::try_from(extent).unwrap_or(0)];
        let mut position = 0;
        // SAFETY: the element's bytes lie within its true extent, which the memory has.
        let status = unsafe {
            let base = memory.as_mut_ptr().wrapping_offset(isize::try_from(-lower).unwrap_or(0));
            let size = c_int::try_from(layout.size).unwrap_or(c_int::MAX);
            (mpi.call.unpack)(
                ones.as_ptr().cast(),
                size,
                &raw mut position,
                base.cast(),
                1,
                datatype,
                communicator(mpi),
            )
        };
        mpi.check(status, "MPI_Unpack")?;
        for (at, byte) in (lower..).zip(memory) {
            if byte != 0 {
                push(&mut layout.runs, at, 1);
            }
        }
        Ok(layout)
    }

    /// Adds `count` elements, `stride` bytes apart.
    fn repeat(&self, runs: &mut Vec<Run>, at: i64, count: i64, stride: i64) {
        if stride == self.size
            && let Some(from) = self.dense_from()
        {
            push(runs, at + from, self.size * count);
            return;
        }
        for index in 0..count {
            for run in &self.runs {
                push(runs, at + index * stride + run.at, run.length);
            }
        }
    }
}

/// Adds bytes, to the run before where they touch it.
fn push(runs: &mut Vec<Run>, at: i64, length: i64) {
    if length == 0 {
        return;
    }
    match runs.last_mut() {
        Some(last) if last.at + last.length == at => last.length += length,
        _ => runs.push(Run { at, length }),
    }
}

/// Any communicator will do: packing needs one for its format, which is the same for all.
fn communicator(mpi: &Mpi) -> usize {
    mpi.abi.comm_self
}

/// What MPI_Type_get_envelope says.
struct Shape {
    combiner: c_int,
    integers: i64,
    addresses: i64,
    counts: i64,
    types: i64,
}

impl Shape {
    fn of(mpi: &Mpi, datatype: usize) -> Result<Self, Failure> {
        let mut combiner = 0;
        if let Some(envelope) = mpi.call.type_envelope_large {
            let (mut integers, mut addresses, mut counts, mut types) = (0, 0, 0, 0);
            // SAFETY: the library says whether this is a type; the results are ours.
            let status = unsafe {
                envelope(
                    datatype,
                    &raw mut integers,
                    &raw mut addresses,
                    &raw mut counts,
                    &raw mut types,
                    &raw mut combiner,
                )
            };
            mpi.check(status, "MPI_Type_get_envelope_c")?;
            return Ok(Shape { combiner, integers, addresses, counts, types });
        }
        let (mut integers, mut addresses, mut types) = (0, 0, 0);
        // SAFETY: as above.
        let status = unsafe {
            (mpi.call.type_envelope)(datatype, &raw mut integers, &raw mut addresses, &raw mut types, &raw mut combiner)
        };
        mpi.check(status, "MPI_Type_get_envelope")?;
        Ok(Shape { combiner, integers: integers.into(), addresses: addresses.into(), counts: 0, types: types.into() })
    }

    fn is_element(&self, abi: &Abi) -> bool {
        self.combiner == abi.combiner.named || abi.combiner.elements.contains(&self.combiner)
    }

    fn contents<'a>(&self, mpi: &'a Mpi, datatype: usize) -> Result<Contents<'a>, Failure> {
        let length = |count: i64| usize::try_from(count).unwrap_or(0);
        let mut integers = vec![0 as c_int; length(self.integers)];
        let mut addresses = vec![0_i64; length(self.addresses)];
        let mut counts = vec![0_i64; length(self.counts)];
        // Room for handles of either width.
        let mut handles = vec![0_usize; length(self.types)];
        // SAFETY: the arrays have the lengths that the library named.
        let status = unsafe {
            match mpi.call.type_contents_large {
                Some(contents) => contents(
                    datatype,
                    self.integers,
                    self.addresses,
                    self.counts,
                    self.types,
                    integers.as_mut_ptr(),
                    addresses.as_mut_ptr(),
                    counts.as_mut_ptr(),
                    handles.as_mut_ptr().cast(),
                ),
                None => (mpi.call.type_contents)(
                    datatype,
                    self.integers as c_int,
                    self.addresses as c_int,
                    self.types as c_int,
                    integers.as_mut_ptr(),
                    addresses.as_mut_ptr(),
                    handles.as_mut_ptr().cast(),
                ),
            }
        };
        mpi.check(status, "MPI_Type_get_contents")?;
        let base = handles.as_ptr() as usize;
        let types = (0..handles.len())
            // SAFETY: the library wrote this many handles.
            .map(|index| unsafe { mpi.abi.read_handle(base + index * mpi.abi.handle_size()) })
            .collect();
        Ok(Contents { mpi, combiner: self.combiner, integers, addresses, counts, types })
    }
}

/// What MPI_Type_get_contents gives: the arguments of the constructor. The types in it are given back on drop.
struct Contents<'a> {
    mpi: &'a Mpi,
    combiner: c_int,
    integers: Vec<c_int>,
    addresses: Vec<i64>,
    counts: Vec<i64>,
    types: Vec<usize>,
}

impl Drop for Contents<'_> {
    fn drop(&mut self) {
        for &datatype in &self.types {
            // Those without a constructor are nobody's to free.
            if Shape::of(self.mpi, datatype).is_ok_and(|shape| !shape.is_element(&self.mpi.abi)) {
                let mut datatype = datatype;
                // SAFETY: MPI_Type_get_contents made this reference.
                unsafe { (self.mpi.call.type_free)(&raw mut datatype) };
            }
        }
    }
}

impl Contents<'_> {
    /// The runs of one element.
    fn runs(&self, mpi: &Mpi) -> Result<Vec<Run>, Failure> {
        let combiner = &mpi.abi.combiner;
        let mut runs = Vec::new();
        if self.combiner == combiner.structure {
            self.structure(mpi, &mut runs)?;
            return Ok(runs);
        }
        let old = Layout::of(mpi, *self.types.first().ok_or_else(|| self.unknown())?)?;
        let mut numbers = self.numbers();
        match self.combiner {
            known if known == combiner.dup || known == combiner.resized => return Ok(old.runs.clone()),
            known if known == combiner.contiguous => old.repeat(&mut runs, 0, numbers.one(), old.extent),
            known if known == combiner.vector || known == combiner.hvector => {
                let (count, length, stride) = (numbers.one(), numbers.one(), numbers.place(known == combiner.hvector));
                let stride = if known == combiner.hvector { stride } else { stride * old.extent };
                for block in 0..count {
                    old.repeat(&mut runs, block * stride, length, old.extent);
                }
            }
            known if known == combiner.indexed || known == combiner.hindexed => {
                let count = numbers.one();
                let lengths: Vec<i64> = (0..count).map(|_| numbers.one()).collect();
                let unit = if known == combiner.hindexed { 1 } else { old.extent };
                for length in lengths {
                    let at = numbers.place(known == combiner.hindexed) * unit;
                    old.repeat(&mut runs, at, length, old.extent);
                }
            }
            known if known == combiner.indexed_block || known == combiner.hindexed_block => {
                let (count, length) = (numbers.one(), numbers.one());
                let unit = if known == combiner.hindexed_block { 1 } else { old.extent };
                for _ in 0..count {
                    let at = numbers.place(known == combiner.hindexed_block) * unit;
                    old.repeat(&mut runs, at, length, old.extent);
                }
            }
            known if known == combiner.subarray => self.subarray(mpi, &old, &mut runs),
            known if known == combiner.darray => self.darray(mpi, &old, &mut runs),
            _ => return Err(self.unknown()),
        }
        Ok(runs)
    }

    fn unknown(&self) -> Failure {
        Failure::new(
            self.mpi.abi.class.datatype,
            format!(
                "a datatype of the unknown constructor {} cannot be laid out for a sealed file; \
                 build it with the constructors of MPI-4",
                self.combiner
            ),
        )
    }

    /// The constructor's numbers in their order, whichever array carries them.
    fn numbers(&self) -> Numbers<'_> {
        Numbers {
            large: !self.counts.is_empty(),
            integers: &self.integers,
            addresses: &self.addresses,
            counts: &self.counts,
        }
    }

    fn structure(&self, mpi: &Mpi, runs: &mut Vec<Run>) -> Result<(), Failure> {
        let mut numbers = self.numbers();
        let count = numbers.one();
        let lengths: Vec<i64> = (0..count).map(|_| numbers.one()).collect();
        for (length, &datatype) in lengths.into_iter().zip(&self.types) {
            let at = numbers.place(true);
            let old = Layout::of(mpi, datatype)?;
            old.repeat(runs, at, length, old.extent);
        }
        Ok(())
    }

    fn subarray(&self, mpi: &Mpi, old: &Layout, runs: &mut Vec<Run>) {
        let dimensions = self.integers[0] as usize;
        let (order, array) = if self.counts.is_empty() {
            let array = self.integers[1..=3 * dimensions].iter().map(|&number| i64::from(number)).collect();
            (self.integers[3 * dimensions + 1], array)
        } else {
            (self.integers[1], self.counts.clone())
        };
        let mut axes: Vec<Axis> = (0..dimensions)
            .map(|axis| Axis {
                size: array[axis],
                parts: vec![Run { at: array[2 * dimensions + axis], length: array[dimensions + axis] }],
            })
            .collect();
        if order != mpi.abi.order_c {
            axes.reverse();
        }
        product(&axes, old, 0, runs);
    }

    fn darray(&self, mpi: &Mpi, old: &Layout, runs: &mut Vec<Run>) {
        let (rank, dimensions) = (i64::from(self.integers[1]), self.integers[2] as usize);
        let mut rest = &self.integers[3..];
        let mut take = || {
            let (taken, left) = rest.split_at(dimensions);
            rest = left;
            taken.iter().map(|&number| i64::from(number)).collect::<Vec<_>>()
        };
        let sizes = if self.counts.is_empty() { take() } else { self.counts.clone() };
        let (distributions, arguments, processes) = (take(), take(), take());
        let order = rest[0];
        // The grid of processes is in C order whatever the array's.
        let mut coordinates = vec![0; dimensions];
        let mut left = rank;
        for axis in (0..dimensions).rev() {
            coordinates[axis] = left % processes[axis];
            left /= processes[axis];
        }
        let mut axes: Vec<Axis> = (0..dimensions)
            .map(|axis| {
                let (size, count, own) = (sizes[axis], processes[axis], coordinates[axis]);
                let (distribution, argument) = (distributions[axis] as c_int, arguments[axis]);
                let default = argument == i64::from(mpi.abi.distribute.default);
                let parts = if distribution == mpi.abi.distribute.block {
                    let block = if default { (size + count - 1) / count } else { argument };
                    part(own * block, block, size).into_iter().collect()
                } else if distribution == mpi.abi.distribute.cyclic {
                    let block = if default { 1 } else { argument };
                    (0..).map_while(|turn| part((turn * count + own) * block, block, size)).collect()
                } else {
                    vec![Run { at: 0, length: size }]
                };
                Axis { size, parts }
            })
            .collect();
        if order != mpi.abi.order_c {
            axes.reverse();
        }
        product(&axes, old, 0, runs);
    }
}

/// The numbers of a constructor: integers and addresses, or large counts alone (MPI-4.1 section 5.1.13).
struct Numbers<'a> {
    large: bool,
    integers: &'a [c_int],
    addresses: &'a [i64],
    counts: &'a [i64],
}

impl Numbers<'_> {
    fn one(&mut self) -> i64 {
        if self.large { first(&mut self.counts) } else { first(&mut self.integers).into() }
    }

    /// A displacement or stride: an address where it is one of bytes.
    fn place(&mut self, bytes: bool) -> i64 {
        if bytes && !self.large { first(&mut self.addresses) } else { self.one() }
    }
}

fn first<T: Copy>(numbers: &mut &[T]) -> T {
    let (&first, rest) = numbers.split_first().expect("the library names as many numbers as the constructor has");
    *numbers = rest;
    first
}

/// One dimension of an array: its size and what of it is chosen, in elements.
struct Axis {
    size: i64,
    parts: Vec<Run>,
}

/// Elements of an array that are chosen in every dimension, the first of which varies slowest.
fn product(axes: &[Axis], old: &Layout, at: i64, runs: &mut Vec<Run>) {
    match axes {
        [] => old.repeat(runs, at, 1, old.extent),
        [last] => {
            for part in &last.parts {
                old.repeat(runs, at + part.at * old.extent, part.length, old.extent);
            }
        }
        [first, rest @ ..] => {
            let stride = rest.iter().map(|axis| axis.size).product::<i64>() * old.extent;
            for part in &first.parts {
                for index in part.at..part.at + part.length {
                    product(rest, old, at + index * stride, runs);
                }
            }
        }
    }
}

/// A block that begins within a dimension, cut at its end.
fn part(at: i64, block: i64, size: i64) -> Option<Run> {
    (at < size && block > 0).then(|| Run { at, length: block.min(size - at) })
}
