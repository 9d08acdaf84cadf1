//! What serves keys in a process: an opened store, or what a job's launcher opened for its ranks.

use std::path::Path;

use gambeson_proto::secret::Secret32;
use gambeson_site::holder;
use gambeson_site::job::{self, host_name};

use crate::anchorage::{Anchorage, Direction};
use crate::anchors::Anchors;
use crate::asked::{Asked, Giver, Wanted, is_missing};
use crate::format::{self, Header, Kind};
use crate::passphrase::Passphrase;
use crate::rank;
use crate::relay::Relayed;
use crate::ring::Ring;
use crate::store::{self, Store};
use crate::{Anchor, KeyError, Keys, Label};

/// The keys of one identity, as they were when it was opened, and who gives others by their names, if somebody does.
#[derive(Debug)]
pub struct KeyRing {
    ring: Ring,
    /// Or why there are none.
    anchors: Result<Box<dyn Anchorage>, String>,
    asked: Option<Asked>,
}

/// Opens this process's keys, and asks nobody for anything.
///
/// That is the store that `$GAMBESON_KEYS` names, so that ranks of one job can have different identities; else what the
/// job's launcher opened for all; else the store in its default place. If the named store is the one that the launcher
/// opened, it is open.
///
/// # Errors
/// When there is none, it is locked, others can get at it, or it was altered.
pub fn open() -> Result<KeyRing, KeyError> {
    open_asking(&mut |_| None)
}

/// As [`open`], and calls `ask` for the passphrase of a store that is locked.
///
/// # Errors
/// As there.
pub fn open_asking(ask: &mut dyn FnMut(&Path) -> Option<Passphrase>) -> Result<KeyRing, KeyError> {
    match open_held()? {
        Some(opened) => Ok(opened),
        None => Ok(Store::open(&store::place()?, ask)?.into_keys()),
    }
}

/// What the job's launcher opened for all, unless `$GAMBESON_KEYS` names other keys, or this is no process of a job.
///
/// # Errors
/// When this process may not have it.
pub fn open_held() -> Result<Option<KeyRing>, KeyError> {
    let Some(directory) = job::directory().filter(|directory| directory.exists()) else { return Ok(None) };
    let exposed = |why| KeyError::Exposed { store: directory.display().to_string(), why };
    let Some(held) = holder::ask(&directory, OF_JOB).map_err(exposed)? else { return Ok(None) };
    let opened = open_of_job(&directory, &held, store::named().as_deref())?;
    // Who has an identity of his own has its keys, and not those of the job's user.
    if let Some(KeyRing { ring, anchors, asked }) = opened {
        let own = if ring.store.starts_with(SERVICE) { rank::own_identity(&directory) } else { None };
        // The job's launcher asks as the job's user, whom others are not.
        let (ring, asked) = match own {
            Some(identity) => (rank::ring(&directory, &identity, &ring.store, job_of(&directory))?, None),
            None => (ring, asked),
        };
        return Ok(Some(KeyRing { ring, anchors, asked }));
    }
    Ok(None)
}

/// The first half of a job's id, which its directory is called by.
fn job_of(directory: &Path) -> [u8; 16] {
    let mut id = [0; 16];
    let digits = directory.to_str().and_then(|name| name.rsplit('-').next()).unwrap_or_default();
    for (at, byte) in id.iter_mut().enumerate().take(8) {
        *byte = digits.get(2 * at..2 * at + 2).and_then(|digits| u8::from_str_radix(digits, 16).ok()).unwrap_or(0);
    }
    id
}

/// What the job's launcher opened, unless the store that this process's environment names is another one.
fn open_of_job(job: &Path, bytes: &[u8], named: Option<&Path>) -> Result<Option<KeyRing>, KeyError> {
    let malformed = |_| KeyError::altered(&job.display().to_string(), "what `gambeson run` holds there");
    let (header, length) = Header::decode(bytes).map_err(malformed)?;
    if header.kind != Kind::Job {
        return Err(malformed(format::Malformed));
    }
    let contents = format::look_into(bytes, length).map_err(malformed)?;
    if let Some(named) = named
        && named != contents.home
        && named.canonicalize().ok().as_ref() != Some(&contents.home)
    {
        return Ok(None);
    }
    let home = contents.home;
    let ring = Ring { store: home.display().to_string(), labels: contents.labels };
    if ring.store.starts_with(SERVICE) {
        let anchors: Box<dyn Anchorage> = Box::new(Relayed::new(job, &ring.store));
        let asked = Asked::new(&ring.store, Box::new(Relayed::new(job, &ring.store)));
        return Ok(Some(KeyRing { ring, anchors: Ok(anchors), asked: Some(asked) }));
    }
    let anchors: Result<Box<dyn Anchorage>, _> = match store::id(&home) {
        Ok(id) if id == header.id => Ok(Box::new(Anchors::new(&home, contents.anchor_key))),
        Ok(_) => Err(format!("on {} there is another store", host_name())),
        Err(_) => Err(format!("the store is not on {}", host_name())),
    };
    Ok(Some(KeyRing { ring, anchors, asked: None }))
}

