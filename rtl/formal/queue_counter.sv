// The counts of queues stay between 0 and the maximum, and are what was added and subtracted. One of two queues is watched.
module proof (
    input wire clk,
    input wire add, subtract,
    input wire [0:0] add_queue, subtract_queue,
    input wire [15:0] number
);
    (* anyconst *) wire [0:0] watched;
    reg [1:0] begun = 0;
    always @(posedge clk) if (!begun[1]) begun <= begun + 1'b1;
    wire clear = !begun[1];
    wire [2:0] add_count, subtract_count;
    wire [1:0] add_at, subtract_at;
    queue_counter #(.MAX_LOG2(2), .QUEUES_LOG2(1)) counter (
        .clk(clk), .clear(clear), .clear_queue(begun[0:0]), .add(add && !clear), .add_queue(add_queue), .add_count(add_count),
        .subtract(subtract && !clear), .subtract_queue(subtract_queue), .subtract_number(number),
        .subtract_count(subtract_count), .add_at(add_at), .subtract_at(subtract_at)
    );
    reg [2:0] count = 0;
    wire adds = add && add_queue == watched && count != 4;
    wire [2:0] taken = subtract && subtract_queue == watched ? (number > count ? count : number[2:0]) : 3'd0;
    always @(posedge clk) if (!clear) count <= count + adds - taken;
    always @* begin
        assert (count <= 4);
        if (!clear && add_queue == watched) assert (add_count == count);
        if (!clear && subtract_queue == watched) assert (subtract_count == count);
    end
endmodule
