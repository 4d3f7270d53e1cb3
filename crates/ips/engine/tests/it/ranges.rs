//! Files that a client fetches over HTTP in ranges: rules see the places where ranges meet, and the file as a whole.

use md5::{Digest, Md5};
use millrace_ips_engine::app::file::FileState;
use millrace_ips_engine::{Event, Mode, Settings};
use millrace_types::Duration;

use crate::bed::{HOST_A, HOST_B, TestBed};
use crate::conversation::Conversation;
use crate::protocols::http2::{PREFACE, block, frame};
use crate::synthesis::random::Random;

const MODES: [Mode; 2] = [Mode::Ids, Mode::Ips];

/// A range of a file: its offset and its bytes.
type Range<'a> = (usize, &'a [u8]);

/// Returns the request and the response for a range of a file.
fn exchange(uri: &str, (offset, bytes): Range<'_>, total: &str) -> [Vec<u8>; 2] {
    let last = offset + bytes.len() - 1;
    let request =
        format!("GET {uri} HTTP/1.1\r\nHost: files.example\r\nRange: bytes={offset}-{last}\r\n\r\n");
    let head = format!(
        "HTTP/1.1 206 Partial Content\r\nContent-Range: bytes {offset}-{last}/{total}\r\nContent-Length: {}\r\n\r\n",
        bytes.len()
    );
    [request.into_bytes(), [head.as_bytes(), bytes].concat()]
}

/// An engine, and the connections of a client.
struct Client {
    bed: TestBed,
    talks: Vec<Conversation>,
    is_dropped: bool,
}

impl Client {
    fn new(settings: Settings, rules: &str) -> Client {
        Client {
            bed: TestBed::with(settings, rules),
            talks: Vec::new(),
            is_dropped: false,
        }
    }

    /// Fetches a range over a connection, in segments of a size.
    fn fetch(&mut self, connection: usize, [request, response]: &[Vec<u8>; 2], size: usize) {
        while self.talks.len() <= connection {
            let port = 40_000 + self.talks.len() as u16;
            let talk = Conversation::open(&mut self.bed, (HOST_A, port), (HOST_B, 80));
            self.talks.push(talk);
        }
        let talk = &mut self.talks[connection];
        talk.client(&mut self.bed, request);
        for part in response.chunks(size) {
            self.is_dropped |= talk.server(&mut self.bed, part);
        }
    }

    /// Ends the connections, and returns the rules that matched.
    fn finish(&mut self) -> Vec<u32> {
        for talk in &mut self.talks {
            talk.close(&mut self.bed);
        }
        self.bed.finish();
        self.bed.sids().into_iter().collect()
    }

    /// Returns the files in the records: size, state, and true for one that ranges make up.
    fn files(&self) -> Vec<(u64, FileState, bool)> {
        let files = |event: &Event| match event {
            Event::Transaction(transaction) => transaction.files.clone(),
            _ => Vec::new(),
        };
        let files = self.bed.events().iter().flat_map(files);
        files
            .map(|file| (file.size, file.state, file.is_joined))
            .collect()
    }
}

fn settings(mode: Mode) -> Settings {
    let mut settings = Settings {
        mode,
        records: true,
        ..Settings::default()
    };
    settings.app.hashes_files = true;
    settings
}

/// Rules over the file `ABCDEFGHIJKL`: the last three need the whole file.
const RULES: &str = "alert http any any -> any any (file.data; content:\"EFGH\"; sid:1;)\n\
    alert http any any -> any any (file.data; content:\"HI\"; offset:7; depth:2; sid:2;)\n\
    alert http any any -> any any (file.data; content:\"ABCDEFGHIJKL\"; startswith; bsize:12; sid:3;)\n\
    alert http any any -> any any (filesize:12; sid:4;)\n\
    alert http any any -> any any (file.data; content:\"EFGH\"; startswith; sid:9;)\n";

const NONE: [u32; 0] = [];

const FILE: &[u8] = b"ABCDEFGHIJKL";

fn ranges(cuts: &[(usize, usize)]) -> Vec<Range<'static>> {
    cuts.iter().map(|(from, to)| (*from, &FILE[*from..*to])).collect()
}

