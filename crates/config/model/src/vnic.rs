//! Virtual NICs: ports whose peer is a virtual machine, a container or a process, reached by a Unix socket.
//!
//! `vhost:/run/millrace/vm1.sock,role=server,group=kvm,mode=0660`: one line of text, as for other devices.
//!
//! | text | the peer |
//! | --- | --- |
//! | `vhost:PATH` | a virtio driver: QEMU, or a process with DPDK's virtio-user |
//! | `virtio-user:PATH` | another switch with a vhost-user port: this one is the driver |
//! | `memif:PATH` | any process that speaks memif: DPDK, VPP, libmemif |

use std::fmt;
use std::path::{Path, PathBuf};

use crate::node::shorten;

/// The protocol between the switch and its peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum VnicKind {
    /// vhost-user: the peer is the virtio driver, and its memory holds the packets.
    Vhost,
    /// virtio-user: this switch is the virtio driver, and its memory holds the packets.
    VirtioUser,
    /// memif: the client's memory holds the packets.
    Memif,
}

impl VnicKind {
    /// All protocols.
    pub const ALL: [VnicKind; 3] = [VnicKind::Vhost, VnicKind::VirtioUser, VnicKind::Memif];

    /// Returns the text before the colon.
    pub const fn as_str(self) -> &'static str {
        match self {
            VnicKind::Vhost => "vhost",
            VnicKind::VirtioUser => "virtio-user",
            VnicKind::Memif => "memif",
        }
    }

    const fn role(self) -> VnicRole {
        match self {
            VnicKind::Vhost | VnicKind::Memif => VnicRole::Server,
            VnicKind::VirtioUser => VnicRole::Client,
        }
    }

    const fn keys(self) -> &'static str {
        match self {
            VnicKind::Vhost => {
                "expected vhost:PATH, and role=server or role=client, tso=on or tso=off; a server also owner=USER, \
                 group=GROUP, mode=0660"
            }
            VnicKind::VirtioUser => "expected virtio-user:PATH, and rings=split or rings=packed",
            VnicKind::Memif => {
                "expected memif:PATH, and role=server or role=client, id=NUMBER; a server also owner=USER, \
                 group=GROUP, mode=0660"
            }
        }
    }
}

/// Returns the path of a Unix socket: absolute, and at most 107 bytes long. `expected` ends the error.
pub(crate) fn socket_path(path: &str, expected: &str) -> Result<PathBuf, String> {
    if !path.starts_with('/') || path.ends_with('/') || path.contains(',') {
        return Err(format!(
            "`{}` is not the absolute path of a socket; {expected}",
            shorten(path)
        ));
    }
    if path.len() > PATH_MAX {
        return Err(format!(
            "the path has {} bytes; expected at most {PATH_MAX}, the limit of a Unix socket",
            path.len()
        ));
    }
    Ok(PathBuf::from(path))
}

/// The role of the switch at the socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum VnicRole {
    /// The switch creates the socket and accepts peers.
    Server,
    /// The peer creates the socket, and the switch retries until it can connect.
    Client,
}

impl VnicRole {
    /// Returns the word in the configuration.
    pub const fn as_str(self) -> &'static str {
        match self {
            VnicRole::Server => "server",
            VnicRole::Client => "client",
        }
    }
}

/// The virtqueue layout of a port at which this switch is the driver (virtio 1.1, sections 2.6 and 2.7). If
/// the peer is the driver, the peer selects the layout.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum VirtioRings {
    /// Split virtqueue: descriptor table, available ring and used ring.
    Split,
    /// Packed virtqueue: one descriptor ring.
    Packed,
}

impl VirtioRings {
    /// Returns the word in the configuration.
    pub const fn as_str(self) -> &'static str {
        match self {
            VirtioRings::Split => "split",
            VirtioRings::Packed => "packed",
        }
    }
}

/// The length limit of a Unix socket's path, in bytes: the size of `sun_path` without its NUL.
const PATH_MAX: usize = 107;
/// Default permissions: read and write for the owner.
const MODE_OWNER: u16 = 0o600;
/// Default permissions with a group: read and write for owner and group.
const MODE_GROUP: u16 = 0o660;

/// A virtual NIC.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Vnic {
    kind: VnicKind,
    path: PathBuf,
    role: VnicRole,
    id: u32,
    rings: VirtioRings,
    owner: Option<String>,
    group: Option<String>,
    mode: Option<u16>,
    tso: bool,
}

impl Vnic {
    /// Returns the protocol.
    pub fn kind(&self) -> VnicKind {
        self.kind
    }

    /// Returns the path of the socket, absolute and at most 107 bytes long.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns true if the device must be opened again to reconnect to a peer that is absent or has disconnected: the
    /// driver of `virtio-user` connects once, at its start.
    pub fn connects_once(&self) -> bool {
        self.kind == VnicKind::VirtioUser
    }

