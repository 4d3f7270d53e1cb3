//! The registers of a device with the meaning of their values, for people.

use crate::config::Capabilities;
use crate::counter::Counter;
use crate::memory::Memory;
use crate::register::{self, Access, REGISTERS, Register};

/// The most times that a counter is read until its upper half stays.
const READS_MAX: usize = 16;
/// The names of the numbers in `TUNNEL_PORT.kind`, from 1.
const TUNNELS: [&str; 4] = ["VXLAN", "Geneve", "GTP-U", "MPLS"];

/// A register, or two that are the halves of one number.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reading {
    /// The name; one of an array has its number behind it: `TPID[0]`.
    pub name: String,
    /// Offset in bytes, of the lower half.
    pub offset: usize,
    /// `None` for registers that are only written: they have keys, which are secret.
    pub value: Option<u64>,
    /// The value in words.
    pub meaning: String,
}

/// Reads all registers, by offset. An array of keys is one reading; queues that the device does not have are left out.
#[must_use]
pub fn read_all(memory: &Memory) -> Vec<Reading> {
    let capabilities = memory.layout().capabilities;
    REGISTERS
        .iter()
        .flat_map(|register| read(memory, register, &capabilities))
        .collect()
}

fn read(memory: &Memory, register: &Register, capabilities: &Capabilities) -> Vec<Reading> {
    let Register {
        name, offset, len, ..
    } = *register;
    let reading = |name: String, at: usize, value: u64, meaning: String| Reading {
        name,
        offset: offset + 4 * at,
        value: Some(value),
        meaning,
    };
    if register.access == Access::Write {
        return vec![Reading {
            name: format!("{name}[0..{len}]"),
            offset,
            value: None,
            meaning: "only written".to_owned(),
        }];
    }
    match name {
        "CYCLES" => {
            // A read of the lower half holds the upper one.
            let lower = memory.read_register(name, 0);
            let value = u64::from(memory.read_register(name, 1)) << 32 | u64::from(lower);
            vec![reading(name.to_owned(), 0, value, "cycles".to_owned())]
        }
        "COUNT" => Counter::ALL
            .iter()
            .take(len / 2)
            .enumerate()
            .map(|(at, (_, counter, text))| {
                let name = format!("COUNT_{counter}");
                reading(
                    name,
                    2 * at,
                    counter_at(memory, register.name, at),
                    (*text).to_owned(),
                )
            })
            .collect(),
        "NO_BUFFER" => (0..usize::from(capabilities.queues).min(len / 2))
            .map(|queue| {
                let text = format!("Frames dropped because queue {queue} had no free buffer or completion.");
                reading(
                    format!("{name}[{queue}]"),
                    2 * queue,
                    counter_at(memory, name, queue),
                    text,
                )
            })
            .collect(),
        _ => (0..len)
            .map(|at| {
                let value = memory.read_register(name, at);
                let name = match len {
                    1 => name.to_owned(),
                    _ => format!("{name}[{at}]"),
                };
                reading(name, at, value.into(), meaning(register, value))
            })
            .collect(),
    }
}

/// Reads a counter of 64 bits, the lower half first, which the device may change meanwhile.
fn counter_at(memory: &Memory, name: &str, number: usize) -> u64 {
    let half = |at: usize| u64::from(memory.read_register(name, 2 * number + at));
    let mut upper = half(1);
    for _ in 0..READS_MAX {
        let (lower, again) = (half(0), half(1));
        if upper == again {
            return upper << 32 | lower;
        }
        upper = again;
    }
    upper << 32 | half(0)
}

