// Both FIFOs: whatever is pushed comes out in order, once, unchanged. An arbitrary word is followed from its push to its pop.
module proof (
    input wire clk,
    input wire push, pop,
    input wire [1:0] data,
    input wire follow            // this push is the one
);
    reg reset = 1'b1;
    always @(posedge clk) reset <= 1'b0;
`ifdef BLOCK
    wire full, empty;
    wire [1:0] head;
    wire [2:0] room;
    fifo_block #(.WIDTH(2), .DEPTH_LOG2(2)) fifo (
        .clk(clk), .reset(reset), .push(push), .push_data(data), .full(full), .pop(pop), .head(head), .empty(empty), .room(room)
    );
`else
    wire full, empty;
    wire [1:0] head;
    wire [2:0] count;
    fifo_lut #(.WIDTH(2), .DEPTH_LOG2(2)) fifo (
        .clk(clk), .reset(reset), .push(push), .push_data(data), .full(full), .pop(pop), .head(head), .empty(empty), .count(count)
    );
`endif
    reg [3:0] inside = 0;        // words inside, by pushes and pops
    reg following = 0, done = 0;
    reg [3:0] ahead = 0;         // words before the one that is followed
    reg [1:0] value;
    wire pushes = push && !full && !reset;
    wire pops = pop && !empty && !reset;
    always @(posedge clk) begin
        inside <= inside + pushes - pops;
        if (!following && !done && pushes && follow) begin
            following <= 1'b1;
            ahead <= inside - pops;
            value <= data;
        end else if (following && pops) begin
            ahead <= ahead - 1'b1;
            if (ahead == 0) begin
                following <= 1'b0;
                done <= 1'b1;
            end
        end
    end
    always @* if (!reset) begin
        assert (inside <= 5);
        if (following) assert (ahead < inside);
        if (following && ahead == 0 && !empty) assert (head == value);
        if (inside == 0) assert (empty);
`ifdef BLOCK
        // The memory is full with four words; a fifth may be fetched.
        if (full) assert (inside >= 4);
        assert (room <= 4);
`else
        assert (inside == count);
        assert (empty == (inside == 0));
        assert (full == (inside == 4));
`endif
    end
endmodule
