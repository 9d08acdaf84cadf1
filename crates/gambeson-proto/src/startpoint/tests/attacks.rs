//! One attacker after the other: a thief of the bytes, an ancestor, a replayer, an editor, an impostor.

use super::*;

/// Alice's copy, and one of it for Bob.
fn family(world: &mut World) -> (Startpoint, Startpoint) {
    let bearer = world.mint(1, [Caveat::methods([1, 2])]);
    let alices = world.owner.copy(&bearer, &world.alice, 1);
    let bobs = world.alice.copy(&alices, &world.bob, 2);
    (alices, bobs)
}

#[test]
fn a_copy_opens_links_for_its_holder_and_for_nobody_else() {
    let mut world = World::new();
    let (alices, bobs) = family(&mut world);
    let (alice, bob, mallory) = (world.alice.hash, world.bob.hash, world.mallory.hash);
    assert!(world.open(&alices, &alice).is_ok() && world.open(&bobs, &bob).is_ok());
    for (startpoint, thief) in [(&alices, &bob), (&alices, &mallory), (&bobs, &alice), (&bobs, &mallory)] {
        assert_eq!(world.force(startpoint, thief).unwrap_err(), Refusal::NotHolder);
        // Honest code does not even ask.
        let (mut session, _) = world.session(thief);
        let opening = startpoint.activate(&mut session, [0; 16], Protection::Privacy, None);
        assert_eq!(opening.unwrap_err(), StartpointError::NotOurs);
    }
}

#[test]
fn a_thief_cannot_pass_a_copy_on_to_himself() {
    let mut world = World::new();
    let (alices, bobs) = family(&mut world);
    let mallory = world.mallory.hash;
    let copied = |stolen: &Startpoint, voucher| {
        let mut copy = stolen.clone();
        copy.append(Caveat::Copy(CopyCaveat { id: [5; 16], holder: mallory, voucher })).expect("there is room");
        copy
    };
    let Some(Caveat::Copy(genuine)) = bobs.caveats().last().cloned() else { panic!("Bob's is a copy") };
    let message =
        |of: &Startpoint| chain::vouched(&of.chain.name, &CopyCaveat { id: [5; 16], holder: mallory, voucher: None });
    let of_mallory = world.mallory.voucher(&message(&alices));
    let vouchers = [
        // Nobody vouches; the thief does; what Alice signed for Bob; the thief's signature under Alice's key.
        None,
        Some(of_mallory.clone()),
        genuine.voucher.clone(),
        Some(Voucher { key: genuine.voucher.expect("Alice vouched").key, ..of_mallory }),
    ];
    for voucher in vouchers {
        assert_eq!(world.force(&copied(&alices, voucher), &mallory).unwrap_err(), Refusal::Unvouched);
    }
    // Alice may.
    let voucher = world.alice.voucher(&message(&alices));
    assert!(world.force(&copied(&alices, Some(voucher)), &mallory).is_ok());
    // And honest code notices whose key it is.
    let copy = alices.copy_for(mallory, [5; 16], |message| world.mallory.voucher(message));
    assert_eq!(copy.unwrap_err(), StartpointError::NotOurs);
}

#[test]
fn what_a_holder_signed_for_a_narrow_startpoint_is_no_good_for_a_wide_one() {
    let mut world = World::new();
    let (wide, _) = family(&mut world);
    let mut narrow = wide.clone();
    narrow.narrow(Caveat::Uses(1)).expect("there is room");
    let bobs = world.alice.copy(&narrow, &world.bob, 2);
    // Bob got hold of Alice's bytes, too, and moves her signature over.
    let mut moved = wide.clone();
    moved.append(bobs.caveats().last().expect("a copy").clone()).expect("there is room");
    let bob = world.bob.hash;
    assert_eq!(world.force(&moved, &bob).unwrap_err(), Refusal::Unvouched);
    assert!(world.force(&bobs, &bob).is_ok());
}

