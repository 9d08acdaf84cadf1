//! Encryption maps: bytes of a file under labels of their own, which every rank gives its share of.

use std::sync::Arc;

use gambeson_file as create;
use gambeson_file::{Map, Offer, Shape};
use gambeson_keys::Keys;
use gambeson_proto::file::region::{Part, Piece, RegionId};
use gambeson_proto::file::table::{Label, Table};
use gambeson_proto::file::{FileId, FileSuite, Geometry};

use super::open::{Place, open_head, told_head};
use super::parcel::{Reader, Writer};
use super::{Ranks, SealedEngine, failure};
use crate::engine::Engine;
use crate::error::Failure;
use crate::mpi::Mpi;

/// What one rank says of a map.
pub(crate) struct MapPart {
    pub(crate) label: String,
    pub(crate) suite: FileSuite,
    /// Bytes of a block; none: as they are.
    pub(crate) block_len: Option<u32>,
    /// None: this rank adds no bytes.
    pub(crate) part: Option<Part>,
}

impl SealedEngine {
    /// Lays a map over the file, which has no data yet. A map that is there already changes nothing.
    pub(super) fn lay(&mut self, own: &MapPart) -> Result<(), Failure> {
        let class = self.mpi.abi.class.argument;
        let maps = told(self.mpi, self.ranks, &self.path.to_string_lossy(), own)?;
        let block_len = own.block_len.unwrap_or_else(|| self.file.geometry().block_len);
        let there = self.file.header().table().regions();
        let is_there = |map: &Map| {
            there.iter().skip(1).any(|region| {
                let labels = self.file.header().table().labels();
                let label = region.keys.first().map(|key| labels[usize::from(key.label)].name.clone());
                label == map.label && region.suite == map.suite && region.parts == map.parts
            })
        };
        if maps.iter().all(is_there) && block_len == self.file.geometry().block_len {
            return Ok(());
        }
        if self.greatest_size()? > 0 {
            return Err(Failure::new(
                class,
                format!(
                    "{}: a map is laid over a file before anything is written to it; this one has data, which `gambeson file rekey` can put under other keys",
                    self.path.display()
                ),
            ));
        }
        self.file.check_may_write().map_err(|error| self.failure(&error))?;
        let table = self.compose(&maps, block_len)?;
        self.replace(&table)
    }

    /// The table with the new regions: a key for each from the first rank that may write under its label.
    fn compose(&self, maps: &[Map], block_len: u32) -> Result<Table, Failure> {
        let mut fields = self.file.header().table().fields().clone();
        let name = self.path.to_string_lossy();
        let offers =
            offers(self.mpi, self.ranks, self.keys.as_ref(), &name, fields.file, (fields.regions.len(), maps))?;
        let offers: Vec<_> = offers.into_iter().map(|(_, offer)| Some(offer)).collect();
        create::add(&mut fields, maps, &offers);
        let Geometry { two_slots, detached, .. } = fields.geometry;
        fields.geometry = Geometry { two_slots, detached, ..Geometry::new(block_len) };
        create::make_room(&mut fields);
        create::table(&name, fields).map_err(|error| failure(self.mpi, &error))
    }

    /// Ends the session, has every label sign the table, and begins a session of the new file.
    fn replace(&mut self, table: &Table) -> Result<(), Failure> {
        let signatures = signatures(self.mpi, self.ranks, self.keys.as_ref(), table)?;
        self.close()?;
        let leader = self.leader.expect("a file that is open for writing has a leader");
        let (name, path) = (self.path.to_string_lossy().into_owned(), self.path.clone());
        let (file, sidecar) = self.below;
        let place = Place { file, sidecar, name: &name, path: &path, is_writable: true };
        let head = told_head(self.mpi, self.ranks, place, leader, |below| {
            let generation = self.file.header().state().generation + 1;
            create::write_first_at(&name, below, self.keys.as_ref(), table.clone(), &signatures, generation)
                .map_err(|error| failure(self.mpi, &error))
        })?;
        let is_atomic = self.is_atomic;
        *self = open_head(self.mpi, self.ranks, place, self.keys.clone(), head)?;
        self.is_atomic = is_atomic;
        Ok(())
    }
}

