//! V7: entries that no packet can match.

use std::collections::BTreeSet;

use millrace_flow::Field;

use crate::check::Checker;
use crate::frames::Frames;
use crate::property::Property;
use crate::register::filter_of;
use crate::space::Space;
use crate::trace::Trace;

/// The bits of a cookie that mark entries of the switch itself, and entries that drop and count. They guard against frames
/// that other entries let nobody send, so that being unreached is no fault of theirs.
const MARKED: [(u64, u64); 2] = [(0xfff0 << 48, 0x5800 << 48), (0xfff0 << 48, 0x5860 << 48)];

impl Checker<'_> {
    /// Finds shadowed entries: those all of whose packets belong to entries above them. A member may order a filter that
    /// another one of its filters contains.
    pub fn shadowed(&mut self) {
        let fabric = self.fabric;
        let mut found = Vec::new();
        for (switch, content) in &fabric.switches {
            for (table, entry) in content.entries() {
                let cube = entry.cube().filter(|_| filter_of(entry.flow.cookie).is_none());
                let Some(cube) = cube else {
                    continue;
                };
                let mut space = Space::of(cube);
                let above = content.neighbours(table, entry).into_iter();
                for other in above.filter(|other| other.flow.priority > entry.flow.priority) {
                    if let Some(cube) = other.cube() {
                        space.exclude(cube);
                    }
                }
                if space.is_empty() {
                    found.push((*switch, table, entry.flow.clone()));
                }
            }
        }
        for (switch, table, flow) in found {
            let text = format!(
                "the entry {:?} of table {table} at {} is shadowed: entries with a higher priority match all of its packets",
                flow.matching,
                self.register.switch_name(switch)
            );
            self.found(Property::Alive, None, text);
        }
    }

    /// Finds dead entries: those that no frame from any port of a member reaches. Entries of the switches themselves, of
    /// filters, and those that only drop are not reported.
    pub fn dead(&mut self) {
        let (fabric, register) = (self.fabric, self.register);
        let is_filter =
            |cookie: u64| filter_of(cookie).is_some_and(|filter| register.filters.contains_key(&filter));
        let mut visit = |_: &crate::trace::Way| {};
        let mut trace = Trace::new(fabric, &is_filter, &mut visit);
        trace.hits = Some(BTreeSet::new());
        for (switch, ports) in &fabric.ports {
            for port in ports {
                trace.enter(*switch, *port, Frames::all());
            }
        }
        let hits = trace.hits.take().unwrap_or_default();
        // An end has an entry for each of the eight priorities, also where no frame has another priority than 0.
        let mut alive = BTreeSet::new();
        for (switch, content) in &fabric.switches {
            let hit = content
                .entries()
                .filter(|(_, entry)| hits.contains(&(*switch, entry.number)));
            alive.extend(hit.map(|(table, entry)| (*switch, table, entry.flow.cookie)));
        }
        let mut found = Vec::new();
        for (switch, content) in &fabric.switches {
            for (table, entry) in content.entries() {
                let cookie = entry.flow.cookie;
                if entry.pcp.is_some() && alive.contains(&(*switch, table, cookie)) {
                    continue;
                }
                let is_marked = MARKED.iter().any(|(mask, value)| cookie & mask == *value);
                let is_drop = entry.flow.instructions.goto_table.is_none()
                    && entry.flow.instructions.actions().next().is_none();
                // The engine's probes come by trunks, from no member.
                let is_probe = entry
                    .fields
                    .iter()
                    .any(|(field, value, _)| *field == Field::EthType && *value == 0x88cc);
                if is_marked
                    || is_drop
                    || is_probe
                    || is_filter(cookie)
                    || hits.contains(&(*switch, entry.number))
                {
                    continue;
                }
                found.push((*switch, table, entry.flow.clone()));
            }
        }
        for (switch, table, flow) in found {
            let text = format!(
                "the entry {:?} of table {table} at {} is dead: no frame of a member reaches it",
                flow.matching,
                self.register.switch_name(switch)
            );
            self.found(Property::Alive, None, text);
        }
    }
}
