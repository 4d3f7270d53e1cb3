//! The object `dnp3`: a fragment of DNP3 (IEEE 1815-2012).

use millrace_ips_engine::app::record::{Dnp3Objects, Dnp3Record};

use crate::object::{Object, values};
use crate::place::Place;

const UNSOLICITED_RESPONSE: u8 = 130;

/// The internal indications (IEEE 1815-2012, section 4.2.2.6), from the lowest bit of the first byte on.
const INDICATIONS: [&str; 16] = [
    "all_stations",
    "class_1_events",
    "class_2_events",
    "class_3_events",
    "need_time",
    "local_control",
    "device_trouble",
    "device_restart",
    "no_func_code_support",
    "object_unknown",
    "parameter_error",
    "event_buffer_overflow",
    "already_executing",
    "config_corrupt",
    "reserved_2",
    "reserved_1",
];

/// Writes a fragment. An alert has it within `request` or `response`.
pub(crate) fn fragment(out: &mut Object<'_>, fields: &Dnp3Record, place: Place) {
    match (place, fields.indications) {
        (Place::Record { .. }, _) => message(out, fields),
        (Place::Alert, Some(_)) => {
            out.object("response", |out| message(out, fields));
        }
        (Place::Alert, None) => {
            out.object("request", |out| message(out, fields));
        }
    }
}

fn message(out: &mut Object<'_>, fields: &Dnp3Record) {
    let kind = match (fields.indications, fields.function) {
        (None, _) => "request",
        (Some(_), UNSOLICITED_RESPONSE) => "unsolicited_response",
        (Some(_), _) => "response",
    };
    out.field("type", kind)
        .object("control", |out| {
            flags(out, fields.link_control, ["dir", "pri", "fcb", "fcv"]);
            out.field("function_code", fields.link_control & 0xf);
        })
        .field("src", fields.source)
        .field("dst", fields.destination)
        .object("application", |out| {
            out.object("control", |out| {
                flags(out, fields.control, ["fir", "fin", "con", "uns"]);
                out.field("sequence", fields.control & 0xf);
            })
            .field("function_code", fields.function)
            .array("objects", &fields.objects, objects)
            .field("complete", fields.is_complete);
        });
    if let Some(indications) = fields.indications {
        // The record has the first byte in its high bits.
        let bits = indications.swap_bytes();
        let names = INDICATIONS
            .into_iter()
            .enumerate()
            .filter(|(bit, _)| bits >> bit & 1 != 0)
            .map(|(_, name)| name);
        let names: Vec<&str> = names.collect();
        out.object("iin", |out| {
            out.field("indicators", names);
        });
    }
}

/// Writes the four high bits of a control byte, from the highest on.
fn flags(out: &mut Object<'_>, control: u8, names: [&str; 4]) {
    for (name, bit) in names.into_iter().zip([0x80, 0x40, 0x20, 0x10]) {
        out.field(name, control & bit != 0);
    }
}

fn objects(out: &mut Object<'_>, header: &Dnp3Objects) {
    out.field("group", header.group)
        .field("variation", header.variation)
        .field("qualifier", header.qualifier)
        .field("prefix_code", header.qualifier >> 4 & 7)
        .field("range_code", header.qualifier & 0xf)
        .field("start", header.start)
        .field("stop", header.stop)
        .field("count", header.count);
    let points = header.points();
    if !points.is_empty() {
        out.array("points", &points, values);
    }
}
