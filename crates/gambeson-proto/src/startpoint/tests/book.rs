//! The endpoint's side: what is permitted, counted, revoked and let go of.

use super::*;

#[test]
fn handlers_are_those_that_all_lists_have() {
    let mut world = World::new();
    let mut bearer = world.mint(1, []);
    let alice = world.alice.hash;
    let permitted = |grant: &Grant| [1, 2, 3, 4].map(|method| grant.permit(method, NOW).is_ok());
    assert_eq!(permitted(&world.open(&bearer, &alice).unwrap()), [true; 4]);
    bearer.narrow(Caveat::methods([3, 1, 2, 3])).unwrap();
    assert_eq!(permitted(&world.open(&bearer, &alice).unwrap()), [true, true, true, false]);
    bearer.narrow(Caveat::methods([4, 2, 3])).unwrap();
    assert_eq!(permitted(&world.open(&bearer, &alice).unwrap()), [false, true, true, false]);
    bearer.narrow(Caveat::methods([])).unwrap();
    assert_eq!(permitted(&world.open(&bearer, &alice).unwrap()), [false; 4]);
    assert_eq!(world.book.refused(Refusal::Method), 1 + 2 + 4);
}

#[test]
fn memory_is_reached_inside_one_window_of_every_list() {
    const BOTH: u8 = Window::READ | Window::WRITE;
    let mut world = World::new();
    let alice = world.alice.hash;
    let none = world.mint(1, []);
    let access = window(5, 100, 10, Window::READ);
    assert_eq!(world.open(&none, &alice).unwrap().access(&access, WHOLE, NOW), Err(Refusal::Memory));
    // Not even if a startpoint could be made without a list.
    assert!(!rules::Rules::new(Vec::new()).allow_access(&access));
    let two = [window(5, 100, 50, BOTH), window(6, 0, u64::MAX, Window::READ)];
    let mut startpoint = world.mint(2, [Caveat::Memory(two.to_vec())]);
    let grant = world.open(&startpoint, &alice).unwrap();
    for inside in [access, two[0], two[1], window(5, 149, 1, BOTH), window(6, u64::MAX - 1, 1, Window::READ)] {
        assert_eq!(grant.access(&inside, WHOLE, NOW), Ok(()), "{inside:?}");
    }
    let outside = [
        window(5, 99, 2, Window::READ),
        window(5, 149, 2, Window::READ),
        window(7, 100, 10, Window::READ),
        window(6, 0, 1, Window::WRITE),
        window(6, 0, 1, BOTH),
        window(6, u64::MAX, 1, Window::READ),
        window(6, 2, u64::MAX, Window::READ),
        window(5, 100, 0, Window::READ),
        window(5, 100, 1, 0),
        window(5, 100, 1, 4),
    ];
    for outside in outside {
        assert_eq!(grant.access(&outside, WHOLE, NOW), Err(Refusal::Memory), "{outside:?}");
    }
    for (region, verdict) in [(Some(150), Ok(())), (Some(149), Err(Refusal::Absent)), (None, Err(Refusal::Absent))] {
        assert_eq!(grant.access(&two[0], region, NOW), verdict, "{region:?}");
    }
    assert_eq!(grant.access(&outside[0], None, NOW), Err(Refusal::Memory), "that there is none is not told to others");
    startpoint.narrow(Caveat::Memory(vec![window(5, 0, 105, Window::READ)])).unwrap();
    let grant = world.open(&startpoint, &alice).unwrap();
    assert_eq!(grant.access(&window(5, 100, 5, Window::READ), WHOLE, NOW), Ok(()));
    assert_eq!(grant.access(&window(5, 100, 6, Window::READ), WHOLE, NOW), Err(Refusal::Memory));
    assert_eq!(grant.access(&window(5, 100, 5, Window::WRITE), WHOLE, NOW), Err(Refusal::Memory));
    assert_eq!(grant.access(&window(6, 0, 1, Window::READ), WHOLE, NOW), Err(Refusal::Memory));
}

