//! The cost of parsing a packet before lookup, and of a rewrite, in nanoseconds per packet.
//!
//! `cargo bench -p millrace-wire --bench parse`. Each iteration goes over a burst of 32 different packets,
//! as a worker does, so that branches are not predicted by one packet's history; the throughput that
//! criterion prints is in packets.

use std::hint::black_box;
use std::net::Ipv6Addr;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use millrace_types::Mac;
use millrace_wire::{Builder, Depth, L4, Layers, checksum, rewrite, tcp};

const BURST: usize = 32;

fn eth(i: usize) -> Builder<'static> {
    Builder::ethernet(Mac([2, 0, 0, 0, 1, i as u8]), Mac([2, 0, 0, 0, 0, i as u8]))
}

fn burst(build: impl Fn(usize) -> Builder<'static>) -> Vec<Vec<u8>> {
    (0..BURST).map(|i| build(i).pad_to(60).build()).collect()
}

fn ack(i: usize) -> tcp::Repr<'static> {
    tcp::Repr {
        src: 1024 + i as u16,
        dst: 80,
        seq: i as u32,
        flags: tcp::flags::ACK,
        ..tcp::Repr::default()
    }
}

fn v6(i: usize) -> Ipv6Addr {
    Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, i as u16)
}

fn parse(criterion: &mut Criterion) {
    let ipv4 = |i| eth(i).ipv4([10, 0, 0, i as u8], [10, 1, 0, 1]);
    let kinds: [(&str, Vec<Vec<u8>>); 7] = [
        ("tcp", burst(|i| ipv4(i).tcp(ack(i)))),
        ("udp", burst(|i| ipv4(i).udp(i as u16, 53).payload(&[0; 18]))),
        (
            "vlan tcp",
            burst(|i| {
                eth(i)
                    .vlan(i as u16, 0)
                    .ipv4([10, 0, 0, 1], [10, 1, 0, 1])
                    .tcp(ack(i))
            }),
        ),
        ("tcp over ipv6", burst(|i| eth(i).ipv6(v6(i), v6(1)).tcp(ack(i)))),
        (
            "ipv6 with two extension headers",
            burst(|i| {
                let options = &[0, 0, 1, 4, 0, 0, 0, 0];
                let ip = eth(i).ipv6(v6(i), v6(1));
                ip.extension(millrace_wire::IpProto::HOP_BY_HOP, options)
                    .extension(millrace_wire::IpProto::DEST_OPTIONS, options)
                    .tcp(ack(i))
            }),
        ),
        (
            "two mpls labels",
            burst(|i| eth(i).mpls(i as u32, 0, 64).mpls(16, 0, 64).ipv4([1; 4], [2; 4])),
        ),
        (
            "mixed",
            burst(|i| match i % 4 {
                0 => ipv4(i).tcp(ack(i)),
                1 => eth(i).vlan(1, 0).ipv4([1; 4], [2; 4]).udp(1, 2),
                2 => eth(i).ipv6(v6(i), v6(1)).udp(1, 2),
                _ => eth(i).mpls(i as u32, 0, 64).ipv4([1; 4], [2; 4]),
            }),
        ),
    ];
    let mut group = criterion.benchmark_group("parse");
    group.throughput(Throughput::Elements(BURST as u64));
    for (name, frames) in &kinds {
        for depth in [Depth::L2, Depth::L3, Depth::L4, Depth::All] {
            // Depths other than `All` are measured for TCP only, because other packet types give no further
            // information.
            if *name != "tcp" && depth != Depth::All {
                continue;
            }
            group.bench_function(format!("{name}/{depth:?}"), |bencher| {
                let mut maps = [Layers::NONE; BURST];
                bencher.iter(|| {
                    for (map, frame) in maps.iter_mut().zip(black_box(frames)) {
                        *map = Layers::parse(frame, depth);
                    }
                    black_box(&maps);
                });
            });
        }
    }
}

fn rewrites(criterion: &mut Criterion) {
    let mut frame = eth(1).ipv4([10, 0, 0, 1], [10, 0, 0, 2]).tcp(ack(1)).build();
    let layers = Layers::parse(&frame, Depth::All);
    let mut group = criterion.benchmark_group("rewrite");
    let mut n = 0u32;
    group.bench_function("ipv4 source", |bencher| {
        bencher.iter(|| {
            n = n.wrapping_add(1);
            rewrite::ipv4_src(black_box(&mut frame), &layers, n.into())
        });
    });
    group.bench_function("tcp source", |bencher| {
        bencher.iter(|| {
            n = n.wrapping_add(1);
            rewrite::l4_src(black_box(&mut frame), &layers, L4::Tcp, n as u16)
        });
    });
    group.bench_function("ipv4 time to live", |bencher| {
        bencher.iter(|| {
            n = n.wrapping_add(1);
            rewrite::ip_ttl(black_box(&mut frame), &layers, n as u8)
        });
    });
    let mut frame = eth(1)
        .ipv4([1; 4], [2; 4])
        .sctp(1, 2, 3)
        .payload(&[0; 1448])
        .build();
    let layers = Layers::parse(&frame, Depth::All);
    group.bench_function("sctp source", |bencher| {
        bencher.iter(|| {
            n = n.wrapping_add(1);
            rewrite::l4_src(black_box(&mut frame), &layers, L4::Sctp, n as u16)
        });
    });
}

fn sums(criterion: &mut Criterion) {
    let bytes = [0x5a; 1460];
    let mut group = criterion.benchmark_group("checksum of 1460 bytes");
    group.throughput(Throughput::Bytes(bytes.len() as u64));
    group.bench_function("internet", |bencher| {
        bencher.iter(|| checksum::internet(black_box(&bytes)));
    });
    group.bench_function("crc32c", |bencher| {
        bencher.iter(|| checksum::crc32c::of(black_box(&bytes)));
    });
}

criterion_group!(benches, parse, rewrites, sums);
criterion_main!(benches);