    /// Returns the role of the switch at the socket.
    pub fn role(&self) -> VnicRole {
        self.role
    }

    /// Returns the interface id of a memif socket; 0 for other kinds.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// Returns the virtqueue layout of virtio-user.
    pub fn rings(&self) -> VirtioRings {
        self.rings
    }

    /// Returns the owner of the socket file that the switch creates: a user name or number. `None` is the user of the
    /// switch.
    pub fn owner(&self) -> Option<&str> {
        self.owner.as_deref()
    }

    /// Returns the group of the socket file that the switch creates: a group name or number.
    pub fn group(&self) -> Option<&str> {
        self.group.as_deref()
    }

    /// Returns the permissions of the socket file that the switch creates; users other than owner and group
    /// have no permission.
    pub fn mode(&self) -> u16 {
        self.mode.unwrap_or(match self.group {
            Some(_) => MODE_GROUP,
            None => MODE_OWNER,
        })
    }

    /// Returns true if TCP segmentation offload is negotiated with a vhost peer: the peer may send GSO
    /// packets, and GSO packets to the peer are not segmented.
    pub fn tso(&self) -> bool {
        self.tso
    }

    /// Parses the text after the kind and its colon.
    pub(crate) fn parse(kind: VnicKind, text: &str) -> Result<Vnic, String> {
        let keys = kind.keys();
        let mut parts = text.split(',');
        let path = parts.next().unwrap_or_default();
        let path = socket_path(path, keys)?;
        let (mut role, mut id, mut rings, mut owner, mut group, mut mode, mut tso) =
            (None, None, None, None, None, None, None);
        for part in parts {
            let (name, value) = part
                .split_once('=')
                .ok_or_else(|| format!("`{}` is not key=value; {keys}", shorten(part)))?;
            let wrong = |expected: &str| format!("`{name}={}`: expected {expected}", shorten(value));
            let repeated = match name {
                "role" if kind != VnicKind::VirtioUser => role
                    .replace(parse_role(value).ok_or_else(|| wrong("server or client"))?)
                    .is_some(),
                "id" if kind == VnicKind::Memif => {
                    let number = value.parse::<u32>().map_err(|_| wrong("0 to 4294967295"))?;
                    id.replace(number).is_some()
                }
                "rings" if kind == VnicKind::VirtioUser => rings
                    .replace(parse_rings(value).ok_or_else(|| wrong("split or packed"))?)
                    .is_some(),
                "tso" if kind == VnicKind::Vhost => tso
                    .replace(parse_switch(value).ok_or_else(|| wrong("on or off"))?)
                    .is_some(),
                "owner" if kind != VnicKind::VirtioUser => owner
                    .replace(account(value).ok_or_else(|| wrong("a user's name or number"))?)
                    .is_some(),
                "group" if kind != VnicKind::VirtioUser => group
                    .replace(account(value).ok_or_else(|| wrong("a group's name or number"))?)
                    .is_some(),
                "mode" if kind != VnicKind::VirtioUser => mode
                    .replace(parse_mode(value).ok_or_else(|| {
                        wrong("octal permissions of owner and group without others, such as 0600 or 0660")
                    })?)
                    .is_some(),
                _ => return Err(format!("`{}` is not known here; {keys}", shorten(part))),
            };
            if repeated {
                return Err(format!("`{name}` is given twice; {keys}"));
            }
        }
        let role = role.unwrap_or(kind.role());
        let of_files = [
            ("owner", owner.is_some()),
            ("group", group.is_some()),
            ("mode", mode.is_some()),
        ];
        if let Some((name, _)) = of_files
            .iter()
            .find(|(_, given)| *given && role == VnicRole::Client)
        {
            return Err(format!(
                "`{name}` with role=client: the peer creates the socket; expected it in the configuration of the peer"
            ));
        }
        Ok(Vnic {
            kind,
            path,
            role,
            id: id.unwrap_or(0),
            rings: rings.unwrap_or(VirtioRings::Split),
            owner,
            group,
            mode,
            tso: tso.unwrap_or(false),
        })
    }
}

fn parse_switch(text: &str) -> Option<bool> {
    match text {
        "on" => Some(true),
        "off" => Some(false),
        _ => None,
    }
}

fn parse_role(text: &str) -> Option<VnicRole> {
    [VnicRole::Server, VnicRole::Client]
        .into_iter()
        .find(|role| role.as_str() == text)
}

fn parse_rings(text: &str) -> Option<VirtioRings> {
    [VirtioRings::Split, VirtioRings::Packed]
        .into_iter()
        .find(|rings| rings.as_str() == text)
}

