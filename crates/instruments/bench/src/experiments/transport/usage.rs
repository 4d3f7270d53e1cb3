//! Processor time of programs that have ended, by getrusage(2).

use nix::sys::resource::{UsageWho, getrusage};

/// Returns the processor time of all children of this process that have ended and were waited for, in seconds.
pub(super) fn children_s() -> f64 {
    getrusage(UsageWho::RUSAGE_CHILDREN).map_or(0.0, |usage| {
        let seconds = |time: nix::sys::time::TimeVal| time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6;
        seconds(usage.user_time()) + seconds(usage.system_time())
    })
}

/// Returns the largest resident memory that a running process had so far, in bytes.
pub(super) fn peak_memory(pid: u32) -> Option<u64> {
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
        let before = children_s();
        let script = "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done";
        let status = std::process::Command::new("sh").args(["-c", script]).status();
        assert!(status.unwrap().success());
        assert!(children_s() > before);
        assert!(peak_memory(std::process::id()).unwrap() > 1 << 20);
    }
}
