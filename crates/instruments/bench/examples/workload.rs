//! Writes the rules and the packets of a case: `workload CASE FOLDER`, for measurements without the daemon
//! (`crates/switch/datapath/examples/switch.rs`). Besides the cases of `millrace bench forward` there is `tables-N`:
//! the last of N tables has 10,000 exact rules with rewrites, and the tables before it match in turn the port, the
//! destination MAC address, a route, or source networks.

use std::error::Error;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use millrace_bench::case;
use millrace_bench::workload::{PACKETS_MIN, Shape, Sizes, TARGET, Workload};

/// The seed of `millrace bench`.
const SEED: u64 = 0x6d69_6c6c_7261_6365;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(name), Some(folder)) = (arguments.next(), arguments.next()) else {
        return Err("workload CASE|tables-N FOLDER".into());
    };
    let (shape, packets_min, tables) = match name.strip_prefix("tables-") {
        Some(tables) => (Shape::Exact(10_000), PACKETS_MIN, tables.parse()?),
        None => {
            let case = case::find(&name).ok_or_else(|| format!("there is no case {name}"))?;
            (case.shape, case.packets_min, 1)
        }
    };
    let folder = Path::new(&folder);
    fs::create_dir_all(folder)?;
    let workload = Workload::new(shape, SEED).repeated(packets_min);
    let mut lines = String::new();
    let last = usize::saturating_sub(tables, 1);
    for table in 0..last {
        table_before(&mut lines, table);
    }
    for line in workload.lines().lines() {
        match last {
            0 => writeln!(lines, "{line}")?,
            _ => writeln!(lines, "table={last},{line}")?,
        }
    }
    fs::write(folder.join("flows.txt"), lines)?;
    workload.write_packets(&folder.join("packets.pcap"), &Sizes::SMALLEST, SEED)?;
    Ok(())
}

/// Appends the entries of a table that sends every packet to the next table.
fn table_before(lines: &mut String, table: usize) {
    let next = table + 1;
    // Writing to a string does not fail.
    let mut line = |priority: u32, matching: &str| {
        let _ = writeln!(
            lines,
            "table={table},priority={priority},{matching},actions=goto_table:{next}"
        );
    };
    match table % 4 {
        0 => line(1, "in_port=1"),
        1 => {
            line(1, &format!("dl_dst={TARGET}"));
            (0..1000).for_each(|mac| {
                line(
                    1,
                    &format!("dl_dst=02:00:00:01:{:02x}:{:02x}", mac >> 8, mac & 0xff),
                );
            });
        }
        2 => {
            // Packets have destinations in 192.168.0.0/16.
            (0..256).for_each(|net| line(24, &format!("ip,nw_dst=192.168.{net}.0/24")));
            (0..1024).for_each(|net| {
                line(
                    28,
                    &format!("ip,nw_dst=192.168.{}.{}/28", net >> 4, net % 16 * 16),
                );
            });
            (0..256).for_each(|net| line(16, &format!("ip,nw_dst=10.{net}.0.0/16")));
            (0..256).for_each(|net| line(20, &format!("ip,nw_dst=11.{net}.16.0/20")));
            (0..256).for_each(|net| line(22, &format!("ip,nw_dst=12.{net}.4.0/22")));
        }
        _ => {
            // Packets have sources in 10.0.0.0/8.
            line(1, "ip");
            (0..256).for_each(|net| line(2, &format!("tcp,nw_src=10.{net}.0.0/16")));
            (0..256).for_each(|net| line(3, &format!("udp,nw_src=10.{net}.0.0/16,tp_src={}", 1024 + net)));
        }
    }
}
