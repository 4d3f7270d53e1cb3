//! Devices are attached and detached while the process runs, without huge pages, hardware or root.

#![allow(clippy::unwrap_used, reason = "a test's helpers are tests too")]

use crate::eal_once::eal;
use arrayvec::ArrayVec;
use millrace_dpdk::{
    Mbuf, Mempool, MempoolConfig, Port, PortConfig, PortError, PortStats, Queues, RxQueue, StartError,
    TxLimits,
};

fn pool(name: &str) -> Mempool {
    Mempool::new(
        eal(),
        &MempoolConfig {
            cache_len: 64,
            ..MempoolConfig::new(name, 2047)
        },
    )
    .unwrap()
}

fn attach(devargs: &str) -> Port {
    Port::attach(eal(), &devargs.parse().unwrap()).unwrap()
}

fn bytes(packet: &Mbuf) -> Vec<u8> {
    packet.segments().flatten().copied().collect()
}

/// Polls until `burst` has `count` packets, for at most a minute.
fn receive(rx: &mut RxQueue, burst: &mut ArrayVec<Mbuf, 32>, count: usize) {
    let start = std::time::Instant::now();
    while burst.len() < count && start.elapsed().as_secs() < 60 {
        rx.rx_burst(burst);
    }
}

#[test]
fn a_null_device_delivers_and_swallows() {
    let pool = pool("null");
    let mut port = attach("net_null0,size=100");
    let info = port.info().unwrap();
    assert_eq!(
        (info.name.as_str(), info.driver.as_str(), info.id),
        ("net_null0", "net_null", port.id())
    );
    assert!(info.max_rx_queues >= 1 && info.max_tx_queues >= 1);
    assert_ne!(info.mac, [0; 6]);

    let Queues { mut rx, mut tx } = port.start(&PortConfig::default(), pool).unwrap();
    assert!(port.link().unwrap().up);
    let mut burst = ArrayVec::<Mbuf, 32>::new();
    assert_eq!(rx[0].rx_burst(&mut burst), 32);
    assert_eq!(rx[0].rx_burst(&mut burst), 0, "a full burst takes no more");
    assert!(
        burst
            .iter()
            .all(|packet| packet.len() == 100 && packet.port() == port.id())
    );
    assert_eq!(tx[0].tx_burst(&mut burst), 32);
    assert!(burst.is_empty());
    assert_eq!(tx[0].tx_burst(&mut burst), 0);

    let stats = port.stats().unwrap();
    assert_eq!((stats.rx_packets, stats.tx_packets), (32, 32));
    port.reset_stats().unwrap();
    assert_eq!(port.stats().unwrap(), PortStats::default());
    drop((rx, tx));
    port.stop().unwrap();
    port.detach().unwrap();
    assert_eq!(pool.in_use(), 0);
}

#[test]
fn a_port_runs_as_long_as_one_of_its_queues() {
    let pool = pool("lives");
    let mut port = attach("net_null1");
    let Queues { mut rx, tx } = port.start(&PortConfig::default(), pool).unwrap();
    assert!(matches!(port.stop(), Err(PortError::QueuesInUse { .. })));
    assert!(matches!(
        port.start(&PortConfig::default(), pool),
        Err(StartError::Running { .. })
    ));
    drop(tx);
    assert!(matches!(port.detach(), Err(PortError::QueuesInUse { .. })));

    let mut burst = ArrayVec::<Mbuf, 32>::new();
    assert_eq!(rx[0].rx_burst(&mut burst), 32, "the queue works without its port");
    let taken = Port::attach(eal(), &"net_null1".parse().unwrap()).unwrap_err();
    assert!(taken.to_string().contains("attached already"), "{taken}");
    drop(rx);
    attach("net_null1").detach().unwrap();
}

