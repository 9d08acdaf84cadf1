//! Sealed files, made and read again.

use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair};
use gambeson_proto::file::entry::{Decoded, ENTRY_LEN};
use gambeson_proto::file::geometry::{Half, HeaderCopy};
use gambeson_proto::file::header::{Distrust, HeaderError, Unverified, choose};
use gambeson_proto::file::region::Piece;
use gambeson_proto::file::share::Write;
use gambeson_proto::file::state::Status;
use gambeson_proto::file::table::{Fields, Label, Region, WrappedKey};
use gambeson_proto::file::{
    BlockMap, DataKey, Digest, Entry, FileSuite, Geometry, Header, KeyId, Part, State, Table, context, tree,
};
use gambeson_proto::secret::Secret32;
use serde_json::{Value, json};

use super::{array, bytes, hex, number, refused, text};

pub(super) fn share(given: &Value) -> Value {
    let key = DataKey::new(suite(given), &Secret32::from_bytes(array(given, "key")), key_id(given));
    let (plain, write) = (bytes(given, "plain"), write(given));
    let mut sealed = vec![0; plain.len()];
    let entry = key.seal(&write, &plain, &mut sealed);
    let mut opened = sealed.clone();
    assert_eq!(key.open_in_place(&entry, write.block, &mut opened), Ok(()));
    assert_eq!(opened, plain);
    json!({ "entry": hex(&entry.encode()), "sealed": hex(&sealed), "commitment": hex(key.commitment()) })
}

pub(super) fn offsets(given: &Value) -> Value {
    let geometry = geometry(&given["geometry"]);
    let place = |block: &Value| {
        let block = block.as_u64().expect("a number");
        let group = geometry.group(block);
        let place = json!({
            "digest_table": geometry.digest_table(geometry.chapter(group)),
            "entry_table": geometry.entry_table(group),
            "slot": geometry.slot(block),
        });
        (block.to_string(), place)
    };
    let blocks: serde_json::Map<String, Value> = list(given, "blocks").iter().map(place).collect();
    json!({ "blocks": blocks })
}

pub(super) fn sealed_file(given: &Value) -> Value {
    let table = Table::new(fields(given)).expect("a legal table");
    let mut file = Files::default();
    for write in list(given, "writes") {
        file.write(given, &table, write);
    }
    let size = number(&given["state"], "size");
    let root = file.anchor(table.geometry(), size);
    let header = header(given, table, root);
    let copy = if text(given, "copy") == "A" { HeaderCopy::A } else { HeaderCopy::B };
    file.body.put(header.table().geometry().header(copy), &header.encode().expect("it is short"));
    file.check(given, &header, copy);
    let mut made = json!({
        "root": hex(&root),
        "file": file.body.pieces(),
        "sha256": hex(digest(&SHA256, &file.body.0).as_ref()),
    });
    if header.table().geometry().detached {
        made["data"] = file.data.pieces();
    }
    made
}

pub(super) fn read_header(given: &Value) -> Value {
    let header = match Unverified::decode(&bytes(given, "copy")) {
        Ok(header) => header,
        Err(HeaderError::Foreign) => return refused("Foreign"),
        Err(HeaderError::Damaged) => return refused("Damaged"),
        Err(HeaderError::Version(_)) => return refused("Version"),
        Err(other) => panic!("no vector expects {other:?}"),
    };
    let pinned = |label: &Label| {
        let is_known =
            |known: &&Value| text(known, "name") == label.name && number(known, "version") == u64::from(label.version);
        list(given, "pinned").iter().find(is_known).map(|known| array(known, "verifying_key"))
    };
    match header.verify(pinned) {
        Ok(header) => json!({
            "state": hex(&header.state().encode()),
            "labels": header.table().labels().iter().map(|label| &*label.name).collect::<Vec<_>>(),
        }),
        Err(Distrust::Unknown) => refused("Unknown"),
        Err(Distrust::OtherKey(_)) => refused("OtherKey"),
        Err(Distrust::Table(_)) => refused("Table"),
        Err(Distrust::State(_)) => refused("State"),
        Err(other) => panic!("no vector expects {other:?}"),
    }
}

/// Bytes at offsets; what nobody wrote is zero.
#[derive(Default)]
struct Body(Vec<u8>);

impl Body {
    fn put(&mut self, at: u64, bytes: &[u8]) {
        let (at, end) = (at as usize, at as usize + bytes.len());
        self.0.resize(self.0.len().max(end), 0);
        self.0[at..end].copy_from_slice(bytes);
    }

    fn at(&self, at: u64, len: usize) -> Vec<u8> {
        (at as usize..at as usize + len).map(|at| self.0.get(at).copied().unwrap_or(0)).collect()
    }

