//! A row of the table `Interface` as the device of a port.

use std::collections::BTreeMap;

use millrace_model as model;
use millrace_types::PortNo;

use crate::fault::RowName;
use crate::keys;
use crate::one::One;
use crate::rows::View;

/// The place of an interface in the switch.
pub(crate) enum Found {
    /// The LOCAL port of its bridge.
    Local,
    Port(Box<model::Port>),
}

/// Returns the port of an interface, without the settings of its port.
///
/// # Errors
/// The text of the column `error`.
pub(crate) fn port(
    one: &mut One<'_, '_>,
    view: &View<'_>,
    bridge: &model::Bridge,
    number: Option<PortNo>,
) -> Result<Found, String> {
    let name = view.text("name").unwrap_or("");
    if name == bridge.name.as_str() {
        return Ok(Found::Local);
    }
    let model_name: model::PortName = name
        .parse()
        .map_err(|error: model::NameError| error.to_string())?;
    let number = number.ok_or("no free OpenFlow port number: expected fewer ports")?;
    let device = device(one, view, name)?;
    let mut port = model::Port::new(model_name, number, device);
    if let Some(mtu) = mtu(one, view, &port.device) {
        port.mtu = mtu;
    }
    port.queues = queues(one, view);
    Ok(Found::Port(Box::new(port)))
}

/// Returns the MTU that an interface asks for, if its device has one that the switch sets.
pub(crate) fn mtu(one: &mut One<'_, '_>, view: &View<'_>, device: &model::Device) -> Option<model::Mtu> {
    let mtu = view.integer("mtu_request")?;
    let row = view.row_name();
    match (device, model::Mtu::new(u16::try_from(mtu).unwrap_or(0))) {
        (model::Device::Kernel(name), _) => one.faults.ignore(
            &row,
            format!("mtu_request={mtu} has no effect on an interface of the kernel: expected `ip link set {name} mtu {mtu}`"),
        ),
        (_, Ok(mtu)) => return Some(mtu),
        (_, Err(error)) => one.faults.refuse(&row, format!("mtu_request={mtu}: {error}")),
    }
    None
}

/// Returns the number of receive queues that an interface asks for.
pub(crate) fn queues(one: &mut One<'_, '_>, view: &View<'_>) -> Option<model::QueueCount> {
    let options = view.map("options");
    let text = options.get("n_rxq")?;
    let queues = text
        .parse()
        .ok()
        .and_then(|queues| model::QueueCount::new(queues).ok());
    if queues.is_none() {
        one.faults.ignore(
            &view.row_name(),
            format!("options:n_rxq={text} has no effect: expected 1 to 64"),
        );
    }
    queues
}

/// Returns the device of an interface.
///
/// # Errors
/// The text of the column `error`.
pub(crate) fn device(one: &mut One<'_, '_>, view: &View<'_>, name: &str) -> Result<model::Device, String> {
    let options = view.map("options");
    let row = view.row_name();
    let kind = view.text("type").unwrap_or("system");
    let parse = |text: String| {
        text.parse::<model::Device>()
            .map_err(|error| format!("could not open network device {name} ({error})"))
    };
    let (read, text) = match kind {
        "system" | "afxdp-nonpmd" => ("", format!("kernel:{name}")),
        "internal" | "tap" => ("", format!("tap:{name}")),
        "afxdp" => ("", format!("net_af_xdp_{name},iface={name}")),
        "dpdk" => match options.get("dpdk-devargs") {
            Some(devargs) => ("dpdk-devargs", (*devargs).to_owned()),
            None => return Err(format!("'{name}' is missing 'options:dpdk-devargs'")),
        },
        "dpdkvhostuserclient" => match options.get("vhost-server-path") {
            Some(path) => ("vhost-server-path", format!("vhost:{path},role=client")),
            None => return Err(format!("'{name}' is missing 'options:vhost-server-path'")),
        },
        "patch" => return patch(one, view, name, &options),
        "vxlan" | "gre" | "gtpu" => return tunnel(one, &row, kind, name, &options),
        "dpdkvhostuser" => {
            return Err(format!(
                "type {kind}: expected dpdkvhostuserclient with options:vhost-server-path"
            ));
        }
        _ => {
            return Err(format!(
                "could not open network device {name} (type {kind} is not available: expected {KINDS})"
            ));
        }
    };
    unread_options(one, &row, kind, &options, |key| key == read || key == "n_rxq");
    parse(text)
}