#[test]
fn a_signature_where_nobody_held_it_is_refused() {
    let mut world = World::new();
    let mut bearer = world.mint(1, []);
    let copy = CopyCaveat { id: [5; 16], holder: world.bob.hash, voucher: None };
    let voucher = Some(world.alice.voucher(&chain::vouched(&bearer.chain.name, &copy)));
    bearer.append(Caveat::Copy(CopyCaveat { voucher, ..copy })).expect("there is room");
    let bob = world.bob.hash;
    assert_eq!(world.force(&bearer, &bob).unwrap_err(), Refusal::Unvouched);
}

#[test]
fn a_thief_of_a_bearers_bytes_can_what_the_bearer_could_and_no_more() {
    let mut world = World::new();
    let stolen = world.mint(1, [Caveat::methods([1])]);
    let mallory = world.mallory.hash;
    let grant = world.open(&stolen, &mallory).expect("that is what bearing means");
    assert_eq!(grant.permit(1, NOW), Ok(()));
    let mut wider = stolen.clone();
    wider.narrow(Caveat::methods([1, 2])).expect("there is room");
    wider.narrow(Caveat::Memory(vec![window(0, 0, 1, Window::READ)])).expect("there is room");
    let grant = world.open(&wider, &mallory).expect("it is no narrower");
    assert_eq!(grant.permit(2, NOW), Err(Refusal::Method));
    assert_eq!(grant.access(&window(0, 0, 1, Window::READ), WHOLE, NOW), Err(Refusal::Memory));
}

#[test]
fn an_ancestor_that_can_compute_a_copy_neither_opens_nor_reads_its_links() {
    let mut world = World::new();
    let (alices, bobs) = family(&mut world);
    let (alice, bob) = (world.alice.hash, world.bob.hash);
    // Alice makes the same copy again, secret and all.
    let again = world.alice.copy(&alices, &world.bob, 2);
    assert_eq!(again.encode(), bobs.encode());
    assert_eq!(world.force(&again, &alice).unwrap_err(), Refusal::NotHolder);
    // She also saw the activation. What she lacks is the session's own secret.
    let (mut here, mut there) = world.session(&bob);
    let opening = bobs.activate(&mut here, [9; 16], Protection::Privacy, None).expect("it is Bob's");
    let admitted = world.admit(&mut there, &opening.activation).expect("it is Bob's");
    let guess = SessionKeys { exporter: Secret32::from_bytes([0x77; 32]), ..here.keys.clone() };
    let (_, keys) = forge(&again, &guess, opening.activation.number, Protection::Privacy);
    for (own, guessed) in print(&admitted.keys).iter().zip(print(&keys)) {
        assert_ne!(own.1, guessed.1);
    }
}

#[test]
fn an_activation_opens_one_link_and_never_again() {
    let mut world = World::new();
    let (alices, _) = family(&mut world);
    let alice = world.alice.hash;
    let (mut here, mut there) = world.session(&alice);
    let mut open = || alices.activate(&mut here, [9; 16], Protection::Privacy, None).expect("it is Alice's");
    let (first, second, third) = (open().activation, open().activation, open().activation);
    let link = world.admit(&mut there, &first).expect("the first time");
    assert_eq!(world.admit(&mut there, &first).unwrap_err(), Refusal::Replayed);
    drop(link);
    assert_eq!(world.admit(&mut there, &first).unwrap_err(), Refusal::Replayed);
    // One that was never sent cannot come late, either.
    assert!(world.admit(&mut there, &third).is_ok());
    assert_eq!(world.admit(&mut there, &second).unwrap_err(), Refusal::Replayed);
    // In another session of the same two, and of other two.
    for opener in [alice, world.mallory.hash] {
        let (_, mut other) = world.session(&opener);
        assert_eq!(world.admit(&mut other, &first).unwrap_err(), Refusal::Unproven);
    }
    // Back to where it came from.
    let mut at_alices = StartpointBook::new(alice, Limits::default());
    let reflected = at_alices.admit(&mut here, &first.encode(), NOW, |_| ANY);
    assert_eq!(reflected.unwrap_err(), Refusal::Replayed, "the number is of the wrong end");
}

