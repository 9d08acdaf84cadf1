//! Transform modules: what becomes of a link's messages before they are protected (secure-nexus paper, 3.4 and 7).
//!
//! ```text
//!  program ── first module ── second ── ... ── sealed, or whatever protection the link has ──> carrier
//! ```
//!
//! An endpoint names its modules, its startpoints inherit them, and no holder can change that. Both ends' domains must
//! have them. Protection is none of them: it is always there and always outermost. Requests and answers go through the
//! stack, sentences of refusals and the ends of streams do not.
//!
//! A message says in its envelope how long it was before (`id`). That much of the window is charged for it, so that what
//! grows when it is restored is bounded as what does not; and as long it must be again.

mod zstd;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use gambeson_proto::startpoint::Transforms;

pub use gambeson_proto::key_schedule::End;

use crate::desk::without_domain;
use crate::error::Error;
use crate::source::Source;

/// A module that transforms the messages of links: compression, an own encoding, a cipher or a checksum beside those that
/// are there.
pub trait Transform: Send + Sync {
    /// By what endpoints name it: printable ASCII without spaces and commas. All names of one stack have 64 characters,
    /// commas between them included.
    fn name(&self) -> &str;

    /// A link begins, and this is that end of it. Links of one endpoint share nothing, nor do those of a startpoint and
    /// its copy. What it returns has the state of the link in both directions.
    ///
    /// # Errors
    /// A sentence; the link does not come about.
    fn open(&self, end: End) -> Result<Box<dyn Mapping>, String>;

    /// Whether what becomes of a message depends on the ones before. Then a message that fails is the last of its link in
    /// that direction: what came behind it would not be restored rightly.
    fn remembers(&self) -> bool {
        true
    }
}

/// A module on one link, at one of its ends. Its functions run with the domain locked, as inline handlers do: they must
/// not wait, and cannot use the domain.
pub trait Mapping: Send {
    /// Transforms what goes out from this end. Each message comes here once and in the order of the link, however often
    /// a lost connection has its sealed bytes sent again.
    ///
    /// # Errors
    /// A sentence; the request ends with it.
    fn apply(&mut self, message: &mut Vec<u8>) -> Result<(), String>;

    /// Undoes what the other end's [`Mapping::apply`] did, in the same order. The other end may have made the message
    /// with malice; `most` bytes are the most that may become of it.
    ///
    /// # Errors
    /// A sentence; the request ends with it.
    fn restore(&mut self, message: &mut Vec<u8>, most: usize) -> Result<(), String>;
}

/// The modules that a domain has.
pub(crate) struct Modules(Vec<Arc<dyn Transform>>);

impl Modules {
    /// A program's own, beside those that are there.
    pub(crate) fn new(own: Vec<Arc<dyn Transform>>) -> Result<Self, Error> {
        let mut modules: Vec<Arc<dyn Transform>> = vec![Arc::new(zstd::Zstd::new()?)];
        for module in own {
            let name = module.name();
            if Transforms::new([name]).is_err() {
                let what =
                    "is no name for a transform module: it takes 1 to 64 printable characters, no space, no comma";
                return Err(Error::Transform(format!("{name:?} {what}")));
            }
            if modules.iter().any(|other| other.name() == name) {
                return Err(Error::Transform(format!("there are two transform modules called {name:?}; rename one")));
            }
            modules.push(module);
        }
        Ok(Modules(modules))
    }

    /// Those of these names.
    pub(crate) fn select(&self, names: &Transforms) -> Result<Selected, Error> {
        let find = |name: &str| self.0.iter().find(|module| module.name() == name).cloned();
        let missing = |name| {
            Error::Transform(format!(
                "the links of this endpoint go through the transform module {name:?}, which this domain does not have; \
                 open it with Config::transform and a module of that name, the same as at the other end"
            ))
        };
        names.iter().map(|name| find(name).ok_or_else(|| missing(name))).collect()
    }
}

/// Modules in the order in which they are applied.
pub(crate) type Selected = Box<[Arc<dyn Transform>]>;

/// The modules of one link, at one of its ends.
pub(crate) struct Stack {
    layers: Box<[Layer]>,
    /// In each direction: after a message failed that a module wanted to remember.
    broken: [Option<String>; 2],
    /// Memory of a message that was sent.
    scratch: Vec<u8>,
}

