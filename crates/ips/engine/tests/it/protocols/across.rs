//! Rules over several buffers of a transaction: variables that one buffer sets for those behind it, files side by side, and the
//! protocol of the flow beside them.

use millrace_ips_engine::Mode;

use super::{Case, client, server};
use crate::bed::{HOST_A, HOST_B, TestBed};
use crate::conversation::Conversation;

/// A request and a response with numbers in several buffers.
pub(super) fn variables_case() -> Case {
    Case {
        protocol: "http",
        is_udp: false,
        port: 80,
        messages: vec![
            client("POST /n/05?x HTTP/1.1\r\nHost: a.example\r\nContent-Length: 12\r\n\r\nsize=07;;abc"),
            server("HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\nbody=204"),
        ],
        hold: vec![
            "http.uri; content:\"/n/\"; byte_extract:2,0,v,relative,string,dec; http.request_body; content:\"size=\"; \
                byte_test:2,>,v,0,relative,string,dec;",
            "http.uri; content:\"/n/\"; byte_extract:2,0,v,relative,string,dec; http.host; content:\"a\"; isdataat:v,relative; \
                http.request_body; content:\"size=\"; byte_math:bytes 2, offset 0, oper -, rvalue v, result w, relative, string dec; \
                content:\"abc\"; distance:w; within:3;",
            "http.stat_code; byte_extract:3,0,base,string,dec; byte_math:bytes 3, offset 0, oper +, rvalue base, result total, \
                string dec; file.data; content:\"body=\"; byte_test:3,<,total,0,relative,string,dec;",
            "content:\"/n/\"; http_uri; byte_extract:2,0,v,relative,string,dec; content:\"size=\"; http_client_body; \
                byte_test:2,>,v,0,relative,string,dec;",
        ],
        fail: vec![
            "http.uri; content:\"/n/\"; byte_extract:2,0,v,relative,string,dec; http.request_body; content:\"size=\"; \
                byte_test:2,<,v,0,relative,string,dec;",
            "http.uri; content:\"/n/\"; byte_extract:2,0,v,relative,string,dec; content:\"y\"; http.request_body; \
                content:\"size=\"; byte_test:2,>,v,0,relative,string,dec;",
            "http.stat_code; byte_extract:3,0,base,string,dec; file.data; content:\"body=\"; \
                byte_test:3,<,base,0,relative,string,dec;",
        ],
    }
}

/// A form with two files.
pub(super) fn files_case() -> Case {
    let part = |name: &str, text: &str| {
        format!(
            "--b\r\nContent-Disposition: form-data; name=\"f\"; filename=\"{name}\"\r\nContent-Type: text/plain\r\n\r\n{text}\r\n"
        )
    };
    let body = format!(
        "{}{}--b--\r\n",
        part("one.txt", "a boat at sea"),
        part("two.txt", "a cat at home")
    );
    let head = format!(
        "POST /form HTTP/1.1\r\nHost: a\r\nContent-Type: multipart/form-data; boundary=b\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    Case {
        protocol: "http",
        is_udp: false,
        port: 80,
        messages: vec![
            client(head + &body),
            server("HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n"),
        ],
        hold: vec![
            "file.data; content:\"boat\"; file.name; content:\"one.txt\";",
            "file.data; content:\"boat\"; file.name; content:\"two.txt\";",
            "file.data; content:\"boat\"; file.data; content:\"cat\";",
            "file.name; content:\"two\"; file.name; content:\"one\";",
        ],
        fail: vec![
            "file.data; content:\"boat\"; content:\"cat\";",
            "file.name; content:\"one\"; content:\"two\";",
            "file.data; content:\"boat\"; file.data; content:\"dog\";",
        ],
    }
}