#[test]
fn a_port_stops_and_starts_again_with_other_queues() {
    let pool = pool("again");
    let mut port = attach("net_null2");
    for queues in 1..=4 {
        let config = PortConfig {
            rx_queues: queues,
            tx_queues: queues,
            ..PortConfig::default()
        };
        let mut handles = port.start(&config, pool).unwrap();
        assert_eq!(
            (handles.rx.len(), handles.tx.len()),
            (usize::from(queues), usize::from(queues))
        );
        let mut burst = ArrayVec::<Mbuf, 32>::new();
        for (rx, tx) in handles.rx.iter_mut().zip(&mut handles.tx) {
            assert_eq!(rx.queue(), tx.queue());
            assert_eq!(rx.rx_burst(&mut burst), 32);
            assert_eq!(tx.tx_burst(&mut burst), 32);
        }
        drop(handles);
        port.stop().unwrap();
        port.stop().unwrap();
    }
    drop(port);
    assert_eq!(pool.in_use(), 0);
}

#[test]
fn queues_and_mtus_that_a_device_lacks_are_refused_with_the_range() {
    let pool = pool("lacks");
    let mut port = attach("net_null3");
    for (rx_queues, tx_queues) in [(0, 1), (1, 0), (u16::MAX, 1), (1, u16::MAX)] {
        let config = PortConfig {
            rx_queues,
            tx_queues,
            ..PortConfig::default()
        };
        let error = port.start(&config, pool).unwrap_err();
        assert!(matches!(error, StartError::Queues { .. }), "{error}");
        assert!(error.to_string().contains("To fix it: ask for 1 to"), "{error}");
    }
    let error = port
        .start(
            &PortConfig {
                mtu: Some(20),
                ..PortConfig::default()
            },
            pool,
        )
        .unwrap_err();
    assert!(matches!(error, StartError::Mtu { asked: 20, .. }), "{error}");
    port.start(
        &PortConfig {
            mtu: Some(9000),
            ..PortConfig::default()
        },
        pool,
    )
    .unwrap();
}

#[test]
fn a_frame_of_9600_bytes_goes_through_a_ring_device_in_its_segments() {
    let pool = pool("ninek");
    let mut port = attach("net_ring0");
    let config = PortConfig {
        mtu: Some(9582),
        ..PortConfig::default()
    };
    let Queues { mut rx, mut tx } = port.start(&config, pool).unwrap();
    let frame: Vec<u8> = (0..9600_u32).map(|index| (index % 253) as u8).collect();
    let mut burst = ArrayVec::<Mbuf, 32>::new();
    for _ in 0..10 {
        burst.push(pool.packet(&frame).unwrap());
    }
    assert_eq!(tx[0].tx_burst(&mut burst), 10);
    assert_eq!(port.stats().unwrap().tx_errors, 0);
    receive(&mut rx[0], &mut burst, 10);
    assert_eq!(burst.len(), 10);
    for packet in &burst[..] {
        assert_eq!((packet.len(), packet.segment_count()), (9600, 5));
        assert_eq!(bytes(packet), frame);
    }
}

#[test]
fn what_a_full_device_does_not_take_stays_in_the_burst_in_order() {
    let pool = pool("full");
    let mut port = attach("net_ring1");
    let Queues { mut rx, mut tx } = port.start(&PortConfig::default(), pool).unwrap();
    let mut burst = ArrayVec::<Mbuf, 32>::new();
    let mut sent = 0_u32;
    let mut number = 0_u32;
    loop {
        while !burst.is_full() {
            burst.push(pool.packet(&number.to_be_bytes()).unwrap());
            number += 1;
        }
        let count = tx[0].tx_burst(&mut burst);
        sent += u32::try_from(count).unwrap();
        if count < 32 {
            assert_eq!(burst.len(), 32 - count);
            break;
        }
    }
    assert_eq!(burst.first().unwrap().head(), sent.to_be_bytes());
    burst.clear();
    let mut next = 0_u32;
    while rx[0].rx_burst(&mut burst) > 0 {
        for packet in burst.drain(..) {
            assert_eq!(packet.head(), next.to_be_bytes());
            next += 1;
        }
    }
    assert_eq!((next, pool.in_use()), (sent, 0));
}