/// Makes a sealed file of one that is in clear and has no data: what the map names is sealed, and the rest stays in clear.
/// Nothing, if no rank's map has a byte.
///
/// # Errors
/// On all ranks alike, as those of a map over a sealed file.
pub(crate) fn map_plain(
    mpi: &'static Mpi,
    ranks: Ranks,
    place: Place<'_>,
    keys: Arc<dyn Keys>,
    own: &MapPart,
) -> Result<Option<SealedEngine>, Failure> {
    let mut maps = told(mpi, ranks, place.name, own)?;
    if maps.is_empty() {
        return Ok(None);
    }
    let file = ranks.broadcast(mpi, 0, (ranks.rank == 0).then(|| create::draw_file_id().to_vec()))?;
    let file = file.try_into().expect("rank 0 has drawn a number");
    let offered = offers(mpi, ranks, keys.as_ref(), place.name, file, (1, &maps))?;
    let maker = offered[0].0;
    maps.insert(0, Map { label: None, suite: FileSuite::default(), parts: Vec::new() });
    let offers: Vec<_> = std::iter::once(None).chain(offered.into_iter().map(|(_, offer)| Some(offer))).collect();
    let shape = own.block_len.and_then(shape).unwrap_or_default();
    let shape = Shape { detached: place.sidecar.is_some(), ..shape };
    let mut fields = create::compose(file, shape, &maps, &offers);
    create::make_room(&mut fields);
    let table = create::table(place.name, fields).map_err(|error| failure(mpi, &error))?;
    let signatures = signatures(mpi, ranks, keys.as_ref(), &table)?;
    let head = told_head(mpi, ranks, place, maker, |below| {
        create::write_first(place.name, below, keys.as_ref(), table, &signatures).map_err(|error| failure(mpi, &error))
    })?;
    open_head(mpi, ranks, place, keys, head).map(Some)
}

/// A key for each of some maps, whose regions have the numbers from `first` on, by the first rank that may write under its
/// label; and who that is.
fn offers(
    mpi: &Mpi,
    ranks: Ranks,
    keys: &dyn Keys,
    name: &str,
    file: FileId,
    (first, maps): (usize, &[Map]),
) -> Result<Vec<(i32, Offer)>, Failure> {
    if maps.is_empty() {
        return Ok(Vec::new());
    }
    let labels: Vec<&str> = maps.iter().map(|map| map.label.as_deref().expect("a map names a label")).collect();
    let known: Vec<_> = labels.iter().map(|label| keys.label(label)).collect();
    let may: Vec<i64> = known.iter().map(|known| i64::from(matches!(known, Ok(label) if label.may_write))).collect();
    let all = ranks.gather(mpi, &may)?;
    let mut message = Writer::default();
    let mut makers = Vec::with_capacity(maps.len());
    for (place, (label, known)) in labels.iter().zip(known).enumerate() {
        let Some(who) = all.chunks(maps.len()).position(|may| may[place] == 1) else {
            let alone = || "it is here for reading alone".to_owned();
            let told = |_| keys.refused_writing(label).map_or_else(alone, |told| told.to_string());
            let why = known.map_or_else(|error| error.to_string(), told);
            let what = format!("{name}: no rank may write under label \"{label}\" of the map; this one: {why}");
            return Err(Failure::new(mpi.abi.class.access, what));
        };
        let region = RegionId::try_from(first + place)
            .map_err(|_| Failure::new(mpi.abi.class.argument, format!("{name}: it has too many maps")))?;
        if ranks.rank == who as i32 {
            put_offer(&mut message, create::offer(keys, label, file, region, 1));
        }
        makers.push(who);
    }
    let incoming = ranks.told_by_all(mpi, message.0)?;
    let mut readers: Vec<Reader<'_>> = incoming.each().map(|(_, message)| Reader::new(message)).collect();
    let offers = labels.iter().zip(makers).map(|(label, who)| {
        let offer = take_offer(&mut readers[who], label);
        offer.map(|offer| (who as i32, offer)).map_err(|what| Failure::new(mpi.abi.class.access, what))
    });
    offers.collect()
}

/// An offer, or why there is none.
fn put_offer(message: &mut Writer, offer: Result<Offer, gambeson_keys::KeyError>) {
    match offer {
        Ok(offer) => {
            message.bytes(&[]);
            message.u32(offer.label.version);
            message.bytes(&offer.label.verifying_key);
            message.bytes(&offer.commitment);
            message.bytes(&offer.wrapped);
        }
        Err(error) => message.bytes(error.to_string().as_bytes()),
    }
}

