//! Cases of protocols with binary messages, and of PostgreSQL.

use super::{Case, Message, ber, client, server};

/// Returns a text with a size of two bytes.
pub(super) fn text(text: &str) -> Vec<u8> {
    [&(text.len() as u16).to_be_bytes()[..], text.as_bytes()].concat()
}

/// Returns a control packet of MQTT of fewer than 128 bytes.
pub(super) fn mqtt(first: u8, parts: &[&[u8]]) -> Vec<u8> {
    let body = parts.concat();
    [&[first, body.len() as u8][..], &body].concat()
}

pub(super) fn mqtt_connect(version: u8) -> Vec<u8> {
    let head = [&text("MQTT")[..], &[version, 0xc6, 0, 60]].concat();
    let parts = ["myclient", "hunter7", "fooba r", "benson", "swordfish"].map(text);
    mqtt(0x10, &[&head, &parts.concat()])
}

pub(super) fn mqtt_case() -> Case {
    let publish = mqtt(0x3b, &[&text("mytopic"), &[0, 7], b"uid=12"]);
    Case {
        protocol: "mqtt",
        is_udp: false,
        port: 1883,
        messages: vec![
            client(mqtt_connect(4)),
            server(mqtt(0x20, &[&[1, 0]])),
            client(publish),
            server(mqtt(0x40, &[&[0, 7]])),
            client(mqtt(0x82, &[&[0, 8], &text("a/b"), &[1], &text("c"), &[0]])),
            server(mqtt(0x90, &[&[0, 8, 1, 0x80]])),
            client(mqtt(0xa2, &[&[0, 9], &text("a/b")])),
            server(mqtt(0xb0, &[&[0, 9]])),
        ],
        hold: vec![
            "mqtt.type:CONNECT;",
            "mqtt.type:3;",
            "mqtt.protocol_version:4;",
            "mqtt.flags:dup,retain;",
            "mqtt.flags:&0x08=0x08;",
            "mqtt.qos:1;",
            "mqtt.type:SUBACK; mqtt.reason_code:128;",
            "mqtt.type:SUBACK; mqtt.reason_code:128,1;",
            "mqtt.type:SUBACK; mqtt.reason_code:128,-1;",
            "mqtt.type:SUBACK; mqtt.reason_code:<200,all;",
            "mqtt.connack.return_code:0;",
            "mqtt.connack.session_present:true;",
            "mqtt.connect.flags:username,password,!will_retain;",
            "mqtt.connect.clientid; pcre:\"/^my.*/\";",
            "mqtt.connect.clientid; pcre:/^my.*/;",
            "mqtt.connect.password; content:\"swordfish\";",
            "mqtt.connect.protocol_string; content:\"MQTT\";",
            "mqtt.connect.username; content:\"benson\";",
            "mqtt.connect.willmessage; pcre:\"/^fooba[r ]/\";",
            "mqtt.connect.willtopic; pcre:\"/^hunter[0-9]/\";",
            "mqtt.type:PUBLISH; mqtt.publish.message; pcre:\"/uid=[0-9]+/\";",
            "mqtt.publish.topic; content:\"mytopic\";",
            "mqtt.subscribe.topic; content:\"c\"; bsize:1;",
            "mqtt.unsubscribe.topic; content:\"a/b\";",
            // The packets of an exchange are one transaction.
            "mqtt.type:SUBACK; mqtt.subscribe.topic; content:\"c\"; mqtt.reason_code:128;",
            "mqtt.type:SUBSCRIBE; mqtt.type:SUBACK;",
            "flow:to_client; mqtt.connect.clientid; content:\"my\"; mqtt.connack.return_code:0;",
            "mqtt.publish.topic; content:\"mytopic\"; mqtt.type:PUBACK;",
            "flow:to_server; mqtt.type:CONNACK;",
            "flow:to_client; mqtt.type:UNSUBACK;",
            "app-layer-protocol:mqtt;",
        ],
        fail: vec![
            "mqtt.type:AUTH;",
            "mqtt.flags:dup,!retain;",
            "mqtt.qos:2;",
            "mqtt.type:SUBACK; mqtt.reason_code:128,0;",
            "mqtt.connect.flags:will_retain;",
            "mqtt.connect.username; content:\"swordfish\";",
            "mqtt.connack.session_present:no;",
            "mqtt.type:SUBACK; mqtt.type:CONNACK;",
            "mqtt.unsubscribe.topic; content:\"a/b\"; mqtt.type:SUBACK;",
        ],
    }
}

