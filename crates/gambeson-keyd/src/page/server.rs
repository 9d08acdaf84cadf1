//! TLS and HTTP: connections, their limits, and the headers of all answers.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use gambeson_link::Trust;
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{HeaderName, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use pki_types::{CertificateDer, UnixTime};
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{CryptoProvider, verify_tls13_signature};
use rustls::server::NoServerSessionStorage;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, ServerConfig, SignatureScheme};
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, oneshot};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

use super::certificate::Shown;
use super::routes::{Asked, Office};

/// Connections at once; officers are few, and who opens more than that is none.
const CONNECTIONS_MAX: usize = 128;
/// Those of one host; a browser has about six.
const HOST_MAX: usize = 16;
/// So long a handshake may take: browsers that ask their user for a certificate begin anew when he has chosen.
const HANDSHAKE: Duration = Duration::from_secs(5);
/// For a handshake, and for the head of a request, also the next one of a connection.
const PATIENCE: Duration = Duration::from_secs(20);
/// No connection is open for longer.
const AGE_MAX: Duration = Duration::from_secs(600);
const HEAD_MAX: usize = 16 << 10;
const HEADERS_MAX: usize = 64;
/// Requests that wait for the database at once.
const READERS: usize = 4;

/// How connections are made: TLS 1.3 alone, and without a second way in by resumption.
pub(super) fn tls(trust: &Trust, shown: Arc<Shown>) -> Result<Arc<ServerConfig>, rustls::Error> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let asks = Asks { provider: provider.clone(), authorities: trust.subjects().into_iter().map(Into::into).collect() };
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_client_cert_verifier(Arc::new(asks))
        .with_cert_resolver(shown);
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(Arc::new(config))
}

/// Asks for a certificate, and has its owner prove that he has the key. Whether it is anybody's is not asked here but by
/// [`super::admission`], for each request, so that who is not let in can be told why.
#[derive(Debug)]
struct Asks {
    provider: Arc<CryptoProvider>,
    authorities: Vec<DistinguishedName>,
}

impl ClientCertVerifier for Asks {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &self.authorities
    }

    fn verify_client_cert(
        &self,
        _first: &CertificateDer<'_>,
        _more: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(rustls::Error::General("TLS 1.3 is spoken here".into()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signature, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

/// Serves until it is told to stop.
pub(super) fn run(
    listener: TcpListener,
    tls: Arc<ServerConfig>,
    office: Arc<Office>,
    stopped: oneshot::Receiver<()>,
    say: &(dyn Fn(&str) + Send + Sync),
) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(READERS)
        .thread_name("gambeson-page-read")
        .build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(cause) => return say(&format!("the officers' page is not served: {cause}")),
    };
    runtime.block_on(async {
        let Ok(listener) = tokio::net::TcpListener::from_std(listener) else {
            return say("the officers' page is not served: its socket is none");
        };
        let tls = TlsAcceptor::from(tls);
        tokio::select! {
            () = accept(&listener, &tls, &office) => {}
            _ = stopped => {}
        }
    });
    runtime.shutdown_timeout(Duration::from_secs(5));
}

async fn accept(listener: &tokio::net::TcpListener, tls: &TlsAcceptor, office: &Arc<Office>) {
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let hosts = Arc::new(Mutex::new(HashMap::<IpAddr, Arc<Semaphore>>::new()));
    loop {
        let Ok((stream, from)) = listener.accept().await else {
            // No more files, most likely: those that there are will end.
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        // Who finds no place is gone; connections that say nothing do not stay.
        let Ok(place) = places.clone().try_acquire_owned() else { continue };
        // No host takes the places of all.
        let of_its = lock(&hosts).entry(from.ip()).or_insert_with(|| Arc::new(Semaphore::new(HOST_MAX))).clone();
        let Ok(of_its) = of_its.try_acquire_owned() else { continue };
        let (tls, office, hosts) = (tls.clone(), office.clone(), hosts.clone());
        tokio::spawn(async move {
            let _ = timeout(AGE_MAX, serve(stream, from, tls, office)).await;
            drop((place, of_its));
            lock(&hosts).retain(|_, places| places.available_permits() < HOST_MAX);
        });
    }
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn serve(stream: TcpStream, from: SocketAddr, tls: TlsAcceptor, office: Arc<Office>) {
    let Ok(Ok(stream)) = timeout(HANDSHAKE, tls.accept(stream)).await else { return };
    let chain = stream.get_ref().1.peer_certificates();
    let chain: Option<Arc<[CertificateDer<'static>]>> =
        chain.map(|chain| chain.iter().map(|certificate| certificate.clone().into_owned()).collect());
    let service = service_fn(|request: Request<Incoming>| {
        let (office, chain) = (office.clone(), chain.clone());
        async move {
            let asked = Asked {
                method: request.method().clone(),
                path: request.uri().path().to_owned(),
                query: request.uri().query().unwrap_or_default().to_owned(),
                from: from.ip().to_canonical(),
                chain,
            };
            // What is asked for waits for the database, and others do not wait for it.
            let is_stranger = asked.chain.is_none();
            let answered = tokio::task::spawn_blocking(move || office.answer(&asked)).await;
            // A request that came to nothing closes the connection, and says nothing.
            answered.map(|answer| {
                let mut whole = answer.whole();
                if is_stranger {
                    whole.headers_mut().insert(hyper::header::CONNECTION, HeaderValue::from_static("close"));
                }
                whole
            })
        }
    });
    let _ = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(PATIENCE)
        .max_buf_size(HEAD_MAX)
        .max_headers(HEADERS_MAX)
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

/// What is answered.
pub(super) struct Answer {
    pub(super) status: hyper::StatusCode,
    pub(super) kind: &'static str,
    pub(super) body: String,
}

impl Answer {
    fn whole(self) -> Response<Full<Bytes>> {
        let mut response = Response::new(Full::new(Bytes::from(self.body)));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(hyper::header::CONTENT_TYPE, HeaderValue::from_static(self.kind));
        for (name, value) in HEADERS {
            headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        let policy = HeaderValue::from_str(super::frame::content_policy()).expect("it is ASCII");
        headers.insert(hyper::header::CONTENT_SECURITY_POLICY, policy);
        if self.status == hyper::StatusCode::METHOD_NOT_ALLOWED {
            headers.insert(hyper::header::ALLOW, HeaderValue::from_static("GET, HEAD"));
        }
        response
    }
}

/// On every answer, beside the content security policy.
const HEADERS: [(&str, &str); 8] = [
    ("cache-control", "no-store"),
    ("strict-transport-security", "max-age=31536000"),
    ("x-content-type-options", "nosniff"),
    ("x-frame-options", "DENY"),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
    ("permissions-policy", "camera=(), geolocation=(), microphone=()"),
];
