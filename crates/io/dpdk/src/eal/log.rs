//! Forwards DPDK's log to `tracing`, and keeps the messages of the current call for its error.

use std::cell::RefCell;
use std::ffi::c_char;
use std::panic::catch_unwind;
use std::slice;

use millrace_dpdk_sys as sys;

use crate::Errno;

/// The largest number of messages that an error quotes.
const QUOTED: usize = 4;

thread_local! {
    /// The warnings and errors that DPDK logged on this thread; `None` while no [`capture`] is active.
    static WARNINGS: RefCell<Option<Vec<String>>> = const { RefCell::new(None) };
}

/// Redirects DPDK's log to `tracing`.
pub(crate) fn redirect() -> Result<(), Errno> {
    // SAFETY: the sink is a function, so it lives forever; EAL is not up yet, so no other thread logs.
    Errno::check(unsafe { sys::shim_log_to(Some(sink)) }).map(|_| ())
}

/// Redirects the log of the BPF libraries that `net_af_xdp` uses, after EAL has loaded its drivers.
pub(super) fn redirect_bpf() {
    // SAFETY: `redirect` set the sink, and no driver uses the libraries yet.
    unsafe { sys::shim_log_bpf() };
}

/// Calls `work` and returns its result, and the warnings and errors that DPDK logged on this thread meanwhile.
pub(crate) fn capture<T>(work: impl FnOnce() -> T) -> (T, Vec<String>) {
    WARNINGS.with_borrow_mut(|warnings| *warnings = Some(Vec::new()));
    let result = work();
    let warnings = WARNINGS.take().unwrap_or_default();
    (result, warnings)
}

/// Passes a line of DPDK's log to `tracing`. DPDK calls this function on any thread.
extern "C" fn sink(level: u32, text: *const c_char, len: usize) {
    // SAFETY: the shim passes `len` bytes that live until this returns.
    let bytes = unsafe { slice::from_raw_parts(text.cast::<u8>(), len) };
    let text = String::from_utf8_lossy(bytes);
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
        // A subscriber that panics must not unwind into C.
        let _ = catch_unwind(|| pass_on(level, line));
    }
}

/// Warnings that EAL logs on most machines although nothing is wrong: page sizes without reserved pages, and a missing
/// mount that `--in-memory` does not need.
const NOISE: [&str; 2] = ["No free ", "but no mounted hugetlbfs found"];

fn pass_on(level: u32, line: &str) {
    let noise = line.contains("hugepages") && NOISE.iter().any(|noise| line.contains(noise));
    let level = if noise { sys::SHIM_LOG_INFO } else { level };
    match level {
        0..=sys::SHIM_LOG_ERR => tracing::error!(target: "dpdk", "{line}"),
        sys::SHIM_LOG_WARNING => tracing::warn!(target: "dpdk", "{line}"),
        sys::SHIM_LOG_NOTICE => tracing::info!(target: "dpdk", "{line}"),
        sys::SHIM_LOG_INFO => tracing::debug!(target: "dpdk", "{line}"),
        _ => tracing::trace!(target: "dpdk", "{line}"),
    }
    if level <= sys::SHIM_LOG_WARNING {
        // The access fails if the thread is ending and its locals are destroyed.
        let _ = WARNINGS.try_with(|warnings| {
            if let Ok(mut warnings) = warnings.try_borrow_mut()
                && let Some(warnings) = warnings.as_mut().filter(|warnings| warnings.len() < QUOTED)
            {
                warnings.push(line.to_owned());
            }
        });
    }
}
