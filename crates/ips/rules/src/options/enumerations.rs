//! The names of numbers and of bits that options over numbers accept, with the names of Suricata's documentation.

use super::number::NumberField;

/// The values of a field that rules may write in words.
#[derive(Debug, Clone, Copy)]
pub enum Values {
    /// Numbers only.
    Numbers,
    /// Names of values, and the expected form.
    Names(&'static [(&'static str, u64)], &'static str),
    /// Names of bits, and the expected form.
    Bits(&'static [(&'static str, u64)], &'static str),
    /// Times, in seconds since the year 0.
    Dates,
}

/// Returns the names of a field.
pub(super) fn values(field: NumberField) -> Values {
    match field {
        NumberField::CertNotBefore | NumberField::CertNotAfter => Values::Dates,
        NumberField::MqttType => Values::Names(
            MQTT_TYPES,
            "a comparison with a number, or a type such as CONNECT",
        ),
        NumberField::MqttFlags => {
            Values::Bits(MQTT_FLAGS, "names of dup and retain with commas, or a comparison")
        }
        NumberField::MqttConnectFlags => Values::Bits(
            MQTT_CONNECT_FLAGS,
            "names of username, password, will, will_retain and clean_session with commas, or a comparison",
        ),
        NumberField::MqttSessionPresent => Values::Names(TRUTH, "yes, true, no or false"),
        NumberField::FtpReplyReceived => Values::Names(TRUTH, "yes, true, on, no, false or off"),
        NumberField::RfbSecResult => Values::Names(RFB_RESULTS, "ok, fail, toomany or unknown"),
        NumberField::SnmpPduType => Values::Names(
            SNMP_PDUS,
            "a comparison with a number, or a name such as get_request",
        ),
        NumberField::WebSocketFlags => Values::Bits(
            &[("fin", 0x80), ("comp", 0x40)],
            "names of fin and comp with commas, or a comparison",
        ),
        NumberField::WebSocketOpcode => Values::Names(
            WEBSOCKET_OPCODES,
            "a comparison with a number, or an opcode such as ping",
        ),
        NumberField::LdapRequestOperation | NumberField::LdapResponsesOperation => Values::Names(
            LDAP_OPERATIONS,
            "a comparison with a number, or an operation such as bind_request",
        ),
        NumberField::LdapResponsesResultCode => Values::Names(
            LDAP_RESULTS,
            "a comparison with a number, or a code such as success",
        ),
        NumberField::EnipCommand => Values::Names(
            ENIP_COMMANDS,
            "a comparison with a number, or a command such as list_identity",
        ),
        NumberField::EnipStatus => Values::Names(
            ENIP_STATUS,
            "a comparison with a number, or a status such as invalid_cmd",
        ),
        NumberField::NfsProcedure => Values::Names(
            NFS_PROCEDURES,
            "a comparison with a number, or the name of a procedure or an operation such as lookup or !lookup",
        ),
        NumberField::DnsRcode => Values::Names(
            DNS_RCODES,
            "a comparison with a number, or a code such as nxdomain",
        ),
        NumberField::DnsRrtype => Values::Names(
            DNS_TYPES,
            "a comparison with a number, or a type such as a or txt",
        ),
        NumberField::Http2FrameType => Values::Names(
            HTTP2_FRAMES,
            "a comparison with a number, or a type such as GOAWAY",
        ),
        NumberField::Http2ErrorCode => Values::Names(
            HTTP2_ERRORS,
            "a comparison with a number, or a code such as NO_ERROR",
        ),
        NumberField::FtpMode => Values::Names(&[("passive", 0), ("active", 1)], "active or passive"),
        NumberField::FtpDataCommand => Values::Names(&[("retr", 1), ("stor", 2)], "retr or stor"),
        NumberField::Krb5MsgType => {
            Values::Names(KRB5_TYPES, "a comparison with a number, or a type such as as_req")
        }
        _ => Values::Numbers,
    }
}

/// Seconds from the year 0 to 1970. Conditions on dates count from the year 0, because the times of certificates may be in any
/// year of four digits (RFC 5280, section 4.1.2.5).
pub const YEAR_0_TO_1970: i64 = 62_167_219_200;