pub(super) fn krb5_name(parts: &[&str]) -> Vec<u8> {
    let texts: Vec<Vec<u8>> = parts.iter().map(|part| ber(0x1b, &[part.as_bytes()])).collect();
    let list = ber(0x30, &[&texts.concat()]);
    ber(0x30, &[&ber(0xa0, &[&[2, 1, 1]]), &ber(0xa1, &[&list])])
}

pub(super) fn krb5_request() -> Vec<u8> {
    let body = ber(
        0x30,
        &[
            &ber(0xa0, &[&[3, 5, 0, 0, 0, 0, 0]]),
            &ber(0xa1, &[&krb5_name(&["des"])]),
            &ber(0xa2, &[&ber(0x1b, &[b"DENYDC"])]),
            &ber(0xa3, &[&krb5_name(&["krbtgt", "DENYDC"])]),
        ],
    );
    let fields = [
        ber(0xa1, &[&[2, 1, 5]]),
        ber(0xa2, &[&[2, 1, 10]]),
        ber(0xa4, &[&body]),
    ];
    ber(0x6a, &[&ber(0x30, &[&fields.concat()])])
}

/// Returns the answer to a request, encrypted with RC4.
pub(super) fn krb5_answer() -> Vec<u8> {
    let encrypted = |kind: u8| {
        ber(
            0x30,
            &[&ber(0xa0, &[&[2, 1, kind]]), &ber(0xa2, &[&ber(4, &[b"x"])])],
        )
    };
    let ticket = ber(
        0x61,
        &[&ber(
            0x30,
            &[
                &ber(0xa0, &[&[2, 1, 5]]),
                &ber(0xa1, &[&ber(0x1b, &[b"R"])]),
                &ber(0xa2, &[&krb5_name(&["krbtgt"])]),
                &ber(0xa3, &[&encrypted(18)]),
            ],
        )],
    );
    let fields = [
        ber(0xa1, &[&[2, 1, 11]]),
        ber(0xa3, &[&ber(0x1b, &[b"R"])]),
        ber(0xa4, &[&krb5_name(&["des"])]),
        ber(0xa5, &[&ticket]),
        ber(0xa6, &[&encrypted(23)]),
    ];
    ber(0x6b, &[&ber(0x30, &[&fields.concat()])])
}

pub(super) fn krb5_error() -> Vec<u8> {
    let fields = [
        ber(0xa1, &[&[2, 1, 30]]),
        ber(0xa6, &[&[2, 1, 6]]),
        ber(0xa9, &[&ber(0x1b, &[b"R"])]),
        ber(0xaa, &[&krb5_name(&["krbtgt"])]),
    ];
    ber(0x7e, &[&ber(0x30, &[&fields.concat()])])
}

pub(super) fn krb5_cases() -> Vec<Case> {
    let hold = vec![
        "krb5_msg_type:10;",
        "krb5_msg_type:30;",
        "krb5_cname; content:\"des\";",
        "krb5_sname; content:\"krbtgt\"; bsize:6;",
        "krb5_err_code:6;",
        "krb5.ticket_encryption:aes256-cts-hmac-sha1-96;",
        "krb5.ticket_encryption:18;",
        "krb5.ticket_encryption:!weak;",
        "app-layer-event:krb5.weak_encryption; flow:to_client;",
    ];
    let fail = vec![
        "krb5_msg_type:12;",
        "krb5_cname; content:\"krbtgt\";",
        "krb5_err_code:7;",
        "krb5.ticket_encryption:weak;",
        "app-layer-event:krb5.malformed_data;",
    ];
    let messages = [
        (false, krb5_request()),
        (true, krb5_answer()),
        (true, krb5_error()),
    ];
    let sized = |(is_reply, bytes): &Message| {
        (
            *is_reply,
            [&(bytes.len() as u32).to_be_bytes()[..], bytes].concat(),
        )
    };
    vec![
        Case {
            protocol: "krb5",
            is_udp: true,
            port: 88,
            messages: messages.to_vec(),
            hold: hold.clone(),
            fail: fail.clone(),
        },
        Case {
            protocol: "krb5",
            is_udp: false,
            port: 88,
            messages: messages.iter().map(sized).collect(),
            hold,
            fail,
        },
    ]
}

