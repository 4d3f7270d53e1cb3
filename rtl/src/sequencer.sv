// The sequencer: empties the tables when the core leaves reset, and then executes commands, one at a time.
//
// A command waits in the order of frames (see parser.sv). The sequencer starts it when all frames before it have left the
// classifier and the dispatcher, and lets the parser go on when it has ended. So each command takes effect between two
// frames, whatever it does, and no table is written while a frame is looked up.
//
//   CLEAR --> WAIT --go--> EXECUTE --> one of BUCKETS, RULE, CHECK -> FENCES, COUNT --> COMPLETE --> WAIT
//
// Guarantees (formal/sequencer.sv): commands complete in order, each exactly once, with the status of
// docs/nic-interface.md; a command with another status than OK writes nothing; a row is written in one cycle, with even
// parity; fences are sent only if each queue has room for one.

`default_nettype none

module sequencer #(
    parameter ROW_BITS = 9,
    parameter RULES_LOG2 = 5,
    parameter BANKS_LOG2 = 2,
    parameter PORTS = 4
) (
    input  wire                  clk,
    input  wire                  reset,
    output wire                  ready,           // tables are empty, and frames are welcome
    // The command at its place in the order of frames.
    input  wire                  go,              // it is next, and no frame is under way
    output wire                  done,
    input  wire [511:0]          command,         // bit 0 is the low bit of byte 0; held until `done`
    output wire                  completion_valid,
    input  wire                  completion_ready,
    output wire [127:0]          completion,
    output reg  [31:0]           generation,
    // Ports.
    input  wire [3:0]            port,
    output wire [511:0]          port_mask,
    output wire [3:0]            port_form,
    // Tables.
    output wire                  write_row,
    output wire [ROW_BITS+1:0]   write_row_at,
    output wire [575:0]          write_row_data,
    output wire                  write_rule,
    output wire                  clear_rule,
    output wire [RULES_LOG2-1:0] write_rule_at,
    output wire [255:0]          write_rule_value,
    output wire [255:0]          write_rule_mask,
    output wire [42:0]           write_rule_action,
    input  wire                  write_rule_busy,
    output wire                  write_bucket,
    output wire [9:0]            write_bucket_at,
    output wire [4:0]            write_bucket_queue,
    output wire                  commit,
    // Queues and counters.
    output wire                  clear_queues,
    output wire [4:0]            clear_queue,
    output wire                  fence_check,
    output wire                  fence_send,
    output wire [4:0]            fence_queue,
    output wire [31:0]           fence_number,
    input  wire                  fence_room,
    input  wire                  fence_sent,
    output wire                  count_read,
    output wire [2:0]            count_counter,
    output wire [4:0]            count_queue,
    input  wire [63:0]           count_value
);
    // ---- Fields ----
    wire [7:0] opcode = command[7:0];
    wire [7:0] select = command[15:8];
    wire [15:0] first = command[31:16];
    wire [31:0] tag = command[63:32];
    wire [31:0] index = command[95:64];
    wire [3:0] form = command[99:96];
    wire fenced = command[104];
    wire [31:0] mark = command[159:128];
    wire override_queue = command[165];
    wire [4:0] queue = override_queue ? command[164:160] : 5'd0;
    wire drop = command[166];
    wire [3:0] class_number = command[171:168];
    wire [42:0] action = {class_number, drop, override_queue, queue, mark};

    wire is_stage = opcode == millrace_nic_pkg::OP_STAGE;
    wire is_write_row = opcode == millrace_nic_pkg::OP_WRITE_ROW;
    wire is_clear_row = opcode == millrace_nic_pkg::OP_CLEAR_ROW;
    wire is_write_rule = opcode == millrace_nic_pkg::OP_WRITE_TERNARY;
    wire is_clear_rule = opcode == millrace_nic_pkg::OP_CLEAR_TERNARY;
    wire is_set_mask = opcode == millrace_nic_pkg::OP_SET_MASK;
    wire is_set_buckets = opcode == millrace_nic_pkg::OP_SET_BUCKETS;
    wire is_commit = opcode == millrace_nic_pkg::OP_COMMIT;
    wire is_fence = opcode == millrace_nic_pkg::OP_FENCE;
    wire is_read_count = opcode == millrace_nic_pkg::OP_READ_COUNT;

    // ---- Ranges ----
    wire row_good = select < 8'd4 && index < (1 << ROW_BITS);
    wire rule_good = index < (1 << RULES_LOG2);
    reg queues_good;
    integer i;
    always @* begin
        queues_good = 1'b1;
        for (i = 0; i < 48; i = i + 1)
            if (i < select && command[128 + 8 * i + 5 +: 3] != 3'd0) queues_good = 1'b0;
    end
    wire [16:0] buckets_end = {1'b0, first} + {9'd0, select};
    reg [15:0] status;
    always @* begin
        status = millrace_nic_pkg::STATUS_OK;
        if (is_stage && select > 8'd1) status = millrace_nic_pkg::STATUS_RANGE;
        if (is_write_row && (!row_good || form == 0)) status = millrace_nic_pkg::STATUS_RANGE;
        if (is_clear_row && !row_good) status = millrace_nic_pkg::STATUS_RANGE;
        if ((is_write_rule || is_clear_rule) && !rule_good) status = millrace_nic_pkg::STATUS_RANGE;
        if (is_set_mask && (select >= PORTS || index >= (1 << BANKS_LOG2))) status = millrace_nic_pkg::STATUS_RANGE;
        if (is_set_buckets && (select == 0 || select > 8'd48 || buckets_end > 17'd1024 || !queues_good))
            status = millrace_nic_pkg::STATUS_RANGE;
        if (is_read_count && (select > 8'd7 || (select >= 8'd6 && first > 16'd31)))
            status = millrace_nic_pkg::STATUS_RANGE;
        if (opcode > millrace_nic_pkg::OP_READ_COUNT) status = millrace_nic_pkg::STATUS_UNKNOWN;
    end

    // ---- States ----
    localparam CLEAR = 3'd0, WAIT = 3'd1, EXECUTE = 3'd2, BUCKETS = 3'd3, RULE = 3'd4, CHECK = 3'd5, FENCES = 3'd6;
    localparam COMPLETE = 3'd7;
    reg [2:0] state;
    reg entered;                         // the first cycle of FENCES
    reg [15:0] at;                       // of loops
    reg [15:0] result;
    reg [63:0] value;
    reg [511:0] staged;
    wire execute = state == EXECUTE && status == millrace_nic_pkg::STATUS_OK;
    wire needs_fence = is_fence || (is_commit && fenced);
    wire changes_tables = is_write_row || is_clear_row || is_write_rule || is_clear_rule || is_set_mask || is_commit;

    // CLEAR writes each row, each bucket of the shadow copy (then of the other), and each queue, side by side.
    localparam CLEAR_LOG2 = ROW_BITS + 2 > 11 ? ROW_BITS + 2 : 11;
    wire clearing = state == CLEAR;
    wire [15:0] clear_last = (1 << CLEAR_LOG2) - 1;
    assign ready = state != CLEAR;
    assign clear_queues = clearing && at < 16'd32;
    assign clear_queue = at[4:0];

    wire [574:0] row_body = {15'd0, action, staged, form, 1'b1};  // without the parity, which is bit 1
    wire parity = ^row_body;
    assign write_row = clearing || (execute && (is_write_row || is_clear_row));
    assign write_row_at = clearing ? at[ROW_BITS+1:0] : {select[1:0], index[ROW_BITS-1:0]};
    assign write_row_data = clearing || is_clear_row ? 576'd0 : {row_body[574:1], parity, row_body[0]};

    assign write_rule = execute && is_write_rule;
    assign clear_rule = execute && is_clear_rule;
    assign write_rule_at = index[RULES_LOG2-1:0];
    assign write_rule_value = staged[255:0];
    assign write_rule_mask = staged[511:256];
    assign write_rule_action = action;

    wire [8:0] queue_bit = {at[5:0], 3'd0};
    assign write_bucket = (clearing && at < 16'd2048) || state == BUCKETS;
    assign write_bucket_at = clearing ? at[9:0] : first[9:0] + at[9:0];
    assign write_bucket_queue = clearing ? 5'd0 : command[9'd128 + queue_bit +: 5];
    wire commit_now = is_commit && (fenced ? state == FENCES && at == 0 && entered : execute);
    assign commit = commit_now || (clearing && (at == 16'd1023 || at == 16'd2047));

    reg [63:0] ports;                    // 16 x {form}, 4 bits each
    reg [16*BANKS_LOG2-1:0] port_banks;
    wire set_mask = execute && is_set_mask;
    assign port_form = ports[4 * port +: 4];
    mem_lut #(.WIDTH(512), .DEPTH_LOG2(BANKS_LOG2)) masks (
        .clk(clk), .write(set_mask), .write_at(index[BANKS_LOG2-1:0]), .write_data(staged),
        .read_at(port_banks[BANKS_LOG2 * port +: BANKS_LOG2]), .read_data(port_mask)
    );

    assign fence_check = state == CHECK;
    assign fence_send = state == FENCES;
    assign fence_queue = at[4:0];
    assign fence_number = index;
    assign count_read = state == EXECUTE;
    assign count_counter = select[2:0];
    assign count_queue = first[4:0];

    assign completion_valid = state == COMPLETE;
    assign completion = {value, 16'd0, result, tag};
    assign done = completion_valid && completion_ready;

    always @(posedge clk) begin
        entered <= 1'b0;
        case (state)
            CLEAR: begin
                at <= at + 1'b1;
                if (at == clear_last) state <= WAIT;
            end
            WAIT: begin
                at <= 16'd0;
                value <= 64'd0;
                if (go) state <= EXECUTE;
            end
            EXECUTE: begin
                result <= status;
                state <= COMPLETE;
                if (execute) begin
                    if (is_stage && !select[0]) staged[255:0] <= command[511:256];
                    if (is_stage && select[0]) staged[511:256] <= command[511:256];
                    if (is_read_count) value <= count_value;
                    if (is_set_buckets) state <= BUCKETS;
                    if (is_write_rule) state <= RULE;
                    if (needs_fence) state <= CHECK;
                    if (set_mask) begin
                        ports[4 * select[3:0] +: 4] <= form;
                        port_banks[BANKS_LOG2 * select[3:0] +: BANKS_LOG2] <= index[BANKS_LOG2-1:0];
                    end
                    if (changes_tables && !needs_fence) generation <= generation + 1'b1;
                end
            end
            BUCKETS: begin
                at <= at + 1'b1;
                if (at + 1'b1 == {8'd0, select}) state <= COMPLETE;
            end
            RULE: if (!write_rule_busy) state <= COMPLETE;
            CHECK: begin
                at <= at + 1'b1;
                if (!fence_room) begin
                    result <= millrace_nic_pkg::STATUS_BUSY;
                    state <= COMPLETE;
                end else if (at == 16'd31) begin
                    at <= 16'd0;
                    state <= FENCES;
                    entered <= 1'b1;
                    if (is_commit) generation <= generation + 1'b1;
                end
            end
            FENCES: if (fence_sent) begin
                at <= at + 1'b1;
                if (at == 16'd31) state <= COMPLETE;
            end
            default: if (completion_ready) state <= WAIT;
        endcase
        if (reset) begin
            state <= CLEAR;
            at <= 16'd0;
            generation <= 32'd0;
            staged <= 512'd0;
            ports <= 64'd0;
            port_banks <= {16*BANKS_LOG2{1'b0}};
        end
    end

`ifdef PROOF
    // A command is being executed from `go` to `done`.
    reg executing;
    reg [31:0] had_room;                 // queues that had room for a fence in this command
    wire writes = write_row || write_rule || clear_rule || write_bucket || commit || set_mask || fence_send;
    integer q;
    always @(posedge clk) begin
        if (reset || done) executing <= 1'b0;
        else if (state == WAIT && go) executing <= 1'b1;
        if (state == WAIT) had_room <= 32'd0;
        else if (fence_check && fence_room) had_room[fence_queue] <= 1'b1;
    end
    reg [511:0] command_was;
    always @(posedge clk) command_was <= command;
    always @* if (!reset) begin
        if (executing) assume (command == command_was);
        assume (!(go && state == CLEAR));
        assert (executing == (state != CLEAR && state != WAIT));
        // Tables change, and fences go, only inside a command, or while they are emptied.
        if (writes) assert (clearing || executing);
        if (writes && !clearing) assert (status == millrace_nic_pkg::STATUS_OK);
        if (state == BUCKETS) assert (is_set_buckets && at < {8'd0, select});
        if (state == RULE) assert (is_write_rule);
        if (state == BUCKETS || state == RULE || state == CHECK || state == FENCES)
            assert (status == millrace_nic_pkg::STATUS_OK);
        if (state == CHECK || state == FENCES) assert (needs_fence && at < 16'd32);
        // Fences go only if each queue had room.
        if (state == CHECK) for (q = 0; q < 32; q = q + 1) if (q < at) assert (had_room[q]);
        if (state == FENCES) assert (&had_room);
        if (commit && !clearing) assert (is_commit && (!fenced || &had_room));
        // A row is the staged key with its parity, or empty.
        if (write_row) assert (write_row_data == 0 || (write_row_data[1] == ^row_body
            && {write_row_data[575:2], write_row_data[0]} == row_body && is_write_row));
        if (write_row && !clearing && is_clear_row) assert (write_row_data == 0);
        if (done) assert (state == COMPLETE);
    end
`endif
endmodule
`default_nettype wire
