//! The anomalies that parsers raise, by their names in the rule keyword `app-layer-event`.

mod refused;

use super::AppProtocol;

pub use refused::{REFUSED_EVENTS, why_refused};

/// An anomaly, by its name in the rule keyword `app-layer-event`: protocol, full stop, event; or an event of protocol detection,
/// which has no protocol and begins with `applayer_`.
pub type AppEvent = &'static str;

/// Every anomaly, sorted.
pub const EVENTS: &[AppEvent] = &[
    "applayer_detect_protocol_only_one_direction",
    "applayer_inspection_incomplete",
    "applayer_mismatch_protocol_both_directions",
    "applayer_no_tls_after_starttls",
    "applayer_proto_detection_skipped",
    "applayer_unexpected_protocol",
    "applayer_wrong_direction_first_data",
    "bittorrent_dht.malformed_packet",
    "dhcp.malformed_options",
    "dhcp.truncated_options",
    "dnp3.bad_link_crc",
    "dnp3.bad_transport_crc",
    "dnp3.flooded",
    "dnp3.fragment_too_long",
    "dnp3.len_too_small",
    "dnp3.malformed",
    "dnp3.too_long_reassembly",
    "dnp3.too_many_objects",
    "dnp3.too_many_points",
    "dnp3.unexpected_segment",
    "dnp3.unknown_object",
    "dns.infinite_loop",
    "dns.invalid_opcode",
    "dns.malformed_data",
    "dns.name_too_long",
    "dns.not_request",
    "dns.not_response",
    "dns.too_many_labels",
    "dns.z_flag_set",
    "enip.invalid_pdu",
    "ftp.request_command_too_long",
    "ftp.response_command_too_long",
    "ftp.too_many_commands",
    "http.100_continue_already_seen",
    "http.abnormal_ce_header",
    "http.ambiguous_body",
    "http.ambiguous_chunk",
    "http.ambiguous_content_encoding",
    "http.ambiguous_content_length",
    "http.ambiguous_header_end",
    "http.ambiguous_header_name",
    "http.ambiguous_header_value",
    "http.ambiguous_line_end",
    "http.ambiguous_start_line",
    "http.ambiguous_transfer_encoding",
    "http.ambiguous_tunnel",
    "http.compression_bomb",
    "http.double_encoded_uri",
    "http.duplicate_content_length_field_in_request",
    "http.duplicate_content_length_field_in_response",
    "http.file_name_too_long",
    "http.gzip_decompression_failed",
    "http.host_header_ambiguous",
    "http.invalid_authority_port",
    "http.invalid_content_length_field_in_request",
    "http.invalid_content_length_field_in_response",
    "http.invalid_request_chunk_len",
    "http.invalid_request_field_folding",
    "http.invalid_response_chunk_len",
    "http.invalid_response_field_folding",
    "http.invalid_server_port_in_request",
    "http.invalid_transfer_encoding_value_in_request",
    "http.invalid_transfer_encoding_value_in_response",
    "http.method_delim_non_compliant",
    "http.missing_host_header",
    "http.multipart_generic_error",
    "http.multipart_invalid_header",
    "http.multipart_no_filedata",
    "http.multipart_too_many_files",
    "http.range_invalid",
    "http.request_auth_unrecognized",
    "http.request_body_unexpected",
    "http.request_chunk_extension",
    "http.request_field_missing_colon",
    "http.request_field_too_long",
    "http.request_header_host_invalid",
    "http.request_header_invalid",
    "http.request_header_repetition",
    "http.request_line_incomplete",
    "http.request_line_invalid",
    "http.request_line_leading_whitespace",
    "http.request_line_missing_protocol",
    "http.request_server_port_tcp_port_mismatch",
    "http.request_too_many_headers",
    "http.request_uri_host_invalid",
    "http.response_abnormal_transfer_encoding",
    "http.response_body_unexpected",
    "http.response_chunk_extension",
    "http.response_chunked_old_proto",
    "http.response_field_missing_colon",
    "http.response_field_too_long",
    "http.response_header_invalid",
    "http.response_header_repetition",
    "http.response_invalid_protocol",
    "http.response_invalid_status",
    "http.response_multipart_byteranges",
    "http.response_too_many_headers",
    "http.too_many_encoding_layers",
    "http.unable_to_match_response_to_request",
    "http.uri_delim_non_compliant",
    "http2.authority_host_mismatch",
    "http2.data_stream_zero",
    "http2.dns_request_too_long",
    "http2.dns_response_too_long",
    "http2.invalid_client_magic",
    "http2.invalid_frame_data",
    "http2.invalid_frame_header",
    "http2.invalid_header",
    "http2.reassembly_limit_reached",
    "http2.stream_id_reuse",
    "http2.too_many_streams",
    "http2.userinfo_in_uri",
    "ike.malformed_data",
    "ike.multiple_server_proposal",
    "ike.weak_crypto_auth",
    "ike.weak_crypto_dh",
    "ike.weak_crypto_enc",
    "ike.weak_crypto_noauth",
    "ike.weak_crypto_nodh",
    "ike.weak_crypto_prf",
    "krb5.malformed_data",
    "krb5.weak_encryption",
    "ldap.invalid_data",
    "ldap.request_not_found",
    "mdns.infinite_loop",
    "mdns.invalid_opcode",
    "mdns.malformed_data",
    "mdns.name_too_long",
    "mdns.too_many_labels",
    "mdns.z_flag_set",
    "modbus.exception",
    "modbus.flooded",
    "modbus.invalid_exception_code",
    "modbus.invalid_function_code",
    "modbus.invalid_length",
    "modbus.invalid_protocol_id",
    "modbus.invalid_unit_identifier",
    "modbus.invalid_value",
    "modbus.unsolicited_response",
    "modbus.value_mismatch",
    "mqtt.double_connect",
    "mqtt.invalid_qos_level",
    "mqtt.malformed_traffic",
    "mqtt.missing_msg_id",
    "mqtt.missing_publish",
    "mqtt.missing_subscribe",
    "mqtt.missing_unsubscribe",
    "mqtt.unassigned_msg_type",
    "mqtt.unintroduced_message",
    "pop3.incorrect_argument_count",
    "pop3.reply_without_command",
    "pop3.too_many_commands",
    "pop3.unknown_command",
    "quic.crypto_frag_too_long",
    "quic.error_on_data",
    "quic.failed_decrypt",
    "rfb.malformed_message",
    "rfb.unimplemented_security_type",
    "rfb.unknown_security_result",
    "sip.invalid_data",
    "smb.file_overlap",
    "smb.malformed_data",
    "smb.record_overflow",
    "smb.request_to_client",
    "smb.response_to_server",
    "smtp.bare_line_feed_at_end_of_mail",
    "smtp.bdat_chunk_len_exceeded",
    "smtp.data_command_rejected",
    "smtp.invalid_pipelined_sequence",
    "smtp.invalid_reply",
    "smtp.max_command_line_len_exceeded",
    "smtp.max_reply_line_len_exceeded",
    "smtp.mime_bound_too_long",
    "smtp.mime_invalid_base64",
    "smtp.mime_invalid_qp",
    "smtp.mime_long_enc_line",
    "smtp.mime_long_header_name",
    "smtp.mime_long_header_value",
    "smtp.mime_long_line",
    "smtp.mime_malformed_msg",
    "smtp.mime_too_many_attachments",
    "smtp.no_server_welcome_message",
    "smtp.tls_rejected",
    "smtp.too_many_commands",
    "smtp.too_many_recipients",
    "smtp.unable_to_match_reply_with_request",
    "snmp.malformed_data",
    "snmp.unknown_security_model",
    "snmp.version_mismatch",
    "ssh.invalid_banner",
    "ssh.invalid_record",
    "ssh.long_banner",
    "ssh.long_kex_record",
    "tls.certificate_invalid_length",
    "tls.dataleak_heartbeat_mismatch",
    "tls.error_message_encountered",
    "tls.handshake_invalid_length",
    "tls.heartbeat_message",
    "tls.invalid_certificate",
    "tls.invalid_handshake_message",
    "tls.invalid_heartbeat_message",
    "tls.invalid_record_length",
    "tls.invalid_record_type",
    "tls.invalid_record_version",
    "tls.invalid_sni_length",
    "tls.invalid_sni_type",
    "tls.invalid_sslv2_header",
    "tls.multiple_sni_extensions",
    "tls.overflow_heartbeat_message",
    "websocket.reassembly_limit_reached",
    "websocket.skip_end_of_payload",
];

