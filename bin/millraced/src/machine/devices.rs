//! Check of the devices, addresses, user ids and network namespaces that a configuration names; devices and addresses are those of
//! the namespace of this process. The check opens no device and keeps no address.

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::path::Path as FilePath;

use millrace_model::{Bridge, Config, ConfigError, Device, Lag, LagMember, ListenTarget, LocalPort, Path};

use super::fault::note;

/// The number of user ids that processes of functions use, from `system.function_uid_base` on.
const FUNCTION_UIDS: u32 = 384;
/// The device from which tap interfaces are made.
const TUN: &str = "/dev/net/tun";

/// The files in which the kernel describes itself; tests give others.
pub(super) struct Kernel<'a> {
    pub(super) sys: &'a FilePath,
    pub(super) passwd: &'a FilePath,
    /// The folder with the network namespaces of `ip netns`.
    pub(super) netns: &'a FilePath,
}

impl Kernel<'static> {
    /// Returns the kernel of this machine.
    pub(super) fn this() -> Kernel<'static> {
        Kernel {
            sys: FilePath::new("/sys"),
            passwd: FilePath::new("/etc/passwd"),
            netns: FilePath::new("/run/netns"),
        }
    }
}

/// Returns an error for each device, address, user id and network namespace that cannot be used.
pub(super) fn check(config: &Config, kernel: &Kernel<'_>) -> Vec<ConfigError> {
    let mut errors = Vec::new();
    user_ids(config, kernel, &mut errors);
    for (at, bridge) in config.bridges.iter().enumerate() {
        let path = Path::default().key("bridge").index(at);
        if bridge.local == LocalPort::Tap {
            note(&mut errors, &path.key("local"), tap(bridge.name.as_str(), kernel));
        }
        for (of_port, path) in bridge.device_paths(&path) {
            note(&mut errors, &path, device(of_port, kernel));
        }
        for (at, lag) in bridge.lags.iter().enumerate() {
            let path = path.key("lag").index(at).key("member");
            note(&mut errors, &path, speeds(lag, kernel));
        }
        addresses(bridge, &path, &mut errors);
    }
    for (at, vrf) in config.vrfs.iter().enumerate() {
        if let Some(name) = &vrf.netns {
            let path = Path::default().key("vrf").index(at).key("netns");
            note(&mut errors, &path, namespace(name.as_str(), kernel));
        }
    }
    errors
}

/// Checks that a network namespace exists.
fn namespace(name: &str, kernel: &Kernel<'_>) -> Result<(), String> {
    match kernel.netns.join(name).exists() {
        true => Ok(()),
        false => Err(format!(
            "there is no network namespace {name}: `ip netns add {name}` makes it"
        )),
    }
}

fn device(device: &Device, kernel: &Kernel<'_>) -> Result<(), String> {
    match device {
        Device::Kernel(name) => interface(name.as_str(), kernel),
        Device::Tap(name) => tap(name.as_str(), kernel),
        Device::Pci(nic) => {
            let address = nic.address.to_string();
            match kernel.sys.join("bus/pci/devices").join(&address).exists() {
                true => Ok(()),
                false => Err(format!(
                    "this machine has no PCI device {address}: `lspci -D` lists them"
                )),
            }
        }
        // The drivers af_packet and af_xdp open an interface of the kernel.
        Device::Vdev(vdev) => match vdev.args.value("iface") {
            Some(name) if vdev.driver() != "virtio_user" => interface(name, kernel),
            _ => Ok(()),
        },
        // Files and sockets are checked by `files`; the others have no resource outside the switch.
        Device::Pcap(_)
        | Device::Vnic(_)
        | Device::Nic(_)
        | Device::Link(_)
        | Device::Wan(_)
        | Device::Tunnel(_)
        | Device::Nsh(_)
        | Device::Lag(_)
        | Device::Memory
        | Device::Chain(_) => Ok(()),
    }
}