pub(super) fn snmp_case() -> Case {
    let get = b"\x30\x26\x02\x01\x01\x04\x06public\xa0\x19\x02\x01\x01\x02\x01\0\x02\x01\0\x30\x0e\x30\x0c\x06\x08\x2b\x06\x01\x02\x01\x01\x05\0\x05\0";
    let header = ber(0x30, &[&[2, 1, 1], &[2, 1, 99], &ber(4, &[&[4]]), &[2, 1, 3]]);
    let usm = ber(
        0x30,
        &[
            &ber(4, &[b"e"]),
            &[2, 1, 0],
            &[2, 1, 0],
            &ber(4, &[b"admin"]),
            &ber(4, &[]),
            &ber(4, &[]),
        ],
    );
    let pdu = ber(0xa2, &[&[2, 1, 1], &[2, 1, 0], &[2, 1, 0], &ber(0x30, &[])]);
    let scoped = ber(0x30, &[&ber(4, &[]), &ber(4, &[]), &pdu]);
    let version_3 = ber(0x30, &[&[2, 1, 3], &header, &ber(4, &[&usm]), &scoped]);
    Case {
        protocol: "snmp",
        is_udp: true,
        port: 161,
        messages: vec![client(*get), server(version_3)],
        hold: vec![
            "snmp.version:2;",
            "snmp.version:3;",
            "snmp.version:<3;",
            "snmp.community; content:\"public\";",
            "snmp.usm; content:\"admin\";",
            "snmp.pdu_type:0;",
            "snmp.pdu_type:response;",
        ],
        fail: vec![
            "snmp.version:1;",
            "snmp.community; content:\"private\";",
            "snmp.pdu_type:3;",
        ],
    }
}

/// Returns the handshake of RFB with VNC authentication and this result, and what follows.
pub(super) fn rfb(result: u8) -> Vec<Message> {
    let mut messages = vec![
        server("RFB 003.008\n"),
        client("RFB 003.008\n"),
        server([1, 2]),
        client([2]),
        server([7; 16]),
        client([8; 16]),
        server([0, 0, 0, result]),
    ];
    if result == 0 {
        let mut parameters = vec![
            4, 0, 3, 0, 32, 24, 0, 1, 0, 255, 0, 255, 0, 255, 16, 8, 0, 0, 0, 0,
        ];
        parameters.extend([0, 0, 0, 15]);
        parameters.extend(b"Alice's desktop");
        messages.extend([client([1]), server(parameters)]);
    }
    messages
}

pub(super) fn rfb_case() -> Case {
    Case {
        protocol: "rfb",
        is_udp: false,
        port: 5900,
        messages: rfb(0),
        hold: vec![
            "rfb.name; content:\"Alice's desktop\";",
            "rfb.secresult: ok;",
            "rfb.sectype:2;",
            "rfb.sectype:<3;",
        ],
        fail: vec![
            "rfb.secresult: fail;",
            "rfb.sectype:>2;",
            "app-layer-event:rfb.malformed_message;",
        ],
    }
}

