use super::*;

fn document(text: &str) -> Document {
    Document::parse(text, "gambeson.toml").unwrap()
}

fn place(policy: &Policy, host: &str, address: &str) -> Place {
    Place { host: policy.host_index(host), address: Some(address.parse().unwrap()) }
}

/// What holds between two hosts written `name@address`.
fn check(policy: &Policy, a: &str, b: &str) -> Decision {
    let [a, b] = [a, b].map(|text| {
        let (host, address) = text.split_once('@').unwrap();
        place(policy, host, address)
    });
    let decision = policy.decide(a, b);
    assert_eq!(decision, policy.decide(b, a), "decisions are symmetric");
    let carried = Policy::from_canonical(&policy.canonical()).unwrap();
    assert_eq!(carried.decide(a, b), decision, "and survive the journey");
    assert_eq!(carried.hash(), policy.hash());
    decision
}

fn protection(policy: &Policy, a: &str, b: &str) -> Protection {
    check(policy, a, b).protection
}

fn error(text: &str) -> String {
    Policy::parse(text, "p.toml").unwrap_err().to_string()
}

const CLINIC: &str = r#"
protection = "privacy"
suite = "aes-128-gcm"
gap_timeout = "5 s"
intra_host = "sealed"

[[partition]]
name = "clinic"
hosts = ["H2", "h1"]
epoch = 7
secret_file = "clinic.secret"

[[rule]]
between = ["partition:clinic", "10.77.0.0/24"]
protection = "integrity"

[[rule]]
between = ["h3", "*"]
protection = "none"
"#;

#[test]
fn nothing_written_means_privacy_everywhere() {
    let policy = Policy::default();
    let decision = check(&policy, "a@10.0.0.1", "b@::1");
    assert_eq!(decision.protection, Protection::Privacy);
    assert_eq!((decision.partition, decision.rule), (None, None));
    assert_eq!(policy, Policy::parse("", "empty").unwrap());
    assert!(!policy.weakens());
}

#[test]
fn rules_choose_by_host_subnet_and_partition() {
    let policy = Policy::parse(CLINIC, "gambeson.toml").unwrap();
    assert_eq!(policy.suite(), Suite::Aes128Gcm);
    assert_eq!(policy.gap_timeout(), Duration::from_secs(5));
    assert_eq!(policy.intra_host(), IntraHost::Sealed);
    assert!(policy.weakens());

    let members = check(&policy, "h1@10.77.0.1", "h2@10.77.0.2");
    assert_eq!(members.protection, Protection::Integrity);
    assert_eq!(members.partition, Some(0));
    assert_eq!(members.rule, Some(0));
    assert_eq!(policy.rule_origin(0), "the rule at gambeson.toml:13");
    assert_eq!(policy.partitions()[0].epoch(), 7);

    // The subnet alone proves no membership.
    assert_eq!(protection(&policy, "x@10.77.0.1", "y@10.77.0.2"), Protection::Privacy);
    // First match wins, and the wildcard makes nobody a partition member.
    assert_eq!(protection(&policy, "h3@10.77.0.3", "h1@10.77.1.1"), Protection::Integrity);
    let last = check(&policy, "h3@10.78.0.3", "h1@10.77.1.1");
    assert_eq!((last.protection, last.partition), (Protection::None, None));
}

#[test]
fn both_sides_of_a_rule_must_match() {
    let policy = Policy::parse("[[rule]]\nbetween = [\"h1\", \"h1\"]\nprotection = \"none\"", "p").unwrap();
    assert_eq!(protection(&policy, "h1@1.1.1.1", "h1@1.1.1.1"), Protection::None);
    assert_eq!(protection(&policy, "h1@1.1.1.1", "h2@1.1.1.1"), Protection::Privacy);
}

#[test]
fn subnets_know_both_families_and_mapped_addresses() {
    let policy = Policy::parse(
        "[[rule]]\nbetween = [\"10.0.0.0/9\", \"fd00::/8\"]\nprotection = \"integrity\"\n\
         [[rule]]\nbetween = [\"0.0.0.0/0\", \"::1\"]\nprotection = \"none\"",
        "p",
    )
    .unwrap();
    assert_eq!(protection(&policy, "a@10.127.0.1", "b@fd12::9"), Protection::Integrity);
    assert_eq!(protection(&policy, "a@::ffff:10.1.0.1", "b@fd12::9"), Protection::Integrity);
    assert_eq!(protection(&policy, "a@10.128.0.1", "b@fd12::9"), Protection::Privacy);
    assert_eq!(protection(&policy, "a@9.9.9.9", "b@::1"), Protection::None);
    assert_eq!(protection(&policy, "a@::2", "b@::1"), Protection::Privacy);
}

