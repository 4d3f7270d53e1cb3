//! The events that Suricata's rule files name, and no parser of the engine raises, with the reasons.

/// The names, sorted, each with the reason for which a rule that names it is refused.
pub const REFUSED_EVENTS: &[(&str, &str)] = &[
    (
        "dns.invalid_additionals",
        "the event of the parser is dns.malformed_data",
    ),
    (
        "dns.invalid_authorities",
        "the event of the parser is dns.malformed_data",
    ),
    (
        "enip.too_many_transactions",
        "a flow with more transactions than are kept has the event applayer_inspection_incomplete",
    ),
    ("file.invalid_swf_length", "files of Flash are not decompressed"),
    ("file.invalid_swf_version", "files of Flash are not decompressed"),
    ("file.lzma_decoder_error", "files of Flash are not decompressed"),
    (
        "file.lzma_header_too_short_error",
        "files of Flash are not decompressed",
    ),
    ("file.lzma_io_error", "files of Flash are not decompressed"),
    ("file.lzma_memlimit_error", "files of Flash are not decompressed"),
    ("file.lzma_unknown_error", "files of Flash are not decompressed"),
    ("file.lzma_xz_error", "files of Flash are not decompressed"),
    ("file.no_memory", "files of Flash are not decompressed"),
    ("file.z_buf_error", "files of Flash are not decompressed"),
    ("file.z_data_error", "files of Flash are not decompressed"),
    ("file.z_stream_error", "files of Flash are not decompressed"),
    ("file.z_unknown_error", "files of Flash are not decompressed"),
    (
        "http.failed_protocol_change",
        "a change of protocol that fails has the event applayer_unexpected_protocol",
    ),
    (
        "http.lzma_memlimit_reached",
        "LZMA is not decompressed: it is no registered content coding, no browser undoes it, and Suricata does only with `lzma-enabled`",
    ),
    (
        "http.too_many_warnings",
        "each anomaly of the parser has an event of its own",
    ),
    (
        "http.unknown_error",
        "each anomaly of the parser has an event of its own",
    ),
    (
        "http2.extra_header_data",
        "of HTTP/2 the parser raises no such event",
    ),
    (
        "http2.failed_decompression",
        "of HTTP/2 the parser raises no such event",
    ),
    (
        "http2.header_integer_overflow",
        "of HTTP/2 the parser raises no such event",
    ),
    (
        "http2.invalid_frame_length",
        "of HTTP/2 the parser raises no such event",
    ),
    (
        "http2.invalid_http1_settings",
        "of HTTP/2 the parser raises no such event",
    ),
    ("http2.invalid_range", "of HTTP/2 the parser raises no such event"),
    (
        "http2.long_frame_data",
        "of HTTP/2 the parser raises no such event",
    ),
    (
        "ike.invalid_proposal",
        "proposals are compared with weak algorithms only",
    ),
    (
        "ike.no_encryption",
        "proposals are compared with weak algorithms only",
    ),
    (
        "ike.unknown_proposal",
        "proposals are compared with weak algorithms only",
    ),
    (
        "imap.invalid_data",
        "the parser reads lines of any form, and long ones in pieces",
    ),
    (
        "imap.request_not_found",
        "the parser reads lines of any form, and long ones in pieces",
    ),
    (
        "imap.too_many_headers",
        "the parser reads lines of any form, and long ones in pieces",
    ),
    (
        "imap.too_many_transactions",
        "a flow with more transactions than are kept has the event applayer_inspection_incomplete",
    ),
    (
        "ldap.too_many_transactions",
        "a flow with more transactions than are kept has the event applayer_inspection_incomplete",
    ),
    (
        "mdns.not_request",
        "queries and responses of DNS by multicast go to one address, so neither has a wrong direction",
    ),
    (
        "mdns.not_response",
        "queries and responses of DNS by multicast go to one address, so neither has a wrong direction",
    ),
    (
        "mqtt.missing_connect",
        "the CONNECT identifies the protocol, so the parser has always seen it",
    ),
    (
        "mqtt.too_many_transactions",
        "a flow with more transactions than are kept has the event applayer_inspection_incomplete",
    ),
    (
        "nfs.malformed_data",
        "bytes that are not of the protocol end its parser without an event",
    ),
    (
        "nfs.too_many_transactions",
        "a flow with more transactions than are kept has the event applayer_inspection_incomplete",
    ),
    ("ntp.malformed_data", "there is no parser for NTP"),
    (
        "pgsql.invalid_length",
        "bytes that are not of the protocol end its parser without an event",
    ),
    (
        "pgsql.malformed_request",
        "bytes that are not of the protocol end its parser without an event",
    ),
    (
        "pgsql.malformed_response",
        "bytes that are not of the protocol end its parser without an event",
    ),
    (
        "pgsql.too_many_responses",
        "a flow with more transactions than are kept has the event applayer_inspection_incomplete",
    ),
    (
        "pgsql.too_many_transactions",
        "a flow with more transactions than are kept has the event applayer_inspection_incomplete",
    ),
    (
        "pop3.request_too_long",
        "the parser reads lines of any form, and long ones in pieces",
    ),
    (
        "pop3.response_too_long",
        "the parser reads lines of any form, and long ones in pieces",
    ),
    (
        "pop3.too_many_transactions",
        "a flow with more transactions than are kept has the event applayer_inspection_incomplete",
    ),
    (
        "sip.incomplete_data",
        "the event of the parser is sip.invalid_data",
    ),
    (
        "smb.internal_error",
        "each anomaly of the parser has an event of its own",
    ),
    (
        "smb.malformed_ntlmssp_request",
        "dialects and NTLMSSP are not parsed",
    ),
    (
        "smb.negotiate_malformed_dialects",
        "dialects and NTLMSSP are not parsed",
    ),
    (
        "smb.negotiate_max_read_size_too_large",
        "sizes of SMB are not limited by what was negotiated; files are inspected as they come",
    ),
    (
        "smb.negotiate_max_write_size_too_large",
        "sizes of SMB are not limited by what was negotiated; files are inspected as they come",
    ),
    (
        "smb.read_queue_cnt_exceeded",
        "sizes of SMB are not limited by what was negotiated; files are inspected as they come",
    ),
    (
        "smb.read_queue_size_exceeded",
        "sizes of SMB are not limited by what was negotiated; files are inspected as they come",
    ),
    (
        "smb.read_request_too_large",
        "sizes of SMB are not limited by what was negotiated; files are inspected as they come",
    ),
    (
        "smb.read_response_too_large",
        "sizes of SMB are not limited by what was negotiated; files are inspected as they come",
    ),
    (
        "smb.write_queue_cnt_exceeded",
        "sizes of SMB are not limited by what was negotiated; files are inspected as they come",
    ),
    (
        "smb.write_queue_size_exceeded",
        "sizes of SMB are not limited by what was negotiated; files are inspected as they come",
    ),
    (
        "smb.write_request_too_large",
        "sizes of SMB are not limited by what was negotiated; files are inspected as they come",
    ),
    (
        "smtp.duplicate_fields",
        "the event of the parser is smtp.mime_malformed_msg",
    ),
    (
        "smtp.failed_protocol_change",
        "a change of protocol that fails has the event applayer_unexpected_protocol",
    ),
    (
        "smtp.mime_parse_failed",
        "the event of the parser is smtp.mime_malformed_msg",
    ),
    (
        "smtp.truncated_line",
        "the parser reads lines of any form, and long ones in pieces",
    ),
    (
        "smtp.unparsable_content",
        "the event of the parser is smtp.mime_malformed_msg",
    ),
    (
        "tls.certificate_invalid_algorithmidentifier",
        "the event of the parser is tls.invalid_certificate",
    ),
    (
        "tls.certificate_invalid_date",
        "the event of the parser is tls.invalid_certificate",
    ),
    (
        "tls.certificate_invalid_der",
        "the event of the parser is tls.invalid_certificate",
    ),
    (
        "tls.certificate_invalid_extensions",
        "the event of the parser is tls.invalid_certificate",
    ),
    (
        "tls.certificate_invalid_issuer",
        "the event of the parser is tls.invalid_certificate",
    ),
    (
        "tls.certificate_invalid_serial",
        "the event of the parser is tls.invalid_certificate",
    ),
    (
        "tls.certificate_invalid_string",
        "the event of the parser is tls.invalid_certificate",
    ),
    (
        "tls.certificate_invalid_subject",
        "the event of the parser is tls.invalid_certificate",
    ),
    (
        "tls.certificate_invalid_validity",
        "the event of the parser is tls.invalid_certificate",
    ),
    (
        "tls.certificate_invalid_version",
        "the event of the parser is tls.invalid_certificate",
    ),
    (
        "tls.certificate_invalid_x509name",
        "the event of the parser is tls.invalid_certificate",
    ),
    (
        "tls.certificate_missing_element",
        "the event of the parser is tls.invalid_certificate",
    ),
    (
        "tls.certificate_unknown_element",
        "the event of the parser is tls.invalid_certificate",
    ),
    (
        "tls.invalid_ssl_record",
        "the events of the parser are tls.invalid_record_type, tls.invalid_record_version and tls.invalid_record_length",
    ),
    (
        "tls.invalid_tls_header",
        "the events of the parser are tls.invalid_record_type, tls.invalid_record_version and tls.invalid_record_length",
    ),
    (
        "tls.too_many_records_in_packet",
        "the number of records in a packet is not limited",
    ),
];

/// Returns the reason for which a rule over an event is refused; `None` if the name is no event that is known.
pub fn why_refused(name: &str) -> Option<&'static str> {
    let name = name.to_ascii_lowercase();
    let at = REFUSED_EVENTS
        .binary_search_by(|(known, _)| (*known).cmp(name.as_str()))
        .ok()?;
    Some(REFUSED_EVENTS[at].1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::event;

    #[test]
    fn each_refused_event_is_in_the_requirements_with_its_reason_and_is_never_raised() {
        const PAGE: &str = include_str!("../../../../../../docs/ips-requirements.md");
        assert!(REFUSED_EVENTS.is_sorted());
        for (name, why) in REFUSED_EVENTS {
            let row = PAGE.lines().find(|line| line.starts_with(&format!("| {why} |")));
            assert!(
                row.is_some_and(|row| row.contains(&format!("`{name}`"))),
                "{name}"
            );
            assert_eq!(
                (event(name), why_refused(&name.to_ascii_uppercase())),
                (None, Some(*why))
            );
        }
    }
}