/// A request and a response, and conditions on their protocol.
pub(super) fn protocol_case() -> Case {
    Case {
        protocol: "tcp",
        is_udp: false,
        port: 80,
        messages: vec![
            client("GET /word HTTP/1.1\r\nHost: a\r\n\r\n"),
            server("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"),
        ],
        hold: vec![
            "http.uri; content:\"/word\"; app-layer-protocol:http;",
            "http.uri; content:\"/word\"; app-layer-protocol:dns|http;",
            "http.uri; content:\"/word\"; app-layer-protocol:unknown|http1,exact;",
            "http.uri; content:\"/word\"; app-layer-protocol:!tls|dns;",
            "http.uri; content:\"/word\"; app-layer-protocol:!dcerpc,either; app-layer-protocol:http,to_server;",
            "http.stat_code; content:\"200\"; app-layer-protocol:tls|http,to_client; app-layer-protocol:http1,final,exact;",
        ],
        fail: vec![
            "http.uri; content:\"/word\"; app-layer-protocol:http2,exact;",
            "http.uri; content:\"/word\"; app-layer-protocol:!http1,final;",
            "http.uri; content:\"/word\"; app-layer-protocol:!tls|http;",
            "http.uri; content:\"/word\"; app-layer-protocol:http,original;",
            "http.uri; content:\"/word\"; app-layer-protocol:unknown;",
            "http.uri; content:\"/word\"; app-layer-protocol:tls|ssh,either;",
        ],
    }
}

#[test]
fn each_of_several_requests_has_variables_of_its_own() {
    let rules = "alert http any any => any any (http.uri; content:\"/n/\"; byte_extract:2,0,v,relative,string,dec; \
        http.stat_msg; content:\"O\"; isdataat:!v,relative; sid:1;)\n\
        alert http any any => any any (http.uri; content:\"/n/\"; byte_extract:2,0,v,relative,string,dec; \
        http.stat_code; content:\"200\"; file.data:to_client; content:\"n=\"; byte_test:2,>,v,0,relative,string,dec; sid:2;)";
    for mode in [Mode::Ids, Mode::Ips] {
        let mut bed = TestBed::new(mode, rules);
        let mut talk = Conversation::open(&mut bed, (HOST_A, 40_000), (HOST_B, 80));
        let request = |n: &str| format!("GET /n/{n} HTTP/1.1\r\nHost: a\r\n\r\n").into_bytes();
        talk.client(&mut bed, &request("01"));
        talk.client(&mut bed, &request("08"));
        for n in ["05", "05"] {
            let response = format!("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nn={n}");
            talk.server(&mut bed, response.as_bytes());
        }
        talk.close(&mut bed);
        bed.finish();
        let mut found: Vec<(u32, Option<u64>)> = bed
            .events()
            .iter()
            .filter_map(|event| match event {
                millrace_ips_engine::Event::Alert(alert) => Some((alert.sid, alert.transaction)),
                _ => None,
            })
            .collect();
        found.sort_unstable();
        // Behind the O there is 1 byte, and there are not 8; 5 is more than 1, and not more than 8.
        assert_eq!(
            found.iter().map(|(sid, _)| *sid).collect::<Vec<_>>(),
            [1, 2],
            "{mode:?}"
        );
        assert!(found[0].1 > found[1].1, "{mode:?}: {found:?}");
    }
}

#[test]
fn a_protocol_is_unknown_until_it_is_recognised() {
    let rules = "alert tcp any any -> any any (flow:established,to_server; dsize:1; app-layer-protocol:unknown; sid:1;)\n\
        alert tcp any any -> any any (flow:established,to_server; dsize:>1; app-layer-protocol:unknown; sid:2;)\n\
        alert tcp any any -> any any (flow:established,to_server; dsize:1; app-layer-protocol:!http; sid:3;)\n\
        alert tcp any any -> any any (flow:established,to_server; dsize:>1; app-layer-protocol:unknown|http; sid:4;)";
    // In mode `ids` the bytes are parsed with their acknowledgment, so the second packet comes before that.
    for (mode, expected) in [(Mode::Ips, vec![1, 4]), (Mode::Ids, vec![1, 2, 4])] {
        let mut bed = TestBed::new(mode, rules);
        let mut talk = Conversation::open(&mut bed, (HOST_A, 40_000), (HOST_B, 80));
        talk.client(&mut bed, b"G");
        talk.client(&mut bed, b"ET / HTTP/1.1\r\nHost: a\r\n\r\n");
        talk.close(&mut bed);
        bed.finish();
        assert_eq!(bed.sids(), expected.into_iter().collect(), "{mode:?}");
    }
}
