// The ingress with any frames and any readers. The properties are in src/ingress.sv.
module proof (
    input wire clk,
    input wire rx_valid, rx_last, rx_bad_fcs, marker_valid, head_pop, end_pop, frame_pop,
    input wire [6:0] rx_bytes,
    input wire [3:0] rx_port
);
    reg reset = 1'b1;
    always @(posedge clk) reset <= 1'b0;
    ingress ingress_under_proof (
        .clk(clk), .reset(reset), .now(32'd0), .rx_valid(rx_valid && !reset), .rx_data(128'd0), .rx_last(rx_last),
        .rx_bytes(rx_bytes), .rx_bad_fcs(rx_bad_fcs), .rx_port(rx_port), .rx_room(), .rx_holds(), .rx_dropped(),
        .marker_valid(marker_valid), .marker_ready(), .head_valid(), .head_data(), .head_first(), .head_last(),
        .head_size(), .head_longer(), .head_port(), .head_marker(), .head_pop(head_pop), .end_valid(), .end_length(),
        .end_bad_fcs(), .end_bad_length(), .end_time(), .end_pop(end_pop), .frame_valid(), .frame_data(),
        .frame_pop(frame_pop)
    );
endmodule
