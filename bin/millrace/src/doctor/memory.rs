//! Huge pages: how many are free, and whether they are mounted.

use super::{Finding, Machine};

/// What the daemon takes unless configured otherwise, KiB.
const WANTED_KIB: u64 = 512 << 10;

fn field(meminfo: &str, name: &str) -> Option<u64> {
    let line = meminfo
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    line.split_whitespace().next()?.parse().ok()
}

pub(super) fn huge_pages(machine: &Machine) -> Finding {
    let meminfo = machine.read("proc/meminfo").unwrap_or_default();
    let (Some(total), Some(free), Some(size_kib)) = (
        field(&meminfo, "HugePages_Total"),
        field(&meminfo, "HugePages_Free"),
        field(&meminfo, "Hugepagesize"),
    ) else {
        return Finding::note(
            "huge pages",
            "this kernel has none",
            "the switch runs without, more slowly; a kernel with CONFIG_HUGETLBFS has them",
        );
    };
    let found = format!("{free} of {total} free, {} MiB each", size_kib >> 10);
    if free * size_kib >= WANTED_KIB {
        return Finding::good("huge pages", found);
    }
    let pages = total + WANTED_KIB.div_ceil(size_kib.max(1)).saturating_sub(free);
    Finding::note(
        "huge pages",
        found,
        format!(
            "the switch runs without, more slowly; for {} MiB: sudo sysctl vm.nr_hugepages={pages}",
            WANTED_KIB >> 10
        ),
    )
}

pub(super) fn mount(machine: &Machine) -> Finding {
    let mounts = machine.read("proc/mounts").unwrap_or_default();
    let mounted = mounts.lines().find_map(|line| {
        let mut words = line.split_whitespace();
        let (_, path, kind) = (words.next()?, words.next()?, words.next()?);
        (kind == "hugetlbfs").then(|| path.to_owned())
    });
    match mounted {
        Some(path) => Finding::good("hugetlbfs", format!("mounted at {path}")),
        None => Finding::note(
            "hugetlbfs",
            "not mounted",
            "DPDK takes huge pages through it: sudo mkdir -p /dev/hugepages && sudo mount -t hugetlbfs none /dev/hugepages",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Verdict;
    use super::super::tests::machine;
    use super::*;

    fn meminfo(total: u64, free: u64) -> String {
        format!(
            "MemTotal: 8000000 kB\nHugePages_Total:   {total}\nHugePages_Free:    {free}\nHugepagesize:       2048 kB\n"
        )
    }

    #[test]
    fn too_few_huge_pages_are_noted_with_the_number_that_is_enough() {
        let (_dir, few) = machine(&[("proc/meminfo", &meminfo(100, 50))]);
        let finding = huge_pages(&few);
        assert_eq!(finding.verdict, Verdict::Note);
        assert!(finding.remedy.unwrap().ends_with("vm.nr_hugepages=306"));
        let (_dir, enough) = machine(&[("proc/meminfo", &meminfo(400, 256))]);
        assert_eq!(huge_pages(&enough).verdict, Verdict::Good);
    }

    #[test]
    fn a_mount_is_found_wherever_it_is() {
        let (_dir, mounted) = machine(&[("proc/mounts", "none /mnt/huge hugetlbfs rw 0 0\n")]);
        assert_eq!(
            mount(&mounted),
            Finding::good("hugetlbfs", "mounted at /mnt/huge")
        );
    }
}
