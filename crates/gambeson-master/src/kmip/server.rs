//! A key in a key server: what is done with it there.

use gambeson_proto::secret::Secret32;

use super::message::{Operation, Unanswered, Version, request, response};
use super::operations::{self as does, Attributes, NONCE};
use super::ttlv::Item;
use super::{Address, connection::Connection};
use crate::error::no_random_numbers;
use crate::file::mac;
use crate::wrapping::{Holder, Way};
use crate::{Made, MasterError};

/// What is spoken here, the best first.
const SPOKEN: [Version; 3] = [Version(2, 1), Version(2, 0), Version(1, 4)];

pub(crate) struct Server {
    address: Address,
    version: Version,
    way: Way,
}

impl Server {
    pub(crate) fn open(address: &Address) -> Result<Self, MasterError> {
        let id = address.id().ok_or_else(|| {
            MasterError::Place(format!(
                "{address} names no key in the server; say kmip://HOST/ID with what the server calls it"
            ))
        })?;
        let mut asking = Asking::begin(address)?;
        let attributes = asking.attributes(id)?;
        if attributes.state != Some(does::ACTIVE) {
            return Err(MasterError::Refused(format!(
                "the key {id} in the key server {} is not active ({}); who keeps the server can activate it, or say why not",
                address.server(),
                state(attributes.state)
            )));
        }
        let way = match attributes.seals() && asking.seals()? {
            true => Way::Seal,
            false => Way::Mac,
        };
        if way == Way::Mac {
            // Fetched now, so that a key that is not given away is noticed before something depends on it.
            asking.key(id)?;
        }
        Ok(Server { address: address.clone(), version: asking.version, way })
    }

    pub(crate) fn open_or_make(address: &Address) -> Result<(Self, Made), MasterError> {
        if address.id().is_some() {
            return Self::open(address).map(|server| (server, Made::Before));
        }
        let mut asking = Asking::begin(address)?;
        let create = does::create(asking.version);
        let id =
            asking.ask(Operation::Create, create, |_, payload| does::read_identifier(payload).map(str::to_owned))?;
        let attributes = asking.attributes(&id)?;
        if attributes.state == Some(does::PRE_ACTIVE) {
            asking.ask(Operation::Activate, does::activate(&id), |_, _| Some(()))?;
        }
        Self::open(&address.with_id(&id)).map(|server| (server, Made::Now))
    }

    fn id(&self) -> &str {
        self.address.id().expect("none is opened without")
    }

    fn asking(&self) -> Result<Asking<'_>, MasterError> {
        Ok(Asking { connection: Connection::open(&self.address)?, address: &self.address, version: self.version })
    }
}

impl Holder for Server {
    fn name(&self) -> String {
        self.address.to_string()
    }

    fn way(&self) -> Way {
        self.way
    }

    fn mac(&self, message: &[u8]) -> Result<Secret32, MasterError> {
        mac(&self.asking()?.key(self.id())?, message)
    }

    fn seal(&self, key: &Secret32) -> Result<Vec<u8>, MasterError> {
        let mut nonce = [0; NONCE];
        getrandom::fill(&mut nonce).map_err(no_random_numbers)?;
        let payload = does::encrypt(self.id(), &nonce, key);
        self.asking()?.ask(Operation::Encrypt, payload, |_, payload| {
            does::read_encrypted(payload, &nonce).map(|sealed| sealed.to_vec())
        })
    }

    fn open(&self, sealed: &[u8]) -> Result<Secret32, MasterError> {
        let sealed = sealed.try_into().map_err(|_| {
            MasterError::NotWrappedByIt(format!(
                "this was not wrapped by {}, or was altered; name the master key that it was made with",
                self.address
            ))
        })?;
        let payload = does::decrypt(self.id(), sealed);
        self.asking()?.ask(Operation::Decrypt, payload, |_, payload| does::read_decrypted(payload))
    }
}

/// A connection on which a version was agreed on.
struct Asking<'a> {
    connection: Connection<'a>,
    address: &'a Address,
    version: Version,
}