struct Layer {
    module: Arc<dyn Transform>,
    mapping: Box<dyn Mapping>,
}

/// Longest memory that is kept for the next message.
const SCRATCH_MAX: usize = 1 << 20;

/// Directions, as places in [`Stack::broken`].
const OUT: usize = 0;
const IN: usize = 1;

/// How long a message may be on the wire whose program's part has so many bytes: modules may add a little.
pub(crate) fn longest(message_max: usize) -> usize {
    message_max.saturating_add(message_max / 64).saturating_add(4096)
}

impl Stack {
    /// `None`: a link without modules.
    pub(crate) fn open(modules: &[Arc<dyn Transform>], end: End) -> Result<Option<Box<Stack>>, Error> {
        if modules.is_empty() {
            return Ok(None);
        }
        let open = |module: &Arc<dyn Transform>| {
            let mapping = guarded(&**module, || module.open(end)).map_err(|failed| Error::Transform(failed.why))?;
            Ok(Layer { module: module.clone(), mapping })
        };
        let layers = modules.iter().map(open).collect::<Result<_, Error>>()?;
        Ok(Some(Box::new(Stack { layers, broken: [None, None], scratch: Vec::new() })))
    }

    /// Transforms what goes out.
    pub(crate) fn apply<S: Source + ?Sized>(&mut self, bytes: &S) -> Result<Vec<u8>, String> {
        self.check(OUT)?;
        let mut message = std::mem::take(&mut self.scratch);
        message.clear();
        bytes.append(0, &mut message);
        for at in 0..self.layers.len() {
            let Layer { module, mapping } = &mut self.layers[at];
            let applied = guarded(&**module, || mapping.apply(&mut message));
            applied.map_err(|failed| self.fail(OUT, failed))?;
        }
        Ok(message)
    }

    /// Memory of a message that went.
    pub(crate) fn recycle(&mut self, message: Vec<u8>) {
        if message.capacity() <= SCRATCH_MAX {
            self.scratch = message;
        }
    }

    /// Restores what came, which had `size` bytes when it was sent; of no such message are there more than `size_max`.
    pub(crate) fn restore(&mut self, mut message: Vec<u8>, size: usize, size_max: usize) -> Result<Vec<u8>, String> {
        self.check(IN)?;
        for at in (0..self.layers.len()).rev() {
            let Layer { module, mapping } = &mut self.layers[at];
            let most = if at == 0 { size } else { longest(size_max) };
            let restored = guarded(&**module, || mapping.restore(&mut message, most));
            let restored = restored.and_then(|()| match message.len() {
                len if len <= most && (at > 0 || len == size) => Ok(()),
                len => Err(Failed::of(&**module, &format!("{len} bytes came of a message that had {size}"))),
            });
            restored.map_err(|failed| self.fail(IN, failed))?;
        }
        Ok(message)
    }

    /// A message came that was thrown away; what to say of it.
    pub(crate) fn missed(&mut self, why: String) -> String {
        self.fail(IN, Failed { why, panicked: false })
    }

    fn check(&self, direction: usize) -> Result<(), String> {
        self.broken[direction].clone().map_or(Ok(()), Err)
    }

    /// A message failed; what to say of it. What a module that remembers did not see, or not to its end, it cannot go on from.
    fn fail(&mut self, direction: usize, failed: Failed) -> String {
        if failed.panicked || self.layers.iter().any(|layer| layer.module.remembers()) {
            let why = format!("{}, and nothing goes over this link any more; bind the startpoint again", failed.why);
            self.broken[direction] = Some(why);
        }
        failed.why
    }
}

/// Why a module did not do it.
struct Failed {
    why: String,
    panicked: bool,
}

impl Failed {
    fn of(module: &dyn Transform, why: &str) -> Self {
        Failed { why: format!("the transform module {:?} failed: {why}", module.name()), panicked: false }
    }
}

/// Runs a function of a module's, which may be anybody's.
fn guarded<T>(module: &dyn Transform, run: impl FnOnce() -> Result<T, String>) -> Result<T, Failed> {
    match without_domain(|| catch_unwind(AssertUnwindSafe(run))) {
        Ok(done) => done.map_err(|why| Failed::of(module, &why)),
        Err(_) => Err(Failed { panicked: true, ..Failed::of(module, "it panicked") }),
    }
}

#[cfg(test)]
pub(crate) mod tests;
