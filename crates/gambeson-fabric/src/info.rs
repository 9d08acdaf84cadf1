//! fi_getinfo: what is offered, whether it fits what a program asks for, and which core provider
//! carries it.
//!
//! One fi_info comes back for each interface of the core, a copy of the core's with our
//! attributes, so that interface and network names stay what the user knows.

use std::env;
use std::ffi::{CStr, CString, c_char, c_int};
use std::ptr;
use std::sync::atomic::AtomicBool;

use crate::address;
use crate::core::{Info, List, Question, library};
use crate::fid::{Errno, Outcome, alive, put, status};
use crate::job;
use crate::report::{refuse, refuse_once};
use crate::{domain, fabric};
use gambeson_libfabric_sys::{self as sys, fi_info};

/// The provider's name. Without the prefix `ofi_`, so that it counts as a core provider.
pub(crate) const NAME: &CStr = c"gambeson";
/// Everything offered.
pub(crate) const CAPS: u64 = TX_CAPS | RX_CAPS | DOMAIN_CAPS;
/// Largest message, in bytes.
pub(crate) const MAX_MESSAGE: usize = 64 << 30;
/// Largest message of fi_inject, in bytes. What is injected is sealed before the call returns, into a
/// buffer of ours, and nobody waits for word of its delivery; only a message that has to wait is copied.
pub(crate) const INJECT_MAX: usize = 64 << 10;

const TX_CAPS: u64 = sys::FI_MSG | sys::FI_TAGGED | sys::FI_RMA | sys::FI_SEND | sys::FI_READ | sys::FI_WRITE;
const RX_CAPS: u64 = sys::FI_MSG
    | sys::FI_TAGGED
    | sys::FI_RMA
    | sys::FI_RECV
    | sys::FI_REMOTE_READ
    | sys::FI_REMOTE_WRITE
    | sys::FI_MULTI_RECV
    | sys::FI_DIRECTED_RECV
    | sys::FI_SOURCE;
const DOMAIN_CAPS: u64 = sys::FI_LOCAL_COMM | sys::FI_REMOTE_COMM;
const TX_FLAGS: u64 = sys::FI_COMPLETION
    | sys::FI_INJECT
    | sys::FI_INJECT_COMPLETE
    | sys::FI_TRANSMIT_COMPLETE
    | sys::FI_DELIVERY_COMPLETE;
const RX_FLAGS: u64 = sys::FI_COMPLETION | sys::FI_MULTI_RECV;
/// What a program must bring: room for us in the context of every operation.
const MODE: u64 = sys::FI_CONTEXT;

/// libfabric asks what this provider offers.
pub(crate) unsafe extern "C" fn getinfo(
    version: u32,
    node: *const c_char,
    service: *const c_char,
    flags: u64,
    hints: *const fi_info,
    info: *mut *mut fi_info,
) -> c_int {
    status((|| {
        alive()?;
        // Nothing may be layered on top: what it adds would not be sealed.
        if flags & CORE_PROVIDERS_ONLY != 0 {
            return Err(Errno(sys::FI_ENODATA));
        }
        // SAFETY: libfabric passes null or hints with all their parts.
        let hints = unsafe { hints.as_ref() };
        let wish = Wish::of(hints, version).ok_or(Errno(sys::FI_ENODATA))?;
        job::membership(wish.asked_by_name).ok_or(Errno(sys::FI_ENODATA))?;
        // SAFETY: libfabric passes null or strings.
        let question = unsafe { Question { node: text(node), service: text(service), flags } };
        let found = core_infos(question, &wish.names())?;
        let offered = wish.offer(&found)?.ok_or(Errno(sys::FI_ENODATA))?;
        // SAFETY: the out-parameter is libfabric's.
        unsafe { put(info, offered.into_raw()) }
    })())
}

/// The core's fi_info for a fabric of ours.
pub(crate) fn core_of_fabric(attr: &sys::fi_fabric_attr) -> Outcome<Info> {
    // SAFETY: null or a string.
    let fabric = unsafe { text(attr.name) };
    core_infos(Question::default(), &Names { fabric, ..Names::default() })
}

