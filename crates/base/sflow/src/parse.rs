//! Decoding, for collectors. Every length is checked against the remaining bytes before memory is allocated.

use std::net::IpAddr;

use thiserror::Error;

use crate::sample::{
    CounterSample, Datagram, DiscardedPacket, DropCode, EthernetCounters, FlowSample, InterfaceCounters,
    MillraceRecord, OpenFlowPort, Output, Sample, SwitchRecord,
};
use crate::{
    COUNTER_SAMPLE, DISCARDED_PACKET, ETHERNET, ETHERNET_COUNTERS, EXTENDED_SWITCH, FLOW_SAMPLE,
    INTERFACE_COUNTERS, MILLRACE_RECORD, OPENFLOW_PORT, PORT_NAME, RAW_HEADER, UNKNOWN, VERSION,
};

/// The reason why bytes are not a datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum ParseError {
    /// The sFlow version is not supported.
    #[error("sFlow version {version} is not supported: expected 5")]
    Version { version: u32 },
    /// The agent address is neither IPv4 nor IPv6.
    #[error("agent address type {type_} is unknown: expected 1 (IPv4) or 2 (IPv6)")]
    Address { type_: u32 },
    /// A length exceeds the remaining bytes.
    #[error("the datagram is truncated, or a length in it is wrong")]
    Length,
    /// Bytes follow the last sample.
    #[error("{size} bytes follow the last sample: expected none")]
    Trailing {
        /// The number of bytes.
        size: usize,
    },
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, size: usize) -> Result<&'a [u8], ParseError> {
        let (head, tail) = self.0.split_at_checked(size).ok_or(ParseError::Length)?;
        self.0 = tail;
        Ok(head)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], ParseError> {
        let (head, tail) = self.0.split_first_chunk::<N>().ok_or(ParseError::Length)?;
        self.0 = tail;
        Ok(*head)
    }

    fn word(&mut self) -> Result<u32, ParseError> {
        self.array().map(u32::from_be_bytes)
    }

    fn long(&mut self) -> Result<u64, ParseError> {
        self.array().map(u64::from_be_bytes)
    }

    fn string(&mut self) -> Result<&'a [u8], ParseError> {
        let size = self.word()? as usize;
        let bytes = self.take(size)?;
        self.take(size.next_multiple_of(4) - size)?;
        Ok(bytes)
    }

    /// Reads a format number, a length and a body. Returns the format and the body.
    fn sized(&mut self) -> Result<(u32, Reader<'a>), ParseError> {
        let format = self.word()?;
        let size = self.word()? as usize;
        Ok((format, Reader(self.take(size)?)))
    }
}

impl Datagram {
    /// Reads a datagram.
    ///
    /// # Errors
    /// [`ParseError`].
    pub fn parse(bytes: &[u8]) -> Result<Datagram, ParseError> {
        let mut reader = Reader(bytes);
        let version = reader.word()?;
        if version != VERSION {
            return Err(ParseError::Version { version });
        }
        let agent = match reader.word()? {
            1 => IpAddr::from(reader.array::<4>()?),
            2 => IpAddr::from(reader.array::<16>()?),
            type_ => return Err(ParseError::Address { type_ }),
        };
        let mut datagram = Datagram {
            agent,
            sub_agent: reader.word()?,
            sequence: reader.word()?,
            uptime_ms: reader.word()?,
            samples: Vec::new(),
            skipped: 0,
        };
        for _ in 0..reader.word()? {
            let (format, mut body) = reader.sized()?;
            match format {
                FLOW_SAMPLE => match flow(&mut body)? {
                    Some(sample) => datagram.samples.push(Sample::Flow(sample)),
                    None => datagram.skipped += 1,
                },
                COUNTER_SAMPLE => datagram.samples.push(Sample::Counters(counters(&mut body)?)),
                DISCARDED_PACKET => match discarded(&mut body)? {
                    Some(sample) => datagram.samples.push(Sample::Discarded(sample)),
                    None => datagram.skipped += 1,
                },
                _ => datagram.skipped += 1,
            }
        }
        match reader.0.len() {
            0 => Ok(datagram),
            size => Err(ParseError::Trailing { size }),
        }
    }
}

/// The records of a flow sample, collected before the sample is built.
#[derive(Default)]
struct PacketRecords {
    frame_size: u32,
    header: Option<Vec<u8>>,
    switch: Option<SwitchRecord>,
    millrace: Option<MillraceRecord>,
}

impl PacketRecords {
    fn read(reader: &mut Reader<'_>) -> Result<PacketRecords, ParseError> {
        let mut records = PacketRecords::default();
        for _ in 0..reader.word()? {
            let (format, mut body) = reader.sized()?;
            match format {
                RAW_HEADER => {
                    let protocol = body.word()?;
                    let (size, stripped) = (body.word()?, body.word()?);
                    let header = body.string()?;
                    if protocol == ETHERNET && records.header.is_none() {
                        records.frame_size = size.saturating_sub(stripped);
                        records.header = Some(header.to_vec());
                    }
                }
                EXTENDED_SWITCH => {
                    records.switch = Some(SwitchRecord {
                        source_vlan: body.word()?,
                        source_priority: body.word()?,
                        destination_vlan: body.word()?,
                        destination_priority: body.word()?,
                    });
                }
                MILLRACE_RECORD => {
                    records.millrace = Some(MillraceRecord {
                        metadata: body.long()?,
                        cookie: body.long()?,
                        drop_reason: String::from_utf8_lossy(body.string()?).into_owned(),
                    });
                }
                _ => {}
            }
        }
        Ok(records)
    }
}

