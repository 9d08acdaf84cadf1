//! What the header says of the file's shape and keys: it changes when maps, keys or labels do.
//!
//! ```text
//!  file 16 | log2 B u8 | log2 H u8 | E u8 | N u32 | G u32 | flags u8 (1: two slots per block, 2: detached)
//!  labels u16 x { length u8, name | version u32 | verifying key 32 }
//!  regions u16 x { suite u8
//!                  keys u16 x { epoch u16 | label u16 | length u16, wrapped key | commitment 32 }
//!                  parts u32 x { displacement u64 | extent u64 | pieces u32 x { offset u64 | length u64 } } }
//! ```

use std::fmt;

use super::codec::Reader;
use super::region::{Overlap, PIECES_MAX, Part, PartError, Piece, REGIONS_MAX, RegionId, Regions};
use super::{Digest, FileId, FileSuite, Geometry, KeyId, context, tree};

/// The longest name of a label, in bytes.
pub const NAME_LEN_MAX: usize = 255;
/// The most labels of a file.
pub const LABELS_MAX: usize = 1024;
/// The most keys of a region: epochs times the labels that can open each.
pub const KEYS_MAX: usize = 4096;
/// The most bytes of a wrapped key.
pub const WRAPPED_LEN_MAX: usize = 4096;

/// A label, at a version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Label {
    /// Its name: 1 to 255 bytes without control characters.
    pub name: String,
    /// Its version, from 1 on.
    pub version: u32,
    /// What verifies the signatures of whoever may write under it (Ed25519).
    pub verifying_key: [u8; 32],
}

/// A data key, wrapped by a label's key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WrappedKey {
    /// Which of the region's keys.
    pub epoch: u16,
    /// The label, by its place in the table.
    pub label: u16,
    /// The key, wrapped under [`context::wrap`].
    pub wrapped: Vec<u8>,
    /// What tells the right key: [`context::commitment`].
    pub commitment: [u8; 32],
}

/// A region.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Region {
    /// How its shares are sealed.
    pub suite: FileSuite,
    /// Its keys, in order of epoch and label. Without any it is plain, by decision.
    pub keys: Vec<WrappedKey>,
    /// Its bytes. Region 0 has no parts: it is the rest.
    pub parts: Vec<Part>,
}

/// What a table consists of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fields {
    /// The file.
    pub file: FileId,
    /// Its measures.
    pub geometry: Geometry,
    /// The labels, each once.
    pub labels: Vec<Label>,
    /// The regions, by number.
    pub regions: Vec<Region>,
}

/// A legal table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    fields: Fields,
    layout: Regions,
    encoded: Vec<u8>,
    digest: Digest,
}

/// Why fields make no table.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TableError {
    /// The bytes end early, go on behind the end, or name what there is not.
    Malformed,
    /// Measures that no file has.
    Geometry,
    /// A label without a name or version, or one that is there twice, at this place.
    Label(usize),
    /// No region, more than there can be, or parts of region 0.
    Regions,
    /// No region is sealed, or more than a slot has entries.
    Sealed {
        /// How many are.
        sealed: usize,
        /// E.
        entries: u8,
    },
    /// The keys of this region: out of order, of no label, too long, or two commitments to one epoch's key.
    Keys(RegionId),
    /// A part of this region.
    Part(RegionId, PartError),
    /// This region claims a byte of another.
    Overlap(RegionId, Overlap),
}

impl Table {
    /// A table, if the fields make one.
    pub fn new(fields: Fields) -> Result<Self, TableError> {
        let layout = fields.check()?;
        let encoded = fields.encode();
        let digest = tree::sha256(&encoded);
        Ok(Table { fields, layout, encoded, digest })
    }

    /// Its bytes.
    pub fn encode(&self) -> &[u8] {
        &self.encoded
    }

    /// The SHA-256 of its bytes.
    pub fn digest(&self) -> &Digest {
        &self.digest
    }

    /// What every label signs of it.
    pub fn message(&self) -> Vec<u8> {
        context::table(&self.digest)
    }

    /// The file.
    pub fn file(&self) -> &FileId {
        &self.fields.file
    }

    /// Its measures.
    pub fn geometry(&self) -> &Geometry {
        &self.fields.geometry
    }

    /// The labels.
    pub fn labels(&self) -> &[Label] {
        &self.fields.labels
    }

    /// The regions, by number.
    pub fn regions(&self) -> &[Region] {
        &self.fields.regions
    }

    /// Whose each byte is.
    pub fn layout(&self) -> &Regions {
        &self.layout
    }

    /// All of it, to make another table of.
    pub fn fields(&self) -> &Fields {
        &self.fields
    }

    /// Whose data key one of a region's is.
    pub fn key_id(&self, region: RegionId, epoch: u16) -> KeyId {
        KeyId { file: self.fields.file, region, epoch }
    }
}

