//! A flow for each anomaly of these protocols.

use super::binary::{dhcp, ike, krb5_answer, krb5_request, mqtt, mqtt_connect, rfb, snmp_case, text};
use super::records::enip;
use super::{Message, ber, client, http2, quic, server};

/// Returns the flow that raises an anomaly of one of these protocols: the port, true for UDP, and the messages.
pub(crate) fn anomaly(event: &str) -> Option<(u16, bool, Vec<Message>)> {
    let connect = client(mqtt_connect(4));
    let connack = server(mqtt(0x20, &[&[0, 0]]));
    let mqtt_with = |message: Message| Some((1883, false, vec![connect.clone(), connack.clone(), message]));
    let ike_answer = |transforms: &[(u8, u16)], proposals: usize| {
        Some((
            500,
            true,
            vec![
                client(ike(false, &[(1, 12)], 1)),
                server(ike(true, transforms, proposals)),
            ],
        ))
    };
    let quic_with = |datagram: Vec<u8>| Some((443, true, vec![client(datagram)]));
    let rfb_with = |messages: Vec<Message>| Some((5900, false, messages));
    if let Some(event) = event.strip_prefix("http2.") {
        return Some((80, false, http2::anomaly(event)));
    }
    match event {
        "mqtt.double_connect" => mqtt_with(connect.clone()),
        "mqtt.invalid_qos_level" => mqtt_with(client(mqtt(0x36, &[&text("a"), &[0, 1]]))),
        "mqtt.malformed_traffic" => mqtt_with(client(mqtt(0x30, &[&[0, 9, b'a']]))),
        "mqtt.missing_msg_id" => mqtt_with(client(mqtt(0x82, &[&[0, 0], &text("a"), &[0]]))),
        "mqtt.missing_publish" => mqtt_with(server(mqtt(0x40, &[&[0, 9]]))),
        "mqtt.missing_subscribe" => mqtt_with(server(mqtt(0x90, &[&[0, 9, 0]]))),
        "mqtt.missing_unsubscribe" => mqtt_with(server(mqtt(0xb0, &[&[0, 9]]))),
        "mqtt.unassigned_msg_type" => mqtt_with(client(mqtt(0, &[]))),
        "mqtt.unintroduced_message" => Some((1883, false, vec![connect, client(mqtt(0xc0, &[]))])),
        "krb5.malformed_data" => Some((88, true, vec![client([0x6a, 2, 0x30, 9])])),
        "krb5.weak_encryption" => Some((88, true, vec![client(krb5_request()), server(krb5_answer())])),
        "snmp.malformed_data" => {
            let known = snmp_case().messages.swap_remove(0);
            Some((161, true, vec![known, client([0x30, 3, 2, 1, 1])]))
        }
        "snmp.version_mismatch" => {
            let known = snmp_case().messages.swap_remove(0);
            let mut other = known.1.clone();
            // The number of the version is behind the heads of the sequence and of the integer.
            other[4] ^= 1;
            Some((161, true, vec![known, client(other)]))
        }
        "snmp.unknown_security_model" => {
            let header = ber(0x30, &[&[2, 1, 1, 2, 2, 16, 0], &ber(4, &[&[4]]), &[2, 1, 5]]);
            let message = ber(0x30, &[&[2, 1, 3], &header, &ber(4, &[]), &ber(4, &[b"sealed"])]);
            Some((161, true, vec![client(message)]))
        }
        "quic.crypto_frag_too_long" => quic_with(quic::pieces()),
        "quic.error_on_data" => quic_with(quic::stream_frame()),
        "quic.failed_decrypt" => {
            let mut datagram = quic::client_hello();
            datagram[60] ^= 1;
            quic_with(datagram)
        }
        "rfb.malformed_message" => rfb_with(vec![server("RFB 003.008\n"), client("GET / HTTP/1\n")]),
        "rfb.unimplemented_security_type" => rfb_with(vec![
            server("RFB 003.008\n"),
            client("RFB 003.008\n"),
            server([1, 30]),
            client([30]),
        ]),
        "rfb.unknown_security_result" => rfb_with(rfb(9)),
        "dhcp.truncated_options" => Some((67, true, vec![client(dhcp(1, &[53, 9, 1]))])),
        "dhcp.malformed_options" => Some((67, true, vec![client(dhcp(1, &[51, 1, 1, 255]))])),
        "ike.malformed_data" => {
            let mut message = ike(false, &[(1, 12)], 1);
            message[30] = 0xff;
            Some((500, true, vec![client(message)]))
        }
        "ike.multiple_server_proposal" => ike_answer(&[(1, 12)], 2),
        "ike.weak_crypto_auth" => ike_answer(&[(3, 1)], 1),
        "ike.weak_crypto_dh" => ike_answer(&[(4, 1)], 1),
        "ike.weak_crypto_enc" => ike_answer(&[(1, 3)], 1),
        "ike.weak_crypto_noauth" => ike_answer(&[(3, 0)], 1),
        "ike.weak_crypto_nodh" => ike_answer(&[(4, 0)], 1),
        "ike.weak_crypto_prf" => ike_answer(&[(2, 1)], 1),
        "enip.invalid_pdu" => Some((44_818, false, vec![client(enip(0x65, 0, &[1]))])),
        "ldap.invalid_data" => Some((389, false, vec![client([0x30, 3, 4, 1, 1])])),
        "ldap.request_not_found" => {
            let answer = ber(
                0x30,
                &[
                    &[2, 1, 9],
                    &ber(0x61, &[&[0x0a, 1, 0], &ber(4, &[]), &ber(4, &[])]),
                ],
            );
            Some((
                389,
                false,
                vec![client(ber(0x30, &[&[2, 1, 2], &ber(0x42, &[])])), server(answer)],
            ))
        }
        "bittorrent_dht.malformed_packet" => Some((9999, true, vec![client("d1:ad2:id20:short")])),
        _ => None,
    }
}
