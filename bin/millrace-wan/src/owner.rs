//! One owner for each interface: two emulators at one interface would send each frame twice.
//!
//! The owner holds a lock on a file of the interface, in the directory of control sockets of its network namespace. The
//! kernel releases the lock with the process, however that ends.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use anyhow::{Context, Result, bail};
use millrace_datapath::io::DeviceSpec;
use nix::net::if_::if_nametoindex;

/// The ownership of an interface, until it is dropped.
#[must_use]
#[derive(Debug)]
pub(crate) struct Owned {
    _file: Option<File>,
}

/// Returns the interface of the kernel behind a device; `None` for a device that the kernel does not have.
pub(crate) fn kernel_name(spec: &DeviceSpec) -> Option<String> {
    match spec {
        DeviceSpec::Kernel(name) | DeviceSpec::Tap(name) => Some(name.clone()),
        DeviceSpec::Vdev(devargs) => {
            let argument = devargs
                .split(',')
                .find_map(|argument| argument.strip_prefix("iface="));
            argument.map(str::to_owned)
        }
        _ => None,
    }
}

/// Becomes the owner of an interface. `text` names it, `path` describes the path for the error of another emulator.
///
/// # Errors
/// Another process owns the interface.
pub(crate) fn own(directory: &Path, spec: &DeviceSpec, text: &str, path: &str) -> Result<Owned> {
    // An interface keeps its index when it is renamed, and may be named by devargs, too.
    let index = kernel_name(spec).and_then(|name| if_nametoindex(&*name).ok());
    if index.is_none() && matches!(spec, DeviceSpec::Kernel(_)) {
        // There is nothing to own; the error of its opening names the interface.
        return Ok(Owned { _file: None });
    }
    let safe = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
    let name = index.map_or_else(|| text.chars().map(safe).collect(), |index| format!("if{index}"));
    let file = directory.join(format!("{name}.lock"));
    let opened = std::fs::create_dir_all(directory).and_then(|()| {
        let mut options = OpenOptions::new();
        options
            .read(true)
            .write(true)
            .create(true)
            .mode(0o600)
            .open(&file)
    });
    let mut locked = match opened {
        Ok(locked) => locked,
        Err(error) => {
            // Without the directory there are no other emulators with a default socket.
            tracing::warn!(file = %file.display(), %error, "no other emulator is kept from {text}");
            return Ok(Owned { _file: None });
        }
    };
    match locked.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let mut owner = String::new();
            let _unknown = locked.read_to_string(&mut owner);
            bail!(
                "{text} is an end of another path ({}): each frame would be sent twice. To fix it: end that emulator, or \
                 choose another interface",
                owner.trim_end()
            );
        }
        Err(TryLockError::Error(error)) => return Err(error).with_context(|| file.display().to_string()),
    }
    let text = format!("process {}, {path}\n", std::process::id());
    locked
        .set_len(0)
        .and_then(|()| locked.write_all(text.as_bytes()))
        .with_context(|| file.display().to_string())?;
    Ok(Owned { _file: Some(locked) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interface_has_one_owner_under_all_its_names() {
        let directory = tempfile::tempdir().unwrap();
        let kernel = DeviceSpec::Kernel("lo".to_owned());
        let devargs = DeviceSpec::Vdev("net_af_xdp0,iface=lo".to_owned());
        let own = |spec, text| own(directory.path(), spec, text, "between lo eth1");
        let owned = own(&kernel, "lo").unwrap();
        let error = own(&devargs, "net_af_xdp0,iface=lo").unwrap_err().to_string();
        assert!(
            error.contains("between lo eth1") && error.contains("another path"),
            "{error}"
        );
        drop(owned);
        drop(own(&devargs, "net_af_xdp0,iface=lo").unwrap());
    }

    #[test]
    fn an_interface_that_does_not_exist_has_no_owner() {
        let directory = tempfile::tempdir().unwrap();
        let absent = DeviceSpec::Kernel("mr-absent".to_owned());
        let own = || own(directory.path(), &absent, "mr-absent", "between mr-absent lo");
        let _first = own().unwrap();
        let _second = own().unwrap();
    }
}
