//! The module interface of libdaq 3 (module API version 0x00030001, base API version 0x00030002).
//!
//! libdaq takes messages with `msg_receive`, up to as many as the instance has, and gives each back with `msg_finalize` and its
//! verdict, in any order.

#![allow(unsafe_code)]

mod interface;

use core::cell::RefCell;
use core::ffi::{CStr, c_char, c_int, c_uint, c_void};
use core::ptr::{null, null_mut};
use core::sync::atomic::{AtomicBool, AtomicPtr, Ordering};
use std::ffi::CString;
use std::time::{Duration, Instant};

use crate::SnortVerdict;
use crate::c::{
    self, ERROR, ERROR_INVAL, ERROR_NODEV, ERROR_NOTSUP, ETHERNET, SUCCESS, UNKNOWN, handle, pause,
};
use crate::options::{Options, VARIABLES};
use crate::session::{Packet, Session};
pub use interface::*;
use interface::{META, MODE_READ_FILE, TYPE};

/// Messages of a pool if the configuration gives no number.
const POOL: usize = 256;
/// Limit of the messages of a pool: the slots of a window.
const POOL_MAX: usize = 1024;
/// Finalised messages after which answers are made visible at the latest.
const FLUSH: usize = 16;

// SAFETY: the value is constant; its pointers lead to constants and functions.
unsafe impl Sync for Module {}

pub const MODULE: Module = Module {
    api_version: API_VERSION,
    api_size: size_of::<Module>() as u32,
    module_version: 1,
    name: c"millrace".as_ptr(),
    kind: TYPE,
    load,
    unload,
    get_variable_descs,
    instantiate,
    destroy,
    set_filter,
    start,
    inject,
    inject_relative,
    interrupt,
    stop,
    ioctl,
    get_stats,
    reset_stats,
    get_snaplen,
    get_capabilities,
    get_datalink_type,
    config_load: null(),
    config_swap: null(),
    config_free: null(),
    msg_receive,
    msg_finalize,
    get_msg_pool_info,
};

/// The functions of libdaq, from [`load`] to [`unload`].
static BASE: AtomicPtr<BaseApi> = AtomicPtr::new(null_mut());

/// A message of the pool, with the data to which it points. It does not move in memory.
struct Slot {
    message: Message,
    header: PacketHeader,
    /// The packet while libdaq holds the message.
    packet: Option<Packet>,
}

/// One instance of the module, which one thread of Snort uses.
struct Context {
    /// Set from any thread.
    is_interrupted: AtomicBool,
    state: RefCell<State>,
    snaplen: c_int,
    timeout: Option<Duration>,
    /// The instance of libdaq.
    owner: *mut c_void,
}

struct State {
    session: Session,
    pool: Box<[Slot]>,
    /// The numbers of the messages that libdaq does not hold.
    free: Vec<usize>,
    unflushed: usize,
    reset: Stats,
}

unsafe extern "C" fn load(base: *const BaseApi) -> c_int {
    // SAFETY: libdaq passes its functions, which live as long as the module is loaded.
    let Some(found) = (unsafe { base.as_ref() }) else {
        return ERROR_INVAL;
    };
    if found.api_version != BASE_API_VERSION || found.api_size as usize != size_of::<BaseApi>() {
        return ERROR_INVAL;
    }
    BASE.store(base.cast_mut(), Ordering::Release);
    SUCCESS
}

unsafe extern "C" fn unload() -> c_int {
    BASE.store(null_mut(), Ordering::Release);
    SUCCESS
}

/// Returns the functions of libdaq.
fn base() -> Option<BaseApi> {
    let base = BASE.load(Ordering::Acquire);
    // SAFETY: `load` stored a pointer that is valid until `unload`.
    unsafe { base.as_ref() }.copied()
}