impl KeyRing {
    /// Keys of labels, with whoever keeps the anchors of their files; or why nobody does.
    pub fn new(ring: Ring, anchors: Result<Box<dyn Anchorage>, String>) -> Self {
        KeyRing { ring, anchors, asked: None }
    }

    /// Has somebody asked by name for what is not in the ring.
    #[must_use]
    pub fn asking(self, giver: Box<dyn Giver>) -> Self {
        let asked = Asked::new(&self.ring.store, giver);
        KeyRing { asked: Some(asked), ..self }
    }

    /// Asks at once for the right to write under labels, whose newest versions are to seal something.
    ///
    /// # Errors
    /// When who gives the keys refuses one of them. What a store has not is told when it is used.
    pub fn require(&self, labels: &[&str]) -> Result<(), KeyError> {
        let Some(asked) = &self.asked else { return Ok(()) };
        let wanted = |label: &&str| Wanted { label: (*label).to_owned(), version: None, writing: true };
        let may = |ring: &Ring, one: &Wanted| may_write(ring, &one.label).is_ok();
        let wanted: Vec<Wanted> = labels.iter().map(wanted).filter(|one| !may(&self.ring, one)).collect();
        asked.prepare(wanted.clone(), may);
        wanted.iter().try_for_each(|one| asked.serve(one, |ring| may_write(ring, &one.label)).unwrap_or(Ok(())))
    }

    /// Does something with a label, which is asked for by name if it is not in the ring.
    fn serve<T>(
        &self,
        (label, version): (&str, Option<u32>),
        writing: bool,
        act: impl Fn(&Ring) -> Result<T, KeyError>,
    ) -> Result<T, KeyError> {
        match (act(&self.ring), &self.asked) {
            (Err(error), Some(asked)) if is_missing(&error) => {
                let wanted = Wanted { label: label.to_owned(), version, writing };
                asked.serve(&wanted, act).unwrap_or(Err(error))
            }
            (done, _) => done,
        }
    }

    /// What sentences call the store.
    pub fn store(&self) -> &str {
        &self.ring.store
    }

    /// Its labels.
    pub fn ring(&self) -> &Ring {
        &self.ring
    }

    /// Records where a file is now, though it may have been further on: for who put an old version back on purpose.
    ///
    /// # Errors
    /// As [`Keys::set_anchor`], but never [`KeyError::OlderAnchor`].
    pub fn put_anchor_back(&self, file: &[u8; 16], labels: &[&str], anchor: &Anchor) -> Result<(), KeyError> {
        self.anchors(file)?.set_anchor(file, labels, anchor, Direction::Any)
    }

    fn anchors(&self, file: &[u8; 16]) -> Result<&dyn Anchorage, KeyError> {
        self.anchors.as_deref().map_err(|why| KeyError::NotAnchored {
            store: self.ring.store.clone(),
            file: *file,
            why: why.clone(),
        })
    }
}

impl Keys for KeyRing {
    fn prepare(&self, labels: &[(&str, u32)]) {
        let Some(asked) = &self.asked else { return };
        let is_there = |ring: &Ring, one: &Wanted| ring.in_force(&one.label, one.version.unwrap_or(0)).is_ok();
        let wanted = labels.iter().map(|(label, version)| Wanted {
            label: (*label).to_owned(),
            version: Some(*version),
            writing: false,
        });
        asked.prepare(wanted.filter(|one| !is_there(&self.ring, one)).collect(), is_there);
    }

    fn label(&self, name: &str) -> Result<Label, KeyError> {
        self.serve((name, None), false, |ring| ring.label(name))
    }

    fn verifying_key(&self, label: &str, version: u32) -> Result<[u8; 32], KeyError> {
        self.serve((label, Some(version)), false, |ring| Ok(ring.version(label, version)?.verifying_key))
    }

    fn wrap(&self, label: &str, version: u32, context: &[u8], key: &Secret32) -> Result<Vec<u8>, KeyError> {
        self.serve((label, Some(version)), true, |ring| ring.wrap(label, version, context, key))
    }

    fn unwrap(&self, label: &str, version: u32, context: &[u8], wrapped: &[u8]) -> Result<Secret32, KeyError> {
        self.serve((label, Some(version)), false, |ring| ring.unwrap(label, version, context, wrapped))
    }

    fn sign(&self, label: &str, version: u32, message: &[u8]) -> Result<[u8; 64], KeyError> {
        // Who may only read tries it to see whether he may write: that alone is no reason to ask.
        let signed = self.serve((label, Some(version)), false, |ring| match ring.sign(label, version, message) {
            Err(KeyError::MayNotWrite { .. }) => Ok(None),
            signed => signed.map(Some),
        })?;
        let may_not = || KeyError::MayNotWrite { store: self.ring.store.clone(), label: label.to_owned() };
        match (signed, &self.asked) {
            (Some(signed), _) => Ok(signed),
            // Unless he was given it since.
            (None, Some(asked)) => asked.given(|ring| ring.sign(label, version, message)).map_err(|_| may_not()),
            (None, None) => Err(may_not()),
        }
    }