/// Returns a time in seconds since the year 0: a year of four digits, or a date with a time of day, in UTC.
pub(super) fn seconds(text: &str) -> Option<u64> {
    let text = text.trim();
    let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    // More than the four digits of a year are seconds, as rules are printed.
    if text.len() > 4 && is_number(text) {
        return text.parse().ok();
    }
    let (date, time) = text.split_once([' ', 'T']).unwrap_or((text, ""));
    let mut parts = date.split('-');
    let year = parts.next().filter(|year| year.len() == 4 && is_number(year))?;
    let year: u64 = year.parse().ok()?;
    let mut parts = parts.map(|part| part.parse::<u64>().ok());
    let month = parts.next().map_or(Some(1), |month| month)?;
    let day = parts.next().map_or(Some(1), |day| day)?;
    if parts.next().is_some() || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    let mut clock = [0; 3];
    if !time.is_empty() {
        let mut places = clock.iter_mut();
        for part in time.trim_end_matches('Z').split(':') {
            *places.next()? = part.parse::<u64>().ok()?;
        }
    }
    if clock[0] > 23 || clock[1] > 59 || clock[2] > 60 {
        return None;
    }
    // Days in the proleptic Gregorian calendar, which repeats after 400 years; the year begins in March, so that its leap day is
    // the last.
    let (year, month) = if month <= 2 {
        (400 + year - 1, month + 9)
    } else {
        (400 + year, month - 3)
    };
    let days = 365 * year + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day - 1;
    /// Days of 400 years, without those from January 1 to March 1 of the year 0.
    const BEFORE: u64 = 146_097 - 60;
    Some((days - BEFORE) * 86_400 + clock[0] * 3600 + clock[1] * 60 + clock[2])
}

const TRUTH: &[(&str, u64)] = &[
    ("yes", 1),
    ("true", 1),
    ("on", 1),
    ("no", 0),
    ("false", 0),
    ("off", 0),
];

/// MQTT 5.0, section 2.1.2.
const MQTT_TYPES: &[(&str, u64)] = &[
    ("UNASSIGNED", 0),
    ("CONNECT", 1),
    ("CONNACK", 2),
    ("PUBLISH", 3),
    ("PUBACK", 4),
    ("PUBREC", 5),
    ("PUBREL", 6),
    ("PUBCOMP", 7),
    ("SUBSCRIBE", 8),
    ("SUBACK", 9),
    ("UNSUBSCRIBE", 10),
    ("UNSUBACK", 11),
    ("PINGREQ", 12),
    ("PINGRESP", 13),
    ("DISCONNECT", 14),
    ("AUTH", 15),
];

const MQTT_FLAGS: &[(&str, u64)] = &[("dup", 0x08), ("retain", 0x01)];

/// MQTT 5.0, section 3.1.2.3.
const MQTT_CONNECT_FLAGS: &[(&str, u64)] = &[
    ("username", 0x80),
    ("password", 0x40),
    ("will_retain", 0x20),
    ("will", 0x04),
    ("clean_session", 0x02),
];

const RFB_RESULTS: &[(&str, u64)] = &[("ok", 0), ("fail", 1), ("toomany", 2), ("unknown", 3)];

const SNMP_PDUS: &[(&str, u64)] = &[
    ("get_request", 0),
    ("get_next_request", 1),
    ("response", 2),
    ("set_request", 3),
    ("trap_v1", 4),
    ("get_bulk_request", 5),
    ("inform_request", 6),
    ("trap_v2", 7),
    ("report", 8),
];

/// RFC 6455, section 5.2.
const WEBSOCKET_OPCODES: &[(&str, u64)] = &[
    ("continuation", 0),
    ("text", 1),
    ("binary", 2),
    ("connection_close", 8),
    ("ping", 9),
    ("pong", 10),
];

/// RFC 4511, section 4.2 and following: the tags of the operations.
const LDAP_OPERATIONS: &[(&str, u64)] = &[
    ("bind_request", 0),
    ("bind_response", 1),
    ("unbind_request", 2),
    ("search_request", 3),
    ("search_result_entry", 4),
    ("search_result_done", 5),
    ("modify_request", 6),
    ("modify_response", 7),
    ("add_request", 8),
    ("add_response", 9),
    ("del_request", 10),
    ("del_response", 11),
    ("mod_dn_request", 12),
    ("mod_dn_response", 13),
    ("compare_request", 14),
    ("compare_response", 15),
    ("abandon_request", 16),
    ("search_result_reference", 19),
    ("extended_request", 23),
    ("extended_response", 24),
    ("intermediate_response", 25),
];

