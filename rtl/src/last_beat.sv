// Makes the last beat of a frame one with bytes. A MAC that cuts the FCS off may end a frame with a beat without bytes; the beat
// before it becomes the last one. Each beat waits for the next one of its frame, the last one for a cycle.
//
// Guarantees
// * The same bytes in the same order, one beat a cycle. All beats but the last are full, and the last one has a byte, unless the
//   whole frame has none.

`default_nettype none

module last_beat #(
    parameter WIDTH = 128
) (
    input  wire             clk,
    input  wire             reset,
    input  wire             in_valid,
    input  wire [WIDTH-1:0] in_data,
    input  wire             in_last,
    input  wire [6:0]       in_bytes,        // with `in_last`: 0 to WIDTH / 8
    input  wire             in_bad_fcs,      // with `in_last`
    input  wire [3:0]       in_port,
    output wire             out_valid,
    output wire [WIDTH-1:0] out_data,
    output wire             out_last,
    output wire [6:0]       out_bytes,       // with `out_last`
    output wire             out_bad_fcs,     // with `out_last`
    output wire [3:0]       out_port,
    output wire             holds,           // a beat is here
    output wire             waits_to_begin   // it is the first of its frame
);
    localparam BYTES = WIDTH / 8;

    reg held, held_first, held_last, held_bad_fcs;
    reg [WIDTH-1:0] held_data;
    reg [6:0] held_bytes;
    reg [3:0] held_port;

    // The new beat only ends the frame of the held one.
    wire ends_held = in_valid && held && !held_last && in_last && in_bytes == 0;
    assign out_valid = held && (held_last || in_valid);
    assign out_data = held_data;
    assign out_last = held_last || ends_held;
    assign out_bytes = held_last ? held_bytes : BYTES;
    assign out_bad_fcs = held_last ? held_bad_fcs : in_bad_fcs;
    assign out_port = held_port;
    assign holds = held;
    assign waits_to_begin = held && held_first;

    always @(posedge clk) begin
        if (in_valid) begin
            held_first <= !held || held_last;
            held_last <= in_last;
            held_bytes <= in_bytes;
            held_bad_fcs <= in_bad_fcs;
            held_data <= in_data;
            held_port <= in_port;
        end
        if (in_valid && !ends_held) held <= 1'b1;
        else if (out_valid) held <= 1'b0;
        if (reset) held <= 1'b0;
    end

`ifdef PROOF
    reg began;                           // a beat of the frame was given, and not its last one
    always @(posedge clk) begin
        if (out_valid) began <= !out_last;
        if (reset) began <= 1'b0;
    end
    always @* if (!reset) begin
        // The MAC fills all beats but the last.
        assume (in_bytes <= BYTES);
        if (held) assert (held_first == !began);
        if (began) assert (held);
        if (held && held_last) assert (held_bytes <= BYTES && (held_bytes != 0 || held_first));
        if (out_valid && out_last) assert (out_bytes <= BYTES && (out_bytes != 0 || !began));
    end
`endif
endmodule
`default_nettype wire