/// Checks that those members of a LAG whose speed the kernel knows have the same.
fn speeds(lag: &Lag, kernel: &Kernel<'_>) -> Result<(), String> {
    let speed = |member: &LagMember| {
        let Device::Kernel(name) = &member.device else {
            return None;
        };
        let file = kernel.sys.join("class/net").join(name.as_str()).join("speed");
        // Without a link the file has -1, or cannot be read.
        let mbps: u32 = std::fs::read_to_string(file).ok()?.trim().parse().ok()?;
        Some((member.name.to_string(), mbps))
    };
    let mut known = lag.members.iter().filter_map(speed);
    let Some((first, mbps)) = known.next() else {
        return Ok(());
    };
    match known.find(|(_, other)| *other != mbps) {
        None => Ok(()),
        Some((other, different)) => Err(format!(
            "{first} has {mbps} Mb/s and {other} has {different} Mb/s, and members of different speed do not carry packets \
             together: expected one speed"
        )),
    }
}

/// Checks that an interface of the kernel exists.
fn interface(name: &str, kernel: &Kernel<'_>) -> Result<(), String> {
    let directory = kernel.sys.join("class/net");
    if directory.join(name).exists() {
        return Ok(());
    }
    let mut names: Vec<String> = std::fs::read_dir(&directory)
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .collect();
    names.sort();
    Err(format!(
        "there is no interface {name} in this network namespace: expected one of {}",
        names.join(", ")
    ))
}

/// Checks that a tap interface can be created: no other interface has its name.
fn tap(name: &str, kernel: &Kernel<'_>) -> Result<(), String> {
    if !FilePath::new(TUN).exists() {
        return Err(format!("there is no {TUN}: `modprobe tun` makes it"));
    }
    let there = kernel.sys.join("class/net").join(name);
    // Only tap and tun interfaces have this file; the interface may be that of the running switch.
    match there.exists() && !there.join("tun_flags").exists() {
        true => Err(format!(
            "{name} is an interface that is no tap: expected another name, or kernel:{name} for a port on it"
        )),
        false => Ok(()),
    }
}

/// Checks the addresses of listeners, and the source address of sFlow. An address in use may be that of the running
/// switch.
fn addresses(bridge: &Bridge, path: &Path, errors: &mut Vec<ConfigError>) {
    for (at, listener) in bridge.listen.iter().enumerate() {
        if let ListenTarget::Tcp(address) | ListenTarget::Tls(address) = &listener.target {
            let outcome = match TcpListener::bind(address) {
                Err(error) if error.kind() != ErrorKind::AddrInUse => Err(format!(
                    "{address} cannot be listened on ({error}): expected an address of this machine and a port that this \
                     user may use"
                )),
                _ => Ok(()),
            };
            note(errors, &path.key("listen").index(at), outcome);
        }
    }
    if let Some(sflow) = &bridge.sflow
        && let Some(source) = sflow.source
    {
        let outcome = UdpSocket::bind(SocketAddr::new(source, 0)).map(|_| ());
        let outcome = outcome.map_err(|error| {
            format!("{source} is no source address ({error}): expected one of this machine")
        });
        note(errors, &path.key("sflow").key("source"), outcome);
    }
}

