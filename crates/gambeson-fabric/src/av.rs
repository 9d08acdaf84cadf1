//! fid_av: the table of the cards that a program inserted.
//!
//! A card without this job's MAC is not inserted: what the program gets for it is FI_ADDR_NOTAVAIL,
//! and the user a sentence. Endpoints make a card's owner their peer when it is first addressed.

use std::collections::HashMap;
use std::ffi::{c_char, c_int, c_void};
use std::fmt::Write as _;

use gambeson_proto::identity::{CARD_LEN, Card, CardError};

use crate::address;
use crate::core::UNREACHABLE;
use crate::domain::{self, Member, enter, of};
use crate::endpoint::copy_card;
use crate::fid::{self, Errno, alive, header, put, status};
use crate::report::refuse;
use crate::unsupported::unsupported;
use crate::world;
use gambeson_libfabric_sys::{self as sys, fi_addr_t, fi_av_attr, fid_av, fid_domain};

type RawCard = [u8; CARD_LEN];

/// An address vector.
#[derive(Default)]
pub(crate) struct Vector {
    entries: Vec<Option<Entry>>,
    free: Vec<usize>,
    places: HashMap<RawCard, usize>,
    /// Endpoints that are bound to it.
    endpoints: Vec<usize>,
    refused: u64,
    order: world::Order,
}

struct Entry {
    card: RawCard,
    /// How often it was inserted and not removed.
    uses: u32,
}

impl Vector {
    /// The card that an address stands for.
    pub(crate) fn card(&self, at: fi_addr_t) -> Option<&[u8]> {
        let entry = self.entries.get(usize::try_from(at).ok()?)?.as_ref()?;
        Some(&entry.card)
    }

    pub(crate) fn bind(&mut self, endpoint: usize) {
        if !self.endpoints.contains(&endpoint) {
            self.endpoints.push(endpoint);
        }
    }

    pub(crate) fn unbind(&mut self, endpoint: usize) {
        self.endpoints.retain(|&bound| bound != endpoint);
    }

    /// Inserts a card that was found to be of this job. The same card has the same place.
    fn insert(&mut self, card: RawCard) -> fi_addr_t {
        if let Some(&known) = self.places.get(&card) {
            if let Some(entry) = &mut self.entries[known] {
                entry.uses += 1;
            }
            return known as fi_addr_t;
        }
        let place = self.free.pop().unwrap_or_else(|| {
            self.entries.push(None);
            self.entries.len() - 1
        });
        self.entries[place] = Some(Entry { card, uses: 1 });
        self.places.insert(card, place);
        place as fi_addr_t
    }

    /// Removes what one insertion made. Whether the card is gone with it; `None`: it was not there.
    fn remove(&mut self, at: fi_addr_t) -> Option<bool> {
        let place = usize::try_from(at).ok()?;
        let slot = self.entries.get_mut(place)?;
        let entry = slot.as_mut()?;
        entry.uses -= 1;
        if entry.uses > 0 {
            return Some(false);
        }
        self.places.remove(&entry.card);
        *slot = None;
        self.free.push(place);
        Some(true)
    }

    /// Tells the user of a card that was refused, less often the more there are.
    fn refuse(&mut self, card: &[u8], error: &CardError) {
        self.refused += 1;
        if 10_u64.pow(self.refused.ilog10()) != self.refused {
            return;
        }
        let of = address::of_card(card).map_or_else(String::new, |address| format!(" of {address}"));
        let why = match error {
            CardError::NotOfThisJob => {
                "it does not carry this job's proof: it comes from another job, from an earlier run of this one, or was \
                 altered on its way; start all processes with one `gambeson run`"
            }
            _ => {
                "it is no address card of this version; use the same Gambeson for all processes, and start them all \
                 with `gambeson run`"
            }
        };
        refuse(format_args!("refused the address{of} of another process: {why} (refused so far: {})", self.refused));
    }
}