/// Reports an error for an instance of libdaq. Returns `code`.
fn fail(owner: *mut c_void, code: c_int, text: &str) -> c_int {
    let text = CString::new(format!("millrace: {text}").replace('\0', " ")).unwrap_or_default();
    if let Some(base) = base() {
        let format: &CStr = c"%s";
        // SAFETY: libdaq formats one string, which lives during the call.
        unsafe { (base.set_errbuf)(owner, format.as_ptr(), text.as_ptr()) };
    }
    code
}

unsafe extern "C" fn get_variable_descs(table: *mut *const Variable) -> c_int {
    struct Table([Variable; 4]);
    // SAFETY: the value is constant, and its pointers lead to strings that live as long as the program.
    unsafe impl Send for Table {}
    // SAFETY: as above.
    unsafe impl Sync for Table {}
    static DESCRIPTIONS: std::sync::OnceLock<Table> = std::sync::OnceLock::new();
    let described = DESCRIPTIONS.get_or_init(|| {
        let leak = |text: &str| CString::new(text).unwrap_or_default().into_raw().cast_const();
        Table(VARIABLES.map(|(name, about)| Variable {
            name: leak(name),
            description: leak(about),
            flags: 1,
        }))
    });
    if table.is_null() {
        return ERROR_INVAL;
    }
    // SAFETY: libdaq passes a place for the table.
    unsafe { table.write(described.0.as_ptr()) };
    described.0.len() as c_int
}

/// Returns the options of a configuration.
///
/// # Safety
/// The configuration is one of libdaq.
unsafe fn options(base: &BaseApi, config: *mut c_void) -> Result<Options, String> {
    // SAFETY: by the contract of this function.
    let input = unsafe { (base.config_get_input)(config) };
    // SAFETY: libdaq returns a string that lives as long as the configuration, or null.
    let input = unsafe { c::text(input) };
    // SAFETY: as above.
    let mode = unsafe { (base.config_get_mode)(config) };
    if mode == MODE_READ_FILE {
        return Err("the module reads no files: expected mode inline or passive".to_owned());
    }
    let mut variables = Vec::new();
    let (mut key, mut value) = (null(), null());
    // SAFETY: as above; libdaq writes two pointers.
    let mut found = unsafe { (base.config_first_variable)(config, &raw mut key, &raw mut value) };
    while found == SUCCESS && !key.is_null() {
        // SAFETY: libdaq returns strings that live as long as the configuration, or null.
        let name = unsafe { c::text(key) };
        // SAFETY: as above.
        variables.push((name, unsafe { c::text(value) }));
        // SAFETY: as above.
        found = unsafe { (base.config_next_variable)(config, &raw mut key, &raw mut value) };
    }
    let mut options =
        Options::new(input, mode == MODE_INLINE, variables).map_err(|error| error.to_string())?;
    // SAFETY: as above.
    let instance = unsafe { (base.config_get_instance_id)(config) };
    // SAFETY: as above.
    let total = unsafe { (base.config_get_total_instances)(config) };
    if options.instance.is_none() && total > 1 {
        // libdaq numbers instances from 1.
        options.instance = Some(instance.saturating_sub(1));
    }
    Ok(options)
}

unsafe extern "C" fn instantiate(
    config: *mut c_void,
    owner: *mut c_void,
    context: *mut *mut c_void,
) -> c_int {
    let Some(base) = base() else { return ERROR };
    // SAFETY: libdaq passes its configuration.
    let options = match unsafe { options(&base, config) } {
        Ok(options) => options,
        Err(error) => return fail(owner, ERROR_INVAL, &error),
    };
    // SAFETY: as above.
    let size = unsafe { (base.config_get_msg_pool_size)(config) } as usize;
    // SAFETY: as above.
    let timeout = unsafe { (base.config_get_timeout)(config) };
    // SAFETY: as above.
    let snaplen = unsafe { (base.config_get_snaplen)(config) };
    let size = if size == 0 { POOL } else { size.min(POOL_MAX) };
    let pool: Box<[Slot]> = (0..size).map(|number| slot(number, owner)).collect();
    let made = Box::new(Context {
        is_interrupted: AtomicBool::new(false),
        state: RefCell::new(State {
            session: Session::new(options),
            free: (0..size).rev().collect(),
            pool,
            unflushed: 0,
            reset: Stats::default(),
        }),
        snaplen,
        timeout: (timeout != 0).then(|| Duration::from_millis(timeout.into())),
        owner,
    });
    // SAFETY: libdaq passes a place for the handle.
    unsafe { context.write(Box::into_raw(made).cast()) };
    SUCCESS
}

