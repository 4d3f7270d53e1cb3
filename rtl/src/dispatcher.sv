// The dispatcher: gives each frame to its queue with a free buffer and a completion, or drops it as a whole and counts it.
//
//   descriptor --> decide (credits, buffer) --> job --> send (beats to the queue, then the completion)
//                                                   +-> discard (beats)
//
// Guarantees (formal/dispatcher.sv)
// * Each descriptor gives exactly one completion or one drop, in order; its beats are taken from the frame FIFO exactly once.
// * A frame takes a completion only if more than RESERVE are free, so fences always find RESERVE that frames left.
// * A frame without credit is dropped, and never waits: no queue stops another, except while its own output does.
// Fences are sent by the sequencer while the dispatcher is idle.

`default_nettype none

module dispatcher #(
    parameter WIDTH = 128,
    parameter INFO = 176,
    parameter RING_LOG2 = 8          // buffers and completions of a queue
) (
    input  wire             clk,
    input  wire             reset,
    input  wire             clear,           // with each queue once, before the first frame
    input  wire [4:0]       clear_queue,
    input  wire [31:0]      generation,
    // Descriptors.
    input  wire             descriptor_valid,
    input  wire [1:0]       descriptor_bad,  // 1 bad FCS, 2 bad length
    input  wire             descriptor_drop,
    input  wire [4:0]       descriptor_queue,
    input  wire [13:0]      descriptor_length,
    input  wire [INFO-1:0]  descriptor_info, // for the completion
    output wire             descriptor_pop,
    // Beats of frames.
    input  wire             frame_valid,
    input  wire [WIDTH-1:0] frame_data,
    output wire             frame_pop,
    // Free buffers and read completions, from the driver.
    input  wire             post_valid,
    input  wire [4:0]       post_queue,
    input  wire [15:0]      post_buffer,
    input  wire             take_valid,
    input  wire [4:0]       take_queue,
    input  wire [15:0]      take_number,
    // Frames to queues.
    output wire             tx_valid,
    input  wire             tx_ready,
    output wire [WIDTH-1:0] tx_data,
    output wire             tx_last,
    output wire [4:0]       tx_queue,
    output wire [15:0]      tx_buffer,
    // Completions of frames and fences.
    output wire             completion_valid,
    input  wire             completion_ready,
    output wire [4:0]       completion_queue,
    output wire [255:0]     completion,
    // Drops: for one cycle each.
    output wire             dropped,
    output wire [2:0]       dropped_counter,
    output wire [4:0]       dropped_queue,
    output wire             received,        // a frame was given to `completion_queue`
    output wire             idle,
    // Fences.
    input  wire             fence_check,     // is there a completion for the queue?
    input  wire [4:0]       fence_queue,
    output wire             fence_room,
    input  wire             fence_send,
    input  wire [31:0]      fence_number,
    output wire             fence_sent
);
    localparam BEAT_LOG2 = WIDTH == 512 ? 6 : 4;

    // ---- Decide ----
    reg job, job_discard;
    reg [2:0] job_counter;
    reg [4:0] job_queue;
    reg [15:0] job_buffer;
    reg [9:0] job_beats;             // left
    reg [13:0] job_length;
    reg [INFO-1:0] job_info;
    reg decided;                     // credits were taken, and the buffer's number is being read
    reg decided_discard;
    reg [2:0] decided_counter;

    wire decide = descriptor_valid && !decided;
    wire is_fence = fence_check || fence_send;
    wire [4:0] queue = is_fence ? fence_queue : descriptor_queue;
    wire [RING_LOG2:0] buffers, unread;
    wire [RING_LOG2-1:0] buffer_head, buffer_tail;
    wire [RING_LOG2:0] unread_max = {1'b1, {RING_LOG2{1'b0}}};
    wire has_credit = buffers != 0 && unread < unread_max - millrace_nic_pkg::FENCE_RESERVE;
    wire discard = descriptor_bad != 0 || descriptor_drop || !has_credit;
    wire give = decide && !discard;
    wire fence_accepted;
    wire [RING_LOG2:0] post_count;
    queue_counter #(.MAX_LOG2(RING_LOG2)) free_buffers (
        .clk(clk), .clear(clear), .clear_queue(clear_queue), .add(post_valid), .add_queue(post_queue), .add_count(post_count),
        .subtract(give), .subtract_queue(queue), .subtract_number(16'd1), .subtract_count(buffers),
        .add_at(buffer_tail), .subtract_at(buffer_head)
    );
    queue_counter #(.MAX_LOG2(RING_LOG2)) unread_completions (
        .clk(clk), .clear(clear), .clear_queue(clear_queue), .add(give || fence_accepted), .add_queue(queue),
        .add_count(unread), .subtract(take_valid), .subtract_queue(take_queue), .subtract_number(take_number),
        .subtract_count(), .add_at(), .subtract_at()
    );
    wire [15:0] buffer;
    mem_block #(.WIDTH(16), .DEPTH_LOG2(RING_LOG2 + 5)) buffer_rings (
        .clk(clk), .write(post_valid && !post_count[RING_LOG2]), .write_at({post_queue, buffer_tail}),
        .write_data(post_buffer), .read(give), .read_at({queue, buffer_head}), .read_data(buffer)
    );
    wire job_done;
    assign descriptor_pop = decided && (!job || job_done);

    // ---- Send or discard ----
    // Beats of a frame: at most 9,600 bytes are stored, at least one beat.
    wire [13:0] stored = descriptor_length > millrace_nic_pkg::FRAME_SIZE_MAX ? millrace_nic_pkg::FRAME_SIZE_MAX
                       : descriptor_length == 0 ? 14'd1 : descriptor_length;
    wire [13:0] beats = (stored + (1 << BEAT_LOG2) - 14'd1) >> BEAT_LOG2;
    reg sent;                        // all beats are out; the completion is left
    wire last_beat = job_beats == 10'd1;
    assign tx_valid = job && !job_discard && !sent && frame_valid;
    assign tx_data = frame_data;
    assign tx_last = last_beat;
    assign tx_queue = job_queue;
    assign tx_buffer = job_buffer;
    assign frame_pop = job && !sent && frame_valid && (job_discard || tx_ready);
    wire completes = job && sent;
    assign job_done = job && (job_discard ? frame_pop && last_beat : sent && completion_ready);
    assign dropped = job_discard && job_done;
    assign dropped_counter = job_counter;
    assign dropped_queue = job_counter == millrace_nic_pkg::COUNT_NO_BUFFER ? job_queue : 5'd0;
    assign received = completes && completion_ready;

    assign fence_room = unread != unread_max;
    assign fence_accepted = fence_send && completion_ready;
    assign fence_sent = fence_accepted;
    assign completion_valid = completes || fence_send;
    assign completion_queue = fence_send ? fence_queue : job_queue;
    wire [31:0] hash, mark, time_ns;
    wire [15:0] flags;
    wire [63:0] offsets;             // l3, l4, inner l3, inner l4, kind, tags, labels, class, from bit 0
    assign {time_ns, offsets, flags, hash, mark} = job_info;
    assign completion = fence_send
        ? {96'd0, generation, millrace_nic_pkg::FLAG_FENCE, 80'd0, fence_number}
        : {time_ns, offsets, generation, flags, 6'd0, hash[31:22], 2'd0, job_length, job_buffer, hash, mark};
    assign idle = !decided && !job && !descriptor_valid;

    always @(posedge clk) begin
        if (decide) begin
            decided <= 1'b1;
            decided_discard <= discard;
            decided_counter <= descriptor_bad == 2'd1 ? millrace_nic_pkg::COUNT_BAD_FCS
                             : descriptor_bad == 2'd2 ? millrace_nic_pkg::COUNT_BAD_LENGTH
                             : descriptor_drop ? millrace_nic_pkg::COUNT_DROPPED : millrace_nic_pkg::COUNT_NO_BUFFER;
        end
        if (frame_pop) begin
            job_beats <= job_beats - 1'b1;
            if (last_beat && !job_discard) sent <= 1'b1;
        end
        if (job_done) begin
            job <= 1'b0;
            sent <= 1'b0;
        end
        if (descriptor_pop) begin
            decided <= 1'b0;
            job <= 1'b1;
            job_discard <= decided_discard;
            job_counter <= decided_counter;
            job_queue <= descriptor_queue;
            job_buffer <= buffer;
            job_beats <= beats[9:0];
            job_length <= descriptor_length;
            job_info <= descriptor_info;
        end
        if (reset) begin
            decided <= 1'b0;
            job <= 1'b0;
            sent <= 1'b0;
        end
    end

`ifdef PROOF
    // A frame that was taken from the descriptors and is not given or dropped yet, and what it should become.
    reg under_way, expected_discard;
    reg [13:0] expected_length;
    reg [INFO-1:0] expected_info;
    reg [9:0] popped;
    reg [4:0] expected_queue;
    wire [13:0] expected_stored = expected_length > 14'd9600 ? 14'd9600 : expected_length == 0 ? 14'd1 : expected_length;
    wire [13:0] expected_beats = (expected_stored + (1 << BEAT_LOG2) - 14'd1) >> BEAT_LOG2;
    reg was_discard;
    always @(posedge clk) begin
        if (decide) was_discard <= discard;
        if (descriptor_pop) begin
            under_way <= 1'b1;
            expected_discard <= was_discard;
            expected_length <= descriptor_length;
            expected_info <= descriptor_info;
            expected_queue <= descriptor_queue;
            popped <= 10'd0;
        end else begin
            if (received || dropped) under_way <= 1'b0;
            if (frame_pop) popped <= popped + 1'b1;
        end
        if (reset) under_way <= 1'b0;
    end
    always @* if (!reset) begin
        // The descriptor is held until it is taken; the sequencer sends fences while nothing is under way.
        assume (!(decided && !descriptor_valid));
        assume (!(fence_check || fence_send) || idle);
        assert (under_way == job);
        if (job) begin
            assert (job_discard == expected_discard);
            assert (job_info == expected_info && job_length == expected_length && job_queue == expected_queue);
            assert (sent || {4'd0, popped} + {4'd0, job_beats} == expected_beats);
            assert (sent || job_beats != 0);
            if (sent) assert ({4'd0, popped} == expected_beats && !job_discard);
        end
        if (!job) assert (!sent);
        if (decided) assert (decided_discard == was_discard);
        // Exactly one of both ends a frame, and only when all its beats are taken.
        assert (!(received && dropped));
        if (received || dropped) assert (job);
        if (received) assert ({4'd0, popped} == expected_beats && !expected_discard);
        if (dropped) assert ({4'd0, popped} + 14'd1 == expected_beats && expected_discard);
        if (tx_valid) assert (!expected_discard);
        // The reserve for fences, and no completion that is not there.
        if (give) assert (buffers != 0 && unread < unread_max - 4);
        if (decide && !give) assert (descriptor_bad != 0 || descriptor_drop || buffers == 0 || unread >= unread_max - 4);
    end
`endif
endmodule
`default_nettype wire
