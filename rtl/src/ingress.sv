// The entry of frames. Each beat of a frame goes to the frame FIFO, the first 128 bytes also to the head FIFO, which feeds the
// parser, and at its end length and verdict go to the end FIFO. A command puts a marker into the head FIFO, so that it has
// a place in the order of frames.
//
//   rx ---> last_beat ---+---> frame FIFO  (beats)                      ---> dispatcher
//                        +---> head FIFO   (first 128 bytes, markers)   ---> parser
//                        +---> end FIFO    (length, verdict, time)      ---> collector
//
// Guarantees
// * No backpressure: a frame that begins while one of the FIFOs may not take a whole frame of 9,600 bytes is dropped as a
//   whole, and counted. A frame that began never overflows.
// * For each frame that was not dropped there is one head, one end, and as many beats as its length takes (up to 9,600 bytes;
//   a frame without bytes takes one).
// * A marker is never inside a head. It comes after all frames that began before `marker_ready`, before all later ones.

`default_nettype none

module ingress #(
    parameter WIDTH = 128,           // bits of a beat, 128 or 512
    parameter FRAMES_LOG2 = 11,      // beats of the frame FIFO; 32 KiB
    parameter HEADS_LOG2 = 9,        // beats of the head FIFO
    parameter ENDS_LOG2 = 9
) (
    input  wire             clk,
    input  wire             reset,
    input  wire [31:0]      now,             // ns
    // Frames, without FCS. `rx_bytes` and `rx_bad_fcs` count with `rx_last`.
    input  wire             rx_valid,
    input  wire [WIDTH-1:0] rx_data,         // the first byte is on the left
    input  wire             rx_last,
    input  wire [6:0]       rx_bytes,        // 0 to WIDTH / 8
    input  wire             rx_bad_fcs,
    input  wire [3:0]       rx_port,
    output wire             rx_room,         // a frame that begins now is not dropped
    output wire             rx_holds,        // a beat is in no FIFO yet
    output reg              rx_dropped,      // a frame was dropped because there was no room
    // Command markers.
    input  wire             marker_valid,
    output wire             marker_ready,
    // To the parser.
    output wire             head_valid,
    output wire [WIDTH-1:0] head_data,
    output wire             head_first,
    output wire             head_last,
    output wire [7:0]       head_size,       // with `head_last`
    output wire             head_longer,     // with `head_last`: the frame has more bytes
    output wire [3:0]       head_port,
    output wire             head_marker,
    input  wire             head_pop,
    // To the collector.
    output wire             end_valid,
    output wire [13:0]      end_length,
    output wire             end_bad_fcs,
    output wire             end_bad_length,
    output wire [31:0]      end_time,
    input  wire             end_pop,
    // To the dispatcher.
    output wire             frame_valid,
    output wire [WIDTH-1:0] frame_data,
    input  wire             frame_pop
);
    localparam BYTES = WIDTH / 8;
    localparam BEAT_LOG2 = WIDTH == 512 ? 6 : 4;
    wire beat_valid, beat_last, beat_bad_fcs, waits_to_begin;
    wire [WIDTH-1:0] beat_data;
    wire [6:0] beat_bytes;
    wire [3:0] beat_port;
    last_beat #(.WIDTH(WIDTH)) ending (
        .clk(clk), .reset(reset), .in_valid(rx_valid), .in_data(rx_data), .in_last(rx_last), .in_bytes(rx_bytes),
        .in_bad_fcs(rx_bad_fcs), .in_port(rx_port), .out_valid(beat_valid), .out_data(beat_data), .out_last(beat_last),
        .out_bytes(beat_bytes), .out_bad_fcs(beat_bad_fcs), .out_port(beat_port), .holds(rx_holds),
        .waits_to_begin(waits_to_begin)
    );

    localparam FRAME_BEATS = (millrace_nic_pkg::FRAME_SIZE_MAX + BYTES - 1) / BYTES;
    localparam HEAD_BEATS = millrace_nic_pkg::WINDOW_SIZE / BYTES;

    reg in_frame;                      // the next beat continues a frame
    reg dropping;
    reg [13:0] received;               // bytes before this beat; saturates above the longest frame
    reg rx_in_frame;                   // the same of `rx`
    reg [31:0] begun;                  // the time of the first beat of `rx`; that of the held beat's frame until the edge
    wire [FRAMES_LOG2:0] frame_room;
    wire [HEADS_LOG2:0] head_room;
    wire [ENDS_LOG2:0] end_room;
    // The FIFOs count the words that are fetched ahead as free; a marker may come between.
    wire room = frame_room >= FRAME_BEATS && head_room > HEAD_BEATS + 1 && end_room > 1;
    // The held beat of the frame before takes a word of each.
    assign rx_room = frame_room > FRAME_BEATS && head_room > HEAD_BEATS + 2 && end_room > 2;

    wire begins = beat_valid && !in_frame;
    wire drop = begins ? !room : dropping;
    wire [13:0] start = in_frame ? received : 14'd0;
    wire [13:0] length = start + (beat_last ? {7'd0, beat_bytes} : BYTES);
    wire too_long = length > millrace_nic_pkg::FRAME_SIZE_MAX;
    wire store = beat_valid && !drop && start < FRAME_BEATS * BYTES;
    wire in_head = start < millrace_nic_pkg::WINDOW_SIZE;
    wire fills_head = start == millrace_nic_pkg::WINDOW_SIZE - BYTES;
    wire head_push = beat_valid && !drop && in_head;
    // A marker waits while the head of a frame is being received, or its first beat is held.
    reg head_open;
    assign marker_ready = !beat_valid && !head_open && !waits_to_begin && head_room > HEAD_BEATS + 1;

    always @(posedge clk) begin
        rx_dropped <= !reset && beat_valid && beat_last && drop;
        if (beat_valid) begin
            in_frame <= !beat_last;
            dropping <= drop;
            received <= too_long ? 14'h3f80 : length;
            if (head_push) head_open <= !(beat_last || fills_head);
        end
        if (rx_valid) begin
            rx_in_frame <= !rx_last;
            if (!rx_in_frame) begun <= now;
        end
        if (reset) begin
            rx_in_frame <= 1'b0;
            in_frame <= 1'b0;
            dropping <= 1'b0;
            head_open <= 1'b0;
        end
    end

    wire frame_empty;
    fifo_block #(.WIDTH(WIDTH), .DEPTH_LOG2(FRAMES_LOG2)) frames (
        .clk(clk), .reset(reset), .push(store), .push_data(beat_data), .full(),
        .pop(frame_pop), .head(frame_data), .empty(frame_empty), .room(frame_room)
    );
    assign frame_valid = !frame_empty;

    wire push_marker = marker_valid && marker_ready;
    wire [7:0] size = length[7:0];
    wire head_empty;
    fifo_block #(.WIDTH(WIDTH + 16), .DEPTH_LOG2(HEADS_LOG2)) heads (
        .clk(clk), .reset(reset), .push(head_push || push_marker),
        .push_data({push_marker, start == 0, beat_last || fills_head, fills_head && !beat_last, beat_port, size, beat_data}),
        .full(),
        .pop(head_pop), .head({head_marker, head_first, head_last, head_longer, head_port, head_size, head_data}),
        .empty(head_empty), .room(head_room)
    );
    assign head_valid = !head_empty;

    wire end_empty;
    fifo_block #(.WIDTH(48), .DEPTH_LOG2(ENDS_LOG2)) ends (
        .clk(clk), .reset(reset), .push(beat_valid && beat_last && !drop),
        .push_data({length < millrace_nic_pkg::FRAME_SIZE_MIN || too_long, beat_bad_fcs, length, begun}), .full(),
        .pop(end_pop), .head({end_bad_length, end_bad_fcs, end_length, end_time}), .empty(end_empty), .room(end_room)
    );
    assign end_valid = !end_empty;

`ifdef PROOF
    reg head_was_given;                  // of this frame
    wire head_ends = head_push && (beat_last || fills_head);
    always @(posedge clk) begin
        if (beat_valid) head_was_given <= (head_ends || (in_frame && head_was_given)) && !beat_last;
        if (reset) head_was_given <= 1'b0;
    end
    wire stores = in_frame && !dropping;
    wire [13:0] stored_before = received > 14'd9600 ? 14'd9600 : received;
    always @* if (!reset) begin
        // The stored beats are as many as the length takes: all are full, and the last one is not empty.
        if (beat_valid && beat_last) assert (beat_bytes <= BYTES && (beat_bytes != 0 || !in_frame));
        if (in_frame) assert (received % BYTES == 0 && received != 0 && (received <= 14'd9600 || received == 14'h3f80));
        // What a frame that began may still need is free.
        if (stores) assert (frame_room >= FRAME_BEATS - stored_before / BYTES);
        if (stores) assert (end_room >= 1);
        if (head_open) assert (stores && received < 14'd128 && head_room >= HEAD_BEATS - received / BYTES);
        if (stores && received < 14'd128) assert (head_open);
        if (store) assert (frame_room != 0);
        if (head_push || push_marker) assert (head_room != 0);
        if (beat_valid && beat_last && !drop) assert (end_room != 0);
        // One head for each frame; markers are between heads.
        if (stores) assert (head_was_given == !head_open);
        if (head_push && in_frame) assert (!head_was_given);
        if (beat_valid && beat_last && !drop) assert (head_ends || head_was_given);
        if (push_marker) assert (!head_open && !head_push);
    end
`endif
endmodule
`default_nettype wire