    fn refused_writing(&self, label: &str) -> Option<KeyError> {
        let asked = self.asked.as_ref()?;
        let wanted = Wanted { label: label.to_owned(), version: None, writing: true };
        asked.serve(&wanted, |ring| may_write(ring, label))?.err()
    }

    fn anchor(&self, file: &[u8; 16]) -> Result<Option<Anchor>, KeyError> {
        self.anchors(file)?.anchor(file)
    }

    fn set_anchor(&self, file: &[u8; 16], labels: &[&str], anchor: &Anchor) -> Result<(), KeyError> {
        self.anchors(file)?.set_anchor(file, labels, anchor, Direction::Forward)
    }
}

/// Whether something can be sealed under the newest version of a label.
fn may_write(ring: &Ring, label: &str) -> Result<(), KeyError> {
    ring.sign(label, ring.label(label)?.version, b"gambeson: may this process write?").map(drop)
}

/// How the name of a key service begins, where a folder could stand.
pub const SERVICE: &str = "keyd://";

/// What the holder of a job's secrets calls the keys that its launcher opened.
pub const OF_JOB: &str = "keys";

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;

    use zeroize::Zeroizing;

    use super::*;
    use crate::store::Protection;

    fn place(name: &str) -> PathBuf {
        let place = std::env::temp_dir().join(format!("gambeson-keyring-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&place);
        fs::create_dir(&place).unwrap();
        place
    }

    /// A store with a label, and what a launcher holds of it for its job.
    fn job(place: &Path) -> (PathBuf, Zeroizing<Vec<u8>>) {
        let home = place.join("store");
        let mut store = Store::create(&home, Protection::KeyFile("master-key".into())).unwrap();
        store.change(|ring| ring.create("clinical", None)).unwrap();
        (home, store.for_job())
    }

    #[test]
    fn ranks_have_the_keys_and_the_anchors_of_the_store() {
        let place = place("ranks");
        let (home, held) = job(&place);
        let store = Store::open(&home, &mut |_| None).unwrap().into_keys();
        let rank = open_of_job(Path::new("job"), &held, None).unwrap().unwrap();
        let key = Secret32::from_bytes([7; 32]);
        let wrapped = rank.wrap("clinical", 1, b"here", &key).unwrap();
        assert_eq!(store.unwrap("clinical", 1, b"here", &wrapped).unwrap(), key);
        let anchor = Anchor { generation: 3, root: [9; 32] };
        rank.set_anchor(&[1; 16], &[], &anchor).unwrap();
        assert_eq!(store.anchor(&[1; 16]).unwrap(), Some(anchor));
        fs::remove_dir_all(&place).unwrap();
    }

    #[test]
    fn a_copy_without_its_store_says_that_it_cannot_anchor() {
        let place = place("travelled");
        let (home, held) = job(&place);
        fs::rename(&home, place.join("elsewhere")).unwrap();
        let refused = |rank: &KeyRing| {
            let error = rank.set_anchor(&[1; 16], &[], &Anchor { generation: 3, root: [9; 32] }).unwrap_err();
            assert!(matches!(error, KeyError::NotAnchored { .. }), "{error}");
            assert!(matches!(rank.anchor(&[1; 16]), Err(KeyError::NotAnchored { .. })));
            error.to_string()
        };
        let rank = open_of_job(Path::new("job"), &held, None).unwrap().unwrap();
        assert!(rank.label("clinical").unwrap().may_write, "its keys do all the same");
        assert!(refused(&rank).contains("the store is not on"));
        // Another store in its place is not taken for it.
        Store::create(&home, Protection::KeyFile("master-key".into())).unwrap();
        let rank = open_of_job(Path::new("job"), &held, None).unwrap().unwrap();
        assert!(refused(&rank).contains("there is another store"));
        fs::remove_dir_all(&place).unwrap();
    }

    #[test]
    fn another_identity_is_not_given_the_jobs_keys() {
        let place = place("identity");
        let (home, held) = job(&place);
        for same in [home.clone(), home.join("../store")] {
            assert!(open_of_job(Path::new("job"), &held, Some(&same)).unwrap().is_some());
        }
        assert!(open_of_job(Path::new("job"), &held, Some(&place.join("other"))).unwrap().is_none());
        fs::remove_dir_all(&place).unwrap();
    }

    #[test]
    fn what_is_damaged_is_refused() {
        let place = place("refused");
        let (_, whole) = job(&place);
        for bit in (0..whole.len() * 8).step_by(3) {
            let mut altered = whole.clone();
            altered[bit / 8] ^= 1 << (bit % 8);
            assert!(
                matches!(open_of_job(Path::new("job"), &altered, None), Err(KeyError::Altered { .. })),
                "bit {bit}"
            );
        }
        fs::remove_dir_all(&place).unwrap();
    }
}
