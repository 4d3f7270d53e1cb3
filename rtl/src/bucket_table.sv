// The bucket table: 1,024 buckets with a queue each, in two copies. Lookups read the active copy; writes go to the shadow
// copy; `commit` exchanges them in one cycle.
//
//   cycle  0 lookup | 1 `queue` valid
//
// Guarantee (formal/bucket_table.sv): a lookup returns the queue that the bucket had in one copy, the one that was
// active when the lookup began; a write is invisible to lookups until a commit. Both copies begin undefined: the
// sequencer writes both before the first lookup.

`default_nettype none

module bucket_table #(
    parameter BUCKETS_LOG2 = 10
) (
    input  wire                    clk,
    input  wire                    reset,
    input  wire                    lookup,
    input  wire [BUCKETS_LOG2-1:0] bucket,
    output wire [4:0]              queue,
    input  wire                    write,
    input  wire [BUCKETS_LOG2-1:0] write_bucket,
    input  wire [4:0]              write_queue,
    input  wire                    commit
);
    reg active;
    always @(posedge clk) begin
        if (reset) active <= 1'b0;
        else if (commit) active <= !active;
    end
    mem_block #(.WIDTH(5), .DEPTH_LOG2(BUCKETS_LOG2 + 1)) queues (
        .clk(clk), .write(write), .write_at({!active, write_bucket}), .write_data(write_queue),
        .read(lookup), .read_at({active, bucket}), .read_data(queue)
    );
endmodule
`default_nettype wire
