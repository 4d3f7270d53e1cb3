//! The SystemVerilog package: every number of the interface as a parameter.

use core::fmt::Write as _;

use crate::bits::BitField;
use crate::command::{self, OPCODES};
use crate::register::{self, REGISTERS};
use crate::{Counter, Status, command_completion};
use crate::{completion, key, row};

/// Returns the text of the package.
#[must_use]
pub fn package() -> String {
    let mut out = String::from(
        "// SPDX-License-Identifier: Apache-2.0\n\
         // Written by `cargo xtask nic-registers` from the crate millrace-nic. Do not edit.\n\
         // docs/nic-interface.md describes each number.\n\n\
         package millrace_nic_pkg;\n\n",
    );
    section(&mut out, "Sizes and limits");
    for (name, value) in [
        ("WINDOW_SIZE", crate::WINDOW_SIZE),
        ("STEPS_MAX", crate::STEPS_MAX),
        ("BUCKETS", crate::BUCKETS),
        ("QUEUES_MAX", crate::QUEUES_MAX),
        ("PORTS_MAX", crate::PORTS_MAX),
        ("WAYS", crate::WAYS),
        ("BANKS_MAX", crate::BANKS_MAX),
        ("FORMS", crate::FORMS),
        ("FENCE_RESERVE", crate::FENCE_RESERVE),
        ("FRAME_SIZE_MIN", crate::FRAME_SIZE_MIN),
        ("FRAME_SIZE_MAX", crate::FRAME_SIZE_MAX),
        (
            "NETWORK_ROTATION",
            millrace_wire::flow_hash::NETWORK_ROTATION as usize,
        ),
        ("RECOGNITION_SIZE", crate::RECOGNITION_SIZE),
        ("COMMAND_SIZE", command::SIZE),
        ("COMMAND_COMPLETION_SIZE", command_completion::SIZE),
        ("COMPLETION_SIZE", completion::SIZE),
        ("KEY_WIDTH", 64 * key::WORDS),
        ("TERNARY_WIDTH", 64 * key::TERNARY_WORDS),
        ("ROW_WIDTH", row::WIDTH),
        ("BUCKETS_LEN_MAX", command::BUCKETS_LEN_MAX),
    ] {
        integer(&mut out, name, value);
    }
    section(
        &mut out,
        "Registers: byte offsets, number of 32-bit registers, fields",
    );
    constant(&mut out, "REG_ID_VALUE", 32, register::ID.into());
    constant(&mut out, "REG_VERSION_VALUE", 32, register::VERSION.into());
    for register in REGISTERS {
        let name = register.name;
        integer(&mut out, &format!("REG_{name}"), register.offset);
        integer(&mut out, &format!("REG_{name}_LEN"), register.len);
        fields(&mut out, &format!("REG_{name}"), register.fields);
    }
    section(&mut out, "Key");
    fields(&mut out, "KEY", &key::FIELDS);
    for (name, value, _) in key::layer::ALL {
        constant(&mut out, name, 8, value.into());
    }
    section(&mut out, "Row of the exact table");
    fields(&mut out, "ROW", &row::FIELDS);
    section(&mut out, "Commands");
    fields(&mut out, "CMD", &command::FIELDS);
    for (number, name, ..) in OPCODES {
        constant(&mut out, &format!("OP_{name}"), 8, number.into());
    }
    for (counter, name, _) in Counter::ALL {
        constant(&mut out, &format!("COUNT_{name}"), 8, counter as u64);
    }
    section(&mut out, "Completions of commands");
    fields(&mut out, "CMDC", &command_completion::FIELDS);
    for (status, name, _) in Status::ALL {
        constant(&mut out, &format!("STATUS_{name}"), 16, status as u64);
    }
    section(&mut out, "Completions");
    fields(&mut out, "CPL", &completion::FIELDS);
    for (name, value, _) in completion::flag::ALL {
        constant(&mut out, name, 16, value.into());
    }
    for (name, value, _) in completion::kind::ALL {
        constant(&mut out, name, 8, value.into());
    }
    out.push_str("\nendpackage\n");
    out
}

fn section(out: &mut String, title: &str) {
    let _ = writeln!(out, "\n  // {title}");
}

fn integer(out: &mut String, name: &str, value: usize) {
    let _ = writeln!(out, "  localparam int unsigned {name} = {value};");
}

fn constant(out: &mut String, name: &str, width: usize, value: u64) {
    let _ = writeln!(
        out,
        "  localparam logic [{}:0] {name} = {width}'h{value:x};",
        width - 1
    );
}

fn fields(out: &mut String, prefix: &str, fields: &[BitField]) {
    for field in fields {
        let name = field.name.to_uppercase();
        integer(out, &format!("{prefix}_{name}_LSB"), field.lsb);
        integer(out, &format!("{prefix}_{name}_W"), field.width);
    }
}
