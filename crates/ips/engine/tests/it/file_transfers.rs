//! Files that FTP transfers over connections of their own.

use millrace_ips_engine::app::AppProtocol;
use millrace_ips_engine::{Event, Mode, Settings};

use crate::bed::{HOST_A, HOST_B, TestBed};
use crate::conversation::Conversation;

const RULES: &str = r#"alert ftp-data any any -> any any (file.data; content:"EICAR"; sid:1;)
alert ftp-data any any -> any any (file.name; content:"virus.bin"; sid:2;)"#;

/// Begins a control connection up to the login.
fn control(bed: &mut TestBed) -> Conversation {
    let mut control = Conversation::open(bed, (HOST_A, 40_000), (HOST_B, 21));
    control.server(bed, b"220 ready\r\n");
    control.client(bed, b"USER a\r\n");
    control.server(bed, b"230 ok\r\n");
    control
}

/// Sends the file over a data connection, and returns the rules that matched.
fn transfer(
    bed: &mut TestBed,
    control: &mut Conversation,
    mut data: Conversation,
    is_download: bool,
) -> Vec<u32> {
    control.server(bed, b"150 opening\r\n");
    match is_download {
        true => data.server(bed, b"an EICAR file"),
        false => data.client(bed, b"an EICAR file"),
    };
    data.close(bed);
    control.server(bed, b"226 done\r\n");
    control.close(bed);
    bed.finish();
    bed.sids().into_iter().collect()
}

#[test]
fn files_of_passive_and_active_transfers_are_inspected() {
    for mode in [Mode::Ids, Mode::Ips] {
        let passive = |command: &[u8], reply: &[u8], transfers: &[u8], port| {
            let mut bed = TestBed::new(mode, RULES);
            let mut control = control(&mut bed);
            control.client(&mut bed, command);
            control.server(&mut bed, reply);
            // Most clients open the data connection first.
            let data = Conversation::open(&mut bed, (HOST_A, 40_001), (HOST_B, port));
            control.client(&mut bed, transfers);
            transfer(&mut bed, &mut control, data, transfers.starts_with(b"RETR"))
        };
        let found = passive(
            b"PASV\r\n",
            b"227 (10,0,0,2,4,1)\r\n",
            b"RETR virus.bin\r\n",
            1025,
        );
        assert_eq!(found, [1, 2], "{mode:?}");
        let found = passive(b"EPSV\r\n", b"229 (|||1026|)\r\n", b"STOR virus.bin\r\n", 1026);
        assert_eq!(found, [1, 2], "{mode:?}");

        let mut bed = TestBed::new(mode, RULES);
        let mut control = control(&mut bed);
        control.client(&mut bed, b"PORT 10,0,0,1,4,3\r\n");
        control.server(&mut bed, b"200 ok\r\n");
        control.client(&mut bed, b"RETR virus.bin\r\n");
        let data = Conversation::open(&mut bed, (HOST_B, 20), (HOST_A, 1027));
        // The server opens the data connection, so it is the TCP client of that connection.
        let found = transfer(&mut bed, &mut control, data, false);
        assert_eq!(found, [1, 2], "{mode:?}");
    }
}

#[test]
fn a_pipelined_transfer_is_inspected() {
    let mut bed = TestBed::new(Mode::Ips, RULES);
    let mut control = control(&mut bed);
    control.client(&mut bed, b"PASV\r\nRETR virus.bin\r\n");
    control.server(&mut bed, b"227 (10,0,0,2,4,1)\r\n");
    let data = Conversation::open(&mut bed, (HOST_A, 40_001), (HOST_B, 1025));
    assert_eq!(transfer(&mut bed, &mut control, data, true), [1, 2]);
}

#[test]
fn a_transfer_has_a_record_of_its_file() {
    let settings = Settings {
        records: true,
        ..Settings::default()
    };
    let mut bed = TestBed::with(settings, RULES);
    let mut control = control(&mut bed);
    control.client(&mut bed, b"PASV\r\n");
    control.server(&mut bed, b"227 (10,0,0,2,4,1)\r\n");
    control.client(&mut bed, b"RETR virus.bin\r\n");
    let data = Conversation::open(&mut bed, (HOST_A, 40_001), (HOST_B, 1025));
    transfer(&mut bed, &mut control, data, true);
    let files: Vec<_> = bed
        .events()
        .iter()
        .filter_map(|event| match event {
            Event::Transaction(transaction) if transaction.app == AppProtocol::FtpData => {
                Some(&transaction.files[0])
            }
            _ => None,
        })
        .map(|file| (file.name.as_slice(), file.size))
        .collect();
    assert_eq!(files, [(&b"virus.bin"[..], 13)]);
}
