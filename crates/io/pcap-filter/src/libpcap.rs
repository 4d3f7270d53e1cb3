//! The functions of libpcap that compile filters, behind safe ones.

#![allow(unsafe_code, reason = "calls of a C library")]

use std::ffi::{CStr, c_char, c_int, c_uint};
use std::ptr::NonNull;

use millrace_wire::bpf::Instruction;

/// `DLT_EN10MB`: Ethernet.
const ETHERNET: c_int = 1;
/// The snapshot length of the handle. A filter without conditions returns this number.
const SNAPSHOT_SIZE: c_int = 65_535;
/// `PCAP_NETMASK_UNKNOWN`: `ip broadcast` is rejected.
const NETMASK_UNKNOWN: c_uint = 0xffff_ffff;

/// `pcap_t`, whose fields only libpcap knows.
#[repr(C)]
struct Handle {
    _private: [u8; 0],
}

/// `struct bpf_insn`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Insn {
    code: u16,
    jt: u8,
    jf: u8,
    k: u32,
}

/// `struct bpf_program`.
#[repr(C)]
struct RawProgram {
    len: c_uint,
    insns: *mut Insn,
}

#[link(name = "pcap")]
unsafe extern "C" {
    fn pcap_open_dead(linktype: c_int, snaplen: c_int) -> *mut Handle;
    fn pcap_close(handle: *mut Handle);
    fn pcap_geterr(handle: *mut Handle) -> *mut c_char;
    fn pcap_compile(
        handle: *mut Handle,
        program: *mut RawProgram,
        expression: *const c_char,
        optimize: c_int,
        netmask: c_uint,
    ) -> c_int;
    fn pcap_freecode(program: *mut RawProgram);
    #[cfg(test)]
    fn bpf_filter(insns: *const Insn, packet: *const u8, wire_len: c_uint, captured_len: c_uint) -> c_uint;
}

/// A handle that only compiles filters for Ethernet.
pub(crate) struct Ethernet(NonNull<Handle>);

impl Ethernet {
    /// Opens a handle. Returns `None` if there is no memory.
    pub(crate) fn open() -> Option<Ethernet> {
        // SAFETY: both arguments are plain numbers, and any are allowed.
        let handle = unsafe { pcap_open_dead(ETHERNET, SNAPSHOT_SIZE) };
        NonNull::new(handle).map(Ethernet)
    }

    /// Compiles an expression.
    ///
    /// # Errors
    /// Returns libpcap's message if the expression is invalid.
    pub(crate) fn compile(&mut self, expression: &CStr) -> Result<Program, String> {
        let mut program = RawProgram {
            len: 0,
            insns: std::ptr::null_mut(),
        };
        // SAFETY: the handle is open until `self` is dropped, `program` is writable, and `expression` is zero-terminated.
        let status = unsafe {
            pcap_compile(
                self.0.as_ptr(),
                &raw mut program,
                expression.as_ptr(),
                1,
                NETMASK_UNKNOWN,
            )
        };
        if status == 0 {
            return Ok(Program(program));
        }
        // SAFETY: the handle is open; its error buffer lives as long as the handle.
        let words = unsafe { pcap_geterr(self.0.as_ptr()) };
        // SAFETY: libpcap writes a zero-terminated text, and no call changes it before the copy is made.
        let words = unsafe { CStr::from_ptr(words) };
        Err(words.to_string_lossy().into_owned())
    }
}

impl Drop for Ethernet {
    fn drop(&mut self) {
        // SAFETY: the handle came from `pcap_open_dead` and is closed only here.
        unsafe { pcap_close(self.0.as_ptr()) };
    }
}

/// A compiled filter, in memory of libpcap.
pub(crate) struct Program(RawProgram);

impl Program {
    /// Returns a copy of the instructions.
    pub(crate) fn instructions(&self) -> Vec<Instruction> {
        if self.0.insns.is_null() {
            return Vec::new();
        }
        // SAFETY: `pcap_compile` succeeded, so `insns` has `len` instructions until `self` is dropped.
        let insns = unsafe { std::slice::from_raw_parts(self.0.insns, self.0.len as usize) };
        let copy = insns.iter().map(|insn| Instruction {
            code: insn.code,
            jt: insn.jt,
            jf: insn.jf,
            k: insn.k,
        });
        copy.collect()
    }

    /// Returns the result of libpcap's own interpreter for a packet.
    #[cfg(test)]
    pub(crate) fn run(&self, packet: &[u8]) -> u32 {
        let size = packet.len() as c_uint;
        // SAFETY: `pcap_compile` makes valid programs, and the packet is `size` bytes long.
        unsafe { bpf_filter(self.0.insns, packet.as_ptr(), size, size) }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // SAFETY: the program came from `pcap_compile` and is freed only here.
        unsafe { pcap_freecode(&raw mut self.0) };
    }
}
