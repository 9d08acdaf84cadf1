//! The site directory decides about sessions and links: over what, authenticated how, and protected how well at least.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant, SystemTime};

use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair};
use data_encoding::BASE64;
use gambeson_link::{
    Attributes, Capability, Config, Domain, Endpoint, Error, Handlers, Identity, KeyHash, Policy, Protection,
    Transport, Trust,
};
use gambeson_proto::directory::{compose, enclose, message};
use gambeson_proto::key_schedule::JobKeys;
use gambeson_proto::secret::Secret32;
use gambeson_proto::suite::Suite;

const PATIENCE: Duration = Duration::from_secs(10);
const ECHO: u32 = 0;
/// Answers who the one who asks is taken for.
const WHO: u32 = 1;
/// Where the owner of endpoints listens, and no other test of this file needs a host of its own there.
const OCEAN: &str = "127.0.0.2";

/// A site with a key of its own, and its files.
struct Site {
    folder: PathBuf,
    key: Ed25519KeyPair,
}

fn now() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970").as_secs()
}

/// A folder of this process's own, in which what was seen is remembered, too.
fn scratch() -> &'static Path {
    static SCRATCH: OnceLock<PathBuf> = OnceLock::new();
    SCRATCH.get_or_init(|| {
        let folder = std::env::temp_dir().join(format!("gambeson-directory-{}", std::process::id()));
        // SAFETY: Rust's own functions alone read the environment here, and they wait for each other.
        unsafe { std::env::set_var("XDG_STATE_HOME", folder.join("state")) };
        folder
    })
}

impl Site {
    /// A site that says this of its hosts and networks, for an hour.
    fn new(text: &str) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let folder = scratch().join(COUNT.fetch_add(1, Ordering::Relaxed).to_string());
        fs::create_dir_all(&folder).expect("a folder");
        let key = Ed25519KeyPair::generate().expect("a key");
        let der = [&gambeson_site::directory::ED25519[..], key.public_key().as_ref()].concat();
        let pem = format!("-----BEGIN PUBLIC KEY-----\n{}\n-----END PUBLIC KEY-----\n", BASE64.encode(&der));
        fs::write(folder.join("site.pub"), pem).expect("a file");
        let site = Site { folder, key };
        site.sign(text, now(), 3600);
        site
    }

    fn sign(&self, text: &str, issued: u64, seconds: u64) {
        let text = compose(text, issued, issued + seconds);
        let signature = self.key.sign(&message(text.as_bytes()));
        let signed = enclose(&text, signature.as_ref().try_into().expect("64 bytes"));
        let beside = self.folder.join("new");
        fs::write(&beside, signed).expect("a file");
        fs::rename(beside, self.file()).expect("its place");
    }

    fn file(&self) -> PathBuf {
        self.folder.join("directory.toml")
    }

    fn give(&self, mut config: Config) -> Result<Config, Error> {
        config.directory(&self.file(), &self.folder.join("site.pub")).map(|()| config)
    }
}

fn host(name: &str, address: &str, transports: &str, authentication: &str) -> String {
    format!(
        "[[host]]\nname = \"{name}\"\naddresses = [\"{address}\"]\ntransports = [{transports}]\nauthentication = \
         [{authentication}]\n\n"
    )
}

const ANY: &str = "\"job\", \"pinned\", \"certificate\"";

/// Two domains that know each other's keys: the owner of endpoints, on the host `ocean`, and who opens links to them, on
/// the host `sky`.
struct Pair {
    owner: Domain,
    opener: Domain,
}

fn pair(sites: [Option<&Site>; 2], change: impl Fn(Config) -> Config) -> Pair {
    let [here, there] = [(); 2].map(|()| Identity::generate().expect("a key"));
    let keys = [here.key_hash(), there.key_hash()];
    let config = |identity, other: KeyHash, name: &str, site: Option<&Site>| {
        let mut config = Config::new(identity, Trust::default().pinned(other, "the other", &[]));
        config.host = name.into();
        let config = change(config);
        match site {
            Some(site) => site.give(config),
            None => Ok(config),
        }
    };
    let owner = config(here, keys[1], "ocean", sites[0]).expect("a directory");
    let owner = owner.listen(format!("{OCEAN}:0").parse().expect("an address"));
    let opener = config(there, keys[0], "sky", sites[1]).expect("a directory");
    Pair { owner: Domain::open(owner).expect("a domain"), opener: Domain::open(opener).expect("a domain") }
}

fn as_it_is(config: Config) -> Config {
    config
}

