//! What is measured, as works for the ranks.

use clap::ValueEnum;
use serde::Serialize;

use crate::probe::files::work::{Kernel, Map, Split, Task, Transfers};

use super::Wanted;

/// Patterns that are asked for together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Group {
    /// Contiguous accesses of the sizes that -b, -s and -t say, independent and collective
    Ior,
    /// Small pieces of all ranks in turn, as HDF5's independent transfers make them
    Hdf5,
    /// Matrices by rows, columns and blocks, with maps and without
    Matrices,
    /// Whole programs: coll_perf, matmul, synthetic, rows
    Kernels,
    /// MPI_File_set_view alone
    Views,
}

/// One of them.
#[derive(Clone, Debug)]
pub(super) struct Pattern {
    pub(super) group: Group,
    pub(super) name: String,
    pub(super) map: Map,
    pub(super) task: Task,
    /// That its files have at one time.
    pub(super) bytes: u64,
}

impl Pattern {
    /// With its map.
    pub(super) fn title(&self) -> String {
        format!("{}{}", self.name, told(self.map))
    }
}

/// What titles say of a map.
pub(super) const fn told(map: Map) -> &'static str {
    match map {
        Map::Rule => "",
        Map::View => ", map = view",
        Map::Other => ", map != view",
    }
}

/// HDF5's pieces.
const PIECE: usize = 16 << 10;
/// Where HDF5 has the data of a first contiguous dataset.
const DISPLACEMENT: u64 = 2048;
/// Few: with more ranks than processors plain MPI takes milliseconds for each.
const SET_VIEWS: u32 = 100;

/// All that is wanted, for a number of ranks.
pub(super) fn of(wanted: &Wanted, ranks: usize) -> Vec<Pattern> {
    wanted.patterns.iter().flat_map(|&group| group.patterns(wanted, ranks)).collect()
}

/// The bytes that matrices and kernels need at least, so that every rank has a part.
pub(super) fn size_least(ranks: usize) -> usize {
    (128 * ranks * ranks).max(8 * ranks * ranks * ranks)
}

impl Group {
    fn patterns(self, wanted: &Wanted, ranks: usize) -> Vec<Pattern> {
        let size = wanted.size;
        let pattern = |name: &str, map, task, bytes: usize| Pattern {
            group: self,
            name: name.to_owned(),
            map,
            task,
            bytes: bytes as u64,
        };
        match self {
            Self::Ior => {
                let Wanted { block, segments, transfer, .. } = *wanted;
                let sides = [(false, "independent"), (true, "collective")];
                let each = sides.into_iter().flat_map(|side| [(side, false), (side, true)]);
                each.map(|((collective, name), synced)| {
                    let transfers = Transfers { collective, block, segments, transfer, displacement: 0, synced };
                    pattern(name, Map::Rule, Task::Transfers(transfers), ranks * segments * block)
                })
                .collect()
            }
            Self::Hdf5 => {
                let segments = (size / ranks / PIECE).max(1);
                let transfers = Transfers {
                    collective: false,
                    block: PIECE,
                    segments,
                    transfer: PIECE,
                    displacement: DISPLACEMENT,
                    synced: false,
                };
                vec![pattern("16 KiB pieces", Map::Rule, Task::Transfers(transfers), ranks * segments * PIECE)]
            }
            Self::Matrices => {
                let side = ((size / 8) as f64).sqrt() as usize;
                let maps = |split| match split {
                    // The other map is by rows.
                    Split::Rows => &[Map::Rule, Map::View][..],
                    _ => &[Map::Rule, Map::View, Map::Other],
                };
                let splits = [(Split::Rows, "by rows"), (Split::Columns, "by columns"), (Split::Blocks, "by blocks")];
                let each =
                    splits.into_iter().flat_map(|(split, name)| maps(split).iter().map(move |&map| (split, name, map)));
                each.map(|(split, name, map)| pattern(name, map, Task::Matrix { split, side }, side * side * 8))
                    .collect()
            }
            Self::Kernels => {
                let each = Kernel::ALL.into_iter().flat_map(|kernel| [(kernel, Map::View), (kernel, Map::Other)]);
                each.map(|(kernel, map)| pattern(kernel.name(), map, Task::Kernel { kernel, bytes: size }, size))
                    .collect()
            }
            Self::Views => vec![pattern("MPI_File_set_view", Map::Rule, Task::Views(SET_VIEWS), 0)],
        }
    }
}

/// A small work that is not measured: what every library does for the first time.
pub(super) fn warm_up() -> Task {
    Task::Transfers(Transfers {
        collective: true,
        block: 1 << 20,
        segments: 2,
        transfer: 1 << 18,
        displacement: 0,
        synced: false,
    })
}