#[test]
fn a_host_is_known_with_and_without_its_domain() {
    let policy = Policy::parse(
        "[[rule]]\nbetween = [\"n1\", \"n2.cluster\"]\nprotection = \"none\"\n\
         [[rule]]\nbetween = [\"n3.east\", \"n3.west\"]\nprotection = \"none\"",
        "p",
    )
    .unwrap();
    let name = |host: &str| policy.host_name(policy.host_index(host));
    assert_eq!(name("n1.cluster."), Some("n1"));
    assert_eq!(name("N2"), Some("n2.cluster"));
    assert_eq!(name("n2.elsewhere"), None);
    assert_eq!(name("n3"), None, "an ambiguous name is unlisted");
    assert_eq!(name("n3.west"), Some("n3.west"));
}

#[test]
fn a_floor_can_only_be_raised() {
    let floor = document(
        "protection = \"integrity\"\nintra_host = \"sealed\"\ngap_timeout = \"10 s\"\n\
         [[rule]]\nbetween = [\"open\", \"*\"]\nprotection = \"none\"\n\
         [[rule]]\nbetween = [\"safe\", \"*\"]\nprotection = \"privacy\"",
    );
    let chosen = document(
        "protection = \"none\"\nsuite = \"aes-128-gcm\"\ngap_timeout = \"1 h\"\nintra_host = \"mpi\"\n\
         [[rule]]\nbetween = [\"open\", \"x\"]\nprotection = \"privacy\"\n\
         [[rule]]\nbetween = [\"safe\", \"*\"]\nprotection = \"none\"",
    );
    for chosen in [Chosen::Named(&chosen), Chosen::Found(&chosen)] {
        let Resolution { policy, notes, .. } = resolve(Some(&floor), Some(chosen)).unwrap();
        assert_eq!(policy.suite(), Suite::Aes256Gcm);
        assert_eq!(policy.gap_timeout(), Duration::from_secs(10));
        assert_eq!(policy.intra_host(), IntraHost::Sealed);
        assert_eq!(protection(&policy, "open@1.1.1.1", "x@1.1.1.1"), Protection::Privacy);
        assert_eq!(protection(&policy, "open@1.1.1.1", "y@1.1.1.1"), Protection::None);
        assert_eq!(protection(&policy, "safe@1.1.1.1", "y@1.1.1.1"), Protection::Privacy);
        assert_eq!(protection(&policy, "a@1.1.1.1", "y@1.1.1.1"), Protection::Integrity);
        assert_eq!(notes.len(), 5, "{notes:#?}");
    }
}

#[test]
fn an_empty_document_leaves_the_floor_as_it_is() {
    let floor = document("[[rule]]\nbetween = [\"a\", \"b\"]\nprotection = \"none\"");
    let empty = document("");
    let Resolution { policy, notes, .. } = resolve(Some(&floor), Some(Chosen::Found(&empty))).unwrap();
    assert_eq!(protection(&policy, "a@1.1.1.1", "b@1.1.1.1"), Protection::None);
    assert!(notes.is_empty());
}

#[test]
fn a_planted_document_cannot_weaken_the_default() {
    let planted = document("protection = \"none\"\nsuite = \"aes-128-gcm\"");
    let found = resolve(None, Some(Chosen::Found(&planted))).unwrap();
    assert_eq!(protection(&found.policy, "a@1.1.1.1", "b@1.1.1.1"), Protection::Privacy);
    assert_eq!(found.policy.suite(), Suite::Aes256Gcm);
    assert!(found.notes[0].contains("can only strengthen"), "{:?}", found.notes);

    let named = resolve(None, Some(Chosen::Named(&planted))).unwrap();
    assert_eq!(protection(&named.policy, "a@1.1.1.1", "b@1.1.1.1"), Protection::None);
}

