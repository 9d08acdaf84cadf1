//! `gambeson file info`: what a file says of itself.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use clap::Args;
use data_encoding::HEXLOWER;
use gambeson_file::{Anchoring, Below, Head, LocalBody, SealedFile, sidecar};
use gambeson_keys::{KeyRing, Keys, Label as Held};
use gambeson_proto::file::header;
use gambeson_proto::file::region::RegionId;
use gambeson_proto::file::state::{State, Status};
use gambeson_proto::file::table::{Fields, Label, Region};
use serde_json::{Value, json};

use super::{STATUSES, map, opening};
use crate::failure::{Failure, Status as ExitStatus};
use crate::keys;

/// Says what a sealed file says of itself: its labels, regions and state
///
/// It needs no key. With the key store it says which regions you can read and write, whether what
/// the file says was signed by its labels, and whether an old version of it, put back, would have
/// been noticed.
#[derive(Args)]
#[command(verbatim_doc_comment, after_long_help = STATUSES)]
pub(super) struct Info {
    /// The file
    file: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    keys: keys::Access,
}

/// What is known with the keys that are here, or why nothing is.
struct Known {
    keys: Result<Arc<KeyRing>, String>,
    file: Result<SealedFile<LocalBody>, String>,
}

impl Info {
    pub(super) fn execute(&self) -> Result<ExitCode, Failure> {
        let name = self.file.display().to_string();
        let below = opening::below(&self.file, opening::Access::Read)?;
        let head = opening::head(&name, &below)?;
        let (found, _) = header::choose(&head.copies[0], &head.copies[1])
            .map_err(|error| Failure::new(ExitStatus::Refused, format!("{name}: {error}")))?;
        below.check(&name, &found.fields().geometry)?;
        let mut known = self.known(&name, below, head);
        let mut state = *found.state();
        if let Ok(file) = &mut known.file {
            state.size = file.size()?;
        }
        let mut shown = describe(&name, found.fields(), &state, &known);
        if found.fields().geometry.detached {
            shown["sidecar"] = json!(sidecar(&self.file));
        }
        if self.json {
            println!("{shown:#}");
        } else {
            print(&shown);
        }
        Ok(ExitCode::SUCCESS)
    }

    fn known(&self, name: &str, below: Below<LocalBody>, head: Head) -> Known {
        let keys = self.keys.keys().map(Arc::new).map_err(|failure| failure.to_string());
        let file = match &keys {
            Ok(keys) => SealedFile::open(name, below, head, keys.clone()).map_err(|error| error.to_string()),
            Err(why) => Err(why.clone()),
        };
        Known { keys, file }
    }
}

fn describe(name: &str, fields: &Fields, state: &State, known: &Known) -> Value {
    let geometry = &fields.geometry;
    let regions: Vec<Value> =
        (0..).zip(&fields.regions).map(|(id, region)| of_region(fields, id, region, known)).collect();
    let labels: Vec<Value> = fields.labels.iter().map(|label| of_label(label, known)).collect();
    let (anchored, why_not) = match known.file.as_ref().map(SealedFile::anchoring) {
        Ok(Anchoring::Covered) => (true, None),
        Ok(Anchoring::NotCovered(why)) => (false, Some(why.clone())),
        Err(why) => (false, Some(why.clone())),
    };
    json!({
        "file": name,
        "id": HEXLOWER.encode(&fields.file),
        "believed": known.file.is_ok(),
        "why_not_believed": known.file.as_ref().err(),
        "closed": state.status == Status::Closed,
        "size": state.size,
        "generation": state.generation,
        "closed_generation": state.closed,
        "anchored": anchored,
        "why_not_anchored": why_not,
        "block": geometry.block_len,
        "slots": geometry.halves().len(),
        "sidecar": null,
        "labels": labels,
        "regions": regions,
    })
}

fn of_label(label: &Label, known: &Known) -> Value {
    let keys = known.keys.as_ref().ok();
    let held = keys.map(|keys| keys.verifying_key(&label.name, label.version));
    let newest: Option<Held> = keys.and_then(|keys| keys.label(&label.name).ok());
    json!({
        "label": label.name,
        "version": label.version,
        "known": held.is_some_and(|key| key.is_ok_and(|key| key == label.verifying_key)),
        "newest_version": newest.map(|held| held.version),
    })
}

