// A count for each queue: free buffers, or completions that the driver has not read.
//
// Guarantees (formal/queue_counter.sv): each count is between 0 and 2^MAX_LOG2. `add` at the maximum changes nothing;
// `subtract` takes at most what is there. Both may happen in one cycle, also for one queue. Counts are 0 after the
// user has held `clear`, with each queue once at `clear_queue`.

`default_nettype none

module queue_counter #(
    parameter MAX_LOG2 = 8,
    parameter QUEUES_LOG2 = 5
) (
    input  wire                clk,
    input  wire                clear,
    input  wire [QUEUES_LOG2-1:0] clear_queue,
    input  wire                add,             // one
    input  wire [QUEUES_LOG2-1:0] add_queue,
    output wire [MAX_LOG2:0]   add_count,       // of `add_queue`, before this cycle
    input  wire                subtract,
    input  wire [QUEUES_LOG2-1:0] subtract_queue,
    input  wire [15:0]         subtract_number,
    output wire [MAX_LOG2:0]   subtract_count,  // of `subtract_queue`, before this cycle
    output wire [MAX_LOG2-1:0] add_at,          // number of additions modulo 2^MAX_LOG2: a ring's tail
    output wire [MAX_LOG2-1:0] subtract_at      // and of subtractions: its head
);
    wire [MAX_LOG2:0] added_a, added_s, subtracted_a, subtracted_s;
    assign add_count = added_a - subtracted_a;
    assign subtract_count = added_s - subtracted_s;
    assign add_at = added_a[MAX_LOG2-1:0];
    assign subtract_at = subtracted_s[MAX_LOG2-1:0];
    wire adds = add && !add_count[MAX_LOG2];
    wire [MAX_LOG2:0] number = subtract_number > {{(15 - MAX_LOG2){1'b0}}, subtract_count}
                             ? subtract_count : subtract_number[MAX_LOG2:0];

    wire write_added = clear || adds;
    wire [QUEUES_LOG2-1:0] write_added_at = clear ? clear_queue : add_queue;
    wire [MAX_LOG2:0] next_added = clear ? {(MAX_LOG2 + 1){1'b0}} : added_a + 1'b1;
    wire write_subtracted = clear || subtract;
    wire [QUEUES_LOG2-1:0] write_subtracted_at = clear ? clear_queue : subtract_queue;
    wire [MAX_LOG2:0] next_subtracted = clear ? {(MAX_LOG2 + 1){1'b0}} : subtracted_s + number;
    // Each number is read at both queues, so it is stored twice.
    mem_lut #(.WIDTH(MAX_LOG2 + 1), .DEPTH_LOG2(QUEUES_LOG2)) added_for_add (
        .clk(clk), .write(write_added), .write_at(write_added_at), .write_data(next_added),
        .read_at(add_queue), .read_data(added_a)
    );
    mem_lut #(.WIDTH(MAX_LOG2 + 1), .DEPTH_LOG2(QUEUES_LOG2)) added_for_subtract (
        .clk(clk), .write(write_added), .write_at(write_added_at), .write_data(next_added),
        .read_at(subtract_queue), .read_data(added_s)
    );
    mem_lut #(.WIDTH(MAX_LOG2 + 1), .DEPTH_LOG2(QUEUES_LOG2)) subtracted_for_add (
        .clk(clk), .write(write_subtracted), .write_at(write_subtracted_at), .write_data(next_subtracted),
        .read_at(add_queue), .read_data(subtracted_a)
    );
    mem_lut #(.WIDTH(MAX_LOG2 + 1), .DEPTH_LOG2(QUEUES_LOG2)) subtracted_for_subtract (
        .clk(clk), .write(write_subtracted), .write_at(write_subtracted_at), .write_data(next_subtracted),
        .read_at(subtract_queue), .read_data(subtracted_s)
    );
endmodule
`default_nettype wire