#[test]
fn contents_in_two_ranges_and_the_whole_file_are_found_in_any_order_and_segmentation_over_any_connections() {
    for mode in MODES {
        for cuts in [
            &[(0, 6), (6, 12)][..],
            &[(6, 12), (0, 6)],
            &[(0, 5), (5, 7), (7, 12)],
            &[(7, 12), (5, 7), (0, 5)],
            &[(5, 7), (0, 5), (7, 12)],
            &[(0, 7), (3, 12)],
            &[(3, 9), (0, 7), (7, 12)],
            &[(8, 12), (0, 6), (0, 6), (6, 8)],
        ] {
            for size in [1, 5, 1400] {
                for connections in 1..=2 {
                    let mut client = Client::new(settings(mode), RULES);
                    for (at, range) in ranges(cuts).into_iter().enumerate() {
                        client.fetch(at % connections, &exchange("/a/f?x", range, "12"), size);
                    }
                    let text = format!("{mode:?}, {cuts:?}, segments of {size}, {connections} connections");
                    assert_eq!(client.finish(), [1, 2, 3, 4], "{text}");
                    let whole = |file: &&(u64, FileState, bool)| file.2;
                    let files = client.files();
                    let joined: Vec<_> = files.iter().filter(whole).collect();
                    assert_eq!(joined, [&(12, FileState::Closed, true)], "{text}");
                    assert_eq!(files.len(), cuts.len() + 1, "{text}");
                }
            }
        }
    }
}

#[test]
fn in_line_the_segment_that_completes_a_content_or_a_file_is_dropped() {
    for rule in [
        "drop http any any -> any any (file.data; content:\"EFGH\"; sid:1;)",
        "drop http any any -> any any (filesize:12; sid:1;)",
    ] {
        for cuts in [[(0, 6), (6, 12)], [(6, 12), (0, 6)]] {
            let mut client = Client::new(settings(Mode::Ips), rule);
            let [first, second] = cuts.map(|(from, to)| exchange("/f", (from, &FILE[from..to]), "12"));
            client.fetch(0, &first, 1400);
            assert!(!client.is_dropped);
            client.fetch(1, &second, 1);
            assert!(client.is_dropped, "{rule}, {cuts:?}");
        }
    }
}

#[test]
fn ranges_of_other_files_of_other_versions_and_after_a_minute_are_not_joined() {
    let rules = "alert http any any -> any any (file.data; content:\"EFGH\"; sid:1;)\n\
        alert http any any -> any any (filesize:12; sid:2;)\n";
    let fetch = |second: [Vec<u8>; 2], pause: u64| {
        let mut client = Client::new(settings(Mode::Ids), rules);
        client.fetch(0, &exchange("/f", (0, &FILE[..6]), "12"), 1400);
        client.bed.now = client.bed.now + Duration::from_secs(pause);
        client.fetch(1, &second, 1400);
        client.finish()
    };
    let second = (6, &FILE[6..]);
    assert_eq!(fetch(exchange("/f", second, "12"), 59), [1, 2]);
    assert_eq!(fetch(exchange("/f", second, "12"), 61), NONE);
    assert_eq!(fetch(exchange("/g", second, "12"), 0), NONE);
    assert_eq!(fetch(exchange("/f?x", second, "12"), 0), NONE);
    // The place where two ranges meet is inspected before the size shows that they are of different files.
    assert_eq!(fetch(exchange("/f", second, "13"), 0), [1]);
    // Bytes that differ begin the file again: the first five are missing then.
    assert_eq!(fetch(exchange("/f", (5, b"XGHIJKL"), "12"), 0), NONE);
}

#[test]
fn a_file_of_unknown_size_has_no_record_but_its_contents_are_found() {
    for mode in MODES {
        let mut client = Client::new(settings(mode), RULES);
        for range in ranges(&[(0, 6), (6, 12)]) {
            client.fetch(0, &exchange("/f", range, "*"), 3);
        }
        // The size of the file is a test of the whole file.
        assert_eq!(client.finish(), [1, 2], "{mode:?}");
        assert!(client.files().iter().all(|file| !file.2));
    }
}

