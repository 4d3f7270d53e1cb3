//! The registers of a device: 32 bits each, little endian, in a window of 4 KiB.
//!
//! The device takes the values of the writable registers when `CONTROL.enable` becomes 1; later changes have no effect until
//! it is 0 and 1 again. Tables are empty, and no frame is received, while it is 0.

use crate::bits::{BitField, field};

/// Size of the window of registers in bytes.
pub const WINDOW_SIZE: usize = 4096;
/// Value of the register ID: "MRNC".
pub const ID: u32 = 0x434e_524d;
/// Value of the register VERSION: the major version in the upper half, the minor one in the lower.
pub const VERSION: u32 = 0x0001_0001;
/// Number of tag protocol identifiers.
pub const TPIDS: usize = 4;
/// Number of UDP ports of tunnels.
pub const TUNNEL_PORTS: usize = 8;

/// The right to access a register.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// The driver reads it.
    Read,
    /// The driver reads and writes it.
    ReadWrite,
    /// The driver writes it; it reads as 0.
    Write,
}

/// A register, or an array of them.
#[derive(Clone, Copy, Debug)]
pub struct Register {
    /// The name in upper case.
    pub name: &'static str,
    /// Offset of the first in bytes.
    pub offset: usize,
    /// Number of registers of 32 bits.
    pub len: usize,
    /// The access of the driver.
    pub access: Access,
    /// A sentence for the documentation.
    pub text: &'static str,
    /// Fields of a register that has several.
    pub fields: &'static [BitField],
    /// The form of the values.
    pub form: Form,
}

/// The form of a register's values.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    /// Bits, which people read in hexadecimal.
    Bits,
    /// Numbers of 64 bits in pairs of registers, the lower half first.
    Counters,
}

impl Register {
    const fn counters(self) -> Register {
        Register {
            form: Form::Counters,
            ..self
        }
    }
}

const fn register(
    name: &'static str,
    offset: usize,
    len: usize,
    access: Access,
    text: &'static str,
    fields: &'static [BitField],
) -> Register {
    Register {
        name,
        offset,
        len,
        access,
        text,
        fields,
        form: Form::Bits,
    }
}

