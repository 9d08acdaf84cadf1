//! `gambeson file verify`: every share of a file opened and judged.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use gambeson_file::{Anchoring, LocalBody, SealedFile, Verified};
use gambeson_proto::file::state::Status;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::opening::Opener;
use super::ranks::Ranks;
use super::{STATUSES, parallel};
use crate::failure::{Failure, Status as ExitStatus};
use crate::keys;

/// Opens all of a sealed file, and lists everything that is not what was written
///
/// Of parts whose keys you don't have, the tree over the file's entries is checked, and their bytes
/// can't be; it says so. Plain parts are not protected.
#[derive(Args)]
#[command(verbatim_doc_comment, after_long_help = STATUSES)]
pub(super) struct Verify {
    /// The file
    file: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    keys: keys::Access,
}

impl Verify {
    pub(super) fn execute(&self, ranks: &Ranks) -> Result<ExitCode, Failure> {
        let opener = Opener::shared(&self.file, ranks, || ranks.keys(&self.keys))?;
        let mut first = ranks.agreed(opener.handle().map_err(Failure::from))?;
        let blocks = ranks.told(ranks.agreed(first.blocks().map_err(Failure::from))?)?;
        let own = ranks.agreed(share(&opener, &first, blocks, ranks))?;
        let mut found = Found::default();
        for of in ranks.gathered(own)? {
            found.add(of);
        }
        let shown = describe(&opener, &first, &found);
        match (ranks.is_first(), self.json) {
            (false, _) => {}
            (true, true) => println!("{shown:#}"),
            (true, false) => print(&shown, &found),
        }
        let wrong = ranks.told((!found.findings.is_empty(), found.closed))?;
        Ok(match wrong {
            (true, _) => ExitCode::FAILURE,
            (false, 0) => ExitCode::SUCCESS,
            (false, _) => ExitStatus::Incomplete.into(),
        })
    }
}

/// What processes tell each other that they found.
#[derive(Default, Serialize, Deserialize)]
struct Found {
    whole: u64,
    bytes: u64,
    holes: u64,
    closed: u64,
    findings: Vec<Wrong>,
    damaged_groups: Vec<u64>,
}

#[derive(Serialize, Deserialize)]
struct Wrong {
    region: u16,
    block: u64,
    what: String,
}

impl From<Verified> for Found {
    fn from(verified: Verified) -> Self {
        let wrong = |finding: gambeson_file::Finding| Wrong {
            region: finding.region,
            block: finding.block,
            what: finding.error.to_string(),
        };
        Found {
            whole: verified.whole,
            bytes: verified.bytes,
            holes: verified.holes,
            closed: verified.closed,
            findings: verified.findings.into_iter().map(wrong).collect(),
            damaged_groups: verified.damaged_groups,
        }
    }
}

impl Found {
    /// Takes in what was found in blocks behind these.
    fn add(&mut self, other: Found) {
        self.whole += other.whole;
        self.bytes += other.bytes;
        self.holes += other.holes;
        self.closed += other.closed;
        self.findings.extend(other.findings);
        self.damaged_groups.extend(other.damaged_groups);
    }
}

/// This process's share of the blocks, looked at.
fn share(opener: &Opener, first: &SealedFile<LocalBody>, blocks: u64, ranks: &Ranks) -> Result<Found, Failure> {
    let block_len = u64::from(first.geometry().block_len);
    let at_once = (parallel::CHUNK / block_len).max(1);
    let chunks = ranks.share(blocks.div_ceil(at_once));
    let progress = ranks.progress("verifying", (chunks.end - chunks.start) * at_once * block_len);
    let done = ranks.each(
        chunks,
        || Ok((opener.handle()?, Verified::default())),
        |(file, verified), chunk| {
            let from = chunk * at_once;
            let to = blocks.min(from + at_once);
            verified.add(file.verify(from..to)?);
            progress.inc((to - from) * block_len);
            Ok(())
        },
    )?;
    progress.finish_and_clear();
    let mut all = Verified::default();
    for (_, verified) in done {
        all.add(verified);
    }
    Ok(all.into())
}

fn describe(opener: &Opener, file: &SealedFile<LocalBody>, verified: &Found) -> Value {
    let regions = (0..).zip(file.header().table().regions());
    let missing: Vec<Value> = regions
        .clone()
        .filter_map(|(id, _)| Some(json!({ "region": id, "why": file.unreadable(id)?.to_string() })))
        .collect();
    let without = |wanted: fn(&gambeson_proto::file::table::Region) -> bool| -> Vec<u16> {
        regions.clone().filter(|(_, region)| wanted(region)).map(|(id, _)| id).collect()
    };
    let is_closed = file.header().state().status == Status::Closed;
    let mut damaged = if is_closed { file.damaged_copies(&opener.head) } else { Vec::new() };
    if is_closed && !verified.damaged_groups.is_empty() {
        let groups: Vec<String> = verified.damaged_groups.iter().map(u64::to_string).collect();
        damaged.push(format!("the entry tables of groups {} are not what was anchored", groups.join(", ")));
    }
    json!({
        "file": opener.name,
        "closed": is_closed,
        "whole": verified.whole,
        "bytes": verified.bytes,
        "holes": verified.holes,
        "not_checked": verified.closed,
        "missing_keys": missing,
        "plain_regions": without(|region| !region.is_sealed()),
        "regions_without_integrity": without(|region| region.is_sealed() && !region.suite.has_integrity()),
        "damaged_copies": damaged,
        "rollback_covered": *file.anchoring() == Anchoring::Covered,
        "why_rollback_not_covered": match file.anchoring() {
            Anchoring::Covered => None,
            Anchoring::NotCovered(why) => Some(why),
        },
        "findings": verified.findings,
    })
}

fn print(shown: &Value, verified: &Found) {
    for finding in &verified.findings {
        println!("{}", finding.what);
    }
    let name = shown["file"].as_str().unwrap_or_default();
    let wrong = verified.findings.len();
    println!(
        "{name}: {} sealed parts of blocks ({} bytes) are what was written, {}",
        verified.whole,
        verified.bytes,
        if wrong == 0 { "nothing is wrong".to_owned() } else { format!("{wrong} are not") }
    );
    if shown["closed"] == false {
        println!("it is open for writing just now, or was never closed (`gambeson file accept`)");
    }
    if verified.closed > 0 {
        println!("not checked: {} sealed parts of blocks, whose keys are missing:", verified.closed);
    }
    for missing in shown["missing_keys"].as_array().into_iter().flatten() {
        println!("  region {}: {}", missing["region"], missing["why"].as_str().unwrap_or_default());
    }
    for (list, what) in [
        ("plain_regions", "is plain by decision, and not protected"),
        ("regions_without_integrity", "is sealed without integrity: what is altered there is not noticed"),
    ] {
        for region in shown[list].as_array().into_iter().flatten() {
            println!("region {region} {what}");
        }
    }
    for damaged in shown["damaged_copies"].as_array().into_iter().flatten() {
        println!(
            "nothing is lost yet, but {}; `gambeson file rekey` writes all of it anew",
            damaged.as_str().unwrap_or_default()
        );
    }
    match shown["why_rollback_not_covered"].as_str() {
        None => println!("an old version of the whole file, put back, would have been noticed"),
        Some(why) => println!("an old version of the whole file, put back, would not have been noticed: {why}"),
    }
}
