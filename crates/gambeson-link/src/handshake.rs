//! How two domains begin a session: TLS 1.3, mutual (RFC 8446), and a word of greeting inside it.
//!
//! ```text
//!  client ── ClientHello ──────────────────────────────────> server
//!         <─ ServerHello .. CertificateRequest .. Finished ──
//!         ── Certificate, CertificateVerify, Finished, Greeting ─>
//!         <─────────────────────────────────────── Greeting ──
//! ```
//!
//! TLS gives fresh keys (X25519MLKEM768), proves who owns which public key, and exports a secret. The greetings, its
//! first and only application data, prove the job's secret and name the session. From then on the carrier belongs to
//! our own records. Bytes in, bytes out: nothing here reads or writes a socket.
//!
//! Certificates are checked while TLS runs where there is something to check them against. A domain that accepts ranks
//! of its job lets an unknown certificate pass there, as a rank's key is fresh, and asks for the proof in the greeting.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::IpAddr;
use std::sync::{Arc, PoisonError, RwLock};

use gambeson_proto::directory::{Authentication, date};
use gambeson_proto::key_schedule::{JobKeys, SessionKeys, Side, session_secret};
use gambeson_proto::secret::Secret32;
use gambeson_proto::startpoint::{AddressKind as Transport, Voucher};
use gambeson_proto::suite::Suite;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::sign::{CertifiedKey, SigningKey, SingleCertAndKey};
use rustls::{
    AlertDescription, CertificateError, ClientConfig, ClientConnection, Connection, DigitallySignedStruct,
    DistinguishedName, ServerConfig, ServerConnection, SignatureScheme,
};
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use crate::error::Error;
use crate::identity::{DNS_ROLE, Expected, GUEST, Identity, KeyHash, Peer, ROLE, Signed, Trust, unsigned};
use crate::site::Site;

const PROTOCOL: &[u8] = b"gambeson-link/1";
const EXPORT: &[u8] = b"EXPORTER-gambeson-link";
/// The channel binding of TLS 1.3 (RFC 9266, 4.2).
const BINDING: &[u8] = b"EXPORTER-Channel-Binding";
const GREETING_VERSION: u8 = 2;
/// No greeting, and no flight of TLS, is longer; who sends more is no domain.
const FLIGHT_MAX: usize = 1 << 16;
const NO_RANK: u32 = u32::MAX;

/// Whose keys are accepted, under which name and with which roles; it may change while the domain is open.
type Pinned = RwLock<BTreeMap<KeyHash, (String, Vec<String>)>>;

/// What a domain brings to every handshake.
pub(crate) struct Party {
    trust: Arc<Trust>,
    pinned: Arc<Pinned>,
    site: Arc<Site>,
    hash: KeyHash,
    host: String,
    address: Option<IpAddr>,
    rank: Option<u32>,
    key: Arc<dyn SigningKey>,
    slow: bool,
    shown: RwLock<Shown>,
    verifier: Arc<Verifier>,
}

/// The certificate that new handshakes show, with all that TLS wants to have beside it.
#[derive(Clone)]
struct Shown {
    chain: Arc<[CertificateDer<'static>]>,
    client: Arc<ClientConfig>,
    server: Arc<ServerConfig>,
}

impl Shown {
    fn new(identity: Identity, verifier: &Arc<Verifier>) -> Result<Self, rustls::Error> {
        let provider = &verifier.provider;
        let certified = CertifiedKey::new(identity.chain.clone(), identity.key.signing_key()?);
        certified.keys_match()?;
        let (chain, certified) = (identity.chain.into(), Arc::new(SingleCertAndKey::from(certified)));
        let mut client = ClientConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .dangerous()
            .with_custom_certificate_verifier(verifier.clone())
            .with_client_cert_resolver(certified.clone());
        let mut server = ServerConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .with_client_cert_verifier(verifier.clone())
            .with_cert_resolver(certified);
        client.alpn_protocols = vec![PROTOCOL.to_vec()];
        client.enable_sni = false;
        client.resumption = rustls::client::Resumption::disabled();
        server.alpn_protocols = vec![PROTOCOL.to_vec()];
        server.send_tls13_tickets = 0;
        Ok(Shown { chain, client: Arc::new(client), server: Arc::new(server) })
    }
}

impl Party {
    pub(crate) fn new(
        identity: Identity,
        trust: Trust,
        site: Arc<Site>,
        host: String,
        address: Option<IpAddr>,
        rank: Option<u32>,
    ) -> Result<Self, Error> {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let trust = Arc::new(trust);
        let pinned = Arc::new(RwLock::new(trust.pinned.clone()));
        let verifier = Verifier { trust: trust.clone(), pinned: pinned.clone(), provider: provider.clone() };
        let verifier = Arc::new(verifier);
        let hash = identity.key_hash();
        let (key, slow) = (identity.key.signing_key().map_err(|cause| unusable(&cause))?, identity.key.is_slow());
        let shown = Shown::new(identity, &verifier).map_err(|cause| unusable(&cause))?;
        Ok(Party { trust, pinned, site, hash, host, address, rank, key, slow, shown: RwLock::new(shown), verifier })
    }