#[test]
fn numbers_are_of_one_end_each_and_zero_of_none() {
    let mut world = World::new();
    let startpoint = world.mint(1, []);
    let alice = world.alice.hash;
    let (mut here, mut there) = world.session(&alice);
    for number in [0, 2, 4, u64::MAX - 1] {
        let (activation, _) = forge(&startpoint, &here.keys, number, Protection::Privacy);
        assert_eq!(world.admit(&mut there, &activation).unwrap_err(), Refusal::Replayed, "{number}");
    }
    let (activation, _) = forge(&startpoint, &here.keys, 9, Protection::Privacy);
    assert!(world.admit(&mut there, &activation).is_ok());
    assert_eq!([here.open(), here.open(), there.open(), there.open()], [1, 3, 2, 4]);
    assert!(here.admit(2) && here.admit(8) && !here.admit(6) && !here.admit(9) && here.admit(10));
}

#[test]
fn every_link_has_keys_of_its_own() {
    let mut world = World::new();
    let (alices, _) = family(&mut world);
    let alice = world.alice.hash;
    let mut seen = std::collections::HashSet::new();
    for _ in 0..3 {
        let (mut here, _) = world.session(&alice);
        for _ in 0..3 {
            // With a generator of random bytes that is broken.
            let opening = alices.activate(&mut here, [9; 16], Protection::Privacy, None).expect("it is Alice's");
            seen.extend(print(&opening.keys));
        }
    }
    assert_eq!(seen.len(), 3 * 3 * 2);
}

#[test]
fn no_bit_of_an_activation_can_be_altered() {
    let mut world = World::new();
    let (mut alices, _) = family(&mut world);
    alices.narrow(Caveat::Uses(3)).expect("there is room");
    let alice = world.alice.hash;
    let (mut here, _) = world.session(&alice);
    let good =
        alices.activate(&mut here, [9; 16], Protection::Privacy, None).expect("it is Alice's").activation.encode();
    for bit in 0..good.len() * 8 {
        let mut altered = good.clone();
        altered[bit / 8] ^= 1 << (bit % 8);
        let mut there =
            Session::new(SessionKeys { own: here.keys.peer, peer: here.keys.own, ..here.keys.clone() }, End::Endpoint);
        let refusal = world.book.admit(&mut there, &altered, NOW, |_| ANY).expect_err("it was altered");
        let expected = [Refusal::Malformed, Refusal::Replayed, Refusal::Unknown, Refusal::Unproven];
        assert!(expected.contains(&refusal), "bit {bit}: {refusal:?}");
    }
    assert_eq!(world.book.marks(), 0, "nothing that was refused left anything");
    for len in 0..good.len() {
        let (_, mut there) = world.session(&alice);
        assert_eq!(world.book.admit(&mut there, &good[..len], NOW, |_| ANY).unwrap_err(), Refusal::Malformed);
    }
}

#[test]
fn no_bit_of_a_startpoint_matters_but_those_of_its_addresses() {
    let mut world = World::new();
    let bearer = world.mint(1, [Caveat::Uses(5)]);
    let alice = world.alice.hash;
    let good = bearer.encode();
    let address = good.windows(14).position(|bytes| bytes == b"10.77.0.1:4000").expect("its address");
    for bit in 0..good.len() * 8 {
        let mut altered = good.clone();
        altered[bit / 8] ^= 1 << (bit % 8);
        let Ok(startpoint) = Startpoint::decode(&altered) else { continue };
        let (mut here, mut there) = world.session(&alice);
        let opening = startpoint.activate(&mut here, [9; 16], Protection::Privacy, None);
        if startpoint.owner() != &world.owner.hash {
            // It asks for a session with somebody whose key has that hash.
            assert_eq!(opening.unwrap_err(), StartpointError::OtherOwner);
            continue;
        }
        let opened = world.admit(&mut there, &opening.expect("a bearer's").activation);
        // The kind of an address and its text are hints; a length would move all that is behind.
        let hint = (address - 2..address + 14).contains(&(bit / 8));
        assert_eq!(opened.is_ok(), hint, "bit {bit}: {opened:?}");
    }
}

