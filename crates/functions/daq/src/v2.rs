//! The module interface of libdaq 2 (API version 0x00010002).
//!
//! libdaq calls `acquire`, which calls the callback for each packet. The callback returns the verdict, and
//! may call `inject`. `breakloop` may come from a signal handler or another thread.

#![allow(unsafe_code)]

use core::cell::RefCell;
use core::ffi::{CStr, c_char, c_int, c_uint, c_void};
use core::sync::atomic::{AtomicBool, Ordering};
use std::collections::VecDeque;
use std::ffi::CString;
use std::time::{Duration, Instant};

use crate::SnortVerdict;
pub use crate::c::TimeValue;
use crate::c::{
    self, ERROR, ERROR_INVAL, ERROR_NODEV, ERROR_NOTSUP, ETHERNET, SUCCESS, UNKNOWN, handle, pause,
};
use crate::options::Options;
use crate::session::{Packet, Session};

/// `DAQ_API_VERSION`.
pub const API_VERSION: u32 = 0x0001_0002;
/// The delay before a packet is offered again (`DAQ_VERDICT_RETRY`).
const RETRY_AFTER: Duration = Duration::from_millis(10);
/// Maximum number of packets before answers are made visible to the switch.
const FLUSH: usize = 16;

/// `DAQ_MODE_INLINE`.
pub const MODE_INLINE: c_int = 1;
/// `DAQ_MODE_READ_FILE`.
const MODE_READ_FILE: c_int = 2;

/// Interfaces, inline, several instances in one process.
const TYPE: u32 = 0x02 | 0x04 | 0x08;
/// Block, replace, inject, whitelist, blacklist, start without rights, breakloop, retry.
pub const CAPABILITIES: u32 = 0x01 | 0x02 | 0x04 | 0x08 | 0x10 | 0x20 | 0x40 | 0x400;

const INITIALIZED: c_int = 1;
const STARTED: c_int = 2;
const STOPPED: c_int = 3;

/// `DAQ_PktHdr_t`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct PacketHeader {
    /// The time of arrival.
    pub ts: TimeValue,
    /// Bytes at the data pointer.
    pub caplen: u32,
    /// Bytes of the packet.
    pub pktlen: u32,
    /// 0 for forward packets, 1 for backward ones.
    pub ingress_index: i32,
    /// 1 for forward packets, 0 for backward ones.
    pub egress_index: i32,
    /// Unknown (-1).
    pub ingress_group: i32,
    /// Unknown (-1).
    pub egress_group: i32,
    /// None.
    pub flags: u32,
    /// 0.
    pub opaque: u32,
    /// Null.
    pub priv_ptr: *mut c_void,
    /// 0.
    pub flow_id: u32,
    /// 0.
    pub address_space_id: u16,
}

/// `DAQ_Dict`, a list of variables.
#[repr(C)]
#[derive(Debug)]
pub struct Dict {
    /// The name.
    pub key: *mut c_char,
    pub value: *mut c_char,
    /// The next variable, or null.
    pub next: *mut Dict,
}

/// `DAQ_Config_t`.
#[repr(C)]
#[derive(Debug)]
pub struct Config {
    /// The input.
    pub name: *mut c_char,
    /// The snapshot length.
    pub snaplen: c_int,
    /// The time limit of `acquire` without packets, in milliseconds; 0 for none.
    pub timeout: c_uint,
    pub mode: c_int,
    pub flags: u32,
    /// The variables.
    pub values: *mut Dict,
    /// Unused.
    pub extra: *mut c_char,
}

/// `DAQ_Stats_t`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stats {
    /// Packets that arrived.
    pub hw_packets_received: u64,
    /// 0: the switch counts packets that it drops.
    pub hw_packets_dropped: u64,
    /// Packets passed to Snort.
    pub packets_received: u64,
    /// 0.
    pub packets_filtered: u64,
    pub packets_injected: u64,
    /// Packets by verdict.
    pub verdicts: [u64; SnortVerdict::LEN],
}

/// `DAQ_Analysis_Func_t`.
pub type Analysis = unsafe extern "C" fn(*mut c_void, *const PacketHeader, *const u8) -> c_int;

