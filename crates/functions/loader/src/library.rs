//! Functions in shared objects with the interface of `crates/functions/nf/include/millrace_nf.h`. This is the only module of the
//! crate with unsafe code.
//!
//! # Invariant
//! A shared object that follows the header writes only to its own memory, to the first segments of packets, and to its
//! counters. Nothing is used after the function has ended.
//!
//! # Argument
//! A shared object can do anything in the process that loads it. It is loaded into the switch only where the
//! operator says `class = "inline"` and nobody but root and the daemon's user can change the file
//! ([`crate::trust`]). Otherwise it is loaded into the function's own process. The checks here find honest
//! mistakes: the version, the size of the kind, missing functions, verdicts.

#![allow(unsafe_code)]

use core::ffi::{CStr, c_char, c_int, c_void};
use std::ffi::CString;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::Path;

use libloading::Library;
use millrace_nf::{
    Buffer, Context, Counters, Description, Function, Kind, SettingError, Setup, Verdict, give_up,
};
use millrace_types::Time;

use crate::cache::{Cache, open_any};
use crate::trust::open_trusted;

/// The version of the header.
const ABI: u32 = 1;
/// The largest burst, as the header says.
const BURST: usize = 64;
/// Bytes of the buffer for a reason.
const REASON: usize = 512;

static TRUSTED: Cache = Cache::new();
static ANY: Cache = Cache::new();

/// `millrace_nf_verdict`.
#[repr(C)]
#[derive(Clone, Copy)]
struct RawVerdict {
    what: u32,
    operand: u32,
}

/// `millrace_nf_context`.
#[repr(C)]
struct RawContext {
    now: u64,
    direction: u32,
    reserved: u32,
}

/// `millrace_nf_packet`.
#[repr(C)]
struct RawPacket {
    head: *mut u8,
    head_size: u32,
    size: u32,
    /// The address of the `&mut dyn Buffer` in the burst.
    owner: *mut c_void,
    calls: *const RawCalls,
}

/// `millrace_nf_calls`.
#[repr(C)]
struct RawCalls {
    prepend: extern "C" fn(*mut RawPacket, u32) -> c_int,
    trim_front: extern "C" fn(*mut RawPacket, u32),
}

/// `millrace_nf_setup`.
#[repr(C)]
struct RawSetup {
    settings: *const *const c_char,
    settings_len: usize,
    seed: u64,
    zero_unix_millis: u64,
    counters: *mut u64,
    counters_len: usize,
}

type RawMake = unsafe extern "C" fn(*const RawSetup, *mut c_char, usize) -> *mut c_void;
type RawProcess =
    unsafe extern "C" fn(*mut c_void, *const RawContext, *mut RawPacket, *mut RawVerdict, usize);

/// `millrace_nf_kind`.
#[repr(C)]
struct RawKind {
    abi: u32,
    kind_size: u32,
    description: *const c_char,
    make: Option<RawMake>,
    process: Option<RawProcess>,
    tick: Option<unsafe extern "C" fn(*mut c_void, u64)>,
    end: Option<unsafe extern "C" fn(*mut c_void)>,
}

// SAFETY: the header declares it constant, and the shared object is never unloaded.
unsafe impl Sync for RawKind {}

/// Returns the kind of function that a file holds, if only root and the user of this process can change the
/// file.
///
/// The file is loaded by the descriptor that was checked. The descriptor stays open: the dynamic linker identifies objects by
/// name (`/proc/self/fd/N`), and would take another file with the same number for this one.
pub(crate) fn load(path: &Path) -> Result<&'static Kind, String> {
    let open = |path: &Path| open_trusted(path).map_err(|error| error.to_string());
    TRUSTED.find(path, open, |file, _| {
        let name = format!("/proc/self/fd/{}", file.as_raw_fd());
        let told = |reason: String| reason.replace(&name, &path.display().to_string());
        from_file(Path::new(&name), Some(file)).map_err(told)
    })
}

