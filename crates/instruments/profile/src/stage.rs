//! Which stage of a packet's way a sample is of, from the names of its functions.
//!
//! From the innermost function outwards, the first whose name we know decides: a `sendto` below
//! `tx_burst` is transmitting (in the kernel), and a `memcpy` below `rx_burst` is receiving. The kernel's
//! functions decide nothing if one of the program's around them does.

use std::fmt;

use super::perf::Frame;

/// A stage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Stage {
    /// Packets come from a device.
    Receive,
    /// The same, in the kernel.
    ReceiveKernel,
    /// Their headers become keys.
    Parse,
    /// A cache of flows that were seen.
    LookupCache,
    /// A table of exact entries.
    LookupHash,
    /// A few entries, compared one by one.
    LookupDirect,
    /// The longest prefix.
    LookupPrefix,
    /// Entries of mixed masks.
    LookupTuples,
    /// A table; the name does not say of which kind.
    Lookup,
    /// The loop over a burst, with what was compiled into it: keys made of headers, entries applied.
    Burst,
    /// Entries are applied.
    Actions,
    /// Packets go to a device.
    Transmit,
    /// The same, in the kernel; there, a packet may go all the way to the host that receives it.
    TransmitKernel,
    /// Going round without a packet.
    Poll,
    /// Everything that is not about packets.
    Control,
    /// The kernel, on nobody's behalf that we know.
    Kernel,
    /// A program without names.
    Unnamed,
    /// None of these.
    Other,
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Stage::Receive => "receive",
            Stage::ReceiveKernel => "receive: kernel",
            Stage::Parse => "parse",
            Stage::LookupCache => "lookup: cache",
            Stage::LookupHash => "lookup: hash",
            Stage::LookupDirect => "lookup: compare",
            Stage::LookupPrefix => "lookup: prefix",
            Stage::LookupTuples => "lookup: tuples",
            Stage::Lookup => "lookup",
            Stage::Burst => "parse and actions",
            Stage::Actions => "actions",
            Stage::Transmit => "transmit",
            Stage::TransmitKernel => "transmit: kernel",
            Stage::Poll => "poll",
            Stage::Control => "control",
            Stage::Kernel => "kernel",
            Stage::Unnamed => "without names",
            Stage::Other => "other",
        })
    }
}

/// Parts of names, the more telling ones first: Millrace, then Open vSwitch, then DPDK.
const NAMES: &[(&str, Stage)] = &[
    ("rx_burst", Stage::Receive),
    ("tx_burst", Stage::Transmit),
    ("transmit", Stage::Transmit),
    ("WorkerEgress", Stage::Transmit),
    ("extract::", Stage::Parse),
    ("FlowKey", Stage::Parse),
    ("classify::direct", Stage::LookupDirect),
    ("classify::linear", Stage::LookupDirect),
    ("classify::prefixes", Stage::LookupPrefix),
    ("classify::trie", Stage::LookupPrefix),
    ("classify::tuple", Stage::LookupTuples),
    ("classify::masks", Stage::LookupTuples),
    ("classify::hash", Stage::LookupHash),
    ("classify::", Stage::Lookup),
    ("processor::lookup", Stage::Lookup),
    ("process_burst", Stage::Burst),
    (">::burst", Stage::Burst),
    ("millrace_pipeline::processor", Stage::Actions),
    ("millrace_pipeline::", Stage::Actions),
    ("worker::", Stage::Poll),
    ("idle::Sleeper", Stage::Poll),
    ("millrace_agent", Stage::Control),
    ("millrace_api", Stage::Control),
    ("millrace_openflow", Stage::Control),
    ("millraced::", Stage::Control),
    ("tokio::", Stage::Control),
    ("hyper::", Stage::Control),
    // Open vSwitch.
    ("miniflow_extract", Stage::Parse),
    ("mfex_", Stage::Parse),
    ("emc_", Stage::LookupCache),
    ("smc_", Stage::LookupCache),
    ("dfc_processing", Stage::LookupCache),
    ("dpcls_", Stage::LookupTuples),
    ("fast_path_processing", Stage::LookupTuples),
    ("rxq_recv", Stage::Receive),
    ("netdev_rxq_", Stage::Receive),
    ("netdev_send", Stage::Transmit),
    ("dpdk_eth_send", Stage::Transmit),
    ("flush_output", Stage::Transmit),
    ("odp_execute", Stage::Actions),
    ("dp_execute_cb", Stage::Actions),
    ("packet_batch_per_flow", Stage::Actions),
    ("dp_netdev_execute", Stage::Actions),
    ("dp_netdev_input", Stage::Actions),
    ("dp_netdev_upcall", Stage::Control),
    ("handle_packet_upcall", Stage::Control),
    ("pmd_thread_main", Stage::Poll),
    ("process_rxq_port", Stage::Poll),
    ("dpif_netdev_run", Stage::Poll),
    ("udpif_", Stage::Control),
    ("ofproto_", Stage::Control),
    ("xlate_", Stage::Control),
    ("poll_block", Stage::Control),
    ("bridge_run", Stage::Control),
    // System calls tell the direction where the program's own names are not there.
    ("recvmmsg", Stage::Receive),
    ("recvmsg", Stage::Receive),
    ("sendmmsg", Stage::Transmit),
    ("sendto", Stage::Transmit),
    ("sendmsg", Stage::Transmit),
    ("packet_rcv", Stage::Kernel),
];