/// Returns a message of the pool.
fn slot(number: usize, owner: *mut c_void) -> Slot {
    Slot {
        message: Message {
            hdr: null_mut(),
            data: null_mut(),
            meta: [null_mut(); META],
            owner,
            private: core::ptr::without_provenance_mut(number),
            hdr_len: size_of::<PacketHeader>(),
            kind: PACKET,
            data_len: 0,
        },
        header: PacketHeader {
            ts: TimeValue::default(),
            pktlen: 0,
            ingress_index: 0,
            egress_index: 0,
            ingress_group: UNKNOWN as i16,
            egress_group: UNKNOWN as i16,
            opaque: 0,
            flow_id: 0,
            flags: 0,
            address_space_id: 0,
            tenant_id: 0,
        },
        packet: None,
    }
}

/// Calls a function with the context of a handle and its state. Returns `otherwise` if the handle is null, or the state in use.
///
/// # Safety
/// The handle is null or was made by [`instantiate`] and not destroyed.
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

unsafe extern "C" fn destroy(pointer: *mut c_void) {
    if !pointer.is_null() {
        // SAFETY: `instantiate` made the handle, and libdaq does not use it again.
        drop(unsafe { Box::from_raw(pointer.cast::<Context>()) });
    }
}

unsafe extern "C" fn set_filter(pointer: *mut c_void, filter: *const c_char) -> c_int {
    // SAFETY: libdaq passes a string.
    if unsafe { c::text(filter) }.trim().is_empty() {
        return SUCCESS;
    }
    let text = "no filters: steer packets by flow entries of the switch";
    let call = |context: &Context, _: &mut State| fail(context.owner, ERROR_NOTSUP, text);
    // SAFETY: libdaq passes its handle.
    unsafe { with(pointer, ERROR_NOTSUP, call) }
}

unsafe extern "C" fn start(pointer: *mut c_void) -> c_int {
    let call = |context: &Context, state: &mut State| match state.session.attach() {
        Ok(()) => SUCCESS,
        Err(error) => fail(context.owner, ERROR_NODEV, &error.to_string()),
    };
    // SAFETY: libdaq passes its handle.
    unsafe { with(pointer, ERROR_INVAL, call) }
}

/// Sends a frame of the caller.
///
/// # Safety
/// `data` leads to `size` bytes.
unsafe fn send(
    pointer: *mut c_void,
    (ingress, reverse): (i32, bool),
    message: Option<*const Message>,
    data: *const u8,
    size: u32,
) -> c_int {
    if data.is_null() {
        return ERROR_INVAL;
    }
    // SAFETY: by the contract of this function.
    let frame = unsafe { core::slice::from_raw_parts(data, size as usize) };
    let call = |context: &Context, state: &mut State| {
        let packet = message
            .and_then(|message| state.find(message))
            .map(|(_, packet)| packet);
        match state
            .session
            .inject(packet.as_ref(), c::direction(ingress, reverse), frame)
        {
            true => SUCCESS,
            false => fail(
                context.owner,
                ERROR,
                "the packet cannot be sent: expected 1514 bytes at most, and fewer packets",
            ),
        }
    };
    // SAFETY: libdaq passes its handle.
    unsafe { with(pointer, ERROR, call) }
}