#[test]
fn uses_are_counted_where_they_were_limited_over_all_that_descends_from_there() {
    let mut world = World::new();
    let bearer = world.mint(1, [Caveat::Uses(4), Caveat::Memory(vec![window(1, 0, 8, Window::READ)])]);
    let alices = world.owner.copy(&bearer, &world.alice, 1);
    let mut bobs = world.owner.copy(&bearer, &world.bob, 2);
    bobs.narrow(Caveat::Uses(2)).unwrap();
    let (alice, bob) = (world.alice.hash, world.bob.hash);
    let (at_alices, at_bobs) = (world.open(&alices, &alice).unwrap(), world.open(&bobs, &bob).unwrap());
    assert_eq!(at_bobs.permit(1, NOW), Ok(()));
    assert_eq!(at_bobs.access(&window(1, 0, 1, Window::READ), WHOLE, NOW), Ok(()), "an access is a use as well");
    assert_eq!(at_bobs.permit(1, NOW), Err(Refusal::UsedUp), "his own limit");
    // What was refused took nothing of the others'.
    assert_eq!(at_alices.permit(1, NOW), Ok(()));
    // A link closed and opened again goes on counting.
    drop(at_alices);
    let at_alices = world.open(&alices, &alice).unwrap();
    assert_eq!(at_alices.permit(1, NOW), Ok(()));
    assert_eq!(at_alices.permit(1, NOW), Err(Refusal::UsedUp), "the limit that they share");
    assert_eq!(world.open(&alices, &alice).unwrap_err(), Refusal::UsedUp);
    // Narrowing the same thing again is no way around, nor is another copy.
    let again = world.owner.copy(&bearer, &world.alice, 9);
    assert_eq!(world.open(&again, &alice).unwrap_err(), Refusal::UsedUp);
    // What is not permitted anyway is no use.
    let mut methods = world.mint(2, [Caveat::Uses(1)]);
    methods.narrow(Caveat::methods([1])).unwrap();
    let grant = world.open(&methods, &alice).unwrap();
    assert_eq!(grant.permit(2, NOW), Err(Refusal::Method));
    assert_eq!(grant.permit(1, NOW), Ok(()));
    let nothing = world.mint(3, [Caveat::Uses(0)]);
    assert_eq!(world.open(&nothing, &alice).unwrap_err(), Refusal::UsedUp);
}

#[test]
fn a_limit_holds_under_many_threads() {
    let mut world = World::new();
    let bearer = world.mint(1, [Caveat::Uses(1_000), Caveat::Uses(100_000)]);
    let alice = world.alice.hash;
    let grants = [0; 4].map(|_| world.open(&bearer, &alice).unwrap());
    let taken: usize = std::thread::scope(|scope| {
        let threads =
            grants.each_ref().map(|grant| scope.spawn(|| (0..1_000).filter(|_| grant.permit(1, NOW).is_ok()).count()));
        threads.into_iter().map(|thread| thread.join().expect("it ends")).sum()
    });
    assert_eq!(taken, 1_000);
}

#[test]
fn expiry_goes_by_the_endpoints_clock_and_never_back() {
    let mut world = World::new();
    let alice = world.alice.hash;
    let mut startpoint = world.mint(1, [Caveat::Expires(NOW + 10)]);
    startpoint.narrow(Caveat::Expires(NOW + 20)).unwrap();
    let grant = world.open(&startpoint, &alice).unwrap();
    assert_eq!(grant.expires(), NOW + 10);
    assert_eq!(grant.permit(1, NOW + 9), Ok(()));
    assert_eq!(grant.permit(1, NOW + 10), Err(Refusal::Expired));
    let admit_at = |world: &mut World, now| {
        let (mut here, mut there) = world.session(&alice);
        let activation = startpoint.activate(&mut here, [9; 16], Protection::Privacy, None).unwrap().activation;
        world.book.admit(&mut there, &activation.encode(), now, |_| ANY).map(|_| ()).unwrap_err()
    };
    assert_eq!(admit_at(&mut world, NOW + 10), Refusal::Expired);
    // The clock was set back: for the book it was not.
    assert_eq!(admit_at(&mut world, NOW), Refusal::Expired);
    assert_eq!(grant.permit(1, NOW), Err(Refusal::Expired));
    world.book.sweep(NOW);
    assert_eq!(world.book.roots(), 0);
    assert_eq!(admit_at(&mut world, NOW), Refusal::Unknown);
    assert_eq!(grant.permit(1, NOW), Err(Refusal::Expired));
}