/// Returns handshakes of Apple's and RealVNC's versions, which are as in 3.8, and of 3.3, whose server names the security type.
pub(super) fn rfb_version_cases() -> Vec<Case> {
    let of = |messages, hold, fail| Case {
        protocol: "rfb",
        is_udp: false,
        port: 5900,
        messages,
        hold,
        fail,
    };
    let listed = |version: &str| {
        vec![
            server(version),
            client(version),
            server([4, 0x1e, 0x21, 0x24, 0x23]),
            client([0x1e]),
        ]
    };
    let named = |security: u8, rest: &[u8]| {
        vec![
            server("RFB 003.003\n"),
            client("RFB 003.003\n"),
            server([&[0, 0, 0, security][..], rest].concat()),
        ]
    };
    let unknown = "app-layer-event:rfb.unimplemented_security_type;";
    vec![
        of(
            listed("RFB 003.889\n"),
            vec!["rfb.sectype:30;", unknown],
            vec!["rfb.sectype:>30;"],
        ),
        of(
            listed("RFB 005.000\n"),
            vec!["rfb.sectype:30;", unknown],
            vec!["rfb.sectype:>30;"],
        ),
        of(
            named(0, b"\0\0\0\x08too many"),
            vec!["rfb.sectype:0;", "frame:rfb.pdu; content:\"too many\"; bsize:12;"],
            vec![unknown, "app-layer-event:rfb.malformed_message;"],
        ),
        of(named(2, &[7; 16]), vec!["rfb.sectype:2;"], vec![unknown]),
    ]
}

/// Returns a message of IKE 2 with these transforms in a proposal.
pub(super) fn ike(is_response: bool, transforms: &[(u8, u16)], proposals: usize) -> Vec<u8> {
    let list: Vec<u8> = transforms
        .iter()
        .flat_map(|(kind, value)| [&[3, 0, 0, 8, *kind, 0][..], &value.to_be_bytes()].concat())
        .collect();
    let size = (8 + list.len()) as u16;
    let proposal = [
        &[0, 0][..],
        &size.to_be_bytes(),
        &[1, 1, 0, transforms.len() as u8],
        &list,
    ]
    .concat();
    let payload =
        |next: u8, body: &[u8]| [&[next, 0][..], &(4 + body.len() as u16).to_be_bytes(), body].concat();
    let body = [
        payload(34, &proposal.repeat(proposals)),
        payload(40, &[&[0, 2, 0, 0][..], &[0x6d; 14]].concat()),
        payload(43, &[0x5a; 20]),
        payload(0, &[0x4a, 0x13, 0x1c]),
    ]
    .concat();
    let mut message = vec![0x18, 0xfe, 0x9b, 0x73, 0x1f, 0x9f, 0x80, 0x34];
    message.extend([0xa0, 0x0b, 0x8e, 0xf0, 0x90, 0x2b, 0xb8, 0xec]);
    message.extend([33, 0x20, 34, if is_response { 0x20 } else { 0x08 }, 0, 0, 0, 0]);
    message.extend((28 + body.len() as u32).to_be_bytes());
    [message, body].concat()
}

pub(super) fn ike_case() -> Case {
    let transforms = [(1, 12), (2, 5), (3, 12), (4, 14)];
    Case {
        protocol: "ike",
        is_udp: true,
        port: 500,
        messages: vec![
            client(ike(false, &transforms, 1)),
            server(ike(true, &transforms, 1)),
        ],
        hold: vec![
            "ike.init_spi; content:\"18fe9b731f9f8034\";",
            "ike.resp_spi; content:\"a00b8ef0902bb8ec\";",
            "ike.chosen_sa_attribute:alg_enc=12;",
            "ike.exchtype:34;",
            "ike.exchtype:>=2;",
            "ike.vendor:4a131c;",
            "ike.vendor; content:\"4a131c\";",
            "ike.key_exchange_payload; content:\"|6d 6d|\";",
            "ike.key_exchange_payload_length:14;",
            "ike.nonce_payload; content:\"|5a 5a|\";",
            "ike.nonce_payload_length:>19;",
        ],
        fail: vec![
            "ike.chosen_sa_attribute:alg_enc=3;",
            "ike.exchtype:5;",
            "ike.vendor:ffff;",
            "app-layer-event:ike.weak_crypto_enc;",
            "app-layer-event:ike.malformed_data;",
        ],
    }
}

/// Returns a message of DHCP with options.
pub(super) fn dhcp(operation: u8, options: &[u8]) -> Vec<u8> {
    let mut message = vec![0; 236];
    (message[0], message[1], message[2]) = (operation, 1, 6);
    [message, vec![0x63, 0x82, 0x53, 0x63], options.to_vec()].concat()
}