/// Checks that no account has a user id of the processes of functions.
fn user_ids(config: &Config, kernel: &Kernel<'_>, errors: &mut Vec<ConfigError>) {
    let has_processes = config
        .bridges
        .iter()
        .flat_map(|bridge| &bridge.chains)
        .flat_map(|chain| &chain.hops)
        .any(|hop| hop.class != millrace_model::HopClass::Inline);
    let first = config.system.function_uid_base.get();
    let ids = first..first.saturating_add(FUNCTION_UIDS);
    let accounts = std::fs::read_to_string(kernel.passwd).unwrap_or_default();
    // A line of passwd(5): NAME:PASSWORD:UID:…
    let taken = accounts.lines().find_map(|line| {
        let mut fields = line.split(':');
        let (name, uid) = (fields.next()?, fields.nth(1)?.parse::<u32>().ok()?);
        ids.contains(&uid).then(|| format!("{name} ({uid})"))
    });
    if let Some(account) = taken.filter(|_| has_processes) {
        let message = format!(
            "the account {account} has one of the user ids {first} to {}: expected ids that no account has",
            ids.end - 1
        );
        note(
            errors,
            &Path::default().key("system").key("function_uid_base"),
            Err(message),
        );
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may fail")]

    use super::*;

    /// Returns a directory with an interface, a tap, a NIC, a network namespace, and one account.
    fn machine() -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for directory in [
            "class/net/eth0",
            "class/net/tap0",
            "bus/pci/devices/0000:01:00.0",
            "netns/blue",
        ] {
            std::fs::create_dir_all(root.path().join(directory)).unwrap();
        }
        std::fs::write(root.path().join("class/net/tap0/tun_flags"), "0x1002\n").unwrap();
        std::fs::write(
            root.path().join("passwd"),
            "root:x:0:0::/:/bin/sh\nbob:x:60900:60900::/:/bin/sh\n",
        )
        .unwrap();
        root
    }

    fn errors(root: &tempfile::TempDir, text: &str) -> Vec<String> {
        let config = Config::from_toml("d.toml", text).unwrap_or_else(|errors| panic!("{errors}"));
        let (passwd, netns) = (root.path().join("passwd"), root.path().join("netns"));
        let kernel = Kernel {
            sys: root.path(),
            passwd: &passwd,
            netns: &netns,
        };
        check(&config, &kernel).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn every_device_address_and_user_id_that_a_start_needs_is_looked_at() {
        let root = machine();
        let port =
            |device: &str| format!("[[bridge.port]]\nname = \"p\"\nnumber = 1\ndevice = \"{device}\"\n");
        // TEST-NET-1 (RFC 5737) is not an address of any machine.
        for (settings, expected) in [
            (port("kernel:eth0"), None),
            (port("kernel:nope"), Some("/bridge/0/port/0/device: there is no interface nope in this network namespace: expected one of eth0, tap0")),
            (port("tap:new"), None),
            (port("tap:tap0"), None),
            (port("tap:eth0"), Some("/bridge/0/port/0/device: eth0 is an interface that is no tap")),
            (port("0000:01:00.0"), None),
            (port("0000:02:00.0"), Some("this machine has no PCI device 0000:02:00.0")),
            (port("net_af_packet0,iface=eth0"), None),
            (port("net_af_xdp0,iface=nope"), Some("there is no interface nope")),
            (port("net_null0"), None),
            (port("memory"), None),
            ("local = \"tap\"\n".to_owned(), None),
            ("listen = [\"ptcp:0\"]\n".to_owned(), None),
            ("[[vrf]]\nname = \"v\"\nnetns = \"blue\"\n[[vrf]]\nname = \"w\"\n".to_owned(), None),
            (
                "[[vrf]]\nname = \"v\"\nnetns = \"red\"\n".to_owned(),
                Some("/vrf/0/netns: there is no network namespace red: `ip netns add red` makes it"),
            ),
            (
                "listen = [{ target = \"ptcp:6653:192.0.2.1\", insecure = true }]\n".to_owned(),
                Some("/bridge/0/listen/0: 192.0.2.1:6653 cannot be listened on"),
            ),
            ("[bridge.sflow]\nagent = \"192.0.2.1\"\ncollectors = [\"192.0.2.2\"]\nsource = \"127.0.0.1\"\n".to_owned(), None),
            (
                "[bridge.sflow]\nagent = \"192.0.2.1\"\ncollectors = [\"192.0.2.2\"]\nsource = \"192.0.2.1\"\n".to_owned(),
                Some("/bridge/0/sflow/source: 192.0.2.1 is no source address"),
            ),
            (
                "[[bridge.chain]]\nname = \"c\"\nnumber = 3\n[[bridge.chain.hop]]\nname = \"h\"\nfunction = \"monitor\"\n\
                 class = \"isolated\"\n"
                    .to_owned(),
                Some("/system/function_uid_base: the account bob (60900) has one of the user ids 60800 to 61183"),
            ),
        ] {
            let found = errors(&root, &format!("[[bridge]]\nname = \"br0\"\n{settings}"));
            match expected {
                None => assert_eq!(found, [""; 0], "{settings}"),
                Some(expected) => assert!(found.len() == 1 && found[0].contains(expected), "{settings}: {found:?}"),
            }
        }
        let local = errors(&root, "[[bridge]]\nname = \"eth0\"\nlocal = \"tap\"\n");
        assert!(
            local.len() == 1 && local[0].starts_with("/bridge/0/local: eth0 is an interface"),
            "{local:?}"
        );
    }

    /// The keys whose text may name something of the machine, and the check that looks at it.
    const REFERENCES: &[(&str, &str)] = &[
        ("system.state_dir", "store"),
        ("api.socket", "probe of the API"),
        ("api.listen", "probe of the API"),
        ("api.tls_cert", "probe of the API"),
        ("api.tls_key", "probe of the API"),
        ("api.token_file", "probe of the API"),
        ("ovsdb.connect", "nothing: a server that may start later"),
        ("ovsdb.tls.private_key", "files"),
        ("ovsdb.tls.certificate", "files"),
        ("ovsdb.tls.ca_certificate", "files"),
        ("ovsdb.run_dir", "nothing: the follower makes it"),
        ("bridge.controllers.target", "nothing: another machine"),
        ("bridge.listen.target", "files, devices"),
        ("bridge.tls.private_key", "files"),
        ("bridge.tls.certificate", "files"),
        ("bridge.tls.ca_certificate", "files"),
        ("bridge.sflow.agent", "nothing: an identifier"),
        ("bridge.sflow.collectors", "nothing: other machines"),
        ("bridge.sflow.source", "devices"),
        ("bridge.ipfix.collectors", "nothing: other machines"),
        ("bridge.port.device", "files, devices"),
        ("bridge.lag.member.device", "files, devices"),
        ("bridge.lag.system", "nothing: an identifier"),
        ("bridge.lag.mac", "nothing: the switch gives it to the port"),
        ("bridge.local_mac", "nothing: the switch gives it to LOCAL"),
        ("bridge.rstp.address", "nothing: an address in BPDUs"),
        ("bridge.port.mac", "nothing: the switch gives it to the port"),
        ("bridge.chain.hop.function", "files"),
        ("bridge.chain.hop.settings", "files"),
        ("wan.scenario", "files"),
        (
            "bridge.port.bfd.local",
            "nothing: the address of the switch in BFD packets, not of the machine",
        ),
        ("bridge.port.bfd.remote", "nothing: another machine"),
        ("bridge.port.bfd.remote_mac", "nothing: another machine"),
        (
            "interface.address",
            "nothing: the switch gives it to the interface",
        ),
        ("vrf.netns", "devices"),
        ("interface.mac", "nothing: the switch gives it to the interface"),
        (
            "bridge.lldp.management",
            "nothing: the switch tells it to its neighbours",
        ),
    ];

    #[test]
    fn no_key_of_the_model_that_names_something_of_the_machine_is_left_out() {
        use millrace_model::schema::{Section, Shape};
        fn collect(section: &Section, path: &str, out: &mut Vec<String>) {
            const FORMS: [&str; 8] = [
                "path",
                "socket",
                "device",
                "address",
                "wasm:",
                "key=value",
                "tcp:",
                "namespace",
            ];
            for key in &section.keys {
                let mut shape = &key.shape;
                while let Shape::List(item) = shape {
                    shape = item;
                }
                let longer = format!("{path}{}", key.name);
                match shape {
                    Shape::Text { form, .. }
                        if FORMS.iter().any(|part| form.to_lowercase().contains(part)) =>
                    {
                        out.push(longer);
                    }
                    Shape::Table(inner) => collect(&inner(), &format!("{longer}."), out),
                    _ => {}
                }
            }
        }
        let mut found = Vec::new();
        collect(&Config::section(), "", &mut found);
        found.sort();
        let mut known = REFERENCES.iter().map(|(key, _)| *key).collect::<Vec<_>>();
        known.sort_unstable();
        assert_eq!(
            found, known,
            "left: the keys of the model; right: those that are checked"
        );
    }
}
