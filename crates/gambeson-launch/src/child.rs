//! A process that `start_process` made: `init_process` (secure-nexus paper, section 5.1).

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use gambeson_link::{Capability, Config, Domain, Startpoint, Transport};
use gambeson_proto::credential::Credential;

use crate::context::{self, Context, facing};
use crate::creator::READY;
use crate::error::Error;
use crate::wire;

/// What a process has from its creator: a domain of their job, and what the creator gave it.
pub struct Child {
    domain: Arc<Domain>,
    number: u32,
    context: Context,
    ready: Capability,
    creator: Option<Capability>,
}

/// Takes this process's security context, and opens its domain. It listens at these addresses; without any, at the one of
/// this host that its creator is reached from.
///
/// # Errors
/// When `start_process` did not make this process, or its context was taken already.
pub fn init_process(listen: &[SocketAddr]) -> Result<Child, Error> {
    let (number, context) = context::take()?;
    let unfit = |cause: &dyn fmt::Display| Error::Refused(format!("the security context is not usable: {cause}"));
    let credential = Credential::decode(context.credential.as_bytes()).map_err(|cause| unfit(&cause))?;
    let decode = |bytes: &[u8]| Capability::decode(bytes).map_err(|cause| unfit(&cause));
    let ready = decode(context.ready.as_bytes())?;
    let creator = Some(context.creator.as_bytes()).filter(|bytes| !bytes.is_empty()).map(decode).transpose()?;
    let mut config = Config::of_job(credential)?;
    config.listen = listen.to_vec();
    if listen.is_empty() {
        let tcp = ready.addresses().iter().filter(|address| address.kind == Transport::Tcp);
        config.listen.extend(facing(tcp.map(|address| address.text.as_str())).map(|own| SocketAddr::new(own, 0)));
    }
    Ok(Child { domain: Arc::new(Domain::open(config)?), number, context, ready, creator })
}

impl Child {
    /// Its place among the processes that were started together, from 0.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Its place among links. Processes of one creator trust each other by their job's secret.
    #[must_use]
    pub fn domain(&self) -> &Arc<Domain> {
        &self.domain
    }

    /// What the creator said to it, in secret.
    #[must_use]
    pub fn context(&self) -> &[u8] {
        self.context.own.as_bytes()
    }

    /// Hands the creator a startpoint to an endpoint of this process's domain: what `start_process` is waited for over
    /// there. The initial link to the creator comes back, if that has given a startpoint for one.
    ///
    /// # Errors
    /// When the creator is gone or does not wait for this process any more, or this was said already.
    pub fn ready(&self, own: &Capability, patience: Duration) -> Result<Option<Startpoint>, Error> {
        let word = wire::encode(&(self.context.order, self.number, own.encode().as_slice()));
        self.domain.startpoint(&self.ready, patience)?.call(READY, &word, patience)?;
        let bind = |creator: &Capability| self.domain.startpoint(creator, patience).map_err(Error::from);
        self.creator.as_ref().map(bind).transpose()
    }

    pub(crate) fn credential(&self) -> &[u8] {
        self.context.credential.as_bytes()
    }
}
