//! What a domain decides while a session moves on: which links are admitted, and which handler gets a request.

use std::cell::Cell;
use std::collections::{BTreeMap, HashMap};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use gambeson_proto::record::{Kind, request};
use gambeson_proto::startpoint::{self, Activation, Refusal, StartpointBook, Terms};
use gambeson_proto::suite::Protection;
use zeroize::Zeroizing;

use crate::endpoint::{Binding, Handler, Origin, Reply, Request, Table};
use crate::identity::Peer;
use crate::link::Bytes;
use crate::names::Names;
use crate::policy::Judge;
use crate::refusals;
use crate::region;
use crate::request::{Call, Responder};
use crate::session::{Incident, Opened};
use crate::shared::Shared;
use crate::state::SessionKey;
use crate::transform::{End, Stack};

thread_local! {
    static IN_HANDLER: Cell<bool> = const { Cell::new(false) };
}

/// Whether this thread is in a handler that is not threaded, with its domain locked.
pub(crate) fn in_handler() -> bool {
    IN_HANDLER.get()
}

/// Runs somebody's code that must not use the domain, which is locked meanwhile.
pub(crate) fn without_domain<T>(run: impl FnOnce() -> T) -> T {
    let before = IN_HANDLER.replace(true);
    let done = run();
    IN_HANDLER.set(before);
    done
}

pub(crate) struct Desk<'d> {
    pub(crate) book: &'d mut StartpointBook,
    pub(crate) judge: &'d Judge,
    pub(crate) names: &'d mut Names,
    pub(crate) tables: &'d BTreeMap<u64, Arc<Table>>,
    pub(crate) tampered: &'d mut u64,
    pub(crate) by_name: &'d HashMap<[u8; 16], SessionKey>,
    pub(crate) key: SessionKey,
    pub(crate) shared: &'d Shared,
}

/// Seconds since 1970, by a clock that costs no system call.
fn now() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::RealtimeCoarse);
    now.tv_sec as u64
}

impl Desk<'_> {
    /// What the peer is told. It was counted where it was refused.
    fn refused(&self, refusal: Refusal, peer: &Peer) -> String {
        self.refused_so(refusal, refusal.to_string(), peer)
    }

    fn refused_so(&self, refusal: Refusal, why: String, peer: &Peer) -> String {
        refusals::say(self.book.refused(refusal), || format!("{} on {} was refused: {why}", peer.name, peer.host));
        why
    }
}

impl crate::session::Desk for Desk<'_> {
    fn admit(&mut self, links: &mut startpoint::Session, peer: &Peer, activation: &[u8]) -> Result<Opened, String> {
        if peer.is_guest() {
            // What is published is bound to who got it; a startpoint that anybody may use is not meant for guests.
            let asked = Activation::decode(activation).map_err(|_| self.refused(Refusal::Malformed, peer))?;
            if !self.names.is_for_guests(asked.endpoint) {
                self.book.count(Refusal::NotHolder);
                let why = "guests open links to nothing but what is published for guests; prove who you are first";
                return Err(self.refused_so(Refusal::NotHolder, why.into(), peer));
            }
        }
        let mut decided = None;
        let partition = self.judge.partition(links, peer);
        let terms = |class: &str| {
            let verdict = self.judge.decide(class, peer);
            let floor = verdict.protection;
            decided = Some((class.to_owned(), verdict));
            Terms { floor, partition }
        };
        let admitted = self.book.admit(links, activation, now(), terms);
        let admitted = admitted.map_err(|refusal| {
            let asked = Activation::decode(activation).map_or(Protection::Privacy, |activation| activation.protection);
            match &decided {
                Some((class, verdict)) if refusal == Refusal::Unprotected && asked > verdict.protection => {
                    self.refused_so(refusal, self.judge.refusal(class, peer, asked, verdict), peer)
                }
                _ => self.refused(refusal, peer),
            }
        })?;
        let activation = admitted.activation;
        let table = self.tables.get(&activation.endpoint).ok_or("the endpoint is closed")?;
        let (number, protection) = (activation.number, activation.protection);
        let stack = Stack::open(&table.modules, End::Endpoint).map_err(|cause| cause.to_string())?;
        let binding = Arc::new(Binding { table: table.clone(), grant: admitted.grant });
        Ok(Opened { number, keys: admitted.keys, protection, binding, stack })
    }

    fn named(&mut self, peer: &Peer, name: &[u8]) -> Zeroizing<Vec<u8>> {
        self.names.give(peer, name)
    }

    fn has_session(&self, name: &[u8]) -> bool {
        self.by_name.contains_key(name)
    }

    fn too_long(&mut self, peer: &Peer, why: &str) {
        self.book.count(Refusal::TooLong);
        self.refused_so(Refusal::TooLong, why.to_owned(), peer);
    }

    fn tampered(&mut self, what: &str) {
        *self.tampered += 1;
        refusals::say(*self.tampered, || what.to_owned());
    }

    fn request<'i>(&mut self, incident: Incident<'i>) -> Result<(), Bytes<'i>> {
        if incident.envelope.kind != Kind::Request {
            let peer = incident.peer;
            return region::reach(incident, now(), |refusal| self.refused(refusal, peer));
        }
        let Incident { binding, envelope, bytes, credit, peer, link, out, cache } = incident;
        let handler = u32::try_from(envelope.tag).unwrap_or(u32::MAX);
        let number = link.number();
        if envelope.flags & request::STREAM != 0 {
            link.answers().begin(envelope.data);
        }
        let mut responder = Responder { link, out, cache, request: envelope.data, flags: envelope.flags, done: false };
        if let Err(refusal) = binding.grant.permit(handler, now()) {
            responder.refuse(&self.refused(refusal, peer));
        } else {
            match binding.table.find(handler) {
                None => responder.refuse(&format!("the endpoint has no handler {handler}")),
                Some(Handler::Inline(handle)) => {
                    let mut call = Call { handler, payload: bytes.get(), peer, responder };
                    let outcome = without_domain(|| catch_unwind(AssertUnwindSafe(|| handle(&mut call))));
                    responder = call.responder;
                    match outcome {
                        Ok(()) => responder.close(),
                        Err(_) => responder.refuse("the handler panicked"),
                    }
                }
                Some(Handler::Taking { take, threaded }) => {
                    let payload = bytes.into_vec();
                    let reply = Reply {
                        shared: self.shared.weak().clone(),
                        to: Origin { session: self.key, link: number, request: envelope.data, credit },
                        flags: envelope.flags,
                        done: false,
                    };
                    if envelope.flags & request::ANSWER != 0 {
                        responder.link.answers().begin(envelope.data);
                    }
                    let request = Request { handler, payload, peer: peer.clone(), reply };
                    if *threaded {
                        let take = take.clone();
                        self.shared.pool().run(Box::new(move || take(request)));
                    } else {
                        // A request that a panic drops says so to whoever waits: see `Reply`.
                        let _ = without_domain(|| catch_unwind(AssertUnwindSafe(|| take(request))));
                    }
                    return Ok(());
                }
            }
        }
        let Responder { link, out, cache, .. } = responder;
        link.handled(out, cache, credit);
        Ok(())
    }
}