/// Reads a discarded packet. Returns `None` if it has no Ethernet header, or if its source is not an
/// interface.
fn discarded(reader: &mut Reader<'_>) -> Result<Option<DiscardedPacket>, ParseError> {
    let sequence = reader.word()?;
    let source_type = reader.word()?;
    let source = reader.word()?;
    let (drops, input, output) = (reader.word()?, reader.word()?, reader.word()?);
    let reason = DropCode(reader.word()?);
    let records = PacketRecords::read(reader)?;
    let Some(header) = records.header.filter(|_| source_type == 0) else {
        return Ok(None);
    };
    Ok(Some(DiscardedPacket {
        sequence,
        source,
        drops,
        input,
        output,
        reason,
        frame_size: records.frame_size,
        header,
        millrace: records.millrace,
    }))
}

/// Reads a flow sample. Returns `None` if it has no Ethernet header.
fn flow(reader: &mut Reader<'_>) -> Result<Option<FlowSample>, ParseError> {
    let mut sample = FlowSample {
        sequence: reader.word()?,
        source: reader.word()? & 0x00ff_ffff,
        rate: reader.word()?,
        pool: reader.word()?,
        drops: reader.word()?,
        input: reader.word()?,
        output: output(reader.word()?),
        frame_size: 0,
        header: Vec::new(),
        switch: None,
        millrace: None,
    };
    let records = PacketRecords::read(reader)?;
    let Some(header) = records.header else {
        return Ok(None);
    };
    sample.frame_size = records.frame_size;
    sample.header = header;
    sample.switch = records.switch;
    sample.millrace = records.millrace;
    Ok(Some(sample))
}

fn output(word: u32) -> Output {
    let value = word & 0x3fff_ffff;
    match word >> 30 {
        0 => Output::Interface(value),
        1 => Output::Dropped(DropCode(value)),
        _ => Output::Several(value),
    }
}

fn counters(reader: &mut Reader<'_>) -> Result<CounterSample, ParseError> {
    let mut sample = CounterSample {
        sequence: reader.word()?,
        source: reader.word()? & 0x00ff_ffff,
        counters: None,
        ethernet: None,
        openflow: None,
        name: None,
    };
    for _ in 0..reader.word()? {
        let (format, mut body) = reader.sized()?;
        match format {
            INTERFACE_COUNTERS => sample.counters = Some(interface(&mut body)?),
            ETHERNET_COUNTERS => sample.ethernet = Some(ethernet(&mut body)?),
            OPENFLOW_PORT => {
                sample.openflow = Some(OpenFlowPort {
                    dpid: body.long()?,
                    number: body.word()?,
                });
            }
            PORT_NAME => sample.name = Some(String::from_utf8_lossy(body.string()?).into_owned()),
            _ => {}
        }
    }
    Ok(sample)
}

fn ethernet(reader: &mut Reader<'_>) -> Result<EthernetCounters, ParseError> {
    let mut words = [0; 13];
    for word in &mut words {
        *word = reader.word()?;
    }
    let [_, _, _, _, _, _, _, _, transmit_errors, _, _, receive_errors, _] = words;
    Ok(EthernetCounters {
        transmit_errors,
        receive_errors,
    })
}

fn interface(reader: &mut Reader<'_>) -> Result<InterfaceCounters, ParseError> {
    let interface = reader.word()?;
    let _type = reader.word()?;
    let speed = reader.long()?;
    let _duplex = reader.word()?;
    let status = reader.word()?;
    let mut direction = || -> Result<_, ParseError> {
        let octets = reader.long()?;
        let (unicast, multicast, broadcast) = (reader.word()?, reader.word()?, reader.word()?);
        let (discards, errors) = (reader.word()?, reader.word()?);
        // Unknown protocols, and promiscuous mode.
        let _last = reader.word()?;
        let packets = [unicast, multicast, broadcast].into_iter();
        let packets = packets
            .filter(|count| *count != UNKNOWN)
            .fold(0, u32::wrapping_add);
        Ok((octets, packets, discards, errors))
    };
    let (in_octets, in_packets, in_discards, in_errors) = direction()?;
    let (out_octets, out_packets, out_discards, out_errors) = direction()?;
    Ok(InterfaceCounters {
        interface,
        speed,
        is_admin_up: status & 1 != 0,
        is_link_up: status & 2 != 0,
        in_octets,
        in_packets,
        in_discards,
        in_errors,
        out_octets,
        out_packets,
        out_discards,
        out_errors,
    })
}
