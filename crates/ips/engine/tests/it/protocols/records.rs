//! Cases of LDAP and EtherNet/IP.

use super::{Case, ber, client, server};

pub(super) fn ldap_case() -> Case {
    let search = ber(
        0x30,
        &[
            &[2, 1, 2],
            &ber(
                0x63,
                &[
                    &ber(4, &[b"dc=example,dc=com"]),
                    &[0x0a, 1, 2, 0x0a, 1, 0, 2, 1, 0, 2, 1, 0, 1, 1, 0, 0x87, 1, b'x'],
                    &ber(0x30, &[&ber(4, &[b"mail"])]),
                ],
            ),
        ],
    );
    let attribute = ber(
        0x30,
        &[&ber(4, &[b"objectClass"]), &ber(0x31, &[&ber(4, &[b"top"])])],
    );
    let entry = ber(
        0x64,
        &[
            &ber(4, &[b"uid=jdoe,dc=example,dc=com"]),
            &ber(0x30, &[&attribute]),
        ],
    );
    let done = ber(0x65, &[&[0x0a, 1, 0x34], &ber(4, &[]), &ber(4, &[b"not now"])]);
    let message = |operation: &[u8]| ber(0x30, &[&[2, 1, 2], operation]);
    Case {
        protocol: "ldap",
        is_udp: false,
        port: 389,
        messages: vec![client(search), server([message(&entry), message(&done)].concat())],
        hold: vec![
            "ldap.request.operation:search_request;",
            "ldap.request.operation:3;",
            "ldap.responses.operation:search_result_done,1;",
            "ldap.responses.operation:search_result_entry,0;",
            "ldap.responses.operation:search_result_done,-1;",
            "ldap.responses.count:2;",
            "ldap.responses.count:>1;",
            "ldap.request.dn; content:\"dc=example,dc=com\";",
            "ldap.responses.dn; content:\"uid=jdoe\";",
            "ldap.responses.result_code:unavailable;",
            "ldap.responses.result_code:52,any;",
            "ldap.responses.message; content:\"not now\";",
            "ldap.request.attribute_type; content:\"mail\";",
            "ldap.responses.attribute_type; content:\"objectClass\";",
        ],
        fail: vec![
            "ldap.request.operation:bind_request;",
            "ldap.responses.operation:search_result_entry,all;",
            "ldap.responses.operation:search_result_entry,-1;",
            "ldap.responses.count:0;",
            "ldap.responses.result_code:success;",
        ],
    }
}

/// Returns a message of EtherNet/IP.
pub(super) fn enip(command: u16, status: u32, body: &[u8]) -> Vec<u8> {
    let mut message = command.to_le_bytes().to_vec();
    message.extend((body.len() as u16).to_le_bytes());
    message.extend([0; 4]);
    message.extend(status.to_le_bytes());
    message.extend([0; 12]);
    [message, body.to_vec()].concat()
}

pub(super) fn enip_case() -> Case {
    let items = |kind: u16, data: &[u8]| {
        [
            &[1, 0][..],
            &kind.to_le_bytes(),
            &(data.len() as u16).to_le_bytes(),
            data,
        ]
        .concat()
    };
    let rr = |cip: &[u8]| enip(0x6f, 0, &[&[0; 6][..], &items(0xb2, cip)].concat());
    let mut identity = vec![1, 0];
    identity.extend([0; 16]);
    identity.extend([1, 0, 12, 0, 65, 0, 2, 1, 0x30, 0, 0x78, 0x56, 0x34, 0x12, 3]);
    identity.extend(b"abc");
    identity.push(3);
    let mut service = vec![1, 0, 0x20, 1];
    service.extend(b"Communications\0\0");
    Case {
        protocol: "enip",
        is_udp: false,
        port: 44_818,
        messages: vec![
            client(enip(0x65, 0, &[1, 0, 0, 0])),
            client(enip(0x63, 0, &[])),
            server(enip(0x63, 0, &items(0x0c, &identity))),
            server(enip(4, 0, &items(0x100, &service))),
            client(rr(&[0x10, 3, 0x20, 0xf6, 0x24, 1, 0x30, 6])),
            server(rr(&[0x90, 0, 8, 1, 5, 0])),
            server(enip(0x70, 0x64, &[0; 8])),
        ],
        hold: vec![
            "enip_command:99;",
            "enip_command:list_identity;",
            "cip_service:16;",
            "cip_service:16,246,6;",
            "enip.status:100;",
            "enip.status:invalid_session;",
            "enip.protocol_version:1;",
            "enip.cip_attribute:6;",
            "enip.cip_instance:1;",
            "enip.cip_class:246;",
            "enip.cip_extendedstatus:5;",
            "enip.cip_status:8;",
            "enip.revision:0x0201;",
            "enip.identity_status:48;",
            "enip.state:3;",
            "enip.serial:0x12345678;",
            "enip.product_code:65;",
            "enip.device_type:12;",
            "enip.vendor_id:1;",
            "enip.product_name; content:\"abc\";",
            "enip.service_name; content:\"Communications\";",
            "enip.capabilities:288;",
        ],
        fail: vec![
            "enip_command:100;",
            "cip_service:75;",
            "cip_service:16,246,7;",
            "enip.state:>3;",
        ],
    }
}
