//! Checks of rights. The user that runs `doctor` is assumed to have the same rights as the daemon.

use super::finding::Finding;
use super::machine::Machine;

/// The capabilities for devices of the kernel and for locked memory, with their bits in the capability sets (capabilities(7)).
const NEEDED: [(&str, u32); 3] = [("CAP_NET_ADMIN", 12), ("CAP_NET_RAW", 13), ("CAP_IPC_LOCK", 14)];

pub(super) fn capabilities(machine: &Machine) -> Finding {
    let status = machine.read("proc/self/status").unwrap_or_default();
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let effective = effective
        .and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok())
        .unwrap_or(0);
    let missing: Vec<&str> = NEEDED
        .into_iter()
        .filter(|(_, bit)| effective >> bit & 1 == 0)
        .map(|(name, _)| name)
        .collect();
    if missing.is_empty() {
        return Finding::good("rights", "enough for devices of the kernel and locked memory");
    }
    Finding::note(
        "rights",
        format!("this user lacks {}", missing.join(", ")),
        "devices of the kernel (kernel, af_xdp, tap), NICs and labs need root: run `sudo millrace doctor` to see what root gets; \
         without it, `millraced --no-dpdk` runs with memory, link and pcap devices",
    )
}

/// Checks the limit of locked memory, which AF_XDP and vfio need.
pub(super) fn locked_memory(machine: &Machine) -> Finding {
    /// The required limit, 64 MiB: the rings and buffers of a few AF_XDP ports.
    const ENOUGH: u64 = 64 << 20;
    let limits = machine.read("proc/self/limits").unwrap_or_default();
    let limit = limits
        .lines()
        .find_map(|line| line.strip_prefix("Max locked memory"));
    match limit.and_then(|line| line.split_whitespace().next()) {
        Some("unlimited") => Finding::good("locked memory", "unlimited"),
        Some(text) if text.parse().is_ok_and(|bytes: u64| bytes >= ENOUGH) => {
            Finding::good("locked memory", format!("{text} bytes"))
        }
        found => Finding::note(
            "locked memory",
            format!("{} bytes", found.unwrap_or("unknown")),
            "af_xdp and NICs need more: `ulimit -l unlimited` before millraced, or LimitMEMLOCK=infinity in its systemd unit",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::Verdict;
    use super::super::machine::tests::machine;
    use super::*;

    #[test]
    fn missing_capabilities_are_named() {
        let (_dir, user) = machine(&[("proc/self/status", "Name:\tmillrace\nCapEff:\t0000000000001000\n")]);
        assert_eq!(
            capabilities(&user).found,
            "this user lacks CAP_NET_RAW, CAP_IPC_LOCK"
        );
        let (_dir, root) = machine(&[("proc/self/status", "CapEff:\t000001ffffffffff\n")]);
        assert_eq!(capabilities(&root).verdict, Verdict::Good);
    }

    #[test]
    fn a_low_limit_of_locked_memory_is_noted() {
        let limits = |soft: &str| {
            format!(
                "Limit  Soft Limit\nMax locked memory         {soft}              {soft}              bytes\n"
            )
        };
        let (_dir, low) = machine(&[("proc/self/limits", &limits("65536"))]);
        assert_eq!(locked_memory(&low).verdict, Verdict::Note);
        let (_dir, high) = machine(&[("proc/self/limits", &limits("unlimited"))]);
        assert_eq!(locked_memory(&high).verdict, Verdict::Good);
    }
}