impl<'a> Asking<'a> {
    fn begin(address: &'a Address) -> Result<Self, MasterError> {
        let mut asking = Asking { connection: Connection::open(address)?, address, version: SPOKEN[2] };
        // A server that knows later versions alone does not understand the question in the first.
        let mut spoken = Err(Unanswered::Malformed("it was not asked"));
        for version in [SPOKEN[2], SPOKEN[1]] {
            asking.version = version;
            let payload = does::discover_versions(&SPOKEN);
            spoken = asking
                .try_ask(Operation::DiscoverVersions, payload, |_, payload| Some(does::read_versions(payload)))?;
            if !matches!(&spoken, Err(Unanswered::Failed { reason, .. }) if does::NOT_UNDERSTOOD.contains(reason)) {
                break;
            }
        }
        let spoken = match spoken {
            Err(Unanswered::Failed { reason, .. }) if does::NOT_UNDERSTOOD.contains(&reason) => Vec::new(),
            other => other.map_err(|why| asking.refused(Operation::DiscoverVersions, &why))?,
        };
        let best = SPOKEN.into_iter().find(|version| spoken.contains(version));
        asking.version = best.ok_or_else(|| {
            MasterError::Refused(format!(
                "the key server {} speaks none of KMIP 1.4, 2.0 and 2.1; a newer version of it is needed",
                address.server()
            ))
        })?;
        Ok(asking)
    }

    fn attributes(&mut self, id: &str) -> Result<Attributes, MasterError> {
        let payload = does::attributes(self.version, id);
        self.ask(Operation::GetAttributes, payload, does::read_attributes)
    }

    /// Whether the server encrypts and decrypts itself.
    fn seals(&mut self) -> Result<bool, MasterError> {
        let payload = does::query_operations();
        let known = self.ask(Operation::Query, payload, |_, payload| Some(does::read_operations(payload)))?;
        Ok([Operation::Encrypt, Operation::Decrypt].iter().all(|&operation| known.contains(&(operation as u32))))
    }

    fn key(&mut self, id: &str) -> Result<Secret32, MasterError> {
        self.ask(Operation::Get, does::get(id), |_, payload| does::read_key(payload))
    }

    fn ask<T>(
        &mut self,
        operation: Operation,
        payload: Vec<Item<'_>>,
        read: impl FnOnce(Version, &[Item<'_>]) -> Option<T>,
    ) -> Result<T, MasterError> {
        self.try_ask(operation, payload, read)?.map_err(|why| self.refused(operation, &why))
    }

    fn try_ask<T>(
        &mut self,
        operation: Operation,
        payload: Vec<Item<'_>>,
        read: impl FnOnce(Version, &[Item<'_>]) -> Option<T>,
    ) -> Result<Result<T, Unanswered>, MasterError> {
        let answer = self.connection.ask(&request(self.version, operation, payload))?;
        let payload = match response(&answer, self.version, operation) {
            Ok(payload) => payload,
            Err(why) => return Ok(Err(why)),
        };
        Ok(read(self.version, &payload).ok_or(Unanswered::Malformed("what it carries is not what was asked for")))
    }

    fn refused(&self, operation: Operation, why: &Unanswered) -> MasterError {
        let server = self.address.server();
        let key = self.address.id().map_or_else(|| "a new key".to_owned(), |id| format!("the key {id}"));
        match why {
            Unanswered::Malformed(what) => MasterError::Unavailable(format!(
                "the key server {server} does not answer {operation:?} for {key} as KMIP {}.{} has it: {what}",
                self.version.0, self.version.1
            )),
            Unanswered::Failed { reason, words } if does::GONE.contains(reason) => MasterError::Refused(format!(
                "the key server {server} has {key} no more, or not for whom the certificate in {} names ({words:?}); what it has \
                 wrapped does not open without it: have it restored there, or take a backup under another master key",
                self.address.certificate().display()
            )),
            Unanswered::Failed { reason, words } => MasterError::Refused(format!(
                "the key server {server} refuses {operation:?} for {key}: {words:?} (reason {reason:#x}); who keeps the server can \
                 allow it to whom the certificate in {} names",
                self.address.certificate().display()
            )),
        }
    }
}

/// KMIP 1.4, 9.1.3.2.18.
fn state(state: Option<u32>) -> &'static str {
    match state {
        Some(does::PRE_ACTIVE) => "not activated yet",
        Some(does::ACTIVE) => "active",
        Some(3) => "deactivated",
        Some(4) => "compromised",
        Some(5 | 6) => "destroyed",
        _ => "it says no state that is known here",
    }
}
