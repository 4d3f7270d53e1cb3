// The parser around as many engines as `ten` (or, with WIDE, `forty`) has, of four slots each, and four places in the order of
// frames and commands: results leave in the order of arrival, and none passes a command. An arbitrary frame or command is
// followed from its arrival to its end, by a bit of its last beat that the parser hands on without a look at it, as it does
// with all that it knows of a frame.
//
// An engine is anything that keeps its slots apart, as formal/engine.sv proves of the real one, and takes any time for each.
// More places than four change nothing but when the order is full.
module parser_engine #(
    parameter TAIL = 319
) (
    input wire clk, reset,
    input wire [67:0] tpids,
    input wire [151:0] tunnels,
    output wire free, idle,
    input wire load,
    input wire [1:0] load_row,
    input wire [255:0] load_data,
    input wire load_last,
    input wire [7:0] load_size,
    input wire load_longer,
    output wire [1:0] load_slot,
    output wire [3:0] done,
    input wire release_slot,
    input wire [1:0] result_slot,
    output wire [95:0] ethernet,
    output wire [255:0] addresses, ends,
    output wire [TAIL-1:0] tail,
    output reg [3:0] busy,
    output wire [3:0] followed
);
    (* anyseq *) wire [3:0] finish;
    (* anyseq *) wire is_idle;
    reg [3:0] finished, longer;
    reg [1:0] load_at;
    assign load_slot = load_at;
    assign free = !busy[load_at];
    assign idle = free && is_idle;
    assign done = finished;
    assign followed = busy & longer;
    assign tail = longer[result_slot];
    assign ethernet = 0; assign addresses = 0; assign ends = 0;
    wire [3:0] loads = load && load_last ? 4'b1 << load_at : 4'b0;
    wire [3:0] releases = release_slot ? 4'b1 << result_slot : 4'b0;
    always @(posedge clk) begin
        busy <= reset ? 4'd0 : (busy | loads) & ~releases;
        finished <= reset ? 4'd0 : (finished | (busy & finish)) & ~releases;
        longer <= load_longer ? longer | loads : longer & ~loads;
        load_at <= reset ? 2'd0 : load_at + (load && load_last);
    end
    always @* if (!reset) begin
        assert ((finished & ~busy) == 0);
        // What the proof of the engine assumes of its user.
        if (load && load_last) assert (free);
        if (release_slot) assert (finished[result_slot]);
    end
endmodule

module proof (
    input wire clk,
    input wire head_valid, head_last, marker, follow, end_valid, take, command_end,
    input wire [3:0] head_port
);
`ifdef WIDE
    localparam WIDTH = 512, ENGINES = 5;
`else
    localparam WIDTH = 128, ENGINES = 3;