unsafe extern "C" fn inject(
    pointer: *mut c_void,
    kind: u32,
    header: *const c_void,
    data: *const u8,
    size: u32,
) -> c_int {
    if kind != PACKET {
        return ERROR_NOTSUP;
    }
    // SAFETY: Snort passes the header of a packet.
    let Some(header) = (unsafe { header.cast::<PacketHeader>().as_ref() }) else {
        return ERROR_INVAL;
    };
    // SAFETY: Snort passes as many bytes.
    unsafe { send(pointer, (header.ingress_index, false), None, data, size) }
}

unsafe extern "C" fn inject_relative(
    pointer: *mut c_void,
    message: *const Message,
    data: *const u8,
    size: u32,
    reverse: c_int,
) -> c_int {
    let find = |_: &Context, state: &mut State| state.find(message).map(|(_, packet)| packet);
    // SAFETY: libdaq passes its handle.
    let Some(packet) = (unsafe { with(pointer, None, find) }) else {
        return ERROR_INVAL;
    };
    let ingress = c::ingress(packet.direction());
    // SAFETY: Snort passes as many bytes.
    unsafe { send(pointer, (ingress, reverse != 0), Some(message), data, size) }
}

unsafe extern "C" fn interrupt(pointer: *mut c_void) -> c_int {
    // SAFETY: libdaq passes its handle. Only the flag is used, which any thread may set.
    let Some(context) = (unsafe { handle::<Context>(pointer) }) else {
        return ERROR_INVAL;
    };
    context.is_interrupted.store(true, Ordering::Relaxed);
    SUCCESS
}

unsafe extern "C" fn stop(pointer: *mut c_void) -> c_int {
    let call = |_: &Context, state: &mut State| {
        state.session.close();
        SUCCESS
    };
    // SAFETY: libdaq passes its handle.
    unsafe { with(pointer, ERROR, call) }
}

unsafe extern "C" fn ioctl(_: *mut c_void, _: c_int, _: *mut c_void, _: usize) -> c_int {
    ERROR_NOTSUP
}

impl State {
    fn stats(&self) -> Stats {
        let (received, injected) = self.session.totals();
        let verdicts = self.session.verdicts();
        Stats {
            hw_packets_received: received,
            packets_received: received,
            packets_injected: injected,
            packets_outstanding: (self.pool.len() - self.free.len()) as u64,
            verdicts: core::array::from_fn(|index| verdicts[index]),
            ..Stats::default()
        }
    }

    /// Returns the number and the packet of a message that libdaq holds. The message is recognised by its
    /// address, so a pointer to anything else is not followed.
    fn find(&self, message: *const Message) -> Option<(usize, Packet)> {
        let number = message.addr().checked_sub(self.pool.as_ptr().addr())? / size_of::<Slot>();
        let slot = self.pool.get(number)?;
        core::ptr::eq(&raw const slot.message, message).then_some((number, slot.packet?))
    }

    /// Returns a message for the next packet.
    fn receive(&mut self, snaplen: c_int) -> Option<*const Message> {
        let number = *self.free.last()?;
        let packet = self.session.receive()?;
        self.free.pop();
        let slot = &mut self.pool[number];
        let (received, ingress) = (packet.received, c::ingress(packet.direction()));
        let limit = usize::try_from(snaplen).ok().filter(|limit| *limit != 0);
        slot.header.ts = TimeValue::now();
        slot.header.pktlen = received.total as u32;
        slot.header.ingress_index = ingress;
        slot.header.egress_index = 1 - ingress;
        slot.message.hdr = (&raw mut slot.header).cast();
        slot.message.data = received.bytes.as_ptr();
        slot.message.data_len = received.size.min(limit.unwrap_or(usize::MAX)) as u32;
        slot.packet = Some(packet);
        Some(&raw const slot.message)
    }
}