/// Returns the text if it can be a user or group name or number; its existence is checked on the machine.
fn account(text: &str) -> Option<String> {
    let valid = (1..=32).contains(&text.len())
        && text
            .bytes()
            .all(|c| c.is_ascii_alphanumeric() || matches!(c, b'_' | b'-' | b'.'));
    valid.then(|| text.to_owned())
}

fn parse_mode(text: &str) -> Option<u16> {
    let digits = (3..=4).contains(&text.len()) && text.bytes().all(|c| c.is_ascii_digit());
    let mode = digits.then(|| u16::from_str_radix(text, 8).ok()).flatten()?;
    // Write permission on a socket is permission to connect, so others never have it.
    (mode & !0o770 == 0 && mode & 0o600 == 0o600).then_some(mode)
}

impl fmt::Display for Vnic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.kind.as_str(), self.path.display())?;
        if self.role != self.kind.role() {
            write!(f, ",role={}", self.role.as_str())?;
        }
        if self.id != 0 {
            write!(f, ",id={}", self.id)?;
        }
        if self.rings != VirtioRings::Split {
            write!(f, ",rings={}", self.rings.as_str())?;
        }
        if self.tso {
            f.write_str(",tso=on")?;
        }
        for (key, value) in [("owner", &self.owner), ("group", &self.group)] {
            if let Some(value) = value {
                write!(f, ",{key}={value}")?;
            }
        }
        match self.mode {
            Some(mode) => write!(f, ",mode={mode:04o}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::Device;

    fn vnic(text: &str) -> Vnic {
        match text.parse::<Device>().unwrap() {
            Device::Vnic(vnic) => *vnic,
            other => panic!("{other}"),
        }
    }

    #[test]
    fn every_vnic_prints_as_it_was_written() {
        for text in [
            "vhost:/run/millrace/vm1.sock",
            "vhost:/run/vm1.sock,role=client",
            "vhost:/run/vm1.sock,tso=on",
            "vhost:/run/vm1.sock,role=client,tso=on",
            "vhost:/run/vm1.sock,owner=libvirt-qemu,group=kvm,mode=0660",
            "virtio-user:/run/ovs/p1",
            "virtio-user:/run/ovs/p1,rings=packed",
            "memif:/run/m.sock,id=7",
            "memif:/run/m.sock,role=client,id=4294967295",
        ] {
            assert_eq!(vnic(text).to_string(), text);
        }
        assert_eq!(vnic("vhost:/v,role=server").to_string(), "vhost:/v");
        assert_eq!(vnic("vhost:/v,tso=off").to_string(), "vhost:/v");
    }

    #[test]
    fn the_switch_is_the_server_but_where_it_is_the_driver() {
        assert_eq!(vnic("vhost:/v").role(), VnicRole::Server);
        assert_eq!(vnic("memif:/v").role(), VnicRole::Server);
        assert_eq!(vnic("virtio-user:/v").role(), VnicRole::Client);
    }

    #[test]
    fn a_socket_is_for_its_owner_and_for_a_group_that_is_named() {
        assert_eq!(vnic("vhost:/v").mode(), 0o600);
        assert_eq!(vnic("vhost:/v,group=kvm").mode(), 0o660);
        assert_eq!(vnic("vhost:/v,group=kvm,mode=0600").mode(), 0o600);
    }

    #[test]
    fn a_wrong_vnic_is_refused_with_what_was_expected() {
        let long = format!("vhost:/{}", "x".repeat(107));
        for text in [
            "vhost:",
            "vhost:vm1.sock",
            "vhost:/run/",
            &long,
            "vhost:/v,role=master",
            "vhost:/v,role=client,role=client",
            "vhost:/v,id=1",
            "vhost:/v,rings=packed",
            "vhost:/v,queues=2",
            "vhost:/v,tso=1",
            "vhost:/v,tso=on,tso=on",
            "memif:/v,tso=on",
            "vhost:/v,mode=0666",
            "vhost:/v,mode=0662",
            "vhost:/v,mode=0060",
            "vhost:/v,mode=1600",
            "vhost:/v,mode=rw",
            "vhost:/v,owner=a b",
            "vhost:/v,owner=",
            "vhost:/v,role=client,mode=0600",
            "memif:/v,id=-1",
            "memif:/v,id",
            "virtio-user:/v,owner=root",
            "virtio-user:/v,role=server",
        ] {
            let error = text.parse::<Device>().unwrap_err().to_string();
            assert!(error.contains("expected"), "{text}: {error}");
        }
    }

    #[test]
    fn of_vnics_only_virtio_user_needs_dpdk() {
        assert!(!"vhost:/v".parse::<Device>().unwrap().needs_dpdk());
        assert!("virtio-user:/v".parse::<Device>().unwrap().needs_dpdk());
        assert!(!"memif:/v".parse::<Device>().unwrap().needs_dpdk());
    }
}