impl Region {
    /// Whether it is sealed.
    pub fn is_sealed(&self) -> bool {
        !self.keys.is_empty()
    }

    /// The epoch that is written with: the last one.
    pub fn epoch(&self) -> Option<u16> {
        self.keys.last().map(|key| key.epoch)
    }

    /// The keys of an epoch, one for each label that can open it.
    pub fn keys_of(&self, epoch: u16) -> impl Iterator<Item = &WrappedKey> {
        self.keys.iter().filter(move |key| key.epoch == epoch)
    }
}

impl Fields {
    fn check(&self) -> Result<Regions, TableError> {
        if !self.geometry.is_legal() {
            return Err(TableError::Geometry);
        }
        self.check_labels()?;
        let (first, others) = self.regions.split_first().ok_or(TableError::Regions)?;
        let pieces: usize = self.regions.iter().flat_map(|region| &region.parts).map(|part| part.pieces().len()).sum();
        if !first.parts.is_empty() || self.regions.len() > REGIONS_MAX || pieces > PIECES_MAX {
            return Err(TableError::Regions);
        }
        let sealed = self.regions.iter().filter(|region| region.is_sealed()).count();
        let entries = self.geometry.shares;
        if sealed == 0 || sealed > entries.into() {
            return Err(TableError::Sealed { sealed, entries });
        }
        for (region, fields) in (0..).zip(&self.regions) {
            self.check_keys(&fields.keys).ok_or(TableError::Keys(region))?;
        }
        let mut layout = Regions::new(self.geometry.block_len, first.is_sealed());
        for (region, fields) in (1..).zip(others) {
            let added = layout.add(fields.is_sealed(), fields.parts.clone());
            added.map_err(|overlap| TableError::Overlap(region, overlap))?;
        }
        Ok(layout)
    }

    fn check_labels(&self) -> Result<(), TableError> {
        if self.labels.len() > LABELS_MAX {
            return Err(TableError::Label(LABELS_MAX));
        }
        for (place, label) in self.labels.iter().enumerate() {
            let twice = |other: &Label| other.name == label.name && other.version == label.version;
            let is_name = (1..=NAME_LEN_MAX).contains(&label.name.len()) && !label.name.contains(char::is_control);
            if !is_name || label.version == 0 || self.labels[..place].iter().any(twice) {
                return Err(TableError::Label(place));
            }
        }
        Ok(())
    }

    fn check_keys(&self, keys: &[WrappedKey]) -> Option<()> {
        let in_order = keys.is_sorted_by(|a, b| (a.epoch, a.label) < (b.epoch, b.label));
        let agree = |pair: &[WrappedKey]| pair[0].epoch != pair[1].epoch || pair[0].commitment == pair[1].commitment;
        let is_legal = |key: &WrappedKey| {
            usize::from(key.label) < self.labels.len() && (1..=WRAPPED_LEN_MAX).contains(&key.wrapped.len())
        };
        (keys.len() <= KEYS_MAX && in_order && keys.windows(2).all(agree) && keys.iter().all(is_legal)).then_some(())
    }

    fn encode(&self) -> Vec<u8> {
        let geometry = &self.geometry;
        let mut out = self.file.to_vec();
        out.extend([geometry.block_len.ilog2() as u8, geometry.header_len.ilog2() as u8, geometry.shares]);
        out.extend(geometry.group_blocks.to_be_bytes());
        out.extend(geometry.groups.to_be_bytes());
        out.push(u8::from(geometry.two_slots) | u8::from(geometry.detached) << 1);
        out.extend((self.labels.len() as u16).to_be_bytes());
        for label in &self.labels {
            out.push(label.name.len() as u8);
            out.extend(label.name.as_bytes());
            out.extend(label.version.to_be_bytes());
            out.extend(label.verifying_key);
        }
        out.extend((self.regions.len() as u16).to_be_bytes());
        for region in &self.regions {
            region.encode(&mut out);
        }
        out
    }

    /// Reads the fields of a table, which need not make one: that takes work, and is asked of [`Table::new`] when
    /// somebody who is known has signed them. There is one way to write fields.
    pub fn decode(bytes: &[u8]) -> Result<Self, TableError> {
        let mut reader = Reader(bytes);
        let head = Self::head(&mut reader).ok_or(TableError::Malformed)?;
        // Where the rest of a file stands may be asked before anybody is known to have signed.
        if !head.geometry.is_legal() {
            return Err(TableError::Geometry);
        }
        let count = reader.u16().ok_or(TableError::Malformed)?;
        let mut regions = Vec::new();
        for region in 0..count {
            regions.push(Region::decode(&mut reader, region)?);
        }
        reader.end().ok_or(TableError::Malformed)?;
        Ok(Fields { regions, ..head })
    }