/// `DAQ_Module_t`. Its fields have the names of the interface.
#[repr(C)]
pub struct Module {
    pub api_version: u32,
    pub module_version: u32,
    pub name: *const c_char,
    pub kind: u32,
    pub initialize: unsafe extern "C" fn(*const Config, *mut *mut c_void, *mut c_char, usize) -> c_int,
    pub set_filter: unsafe extern "C" fn(*mut c_void, *const c_char) -> c_int,
    pub start: unsafe extern "C" fn(*mut c_void) -> c_int,
    pub acquire:
        unsafe extern "C" fn(*mut c_void, c_int, Option<Analysis>, *const c_void, *mut c_void) -> c_int,
    pub inject: unsafe extern "C" fn(*mut c_void, *const PacketHeader, *const u8, u32, c_int) -> c_int,
    pub breakloop: unsafe extern "C" fn(*mut c_void) -> c_int,
    pub stop: unsafe extern "C" fn(*mut c_void) -> c_int,
    pub shutdown: unsafe extern "C" fn(*mut c_void),
    pub check_status: unsafe extern "C" fn(*mut c_void) -> c_int,
    pub get_stats: unsafe extern "C" fn(*mut c_void, *mut Stats) -> c_int,
    pub reset_stats: unsafe extern "C" fn(*mut c_void),
    pub get_snaplen: unsafe extern "C" fn(*mut c_void) -> c_int,
    pub get_capabilities: unsafe extern "C" fn(*mut c_void) -> u32,
    pub get_datalink_type: unsafe extern "C" fn(*mut c_void) -> c_int,
    pub get_errbuf: unsafe extern "C" fn(*mut c_void) -> *const c_char,
    pub set_errbuf: unsafe extern "C" fn(*mut c_void, *const c_char),
    pub get_device_index: unsafe extern "C" fn(*mut c_void, *const c_char) -> c_int,
    pub modify_flow: unsafe extern "C" fn(*mut c_void, *const PacketHeader, *const c_void) -> c_int,
    pub hup_prep: unsafe extern "C" fn(*mut c_void, *mut *mut c_void) -> c_int,
    pub hup_apply: unsafe extern "C" fn(*mut c_void, *mut c_void, *mut *mut c_void) -> c_int,
    pub hup_post: unsafe extern "C" fn(*mut c_void, *mut c_void) -> c_int,
    pub dp_add_dc:
        unsafe extern "C" fn(*mut c_void, *const PacketHeader, *mut c_void, *const u8, *mut c_void) -> c_int,
}

// SAFETY: the value is constant; its pointers point to constants and functions.
unsafe impl Sync for Module {}

const NAME: &CStr = c"millrace";

pub const MODULE: Module = Module {
    api_version: API_VERSION,
    module_version: 1,
    name: NAME.as_ptr(),
    kind: TYPE,
    initialize,
    set_filter,
    start,
    acquire,
    inject,
    breakloop,
    stop,
    shutdown,
    check_status,
    get_stats,
    reset_stats,
    get_snaplen,
    get_capabilities,
    get_datalink_type,
    get_errbuf,
    set_errbuf,
    get_device_index,
    modify_flow,
    hup_prep,
    hup_apply,
    hup_post,
    dp_add_dc,
};

/// One instance of the module, which one thread of Snort uses.
struct Context {
    /// Set from any thread.
    is_interrupted: AtomicBool,
    state: RefCell<State>,
    snaplen: c_int,
    timeout: Option<Duration>,
}

struct State {
    session: Session,
    status: c_int,
    error: CString,
    /// Packets to be offered again, with the time.
    retries: VecDeque<(Instant, Packet)>,
    /// The packet that the callback has.
    current: Option<Packet>,
    /// The statistics at the last reset.
    reset: Stats,
}

impl State {
    fn stats(&self) -> Stats {
        let (received, injected) = self.session.totals();
        Stats {
            hw_packets_received: received,
            packets_received: received,
            packets_injected: injected,
            verdicts: self.session.verdicts(),
            ..Stats::default()
        }
    }

    /// Returns the next packet, and true if it is offered for the second time.
    fn next(&mut self) -> Option<(Packet, bool)> {
        if self
            .retries
            .front()
            .is_some_and(|(due, _)| *due <= Instant::now())
        {
            let (_, packet) = self.retries.pop_front()?;
            return Some((packet, true));
        }
        Some((self.session.receive()?, false))
    }