fn echo(domain: &Domain) -> (Endpoint, Capability) {
    let handlers = Handlers::new()
        .inline(ECHO, |call| call.answer(call.payload))
        .inline(WHO, |call| call.answer(call.peer.name.as_bytes()));
    let endpoint = domain.endpoint(Attributes::default().class("data"), handlers).expect("an endpoint");
    let capability = endpoint.startpoint([]).expect("a startpoint");
    (endpoint, capability)
}

/// Over what a link between two comes to go, by rule.
fn transport(pair: &Pair) -> Result<Transport, Error> {
    let (_endpoint, capability) = echo(&pair.owner);
    let startpoint = pair.opener.startpoint(&capability, PATIENCE)?;
    startpoint.call(ECHO, b"there?", PATIENCE)?;
    Ok(startpoint.carrier()?.expect("it has one").transport())
}

#[test]
fn a_startpoint_is_bound_over_what_the_site_has_its_host_go_over_in_that_order() {
    for (transports, found) in
        [("\"tcp\", \"shm\"", Transport::Tcp), ("\"shm\", \"tcp\"", Transport::Shm), ("\"shm\"", Transport::Shm)]
    {
        let site = Site::new(&host("ocean", OCEAN, transports, ANY));
        for sites in [[Some(&site), Some(&site)], [None, Some(&site)]] {
            assert_eq!(transport(&pair(sites, as_it_is)).expect("a link"), found, "{transports}");
        }
    }
    // Who has no directory, and who finds nothing in it, goes by the rule.
    let site = Site::new(&host("sea", "10.0.0.1", "\"tcp\"", "\"job\""));
    assert_eq!(transport(&pair([Some(&site); 2], as_it_is)).expect("a link"), Transport::Shm);
}

#[test]
fn what_the_site_does_not_name_is_not_to_be_had_by_hand_either() {
    let site = Site::new(&host("ocean", OCEAN, "\"tcp\"", ANY));
    let pair = pair([None, Some(&site)], as_it_is);
    let (_endpoint, capability) = echo(&pair.owner);
    let why = pair.opener.startpoint_over(Transport::Shm, &capability, PATIENCE).err().expect("shm is not named");
    assert!(why.to_string().contains("does not have sessions with that host go over shared memory"), "{why}");
    let startpoint = pair.opener.startpoint(&capability, PATIENCE).expect("a link");
    let why = startpoint.prefer(Some(Transport::Shm), PATIENCE).expect_err("nor later");
    assert!(matches!(why, Error::Refused(_)), "{why}");
    assert_eq!(startpoint.call(ECHO, b"still", PATIENCE).expect("an answer"), b"still");
}

#[test]
fn a_transport_has_to_be_both_hosts_and_the_owner_looks_too() {
    let both = [host("ocean", OCEAN, "\"tcp\"", ANY), host("sky", "127.0.0.3", "\"shm\"", ANY)].concat();
    let site = Site::new(&both);
    let why = transport(&pair([Some(&site); 2], as_it_is)).expect_err("there is none for both").to_string();
    assert!(why.contains("go over nothing that this host has, too"), "{why}");
    // The owner alone goes by the directory: it lets nobody in over what it does not name.
    let pair = pair([Some(&site), None], as_it_is);
    let why = transport(&pair).expect_err("the owner refuses").to_string();
    assert!(why.contains("closed during the handshake"), "{why}");
    assert!(pair.owner.refusals().expect("counts").connections > 0);
}

#[test]
fn a_session_that_is_authenticated_otherwise_than_the_site_accepts_is_refused() {
    let site = Site::new(&host("ocean", OCEAN, "\"tcp\"", "\"certificate\""));
    let why = transport(&pair([None, Some(&site)], as_it_is)).expect_err("they know each other by keys").to_string();
    let says =
        "the site directory accepts certificate for sessions between sky and ocean, and ocean is known by pinned";
    assert!(why.contains(says), "{why}");
    let pair = pair([Some(&site), None], as_it_is);
    transport(&pair).expect_err("the owner refuses");
    assert!(pair.owner.refusals().expect("counts").connections > 0);
}

#[test]
fn of_several_proofs_the_one_counts_that_the_site_accepts() {
    let of_one_job = |mut config: Config| {
        let keys = JobKeys {
            job_id: [1; 16],
            job_secret: Secret32::from_bytes([2; 32]),
            policy_hash: [3; 32],
            suite: Suite::Aes256Gcm,
        };
        config.trust = config.trust.job(keys);
        config
    };
    let site = Site::new(&host("ocean", OCEAN, "\"tcp\"", "\"pinned\", \"certificate\""));
    // With a directory at one end alone, the two ends know each other by different proofs, under the same keys.
    for (sites, name) in [
        ([None, None], "a process of the job"),
        ([None, Some(&site)], "a process of the job"),
        ([Some(&site), None], "the other"),
        ([Some(&site), Some(&site)], "the other"),
    ] {
        let pair = pair(sites, of_one_job);
        let (_endpoint, capability) = echo(&pair.owner);
        let startpoint = pair.opener.startpoint(&capability, PATIENCE).expect("a link");
        let known = startpoint.call(WHO, b"", PATIENCE).expect("an answer");
        assert_eq!(String::from_utf8(known).expect("a name"), name);
    }
}