const LDAP_RESULTS: &[(&str, u64)] = &[
    ("success", 0),
    ("operations_error", 1),
    ("protocol_error", 2),
    ("time_limit_exceeded", 3),
    ("size_limit_exceeded", 4),
    ("compare_false", 5),
    ("compare_true", 6),
    ("auth_method_not_supported", 7),
    ("stronger_auth_required", 8),
    ("referral", 10),
    ("admin_limit_exceeded", 11),
    ("unavailable_critical_extension", 12),
    ("confidentiality_required", 13),
    ("sasl_bind_in_progress", 14),
    ("no_such_attribute", 16),
    ("undefined_attribute_type", 17),
    ("inappropriate_matching", 18),
    ("constraint_violation", 19),
    ("attribute_or_value_exists", 20),
    ("invalid_attribute_syntax", 21),
    ("no_such_object", 32),
    ("alias_problem", 33),
    ("invalid_dns_syntax", 34),
    ("is_leaf", 35),
    ("alias_dereferencing_problem", 36),
    ("inappropriate_authentication", 48),
    ("invalid_credentials", 49),
    ("insufficient_access_rights", 50),
    ("busy", 51),
    ("unavailable", 52),
    ("unwilling_to_perform", 53),
    ("loop_detect", 54),
    ("sort_control_missing", 60),
    ("offset_range_error", 61),
    ("naming_violation", 64),
    ("object_class_violation", 65),
    ("not_allowed_on_non_leaf", 66),
    ("not_allowed_on_rdn", 67),
    ("entry_already_exists", 68),
    ("object_class_mods_prohibited", 69),
    ("results_too_large", 70),
    ("affects_multiple_dsas", 71),
    ("control_error", 76),
    ("other", 80),
    ("server_down", 81),
    ("local_error", 82),
    ("encoding_error", 83),
    ("decoding_error", 84),
    ("timeout", 85),
    ("auth_unknown", 86),
    ("filter_error", 87),
    ("user_canceled", 88),
    ("param_error", 89),
    ("no_memory", 90),
    ("connect_error", 91),
    ("not_supported", 92),
    ("control_not_found", 93),
    ("no_results_returned", 94),
    ("more_results_to_return", 95),
    ("client_loop", 96),
    ("referral_limit_exceeded", 97),
    ("invalid_response", 100),
    ("ambiguous_response", 101),
    ("tls_not_supported", 112),
    ("intermediate_response", 113),
    ("unknown_type", 114),
    ("canceled", 118),
    ("no_such_operation", 119),
    ("too_late", 120),
    ("cannot_cancel", 121),
    ("assertion_failed", 122),
    ("authorization_denied", 123),
    ("e_sync_refresh_required", 4096),
    ("no_operation", 16654),
];

/// The CIP Networks Library, volume 2, table 2-3.2.
const ENIP_COMMANDS: &[(&str, u64)] = &[
    ("nop", 0),
    ("list_services", 4),
    ("list_identity", 99),
    ("list_interfaces", 100),
    ("register_session", 101),
    ("unregister_session", 102),
    ("send_rr_data", 111),
    ("send_unit_data", 112),
    ("indicate_status", 114),
    ("cancel", 115),
];

/// The CIP Networks Library, volume 2, table 2-3.3.
const ENIP_STATUS: &[(&str, u64)] = &[
    ("success", 0),
    ("invalid_cmd", 1),
    ("no_resources", 2),
    ("incorrect_data", 3),
    ("invalid_session", 100),
    ("invalid_length", 101),
    ("unsupported_prot_rev", 105),
    ("encap_header_error", 106),
];

/// The bit of a number that stands for the name of a procedure of NFS. The number of a name differs by version: `getattr` is 1
/// in versions 2 and 3, and the operation 9 of version 4.
pub const NFS_NAMED: u64 = 1 << 32;