#[test]
fn a_link_is_at_least_as_protected_as_caveats_and_policy_demand() {
    use Protection::{Integrity, None, Privacy};
    for (caveats, floor, opened, admitted) in [
        (vec![], None, None, true),
        (vec![], Privacy, Integrity, false),
        (vec![], Integrity, Privacy, true),
        (vec![Integrity], None, None, false),
        (vec![Integrity], None, Integrity, true),
        (vec![Privacy, None], None, Integrity, false),
        (vec![None, Privacy], None, Privacy, true),
    ] {
        let mut world = World::new();
        let least = caveats.iter().copied().min().unwrap_or(None);
        let bearer = world.mint(1, caveats.into_iter().map(Caveat::Protection));
        let (mut here, mut there) = world.session(&world.alice.hash.clone());
        let activation = bearer.activate(&mut here, [9; 16], opened, Option::None).unwrap().activation.encode();
        let terms = |class: &str| {
            assert_eq!(class, "control");
            Terms { floor, partition: Option::None }
        };
        let verdict = world.book.admit(&mut there, &activation, NOW, terms).map(|admitted| admitted.grant.floor());
        assert_eq!(verdict, if admitted { Ok(least) } else { Err(Refusal::Unprotected) });
    }
}

#[test]
fn what_is_revoked_ends_with_all_that_descends_from_it_and_nothing_else() {
    let mut world = World::new();
    let bearer = world.mint(1, []);
    let alices = world.owner.copy(&bearer, &world.alice, 1);
    let mut narrow = alices.clone();
    narrow.narrow(Caveat::methods([1])).unwrap();
    let bobs = world.alice.copy(&narrow, &world.bob, 2);
    let others = world.owner.copy(&bearer, &world.mallory, 3);
    let (alice, bob, other) = (world.alice.hash, world.bob.hash, world.mallory.hash);
    let links = [(&alices, &alice), (&bobs, &bob), (&others, &other)];
    let grants = links.map(|(startpoint, opener)| world.open(startpoint, opener).unwrap());
    let verdicts = |world: &mut World| {
        let open = links.map(|(startpoint, opener)| world.open(startpoint, opener).map(|_| ()).err());
        assert_eq!(grants.each_ref().map(|grant| grant.permit(1, NOW).err()), open);
        assert_eq!(grants.each_ref().map(|grant| grant.is_in_force(NOW).err()), open);
        open
    };
    assert_eq!(verdicts(&mut world), [None, None, None]);
    // A narrowed copy goes by the copy's name.
    assert_eq!(narrow.name(), alices.name());
    assert!(world.book.revoke(&bobs.name()));
    let revoked = Some(Refusal::Revoked);
    assert_eq!(verdicts(&mut world), [None, revoked, None]);
    assert!(world.book.revoke(&alices.name()));
    assert_eq!(verdicts(&mut world), [revoked, revoked, None]);
    // Another copy of a revoked one is of no use; another of the bearer's is.
    let again = world.alice.copy(&alices, &world.bob, 4);
    assert_eq!(world.open(&again, &bob).unwrap_err(), Refusal::Revoked);
    let again = world.owner.copy(&bearer, &world.alice, 5);
    assert!(world.open(&again, &alice).is_ok());
    assert_eq!(bearer.name().copy, None);
    assert!(world.book.revoke(&bearer.name()) && !world.book.revoke(&bearer.name()));
    assert!(!world.book.revoke(&bobs.name()));
    assert_eq!(grants[2].permit(1, NOW), Err(Refusal::Revoked));
    assert_eq!(world.open(&others, &other).unwrap_err(), Refusal::Unknown);
    assert_eq!(world.book.roots(), 0);
}

#[test]
fn a_holder_revokes_its_own_copies_and_nobody_elses() {
    let mut world = World::new();
    let bearer = world.mint(1, []);
    let alices = world.owner.copy(&bearer, &world.alice, 1);
    let mut narrow = alices.clone();
    narrow.narrow(Caveat::methods([1])).unwrap();
    let bobs = world.alice.copy(&narrow, &world.bob, 2);
    let (alice, bob) = (world.alice.hash, world.bob.hash);
    let (at_alices, at_bobs) = (world.open(&alices, &alice).unwrap(), world.open(&bobs, &bob).unwrap());
    let others = world.owner.copy(&bearer, &world.mallory, 3);
    let mine = |copy: &Startpoint| copy.revocation().expect("it is a copy");
    assert_eq!(bearer.revocation(), None);
    // Neither what is above him, nor himself, nor what is beside.
    for copy in [&alices, &bobs, &others] {
        assert_eq!(world.book.revoke_for(&at_bobs, &mine(copy), NOW), Err(Refusal::NotHolder));
    }
    assert_eq!(world.book.revoke_for(&at_alices, &mine(&others), NOW), Err(Refusal::NotHolder));
    // Of another root, though its caveats are the same.
    let elsewhere = world.mint(2, []);
    let elsewhere = world.owner.copy(&elsewhere, &world.alice, 1);
    let elsewhere = world.alice.copy(&elsewhere, &world.bob, 2);
    assert_eq!(world.book.revoke_for(&at_alices, &mine(&elsewhere), NOW), Err(Refusal::NotHolder));
    assert_eq!((at_alices.permit(1, NOW), at_bobs.permit(1, NOW)), (Ok(()), Ok(())));
    let bytes = mine(&bobs);
    for len in 0..bytes.len() {
        assert_eq!(world.book.revoke_for(&at_alices, &bytes[..len], NOW), Err(Refusal::Malformed));
    }
    assert_eq!(world.book.revoke_for(&at_alices, &bytes, NOW), Ok(()));
    assert_eq!((at_alices.permit(1, NOW), at_bobs.permit(1, NOW)), (Ok(()), Err(Refusal::Revoked)));
    let bobs_own = world.bob.copy(&bobs, &world.mallory, 4);
    assert_eq!(world.book.revoke_for(&at_bobs, &mine(&bobs_own), NOW), Err(Refusal::Revoked), "he is revoked himself");
}

