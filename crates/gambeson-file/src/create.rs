//! Making a sealed file, and laying maps over one: whose each byte is, under keys that are drawn here.
//!
//! Labels may be in several hands. So each step is a value that one process makes and another takes: whoever may write
//! under a label *offers* a data key wrapped by it, somebody *composes* the table of all offers, every label *signs* it,
//! and one process writes the header.

use gambeson_keys::{KeyError, Keys};
use gambeson_proto::file::geometry::HeaderCopy;
use gambeson_proto::file::header::Header;
use gambeson_proto::file::region::{Part, RegionId};
use gambeson_proto::file::state::{State, Status};
use gambeson_proto::file::table::{Fields, Label, Region, Table, WrappedKey};
use gambeson_proto::file::{FileId, FileSuite, Geometry, KeyId, context, geometry, tree};
use gambeson_proto::secret::Secret32;
use zeroize::Zeroizing;

use crate::below::Below;
use crate::body::{Body, Piece};
use crate::error::{Cause, Error};

/// Bytes that are to be under a label, or plain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Map {
    /// The label; none: plain by decision.
    pub label: Option<String>,
    /// How they are sealed.
    pub suite: FileSuite,
    /// Which bytes; none: all that nobody else claims.
    pub parts: Vec<Part>,
}

/// What a file is to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Bytes of a block.
    pub block_len: u32,
    /// Two slots per block.
    pub two_slots: bool,
    /// The data in a file of its own.
    pub detached: bool,
}

/// A data key for one region, by somebody who may write under its label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    /// The label, at its newest version.
    pub label: Label,
    /// The key of epoch 1, wrapped by it.
    pub wrapped: Vec<u8>,
    /// What tells the right key.
    pub commitment: [u8; 32],
}

impl Default for Shape {
    fn default() -> Self {
        Shape { block_len: geometry::BLOCK_LEN, two_slots: false, detached: false }
    }
}

/// A file's number: 16 bytes of the kernel's.
pub fn draw_file_id() -> FileId {
    let mut id = [0; 16];
    getrandom::fill(&mut id).expect("the kernel gives random numbers once it is up");
    id
}

/// Offers a data key for a region, under the newest version of its label.
///
/// # Errors
/// The label is not known here, or may not be written with.
pub fn offer(keys: &dyn Keys, label: &str, file: FileId, region: RegionId, epoch: u16) -> Result<Offer, KeyError> {
    let mut bytes = Zeroizing::new([0; 32]);
    getrandom::fill(&mut *bytes).expect("the kernel gives random numbers once it is up");
    rewrap(keys, label, &Secret32::from_bytes(*bytes), KeyId { file, region, epoch })
}

/// Offers a data key that there is, under the newest version of a label.
///
/// # Errors
/// As [`offer`].
pub fn rewrap(keys: &dyn Keys, label: &str, secret: &Secret32, id: KeyId) -> Result<Offer, KeyError> {
    let held = keys.label(label)?;
    let wrapped = keys.wrap(label, held.version, &context::wrap(&id, label, held.version), secret)?;
    let label = Label { name: label.to_owned(), version: held.version, verifying_key: held.verifying_key };
    Ok(Offer { label, wrapped, commitment: context::commitment(secret, &id) })
}

/// The fields of a new file's table: its first map is the rest. `offers`: one for each map with a label.
pub fn compose(file: FileId, shape: Shape, maps: &[Map], offers: &[Option<Offer>]) -> Fields {
    let geometry = Geometry { two_slots: shape.two_slots, detached: shape.detached, ..Geometry::new(shape.block_len) };
    let mut fields = Fields { file, geometry, labels: Vec::new(), regions: Vec::new() };
    add(&mut fields, maps, offers);
    fields
}

/// Adds regions to a table's fields, with room for their entries and their description.
pub fn add(fields: &mut Fields, maps: &[Map], offers: &[Option<Offer>]) {
    for (map, offer) in maps.iter().zip(offers) {
        let keys = offer.iter().map(|offer| WrappedKey {
            epoch: 1,
            label: place(&mut fields.labels, &offer.label),
            wrapped: offer.wrapped.clone(),
            commitment: offer.commitment,
        });
        let keys = keys.collect();
        fields.regions.push(Region { suite: map.suite, keys, parts: map.parts.clone() });
    }
}

/// Makes as much room for entries and header as the regions need. Only in a file without data.
pub fn make_room(fields: &mut Fields) {
    let sealed = fields.regions.iter().filter(|region| region.is_sealed()).count();
    fields.geometry.shares = sealed.clamp(1, 255) as u8;
    let described: usize =
        fields.regions.iter().flat_map(|region| &region.parts).map(|part| 20 + 16 * part.pieces().len()).sum();
    let keys: usize = fields.regions.iter().flat_map(|region| &region.keys).map(|key| 40 + key.wrapped.len()).sum();
    let labels: usize = fields.labels.iter().map(|label| 37 + label.name.len() + 66).sum();
    // Room to grow: keys of later epochs, and versions of labels.
    let wanted = 2 * (described + keys + labels + 1024);
    let wanted = wanted.next_power_of_two().min(geometry::HEADER_LEN_MAX as usize) as u32;
    fields.geometry.header_len = wanted.max(geometry::HEADER_LEN);
}

