//! All `ioctl` requests to the kernel about its interfaces: creates and sets tap devices, and reads the state and the link
//! settings of an interface.
//!
//! A tap device created here has no offloads: frames have no virtio header (`IFF_NO_PI` without
//! `IFF_VNET_HDR`), and no offload is enabled (`TUNSETOFFLOAD` is never called). Frames therefore arrive one by
//! one, no longer than the MTU, with complete checksums.

#![allow(unsafe_code)]
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;

use libc::{c_char, c_short, c_ulong, ifreq};
use millrace_types::Mac;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};

/// Maximum number of words of each bit set of link modes; Linux 6.12 has 4.
const MODE_WORDS: usize = 8;

/// `struct ethtool_link_settings`, followed by its three bit sets (linux/ethtool.h).
#[repr(C)]
struct RawSettings {
    cmd: u32,
    speed: u32,
    duplex: u8,
    port: u8,
    phy_address: u8,
    autoneg: u8,
    mdio: [u8; 3],
    /// Number of words of each set; if negative, the number that the kernel requires.
    words: i8,
    more: [u8; 4],
    reserved: [u32; 7],
    modes: [u32; 3 * MODE_WORDS],
}

/// `ETHTOOL_GLINKSETTINGS`.
const GET_LINK_SETTINGS: u32 = 0x4c;
/// `struct ethtool_value`.
#[repr(C)]
struct RawValue {
    cmd: u32,
    data: u32,
}

/// `ETHTOOL_GLINK`.
const GET_LINK: u32 = 0x0a;
/// `struct ethtool_drvinfo`.
#[repr(C)]
struct RawDriver {
    cmd: u32,
    driver: [u8; 32],
    more: [u8; 160],
}

/// `ETHTOOL_GDRVINFO`.
const GET_DRIVER: u32 = 0x03;
/// `SIOCETHTOOL`.
const ETHTOOL: c_ulong = 0x8946;

/// The link settings of an interface, in the numbers of `linux/ethtool.h`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct LinkSettings {
    /// Rate in Mbit/s, if known.
    pub(super) speed: Option<u32>,
    pub(super) full_duplex: bool,
    /// `PORT_*`.
    pub(super) port: u8,
    pub(super) autoneg: bool,
    /// Modes that the interface supports, as bits `ETHTOOL_LINK_MODE_*`; the two sets below likewise.
    pub(super) supported: Vec<u32>,
    pub(super) advertised: Vec<u32>,
    pub(super) peer: Vec<u32>,
}

/// Returns the link settings of an interface. Some drivers ask their firmware, so this must be called rarely.
///
/// # Errors
/// Returns the error of the kernel: `EOPNOTSUPP` if the driver does not know.
pub(super) fn link_settings(name: &str) -> io::Result<LinkSettings> {
    // SAFETY: the structure has integers only, for which zero is a valid value.
    let mut raw: RawSettings = unsafe { core::mem::zeroed() };
    raw.cmd = GET_LINK_SETTINGS;
    let socket = socket_for_requests()?;
    let mut request = request(name)?;
    // A request with no words returns the number of words that the kernel requires.
    for _ in 0..2 {
        request.ifr_ifru.ifru_data = core::ptr::from_mut(&mut raw).cast();
        interface_ioctl(&socket, ETHTOOL, &mut request)?;
        if raw.words >= 0 {
            break;
        }
        raw.words = raw.words.saturating_neg();
        if usize::from(raw.words.unsigned_abs()) > MODE_WORDS {
            return Err(io::Error::from(io::ErrorKind::Unsupported));
        }
    }
    let words = usize::from(raw.words.unsigned_abs()).min(MODE_WORDS);
    let set = |number: usize| {
        raw.modes
            .iter()
            .skip(number * words)
            .take(words)
            .copied()
            .collect()
    };
    Ok(LinkSettings {
        speed: Some(raw.speed).filter(|speed| *speed != 0 && *speed != u32::MAX),
        full_duplex: raw.duplex == 1,
        port: raw.port,
        autoneg: raw.autoneg == 1,
        supported: set(0),
        advertised: set(1),
        peer: set(2),
    })
}

/// Index, flags and MTU of a kernel interface, as rtnetlink reports them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct InterfaceState {
    /// Index of the interface.
    pub(super) index: u32,
    /// True if the interface is set up.
    pub(super) is_up: bool,
    /// True if it is up and has a carrier, as the kernel announces it and as the interface has it now. The kernel delays
    /// its announcements by up to a second while links change often.
    pub(super) is_running: bool,
    /// The longest packet in bytes, from the IP header on.
    pub(super) mtu: u32,
    /// The MAC address.
    pub(super) mac: [u8; 6],
}

