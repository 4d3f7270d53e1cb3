//! Rules in the older style: a modifier behind each content names its buffer, and options that read bytes continue in the
//! buffer of the last match.

use millrace_ips_engine::Mode;
use millrace_ips_engine::detect::CompileSettings;

use crate::frames::{alerts, rules, tcp, udp};

const REQUEST: &str =
    "GET /%67ate.php HTTP/1.1\r\nHost: example.net\r\nUser-Agent: curl/8\r\nCookie: id=42\r\n\r\n";

/// Returns the numbers of the rules that match the request, in segments of each size; each rule is a list of options.
fn found(options: &[String], sizes: &[usize]) -> Vec<u32> {
    let text: String = (1..)
        .zip(options)
        .map(|(sid, options)| format!("alert http any any -> any any ({options} sid:{sid};)\n"))
        .collect();
    let messages = [(false, REQUEST.as_bytes().to_vec())];
    let mut all = Vec::new();
    for mode in [Mode::Ids, Mode::Ips] {
        for &size in sizes {
            let set = rules(&text, &CompileSettings::default());
            let mut found = alerts(&set, &tcp(80, &messages, size), mode);
            found.sort_unstable();
            all.push(found);
        }
    }
    assert!(all.iter().all(|found| *found == all[0]), "{all:?}");
    all.swap_remove(0)
}

#[test]
fn relative_options_continue_in_the_buffer_of_the_last_match() {
    let buffers = [
        ("http_uri", "/ga", "te.php"),
        ("http_raw_uri", "/%67a", "te.php"),
        ("http_method", "G", "ET"),
        ("http_user_agent", "cu", "rl/8"),
        ("http_cookie", "id=", "42"),
        ("http_host", "exam", "ple.net"),
    ];
    for (modifier, matched, rest) in buffers {
        let (next, len) = (rest.as_bytes()[0], rest.len());
        let of = |reader: &str| format!("content:\"{matched}\"; {modifier}; {reader}");
        let right = [
            of(&format!("byte_test:1,=,{next},0,relative;")),
            of(&format!("isdataat:{len},relative;")),
            of(&format!("isdataat:!{},relative;", len + 1)),
            of("byte_extract:1,0,first,relative; byte_test:1,=,first,-1,relative;"),
            of(&format!(
                "byte_jump:0,0,relative,post_offset {len}; isdataat:!1,relative;"
            )),
        ];
        let wrong = [
            of(&format!("byte_test:1,=,{},0,relative;", next + 1)),
            of(&format!("isdataat:{},relative;", len + 1)),
            of(&format!("isdataat:!{len},relative;")),
            of(&format!(
                "byte_jump:0,0,relative,post_offset {}; isdataat:1,relative;",
                len
            )),
        ];
        let all: Vec<String> = right.iter().chain(&wrong).cloned().collect();
        let expected: Vec<u32> = (1..=right.len() as u32).collect();
        assert_eq!(found(&all, &[1460, 1]), expected, "{modifier}");
    }
}

#[test]
fn an_option_that_is_not_relative_reads_the_payload() {
    let options = [
        "content:\"/ga\"; http_uri; byte_test:1,=,0x47,0;".to_owned(),
        "content:\"/ga\"; http_uri; byte_test:1,=,0x2f,0;".to_owned(),
    ];
    assert_eq!(found(&options, &[1460]), [1]);
}

#[test]
fn urilen_is_the_size_of_the_normalised_uri_unless_it_is_raw() {
    let options = ["9", "9,norm", "11,raw", "11", "9,raw", "11,norm"].map(|value| format!("urilen:{value};"));
    assert_eq!(found(&options, &[1460, 1]), [1, 2, 3]);
}

#[test]
fn byte_jump_of_no_bytes_moves_by_its_post_offset() {
    let of = |jump: &str| {
        let set = rules(
            &format!(
                "alert udp any any -> any 80 (content:\"CD\"; {jump} content:\"GH\"; distance:0; within:2; sid:1;)"
            ),
            &CompileSettings::default(),
        );
        alerts(&set, &[udp(80, false, b"ABCDEFGH")], Mode::Ids)
    };
    assert_eq!(of("byte_jump:0,0,relative,post_offset 2;"), [1]);
    assert_eq!(of("byte_jump:0,2,relative;"), [1]);
    assert_eq!(of("byte_jump:0,4,post_offset 2;"), [1]);
    for wrong in [
        "byte_jump:0,0,relative,post_offset 1;",
        "byte_jump:0,0,relative,post_offset 3;",
        "byte_jump:0,0,relative;",
        "byte_jump:0,9,relative;",
    ] {
        assert!(of(wrong).is_empty(), "{wrong}");
    }
}
