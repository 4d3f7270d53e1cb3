//! The declarations of libdaq 3, with the names of its interface.

use core::ffi::{c_char, c_int, c_uint, c_void};

use crate::SnortVerdict;
pub use crate::c::TimeValue;

/// `DAQ_MODULE_API_VERSION`.
pub const API_VERSION: u32 = 0x0003_0001;
/// `DAQ_BASE_API_VERSION`.
pub const BASE_API_VERSION: u32 = 0x0003_0002;

/// `DAQ_MSG_TYPE_PACKET`.
pub const PACKET: u32 = 1;
/// `DAQ_MODE_INLINE`.
pub const MODE_INLINE: c_int = 2;
/// `DAQ_MODE_READ_FILE`.
pub(super) const MODE_READ_FILE: c_int = 3;

/// Interfaces, inline, several instances in one process.
pub(super) const TYPE: u32 = 0x02 | 0x04 | 0x08;
/// Block, replace, inject, start without rights, interrupt.
pub const CAPABILITIES: u32 = 0x01 | 0x02 | 0x04 | 0x08 | 0x10;

/// `DAQ_RSTAT_OK`.
pub const RECEIVE_OK: c_int = 0;
/// `DAQ_RSTAT_TIMEOUT`.
pub const RECEIVE_TIMEOUT: c_int = 2;
/// `DAQ_RSTAT_INTERRUPTED`.
pub const RECEIVE_INTERRUPTED: c_int = 4;
/// `DAQ_RSTAT_NOBUF`: libdaq holds all messages of the pool.
pub const RECEIVE_NO_BUFFER: c_int = 5;
/// `DAQ_RSTAT_ERROR`.
pub const RECEIVE_ERROR: c_int = 6;

/// `DAQ_PktHdr_t`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct PacketHeader {
    /// The time of arrival.
    pub ts: TimeValue,
    /// Bytes of the packet.
    pub pktlen: u32,
    /// 0 for forward packets, 1 for backward ones.
    pub ingress_index: i32,
    /// 1 for forward packets, 0 for backward ones.
    pub egress_index: i32,
    /// Unknown (-1).
    pub ingress_group: i16,
    /// Unknown (-1).
    pub egress_group: i16,
    /// 0.
    pub opaque: u32,
    /// 0.
    pub flow_id: u32,
    /// None.
    pub flags: u32,
    /// 0.
    pub address_space_id: u16,
    /// 0.
    pub tenant_id: u16,
}

/// Slots for the meta data of a message.
pub(super) const META: usize = 8;

/// `DAQ_Msg_t`.
#[repr(C)]
#[derive(Debug)]
pub struct Message {
    /// The header.
    pub hdr: *mut c_void,
    /// The bytes.
    pub data: *mut u8,
    /// Unused.
    pub meta: [*mut c_void; META],
    /// The instance of libdaq.
    pub owner: *const c_void,
    /// The number of the message in the pool.
    pub private: *mut c_void,
    /// Bytes of the header.
    pub hdr_len: usize,
    pub kind: u32,
    /// Bytes at `data`.
    pub data_len: u32,
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
    /// Packets that Snort has.
    pub packets_outstanding: u64,
    /// Packets by verdict; libdaq 3 has no retry.
    pub verdicts: [u64; SnortVerdict::LEN - 1],
}

/// `DAQ_MsgPoolInfo_t`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PoolInfo {
    /// Messages of the pool.
    pub size: u32,
    /// Messages that libdaq does not hold.
    pub available: u32,
    /// Bytes of the pool.
    pub mem_size: usize,
}

/// `DAQ_VariableDesc_t`.
#[repr(C)]
#[derive(Debug)]
pub struct Variable {
    pub name: *const c_char,
    pub description: *const c_char,
    /// 1: it requires a value.
    pub flags: u32,
}

/// `DAQ_BaseAPI_t`: functions of libdaq for modules. Its fields have the names of the interface.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct BaseApi {
    pub api_version: u32,
    pub api_size: u32,
    pub config_get_input: unsafe extern "C" fn(*mut c_void) -> *const c_char,
    pub config_get_snaplen: unsafe extern "C" fn(*mut c_void) -> c_int,
    pub config_get_timeout: unsafe extern "C" fn(*mut c_void) -> c_uint,
    pub config_get_msg_pool_size: unsafe extern "C" fn(*mut c_void) -> c_uint,
    pub config_get_total_instances: unsafe extern "C" fn(*mut c_void) -> c_uint,
    pub config_get_instance_id: unsafe extern "C" fn(*mut c_void) -> c_uint,
    pub config_get_mode: unsafe extern "C" fn(*mut c_void) -> c_int,
    pub config_get_variable: unsafe extern "C" fn(*mut c_void, *const c_char) -> *const c_char,
    pub config_first_variable:
        unsafe extern "C" fn(*mut c_void, *mut *const c_char, *mut *const c_char) -> c_int,
    pub config_next_variable:
        unsafe extern "C" fn(*mut c_void, *mut *const c_char, *mut *const c_char) -> c_int,
    pub resolve_subapi: *const c_void,
    pub set_errbuf: unsafe extern "C" fn(*mut c_void, *const c_char, ...),
}

/// `DAQ_ModuleAPI_t`. Its fields have the names of the interface.
#[repr(C)]
pub struct Module {
    pub api_version: u32,
    pub api_size: u32,
    pub module_version: u32,
    pub name: *const c_char,
    pub kind: u32,
    pub load: unsafe extern "C" fn(*const BaseApi) -> c_int,
    pub unload: unsafe extern "C" fn() -> c_int,
    pub get_variable_descs: unsafe extern "C" fn(*mut *const Variable) -> c_int,
    pub instantiate: unsafe extern "C" fn(*mut c_void, *mut c_void, *mut *mut c_void) -> c_int,
    pub destroy: unsafe extern "C" fn(*mut c_void),
    pub set_filter: unsafe extern "C" fn(*mut c_void, *const c_char) -> c_int,
    pub start: unsafe extern "C" fn(*mut c_void) -> c_int,
    pub inject: unsafe extern "C" fn(*mut c_void, u32, *const c_void, *const u8, u32) -> c_int,
    pub inject_relative: unsafe extern "C" fn(*mut c_void, *const Message, *const u8, u32, c_int) -> c_int,
    pub interrupt: unsafe extern "C" fn(*mut c_void) -> c_int,
    pub stop: unsafe extern "C" fn(*mut c_void) -> c_int,
    pub ioctl: unsafe extern "C" fn(*mut c_void, c_int, *mut c_void, usize) -> c_int,
    pub get_stats: unsafe extern "C" fn(*mut c_void, *mut Stats) -> c_int,
    pub reset_stats: unsafe extern "C" fn(*mut c_void),
    pub get_snaplen: unsafe extern "C" fn(*mut c_void) -> c_int,
    pub get_capabilities: unsafe extern "C" fn(*mut c_void) -> u32,
    pub get_datalink_type: unsafe extern "C" fn(*mut c_void) -> c_int,
    /// Null, like the next two fields: the module reloads no configuration.
    pub config_load: *const c_void,
    pub config_swap: *const c_void,
    pub config_free: *const c_void,
    pub msg_receive: unsafe extern "C" fn(*mut c_void, c_uint, *mut *const Message, *mut c_int) -> c_uint,
    pub msg_finalize: unsafe extern "C" fn(*mut c_void, *const Message, c_int) -> c_int,
    pub get_msg_pool_info: unsafe extern "C" fn(*mut c_void, *mut PoolInfo) -> c_int,
}
