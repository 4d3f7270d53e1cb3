//! Emitted datagrams parse to the same values, and invalid bytes are refused.

use millrace_sflow::*;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

const WORD: u32 = 0x3fff_ffff;

fn output() -> impl Strategy<Value = Output> {
    prop_oneof![
        (0..=WORD).prop_map(Output::Interface),
        (0..=WORD).prop_map(|code| Output::Dropped(DropCode(code))),
        (0..=WORD).prop_map(Output::Several),
    ]
}

fn flow() -> impl Strategy<Value = Sample> {
    let numbers = any::<[u32; 4]>();
    let switch = any::<[u32; 4]>().prop_map(|[a, b, c, d]| SwitchRecord {
        source_vlan: a,
        source_priority: b,
        destination_vlan: c,
        destination_priority: d,
    });
    let millrace =
        (any::<u64>(), any::<u64>(), "[a-z_]{0,20}").prop_map(|(metadata, cookie, drop_reason)| {
            MillraceRecord {
                metadata,
                cookie,
                drop_reason,
            }
        });
    let parts = (
        numbers,
        0..1u32 << 24,
        0..=WORD,
        output(),
        0..10_000u32,
        vec(any::<u8>(), 0..=MAX_HEADER_SIZE),
        option::of(switch),
        option::of(millrace),
    );
    parts.prop_map(
        |([sequence, rate, pool, drops], source, input, output, frame_size, header, switch, millrace)| {
            Sample::Flow(FlowSample {
                sequence,
                source,
                rate,
                pool,
                drops,
                input,
                output,
                frame_size,
                header,
                switch,
                millrace,
            })
        },
    )
}

fn counters() -> impl Strategy<Value = Sample> {
    let interface = (any::<[u64; 3]>(), any::<[u32; 7]>(), any::<[bool; 2]>());
    let interface = interface.prop_map(
        |([speed, in_octets, out_octets], words, [is_admin_up, is_link_up])| {
            let [
                interface,
                in_packets,
                in_discards,
                in_errors,
                out_packets,
                out_discards,
                out_errors,
            ] = words;
            // A counter of all ones means unknown, so values stay below it.
            let (in_packets, out_packets) = (in_packets.min(UNKNOWN - 1), out_packets.min(UNKNOWN - 1));
            InterfaceCounters {
                interface,
                speed,
                is_admin_up,
                is_link_up,
                in_octets,
                in_packets,
                in_discards,
                in_errors,
                out_octets,
                out_packets,
                out_discards,
                out_errors,
            }
        },
    );
    let ethernet = any::<[u32; 2]>().prop_map(|[transmit_errors, receive_errors]| EthernetCounters {
        transmit_errors,
        receive_errors,
    });
    let openflow = any::<(u64, u32)>().prop_map(|(dpid, number)| OpenFlowPort { dpid, number });
    let records = (
        option::of(interface),
        option::of(ethernet),
        option::of(openflow),
        option::of("[a-z0-9]{0,9}"),
    );
    (any::<u32>(), 0..1u32 << 24, records).prop_map(
        |(sequence, source, (counters, ethernet, openflow, name))| {
            Sample::Counters(CounterSample {
                sequence,
                source,
                counters,
                ethernet,
                openflow,
                name,
            })
        },
    )
}

fn discarded() -> impl Strategy<Value = Sample> {
    let words = any::<[u32; 6]>();
    (
        words,
        0..10_000u32,
        vec(any::<u8>(), 0..=MAX_HEADER_SIZE),
        "[a-z_]{0,20}",
    )
        .prop_map(
            |([sequence, source, drops, input, output, code], frame_size, header, drop_reason)| {
                Sample::Discarded(DiscardedPacket {
                    sequence,
                    source,
                    drops,
                    input,
                    output,
                    reason: DropCode(code),
                    frame_size,
                    header,
                    millrace: Some(MillraceRecord {
                        metadata: 0,
                        cookie: 0,
                        drop_reason,
                    }),
                })
            },
        )
}

fn datagram() -> impl Strategy<Value = Datagram> {
    let agent = any::<std::net::IpAddr>();
    let samples = vec(prop_oneof![flow(), counters(), discarded()], 0..6);
    (agent, any::<[u32; 3]>(), samples).prop_map(|(agent, [sub_agent, sequence, uptime_ms], samples)| {
        Datagram {
            agent,
            sub_agent,
            sequence,
            uptime_ms,
            samples,
            skipped: 0,
        }
    })
}

proptest! {
    #[test]
    fn a_datagram_is_parsed_as_it_was_emitted(datagram in datagram()) {
        let bytes = datagram.emit();
        let sizes: usize = datagram.samples.iter().map(Sample::size).sum();
        prop_assert!(bytes.len() <= sizes + 40);
        prop_assert_eq!(Datagram::parse(&bytes), Ok(datagram));
    }

    #[test]
    fn a_truncated_datagram_is_an_error(datagram in datagram(), cut in 0.0f64..1.0) {
        let bytes = datagram.emit();
        let cut = (bytes.len() as f64 * cut) as usize;
        prop_assert!(Datagram::parse(&bytes[..cut]).is_err());
    }

    #[test]
    fn any_bytes_are_a_datagram_or_an_error(mut bytes in vec(any::<u8>(), 0..300)) {
        if bytes.len() > 8 {
            bytes[..8].copy_from_slice(&[0, 0, 0, 5, 0, 0, 0, 1]);
        }
        let _either = Datagram::parse(&bytes);
    }
}

#[test]
fn other_versions_addresses_and_trailing_bytes_are_named_and_other_samples_skipped() {
    let mut bytes = Datagram {
        agent: [192, 0, 2, 1].into(),
        sub_agent: 0,
        sequence: 1,
        uptime_ms: 2,
        samples: Vec::new(),
        skipped: 0,
    }
    .emit();
    let mut other = bytes.clone();
    other[3] = 4;
    assert_eq!(Datagram::parse(&other), Err(ParseError::Version { version: 4 }));
    other = bytes.clone();
    other[7] = 9;
    assert_eq!(Datagram::parse(&other), Err(ParseError::Address { type_: 9 }));
    other = bytes.clone();
    other.push(0);
    assert_eq!(Datagram::parse(&other), Err(ParseError::Trailing { size: 1 }));
    // An expanded flow sample (format 3).
    let last = bytes.len() - 1;
    bytes[last] = 1;
    bytes.extend([0, 0, 0, 3, 0, 0, 0, 4, 1, 2, 3, 4]);
    assert_eq!(Datagram::parse(&bytes).unwrap().skipped, 1);
}
