//! Peers that lie, strangers, and little room, over libfabric's own network on TCP.

use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::*;

const PROVIDER: &str = "tcp;ofi_rxm";
const PATIENCE: Duration = Duration::from_secs(10);
const LITTLE: Shape = Shape { window: 2, size: 256 };

fn listener(shape: Shape) -> Listener {
    Listener::with(PROVIDER, Some("127.0.0.1"), shape).unwrap_or_else(|why| panic!("{why}"))
}

/// The next that connects.
fn accept(listener: &mut Listener) -> Ofi {
    let until = Instant::now() + PATIENCE;
    std::iter::repeat_with(|| {
        assert!(Instant::now() < until, "nobody has connected");
        listener.accept().expect("accept")
    })
    .flatten()
    .next()
    .expect("it goes on asking")
}

/// An endpoint that says whatever it likes.
struct Liar {
    port: Port,
    shape: Shape,
    came: Vec<Vec<u8>>,
}

impl Liar {
    fn new() -> Liar {
        let info = Info::find(PROVIDER, Some("127.0.0.1"), None).unwrap_or_else(|why| panic!("{why}"));
        let mut port = Port::open(&info, 16, 2048).expect("an endpoint");
        for buffer in 0..8 {
            assert!(port.receive(buffer).expect("it takes it"));
        }
        Liar { port, shape: Shape { window: 4, size: 1024 }, came: Vec::new() }
    }

    fn hello(&self) -> Greeting {
        Greeting { token: [5; 16], shape: self.shape, address: self.port.address().to_vec() }
    }

    fn progress(&mut self) -> bool {
        let mut events = Vec::new();
        self.port.poll(&mut events);
        let mut sent = false;
        for event in events {
            match event {
                Event::Received { buffer, len } => {
                    self.came.push(self.port.buffer(buffer)[..len].to_vec());
                    assert!(self.port.receive(buffer).expect("it takes it"));
                }
                Event::Sent { .. } => sent = true,
                Event::Truncated { .. } => panic!("a message that is too long"),
                Event::Failed { why } => {
                    println!("{why}");
                    sent = true;
                }
            }
        }
        sent
    }

    /// Sends, while `meanwhile` has the other end move on, until it is out.
    fn say(&mut self, to: Peer, message: &[u8], mut meanwhile: impl FnMut()) {
        let until = Instant::now() + PATIENCE;
        self.port.buffer_mut(15)[..message.len()].copy_from_slice(message);
        let mut taken = false;
        loop {
            taken = taken || self.port.send(15, message.len(), to).expect("it takes it");
            meanwhile();
            if self.progress() {
                return;
            }
            assert!(
                Instant::now() < until,
                "{} bytes do not go out: {:?}",
                message.len(),
                &message[..8.min(message.len())]
            );
        }
    }

    /// Goes through the greetings with a listener: its carrier, where that is, and what it wants messages to begin with.
    fn connect(&mut self, listener: &mut Listener) -> (Ofi, Peer, Token) {
        let to = self.port.insert(listener.address()).expect("an address");
        let hello = self.hello().encode(None);
        let mut met = None;
        self.say(to, &hello, || met = met.take().or_else(|| listener.accept().expect("accept")));
        let mut carrier = met.unwrap_or_else(|| accept(listener));
        let until = Instant::now() + PATIENCE;
        while self.came.is_empty() {
            assert_eq!(carrier.read(&mut [0; 8]).expect("nothing yet"), 0);
            self.progress();
            assert!(Instant::now() < until, "no answer");
        }
        let welcome = Greeting::welcome(&self.came.remove(0)).expect("an answer");
        let peer = self.port.insert(&welcome.address).expect("an address");
        (carrier, peer, welcome.token)
    }
}

fn data(sequence: u32, released: u32, token: &Token, payload: &[u8]) -> Vec<u8> {
    [&Header { word: Word::Data, sequence, released }.encode(token)[..], payload].concat()
}

#[test]
#[ignore = "needs libfabric"]
fn over_libfabric_who_lies_is_named_and_who_is_unknown_is_not_heard() {
    type Lie = fn(&Token) -> Vec<u8>;
    let lies: [(&str, Lie); 6] = [
        ("more than there is room for", |token| data(400, 0, token, b"early")),
        ("more than there is room for", |token| data(u32::MAX, 0, token, b"late")),
        ("room for what was never sent", |token| {
            Header { word: Word::Credit, sequence: 0, released: 9 }.encode(token).to_vec()
        }),
        ("what no carrier does", |token| [&[77; 16][..], token].concat()),
        ("what no carrier does", |token| data(0, 0, token, b"")),
        ("what no carrier does", |token| {
            let shape = Shape { window: 4, size: 1024 };
            Greeting { token: [1; 16], shape, address: vec![2; 16] }.encode(Some(token))
        }),
    ];
    let mut listener = listener(SHAPE);
    for (at, (why, lie)) in lies.into_iter().enumerate() {
        let mut liar = Liar::new();
        let (mut carrier, peer, token) = liar.connect(&mut listener);
        let mut into = [0; 64];
        // With another token: it is for somebody else.
        for message in [data(0, 0, &[0; 16], b"stray"), lie(&[9; 16]), vec![3; 5]] {
            liar.say(peer, &message, || assert_eq!(carrier.read(&mut into).expect("nothing"), 0));
        }
        liar.say(peer, &data(0, 0, &token, b"honest"), || ());
        let until = Instant::now() + PATIENCE;
        let mut came = Vec::new();
        while came.len() < 6 {
            let count = carrier.read(&mut into).expect("it comes");
            came.extend_from_slice(&into[..count]);
            assert!(Instant::now() < until, "it does not come");
        }
        assert_eq!(came, b"honest");
        let mut refused = None;
        let message = if at == 1 { data(0, 0, &token, b"again") } else { lie(&token) };
        liar.say(peer, &message, || refused = refused.take().or_else(|| carrier.read(&mut into).err()));
        while refused.is_none() {
            refused = carrier.read(&mut into).err();
            assert!(Instant::now() < until, "lie {at} is taken");
        }
        let refused = refused.expect("it is");
        assert_eq!(refused.kind(), ErrorKind::InvalidData);
        assert!(refused.to_string().contains(why), "lie {at}: {refused}");
        carrier.write(&[IoSlice::new(b"on")]).expect_err("it is over");
    }
}

