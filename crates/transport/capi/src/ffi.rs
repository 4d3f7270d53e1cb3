//! The functions of `include/millrace.h`. They convert pointers to references and strings, and errors to
//! texts of the calling thread. No panic crosses into C.

use crate::transfer::{EventTexts, FAILED, Options, Transfer, c_text, note, url};
use millrace_courier::list;
use millrace_courier::target::known_receivers;
use std::cell::RefCell;
use std::ffi::{CStr, CString, OsStr, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::ptr;
use std::time::Duration;

thread_local! {
    static ERROR: RefCell<CString> = RefCell::default();
}

/// The fields of `millrace_options` up to `flags`: the whole structure in the library's first version.
#[repr(C)]
pub(crate) struct CallOptions {
    size: usize,
    identity: *const c_char,
    listen: *const c_char,
    rate_bps: u64,
    silence_ms: u64,
    patience_ms: u64,
    flags: u32,
}

/// `millrace_options`.
#[repr(C)]
struct NamedOptions {
    options: CallOptions,
    name: *const c_char,
}

// C puts `name` into the padding after `flags` if pointers are 4 bytes long and 64-bit integers have an alignment of 8.
const _: () = assert!(size_of::<usize>() == 8, "the C library supports 64-bit machines");

/// `millrace_event`.
#[repr(C)]
pub(crate) struct CallEvent {
    event: *const c_char,
    peer: *const c_char,
    text: *const c_char,
    verified_bytes: u64,
    bytes: u64,
    rate_bps: u64,
    rtt_ms: f64,
    loss: f64,
    json: *const c_char,
}

impl CallEvent {
    fn new(texts: &EventTexts) -> CallEvent {
        CallEvent {
            event: texts.event.as_ptr(),
            peer: texts.peer.as_ptr(),
            text: texts.text.as_ptr(),
            verified_bytes: texts.verified,
            bytes: texts.bytes,
            rate_bps: texts.rate_bps,
            rtt_ms: texts.rtt_ms,
            loss: texts.loss,
            json: texts.json.as_ptr(),
        }
    }
}

/// `millrace_entry`.
#[repr(C)]
pub(crate) struct CallEntry {
    name: *const c_char,
    entry_type: *const c_char,
    size: u64,
    modified: u64,
}

type OnEvent = Option<extern "C" fn(*const CallEvent, *mut c_void) -> c_int>;
type OnEntry = Option<extern "C" fn(*const CallEntry, *mut c_void) -> c_int>;

/// Runs a call and returns its result. After an error or a panic, it stores the text of the error for this
/// thread and returns `failed`.
fn guard<T>(failed: T, call: impl FnOnce() -> Result<T, String>) -> T {
    let result = catch_unwind(AssertUnwindSafe(call));
    let result = result.unwrap_or_else(|_| Err("the library panicked; report this as a bug".into()));
    result.unwrap_or_else(|error| {
        ERROR.with(|cell| *cell.borrow_mut() = c_text(&error));
        failed
    })
}

/// Returns a C string; `None` for NULL.
///
/// # Safety
/// `pointer` is NULL or a NUL-terminated string that lives as long as the result.
unsafe fn optional<'a>(pointer: *const c_char) -> Option<&'a CStr> {
    if pointer.is_null() {
        return None;
    }
    // SAFETY: the pointer is a NUL-terminated string, as the caller promises.
    Some(unsafe { CStr::from_ptr(pointer) })
}

/// Returns a C string, or an error for NULL.
///
/// # Safety
/// As for [`optional`].
unsafe fn required<'a>(pointer: *const c_char, name: &str) -> Result<&'a CStr, String> {
    // SAFETY: the caller promises the same.
    let found = unsafe { optional(pointer) };
    found.ok_or_else(|| format!("{name} is NULL; expected a text"))
}

fn path(text: &CStr) -> PathBuf {
    Path::new(OsStr::from_bytes(text.to_bytes())).to_owned()
}

fn utf8(text: &CStr, name: &str) -> Result<String, String> {
    let text = text.to_str().map_err(|_| format!("{name} is not UTF-8"))?;
    Ok(text.to_owned())
}

/// Returns the strings of a NULL-terminated array.
///
/// # Safety
/// `pointer` is NULL or a NULL-terminated array of C strings that lives as long as the result.
unsafe fn texts<'a>(pointer: *const *const c_char, name: &str) -> Result<Vec<&'a CStr>, String> {
    if pointer.is_null() {
        return Err(format!(
            "{name} is NULL; expected an array of texts that NULL ends"
        ));
    }
    let mut found = Vec::new();
    loop {
        // SAFETY: the array extends to its NULL, as the caller promises, and no earlier element was NULL.
        let position = unsafe { pointer.add(found.len()) };
        // SAFETY: the pointer is within the array.
        let element = unsafe { position.read() };
        // SAFETY: each element is NULL or a C string.
        match unsafe { optional(element) } {
            Some(text) => found.push(text),
            None => return Ok(found),
        }
    }
}

/// Returns the options of a call.
///
/// # Safety
/// `pointer` is NULL or points to options with strings that are NULL or valid.
unsafe fn options(pointer: *const CallOptions) -> Result<Options, String> {
    // SAFETY: the caller promises that the pointer is NULL or valid.
    let Some(given) = (unsafe { pointer.as_ref() }) else {
        return Ok(Options::default());
    };
    if given.size < size_of::<CallOptions>() {
        return Err(format!(
            "options.size is {}; set it to sizeof(millrace_options), {} at least",
            given.size,
            size_of::<CallOptions>()
        ));
    }
    let name = if given.size < size_of::<NamedOptions>() {
        None
    } else {
        // SAFETY: the caller promises options of this size; the cast keeps their address, which is aligned for pointers.
        let named = unsafe { &*pointer.cast::<NamedOptions>() };
        // SAFETY: the caller promises that the text is NULL or valid.
        unsafe { optional(named.name) }
    };
    // SAFETY: the caller promises that the text is NULL or valid.
    let identity = unsafe { optional(given.identity) };
    // SAFETY: as above.
    let listen = unsafe { optional(given.listen) };
    Ok(Options {
        identity: identity.map(path),
        listen: listen.map(|text| utf8(text, "options.listen")).transpose()?,
        rate_bps: given.rate_bps,
        silence_ms: given.silence_ms,
        patience_ms: given.patience_ms,
        flags: given.flags,
        name: name.map(|name| name.to_bytes().to_vec()),
    })
}

/// Returns the transfer to which a pointer points.
///
/// # Safety
/// `pointer` is NULL, or came from this library and is not freed.
unsafe fn transfer<'a>(pointer: *const Transfer) -> Result<&'a Transfer, String> {
    // SAFETY: the caller promises that the pointer is NULL or a transfer that is not freed.
    let found = unsafe { pointer.as_ref() };
    found.ok_or_else(|| "the transfer is NULL; millrace_error() said why".into())
}

fn boxed(transfer: Transfer) -> *mut Transfer {
    Box::into_raw(Box::new(transfer))
}

/// Returns the text of this thread's last error.
// SAFETY: no other symbol of the library has this name.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn millrace_error() -> *const c_char {
    ERROR.with(|cell| cell.borrow().as_ptr())
}