/// Returns the kind of function that a file of any owner holds, for the function's own process.
pub(crate) fn load_any(path: &Path) -> Result<&'static Kind, String> {
    ANY.find(path, open_any, |_, _| from_file(path, None))
}

fn from_file(path: &Path, file: Option<OwnedFd>) -> Result<&'static Kind, String> {
    // SAFETY: the call runs the file's initialisers. `load` and `load_any` pass only files whose code this
    // process may run.
    let library = unsafe { Library::new(path) }.map_err(|error| format!("cannot be loaded: {error}"))?;
    // Never unloaded: kinds stay, and so may threads and exit handlers of its functions.
    let (library, _file): &'static (Library, Option<OwnedFd>) = Box::leak(Box::new((library, file)));
    // SAFETY: the header defines the type of this symbol.
    let symbol = unsafe { library.get::<*const RawKind>(b"millrace_nf\0") };
    let symbol =
        symbol.map_err(|_| "it exports no `millrace_nf`: expected one as in millrace_nf.h".to_owned())?;
    // SAFETY: the address of a symbol in a library that is never unloaded; every version begins with the two numbers that
    // are checked next.
    let raw: &'static RawKind = unsafe { symbol.as_ref() }.ok_or("its `millrace_nf` is a null pointer")?;
    if raw.abi != ABI || (raw.kind_size as usize) < size_of::<RawKind>() {
        return Err(format!(
            "it has version {} with {} bytes: expected version {ABI} with {}",
            raw.abi,
            raw.kind_size,
            size_of::<RawKind>()
        ));
    }
    if raw.description.is_null() {
        return Err("it has no description".to_owned());
    }
    // SAFETY: the header requires a zero-terminated text that stays valid.
    let text = unsafe { CStr::from_ptr(raw.description) };
    let description = Description::parse(&text.to_string_lossy()).map_err(|error| error.to_string())?;
    let (Some(make), Some(process)) = (raw.make, raw.process) else {
        return Err("it has no `make` or no `process`".to_owned());
    };
    Ok(description.into_kind(Box::new(move |setup: &Setup| {
        let function = LibraryFunction::new(raw, make, process, setup);
        let function = function.map_err(|reason| SettingError::Refused { reason })?;
        Ok(Box::new(function) as Box<dyn Function>)
    })))
}

/// A function's setup and the memory that it points to.
struct SetupMemory {
    _given: Box<RawSetup>,
    _texts: Box<[CString]>,
    _settings: Box<[*const c_char]>,
    counters: Box<[u64]>,
}

/// A function of a shared object.
struct LibraryFunction {
    process: RawProcess,
    raw: &'static RawKind,
    state: *mut c_void,
    setup: SetupMemory,
    counters: Counters,
}

// SAFETY: the header allows calls from any thread, one at a time.
unsafe impl Send for LibraryFunction {}

impl LibraryFunction {
    fn new(
        raw: &'static RawKind,
        make: RawMake,
        process: RawProcess,
        setup: &Setup,
    ) -> Result<LibraryFunction, String> {
        let texts = setup.settings.texts().map(CString::new);
        let texts = texts.collect::<Result<Box<[CString]>, _>>();
        let texts = texts.map_err(|_| "a setting holds a zero byte")?;
        let settings: Box<[*const c_char]> = texts.iter().map(|text| text.as_ptr()).collect();
        let mut counters = vec![0_u64; setup.counters.len()].into_boxed_slice();
        let given = Box::new(RawSetup {
            settings: settings.as_ptr(),
            settings_len: settings.len(),
            seed: setup.seed,
            zero_unix_millis: setup.zero_unix_millis,
            counters: counters.as_mut_ptr(),
            counters_len: counters.len(),
        });
        let mut reason = [0_u8; REASON];
        // SAFETY: a call as the header defines it. `SetupMemory` keeps `given` and its memory until the function has ended.
        let state = unsafe { make(&raw const *given, reason.as_mut_ptr().cast(), REASON - 1) };
        if state.is_null() {
            let text = CStr::from_bytes_until_nul(&reason).unwrap_or_default();
            let text: String = text
                .to_string_lossy()
                .chars()
                .filter(|c| !c.is_control())
                .collect();
            return Err(match text.is_empty() {
                true => "it rejects its settings without a reason".to_owned(),
                false => text,
            });
        }
        Ok(LibraryFunction {
            process,
            raw,
            state,
            setup: SetupMemory {
                _given: given,
                _texts: texts,
                _settings: settings,
                counters,
            },
            counters: setup.counters.clone(),
        })
    }

