//! Capture files for other programs.

/// Returns a capture file (pcap) with one Ethernet frame: a UDP packet from 192.0.2.1 to 192.0.2.2, from and to a port. For
/// payloads of at most 65,507 bytes.
pub fn udp_capture(port: u16, payload: &[u8]) -> Vec<u8> {
    let udp_size = (payload.len() + 8) as u16;
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, 0x45, 0];
    frame.extend((udp_size + 20).to_be_bytes());
    frame.extend([0, 0, 0, 0, 64, 17, 0, 0, 192, 0, 2, 1, 192, 0, 2, 2]);
    for word in [port, port, udp_size, 0] {
        frame.extend(word.to_be_bytes());
    }
    frame.extend(payload);
    let mut file = Vec::new();
    for word in [0xa1b2_c3d4u32, 0x0004_0002, 0, 0, 65_535, 1, 0, 0] {
        file.extend(word.to_le_bytes());
    }
    for _ in 0..2 {
        file.extend((frame.len() as u32).to_le_bytes());
    }
    file.extend(frame);
    file
}
