//! The file system of a guest: programs of this machine with their libraries, modules of the guest's kernel, and a
//! script that configures the guest and then runs the commands of the second serial line.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::archive::Archive;
use super::console::{BEGIN, DONE, READY};
use super::kernel::Kernel;
use crate::system::SystemError;
use crate::topology::{Guest, Host};
use crate::up::UpError;

/// The kernel modules in dependency order.
const MODULES: [&str; 11] = [
    "drivers/virtio/virtio_ring.ko",
    "drivers/virtio/virtio.ko",
    "drivers/virtio/virtio_pci_legacy_dev.ko",
    "drivers/virtio/virtio_pci_modern_dev.ko",
    "drivers/virtio/virtio_pci.ko",
    "net/core/failover.ko",
    "drivers/net/net_failover.ko",
    "drivers/net/virtio_net.ko",
    "net/llc/llc.ko",
    "net/802/stp.ko",
    "net/bridge/bridge.ko",
];
/// The programs and their packages. The first one is statically linked and is the shell.
const PROGRAMS: [(&str, &str); 3] = [
    ("busybox", "busybox-static"),
    ("iperf3", "iperf3"),
    ("ethtool", "ethtool"),
];
/// The directories that are searched for programs.
const FOLDERS: [&str; 4] = ["/bin", "/usr/bin", "/sbin", "/usr/sbin"];
/// The script of a trial guest, which ends at once.
pub(super) const PROBE: &str = "reboot -f\n";

/// Returns the script that runs before commands are accepted: name, interfaces, addresses, routes and forwarder.
pub(super) fn settings(host: &Host, guest: &Guest, quiet: bool) -> String {
    let mut text = format!("hostname {}\nip link set lo up\n", host.name);
    let has_ipv6 = || {
        let mut addresses = host.interfaces.iter().flat_map(|interface| &interface.addresses);
        addresses.any(|prefix| prefix.address().is_ipv6())
    };
    // Writing to a string cannot fail.
    if quiet {
        let key = if has_ipv6() { "accept_dad" } else { "disable_ipv6" };
        let value = u8::from(!has_ipv6());
        let _ = writeln!(
            text,
            "for each in /proc/sys/net/ipv6/conf/*/{key}; do echo {value} > $each; done"
        );
    }
    for interface in &host.interfaces {
        let name = &interface.name;
        let _ = writeln!(text, "ip link set {name} mtu {} up", guest.mtu);
        for address in &interface.addresses {
            let _ = writeln!(text, "ip address add {address} dev {name}");
        }
    }
    for route in &host.routes {
        let _ = writeln!(text, "ip route add {} via {}", route.destination, route.via);
    }
    if guest.forward {
        text += "brctl addbr forward\n";
        for interface in &host.interfaces {
            let _ = writeln!(text, "brctl addif forward {}", interface.name);
        }
        text += "ip link set forward up\n";
    }
    text
}

/// Returns the archive of a guest that runs a script first, and then takes commands.
///
/// # Errors
/// A program or a module is missing.
pub(super) fn build(kernel: &Kernel, script: &str) -> Result<Vec<u8>, UpError> {
    let mut image = Image::new();
    for (name, package) in PROGRAMS {
        image.program(&installed(name, package)?, &format!("bin/{name}"))?;
    }
    for module in MODULES {
        image.module(kernel, module)?;
    }
    let init = init(&image.insert, script);
    Ok(image.finish(&init)?)
}

/// The file system of a guest under construction.
pub(super) struct Image {
    archive: Archive,
    libraries: BTreeSet<String>,
    /// The commands that insert the modules.
    pub(super) insert: String,
}

impl Image {
    pub(super) fn new() -> Image {
        let mut archive = Archive::default();
        for folder in ["proc", "sys", "dev", "tmp", "run", "sbin", "usr/bin", "usr/sbin"] {
            archive.folder(folder);
        }
        Image {
            archive,
            libraries: BTreeSet::new(),
            insert: String::new(),
        }
    }

    /// Adds a program of this machine with its shared libraries.
    pub(super) fn program(&mut self, from: &Path, to: &str) -> Result<(), SystemError> {
        self.archive.file(to, 0o755, &read(from)?);
        self.libraries.extend(needed_by(from));
        Ok(())
    }

    /// Adds a file of this machine.
    pub(super) fn file(&mut self, from: &Path, to: &str) -> Result<(), SystemError> {
        self.archive.file(to, 0o644, &read(from)?);
        Ok(())
    }

