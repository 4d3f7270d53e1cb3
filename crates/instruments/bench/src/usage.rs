//! Processor time of programs that have ended, by getrusage(2).

use nix::sys::resource::{Usage, UsageWho, getrusage};
use nix::sys::time::TimeVal;

/// Returns the processor time of all children of this process that have ended and were waited for, in seconds.
pub(crate) fn children_s() -> f64 {
    children().map_or(0.0, |usage| {
        seconds(usage.user_time()) + seconds(usage.system_time())
    })
}

/// Returns the part of [`children_s`] that they spent outside of the kernel.
pub(crate) fn children_user_s() -> f64 {
    children().map_or(0.0, |usage| seconds(usage.user_time()))
}

fn children() -> Option<Usage> {
    getrusage(UsageWho::RUSAGE_CHILDREN).ok()
}

fn seconds(time: TimeVal) -> f64 {
    time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6
}

/// Returns the largest resident memory that a running process had so far, in bytes.
pub(crate) fn peak_memory(pid: u32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kib * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_that_computed_has_taken_time_and_this_process_has_memory() {
        let before = (children_user_s(), children_s());
        let script = "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done";
        let status = std::process::Command::new("sh").args(["-c", script]).status();
        assert!(status.unwrap().success());
        assert!(children_user_s() > before.0);
        assert!(children_s() > before.1);
        assert!(peak_memory(std::process::id()).unwrap() > 1 << 20);
    }
}