/// The core's fi_info for a domain of ours: of those on this interface the one with our address.
pub(crate) fn core_of_domain(wanted: &fi_info) -> Outcome<Info> {
    // SAFETY: an fi_info that getinfo returned has all its parts, with names null or strings.
    let names = unsafe {
        let fabric = wanted.fabric_attr.as_ref().and_then(|attr| text(attr.name));
        Names { fabric, domain: wanted.domain_attr.as_ref().and_then(|attr| text(attr.name)) }
    };
    let found = core_infos(Question::default(), &names)?;
    let card = source(wanted);
    let same = |core: &&fi_info| core_source(core).map(address::unsigned_card).as_ref().map(|ours| &ours[..]) == card;
    library().duplicate(found.iter().find(same).unwrap_or_else(|| found.get()))
}

/// Tells the user that the core provider was found but does not open.
pub(crate) fn cannot_open(core: &Info, Errno(error): Errno) {
    let why = library().describe(error);
    // SAFETY: getinfo's answer has all its parts, with names null or strings.
    let name = unsafe { core.get().fabric_attr.as_ref().and_then(|attr| text(attr.prov_name)) };
    let name = name.unwrap_or_default().to_string_lossy();
    let remedy = if name.contains(';') {
        // A layered provider looks for the one below it as any program does.
        format!("; name it with all its parts, `gambeson run --core '{name}'`, which shows them to libfabric")
    } else {
        String::new()
    };
    refuse(format_args!("can't open the core provider {name}: {why}{remedy}"));
}

/// Whether a program wants progress without calling us.
pub(crate) fn wants_auto_progress(attr: &sys::fi_domain_attr) -> bool {
    // SAFETY: both names of the union's one field.
    attr.control_progress == sys::FI_PROGRESS_AUTO
        || unsafe { attr.__bindgen_anon_1.data_progress } == sys::FI_PROGRESS_AUTO
}

/// Whether the core wants the memory of its transfers registered.
pub(crate) fn wants_registration(core: &Info) -> bool {
    // SAFETY: getinfo's answer has all its parts.
    unsafe { core.get().domain_attr.as_ref() }.is_some_and(|attr| attr.mr_mode as u64 & sys::FI_MR_LOCAL != 0)
}

/// Whether the core may complete a message before one that was sent earlier by the same peer. A
/// provider that is layered over another completes small messages while it fetches a large one.
pub(crate) fn completions_overtake(core: &Info) -> bool {
    // SAFETY: getinfo's answer has all its parts, with names null or strings.
    unsafe { core.get().fabric_attr.as_ref().and_then(|attr| text(attr.prov_name)) }
        .is_some_and(|name| name.to_bytes().contains(&b';'))
}

/// Largest record that the core copies.
pub(crate) fn core_inject_size(core: &Info) -> usize {
    // SAFETY: getinfo's answer has all its parts.
    unsafe { core.get().tx_attr.as_ref() }.map_or(0, |attr| attr.inject_size)
}

/// Names that a program already chose.
#[derive(Clone, Copy, Default)]
struct Names<'n> {
    fabric: Option<&'n CStr>,
    domain: Option<&'n CStr>,
}

/// What the core provider has for us. When it has nothing, the user learns why, once.
fn core_infos(question: Question<'_>, names: &Names<'_>) -> Outcome<Info> {
    static SAID: AtomicBool = AtomicBool::new(false);
    let core = env::var("GAMBESON_CORE").unwrap_or_else(|_| "tcp".into());
    let ask = |provider: &str, fit: Fit| -> Outcome<Info> {
        let found = library().core_info(&question, &core_hints(provider, names, fit)?)?;
        // libfabric also tells of what other providers build on this one.
        found.retain(|info| is_of(info, provider)).ok_or(Errno(sys::FI_ENODATA))
    };
    // Before libfabric 1.18 tcp has no reliable datagrams of its own.
    let layered = format!("{core};ofi_rxm");
    let found = ask(&core, Fit::Whole).or_else(|_| ask(&layered, Fit::Whole));
    let why = match found {
        Ok(info) => match info.retain(is_ip) {
            Some(info) => return Ok(info),
            None => "its addresses are no IP addresses, which are all that a card can hold",
        },
        Err(error) if question.node.is_some() || names.fabric.is_some() || names.domain.is_some() => return Err(error),
        Err(_) if ask(&core, Fit::Unordered).is_ok() => "it does not keep messages in order (FI_ORDER_SAS)",
        Err(_) if ask(&core, Fit::Name).is_ok() => {
            "it has no reliable datagram endpoint for plain messages (FI_EP_RDM, FI_MSG)"
        }
        Err(_) => "this libfabric does not have it, or it finds no interface that is up",
    };
    let version = library().version();
    refuse_once(
        &SAID,
        format_args!(
            "the core provider {core} of libfabric {}.{} can't carry sealed messages: {why}; choose another with \
             `gambeson run --core NAME` (fi_info lists them)",
            version >> 16,
            version & 0xFFFF
        ),
    );
    Err(Errno(sys::FI_ENODATA))
}