    /// Adds a module of the guest's kernel, by its path below `kernel/`. Modules are inserted in the order of these calls.
    pub(super) fn module(&mut self, kernel: &Kernel, path: &str) -> Result<(), SystemError> {
        let name = path.rsplit('/').next().unwrap_or(path);
        self.file(&kernel.module(path), &format!("modules/{name}"))?;
        // Writing to a string cannot fail.
        let _ = writeln!(self.insert, "insmod /modules/{name}");
        Ok(())
    }

    /// Returns the archive, with the libraries of all programs and the script that the kernel starts.
    pub(super) fn finish(mut self, init: &str) -> Result<Vec<u8>, SystemError> {
        for library in &self.libraries {
            self.archive.file(library, 0o755, &read(Path::new(library))?);
        }
        self.archive.file("init", 0o755, init.as_bytes());
        Ok(self.archive.finish())
    }
}

/// Returns the path of an installed program.
pub(super) fn installed(name: &str, package: &'static str) -> Result<PathBuf, SystemError> {
    let paths = FOLDERS.iter().map(|folder| Path::new(folder).join(name));
    let missing = || SystemError::ToolMissing {
        tool: name.to_owned(),
        package,
    };
    paths.into_iter().find(|path| path.is_file()).ok_or_else(missing)
}

fn read(path: &Path) -> Result<Vec<u8>, SystemError> {
    fs::read(path).map_err(SystemError::file("read", path))
}

/// Returns the shared libraries of a program and its loader; none for a statically linked program.
fn needed_by(program: &Path) -> Vec<String> {
    let Ok(output) = Command::new("ldd").arg(program).output() else {
        return Vec::new();
    };
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    // `name => /path (address)`, or `/path (address)`.
    let words = text.split_whitespace().filter(|word| word.starts_with('/'));
    words.map(str::to_owned).collect()
}

/// Returns the init script of a guest. Commands arrive line by line, each after a token that marks the beginning and
/// the end of its answer.
fn init(insert: &str, script: &str) -> String {
    format!(
        "#!/bin/busybox sh\n\
         /bin/busybox --install -s\n\
         export PATH=/bin:/sbin:/usr/bin:/usr/sbin HOME=/ TMPDIR=/tmp\n\
         mount -t proc proc /proc\n\
         mount -t sysfs sys /sys\n\
         mount -t devtmpfs dev /dev\n\
         {insert}{script}\
         stty -F /dev/ttyS1 raw -echo\n\
         exec 3<>/dev/ttyS1\n\
         while read -r token line <&3; do\n\
         case $token in {READY}*) echo \"$token\" >&3; continue;; esac\n\
         printf '{BEGIN}%s\\n' \"$token\" >&3\n\
         sh -c \"$line\" >&3 2>&1 </dev/null\n\
         printf '{DONE}%s %d\\n' \"$token\" $? >&3\n\
         done\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::{Machine, Topology};

    fn guest(text: &str) -> String {
        let topology = Topology::parse("lab.toml", text).unwrap();
        let host = &topology.hosts[0];
        let Machine::Guest(guest) = &host.machine else {
            panic!("{host:?}")
        };
        settings(host, guest, topology.quiet)
    }

    #[test]
    fn a_guest_sets_up_what_the_file_says() {
        let text = guest(
            "[[guest]]\nname = \"g1\"\nip = \"10.0.0.1/24\"\nmtu = 1400\ngateway = \"10.0.0.9\"\n\
             [[switch]]\nname = \"s\"\nkind = \"millrace\"\nports = [\"g1\"]\n",
        );
        for line in [
            "hostname g1",
            "ip link set eth0 mtu 1400 up",
            "ip address add 10.0.0.1/24 dev eth0",
            "ip route add 0.0.0.0/0 via 10.0.0.9",
            "for each in /proc/sys/net/ipv6/conf/*/disable_ipv6; do echo 1 > $each; done",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}: {text}");
        }
        assert!(!text.contains("brctl"));
    }

    #[test]
    fn a_forwarder_is_a_bridge_over_all_of_its_interfaces() {
        let text = guest(
            "[[guest]]\nname = \"f\"\nforward = true\n\
             [[switch]]\nname = \"s\"\nkind = \"millrace\"\nports = [\"f\", \"f\"]\n",
        );
        for line in [
            "brctl addbr forward",
            "brctl addif forward eth0",
            "brctl addif forward eth1",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}: {text}");
        }
    }
}
