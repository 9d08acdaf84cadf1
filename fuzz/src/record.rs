//! Records: bytes as they are under every protection, and sealed ones that are then altered.

use gambeson_proto::aead::Context;
use gambeson_proto::record::{
    Destination, Envelope, HEADER_LEN, Header, INTRODUCTION_LEN, Kind, Plan, answer, end, message, request,
};
use gambeson_proto::session::Stamp;
use gambeson_proto::suite::{Protection, Suite};

use super::input::Input;

pub(crate) const PROTECTIONS: [Protection; 3] = [Protection::Privacy, Protection::Integrity, Protection::None];
const UNTOUCHED: u8 = 0xee;
const WIPED: u8 = 0;

pub(crate) const KINDS: [Kind; 9] = [
    Kind::Message,
    Kind::More,
    Kind::Grant,
    Kind::Data,
    Kind::Delivered,
    Kind::Credit,
    Kind::Query,
    Kind::Position,
    Kind::Final,
];

/// What links say to each other, with the flags that they know.
const OF_LINKS: [(Kind, u8); 7] = [
    (Kind::Request, request::ALL),
    (Kind::Answer, answer::ALL),
    (Kind::Cancel, 0),
    (Kind::Control, 0),
    (Kind::Put, request::ANSWER),
    (Kind::Get, request::ANSWER),
    (Kind::End, end::ALL),
];

/// Takes a payload in one piece or, without `room`, by copying.
struct Sink {
    memory: Vec<u8>,
    contiguous: bool,
    copied: usize,
}

impl Sink {
    fn new(len: usize, contiguous: bool) -> Self {
        Sink { memory: vec![UNTOUCHED; len], contiguous, copied: 0 }
    }
}

impl Destination for Sink {
    fn contiguous(&mut self, len: usize) -> Option<&mut [u8]> {
        if self.contiguous { self.memory.get_mut(..len) } else { None }
    }

    fn copy(&mut self, from: &[u8]) {
        self.memory[..from.len()].copy_from_slice(from);
        self.copied += from.len();
    }
}

pub fn record(data: &[u8]) {
    let mut input = Input(data);
    let mode = input.byte();
    let suite = Suite::ALL[usize::from(mode & 1)];
    let context = Context::new(suite, &[9; 32][..suite.key_len()], [5; 12]);
    // Not the key that the seeds are sealed with.
    let stranger = Context::new(suite, &[8; 32][..suite.key_len()], [5; 12]);
    for protection in PROTECTIONS {
        foreign(&stranger, protection, input.0, mode & 2 != 0);
    }
    own(&context, PROTECTIONS[usize::from(mode >> 2) % 3], &mut input, mode & 2 != 0);
}

/// Bytes that nobody sealed are refused wherever there is authentication, and are otherwise the
/// one encoding of what they say.
fn foreign(context: &Context, protection: Protection, bytes: &[u8], contiguous: bool) {
    let mut record = bytes.to_vec();
    let Some(header) = Header::parse(&record) else { return };
    assert!(header.payload_len() <= record.len());
    let introduction: Option<[u8; INTRODUCTION_LEN]> =
        header.introduction(&record).map(|(card, hint)| [card, hint].concat().try_into().expect("both parts"));
    let opened = header.open_frame(context, protection, &mut record);
    if protection != Protection::None {
        assert!(opened.is_none(), "a forged record was taken for authentic");
        return;
    }
    let envelope = opened.expect("nothing is authenticated");
    let payload = header.payload(context, protection, &mut record);
    assert_eq!(payload.len(), header.payload_len());
    let mut sink = Sink::new(payload.len(), contiguous);
    payload.deliver(&mut sink).expect("nothing is authenticated");
    let Some(envelope) = envelope else { return };
    let plan = Plan {
        stamp: header.stamp,
        connection: header.connection,
        introduction: introduction.as_ref(),
        envelope,
        payload: sink.memory.len(),
        mode: header.mode,
    };
    // A payload tag where none is due, or none where one is, makes another length.
    if plan.len() == bytes.len() {
        let mut again = vec![UNTOUCHED; plan.len()];
        plan.seal(context, protection, &sink.memory[..], &mut again);
        assert_eq!(again[16..HEADER_LEN], bytes[16..HEADER_LEN]);
        assert_eq!(envelope_of(&again), envelope_of(bytes));
        assert!(again.ends_with(&sink.memory));
    }
}

fn envelope_of(record: &[u8]) -> Option<Envelope> {
    let header = Header::parse(record)?;
    let at = HEADER_LEN + if header.introduced { INTRODUCTION_LEN } else { 0 };
    Envelope::decode(&record[at..])
}

/// What was sealed opens as it was, and not at all once a bit of it is another.
fn own(context: &Context, protection: Protection, input: &mut Input<'_>, contiguous: bool) {
    let of_messages = KINDS.map(|kind| (kind, if kind == Kind::Message { message::ALL } else { 0 }));
    let kinds = [&of_messages[..], &OF_LINKS[..]].concat();
    let (kind, known) = kinds[usize::from(input.byte()) % kinds.len()];
    let flags = if known == 0 { 0 } else { input.byte() & known };
    let (tag, size, data, id) = (input.number(), input.number(), input.number(), input.number());
    let envelope = Envelope { kind, flags, tag, size, data, id };
    let stamp = Stamp { epoch: input.number() as u32, sequence: input.number() >> 1 };
    let connection = input.number();
    let introduction = (input.byte() & 1 != 0).then(|| [input.byte(); INTRODUCTION_LEN]);
    let (flip, bit) = (usize::from(input.short()), input.byte() % 8);
    let payload = vec![input.byte(); usize::from(input.short()) % 6000];
    let plan = Plan {
        stamp,
        connection,
        introduction: introduction.as_ref(),
        envelope,
        payload: payload.len(),
        mode: Default::default(),
    };
    let mut record = vec![UNTOUCHED; plan.len()];
    plan.seal(context, protection, &payload[..], &mut record);
    let mut altered = record.clone();

    let header = Header::parse(&record).expect("a sealed record is one");
    assert_eq!((header.stamp, header.connection, header.introduced), (stamp, connection, introduction.is_some()));
    let (opened, sealed) = header.open(context, protection, &mut record).expect("it is authentic");
    assert_eq!(opened, Some(envelope));
    let mut sink = Sink::new(payload.len(), contiguous);
    sealed.deliver(&mut sink).expect("it is authentic");
    assert!(sink.memory == payload);

    if protection == Protection::None {
        return;
    }
    let at = flip % altered.len();
    altered[at] ^= 1 << bit;
    let Some(header) = Header::parse(&altered) else { return };
    let Some((_, sealed)) = header.open(context, protection, &mut altered) else { return };
    let len = sealed.len();
    let mut sink = Sink::new(len, contiguous);
    assert!(sealed.deliver(&mut sink).is_none(), "byte {at} of a record is not authenticated");
    assert_eq!(sink.copied, 0);
    let only = |byte: u8| sink.memory.iter().all(|found| *found == byte);
    assert!(only(UNTOUCHED) || only(WIPED), "bytes that are not authentic came out");
}