/// RFC 1813, section 3; RFC 1094, section 2.2; RFC 7530, RFC 8881, RFC 7862 and RFC 8276.
const NFS_PROCEDURES: &[(&str, u64)] = &[
    ("null", NFS_NAMED),
    ("getattr", NFS_NAMED | 1),
    ("setattr", NFS_NAMED | 2),
    ("lookup", NFS_NAMED | 3),
    ("access", NFS_NAMED | 4),
    ("readlink", NFS_NAMED | 5),
    ("read", NFS_NAMED | 6),
    ("write", NFS_NAMED | 7),
    ("create", NFS_NAMED | 8),
    ("mkdir", NFS_NAMED | 9),
    ("symlink", NFS_NAMED | 10),
    ("mknod", NFS_NAMED | 11),
    ("remove", NFS_NAMED | 12),
    ("rmdir", NFS_NAMED | 13),
    ("rename", NFS_NAMED | 14),
    ("link", NFS_NAMED | 15),
    ("readdir", NFS_NAMED | 16),
    ("readdirplus", NFS_NAMED | 17),
    ("fsstat", NFS_NAMED | 18),
    ("fsinfo", NFS_NAMED | 19),
    ("pathconf", NFS_NAMED | 20),
    ("commit", NFS_NAMED | 21),
    ("root", NFS_NAMED | 22),
    ("writecache", NFS_NAMED | 23),
    ("statfs", NFS_NAMED | 24),
    ("close", NFS_NAMED | 25),
    ("delegpurge", NFS_NAMED | 26),
    ("delegreturn", NFS_NAMED | 27),
    ("getfh", NFS_NAMED | 28),
    ("lock", NFS_NAMED | 29),
    ("lockt", NFS_NAMED | 30),
    ("locku", NFS_NAMED | 31),
    ("lookupp", NFS_NAMED | 32),
    ("nverify", NFS_NAMED | 33),
    ("open", NFS_NAMED | 34),
    ("openattr", NFS_NAMED | 35),
    ("open_confirm", NFS_NAMED | 36),
    ("open_downgrade", NFS_NAMED | 37),
    ("putfh", NFS_NAMED | 38),
    ("putpubfh", NFS_NAMED | 39),
    ("putrootfh", NFS_NAMED | 40),
    ("renew", NFS_NAMED | 41),
    ("restorefh", NFS_NAMED | 42),
    ("savefh", NFS_NAMED | 43),
    ("secinfo", NFS_NAMED | 44),
    ("setclientid", NFS_NAMED | 45),
    ("setclientid_confirm", NFS_NAMED | 46),
    ("verify", NFS_NAMED | 47),
    ("release_lockowner", NFS_NAMED | 48),
    ("backchannel_ctl", NFS_NAMED | 49),
    ("bind_conn_to_session", NFS_NAMED | 50),
    ("exchange_id", NFS_NAMED | 51),
    ("create_session", NFS_NAMED | 52),
    ("destroy_session", NFS_NAMED | 53),
    ("free_stateid", NFS_NAMED | 54),
    ("get_dir_delegation", NFS_NAMED | 55),
    ("getdeviceinfo", NFS_NAMED | 56),
    ("getdevicelist", NFS_NAMED | 57),
    ("layoutcommit", NFS_NAMED | 58),
    ("layoutget", NFS_NAMED | 59),
    ("layoutreturn", NFS_NAMED | 60),
    ("secinfo_no_name", NFS_NAMED | 61),
    ("sequence", NFS_NAMED | 62),
    ("set_ssv", NFS_NAMED | 63),
    ("test_stateid", NFS_NAMED | 64),
    ("want_delegation", NFS_NAMED | 65),
    ("destroy_clientid", NFS_NAMED | 66),
    ("reclaim_complete", NFS_NAMED | 67),
    ("allocate", NFS_NAMED | 68),
    ("copy", NFS_NAMED | 69),
    ("copy_notify", NFS_NAMED | 70),
    ("deallocate", NFS_NAMED | 71),
    ("io_advise", NFS_NAMED | 72),
    ("layouterror", NFS_NAMED | 73),
    ("layoutstats", NFS_NAMED | 74),
    ("offload_cancel", NFS_NAMED | 75),
    ("offload_status", NFS_NAMED | 76),
    ("read_plus", NFS_NAMED | 77),
    ("seek", NFS_NAMED | 78),
    ("write_same", NFS_NAMED | 79),
    ("clone", NFS_NAMED | 80),
    ("getxattr", NFS_NAMED | 81),
    ("setxattr", NFS_NAMED | 82),
    ("listxattrs", NFS_NAMED | 83),
    ("removexattr", NFS_NAMED | 84),
];

/// RFC 4120, section 7.5.7.
const KRB5_TYPES: &[(&str, u64)] = &[
    ("as_req", 10),
    ("as_rep", 11),
    ("tgs_req", 12),
    ("tgs_rep", 13),
    ("ap_req", 14),
    ("ap_rep", 15),
    ("error", 30),
];