pub(super) fn dhcp_case() -> Case {
    let times = [
        53, 1, 5, 51, 4, 0, 0, 0x0e, 0x10, 58, 4, 0, 0, 7, 8, 59, 4, 0, 0, 0x0c, 0x4e, 255,
    ];
    Case {
        protocol: "dhcp",
        is_udp: true,
        port: 67,
        messages: vec![
            client(dhcp(1, &[53, 1, 1, 12, 1, b'h', 255])),
            server(dhcp(2, &times)),
        ],
        hold: vec![
            "dhcp.leasetime:3600;",
            "dhcp.leasetime:>=2;",
            "dhcp.rebinding_time:3150;",
            "dhcp.renewal_time:1800;",
        ],
        fail: vec!["dhcp.leasetime:<3;", "app-layer-event:dhcp.truncated_options;"],
    }
}

pub(super) fn nfs_case() -> Case {
    let opaque = |bytes: &[u8]| {
        let mut out = (bytes.len() as u32).to_be_bytes().to_vec();
        out.extend(bytes);
        out.resize(out.len().next_multiple_of(4), 0);
        out
    };
    let words = |words: &[u32]| {
        words
            .iter()
            .flat_map(|word| word.to_be_bytes())
            .collect::<Vec<u8>>()
    };
    let call = [
        words(&[9, 0, 2, 100_003, 3, 3, 0, 0, 0, 0]),
        opaque(&[7; 8]),
        opaque(b"file.txt"),
    ]
    .concat();
    let reply = words(&[9, 1, 0, 0, 0, 0, 0]);
    let marked = |bytes: &[u8]| [&(0x8000_0000 | bytes.len() as u32).to_be_bytes()[..], bytes].concat();
    Case {
        protocol: "nfs",
        is_udp: false,
        port: 2049,
        messages: vec![client(marked(&call)), server(marked(&reply))],
        hold: vec![
            "nfs_procedure:3;",
            "nfs_procedure:lookup;",
            "nfs_procedure:3<>5;",
            "nfs.version:3;",
            "file.name; content:\"file.txt\";",
        ],
        fail: vec!["nfs_procedure:read;", "nfs.version:>3;"],
    }
}

pub(super) fn websocket_case() -> Case {
    let mask = [1, 2, 3, 4];
    let payload: Vec<u8> = b"swordfish"
        .iter()
        .zip(mask.iter().cycle())
        .map(|(byte, key)| byte ^ key)
        .collect();
    let frame = [&[0x81, 0x80 | 9][..], &mask, &payload].concat();
    Case {
        protocol: "websocket",
        is_udp: false,
        port: 80,
        messages: vec![
            client("GET /chat HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n"),
            server("HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n"),
            client(frame),
            server([&[0x01, 3][..], b"123", &[0x89, 0], &[0x80, 2], b"45"].concat()),
        ],
        hold: vec![
            "websocket.payload; content:\"swordfish\";",
            "websocket.payload; pcre:\"/^123[0-9]*/\"; bsize:5;",
            "websocket.flags:fin,!comp;",
            "websocket.flags:&0xc0=0x80;",
            "websocket.mask:16909060;",
            "websocket.opcode:ping;",
            "websocket.opcode:>8;",
            "websocket.opcode:1;",
        ],
        fail: vec![
            "websocket.flags:comp;",
            "websocket.mask:0;",
            "websocket.opcode:binary;",
        ],
    }
}