/// Opens an address vector.
pub(crate) unsafe extern "C" fn open(
    domain: *mut fid_domain,
    attr: *mut fi_av_attr,
    av: *mut *mut fid_av,
    context: *mut c_void,
) -> c_int {
    status((|| {
        alive()?;
        // SAFETY: a domain of ours and null or the program's attributes.
        let (domain, attr) = unsafe { (domain::own(domain), attr.as_mut()) };
        let mut vector = Vector::default();
        if let Some(attr) = attr {
            // Vectors shared by name or filled in the background are offered by no core of ours either.
            if !attr.name.is_null() || attr.flags & !sys::FI_READ != 0 {
                return Err(Errno(sys::FI_ENOSYS));
            }
            if attr.type_ == sys::FI_AV_UNSPEC {
                attr.type_ = sys::FI_AV_TABLE;
            }
            vector.entries.reserve(attr.count.min(COUNT_MAX));
            vector.places.reserve(attr.count.min(COUNT_MAX));
        }
        let index = domain.lock().vectors.insert(vector);
        let fid = fid_av { fid: header(sys::FI_CLASS_AV, context, &FID_OPS), ops: fid::ptr(&OPS) };
        // SAFETY: the out-parameter is the program's.
        unsafe { put(av, Member::handle(domain, fid, index)?) }
    })())
}

/// Whether an object is an address vector of this provider.
///
/// # Safety
/// `fid` is null or an open object.
pub(crate) unsafe fn is_ours(fid: *const sys::fid) -> bool {
    // SAFETY: promised by the caller.
    unsafe { fid::has_table(fid, &FID_OPS) }
}

unsafe extern "C" fn close(fid: *mut sys::fid) -> c_int {
    // SAFETY: a vector of ours.
    unsafe {
        domain::close_member::<fid_av>(fid, |state, index| {
            if !state.vectors[index].endpoints.is_empty() {
                return Err(Errno(sys::FI_EBUSY));
            }
            state.vectors.remove(index);
            Ok(())
        })
    }
}

/// Returns how many were inserted.
unsafe extern "C" fn insert(
    av: *mut fid_av,
    cards: *const c_void,
    count: usize,
    places: *mut fi_addr_t,
    flags: u64,
    context: *mut c_void,
) -> c_int {
    // SAFETY: a vector of ours.
    let inserted = unsafe {
        enter(av, |state, index| {
            let membership = of(av).0.membership;
            let vector = &mut state.vectors[index];
            // With FI_SYNC_ERR the context is an array of error numbers.
            let errors: *mut c_int = if flags & SYNC_ERR != 0 { context.cast() } else { std::ptr::null_mut() };
            let mut inserted = 0;
            for at in 0..count {
                // SAFETY: the program passes `count` addresses of the length that fi_getname told.
                let card = &*cards.cast::<RawCard>().add(at);
                let (place, error) = match Card::decode(card, &membership.job.admission) {
                    Ok(known) => {
                        world::inserted(&mut vector.order, &known, membership);
                        (vector.insert(*card), 0)
                    }
                    Err(error) => {
                        vector.refuse(card, &error);
                        (UNREACHABLE, sys::FI_EINVAL)
                    }
                };
                inserted += c_int::from(error == 0);
                // SAFETY: both arrays are null or as long as there are addresses.
                if !places.is_null() {
                    places.add(at).write(place);
                }
                if !errors.is_null() {
                    errors.add(at).write(error);
                }
            }
            Ok(inserted)
        })
    };
    inserted.unwrap_or_else(|Errno(error)| -error)
}

unsafe extern "C" fn remove(av: *mut fid_av, places: *mut fi_addr_t, count: usize, _: u64) -> c_int {
    // SAFETY: a vector of ours, and `count` addresses.
    status(unsafe {
        enter(av, |state, index| {
            for at in 0..count {
                let place = *places.add(at);
                let vector = &mut state.vectors[index];
                if vector.remove(place).ok_or(Errno(sys::FI_EINVAL))? {
                    for &endpoint in &vector.endpoints {
                        state.endpoints[endpoint].forget(place);
                    }
                }
            }
            Ok(())
        })
    })
}