#[test]
fn the_hash_sees_every_decision_and_no_spelling() {
    let base = Policy::parse(CLINIC, "one").unwrap();
    let respelt = CLINIC.replace("\"H2\", \"h1\"", "\"h1\", \"h2.\"").replace("5 s", "5000ms");
    assert_eq!(base.hash(), Policy::parse(&respelt, "two").unwrap().hash());
    for (from, to) in [
        ("aes-128-gcm", "aes-256-gcm"),
        ("5 s", "6 s"),
        ("\"sealed\"", "\"mpi\""),
        ("epoch = 7", "epoch = 8"),
        ("\"H2\", ", ""),
        ("\"clinic\"", "\"Clinic\""),
        ("/24", "/25"),
        ("\"none\"", "\"integrity\""),
    ] {
        let mut changed = CLINIC.replace(from, to);
        if to == "\"Clinic\"" {
            changed = changed.replace("partition:clinic", "partition:Clinic");
        }
        let changed = Policy::parse(&changed, "three").unwrap();
        assert_ne!(base.hash(), changed.hash(), "{from} -> {to}");
    }
    assert_ne!(Policy::default().hash(), Policy::default().with_sealed_hosts().hash());
}

#[test]
fn canonical_bytes_are_accepted_only_as_encoded() {
    let bytes = Policy::parse(CLINIC, "p").unwrap().canonical();
    for length in 0..bytes.len() {
        assert_eq!(Policy::from_canonical(&bytes[..length]), Err(CanonicalError));
    }
    for position in 0..bytes.len() {
        for bit in 0..8 {
            let mut altered = bytes.clone();
            altered[position] ^= 1 << bit;
            if let Ok(policy) = Policy::from_canonical(&altered) {
                assert_eq!(policy.canonical(), altered);
            }
        }
    }
    let longer = [bytes, vec![0]].concat();
    assert_eq!(Policy::from_canonical(&longer), Err(CanonicalError));
}

#[test]
fn errors_name_file_line_and_remedy() {
    for (text, expected) in [
        ("\nprotection = \"secret\"", "p.toml:2: protection \"secret\" is unknown; write \"privacy\""),
        ("suite = \"rc4\"", "p.toml:1: suite \"rc4\" is unknown; write"),
        ("gap_timeout = \"2 weeks\"", "p.toml:1: gap_timeout \"2 weeks\" is no time"),
        ("gap_timeout = \"99999999999999999999 s\"", "is no time"),
        ("intra_host = \"both\"", "p.toml:1: intra_host \"both\" is unknown"),
        ("\n\nprotectoin = \"none\"", "p.toml:3: unknown field `protectoin`"),
        ("protection = ", "p.toml:1: "),
        (
            "[[rule]]\nbetween = [\"a\"]\nprotection = \"none\"",
            "p.toml:2: a rule's `between` names two sides, this one names 1",
        ),
        ("[[rule]]\nbetween = [\"a\", \"b c\"]\nprotection = \"none\"", "p.toml:2: \"b c\" is no host name"),
        (
            "[[rule]]\nbetween = [\"a\", \"10.0.0.1/24\"]\nprotection = \"none\"",
            "is no subnet; write the network's own address",
        ),
        ("[[rule]]\nbetween = [\"a\", \"10.0.0.0/33\"]\nprotection = \"none\"", "is no subnet"),
        (
            "[[rule]]\nbetween = [\"a\", \"partition:b\"]\nprotection = \"none\"",
            "p.toml:1: no partition \"b\" is defined",
        ),
        ("[[rule]]\nbetween = [\"a\", \"b\"]", "p.toml:1: missing field `protection`"),
        (
            "[[partition]]\nname = \"a/b\"\nhosts = []\nsecret_file = \"f\"",
            "p.toml:2: partition name \"a/b\" is not usable",
        ),
        (
            "[[partition]]\nname = \"a\"\nsecret_file = \"f\"",
            "p.toml:2: partition \"a\" has some of hosts, epoch and secret_file",
        ),
        (
            "[[partition]]\nname = \"a\"\n[[partition]]\nname = \"b\"",
            "p.toml:3: the job is to run in partition \"a\" and in \"b\"",
        ),
        (
            "[[partition]]\nname = \"a\"\nhosts = [\"10.0.0.0/8\"]\nsecret_file = \"f\"",
            "p.toml:3: partition \"a\" lists \"10.0.0.0/8\", but only host names",
        ),
        (
            "[[partition]]\nname = \"a\"\nhosts = []\nsecret_file = \"f\"\n[[partition]]\nname = \"a\"\nhosts = []\nsecret_file = \"f\"",
            "p.toml:5: partition \"a\" is already defined at p.toml:1",
        ),
    ] {
        let error = error(text);
        assert!(error.contains(expected), "{text}\n  gives    {error}\n  expected {expected}");
    }
}

