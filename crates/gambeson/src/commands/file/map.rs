//! Encryption maps on the command line, sizes, and how regions are shown.

use gambeson_file::Map;
use gambeson_proto::file::FileSuite;
use gambeson_proto::file::region::{Part, Piece};
use gambeson_proto::policy::is_label;

/// One `--map`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Laid {
    label: Option<String>,
    part: Part,
}

/// A size: 100, 64KiB, 4M.
pub(super) fn size(text: &str) -> Result<u64, String> {
    let wrong = || format!("{text} is no number of bytes; write 100, 64KiB or 4MiB");
    let (digits, unit) = text.split_at(text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len()));
    let shift = match unit.trim().to_ascii_uppercase().trim_end_matches('B').trim_end_matches('I') {
        "" => 0,
        "K" => 10,
        "M" => 20,
        "G" => 30,
        "T" => 40,
        _ => return Err(wrong()),
    };
    let size = digits.parse::<u64>().ok().and_then(|number| number.checked_mul(1 << shift));
    size.filter(|&size| i64::try_from(size).is_ok()).ok_or_else(wrong)
}

/// A block's length.
pub(super) fn block(text: &str) -> Result<u32, String> {
    let length = size(text)?;
    match u32::try_from(length) {
        Ok(length @ 0x1000..=0x10_0000) if length.is_power_of_two() => Ok(length),
        _ => Err(format!("{text} is no length of a block; take 4KiB to 1MiB, a power of two")),
    }
}

/// A suite's name.
pub(super) fn suite(text: &str) -> Result<FileSuite, String> {
    let names = FileSuite::ALL.map(FileSuite::name).join(", ");
    FileSuite::from_name(text).ok_or_else(|| format!("there is no suite {text}; there are {names}"))
}

/// A label's name, or none.
pub(super) fn label(text: &str) -> Result<Option<String>, String> {
    match text {
        "none" => Ok(None),
        _ if is_label(text) => Ok(Some(text.to_owned())),
        _ => Err(format!("\"{text}\" is no name of a label")),
    }
}

/// LABEL:DISPLACEMENT:EXTENT:OFFSET+LENGTH,...
pub(super) fn map(text: &str) -> Result<Laid, String> {
    let fields: Vec<&str> = text.split(':').collect();
    let [name, displacement, extent, pieces] = fields[..] else {
        return Err("a map is LABEL:DISPLACEMENT:EXTENT:OFFSET+LENGTH,..., as in trial:0:4096:0+128,512+64".to_owned());
    };
    let piece = |piece: &str| {
        let (offset, len) = piece.split_once('+').ok_or_else(|| format!("{piece} is no piece; write OFFSET+LENGTH"))?;
        Ok::<_, String>(Piece { offset: size(offset)?, len: size(len)? })
    };
    let mut pieces = pieces.split(',').map(piece).collect::<Result<Vec<_>, _>>()?;
    pieces.sort_unstable();
    let part = Part::new(size(displacement)?, size(extent)?, pieces).map_err(|error| error.to_string())?;
    Ok(Laid { label: label(name)?, part })
}

/// The maps of a file: the rest, then a region for each label that is named.
pub(super) fn maps(rest: Option<&str>, suite: FileSuite, laid: &[Laid]) -> Vec<Map> {
    let mut maps = vec![Map { label: rest.map(str::to_owned), suite, parts: Vec::new() }];
    for Laid { label, part } in laid {
        match maps.iter_mut().skip(1).find(|map| map.label == *label) {
            Some(map) => map.parts.push(part.clone()),
            None => maps.push(Map { label: label.clone(), suite, parts: vec![part.clone()] }),
        }
    }
    for map in &mut maps {
        map.parts = Part::merge(std::mem::take(&mut map.parts));
    }
    maps
}

/// How parts are shown: at most so many pieces of each.
pub(super) fn describe(part: &Part) -> String {
    let (from, extent) = (part.displacement(), part.extent());
    if extent == 1 {
        return format!("all from byte {from} on");
    }
    let mut pieces: Vec<String> =
        part.pieces().iter().take(SHOWN).map(|piece| format!("{}+{}", piece.offset, piece.len)).collect();
    if part.pieces().len() > SHOWN {
        pieces.push(format!("and {} more", part.pieces().len() - SHOWN));
    }
    format!("from byte {from} on, of every {extent} bytes {}", pieces.join(", "))
}

const SHOWN: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maps_are_read_as_people_write_them() {
        let laid = map("trial:1KiB:4K:512+64,0+128").unwrap();
        let pieces = [Piece { offset: 0, len: 128 }, Piece { offset: 512, len: 64 }];
        assert_eq!(laid, Laid { label: Some("trial".to_owned()), part: Part::new(1024, 4096, pieces).unwrap() });
        for wrong in
            ["", "trial", "trial:0:4096", "trial:0:64:0+65", "no label:0:64:0+8", "trial:0:64:0+8,4+8", "a:0:9:1"]
        {
            assert!(map(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn maps_of_one_label_are_one_region() {
        let laid = ["a:0:100:0+10", "none:0:100:10+10", "a:0:100:50+10"].map(|text| map(text).unwrap());
        let maps = maps(Some("rest"), FileSuite::default(), &laid);
        let names: Vec<_> = maps.iter().map(|map| (map.label.as_deref(), map.parts.len())).collect();
        assert_eq!(names, [(Some("rest"), 0), (Some("a"), 1), (None, 1)]);
    }
}
