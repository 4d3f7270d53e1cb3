//! `millrace nic`: the devices of ports that classify packets.

use anyhow::Result;
use millrace_api::view::{NicEntry, NicRegister};

use crate::cli::{Nic, NicPort};
use crate::output::Session;
use crate::table::Table;

pub(crate) fn run(session: &Session, args: &Nic) -> Result<()> {
    let client = session.client()?;
    match args {
        Nic::Registers(NicPort { bridge, port }) => {
            let list = client.nic_registers(bridge, port)?;
            session.print(&list, |list| registers(list).to_string())
        }
        Nic::Dump(NicPort { bridge, port }) => {
            let list = client.nic_entries(bridge, port)?;
            session.print(&list, |list| entries(list).to_string())
        }
    }
}

fn registers(list: &[NicRegister]) -> Table {
    let mut table = Table::new(&["OFFSET", "REGISTER", ">VALUE", "MEANING"], "no registers");
    for register in list {
        // Counters and cycles are numbers; the others have fields.
        let is_number = register.name == "CYCLES"
            || ["COUNT_", "NO_BUFFER"]
                .iter()
                .any(|name| register.name.starts_with(name));
        table.row([
            format!("{:#05x}", register.offset),
            register.name.clone(),
            match register.value {
                None => "-".to_owned(),
                Some(value) if is_number => value.to_string(),
                Some(value) => format!("{value:#010x}"),
            },
            register.meaning.clone(),
        ]);
    }
    table
}

fn entries(list: &[NicEntry]) -> Table {
    let headings = [">SLOT", "MARK", "LEVEL", "ACTION", ">PPS", "MATCH"];
    let mut table = Table::new(
        &headings,
        "the device has no entry: no flow was heavy enough for one",
    );
    for entry in list {
        table.row([
            entry.slot.to_string(),
            format!("{:#x}", entry.mark),
            entry.level.clone(),
            if entry.dropped { "drop" } else { "mark" }.to_owned(),
            format!("{:.0}", entry.packets_per_second),
            entry.matching.clone(),
        ]);
    }
    table
}