#[test]
fn secret_files_keep_their_origin() {
    let resolution = resolve(None, Some(Chosen::Named(&document(CLINIC)))).unwrap();
    let [Some(file)] = resolution.secret_files.as_slice() else { panic!("one partition, one secret file") };
    assert_eq!((file.path.as_str(), file.origin.as_str()), ("clinic.secret", "gambeson.toml"));
}

/// What holds for links of a class between two hosts written `name@address`, or `name` alone.
fn link(policy: &Policy, class: &str, a: &str, b: &str) -> Decision {
    let [a, b] = [a, b].map(|text| match text.split_once('@') {
        Some((host, address)) => place(policy, host, address),
        None => Place { host: policy.host_index(text), address: None },
    });
    let decision = policy.decide_link(class, a, b);
    assert_eq!(decision, policy.decide_link(class, b, a), "decisions are symmetric");
    let carried = Policy::from_canonical(&policy.canonical()).unwrap();
    assert_eq!(carried.decide_link(class, a, b), decision, "and survive the journey");
    decision
}

const COUPLED: &str = r#"
[[rule]]
between = ["ocean", "10.77.0.0/24"]
class = "fluxes"
protection = "integrity"

[[rule]]
between = ["ocean", "*"]
protection = "none"

[[rule]]
between = ["*", "*"]
class = "pictures"
protection = "none"
"#;

#[test]
fn a_rule_with_a_class_speaks_of_links_of_that_class_alone() {
    let policy = Policy::parse(COUPLED, "p.toml").unwrap();
    let of = |class, a, b| link(&policy, class, a, b).protection;
    assert_eq!(of("fluxes", "ocean@10.77.0.1", "sky@10.77.0.2"), Protection::Integrity);
    assert_eq!(of("data", "ocean@10.77.0.1", "sky@10.77.0.2"), Protection::None, "the next rule speaks of all links");
    assert_eq!(protection(&policy, "ocean@10.77.0.1", "sky@10.77.0.2"), Protection::None, "and of messages");
    assert_eq!(of("pictures", "sky@10.77.0.2", "land@10.77.0.3"), Protection::None);
    assert_eq!(of("fluxes", "sky@10.77.0.2", "land@10.77.0.3"), Protection::Privacy);
    assert_eq!(protection(&policy, "sky@10.77.0.2", "land@10.77.0.3"), Protection::Privacy);
    assert_eq!(policy.classes(), ["fluxes", "pictures"]);
    assert!(policy.weakens() && policy.weakens_links("fluxes"));
    let alone = Policy::parse("[[rule]]\nbetween = [\"*\", \"*\"]\nclass = \"a\"\nprotection = \"none\"", "p").unwrap();
    assert!(!alone.weakens() && alone.weakens_links("a") && !alone.weakens_links("b"));
    let decided = link(&policy, "fluxes", "ocean@10.77.0.1", "sky@10.77.0.2");
    assert_eq!(policy.why(&decided), "the rule at p.toml:2");
    let carried = Policy::from_canonical(&policy.canonical()).unwrap();
    assert_eq!(carried.why(&decided), "rule 1");
    assert_eq!(carried.with_origins(policy.origins().to_vec()).why(&decided), "the rule at p.toml:2");
    let other = Policy::parse(&COUPLED.replace("\"fluxes\"", "\"flows\""), "p.toml").unwrap();
    assert_ne!(policy.hash(), other.hash());
}