    /// Shows another certificate for the same key from now on.
    pub(crate) fn show(&self, identity: Identity) -> Result<(), Error> {
        if identity.key_hash() != self.hash {
            let what =
                "the certificate is for another key; a domain keeps its key, by which startpoints and sessions go";
            return Err(Error::Identity(what.into()));
        }
        let shown = Shown::new(identity, &self.verifier).map_err(|cause| unusable(&cause))?;
        *self.shown.write().unwrap_or_else(PoisonError::into_inner) = shown;
        Ok(())
    }

    fn shown(&self) -> Shown {
        self.shown.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn key_hash(&self) -> KeyHash {
        self.hash
    }

    /// Whether its signatures may take long: others do not wait for its handshakes then.
    pub(crate) fn is_slow(&self) -> bool {
        self.slow
    }

    /// Signs a copy of a startpoint that is bound to this domain, or code that it stages.
    pub(crate) fn vouch(&self, message: &[u8]) -> Option<Voucher> {
        let signer = self.key.choose_scheme(&[SignatureScheme::ED25519])?;
        let key = *self.key.public_key()?.last_chunk()?;
        Some(Voucher { key, signature: signer.sign(message).ok()?.try_into().ok()? })
    }

    /// Signs a message for whoever accepts this domain's certificate.
    pub(crate) fn sign(&self, message: &[u8]) -> Result<Signed, Error> {
        let signer = self.key.choose_scheme(&self.verifier.supported());
        let unable = || Error::Identity("this domain's key signs nothing that others can check".into());
        let signer = signer.ok_or_else(unable)?;
        let chain = self.shown().chain.iter().map(|certificate| certificate.to_vec()).collect();
        let signature = signer.sign(message).map_err(|cause| Error::Identity(unsigned(&cause)))?;
        Ok(Signed { chain, scheme: signer.scheme().into(), signature })
    }

    /// Whose certificate signed a message so; as a client's, which is what whoever asks for something has.
    pub(crate) fn signer(&self, message: &[u8], signed: &Signed) -> Result<Peer, Error> {
        let chain: Vec<_> = signed.chain.iter().map(|der| CertificateDer::from(der.as_slice())).collect();
        let peer = whose(&self.trust, &chain)?;
        let certificate = chain.first().expect("it was verified");
        let parsed = webpki::EndEntityCert::try_from(certificate).map_err(|_| refused(&bad_certificate()))?;
        let schemes = self.verifier.provider.signature_verification_algorithms.mapping;
        let known =
            schemes.iter().find(|(scheme, _)| u16::from(*scheme) == signed.scheme).map_or(&[][..], |(_, all)| all);
        if !known.iter().any(|&one| parsed.verify_signature(one, message, &signed.signature).is_ok()) {
            return Err(Error::Refused("the signature is not that of the certificate's owner".into()));
        }
        Ok(peer)
    }

    /// Accepts the owner of one more public key, or under another name and with other roles.
    pub(crate) fn pin(&self, key: KeyHash, name: &str, roles: &[&str]) {
        let roles = roles.iter().map(|&role| role.to_owned()).collect();
        let mut pinned = self.pinned.write().unwrap_or_else(PoisonError::into_inner);
        pinned.insert(key, (name.to_owned(), roles));
    }

    /// Whether the owner of this key was accepted for it until now.
    pub(crate) fn unpin(&self, key: &KeyHash) -> bool {
        self.pinned.write().unwrap_or_else(PoisonError::into_inner).remove(key).is_some()
    }

    pub(crate) fn site(&self) -> &Site {
        &self.site
    }

    pub(crate) fn job(&self) -> Option<&JobKeys> {
        self.trust.job.as_ref()
    }
}

/// What both ends have when they are through.
pub(crate) struct Agreed {
    pub(crate) side: Side,
    pub(crate) keys: SessionKeys,
    pub(crate) peer: Peer,
    pub(crate) binding: [u8; 32],
}

/// A handshake under way.
pub(crate) struct Handshake {
    tls: Connection,
    side: Side,
    party: Arc<Party>,
    /// Who must be at the other end: whoever connects says so.
    expected: Option<Expected>,
    /// What it goes over.
    over: Transport,
    flight: Vec<u8>,
    greeted: bool,
    heard: Vec<u8>,
    taken: usize,
}

impl Handshake {
    /// Connects over a transport; `expected` is who has to be there.
    pub(crate) fn connect(party: &Arc<Party>, over: Transport, expected: Expected) -> Result<Self, Error> {
        // TLS wants a name to look for in the certificate; ours are known by their keys.
        let name = ServerName::try_from("gambeson").expect("a DNS name");
        let tls = ClientConnection::new(party.shown().client, name);
        let tls = Connection::Client(tls.map_err(|cause| refused(&cause))?);
        Ok(Self::new(tls, Side::Client, party, over, Some(expected)))
    }

