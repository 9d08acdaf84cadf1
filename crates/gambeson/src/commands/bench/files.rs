//! `gambeson bench files`.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use gambeson_proto::file::FileSuite;

use super::{load_before, progress, size, write_json};
use crate::bench::files::{Group, Wanted, bench};
use crate::failure::Failure;
use crate::probe::job::RANKS;

/// MPI-IO, plain and sealed in alternation: contiguous and strided accesses, matrices, whole programs
#[derive(Args)]
#[command(after_long_help = WHAT_IS_COMPARED)]
pub(super) struct Files {
    /// A folder whose file system is measured; several: one after the other
    #[arg(long, value_name = "DIR", default_value = ".")]
    dir: Vec<PathBuf>,
    /// What to measure
    #[arg(long, value_delimiter = ',', value_name = "PATTERNS", default_value = "ior,hdf5,matrices,kernels,views")]
    patterns: Vec<Group>,
    /// ior: bytes that a rank has side by side; K, M and G are powers of 1024
    #[arg(short = 'b', long = "ior-block", value_name = "SIZE", value_parser = size, default_value = "64M")]
    block: usize,
    /// ior: how many times the blocks of all ranks follow each other
    #[arg(short = 's', long = "ior-segments", value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    segments: u32,
    /// ior: bytes of one call
    #[arg(short = 't', long = "ior-transfer", value_name = "SIZE", value_parser = size, default_value = "1M")]
    transfer: usize,
    /// hdf5, matrices, kernels: bytes of all ranks together
    #[arg(long, value_name = "SIZE", value_parser = size, default_value = "128M")]
    size: usize,
    /// Numbers of processes, one after the other, in place of {ranks} in the command
    #[arg(long, value_delimiter = ',', value_name = "NUMBERS", value_parser = clap::value_parser!(u32).range(1..=1024))]
    ranks: Vec<u32>,
    /// Suites; with several, each with the first block
    #[arg(long, value_delimiter = ',', value_name = "SUITES", value_parser = suite, default_value = "xaes-256-gcm")]
    suites: Vec<FileSuite>,
    /// Lengths of sealed blocks; with several, each with the first suite
    #[arg(long, value_delimiter = ',', value_name = "SIZES", value_parser = block, default_value = "64K")]
    blocks: Vec<u32>,
    /// Rounds, each of all sides
    #[arg(long, default_value_t = 5, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// What to measure besides
    #[arg(long, value_delimiter = ',', value_name = "WHAT")]
    beside: Vec<Beside>,
    /// Write all values to this file as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Draw pictures into this folder, as SVG and PNG
    #[arg(long, value_name = "DIR")]
    pictures: Option<PathBuf>,
    /// The libfabric provider on both sides
    #[arg(long, default_value = "tcp", value_name = "NAME")]
    core: String,
    /// The launcher and its options, without a program: mpiexec -n 4
    #[arg(required = true, last = true, value_name = "MPIEXEC")]
    command: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Beside {
    /// The plain program over a mount of it
    Gocryptfs,
    /// Detached files, with the first suite and the first length of blocks
    Detached,
}

const WHAT_IS_COMPARED: &str = "\
Both sides run the same MPI program, which is part of gambeson, under the given mpiexec.

  plain      its files as they are
  sealed     gambeson run with a policy that has them sealed, and a key store of its own
  gocryptfs  the plain program over a mount of it, inside --dir
  detached   as sealed, with all but the data in a sidecar

Messages inside a host go the MPI's own way on both sides (Open MPI: over the provider, which seals them on the
sealed side), so that files are what differs. The two jobs are there at a time and work in turns, pattern by
pattern; who is first changes every round. After each the first bytes of its file are looked at: the command
fails if a sealed side's are not sealed, or a plain side's are.

  ior       write, the same with MPI_File_sync, read from the page cache, and read from disk (after the file was
            put out of the page cache; not where files are in memory alone): -b, -s and -t as IOR has them,
            MPI_File_write_at and MPI_File_write_at_all
  hdf5      MPI_File_write_at of 16 KiB from byte 2048 on, the ranks in turn
  matrices  by rows, columns and blocks through a view, in one collective call, with the policy's label alone,
            with the encryption map = the view, and with a map != the view (by rows); two labels
  kernels   coll_perf: an array of three dimensions, written and read; matmul: out of core, B read four times;
            synthetic: eight steps of a simulation, each written in pieces of 16 KiB, and read at the end; rows:
            sums of a table's rows. matmul and rows read their input from disk, if there is one. Maps as above;
            where the view is by rows, the map that is not is by columns
  views     MPI_File_set_view alone