    fn pieces(&self) -> Value {
        let is_zero = |step: &[u8]| step.iter().all(|byte| *byte == 0);
        let steps: Vec<(usize, &[u8])> = self.0.chunks(16).enumerate().collect();
        let runs = steps.chunk_by(|a, b| is_zero(a.1) == is_zero(b.1)).filter(|run| !is_zero(run[0].1));
        runs.map(|run| json!([run[0].0 * 16, run.iter().map(|step| hex(step.1)).collect::<String>()])).collect()
    }
}

#[derive(Default)]
struct Files {
    body: Body,
    data: Body,
    /// What is in the entry tables: block, index, entry.
    anchored: Vec<(u64, u8, Entry)>,
}

impl Files {
    fn body(&mut self, geometry: &Geometry) -> &mut Body {
        if geometry.detached { &mut self.data } else { &mut self.body }
    }

    fn write(&mut self, given: &Value, table: &Table, said: &Value) {
        let (geometry, write) = (table.geometry(), write(said));
        let half = if said["half"] == 1 { Half::Second } else { Half::First };
        let map = table.layout().block(write.block);
        let (place, share) = map.share(number(said, "region") as u16).expect("the region has bytes in the block");
        let block = seen(geometry, write.block);
        let mut bytes = vec![0; number(said, "length") as usize];
        map.gather(place, &block, &mut bytes);
        if let Some(index) = share.entry {
            let epoch = number(said, "epoch") as u16;
            let plain = bytes.clone();
            let entry = data_key(given, table, share.region, epoch).seal(&write, &plain, &mut bytes);
            self.body.put(geometry.entry(write.block, index, half), &entry.encode());
            if said["anchored"] != false {
                self.anchored.push((write.block, index, entry));
            }
        }
        let at = geometry.data(write.block, half) + u64::from(share.area);
        self.body(geometry).put(at, &bytes);
    }

    fn anchor(&mut self, geometry: &Geometry, size: u64) -> Digest {
        for (block, index, entry) in std::mem::take(&mut self.anchored) {
            let at = geometry.entry_table(geometry.group(block)) + geometry.entry_in_table(block, index) as u64;
            self.body.put(at, &entry.encode());
        }
        let chapters: Vec<Digest> = (0..geometry.chapters_of(geometry.blocks(size)))
            .map(|chapter| {
                let first = chapter * u64::from(geometry.groups);
                let digests: Vec<u8> = (first..first + u64::from(geometry.groups))
                    .flat_map(|group| {
                        let table = self.body.at(geometry.entry_table(group), geometry.entry_table_len());
                        tree::entry_table(&table)
                    })
                    .collect();
                self.body.put(geometry.digest_table(chapter), &digests);
                tree::digest_table(&digests)
            })
            .collect();
        tree::root(&chapters)
    }

    /// Reads all of it again, with the header's keys alone.
    fn check(&mut self, given: &Value, header: &Header, copy: HeaderCopy) {
        let geometry = *header.table().geometry();
        let [a, b] = [HeaderCopy::A, HeaderCopy::B]
            .map(|copy| self.body.at(geometry.header(copy), geometry.header_len as usize));
        let (found, place) = choose(&a, &b).expect("one of the copies is there");
        assert_eq!(place, copy);
        assert_eq!(found.verify(|label| Some(label.verifying_key)).as_ref(), Ok(header));
        for block in 0..geometry.blocks(header.state().size) {
            let table = self.body.at(geometry.entry_table(geometry.group(block)), geometry.entry_table_len());
            let map = header.table().layout().block(block);
            for (place, share) in map.shares().iter().enumerate() {
                let Some(index) = share.entry else { continue };
                let anchored = &table[geometry.entry_in_table(block, index)..][..ENTRY_LEN];
                let Decoded::Entry(anchored) = Entry::decode(anchored.try_into().unwrap()) else { continue };
                let halves = [Half::First, Half::Second];
                let half = halves.into_iter().take(1 + usize::from(geometry.two_slots)).find(|half| {
                    let inline = self.body.at(geometry.entry(block, index, *half), ENTRY_LEN);
                    inline == anchored.encode()
                });
                let Some(half) = half else { panic!("block {block} was not anchored") };
                let at = geometry.data(block, half) + u64::from(share.area);
                let mut bytes = self.body(&geometry).at(at, anchored.length as usize);
                let key = data_key(given, header.table(), share.region, anchored.epoch);
                assert_eq!(key.open_in_place(&anchored, block, &mut bytes), Ok(()));
                check_content(&map, place, &geometry, block, &bytes);
            }
        }
    }
}

