// The counters of READ_COUNT and of the registers COUNT and NO_BUFFER: six of the device, two of each queue, 64 bits each.
//
// Guarantees: each event is counted once, in the cycle in which it is given. A read gets `ready` in cycles without an event
// of a queue, so it waits a few cycles at most.

`default_nettype none

module counters (
    input  wire        clk,
    input  wire        reset,
    input  wire        clear,             // with each queue once, after reset
    input  wire [4:0]  clear_queue,
    input  wire        received,
    input  wire [4:0]  received_queue,
    input  wire        dropped,           // by the dispatcher
    input  wire [2:0]  dropped_counter,
    input  wire [4:0]  dropped_queue,
    input  wire        fifo_full,
    input  wire [2:0]  parity_errors,
    input  wire [2:0]  read_counter,
    input  wire [4:0]  read_queue,
    output wire        read_ready,
    output reg  [63:0] read_value
);
    reg [63:0] frames, full, bad_fcs, bad_length, parity, drops;
    wire no_buffer = dropped && dropped_counter == millrace_nic_pkg::COUNT_NO_BUFFER;
    wire by_entry = dropped && dropped_counter == millrace_nic_pkg::COUNT_DROPPED;
    always @(posedge clk) begin
        if (reset) begin
            frames <= 64'd0;
            full <= 64'd0;
            bad_fcs <= 64'd0;
            bad_length <= 64'd0;
            parity <= 64'd0;
            drops <= 64'd0;
        end else begin
            if (received || no_buffer || by_entry) frames <= frames + 1'b1;
            if (fifo_full) full <= full + 1'b1;
            if (dropped && dropped_counter == millrace_nic_pkg::COUNT_BAD_FCS) bad_fcs <= bad_fcs + 1'b1;
            if (dropped && dropped_counter == millrace_nic_pkg::COUNT_BAD_LENGTH) bad_length <= bad_length + 1'b1;
            parity <= parity + {61'd0, parity_errors};
            if (by_entry) drops <= drops + 1'b1;
        end
    end

    wire event_of_queue = received || no_buffer;
    wire read_received = read_counter == millrace_nic_pkg::COUNT_RECEIVED;
    wire [4:0] queue = clear ? clear_queue : received ? received_queue : no_buffer ? dropped_queue : read_queue;
    wire [63:0] received_count, no_buffer_count;
    mem_lut #(.WIDTH(64), .DEPTH_LOG2(5)) of_received (
        .clk(clk), .write(clear || received), .write_at(queue), .write_data(clear ? 64'd0 : received_count + 1'b1),
        .read_at(queue), .read_data(received_count)
    );
    mem_lut #(.WIDTH(64), .DEPTH_LOG2(5)) of_no_buffer (
        .clk(clk), .write(clear || no_buffer), .write_at(queue), .write_data(clear ? 64'd0 : no_buffer_count + 1'b1),
        .read_at(queue), .read_data(no_buffer_count)
    );
    assign read_ready = !event_of_queue && !clear;
    always @* begin
        case (read_counter)
            3'd0: read_value = frames;
            3'd1: read_value = full;
            3'd2: read_value = bad_fcs;
            3'd3: read_value = bad_length;
            3'd4: read_value = parity;
            3'd5: read_value = drops;
            default: read_value = read_received ? received_count : no_buffer_count;
        endcase
    end
endmodule
`default_nettype wire
