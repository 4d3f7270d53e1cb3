// Two queues. Both give words out in the order in which they came in, lose none and repeat none (formal/fifo.sv).
// `push` while `full`, and `pop` while `empty`, are the user's errors and change nothing.
//
//   fifo_lut    the word at the head is visible in the cycle after its push; LUT memory
//   fifo_block  the same outside; inside block memory with one word fetched ahead, visible two cycles after its push

`default_nettype none

module fifo_lut #(
    parameter WIDTH = 8,
    parameter DEPTH_LOG2 = 4
) (
    input  wire                clk,
    input  wire                reset,
    input  wire                push,
    input  wire [WIDTH-1:0]    push_data,
    output wire                full,
    input  wire                pop,
    output wire [WIDTH-1:0]    head,
    output wire                empty,
    output wire [DEPTH_LOG2:0] count  // words inside, 0 to 2^DEPTH_LOG2
`ifdef PROOF_CONTENTS
    , output wire [(WIDTH << DEPTH_LOG2)-1:0] entries  // the words from the head on; the first `count` are inside
`endif
);
    reg [DEPTH_LOG2:0] tail_at, head_at;
    assign count = tail_at - head_at;
    assign full = count[DEPTH_LOG2];
    assign empty = count == 0;
`ifdef PROOF_CONTENTS
    wire [(WIDTH << DEPTH_LOG2)-1:0] contents;
`endif
    mem_lut #(.WIDTH(WIDTH), .DEPTH_LOG2(DEPTH_LOG2)) store (
        .clk(clk), .write(push && !full), .write_at(tail_at[DEPTH_LOG2-1:0]), .write_data(push_data),
        .read_at(head_at[DEPTH_LOG2-1:0]), .read_data(head)
`ifdef PROOF_CONTENTS
        , .contents(contents)
`endif
    );
`ifdef PROOF_CONTENTS
    genvar entry;
    generate
        for (entry = 0; entry < 1 << DEPTH_LOG2; entry = entry + 1) begin : g_entry
            wire [DEPTH_LOG2-1:0] entry_at = head_at + entry;
            assign entries[WIDTH * entry +: WIDTH] = contents[WIDTH * entry_at +: WIDTH];
        end
    endgenerate
`endif
    always @(posedge clk) begin
        if (reset) begin
            tail_at <= 0;
            head_at <= 0;
        end else begin
            if (push && !full) tail_at <= tail_at + 1'b1;
            if (pop && !empty) head_at <= head_at + 1'b1;
        end
    end
`ifdef PROOF
    always @* if (!reset) assert (count <= 1 << DEPTH_LOG2);
`endif
endmodule

module fifo_block #(
    parameter WIDTH = 72,
    parameter DEPTH_LOG2 = 9
) (
    input  wire                clk,
    input  wire                reset,
    input  wire                push,
    input  wire [WIDTH-1:0]    push_data,
    output wire                full,
    input  wire                pop,
    output wire [WIDTH-1:0]    head,
    output wire                empty,
    output wire [DEPTH_LOG2:0] room  // free words in the memory
);
    reg [DEPTH_LOG2:0] tail_at, fetch_at;
    reg fetched;  // the memory's output register holds the head
    wire [DEPTH_LOG2:0] stored = tail_at - fetch_at;
    wire fetch = stored != 0 && (!fetched || pop);
    assign full = stored[DEPTH_LOG2];
    assign empty = !fetched;
    assign room = (1 << DEPTH_LOG2) - stored;
    mem_block #(.WIDTH(WIDTH), .DEPTH_LOG2(DEPTH_LOG2)) store (
        .clk(clk), .write(push && !full), .write_at(tail_at[DEPTH_LOG2-1:0]), .write_data(push_data),
        .read(fetch), .read_at(fetch_at[DEPTH_LOG2-1:0]), .read_data(head)
    );
    always @(posedge clk) begin
        if (reset) begin
            tail_at <= 0;
            fetch_at <= 0;
            fetched <= 1'b0;
        end else begin
            if (push && !full) tail_at <= tail_at + 1'b1;
            if (fetch) begin
                fetch_at <= fetch_at + 1'b1;
                fetched <= 1'b1;
            end else if (pop) fetched <= 1'b0;
        end
    end
`ifdef PROOF
    always @* if (!reset) assert (stored <= 1 << DEPTH_LOG2);
`endif
endmodule
`default_nettype wire