/// RFC 6895, section 2.3.
const DNS_RCODES: &[(&str, u64)] = &[
    ("noerror", 0),
    ("formerr", 1),
    ("servfail", 2),
    ("nxdomain", 3),
    ("notimp", 4),
    ("refused", 5),
    ("yxdomain", 6),
    ("yxrrset", 7),
    ("nxrrset", 8),
    ("notauth", 9),
    ("notzone", 10),
    ("badvers", 16),
    ("badkey", 17),
    ("badtime", 18),
    ("badmode", 19),
    ("badname", 20),
    ("badalg", 21),
    ("badtrunc", 22),
];

/// IANA, Domain Name System Parameters, resource record types.
const DNS_TYPES: &[(&str, u64)] = &[
    ("a", 1),
    ("ns", 2),
    ("md", 3),
    ("mf", 4),
    ("cname", 5),
    ("soa", 6),
    ("mb", 7),
    ("mg", 8),
    ("mr", 9),
    ("null", 10),
    ("wks", 11),
    ("ptr", 12),
    ("hinfo", 13),
    ("minfo", 14),
    ("mx", 15),
    ("txt", 16),
    ("rp", 17),
    ("afsdb", 18),
    ("sig", 24),
    ("key", 25),
    ("aaaa", 28),
    ("loc", 29),
    ("nxt", 30),
    ("srv", 33),
    ("naptr", 35),
    ("cert", 37),
    ("a6", 38),
    ("dname", 39),
    ("opt", 41),
    ("apl", 42),
    ("ds", 43),
    ("sshfp", 44),
    ("ipseckey", 45),
    ("rrsig", 46),
    ("nsec", 47),
    ("dnskey", 48),
    ("dhcid", 49),
    ("nsec3", 50),
    ("nsec3param", 51),
    ("tlsa", 52),
    ("hip", 55),
    ("cds", 59),
    ("cdnskey", 60),
    ("svcb", 64),
    ("https", 65),
    ("spf", 99),
    ("tkey", 249),
    ("tsig", 250),
    ("ixfr", 251),
    ("axfr", 252),
    ("maila", 254),
    ("any", 255),
    ("uri", 256),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_date_is_a_number_of_seconds() {
        // Computed with date -u -d TEXT +%s.
        for (text, expected) in [
            ("0000", -62_167_219_200),
            ("0000-03-01", -62_162_035_200),
            ("1950-01-01 00:00:01", -631_151_999),
            ("1969-12-31T23:59:59", -1),
            ("1970-01-01", 0),
            ("2000-02-29", 951_782_400),
            ("2008-05-01 12:30:15", 1_209_645_015),
            ("2015", 1_420_070_400),
            ("2038-01-19T03:14:08", 2_147_483_648),
        ] {
            let found = seconds(text).map(|seconds| seconds as i64 - YEAR_0_TO_1970);
            assert_eq!(found, Some(expected), "{text}");
        }
        for text in [
            "",
            "x",
            "196",
            "+196",
            "2015-13-01",
            "2015-01-01 25:00",
            "2015-1-1-1",
        ] {
            assert_eq!(seconds(text), None, "{text}");
        }
    }
}

/// The types of frames of HTTP/2 (RFC 9113, section 6), with the names of Suricata.
const HTTP2_FRAMES: &[(&str, u64)] = &[
    ("DATA", 0),
    ("HEADERS", 1),
    ("PRIORITY", 2),
    ("RSTSTREAM", 3),
    ("RST_STREAM", 3),
    ("SETTINGS", 4),
    ("PUSHPROMISE", 5),
    ("PUSH_PROMISE", 5),
    ("PING", 6),
    ("GOAWAY", 7),
    ("WINDOWUPDATE", 8),
    ("WINDOW_UPDATE", 8),
    ("CONTINUATION", 9),
];

/// The error codes of HTTP/2 (RFC 9113, section 7).
const HTTP2_ERRORS: &[(&str, u64)] = &[
    ("NO_ERROR", 0),
    ("PROTOCOL_ERROR", 1),
    ("INTERNAL_ERROR", 2),
    ("FLOW_CONTROL_ERROR", 3),
    ("SETTINGS_TIMEOUT", 4),
    ("STREAM_CLOSED", 5),
    ("FRAME_SIZE_ERROR", 6),
    ("REFUSED_STREAM", 7),
    ("CANCEL", 8),
    ("COMPRESSION_ERROR", 9),
    ("CONNECT_ERROR", 10),
    ("ENHANCE_YOUR_CALM", 11),
    ("INADEQUATE_SECURITY", 12),
    ("HTTP_1_1_REQUIRED", 13),
];
