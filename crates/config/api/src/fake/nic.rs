//! The device of port 1, which has registers and an entry. No other port has one.

use millrace_types::PortNo;

use crate::server::LiveError;
use crate::view;

fn has_device(port: PortNo) -> Result<(), LiveError> {
    match port.raw() {
        1 => Ok(()),
        number => Err(LiveError::Contradicted {
            message: format!("port {number} has no device that classifies"),
            next_step: "name a port with a device `nic:PATH`".to_owned(),
        }),
    }
}

pub(super) fn registers(port: PortNo) -> Result<Vec<view::NicRegister>, LiveError> {
    has_device(port)?;
    let register = |name: &str, offset, value, meaning: &str| view::NicRegister {
        name: name.to_owned(),
        offset,
        value,
        meaning: meaning.to_owned(),
    };
    Ok(vec![
        register("ID", 0, Some(0x434e_524d), "MRNC"),
        register("HASH_KEY[0..12]", 0x20, None, "only written"),
        register(
            "COUNT_FRAMES",
            0x100,
            Some(70),
            "Frames that the parser received.",
        ),
    ])
}

pub(super) fn entries(port: PortNo) -> Result<Vec<view::NicEntry>, LiveError> {
    has_device(port)?;
    Ok(vec![view::NicEntry {
        slot: 17,
        mark: 0x1011,
        level: "trust".to_owned(),
        dropped: false,
        packets_per_second: 1234.4,
        matching: "ip,nw_dst=10.0.0.2".to_owned(),
    }])
}