/// The place of a label in a list, at its end if it is not there yet.
pub(crate) fn place(labels: &mut Vec<Label>, label: &Label) -> u16 {
    let there = labels.iter().position(|known| known == label);
    let place = there.unwrap_or_else(|| {
        labels.push(label.clone());
        labels.len() - 1
    });
    u16::try_from(place).expect("a table has less than 65536 labels")
}

/// A table of these fields.
///
/// # Errors
/// They make none: the sentence says why.
pub fn table(name: &str, fields: Fields) -> Result<Table, Error> {
    Table::new(fields).map_err(|error| Error::new(Cause::Map, name, format!("its regions can't be so: {error}")))
}

/// The signatures that this identity can give for a table, by the labels' places.
pub fn sign(keys: &dyn Keys, table: &Table) -> Vec<(u16, [u8; 64])> {
    let message = table.message();
    let signature = |label: &Label| keys.sign(&label.name, label.version, &message).ok();
    (0..).zip(table.labels()).filter_map(|(place, label)| Some((place, signature(label)?))).collect()
}

/// The state of a file that nothing was written to.
pub fn empty_state() -> State {
    State { serial: 1, generation: 1, status: Status::Closed, size: 0, root: tree::root(&[]), closed: 1, base: 1 }
}

/// Makes a sealed file of a body that is empty, alone. `maps`: the first is the rest.
///
/// # Errors
/// A label that can't be written with, maps that overlap, or what the body says.
pub fn create<B: Body>(name: &str, body: &Below<B>, keys: &dyn Keys, shape: Shape, maps: &[Map]) -> Result<(), Error> {
    let file = draw_file_id();
    let offers = (0..)
        .zip(maps)
        .map(|(region, map)| map.label.as_deref().map(|label| offer(keys, label, file, region, 1)).transpose());
    let offers =
        offers.collect::<Result<Vec<_>, _>>().map_err(|error| Error::new(Cause::Key, name, error.to_string()))?;
    let mut fields = compose(file, shape, maps, &offers);
    make_room(&mut fields);
    let table = table(name, fields)?;
    let signatures = sign(keys, &table);
    write_first(name, body, keys, table, &signatures)
}

/// Writes the first header of a file, of a table that all its labels have signed.
///
/// # Errors
/// A signature is missing, or what the body says.
pub fn write_first<B: Body>(
    name: &str,
    body: &Below<B>,
    keys: &dyn Keys,
    table: Table,
    signatures: &[(u16, [u8; 64])],
) -> Result<(), Error> {
    write_first_at(name, body, keys, table, signatures, 1)
}

/// As [`write_first`], for a file that takes the place of one that was at an earlier generation.
///
/// # Errors
/// As [`write_first`].
pub fn write_first_at<B: Body>(
    name: &str,
    body: &Below<B>,
    keys: &dyn Keys,
    table: Table,
    signatures: &[(u16, [u8; 64])],
    generation: u64,
) -> Result<(), Error> {
    body.check(name, table.geometry())?;
    let state = State { generation, closed: generation, base: generation, ..empty_state() };
    let header = header(name, keys, table, signatures, state)?;
    let bytes = header.encode().map_err(|error| Error::new(Cause::Header, name, error.to_string()))?;
    let geometry = header.table().geometry();
    let pieces =
        [HeaderCopy::A, HeaderCopy::B].map(|copy| Piece { offset: geometry.header(copy), length: bytes.len() });
    let written = body.set_lengths(Some(0), Some(0)).and_then(|()| body.write(&pieces, &[&bytes[..], &bytes].concat()));
    written.map_err(|error| Error::below(name, "writing its header failed", error))?;
    body.mark();
    Ok(())
}

/// A header of a table that its labels have signed, in a state that this identity signs.
pub(crate) fn header(
    name: &str,
    keys: &dyn Keys,
    table: Table,
    signatures: &[(u16, [u8; 64])],
    state: State,
) -> Result<Header, Error> {
    let mut all = Vec::with_capacity(table.labels().len());
    for (place, label) in (0..).zip(table.labels()) {
        let Some((_, signature)) = signatures.iter().find(|(of, _)| *of == place) else {
            let what = format!(
                "its regions can't be so: nobody here may sign for label \"{}\", which the file has; ask its owner for an export that may write",
                label.name
            );
            return Err(Error::new(Cause::Key, name, what));
        };
        all.push(*signature);
    }
    let (signer, signature) = sign_state(name, keys, &table, &state)?;
    Ok(Header::new(table, all, state, signer, signature))
}

/// A signature of a state by the first label that this identity may write with.
pub(crate) fn sign_state(name: &str, keys: &dyn Keys, table: &Table, state: &State) -> Result<(u16, [u8; 64]), Error> {
    let message = state.message(table.digest());
    let mut refused = None;
    for (place, label) in (0..).zip(table.labels()) {
        match keys.sign(&label.name, label.version, &message) {
            Ok(signature) => return Ok((place, signature)),
            Err(error) => {
                refused.get_or_insert(error);
            }
        }
    }
    let told = table.labels().iter().find_map(|label| keys.refused_writing(&label.name));
    let why = told.or(refused).expect("a file has a label");
    Err(Error::new(Cause::Key, name, format!("nobody here may sign for it, which takes a key that may write: {why}")))
}
