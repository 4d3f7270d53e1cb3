//! Each name of an event in Suricata's rule files is raised by the engine, or refused with a reason.

use millrace_ips_engine::app::{EVENTS, REFUSED_EVENTS, event, why_refused};

/// The names in `rules/*-events.rules` of Suricata 8, without those of streams and packets.
const NAMES: &str = "
applayer_detect_protocol_only_one_direction applayer_mismatch_protocol_both_directions applayer_no_tls_after_starttls
applayer_proto_detection_skipped applayer_unexpected_protocol applayer_wrong_direction_first_data
bittorrent_dht.malformed_packet dhcp.malformed_options dhcp.truncated_options
dnp3.bad_link_crc dnp3.bad_transport_crc dnp3.flooded dnp3.len_too_small dnp3.too_long_reassembly dnp3.too_many_objects
dnp3.too_many_points dnp3.unknown_object
dns.infinite_loop dns.invalid_additionals dns.invalid_authorities dns.invalid_opcode dns.malformed_data dns.name_too_long
dns.not_request dns.not_response dns.too_many_labels dns.z_flag_set enip.invalid_pdu enip.too_many_transactions
file.INVALID_SWF_LENGTH file.INVALID_SWF_VERSION file.LZMA_DECODER_ERROR file.LZMA_HEADER_TOO_SHORT_ERROR
file.LZMA_IO_ERROR file.LZMA_MEMLIMIT_ERROR file.LZMA_UNKNOWN_ERROR file.LZMA_XZ_ERROR file.NO_MEMORY file.Z_BUF_ERROR
file.Z_DATA_ERROR file.Z_STREAM_ERROR file.Z_UNKNOWN_ERROR ftp.request_command_too_long ftp.response_command_too_long
http.100_continue_already_seen http.abnormal_ce_header http.compression_bomb http.double_encoded_uri
http.duplicate_content_length_field_in_request http.duplicate_content_length_field_in_response http.failed_protocol_change
http.file_name_too_long http.gzip_decompression_failed http.host_header_ambiguous http.invalid_authority_port
http.invalid_content_length_field_in_request http.invalid_content_length_field_in_response http.invalid_request_chunk_len
http.invalid_request_field_folding http.invalid_response_chunk_len http.invalid_response_field_folding
http.invalid_server_port_in_request http.invalid_transfer_encoding_value_in_request
http.invalid_transfer_encoding_value_in_response http.lzma_memlimit_reached http.method_delim_non_compliant
http.missing_host_header http.multipart_generic_error http.multipart_invalid_header http.multipart_no_filedata
http.range_invalid http.request_auth_unrecognized http.request_body_unexpected http.request_chunk_extension
http.request_field_missing_colon http.request_field_too_long http.request_header_host_invalid http.request_header_invalid
http.request_header_repetition http.request_line_incomplete http.request_line_invalid http.request_line_leading_whitespace
http.request_line_missing_protocol http.request_server_port_tcp_port_mismatch http.request_too_many_headers
http.request_uri_host_invalid http.response_abnormal_transfer_encoding http.response_chunk_extension
http.response_chunked_old_proto http.response_field_missing_colon http.response_field_too_long http.response_header_invalid
http.response_header_repetition http.response_invalid_protocol http.response_invalid_status
http.response_multipart_byteranges http.response_too_many_headers http.too_many_encoding_layers http.too_many_warnings
http.unable_to_match_response_to_request http.unknown_error http.uri_delim_non_compliant
http2.extra_header_data http2.failed_decompression http2.header_integer_overflow http2.invalid_client_magic
http2.invalid_frame_data http2.invalid_frame_header http2.invalid_frame_length http2.invalid_header
http2.invalid_http1_settings http2.invalid_range http2.long_frame_data http2.stream_id_reuse http2.too_many_streams
http2.userinfo_in_uri
ike.invalid_proposal ike.malformed_data ike.multiple_server_proposal ike.no_encryption ike.unknown_proposal ike.weak_crypto_auth
ike.weak_crypto_dh ike.weak_crypto_enc ike.weak_crypto_noauth ike.weak_crypto_nodh ike.weak_crypto_prf
imap.invalid_data imap.request_not_found imap.too_many_headers imap.too_many_transactions
krb5.malformed_data krb5.weak_encryption ldap.invalid_data ldap.request_not_found ldap.too_many_transactions
modbus.flooded modbus.invalid_exception_code modbus.invalid_function_code modbus.invalid_length modbus.invalid_protocol_id
modbus.invalid_unit_identifier modbus.invalid_value modbus.unsolicited_response modbus.value_mismatch
mqtt.double_connect mqtt.invalid_qos_level mqtt.missing_connect mqtt.missing_msg_id mqtt.missing_publish
mqtt.missing_subscribe mqtt.missing_unsubscribe mqtt.unassigned_msg_type mqtt.unintroduced_message
nfs.malformed_data nfs.too_many_transactions ntp.malformed_data
pgsql.invalid_length pgsql.malformed_request pgsql.malformed_response pgsql.too_many_responses pgsql.too_many_transactions
pop3.incorrect_argument_count pop3.request_too_long pop3.response_too_long pop3.too_many_transactions pop3.unknown_command
quic.crypto_frag_too_long quic.error_on_data quic.failed_decrypt
rfb.malformed_message rfb.unimplemented_security_type rfb.unknown_security_result sip.incomplete_data sip.invalid_data
smb.file_overlap smb.internal_error smb.malformed_data smb.malformed_ntlmssp_request smb.negotiate_malformed_dialects
smb.negotiate_max_read_size_too_large smb.negotiate_max_write_size_too_large smb.read_queue_cnt_exceeded
smb.read_queue_size_exceeded smb.read_request_too_large smb.read_response_too_large smb.request_to_client
smb.response_to_server smb.write_queue_cnt_exceeded smb.write_queue_size_exceeded smb.write_request_too_large
smtp.bdat_chunk_len_exceeded smtp.data_command_rejected smtp.invalid_pipelined_sequence smtp.invalid_reply
smtp.max_command_line_len_exceeded smtp.max_reply_line_len_exceeded smtp.mime_invalid_base64 smtp.mime_invalid_qp
smtp.mime_long_enc_line smtp.mime_long_header_name smtp.mime_long_header_value smtp.mime_long_line smtp.mime_malformed_msg
smtp.mime_parse_failed smtp.no_server_welcome_message smtp.tls_rejected smtp.unable_to_match_reply_with_request
snmp.malformed_data snmp.unknown_security_model snmp.version_mismatch ssh.invalid_banner ssh.invalid_record ssh.long_banner
tls.certificate_invalid_length tls.certificate_invalid_string tls.certificate_missing_element tls.certificate_unknown_element
tls.dataleak_heartbeat_mismatch tls.error_message_encountered tls.handshake_invalid_length tls.heartbeat_message
tls.invalid_certificate tls.invalid_handshake_message tls.invalid_heartbeat_message tls.invalid_record_type
tls.invalid_record_version tls.invalid_sni_length tls.invalid_sni_type tls.invalid_ssl_record tls.invalid_sslv2_header
tls.invalid_tls_header tls.multiple_sni_extensions tls.overflow_heartbeat_message tls.too_many_records_in_packet
websocket.reassembly_limit_reached websocket.skip_end_of_payload
";

#[test]
fn each_event_of_suricatas_rule_files_is_raised_or_refused() {
    let names: Vec<&str> = NAMES.split_whitespace().collect();
    assert!(names.len() > 230, "{}", names.len());
    let unknown: Vec<&&str> = names
        .iter()
        .filter(|name| event(name).is_none() == why_refused(name).is_none())
        .collect();
    assert!(
        unknown.is_empty(),
        "neither raised nor refused, or both: {unknown:?}"
    );
    assert!(EVENTS.len() + REFUSED_EVENTS.len() >= names.len());
}
