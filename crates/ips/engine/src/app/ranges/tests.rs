use core::net::IpAddr;

use super::*;
use crate::app::AppProtocol;
use crate::app::file::STORE_LIMIT;

const KEY: FlowKey = FlowKey {
    client: IpAddr::V4(core::net::Ipv4Addr::new(192, 0, 2, 1)),
    server: IpAddr::V4(core::net::Ipv4Addr::new(192, 0, 2, 2)),
    client_port: 40_000,
    server_port: 80,
    protocol: 6,
    vlans: [0; 3],
    tunnel_depth: 0,
};

fn settings() -> AppSettings {
    AppSettings {
        hashes_files: true,
        store_limit: STORE_LIMIT,
        ..AppSettings::default()
    }
}

/// Joins a range of a file, and returns its transaction.
fn join(
    files: &mut RangedFiles,
    (uri, start, bytes): (&str, u64, &[u8]),
    total: &str,
    now: Time,
) -> Transaction {
    let mut out = Transactions::default();
    let transaction = out.start(AppProtocol::Http);
    transaction.publish(Buffer::HttpUri, Direction::ToServer, uri.as_bytes());
    transaction.publish(Buffer::HttpHost, Direction::ToServer, b"a".as_slice());
    let range = format!("bytes {start}-{}/{total}", start + bytes.len() as u64 - 1);
    let mut part = RangePart::new(range.as_bytes(), b"f", &settings()).unwrap();
    part.add(bytes);
    part.end();
    transaction.range = Some(Box::new(RangeParts::new(Some(part))));
    files.join(&KEY, &settings(), &mut out, now);
    out.list.pop_front().unwrap()
}

fn data(transaction: &Transaction) -> Vec<(u64, Vec<u8>)> {
    let views = transaction.buffers(Buffer::FileData, SIDE);
    views.map(|view| (view.offset, view.bytes.to_vec())).collect()
}

fn table(limit: usize) -> RangedFiles {
    RangedFiles::new(limit, Seed([1, 2]))
}

#[test]
fn the_bytes_on_both_sides_of_a_range_are_inspected_with_its_ends_and_the_whole_at_last() {
    let mut files = table(1 << 20);
    let file: Vec<u8> = (0..7000_u32).map(|at| (at % 251) as u8).collect();
    let now = Time::from_secs(1);
    let part = |files: &mut RangedFiles, from: usize, to: usize| {
        let transaction = join(files, ("/f", from as u64, &file[from..to]), "7000", now);
        (data(&transaction), transaction.files.len())
    };
    assert_eq!(part(&mut files, 4000, 7000), (vec![], 0));
    let behind = (4000 - 1024, file[4000 - 1024..4000 + 1024].to_vec());
    assert_eq!(part(&mut files, 2500, 4000), (vec![behind], 0));
    // A range of less than 1 KiB has one buffer for both ends.
    let around = (2400, file[2400..2500 + 1024].to_vec());
    assert_eq!(part(&mut files, 2400, 2500), (vec![around], 0));
    let before = (0, file.clone());
    let end = (2400 - 1024, file[2400 - 1024..2400 + 1024].to_vec());
    assert_eq!(part(&mut files, 0, 2400), (vec![end, before], 1));
    assert_eq!(files.size(), 0);
}

#[test]
fn the_files_that_were_used_longest_ago_are_forgotten_if_there_are_too_many_and_idle_ones_in_any_case() {
    let mut files = table(64 << 10);
    let now = Time::from_secs(1);
    for number in 0..200 {
        let uri = format!("/{number}");
        join(&mut files, (&uri, 5, b"world"), "10", now);
        assert!(files.size() <= 64 << 10);
    }
    let is_known = |files: &mut RangedFiles, uri: &str| {
        let transaction = join(files, (uri, 0, b"hello"), "10", now);
        transaction
            .files
            .iter()
            .any(|file| file.is_joined && file.size == 10)
    };
    assert!(!is_known(&mut files, "/0"));
    assert!(is_known(&mut files, "/199") && is_known(&mut files, "/190"));
    assert!(files.list.len() > 20 && files.list.len() == files.order.len());
    join(
        &mut files,
        ("/other", 1, b"x"),
        "10",
        now + Duration::from_secs(61),
    );
    assert_eq!((files.list.len(), files.order.len()), (1, 1));
    files.clear();
    assert_eq!((files.size(), files.list.len(), files.order.len()), (0, 0, 0));
}

#[test]
fn bytes_behind_holes_are_kept_up_to_a_limit() {
    let mut files = table(8 << 20);
    let now = Time::from_secs(1);
    for at in (1..4000_u64).rev() {
        join(&mut files, ("/f", at * 300, &[b'x'; 300]), "1200000", now);
    }
    let size = files.size();
    assert!((1 << 19..3 << 20).contains(&size), "{size}");
    // The file is not whole, since bytes behind holes were not kept.
    let last = join(&mut files, ("/f", 0, &[b'x'; 300]), "1200000", now);
    assert!(last.files.is_empty());
    assert_eq!(data(&last), vec![]);
}

#[test]
fn bytes_of_a_range_whose_request_is_not_known_are_not_kept() {
    let mut files = table(1 << 20);
    let mut out = Transactions::default();
    let transaction = out.start(AppProtocol::Http);
    let mut part = RangePart::new(b"bytes 0-99/200", b"f", &settings()).unwrap();
    part.add(&[0; 50]);
    transaction.range = Some(Box::new(RangeParts::new(Some(part))));
    files.join(&KEY, &settings(), &mut out, Time::from_secs(1));
    assert!(out.list[0].range.is_none());
    assert_eq!(files.size(), 0);
}