/// All registers, by offset.
pub const REGISTERS: [Register; 17] = [
    register("ID", 0x000, 1, Access::Read, "0x434e524d, \"MRNC\".", &[]),
    register(
        "VERSION",
        0x004,
        1,
        Access::Read,
        "Version of this interface: major in bits 31 to 16, minor in bits 15 to 0. A driver accepts one major version.",
        &[],
    ),
    register(
        "CAP_QUEUES",
        0x008,
        1,
        Access::Read,
        "Number of parts.",
        &[
            field("queues", 0, 8, "Receive queues, 1 to 32."),
            field("banks", 8, 8, "Mask banks, 1 to 16."),
            field("rules", 16, 16, "Rules of the ternary table, 0 to 256."),
        ],
    ),
    register(
        "CAP_ROWS",
        0x00c,
        1,
        Access::Read,
        "Size of the exact table.",
        &[
            field(
                "row_bits",
                0,
                8,
                "Each way has 2^row_bits rows; 0 to 16. Without an exact table `ways` is 0.",
            ),
            field("ways", 8, 8, "Ways, 0 or 4."),
        ],
    ),
    register(
        "CAP_PORTS",
        0x010,
        1,
        Access::Read,
        "Number of ports, 1 to 16.",
        &[],
    ),
    register(
        "STATUS",
        0x014,
        1,
        Access::Read,
        "State of the device.",
        &[field(
            "ready",
            0,
            1,
            "The device has taken the configuration and receives frames.",
        )],
    ),
    register(
        "CONTROL",
        0x018,
        1,
        Access::ReadWrite,
        "State that the driver asks for.",
        &[field("enable", 0, 1, "1 to receive frames.")],
    ),
    register(
        "CAP_MEMORY",
        0x01c,
        1,
        Access::Read,
        "Sizes of shared memory; 0 for a device without.",
        &[
            field(
                "ring_bits",
                0,
                8,
                "Each queue has 2^ring_bits buffers in each direction; 4 to 12.",
            ),
            field(
                "buffer_size",
                16,
                16,
                "Size of a buffer in units of 64 bytes, up to 16,384 bytes.",
            ),
        ],
    ),
    register(
        "HASH_KEY",
        0x020,
        12,
        Access::Write,
        "The keys k0 to k5 of the flow hash, the lower half of each first.",
        &[],
    ),
    register(
        "TABLE_KEY",
        0x050,
        16,
        Access::Write,
        "The keys t0 to t7 of the exact table, the lower half of each first.",
        &[],
    ),
    register(
        "TPID",
        0x090,
        TPIDS,
        Access::ReadWrite,
        "Tag protocol identifiers.",
        &[
            field("value", 0, 16, "EtherType of a VLAN tag; 0 for none."),
            field(
                "openflow",
                16,
                1,
                "The OpenFlow view knows the tag; otherwise only the hash does.",
            ),
        ],
    ),
    register(
        "TUNNEL_PORT",
        0x0a0,
        TUNNEL_PORTS,
        Access::ReadWrite,
        "UDP destination ports of tunnels.",
        &[
            field("value", 0, 16, "Destination port."),
            field("kind", 16, 3, "0 for none; 1 VXLAN, 2 Geneve, 3 GTP-U, 4 MPLS."),
        ],
    ),
    register(
        "CYCLES",
        0x0c0,
        2,
        Access::Read,
        "Free-running cycles, the lower half first. A read of the lower half holds the upper one.",
        &[],
    )
    .counters(),
    register(
        "GENERATION",
        0x0c8,
        1,
        Access::Read,
        "Number of table changes modulo 2^32: WRITE_ROW, CLEAR_ROW, WRITE_TERNARY, CLEAR_TERNARY, SET_MASK and COMMIT with status OK.",
        &[],
    ),
    register(
        "CAP_DROPS",
        0x0cc,
        1,
        Access::Read,
        "Number of drop counters, at most 65,536; 0 for a device without. Since version 1.1.",
        &[],
    ),
    register(
        "COUNT",
        0x100,
        2 * 6,
        Access::Read,
        "The counters COUNT_FRAMES to COUNT_DROPPED, 64 bits each, the lower half first.",
        &[],
    )
    .counters(),
    register(
        "NO_BUFFER",
        0x180,
        2 * crate::QUEUES_MAX,
        Access::Read,
        "The counter COUNT_NO_BUFFER of each queue, 64 bits each, the lower half first.",
        &[],
    )
    .counters(),
];

/// The kind of a tunnel over UDP, and its number in the register TUNNEL_PORT.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "the names are those of the protocols")]
#[repr(u8)]
pub enum Tunnel {
    Vxlan = 1,
    Geneve = 2,
    GtpU = 3,
    Mpls = 4,
}

/// The values of TPID that equal the software of the switch: EtherType, and true if OpenFlow knows the tag.
pub const DEFAULT_TPIDS: [(u16, bool); 3] = [(0x8100, true), (0x88a8, true), (0x9100, false)];

/// The values of TUNNEL_PORT that equal the software of the switch.
pub const DEFAULT_TUNNELS: [(u16, Tunnel); 5] = [
    (2152, Tunnel::GtpU),
    (4789, Tunnel::Vxlan),
    (6081, Tunnel::Geneve),
    (6635, Tunnel::Mpls),
    (8472, Tunnel::Vxlan),
];

/// Returns a register by its name.
#[must_use]
pub fn by_name(name: &str) -> Option<&'static Register> {
    const ALL: &[Register] = &REGISTERS;
    ALL.iter().find(|register| register.name == name)
}

/// Returns the register, or the array of them, with this offset in bytes.
#[must_use]
pub fn at(offset: usize) -> Option<&'static Register> {
    const ALL: &[Register] = &REGISTERS;
    ALL.iter()
        .find(|register| (register.offset..register.offset + 4 * register.len).contains(&offset))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registers_are_in_order_and_do_not_overlap() {
        let mut end = 0;
        for register in REGISTERS {
            assert!(
                register.offset >= end && register.offset.is_multiple_of(4),
                "{}",
                register.name
            );
            end = register.offset + 4 * register.len;
        }
        assert!(end <= WINDOW_SIZE);
        assert!(by_name("CYCLES").is_some() && by_name("NONE").is_none());
        assert_eq!(at(0x18c).map(|register| register.name), Some("NO_BUFFER"));
        assert!(at(end).is_none());
    }
}
