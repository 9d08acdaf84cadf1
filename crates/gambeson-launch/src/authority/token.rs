//! Enrolment by a token: `ADDRESS:PORT/SECRET`, which an administrator carries to the new host, and which is good once.
//!
//! Both ends open a domain whose job's secret is the token's. So each proves to the other that it has the token, bound
//! to their TLS session: who is in between has nothing to prove, and learns nothing to try guesses with. The secret has
//! 256 bits; a limit of attempts would only let strangers use the token up.

use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use aws_lc_rs::digest::{SHA256, digest};
use data_encoding::BASE64URL_NOPAD;
use gambeson_link::{Attributes, Config, Domain, Endpoint, Expected, Handlers, Identity, Protection, Trust};
use gambeson_proto::key_schedule::JobKeys;
use gambeson_proto::secret::Secret32;
use gambeson_proto::suite::Suite;
use zeroize::Zeroizing;

use super::request::LENGTH_MAX;
use super::{Authority, Certified, Newcomer, Request, Subject};
use crate::Error;

const NAME: &str = "enrolment";
const CERTIFY: u32 = 0;
/// The role of whoever proved the secret.
const HOLDER: &str = "rank";
const PATIENCE: Duration = Duration::from_secs(20);

/// What lets a host in once.
pub struct Token {
    address: String,
    secret: Secret32,
}

impl Token {
    fn new(address: String) -> Result<Self, Error> {
        let mut secret = Zeroizing::new([0; 32]);
        getrandom::fill(&mut *secret)
            .map_err(|cause| Error::Unavailable(format!("the kernel gives no random numbers: {cause}")))?;
        Ok(Token { address, secret: Secret32::from_bytes(*secret) })
    }

    /// Reads one.
    ///
    /// # Errors
    /// When it is none. The sentence does not repeat it: it may be one with a slip in it.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let parsed = text.trim().rsplit_once('/').and_then(|(address, secret)| {
            let port = address.rsplit_once(':').filter(|(host, _)| !host.is_empty())?.1;
            let secret = Zeroizing::new(BASE64URL_NOPAD.decode(secret.as_bytes()).ok()?);
            let secret = Zeroizing::new(<[u8; 32]>::try_from(&secret[..]).ok()?);
            let legal = address.len() <= 300 && address.bytes().all(|byte| byte.is_ascii_graphic());
            (legal && port.parse::<u16>().is_ok_and(|port| port > 0))
                .then(|| Token { address: address.to_owned(), secret: Secret32::from_bytes(*secret) })
        });
        parsed.ok_or_else(|| {
            let what = "that is no token: `gambeson enroll --token HOST` prints one, such as h1:40123/ and 43 characters; \
                        give all of it";
            Error::Senseless(what.into())
        })
    }

    /// As it is carried.
    #[must_use]
    pub fn encode(&self) -> Zeroizing<String> {
        let secret = Zeroizing::new(BASE64URL_NOPAD.encode(self.secret.as_bytes()));
        Zeroizing::new(format!("{}/{}", self.address, *secret))
    }

    /// Where it leads.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.address
    }

    fn trust(&self) -> Trust {
        let named = Zeroizing::new([b"gambeson enrolment token 1\0", &self.secret.as_bytes()[..]].concat());
        let job_id = *digest(&SHA256, &named).as_ref().first_chunk().expect("SHA-256 has 32 bytes");
        let (policy_hash, suite) = ([0; 32], Suite::default());
        Trust::default().job(JobKeys { job_id, job_secret: self.secret.clone(), policy_hash, suite })
    }

    fn config(&self, identity: Identity) -> Config {
        let mut config = Config::new(identity, self.trust());
        config.shm = false;
        config
    }
}

/// A token that waits to be used.
pub struct Offer {
    token: Token,
    used: Receiver<Certified>,
    // Closed first: what was answered goes out before its endpoint goes.
    _domain: Domain,
    _endpoint: Endpoint,
}

impl Offer {
    /// Makes a token by which whoever has it becomes `subject`, and waits for him at an address. Others reach that
    /// under `host`, if it names none itself.
    ///
    /// # Errors
    /// When the address cannot be listened on.
    pub fn new(authority: Arc<Authority>, subject: Subject, listen: SocketAddr, host: &str) -> Result<Self, Error> {
        let system = |cause: gambeson_link::Error| Error::Unavailable(cause.to_string());
        // Where it is shows only once it listens, and who may come in has to be known before: so the secret goes first.
        let mut token = Token::new(String::new())?;
        let domain =
            Domain::open(token.config(Identity::generate().map_err(system)?).listen(listen)).map_err(system)?;
        let at = *domain.listening().first().expect("it listens there");
        token.address = if at.ip().is_unspecified() { format!("{host}:{}", at.port()) } else { at.to_string() };
        let (tell, used) = channel();
        let tell = Mutex::new(Some(tell));
        let handlers = Handlers::new().threaded(CERTIFY, move |asked| {
            let mut tell = tell.lock().unwrap_or_else(PoisonError::into_inner);
            let Some(ready) = tell.as_ref() else {
                return asked.refuse("the token was used before; ask for another one");
            };
            let certified = Request::decode(&asked.payload).and_then(|request| {
                if request.public_key().hash() != asked.peer.key {
                    return Err(Error::Refused("the request is for another key than the session's".into()));
                }
                authority.certify(&request, &subject)
            });
            match certified {
                Ok(certified) => {
                    asked.answer(certified.encode().as_bytes());
                    let _ = ready.send(certified);
                    *tell = None;
                }
                Err(cause) => asked.refuse(&cause.to_string()),
            }
        });
        let attributes = Attributes::default().protection(Protection::Privacy).message_max(LENGTH_MAX);
        let endpoint = domain.endpoint(attributes, handlers).map_err(system)?;
        endpoint.publish(NAME, &[HOLDER], []).map_err(system)?;
        Ok(Offer { token, used, _domain: domain, _endpoint: endpoint })
    }

    /// What is to be carried to the new host.
    #[must_use]
    pub fn token(&self) -> &Token {
        &self.token
    }

    /// Waits until it was used, and says who has come; after that it is good for nothing.
    ///
    /// # Errors
    /// When nobody came.
    pub fn wait(self, patience: Duration) -> Result<Certified, Error> {
        self.used.recv_timeout(patience).map_err(|cause| match cause {
            RecvTimeoutError::Timeout => {
                Error::Unavailable("nobody has used the token in time, and it is gone; ask for another one".into())
            }
            RecvTimeoutError::Disconnected => Error::Unavailable("the token was given up".into()),
        })
    }
}

/// Has a newcomer certified by a token.
///
/// # Errors
/// When nobody is where it leads, it was used before, or its time is up.
pub fn join(token: &Token, newcomer: &Newcomer) -> Result<Certified, Error> {
    use gambeson_link::Error as Link;
    let told = |cause: Link| match cause {
        Link::Lost(why) | Link::TimedOut(why) => Error::Unavailable(format!(
            "nobody takes the token at {} ({why}); see that it was not used, its time is not up, and that address can be \
             reached from here",
            token.address
        )),
        Link::System { .. } => Error::Unavailable(cause.to_string()),
        cause => Error::Refused(format!("the token is not taken at {}: {cause}", token.address)),
    };
    let domain = Domain::open(token.config(newcomer.identity()?)).map_err(told)?;
    let startpoint = domain.attach(token.address(), &Expected::Role(HOLDER.into()), NAME, PATIENCE).map_err(told)?;
    let answer = startpoint.call(CERTIFY, newcomer.request()?.encode().as_bytes(), PATIENCE).map_err(told)?;
    Certified::decode(&answer)
}