/// Sends files; see `millrace.h`.
///
/// # Safety
/// `sources` and `targets` are NULL-terminated arrays of strings; `given` is NULL or valid.
// SAFETY: no other symbol of the library has this name.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn millrace_send(
    sources: *const *const c_char,
    targets: *const *const c_char,
    given: *const CallOptions,
) -> *mut Transfer {
    guard(ptr::null_mut(), || {
        // SAFETY: the caller promises a NULL-terminated array.
        let sources = unsafe { texts(sources, "sources") }?;
        // SAFETY: as above.
        let targets = unsafe { texts(targets, "targets") }?;
        // SAFETY: the caller promises that the options are NULL or valid.
        let options = unsafe { options(given) }?;
        let sources: Vec<PathBuf> = sources.into_iter().map(path).collect();
        let targets: Result<Vec<_>, _> = targets.into_iter().map(|text| utf8(text, "a target")).collect();
        Transfer::send(&sources, &targets?, &options).map(boxed)
    })
}

/// Receives files; see `millrace.h`.
///
/// # Safety
/// `directory` is a text; `given` is NULL or valid.
// SAFETY: no other symbol of the library has this name.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn millrace_receive(
    directory: *const c_char,
    given: *const CallOptions,
) -> *mut Transfer {
    guard(ptr::null_mut(), || {
        // SAFETY: the caller promises a text.
        let directory = unsafe { required(directory, "directory") }?;
        // SAFETY: the caller promises that the options are NULL or valid.
        let options = unsafe { options(given) }?;
        Transfer::receive(&path(directory), &options).map(boxed)
    })
}

/// Fetches files from a daemon; see `millrace.h`.
///
/// # Safety
/// `from` and `directory` are texts; `given` is NULL or valid.
// SAFETY: no other symbol of the library has this name.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn millrace_fetch(
    from: *const c_char,
    directory: *const c_char,
    given: *const CallOptions,
) -> *mut Transfer {
    guard(ptr::null_mut(), || {
        // SAFETY: the caller promises a text.
        let from = unsafe { required(from, "url") }?;
        // SAFETY: as above.
        let directory = unsafe { required(directory, "directory") }?;
        // SAFETY: the caller promises that the options are NULL or valid.
        let options = unsafe { options(given) }?;
        Transfer::fetch(&utf8(from, "url")?, &path(directory), &options).map(boxed)
    })
}

