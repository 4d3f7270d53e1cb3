//! The shadow of an L3 interface of the switch: a tap device in the network namespace of its VRF, through which the kernel there
//! sends and receives what is not forwarded: ARP and ND, packets of routing daemons, ICMP.
//!
//! The device has the name, MAC address and MTU of the L3 interface, and is set up. Its carrier follows the port or VLAN behind
//! it ([`Device::set_link`]), and is off until then, so that routing daemons see the state of the link. Its addresses are set by
//! `millrace-netlink`.
//!
//! The device stays if the process is killed, with its addresses and the macvlans over it, but without carrier; the next process
//! takes it over. It is removed when it is closed.

use std::fs::File;
use std::io;
use std::path::Path;

use millrace_types::Mac;
use millrace_wire::Packet;
use nix::sched::{CloneFlags, setns};

use super::queues::Connection;
use crate::io::allocate::Allocate;
use crate::io::kernel;
use crate::io::{
    Device, DeviceInfo, DeviceOptions, DeviceSpec, DeviceStats, OpenError, Opened, PortModes, ShadowSpec,
};

struct Shadow<P> {
    mac: Mac,
    mtu: u16,
    has_carrier: bool,
    control: File,
    connection: Connection<P>,
}

/// The step at which opening failed.
enum Step {
    Enter(io::Error),
    Create(io::Error, Option<String>),
    Set(&'static str, io::Error),
}

/// Creates the device in its namespace, or takes over the one that a killed process left.
///
/// # Errors
/// Returns [`OpenError`], which tells what else has the name, and has the next step.
pub(in crate::io) fn open<P: Packet + 'static>(
    spec: &DeviceSpec,
    shadow: &ShadowSpec,
    options: DeviceOptions,
    allocate: &Allocate<P>,
) -> Result<Opened<P>, OpenError> {
    let file = in_namespace(shadow, options.mtu).map_err(|step| refused(spec, shadow, step))?;
    let failed = |error: io::Error| refused(spec, shadow, Step::Set("start its threads", error));
    let control = file.try_clone().map_err(failed)?;
    let (connection, rx, tx) = Connection::start(file, &shadow.name, allocate, None).map_err(failed)?;
    let device = Shadow {
        mac: shadow.mac,
        mtu: options.mtu,
        has_carrier: false,
        control,
        connection,
    };
    Ok(Opened {
        rx: vec![Box::new(rx)],
        tx: vec![Box::new(tx)],
        device: Box::new(device),
    })
}

/// Creates the device on a thread that enters the namespace: the rest of the process stays in its own.
fn in_namespace(shadow: &ShadowSpec, mtu: u16) -> Result<File, Step> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("shadow".to_owned());
        let created = thread.spawn_scoped(scope, || {
            if let Some(path) = &shadow.namespace {
                enter(path).map_err(Step::Enter)?;
            }
            create(&shadow.name, shadow.mac, mtu)
        });
        let panicked = |_| Step::Enter(io::Error::other("the thread panicked"));
        created.map_err(Step::Enter)?.join().map_err(panicked)?
    })
}

fn enter(path: &Path) -> io::Result<()> {
    let file = File::open(path)?;
    Ok(setns(file, CloneFlags::CLONE_NEWNET)?)
}

fn create(name: &str, mac: Mac, mtu: u16) -> Result<File, Step> {
    let file = kernel::create(name).map_err(|error| Step::Create(error, kernel::driver(name).ok()))?;
    let set = |doing| move |error| Step::Set(doing, error);
    // The carrier first, so that the device is never up with a carrier that nobody gave it.
    kernel::set_carrier(&file, false).map_err(set("take its carrier away"))?;
    kernel::set_mac(name, mac).map_err(set("set its MAC address"))?;
    kernel::set_mtu(name, mtu).map_err(set("set its MTU"))?;
    kernel::set_up(name).map_err(set("set it up"))?;
    kernel::set_persistent(&file, true).map_err(set("keep it"))?;
    Ok(file)
}

