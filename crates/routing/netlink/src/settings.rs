//! Settings of the kernel in the namespace of a VRF (`sysctl`). All functions work in the namespace of the calling thread.
//!
//! The switch forwards, and the kernel must not do so behind its back:
//!
//! | setting | value | reason |
//! | --- | --- | --- |
//! | net.ipv4.conf.all.forwarding, net.ipv6.conf.all.forwarding | 0 | the kernel forwards nothing |
//! | net.ipv6.conf.IF.forwarding | 1 | does not forward without `all`, but makes the kernel a router in its neighbour advertisements: hosts drop a default route whose router says that it is none (RFC 4861, section 7.2.5); and router advertisements of others add no routes |
//! | net.ipv4.nexthop_compat_mode | 0 | the replacement of a nexthop group is one message instead of one for each route |
//! | net.ipv4.conf.*.accept_redirects, net.ipv6.conf.*.accept_redirects | 0 | a host of the VLAN redirects nobody |
//! | net.ipv6.conf.default.accept_ra | 0 | as above, if somebody turns the forwarding of an interface off |

use std::fs;
use std::io;
use std::path::Path;

const SYSCTL: &str = "/proc/sys/net";

/// Makes the settings. Daemons change some of them (zebra's `ip forwarding`), so that the reader makes them again when the
/// kernel says that forwarding changed.
///
/// # Errors
/// Returns the error of the kernel: `EROFS` in a container whose /proc/sys is read-only.
pub(crate) fn apply() -> io::Result<()> {
    set("ipv4/nexthop_compat_mode", "0")?;
    keep_from_forwarding()?;
    for folder in ["ipv4/conf/all", "ipv4/conf/default"] {
        set(&format!("{folder}/accept_redirects"), "0")?;
    }
    if has_ipv6() {
        for interface in interfaces()? {
            // An interface may be gone since the folder was read.
            let _gone = set(&format!("ipv6/conf/{interface}/accept_redirects"), "0");
            let _gone = set(&format!("ipv6/conf/{interface}/accept_ra"), "0");
        }
    }
    Ok(())
}

/// Turns forwarding off, and leaves each interface a router of IPv6. A value that is right is not written, because each
/// write makes a notification.
///
/// # Errors
/// Returns the error of the kernel.
pub(crate) fn keep_from_forwarding() -> io::Result<()> {
    set("ipv4/conf/all/forwarding", "0")?;
    if has_ipv6() {
        // This sets the value of all interfaces, so that it comes first.
        set("ipv6/conf/all/forwarding", "0")?;
        for interface in interfaces()? {
            if interface != "all" && interface != "lo" {
                let _gone = set(&format!("ipv6/conf/{interface}/forwarding"), "1");
            }
        }
    }
    Ok(())
}

/// Returns the folders of interfaces, with `all` and `default`, which new interfaces inherit.
fn interfaces() -> io::Result<Vec<String>> {
    let folder = fs::read_dir(Path::new(SYSCTL).join("ipv6/conf"))?;
    folder
        .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
        .collect()
}

fn has_ipv6() -> bool {
    Path::new(SYSCTL).join("ipv6/conf").exists()
}

fn set(name: &str, value: &str) -> io::Result<()> {
    let path = Path::new(SYSCTL).join(name);
    let named = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
    if fs::read_to_string(&path).map_err(named)?.trim() == value {
        return Ok(());
    }
    fs::write(&path, value).map_err(named)
}
