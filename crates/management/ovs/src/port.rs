//! The settings of ports: VLANs, policing, liveness, and what the model does not have.

use millrace_model as model;
use millrace_types::Vid;

use crate::bond_keys;
use crate::fault::{Faults, RowName, Severity};
use crate::keys;
use crate::lldp;
use crate::one::One;
use crate::qos;
use crate::rows::View;
use crate::spanning_tree;
use crate::values::rate;

/// The VLAN of dead ports in Neutron. No packet of another port may reach it.
const DEAD_VLAN: i64 = 4095;

/// Columns that the LOCAL port does not have, and whether that changes what happens to packets.
const LOCAL_PORT: [(&str, Severity); 9] = [
    ("tag", Severity::Refused),
    ("trunks", Severity::Refused),
    ("vlan_mode", Severity::Refused),
    ("cvlans", Severity::Ignored),
    ("qos", Severity::Refused),
    ("protected", Severity::Refused),
    ("lacp", Severity::Ignored),
    ("mac", Severity::Ignored),
    ("other_config", Severity::Ignored),
];
const LOCAL_INTERFACE: [(&str, Severity); 8] = [
    ("options", Severity::Ignored),
    ("ofport_request", Severity::Ignored),
    ("ingress_policing_rate", Severity::Refused),
    ("ingress_policing_kpkts_rate", Severity::Refused),
    ("bfd", Severity::Ignored),
    ("cfm_mpid", Severity::Ignored),
    ("lldp", Severity::Ignored),
    ("other_config", Severity::Ignored),
];

/// Applies the settings of the port of the LOCAL interface.
pub(crate) fn local(
    one: &mut One<'_, '_>,
    port: &View<'_>,
    interface: &View<'_>,
    bridge: &mut model::Bridge,
) {
    let row = interface.row_name();
    if let Some(mtu) = interface.integer("mtu_request") {
        match model::Mtu::new(u16::try_from(mtu).unwrap_or(0)) {
            Ok(mtu) => bridge.local_mtu = mtu,
            Err(error) => one.faults.refuse(&row, format!("mtu_request={mtu}: {error}")),
        }
    }
    for (view, columns) in [(port, &LOCAL_PORT[..]), (interface, &LOCAL_INTERFACE[..])] {
        for (column, severity) in columns {
            if view.is_set(column) || *column == "tag" && view.has(column) {
                one.faults.add(
                    &view.row_name(),
                    *severity,
                    format!(
                        "{column} of the LOCAL port is not available: expected another internal port with it"
                    ),
                );
            }
        }
    }
    if let Some(mac) = interface.text("mac") {
        one.faults.ignore(
            &row,
            format!("mac={mac} of the LOCAL port has no effect: expected other_config:hwaddr of the bridge"),
        );
    }
}

/// Applies the settings of a port with one interface.
pub(crate) fn settings(
    one: &mut One<'_, '_>,
    view: &View<'_>,
    interface: &View<'_>,
    bridge: &model::Bridge,
    port: &mut model::Port,
) {
    let (row, interface_row) = (view.row_name(), interface.row_name());
    qos::port(one, view, &row, port);
    of_port(one, view, port);
    policing(interface, &interface_row, port, one.faults);
    liveness(interface, &interface_row, port, one.faults);
    lldp::port(std::slice::from_ref(interface), bridge, port, one.faults);
    if let Some(lacp) = view.text("lacp").filter(|lacp| *lacp != "off") {
        one.faults.refuse(
            &row,
            format!("lacp={lacp} is not available on a port with one interface: expected a port with several, as by add-bond"),
        );
    }
    for (key, value) in view.map("other_config") {
        if bond_keys::KEYS.contains(&key) {
            one.faults.ignore(
                &row,
                format!("other_config:{key}={value} has no effect on a port with one interface"),
            );
        }
    }
    for (key, value) in interface.map("other_config") {
        if key.starts_with("lacp-") {
            one.faults.ignore(
                &interface_row,
                format!("other_config:{key}={value} has no effect on a port with one interface"),
            );
        }
    }
    if interface.map("other_config").contains_key("cfm_interval") && !interface.has("cfm_mpid") {
        one.faults.ignore(
            &interface_row,
            "other_config:cfm_interval has no effect without cfm_mpid",
        );
    }
    for column in BOND_COLUMNS.into_iter().filter(|column| view.is_set(column)) {
        one.faults.ignore(
            &row,
            format!("{column} has no effect on a port with one interface"),
        );
    }
}