/// Whether an fi_info is of exactly this provider, or stack of providers.
fn is_of(info: &fi_info, provider: &str) -> bool {
    // SAFETY: getinfo's answer has fabric attributes, with names null or strings.
    unsafe { info.fabric_attr.as_ref().and_then(|attr| text(attr.prov_name)) }
        .is_some_and(|name| name.to_bytes() == provider.as_bytes())
}

/// How much of what we need is asked for: all, or less to learn what is missing.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Fit {
    Name,
    Unordered,
    Whole,
}

fn core_hints(provider: &str, names: &Names<'_>, fit: Fit) -> Outcome<Info> {
    let mut hints = library().empty_info()?;
    let info = hints.get_mut();
    // SAFETY: fi_dupinfo(NULL) allocates all parts; what it owns it frees with free().
    unsafe {
        let provider = CString::new(provider).map_err(|_| Errno(sys::FI_EINVAL))?;
        (*info.fabric_attr).prov_name = duplicate(Some(&provider));
        (*info.fabric_attr).name = duplicate(names.fabric);
        (*info.domain_attr).name = duplicate(names.domain);
        if fit >= Fit::Unordered {
            info.caps = sys::FI_MSG | sys::FI_SEND | sys::FI_RECV;
            // Our buffers' headers begin with the larger of both contexts.
            info.mode = sys::FI_CONTEXT | CONTEXT2;
            (*info.ep_attr).type_ = sys::FI_EP_RDM;
            (*info.domain_attr).mr_mode = MR_MODES;
            (*info.domain_attr).threading = sys::FI_THREAD_DOMAIN;
            (*info.domain_attr).control_progress = sys::FI_PROGRESS_MANUAL;
            (*info.domain_attr).__bindgen_anon_1.data_progress = sys::FI_PROGRESS_MANUAL;
            (*info.domain_attr).resource_mgmt = sys::FI_RM_ENABLED;
        }
        if fit == Fit::Whole {
            (*info.tx_attr).msg_order = sys::FI_ORDER_SAS;
            (*info.rx_attr).msg_order = sys::FI_ORDER_SAS;
        }
    }
    Ok(hints)
}

/// What a program asks for, found to be something we offer.
struct Wish<'h> {
    hints: Option<&'h fi_info>,
    version: u32,
    asked_by_name: bool,
}

impl<'h> Wish<'h> {
    /// `None`: a program asks for what we do not have.
    fn of(hints: Option<&'h fi_info>, version: u32) -> Option<Self> {
        let named = |names: &str| names.split([',', ';']).any(|name| name.trim() == "gambeson");
        let mut asked_by_name = env::var("FI_PROVIDER").is_ok_and(|names| named(&names));
        if let Some(hints) = hints {
            // SAFETY: the parts of hints are null or valid.
            let parts = unsafe {
                let name = hints.fabric_attr.as_ref().and_then(|attr| text(attr.prov_name));
                asked_by_name |= name.is_some_and(|name| name.to_str().is_ok_and(named));
                fits_endpoint(hints) && fits_domain(hints) && fits_transfers(hints)
            };
            let caps = hints.caps & !CAPS == 0;
            let mode = hints.mode & MODE == MODE;
            let format = hints.addr_format == sys::FI_FORMAT_UNSPEC;
            // SAFETY: as above.
            let mr = unsafe { hints.domain_attr.as_ref() }.map_or(0, |attr| attr.mr_mode);
            let memory = version >= MR_BITS || mr == 0 || mr & MR_SCALABLE != 0;
            if !(parts && caps && mode && format && memory && hints.handle.is_null()) {
                return None;
            }
        }
        Some(Wish { hints, version, asked_by_name })
    }