    /// Accepts who came over a transport.
    pub(crate) fn accept(party: &Arc<Party>, over: Transport) -> Result<Self, Error> {
        let tls = ServerConnection::new(party.shown().server);
        let tls = Connection::Server(tls.map_err(|cause| refused(&cause))?);
        Ok(Self::new(tls, Side::Server, party, over, None))
    }

    fn new(tls: Connection, side: Side, party: &Arc<Party>, over: Transport, expected: Option<Expected>) -> Self {
        let party = party.clone();
        Handshake { tls, side, party, expected, over, flight: Vec::new(), greeted: false, heard: Vec::new(), taken: 0 }
    }

    /// Takes what came, from the front of `came`, and says what is to be sent in `out`. `Some`: it is done, what is left
    /// in `came` belongs to the session, and what is in `out` still has to be sent.
    ///
    /// # Errors
    /// When the other end is not one to talk to; what is in `out` tells it why.
    pub(crate) fn advance(&mut self, came: &mut &[u8], out: &mut Vec<u8>) -> Result<Option<Agreed>, Error> {
        let result = self.proceed(came, out);
        self.send(out);
        result
    }

    fn proceed(&mut self, came: &mut &[u8], out: &mut Vec<u8>) -> Result<Option<Agreed>, Error> {
        loop {
            self.send(out);
            if let Some(greeting) = self.greeting()? {
                return self.conclude(&greeting).map(Some);
            }
            let Some(record) = self.next_record(came)? else { return Ok(None) };
            // Of a record longer than any, and after a farewell, it takes less.
            let taken = self.tls.read_tls(&mut &record[..]);
            if !taken.is_ok_and(|taken| taken == record.len()) {
                return Err(Error::Protocol(
                    "the other end sends what no handshake has: it is no Gambeson domain".into(),
                ));
            }
            self.tls.process_new_packets().map_err(|cause| refused(&cause))?;
            if !self.tls.is_handshaking() && !self.greeted && self.side == Side::Client {
                self.greet()?;
            }
            let _ = self.tls.reader().read_to_end(&mut self.heard);
        }
    }