/// Columns of ports with several interfaces.
const BOND_COLUMNS: [&str; 4] = ["bond_mode", "bond_updelay", "bond_downdelay", "bond_fake_iface"];

/// Applies the settings of a port that do not depend on its interfaces.
pub(crate) fn of_port(one: &mut One<'_, '_>, view: &View<'_>, port: &mut model::Port) {
    let row = view.row_name();
    vlan(view, &row, port, one.faults);
    spanning_tree::port(one, view, &row, port);
    port.protected = view.is_true("protected");
    if view.has("cvlans") && view.text("vlan_mode") != Some("dot1q-tunnel") {
        one.faults
            .ignore(&row, "cvlans has no effect: only vlan_mode=dot1q-tunnel uses it");
    }
    if let Some(mac) = view.text("mac")
        && let Err(error) = mac.parse::<model::UnicastMac>()
    {
        one.faults
            .ignore(&row, format!("mac={mac} has no effect: {error}"));
    }
    if view.map("other_config").contains_key("qinq-ethtype") && port.dot1q_tunnel.is_none() {
        one.faults.ignore(
            &row,
            "other_config:qinq-ethtype has no effect: only vlan_mode=dot1q-tunnel uses it",
        );
    }
    // Keys of bonds are named with their ports, which have one interface or several.
    let is_read = |key: &str| {
        spanning_tree::PORT_KEYS.contains(&key) || bond_keys::KEYS.contains(&key) || key == "qinq-ethtype"
    };
    keys::check(view, "other_config", &row, is_read, one.faults);
}