    fn finish(&mut self, packet: Packet, is_second: bool, verdict: c_int) {
        self.current = None;
        // A number that is no verdict drops the packet, as an unknown decision must not let it pass.
        let verdict = SnortVerdict::from_raw(verdict).unwrap_or(SnortVerdict::Block);
        match verdict {
            SnortVerdict::Retry if !is_second => {
                self.retries.push_back((Instant::now() + RETRY_AFTER, packet));
            }
            verdict => self.session.finish(&packet, verdict),
        }
    }

    fn fail(&mut self, text: &str) -> c_int {
        self.error = CString::new(text.replace('\0', " ")).unwrap_or_default();
        ERROR
    }
}

/// Returns the variables of a configuration.
///
/// # Safety
/// The list and its strings are valid.
unsafe fn variables<'a>(mut list: *const Dict) -> Vec<(&'a str, &'a str)> {
    let mut found = Vec::new();
    // SAFETY: by the contract of this function.
    while let Some(entry) = unsafe { list.as_ref() } {
        // SAFETY: as above.
        let key = unsafe { c::text(entry.key) };
        // SAFETY: as above.
        let value = unsafe { c::text(entry.value) };
        found.push((key, value));
        list = entry.next;
    }
    found
}

unsafe extern "C" fn initialize(
    config: *const Config,
    context: *mut *mut c_void,
    errors: *mut c_char,
    size: usize,
) -> c_int {
    // SAFETY: libdaq passes a configuration that lives during the call.
    let Some(config) = (unsafe { config.as_ref() }) else {
        return ERROR_INVAL;
    };
    // SAFETY: as above.
    let input = unsafe { c::text(config.name) };
    // SAFETY: as above.
    let variables = unsafe { variables(config.values) };
    let options = match config.mode {
        MODE_READ_FILE => Err("the module reads no files: expected mode inline or passive".to_owned()),
        mode => Options::new(input, mode == MODE_INLINE, variables).map_err(|error| error.to_string()),
    };
    let options = match options {
        Ok(options) => options,
        Err(error) => {
            // SAFETY: libdaq passes a buffer of this size.
            unsafe { c::write_text(errors, size, &format!("millrace: {error}")) };
            return ERROR;
        }
    };
    let made = Box::new(Context {
        is_interrupted: AtomicBool::new(false),
        state: RefCell::new(State {
            session: Session::new(options),
            status: INITIALIZED,
            error: CString::default(),
            retries: VecDeque::new(),
            current: None,
            reset: Stats::default(),
        }),
        snaplen: config.snaplen,
        timeout: (config.timeout != 0).then(|| Duration::from_millis(config.timeout.into())),
    });
    // SAFETY: libdaq passes memory for the handle.
    unsafe { context.write(Box::into_raw(made).cast()) };
    SUCCESS
}

/// Calls a function with the context of a handle and its state. Returns `otherwise` if the handle is null, or the state
/// is in use.
///
/// # Safety
/// The handle is null or was made by [`initialize`] and not shut down.
unsafe fn with<R>(pointer: *mut c_void, otherwise: R, call: impl FnOnce(&Context, &mut State) -> R) -> R {
    // SAFETY: by the contract of this function.
    let Some(context) = (unsafe { handle::<Context>(pointer) }) else {
        return otherwise;
    };
    match context.state.try_borrow_mut() {
        Ok(mut state) => call(context, &mut state),
        Err(_) => otherwise,
    }
}

unsafe extern "C" fn set_filter(pointer: *mut c_void, filter: *const c_char) -> c_int {
    // SAFETY: libdaq passes a string.
    let filter = unsafe { c::text(filter) };
    if filter.trim().is_empty() {
        return SUCCESS;
    }
    let text = "millrace: no filters: steer packets by flow entries of the switch";
    // SAFETY: libdaq passes its handle.
    unsafe { with(pointer, ERROR, |_, state| state.fail(text)) };
    ERROR_NOTSUP
}