    fn names(&self) -> Names<'h> {
        // SAFETY: the parts of hints are null or valid.
        unsafe {
            let fabric = self.hints.and_then(|hints| hints.fabric_attr.as_ref());
            let domain = self.hints.and_then(|hints| hints.domain_attr.as_ref());
            Names { fabric: fabric.and_then(|attr| text(attr.name)), domain: domain.and_then(|attr| text(attr.name)) }
        }
    }

    /// A list of our own for a list of the core's; `None` when none of its interfaces fits.
    fn offer(&self, found: &Info) -> Outcome<Option<Info>> {
        let wanted_source = self.hints.and_then(source).and_then(address::of_card);
        let mut list = List::default();
        for core in found.iter() {
            let Some(address) = core_source(core) else { continue };
            let card = address::unsigned_card(address);
            // An interface is chosen by its address; a card says nothing of the port yet.
            if wanted_source.is_some_and(|wanted| wanted.ip() != address.ip()) {
                continue;
            }
            // A layered core describes one interface several times.
            if list.iter().any(|offered| source(offered) == Some(&card[..])) {
                continue;
            }
            let mut info = library().duplicate(core)?;
            self.adapt(info.get_mut(), &card)?;
            list.push(info);
        }
        Ok(list.into_info())
    }

    /// Turns a copy of the core's fi_info into ours.
    fn adapt(&self, info: &mut fi_info, card: &[u8]) -> Outcome {
        let hinted_caps = self.hints.map_or(0, |hints| hints.caps);
        let caps = if hinted_caps == 0 { CAPS } else { with_implied(hinted_caps) | DOMAIN_CAPS };
        info.caps = caps;
        info.mode = MODE;
        info.addr_format = sys::FI_FORMAT_UNSPEC;
        info.handle = ptr::null_mut();
        // SAFETY: libfabric allocated all parts with malloc, and frees them with free(). Fields that
        // an older library lacks are not touched.
        unsafe {
            libc::free(info.src_addr);
            libc::free(info.dest_addr);
            (info.dest_addr, info.dest_addrlen) = (ptr::null_mut(), 0);
            info.src_addr = libc::malloc(card.len());
            if info.src_addr.is_null() {
                info.src_addrlen = 0;
                return Err(Errno(sys::FI_ENOMEM));
            }
            info.src_addr.cast::<u8>().copy_from_nonoverlapping(card.as_ptr(), card.len());
            info.src_addrlen = card.len();

            let hinted = self.hints.and_then(|hints| hints.tx_attr.as_ref());
            let tx = &mut *info.tx_attr;
            tx.caps = caps & TX_CAPS;
            tx.mode = MODE;
            tx.op_flags = hinted.map_or(0, |hinted| hinted.op_flags);
            tx.msg_order = sys::FI_ORDER_SAS;
            tx.comp_order = 0;
            tx.inject_size = INJECT_MAX;
            tx.size = hinted.map_or(0, |hinted| hinted.size).max(QUEUE);
            tx.iov_limit = crate::carrier::SEGMENTS;
            tx.rma_iov_limit = 1;

            let hinted = self.hints.and_then(|hints| hints.rx_attr.as_ref());
            let rx = &mut *info.rx_attr;
            rx.caps = caps & RX_CAPS;
            rx.mode = MODE;
            rx.op_flags = hinted.map_or(0, |hinted| hinted.op_flags);
            rx.msg_order = sys::FI_ORDER_SAS;
            rx.comp_order = 0;
            rx.size = hinted.map_or(0, |hinted| hinted.size).max(QUEUE);
            rx.iov_limit = crate::carrier::SEGMENTS;

            let ep = &mut *info.ep_attr;
            ep.type_ = sys::FI_EP_RDM;
            ep.protocol = PROTOCOL;
            ep.protocol_version = 1;
            ep.max_msg_size = MAX_MESSAGE;
            ep.msg_prefix_size = 0;
            (ep.max_order_raw_size, ep.max_order_war_size, ep.max_order_waw_size) = (0, 0, 0);
            ep.mem_tag_format = TAG_FORMAT;
            (ep.tx_ctx_cnt, ep.rx_ctx_cnt) = (1, 1);

            let hinted = self.hints.and_then(|hints| hints.domain_attr.as_ref());
            let domain = &mut *info.domain_attr;
            domain.domain = hinted.map_or(ptr::null_mut(), |hinted| hinted.domain);
            domain.threading = match hinted.map_or(0, |hinted| hinted.threading) {
                sys::FI_THREAD_UNSPEC => sys::FI_THREAD_SAFE,
                asked => asked,
            };
            let progress = |asked| if asked == sys::FI_PROGRESS_UNSPEC { sys::FI_PROGRESS_MANUAL } else { asked };
            domain.control_progress = progress(hinted.map_or(0, |hinted| hinted.control_progress));
            domain.__bindgen_anon_1.data_progress =
                progress(hinted.map_or(0, |hinted| hinted.__bindgen_anon_1.data_progress));
            domain.resource_mgmt = sys::FI_RM_ENABLED;
            domain.av_type = match hinted.map_or(0, |hinted| hinted.av_type) {
                sys::FI_AV_UNSPEC => sys::FI_AV_TABLE,
                asked => asked,
            };
            // Offsets count from the beginning of a region, and keys are the program's.
            domain.mr_mode = if self.version < MR_BITS { MR_SCALABLE } else { 0 };
            domain.mr_key_size = size_of::<u64>();
            domain.cq_data_size = size_of::<u64>();
            (domain.max_ep_tx_ctx, domain.max_ep_rx_ctx) = (1, 1);
            (domain.max_ep_stx_ctx, domain.max_ep_srx_ctx) = (0, 0);
            domain.cntr_cnt = domain.cntr_cnt.max(domain.cq_cnt);
            domain.mr_iov_limit = 1;
            domain.caps = DOMAIN_CAPS;
            domain.mode = 0;

            let hinted = self.hints.and_then(|hints| hints.fabric_attr.as_ref());
            let fabric = &mut *info.fabric_attr;
            fabric.fabric = hinted.map_or(ptr::null_mut(), |hinted| hinted.fabric);
            // libfabric writes the name of the provider that it asked.
            libc::free(fabric.prov_name.cast());
            fabric.prov_name = ptr::null_mut();
        }
        Ok(())
    }
}