fn of_region(fields: &Fields, id: RegionId, region: &Region, known: &Known) -> Value {
    let mut labels: Vec<&str> =
        region.keys.iter().map(|key| fields.labels[usize::from(key.label)].name.as_str()).collect();
    labels.dedup();
    let parts: Vec<Value> = region.parts.iter().map(of_part).collect();
    let file = known.file.as_ref().ok();
    let sealed = region.is_sealed();
    json!({
        "region": id,
        "labels": labels,
        "suite": sealed.then(|| region.suite.name()),
        "integrity": sealed && region.suite.has_integrity(),
        "epoch": region.epoch(),
        "rest": id == 0,
        "parts": parts,
        "readable": if sealed { file.map(|file| file.check_readable(id).is_ok()) } else { Some(true) },
        "writable": if sealed { file.map(|file| file.check_writable(id).is_ok()) } else { Some(true) },
        "why_not_readable": file.and_then(|file| file.unreadable(id)).map(ToString::to_string),
    })
}

fn of_part(part: &gambeson_proto::file::Part) -> Value {
    let pieces: Vec<Value> =
        part.pieces().iter().map(|piece| json!({ "offset": piece.offset, "length": piece.len })).collect();
    json!({
        "displacement": part.displacement(),
        "extent": part.extent(),
        "pieces": pieces,
        "described": map::describe(part),
    })
}

/// The same, for people.
fn print(shown: &Value) {
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let line = |name: &str, what: String| println!("  {name:<11}{what}");
    println!("{}", text(&shown["file"]));
    if shown["sidecar"].is_string() {
        line("sidecar", format!("{}, which has all but the data", text(&shown["sidecar"])));
    }
    if shown["believed"] == true {
        line("signed", "by its labels, as far as they are known here".to_owned());
    } else {
        line("signed", format!("not believed: {}", text(&shown["why_not_believed"])));
    }
    let state = match shown["closed"] == true {
        true => format!("closed at generation {}", shown["generation"]),
        false => format!(
            "open at generation {}, or never closed; closed last at {}",
            shown["generation"], shown["closed_generation"]
        ),
    };
    line("state", state);
    let slots = if shown["slots"] == 2 { ", two slots each" } else { "" };
    let block = shown["block"].as_u64().unwrap_or(0) / 1024;
    line("size", format!("{} bytes in blocks of {block} KiB{slots}", shown["size"]));
    let rollback = match shown["anchored"] == true {
        true => "an old version of the file, put back, would have been noticed".to_owned(),
        false => format!("not covered: {}", text(&shown["why_not_anchored"])),
    };
    line("rollback", rollback);
    for label in shown["labels"].as_array().into_iter().flatten() {
        let known = match (label["known"] == true, &label["newest_version"]) {
            (false, _) => "not known here".to_owned(),
            (true, newest) if *newest == label["version"] => "known here".to_owned(),
            (true, newest) => format!("known here, where version {newest} is the newest (`gambeson file rewrap`)"),
        };
        line("label", format!("{} version {}: {known}", text(&label["label"]), label["version"]));
    }
    for region in shown["regions"].as_array().into_iter().flatten() {
        let labels: Vec<String> = region["labels"].as_array().into_iter().flatten().map(text).collect();
        let sealed = match (&region["suite"], region["integrity"] == true) {
            (Value::Null, _) => "plain by decision: anybody can read and change it".to_owned(),
            (suite, true) => format!("{}, {}", labels.join(" or "), text(suite)),
            (suite, false) => format!("{}, {} (without integrity)", labels.join(" or "), text(suite)),
        };
        let may = match (&region["suite"], region["readable"] == true, region["writable"] == true) {
            (Value::Null, ..) => "",
            (_, true, true) => "; you can read and write it",
            (_, true, false) => "; you can read it",
            (_, false, true) => "; you can write it",
            (_, false, false) => "; you can neither read nor write it",
        };
        line("region", format!("{}: {sealed}{may}", region["region"]));
        if region["rest"] == true {
            line("", "   the rest".to_owned());
        }
        for part in region["parts"].as_array().into_iter().flatten().take(SHOWN) {
            line("", format!("   {}", text(&part["described"])));
        }
        let parts = region["parts"].as_array().map_or(0, Vec::len);
        if parts > SHOWN {
            line("", format!("   and {} parts more (--json shows all)", parts - SHOWN));
        }
    }
}

const SHOWN: usize = 8;
