//! `Display` of messages: a few words for logs.

use core::fmt;

use crate::message::Message;

impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.type_())?;
        match self {
            Message::Error(error) => write!(f, " {}", error.code),
            Message::EchoRequest(data) | Message::EchoReply(data) => write!(f, " {} bytes", data.len()),
            Message::Experimenter(body) => {
                write!(f, " {:#010x} type {}", body.experimenter, body.exp_type)
            }
            Message::BundleControl(control) => {
                write!(
                    f,
                    " bundle {} {} {}",
                    control.bundle, control.command, control.flags
                )
            }
            Message::BundleAdd(add) => write!(f, " bundle {} add {}", add.bundle, add.message),
            Message::FeaturesReply(features) => {
                write!(f, " dpid {} tables {}", features.dpid, features.tables)
            }
            Message::GetConfigReply(config) | Message::SetConfig(config) => {
                write!(
                    f,
                    " fragments {} miss_send_len {}",
                    config.fragments, config.miss_send_len
                )
            }
            Message::PacketIn(packet) => {
                write!(
                    f,
                    " {} table {} {} bytes",
                    packet.reason, packet.table, packet.total_len
                )
            }
            Message::FlowRemoved(flow) => {
                write!(f, " {} table {} cookie {}", flow.reason, flow.table, flow.cookie)
            }
            Message::PortStatus(status) => {
                write!(
                    f,
                    " {} port {} {}",
                    status.reason, status.port.number, status.port.state
                )
            }
            Message::PacketOut(packet) => {
                write!(f, " in_port {} {} bytes", packet.in_port, packet.data.len())
            }
            Message::FlowMod(flow) => {
                write!(
                    f,
                    " {} table {} priority {}",
                    flow.command, flow.table, flow.priority
                )?;
                write!(f, " cookie {}", flow.cookie)
            }
            Message::GroupMod(group) => write!(f, " {} {} group {}", group.command, group.type_, group.group),
            Message::PortMod(port) => write!(f, " port {} {}/{}", port.number, port.config, port.mask),
            Message::TableMod(table) => write!(f, " table {}", table.table),
            Message::MultipartRequest(request) => write!(f, " {}", request.body.type_()),
            Message::MultipartReply(reply) => write!(f, " {}", reply.body.type_()),
            Message::QueueGetConfigRequest(request) => write!(f, " port {}", request.port),
            Message::QueueGetConfigReply(reply) => {
                write!(f, " port {} {} queues", reply.port, reply.queues.len())
            }
            Message::RoleRequest(role) | Message::RoleReply(role) => {
                write!(f, " {} generation {:#x}", role.role, role.generation_id)
            }
            Message::MeterMod(meter) => write!(f, " {} meter {}", meter.command, meter.meter),
            Message::Hello(_)
            | Message::FeaturesRequest
            | Message::GetConfigRequest
            | Message::BarrierRequest
            | Message::BarrierReply
            | Message::GetAsyncRequest
            | Message::GetAsyncReply(_)
            | Message::SetAsync(_) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use millrace_flow::Match;
    use millrace_types::TableId;

    use super::*;
    use crate::flow_mod::FlowMod;

    #[test]
    fn a_message_is_one_short_line() {
        let message = Message::FlowMod(FlowMod::delete(TableId(3), Match::any()));
        assert_eq!(
            message.to_string(),
            "FLOW_MOD delete table 3 priority 0 cookie 0x0"
        );
    }
}
