//! What the bench has the ranks do with files, and what they tell of it.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// What the ranks do next. They find it in a file, of which every rank sees each version: the next is written when all
/// are done with this one. So two jobs are there at a time and work in turns, and who waits for its turn sleeps.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Order {
    /// Counted from 1.
    pub(crate) serial: u64,
    /// Nothing: that was all.
    pub(crate) work: Option<Work>,
}

impl Order {
    /// Puts it where the ranks look.
    ///
    /// # Errors
    /// Those of the file system.
    pub(crate) fn give(&self, place: &Path) -> std::io::Result<()> {
        let new = place.with_extension("new");
        let mut file = std::fs::File::create(&new)?;
        file.write_all(&serde_json::to_vec(self).expect("an order is plain data"))?;
        std::fs::rename(new, place)
    }

    /// Waits for the one behind a number.
    ///
    /// # Errors
    /// When it can't come any more, since its folder has gone.
    pub(crate) fn wait(place: &Path, behind: u64) -> std::io::Result<Self> {
        loop {
            match std::fs::read(place) {
                Ok(bytes) => {
                    let order: Self = serde_json::from_slice(&bytes)?;
                    if order.serial > behind {
                        return Ok(order);
                    }
                }
                Err(_) if place.parent().is_some_and(Path::exists) => {}
                Err(error) => return Err(error),
            }
            std::thread::sleep(GLANCE);
        }
    }
}

const GLANCE: Duration = Duration::from_millis(5);

/// One pattern on one side.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Work {
    /// Where its files go.
    pub(crate) folder: PathBuf,
    /// How their names end, which is what the policy's rules go by.
    pub(crate) ending: String,
    /// Where the same files have to be put out of the page cache, if they can be: also the folder below, if there is one.
    pub(crate) disk: Vec<PathBuf>,
    pub(crate) task: Task,
    pub(crate) map: Map,
    /// Of the regions of maps.
    pub(crate) suite: String,
    /// Makes the data of this work its own.
    pub(crate) seed: u64,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Task {
    Transfers(Transfers),
    Matrix {
        split: Split,
        /// Elements of a row, and rows.
        side: usize,
    },
    Kernel {
        kernel: Kernel,
        bytes: usize,
    },
    /// `MPI_File_set_view`, so many times.
    Views(u32),
}

/// Contiguous accesses as IOR makes them: segments, in each a block of every rank, in transfers.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Transfers {
    pub(crate) collective: bool,
    pub(crate) block: usize,
    pub(crate) segments: usize,
    pub(crate) transfer: usize,
    /// Bytes before the first segment, as libraries have headers.
    pub(crate) displacement: u64,
    /// With MPI_File_sync before the file is closed; then nothing is read.
    pub(crate) synced: bool,
}

/// How an array of two dimensions is shared out among the ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Split {
    Rows,
    Columns,
    Blocks,
}

/// Which bytes are under which label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Map {
    /// All under that of the policy's rule.
    Rule,
    /// Each rank's view under the label of that rank.
    View,
    /// Another distribution than the view's: by rows, or by columns where the view is by rows.
    Other,
}

/// The labels that ranks take in turn for their part of a map.
pub(crate) const LABELS: [&str; 2] = ["bench-one", "bench-two"];

/// Whole programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Kernel {
    CollPerf,
    Matmul,
    Synthetic,
    Rows,
}

impl Kernel {
    pub(crate) const ALL: [Self; 4] = [Self::CollPerf, Self::Matmul, Self::Synthetic, Self::Rows];

    /// For people.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::CollPerf => "coll_perf",
            Self::Matmul => "matmul",
            Self::Synthetic => "synthetic",
            Self::Rows => "rows",
        }
    }
}

/// What is timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Quantity {
    Write,
    WriteSynced,
    /// From the page cache.
    Read,
    ReadDisk,
    /// Of a whole kernel.
    Run,
    /// One call.
    SetView,
}

/// What a file on disk says of itself, if it is sealed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Seal {
    pub(crate) labels: Vec<String>,
    /// Of all its sealed regions.
    pub(crate) suites: Vec<String>,
    pub(crate) block: u32,
    pub(crate) detached: bool,
}