#[test]
fn links_of_class_control_are_never_in_clear_unnoticed() {
    let open = Policy::uniform(Protection::None);
    let control = link(&open, "control", "a@10.0.0.1", "b@10.0.0.2");
    assert_eq!((control.protection, control.is_control), (Protection::Integrity, true));
    assert_eq!(open.why(&control), "what links of class \"control\" always have");
    assert_eq!(link(&open, "data", "a", "b").protection, Protection::None);
    assert_eq!(link(&Policy::default(), "control", "a", "b").protection, Protection::Privacy);
    let refused = error("[[rule]]\nbetween = [\"*\", \"*\"]\nclass = \"control\"\nprotection = \"none\"");
    assert!(refused.starts_with("p.toml:4: links of class \"control\" are never without protection"), "{refused}");
    let refused = error("[[rule]]\nbetween = [\"*\", \"*\"]\nclass = \"a b\"\nprotection = \"none\"");
    assert!(refused.starts_with("p.toml:3: class \"a b\" is none"), "{refused}");
}

#[test]
fn who_does_not_say_where_it_is_gets_the_stronger_answer() {
    let policy = Policy::parse(
        "[[rule]]\nbetween = [\"10.0.0.0/8\", \"10.0.0.0/8\"]\nprotection = \"none\"\n\
         [[rule]]\nbetween = [\"192.168.0.0/16\", \"*\"]\nprotection = \"integrity\"\n\
         [[rule]]\nbetween = [\"*\", \"*\"]\nprotection = \"none\"",
        "p",
    )
    .unwrap();
    let of = |a, b| link(&policy, "data", a, b).protection;
    assert_eq!(of("a@10.0.0.1", "b@10.0.0.2"), Protection::None);
    assert_eq!(of("a@10.0.0.1", "b"), Protection::Integrity, "it may be in 192.168.0.0/16");
    assert_eq!(of("a@192.168.0.1", "b"), Protection::Integrity);
    let trusted = Policy::parse("[[rule]]\nbetween = [\"10.0.0.0/8\", \"*\"]\nprotection = \"none\"", "p").unwrap();
    assert_eq!(link(&trusted, "data", "a", "b").protection, Protection::Privacy);
    assert_eq!(link(&trusted, "data", "a@10.1.1.1", "b").protection, Protection::None);
}

#[test]
fn a_class_is_held_by_the_floor_as_all_else() {
    let floor = document("[[rule]]\nbetween = [\"*\", \"*\"]\nclass = \"fluxes\"\nprotection = \"integrity\"");
    let weak = document("[[rule]]\nbetween = [\"*\", \"*\"]\nprotection = \"none\"");
    let policy = resolve(Some(&floor), Some(Chosen::Named(&weak))).unwrap().policy;
    assert_eq!(link(&policy, "fluxes", "a", "b").protection, Protection::Integrity);
    assert_eq!(link(&policy, "data", "a", "b").protection, Protection::Privacy);
}

const MODELS: &str = r#"
protection = "integrity"

[[rule]]
between = ["10.77.0.0/24", "10.77.0.0/24"]
communicator = "ocean"
protection = "none"

[[rule]]
between = ["h9", "*"]
communicator = "*"
protection = "none"

[[rule]]
between = ["*", "*"]
class = "ocean"
protection = "none"
"#;

#[test]
fn a_rule_about_communicators_speaks_of_nothing_else() {
    let policy = Policy::parse(MODELS, "p.toml").unwrap();
    let of = |class: Option<&str>, a: &str, b: &str| {
        let place = |text: &str| text.split_once('@').map(|(host, address)| place(&policy, host, address)).unwrap();
        let decision = policy.decide_communicator(class, place(a), place(b));
        let carried = Policy::from_canonical(&policy.canonical()).unwrap();
        assert_eq!(carried.decide_communicator(class, place(b), place(a)), decision);
        decision.protection
    };
    let (a, b, c, nine) = ("h1@10.77.0.1", "h2@10.77.0.2", "h3@10.78.0.3", "h9@10.78.0.9");
    assert_eq!(of(Some("ocean"), a, b), Protection::None);
    assert_eq!(of(Some("ocean"), a, c), Protection::Integrity, "only where it says");
    assert_eq!(of(Some("sky"), a, b), Protection::Integrity, "another class");
    assert_eq!(of(None, a, b), Protection::Integrity, "a communicator without a class");
    assert_eq!((of(None, a, nine), of(Some("sky"), c, nine)), (Protection::None, Protection::None));
    assert_eq!(protection(&policy, a, b), Protection::Integrity, "messages on communicators that ask for nothing");
    assert_eq!(policy.communicators(), ["*", "ocean"]);
    assert_eq!(policy.classes(), ["ocean"]);
    assert!(policy.allows_communicator(Protection::None, None));
    let one = Policy::parse(&MODELS.replace("\"*\"\nprotection", "\"sky\"\nprotection"), "p.toml").unwrap();
    assert!(one.allows_communicator(Protection::None, Some("sky")) && !one.allows_communicator(Protection::None, None));
    assert!(one.allows_communicator(Protection::Integrity, None));
    assert_ne!(one.hash(), policy.hash());
    for bit in 0..8 {
        let mut altered = policy.canonical();
        let at = altered.windows(5).position(|window| window == b"ocean").unwrap() - 1;
        altered[at] ^= 1 << bit;
        assert!(Policy::from_canonical(&altered).is_ok_and(|other| other != policy) == (bit == 7), "bit {bit}");
    }
}

