//! Notes of rules about a flow and a packet: bits, counters and captured bytes, and the labels of its traffic.

use millrace_ips_engine::event::FlowVariables;

use crate::object::Object;
use crate::tables::RuleTables;
use crate::text::text;

/// The beginnings of the names of bits that are identifiers and labels of traffic, and no bits in records.
const TRAFFIC: [(&str, &str); 2] = [("id", "traffic/id/"), ("label", "traffic/label/")];

/// Bytes that expressions captured, each with its name.
type Captured = [(Vec<u8>, Vec<u8>)];

/// Notes about a flow, and about a packet of it.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Notes<'a> {
    /// Numbers of the bits that are set.
    pub(crate) bits: &'a [u32],
    /// Numbers and values of the counters that were set.
    pub(crate) counters: &'a [(u32, u32)],
    pub(crate) variables: &'a Captured,
    pub(crate) packet_variables: &'a Captured,
}

impl Notes<'_> {
    /// Returns the notes about a flow that ended.
    pub(crate) fn of_flow(variables: &FlowVariables) -> Notes<'_> {
        Notes {
            bits: &variables.bits,
            counters: &variables.counters,
            variables: &variables.variables,
            packet_variables: &[],
        }
    }
}

/// Writes notes about a flow: the objects `metadata` and `traffic`, unless they are empty.
pub(crate) fn write(line: &mut Object<'_>, rules: &RuleTables, notes: Notes<'_>) {
    let Notes {
        bits,
        counters,
        variables,
        packet_variables,
    } = notes;
    let captured = [("flowvars", variables), ("pktvars", packet_variables)];
    let has_captured = captured.iter().any(|(_, list)| !list.is_empty());
    let names = || bits.iter().filter_map(|bit| rules.bit(*bit));
    let of = |prefix: &str| -> Vec<&str> { names().filter_map(|name| name.strip_prefix(prefix)).collect() };
    let is_plain = |name: &&str| TRAFFIC.iter().all(|(_, prefix)| !name.starts_with(prefix));
    let plain: Vec<&str> = names().filter(is_plain).collect();
    let numbers: Vec<(&str, u32)> = counters
        .iter()
        .filter_map(|(counter, value)| Some((rules.counter(*counter)?, *value)))
        .collect();
    if !plain.is_empty() || !numbers.is_empty() || has_captured {
        line.object("metadata", |out| {
            if !plain.is_empty() {
                out.field("flowbits", plain);
            }
            if !numbers.is_empty() {
                out.object("flowints", |out| {
                    for (name, value) in numbers {
                        out.field(name, value);
                    }
                });
            }
            for (key, list) in captured.into_iter().filter(|(_, list)| !list.is_empty()) {
                out.array(key, list, |out, (name, value)| {
                    out.bytes(&text(name), value);
                });
            }
        });
    }
    let labels = TRAFFIC.map(|(name, prefix)| (name, of(prefix)));
    if labels.iter().any(|(_, list)| !list.is_empty()) {
        line.object("traffic", |out| {
            for (name, list) in labels.into_iter().filter(|(_, list)| !list.is_empty()) {
                out.field(name, list);
            }
        });
    }
}
