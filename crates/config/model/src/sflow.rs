//! sFlow: packet samples and interface counters of a bridge, sent to collectors.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use thiserror::Error;

use crate::decode::text_field;
use crate::node::shorten;
use crate::number::{DatagramSize, DiscardLimit, PollingInterval, SampledHeaderSize, SamplingRate, SubAgent};
use crate::section::{deserialize, section};

/// The UDP port of sFlow collectors, assigned by IANA.
pub const SFLOW_PORT: u16 = 6343;

section! {
    /// sFlow version 5 (sFlow.org, "sFlow Version 5", July 2004): samples of packets, and counters of ports, in UDP
    /// datagrams to collectors. See docs/sflow.md.
    pub struct Sflow (live) {
        required {
            /// The IP address by which collectors identify the switch. Datagrams are not sent from or to this
            /// address, unless `source` or a collector is set to the same address.
            pub agent: IpAddr,
            /// The collectors, 1 to 8, each `IP` or `IP:PORT`; an IPv6 address with a port is in brackets. The default
            /// port is 6343. Each gets all datagrams.
            pub collectors: Vec<Collector>,
        }
        optional {
            /// The number by which collectors distinguish bridges that have the same agent address.
            pub sub_agent: SubAgent = SubAgent::ZERO,
            /// The mean number of packets for each sample, at ports without a `sampling_rate`; 0 for no
            /// samples.
            pub sampling_rate: SamplingRate = SamplingRate::DEFAULT,
            /// The number of bytes of a packet that its sample contains, from the Ethernet header on.
            pub header_size: SampledHeaderSize = SampledHeaderSize::DEFAULT,
            /// The interval at which the counters of each port are sent; 0 sends none.
            pub polling_interval_s: PollingInterval = PollingInterval::DEFAULT,
            /// The maximum number of notifications of dropped packets per second (sFlow.org, "sFlow Dropped Packet
            /// Notification Structures", October 2020); 0 sends none. Samples report dropped packets in any case.
            pub discard_limit: DiscardLimit = DiscardLimit::NONE,
            /// The largest datagram, in bytes of UDP payload. Datagrams of more than 1,400 bytes may be
            /// fragmented.
            pub datagram_size: DatagramSize = DatagramSize::DEFAULT,
            /// The source address of datagrams. Unset, the system chooses one for each collector.
            pub source: Option<IpAddr> = None,
        }
    }
}

deserialize!(Sflow);

/// The address of a collector: `IP` or `IP:PORT`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Collector(SocketAddr);

/// The error for a text that is not the address of a collector.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("`{}` is not a valid collector: expected IP or IP:PORT as in 192.0.2.1:6343 or [2001:db8::1]:6343", shorten(.text))]
pub struct CollectorError {
    /// The rejected text.
    pub text: String,
}

impl Collector {
    /// Returns the address and the UDP port.
    pub fn address(self) -> SocketAddr {
        self.0
    }
}

impl fmt::Display for Collector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl FromStr for Collector {
    type Err = CollectorError;

    fn from_str(text: &str) -> Result<Collector, CollectorError> {
        let address = text
            .parse::<SocketAddr>()
            .or_else(|_| text.parse().map(|ip: IpAddr| SocketAddr::new(ip, SFLOW_PORT)));
        match address {
            Ok(address) if address.port() != 0 && !address.ip().is_unspecified() => Ok(Collector(address)),
            _ => Err(CollectorError {
                text: text.to_owned(),
            }),
        }
    }
}

text_field!(
    Collector,
    "the address of a collector IP or IP:PORT",
    "192.0.2.1:6343"
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_collector_has_the_port_of_sflow_unless_another_is_given() {
        for (text, full) in [
            ("192.0.2.1", "192.0.2.1:6343"),
            ("192.0.2.1:7000", "192.0.2.1:7000"),
            ("2001:db8::1", "[2001:db8::1]:6343"),
            ("[2001:db8::1]:9", "[2001:db8::1]:9"),
        ] {
            let collector: Collector = text.parse().unwrap();
            assert_eq!(collector.to_string(), full);
            assert_eq!(full.parse(), Ok(collector));
        }
        for text in [
            "",
            "collector.example",
            "192.0.2.1:0",
            "0.0.0.0",
            "1.2.3.4:x",
            "[::]:6343",
        ] {
            let error = text.parse::<Collector>().unwrap_err().to_string();
            assert!(error.contains("expected IP or IP:PORT"), "{error}");
        }
    }
}