/// Returns the value of a register in words.
fn meaning(register: &Register, value: u32) -> String {
    let field = |name: &str| {
        let fields = register.fields.iter();
        let mut found = fields.filter(|field| field.name == name);
        found.next().map_or(0, |field| field.read(&value.to_le_bytes()))
    };
    match register.name {
        "ID" => if value == register::ID { "MRNC" } else { "unknown" }.to_owned(),
        "VERSION" => format!("{}.{}", value >> 16, value & 0xffff),
        "CAP_MEMORY" if value != 0 => format!(
            "{} buffers of {} bytes in each queue and direction",
            1_u64 << field("ring_bits").min(63),
            64 * field("buffer_size")
        ),
        "CAP_ROWS" if field("ways") != 0 => {
            format!(
                "{} ways of {} rows",
                field("ways"),
                1_u64 << field("row_bits").min(63)
            )
        }
        "CAP_ROWS" => "no exact table".to_owned(),
        "CAP_PORTS" => format!("ports {value}"),
        "CAP_DROPS" => format!("drop counters {value}"),
        "GENERATION" => format!("table changes {value}"),
        "TPID" | "TUNNEL_PORT" if field("value") == 0 => "none".to_owned(),
        "TPID" if field("openflow") == 1 => "hash and OpenFlow view".to_owned(),
        "TPID" => "hash only".to_owned(),
        "TUNNEL_PORT" => {
            let kind = (field("kind") as usize).checked_sub(1);
            let name = kind.and_then(|kind| TUNNELS.get(kind)).copied();
            format!("port {}, {}", field("value"), name.unwrap_or("no tunnel"))
        }
        _ => {
            let fields = register.fields.iter();
            let words = fields.map(|field| format!("{} {}", field.name, field.read(&value.to_le_bytes())));
            words.collect::<Vec<String>>().join(", ")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Layout;
    use crate::{Config, HashKeys};

    #[test]
    fn all_registers_are_read_but_for_the_keys() {
        let layout = Layout {
            capabilities: Capabilities {
                queues: 4,
                ..Capabilities::TEN
            },
            ring_bits: 7,
            buffer_size: 2048,
        };
        let (memory, _file) = Memory::create(layout).unwrap();
        for (offset, value) in Config::new(HashKeys::new(0x1234_5678_9abc)).registers() {
            memory.write_at(offset, value);
        }
        memory.write_register("CONTROL", 0, 1);
        memory.write_register("NO_BUFFER", 6, 5);
        memory.write_register("NO_BUFFER", 7, 2);
        memory.write_register("COUNT", 0, 9);
        memory.write_register("CYCLES", 1, 1);
        let all = read_all(&memory);
        let of = |name: &str| {
            let found = all.iter().find(|reading| reading.name == name);
            let found = found.unwrap_or_else(|| panic!("no {name} in {all:?}"));
            (found.offset, found.value, found.meaning.as_str())
        };
        assert_eq!(of("ID"), (0, Some(0x434e_524d), "MRNC"));
        assert_eq!(of("VERSION"), (4, Some(0x1_0001), "1.1"));
        assert_eq!(
            of("CAP_MEMORY").2,
            "128 buffers of 2048 bytes in each queue and direction"
        );
        assert_eq!(of("CONTROL"), (0x18, Some(1), "enable 1"));
        assert_eq!(of("TPID[1]").2, "hash and OpenFlow view");
        assert_eq!(of("TPID[2]"), (0x98, Some(0x9100), "hash only"));
        assert_eq!(of("TPID[3]").2, "none");
        assert_eq!(of("TUNNEL_PORT[0]").2, "port 2152, GTP-U");
        assert_eq!(of("NO_BUFFER[3]").0, 0x198);
        assert_eq!(of("NO_BUFFER[3]").1, Some(2 << 32 | 5));
        assert_eq!(of("COUNT_FRAMES").1, Some(9));
        assert_eq!(of("CYCLES").1, Some(1 << 32));
        assert!(all.iter().all(|reading| reading.name != "NO_BUFFER[4]"));
        // The keys are in the memory, and in no reading.
        assert!((0..12).any(|at| memory.read_register("HASH_KEY", at) != 0));
        assert_eq!(of("HASH_KEY[0..12]"), (0x20, None, "only written"));
        assert_eq!(of("TABLE_KEY[0..16]"), (0x50, None, "only written"));
        let offsets: Vec<usize> = all.iter().map(|reading| reading.offset).collect();
        assert!(offsets.is_sorted(), "{offsets:x?}");
    }
}
