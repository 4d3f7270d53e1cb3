//! Decoding, for collectors. Every length is checked against the bytes that are there before anything is allocated.

use std::net::IpAddr;

use thiserror::Error;

use crate::sample::{
    CounterSample, Datagram, DropCode, FlowSample, InterfaceCounters, MillraceRecord, Output, Sample,
    SwitchRecord,
};
use crate::{
    COUNTER_SAMPLE, ETHERNET, EXTENDED_SWITCH, FLOW_SAMPLE, INTERFACE_COUNTERS, MILLRACE_RECORD, RAW_HEADER,
    VERSION,
};

/// The reason why bytes are not a datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum ParseError {
    /// Another version.
    #[error("sFlow version {version} is not supported: expected 5")]
    Version {
        /// The version.
        version: u32,
    },
    /// An address of another family.
    #[error("agent address type {type_} is unknown: expected 1 (IPv4) or 2 (IPv6)")]
    Address {
        /// The type.
        type_: u32,
    },
    /// A length does not fit the bytes.
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

    /// Reads a format, and the body behind its length.
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
                _ => datagram.skipped += 1,
            }
        }
        match reader.0.len() {
            0 => Ok(datagram),
            size => Err(ParseError::Trailing { size }),
        }
    }
}

/// Reads a flow sample; `None` for one without an Ethernet header.
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
    let mut has_header = false;
    for _ in 0..reader.word()? {
        let (format, mut body) = reader.sized()?;
        match format {
            RAW_HEADER => {
                let protocol = body.word()?;
                let (size, stripped) = (body.word()?, body.word()?);
                let header = body.string()?;
                if protocol == ETHERNET && !has_header {
                    has_header = true;
                    sample.frame_size = size.saturating_sub(stripped);
                    sample.header = header.to_vec();
                }
            }
            EXTENDED_SWITCH => {
                sample.switch = Some(SwitchRecord {
                    source_vlan: body.word()?,
                    source_priority: body.word()?,
                    destination_vlan: body.word()?,
                    destination_priority: body.word()?,
                });
            }
            MILLRACE_RECORD => {
                sample.millrace = Some(MillraceRecord {
                    metadata: body.long()?,
                    cookie: body.long()?,
                    drop_reason: String::from_utf8_lossy(body.string()?).into_owned(),
                });
            }
            _ => {}
        }
    }
    Ok(has_header.then_some(sample))
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
    };
    for _ in 0..reader.word()? {
        let (format, mut body) = reader.sized()?;
        if format == INTERFACE_COUNTERS {
            sample.counters = Some(interface(&mut body)?);
        }
    }
    Ok(sample)
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
        let packets = unicast.wrapping_add(multicast).wrapping_add(broadcast);
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
