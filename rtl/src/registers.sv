// The registers of docs/nic-interface.md. Writes go to a shadow; when CONTROL.enable becomes 1 the shadow is copied, and the
// core leaves reset. Later writes wait for the next time, so the configuration is constant while frames are inside.
//
//   OFF --enable--> COPY (40 words) --> ON --!enable--> OFF
//
// Guarantee: `core_reset` is true in OFF and COPY, and the configuration changes in COPY only.

`default_nettype none

module registers #(
    parameter QUEUES = 32,
    parameter BANKS = 4,
    parameter RULES = 32,
    parameter ROW_BITS = 9,
    parameter PORTS = 4
) (
    input  wire         clk,
    input  wire         reset,
    input  wire         write,
    input  wire [11:0]  write_offset,     // bytes, a multiple of 4
    input  wire [31:0]  write_value,
    input  wire         read,             // held until `read_done`
    input  wire [11:0]  read_offset,
    output reg          read_done,
    output reg  [31:0]  read_value,
    output wire         core_reset,
    output wire [383:0] flow_keys,
    output wire [511:0] table_keys,
    output wire [67:0]  tpids,
    output wire [151:0] tunnels,
    input  wire         ready,
    input  wire [31:0]  generation,
    output wire [2:0]   count_counter,
    output wire [4:0]   count_queue,
    input  wire         count_ready,
    input  wire [63:0]  count_value
);
    localparam FIRST = millrace_nic_pkg::REG_HASH_KEY / 4;
    localparam WORDS = 40;                // HASH_KEY, TABLE_KEY, TPID, TUNNEL_PORT follow each other
    localparam OFF = 2'd0, COPY = 2'd1, ON = 2'd2;
    reg enable;
    reg [1:0] state;
    reg [5:0] word;
    reg [WORDS-1:0] written;              // words that were never written are 0
    reg [32*WORDS-1:0] config_words;
    wire [9:0] write_word = write_offset[11:2];
    wire is_config = write_word >= FIRST && write_word < FIRST + WORDS;
    wire [31:0] shadow;
    wire [9:0] read_word = read_offset[11:2];
    wire is_config_read = read_word >= millrace_nic_pkg::REG_TPID / 4 && read_word < FIRST + WORDS;
    wire [5:0] shadow_at = state == COPY ? word : read_word[5:0];
    mem_lut #(.WIDTH(32), .DEPTH_LOG2(6)) shadows (
        .clk(clk), .write(write && is_config), .write_at(write_word[5:0]), .write_data(write_value),
        .read_at(shadow_at), .read_data(shadow)
    );
    wire [5:0] written_at = shadow_at - FIRST;
    wire [31:0] shadow_or_0 = written[written_at] ? shadow : 32'd0;

    assign core_reset = state != ON;
    assign flow_keys = config_words[383:0];
    assign table_keys = config_words[895:384];
    genvar i;
    generate
        for (i = 0; i < 4; i = i + 1) begin : g_tpid
            assign tpids[17 * i +: 17] = config_words[896 + 32 * i +: 17];
        end
        for (i = 0; i < 8; i = i + 1) begin : g_tunnel
            assign tunnels[19 * i +: 19] = config_words[1024 + 32 * i +: 19];
        end
    endgenerate
    wire [5:0] written_index = write_word[5:0] - FIRST;
    always @(posedge clk) begin
        if (write && is_config) written[written_index] <= 1'b1;
        if (write && write_offset == millrace_nic_pkg::REG_CONTROL) enable <= write_value[0];
        case (state)
            OFF: if (enable) begin
                state <= COPY;
                word <= FIRST;
            end
            COPY: begin
                // The first word moves down to bit 0.
                config_words <= {shadow_or_0, config_words[32*WORDS-1:32]};
                word <= word + 1'b1;
                if (word == FIRST + WORDS - 1) state <= ON;
            end
            default: if (!enable) state <= OFF;
        endcase
        if (reset) begin
            enable <= 1'b0;
            state <= OFF;
            written <= {WORDS{1'b0}};
        end
    end

    reg [63:0] cycles;
    reg [31:0] cycles_high;
    localparam COUNT = millrace_nic_pkg::REG_COUNT / 4;
    localparam NO_BUFFER = millrace_nic_pkg::REG_NO_BUFFER / 4;
    wire is_count = read_word >= COUNT && read_word < COUNT + 12;
    wire is_no_buffer = read_word >= NO_BUFFER && read_word < NO_BUFFER + 64;
    assign count_counter = is_no_buffer ? 3'd6 : read_word[3:1];
    assign count_queue = read_word[5:1] - NO_BUFFER / 2;
    wire [31:0] count_half = read_word[0] ? count_value[63:32] : count_value[31:0];
    always @(posedge clk) begin
        cycles <= reset ? 64'd0 : cycles + 1'b1;
        read_done <= !reset && read && !read_done
                  && (is_count || is_no_buffer ? count_ready : state != COPY);
        if (read) begin
            read_value <= 32'd0;
            case (read_offset)
                millrace_nic_pkg::REG_ID: read_value <= millrace_nic_pkg::REG_ID_VALUE;
                millrace_nic_pkg::REG_VERSION: read_value <= millrace_nic_pkg::REG_VERSION_VALUE;
                millrace_nic_pkg::REG_CAP_QUEUES: read_value <= QUEUES | BANKS << 8 | RULES << 16;
                millrace_nic_pkg::REG_CAP_ROWS: read_value <= ROW_BITS | millrace_nic_pkg::WAYS << 8;
                millrace_nic_pkg::REG_CAP_PORTS: read_value <= PORTS;
                millrace_nic_pkg::REG_STATUS: read_value <= {31'd0, ready};
                millrace_nic_pkg::REG_CONTROL: read_value <= {31'd0, enable};
                millrace_nic_pkg::REG_GENERATION: read_value <= generation;
                millrace_nic_pkg::REG_CYCLES: begin
                    read_value <= cycles[31:0];
                    cycles_high <= cycles[63:32];
                end
                millrace_nic_pkg::REG_CYCLES + 4: read_value <= cycles_high;
                default: if (is_config_read) read_value <= shadow_or_0;
                    else if (is_count || is_no_buffer) read_value <= count_half;
            endcase
        end
    end
endmodule
`default_nettype wire