    /// The next whole record of TLS: never a byte of what may follow the handshake.
    fn next_record(&mut self, came: &mut &[u8]) -> Result<Option<Vec<u8>>, Error> {
        let want = match self.flight.get(3..5) {
            Some(length) => 5 + usize::from(u16::from_be_bytes(length.try_into().expect("2 bytes"))),
            None => 5,
        };
        let more = (want - self.flight.len()).min(came.len());
        self.flight.extend_from_slice(&came[..more]);
        *came = &came[more..];
        self.taken += more;
        if self.taken > FLIGHT_MAX {
            return Err(Error::Protocol(
                "the other end sends more than any handshake needs: it is no Gambeson domain".into(),
            ));
        }
        if self.flight.len() < want {
            return Ok(None);
        }
        if want == 5 && self.flight[3..5] != [0, 0] {
            return self.next_record(came);
        }
        Ok(Some(std::mem::take(&mut self.flight)))
    }

    fn send(&mut self, out: &mut Vec<u8>) {
        while self.tls.wants_write() {
            self.tls.write_tls(out).expect("memory takes all");
        }
    }

    fn exported(&self) -> Result<Secret32, Error> {
        Ok(Secret32::from_bytes(*self.export(EXPORT)?))
    }

    fn export(&self, label: &[u8]) -> Result<Zeroizing<[u8; 32]>, Error> {
        let mut secret = Zeroizing::new([0; 32]);
        self.tls.export_keying_material(&mut *secret, label, None).map_err(|cause| refused(&cause))?;
        Ok(secret)
    }

    /// version 1 | end's host 1 + n | its address 1 + 0, 4 or 16 | rank 4 | job 16 | policy 8 | proof 32, behind their length
    fn greet(&mut self) -> Result<(), Error> {
        let host = &self.party.host.as_bytes()[..self.party.host.len().min(255)];
        let mut words = vec![GREETING_VERSION, host.len() as u8];
        words.extend_from_slice(host);
        match self.party.address {
            None => words.push(0),
            Some(IpAddr::V4(address)) => {
                words.push(4);
                words.extend_from_slice(&address.octets());
            }
            Some(IpAddr::V6(address)) => {
                words.push(16);
                words.extend_from_slice(&address.octets());
            }
        }
        words.extend_from_slice(&self.party.rank.unwrap_or(NO_RANK).to_be_bytes());
        match self.party.job() {
            Some(job) => {
                words.extend_from_slice(&job.job_id);
                words.extend_from_slice(&job.policy_hash[..8]);
                words.extend_from_slice(&job.session_proof(&self.exported()?, self.side));
            }
            None => words.extend_from_slice(&[0; 56]),
        }
        let mut greeting = (words.len() as u16).to_be_bytes().to_vec();
        greeting.append(&mut words);
        self.tls.writer().write_all(&greeting).map_err(|_| Error::Protocol("TLS does not take a greeting".into()))?;
        self.greeted = true;
        Ok(())
    }

    fn greeting(&mut self) -> Result<Option<Vec<u8>>, Error> {
        let Some((length, rest)) = self.heard.split_first_chunk() else { return Ok(None) };
        let length = usize::from(u16::from_be_bytes(*length));
        if rest.len() > length {
            return Err(Error::Protocol("the other end says more than a greeting before the session begins".into()));
        }
        Ok((rest.len() == length).then(|| rest.to_vec()))
    }

    fn conclude(&mut self, greeting: &[u8]) -> Result<Agreed, Error> {
        let heard = Greeting::decode(greeting)?;
        let (peer, of_job) = self.peer(&heard)?;
        if let Some(Expected::Role(role)) = self.expected.as_ref().filter(|expected| !expected.is(&peer)) {
            let who = format!("{} on {} (key {}) is at that address", peer.name, peer.host, peer.key);
            return Err(Error::Refused(format!("{who}, and has not the role {role:?} that is expected there")));
        }
        if self.side == Side::Server {
            self.greet()?;
        }
        // Only what both ends have goes into the keys: the job counts where both proved it.
        let job = self.party.job().filter(|_| of_job);
        let nothing = ([0; 16], [0; 32], Suite::default());
        let (job_id, policy_hash, suite) = job.map_or(nothing, |job| (job.job_id, job.policy_hash, job.suite));
        let exporter = session_secret(&self.exported()?, job);
        let (own, other) = (self.party.hash.0, peer.key.0);
        let keys = SessionKeys { exporter, own, peer: other, job_id, policy_hash, suite };
        Ok(Agreed { side: self.side, keys, peer, binding: *self.export(BINDING)? })
    }