/// Returns messages that are compressed, of which the second one needs the window of the first one, and one in two frames: the
/// examples of RFC 7692, section 7.2.3.
pub(super) fn websocket_compressed_case() -> Case {
    let hello = [0xf2, 0x48, 0xcd, 0xc9, 0xc9, 0x07, 0x00];
    let mask = [0x37, 0xfa, 0x21, 0x3d];
    let masked = hello
        .iter()
        .zip(mask.iter().cycle())
        .map(|(byte, key)| byte ^ key);
    let request = [&[0xc1, 0x80 | 7][..], &mask, &masked.collect::<Vec<u8>>()].concat();
    let answers = [
        &[0x41, 3][..],
        &hello[..3],
        &[0x80, 4],
        &hello[3..],
        &[0xc2, 5, 0xf2, 0x00, 0x11, 0x00, 0x00],
    ];
    Case {
        protocol: "websocket",
        is_udp: false,
        port: 80,
        messages: vec![
            client("GET /chat HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n"),
            server("HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n"),
            client(request),
            server(answers.concat()),
        ],
        hold: vec![
            "flow:to_server; websocket.payload; content:\"Hello\"; bsize:5;",
            "flow:to_client; websocket.opcode:text; websocket.payload; content:\"Hello\"; bsize:5;",
            "flow:to_client; websocket.opcode:binary; websocket.payload; content:\"Hello\"; bsize:5;",
            "websocket.flags:comp;",
        ],
        fail: vec!["websocket.payload; content:\"|c9 c9|\";"],
    }
}

pub(super) fn pgsql_case() -> Case {
    let startup = b"\0\0\0\x13\0\x03\0\0user\0postgr\0\0";
    let mut startup = startup.to_vec();
    startup[3] = startup.len() as u8;
    let message =
        |kind: u8, body: &[u8]| [&[kind][..], &(4 + body.len() as u32).to_be_bytes(), body].concat();
    Case {
        protocol: "pgsql",
        is_udp: false,
        port: 5432,
        messages: vec![
            client(startup),
            server(message(b'R', &[0, 0, 0, 0])),
            client(message(b'Q', b"SELECT * FROM t\0")),
            server([message(b'C', b"SELECT 1\0"), message(b'Z', b"I")].concat()),
        ],
        hold: vec![
            "pgsql.query; content:\"SELECT *\";",
            "pgsql.query; content:\"select\"; nocase;",
        ],
        fail: vec!["pgsql.query; content:\"DELETE\";"],
    }
}

/// Returns a PDU of DCE/RPC over UDP: its type and its stub data.
fn dcerpc_datagram(kind: u8, stub: &[u8]) -> Vec<u8> {
    let mut bytes = vec![4, kind, 0, 0, 0x10, 0, 0, 0];
    bytes.extend([0; 16]);
    bytes.extend([4, 3, 2, 1, 6, 5, 8, 7, 9, 10, 11, 12, 13, 14, 15, 16]);
    bytes.extend([0x40; 16]);
    bytes.extend([0, 0, 0, 0, 2, 0, 1, 0, 7, 0, 0, 0, 3, 0, 0xff, 0xff, 0xff, 0xff]);
    bytes.extend((stub.len() as u16).to_le_bytes());
    bytes.extend([0, 0, 0, 0]);
    [bytes, stub.to_vec()].concat()
}

pub(super) fn dcerpc_udp_case() -> Case {
    Case {
        protocol: "dcerpc",
        is_udp: true,
        port: 34_964,
        messages: vec![
            client(dcerpc_datagram(0, b"\x2a\0\0\0stub")),
            server(dcerpc_datagram(2, b"answer")),
        ],
        hold: vec![
            "dcerpc.iface:01020304-0506-0708-090a-0b0c0d0e0f10;",
            "dcerpc.iface:01020304-0506-0708-090a-0b0c0d0e0f10,=2;",
            "dcerpc.opnum:3;",
            "dcerpc.opnum:1-3;",
            "dcerpc.stub_data; content:\"stub\";",
            "dcerpc.stub_data; byte_test:4,=,42,0,dce;",
            "flow:to_client; dcerpc.stub_data; content:\"answer\"; bsize:6;",
            "app-layer-protocol:dcerpc;",
        ],
        fail: vec![
            "dcerpc.iface:01020304-0506-0708-090a-0b0c0d0e0f11;",
            "dcerpc.iface:01020304-0506-0708-090a-0b0c0d0e0f10,>2;",
            "dcerpc.opnum:4;",
            "flow:to_server; dcerpc.stub_data; content:\"answer\";",
        ],
    }
}