    /// Publishes the function's counters.
    fn publish_counters(&self) {
        for (index, count) in self.setup.counters.iter().enumerate() {
            // SAFETY: a number of this process, which the function writes through the address in its setup.
            let count = unsafe { core::ptr::from_ref(count).read_volatile() };
            self.counters.set(index, count);
        }
    }
}

static CALLS: RawCalls = RawCalls { prepend, trim_front };

/// Returns the buffer of a packet.
///
/// # Safety
/// `packet` was created by `process` for the call that is in progress.
unsafe fn buffer_of<'a>(packet: *mut RawPacket) -> &'a mut dyn Buffer {
    // SAFETY: the caller passes a packet of the call in progress.
    let owner = unsafe { (*packet).owner }.cast::<&'a mut dyn Buffer>();
    // SAFETY: `owner` points to the packet's entry of the burst, which nothing else uses during the call.
    let buffer: &'a mut &'a mut dyn Buffer = unsafe { &mut *owner };
    *buffer
}

fn describe(buffer: &mut dyn Buffer, owner: *mut c_void) -> RawPacket {
    let size = buffer.len() as u32;
    let head = buffer.head_mut();
    RawPacket {
        head: head.as_mut_ptr(),
        head_size: head.len() as u32,
        size,
        owner,
        calls: &raw const CALLS,
    }
}

extern "C" fn prepend(packet: *mut RawPacket, size: u32) -> c_int {
    // SAFETY: the header allows this call only with a packet of the burst during `process`.
    let buffer = unsafe { buffer_of(packet) };
    if buffer.prepend(size as usize).is_err() {
        return -1;
    }
    update(packet, buffer);
    0
}

extern "C" fn trim_front(packet: *mut RawPacket, size: u32) {
    // SAFETY: the header allows this call only with a packet of the burst during `process`.
    let buffer = unsafe { buffer_of(packet) };
    buffer.trim_front(size as usize);
    update(packet, buffer);
}

fn update(packet: *mut RawPacket, buffer: &mut dyn Buffer) {
    // SAFETY: both callers pass a packet of the call in progress.
    let owner = unsafe { (*packet).owner };
    // SAFETY: as above; no reference to the packet exists during the call.
    unsafe { packet.write(describe(buffer, owner)) };
}

impl Function for LibraryFunction {
    fn process(&mut self, context: &Context, burst: &mut [&mut dyn Buffer], verdicts: &mut [Verdict]) {
        let context = RawContext {
            now: context.now.nanos(),
            direction: context.direction.to_raw(),
            reserved: 0,
        };
        for (burst, verdicts) in burst.chunks_mut(BURST).zip(verdicts.chunks_mut(BURST)) {
            let mut packets = arrayvec::ArrayVec::<RawPacket, BURST>::new();
            for buffer in burst.iter_mut() {
                let owner = core::ptr::from_mut(buffer).cast();
                packets.push(describe(&mut **buffer, owner));
            }
            let mut results = [RawVerdict { what: 0, operand: 0 }; BURST];
            let (first, verdict) = (packets.as_mut_ptr(), results.as_mut_ptr());
            // SAFETY: a call as the header defines it, of a function that `make` created and that has not ended, with as
            // many packets and verdicts as stated.
            unsafe { (self.process)(self.state, &raw const context, first, verdict, burst.len()) };
            for (verdict, RawVerdict { what, operand }) in verdicts.iter_mut().zip(results) {
                *verdict = match Verdict::from_raw(what, operand) {
                    Some(verdict) => verdict,
                    None => give_up(format!(
                        "it returned the unknown verdict {what} with operand {operand}"
                    )),
                };
            }
        }
    }