fn vlan(view: &View<'_>, row: &RowName, port: &mut model::Port, faults: &mut Faults) {
    let tag = view.integer("tag");
    let all = || (1..=4094).filter_map(|raw| Vid::new(raw).ok());
    let mut trunks: Vec<Vid> = Vec::new();
    for raw in view.integers("trunks") {
        match u16::try_from(raw)
            .ok()
            .filter(|raw| (1..=4094).contains(raw))
            .and_then(|raw| Vid::new(raw).ok())
        {
            Some(vid) => trunks.push(vid),
            None if raw == 0 => {
                faults.ignore(row, "trunks: VLAN 0, untagged packets, has no effect beside others: expected vlan_mode=native-untagged with tag");
            }
            // Nothing else uses VLAN 4095, which the standard reserves.
            None => {}
        }
    }
    let access = |port: &mut model::Port, faults: &mut Faults| match tag {
        Some(DEAD_VLAN) => {
            (port.no_recv, port.no_fwd) = (true, true);
        }
        Some(0) => faults.ignore(
            row,
            "tag=0: the port also accepts tagged packets: expected a VLAN of 1 to 4094 for an access port",
        ),
        Some(tag) => port.vlan = u16::try_from(tag).ok().and_then(|raw| Vid::new(raw).ok()),
        None => faults.ignore(row, "vlan_mode without tag: the port is a trunk"),
    };
    match (view.text("vlan_mode"), tag) {
        (None, Some(_)) => {
            if !trunks.is_empty() {
                faults.ignore(
                    row,
                    "trunks has no effect beside tag: expected vlan_mode=native-untagged for both",
                );
            }
            access(port, faults);
        }
        (Some("access"), _) => access(port, faults),
        (None, None) => port.trunks = trunks,
        (Some("trunk"), tag) => {
            if tag.is_some() {
                faults.ignore(row, "tag has no effect with vlan_mode=trunk");
            }
            port.trunks = trunks;
        }
        (Some("native-untagged"), _) => {
            access(port, faults);
            // An access port is one without trunks in the model; none means all here.
            let tagged: Vec<Vid> = if trunks.is_empty() {
                all().collect()
            } else {
                trunks
            };
            if let Some(native) = port.vlan {
                port.trunks = tagged.into_iter().filter(|vid| *vid != native).collect();
            }
        }
        (Some("native-tagged"), _) => {
            access(port, faults);
            if let Some(native) = port.vlan {
                port.trunks = trunks.into_iter().filter(|vid| *vid != native).collect();
                port.vlan_tagged = true;
                if port.trunks.is_empty() && view.has("trunks") {
                    // No trunks means all VLANs: only the native one is left.
                    (port.vlan_tagged, port.trunks) = (false, Vec::new());
                    faults.ignore(row, "vlan_mode=native-tagged with no other VLAN in trunks: its packets leave without a tag");
                }
            }
        }
        (Some("dot1q-tunnel"), tag) => {
            if !trunks.is_empty() {
                faults.ignore(
                    row,
                    "trunks has no effect with vlan_mode=dot1q-tunnel: expected cvlans",
                );
            }
            match tag.and_then(|tag| u16::try_from(tag).ok()).map(Vid::new) {
                Some(Ok(service)) if (1..=4094).contains(&service.raw()) => {
                    port.vlan = Some(service);
                    port.dot1q_tunnel = Some(customer(view, row, faults));
                }
                _ => {
                    faults.refuse(
                        row,
                        "vlan_mode=dot1q-tunnel without a service VLAN: expected a tag of 1 to 4094; the port carries no packets",
                    );
                    (port.no_recv, port.no_fwd) = (true, true);
                }
            }
        }
        (Some(mode), _) => {
            faults.refuse(
                row,
                format!("vlan_mode={mode} is not known here: expected access, trunk, native-untagged, native-tagged or dot1q-tunnel; the port carries no packets"),
            );
            (port.no_recv, port.no_fwd) = (true, true);
        }
    }
}

/// Returns the customer's VLANs of a port, and the tag of their service VLAN.
fn customer(view: &View<'_>, row: &RowName, faults: &mut Faults) -> model::Dot1qTunnel {
    let mut customer = model::Dot1qTunnel::new();
    for raw in view.integers("cvlans") {
        match u16::try_from(raw).ok().map(Vid::new) {
            Some(Ok(vid)) if (1..=4094).contains(&vid.raw()) => customer.customer_vlans.push(vid),
            _ => faults.ignore(
                row,
                format!("cvlans: {raw} has no effect: expected 1 to 4094; beside others, untagged packets are dropped"),
            ),
        }
    }
    match view.map("other_config").get("qinq-ethtype").copied() {
        None | Some("802.1ad") => {}
        Some("802.1q") => customer.service_tag = model::ServiceTag::Dot1q,
        Some(other) => faults.ignore(
            row,
            format!("other_config:qinq-ethtype={other} has no effect: expected 802.1ad or 802.1q"),
        ),
    }
    customer
}

