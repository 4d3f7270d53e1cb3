//! A `[[host]]` or `[[guest]]`: the settings of the machine and of its interfaces. The interfaces are known
//! only after all links.

use std::ops::Range;

use millrace_types::{Mac, Vid};
use serde::Deserialize;
use toml::Spanned;

use super::value::{mtu, parsed};
use crate::problem::{LocatedProblem, Problem};
use crate::topology::{Guest, Machine};
use crate::wiring::{self, DEFAULT_MTU, HostPlan};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawHost {
    pub(super) name: Spanned<String>,
    ip: Option<Spanned<toml::Value>>,
    ipv6: Option<Spanned<toml::Value>>,
    mac: Option<Spanned<toml::Value>>,
    mtu: Option<Spanned<i64>>,
    vlan: Option<Spanned<i64>>,
    #[serde(default)]
    routes: Vec<Spanned<String>>,
    gateway: Option<Spanned<toml::Value>>,
    /// Valid in a `[[guest]]` only.
    memory_mib: Option<Spanned<i64>>,
    /// Valid in a `[[guest]]` only.
    forward: Option<Spanned<bool>>,
    /// Valid in a `[[guest]]` only.
    tso: Option<Spanned<bool>>,
}

/// The default memory of a guest in MiB: enough for a kernel and iperf3.
const MEMORY_MIB: u32 = 128;

/// Returns the type of a `[[host]]`.
pub(super) fn namespace(host: &RawHost) -> Result<Machine, LocatedProblem> {
    let keys = [
        ("memory_mib", host.memory_mib.as_ref().map(Spanned::span)),
        ("forward", host.forward.as_ref().map(Spanned::span)),
        ("tso", host.tso.as_ref().map(Spanned::span)),
    ];
    match keys.into_iter().find_map(|(key, span)| Some((key, span?))) {
        None => Ok(Machine::Namespace),
        Some((key, span)) => Err((span, other_node(key, "[[host]]", "[[guest]]"))),
    }
}

/// Returns the type and settings of a `[[guest]]`.
pub(super) fn guest(guest: &RawHost) -> Result<Machine, LocatedProblem> {
    if let Some(vlan) = &guest.vlan {
        return Err((vlan.span(), other_node("vlan", "[[guest]]", "[[host]]")));
    }
    let memory_mib = match &guest.memory_mib {
        None => MEMORY_MIB,
        Some(value) => {
            let valid = u32::try_from(*value.get_ref()).ok();
            let value_is = *value.get_ref();
            let valid = valid.filter(|mib| (96..=65_536).contains(mib));
            valid.ok_or_else(|| (value.span(), Problem::BadMemory { value: value_is }))?
        }
    };
    Ok(Machine::Guest(Guest {
        memory_mib,
        mtu: guest.mtu.as_ref().map(mtu).transpose()?.unwrap_or(DEFAULT_MTU),
        forward: guest.forward.as_ref().is_some_and(|forward| *forward.get_ref()),
        tso: guest.tso.as_ref().is_some_and(|tso| *tso.get_ref()),
    }))
}

fn other_node(key: &'static str, kind: &'static str, belongs: &'static str) -> Problem {
    Problem::KeyOfOtherNode { key, kind, belongs }
}

pub(super) fn plan(host: &RawHost) -> Result<HostPlan, LocatedProblem> {
    let mut plan = HostPlan {
        mtu: host.mtu.as_ref().map(mtu).transpose()?,
        ..HostPlan::default()
    };
    for (span, text) in strings(host.mac.as_ref())? {
        let mac: Mac = parsed(&text, &span)?;
        if mac.is_multicast() || mac == Mac::ZERO {
            return Err((span, Problem::GroupMac { mac }));
        }
        plan.macs.push((span, mac));
    }
    for (value, addresses) in [&host.ip, &host.ipv6].into_iter().zip(&mut plan.addresses) {
        for (span, text) in strings(value.as_ref())? {
            let prefix = parsed(&text, &span)?;
            addresses.push((span, prefix));
        }
    }
    if let Some(vlan) = &host.vlan {
        let value = *vlan.get_ref();
        let valid = u16::try_from(value).ok().filter(|vid| (1..=4094).contains(vid));
        let vid = valid.and_then(|vid| Vid::new(vid).ok());
        plan.vlan = Some(vid.ok_or((vlan.span(), Problem::BadVlan { value }))?);
    }
    for route in &host.routes {
        let text = route.get_ref();
        let parsed = wiring::route(text);
        plan.routes
            .push(parsed.ok_or_else(|| (route.span(), Problem::BadRoute { text: text.clone() }))?);
    }
    for (span, text) in strings(host.gateway.as_ref())? {
        let via = text.parse().map_err(|_| (span, Problem::BadAddress { text }))?;
        plan.routes.push(wiring::default_route(via));
    }
    Ok(plan)
}

/// Returns the strings of a value that is one string or a list of them, each with its position.
fn strings(value: Option<&Spanned<toml::Value>>) -> Result<Vec<(Range<usize>, String)>, LocatedProblem> {
    let Some(value) = value else { return Ok(Vec::new()) };
    let wrong = || {
        (
            value.span(),
            Problem::WrongType {
                expected: "a string or a list of strings",
            },
        )
    };
    let items = match value.get_ref() {
        toml::Value::String(one) => vec![one.clone()],
        toml::Value::Array(items) => items
            .iter()
            .map(|item| item.as_str().map(str::to_owned).ok_or_else(wrong))
            .collect::<Result<_, _>>()?,
        _ => return Err(wrong()),
    };
    Ok(items.into_iter().map(|item| (value.span(), item)).collect())
}