#[test]
fn a_file_in_random_ranges_is_the_same_as_in_one_piece() {
    for seed in 0..20 {
        let random = &mut Random(seed);
        let size = 1 + random.below(4000);
        let file: Vec<u8> = (0..size).map(|_| b"ABCD"[random.below(4)]).collect();
        let digest: String = Md5::digest(&file)
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        // A content of 40 letters from anywhere, and one that is nowhere.
        let from = random.below(size.saturating_sub(40).max(1));
        let content = String::from_utf8(file[from..size.min(from + 40)].to_vec()).unwrap();
        let rules = format!(
            "alert http any any -> any any (file.data; content:\"{content}\"; sid:1;)\n\
            alert http any any -> any any (filesize:{size}; filestore; sid:2;)\n\
            alert http any any -> any any (file.data; content:\"{content}E\"; sid:3;)\n"
        );
        let mut settings = settings(random.choose(&MODES));
        settings.app.store_limit = 1 << 20;
        let mut client = Client::new(settings, &rules);
        let step = 1 + random.below(3000);
        let mut cuts: Vec<(usize, usize)> = (0..size)
            .step_by(step)
            .map(|from| {
                let to = (from + step + random.below(100)).min(size);
                (from, to)
            })
            .collect();
        for at in (1..cuts.len()).rev() {
            cuts.swap(at, random.below(at + 1));
        }
        if cuts == [(0, size)] {
            continue;
        }
        for (from, to) in &cuts {
            let total = size.to_string();
            let size = random.choose(&[7, 100, 1400]);
            let connection = random.below(3);
            client.fetch(
                connection,
                &exchange("/f", (*from, &file[*from..*to]), &total),
                size,
            );
        }
        let text = format!("seed {seed}, {cuts:?}");
        assert_eq!(client.finish(), [1, 2], "{text}");
        let whole = client.bed.events().iter().find_map(|event| match event {
            Event::Transaction(transaction) => transaction.files.iter().find(|file| file.is_joined),
            _ => None,
        });
        let whole = whole.unwrap();
        let found: String = whole
            .hashes
            .as_ref()
            .unwrap()
            .md5
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        assert_eq!(
            (whole.size, whole.is_stored, found),
            (size as u64, true, digest),
            "{text}"
        );
        let mut stored = Vec::new();
        for event in client.bed.events() {
            if let Event::File(part) = event
                && part.size == size as u64
            {
                stored.extend_from_slice(&part.bytes);
            }
        }
        assert_eq!(stored, file, "{text}");
    }
}

#[test]
fn a_file_whose_first_range_a_rule_stores_is_stored_whole() {
    let rules = "alert http any any -> any any (file.data; content:\"ABC\"; startswith; bsize:6; filestore; sid:1;)\n";
    for mode in MODES {
        let mut settings = settings(mode);
        settings.app.store_limit = 1 << 20;
        let mut client = Client::new(settings, rules);
        for (at, range) in ranges(&[(0, 6), (6, 12)]).into_iter().enumerate() {
            client.fetch(at, &exchange("/f", range, "12"), 1400);
            // In mode `ids`, the data are inspected with the next packet of the server.
            client.talks[at].close(&mut client.bed);
        }
        client.bed.finish();
        let stored = client.bed.events().iter().filter_map(|event| match event {
            Event::File(part) => Some(part.bytes.clone()),
            _ => None,
        });
        assert_eq!(stored.collect::<Vec<_>>(), [&FILE[..6], FILE], "{mode:?}");
    }
}

#[test]
fn a_range_with_lost_bytes_is_joined_once_they_come() {
    for mode in MODES {
        let mut client = Client::new(settings(mode), RULES);
        let [request, response] = exchange("/f", (0, &FILE[..8]), "12");
        // The connection ends within the range.
        client.fetch(0, &[request, response[..response.len() - 4].to_vec()], 1400);
        client.talks[0].close(&mut client.bed);
        client.fetch(1, &exchange("/f", (6, &FILE[6..]), "12"), 1400);
        client.fetch(1, &exchange("/f", (4, &FILE[4..6]), "12"), 1400);
        assert_eq!(client.finish(), [1, 2, 3, 4], "{mode:?}");
    }
}

#[test]
fn ranges_over_http_2_are_joined_to_those_over_http_1() {
    const END_STREAM: u8 = 1;
    const END_HEADERS: u8 = 4;
    for mode in MODES {
        for size in [1, 1400] {
            let mut client = Client::new(settings(mode), RULES);
            client.fetch(0, &exchange("/f", (0, &FILE[..5]), "12"), size);
            let range = |stream: u32, (from, to): (usize, usize)| {
                let fields = [
                    (":method", "GET"),
                    (":path", "/f"),
                    (":authority", "files.example"),
                ];
                let span = format!("bytes {from}-{}/12", to - 1);
                let answer = [(":status", "206"), ("content-range", &*span)];
                let response = [
                    frame(1, END_HEADERS, stream, &block(&answer)),
                    frame(0, END_STREAM, stream, &FILE[from..to]),
                ];
                [
                    frame(1, END_STREAM | END_HEADERS, stream, &block(&fields)),
                    response.concat(),
                ]
            };
            let begin = [[PREFACE, &frame(4, 0, 0, &[])].concat(), frame(4, 0, 0, &[])];
            client.fetch(1, &begin, size);
            client.fetch(1, &range(1, (8, 12)), size);
            client.fetch(1, &range(3, (5, 8)), size);
            assert_eq!(client.finish(), [1, 2, 3, 4], "{mode:?}, {size}");
        }
    }
}

