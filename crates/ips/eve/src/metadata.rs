//! Notes of rules about a flow: its bits and counters, and the labels of its traffic.

use crate::object::Object;
use crate::tables::RuleTables;

/// The beginnings of the names of bits that are identifiers and labels of traffic, and no bits in records.
const TRAFFIC: [(&str, &str); 2] = [("id", "traffic/id/"), ("label", "traffic/label/")];

/// Writes the set bits and the counters of a flow: the objects `metadata` and `traffic`, unless they are empty.
pub(crate) fn write(line: &mut Object<'_>, rules: &RuleTables, bits: &[u32], counters: &[(u32, u32)]) {
    let names = || bits.iter().filter_map(|bit| rules.bit(*bit));
    let of = |prefix: &str| -> Vec<&str> { names().filter_map(|name| name.strip_prefix(prefix)).collect() };
    let is_plain = |name: &&str| TRAFFIC.iter().all(|(_, prefix)| !name.starts_with(prefix));
    let plain: Vec<&str> = names().filter(is_plain).collect();
    let numbers: Vec<(&str, u32)> = counters
        .iter()
        .filter_map(|(counter, value)| Some((rules.counter(*counter)?, *value)))
        .collect();
    if !plain.is_empty() || !numbers.is_empty() {
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
