//! Labels that who gives the keys is asked for by name, when they are used: a key service, which decides, and keeps in its
//! log who was refused.
//!
//! ```text
//! KeyRing ── a label that is not in its ring ──> Asked ──> Giver: a client of the service, or of a rank the job's holder
//!                                                 └── remembers what was given and what was refused
//! ```

use std::fmt::Debug;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::KeyError;
use crate::ring::Ring;

/// A label that is to be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Its name.
    pub label: String,
    /// Which version; none: the newest.
    pub version: Option<u32>,
    /// Whether to seal and sign with it. Otherwise as much as one may, but to read at least.
    pub writing: bool,
}

/// What was given of labels that were wanted.
#[derive(Clone, Debug)]
pub struct Given {
    /// Those that were given.
    pub ring: Ring,
    /// Labels that were not, or a version of one alone; and why.
    pub refused: Vec<(String, Option<u32>, String)>,
}

/// Who gives keys of labels by their names.
pub trait Giver: Debug + Send + Sync {
    /// Gives some labels, and says why not the others. None: there is no way to ask from here.
    ///
    /// # Errors
    /// When nobody answers.
    fn give(&self, wanted: &[Wanted]) -> Result<Option<Given>, KeyError>;
}

/// What was asked for, in one process.
#[derive(Debug)]
pub(crate) struct Asked {
    store: String,
    giver: Box<dyn Giver>,
    known: Mutex<Known>,
}

#[derive(Debug)]
struct Known {
    given: Ring,
    refused: Vec<(Wanted, KeyError)>,
}

impl Asked {
    pub(crate) fn new(store: &str, giver: Box<dyn Giver>) -> Self {
        let known = Known { given: Ring::empty(store.to_owned()), refused: Vec::new() };
        Asked { store: store.to_owned(), giver, known: Mutex::new(known) }
    }

    /// Does something with a label, for which it is asked for once. None: there is nobody to ask.
    pub(crate) fn serve<T>(
        &self,
        wanted: &Wanted,
        act: impl Fn(&Ring) -> Result<T, KeyError>,
    ) -> Option<Result<T, KeyError>> {
        let mut known = self.known();
        let there = act(&known.given);
        if !there.as_ref().is_err_and(is_missing) {
            return Some(there);
        }
        if let Some(refused) = known.refusal(wanted) {
            return Some(Err(refused));
        }
        self.ask(&mut known, std::slice::from_ref(wanted))?;
        match act(&known.given) {
            Err(error) if is_missing(&error) => Some(Err(known.refusal(wanted).unwrap_or(error))),
            done => Some(done),
        }
    }

    /// Does something with what was given already.
    pub(crate) fn given<T>(&self, act: impl Fn(&Ring) -> Result<T, KeyError>) -> Result<T, KeyError> {
        act(&self.known().given)
    }

    /// Asks for those of these that are not known yet, at once; `is_there` says what was given.
    pub(crate) fn prepare(&self, wanted: Vec<Wanted>, is_there: impl Fn(&Ring, &Wanted) -> bool) {
        let mut known = self.known();
        let is_new = |one: &Wanted| !is_there(&known.given, one) && known.refusal(one).is_none();
        let new: Vec<Wanted> = wanted.into_iter().filter(is_new).collect();
        if !new.is_empty() {
            // What nobody says is asked for again when it is used.
            let _ = self.ask(&mut known, &new);
        }
    }

    /// None: there is nobody to ask.
    fn ask(&self, known: &mut Known, wanted: &[Wanted]) -> Option<()> {
        match self.giver.give(wanted) {
            Ok(Some(Given { ring, refused })) => {
                let given = std::mem::replace(&mut known.given, Ring::empty(self.store.clone()));
                let given = given.into_labels().into_iter().chain(ring.into_labels());
                known.given = Ring::new(self.store.clone(), given);
                for (label, version, why) in refused {
                    let writing = wanted.iter().filter(|one| one.label == label).all(|one| one.writing);
                    let error = KeyError::NotGranted { store: self.store.clone(), why };
                    known.refused.push((Wanted { label, version, writing }, error));
                }
                Some(())
            }
            Ok(None) => None,
            Err(error) => {
                known.refused.extend(wanted.iter().map(|one| (one.clone(), error.clone())));
                Some(())
            }
        }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    /// Why something is not given, if that was said. Who may not even read may not write either.
    fn refusal(&self, wanted: &Wanted) -> Option<KeyError> {
        let covers = |refused: &Wanted| {
            refused.label == wanted.label
                && (refused.version.is_none() || refused.version == wanted.version)
                && (wanted.writing || !refused.writing)
        };
        self.refused.iter().find(|(refused, _)| covers(refused)).map(|(_, why)| why.clone())
    }
}

/// Whether somebody else could have what is not here.
pub(crate) fn is_missing(error: &KeyError) -> bool {
    matches!(
        error,
        KeyError::NoLabel { .. } | KeyError::NoVersion { .. } | KeyError::MayNotWrite { .. } | KeyError::Expired { .. }
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives the labels that it has for reading, and counts how often it was asked.
    #[derive(Debug)]
    struct Counting(Ring, Mutex<usize>);

    impl Giver for std::sync::Arc<Counting> {
        fn give(&self, wanted: &[Wanted]) -> Result<Option<Given>, KeyError> {
            *self.1.lock().unwrap() += 1;
            let has = |one: &&Wanted| !one.writing && self.0.entry(&one.label).is_ok();
            let given = wanted.iter().filter(has).map(|one| self.0.entry(&one.label).unwrap().clone());
            let refused = wanted.iter().filter(|one| !has(one));
            let refused = refused.map(|one| (one.label.clone(), None, format!("not {}", one.label))).collect();
            Ok(Some(Given { ring: Ring::new(String::new(), given), refused }))
        }
    }

    #[test]
    fn nothing_is_asked_for_twice() {
        let mut ring = Ring::empty(String::new());
        ring.create("clinical", None).unwrap();
        let giver = std::sync::Arc::new(Counting(ring, Mutex::default()));
        let asked = Asked::new("keyd://h1", Box::new(giver.clone()));
        let wanted = |label: &str, writing| Wanted { label: label.to_owned(), version: None, writing };
        let both = vec![wanted("clinical", false), wanted("other", false)];
        for _ in 0..2 {
            asked.prepare(both.clone(), |ring, one| ring.entry(&one.label).is_ok());
        }
        assert_eq!(asked.serve(&both[0], |ring| ring.label("clinical")).unwrap().unwrap().version, 1);
        let refused = asked.serve(&both[1], |ring| ring.label("other")).unwrap().unwrap_err();
        assert_eq!(refused.to_string(), "the key service keyd://h1 says no: not other");
        assert_eq!(*giver.1.lock().unwrap(), 1);
        // To write is another question, and not to read is not to write.
        let writes = |label: &str| {
            let may_not = KeyError::MayNotWrite { store: String::new(), label: label.to_owned() };
            asked.serve::<()>(&wanted(label, true), |_| Err(may_not.clone())).unwrap().unwrap_err()
        };
        for label in ["clinical", "clinical", "other"] {
            assert!(matches!(writes(label), KeyError::NotGranted { .. }), "{label}");
        }
        assert_eq!(*giver.1.lock().unwrap(), 2);
    }
}
