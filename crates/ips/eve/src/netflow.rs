//! Each direction of a flow as a record, which collectors of NetFlow expect.

use millrace_ips_engine::Direction;
use millrace_ips_engine::event::{FlowSummary, FlowVariables};

use crate::event::{control_bits, flow_subject, seconds};
use crate::metadata::Notes;
use crate::timestamp::timestamp;
use crate::writer::Writer;
use crate::{app, metadata};

impl Writer {
    /// Writes a line for each direction of a flow that has packets, if the layout has them. The source is the end that sent them.
    pub(crate) fn netflow(&self, flow: &FlowSummary, variables: &FlowVariables, out: &mut Vec<u8>) {
        if !self.layout.netflow {
            return;
        }
        for direction in Direction::BOTH {
            let counters = flow.counters[direction.index()];
            if counters.packets == 0 {
                continue;
            }
            let mut subject = match direction {
                Direction::ToServer => flow_subject(flow),
                Direction::ToClient => flow_subject(flow).reversed(),
            };
            subject.icmp = flow.icmp[direction.index()];
            let mut line = self.begin(&subject, "netflow", None, out);
            metadata::write(&mut line, &self.rules, Notes::of_flow(variables));
            app::protocols(&mut line, flow);
            line.object("netflow", |out| {
                out.field("pkts", counters.packets)
                    .field("bytes", counters.bytes)
                    .field("start", timestamp(flow.start))
                    .field("end", timestamp(flow.last))
                    .field("age", seconds(flow.last).saturating_sub(seconds(flow.start)));
                out.field("min_ttl", counters.min_ttl)
                    .field("max_ttl", counters.max_ttl);
                if flow.transactions > 0 {
                    out.field("tx_cnt", flow.transactions);
                }
            });
            if let Some(tcp) = &flow.tcp {
                let flags = tcp.flags[direction.index()];
                line.object("tcp", |out| {
                    out.field("tcp_flags", format!("{flags:02x}"));
                    control_bits(out, flags);
                });
            }
            self.end(line);
        }
    }
}
