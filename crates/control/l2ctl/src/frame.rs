//! The frames of the protocols: group addresses, EtherTypes and the LLC header.

use millrace_types::Mac;

/// The group address of bridges: RSTP and STP (IEEE 802.1Q-2018, table 8-1).
pub const BRIDGE_GROUP: Mac = Mac([0x01, 0x80, 0xc2, 0, 0, 0]);
/// The group address of slow protocols: LACP and the marker protocol (IEEE 802.3-2018, annex 57A.3).
pub const SLOW_PROTOCOLS: Mac = Mac([0x01, 0x80, 0xc2, 0, 0, 2]);
/// The group address of the nearest bridge, to which LLDP is sent (IEEE 802.1AB-2016, table 7-1).
pub const LLDP_NEAREST_BRIDGE: Mac = Mac([0x01, 0x80, 0xc2, 0, 0, 0x0e]);

/// The EtherType of slow protocols.
pub(crate) const SLOW_ETHER_TYPE: u16 = 0x8809;
/// The EtherType of LLDP.
pub(crate) const LLDP_ETHER_TYPE: u16 = 0x88cc;
/// DSAP, SSAP and control field of spanning tree BPDUs (IEEE 802.1D-2004, section 7.12.3).
const LLC: [u8; 3] = [0x42, 0x42, 0x03];
/// Size of an Ethernet header without tags, in bytes.
const HEADER_SIZE: usize = 14;
/// Size of a frame without its check sequence below which senders pad, in bytes.
const MIN_SIZE: usize = 60;

/// A frame to send. LACP and RSTP number ports with 16 bits; LLDP has no numbers of its own and uses those of OpenFlow.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Transmit<P = u16> {
    /// The number of the port.
    pub port: P,
    /// The frame, without check sequence.
    pub frame: Vec<u8>,
}

/// Returns the frame with an EtherType and this body.
pub(crate) fn with_ether_type(dst: Mac, src: Mac, ether_type: u16, body: &[u8]) -> Vec<u8> {
    let mut frame = Vec::with_capacity(MIN_SIZE.max(HEADER_SIZE + body.len()));
    frame.extend(dst.0);
    frame.extend(src.0);
    frame.extend(ether_type.to_be_bytes());
    frame.extend(body);
    frame.resize(frame.len().max(MIN_SIZE), 0);
    frame
}

/// Returns the frame with an LLC header and this BPDU.
pub(crate) fn with_llc(src: Mac, bpdu: &[u8]) -> Vec<u8> {
    let mut body = Vec::with_capacity(LLC.len() + bpdu.len());
    body.extend(LLC);
    body.extend(bpdu);
    // The type field holds the size of the data: a BPDU has at most 36 bytes.
    with_ether_type(BRIDGE_GROUP, src, body.len() as u16, &body)
}

/// Returns the source and the body of a frame with this EtherType, whose destination `accepts` accepts.
pub(crate) fn body_of(frame: &[u8], ether_type: u16, accepts: impl Fn(Mac) -> bool) -> Option<(Mac, &[u8])> {
    let fields = split(frame)?;
    (fields.type_or_size == ether_type && accepts(fields.dst)).then_some((fields.src, fields.body))
}

/// Returns the BPDU of a frame to the group address of bridges; padding is cut off.
pub(crate) fn bpdu_of(frame: &[u8]) -> Option<&[u8]> {
    let fields = split(frame)?;
    let data = fields.body.get(..usize::from(fields.type_or_size))?;
    if fields.dst != BRIDGE_GROUP {
        return None;
    }
    data.strip_prefix(&LLC)
}

/// The fields of a frame.
struct Fields<'a> {
    dst: Mac,
    src: Mac,
    /// The EtherType, or the size of the data of a frame with an LLC header.
    type_or_size: u16,
    body: &'a [u8],
}

fn split(frame: &[u8]) -> Option<Fields<'_>> {
    let (header, body) = frame.split_first_chunk::<HEADER_SIZE>()?;
    let [d0, d1, d2, d3, d4, d5, s0, s1, s2, s3, s4, s5, type_or_size @ ..] = *header;
    Some(Fields {
        dst: Mac([d0, d1, d2, d3, d4, d5]),
        src: Mac([s0, s1, s2, s3, s4, s5]),
        type_or_size: u16::from_be_bytes(type_or_size),
        body,
    })
}