/// Gets the next event; see `millrace.h`.
///
/// # Safety
/// `pointer` is a transfer that is not freed; `event` is writable.
// SAFETY: no other symbol of the library has this name.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn millrace_next(
    pointer: *mut Transfer,
    timeout_ms: c_int,
    event: *mut CallEvent,
) -> c_int {
    guard(-1, || {
        // SAFETY: the caller promises a transfer.
        let transfer = unsafe { transfer(pointer) }?;
        let timeout = u64::try_from(timeout_ms).ok().map(Duration::from_millis);
        Ok(transfer.next(timeout, |texts| {
            if !event.is_null() {
                // SAFETY: the caller promises that the event is writable. Its texts stay in the transfer until the next call.
                unsafe { event.write(CallEvent::new(texts)) };
            }
        }))
    })
}

/// Returns the file descriptor that signals a transfer's events; see `millrace.h`.
///
/// # Safety
/// `pointer` is a transfer that is not freed.
// SAFETY: no other symbol of the library has this name.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn millrace_descriptor(pointer: *mut Transfer) -> c_int {
    // SAFETY: the caller promises a transfer.
    guard(-1, || unsafe { transfer(pointer) }.map(Transfer::descriptor))
}

/// Waits for the end of a transfer; see `millrace.h`.
///
/// # Safety
/// `pointer` is a transfer that is not freed; `on_event` is NULL or accepts `user`.
// SAFETY: no other symbol of the library has this name.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn millrace_wait(
    pointer: *mut Transfer,
    on_event: OnEvent,
    user: *mut c_void,
) -> c_int {
    guard(FAILED, || {
        // SAFETY: the caller promises a transfer.
        let transfer = unsafe { transfer(pointer) }?;
        loop {
            let mut cancel = false;
            let next = transfer.next(None, |texts| {
                let event = CallEvent::new(texts);
                cancel = on_event.is_some_and(|on_event| on_event(&event, user) != 0);
            });
            if cancel {
                transfer.cancel();
            }
            if next < 0 {
                break;
            }
        }
        let status = transfer.join()?;
        if status != 0 {
            ERROR.with(|cell| *cell.borrow_mut() = c_text(&transfer.reason()));
        }
        Ok(status)
    })
}

/// Ends a transfer; see `millrace.h`.
///
/// # Safety
/// `pointer` is NULL or a transfer that is not freed.
// SAFETY: no other symbol of the library has this name.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn millrace_cancel(pointer: *mut Transfer) {
    // SAFETY: the caller promises a transfer.
    guard((), || unsafe { transfer(pointer) }.map(Transfer::cancel));
}

/// Frees a transfer; see `millrace.h`.
///
/// # Safety
/// `pointer` is NULL, or came from this library and is not freed, and no other call uses it.
// SAFETY: no other symbol of the library has this name.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn millrace_free(pointer: *mut Transfer) {
    guard((), || {
        if !pointer.is_null() {
            // SAFETY: the pointer came from `boxed`, and is freed only once, as the caller promises.
            drop(unsafe { Box::from_raw(pointer) });
        }
        Ok(())
    });
}

/// Lists a directory of a daemon; see `millrace.h`.
///
/// # Safety
/// `from` is a text; `given` is NULL or valid; `on_entry` accepts `user`.
// SAFETY: no other symbol of the library has this name.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn millrace_list(
    from: *const c_char,
    given: *const CallOptions,
    on_entry: OnEntry,
    user: *mut c_void,
) -> c_int {
    guard(-1, || {
        // SAFETY: the caller promises a text.
        let from = unsafe { required(from, "url") }?;
        // SAFETY: the caller promises that the options are NULL or valid.
        let options = unsafe { options(given) }?;
        let on_entry = on_entry.ok_or("on_entry is NULL; expected a function")?;
        let url = url(&utf8(from, "url")?)?;
        let target = url
            .target(known_receivers().as_deref())
            .map_err(|error| error.to_string())?;
        let entries = list(&options.identity()?, &target, url.path.as_bytes());
        let entries = entries.map_err(|error| error.to_string())?;
        note(&target);
        for entry in entries {
            let name = c_text(&String::from_utf8_lossy(&entry.name));
            let entry_type = c_text(entry.entry_type.name());
            let given = CallEntry {
                name: name.as_ptr(),
                entry_type: entry_type.as_ptr(),
                size: entry.size,
                modified: entry.modified,
            };
            if on_entry(&given, user) != 0 {
                break;
            }
        }
        Ok(0)
    })
}

/// Writes this user's key; see `millrace.h`.
///
/// # Safety
/// `given` is NULL or valid; `key` has 53 writable bytes.
// SAFETY: no other symbol of the library has this name.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn millrace_key(given: *const CallOptions, key: *mut c_char) -> c_int {
    guard(-1, || {
        // SAFETY: the caller promises that the options are NULL or valid.
        let options = unsafe { options(given) }?;
        let text = c_text(&options.identity()?.public_key().to_string());
        let bytes = text.as_bytes_with_nul();
        if key.is_null() || bytes.len() != 53 {
            return Err("key is NULL; expected 53 bytes".into());
        }
        // SAFETY: the caller promises 53 writable bytes, and there are 53.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr().cast(), key, bytes.len()) };
        Ok(0)
    })
}