    /// Who it is, and whether it is of our job, by the first way of proving it that holds.
    fn peer(&self, heard: &Greeting) -> Result<(Peer, bool), Error> {
        let chain = self.tls.peer_certificates().unwrap_or_default();
        let certificate = chain.first().ok_or_else(|| Error::Refused("the other end shows no certificate".into()))?;
        let key = KeyHash::of(certificate).map_err(|cause| refused(&cause))?;
        if let Some(Expected::Key(expected)) = &self.expected
            && *expected != key
        {
            let what =
                format!("the key at that address is {key}, and {expected} is expected: another process listens there");
            return Err(Error::Refused(what));
        }
        let (of_job, why) = match self.proves_job(heard)? {
            Ok(()) => (true, String::new()),
            Err(why) => (false, why),
        };
        let pinned = self.party.pinned.read().unwrap_or_else(PoisonError::into_inner).get(&key).cloned();
        let mut proved = Vec::new();
        for way in Authentication::ALL {
            let (name, roles) = match way {
                Authentication::Job if of_job => {
                    let name = heard.rank.map_or("a process of the job".to_owned(), |rank| format!("rank {rank}"));
                    (name, vec![JOB_ROLE.to_owned()])
                }
                Authentication::Pinned if pinned.is_some() => pinned.clone().expect("it is"),
                Authentication::Certificate if self.party.trust.roots.is_some() => {
                    if verified(&self.party.trust, chain, self.side).is_err() {
                        continue;
                    }
                    let parsed = webpki::EndEntityCert::try_from(certificate).map_err(|_| bad_certificate());
                    let parsed = parsed.map_err(|cause| refused(&cause))?;
                    named(&parsed)
                }
                _ => continue,
            };
            proved.push(way);
            if self.party.site.accepts(&heard.host, way) {
                self.party.site.carries(&heard.host, self.over)?;
                let (host, address) = (heard.host.clone(), heard.address);
                return Ok((Peer { key, name, roles, host, address }, of_job));
            }
        }
        let guests = self.side == Side::Server && self.party.trust.guests;
        if guests && proved.is_empty() && claims_nothing(certificate) && self.party.site.accepts_guests(&heard.host) {
            // Nobody vouches for the host and the address that it states, and no policy is to go by them.
            let (name, host) = ("a guest".to_owned(), "an unproved host".to_owned());
            return Ok((Peer { key, name, roles: vec![GUEST.to_owned()], host, address: None }, false));
        }
        let why = if proved.is_empty() { why } else { self.party.site.unaccepted(&heard.host, &proved) };
        Err(Error::Refused(format!("the other end (on {}, key {key}) is refused: {why}", heard.host)))
    }

