// The dispatcher with any frames, credits and stalls. The properties are in src/dispatcher.sv.
module proof (
    input wire clk,
    input wire clear,
    input wire [4:0] clear_queue, descriptor_queue, post_queue, take_queue, fence_queue,
    input wire descriptor_valid, descriptor_drop, frame_valid, post_valid, take_valid, tx_ready, completion_ready,
    input wire fence_check, fence_send,
    input wire [1:0] descriptor_bad,
    input wire [13:0] descriptor_length,
    input wire [175:0] descriptor_info,
    input wire [15:0] post_buffer, take_number
);
    reg reset = 1'b1;
    always @(posedge clk) reset <= 1'b0;
    wire descriptor_pop;
    // The descriptor at the head of its FIFO stays until it is taken.
    reg held = 1'b0;
    reg [193:0] head;
    wire [193:0] now = held ? head : {descriptor_info, descriptor_length, descriptor_bad, descriptor_drop, 1'b0};
    reg [4:0] queue_head;
    wire [4:0] queue_now = held ? queue_head : descriptor_queue;
    wire valid_now = held || descriptor_valid;
    always @(posedge clk) begin
        held <= valid_now && !descriptor_pop && !reset;
        head <= now;
        queue_head <= queue_now;
    end
    dispatcher dispatcher_under_proof (
        .clk(clk), .reset(reset), .clear(clear), .clear_queue(clear_queue), .generation(32'd0),
        .descriptor_valid(valid_now && !reset), .descriptor_bad(now[3:2]), .descriptor_drop(now[1]),
        .descriptor_queue(queue_now), .descriptor_length(now[17:4]), .descriptor_info(now[193:18]),
        .descriptor_pop(descriptor_pop), .frame_valid(frame_valid), .frame_data(128'd0), .frame_pop(),
        .post_valid(post_valid), .post_queue(post_queue), .post_buffer(post_buffer), .take_valid(take_valid),
        .take_queue(take_queue), .take_number(take_number), .tx_valid(), .tx_ready(tx_ready), .tx_data(), .tx_last(),
        .tx_queue(), .tx_buffer(), .completion_valid(), .completion_ready(completion_ready), .completion_queue(),
        .completion(), .dropped(), .dropped_counter(), .dropped_queue(), .received(), .idle(),
        .fence_check(fence_check), .fence_queue(fence_queue), .fence_room(), .fence_send(fence_send),
        .fence_number(32'd7), .fence_sent()
    );
endmodule
