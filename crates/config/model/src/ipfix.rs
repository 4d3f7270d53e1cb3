//! IPFIX: records of sampled flows or packets of a bridge, sent to collectors.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use thiserror::Error;

use crate::choice::IpfixRecords;
use crate::decode::text_field;
use crate::node::shorten;
use crate::number::{
    DatagramSize, FlowCacheSize, FlowTimeout, ObservationId, SampledHeaderSize, SamplingRate,
    TemplateInterval,
};
use crate::section::{deserialize, section};

/// The port of IPFIX collectors, assigned by IANA.
pub const IPFIX_PORT: u16 = 4739;

section! {
    /// IPFIX (RFC 7011): records of sampled flows or packets, in messages to collectors over UDP or TCP. A port has one sampler:
    /// a bridge with `sflow`, too, has one `sampling_rate` for both. See docs/ipfix.md.
    pub struct Ipfix (live) {
        required {
            /// The collectors, 1 to 8, each `udp:IP[:PORT]` or `tcp:IP[:PORT]`; an IPv6 address is in brackets. The default
            /// port is 4739. Each gets all records.
            pub collectors: Vec<IpfixCollector>,
        }
        optional {
            /// The number by which collectors distinguish the bridges of a switch. Unset, the low 32 bits of the datapath ID.
            pub domain: Option<ObservationId> = None,
            /// The number of the observation point, which each record carries.
            pub point: ObservationId = ObservationId::ZERO,
            /// The content of a record.
            pub records: IpfixRecords = IpfixRecords::Flows,
            /// The mean number of packets for each sample, at ports without a `sampling_rate`; 0 takes no samples. Counts of
            /// records are those of the samples.
            pub sampling_rate: SamplingRate = SamplingRate::DEFAULT,
            /// The time after which the record of a flow that goes on is sent; 0 sends one record for each sample.
            pub active_timeout_s: FlowTimeout = FlowTimeout::ACTIVE,
            /// The time without a sample after which a flow is over.
            pub idle_timeout_s: FlowTimeout = FlowTimeout::IDLE,
            /// The number of flows that are kept until their record is sent. When there are more, the one that began first
            /// is sent.
            pub max_flows: FlowCacheSize = FlowCacheSize::DEFAULT,
            /// The number of bytes of a packet that its record contains, with `records = "packets"`.
            pub frame_size: SampledHeaderSize = SampledHeaderSize::DEFAULT,
            /// The interval at which templates, and the records of samplers, interfaces and counters, are sent again.
            pub template_interval_s: TemplateInterval = TemplateInterval::DEFAULT,
            /// The largest message, in bytes.
            pub message_size: DatagramSize = DatagramSize::DEFAULT,
        }
    }
}

deserialize!(Ipfix);

/// The address of a collector: `udp:IP[:PORT]` or `tcp:IP[:PORT]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IpfixCollector {
    /// The transport.
    pub transport: IpfixTransport,
    /// The IP address and the port, never zero.
    pub address: SocketAddr,
}

/// The transport of messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum IpfixTransport {
    Udp,
    Tcp,
}

/// The error for a text that is not the address of a collector.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("`{}` is not a valid collector: expected udp:IP or tcp:IP with an optional port, as in udp:192.0.2.1:4739 or tcp:[2001:db8::1]", shorten(.text))]
pub struct IpfixCollectorError {
    /// The rejected text.
    pub text: String,
}

impl fmt::Display for IpfixCollector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let transport = match self.transport {
            IpfixTransport::Udp => "udp",
            IpfixTransport::Tcp => "tcp",
        };
        write!(f, "{transport}:{}", self.address)
    }
}

impl FromStr for IpfixCollector {
    type Err = IpfixCollectorError;

    fn from_str(text: &str) -> Result<IpfixCollector, IpfixCollectorError> {
        let refused = || IpfixCollectorError {
            text: text.to_owned(),
        };
        let (transport, rest) = match text.split_once(':') {
            Some(("udp", rest)) => (IpfixTransport::Udp, rest),
            Some(("tcp", rest)) => (IpfixTransport::Tcp, rest),
            _ => return Err(refused()),
        };
        let alone = rest.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
        let address = rest.parse::<SocketAddr>().or_else(|_| {
            let ip = alone.unwrap_or(rest).parse::<IpAddr>();
            ip.map(|ip| SocketAddr::new(ip, IPFIX_PORT))
        });
        match address {
            Ok(address) if address.port() != 0 && !address.ip().is_unspecified() => {
                Ok(IpfixCollector { transport, address })
            }
            _ => Err(refused()),
        }
    }
}

text_field!(
    IpfixCollector,
    "the address of a collector udp:IP[:PORT] or tcp:IP[:PORT]",
    "udp:192.0.2.1:4739"
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_collector_has_a_transport_and_the_port_of_ipfix_unless_another_is_given() {
        for (text, full) in [
            ("udp:192.0.2.1", "udp:192.0.2.1:4739"),
            ("tcp:192.0.2.1:7000", "tcp:192.0.2.1:7000"),
            ("udp:[2001:db8::1]", "udp:[2001:db8::1]:4739"),
            ("tcp:[2001:db8::1]:9", "tcp:[2001:db8::1]:9"),
        ] {
            let collector: IpfixCollector = text.parse().unwrap();
            assert_eq!(collector.to_string(), full);
            assert_eq!(full.parse(), Ok(collector));
        }
        for text in [
            "",
            "192.0.2.1",
            "udp:collector.example",
            "udp:192.0.2.1:0",
            "tcp:0.0.0.0",
            "sctp:192.0.2.1",
        ] {
            let error = text.parse::<IpfixCollector>().unwrap_err().to_string();
            assert!(error.contains("expected udp:IP or tcp:IP"), "{error}");
        }
    }
}