fn refused(spec: &DeviceSpec, shadow: &ShadowSpec, step: Step) -> OpenError {
    let (device, name) = (spec.to_string(), &shadow.name);
    let ip = match &shadow.namespace {
        Some(path) => format!("nsenter --net={} ip", path.display()),
        None => "ip".to_owned(),
    };
    match step {
        Step::Enter(error) if error.kind() == io::ErrorKind::NotFound => OpenError::Missing {
            device,
            reason: format!("its network namespace: {error}"),
            next_step: "create the namespace of the VRF: ip netns add NAME".to_owned(),
        },
        Step::Enter(error) => OpenError::Failed {
            device,
            reason: format!("its network namespace cannot be entered: {error}"),
            next_step: "start millraced with CAP_SYS_ADMIN and CAP_NET_ADMIN, and give the path of a network namespace"
                .to_owned(),
        },
        Step::Create(error, Some(driver)) => OpenError::Busy {
            device,
            reason: match error.raw_os_error() {
                Some(libc::EBUSY) => format!("another process uses the tap device {name}"),
                _ => format!("an interface {name} is there, with the driver {driver}: {error}"),
            },
            next_step: format!("see it ({ip} -d link show {name}), and remove it ({ip} link del {name}) or choose another name"),
        },
        Step::Create(error, None) => super::refused(spec, name, &error),
        Step::Set(doing, error) => OpenError::Failed {
            device,
            reason: format!("{doing}: {error}"),
            next_step: format!("see it: {ip} -d link show {name}"),
        },
    }
}

impl<P: Send> Device for Shadow<P> {
    fn info(&self) -> DeviceInfo {
        DeviceInfo {
            driver: "tap".to_owned(),
            mac: self.mac,
            speed_mbps: None,
            link_up: self.has_carrier && !self.connection.is_deleted(),
            modes: PortModes::default(),
            mtu: self.mtu,
            numa_node: None,
            rx_queues: 1,
            rss: None,
            offload: None,
        }
    }

    fn stats(&self) -> DeviceStats {
        self.connection.stats()
    }

    /// Gives the device its carrier, or takes it away.
    fn set_link(&mut self, up: bool) {
        if let Err(error) = kernel::set_carrier(&self.control, up) {
            tracing::warn!(%error, up, "the carrier of a shadow interface cannot be set");
            return;
        }
        self.has_carrier = up;
    }
}

