//! Check of huge pages: the daemon has enough, or can reserve them when it starts.
//!
//! `millraced` reserves the pages that it lacks, and frees them when it ends (`millrace_dpdk::hugepages`). Pages in
//! use therefore do not count as missing, and a machine without free pages is fine if it has free memory.

use millrace_api::view::Version;

use super::finding::Finding;
use super::machine::Machine;

const SUBJECT: &str = "huge pages";
/// The default memory of the daemon in KiB (`system.memory_mib`).
const WANTED_KIB: u64 = 512 << 10;

fn field(meminfo: &str, name: &str) -> Option<u64> {
    let line = meminfo
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Checks the huge pages. `daemon` is the version information of the running daemon, if one responds.
pub(super) fn huge_pages(machine: &Machine, daemon: Option<&Version>) -> Finding {
    let meminfo = machine.read("proc/meminfo").unwrap_or_default();
    let (Some(total), Some(free), Some(size_kib)) = (
        field(&meminfo, "HugePages_Total"),
        field(&meminfo, "HugePages_Free"),
        field(&meminfo, "Hugepagesize"),
    ) else {
        return Finding::note(
            SUBJECT,
            "this kernel has none",
            "the switch runs without them, more slowly; a kernel with CONFIG_HUGETLBFS has them",
        );
    };
    let found = format!(
        "{free} of {total} free, {} in use, {} MiB each",
        total.saturating_sub(free),
        size_kib >> 10
    );
    let dpdk = daemon.and_then(|version| version.dpdk.as_ref());
    match dpdk.filter(|dpdk| dpdk.used) {
        Some(dpdk) if dpdk.huge_pages => {
            return Finding::good(SUBJECT, format!("{found}; millraced has its memory in them"));
        }
        Some(_) => {
            return Finding::note(
                SUBJECT,
                format!("{found}; millraced runs without them, more slowly on devices of DPDK"),
                "if it has such devices, its log gives the reason at its start; `system.huge_pages` configures them",
            );
        }
        None => {}
    }
    let missing = WANTED_KIB
        .saturating_sub(free * size_kib)
        .div_ceil(size_kib.max(1));
    if missing == 0 {
        return Finding::good(SUBJECT, found);
    }
    // The daemon reserves at most nine tenths of the available memory.
    let available_kib = field(&meminfo, "MemAvailable").unwrap_or(0) / 10 * 9;
    if missing * size_kib <= available_kib {
        return Finding::good(
            SUBJECT,
            format!("{found}; millraced reserves {missing} more when root starts it"),
        );
    }
    Finding::note(
        SUBJECT,
        format!("{found}; memory for {missing} more is not available"),
        "the switch runs without huge pages, more slowly; end other programs, lower `system.memory_mib`, or reserve pages when the \
         machine starts (hugepages= on the kernel's command line)",
    )
}

#[cfg(test)]
mod tests {
    use millrace_api::view::Dpdk;

    use super::super::finding::Verdict;
    use super::super::machine::tests::machine;
    use super::*;

    fn meminfo(available_mib: u64, total: u64, free: u64) -> String {
        format!(
            "MemTotal: 8000000 kB\nMemAvailable: {} kB\nHugePages_Total:   {total}\nHugePages_Free:    {free}\n\
             Hugepagesize:       2048 kB\n",
            available_mib << 10
        )
    }

    fn daemon(used: bool, huge_pages: bool) -> Version {
        Version {
            version: "1".to_owned(),
            dpdk: Some(Dpdk {
                version: "22.11".to_owned(),
                used,
                huge_pages,
            }),
            uptime_seconds: 1.0,
            pid: None,
            network_namespace: None,
        }
    }

    #[test]
    fn pages_that_the_daemon_can_reserve_itself_are_not_missing() {
        let (_dir, none) = machine(&[("proc/meminfo", &meminfo(2048, 0, 0))]);
        let finding = huge_pages(&none, None);
        assert_eq!(finding.verdict, Verdict::Good);
        assert!(
            finding.found.contains("millraced reserves 256 more"),
            "{finding:?}"
        );
        let (_dir, enough) = machine(&[("proc/meminfo", &meminfo(0, 400, 256))]);
        assert_eq!(huge_pages(&enough, None).verdict, Verdict::Good);
    }

    #[test]
    fn too_little_memory_for_more_pages_is_noted() {
        let (_dir, full) = machine(&[("proc/meminfo", &meminfo(100, 100, 50))]);
        let finding = huge_pages(&full, Some(&daemon(false, false)));
        assert_eq!(finding.verdict, Verdict::Note);
        assert!(
            finding.found.contains("memory for 206 more is not available"),
            "{finding:?}"
        );
    }

    #[test]
    fn pages_in_use_by_the_daemon_are_as_they_should_be_and_a_daemon_without_them_is_noted() {
        let (_dir, in_use) = machine(&[("proc/meminfo", &meminfo(10, 256, 0))]);
        let finding = huge_pages(&in_use, Some(&daemon(true, true)));
        assert_eq!(finding.verdict, Verdict::Good);
        assert!(
            finding.found.starts_with("0 of 256 free, 256 in use"),
            "{finding:?}"
        );
        assert_eq!(
            huge_pages(&in_use, Some(&daemon(true, false))).verdict,
            Verdict::Note
        );
    }
}