`endif
    localparam ORDER_LOG2 = 2, PLACES = 1 << ORDER_LOG2;
    reg reset = 1'b1;
    always @(posedge clk) reset <= 1'b0;

    // ---- The head FIFO: frames of some beats, and commands between them; what it shows stays until it is popped. ----
    reg held = 0, in_frame = 0;
    reg held_marker, held_last, held_follow;
    reg [3:0] held_port;
    reg once = 0;                // something was followed
    wire begins = !held && !in_frame;
    wire valid_now = held || head_valid;
    wire marker_now = begins ? marker : held && held_marker;
    wire last_now = marker_now || (held ? held_last : head_last);
    wire follow_now = begins ? follow && !once : held_follow;
    wire [3:0] port_now = begins ? head_port : held_port;
    wire head_pop, result_valid, command_next;
    wire [318:0] tail;
    wire [3:0] result_port;
    wire result_take = take && result_valid, command_done = command_end && command_next;
    wire comes = head_pop && last_now && !reset, goes = (result_take || command_done) && !reset;
    always @(posedge clk) begin
        held <= valid_now && !head_pop && !reset;
        in_frame <= !reset && (valid_now && !marker_now ? !(head_pop && last_now) && (in_frame || head_pop) : in_frame);
        if (valid_now) begin
            held_marker <= marker_now;
            held_last <= last_now;
            held_follow <= follow_now;
            held_port <= port_now;
        end
        if (comes && follow_now) once <= 1'b1;
    end

    // ---- What is inside, and what is followed, as one sees it from outside. ----
    reg [5:0] inside = 0, ahead = 0;
    reg following = 0, followed_marker;
    reg [3:0] followed_port;
    always @(posedge clk) begin
        inside <= inside + comes - goes;
        if (comes && follow_now) begin
            following <= 1'b1;
            followed_marker <= marker_now;
            followed_port <= port_now;
            ahead <= inside - goes;
        end else if (goes) begin
            ahead <= ahead - 1'b1;
            if (ahead == 0) following <= 1'b0;
        end
    end

    wire [10*PLACES-1:0] entries;
    wire [ORDER_LOG2:0] count;
    wire loading;
    wire [2:0] target, turn;
    wire [ENGINES-1:0] free;
    wire [2*ENGINES-1:0] load_slots;
    wire [4*ENGINES-1:0] busy, done, followed;
    parser #(.WIDTH(WIDTH), .ENGINES(ENGINES), .ORDER_LOG2(ORDER_LOG2)) parser_under_proof (
        .clk(clk), .reset(reset), .tpids(68'd0), .tunnels(152'd0), .head_valid(valid_now && !reset), .head_data({WIDTH{1'b0}}),
        .head_first(1'b0), .head_last(last_now), .head_size(8'd16), .head_longer(follow_now), .head_port(port_now),
        .head_marker(marker_now), .head_pop(head_pop), .end_valid(end_valid), .end_pop(), .result_valid(result_valid),
        .result_ethernet(), .result_addresses(), .result_ends(), .result_tail(tail), .result_port(result_port),
        .result_take(result_take && !reset), .command_next(command_next), .command_done(command_done && !reset),
        .proof_entries(entries), .proof_count(count), .proof_loading(loading), .proof_target(target), .proof_turn(turn),
        .proof_free(free), .proof_load_slots(load_slots), .proof_busy(busy), .proof_done(done), .proof_followed(followed)
    );

    // ---- The guarantee. ----
    always @* if (!reset) begin
        assert (!(result_valid && command_next));
        if (inside == 0) assert (!result_valid && !command_next);
        if (following && ahead == 0) begin
            if (followed_marker) assert (command_next);
            else begin
                // Its walk is done and its end is known: it is offered, and nothing else is.
                assert (!command_next);
                assert (result_valid == (|(done & followed) && end_valid));
                if (result_valid) assert (tail[0] && result_port == followed_port);
            end
        end else if (result_valid) assert (!tail[0]);
    end

    // ---- Why it holds: each place of the order names a slot that no other place names. ----
    integer i, e, s;
    reg [5:0] named;
    reg [9:0] entry, chosen;
    reg [2:0] at;
    wire [ORDER_LOG2-1:0] newest = count - 1'b1;
    always @* if (!reset) begin
        assert (count <= PLACES);
        assert (inside + loading == count);
        assert (turn < ENGINES);
        if (in_frame) assert (loading && !(held && held_marker));
        chosen = entries[10 * newest +: 10];
        if (loading) begin
            assert (target < ENGINES && count != 0 && (held || in_frame));
            if (held) assert (!held_marker);
            assert (free[target]);
            assert (chosen == {1'b0, target, load_slots[2 * target +: 2], held_port});
        end
        for (i = 0; i < PLACES; i = i + 1) begin
            entry = entries[10 * i +: 10];
            if (i < count && !entry[9]) assert (entry[8:6] < ENGINES);
        end
        for (e = 0; e < ENGINES; e = e + 1)
            for (s = 0; s < 4; s = s + 1) begin
                named = 0;
                for (i = 0; i < PLACES; i = i + 1) begin
                    entry = entries[10 * i +: 10];
                    named = named + (i < count && entry[9:4] == {1'b0, e[2:0], s[1:0]});
                end
                assert (named == (busy[4 * e + s] || (loading && target == e && load_slots[2 * e +: 2] == s)));
            end
        // The followed one is where it should be, and only it has the bit.
        entry = entries[10 * ahead[ORDER_LOG2-1:0] +: 10];
        if (following) begin
            assert (once && ahead < inside && entry[9] == followed_marker);
            if (!followed_marker) assert (entry[3:0] == followed_port);
        end
        for (e = 0; e < ENGINES; e = e + 1)
            for (s = 0; s < 4; s = s + 1)
                assert (followed[4 * e + s] == (following && !followed_marker && entry[8:4] == {e[2:0], s[1:0]}));
        if (held || in_frame) assert (!(held_follow && once));
    end
endmodule