fn policing(view: &View<'_>, row: &RowName, port: &mut model::Port, faults: &mut Faults) {
    for unit in ["", "kpkts_"] {
        let is_set = |name: &str| view.is_set(&format!("ingress_policing_{unit}{name}"));
        if is_set("burst") && !is_set("rate") {
            faults.ignore(
                row,
                format!("ingress_policing_{unit}burst has no effect without a rate"),
            );
        }
    }
    if view
        .integer("ingress_policing_kpkts_rate")
        .is_some_and(|rate| rate > 0)
    {
        faults.refuse(
            row,
            "ingress_policing_kpkts_rate is not available: expected ingress_policing_rate, or a meter",
        );
    }
    let Some(kbps) = view
        .integer("ingress_policing_rate")
        .and_then(|rate| u64::try_from(rate).ok())
        .filter(|rate| *rate > 0)
    else {
        return;
    };
    let cir = match rate(kbps.saturating_mul(1000)) {
        Ok(cir) => cir,
        Err(reason) => return faults.refuse(row, format!("ingress_policing_rate={kbps}: {reason}")),
    };
    let mut policer = model::Policer::new(model::PolicerKind::SingleRate, cir);
    // One bucket: what is above the rate and its burst is dropped.
    policer.yellow = model::ColorAction::new(model::ColorVerdict::Drop);
    let kbit = view
        .integer("ingress_policing_burst")
        .and_then(|burst| u64::try_from(burst).ok())
        .unwrap_or(0);
    // The default of Open vSwitch, 8,000 kbit.
    let bytes = if kbit == 0 {
        1_000_000
    } else {
        kbit.saturating_mul(125)
    };
    let bytes = u32::try_from(bytes)
        .unwrap_or(u32::MAX)
        .clamp(1600, 1_073_741_824);
    policer.cbs = model::BurstSize::new(bytes).ok();
    port.policer = Some(policer);
}

fn liveness(view: &View<'_>, row: &RowName, port: &mut model::Port, faults: &mut Faults) {
    if keys::flag(view, "bfd", "enable", row, faults) == Some(true) {
        port.bfd = Some(bfd(view, row, faults));
    } else {
        for key in view.map("bfd").keys().filter(|key| **key != "enable") {
            faults.ignore(row, format!("bfd:{key} has no effect without bfd:enable=true"));
        }
    }
    let Some(mpid) = view.integer("cfm_mpid") else {
        return;
    };
    match u16::try_from(mpid)
        .ok()
        .and_then(|mpid| model::MepNumber::new(mpid).ok())
    {
        Some(mep) => {
            let mut ccm = model::Ccm::new(mep);
            ccm.interval = match view.map("other_config").get("cfm_interval").copied() {
                None | Some("1000") => model::CcmInterval::S1,
                Some("100") => model::CcmInterval::Ms100,
                Some("10000") => model::CcmInterval::S10,
                Some(text) => {
                    faults.ignore(
                        row,
                        format!(
                            "other_config:cfm_interval={text} has no effect: expected 100, 1000 or 10000 ms"
                        ),
                    );
                    model::CcmInterval::S1
                }
            };
            port.ccm = Some(ccm);
        }
        None => faults.refuse(row, format!("cfm_mpid={mpid}: expected 1 to 8191")),
    }
}

/// Returns BFD as the column of an interface asks for it.
fn bfd(view: &View<'_>, row: &RowName, faults: &mut Faults) -> model::Bfd {
    let given = view.map("bfd");
    let mut made = model::Bfd::new();
    let mut ignore = |key: &str, text: &str, expected: &str| {
        faults.ignore(
            row,
            format!("bfd:{key}={text} has no effect: expected {expected}"),
        );
    };
    for (key, place) in [("min_tx", &mut made.min_tx_ms), ("min_rx", &mut made.min_rx_ms)] {
        if let Some(text) = given.get(key) {
            match text.parse().map(model::BfdInterval::new) {
                Ok(Ok(interval)) => *place = interval,
                _ => ignore(key, text, "50 to 1000 ms"),
            }
        }
    }
    if let Some(text) = given.get("mult") {
        match text.parse().map(model::BfdMultiplier::new) {
            Ok(Ok(multiplier)) => made.multiplier = multiplier,
            _ => ignore("mult", text, "1 to 50"),
        }
    }
    for (key, place) in [("bfd_src_ip", &mut made.local), ("bfd_dst_ip", &mut made.remote)] {
        if let Some(text) = given.get(key) {
            match text.parse() {
                Ok(address) => *place = address,
                Err(_) => ignore(key, text, "an IPv4 address"),
            }
        }
    }
    keys::check(view, "bfd", row, |key| BFD_KEYS.contains(&key), faults);
    made
}

/// Keys of the column `bfd` that are read.
const BFD_KEYS: [&str; 6] = ["enable", "min_tx", "min_rx", "mult", "bfd_src_ip", "bfd_dst_ip"];