impl<P> Drop for Shadow<P> {
    fn drop(&mut self) {
        // The kernel removes the device with its last file. This fails only if somebody deleted it.
        let _deleted = kernel::set_persistent(&self.control, false);
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::time::{Duration, Instant};

    use millrace_wire::Frame;
    use nix::sched::unshare;

    use super::*;
    use crate::io::{Backend, Burst, HeapBackend};

    const BOUND: Duration = Duration::from_secs(30);
    const MAC: Mac = Mac([2, 0, 0, 0, 0, 5]);

    /// A network namespace that a thread holds: the test's own thread stays where it is.
    struct Far {
        path: std::path::PathBuf,
        stop: std::sync::mpsc::Sender<()>,
    }

    fn far() -> Option<Far> {
        let (report, reported) = std::sync::mpsc::channel();
        let (stop, stopped) = std::sync::mpsc::channel::<()>();
        std::thread::spawn(move || {
            let entered = unshare(CloneFlags::CLONE_NEWNET).map(|()| nix::unistd::gettid());
            report.send(entered).unwrap();
            let _ended = stopped.recv();
        });
        match reported.recv().unwrap() {
            Ok(task) => Some(Far {
                path: format!("/proc/{}/task/{task}/ns/net", std::process::id()).into(),
                stop,
            }),
            Err(errno) => {
                eprintln!("SKIPPED: a network namespace needs root ({errno})");
                None
            }
        }
    }

    impl Far {
        fn run(&self, command: &str) -> String {
            let net = format!("--net={}", self.path.display());
            let words = command.split(' ');
            let output = Command::new("nsenter").arg(net).args(words).output().unwrap();
            assert!(
                output.status.success(),
                "{command}: {}",
                String::from_utf8_lossy(&output.stderr)
            );
            String::from_utf8(output.stdout).unwrap()
        }

        fn spec(&self) -> DeviceSpec {
            DeviceSpec::Shadow(ShadowSpec {
                namespace: Some(self.path.clone()),
                name: "v10".to_owned(),
                mac: MAC,
            })
        }

        fn open(&self, mtu: u16) -> Result<Opened<Frame>, OpenError> {
            let options = DeviceOptions {
                mtu,
                ..DeviceOptions::PLAIN
            };
            HeapBackend::new().open(&self.spec(), options)
        }
    }

    #[test]
    fn the_kernel_of_the_namespace_sees_name_mac_mtu_and_carrier_and_sends_and_receives_frames() {
        let Some(far) = far() else {
            return;
        };
        let mut opened = far.open(1400).unwrap();
        let shown = far.run("ip link show v10");
        for expected in ["NO-CARRIER", "UP", "mtu 1400", "02:00:00:00:00:05"] {
            assert!(shown.contains(expected), "{expected} is not in {shown}");
        }
        assert!(!opened.device.info().link_up);
        opened.device.set_link(true);
        assert!(opened.device.info().link_up);
        let shown = far.run("ip link show v10");
        assert!(
            shown.contains("LOWER_UP") && !shown.contains("NO-CARRIER"),
            "{shown}"
        );

        // The kernel asks for a neighbour, and learns it from the answer.
        far.run("ip address add 10.0.0.1/24 dev v10");
        far.run("ip neigh add 10.0.0.2 dev v10 use nud none");
        let end = Instant::now() + BOUND;
        let mut burst = Burst::new();
        let request = loop {
            opened.rx[0].rx_burst(&mut burst);
            let found = burst.drain(..).map(|frame| {
                let mut bytes = Vec::new();
                frame.copy_to(&mut bytes, 2000);
                bytes
            });
            if let Some(request) = found.into_iter().find(|bytes| bytes[12..14] == [8, 6]) {
                break request;
            }
            assert!(Instant::now() < end, "no ARP request");
        };
        assert_eq!(request[6..12], MAC.0);
        let mut reply = request.clone();
        reply[..6].copy_from_slice(&MAC.0);
        reply[6..12].copy_from_slice(&[2, 0, 0, 0, 0, 9]);
        reply[20..22].copy_from_slice(&[0, 2]);
        reply[22..28].copy_from_slice(&[2, 0, 0, 0, 0, 9]);
        reply[28..32].copy_from_slice(&request[38..42]);
        reply[32..38].copy_from_slice(&MAC.0);
        reply[38..42].copy_from_slice(&request[28..32]);
        burst.push(HeapBackend::new().packet(&reply).unwrap());
        opened.tx[0].tx_burst(&mut burst);
        while !far
            .run("ip neigh show 10.0.0.2")
            .contains("lladdr 02:00:00:00:00:09")
        {
            assert!(Instant::now() < end, "the kernel did not take the answer");
        }
        assert!(!Path::new("/sys/class/net/v10").exists());
        drop(opened);
        assert!(!far.run("ip link show").contains("v10"));
        drop(far.stop);
    }

    #[test]
    fn a_device_that_a_killed_process_left_is_taken_over_with_its_addresses_and_macvlans() {
        let Some(far) = far() else {
            return;
        };
        far.run("ip tuntap add v10 mode tap");
        far.run("ip address add 10.0.0.1/24 dev v10");
        far.run("ip link add link v10 name vrrp4 type macvlan");
        let index = far
            .run("cat /proc/net/dev_snmp6/v10")
            .lines()
            .next()
            .unwrap()
            .to_owned();
        let opened = far.open(1500).unwrap();
        assert_eq!(
            far.run("cat /proc/net/dev_snmp6/v10").lines().next().unwrap(),
            index
        );
        assert!(far.run("ip address show v10").contains("10.0.0.1/24"));
        let error = far.open(1500).err().unwrap().to_string();
        assert!(
            error.contains("another process uses the tap device v10"),
            "{error}"
        );
        // The refused one does not disturb the first.
        assert!(far.run("ip link show v10").contains("UP"));
        drop(opened);
        assert!(!far.run("ip link show").contains("vrrp4"));
    }

    #[test]
    fn what_has_the_name_and_a_namespace_that_is_missing_are_told() {
        let Some(far) = far() else {
            return;
        };
        far.run("ip link add v10 type veth peer name p10");
        let error = far.open(1500).err().unwrap();
        assert!(matches!(error, OpenError::Busy { .. }));
        let text = error.to_string();
        assert!(
            text.contains("driver veth") && text.contains("link del v10"),
            "{text}"
        );
        let spec = DeviceSpec::Shadow(ShadowSpec {
            namespace: Some("/run/netns/no-such-vrf".into()),
            name: "v10".to_owned(),
            mac: MAC,
        });
        let error = HeapBackend::new()
            .open(&spec, DeviceOptions::PLAIN)
            .err()
            .unwrap();
        assert!(matches!(error, OpenError::Missing { .. }), "{error}");
        assert_eq!(spec.to_string(), "shadow:v10@/run/netns/no-such-vrf");
    }
}