#[test]
fn a_network_that_needs_protection_raises_what_the_policy_says() {
    let network = |subnet: &str, protection: &str| {
        format!("[[network]]\nsubnet = \"{subnet}\"\nprotection = \"{protection}\"\n\n")
    };
    let text = [network("10.77.0.0/24", "privacy"), network("10.0.0.0/8", "integrity")].concat();
    let (site, listed) =
        (Site::new(&text), Site::new(&[&text, &*host("ocean", "10.77.0.9", "\"tcp\", \"shm\"", ANY)].concat()));
    let open = |stated: [Option<&str>; 2]| {
        let stated = stated.map(|address| address.map(|address| address.parse().expect("an address")));
        move |mut config: Config| {
            config.policy = Policy::uniform(Protection::None);
            config.address = stated[usize::from(config.host == "sky")];
            config
        }
    };
    let (away, inside, machine) = (Some("192.168.0.1"), Some("10.77.0.1"), Some("10.1.0.1"));
    for (site, stated, least) in [
        (&site, [away, away], Protection::None),
        (&site, [machine, away], Protection::Integrity),
        (&site, [away, inside], Protection::Privacy),
        (&site, [away, None], Protection::Privacy),
        (&listed, [away, away], Protection::Privacy),
    ] {
        let pair = pair([Some(site); 2], open(stated));
        let (_endpoint, capability) = echo(&pair.owner);
        let startpoint = pair.opener.startpoint(&capability, PATIENCE).expect("a link");
        assert_eq!(startpoint.call(ECHO, b"there?", PATIENCE).expect("an answer"), b"there?");
        assert_eq!(startpoint.protection(), least, "{stated:?}");
    }
    // The stronger end holds, and says by what.
    let pair = pair([Some(&site), None], open([away, inside]));
    let (_endpoint, capability) = echo(&pair.owner);
    let startpoint = pair.opener.startpoint(&capability, PATIENCE).expect("a link, as far as is known here");
    let why = startpoint.call(ECHO, b"there?", PATIENCE).expect_err("it is in clear").to_string();
    assert!(why.contains("have \"privacy\" here, by the site directory's network 10.77.0.0/24"), "{why}");
    assert!(why.contains("this one has \"none\"; let both ends go by the same site directory"), "{why}");
}

#[test]
fn who_answers_has_to_be_where_the_site_has_the_host() {
    let site = Site::new(&host("pond", OCEAN, "\"tcp\"", ANY));
    let why = transport(&pair([None, Some(&site)], as_it_is)).expect_err("it says that it is on ocean").to_string();
    assert!(why.contains("has pond at this address, and who answers is the other on ocean"), "{why}");
}

/// Attaches to a program on ocean, in whose entry the site says whom to expect.
fn visit(expected: impl Fn(KeyHash) -> String, wanted: &str, transports: &str) -> Result<Vec<u8>, Error> {
    let [model, visitor] = [(); 2].map(|()| Identity::generate().expect("a key"));
    let key = model.key_hash();
    let known = Trust::default().pinned(key, "the model", &["model"]);
    let knows = Trust::default().pinned(visitor.key_hash(), "the visitor", &["visitor"]);
    let mut owner = Config::new(model, knows).listen(format!("{OCEAN}:0").parse().expect("an address"));
    owner.host = "ocean".into();
    let owner = Domain::open(owner).expect("a domain");
    let (endpoint, _) = echo(&owner);
    endpoint.publish("heat", &["visitor"], []).expect("a name");
    let at = owner.listening()[0];
    let attach = format!("attach = {{ addresses = [\"{at}\"], {} }}\n", expected(key));
    let entries = [&host("Ocean", OCEAN, transports, ANY), attach.as_str(), &host("sea", "10.0.0.1", "\"tcp\"", ANY)];
    let site = Site::new(&entries.concat().replace("\n\nattach", "\nattach"));
    let visitor = Domain::open(site.give(Config::new(visitor, known)).expect("a directory")).expect("a domain");
    visitor.attach_host(wanted, "heat", PATIENCE)?.call(WHO, b"", PATIENCE)
}