/// Returns a request about the interface `name`, which must be 1 to 15 bytes long.
fn request(name: &str) -> io::Result<ifreq> {
    // SAFETY: an ifreq of zeros is valid: an empty name, and a union of plain data.
    let mut request: ifreq = unsafe { core::mem::zeroed() };
    if name.is_empty() || name.len() >= request.ifr_name.len() {
        return Err(io::Error::from(io::ErrorKind::InvalidInput));
    }
    for (to, byte) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = byte as c_char;
    }
    Ok(request)
}

/// Sends one of this file's requests about an interface to a file or socket.
fn interface_ioctl(fd: &impl AsRawFd, what: c_ulong, request: &mut ifreq) -> io::Result<()> {
    // SAFETY: each request of this file takes a pointer to an ifreq, which is alive and writable during the call, as
    // is the structure that it points to, and the kernel keeps no reference to them. ETHTOOL writes as many words as
    // the request says there are.
    let code = unsafe { libc::ioctl(fd.as_raw_fd(), what, core::ptr::from_mut(request)) };
    if code < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Returns a socket for requests about any interface of this thread's network namespace.
pub(super) fn socket_for_requests() -> io::Result<OwnedFd> {
    let flags = SockFlag::SOCK_CLOEXEC;
    Ok(socket(AddressFamily::Inet, SockType::Datagram, flags, None)?)
}

/// Returns true if an interface has a carrier now, or if its driver does not know, by a socket of [`socket_for_requests`].
///
/// # Errors
/// As [`state`].
pub(super) fn has_carrier(socket: &OwnedFd, name: &str) -> io::Result<bool> {
    let mut value = RawValue {
        cmd: GET_LINK,
        data: 0,
    };
    let mut request = request(name)?;
    request.ifr_ifru.ifru_data = core::ptr::from_mut(&mut value).cast();
    match interface_ioctl(socket, ETHTOOL, &mut request) {
        Ok(()) => Ok(value.data != 0),
        Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => Ok(true),
        Err(error) => Err(error),
    }
}

/// Creates a tap device, or opens an existing one that nobody uses. Reads and writes never block; each moves one
/// frame.
///
/// # Errors
/// Returns the error of the kernel: `EPERM` without CAP_NET_ADMIN, `EBUSY` if the device is in use.
pub(super) fn create(name: &str) -> io::Result<File> {
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC)
        .open("/dev/net/tun")?;
    let mut request = request(name)?;
    request.ifr_ifru.ifru_flags = (libc::IFF_TAP | libc::IFF_NO_PI) as c_short;
    interface_ioctl(&file, libc::TUNSETIFF as c_ulong, &mut request)?;
    Ok(file)
}

/// Sets the MTU: the longest payload of a frame in bytes.
///
/// # Errors
/// Returns the error of the kernel.
pub(super) fn set_mtu(name: &str, mtu: u16) -> io::Result<()> {
    let mut request = request(name)?;
    request.ifr_ifru.ifru_mtu = mtu.into();
    interface_ioctl(&socket_for_requests()?, libc::SIOCSIFMTU as c_ulong, &mut request)
}

/// Sets the MAC address.
///
/// # Errors
/// Returns the error of the kernel: `EADDRNOTAVAIL` for the address of a group.
pub(super) fn set_mac(name: &str, mac: Mac) -> io::Result<()> {
    let mut request = request(name)?;
    // SAFETY: a sockaddr of zeros is valid: a family, and plain bytes.
    let mut address: libc::sockaddr = unsafe { core::mem::zeroed() };
    address.sa_family = libc::ARPHRD_ETHER;
    for (to, byte) in address.sa_data.iter_mut().zip(mac.0) {
        *to = byte as c_char;
    }
    request.ifr_ifru.ifru_hwaddr = address;
    interface_ioctl(
        &socket_for_requests()?,
        libc::SIOCSIFHWADDR as c_ulong,
        &mut request,
    )
}

/// Sets an interface up.
///
/// # Errors
/// Returns the error of the kernel.
pub(super) fn set_up(name: &str) -> io::Result<()> {
    let socket = socket_for_requests()?;
    let mut request = request(name)?;
    interface_ioctl(&socket, libc::SIOCGIFFLAGS as c_ulong, &mut request)?;
    // SAFETY: the kernel has written this member, and any bytes are a valid number.
    let flags = unsafe { request.ifr_ifru.ifru_flags };
    request.ifr_ifru.ifru_flags = flags | libc::IFF_UP as c_short;
    interface_ioctl(&socket, libc::SIOCSIFFLAGS as c_ulong, &mut request)
}