fn take_offer(reader: &mut Reader<'_>, label: &str) -> Result<Offer, String> {
    let failed = reader.bytes();
    if !failed.is_empty() {
        return Err(String::from_utf8_lossy(failed).into_owned());
    }
    let version = reader.u32();
    let mut array = || -> [u8; 32] { reader.bytes().try_into().expect("32 bytes") };
    let (verifying_key, commitment) = (array(), array());
    let wrapped = reader.bytes().to_vec();
    Ok(Offer { label: Label { name: label.to_owned(), version, verifying_key }, wrapped, commitment })
}

/// The signatures that all ranks together can give for a table.
fn signatures(mpi: &Mpi, ranks: Ranks, keys: &dyn Keys, table: &Table) -> Result<Vec<(u16, [u8; 64])>, Failure> {
    let mut message = Writer::default();
    for (place, signature) in create::sign(keys, table) {
        message.u32(place.into());
        message.bytes(&signature);
    }
    let incoming = ranks.told_by_all(mpi, message.0)?;
    let mut signatures = Vec::new();
    for (_, message) in incoming.each() {
        let mut reader = Reader::new(message);
        while !reader.is_done() {
            let place = reader.u32() as u16;
            signatures.push((place, reader.bytes().try_into().expect("64 bytes")));
        }
    }
    Ok(signatures)
}

/// What all ranks say together, at each of them: one map for each label.
fn told(mpi: &Mpi, ranks: Ranks, name: &str, own: &MapPart) -> Result<Vec<Map>, Failure> {
    let mut message = Writer::default();
    message.bytes(own.label.as_bytes());
    message.u32(own.suite as u32);
    message.u32(own.block_len.unwrap_or(0));
    if let Some(part) = &own.part {
        message.u64(part.displacement());
        message.u64(part.extent());
        message.u32(u32::try_from(part.pieces().len()).expect("a map has fewer pieces"));
        for piece in part.pieces() {
            message.u64(piece.offset);
            message.u64(piece.len);
        }
    }
    let incoming = ranks.told_by_all(mpi, message.0)?;
    let parts = incoming.each().map(|(_, message)| {
        let mut reader = Reader::new(message);
        let label = String::from_utf8_lossy(reader.bytes()).into_owned();
        let suite = FileSuite::from_number(reader.u32() as u8).expect("a rank names a suite that there is");
        let block_len = Some(reader.u32()).filter(|&length| length > 0);
        let part = (!reader.is_done()).then(|| {
            let (displacement, extent) = (reader.u64(), reader.u64());
            let pieces: Vec<Piece> =
                (0..reader.u32()).map(|_| Piece { offset: reader.u64(), len: reader.u64() }).collect();
            Part::new(displacement, extent, pieces).expect("it was one at its rank")
        });
        MapPart { label, suite, block_len, part }
    });
    let parts: Vec<MapPart> = parts.collect();
    merge(&parts).map_err(|what| Failure::new(mpi.abi.class.argument, format!("{name}: {what}")))
}

/// One map for each label, of all ranks' parts.
fn merge(all: &[MapPart]) -> Result<Vec<Map>, String> {
    let mut maps: Vec<Map> = Vec::new();
    for given in all {
        if given.block_len != all[0].block_len {
            return Err("the ranks gave different lengths of blocks for the map".to_owned());
        }
        match maps.iter_mut().find(|map| map.label.as_ref() == Some(&given.label)) {
            Some(map) if map.suite == given.suite => map.parts.extend(given.part.clone()),
            Some(_) => return Err(format!("the ranks gave different suites for label \"{}\" of the map", given.label)),
            None => maps.push(Map {
                label: Some(given.label.clone()),
                suite: given.suite,
                parts: given.part.iter().cloned().collect(),
            }),
        }
    }
    for map in &mut maps {
        map.parts = Part::merge(std::mem::take(&mut map.parts));
    }
    maps.retain(|map| !map.parts.is_empty());
    maps.sort_by(|one, other| one.label.cmp(&other.label));
    Ok(maps)
}

/// The bytes of blocks that a program asked for.
pub(crate) fn shape(block_len: u32) -> Option<Shape> {
    let fits = block_len.is_power_of_two() && (4 << 10..=1 << 20).contains(&block_len);
    fits.then(|| Shape { block_len, ..Shape::default() })
}
