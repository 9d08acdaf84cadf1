use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use gambeson_link::{Attributes, Config, Domain, Expected, Handlers, Identity};
use pki_types::CertificateDer;
use pki_types::pem::PemObject;

use super::*;

/// A folder that goes with the test.
struct Room(PathBuf);

impl Room {
    fn new(name: &str) -> Self {
        let room = std::env::temp_dir().join(format!("gambeson-authority-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&room);
        fs::create_dir(&room).expect("a test may write there");
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

/// A site whose certificates are valid for so many days, with this host and a person.
fn site(room: &Room, days: f64, address: &str) -> Authority {
    let settings = Settings { name: "ocean".into(), days, identities: Identities::default() };
    let site = Site { name: "ocean".into(), authority: address.into(), identities: Vec::new(), keys: None };
    let authority = Authority::create(&room.0, &settings, &site, None).unwrap();
    for (kind, subject) in [
        (Kind::Host, Subject::host([own_host().as_str(), "node_3.cluster"]).unwrap().authority()),
        (Kind::User, Subject::user("ada").unwrap()),
    ] {
        let newcomer = Newcomer::new(&room.0, kind, false, None).unwrap();
        newcomer.install(&authority.certify(&newcomer.request().unwrap(), &subject).unwrap()).unwrap();
    }
    authority
}

fn open(room: &Room, kind: Kind, listen: bool) -> Arc<Domain> {
    let member = Member::read(&room.0, kind).unwrap();
    let mut config = Config::new(member.again().unwrap(), member.trust().unwrap());
    config.shm = false;
    if listen {
        config = config.listen("127.0.0.1:0".parse().unwrap());
    }
    Arc::new(Domain::open(config).unwrap())
}

#[test]
fn certificates_say_who_it_is_and_for_how_long() {
    let room = Room::new("says");
    let authority = site(&room, 7.0, "h1:7200");
    let member = Member::read(&room.0, Kind::Host).unwrap();
    let days = (member.validity.until - member.validity.from - SKEW_MAX) as f64 / 86_400.0;
    assert!((days - 7.0).abs() < 0.001, "{days}");
    assert!(member.validity.due() > now() + 4 * 86_400 && member.validity.due() < now() + 5 * 86_400);
    assert_eq!(authority.standings().unwrap().len(), 2);
    // A domain says what the handshake finds in a certificate.
    let domain = open(&room, Kind::Host, true);
    let handlers = Handlers::new().inline(0, |call| {
        let said = format!("{} {}", call.peer.name, call.peer.roles.join(" "));
        call.answer(said.as_bytes());
    });
    let endpoint = domain.endpoint(Attributes::default(), handlers).unwrap();
    endpoint.publish("who", &["user", "host"], []).unwrap();
    let at = domain.listening()[0];
    let patience = Duration::from_secs(10);
    let expected = Expected::Role(format!("dns:{}", own_host()));
    for (kind, says) in [
        (Kind::Host, format!("{0} host authority dns:{0} dns:node_3.cluster", own_host())),
        (Kind::User, "user:ada user user:ada".to_owned()),
    ] {
        let other = open(&room, kind, false);
        let startpoint = other.attach(at, &expected, "who", patience).unwrap();
        assert_eq!(String::from_utf8(startpoint.call(0, b"", patience).unwrap()).unwrap(), says);
    }
    let other = open(&room, Kind::User, false);
    let refused = other.attach(at, &Expected::Role("dns:h9".into()), "who", patience).err().unwrap();
    assert!(refused.to_string().contains("has not the role \"dns:h9\""), "{refused}");
}

#[test]
fn requests_are_for_their_own_key_and_host() {
    let room = Room::new("requests");
    let authority = site(&room, 1.0, "h1:7200");
    let newcomer = Newcomer::new(&room.0.join("new"), Kind::Host, false, None).unwrap();
    let request = newcomer.request().unwrap();
    let line = request.encode();
    assert_eq!(Request::decode(line.as_bytes()).unwrap().encode(), line);
    for (from, to) in [(&*request.host, "elsewhere"), (&*request.time.to_string(), "12"), ("\"key\":\"", "\"key\":\"A")]
    {
        let refused = Request::decode(line.replacen(from, to, 1).as_bytes()).expect_err("it was altered");
        assert!(refused.to_string().contains("no request for a certificate"), "{refused}");
    }
    let refused = authority.certify(&request, &Subject::host(["h9"]).unwrap()).expect_err("the name is another");
    assert!(refused.to_string().contains("--alias"), "{refused}");
    let mut late = request.clone();
    late.time -= 900;
    let refused = authority.certify(&late, &Subject::host([own_host().as_str()]).unwrap()).expect_err("clocks differ");
    assert!(refused.to_string().contains("900 s behind") || refused.to_string().contains("901 s behind"), "{refused}");
    // A certificate for another's key is not installed.
    let other = Newcomer::new(&room.0.join("other"), Kind::Host, false, None).unwrap();
    let certified = authority.certify(&request, &Subject::host([own_host().as_str()]).unwrap()).unwrap();
    assert!(other.install(&certified).expect_err("another's key").to_string().contains("another key"));
    newcomer.install(&certified).unwrap();
}

#[test]
fn keys_on_p256_are_certified_and_sign_orders() {
    let room = Room::new("p256");
    let authority = site(&room, 1.0, "h1:7200");
    let pair = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap();
    let own = rcgen::CertificateParams::new(Vec::new()).unwrap().self_signed(&pair).unwrap();
    let key = pem("PRIVATE KEY", &pair.serialize_der());
    let identity = Identity::from_pem(pem("CERTIFICATE", own.der()).as_bytes(), key.as_bytes()).unwrap();
    let line = Request::new(&identity).unwrap().encode();
    let request = Request::decode(line.as_bytes()).unwrap();
    assert!(Request::decode(line.replacen(&*request.host, "elsewhere", 1).as_bytes()).is_err());
    let certified = authority.certify(&request, &Subject::user("bob").unwrap()).unwrap();
    let identity = identity.certified(certified.certificate.as_bytes()).unwrap();
    assert_eq!(request.public_key().hash(), identity.key_hash());
    assert_eq!(authority.renew(&request, identity.key_hash()).unwrap().subject.name(), "user:bob");
    let trust = Member::read(&room.0, Kind::User).unwrap().trust().unwrap();
    let signed = Domain::open(Config::new(identity, trust)).unwrap().sign_order(b"an order").unwrap();
    let other = open(&room, Kind::Host, false);
    assert_eq!(other.signer_of_order(b"an order", &signed).unwrap().name, "user:bob");
    assert!(other.signer_of_order(b"another order", &signed).is_err());
}

#[test]
fn names_are_names() {
    for name in ["h1", "h1.cluster", "node_3", "ADA", "a-b"] {
        check_name(name).unwrap();
    }
    for name in ["", "a b", "user:ada", "h1.", ".h1", "-h1", "10.1.0.1", "*.cluster", "h1/x", "é", &"a".repeat(64)] {
        check_name(name).expect_err(name);
    }
    assert!(Subject::host([]).is_err());
    assert_eq!(Subject::host(["H1", "h1", "h1.cluster"]).unwrap().names, ["h1", "h1.cluster"]);
}

#[test]
fn tokens_are_read_as_they_are_written() {
    let text = format!("h1:40123/{}", "A".repeat(43));
    assert_eq!(*Token::parse(&format!(" {text}\n")).unwrap().encode(), text);
    for none in [
        "",
        "h1:40123",
        "h1/AAAA",
        &text[..50],
        &format!("{text}A"),
        &text.replace("h1:", ":"),
        &text.replace("40123", "0"),
    ] {
        let refused = Token::parse(none).err().expect("it is none").to_string();
        assert!(!refused.contains("AAAAA"), "{refused}");
    }
}

#[test]
fn a_token_lets_one_in() {
    let room = Room::new("token");
    let authority = Arc::new(site(&room, 1.0, "h1:7200"));
    let subject = Subject::host([own_host().as_str()]).unwrap();
    let offer = Offer::new(authority, subject, "127.0.0.1:0".parse().unwrap(), "h1").unwrap();
    let wrong = format!("{}/{}", offer.token().address(), "A".repeat(43));
    let newcomer = Newcomer::new(&room.0.join("new"), Kind::Host, false, None).unwrap();
    let refused = join(&Token::parse(&wrong).unwrap(), &newcomer).expect_err("it is another token");
    assert!(matches!(refused, Error::Refused(_)), "{refused}");
    let token = Token::parse(&offer.token().encode()).unwrap();
    let certified = join(&token, &newcomer).unwrap();
    newcomer.install(&certified).unwrap();
    let again = Newcomer::new(&room.0.join("again"), Kind::Host, false, None).unwrap();
    let refused = join(&token, &again).expect_err("it was used").to_string();
    assert!(refused.contains("used before"), "{refused}");
    assert_eq!(offer.wait(Duration::from_secs(10)).unwrap().subject, certified.subject);
    let refused = join(&token, &again).expect_err("it is gone");
    assert!(matches!(refused, Error::Unavailable(_)), "{refused}");
}

#[test]
fn identities_renew_themselves_while_sessions_go_on() {
    let room = Room::new("renew");
    // Renewed after six seconds of nine, three times.
    let authority = Arc::new(site(&room, 9.0 / 86_400.0, "127.0.0.1:1"));
    let domain = open(&room, Kind::Host, true);
    let _endpoint = serve(&domain, authority.clone()).unwrap();
    let place =
        Site { name: "ocean".into(), authority: domain.listening()[0].to_string(), identities: Vec::new(), keys: None };
    place.write(&room.0).unwrap();
    let answers = Handlers::new().inline(0, |call| call.answer(b"here"));
    let echo = domain.endpoint(Attributes::default(), answers).unwrap();
    echo.publish("echo", &["user"], []).unwrap();
    let user = open(&room, Kind::User, false);
    let (expected, patience) = (Expected::Role("host".into()), Duration::from_secs(10));
    let startpoint = user.attach(domain.listening()[0], &expected, "echo", patience).unwrap();
    let first = Member::read(&room.0, Kind::User).unwrap();
    let say = |what: &str| panic!("{what}");
    let _host = Renewer::start(&domain, room.0.clone(), Kind::Host, Some(authority), say).unwrap();
    let _user = Renewer::start(&user, room.0.clone(), Kind::User, None, say).unwrap();
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(20) {
        assert_eq!(startpoint.call(0, b"", patience).unwrap(), b"here");
        std::thread::sleep(Duration::from_millis(200));
    }
    // The first certificates have long expired; new handshakes show the new ones.
    assert!(now() > first.validity.until);
    let renewed = Member::read(&room.0, Kind::User).unwrap();
    assert_eq!(renewed.identity.key_hash(), first.identity.key_hash());
    assert!(renewed.validity.until > now());
    let newcomer = open(&room, Kind::User, true);
    newcomer.attach(domain.listening()[0], &expected, "echo", patience).unwrap();
}

#[test]
fn who_shows_an_expired_certificate_is_refused_and_told_why() {
    let room = Room::new("expired");
    let _authority = site(&room, 3.0 / 86_400.0, "h1:7200");
    let (domain, user) = (open(&room, Kind::Host, true), open(&room, Kind::User, false));
    std::thread::sleep(Duration::from_secs(5));
    let (expected, patience) = (Expected::Role("host".into()), Duration::from_secs(10));
    let refused = user.attach(domain.listening()[0], &expected, "echo", patience).err().unwrap().to_string();
    assert!(
        refused.contains("the other end's certificate expired") && refused.contains("this host's clock"),
        "{refused}"
    );
    let member = Member::read(&room.0, Kind::User).unwrap();
    fs::remove_dir_all(room.0.join("authority")).unwrap();
    let refused = renew(&member, false).expect_err("it has expired").to_string();
    assert!(refused.contains("s ago by this host's clock") && refused.contains("enroll again"), "{refused}");
}

#[test]
fn files_that_others_write_are_refused() {
    use std::os::unix::fs::PermissionsExt;
    let room = Room::new("others");
    let _authority = site(&room, 1.0, "h1:7200");
    fs::set_permissions(room.0.join("authority.pem"), fs::Permissions::from_mode(0o666)).unwrap();
    for refused in [Member::read(&room.0, Kind::Host).map(drop), Authority::open(&room.0).map(drop)] {
        let refused = refused.expect_err("others could have written it").to_string();
        assert!(refused.contains("can be written by others (mode 0666)"), "{refused}");
    }
}

#[test]
fn who_was_revoked_is_renewed_no_more() {
    let room = Room::new("revoked");
    let authority = Arc::new(site(&room, 1.0, "h1:7200"));
    let member = Member::read(&room.0, Kind::User).unwrap();
    assert!(!renew(&member, false).unwrap() && renew(&member, true).unwrap());
    // Another process's word counts at once.
    let (keys, until) = Authority::open(&room.0).unwrap().revoke("USER:ADA").unwrap();
    assert_eq!((keys, until > now()), (1, true));
    let request = Request::new(&member.identity).unwrap();
    let refused = authority.renew(&request, member.identity.key_hash()).expect_err("it was revoked").to_string();
    assert!(refused.contains("user:ada was revoked"), "{refused}");
    assert!(authority.revoke("user:ada").is_err() && authority.revoke("ada").is_err());
    let stranger = Newcomer::new(&room.0.join("new"), Kind::User, false, None).unwrap().request().unwrap();
    assert!(authority.renew(&stranger, stranger.public_key().hash()).is_err());
    assert!(authority.renew(&request, stranger.public_key().hash()).is_err());
}

#[test]
fn a_torn_line_was_never_issued() {
    let room = Room::new("torn");
    let authority = site(&room, 1.0, "h1:7200");
    let log = room.0.join("authority/issued.jsonl");
    let whole = fs::read_to_string(&log).unwrap();
    fs::write(&log, format!("{whole}{}", &whole[..40])).unwrap();
    authority.revoke("user:ada").unwrap();
    let again = Authority::open(&room.0).unwrap().standings().unwrap();
    assert_eq!(again.iter().filter(|one| one.revoked).count(), 1);
    assert_eq!(fs::read_to_string(&log).unwrap().lines().count(), 3);
    fs::write(&log, whole.replacen("issued", "\"", 1)).unwrap();
    let refused = Authority::open(&room.0).unwrap().standings().expect_err("it was altered").to_string();
    assert!(refused.contains("issued.jsonl:1: the log of what was issued was altered"), "{refused}");
}

#[test]
fn who_came_by_a_mechanism_is_certified_by_that_alone() {
    let room = Room::new("mechanism");
    let authority = site(&room, 1.0, "h1:7200");
    let newcomer = Newcomer::new(&room.0.join("new"), Kind::User, false, None).unwrap();
    let request = newcomer.request().unwrap();
    let come = |request, name, left| authority.identify(request, name, Mechanism::Munge, Duration::from_secs(left));
    let certified = come(&request, "bob", 600).unwrap();
    assert!(certified.until <= now() + 600 && certified.subject.mechanism() == Some(Mechanism::Munge));
    assert!(come(&request, "bob", 1 << 40).unwrap().until <= now() + 12 * 3600);
    // For as long as others are certified, he would be so by a renewal.
    let owner = request.public_key().hash();
    let refused = authority.renew(&request, owner).expect_err("MUNGE says who he is").to_string();
    assert!(refused.contains("certified by MUNGE") && refused.contains("`gambeson enroll --munge`"), "{refused}");
    assert!(come(&request, "eve", 600).is_err(), "the key is another's");
    authority.revoke("user:bob").unwrap();
    let [again, other] =
        [(); 2].map(|()| Newcomer::new(&room.0.join("new"), Kind::User, false, None).unwrap().request().unwrap());
    let refused = come(&again, "bob", 600).expect_err("he was revoked").to_string();
    assert!(refused.contains("user:bob was revoked"), "{refused}");
    authority.certify(&other, &Subject::user("bob").unwrap()).unwrap();
    come(&again, "bob", 600).unwrap();
    assert!(come(&request, "bob", 600).is_err(), "the key was revoked for good");
}

#[test]
fn accounts_of_the_system_and_names_that_could_be_others_are_refused() {
    let identities = Identities { system_accounts: vec!["backup".into()], ..Identities::default() };
    for (name, uid, fits) in [
        ("ada", 1000, true),
        ("backup", 34, true),
        ("root", 0, false),
        ("daemon", 999, false),
        ("nobody", 65534, false),
        ("Ada", 1001, false),
        ("0", 1002, false),
        ("a/b", 1003, false),
    ] {
        let mut account = User::from_uid(0.into()).unwrap().expect("root");
        (account.name, account.uid) = (name.into(), uid.into());
        assert_eq!(identities.admit(&account).is_ok(), fits, "{name}");
    }
}

/// A key on P-256 that asks, with the identity that has it.
fn asks() -> (Request, Identity) {
    let key = authority_key::p256().unwrap();
    let pair =
        rcgen::KeyPair::from_pkcs8_der_and_sign_algo(&(&key[..]).into(), &rcgen::PKCS_ECDSA_P256_SHA256).unwrap();
    let own = rcgen::CertificateParams::new(Vec::new()).unwrap().self_signed(&pair).unwrap();
    let identity =
        Identity::from_pem(pem("CERTIFICATE", own.der()).as_bytes(), pem("PRIVATE KEY", &key).as_bytes()).unwrap();
    (Request::new(&identity).unwrap(), identity)
}

#[test]
fn pages_are_of_the_hosts_that_the_administrator_names() {
    let room = Room::new("pages");
    let authority = site(&room, 7.0, "h1:7200");
    let owner = |kind| Member::read(&room.0, kind).unwrap().identity.key_hash();
    let (request, _) = asks();
    let refused = authority.page(&request, owner(Kind::Host)).unwrap_err().to_string();
    assert!(refused.contains("is to have no page") && refused.contains("gambeson site pages"), "{refused}");
    assert!(Page::of(&room.0, None, |_| ()).is_err());
    let refused = authority.allow_pages(&["elsewhere".into()], None).unwrap_err().to_string();
    assert!(refused.contains("no host is certified as \"elsewhere\""), "{refused}");

    let pages = authority.allow_pages(&["node_3.cluster".into()], None).unwrap();
    assert_eq!(pages.hosts, [own_host(), "node_3.cluster".into()]);
    let trusted = fs::read_to_string(&pages.certificate).unwrap();
    let certified = authority.page(&request, owner(Kind::Host)).unwrap();
    assert_eq!((&certified.authorities, certified.subject.names), (&trusted, pages.hosts));
    // No link takes it: it is neither of the authority's key nor a client's.
    let der = CertificateDer::from_pem_slice(certified.certificate.as_bytes()).unwrap();
    assert!(certificate::verify(&der, authority.authorities().as_bytes()).is_err());
    assert!(certificate::verify(&der, trusted.as_bytes()).is_err());
    assert!(authority.renew(&request, request.public_key().hash()).is_err());
    // A person has none, and nobody whom the authority does not know.
    assert!(authority.page(&request, owner(Kind::User)).is_err());
    assert!(authority.page(&request, request.public_key().hash()).is_err());
    // Said again, it is the same key, which browsers have.
    let key = fs::read(room.0.join("authority/pages.key")).unwrap();
    authority.allow_pages(&[own_host()], None).unwrap();
    assert_eq!(fs::read(room.0.join("authority/pages.key")).unwrap(), key);

    // A host asks by itself, and again when it is time.
    let page = Page::of(&room.0, None, |why| panic!("{why}")).unwrap();
    let again = Page::of(&room.0, None, |why| panic!("{why}")).unwrap();
    assert_eq!(page.identity.key_hash(), again.identity.key_hash());
    authority.revoke("node_3.cluster").unwrap();
    let refused = authority.page(&request, owner(Kind::Host)).unwrap_err().to_string();
    assert!(refused.contains("was revoked"), "{refused}");
}

#[test]
fn a_browsers_certificate_is_its_owners_and_ends() {
    let room = Room::new("browser");
    let authority = site(&room, 7.0, "h1:7200");
    let ada = Member::read(&room.0, Kind::User).unwrap();
    let made = browser(&ada).unwrap();
    assert_eq!(made.subject.roles, ["user", "browser", "user:ada"]);
    assert_eq!((made.subject.name(), &*made.pages), ("user:ada", ""));
    let identity = Identity::from_pem(made.identity.as_bytes(), made.identity.as_bytes()).unwrap();
    assert_eq!(ada.trust().unwrap().whose(&[identity.certificates().next().unwrap().into()]).unwrap().name, "user:ada");
    // It makes no further ones, and is not renewed.
    let (request, _) = asks();
    let refused = authority.browser(&request, identity.key_hash()).unwrap_err().to_string();
    assert!(refused.contains("in a browser already"), "{refused}");
    let own = Request::new(&identity).unwrap();
    let refused = authority.renew(&own, identity.key_hash()).unwrap_err().to_string();
    assert!(refused.contains("is not renewed"), "{refused}");
    let host = Member::read(&room.0, Kind::Host).unwrap().identity.key_hash();
    let refused = authority.browser(&request, host).unwrap_err().to_string();
    assert!(refused.contains("is a host"), "{refused}");
    // Nobody has another's key certified for himself.
    let refused = authority.browser(&own, ada.identity.key_hash()).unwrap_err().to_string();
    assert!(refused.contains("was certified before"), "{refused}");
    authority.revoke("user:ada").unwrap();
    assert!(browser(&ada).is_err());
}

#[test]
fn pages_and_browsers_are_certified_over_links() {
    let (room, elsewhere) = (Room::new("page-there"), Room::new("page-here"));
    let authority = Arc::new(site(&room, 7.0, "h1:7200"));
    authority.allow_pages(&[own_host()], None).unwrap();
    let domain = open(&room, Kind::Host, true);
    let _serving = serve(&domain, authority).unwrap();
    for name in ["host.pem", "identity.pem", "authority.pem"] {
        files::write(&elsewhere.0.join(name), 0o600, &fs::read(room.0.join(name)).unwrap()).unwrap();
    }
    let site = Site { authority: domain.listening()[0].to_string(), ..Site::read(&room.0).unwrap() };
    site.write(&elsewhere.0).unwrap();
    let page = Page::of(&elsewhere.0, None, |why| panic!("{why}")).unwrap();
    assert!(page.validity.until > now());
    let trusted = fs::read_to_string(room.0.join("pages.pem")).unwrap();
    assert_eq!(fs::read_to_string(elsewhere.0.join("pages.pem")).unwrap(), trusted);
    let ada = Member::read(&elsewhere.0, Kind::User).unwrap();
    assert_eq!(browser(&ada).unwrap().pages, trusted);
}