#[test]
fn a_program_is_attached_to_where_the_site_has_it_if_who_is_expected_is_there() {
    let role = |role: &'static str| move |_| format!("role = \"{role}\"");
    assert_eq!(visit(role("model"), "OCEAN", "\"tcp\"").expect("attached"), b"the visitor");
    assert_eq!(visit(|key| format!("key = \"{key}\""), "ocean", "\"tcp\"").expect("attached"), b"the visitor");
    let refused = |expected, wanted: &str, transports: &str, says: &str| {
        let why = visit(expected, wanted, transports).expect_err(says).to_string();
        assert!(why.contains(says), "{why}");
    };
    refused(role("king"), "ocean", "\"tcp\"", "king");
    refused(role("model"), "sea", "\"tcp\"", "the site directory has `attach` for other hosts alone");
    refused(role("model"), "land", "\"tcp\"", "the site directory has no such host");
    refused(role("model"), "ocean", "\"shm\"", "go over shared memory, and");
    let without = Domain::open(Config::new(Identity::generate().expect("a key"), Trust::default())).expect("a domain");
    let why = without.attach_host("ocean", "heat", PATIENCE).err().expect("it has none").to_string();
    assert!(why.contains("this domain goes by no site directory; open it with `Config::site`"), "{why}");
}

#[test]
fn when_its_time_is_over_no_session_begins_until_it_is_signed_again() {
    let text = host("ocean", OCEAN, "\"tcp\"", ANY);
    let site = Site::new(&text);
    site.sign(&text, now(), 3);
    let first = pair([Some(&site); 2], as_it_is);
    let (_endpoint, capability) = echo(&first.owner);
    let old = first.opener.startpoint(&capability, PATIENCE).expect("a link");
    assert_eq!(old.call(ECHO, b"in time", PATIENCE).expect("an answer"), b"in time");
    // Others of both sides, who wait until the time is over.
    let [goes_by_it, newcomer] = [Some(&site), None].map(|goes_by| pair([None, goes_by], as_it_is));
    while gambeson_site::directory::verify(&site.file(), site.key.public_key().as_ref().try_into().expect("32 bytes"))
        .is_ok()
    {
        std::thread::sleep(Duration::from_millis(50));
    }
    let why = transport(&goes_by_it).expect_err("it is over").to_string();
    assert!(why.contains("no session begins here: the site directory") && why.contains("it expired"), "{why}");
    assert!(why.contains("get the present one, or sign it again"), "{why}");
    // An owner lets nobody in, not even those who do not go by it.
    let before = first.owner.refusals().expect("counts").connections;
    let why = newcomer.opener.startpoint(&capability, PATIENCE).err().expect("it is over there").to_string();
    assert!(why.contains("closed during the handshake"), "{why}");
    assert!(first.owner.refusals().expect("counts").connections > before);
    // The session that there is goes on.
    assert_eq!(old.call(ECHO, b"still", PATIENCE).expect("an answer"), b"still");
    site.sign(&text, now(), 3600);
    let until = Instant::now() + PATIENCE;
    let found = loop {
        match transport(&goes_by_it) {
            Ok(found) => break found,
            Err(why) => assert!(Instant::now() < until, "{why}"),
        }
        std::thread::sleep(Duration::from_millis(100));
    };
    assert_eq!(found, Transport::Tcp);
}

#[test]
fn what_the_site_did_not_sign_is_refused_from_the_start() {
    let text = host("ocean", OCEAN, "\"tcp\"", ANY);
    let (site, other) = (Site::new(&text), Site::new(&text));
    let refused = |says: &str| {
        let config = Config::new(Identity::generate().expect("a key"), Trust::default());
        let why = site.give(config).err().expect(says);
        assert!(matches!(why, Error::Identity(_)), "{why:?}");
        assert!(why.to_string().contains(says), "{why}");
    };
    let good = fs::read_to_string(site.file()).expect("it is there");
    site.give(Config::new(Identity::generate().expect("a key"), Trust::default())).expect("it holds");
    fs::write(site.file(), good.replace("\"tcp\"", "\"shm\"")).expect("a file");
    refused("altered after signing");
    fs::copy(other.file(), site.file()).expect("a file");
    refused("signed with another key");
    fs::write(site.file(), compose(&text, now(), now() + 60)).expect("a file");
    refused("it has no signature at its end");
    site.sign(&text, now() - 60, 59);
    refused("one of ");
    fs::remove_file(site.file()).expect("it is there");
    refused("cannot be read");
    site.sign(&text, now() + 3600, 3600);
    refused("which is yet to come by this host's clock");
}
