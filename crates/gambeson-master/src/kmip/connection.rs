//! A connection to a key server: TLS with both ends' certificates, and requests one after the other.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use gambeson_site::job::read_secret;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::version::{TLS12, TLS13};
use rustls::{CertificateError, ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use zeroize::Zeroizing;

use super::Address;
use super::ttlv::{HEAD, length_of};
use crate::MasterError;

/// A server that takes longer is not there.
const CONNECT: Duration = Duration::from_secs(10);
/// For all that is asked over one connection: hardware takes a while to make a key.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct Connection<'a> {
    address: &'a Address,
    stream: StreamOwned<ClientConnection, Patient>,
}

impl<'a> Connection<'a> {
    /// # Errors
    /// When a file does not hold what it should, or the server does not answer, is another one, or does not believe this end.
    pub(crate) fn open(address: &'a Address) -> Result<Self, MasterError> {
        let config = config(address)?;
        let stream = connect(address).map_err(|cause| {
            MasterError::Unavailable(format!(
                "the key server {} does not answer: {cause}; is it running?",
                address.server()
            ))
        })?;
        let session = ClientConnection::new(Arc::new(config), address.name().clone()).map_err(|cause| {
            MasterError::Unavailable(format!("TLS with the key server {} cannot begin: {cause}", address.server()))
        })?;
        Ok(Connection { address, stream: StreamOwned::new(session, stream) })
    }

    /// Sends a request and waits for its answer.
    ///
    /// # Errors
    /// When there is none.
    pub(crate) fn ask(&mut self, request: &[u8]) -> Result<Zeroizing<Vec<u8>>, MasterError> {
        self.exchange(request).map_err(|cause| self.silent(&cause))
    }

    fn exchange(&mut self, request: &[u8]) -> io::Result<Zeroizing<Vec<u8>>> {
        self.stream.write_all(request)?;
        self.stream.flush()?;
        let mut head = [0; HEAD];
        self.stream.read_exact(&mut head)?;
        let length = length_of(&head).map_err(|_| io::Error::other("what it answers is no KMIP"))?;
        let mut answer = Zeroizing::new(vec![0; length]);
        answer[..HEAD].copy_from_slice(&head);
        self.stream.read_exact(&mut answer[HEAD..])?;
        Ok(answer)
    }

    fn silent(&self, cause: &io::Error) -> MasterError {
        let (server, address) = (self.address.server(), self.address);
        let tls = cause.get_ref().and_then(|cause| cause.downcast_ref::<rustls::Error>());
        MasterError::Unavailable(match tls {
            Some(rustls::Error::InvalidCertificate(
                CertificateError::UnknownIssuer | CertificateError::BadSignature,
            )) => format!(
                "the key server {server} shows a certificate that nobody in {} has signed; it is another server, or its \
                 authority's certificate is not in that file",
                address.authority().display()
            ),
            Some(rustls::Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) => format!(
                "the key server {server} shows a certificate for another host; say the host by the name that is in it, or look \
                 who answers there"
            ),
            Some(rustls::Error::InvalidCertificate(cause)) => {
                format!("the certificate of the key server {server} is not believed: {cause}")
            }
            Some(rustls::Error::AlertReceived(alert)) => format!(
                "the key server {server} refuses this end ({alert:?}); does it know the certificate in {}?",
                address.certificate().display()
            ),
            Some(cause) => format!("TLS with the key server {server} fails: {cause}"),
            None if cause.kind() == io::ErrorKind::UnexpectedEof || cause.kind() == io::ErrorKind::ConnectionReset => {
                format!(
                    "the key server {server} ends the connection without an answer; does it know the certificate in {}?",
                    address.certificate().display()
                )
            }
            None => format!("the key server {server} does not answer: {cause}; is it running?"),
        })
    }
}

fn connect(address: &Address) -> io::Result<Patient> {
    let until = Instant::now() + PATIENCE;
    let mut last = io::Error::other("its name has no address");
    for one in address.host().to_socket_addrs()? {
        match TcpStream::connect_timeout(&one, CONNECT) {
            Ok(stream) => {
                stream.set_nodelay(true)?;
                return Ok(Patient { stream, until });
            }
            Err(cause) => last = cause,
        }
    }
    Err(last)
}

/// TLS 1.3 where the server has it, then with a hybrid key exchange if it has that too; else 1.2, with forward secrecy alone.
fn config(address: &Address) -> Result<ClientConfig, MasterError> {
    let refused = |what: &str, path: &Path, why: &str| {
        MasterError::Refused(format!(
            "{what} {} for the key server {} cannot be used: {why}",
            path.display(),
            address.server()
        ))
    };
    let authority = |why: &str| refused("the authority's certificate", address.authority(), why);
    let mut roots = RootCertStore::empty();
    for certificate in certificates(address.authority()).map_err(|why| authority(&why))? {
        roots.add(certificate).map_err(|cause| authority(&cause.to_string()))?;
    }
    let own = |why: &str| refused("the certificate", address.certificate(), why);
    let chain = certificates(address.certificate()).map_err(|why| own(&why))?;
    let key = read_secret(address.key()).and_then(|pem| {
        PrivateKeyDer::from_pem_slice(&pem).map_err(|cause| format!("it holds no private key in PEM ({cause})"))
    });
    let key = key.map_err(|why| refused("the private key", address.key(), &why))?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_protocol_versions(&[&TLS13, &TLS12]);
    let builder = builder.map_err(|cause| MasterError::Unavailable(format!("TLS cannot begin: {cause}")))?;
    let config = builder.with_root_certificates(roots).with_client_auth_cert(chain, key);
    let mut config = config.map_err(|cause| own(&format!("{cause}; is {} its key?", address.key().display())))?;
    config.resumption = rustls::client::Resumption::disabled();
    Ok(config)
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let pem = std::fs::read(path).map_err(|cause| cause.to_string())?;
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    let all = all.map_err(|cause| format!("it is not readable ({cause})"))?;
    if all.is_empty() { Err("it holds no certificate in PEM".into()) } else { Ok(all) }
}

/// A stream that gives up at a certain time, however often a little comes.
struct Patient {
    stream: TcpStream,
    until: Instant,
}

impl Patient {
    fn left(&self) -> io::Result<Option<Duration>> {
        match self.until.checked_duration_since(Instant::now()) {
            Some(left) if !left.is_zero() => Ok(Some(left)),
            _ => Err(io::Error::new(io::ErrorKind::TimedOut, format!("nothing came within {} s", PATIENCE.as_secs()))),
        }
    }
}

impl Read for Patient {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(self.left()?)?;
        match self.stream.read(buffer) {
            Err(cause) if cause.kind() == io::ErrorKind::WouldBlock => self.left().map(|_| 0).and(Err(cause)),
            other => other,
        }
    }
}

impl Write for Patient {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(self.left()?)?;
        self.stream.write(buffer)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}