#[test]
fn the_bytes_beside_a_range_fulfil_no_test_that_needs_the_whole_file() {
    let mut file = vec![b'.'; 6000];
    file[3000..3003].copy_from_slice(b"BAD");
    file[5990..5993].copy_from_slice(b"END");
    let rules = "alert http any any -> any any (file.data; content:\"END\"; content:!\"BAD\"; sid:1;)\n\
        alert http any any -> any any (file.data; content:\".END\"; endswith; sid:2;)\n\
        alert http any any -> any any (file.data; content:\"END\"; bsize:<2500; sid:3;)\n\
        alert http any any -> any any (file.data; content:\"END\"; isdataat:!500,relative; sid:4;)\n\
        alert http any any -> any any (file.data; content:\"END\"; offset:5990; depth:3; pcre:\"/END\\.{7,}/\"; sid:5;)\n\
        alert http any any -> any any (file.data; content:\"END\"; content:\"BAD\"; bsize:6000; sid:6;)\n";
    for mode in MODES {
        for cuts in [&[(5995, 6000), (0, 5995)][..], &[(0, 2900), (2900, 6000)]] {
            let mut client = Client::new(settings(mode), rules);
            for (from, to) in cuts {
                client.fetch(0, &exchange("/f", (*from, &file[*from..*to]), "6000"), 1400);
            }
            // The whole file has END ten bytes before its end.
            assert_eq!(client.finish(), [4, 5, 6], "{mode:?}, {cuts:?}");
        }
    }
}

/// Returns the request and the response for several ranges of a file at once.
fn several(uri: &str, parts: &[Range<'_>], total: &str) -> [Vec<u8>; 2] {
    let request = format!("GET {uri} HTTP/1.1\r\nHost: files.example\r\n\r\n");
    let mut body = Vec::new();
    for (offset, bytes) in parts {
        let last = offset + bytes.len() - 1;
        body.extend_from_slice(
            format!(
                "\r\n--THIS\r\nContent-Type: a/b\r\nContent-Range: bytes {offset}-{last}/{total}\r\n\r\n"
            )
            .as_bytes(),
        );
        body.extend_from_slice(bytes);
    }
    body.extend_from_slice(b"\r\n--THIS--\r\n");
    let head = format!(
        "HTTP/1.1 206 Partial Content\r\nContent-Type: multipart/byteranges; boundary=THIS\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    [request.into_bytes(), [head.into_bytes(), body].concat()]
}

#[test]
fn the_parts_of_one_response_are_joined_with_each_other_and_with_other_responses() {
    for mode in MODES {
        for size in [1, 5, 1400] {
            for cuts in [
                &[(0, 6), (6, 12)][..],
                &[(6, 12), (0, 6)],
                &[(0, 5), (7, 12), (5, 7)],
                &[(0, 7), (3, 12)],
            ] {
                let mut client = Client::new(settings(mode), RULES);
                client.fetch(0, &several("/f", &ranges(cuts), "12"), size);
                assert_eq!(client.finish(), [1, 2, 3, 4], "{mode:?}, {cuts:?}, {size}");
                let joined = client.files().into_iter().filter(|file| file.2);
                assert_eq!(joined.collect::<Vec<_>>(), [(12, FileState::Closed, true)]);
            }
            let mut client = Client::new(settings(mode), RULES);
            client.fetch(0, &several("/f", &ranges(&[(8, 12), (0, 3)]), "12"), size);
            client.fetch(1, &exchange("/f", (3, &FILE[3..8]), "12"), size);
            assert_eq!(client.finish(), [1, 2, 3, 4], "{mode:?}, {size}");
        }
    }
}

#[test]
fn in_line_the_segment_of_a_part_that_completes_a_content_is_dropped() {
    let rule = "drop http any any -> any any (file.data; content:\"EFGH\"; sid:1;)";
    let mut client = Client::new(settings(Mode::Ips), rule);
    let [request, response] = several("/f", &ranges(&[(0, 6), (6, 12)]), "12");
    let end = response.windows(2).position(|window| window == b"GH").unwrap() + 2;
    client.fetch(0, &[request, response[..end - 1].to_vec()], 1400);
    assert!(!client.is_dropped);
    assert!(client.talks[0].server(&mut client.bed, &response[end - 1..end]));
}

#[test]
fn ranges_are_left_alone_if_no_rule_and_no_record_asks_for_files() {
    let memory = |buffer: &str| {
        let mut settings = settings(Mode::Ids);
        settings.records = false;
        let rules = format!("alert http any any -> any any ({buffer}; content:\"EFGH\"; sid:1;)\n");
        let mut client = Client::new(settings, &rules);
        for range in ranges(&[(0, 5), (7, 12)]) {
            client.fetch(0, &exchange("/f", range, "12"), 1400);
        }
        client.bed.engine.parser_memory()
    };
    assert!(memory("http.response_body") + 512 < memory("file.data"));
}