fn check_content(map: &BlockMap, share: usize, geometry: &Geometry, block: u64, bytes: &[u8]) {
    let mut expected = vec![0; bytes.len()];
    map.gather(share, &seen(geometry, block), &mut expected);
    assert_eq!(bytes, expected);
}

/// A block as its program wrote it.
fn seen(geometry: &Geometry, block: u64) -> Vec<u8> {
    let start = block * u64::from(geometry.block_len);
    (start..start + u64::from(geometry.block_len)).map(|at| (at * 7 + at / 251) as u8).collect()
}

fn geometry(given: &Value) -> Geometry {
    Geometry {
        block_len: number(given, "block_len") as u32,
        shares: number(given, "shares") as u8,
        group_blocks: number(given, "group_blocks") as u32,
        groups: number(given, "groups") as u32,
        header_len: number(given, "header_len") as u32,
        two_slots: given["two_slots"] == true,
        detached: given["detached"] == true,
    }
}

fn fields(given: &Value) -> Fields {
    let label = |label: &Value| Label {
        name: text(label, "name").to_owned(),
        version: number(label, "version") as u32,
        verifying_key: signing(label).public_key().as_ref().try_into().expect("32 bytes"),
    };
    let region = |(number, said): (usize, &Value)| Region {
        suite: suite(said),
        keys: list(said, "keys").iter().map(|key| wrapped(given, number as u16, key)).collect(),
        parts: list(said, "parts").iter().map(part).collect(),
    };
    Fields {
        file: array(given, "file"),
        geometry: geometry(&given["geometry"]),
        labels: list(given, "labels").iter().map(label).collect(),
        regions: list(given, "regions").iter().enumerate().map(region).collect(),
    }
}

fn wrapped(given: &Value, region: u16, key: &Value) -> WrappedKey {
    let epoch = number(key, "epoch") as u16;
    let id = KeyId { file: array(given, "file"), region, epoch };
    WrappedKey {
        epoch,
        label: number(key, "label") as u16,
        wrapped: bytes(key, "wrapped"),
        commitment: context::commitment(&Secret32::from_bytes(array(key, "key")), &id),
    }
}

fn part(given: &Value) -> Part {
    let pieces = list(given, "pieces").iter().map(|piece| {
        let [offset, len] = [0, 1].map(|at| piece[at].as_u64().expect("a number"));
        Piece { offset, len }
    });
    Part::new(number(given, "displacement"), number(given, "extent"), pieces).expect("a legal part")
}

fn header(given: &Value, table: Table, root: Digest) -> Header {
    let (said, labels) = (&given["state"], list(given, "labels"));
    let state = State {
        serial: number(said, "serial"),
        generation: number(said, "generation"),
        status: if said["status"] == "open" { Status::Open } else { Status::Closed },
        size: number(said, "size"),
        root,
        closed: number(said, "closed"),
        base: number(said, "base"),
    };
    let sign = |label: &Value, message: &[u8]| signing(label).sign(message).as_ref().try_into().expect("64 bytes");
    let signer = number(given, "signer") as u16;
    let signatures = labels.iter().map(|label| sign(label, &table.message())).collect();
    let signature = sign(&labels[usize::from(signer)], &state.message(table.digest()));
    Header::new(table, signatures, state, signer, signature)
}

fn data_key(given: &Value, table: &Table, region: u16, epoch: u16) -> DataKey {
    let keys = list(&given["regions"][usize::from(region)], "keys");
    let key = keys.iter().find(|key| number(key, "epoch") == u64::from(epoch)).expect("the region has such a key");
    let secret = Secret32::from_bytes(array(key, "key"));
    let fields = &table.regions()[usize::from(region)];
    let key = DataKey::new(fields.suite, &secret, table.key_id(region, epoch));
    assert!(fields.keys_of(epoch).all(|wrapped| wrapped.commitment == *key.commitment()));
    key
}

fn write(given: &Value) -> Write {
    Write { nonce: array(given, "nonce"), block: number(given, "block"), generation: number(given, "generation") }
}

fn key_id(given: &Value) -> KeyId {
    KeyId { file: array(given, "file"), region: number(given, "region") as u16, epoch: number(given, "epoch") as u16 }
}

fn suite(given: &Value) -> FileSuite {
    FileSuite::from_name(text(given, "suite")).expect("a suite")
}

fn signing(label: &Value) -> Ed25519KeyPair {
    Ed25519KeyPair::from_seed_unchecked(&array::<32>(label, "seed")).expect("32 bytes")
}

fn list<'a>(given: &'a Value, name: &str) -> &'a [Value] {
    given[name].as_array().unwrap_or_else(|| panic!("{name} is a list"))
}
