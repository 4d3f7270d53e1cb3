// The bucket table: a lookup sees the copy that was active when it began; writes are invisible until a commit.
module proof (
    input wire clk,
    input wire lookup, write, commit,
    input wire [1:0] bucket, write_bucket,
    input wire [4:0] write_queue
);
    (* anyconst *) wire [1:0] watched;
    reg reset = 1'b1;
    always @(posedge clk) reset <= 1'b0;
    wire [4:0] queue;
    bucket_table #(.BUCKETS_LOG2(2)) table_under_proof (
        .clk(clk), .reset(reset), .lookup(lookup), .bucket(bucket), .queue(queue), .write(write && !reset),
        .write_bucket(write_bucket), .write_queue(write_queue), .commit(commit)
    );
    // What both copies of the watched bucket hold, if they were ever written.
    reg [4:0] shown, hidden;
    reg shown_known = 0, hidden_known = 0;
    reg looked_up = 0, expect_known;
    reg [4:0] expected;
    always @(posedge clk) if (!reset) begin
        looked_up <= lookup && bucket == watched;
        expected <= shown;
        expect_known <= shown_known;
        if (commit) begin
            shown <= write && write_bucket == watched ? write_queue : hidden;
            shown_known <= hidden_known || (write && write_bucket == watched);
            hidden <= shown;
            hidden_known <= shown_known;
        end else if (write && write_bucket == watched) begin
            hidden <= write_queue;
            hidden_known <= 1'b1;
        end
    end
    always @* if (!reset && looked_up && expect_known) assert (queue == expected);
endmodule