    /// Whether it has the secret of our job; if not, why it is nobody to talk to unless it is known otherwise.
    fn proves_job(&self, heard: &Greeting) -> Result<Result<(), String>, Error> {
        let Some(job) = self.party.job() else {
            return Ok(Err("its key is not among those that are accepted here".to_owned()));
        };
        let other = if self.side == Side::Client { Side::Server } else { Side::Client };
        if heard.job != job.job_id {
            return Ok(Err("it belongs to another job, or to none".into()));
        }
        if !bool::from(heard.proof.ct_eq(&job.session_proof(&self.exported()?, other))) {
            return Ok(Err("it names this job and does not have its secret".into()));
        }
        if heard.policy != job.policy_hash[..8] {
            let why = "it is of this job, under another policy; start all of it from one `gambeson run`";
            return Err(Error::Refused(format!("the other end (on {}) is refused: {why}", heard.host)));
        }
        Ok(Ok(()))
    }
}

/// The role of whoever proved the job's secret.
const JOB_ROLE: &str = "rank";

/// The host and the address in a greeting, if it is one.
#[cfg(feature = "fuzzing")]
pub(crate) fn is_greeting(bytes: &[u8]) -> Option<(String, Option<IpAddr>)> {
    Greeting::decode(bytes).ok().map(|greeting| (greeting.host, greeting.address))
}

struct Greeting {
    host: String,
    address: Option<IpAddr>,
    rank: Option<u32>,
    job: [u8; 16],
    policy: [u8; 8],
    proof: [u8; 32],
}

impl Greeting {
    fn decode(bytes: &[u8]) -> Result<Self, Error> {
        Self::parse(bytes)
            .ok_or_else(|| Error::Protocol("the other end's greeting is of another version of Gambeson".into()))
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let (&[version, length], rest) = bytes.split_first_chunk()?;
        let (host, rest) = rest.split_at_checked(usize::from(length))?;
        let (&length, rest) = rest.split_first()?;
        let (address, rest) = rest.split_at_checked(usize::from(length))?;
        let address = match length {
            0 => None,
            4 => Some(IpAddr::from(<[u8; 4]>::try_from(address).ok()?)),
            16 => Some(IpAddr::from(<[u8; 16]>::try_from(address).ok()?)),
            _ => return None,
        };
        let (rank, rest) = rest.split_first_chunk()?;
        let (job, rest) = rest.split_first_chunk()?;
        let (policy, rest) = rest.split_first_chunk()?;
        let proof = rest.try_into().ok()?;
        let rank = Some(u32::from_be_bytes(*rank)).filter(|&rank| rank != NO_RANK);
        let host = std::str::from_utf8(host).ok().filter(|host| !host.chars().any(char::is_control))?.to_owned();
        (version == GREETING_VERSION).then_some(Greeting { host, address, rank, job: *job, policy: *policy, proof })
    }
}

/// What a certificate says that its owner may be asked to be: what its URIs name, and `dns:NAME` for each DNS name.
fn roles(certificate: &webpki::EndEntityCert<'_>) -> Vec<String> {
    let named = certificate.valid_uri_names().filter_map(|uri| uri.strip_prefix(ROLE));
    let named = named.filter(|role| !role.starts_with(DNS_ROLE) && *role != GUEST).map(str::to_owned);
    let hosts = certificate.valid_dns_names().map(|name| format!("{DNS_ROLE}{}", name.to_ascii_lowercase()));
    named.chain(hosts).collect()
}

fn unusable(cause: &rustls::Error) -> Error {
    Error::Identity(format!("the certificate or its key cannot be used: {cause}"))
}

/// What a certificate's owner is called, and its roles.
fn named(certificate: &webpki::EndEntityCert<'_>) -> (String, Vec<String>) {
    let (name, roles) = (certificate.valid_dns_names().next(), roles(certificate));
    let name = name.or(roles.last().map(String::as_str)).unwrap_or("without a name").to_owned();
    (name, roles)
}

/// Whether a certificate is a key and no more: of another authority's member it is said that this is not accepted.
fn claims_nothing(certificate: &CertificateDer<'_>) -> bool {
    webpki::EndEntityCert::try_from(certificate).is_ok_and(|parsed| roles(&parsed).is_empty())
}

fn bad_certificate() -> rustls::Error {
    rustls::Error::InvalidCertificate(CertificateError::BadEncoding)
}

/// Whose certificate this is, as a client's, by the authorities alone.
pub(crate) fn whose(trust: &Trust, chain: &[CertificateDer<'_>]) -> Result<Peer, Error> {
    verified(trust, chain, Side::Server).map_err(|cause| refused(&cause))?;
    let certificate = chain.first().expect("it was verified");
    let parsed = webpki::EndEntityCert::try_from(certificate).map_err(|_| refused(&bad_certificate()))?;
    let key = KeyHash::of(certificate).map_err(|cause| refused(&cause))?;
    let (name, roles) = named(&parsed);
    Ok(Peer { key, name, roles, host: String::new(), address: None })
}

/// Whether a certificate is one of the authorities', for the use that the other end makes of it.
fn verified(trust: &Trust, chain: &[CertificateDer<'_>], side: Side) -> Result<(), rustls::Error> {
    let (certificate, intermediates) = chain.split_first().ok_or_else(bad_certificate)?;
    let roots = trust.roots.as_ref().ok_or(rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer))?;
    let parsed = webpki::EndEntityCert::try_from(certificate).map_err(|_| bad_certificate())?;
    let usage = if side == Side::Client { webpki::KeyUsage::server_auth() } else { webpki::KeyUsage::client_auth() };
    let algorithms = rustls::crypto::aws_lc_rs::default_provider().signature_verification_algorithms;
    let checked =
        parsed.verify_for_usage(algorithms.all, &roots.roots, intermediates, UnixTime::now(), usage, None, None);
    checked.map(drop).map_err(|cause| {
        rustls::Error::InvalidCertificate(match cause {
            webpki::Error::CertExpired { time, not_after } => CertificateError::ExpiredContext { time, not_after },
            webpki::Error::CertNotValidYet { time, not_before } => {
                CertificateError::NotValidYetContext { time, not_before }
            }
            _ => CertificateError::UnknownIssuer,
        })
    })
}

/// Both ends' check of certificates: what the peer signs it must own; whether it is known is asked here where it can be.
#[derive(Debug)]
struct Verifier {
    trust: Arc<Trust>,
    pinned: Arc<Pinned>,
    provider: Arc<CryptoProvider>,
}

impl Verifier {
    fn check(&self, first: &CertificateDer<'_>, more: &[CertificateDer<'_>], side: Side) -> Result<(), rustls::Error> {
        let key = KeyHash::of(first)?;
        let is_pinned = || self.pinned.read().unwrap_or_else(PoisonError::into_inner).contains_key(&key);
        if self.trust.job.is_some() || is_pinned() {
            return Ok(());
        }
        let chain: Vec<_> = std::iter::once(first.clone()).chain(more.iter().cloned()).collect();
        match verified(&self.trust, &chain, side) {
            Err(rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer))
                if side == Side::Server && self.trust.guests && claims_nothing(first) =>
            {
                Ok(())
            }
            checked => checked,
        }
    }