/// Capabilities with the directions they imply: what has no direction goes both ways.
fn with_implied(mut caps: u64) -> u64 {
    let messages = sys::FI_SEND | sys::FI_RECV;
    let memory = sys::FI_READ | sys::FI_WRITE | sys::FI_REMOTE_READ | sys::FI_REMOTE_WRITE;
    if caps & (sys::FI_MSG | sys::FI_TAGGED) != 0 && caps & messages == 0 {
        caps |= messages;
    }
    if caps & sys::FI_RMA != 0 && caps & memory == 0 {
        caps |= memory;
    }
    caps
}

/// # Safety
/// The parts of `hints` are null or valid.
unsafe fn fits_endpoint(hints: &fi_info) -> bool {
    // SAFETY: promised by the caller.
    unsafe { hints.ep_attr.as_ref() }.is_none_or(|ep| {
        matches!(ep.type_, sys::FI_EP_UNSPEC | sys::FI_EP_RDM)
            && matches!(ep.protocol, sys::FI_PROTO_UNSPEC | PROTOCOL)
            && ep.max_msg_size <= MAX_MESSAGE
            && ep.tx_ctx_cnt <= 1
            && ep.rx_ctx_cnt <= 1
            && ep.max_order_raw_size == 0
            && ep.max_order_war_size == 0
            && ep.max_order_waw_size == 0
    })
}

