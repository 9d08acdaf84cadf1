//! Anchoring what all ranks wrote: each group's entries go to one rank, their digests to the leader, its head to all.

use gambeson_file::{Dirty, Head, Then, Written};

use super::SealedEngine;
use super::parcel::{Reader, Writer};
use crate::error::Failure;

impl SealedEngine {
    /// Anchors the file and closes it, or goes on.
    pub(super) fn anchor(&mut self, then: Then) -> Result<(), Failure> {
        let Some(leader) = self.leader else { return Ok(()) };
        let mut dirty = self.file.take_written();
        // All ranks have cut the file together, so they know of the same cuts.
        let cut = dirty.cut.map_or(i64::MIN, |block| -block.cast_signed());
        let (size, cut) = self.greatest_size_and(cut)?;
        let cut = (cut != i64::MIN).then(|| (-cut).cast_unsigned());
        dirty.cut = cut;
        if self.ranks.rank == leader {
            dirty.with_cut_group(self.file.geometry());
        }
        // Not before all ranks are here: one that still closes another handle of the file would wait for this lock.
        let settled = (self.ranks.rank == leader).then(|| self.file.settle());
        let news = settled.as_ref().and_then(|settled| settled.as_ref().ok()?.news.as_ref());
        let digests = self.anchor_groups(leader, &dirty, news);
        let digests = self.gather_digests(leader, digests)?;
        let finished = settled.map(|settled| {
            let settled = settled.map_err(|error| self.failure(&error))?;
            let digests = digests?;
            let head = self.file.finish(settled, &digests, cut, size, then).map_err(|error| self.failure(&error))?;
            Ok(head.as_ref().map(Head::encode).unwrap_or_default())
        });
        let head = self.ranks.told_bytes(self.mpi, leader, finished)?;
        if then == Then::Close {
            return Ok(());
        }
        if self.ranks.rank != leader {
            let head = Head::decode(&head).expect("the leader has sent a head");
            self.file.resume(head).map_err(|error| self.failure(&error))?;
        }
        self.refresh()
    }

    /// What other ranks have written and synchronised is what this one reads.
    pub(super) fn refresh(&self) -> Result<(), Failure> {
        let refreshed = self.file.body().refresh();
        refreshed.map_err(|error| self.failure(&self.file.storage_error("looking at it anew failed", error)))
    }

    /// The file's size as far as any rank knows.
    pub(super) fn greatest_size(&mut self) -> Result<u64, Failure> {
        self.greatest_size_and(0).map(|(size, _)| size)
    }

    /// The file's size as far as any rank knows, and the greatest of a number that each has.
    fn greatest_size_and(&mut self, number: i64) -> Result<(u64, i64), Failure> {
        let size = self.file.size().map_err(|error| self.failure(&error));
        let known = size.as_ref().copied().unwrap_or(0).cast_signed();
        let [fails, greatest, number] = self.ranks.max(self.mpi, [i64::from(size.is_err()), known, number])?;
        size?;
        if fails != 0 {
            let what = format!("{}: another rank does not find its end, and says why", self.path.display());
            return Err(Failure::new(self.mpi.abi.class.io, what));
        }
        Ok((greatest.cast_unsigned(), number))
    }

    /// Takes the groups that are this rank's into their entry tables; their digests. `news`: what the leader knows of
    /// other sessions.
    fn anchor_groups(
        &mut self,
        leader: i32,
        dirty: &Dirty,
        news: Option<&Head>,
    ) -> Result<Vec<(u64, [u8; 32])>, Failure> {
        let ranks = self.ranks.size as u64;
        let mut outgoing: Vec<Writer> = (0..ranks).map(|_| Writer::default()).collect();
        if self.ranks.rank == leader {
            let news = news.map(Head::encode).unwrap_or_default();
            outgoing.iter_mut().for_each(|message| message.bytes(&news));
        }
        for (group, written) in &dirty.groups {
            let message = &mut outgoing[(group % ranks) as usize];
            message.u64(*group);
            message.u32(written.len() as u32);
            for Written { at, entry } in written {
                message.u32(*at);
                message.0.extend_from_slice(entry);
            }
        }
        let outgoing: Vec<Vec<u8>> = outgoing.into_iter().map(|message| message.0).collect();
        let incoming = self.ranks.exchange(self.mpi, &outgoing)?;
        self.refresh()?;
        let mut groups: std::collections::BTreeMap<u64, Vec<Written>> = std::collections::BTreeMap::new();
        for (from, message) in incoming.each() {
            let mut reader = Reader::new(message);
            let news = if from == leader as usize { reader.bytes() } else { &[] };
            if self.ranks.rank != leader && !news.is_empty() {
                let head = Head::decode(news).expect("the leader has sent a head");
                self.file.share(head).map_err(|error| self.failure(&error))?;
            }
            while !reader.is_done() {
                let group = groups.entry(reader.u64()).or_default();
                for _ in 0..reader.u32() {
                    let at = reader.u32();
                    let place = reader.skip(64);
                    let entry = message[place..place + 64].try_into().expect("64 bytes");
                    group.push(Written { at, entry });
                }
            }
        }
        let mut digests = Vec::with_capacity(groups.len());
        for (group, written) in groups {
            let digest = self.file.anchor_group(group, &written, dirty.cut).map_err(|error| self.failure(&error))?;
            digests.push((group, digest));
        }
        Ok(digests)
    }

    /// All digests at the leader, or the failure of a rank.
    #[allow(clippy::type_complexity, reason = "digests by group, or why there are none, unless all have to give up")]
    fn gather_digests(
        &self,
        leader: i32,
        own: Result<Vec<(u64, [u8; 32])>, Failure>,
    ) -> Result<Result<Vec<(u64, [u8; 32])>, Failure>, Failure> {
        let mut message = Writer::default();
        match &own {
            Ok(digests) => {
                message.u32(0);
                for (group, digest) in digests {
                    message.u64(*group);
                    message.0.extend_from_slice(digest);
                }
            }
            Err(failure) => {
                message.u32(1);
                message.u32(failure.class as u32);
                message.bytes(failure.sentence.as_bytes());
            }
        }
        let mut outgoing = vec![Vec::new(); self.ranks.size as usize];
        outgoing[leader as usize] = message.0;
        let incoming = self.ranks.exchange(self.mpi, &outgoing)?;
        let mut all = Vec::new();
        for (_, message) in incoming.each().filter(|(_, message)| !message.is_empty()) {
            let mut reader = Reader::new(message);
            if reader.u32() != 0 {
                let class = reader.u32() as i32;
                return Ok(Err(Failure::new(class, String::from_utf8_lossy(reader.bytes()))));
            }
            while !reader.is_done() {
                let group = reader.u64();
                let place = reader.skip(32);
                all.push((group, message[place..place + 32].try_into().expect("32 bytes")));
            }
        }
        all.sort_unstable_by_key(|(group, _)| *group);
        own.map(|_| Ok(all))
    }
}