    fn signed(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }

    /// TLS 1.2 is never offered.
    fn never() -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(rustls::Error::PeerIncompatible(rustls::PeerIncompatible::Tls12NotOffered))
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        first: &CertificateDer<'_>,
        more: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        self.check(first, more, Side::Client).map(|()| ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Self::never()
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.signed(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.supported()
    }
}

impl ClientCertVerifier for Verifier {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        first: &CertificateDer<'_>,
        more: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        self.check(first, more, Side::Server).map(|()| ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Self::never()
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.signed(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.supported()
    }
}

fn refused(cause: &rustls::Error) -> Error {
    use rustls::Error::{AlertReceived, General, InvalidCertificate, InvalidMessage};
    Error::Refused(match cause {
        InvalidCertificate(CertificateError::ExpiredContext { time, not_after }) => format!(
            "the other end's certificate expired {} ago by this host's clock: it was valid until {}, and it is {} here; it \
             has to be renewed there, or the clocks differ",
            apart(*time, *not_after),
            date(not_after.as_secs()),
            date(time.as_secs())
        ),
        InvalidCertificate(CertificateError::NotValidYetContext { time, not_before }) => format!(
            "the other end's certificate is not valid yet: it will be in {} by this host's clock, from {} on, and it is {} \
             here; compare the clocks",
            apart(*not_before, *time),
            date(not_before.as_secs()),
            date(time.as_secs())
        ),
        InvalidCertificate(CertificateError::UnknownIssuer) => {
            "the other end's key is neither pinned here nor certified by an authority that is accepted here".into()
        }
        AlertReceived(AlertDescription::CertificateExpired) => format!(
            "this end's certificate has expired, or is not valid yet, by the other end's clock, and it is {} by this one's; \
             renew it, or compare the clocks",
            date(UnixTime::now().as_secs())
        ),
        AlertReceived(alert) => format!("the other end refuses this one (TLS alert {alert:?}): its log says why"),
        // What a signer says that is not rustls' own.
        General(_) => unsigned(cause),
        InvalidMessage(_) => "the other end does not speak TLS: it is no Gambeson domain".into(),
        cause => format!("the handshake failed: {cause}"),
    })
}

/// How long it is from one moment to a later one: `40 s`, `3 h`
fn apart(later: UnixTime, earlier: UnixTime) -> String {
    match later.as_secs().saturating_sub(earlier.as_secs()) {
        seconds @ 0..120 => format!("{seconds} s"),
        seconds @ 120..7_200 => format!("{} min", seconds / 60),
        seconds @ 7_200..172_800 => format!("{} h", seconds / 3_600),
        seconds => format!("{} days", seconds / 86_400),
    }
}
