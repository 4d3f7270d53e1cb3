//! A `[[switch]]`: its kind, and the keys of each kind.

use serde::Deserialize;
use toml::Spanned;

use crate::problem::{LocatedProblem, Problem};
use crate::topology::{Control, Device, FailMode, OvsPorts, Switch, SwitchKind};

/// The maximum MTU of a link of a Millrace switch: `net_af_packet` (DPDK 22.11) accepts frames of 1,518 bytes.
const MILLRACE_MTU: u32 = 1500;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawSwitch {
    pub(super) name: Spanned<String>,
    kind: Spanned<String>,
    #[serde(default)]
    pub(super) ports: Vec<Spanned<String>>,
    device: Option<Spanned<String>>,
    fail_mode: Option<Spanned<String>>,
    controllers: Option<Spanned<Vec<Spanned<String>>>>,
    listen: Option<Spanned<Vec<Spanned<String>>>>,
    workers: Option<Spanned<i64>>,
}

pub(super) fn kind(switch: &RawSwitch) -> Result<SwitchKind, LocatedProblem> {
    let kind = switch.kind.get_ref().as_str();
    match kind {
        "millrace" => {
            let workers = switch.workers.as_ref().map(|workers| {
                let value = *workers.get_ref();
                let valid = u16::try_from(value)
                    .ok()
                    .filter(|count| (1..=128).contains(count));
                valid.ok_or((workers.span(), Problem::BadWorkers { value }))
            });
            Ok(SwitchKind::Millrace {
                device: device(switch.device.as_ref())?,
                control: control(switch)?,
                workers: workers.transpose()?,
            })
        }
        "ovs" | "ovs-dpdk" => {
            let (kind, ports) = match kind {
                "ovs" => ("ovs", OvsPorts::System),
                _ => ("ovs-dpdk", OvsPorts::Dpdk),
            };
            refuse(switch, kind, false)?;
            Ok(SwitchKind::Ovs {
                control: control(switch)?,
                ports,
            })
        }
        "linux-bridge" => {
            refuse(switch, "linux-bridge", true)?;
            Ok(SwitchKind::LinuxBridge)
        }
        _ => Err((
            switch.kind.span(),
            Problem::BadWord {
                text: kind.to_owned(),
                what: "a kind of switch",
                expected: "\"millrace\", \"linux-bridge\", \"ovs\" or \"ovs-dpdk\"",
            },
        )),
    }
}

/// Rejects the keys that only the kind `millrace` has; with `refuse_openflow`, also those of OpenFlow.
fn refuse(switch: &RawSwitch, kind: &'static str, refuse_openflow: bool) -> Result<(), LocatedProblem> {
    let daemon = [
        ("device", switch.device.as_ref().map(Spanned::span)),
        ("workers", switch.workers.as_ref().map(Spanned::span)),
    ];
    let openflow = [
        ("fail_mode", switch.fail_mode.as_ref().map(Spanned::span)),
        ("controllers", switch.controllers.as_ref().map(Spanned::span)),
        ("listen", switch.listen.as_ref().map(Spanned::span)),
    ];
    let openflow = openflow.into_iter().filter(|_| refuse_openflow);
    let refused = daemon
        .map(|key| (key, "kind = \"millrace\""))
        .into_iter()
        .chain(openflow.map(|key| (key, "kind = \"millrace\", \"ovs\" or \"ovs-dpdk\"")));
    for ((key, span), belongs) in refused {
        if let Some(span) = span {
            return Err((span, Problem::KeyOfOtherKind { key, kind, belongs }));
        }
    }
    Ok(())
}

fn device(word: Option<&Spanned<String>>) -> Result<Device, LocatedProblem> {
    let Some(word) = word else { return Ok(Device::Auto) };
    [Device::Auto, Device::Kernel, Device::AfXdp, Device::AfPacket]
        .into_iter()
        .find(|device| device.keyword() == word.get_ref())
        .ok_or_else(|| {
            let text = word.get_ref().clone();
            let expected = "\"auto\", \"kernel\", \"af_xdp\" or \"af_packet\"";
            (
                word.span(),
                Problem::BadWord {
                    text,
                    what: "a device of the lab",
                    expected,
                },
            )
        })
}

fn control(switch: &RawSwitch) -> Result<Control, LocatedProblem> {
    let fail_mode = match &switch.fail_mode {
        None => FailMode::Standalone,
        Some(word) => [FailMode::Standalone, FailMode::Secure]
            .into_iter()
            .find(|mode| mode.keyword() == word.get_ref())
            .ok_or_else(|| {
                let text = word.get_ref().clone();
                let expected = "\"standalone\" or \"secure\"";
                (
                    word.span(),
                    Problem::BadWord {
                        text,
                        what: "a fail mode",
                        expected,
                    },
                )
            })?,
    };
    let controllers = switch
        .controllers
        .as_ref()
        .map_or(&[][..], |list| list.get_ref().as_slice());
    let controllers = targets(controllers, "tcp:", "a controller", "tcp:ADDRESS:PORT")?;
    let listen = match &switch.listen {
        None => vec!["ptcp:6653:127.0.0.1".to_owned()],
        Some(list) => targets(list.get_ref(), "ptcp:", "a listener", "ptcp:PORT:ADDRESS")?,
    };
    Ok(Control {
        fail_mode,
        controllers,
        listen,
    })
}

/// Returns the connection targets of one scheme. The text after the scheme is passed to the switch, which knows all
/// forms. Here it may only contain characters of host names, addresses and ports, which cannot end the string in the
/// generated configuration.
fn targets(
    list: &[Spanned<String>],
    scheme: &str,
    what: &'static str,
    expected: &'static str,
) -> Result<Vec<String>, LocatedProblem> {
    let one = |target: &Spanned<String>| {
        let text = target.get_ref().clone();
        let plain = |c: char| c.is_ascii_alphanumeric() || ".:[]%-".contains(c);
        let valid = text
            .strip_prefix(scheme)
            .is_some_and(|rest| !rest.is_empty() && rest.chars().all(plain));
        if valid {
            Ok(text)
        } else {
            Err((target.span(), Problem::BadTarget { text, what, expected }))
        }
    };
    list.iter().map(one).collect()
}

/// Rejects a link whose MTU is too large for the switch.
pub(super) fn check_mtus(switch: &Switch) -> Result<(), Problem> {
    let too_big = switch.ports.iter().find(|port| port.mtu > MILLRACE_MTU);
    match (&switch.kind, too_big) {
        (SwitchKind::Millrace { .. }, Some(port)) => Err(Problem::MtuOfMillrace {
            switch: switch.name.clone(),
            mtu: port.mtu,
            max: MILLRACE_MTU,
        }),
        _ => Ok(()),
    }
}

/// Rejects guests at a switch without vhost-user ports.
pub(super) fn check_guests(switch: &Switch) -> Result<(), Problem> {
    let guest = switch.ports.iter().find_map(|port| port.guest.as_ref());
    match (&switch.kind, guest) {
        (SwitchKind::Millrace { .. }, _) | (_, None) => Ok(()),
        (SwitchKind::Ovs { ports, .. }, _) if *ports == OvsPorts::Dpdk => Ok(()),
        (_, Some(nic)) => Err(Problem::GuestLink {
            guest: nic.guest.clone(),
            other: switch.name.clone(),
        }),
    }
}