Times are from where all ranks are together until the last is done, opening and closing the file included, as
IOR's; of kernels, of the whole program. What is read is checked. The table has the best and the median of the
rounds, the ratio of the best values, and median and least of the rounds' own ratios.

  gambeson bench files --dir /scratch --dir /dev/shm -- mpiexec -n 4
  gambeson bench files --patterns kernels --ranks 1,2,4,8,16 --pictures . -- mpiexec -n {ranks}
  gambeson bench files --blocks 64K,4K,16K,256K,1M --suites xaes-256-gcm,aes-256-gcm-siv --pictures . -- mpiexec -n 4";

impl Files {
    pub(super) fn execute(&self) -> Result<ExitCode, Failure> {
        let wanted = self.wanted()?;
        let (load, progress) = (load_before(), progress());
        progress.set_length(0);
        let report = bench(&self.command, &wanted, load, &progress);
        progress.finish_and_clear();
        let report = report?;
        print!("{}", report.text());
        self.json.as_ref().map_or(Ok(()), |path| write_json(path, &report))?;
        self.pictures.as_ref().map_or(Ok(()), |dir| report.draw(dir))?;
        Ok(ExitCode::SUCCESS)
    }

    fn wanted(&self) -> Result<Wanted, Failure> {
        let Self { block, transfer, .. } = *self;
        if transfer == 0 || !transfer.is_multiple_of(PAGE) || block == 0 || !block.is_multiple_of(transfer) {
            return Err(Failure::usage("-t has to be a multiple of 4K, and -b a multiple of -t, as -b 64M -t 1M"));
        }
        let is_named = self.command.iter().any(|word| word.contains(RANKS));
        if is_named == self.ranks.is_empty() {
            return Err(Failure::usage(match is_named {
                true => "the command says {ranks}: give the numbers of processes with --ranks 1,2,4",
                false => "--ranks has numbers that the command has no place for: mpiexec -n {ranks}",
            }));
        }
        Ok(Wanted {
            dirs: self.dir.clone(),
            patterns: each_once(&self.patterns),
            block,
            segments: self.segments as usize,
            transfer,
            size: self.size,
            ranks: each_once(&self.ranks),
            suites: each_once(&self.suites),
            blocks: each_once(&self.blocks),
            rounds: self.rounds as usize,
            gocryptfs: self.beside.contains(&Beside::Gocryptfs),
            detached: self.beside.contains(&Beside::Detached),
            core: self.core.clone(),
        })
    }
}

fn each_once<T: Copy + PartialEq>(given: &[T]) -> Vec<T> {
    given.iter().enumerate().filter(|&(index, one)| !given[..index].contains(one)).map(|(_, &one)| one).collect()
}

/// What transfers are multiples of: a word of each page is looked at.
const PAGE: usize = 4096;

fn suite(text: &str) -> Result<FileSuite, String> {
    let known = [FileSuite::Xaes256Gcm, FileSuite::Aes256GcmSiv];
    known.into_iter().find(|suite| suite.name() == text).ok_or_else(|| {
        format!("{text} is no suite of a policy; there are {}", known.map(FileSuite::name).join(" and "))
    })
}

/// Of a sealed file.
fn block(text: &str) -> Result<u32, String> {
    let length = u32::try_from(size(text)?).unwrap_or(u32::MAX);
    match length.is_power_of_two() && (4 << 10..=1 << 20).contains(&length) {
        true => Ok(length),
        false => Err(format!("{text} is no power of two from 4K to 1M, as blocks of sealed files are")),
    }
}