/// Names the options that have no effect on a type, apart from those that are read.
fn unread_options(
    one: &mut One<'_, '_>,
    row: &RowName,
    kind: &str,
    options: &BTreeMap<&str, &str>,
    is_read: impl Fn(&str) -> bool,
) {
    for (key, value) in options.iter().filter(|(key, _)| !is_read(key)) {
        if let Some((severity, instead)) = keys::reason("Interface", "options", key, value) {
            one.faults.add(
                row,
                severity,
                format!("options:{key}={value} has no effect on type {kind}: {instead}"),
            );
        }
    }
}

/// The types of interfaces that the switch has.
const KINDS: &str = "system, internal, tap, patch, dpdk, dpdkvhostuserclient, afxdp, vxlan, gre or gtpu";

fn patch(
    one: &mut One<'_, '_>,
    view: &View<'_>,
    name: &str,
    options: &BTreeMap<&str, &str>,
) -> Result<model::Device, String> {
    let Some(peer) = options.get("peer") else {
        return Err(format!("{name}: patch type requires valid 'peer' argument"));
    };
    if *peer == name {
        return Err(format!("{name}: patch peer must not be self"));
    }
    unread_options(one, &view.row_name(), "patch", options, |key| key == "peer");
    match one.links.get(&view.uuid) {
        Some(link) => format!("link:{}", link.name)
            .parse()
            .map_err(|error: model::DeviceError| error.to_string()),
        // Until the other end is there and names this one, packets go nowhere, as in Open vSwitch.
        None => Ok(model::Device::Memory),
    }
}

/// Returns the column `error` of a patch port whose other end is not there or does not name it.
pub(crate) fn without_peer(one: &One<'_, '_>, view: &View<'_>, port: &model::Port) -> Option<String> {
    let is_lonely = port.device == model::Device::Memory && !one.links.contains_key(&view.uuid);
    let peer = view.map("options").get("peer").copied().unwrap_or_default();
    is_lonely.then(|| format!("No usable peer '{peer}' exists in 'netdev' datapath."))
}

fn tunnel(
    one: &mut One<'_, '_>,
    row: &RowName,
    kind: &str,
    name: &str,
    options: &BTreeMap<&str, &str>,
) -> Result<model::Device, String> {
    let remote = options
        .get("remote_ip")
        .ok_or_else(|| format!("{name}: {kind} type requires valid 'remote_ip' argument"))?;
    if *remote == "flow" {
        return Err(format!(
            "{name}: remote_ip=flow is not available: expected an IP address"
        ));
    }
    let local = options.get("local_ip");
    // The machine routes tunnels that name no port, as Open vSwitch does.
    let underlay = options.get("underlay").copied().unwrap_or("host");
    let mut text = format!("{kind}:remote={remote}");
    if let Some(local) = local {
        text.push_str(&format!(",local={local}"));
    }
    text.push_str(&format!(",underlay={underlay}"));
    let keys: Vec<&str> = ["key", "in_key", "out_key"]
        .iter()
        .filter_map(|key| options.get(key).copied())
        .collect();
    if let Some(key) = keys.first() {
        if keys.iter().any(|other| other != key) {
            return Err(format!(
                "{name}: in_key and out_key differ: expected one key for both directions"
            ));
        }
        text.push_str(&format!(",key={key}"));
    }
    for (key, value) in options {
        match *key {
            "dst_port" => text.push_str(&format!(",port={value}")),
            "ttl" if *value == "inherit" => one.faults.ignore(
                row,
                format!("options:ttl=inherit has no effect on type {kind}: expected 1 to 255"),
            ),
            "ttl" => text.push_str(&format!(",ttl={value}")),
            "csum" => text.push_str(&format!(",csum={value}")),
            "gateway" => text.push_str(&format!(",gateway={value}")),
            "tos" if *value == "inherit" => text.push_str(",dscp=inherit"),
            "tos" => match parse_tos(value) {
                Some(dscp) => text.push_str(&format!(",dscp={dscp}")),
                None => return Err(format!("{name}: tos={value}: expected 0 to 255 or inherit")),
            },
            _ => {}
        }
    }
    unread_options(one, row, kind, options, |key| TUNNEL.contains(&key));
    text.parse().map_err(|error: model::DeviceError| {
        format!("{name}: {error} (remote is options:remote_ip, local local_ip, port dst_port, and dscp tos)")
    })
}

/// The options of tunnels that are read.
const TUNNEL: [&str; 11] = [
    "remote_ip",
    "local_ip",
    "underlay",
    "key",
    "in_key",
    "out_key",
    "dst_port",
    "ttl",
    "csum",
    "gateway",
    "tos",
];

/// Returns the DSCP of a TOS byte, decimal or after `0x`.
fn parse_tos(text: &str) -> Option<u8> {
    let tos = match text.strip_prefix("0x") {
        Some(digits) => u8::from_str_radix(digits, 16).ok(),
        None => text.parse::<u8>().ok(),
    };
    tos.map(|tos| tos >> 2)
}