    fn head(reader: &mut Reader) -> Option<Self> {
        let file = reader.array()?;
        let power = |log2: u8| 1_u32.checked_shl(log2.into());
        let geometry = Geometry {
            block_len: power(reader.u8()?)?,
            header_len: power(reader.u8()?)?,
            shares: reader.u8()?,
            group_blocks: reader.u32()?,
            groups: reader.u32()?,
            two_slots: false,
            detached: false,
        };
        let flags = reader.u8().filter(|&flags| flags < 4)?;
        let geometry = Geometry { two_slots: flags & 1 != 0, detached: flags & 2 != 0, ..geometry };
        let count = reader.u16().map(usize::from).filter(|&count| count <= LABELS_MAX)?;
        let labels = reader.list(count, 37, |reader| {
            let length = reader.u8()?.into();
            let name = str::from_utf8(reader.bytes(length)?).ok()?.to_owned();
            Some(Label { name, version: reader.u32()?, verifying_key: reader.array()? })
        })?;
        Some(Fields { file, geometry, labels, regions: Vec::new() })
    }
}

impl Region {
    fn encode(&self, out: &mut Vec<u8>) {
        out.push(self.suite as u8);
        out.extend((self.keys.len() as u16).to_be_bytes());
        for key in &self.keys {
            out.extend(key.epoch.to_be_bytes());
            out.extend(key.label.to_be_bytes());
            out.extend((key.wrapped.len() as u16).to_be_bytes());
            out.extend(&key.wrapped);
            out.extend(key.commitment);
        }
        out.extend((self.parts.len() as u32).to_be_bytes());
        for part in &self.parts {
            out.extend(part.displacement().to_be_bytes());
            out.extend(part.extent().to_be_bytes());
            out.extend((part.pieces().len() as u32).to_be_bytes());
            for piece in part.pieces() {
                out.extend(piece.offset.to_be_bytes());
                out.extend(piece.len.to_be_bytes());
            }
        }
    }

    fn decode(reader: &mut Reader, number: RegionId) -> Result<Self, TableError> {
        let (suite, keys) = Self::head(reader).ok_or(TableError::Malformed)?;
        let count = reader.u32().filter(|&count| count as usize <= reader.0.len() / 36).ok_or(TableError::Malformed)?;
        let mut parts = Vec::with_capacity(count as usize);
        for _ in 0..count {
            let (displacement, extent, pieces) = Self::part(reader).ok_or(TableError::Malformed)?;
            let count = pieces.len();
            let part = Part::new(displacement, extent, pieces).map_err(|cause| TableError::Part(number, cause))?;
            // There is one way to write a part.
            if part.pieces().len() != count || part.extent() != extent {
                return Err(TableError::Part(number, PartError::Disordered));
            }
            parts.push(part);
        }
        Ok(Region { suite, keys, parts })
    }

    fn head(reader: &mut Reader) -> Option<(FileSuite, Vec<WrappedKey>)> {
        let suite = FileSuite::from_number(reader.u8()?)?;
        let count = reader.u16()?.into();
        let keys = reader.list(count, 38, |reader| {
            let (epoch, label, length) = (reader.u16()?, reader.u16()?, reader.u16()?);
            let wrapped = reader.bytes(length.into())?.to_vec();
            Some(WrappedKey { epoch, label, wrapped, commitment: reader.array()? })
        })?;
        Some((suite, keys))
    }

    fn part(reader: &mut Reader) -> Option<(u64, u64, Vec<Piece>)> {
        let (displacement, extent, count) = (reader.u64()?, reader.u64()?, reader.u32()?);
        let pieces =
            reader.list(count as usize, 16, |reader| Some(Piece { offset: reader.u64()?, len: reader.u64()? }))?;
        Some((displacement, extent, pieces))
    }
}

impl fmt::Display for TableError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed => {
                write!(out, "it breaks off, goes on behind its end, or names what this version does not know")
            }
            Self::Geometry => write!(out, "no sealed file has its measures"),
            Self::Label(place) => write!(out, "its label {place} has no name or version, or is there twice"),
            Self::Regions => write!(out, "it has no region, too many regions or pieces, or gives region 0 parts"),
            Self::Sealed { sealed: 0, .. } => write!(out, "no region of it is sealed"),
            Self::Sealed { sealed, entries } => {
                write!(out, "{sealed} regions are sealed, and a block's slot has {entries} entries")
            }
            Self::Keys(region) => {
                write!(out, "the keys of region {region} are out of order or of no label, or differ in an epoch")
            }
            Self::Part(region, cause) => write!(out, "region {region}: {cause}"),
            Self::Overlap(region, overlap) => {
                write!(out, "of what region {region} claims {overlap}")
            }
        }
    }
}

impl std::error::Error for TableError {}