#[test]
fn an_impostor_cannot_answer() {
    let mut world = World::new();
    let (alices, _) = family(&mut world);
    // The address led elsewhere, and the bytes were altered to name that domain: Mallory has the session but not
    // the startpoint's secret, and makes one up.
    let mallory = world.mallory.hash;
    let mut misled = alices.clone();
    misled.origin.owner = mallory;
    let (mut here, _) = world.session(&world.alice.hash.clone());
    here.keys.peer = mallory;
    let opening = misled.activate(&mut here, [9; 16], Protection::None, None).expect("as far as Alice knows");
    let there = SessionKeys { own: mallory, peer: here.keys.own, ..here.keys.clone() };
    let terms = LinkTerms {
        number: opening.activation.number,
        nonce: [9; 16],
        name: misled.chain.name,
        protection: Protection::None,
        partition: None,
    };
    let guess = link_roots(&there, End::Endpoint, Some(&Secret32::from_bytes([1; 32])), &terms);
    assert!(!opening.is_answered_by(&guess.answer));
    // Nor does the opener's own proof do, sent back.
    assert!(!opening.is_answered_by(&opening.activation.proof));
}

#[test]
fn the_two_ends_must_agree_on_protection_class_partition_and_policy() {
    let mut world = World::new();
    let (alices, _) = family(&mut world);
    let alice = world.alice.hash;
    let partition = PartitionKey { epoch: 0, key: Secret32::from_bytes([0; 32]) };
    let (mut here, mut there) = world.session(&alice);
    let open = |here: &mut Session, partition| {
        alices.activate(here, [9; 16], Protection::Integrity, partition).expect("it is Alice's").activation
    };
    let mut altered = open(&mut here, None);
    altered.protection = Protection::None;
    assert_eq!(world.admit(&mut there, &altered).unwrap_err(), Refusal::Unproven);
    let in_partition = open(&mut here, Some(&partition)).encode();
    assert_eq!(world.book.admit(&mut there, &in_partition, NOW, |_| ANY).unwrap_err(), Refusal::Unproven);
    there.keys.policy_hash = [1; 32];
    let activation = open(&mut here, None);
    assert_eq!(world.admit(&mut there, &activation).unwrap_err(), Refusal::Unproven);
    // A holder that was told another class finds out before it sends anything.
    let (mut here, mut there) = world.session(&alice);
    let mut told = alices.encode().to_vec();
    let at = told.windows(7).position(|bytes| bytes == b"control").expect("the class");
    told[at..at + 7].copy_from_slice(b"open-it");
    let told = Startpoint::decode(&told).expect("a class like another");
    let activation = told.activate(&mut here, [9; 16], Protection::None, None).expect("it is Alice's").activation;
    assert_eq!(world.admit(&mut there, &activation).unwrap_err(), Refusal::Unproven);
}

#[test]
fn no_transform_module_is_left_out_added_or_moved() {
    let mut world = World::new();
    let (alices, _) = family(&mut world);
    let alice = world.alice.hash;
    for other in [&[][..], &["zstd"], &["mask"], &["mask", "zstd"], &["zstd", "mask", "mask"]] {
        let told = Transforms::new(other.iter().copied()).expect("names");
        let told = Startpoint { origin: Origin { transforms: told, ..alices.origin.clone() }, ..alices.clone() };
        // As it comes to her, and as she can compute it herself.
        for told in [Startpoint::decode(&told.encode()).expect("a startpoint"), told] {
            assert!(other.iter().eq(told.transforms().iter().collect::<Vec<_>>().iter()));
            let mut renamed = told.clone();
            renamed.chain.name = renamed.caveats.name(renamed.origin.name());
            assert_eq!(world.force(&renamed, &alice).unwrap_err(), Refusal::Unproven, "{other:?}");
        }
    }
    assert_eq!(world.book.refused(Refusal::Unproven), 10);
    assert!(world.open(&alices, &alice).is_ok_and(|_| alices.transforms() == &transforms()));
}