#[test]
fn a_closed_endpoint_ends_everything_and_its_number_can_be_used_again() {
    let mut world = World::new();
    let old = world.mint(1, []);
    let alice = world.alice.hash;
    let grant = world.open(&old, &alice).unwrap();
    world.book.close_endpoint(ENDPOINT);
    assert_eq!(grant.permit(1, NOW), Err(Refusal::Revoked));
    assert_eq!(world.open(&old, &alice).unwrap_err(), Refusal::Unknown);
    world.book.open_endpoint(ENDPOINT, EndpointKey::from_bytes([0x4c; 32]), "control", transforms()).unwrap();
    assert_eq!(world.open(&old, &alice).unwrap_err(), Refusal::Unknown);
    // Even should the root's id come again.
    let new = world.mint(1, []);
    assert_eq!(world.open(&old, &alice).unwrap_err(), Refusal::Unproven);
    assert!(world.open(&new, &alice).is_ok());
}

#[test]
fn what_holders_make_an_endpoint_keep_is_bounded_for_each_root() {
    let mut world = World::with(Limits { links: 3, marks: 4 });
    let bearer = world.mint(1, [Caveat::Expires(NOW + 10)]);
    let alice = world.alice.hash;
    let mut links: Vec<Grant> = (0..3).map(|_| world.open(&bearer, &alice).unwrap()).collect();
    assert_eq!(world.open(&bearer, &alice).unwrap_err(), Refusal::Full);
    links.truncate(1);
    // Counts outlive their links.
    for limit in 1..=3 {
        let mut limited = bearer.clone();
        limited.narrow(Caveat::Uses(limit)).unwrap();
        drop(world.open(&limited, &alice).unwrap());
    }
    let copies = [1, 2].map(|id| bearer.copy_for(alice, [id; 16], nobody).unwrap());
    for (copy, verdict) in copies.iter().zip([Ok(()), Err(Refusal::Full)]) {
        assert_eq!(world.book.revoke_for(&links[0], &copy.revocation().unwrap(), NOW), verdict);
    }
    let mut another = bearer.clone();
    another.narrow(Caveat::Uses(4)).unwrap();
    assert_eq!(world.open(&another, &alice).unwrap_err(), Refusal::Full);
    // The owner is not bound by that.
    assert!(world.book.revoke(&copies[1].name()));
    assert_eq!(world.open(&copies[1], &alice).unwrap_err(), Refusal::Revoked);
    // Another root is not touched by any of it, and expiry makes room.
    let other = world.mint(2, [Caveat::Uses(1)]);
    assert!(world.open(&other, &alice).is_ok());
    assert_eq!((world.book.roots(), world.book.marks()), (2, 6));
    world.book.sweep(NOW + 10);
    assert_eq!((world.book.roots(), world.book.marks()), (1, 1));
}

#[test]
fn counts_leave_when_all_that_they_bound_has_expired() {
    let mut world = World::new();
    let alice = world.alice.hash;
    let bearer = world.mint(1, []);
    let mut until = bearer.clone();
    until.narrow(Caveat::Expires(NOW + 5)).unwrap();
    until.narrow(Caveat::Uses(1)).unwrap();
    // An expiry behind the limit does not bound what else descends from it.
    let mut behind = bearer.clone();
    behind.narrow(Caveat::Uses(1)).unwrap();
    let longer = behind.clone();
    behind.narrow(Caveat::Expires(NOW + 5)).unwrap();
    for startpoint in [&until, &behind] {
        assert_eq!(world.open(startpoint, &alice).unwrap().permit(1, NOW), Ok(()));
    }
    assert_eq!(world.book.marks(), 2);
    world.book.sweep(NOW + 5);
    assert_eq!(world.book.marks(), 1);
    assert_eq!(world.open(&longer, &alice).unwrap_err(), Refusal::UsedUp);
}