/// Returns the anomaly with a name, in either case; `None` if no parser raises it.
pub fn event(name: &str) -> Option<AppEvent> {
    let name = name.to_ascii_lowercase();
    let at = EVENTS.binary_search(&name.as_str()).ok()?;
    Some(EVENTS[at])
}

/// Returns the protocol whose parser raises an anomaly; `None` for an event of protocol detection.
pub fn protocol_of(event: AppEvent) -> Option<AppProtocol> {
    AppProtocol::by_name(event.split('.').next().unwrap_or(event))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use super::*;

    /// Adds the quoted texts in a folder's source files that consist of a protocol, a full stop and a word.
    fn collect(folder: &Path, found: &mut BTreeSet<String>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.ends_with("app/events.rs") || path.ends_with("events/refused.rs") {
                continue;
            }
            if path.is_dir() {
                collect(&path, found);
                continue;
            }
            let text = std::fs::read_to_string(&path).unwrap();
            let is_word = |text: &str| {
                !text.is_empty()
                    && text
                        .bytes()
                        .all(|byte| byte.is_ascii_lowercase() || byte == b'_' || byte.is_ascii_digit())
            };
            let is_event = |text: &&str| match text.split_once('.') {
                Some((protocol, word)) => AppProtocol::by_name(protocol).is_some() && is_word(word),
                None => text.starts_with("applayer_") && is_word(&text["applayer_".len()..]),
            };
            found.extend(text.split('"').filter(is_event).map(str::to_owned));
        }
    }

    #[test]
    fn every_anomaly_that_a_parser_raises_is_listed_once() {
        let mut found = BTreeSet::new();
        collect(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src/app"), &mut found);
        let listed: Vec<String> = EVENTS.iter().map(|event| (*event).to_owned()).collect();
        assert_eq!(listed, found.into_iter().collect::<Vec<_>>());
        for event in EVENTS {
            assert_eq!(super::event(&event.to_ascii_uppercase()), Some(*event));
            assert_eq!(protocol_of(event).is_some(), event.contains('.'));
        }
    }
}
