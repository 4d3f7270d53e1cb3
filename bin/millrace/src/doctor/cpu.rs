//! Checks of the processor: instructions, time-stamp counter, cores, clock governor.

use super::finding::Finding;
use super::machine::Machine;

/// The instruction sets for which distributions compile DPDK on x86-64 (`cpu_instruction_set=corei7`).
const NEEDED: [&str; 3] = ["ssse3", "sse4_1", "sse4_2"];

pub(super) fn instructions(machine: &Machine) -> Finding {
    let info = machine.read("proc/cpuinfo").unwrap_or_default();
    let Some(flags) = info.lines().find_map(|line| line.strip_prefix("flags")) else {
        return Finding::note(
            "processor",
            "its instructions are unknown",
            "DPDK needs SSE 4.2 on x86-64",
        );
    };
    let has = |flag: &&str| flags.split_whitespace().any(|given| given == *flag);
    let missing: Vec<&str> = NEEDED.into_iter().filter(|flag| !has(flag)).collect();
    if !missing.is_empty() {
        return Finding::bad(
            "processor",
            format!("lacks {}", missing.join(", ")),
            "DPDK needs SSE 4.2; in a virtual machine, give it the host's processor (QEMU: -cpu host)",
        );
    }
    let best = ["avx512f", "avx2"]
        .into_iter()
        .find(|flag| has(flag))
        .unwrap_or("sse4_2");
    if flags.contains(" constant_tsc") {
        Finding::good("processor", format!("{best}, constant time stamp counter"))
    } else {
        Finding::note(
            "processor",
            format!("{best}, but its time stamp counter may vary"),
            "cycles per packet and latencies are unreliable here",
        )
    }
}

pub(super) fn cores(machine: &Machine) -> Finding {
    let info = machine.read("proc/cpuinfo").unwrap_or_default();
    let count = info.lines().filter(|line| line.starts_with("processor")).count();
    let isolated = machine
        .read("sys/devices/system/cpu/isolated")
        .unwrap_or_default();
    match (count, isolated.trim()) {
        (0 | 1, _) => Finding::note(
            "cores",
            format!("{count}"),
            "a polling worker shares the only core with all other threads: keep system.idle = \"adaptive\"",
        ),
        (count, "") => Finding::note(
            "cores",
            format!("{count}, none isolated for workers"),
            "for steady rates add `isolcpus=1 nohz_full=1 rcu_nocbs=1` to the kernel's command line, with the cores of system.worker_cores",
        ),
        (count, isolated) => Finding::good("cores", format!("{count}, of which {isolated} are isolated")),
    }
}

pub(super) fn governor(machine: &Machine) -> Finding {
    match machine.read("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor") {
        None => Finding::good("clock", "the kernel does not change it"),
        Some(governor) if governor.trim() == "performance" => Finding::good("clock", "governor performance"),
        Some(governor) => Finding::note(
            "clock",
            format!("governor {}", governor.trim()),
            "for steady rates: echo performance | sudo tee /sys/devices/system/cpu/cpu*/cpufreq/scaling_governor",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::Verdict;
    use super::super::machine::tests::machine;
    use super::*;

    #[test]
    fn a_processor_without_sse_4_2_is_bad() {
        let (_dir, old) = machine(&[(
            "proc/cpuinfo",
            "processor\t: 0\nflags\t\t: fpu ssse3 sse4_1 constant_tsc\n",
        )]);
        assert_eq!(instructions(&old).verdict, Verdict::Bad);
        let (_dir, new) = machine(&[(
            "proc/cpuinfo",
            "flags\t\t: ssse3 sse4_1 sse4_2 avx2 constant_tsc\n",
        )]);
        assert_eq!(instructions(&new).found, "avx2, constant time stamp counter");
    }

    #[test]
    fn isolated_cores_are_found() {
        let info = ("proc/cpuinfo", "processor\t: 0\nprocessor\t: 1\n");
        let (_dir, plain) = machine(&[info, ("sys/devices/system/cpu/isolated", "\n")]);
        assert_eq!(cores(&plain).verdict, Verdict::Note);
        let (_dir, tuned) = machine(&[info, ("sys/devices/system/cpu/isolated", "1\n")]);
        assert_eq!(
            cores(&tuned),
            Finding::good("cores", "2, of which 1 are isolated")
        );
    }

    #[test]
    fn a_governor_that_saves_power_is_noted() {
        let path = "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor";
        assert_eq!(
            governor(&machine(&[(path, "powersave\n")]).1).verdict,
            Verdict::Note
        );
        assert_eq!(
            governor(&machine(&[(path, "performance\n")]).1).verdict,
            Verdict::Good
        );
    }
}
