//! Checks of DPDK: its libraries in a supported version, and its drivers.

use super::finding::Finding;
use super::machine::Machine;

/// The directories in which distributions install libraries.
const DIRECTORIES: [&str; 5] = [
    "usr/lib/x86_64-linux-gnu",
    "usr/lib/aarch64-linux-gnu",
    "usr/lib64",
    "usr/local/lib/x86_64-linux-gnu",
    "usr/local/lib64",
];

/// The ABI versions that Millrace supports, with their DPDK releases.
const KNOWN: [(u32, &str); 3] = [(23, "22.11"), (24, "23.11"), (25, "24.11")];

const INSTALL: &str = "sudo apt-get install dpdk libdpdk-dev";

/// The drivers that configurations name most, each with the library that contains it and its purpose.
const DRIVERS: [(&str, &str, &str); 6] = [
    ("af_xdp", "af_xdp", "interfaces of the kernel"),
    (
        "af_packet",
        "af_packet",
        "interfaces of the kernel, as kernel:INTERFACE does, without checksums",
    ),
    ("tap", "tap", "interfaces for the host"),
    ("virtio_user", "virtio", "virtio-user ports"),
    ("memif", "memif", "the generator, at the other end of a port"),
    ("pcap", "pcap", "capture files"),
];

/// Returns the directory with the library, and the installed versions.
fn installed(machine: &Machine) -> Option<(&'static str, Vec<u32>)> {
    DIRECTORIES.into_iter().find_map(|directory| {
        let names = machine.list(directory);
        let version = |name: &String| {
            name.strip_prefix("librte_eal.so.")?
                .split('.')
                .next()?
                .parse()
                .ok()
        };
        let mut versions: Vec<u32> = names.iter().filter_map(version).collect();
        versions.dedup();
        (!versions.is_empty()).then_some((directory, versions))
    })
}

pub(super) fn libraries(machine: &Machine) -> Finding {
    let Some((directory, versions)) = installed(machine) else {
        return Finding::bad(
            "DPDK",
            "not installed",
            format!("millraced is linked with it: {INSTALL}"),
        );
    };
    let known = versions
        .iter()
        .find_map(|version| KNOWN.iter().find(|(known, _)| known == version));
    match known {
        Some((version, release)) => Finding::good(
            "DPDK",
            format!("{release} (librte_eal.so.{version} in /{directory})"),
        ),
        None => Finding::bad(
            "DPDK",
            format!(
                "librte_eal.so.{} in /{directory} belongs to an unsupported release",
                versions[0]
            ),
            format!("expected 22.11, 23.11 or 24.11: {INSTALL}"),
        ),
    }
}

pub(super) fn drivers(machine: &Machine) -> Finding {
    let Some((directory, _)) = installed(machine) else {
        return Finding::note("DPDK drivers", "not checked", "install DPDK first");
    };
    let mut names = machine.list(directory);
    for plugins in machine
        .list(&format!("{directory}/dpdk"))
        .iter()
        .filter(|name| name.starts_with("pmds-"))
    {
        names.extend(machine.list(&format!("{directory}/dpdk/{plugins}")));
    }
    let has = |library: &str| {
        names
            .iter()
            .any(|name| name.starts_with(&format!("librte_net_{library}.so")))
    };
    let missing: Vec<String> = DRIVERS
        .iter()
        .filter(|(_, library, _)| !has(library))
        .map(|(name, _, purpose)| format!("net_{name} ({purpose})"))
        .collect();
    if missing.is_empty() {
        let found: Vec<&str> = DRIVERS.iter().map(|(name, _, _)| *name).collect();
        Finding::good("DPDK drivers", found.join(", "))
    } else {
        Finding::note(
            "DPDK drivers",
            format!("missing: {}", missing.join(", ")),
            format!("{INSTALL} installs all of them"),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::Verdict;
    use super::super::machine::tests::machine;
    use super::*;

    #[test]
    fn a_known_release_is_good_and_others_are_bad() {
        let (_dir, debian) = machine(&[("usr/lib/x86_64-linux-gnu/librte_eal.so.23", "")]);
        assert!(libraries(&debian).found.starts_with("22.11 "));
        let (_dir, old) = machine(&[("usr/lib/x86_64-linux-gnu/librte_eal.so.20.0", "")]);
        assert_eq!(libraries(&old).verdict, Verdict::Bad);
        let (_dir, none) = machine(&[]);
        assert!(libraries(&none).next_step.unwrap().contains("apt-get install"));
    }

    #[test]
    fn missing_drivers_are_named_with_their_purpose() {
        let base = "usr/lib/x86_64-linux-gnu";
        let (_dir, some) = machine(&[
            (&format!("{base}/librte_eal.so.23"), ""),
            (&format!("{base}/dpdk/pmds-23.0/librte_net_af_packet.so.23"), ""),
        ]);
        let finding = drivers(&some);
        assert_eq!(finding.verdict, Verdict::Note);
        assert!(
            finding.found.contains("net_virtio_user (virtio-user ports)")
                && !finding.found.contains("af_packet")
        );
    }
    #[test]
    fn the_libraries_of_debian_contain_all_drivers() {
        let base = "usr/lib/x86_64-linux-gnu";
        let eal = format!("{base}/librte_eal.so.23");
        // virtio-user has no library of its own.
        let plugins = ["af_packet", "af_xdp", "memif", "pcap", "tap", "virtio"]
            .map(|name| format!("{base}/dpdk/pmds-23.0/librte_net_{name}.so.23"));
        let mut files = vec![(eal.as_str(), "")];
        files.extend(plugins.iter().map(|path| (path.as_str(), "")));
        let (_dir, debian) = machine(&files);
        let finding = drivers(&debian);
        assert_eq!(finding.verdict, Verdict::Good, "{}", finding.found);
        assert!(finding.found.contains("virtio_user"), "{}", finding.found);
    }
}