#[test]
fn the_floor_holds_for_communicators_too() {
    let open = document("[[rule]]\nbetween = [\"*\", \"*\"]\ncommunicator = \"*\"\nprotection = \"none\"");
    let found = resolve(None, Some(Chosen::Found(&open))).unwrap().policy;
    assert!(!found.allows_communicator(Protection::Integrity, Some("ocean")), "a file that was merely found");
    let named = resolve(Some(&document("")), Some(Chosen::Named(&open))).unwrap().policy;
    assert!(!named.allows_communicator(Protection::Integrity, Some("ocean")), "a floor that says nothing of it");
    let both = resolve(Some(&open), Some(Chosen::Named(&open))).unwrap().policy;
    assert!(both.allows_communicator(Protection::None, Some("ocean")));
    let refused =
        error("[[rule]]\nbetween = [\"*\", \"*\"]\nclass = \"a\"\ncommunicator = \"a\"\nprotection = \"none\"");
    assert!(refused.starts_with("p.toml:4: a rule speaks of links of a class or of communicators"), "{refused}");
}

#[test]
fn a_job_runs_in_one_partition_of_the_site() {
    let text = "[[partition]]\nname = \"ward\"\n";
    let document = Document::parse(text, "p.toml").unwrap();
    let resolution = resolve(None, Some(Chosen::Named(&document))).unwrap();
    let policy = resolution.policy;
    assert!(policy.partitions()[0].is_of_job() && resolution.secret_files == [None]);
    // Wherever two processes are, its key is in theirs: who is on no member has none.
    let anywhere = Place { host: HostIndex::UNLISTED, address: None };
    assert_eq!(policy.decide(anywhere, anywhere).partition, Some(0));
    let later = policy.clone().with_epoch(0, 4);
    assert_eq!(Policy::from_canonical(&later.canonical()).unwrap(), later);
    assert_ne!(later.hash(), policy.hash());
}

#[test]
fn the_partition_of_the_job_comes_before_those_of_the_policy() {
    let text = "[[partition]]\nname = \"p\"\nhosts = [\"a\", \"b\"]\nsecret_file = \"f\"";
    let document = Document::parse(text, "p.toml").unwrap();
    let mut resolution = resolve(None, Some(Chosen::Named(&document))).unwrap();
    assert!(resolution.run_in("p").unwrap_err().contains("secret of its own"));
    assert!(resolution.run_in("a/b").unwrap_err().contains("no name"));
    resolution.run_in("ward").unwrap();
    resolution.run_in("ward").unwrap();
    assert!(resolution.run_in("other").unwrap_err().contains("runs in one"));
    assert_eq!(resolution.secret_files.len(), 2);
    let policy = resolution.policy;
    let place = |host| Place { host: policy.host_index(host), address: None };
    assert_eq!(policy.decide(place("a"), place("b")).partition, Some(1));
    let mut twice = policy.canonical();
    assert!(Policy::from_canonical(&twice).is_ok());
    // The first one's members made all hosts, too: a job would run in two.
    let at = twice.windows(4).position(|bytes| bytes == [0, 0, 0, 1]).unwrap();
    twice.splice(at - 2..at + 4, [0, 1, 0xFF, 0xFF]);
    assert!(Policy::from_canonical(&twice).is_err());
}