    fn tick(&mut self, now: Time) {
        if let Some(tick) = self.raw.tick {
            // SAFETY: a call as the header defines it, of a function that `make` created and that has not ended.
            unsafe { tick(self.state, now.nanos()) };
        }
        self.publish_counters();
    }
}

impl Drop for LibraryFunction {
    fn drop(&mut self) {
        if let Some(end) = self.raw.end {
            // SAFETY: a call as the header defines it, of a function that `make` created and that is not used afterwards.
            unsafe { end(self.state) };
        }
    }
}

#[cfg(test)]
mod tests {
    use core::mem::{offset_of, size_of};
    use std::path::PathBuf;
    use std::process::Command;

    use super::*;

    /// A C compiler checks the offsets and sizes of the Rust types against the header.
    #[test]
    fn types_have_the_layout_of_the_header() {
        let ours = [
            (
                "verdict",
                "operand",
                offset_of!(RawVerdict, operand),
                size_of::<RawVerdict>(),
            ),
            (
                "context",
                "direction",
                offset_of!(RawContext, direction),
                size_of::<RawContext>(),
            ),
            (
                "packet",
                "head_size",
                offset_of!(RawPacket, head_size),
                size_of::<RawPacket>(),
            ),
            (
                "packet",
                "size",
                offset_of!(RawPacket, size),
                size_of::<RawPacket>(),
            ),
            (
                "packet",
                "owner",
                offset_of!(RawPacket, owner),
                size_of::<RawPacket>(),
            ),
            (
                "packet",
                "calls",
                offset_of!(RawPacket, calls),
                size_of::<RawPacket>(),
            ),
            (
                "calls",
                "trim_front",
                offset_of!(RawCalls, trim_front),
                size_of::<RawCalls>(),
            ),
            (
                "setup",
                "settings_len",
                offset_of!(RawSetup, settings_len),
                size_of::<RawSetup>(),
            ),
            ("setup", "seed", offset_of!(RawSetup, seed), size_of::<RawSetup>()),
            (
                "setup",
                "counters",
                offset_of!(RawSetup, counters),
                size_of::<RawSetup>(),
            ),
            (
                "setup",
                "counters_len",
                offset_of!(RawSetup, counters_len),
                size_of::<RawSetup>(),
            ),
            (
                "kind",
                "kind_size",
                offset_of!(RawKind, kind_size),
                size_of::<RawKind>(),
            ),
            (
                "kind",
                "description",
                offset_of!(RawKind, description),
                size_of::<RawKind>(),
            ),
            ("kind", "make", offset_of!(RawKind, make), size_of::<RawKind>()),
            (
                "kind",
                "process",
                offset_of!(RawKind, process),
                size_of::<RawKind>(),
            ),
            ("kind", "tick", offset_of!(RawKind, tick), size_of::<RawKind>()),
            ("kind", "end", offset_of!(RawKind, end), size_of::<RawKind>()),
        ];
        let mut text =
            String::from("#include <millrace_nf.h>\n_Static_assert(MILLRACE_NF_ABI == 1, \"abi\");\n");
        for (name, field, offset, size) in ours {
            text += &format!(
                "_Static_assert(offsetof(millrace_nf_{name}, {field}) == {offset}, \"{name}.{field}\");\n"
            );
            text += &format!("_Static_assert(sizeof(millrace_nf_{name}) == {size}, \"{name}\");\n");
        }
        let dir = tempfile::tempdir().unwrap();
        let source = dir.path().join("layout.c");
        std::fs::write(&source, text).unwrap();
        let include = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../nf/include");
        let output = Command::new("cc")
            .args(["-std=c11", "-Wall", "-Werror", "-fsyntax-only", "-I"])
            .arg(include)
            .arg(source)
            .output()
            .unwrap();
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
}