#[test]
fn what_cannot_be_made_is_said() {
    let mut world = World::new();
    let error = |result: Result<Startpoint, StartpointError>| result.map(|_| ()).unwrap_err();
    assert_eq!(error(world.book.mint(8, [1; 16], vec![], [])), StartpointError::NoEndpoint);
    let bearer = world.mint(1, []);
    assert_eq!(error(world.book.mint(ENDPOINT, [1; 16], vec![], [])), StartpointError::RootInUse);
    let address = |text: &str| Address { kind: AddressKind::Shm, text: text.to_owned() };
    for addresses in [vec![address("")], vec![address("a b")], vec![address("x"); 9], vec![address(&"x".repeat(256))]] {
        assert_eq!(error(world.book.mint(ENDPOINT, [2; 16], addresses, [])), StartpointError::BadName);
    }
    for class in ["", "with space", "é", &"x".repeat(33)] {
        let key = EndpointKey::from_bytes([1; 32]);
        let opened = world.book.open_endpoint(9, key, class, Transforms::default());
        assert_eq!(opened, Err(StartpointError::BadName), "{class:?}");
    }
    let narrow = |caveat| bearer.clone().narrow(caveat).unwrap_err();
    for unsound in [
        Caveat::Methods(vec![2, 1]),
        Caveat::Methods(vec![1, 1]),
        Caveat::Memory(vec![window(0, 0, 0, 1)]),
        Caveat::Memory(vec![window(0, 1, u64::MAX, 1)]),
        Caveat::Memory(vec![window(0, 0, 1, 0)]),
        Caveat::Memory(vec![window(0, 0, 1, 4)]),
        Caveat::Copy(CopyCaveat { id: [0; 16], holder: [0; 32], voucher: None }),
    ] {
        assert_eq!(narrow(unsound), StartpointError::BadCaveat);
    }
    assert_eq!(narrow(Caveat::methods(0..300)), StartpointError::TooManyCaveats);
    let mut full = bearer.clone();
    for limit in 0..15 {
        full.narrow(Caveat::Uses(limit)).unwrap();
    }
    assert_eq!(full.narrow(Caveat::Uses(1)).unwrap_err(), StartpointError::TooManyCaveats);
    assert_eq!(Startpoint::decode(&full.encode()).unwrap().encode(), full.encode());
}

#[test]
fn a_chain_of_copies_is_as_long_as_the_bounds_allow() {
    let mut world = World::new();
    let mut startpoint = world.mint(1, []);
    let people: Vec<Domain> = (10..30).map(Domain::new).collect();
    let mut copies = 0;
    for pair in people.windows(2) {
        let copy = startpoint.copy_for(pair[1].hash, [copies; 16], |message| pair[0].voucher(message));
        match copy {
            Ok(copy) => startpoint = copy,
            Err(error) => {
                assert_eq!(error, StartpointError::TooManyCaveats);
                break;
            }
        }
        copies += 1;
        assert!(world.open(&startpoint, &pair[1].hash).is_ok(), "copy {copies}");
    }
    assert_eq!(copies, 7);
}

#[test]
fn every_refusal_has_a_number_and_a_sentence() {
    for (at, refusal) in Refusal::ALL.into_iter().enumerate() {
        assert_eq!(refusal as usize, at + 1);
        assert_eq!(Refusal::from_number(refusal as u8), Some(refusal));
        let sentence = refusal.to_string();
        assert!(sentence.len() > 20 && !sentence.ends_with('.'), "{sentence}");
    }
    assert_eq!(Refusal::from_number(0), None);
}

#[test]
fn nothing_printed_shows_a_secret() {
    let mut world = World::new();
    let bearer = world.mint(1, []);
    let alices = world.owner.copy(&bearer, &world.alice, 1);
    let (mut here, _) = world.session(&world.alice.hash.clone());
    let opening = alices.activate(&mut here, [9; 16], Protection::Privacy, None).unwrap();
    let text = format!("{alices:?} {here:?} {opening:?} {:?}", EndpointKey::from_bytes([0x4b; 32]));
    let secret = format!("{:?}", alices.chain.secret.as_bytes());
    assert!(!text.contains(&secret) && !text.contains("75, 75") && !text.contains("94, 94"), "{text}");
}
