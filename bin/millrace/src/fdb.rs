//! `millrace fdb`: the MAC addresses that bridges learned.

use anyhow::Result;
use millrace_api::view::FlushMacs;

use crate::cli::Fdb;
use crate::output::Session;

pub(crate) fn run(session: &Session, args: &Fdb) -> Result<()> {
    let Fdb::Flush(flush) = args;
    let request = FlushMacs {
        vlan: flush.vlan,
        port: flush.port.clone(),
    };
    let done = session.client()?.flush_macs(&flush.bridge, &request)?;
    session.print(&done, |done| {
        let addresses = if done.removed == 1 { "address" } else { "addresses" };
        format!("{} MAC {addresses} forgotten\n", done.removed)
    })
}