#[test]
fn frames_are_replayed_from_and_written_to_pcap_files() {
    let folder = tempfile::tempdir().unwrap();
    let (input, output) = (folder.path().join("in put.pcap"), folder.path().join("out.pcap"));
    let frames: Vec<Vec<u8>> = [60, 1514, 2048, 5000, 9600]
        .map(|size| vec![size as u8; size])
        .into();
    crate::pcap::write(&input, &frames);

    let pool = pool("pcap");
    let mut port = attach(&format!(
        "net_pcap0,rx_pcap={},tx_pcap={}",
        input.display(),
        output.display()
    ));
    let Queues { mut rx, mut tx } = port.start(&PortConfig::default(), pool).unwrap();
    let mut burst = ArrayVec::<Mbuf, 32>::new();
    receive(&mut rx[0], &mut burst, frames.len());
    assert_eq!(burst.iter().map(bytes).collect::<Vec<_>>(), frames);
    assert!(!burst[4].is_contiguous());
    assert_eq!(tx[0].tx_burst(&mut burst), frames.len());
    drop((rx, tx, port));
    assert_eq!(crate::pcap::read(&output), frames);
    assert_eq!(pool.in_use(), 0);
}

#[test]
fn frames_outside_of_the_limits_are_padded_with_zeros_or_dropped_and_counted() {
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("limits.pcap");
    let pool = pool("limits");
    // Buffers are full of the bytes of earlier packets.
    let mut used = Vec::new();
    while let Some(mut packet) = pool.alloc() {
        let room = packet.tailroom();
        packet.append(room).unwrap().fill(0xff);
        used.push(packet);
    }
    drop(used);
    let mut port = attach(&format!("net_pcap1,tx_pcap={}", output.display()));
    let config = PortConfig {
        tx_limits: Some(TxLimits {
            shortest: 17,
            longest: 9728,
        }),
        ..PortConfig::default()
    };
    let Queues { rx, mut tx } = port.start(&config, pool).unwrap();
    let mut burst = ArrayVec::<Mbuf, 32>::new();
    for size in [0, 13, 14, 16, 17, 60, 9728, 9729] {
        burst.push(pool.packet(&vec![size as u8; size]).unwrap());
    }
    // The first segment is empty, as after the removal of headers.
    let mut chain = pool.packet(&[]).unwrap();
    chain.chain(pool.packet(&[9; 60]).unwrap()).unwrap();
    burst.push(chain);
    assert_eq!(tx[0].tx_burst(&mut burst), 6);
    assert!(burst.is_empty());
    assert_eq!(port.stats().unwrap().tx_errors, 3);
    drop((rx, tx, port));
    let padded = |size: usize| {
        let mut frame = vec![size as u8; size];
        frame.resize(size.max(17), 0);
        frame
    };
    let mut wanted: Vec<Vec<u8>> = [14, 16, 17, 60, 9728].map(padded).into();
    wanted.push(vec![9; 60]);
    assert_eq!(crate::pcap::read(&output), wanted);
    assert_eq!(pool.in_use(), 0);
}

#[test]
fn devices_are_added_and_removed_again_and_again() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("one.pcap");
    crate::pcap::write(&file, &[vec![7; 60]]);
    let pool = pool("plug");
    for round in 0..20 {
        for devargs in [
            "net_null9",
            "net_ring9",
            &format!("net_pcap9,rx_pcap={},infinite_rx=1", file.display()),
            "net_null9",
        ] {
            let mut port = attach(devargs);
            let queues = port.start(&PortConfig::default(), pool).unwrap();
            drop(queues);
            if round % 2 == 0 {
                port.detach().unwrap();
            }
        }
    }
    assert_eq!(pool.in_use(), 0);
}