unsafe extern "C" fn start(pointer: *mut c_void) -> c_int {
    let call = |_: &Context, state: &mut State| match state.session.attach() {
        Ok(()) => {
            state.status = STARTED;
            SUCCESS
        }
        Err(error) => {
            state.fail(&format!("millrace: {error}"));
            ERROR_NODEV
        }
    };
    // SAFETY: libdaq passes its handle.
    unsafe { with(pointer, ERROR_INVAL, call) }
}

unsafe extern "C" fn acquire(
    pointer: *mut c_void,
    count: c_int,
    analysis: Option<Analysis>,
    _meta: *const c_void,
    user: *mut c_void,
) -> c_int {
    // SAFETY: libdaq passes its handle.
    let (Some(context), Some(analysis)) = (unsafe { handle::<Context>(pointer) }, analysis) else {
        return ERROR_INVAL;
    };
    let (mut done, mut unflushed, mut polls, mut idle_since) = (0, 0, 0, Instant::now());
    while count <= 0 || done < count {
        if context.is_interrupted.swap(false, Ordering::Relaxed) {
            break;
        }
        // The state is not borrowed while Snort works on the packet, because Snort may inject packets then.
        let next = match context.state.try_borrow_mut() {
            Ok(mut state) => {
                let next = state.next();
                state.current = next.map(|(packet, _)| packet);
                if next.is_none() || unflushed >= FLUSH {
                    state.session.flush();
                    state.session.tick();
                    unflushed = 0;
                }
                next
            }
            Err(_) => return ERROR,
        };
        let Some((packet, is_second)) = next else {
            if !pause(&mut polls, idle_since, context.timeout) {
                break;
            }
            continue;
        };
        let header = header(&packet, context.snaplen);
        // SAFETY: the header lives during the call, and the bytes until the packet is finished.
        let verdict = unsafe { analysis(user, &raw const header, packet.received.bytes.as_ptr()) };
        match context.state.try_borrow_mut() {
            Ok(mut state) => state.finish(packet, is_second, verdict),
            Err(_) => return ERROR,
        }
        done += 1;
        unflushed += 1;
        (polls, idle_since) = (0, Instant::now());
    }
    // SAFETY: as above.
    unsafe { with(pointer, (), |_, state| state.session.flush()) };
    SUCCESS
}

/// Returns the header of a packet.
fn header(packet: &Packet, snaplen: c_int) -> PacketHeader {
    let received = &packet.received;
    let limit = usize::try_from(snaplen).ok().filter(|limit| *limit != 0);
    let ingress = c::ingress(packet.direction());
    PacketHeader {
        ts: TimeValue::now(),
        caplen: received.size.min(limit.unwrap_or(usize::MAX)) as u32,
        pktlen: received.total as u32,
        ingress_index: ingress,
        egress_index: 1 - ingress,
        ingress_group: UNKNOWN,
        egress_group: UNKNOWN,
        flags: 0,
        opaque: 0,
        priv_ptr: core::ptr::null_mut(),
        flow_id: 0,
        address_space_id: 0,
    }
}

unsafe extern "C" fn inject(
    pointer: *mut c_void,
    header: *const PacketHeader,
    data: *const u8,
    size: u32,
    reverse: c_int,
) -> c_int {
    // SAFETY: Snort passes the header of a packet that it has, or a copy.
    let Some(header) = (unsafe { header.as_ref() }) else {
        return ERROR_INVAL;
    };
    if data.is_null() {
        return ERROR_INVAL;
    }
    let direction = c::direction(header.ingress_index, reverse != 0);
    // SAFETY: Snort passes as many bytes.
    let frame = unsafe { core::slice::from_raw_parts(data, size as usize) };
    let call = |_: &Context, state: &mut State| {
        let current = state.current;
        match state.session.inject(current.as_ref(), direction, frame) {
            true => SUCCESS,
            false => state
                .fail("millrace: the packet cannot be sent: expected 1514 bytes at most, and fewer packets"),
        }
    };
    // SAFETY: libdaq passes its handle.
    unsafe { with(pointer, ERROR, call) }
}

unsafe extern "C" fn breakloop(pointer: *mut c_void) -> c_int {
    // SAFETY: libdaq passes its handle. Only the flag is used, which any thread may set.
    let Some(context) = (unsafe { handle::<Context>(pointer) }) else {
        return ERROR_INVAL;
    };
    context.is_interrupted.store(true, Ordering::Relaxed);
    SUCCESS
}