unsafe extern "C" fn msg_receive(
    pointer: *mut c_void,
    most: c_uint,
    messages: *mut *const Message,
    status: *mut c_int,
) -> c_uint {
    // SAFETY: libdaq passes its handle.
    let Some(context) = (unsafe { handle::<Context>(pointer) }) else {
        return 0;
    };
    let (mut count, mut polls, began) = (0, 0, Instant::now());
    let found = loop {
        let Ok(mut state) = context.state.try_borrow_mut() else {
            break RECEIVE_ERROR;
        };
        while count < most
            && let Some(message) = state.receive(context.snaplen)
        {
            // SAFETY: libdaq passes room for `most` pointers.
            let place = unsafe { messages.add(count as usize) };
            // SAFETY: as above.
            unsafe { place.write(message) };
            count += 1;
        }
        state.session.flush();
        state.session.tick();
        let is_empty = state.free.is_empty();
        drop(state);
        if count != 0 {
            break RECEIVE_OK;
        }
        if context.is_interrupted.swap(false, Ordering::Relaxed) {
            break RECEIVE_INTERRUPTED;
        }
        if is_empty {
            break RECEIVE_NO_BUFFER;
        }
        if !pause(&mut polls, began, context.timeout) {
            break RECEIVE_TIMEOUT;
        }
    };
    if !status.is_null() {
        // SAFETY: libdaq passes a place for the status.
        unsafe { status.write(found) };
    }
    count
}

unsafe extern "C" fn msg_finalize(pointer: *mut c_void, message: *const Message, verdict: c_int) -> c_int {
    let call = |_: &Context, state: &mut State| {
        let Some((number, packet)) = state.find(message) else {
            return ERROR_INVAL;
        };
        // A number that is no verdict drops the packet, as an unknown decision must not let it pass.
        let verdict = SnortVerdict::from_raw(verdict).filter(|verdict| *verdict != SnortVerdict::Retry);
        state
            .session
            .finish(&packet, verdict.unwrap_or(SnortVerdict::Block));
        state.pool[number].packet = None;
        state.free.push(number);
        state.unflushed += 1;
        if state.unflushed >= FLUSH || state.free.len() == state.pool.len() {
            state.unflushed = 0;
            state.session.flush();
        }
        SUCCESS
    };
    // SAFETY: libdaq passes its handle.
    unsafe { with(pointer, ERROR, call) }
}

unsafe extern "C" fn get_stats(pointer: *mut c_void, stats: *mut Stats) -> c_int {
    let call = |_: &Context, state: &mut State| {
        let (now, reset) = (state.stats(), state.reset);
        Some(Stats {
            hw_packets_received: now.hw_packets_received - reset.hw_packets_received,
            hw_packets_dropped: 0,
            packets_received: now.packets_received - reset.packets_received,
            packets_filtered: 0,
            packets_injected: now.packets_injected - reset.packets_injected,
            packets_outstanding: now.packets_outstanding,
            verdicts: core::array::from_fn(|index| now.verdicts[index] - reset.verdicts[index]),
        })
    };
    // SAFETY: libdaq passes its handle.
    let Some(found) = (unsafe { with(pointer, None, call) }) else {
        return ERROR;
    };
    if stats.is_null() {
        return ERROR_INVAL;
    }
    // SAFETY: libdaq passes a place for the statistics.
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

unsafe extern "C" fn get_msg_pool_info(pointer: *mut c_void, info: *mut PoolInfo) -> c_int {
    let call = |_: &Context, state: &mut State| {
        Some(PoolInfo {
            size: state.pool.len() as u32,
            available: state.free.len() as u32,
            mem_size: state.pool.len() * size_of::<Slot>(),
        })
    };
    // SAFETY: libdaq passes its handle.
    let Some(found) = (unsafe { with(pointer, None, call) }) else {
        return ERROR;
    };
    if info.is_null() {
        return ERROR_INVAL;
    }
    // SAFETY: libdaq passes a place for the answer.
    unsafe { info.write(found) };
    SUCCESS
}
