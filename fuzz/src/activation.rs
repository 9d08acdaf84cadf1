//! What comes to an endpoint over a control link: activations and revocations, as they are and as programs.

use gambeson_proto::startpoint::{Activation, Caveat, CopyCaveat, Refusal, Startpoint, Window};
use gambeson_proto::suite::Protection;

use super::input::Input;
use super::startpoint::{ENDPOINT, Family, HOLDER, NOW, SECOND, domain, family, session, terms};

pub fn activation(data: &[u8]) {
    let mut input = Input(data);
    match input.byte() % 3 {
        0 => raw(input.0),
        1 => revocation(input.0),
        _ => program(&mut input),
    }
}

/// Bytes open a link only if they are those that a holder sent.
fn raw(bytes: &[u8]) {
    match Activation::decode(bytes) {
        Ok(activation) => assert_eq!(activation.encode(), bytes, "an activation has one encoding"),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
    let mut family = family();
    let activations = family.given().map(|(startpoint, holder)| {
        let (mut here, there) = session(domain(holder).1);
        let opening = startpoint.activate(&mut here, [4; 16], Protection::Privacy, None).expect("it is the holder's");
        (opening.activation.encode(), there)
    });
    for holder in [HOLDER, SECOND] {
        let sent = activations.iter().any(|(sent, there)| sent == bytes && there.keys.peer == domain(holder).1);
        let (_, mut there) = session(domain(holder).1);
        let verdict = family.book.admit(&mut there, bytes, NOW, terms);
        assert_eq!(verdict.is_ok(), sent, "{:?}", verdict.err());
        let again = family.book.admit(&mut there, bytes, NOW, terms).expect_err("it came twice");
        assert!(!sent || again == Refusal::Replayed);
    }
}

/// Bytes revoke only what is below the one who sends them.
fn revocation(bytes: &[u8]) {
    let mut family = family();
    let revocations = family.given().map(|(startpoint, _)| startpoint.revocation().expect("it is a copy"));
    let activations = family.given().map(|(startpoint, holder)| {
        let (mut here, there) = session(domain(holder).1);
        let opening = startpoint.activate(&mut here, [4; 16], Protection::Privacy, None).expect("it is the holder's");
        (opening.activation.encode(), there)
    });
    let [first, _, second] = activations
        .map(|(bytes, mut there)| family.book.admit(&mut there, &bytes, NOW, terms).expect("it is genuine").grant);
    let by_second = family.book.revoke_for(&second, bytes, NOW);
    assert_eq!((first.is_in_force(NOW), second.is_in_force(NOW)), (Ok(()), Ok(())));
    let by_first = family.book.revoke_for(&first, bytes, NOW);
    assert!(by_first.is_ok() || by_second.is_err(), "what is below the second holder is below the first");
    assert_eq!(first.is_in_force(NOW), Ok(()));
    assert_eq!(second.is_in_force(NOW).is_err(), revocations[2] == bytes);
    assert_eq!(family.book.marks(), 1 + usize::from(by_first.is_ok()));
}

/// A startpoint that is narrowed and asked for things, and whose activation is altered.
fn program(input: &mut Input<'_>) {
    let Family { mut book, first: mut startpoint, .. } = family();
    let window = |input: &mut Input<'_>| {
        let (region, offset, length) = (input.number(), input.number(), input.number());
        Window { region, offset, length, rights: input.byte() % 5 }
    };
    for _ in 0..input.byte() % 12 {
        let caveat = match input.byte() % 6 {
            0 => {
                let count = input.byte() % 9;
                Caveat::methods((0..count).map(|_| input.number() as u32).collect::<Vec<_>>())
            }
            1 => Caveat::Uses(input.number()),
            2 => Caveat::Expires(input.number()),
            3 => {
                let count = input.byte() % 5;
                Caveat::Memory((0..count).map(|_| window(input)).collect())
            }
            4 => Caveat::Protection(Protection::ALL[usize::from(input.byte()) % 3]),
            _ => Caveat::Copy(CopyCaveat { id: [0; 16], holder: [0; 32], voucher: None }),
        };
        let before = startpoint.clone();
        if startpoint.narrow(caveat).is_err() {
            assert_eq!(startpoint.encode(), before.encode(), "what failed changed nothing");
        }
    }
    assert_eq!(Startpoint::decode(&startpoint.encode()).expect("it was just encoded").encode(), startpoint.encode());
    let (mut here, mut there) = session(domain(HOLDER).1);
    let protection = Protection::ALL[usize::from(input.byte()) % 3];
    let opening = startpoint.activate(&mut here, [4; 16], protection, None).expect("it is the holder's");
    let bytes = opening.activation.encode();
    let mut altered = bytes.clone();
    let at = usize::from(input.short()) % altered.len();
    altered[at] ^= 1 << (input.byte() % 8);
    let (_, mut other) = session(domain(HOLDER).1);
    assert!(book.admit(&mut other, &altered, NOW, terms).is_err(), "byte {at} was altered");

    let expires = startpoint.caveats().filter_map(|caveat| match caveat {
        Caveat::Expires(second) => Some(*second),
        _ => None,
    });
    let expires = expires.min().unwrap_or(u64::MAX);
    let Ok(admitted) = book.admit(&mut there, &bytes, NOW, terms) else { return };
    assert!(expires > NOW && admitted.activation.endpoint == ENDPOINT);
    let grant = admitted.grant;
    assert_eq!(grant.expires(), expires);
    let mut uses = 0;
    while !input.is_empty() {
        let now = NOW + u64::from(input.byte() % 4) * 400;
        let taken = if input.byte().is_multiple_of(2) {
            let method = input.number() as u32;
            let taken = grant.permit(method, now).is_ok();
            assert!(!taken || [1, 2, 300].contains(&method), "a handler was widened");
            taken
        } else {
            let access = window(input);
            let taken = grant.access(&access, Some(72), now).is_ok();
            let inside = access.region == 1
                && access.rights == Window::READ
                && access.offset >= 16
                && access.offset.checked_add(access.length).is_some_and(|end| end <= 72);
            assert!(!taken || inside, "memory was widened");
            taken
        };
        uses += u32::from(taken);
        assert!(uses <= 3 && (!taken || now < expires), "uses or time were widened");
    }
}
