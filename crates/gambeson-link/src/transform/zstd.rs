//! zstd (RFC 8878), a module that is always there. Each message is a frame of its own: its length on the wire tells of
//! it alone, and not of what was sent before. The last byte says whether it is a frame, or was not worth one.

use std::sync::{Arc, Mutex, PoisonError};

use gambeson_proto::key_schedule::End;
use zstd::bulk::{Compressor, Decompressor};
use zstd::zstd_safe;

use super::{Mapping, SCRATCH_MAX, Transform};
use crate::error::Error;

/// The fastest of the usual levels: links are faster than most compressors.
const LEVEL: i32 = 1;
/// Shorter messages have nothing to gain.
const WORTH: usize = 64;

const AS_IT_WAS: u8 = 0;
const FRAME: u8 = 1;

pub(super) struct Zstd(Arc<Mutex<Contexts>>);

/// One for all links of a domain, whose lock each user has anyhow: they are large, and remember nothing.
struct Contexts {
    compressor: Compressor<'static>,
    decompressor: Decompressor<'static>,
    buffer: Vec<u8>,
}

impl Zstd {
    pub(super) fn new() -> Result<Self, Error> {
        let failed = || Error::system("zstd has no memory");
        let compressor = Compressor::new(LEVEL).map_err(failed())?;
        let decompressor = Decompressor::new().map_err(failed())?;
        Ok(Zstd(Arc::new(Mutex::new(Contexts { compressor, decompressor, buffer: Vec::new() }))))
    }
}

impl Transform for Zstd {
    fn name(&self) -> &str {
        "zstd"
    }

    fn open(&self, _end: End) -> Result<Box<dyn Mapping>, String> {
        Ok(Box::new(Frames(self.0.clone())))
    }

    fn remembers(&self) -> bool {
        false
    }
}

struct Frames(Arc<Mutex<Contexts>>);

impl Contexts {
    /// Room for so many bytes.
    fn room(&mut self, len: usize) -> Result<(), String> {
        self.buffer.clear();
        self.buffer.try_reserve_exact(len).map_err(|_| format!("there is no memory for {len} bytes"))
    }

    /// The buffer becomes the message, and the message's memory the next buffer.
    fn take(&mut self, message: &mut Vec<u8>) {
        std::mem::swap(message, &mut self.buffer);
        if self.buffer.capacity() > SCRATCH_MAX {
            self.buffer = Vec::new();
        }
    }
}

impl Mapping for Frames {
    fn apply(&mut self, message: &mut Vec<u8>) -> Result<(), String> {
        let mut contexts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut kind = AS_IT_WAS;
        if message.len() >= WORTH {
            contexts.room(zstd_safe::compress_bound(message.len()))?;
            let Contexts { compressor, buffer, .. } = &mut *contexts;
            compressor.compress_to_buffer(message, buffer).map_err(|cause| cause.to_string())?;
            if contexts.buffer.len() < message.len() {
                contexts.take(message);
                kind = FRAME;
            }
        }
        message.push(kind);
        Ok(())
    }

    fn restore(&mut self, message: &mut Vec<u8>, most: usize) -> Result<(), String> {
        match message.pop() {
            Some(AS_IT_WAS) => return Ok(()),
            Some(FRAME) => {}
            _ => return Err("the message is none of its own".into()),
        }
        // What a frame says of its length is believed as far as it is allowed, and holds while it is unpacked.
        let size = zstd_safe::get_frame_content_size(message).ok().flatten();
        let size = size.and_then(|size| usize::try_from(size).ok()).ok_or("the message is no frame of zstd's")?;
        if size > most {
            return Err(format!("the message unpacks to {size} bytes, and {most} are the most"));
        }
        let mut contexts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        contexts.room(size)?;
        let Contexts { decompressor, buffer, .. } = &mut *contexts;
        decompressor.decompress_to_buffer(message, buffer).map_err(|cause| cause.to_string())?;
        contexts.take(message);
        Ok(())
    }
}