unsafe extern "C" fn lookup(av: *mut fid_av, place: fi_addr_t, card: *mut c_void, len: *mut usize) -> c_int {
    // SAFETY: a vector of ours, and a buffer of the size that the program says.
    status(unsafe {
        enter(av, |state, index| {
            let known = state.vectors[index].card(place).ok_or(Errno(sys::FI_EINVAL))?;
            // Unlike fi_getname this call only fails for unknown addresses: it tells the length it needs.
            match copy_card(known, card, len) {
                Err(Errno(sys::FI_ETOOSMALL)) => Ok(()),
                other => other,
            }
        })
    })
}

unsafe extern "C" fn straddr(
    _: *mut fid_av,
    card: *const c_void,
    buffer: *mut c_char,
    len: *mut usize,
) -> *const c_char {
    // SAFETY: the program passes a card, and a buffer of the size that it says.
    unsafe {
        let (card, room) = (&*card.cast::<RawCard>(), *len);
        let mut text = String::from("gambeson://");
        match address::of_card(card) {
            Some(address) => {
                let key = card[19..23].iter().fold(String::new(), |mut key, byte| {
                    let _ = write!(key, "{byte:02x}");
                    key
                });
                let _ = write!(text, "{address}/{key}");
            }
            None => text.push_str("not-a-card"),
        }
        let part = text.len().min(room.saturating_sub(1));
        if room > 0 && !buffer.is_null() {
            buffer.cast::<u8>().copy_from_nonoverlapping(text.as_ptr(), part);
            buffer.add(part).write(0);
        }
        *len = text.len() + 1;
        buffer
    }
}

static FID_OPS: sys::fi_ops = sys::fi_ops {
    size: size_of::<sys::fi_ops>(),
    close: Some(close),
    bind: Some(bind),
    control: unsupported(),
    ops_open: unsupported(),
    tostr: unsupported(),
    ops_set: unsupported(),
};

/// An event queue may be bound to a vector; insertions are over when they return, so it stays empty.
unsafe extern "C" fn bind(_: *mut sys::fid, other: *mut sys::fid, _: u64) -> c_int {
    // SAFETY: the program passes an open object.
    match unsafe { other.as_ref() } {
        Some(other) if other.fclass == sys::FI_CLASS_EQ as usize => 0,
        _ => -sys::FI_EINVAL,
    }
}

static OPS: sys::fi_ops_av = sys::fi_ops_av {
    size: size_of::<sys::fi_ops_av>(),
    insert: Some(insert),
    insertsvc: unsupported(),
    insertsym: unsupported(),
    remove: Some(remove),
    lookup: Some(lookup),
    straddr: Some(straddr),
    av_set: unsupported(),
    insert_auth_key: unsupported(),
    lookup_auth_key: unsupported(),
    set_user_id: unsupported(),
    lookup2: unsupported(),
};

/// FI_SYNC_ERR.
const SYNC_ERR: u64 = 1 << 58;
/// Places that are reserved at once, however many the program expects.
const COUNT_MAX: usize = 1 << 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_card_has_one_place_until_it_is_removed_as_often_as_inserted() {
        let mut vector = Vector::default();
        let [first, second] = [[1; CARD_LEN], [2; CARD_LEN]];
        let place = vector.insert(first);
        assert_eq!(vector.insert(first), place);
        let other = vector.insert(second);
        assert_ne!(place, other);
        assert_eq!(vector.remove(place), Some(false));
        assert_eq!(vector.card(place), Some(&first[..]));
        assert_eq!(vector.remove(place), Some(true));
        assert_eq!(vector.card(place), None);
        assert_eq!(vector.remove(place), None);
        assert_eq!(vector.insert([3; CARD_LEN]), place);
        assert_eq!(vector.card(other), Some(&second[..]));
        assert_eq!(vector.card(UNREACHABLE), None);
    }
}