unsafe extern "C" fn stop(pointer: *mut c_void) -> c_int {
    let call = |_: &Context, state: &mut State| {
        // Packets that wait for another try are decided now.
        for (_, packet) in core::mem::take(&mut state.retries) {
            state.session.finish(&packet, SnortVerdict::Retry);
        }
        state.session.close();
        state.status = STOPPED;
        SUCCESS
    };
    // SAFETY: libdaq passes its handle.
    unsafe { with(pointer, ERROR, call) }
}

unsafe extern "C" fn shutdown(pointer: *mut c_void) {
    if !pointer.is_null() {
        // SAFETY: `initialize` made the handle, and libdaq does not use it again.
        drop(unsafe { Box::from_raw(pointer.cast::<Context>()) });
    }
}

unsafe extern "C" fn check_status(pointer: *mut c_void) -> c_int {
    // SAFETY: libdaq passes its handle.
    unsafe { with(pointer, 0, |_, state| state.status) }
}

unsafe extern "C" fn get_stats(pointer: *mut c_void, stats: *mut Stats) -> c_int {
    let call = |_: &Context, state: &mut State| {
        let (now, reset) = (state.stats(), state.reset);
        Stats {
            hw_packets_received: now.hw_packets_received - reset.hw_packets_received,
            hw_packets_dropped: 0,
            packets_received: now.packets_received - reset.packets_received,
            packets_filtered: 0,
            packets_injected: now.packets_injected - reset.packets_injected,
            verdicts: core::array::from_fn(|index| now.verdicts[index] - reset.verdicts[index]),
        }
    };
    // SAFETY: libdaq passes its handle.
    let Some(found) = (unsafe { with(pointer, None, |context, state| Some(call(context, state))) }) else {
        return ERROR;
    };
    if stats.is_null() {
        return ERROR_INVAL;
    }
    // SAFETY: libdaq passes memory for the statistics.
    unsafe { stats.write(found) };
    SUCCESS
}

unsafe extern "C" fn reset_stats(pointer: *mut c_void) {
    // SAFETY: libdaq passes its handle.
    unsafe { with(pointer, (), |_, state| state.reset = state.stats()) };
}

unsafe extern "C" fn get_snaplen(pointer: *mut c_void) -> c_int {
    // SAFETY: libdaq passes its handle.
    unsafe { with(pointer, ERROR, |context, _| context.snaplen) }
}

unsafe extern "C" fn get_capabilities(_: *mut c_void) -> u32 {
    CAPABILITIES
}

unsafe extern "C" fn get_datalink_type(_: *mut c_void) -> c_int {
    ETHERNET
}

unsafe extern "C" fn get_errbuf(pointer: *mut c_void) -> *const c_char {
    // SAFETY: libdaq passes its handle, and copies the text before the next call.
    unsafe { with(pointer, c"".as_ptr(), |_, state| state.error.as_ptr()) }
}

unsafe extern "C" fn set_errbuf(pointer: *mut c_void, text: *const c_char) {
    // SAFETY: libdaq passes a string.
    let text = unsafe { c::text(text) };
    // SAFETY: libdaq passes its handle.
    unsafe { with(pointer, ERROR, |_, state| state.fail(text)) };
}

unsafe extern "C" fn get_device_index(_: *mut c_void, _: *const c_char) -> c_int {
    ERROR_NOTSUP
}

unsafe extern "C" fn modify_flow(_: *mut c_void, _: *const PacketHeader, _: *const c_void) -> c_int {
    ERROR_NOTSUP
}

unsafe extern "C" fn hup_prep(_: *mut c_void, _: *mut *mut c_void) -> c_int {
    SUCCESS
}

unsafe extern "C" fn hup_apply(_: *mut c_void, _: *mut c_void, _: *mut *mut c_void) -> c_int {
    SUCCESS
}

unsafe extern "C" fn hup_post(_: *mut c_void, _: *mut c_void) -> c_int {
    SUCCESS
}

unsafe extern "C" fn dp_add_dc(
    _: *mut c_void,
    _: *const PacketHeader,
    _: *mut c_void,
    _: *const u8,
    _: *mut c_void,
) -> c_int {
    ERROR_NOTSUP
}