/// Drivers without names, by file: in the cases of the bench, one only receives and the other only sends.
const DRIVERS: [(&str, Stage); 2] = [
    ("librte_net_pcap", Stage::Receive),
    ("librte_net_null", Stage::Transmit),
];

/// The stage of a sample whose innermost frame comes first.
pub(super) fn stage(frames: &[Frame]) -> Stage {
    let known = |frame: &Frame| {
        NAMES
            .iter()
            .find(|(part, _)| frame.symbol.contains(part))
            .map(|(_, stage)| *stage)
    };
    let (kernel, program): (Vec<&Frame>, Vec<&Frame>) = frames.iter().partition(|frame| frame.is_kernel());
    let named = |frames: &[&Frame]| frames.iter().find_map(|frame| known(frame));
    let innermost = frames.first();
    if let Some(stage) = named(&program).or_else(|| named(&kernel)) {
        let in_kernel = innermost.is_some_and(Frame::is_kernel);
        return match stage {
            Stage::Receive if in_kernel => Stage::ReceiveKernel,
            Stage::Transmit if in_kernel => Stage::TransmitKernel,
            other => other,
        };
    }
    let driver = innermost.and_then(|frame| DRIVERS.iter().find(|(file, _)| frame.object.contains(file)));
    if let Some((_, stage)) = driver {
        return *stage;
    }
    match innermost {
        Some(frame) if frame.is_kernel() => Stage::Kernel,
        Some(frame) if frame.symbol == Frame::UNKNOWN => Stage::Unnamed,
        // The loop of a worker is compiled into the thread's first function.
        Some(frame) if frame.symbol.contains("__rust_begin_short_backtrace") => Stage::Poll,
        _ => Stage::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frames(names: &[&str]) -> Vec<Frame> {
        names
            .iter()
            .map(|name| {
                let (symbol, object) = name.split_once('@').unwrap_or((name, "/usr/sbin/millraced"));
                Frame {
                    symbol: symbol.to_owned(),
                    object: object.to_owned(),
                }
            })
            .collect()
    }

    #[test]
    fn the_innermost_name_that_is_known_decides() {
        for (names, expected) in [
            (
                &[
                    "millrace_flow::extract::<impl FlowKey>::extract",
                    "millrace_pipeline::processor::run::Run<P>::burst",
                ][..],
                Stage::Parse,
            ),
            (
                &[
                    "millrace_flow::classify::tuple::find",
                    "millrace_pipeline::processor::run::Run<P>::burst",
                ],
                Stage::LookupTuples,
            ),
            (&["millrace_flow::classify::simd::lookup_avx512"], Stage::Lookup),
            (
                &["[unknown]@/usr/lib/librte_net_pcap.so", "shim_rx_burst"],
                Stage::Receive,
            ),
            (
                &["millrace_pipeline::processor::run::Run<P,E,O>::execute"],
                Stage::Actions,
            ),
            (
                &["std::sys::backtrace::__rust_begin_short_backtrace"],
                Stage::Poll,
            ),
            (
                &["dpcls_subtable_lookup_mf_u0w5_u1w1", "dp_netdev_input__"],
                Stage::LookupTuples,
            ),
            (&["[unknown]@/usr/lib/ovs-vswitchd"], Stage::Unnamed),
            (&["memcpy@/usr/lib/libc.so.6"], Stage::Other),
            (&[], Stage::Other),
        ] {
            assert_eq!(stage(&frames(names)), expected, "{names:?}");
        }
    }

    #[test]
    fn the_kernel_works_for_whom_it_was_called_by() {
        let below = frames(&[
            "skb_copy@[kernel.kallsyms]",
            "__x64_sys_sendto@[kernel.kallsyms]",
            "<Tx as TxQueue>::tx_burst",
        ]);
        assert_eq!(stage(&below), Stage::TransmitKernel);
        let nameless = frames(&[
            "skb_copy@[kernel.kallsyms]",
            "__x64_sys_recvmsg@[kernel.kallsyms]",
            "[unknown]@/usr/lib/ovs",
        ]);
        assert_eq!(stage(&nameless), Stage::ReceiveKernel);
        assert_eq!(stage(&frames(&["schedule@[kernel.kallsyms]"])), Stage::Kernel);
    }
}
