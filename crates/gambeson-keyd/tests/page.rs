//! The officers' page over TLS: who is let in, what is escaped, and what is counted.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use gambeson_keyd::page::{Following, Live, Page, Setup, Standby};
use gambeson_keyd::{Database, Event, Grant, LabelRecord, Rights, Who};
use gambeson_launch::authority::{
    Authority, Browser, Identities, Kind, Member, Newcomer, Settings, Site, Subject, browser,
};
use gambeson_site::directory::now;
use pki_types::pem::PemObject;
use pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use zeroize::Zeroizing;

/// A folder that goes with the test.
struct Room(PathBuf);

impl Room {
    fn new(name: &str) -> Self {
        let room = std::env::temp_dir().join(format!("gambeson-page-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&room);
        fs::create_dir_all(&room).expect("a test may write there");
        Room(room)
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn own_host() -> String {
    rustix::system::uname().nodename().to_string_lossy().to_ascii_lowercase()
}

/// A site with this host and people; each has a browser.
struct Ocean {
    room: Room,
    authority: Authority,
}

impl Ocean {
    fn new(name: &str) -> Self {
        let room = Room::new(name);
        let settings = Settings { name: name.into(), days: 7.0, identities: Identities::default() };
        let site = Site { name: name.into(), authority: "h1:7200".into(), identities: Vec::new(), keys: None };
        let authority = Authority::create(&room.0, &settings, &site, None).unwrap();
        let ocean = Ocean { room, authority };
        ocean.enroll(Kind::Host, &Subject::host([own_host().as_str()]).unwrap());
        ocean.authority.allow_pages(&[own_host()], None).unwrap();
        ocean
    }

    fn enroll(&self, kind: Kind, subject: &Subject) {
        let newcomer = Newcomer::new(&self.room.0, kind, true, None).unwrap();
        newcomer.install(&self.authority.certify(&newcomer.request().unwrap(), subject).unwrap()).unwrap();
    }

    fn browser(&self, name: &str) -> Browser {
        self.enroll(Kind::User, &Subject::user(name).unwrap());
        browser(&Member::read(&self.room.0, Kind::User).unwrap()).unwrap()
    }

    /// What a person's other programs come with: an Ed25519 key.
    fn identity(&self, name: &str) -> Zeroizing<String> {
        self.enroll(Kind::User, &Subject::user(name).unwrap());
        Zeroizing::new(fs::read_to_string(self.room.0.join("identity.pem")).unwrap())
    }

    fn open(&self, database: &Database, live: Arc<dyn Live>) -> (Page, Arc<Mutex<Vec<String>>>) {
        let said = Arc::new(Mutex::new(Vec::new()));
        let heard = said.clone();
        let page = Page::open(Setup {
            database: database.clone(),
            path: self.room.0.join("keys.db"),
            folder: self.room.0.clone(),
            host: own_host(),
            listen: "127.0.0.1:0".parse().unwrap(),
            officers: vec!["user:olga".into()],
            metrics: vec!["user:prometheus".into()],
            live,
            say: Arc::new(move |why| heard.lock().unwrap().push(why.to_owned())),
        });
        (page.unwrap(), said)
    }
}

struct Answer {
    status: u16,
    head: String,
    body: String,
}

/// Asks at a page as a browser does, with a key and certificate in PEM.
struct Visitor<'p> {
    page: &'p Page,
    pages: String,
    identity: Option<String>,
}

impl<'p> Visitor<'p> {
    fn new(page: &'p Page, ocean: &Ocean, identity: Option<&str>) -> Self {
        let pages = fs::read_to_string(ocean.room.0.join("pages.pem")).unwrap();
        Visitor { page, pages, identity: identity.map(str::to_owned) }
    }

    fn get(&self, path: &str) -> Answer {
        self.ask("GET", path)
    }

    fn ask(&self, method: &str, path: &str) -> Answer {
        // The certificate is asked for while the first visitors come.
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            match self.try_ask(method, path) {
                Ok(answer) => return answer,
                Err(cause) => assert!(Instant::now() < deadline, "{cause}"),
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn try_ask(&self, method: &str, path: &str) -> std::io::Result<Answer> {
        let mut stream = self.connect()?;
        write!(stream, "{method} {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", own_host())?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer)?;
        let answer = String::from_utf8(answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").ok_or_else(|| std::io::Error::other("no answer"))?;
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Ok(Answer { status, head: head.to_ascii_lowercase(), body: body.to_owned() })
    }

    fn connect(&self) -> std::io::Result<StreamOwned<ClientConnection, TcpStream>> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(self.pages.as_bytes()).unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots);
        let config = match &self.identity {
            None => config.with_no_client_auth(),
            Some(pem) => {
                let certificate = CertificateDer::from_pem_slice(pem.as_bytes()).unwrap();
                let key = PrivateKeyDer::from_pem_slice(pem.as_bytes()).unwrap();
                config.with_client_auth_cert(vec![certificate], key).unwrap()
            }
        };
        let name = ServerName::try_from(own_host()).unwrap();
        let tls = ClientConnection::new(Arc::new(config), name).map_err(std::io::Error::other)?;
        Ok(StreamOwned::new(tls, TcpStream::connect(self.page.listening())?))
    }
}

fn database(room: &Path) -> Database {
    let place = format!("file:{}", room.join("master.key").display()).parse().unwrap();
    let mut ask = |_: &str| Some(Zeroizing::new(b"eight words or fewer".to_vec()));
    let (master, _) = gambeson_master::make(&place, &mut ask).unwrap();
    Database::create(&room.join("keys.db"), &*master).unwrap()
}

fn who(name: &str) -> Who {
    Who { name: name.into(), roles: vec!["user".into(), name.into()], key: "00".repeat(32), from: "h3".into() }
}

const READ: Rights = Rights { read: true, write: false, administer: false };
const DAY: u64 = 86_400;

/// Labels that have expired, end soon, end late and never, and rows of all kinds.
fn fill(database: &Database) {
    database
        .change(|change| {
            let ann = who("user:ann");
            for (name, expires) in [
                ("charts", Some(now() - 5)),
                ("scans", Some(now() + 9 * DAY)),
                ("genomes", Some(now() + 90 * DAY)),
                ("notes", None),
            ] {
                let mut record = LabelRecord::create(name, expires, &ann)?;
                if name == "scans" {
                    record.grant(Grant { who: "user:bob".into(), rights: READ, until: Some(now() + 3 * DAY) });
                }
                change.put_label(&record, &Event::new("create", &ann).label(name))?;
            }
            change.log(&Event::new("get", &who("user:bob")).label("scans"))?;
            let hostile = "<script>alert(1)</script>\"'&<img src=x onerror=alert(2)>";
            let mut mallory = who("user:mallory");
            mallory.from = hostile.into();
            change.log(&Event::refusal(&mallory, "read", hostile).label("scans").about(hostile, hostile))?;
            change.log(&Event::refusal(&mallory, hostile, "no"))
        })
        .unwrap();
}

struct Followed;

impl Live for Followed {
    fn clients(&self) -> Option<u64> {
        Some(17)
    }

    fn standbys(&self) -> Vec<Standby> {
        vec![
            Standby { name: "keys2".into(), has: Some(3), heard: Some(now()) },
            Standby { name: "keys3".into(), has: None, heard: None },
        ]
    }
}

/// As a standby sees it.
struct Follows;

impl Live for Follows {
    fn following(&self) -> Option<Following> {
        Some(Following { primary: "keys1".into(), has: Some(1_000), heard: Some(now() - 3_600) })
    }
}

#[test]
fn officers_see_all_of_it_and_what_was_written_stays_text() {
    let ocean = Ocean::new("ocean");
    let database = database(&ocean.room.0);
    fill(&database);
    let (page, said) = ocean.open(&database, Arc::new(Followed));
    let olga = Visitor::new(&page, &ocean, Some(&ocean.browser("olga").identity));
    let overview = olga.get("/");
    assert_eq!(overview.status, 200, "{}", overview.body);
    let at = |text: &str| overview.body.find(text).unwrap_or_else(|| panic!("{text}: {}", overview.body));
    assert!(at("</a> expired ") < at("</a> expires ") && at("key rotate charts") < at("key rotate scans"));
    assert!(at(">charts</a></td>") < at(">scans</a></td>") && at(">scans</a></td>") < at(">genomes</a></td>"));
    assert!(at(">genomes</a></td>") < at(">notes</a></td>"));
    let tail = database.tail().to_string();
    for text in [
        &*tail,
        "user:bob: read",
        "The grant of ",
        "2 requests were refused",
        "keys3 has not been heard of yet",
        ">17<",
    ] {
        at(text);
    }
    assert!(!overview.body.contains("key rotate genomes") && !overview.body.contains("key rotate notes"));

    for path in ["/", "/log", "/label?name=scans", "/log?who=user%3Amallory", "/log?label=scans&event=refusal"] {
        let answer = olga.get(path);
        assert_eq!(answer.status, 200, "{path}");
        assert!(!answer.body.contains("<script") && !answer.body.contains("<img"), "{path}: {}", answer.body);
        for header in [
            "content-security-policy: default-src 'none'; style-src 'sha256-",
            "frame-ancestors 'none'",
            "cache-control: no-store",
            "strict-transport-security: max-age=",
            "x-content-type-options: nosniff",
            "referrer-policy: no-referrer",
        ] {
            assert!(answer.head.contains(header), "{path}: {}", answer.head);
        }
    }
    let log = olga.get("/log");
    assert!(log.body.contains("&lt;script&gt;alert(1)&lt;/script&gt;") && log.body.contains("<tr class=\"bad\">"));
    assert!(log.body.find("refusal").unwrap() < log.body.find("user:bob").unwrap());
    let searched = olga.get("/log?event=get");
    assert!(searched.body.contains("user:bob") && !searched.body.contains("user:mallory"));
    // What is typed into the search comes back as text.
    assert!(!olga.get("/log?label=%22%3E%3Cscript%3E").body.contains("<script"));
    assert_eq!(olga.get("/label?name=%3Cscript%3E").status, 404);
    assert!(!olga.get("/label?name=%3Cscript%3E").body.contains("<script"));
    let label = olga.get("/label?name=scans");
    assert!(label.body.contains("user:bob") && label.body.contains("(newest)") && label.body.contains("create"));

    for method in ["POST", "PUT", "DELETE", "OPTIONS"] {
        let answer = olga.ask(method, "/");
        assert!(answer.status == 405 && answer.head.contains("allow: get, head"), "{method}: {}", answer.head);
    }
    let head = olga.ask("HEAD", "/");
    assert!(head.status == 200 && head.body.is_empty());
    assert_eq!(olga.get("/../etc/passwd").status, 404);
    assert_eq!(olga.get("/partitions").status, 200);
    assert!(said.lock().unwrap().is_empty(), "{said:?}");
    // Whoever may see the page has changed nothing by it.
    assert_eq!(database.tail().to_string(), tail);
}

#[test]
fn strangers_are_told_why_and_nothing_else() {
    let (ocean, desert) = (Ocean::new("ocean-2"), Ocean::new("desert"));
    let database = database(&ocean.room.0);
    fill(&database);
    let (page, said) = ocean.open(&database, Arc::new(()));
    let rows = database.tail().number;
    let ann = ocean.browser("ann");
    let foreign = desert.browser("olga");
    let host = fs::read_to_string(ocean.room.0.join("host.pem")).unwrap();
    for (identity, why) in [
        (None, "has shown no certificate of this site"),
        (Some(foreign.identity.as_str()), "is not accepted here"),
        (Some(ann.identity.as_str()), "user:ann, who is no officer of this key service"),
        (Some(host.as_str()), "is no officer of this key service"),
    ] {
        let visitor = Visitor::new(&page, &ocean, identity);
        for path in ["/", "/log", "/label?name=scans", "/metrics", "/partitions", "/nowhere"] {
            let answer = visitor.get(path);
            assert_eq!(answer.status, 403, "{path}");
            assert!(answer.body.contains(why), "{path}: {}", answer.body);
            assert!(!answer.body.contains("charts") && !answer.body.contains("gambeson_keyd_"), "{}", answer.body);
        }
        assert_eq!(visitor.ask("POST", "/").status, 403);
    }
    // Whom the site knows is in the log, once; strangers are on stderr, once.
    let refused = database.read(|snapshot| snapshot.log(rows + 1, 100)).unwrap();
    let names: Vec<_> = refused.iter().map(|row| row.who().unwrap().name).collect();
    assert_eq!(names, ["user:ann".to_owned(), own_host()]);
    assert!(refused.iter().all(|row| row.event == "refusal" && row.about()["wanted"] == "page"));
    assert_eq!(said.lock().unwrap().len(), 1, "{said:?}");

    let prometheus = Visitor::new(&page, &ocean, Some(&ocean.identity("prometheus")));
    assert_eq!(prometheus.get("/metrics").status, 200);
    let answer = prometheus.get("/");
    assert!(answer.status == 403 && answer.body.contains("may fetch /metrics of"), "{}", answer.body);

    // A certificate is one thing, and its key another.
    let mut stolen = Visitor::new(&page, &ocean, Some(&ocean.browser("olga").identity));
    assert_eq!(stolen.get("/").status, 200);
    let olgas = stolen.identity.take().unwrap();
    let certificate = olgas.split_once("-----BEGIN CERTIFICATE").unwrap().1;
    let key = ann.identity.split_once("-----BEGIN CERTIFICATE").unwrap().0;
    stolen.identity = Some(format!("{key}-----BEGIN CERTIFICATE{certificate}"));
    let pages = CertificateDer::from_pem_slice(olgas.as_bytes()).unwrap();
    let config = stolen_config(&stolen, pages);
    assert!(config.is_err(), "the key of another was taken");
}

/// rustls refuses to show a certificate with another's key, so it is done by hand.
fn stolen_config(visitor: &Visitor<'_>, certificate: CertificateDer<'static>) -> std::io::Result<String> {
    let pem = visitor.identity.as_ref().unwrap();
    let key = PrivateKeyDer::from_pem_slice(pem.as_bytes()).unwrap();
    let key = rustls::crypto::aws_lc_rs::sign::any_supported_type(&key).unwrap();
    let certified = Arc::new(rustls::sign::CertifiedKey::new(vec![certificate], key));
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(visitor.pages.as_bytes()).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_client_cert_resolver(Arc::new(rustls::sign::SingleCertAndKey::from(certified)));
    let name = ServerName::try_from(own_host()).unwrap();
    let tls = ClientConnection::new(Arc::new(config), name).map_err(std::io::Error::other)?;
    let mut stream = StreamOwned::new(tls, TcpStream::connect(visitor.page.listening())?);
    write!(stream, "GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

fn value(metrics: &str, name: &str) -> f64 {
    let line = metrics.lines().find(|line| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(' ')));
    let line = line.unwrap_or_else(|| panic!("{name}: {metrics}"));
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

#[test]
fn metrics_count_what_the_log_says() {
    let ocean = Ocean::new("ocean-3");
    let database = database(&ocean.room.0);
    let (page, _) = ocean.open(&database, Arc::new(Followed));
    let prometheus = Visitor::new(&page, &ocean, Some(&ocean.identity("prometheus")));
    assert!(value(&prometheus.get("/metrics").body, "gambeson_keyd_gets_total") == 0.0);
    fill(&database);
    for _ in 0..200 {
        database.submit(|change| change.log(&Event::new("get", &who("user:bob")).label("scans")), |_| ());
    }
    database.change(|change| change.log(&Event::new("get", &who("user:bob")).label("scans"))).unwrap();
    let answer = prometheus.get("/metrics");
    assert!(answer.head.contains("content-type: application/openmetrics-text") && answer.body.ends_with("# EOF\n"));
    for (name, expected) in [
        ("gambeson_keyd_gets_total", 202.0),
        ("gambeson_keyd_refusals_total{wanted=\"read\"}", 1.0),
        ("gambeson_keyd_refusals_total{wanted=\"other\"}", 1.0),
        ("gambeson_keyd_changes_total{event=\"create\"}", 4.0),
        ("gambeson_keyd_log_rows", database.tail().number as f64),
        ("gambeson_keyd_labels", 4.0),
        ("gambeson_keyd_labels_expiring{days=\"0\"}", 1.0),
        ("gambeson_keyd_labels_expiring{days=\"7\"}", 1.0),
        ("gambeson_keyd_labels_expiring{days=\"30\"}", 2.0),
        ("gambeson_keyd_primary", 1.0),
        ("gambeson_keyd_clients", 17.0),
        ("gambeson_keyd_behind_rows{host=\"keys2\"}", database.tail().number as f64 - 3.0),
        ("gambeson_keyd_silent_seconds{host=\"keys3\"}", -1.0),
    ] {
        assert!((value(&answer.body, name) - expected).abs() < 0.1, "{name}: {}", answer.body);
    }
    assert!(value(&answer.body, "gambeson_keyd_database_bytes") > 10_000.0);
    assert!(value(&answer.body, "gambeson_keyd_commit_seconds_count") >= 2.0);
    let commits = value(&answer.body, "gambeson_keyd_commit_seconds_count");
    assert!((value(&answer.body, "gambeson_keyd_commit_seconds_bucket{le=\"+Inf\"}") - commits).abs() < 0.1);
    assert!(value(&answer.body, "gambeson_keyd_page_certificate_seconds") > 6.0 * DAY as f64);
    assert!(value(&answer.body, "gambeson_keyd_backup_age_seconds") < 60.0);
    assert!(!answer.body.contains("scans") && !answer.body.contains("user:"), "{}", answer.body);

    database.backup(&ocean.room.0.join("backup.db")).unwrap();
    drop(page);
    let (page, _) = ocean.open(&database, Arc::new(Follows));
    let prometheus = Visitor::new(&page, &ocean, Some(&ocean.identity("prometheus")));
    let body = prometheus.get("/metrics").body;
    assert!(value(&body, "gambeson_keyd_gets_total") == 0.0);
    assert!(value(&body, "gambeson_keyd_behind_rows{host=\"this\"}") > 500.0);
    let olga = Visitor::new(&page, &ocean, Some(&ocean.browser("olga").identity));
    assert!(olga.get("/").body.contains("The primary, keys1, has not been heard of since"));
}

#[test]
fn who_stays_without_a_word_is_gone_and_keeps_nobody_out() {
    let ocean = Ocean::new("ocean-4");
    let database = database(&ocean.room.0);
    let (page, _) = ocean.open(&database, Arc::new(()));
    let olga = Visitor::new(&page, &ocean, Some(&ocean.browser("olga").identity));
    assert_eq!(olga.get("/").status, 200);
    let silent: Vec<_> = (0..100).map(|_| TcpStream::connect(page.listening()).unwrap()).collect();
    assert_eq!(olga.get("/").status, 200);
    for mut stream in silent.into_iter().take(20) {
        let _ = stream.write_all(b"GET / HTTP/1.1\r\n\r\n");
    }
    assert_eq!(olga.get("/").status, 200);
    // A head without end is cut off.
    let mut stream = olga.connect().unwrap();
    write!(stream, "GET / HTTP/1.1\r\n").unwrap();
    let mut sent = 0;
    while stream.write_all(format!("X: {}\r\n", "a".repeat(1000)).as_bytes()).and_then(|()| stream.flush()).is_ok() {
        sent += 1000;
        assert!(sent < 10 << 20, "10 MiB of headers were taken");
    }
    let started = Instant::now();
    drop(page);
    assert!(started.elapsed() < Duration::from_secs(10));
}