/// Returns the name of the driver of an interface: `tun`, `veth`.
///
/// # Errors
/// Returns the error of the kernel: `ENODEV` if there is no such interface.
pub(super) fn driver(name: &str) -> io::Result<String> {
    let mut raw = RawDriver {
        cmd: GET_DRIVER,
        driver: [0; 32],
        more: [0; 160],
    };
    let mut request = request(name)?;
    request.ifr_ifru.ifru_data = core::ptr::from_mut(&mut raw).cast();
    interface_ioctl(&socket_for_requests()?, ETHTOOL, &mut request)?;
    let _unread = raw.more;
    let name = raw.driver.split(|byte| *byte == 0).next().unwrap_or_default();
    Ok(String::from_utf8_lossy(name).into_owned())
}

/// Gives the tap device of a file a carrier, or takes it away.
///
/// # Errors
/// Returns the error of the kernel: `EBADFD` if the device was deleted.
pub(super) fn set_carrier(file: &File, has_carrier: bool) -> io::Result<()> {
    let mut value = libc::c_int::from(has_carrier);
    // SAFETY: TUNSETCARRIER reads an int, which is alive during the call; the kernel keeps no reference to it.
    let code = unsafe {
        libc::ioctl(
            file.as_raw_fd(),
            libc::TUNSETCARRIER,
            core::ptr::from_mut(&mut value),
        )
    };
    if code < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

/// Makes the tap device of a file stay after its last user has closed it, or makes it go then.
///
/// # Errors
/// Returns the error of the kernel: `EBADFD` if the device was deleted.
pub(super) fn set_persistent(file: &File, stays: bool) -> io::Result<()> {
    // SAFETY: TUNSETPERSIST takes a number and no pointer.
    let code = unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETPERSIST, libc::c_ulong::from(stays)) };
    if code < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

/// Returns the current state of an interface.
///
/// # Errors
/// Returns the error of the kernel: `ENODEV` if this network namespace has no interface of that name.
pub(super) fn state(name: &str) -> io::Result<InterfaceState> {
    state_by(&socket_for_requests()?, name)
}

fn flags(socket: &OwnedFd, name: &str) -> io::Result<i32> {
    let mut asked = request(name)?;
    interface_ioctl(socket, libc::SIOCGIFFLAGS as c_ulong, &mut asked)?;
    // SAFETY: the kernel has written this member, and any bytes are a valid number.
    Ok(i32::from(unsafe { asked.ifr_ifru.ifru_flags }))
}

/// Returns the current state of an interface, by a socket of [`socket_for_requests`].
///
/// # Errors
/// As [`state`].
pub(super) fn state_by(socket: &OwnedFd, name: &str) -> io::Result<InterfaceState> {
    let flags = flags(socket, name)?;
    let running = libc::IFF_UP | libc::IFF_RUNNING;
    let mut asked = request(name)?;
    interface_ioctl(socket, libc::SIOCGIFHWADDR as c_ulong, &mut asked)?;
    // SAFETY: the kernel has written this member, and any bytes are a valid address.
    let address = unsafe { asked.ifr_ifru.ifru_hwaddr };
    let mut mac = [0; 6];
    for (byte, raw) in mac.iter_mut().zip(address.sa_data) {
        *byte = raw as u8;
    }
    interface_ioctl(socket, libc::SIOCGIFMTU as c_ulong, &mut asked)?;
    // SAFETY: the kernel has written this member, and any bytes are a valid number.
    let mtu = unsafe { asked.ifr_ifru.ifru_mtu };
    interface_ioctl(socket, libc::SIOCGIFINDEX as c_ulong, &mut asked)?;
    // SAFETY: the kernel has written this member, and any bytes are a valid number.
    let index = unsafe { asked.ifr_ifru.ifru_ifindex };
    Ok(InterfaceState {
        index: index.unsigned_abs(),
        is_up: flags & libc::IFF_UP != 0,
        is_running: flags & running == running && has_carrier(socket, name)?,
        mtu: mtu.unsigned_abs(),
        mac,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_is_running_and_has_no_address() {
        let state = state("lo").unwrap();
        assert_eq!(state.mac, [0; 6]);
        assert!(state.index > 0 && state.mtu >= 1500);
    }

    #[test]
    fn the_size_of_the_settings_is_that_of_the_kernels_header() {
        assert_eq!(core::mem::offset_of!(RawSettings, words), 15);
        assert_eq!(core::mem::offset_of!(RawSettings, modes), 48);
        assert_eq!(size_of::<RawDriver>(), 196);
        assert!(link_settings("no-such-iface").is_err());
    }

    #[test]
    fn what_is_no_interface_is_refused() {
        assert!(state("no-such-iface").is_err());
        for name in ["", "sixteen_letters_"] {
            assert_eq!(state(name).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        }
    }
}