/// # Safety
/// The parts of `hints` are null or valid.
unsafe fn fits_domain(hints: &fi_info) -> bool {
    // SAFETY: promised by the caller.
    let (domain, fabric) = unsafe { (hints.domain_attr.as_ref(), hints.fabric_attr.as_ref()) };
    let fabric = fabric.is_none_or(|attr| attr.fabric.is_null() || fabric::is_ours(attr.fabric));
    let domain = domain.is_none_or(|attr| {
        (attr.domain.is_null() || domain::is_ours(attr.domain))
            && attr.threading <= sys::FI_THREAD_ENDPOINT
            && matches!(attr.av_type, sys::FI_AV_UNSPEC | sys::FI_AV_MAP | sys::FI_AV_TABLE)
            && attr.cq_data_size <= size_of::<u64>()
            && attr.caps & !DOMAIN_CAPS == 0
            && attr.max_ep_tx_ctx <= 1
            && attr.max_ep_rx_ctx <= 1
    });
    fabric && domain
}

/// # Safety
/// The parts of `hints` are null or valid.
unsafe fn fits_transfers(hints: &fi_info) -> bool {
    // SAFETY: promised by the caller.
    let (tx, rx) = unsafe { (hints.tx_attr.as_ref(), hints.rx_attr.as_ref()) };
    let tx = tx.is_none_or(|attr| {
        attr.caps & !(CAPS) == 0
            && attr.op_flags & !TX_FLAGS == 0
            && attr.msg_order & !sys::FI_ORDER_SAS == 0
            && attr.inject_size <= INJECT_MAX
            && attr.iov_limit <= crate::carrier::SEGMENTS
    });
    let rx = rx.is_none_or(|attr| {
        attr.caps & !(CAPS) == 0
            && attr.op_flags & !RX_FLAGS == 0
            && attr.msg_order & !sys::FI_ORDER_SAS == 0
            && attr.iov_limit <= crate::carrier::SEGMENTS
    });
    tx && rx
}

/// The card in an fi_info of ours.
fn source(info: &fi_info) -> Option<&[u8]> {
    // SAFETY: the address is null or has the length that is said.
    (!info.src_addr.is_null())
        .then(|| unsafe { std::slice::from_raw_parts(info.src_addr.cast::<u8>(), info.src_addrlen) })
}

/// The address in an fi_info of the core.
fn core_source(info: &fi_info) -> Option<std::net::SocketAddr> {
    // SAFETY: the address is null or has the length that is said.
    unsafe { address::read(info.src_addr.cast(), info.src_addrlen) }
}

/// Whether the core's addresses fit a card.
fn is_ip(core: &fi_info) -> bool {
    matches!(core.addr_format, sys::FI_SOCKADDR | sys::FI_SOCKADDR_IN | sys::FI_SOCKADDR_IN6 | sys::FI_SOCKADDR_IP)
        && core_source(core).is_some()
}

/// # Safety
/// `text` is null or a string that lives as long as the caller uses it.
unsafe fn text<'t>(text: *const c_char) -> Option<&'t CStr> {
    // SAFETY: promised by the caller.
    (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) })
}

/// A copy that libfabric may free.
fn duplicate(text: Option<&CStr>) -> *mut c_char {
    // SAFETY: strdup of a string.
    text.map_or(ptr::null_mut(), |text| unsafe { libc::strdup(text.as_ptr()) })
}

/// libfabric's internal flag: another provider looks for one to build on.
const CORE_PROVIDERS_ONLY: u64 = 1 << 59;
/// FI_CONTEXT2.
const CONTEXT2: u64 = 1 << 52;
/// FI_MR_LOCAL and what costs a core's user nothing: virtual addresses, allocated memory, the
/// provider's keys, one endpoint per region.
const MR_MODES: c_int = 1 << 2 | 1 << 4 | 1 << 5 | 1 << 6;
/// FI_MR_SCALABLE, before mr_mode was a set of bits.
const MR_SCALABLE: c_int = 2;
/// The interface version that made it one.
const MR_BITS: u32 = 1 << 16 | 5;
/// Ours alone: the top bit marks protocols of single providers.
const PROTOCOL: u32 = 1 << 31 | u32::from_be_bytes(*b"\0gbs");
/// All 64 bits of a tag are the program's (FI_TAG_GENERIC).
const TAG_FORMAT: u64 = 0xAAAA_AAAA_AAAA_AAAA;
/// Operations that may be outstanding: what is shown, since queues grow.
const QUEUE: usize = 65536;