#[test]
#[ignore = "needs libfabric"]
fn over_libfabric_strangers_who_say_nonsense_keep_nobody_out() {
    let mut listener = listener(SHAPE);
    let mut liar = Liar::new();
    let to = liar.port.insert(listener.address()).expect("an address");
    let address = listener.address().to_vec();
    let family = |first: u8| [&[first], &address[1..]].concat();
    let mut nonsense = vec![vec![1], vec![0; HEADER], vec![255; 2000], liar.hello().encode(Some(&[1; 16]))];
    for address in [vec![2, 0], vec![0; 96], family(10), address.clone()] {
        let mut hello = liar.hello();
        hello.address = address;
        nonsense.push(hello.encode(None));
    }
    let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
    for _ in 0..100 {
        let mut hello = liar.hello().encode(None);
        for _ in 0..3 {
            let at = random.random_range(0..hello.len());
            hello[at] = random.random();
        }
        nonsense.push(hello[..random.random_range(0..hello.len())].to_vec());
    }
    for message in nonsense.iter().filter(|message| !message.is_empty()) {
        liar.say(to, message, || {
            // An address that is none is an error, and the listener goes on.
            let _ = listener.accept();
        });
    }
    assert!(matches!(liar.port.insert(&[2, 0]), Err(why) if why.kind() == ErrorKind::InvalidData));
    let connecting = std::thread::spawn(move || Ofi::reach(PROVIDER, &address, PATIENCE, SHAPE).map(drop));
    let until = Instant::now() + PATIENCE;
    let mut here = Vec::new();
    while !connecting.is_finished() {
        here.extend(listener.accept().ok().flatten());
        for carrier in &mut here {
            let _ = carrier.read(&mut [0; 8]);
        }
        assert!(Instant::now() < until + PATIENCE, "it is kept out");
    }
    connecting.join().expect("no panic").expect("it connects");
}

#[test]
#[ignore = "needs libfabric"]
fn over_libfabric_many_messages_find_their_way_with_little_room() {
    let mut listener = listener(LITTLE);
    let address = listener.address().to_vec();
    let connecting = std::thread::spawn(move || Ofi::reach(PROVIDER, &address, PATIENCE, LITTLE));
    let mut far = accept(&mut listener);
    while !connecting.is_finished() {
        assert_eq!(far.read(&mut [0; 8]).expect("nothing yet"), 0);
    }
    let mut near = connecting.join().expect("no panic").expect("it connects");
    let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
    let byte = |at: u64, way: u64| ((at + way) ^ (at >> 8)) as u8;
    let (mut sent, mut came) = ([0_u64; 2], [0_u64; 2]);
    let until = Instant::now() + 3 * PATIENCE;
    while came.iter().any(|&came| came < 1_000_000) {
        for way in 0..2 {
            let (from, to) = if way == 0 { (&mut near, &mut far) } else { (&mut far, &mut near) };
            let count = random.random_range(0..700);
            let bytes: Vec<u8> = (sent[way]..sent[way] + count).map(|at| byte(at, way as u64)).collect();
            sent[way] += from.write(&[IoSlice::new(&bytes)]).expect("it goes") as u64;
            let mut into = [0; 1000];
            let room = random.random_range(1..=into.len());
            let count = to.read(&mut into[..room]).expect("it comes");
            let right = into[..count].iter().zip(came[way]..).all(|(is, at)| *is == byte(at, way as u64));
            assert!(right, "way {way} at {}", came[way]);
            came[way] += count as u64;
            assert!(sent[way] - came[way] <= 8 * 256, "no more is under way than there is room for");
        }
        assert!(Instant::now() < until, "it stands still at {came:?}");
    }
}

#[test]
fn addresses_are_read_as_they_are_written() {
    let address = [2, 0, 255, 16, 127, 0, 0, 1];
    assert_eq!(hexadecimal(&address), "0200ff107f000001");
    assert_eq!(bytes(&hexadecimal(&address)).as_deref(), Some(&address[..]));
    for wrong in ["", "0", "0g", "00 0", &"00".repeat(97)] {
        assert_eq!(bytes(wrong), None, "{wrong}");
    }
}
