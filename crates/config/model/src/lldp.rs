//! LLDP: what a bridge tells its neighbours of itself.

use std::net::IpAddr;

use crate::name::DescriptionText;
use crate::number::{LldpHold, LldpInterval};
use crate::section::{deserialize, section};

section! {
    /// LLDP at the ports of a bridge (IEEE 802.1AB-2016). The ports send LLDPDUs and remember their neighbours; LLDPDUs
    /// that they receive do not reach the flow tables. See docs/lldp.md. The chassis ID is the low 48 bits of the datapath ID.
    pub struct Lldp (live) {
        required {}
        optional {
            /// The name of the system. Unset, the host name of the machine.
            pub system_name: Option<DescriptionText<255>> = None,
            /// The description of the system.
            pub system_description: DescriptionText<255> = DescriptionText::fixed("Millrace"),
            /// The addresses by which the switch is managed, 8 at most.
            pub management: Vec<IpAddr> = Vec::new(),
            /// The time between two LLDPDUs of a port (`msgTxInterval`). New neighbours get four in four seconds.
            pub interval_s: LldpInterval = LldpInterval::DEFAULT,
            /// The number of intervals for which neighbours keep the information (`msgTxHold`).
            pub hold: LldpHold = LldpHold::DEFAULT,
        }
    }
}

deserialize!(Lldp);
