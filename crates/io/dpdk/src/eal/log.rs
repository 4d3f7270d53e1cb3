//! DPDK's log, sent to `tracing` and, while a call is under way, kept for its error message.

use std::cell::RefCell;
use std::ffi::c_char;
use std::panic::catch_unwind;
use std::slice;

use millrace_dpdk_sys as sys;

use crate::Errno;

/// The most complaints that an error message quotes.
const QUOTED: usize = 4;

thread_local! {
    /// What was logged at warning or above by this thread, while somebody listens.
    static COMPLAINTS: RefCell<Option<Vec<String>>> = const { RefCell::new(None) };
}

/// From now on everything that DPDK logs goes to `tracing`.
pub(crate) fn redirect() -> Result<(), Errno> {
    // SAFETY: the sink is a function, so it lives for ever; EAL is not up yet, so nobody logs at the same time.
    Errno::check(unsafe { sys::shim_log_to(Some(sink)) }).map(|_| ())
}

/// The same for the BPF libraries under `net_af_xdp`, when EAL has loaded its drivers.
pub(super) fn redirect_bpf() {
    // SAFETY: the sink is set, by `redirect`, and no driver uses the libraries yet.
    unsafe { sys::shim_log_bpf() };
}

/// Calls `work` and returns, beside its result, what DPDK complained about meanwhile on this thread.
pub(crate) fn listen<T>(work: impl FnOnce() -> T) -> (T, Vec<String>) {
    COMPLAINTS.with_borrow_mut(|complaints| *complaints = Some(Vec::new()));
    let result = work();
    let complaints = COMPLAINTS.take().unwrap_or_default();
    (result, complaints)
}

/// Called by DPDK, on any thread.
extern "C" fn sink(level: u32, text: *const c_char, len: usize) {
    // SAFETY: the shim passes `len` bytes that live until this returns.
    let bytes = unsafe { slice::from_raw_parts(text.cast::<u8>(), len) };
    let text = String::from_utf8_lossy(bytes);
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
        // A subscriber that panics must not unwind into C.
        let _ = catch_unwind(|| pass_on(level, line));
    }
}

/// What EAL warns of on most machines though nothing is wrong: page sizes that nobody reserved, and a missing mount
/// that is not needed in memory.
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
        // Nobody listens on a thread whose locals are gone.
        let _ = COMPLAINTS.try_with(|complaints| {
            if let Ok(mut complaints) = complaints.try_borrow_mut()
                && let Some(complaints) = complaints.as_mut().filter(|complaints| complaints.len() < QUOTED)
            {
                complaints.push(line.to_owned());
            }
        });
    }
}
