//! Information elements (IANA, "IP Flow Information Export (IPFIX) Entities"), with the sizes that this exporter uses. Counters and
//! ids may be shorter than their type (RFC 7011, section 6.2, reduced-size encoding).

/// The size of the values of an element.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Size {
    /// A number of bytes.
    Fixed(u16),
    /// Each value begins with its length (RFC 7011, section 7).
    Variable,
}

impl Size {
    /// Returns the number of bytes of each value; `None` if it varies.
    pub const fn fixed(self) -> Option<usize> {
        match self {
            Size::Fixed(size) => Some(size as usize),
            Size::Variable => None,
        }
    }

    /// Returns the size as a template states it.
    pub(crate) const fn field(self) -> u16 {
        match self {
            Size::Fixed(size) => size,
            Size::Variable => u16::MAX,
        }
    }
}

/// An information element.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Element {
    /// The number in IANA's registry.
    pub id: u16,
    pub size: Size,
}

macro_rules! elements {
    ($( $(#[$doc:meta])+ $NAME:ident = $id:literal, $size:expr; )*) => {$(
        $(#[$doc])+
        pub const $NAME: Element = Element { id: $id, size: $size };
    )*};
}

elements! {
    /// octetDeltaCount: bytes of the IP packets of a flow; of the frames, if it has none.
    OCTET_DELTA_COUNT = 1, Size::Fixed(8);
    /// packetDeltaCount.
    PACKET_DELTA_COUNT = 2, Size::Fixed(8);
    /// The protocol or next header: protocolIdentifier.
    PROTOCOL_IDENTIFIER = 4, Size::Fixed(1);
    /// ipClassOfService.
    IP_CLASS_OF_SERVICE = 5, Size::Fixed(1);
    /// tcpControlBits: the control bits of all packets of a flow.
    TCP_CONTROL_BITS = 6, Size::Fixed(2);
    /// sourceTransportPort.
    SOURCE_TRANSPORT_PORT = 7, Size::Fixed(2);
    /// sourceIPv4Address.
    SOURCE_IPV4_ADDRESS = 8, Size::Fixed(4);
    /// The number of the port of arrival: ingressInterface.
    INGRESS_INTERFACE = 10, Size::Fixed(4);
    /// destinationTransportPort.
    DESTINATION_TRANSPORT_PORT = 11, Size::Fixed(2);
    /// destinationIPv4Address.
    DESTINATION_IPV4_ADDRESS = 12, Size::Fixed(4);
    /// The number of the port of departure: egressInterface.
    EGRESS_INTERFACE = 14, Size::Fixed(4);
    /// sourceIPv6Address.
    SOURCE_IPV6_ADDRESS = 27, Size::Fixed(16);
    /// destinationIPv6Address.
    DESTINATION_IPV6_ADDRESS = 28, Size::Fixed(16);
    /// flowLabelIPv6.
    FLOW_LABEL_IPV6 = 31, Size::Fixed(4);
    /// icmpTypeCodeIPv4.
    ICMP_TYPE_CODE_IPV4 = 32, Size::Fixed(2);
    /// exportedOctetTotalCount.
    EXPORTED_OCTET_TOTAL_COUNT = 40, Size::Fixed(8);
    /// exportedMessageTotalCount.
    EXPORTED_MESSAGE_TOTAL_COUNT = 41, Size::Fixed(8);
    /// exportedFlowRecordTotalCount.
    EXPORTED_FLOW_RECORD_TOTAL_COUNT = 42, Size::Fixed(8);
    /// sourceMacAddress.
    SOURCE_MAC_ADDRESS = 56, Size::Fixed(6);
    /// vlanId: of the outermost tag at ingress; 0 without one.
    VLAN_ID = 58, Size::Fixed(2);
    /// postVlanId: at egress.
    POST_VLAN_ID = 59, Size::Fixed(2);
    /// 4 or 6: ipVersion.
    IP_VERSION = 60, Size::Fixed(1);
    /// 0 for packets that arrive, 1 for those that leave: flowDirection.
    FLOW_DIRECTION = 61, Size::Fixed(1);
    /// destinationMacAddress.
    DESTINATION_MAC_ADDRESS = 80, Size::Fixed(6);
    /// The name of a port: interfaceName.
    INTERFACE_NAME = 82, Size::Variable;
    /// A text about a port: interfaceDescription.
    INTERFACE_DESCRIPTION = 83, Size::Variable;
    /// forwardingStatus (RFC 7270, section 4.12).
    FORWARDING_STATUS = 89, Size::Fixed(1);
    /// flowEndReason.
    FLOW_END_REASON = 136, Size::Fixed(1);
    /// observationPointId.
    OBSERVATION_POINT_ID = 138, Size::Fixed(4);
    /// icmpTypeCodeIPv6.
    ICMP_TYPE_CODE_IPV6 = 139, Size::Fixed(2);
    /// observationDomainId.
    OBSERVATION_DOMAIN_ID = 149, Size::Fixed(4);
    /// flowStartMilliseconds.
    FLOW_START_MILLISECONDS = 152, Size::Fixed(8);
    /// flowEndMilliseconds.
    FLOW_END_MILLISECONDS = 153, Size::Fixed(8);
    /// notSentFlowTotalCount.
    NOT_SENT_FLOW_TOTAL_COUNT = 166, Size::Fixed(8);
    /// ipTTL: of the first packet of a flow.
    IP_TTL = 192, Size::Fixed(1);
    /// dot1qPriority.
    DOT1Q_PRIORITY = 244, Size::Fixed(1);
    /// The type behind all VLAN tags: ethernetType.
    ETHERNET_TYPE = 256, Size::Fixed(2);
    /// selectorId: the sampler that chose the packets (RFC 5477, section 8.2.1).
    SELECTOR_ID = 302, Size::Fixed(4);
    /// selectorAlgorithm (RFC 5477, section 8.2.2).
    SELECTOR_ALGORITHM = 304, Size::Fixed(2);
    /// samplingPacketInterval: the number of packets that are taken in a row.
    SAMPLING_PACKET_INTERVAL = 305, Size::Fixed(4);
    /// samplingPacketSpace: the number of packets that are left out after them, on average.
    SAMPLING_PACKET_SPACE = 306, Size::Fixed(4);
    /// samplingProbability, as a float.
    SAMPLING_PROBABILITY = 311, Size::Fixed(8);
    /// dataLinkFrameSize, of the whole frame.
    DATA_LINK_FRAME_SIZE = 312, Size::Fixed(2);
    /// dataLinkFrameSection: the first bytes of a frame.
    DATA_LINK_FRAME_SECTION = 315, Size::Variable;
    /// observationTimeMilliseconds.
    OBSERVATION_TIME_MILLISECONDS = 323, Size::Fixed(8);
    /// layer2OctetDeltaCount: bytes of the frames of a flow.
    LAYER2_OCTET_DELTA_COUNT = 352, Size::Fixed(8);
}

/// selectorAlgorithm: uniform probabilistic sampling (RFC 5475, section 5.2.2.1).
pub const UNIFORM_PROBABILISTIC: u16 = 4;
