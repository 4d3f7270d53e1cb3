//! `millrace nic`: the devices of ports that classify packets.

use anyhow::Result;
use millrace_api::view::{NicEntry, NicRegister};
use millrace_nic::register::{self, Form};

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
    for reading in list {
        let register = register::at(reading.offset as usize);
        let is_counter = register.is_some_and(|register| register.form == Form::Counters);
        table.row([
            format!("{:#05x}", reading.offset),
            reading.name.clone(),
            match reading.value {
                None => "-".to_owned(),
                Some(value) if is_counter => value.to_string(),
                Some(value) => format!("{value:#010x}"),
            },
            reading.meaning.clone(),
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
