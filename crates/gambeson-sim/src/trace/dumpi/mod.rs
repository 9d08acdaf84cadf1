//! DUMPI traces: a `.meta` file of names and numbers, and a binary file of calls for each rank (sst-dumpi 0.6.7 to 13).
//!
//! ```text
//!   magic | biases, calls, end of stream | header | footer | sizes of the datatypes | ... | magic, offsets of these
//! ```
//! Numbers are big-endian. A gap is the processor time between two calls where the trace has it, else the wall time.
//! Point-to-point calls, persistent and not, all kinds of waits and tests, the collectives, and communicators made by
//! dup and split are read; a call with other effects on messages, or with arguments this reader does not know the
//! length of, is refused by its number.

mod calls;
mod communicators;

use std::path::Path;

use super::Job;
use super::program::Program;
use crate::Error;
use calls::Calls;

const MAGIC: u64 = 0xffaa_dd44_554d_5049;
const RANKS_MAX: u32 = 1 << 20;

/// Reads a trace by its `.meta` file; the ranks' files are beside it.
///
/// # Errors
/// What cannot be read, breaks the format, or is beyond this reader, with rank and record.
pub fn read(path: &Path) -> Result<Job, Error> {
    let load = |path: &Path| std::fs::read(path).map_err(|cause| Error::File { file: path.to_owned(), cause });
    let file = path.display().to_string();
    let text = String::from_utf8_lossy(&load(path)?).into_owned();
    let value = |name: &str| {
        let find =
            |line: &str| line.split_once('=').filter(|pair| pair.0.trim() == name).map(|pair| pair.1.trim().to_owned());
        text.lines().find_map(find)
    };
    let ranks = value("numprocs").and_then(|count| count.parse().ok()).filter(|ranks| (1..=RANKS_MAX).contains(ranks));
    let ranks: u32 = ranks
        .ok_or_else(|| Error::trace(&file, None, None, "it has no numprocs; name the .meta file of a DUMPI trace"))?;
    let prefix = value("fileprefix").unwrap_or_default();
    let prefix = Path::new(&prefix).file_name().or(path.file_stem()).unwrap_or_default().to_string_lossy().into_owned();
    let mut files = Vec::with_capacity(ranks as usize);
    for rank in 0..ranks {
        files.push(load(&path.with_file_name(format!("{prefix}-{rank:04}.bin")))?);
    }
    parse(&prefix, &files, &file)
}

/// Decodes the files of all ranks; `file` is what errors call the trace.
///
/// # Errors
/// What breaks the format or is beyond this reader, with rank and record.
pub fn parse(name: &str, files: &[Vec<u8>], file: &str) -> Result<Job, Error> {
    let mut ranks = Vec::with_capacity(files.len());
    for (rank, bytes) in files.iter().enumerate() {
        ranks.push(Calls::decode(bytes, rank as u32, file)?);
    }
    let mut program = Program::new(name, file, files.len() as u32);
    let numbers = communicators::resolve(&mut program, &ranks, file)?;
    for (rank, (calls, numbers)) in ranks.iter().zip(&numbers).enumerate() {
        calls.translate(&mut program.rank(rank as u32), numbers)?;
    }
    Ok(program.finish())
}

/// What is left of a file.
struct Bytes<'t> {
    all: &'t [u8],
    at: usize,
}

impl<'t> Bytes<'t> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], String> {
        let bytes = self.all.get(self.at..).and_then(|rest| rest.first_chunk::<N>());
        self.at = self.at.saturating_add(N);
        bytes.copied().ok_or_else(|| "it ends within this; fetch or record it again".to_owned())
    }

    fn u8(&mut self) -> Result<u8, String> {
        self.take::<1>().map(|[byte]| byte)
    }

    fn u16(&mut self) -> Result<u16, String> {
        self.take().map(u16::from_be_bytes)
    }

    fn u32(&mut self) -> Result<u32, String> {
        self.take().map(u32::from_be_bytes)
    }

    fn i32(&mut self) -> Result<i32, String> {
        self.take().map(i32::from_be_bytes)
    }

    fn u64(&mut self) -> Result<u64, String> {
        self.take().map(u64::from_be_bytes)
    }

    fn skip(&mut self, count: usize) {
        self.at = self.at.saturating_add(count);
    }

    fn array(&mut self) -> Result<Vec<i32>, String> {
        let count = self.u32()? as usize;
        if count > (self.all.len() - self.at.min(self.all.len())) / 4 {
            return Err("it ends within a list; fetch or record it again".to_owned());
        }
        (0..count).map(|_| self.i32()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_beyond_any_file_are_said() {
        let mut file = [MAGIC; 9].map(u64::to_be_bytes).concat();
        for offset in [u64::MAX, 1 << 40, 71] {
            file[40..48].copy_from_slice(&offset.to_be_bytes());
            let error = parse("x", &[file.clone()], "x.meta").unwrap_err().to_string();
            assert!(error.starts_with("x.meta, rank 0: it ends within this"), "{error}");
        }
    }
}
