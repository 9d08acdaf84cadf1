//! The same work by hand over a bare carrier: no keys, no records, no sleep. What links are compared with.

use std::io::{self, IoSlice};

use gambeson_link::carrier::Carrier;

use super::side::{Kind, OUTSTANDING, Work};

/// The asker's part.
pub(crate) fn ask(carrier: &mut dyn Carrier, work: Work, buffer: &mut Vec<u8>) -> io::Result<()> {
    buffer.resize(work.length.max(OUTSTANDING * 8), 1);
    let message = work.length;
    match work.kind {
        Kind::Trips => (0..work.count).try_for_each(|_| {
            write_whole(carrier, &buffer[..message])?;
            read_whole(carrier, &mut buffer[..message])
        }),
        Kind::Stream => {
            (0..work.count).try_for_each(|_| write_whole(carrier, &buffer[..message]))?;
            read_whole(carrier, &mut buffer[..1])
        }
        Kind::Outstanding => {
            let (mut sent, mut got, total) = (0, 0, message * work.count as usize);
            while got < total {
                while sent < total && sent - got < OUTSTANDING * message {
                    write_whole(carrier, &buffer[..message])?;
                    sent += message;
                }
                got += carrier.read(buffer)?;
            }
            Ok(())
        }
    }
}

/// The other's.
pub(crate) fn answer(carrier: &mut dyn Carrier, work: Work, buffer: &mut Vec<u8>) -> io::Result<()> {
    buffer.resize(work.length.max(OUTSTANDING * 8), 1);
    let message = work.length;
    match work.kind {
        Kind::Trips => (0..work.count).try_for_each(|_| {
            read_whole(carrier, &mut buffer[..message])?;
            write_whole(carrier, &buffer[..message])
        }),
        Kind::Stream => {
            (0..work.count).try_for_each(|_| read_whole(carrier, &mut buffer[..message]))?;
            write_whole(carrier, &buffer[..1])
        }
        Kind::Outstanding => {
            let mut left = message * work.count as usize;
            while left > 0 {
                let came = carrier.read(buffer)?;
                write_whole(carrier, &buffer[..came])?;
                left -= came;
            }
            Ok(())
        }
    }
}

fn write_whole(carrier: &mut dyn Carrier, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        let sent = carrier.write(&[IoSlice::new(bytes)])?;
        bytes = &bytes[sent..];
    }
    Ok(())
}

fn read_whole(carrier: &mut dyn Carrier, into: &mut [u8]) -> io::Result<()> {
    let mut got = 0;
    while got < into.len() {
        got += carrier.read(&mut into[got..])?;
    }
    Ok(())
}
