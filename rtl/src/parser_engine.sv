// One parser engine: walks the headers of two frames in turn, one header a cycle, and keeps the results of up to four
// frames until they are collected. docs/nic-interface.md, "Parser", has the table of headers that this file implements.
//
//               +--- context ---+        +--- context ---+
//   window ---> | registers r_* | -----> | registers e_* | ---+   both contexts move on in each cycle: while one is in
//      ^        +---------------+  slice +---------------+    |   r_* its 32 bytes are read, while the other is in e_* its
//      | slot, at      ^                     step (n_*) ------+   header is decoded, and its fields are written.
//                      +--------------------------------------+
//
// A walk ends with a visit in END, which writes the scalars of the result (`tail`) and marks the slot as done.
//
// Guarantees
// * A frame takes at most 24 steps; each visit either counts a step, or is one of at most five that recognise the payload of a
//   label stack, or the only visit of ARP, SNAP, the second half of IPv6, the rest of IPv4 options, or the end.
// * Slots are loaded, walked and given back in order of loading; a result is stable from `done` until `release`.

`default_nettype none

module parser_engine #(
    parameter TAIL = 319             // width of `tail`
) (
    input  wire         clk,
    input  wire         reset,
    // Configuration, constant while frames are inside.
    input  wire [67:0]  tpids,        // 4 x {openflow, EtherType}
    input  wire [151:0] tunnels,      // 8 x {kind, UDP port}
    // Loading of windows. A window ends with `load_last`.
    output wire         free,         // a slot is free
    output wire         idle,         // a slot is free, and a context will take it at once
    input  wire         load,
    input  wire [1:0]   load_row,
    input  wire [255:0] load_data,
    input  wire         load_last,
    input  wire [7:0]   load_size,    // bytes of the window, 0 to 128, with `load_last`
    input  wire         load_longer,  // the frame is longer than the window, with `load_last`
    output wire [1:0]   load_slot,
    // Results.
    output wire [3:0]   done,
    input  wire         release_slot,
    input  wire [1:0]   result_slot,
    output wire [95:0]  ethernet,     // destination, source
    output wire [255:0] addresses,    // source, destination of the OpenFlow view
    output wire [255:0] ends,         // both ends of the flow view
    output wire [TAIL-1:0] tail
);
    localparam S_ETH = 5'd0, S_TAG = 5'd1, S_SNAP = 5'd2, S_PBB = 5'd3, S_ARP = 5'd4, S_MPLS = 5'd5, S_V4 = 5'd6;
    localparam S_V6 = 5'd7, S_V6_DST = 5'd8, S_V6_EXT = 5'd9, S_PORTS = 5'd10, S_ICMP = 5'd11, S_GRE = 5'd12;
    localparam S_VXLAN = 5'd13, S_GENEVE = 5'd14, S_GTP = 5'd15, S_GTP_EXT = 5'd16, S_RECOGNISE = 5'd17;
    localparam S_SUM_REST = 5'd18, S_SUMMED = 5'd19, S_V4_REST = 5'd20, S_END = 5'd21;

    // ---- Slots: a ring of windows. ----
    reg [3:0] busy, loaded, done_slots;
    reg [1:0] load_at, start_at;
    reg [31:0] sizes;
    reg [3:0] longer;
    assign done = done_slots;
    assign load_slot = load_at;
    assign free = !busy[load_at];

    // ---- Contexts ----
    // What a context is: the state of a walk, and the scalars of its result so far.
    localparam CONTEXT = 1 + 2 + 5 + 7 + 7 + 8 + 1 + 5 + 3 + 7 + 4 + 20 + 4 + 64 + 64 + 8 + 8 + 16 + 1 + 2 + 16 + 1 + 32
                       + 16 + 16 + 8 + 8 + 32 + 12 + 24 + 24 + 8 + 1 + 7 * 4 + 5 + 5 + 17 + 2;
    reg [CONTEXT-1:0] r_context, e_context;

    // Fields of the context in e_*.
    wire e_active;
    wire [1:0] e_slot;
    wire [4:0] e_state;
    wire [6:0] e_at, e_read;          // halfwords: of the header, of the slice
    wire [7:0] e_end;                 // bytes: end of the innermost packet in the window
    wire e_longer;
    wire [4:0] e_steps;
    wire e_openflow, e_flow, e_complete;
    wire [6:0] e_base;                // halfwords: of the payload that is recognised
    wire [1:0] e_variant;             // which candidate is being summed: 0 IP, 1 Ethernet, 2 Ethernet behind a control word
    wire [1:0] e_framed;              // candidate behind a control word: 0 none, 1 IPv4, 2 IPv6 inside, 3 without test
    wire [19:0] e_sum;
    wire [3:0] e_words;               // IHL of the header that is being summed
    wire [63:0] e_network, e_outside;
    wire [7:0] e_proto, e_option;     // option: size of an extension header of GTP-U in words
    wire [15:0] e_payload;            // bytes that IP announces for what follows
    wire e_in_v6, e_first_fragment, e_summing;
    wire [15:0] e_kind;
    wire e_flow_v6;
    wire [31:0] e_flow_ports;
    wire [15:0] e_type, e_tci;
    wire [7:0] e_ip_proto, e_class;
    wire [31:0] e_ports;
    wire [11:0] e_tcp_flags;
    wire [23:0] e_mpls, e_isid;
    wire [7:0] e_layers;
    wire e_key_v6;
    wire [6:0] e_l3, e_l4, e_inner_l3, e_inner_l4;
    wire [4:0] e_tags, e_labels;
    wire [16:0] e_ip_end;
    wire e_sum_good;
    wire e_direct;                    // only Ethernet and tags so far

    assign {e_active, e_slot, e_state, e_at, e_read, e_end, e_longer, e_steps, e_openflow, e_flow, e_complete, e_base,
            e_variant, e_framed, e_sum, e_words, e_network, e_outside, e_proto, e_option, e_payload, e_in_v6,
            e_first_fragment, e_summing, e_kind, e_flow_v6, e_flow_ports, e_type, e_tci, e_ip_proto, e_class, e_ports,
            e_tcp_flags, e_mpls, e_isid, e_layers, e_key_v6, e_l3, e_l4, e_inner_l3, e_inner_l4, e_tags, e_labels,
            e_ip_end, e_sum_good, e_direct} = e_context;

    reg n_active;
    reg [4:0] n_state;
    reg [6:0] n_at, n_read;
    reg [7:0] n_end;
    reg [4:0] n_steps;
    reg n_openflow, n_flow, n_complete;
    reg [6:0] n_base;
    reg [1:0] n_variant, n_framed;
    reg [19:0] n_sum;
    reg [3:0] n_words;
    reg [63:0] n_network, n_outside;
    reg [7:0] n_proto, n_option;
    reg [15:0] n_payload;
    reg n_in_v6, n_first_fragment, n_summing;
    reg [15:0] n_kind;
    reg n_flow_v6;
    reg [31:0] n_flow_ports;
    reg [15:0] n_type, n_tci;
    reg [7:0] n_ip_proto, n_class;
    reg [31:0] n_ports;
    reg [11:0] n_tcp_flags;
    reg [23:0] n_mpls, n_isid;
    reg [7:0] n_layers;
    reg n_key_v6;
    reg [6:0] n_l3, n_l4, n_inner_l3, n_inner_l4;
    reg [4:0] n_tags, n_labels;
    reg [16:0] n_ip_end;
    reg n_sum_good, n_direct;
    wire [CONTEXT-1:0] n_context = {n_active, e_slot, n_state, n_at, n_read, n_end, e_longer, n_steps, n_openflow, n_flow,
            n_complete, n_base, n_variant, n_framed, n_sum, n_words, n_network, n_outside, n_proto, n_option, n_payload,
            n_in_v6, n_first_fragment, n_summing, n_kind, n_flow_v6, n_flow_ports, n_type, n_tci, n_ip_proto, n_class,
            n_ports, n_tcp_flags, n_mpls, n_isid, n_layers, n_key_v6, n_l3, n_l4, n_inner_l3, n_inner_l4, n_tags,
            n_labels, n_ip_end, n_sum_good, n_direct};

    // ---- The 32 bytes at e_read ----
    wire [255:0] slice;
    wire [6:0] r_read = r_context[CONTEXT-1 - (1 + 2 + 5 + 7) -: 7];
    wire [1:0] r_slot = r_context[CONTEXT-2 -: 2];
    parser_window #(.SLOTS_LOG2(2)) window (
        .clk(clk), .write(load), .write_slot(load_at), .write_row(load_row), .write_data(load_data),
        .read_slot(r_slot), .read_at(r_read[5:0]), .slice(slice)
    );
    wire [15:0] h0 = slice[255:240], h1 = slice[239:224], h2 = slice[223:208], h3 = slice[207:192];
    wire [15:0] h4 = slice[191:176], h5 = slice[175:160], h6 = slice[159:144], h7 = slice[143:128];
    wire [15:0] h8 = slice[127:112];
    wire [3:0] first = slice[255:252];
    wire [3:0] ihl = slice[251:248];
    wire [7:0] read_byte = {e_read, 1'b0}, at_byte = {e_at, 1'b0};
    // Bytes from the slice, and from the header, to the end of the packet.
    wire [7:0] there = e_end > read_byte ? e_end - read_byte : 8'd0;
    wire at_window_end = e_end == 8'd128;

    // ---- Sum of an IPv4 header: known at the next visit of the context, two cycles later ----
    wire [5:0] sum_bytes = e_state == S_SUM_REST || e_state == S_V4_REST ? {e_words, 2'd0} - 6'd32
                         : ihl > 4'd8 ? 6'd32 : {ihl, 2'd0};
    wire [19:0] total;
    ipv4_sum header_sum (.clk(clk), .slice(slice), .size(sum_bytes), .total(total));
    wire [20:0] whole = {1'b0, e_sum} + {1'b0, total};
    wire [16:0] folded = {1'b0, whole[15:0]} + {12'd0, whole[20:16]};
    wire summed_good = folded == 17'h0ffff;

    // ---- EtherTypes and protocols ----
    // The type that follows the header in the slice.
    wire [15:0] next_type = e_state == S_ETH ? h6 : e_state == S_PBB ? h8 : e_state == S_SNAP ? h3 : h1;
    wire [3:0] tpid_equal;
    wire [3:0] tpid_openflow = {tpids[67], tpids[50], tpids[33], tpids[16]};
    genvar i;
    generate
        for (i = 0; i < 4; i = i + 1) begin : g_tpid
            assign tpid_equal[i] = next_type == tpids[17 * i +: 16] && tpids[17 * i +: 16] != 0;
        end
    endgenerate
    wire is_tag = |tpid_equal;
    // The first TPID that equals the type says whether OpenFlow knows the tag.
    wire tag_openflow = tpid_equal[0] ? tpid_openflow[0] : tpid_equal[1] ? tpid_openflow[1]
                      : tpid_equal[2] ? tpid_openflow[2] : tpid_openflow[3];
    wire [7:0] tunnel_equal;
    generate
        for (i = 0; i < 8; i = i + 1) begin : g_tunnel
            wire [2:0] kind = tunnels[19 * i + 16 +: 3];
            assign tunnel_equal[i] = h1 == tunnels[19 * i +: 16] && kind >= 3'd1 && kind <= 3'd4;
        end
    endgenerate
    reg [2:0] tunnel;
    integer t;
    always @* begin
        tunnel = 3'd0;
        for (t = 7; t >= 0; t = t - 1) if (tunnel_equal[t]) tunnel = tunnels[19 * t + 16 +: 3];
    end

    function is_extension(input [7:0] proto);
        is_extension = proto == 8'd0 || proto == 8'd43 || proto == 8'd44 || proto == 8'd51 || proto == 8'd60;
    endfunction
    function is_common(input [7:0] proto);  // next headers by which an IPv6 header is recognised
        is_common = proto == 8'd0 || proto == 8'd6 || proto == 8'd17 || proto == 8'd43 || proto == 8'd44 || proto == 8'd47
                 || proto == 8'd50 || proto == 8'd58 || proto == 8'd60 || proto == 8'd89 || proto == 8'd132;
    endfunction
    function is_ended_type(input [15:0] kind);  // EtherTypes by which an Ethernet header is recognised without a test
        is_ended_type = kind == 16'h0806 || kind == 16'h8100 || kind == 16'h88a8 || kind == 16'h9100 || kind == 16'h88e7
                     || kind == 16'h8847 || kind == 16'h8848;
    endfunction
    function [63:0] joined(input [63:0] network, input [23:0] number);
        joined = {network[42:0], network[63:43]} ^ {40'd0, number};
    endfunction

    // Recognition at the slice: an IPv4 header whose sum is not known yet, an IPv6 header.
    wire v4_shape = there != 0 && first == 4'd4 && ihl >= 4'd5 && there >= {2'd0, ihl, 2'd0} && h1 >= {10'd0, ihl, 2'd0};
    wire v6_good = there >= 8'd40 && first == 4'd6 && is_common(h3[15:8]);
    wire [1:0] ethernet_candidate = there < 8'd14 ? 2'd0 : h6 == 16'h0800 ? 2'd1 : h6 == 16'h86dd ? 2'd2
                                  : is_ended_type(h6) ? 2'd3 : 2'd0;
    wire [1:0] framed_candidate = first != 0 || there < 8'd18 ? 2'd0 : h8 == 16'h0800 ? 2'd1 : h8 == 16'h86dd ? 2'd2
                                : is_ended_type(h8) ? 2'd3 : 2'd0;

    // ---- The step ----
    localparam [4:0] LIMIT = 5'(millrace_nic_pkg::STEPS_MAX);
    // Visits that are a step by their state alone. SNAP is one if it is there.
    wire is_counted = e_state != S_SNAP && e_state != S_ARP && e_state != S_V6_DST && e_state != S_V4_REST
                   && e_state != S_RECOGNISE && e_state != S_SUM_REST && e_state != S_SUMMED && e_state != S_END;
    // How the next header is chosen.
    localparam BY_NONE = 3'd0, BY_TYPE = 3'd1, BY_PROTO = 3'd2, BY_STATE = 3'd3, BY_NIBBLE = 3'd4, BY_CANDIDATE = 3'd5;
    reg [2:0] by;
    reg [7:0] proto;                  // for BY_PROTO
    reg proto_v6;
    reg [4:0] state;                  // for BY_STATE
    reg [3:0] nibble;                 // for BY_NIBBLE
    reg short_of_bytes;               // a test against `end` failed
    reg counted;
    reg [8:0] advance;                // bytes; 256 and more is past every window
    reg [8:0] advanced;
    reg stopped;
    // Fields in memories.
    reg write_ethernet, write_src, write_dst, write_one, write_two;
    reg [127:0] one, two, src, dst;
    wire [7:0] extension_words = slice[247:240];
    // Size of an extension header in bytes.
    wire [11:0] extension_size = e_proto == 8'd44 ? 12'd8
        : e_proto == 8'd51 ? 12'd8 + {2'd0, extension_words, 2'd0} : 12'd8 + {1'b0, extension_words, 3'd0};
    wire [11:0] geneve_size = 12'd8 + {4'd0, slice[253:248], 2'd0};
    wire [4:0] gre_size = 5'd4 + {2'd0, slice[255], 2'd0} + {2'd0, slice[253], 2'd0} + {2'd0, slice[252], 2'd0};
    wire [9:0] gtp_size = {e_option, 2'd0};
    wire [5:0] ihl_bytes = {ihl, 2'd0};
    wire [5:0] tcp_bytes = {slice[159:156], 2'd0};
    wire icmp_error = e_proto == 8'd1 ? slice[255:248] == 8'd3 || slice[255:248] == 8'd4 || slice[255:248] == 8'd5
                                      || slice[255:248] == 8'd11 || slice[255:248] == 8'd12
                                      : slice[255:248] >= 8'd1 && slice[255:248] <= 8'd4;
    reg recognised, not_recognised;
    reg [16:0] packet_end;            // bytes from the begin of the window
    reg by_framed, by_ethernet;

    always @* begin
        n_active = e_active; n_state = e_state; n_at = e_at; n_read = e_read; n_end = e_end; n_steps = e_steps;
        n_openflow = e_openflow; n_flow = e_flow; n_complete = e_complete; n_base = e_base; n_variant = e_variant;
        n_framed = e_framed; n_sum = e_sum; n_words = e_words; n_network = e_network; n_outside = e_outside;
        n_proto = e_proto; n_option = e_option; n_payload = e_payload; n_in_v6 = e_in_v6;
        n_first_fragment = e_first_fragment; n_summing = 1'b0; n_kind = e_kind; n_flow_v6 = e_flow_v6;
        n_flow_ports = e_flow_ports; n_type = e_type; n_tci = e_tci; n_ip_proto = e_ip_proto; n_class = e_class;
        n_ports = e_ports; n_tcp_flags = e_tcp_flags; n_mpls = e_mpls; n_isid = e_isid; n_layers = e_layers;
        n_key_v6 = e_key_v6; n_l3 = e_l3; n_l4 = e_l4; n_inner_l3 = e_inner_l3; n_inner_l4 = e_inner_l4;
        n_tags = e_tags; n_labels = e_labels; n_ip_end = e_ip_end; n_sum_good = e_sum_good; n_direct = e_direct;
        by = BY_NONE; proto = 8'd0; proto_v6 = e_in_v6; state = S_END; nibble = 4'd0; short_of_bytes = 1'b0;
        counted = 1'b1; advance = 9'd0; stopped = 1'b0;
        write_ethernet = 1'b0; write_src = 1'b0; write_dst = 1'b0; write_one = 1'b0; write_two = 1'b0;
        one = slice[191:64]; two = slice[255:128]; src = slice[191:64]; dst = slice[255:128];
        recognised = 1'b0; not_recognised = 1'b0; by_framed = 1'b0; by_ethernet = 1'b0;
        packet_end = 17'h1ffff;

        // The sum of the IPv4 header of the visit before is known now.
        if (e_summing && summed_good) n_sum_good = 1'b1;

        // One step too many: the header is not looked at.
        if (e_steps == LIMIT && is_counted) begin
            counted = 1'b0;
            stopped = 1'b1;
            n_complete = 1'b0;
        end else case (e_state)
            S_ETH: begin
                if (there < 8'd14) short_of_bytes = 1'b1;
                else begin
                    write_ethernet = e_openflow;
                    if (e_openflow) n_type = next_type;
                    if (e_flow) begin
                        write_one = 1'b1; write_two = 1'b1;
                        one = {80'd0, slice[255:208]};
                        two = {80'd0, slice[207:160]};
                        n_flow_v6 = 1'b0; n_flow_ports = 32'd0; n_kind = next_type;
                    end
                    by = BY_TYPE; advance = 9'd14;
                end
            end
            S_TAG: begin
                if (there < 8'd4) short_of_bytes = 1'b1;
                else begin
                    if (e_openflow) begin
                        n_type = next_type;
                        if (!e_tci[12]) n_tci = {h0[15:13], 1'b1, h0[11:0]};
                    end
                    if (e_flow) begin
                        n_network = joined(e_network, {12'd0, h0[11:0]});
                        n_kind = next_type;
                    end
                    n_tags = e_tags + 1'b1;
                    by = BY_TYPE; advance = 9'd4;
                end
            end
            S_SNAP: begin
                counted = 1'b0;
                if (there < 8'd8) short_of_bytes = 1'b1;
                else if (slice[255:208] != 48'haaaa03000000 || next_type < 16'h0600) ;
                else if (e_steps == LIMIT) n_complete = 1'b0;
                else begin
                    counted = 1'b1;
                    if (e_openflow) n_type = next_type;
                    if (e_flow) n_kind = next_type;
                    n_direct = 1'b0;
                    by = BY_TYPE; advance = 9'd8;
                end
            end
            S_PBB: begin
                if (there < 8'd18) short_of_bytes = 1'b1;
                else begin
                    if (e_openflow) begin
                        n_layers = e_layers | 8'h10;
                        n_isid = {h0[7:0], h1};
                        n_l3 = e_at;
                    end
                    n_openflow = 1'b0;
                    if (e_flow) begin
                        n_network = joined(e_network, {h0[7:0], h1});
                        write_one = 1'b1; write_two = 1'b1;
                        one = {80'd0, slice[223:176]};
                        two = {80'd0, slice[175:128]};
                        n_flow_v6 = 1'b0; n_flow_ports = 32'd0; n_kind = next_type;
                    end
                    by = BY_TYPE; advance = 9'd18;
                end
            end
            S_ARP: begin
                counted = 1'b0;
                if (there < 8'd28) short_of_bytes = 1'b1;
                else if (slice[255:208] == 48'h000108000604) begin
                    n_layers = e_layers | 8'h04;
                    n_l3 = e_at;
                end
            end
            S_MPLS: begin
                if (there < 8'd4) short_of_bytes = 1'b1;
                else begin
                    if (e_openflow) begin
                        n_layers = e_layers | 8'h08;
                        n_mpls = {h1[8], h1[11:9], h0, h1[15:12]};
                        n_l3 = e_at;
                    end
                    n_openflow = 1'b0;
                    n_labels = e_labels + 1'b1;
                    n_network = joined(e_network, {4'd0, h0, h1[15:12]});
                    by = BY_STATE; advance = 9'd4;
                    if (h1[8]) begin
                        state = S_RECOGNISE;
                        n_base = e_at + 7'd2;
                    end else state = S_MPLS;
                end
            end
            S_V4: begin
                if (there < 8'd20) short_of_bytes = 1'b1;
                else if (first == 4'd4 && ihl >= 4'd5 && h1 >= {10'd0, ihl_bytes}) begin
                    packet_end = {9'd0, at_byte} + {1'b0, h1};
                    if (e_openflow && there >= {2'd0, ihl_bytes}) begin
                        n_layers = e_layers | 8'h01 | (h3[12:0] != 0 ? 8'hc0 : h3[13] ? 8'h40 : 8'h00);
                        n_ip_proto = slice[183:176];
                        n_class = slice[247:240];
                        n_key_v6 = 1'b0;
                        n_l3 = e_at;
                        n_ip_end = packet_end;
                        write_src = 1'b1; write_dst = 1'b1;
                        src = {96'd0, slice[159:128]};
                        dst = {96'd0, slice[127:96]};
                        n_summing = 1'b1;
                        n_sum = 20'd0;
                    end
                    if (e_flow) begin
                        write_one = 1'b1; write_two = 1'b1;
                        one = {96'd0, slice[159:128]};
                        two = {96'd0, slice[127:96]};
                        n_flow_v6 = 1'b0; n_flow_ports = 32'd0; n_kind = {8'd0, slice[183:176]};
                        n_inner_l3 = e_at;
                    end
                    if (h3[13:0] != 0) n_flow = 1'b0;
                    if (h3[12:0] != 0) n_openflow = 1'b0;
                    if (there < {2'd0, ihl_bytes}) short_of_bytes = 1'b1;
                    n_first_fragment = h3[13];
                    n_payload = h1 - {10'd0, ihl_bytes};
                    n_words = ihl;
                    proto = slice[183:176]; n_proto = proto;
                    proto_v6 = 1'b0; n_in_v6 = 1'b0;
                    by = BY_PROTO; advance = {3'd0, ihl_bytes};
                    if (n_summing && ihl > 4'd8) begin
                        by = BY_STATE;
                        state = S_V4_REST;
                        n_summing = 1'b0;
                        advance = 9'd0;
                    end
                end
            end
            S_V4_REST: begin
                counted = 1'b0;
                n_sum = total;
                n_summing = 1'b1;
                proto = e_proto;
                by = BY_PROTO; advance = {3'd0, e_words, 2'd0};
            end
            S_V6: begin
                if (there < 8'd40) short_of_bytes = 1'b1;
                else if (first == 4'd6) begin
                    packet_end = {9'd0, at_byte} + 17'd40 + {1'b0, h2};
                    if (e_openflow) begin
                        n_layers = e_layers | 8'h01;
                        n_ip_proto = h3[15:8];
                        n_class = slice[251:244];
                        n_key_v6 = 1'b1;
                        n_l3 = e_at;
                        n_ip_end = packet_end;
                        write_src = 1'b1;
                    end
                    if (e_flow) begin
                        write_one = 1'b1;
                        n_flow_v6 = 1'b1; n_flow_ports = 32'd0; n_kind = {8'd0, h3[15:8]};
                        n_inner_l3 = e_at;
                    end
                    n_first_fragment = 1'b0;
                    n_payload = h2;
                    n_proto = h3[15:8];
                    n_in_v6 = 1'b1;
                    by = BY_STATE; state = S_V6_DST;
                end
            end
            S_V6_DST: begin
                counted = 1'b0;
                write_dst = e_openflow;
                write_two = e_flow;
                proto = e_proto;
                by = BY_PROTO; advance = 9'd40;
            end
            S_V6_EXT: begin
                if (there < 8'd8 || {4'd0, there} < extension_size) short_of_bytes = 1'b1;
                else begin
                    if (e_openflow) n_ip_proto = h0[15:8];
                    if (e_flow) n_kind = {8'd0, h0[15:8]};
                    n_payload = e_payload - {4'd0, extension_size};
                    proto = h0[15:8]; n_proto = proto;
                    by = BY_PROTO; advance = extension_size[8:0];
                    if (e_proto == 8'd44) begin
                        n_flow = 1'b0;
                        if (h1[15:3] != 0) begin
                            n_openflow = 1'b0;
                            if (e_openflow) n_layers = e_layers | 8'hc0;
                        end else if (h1[0]) begin
                            if (e_openflow) n_layers = e_layers | 8'h40;
                            n_first_fragment = 1'b1;
                        end
                    end
                end
            end
            S_PORTS: begin
                if (there < 8'd4)
                    short_of_bytes = e_flow || e_proto == 8'd6 || e_proto == 8'd17 || e_proto == 8'd132;
                else begin
                    if (e_openflow) begin
                        if (e_proto == 8'd6) begin
                            if (there < 8'd20) short_of_bytes = 1'b1;
                            else if (tcp_bytes >= 6'd20 && {10'd0, tcp_bytes} <= e_payload) begin
                                n_layers = e_layers | 8'h02;
                                n_tcp_flags = slice[155:144];
                            end
                        end
                        if (e_proto == 8'd17) begin
                            if (there < 8'd8) short_of_bytes = 1'b1;
                            else if (h2 >= 16'd8 && (h2 <= e_payload || e_first_fragment)) n_layers = e_layers | 8'h02;
                        end
                        if (e_proto == 8'd132) begin
                            if (there < 8'd12) short_of_bytes = 1'b1;
                            else n_layers = e_layers | 8'h02;
                        end
                        if (n_layers[1]) begin
                            n_ports = {h0, h1};
                            n_l4 = e_at;
                        end
                    end
                    n_openflow = 1'b0;
                    if (e_flow) begin
                        n_flow_ports = {h0, h1};
                        n_inner_l4 = e_at;
                        if (e_proto == 8'd17 && tunnel != 0) begin
                            if (there < 8'd8) short_of_bytes = 1'b1;
                            else begin
                                by = BY_STATE; advance = 9'd8;
                                state = tunnel == 3'd1 ? S_VXLAN : tunnel == 3'd2 ? S_GENEVE : tunnel == 3'd3 ? S_GTP : S_MPLS;
                                if (tunnel == 3'd4) n_outside = e_network;
                            end
                        end
                    end
                end
            end
            S_ICMP: begin
                if (e_flow && there < 8'd8) short_of_bytes = 1'b1;
                if (e_openflow && e_in_v6 == (e_proto == 8'd58)) begin
                    if (there < (e_in_v6 ? 8'd4 : 8'd8)) short_of_bytes = 1'b1;
                    else begin
                        n_layers = e_layers | 8'h02;
                        n_ports = {8'd0, h0[15:8], 8'd0, h0[7:0]};
                        n_l4 = e_at;
                    end
                end
                n_openflow = 1'b0;
                if (e_flow && there >= 8'd8 && icmp_error) begin
                    by = BY_STATE; advance = 9'd8;
                    state = e_proto == 8'd1 ? S_V4 : S_V6;
                end
            end
            S_GRE: begin
                if (there < 8'd4) short_of_bytes = 1'b1;
                else if ((h0 & 16'h4007) == 0) begin
                    if (there < {3'd0, gre_size}) short_of_bytes = 1'b1;
                    else begin
                        by = BY_TYPE; advance = {4'd0, gre_size};
                    end
                end
            end
            S_VXLAN: begin
                if (there < 8'd8) short_of_bytes = 1'b1;
                else if (slice[251]) begin
                    n_network = joined(e_network, {h2, h3[15:8]});
                    by = BY_STATE; state = S_ETH; advance = 9'd8;
                end
            end
            S_GENEVE: begin
                if (there < 8'd8) short_of_bytes = 1'b1;
                else if (slice[255:254] == 2'd0) begin
                    if ({4'd0, there} < geneve_size) short_of_bytes = 1'b1;
                    else begin
                        n_network = joined(e_network, {h2, h3[15:8]});
                        by = BY_TYPE; advance = geneve_size[8:0];
                    end
                end
            end
            S_GTP: begin
                if (there < 8'd8) short_of_bytes = 1'b1;
                else if (slice[255:252] == 4'd3 && slice[247:240] == 8'd255) begin
                    if (slice[250:248] == 3'd0) begin
                        if (there < 8'd9) short_of_bytes = 1'b1;
                        by = BY_NIBBLE; nibble = h4[15:12]; advance = 9'd8;
                    end else if (there < 8'd12) short_of_bytes = 1'b1;
                    else if (slice[250] && h5[7:0] != 0) begin
                        by = BY_STATE; state = S_GTP_EXT; advance = 9'd12;
                        n_option = h6[15:8];
                    end else begin
                        if (there < 8'd13) short_of_bytes = 1'b1;
                        by = BY_NIBBLE; nibble = h6[15:12]; advance = 9'd12;
                    end
                end
            end
            S_GTP_EXT: begin
                // The slice begins two bytes before the end of the extension header.
                if (e_end <= at_byte || {2'd0, e_end - at_byte} < gtp_size) short_of_bytes = 1'b1;
                else if (e_option != 0) begin
                    advance = gtp_size[8:0];
                    if (h0[7:0] != 0) begin
                        by = BY_STATE; state = S_GTP_EXT;
                        n_option = h1[15:8];
                    end else begin
                        if (there < 8'd3) short_of_bytes = 1'b1;
                        by = BY_NIBBLE; nibble = h1[15:12];
                    end
                end
            end
            S_RECOGNISE: begin
                // The slice is at the candidate: the payload, or what follows its Ethernet header.
                counted = 1'b0;
                n_words = ihl;
                n_sum = 20'd0;
                if (e_variant == 2'd0) n_framed = framed_candidate;
                if (v4_shape && (e_variant == 2'd0 || e_option[0])) begin
                    by = BY_STATE;
                    state = ihl > 4'd8 ? S_SUM_REST : S_SUMMED;
                end else if (v6_good && (e_variant == 2'd0 || e_option[1])) recognised = 1'b1;
                else not_recognised = 1'b1;
            end
            S_SUM_REST: begin
                counted = 1'b0;
                n_sum = total;
                by = BY_STATE; state = S_SUMMED;
            end
            S_SUMMED: begin
                counted = 1'b0;
                if (summed_good) recognised = 1'b1;
                else not_recognised = 1'b1;
            end
            default: begin  // S_END
                counted = 1'b0;
                n_active = 1'b0;
            end
        endcase

        // The candidate is there, or the next one is tried: IP, Ethernet, Ethernet behind a control word.
        if (recognised) begin
            n_network = e_outside;
            by = BY_STATE;
            state = e_variant != 2'd0 ? S_ETH : first == 4'd4 ? S_V4 : S_V6;
            n_at = e_variant == 2'd2 ? e_base + 7'd2 : e_base;
        end
        if (not_recognised) begin
            by_ethernet = e_variant == 2'd0 && ethernet_candidate != 0;
            by_framed = !by_ethernet && e_variant != 2'd2 && n_framed != 0;
            if (by_ethernet || by_framed) begin
                by = BY_STATE;
                n_variant = by_ethernet ? 2'd1 : 2'd2;
                n_option = {6'd0, by_ethernet ? ethernet_candidate : n_framed};
                state = S_RECOGNISE;
                if ((by_ethernet ? ethernet_candidate : n_framed) == 2'd3) begin
                    n_network = e_outside;
                    state = S_ETH;
                    n_at = by_framed ? e_base + 7'd2 : e_base;
                end
            end else if (e_longer && e_base > 7'd25) n_complete = 1'b0;
        end

        if (counted) n_steps = e_steps + 1'b1;
        if (short_of_bytes && e_longer && at_window_end) n_complete = 1'b0;
        if (short_of_bytes && e_state != S_PORTS && e_state != S_ICMP) by = BY_NONE;

        // The next header.
        advanced = {1'b0, at_byte} + advance;
        if (by != BY_NONE && !recognised && !not_recognised)
            n_at = advanced > 9'd128 ? 7'd64 : advanced[7:1];
        if (packet_end < {9'd0, e_end}) n_end = packet_end[7:0];
        n_state = S_END;
        case (by)
            BY_TYPE: begin
                if (is_tag) begin
                    n_state = S_TAG;
                    if (!(tag_openflow && n_direct)) n_openflow = 1'b0;
                end else if (next_type < 16'h0600) begin
                    n_state = S_SNAP;
                    if (n_openflow) n_type = 16'h05ff;
                    if (n_flow) n_kind = 16'h05ff;
                end else case (next_type)
                    16'h88e7: n_state = S_PBB;
                    16'h0806: begin
                        n_flow = 1'b0;
                        n_state = S_ARP;
                    end
                    16'h8847, 16'h8848: begin
                        n_state = S_MPLS;
                        n_outside = n_network;
                    end
                    16'h6558: begin
                        n_openflow = 1'b0;
                        n_state = S_ETH;
                    end
                    16'h0800: n_state = S_V4;
                    16'h86dd: n_state = S_V6;
                    default: n_state = S_END;
                endcase
            end
            BY_PROTO: begin
                if (proto_v6 && is_extension(proto)) n_state = S_V6_EXT;
                else case (proto)
                    8'd6, 8'd17, 8'd33, 8'd132, 8'd136: n_state = S_PORTS;
                    8'd1, 8'd58: n_state = S_ICMP;
                    8'd47: begin
                        n_openflow = 1'b0;
                        n_state = S_GRE;
                    end
                    8'd4: begin
                        n_openflow = 1'b0;
                        n_state = S_V4;
                    end
                    8'd41: begin
                        n_openflow = 1'b0;
                        n_state = S_V6;
                    end
                    default: n_state = S_END;
                endcase
            end
            BY_STATE: n_state = state;
            BY_NIBBLE: n_state = nibble == 4'd4 ? S_V4 : nibble == 4'd6 ? S_V6 : S_END;
            default: n_state = S_END;
        endcase
        if (stopped || (!(n_openflow || n_flow) && n_state != S_V4_REST)) n_state = S_END;
        if (n_state == S_RECOGNISE && e_state == S_MPLS) n_variant = 2'd0;

        // The slice of the next visit.
        n_read = n_at;
        if (n_state == S_V6_DST) n_read = n_at + 7'd12;
        if (n_state == S_V4_REST) n_read = n_at + 7'd16;
        if (n_state == S_GTP_EXT) n_read = n_at + {n_option[5:0], 1'b0} - 7'd1;
        if (n_state == S_RECOGNISE && n_variant == 2'd1) n_read = n_base + 7'd7;
        if (n_state == S_RECOGNISE && n_variant == 2'd2) n_read = n_base + 7'd9;
        if (n_state == S_SUM_REST) n_read = e_read + 7'd16;
        if (n_state == S_SUMMED) n_read = e_state == S_SUM_REST ? e_read - 7'd16 : e_read;
    end

    // ---- Fields by slot ----
    wire finished = e_active && e_state == S_END;
    parser_fields #(.TAIL(TAIL)) fields (
        .clk(clk), .write_slot(e_slot), .write_ethernet(e_active && write_ethernet), .new_ethernet(slice[255:160]),
        .write_source(e_active && write_src), .new_source(src), .write_destination(e_active && write_dst),
        .new_destination(dst), .write_one(e_active && write_one), .new_one(one), .write_two(e_active && write_two),
        .new_two(two), .write_tail(finished),
        .new_tail({n_complete, n_network, n_kind, n_flow_v6, n_flow_ports, n_type, n_tci, n_ip_proto, n_class, n_ports,
                   n_tcp_flags, n_mpls, n_isid, n_layers, n_key_v6, n_l3, n_l4, n_inner_l3, n_inner_l4, n_tags, n_labels,
                   n_ip_end, n_sum_good}),
        .read_slot(result_slot), .ethernet(ethernet), .addresses(addresses), .ends(ends), .tail(tail)
    );

    // ---- Slots and contexts ----
    wire n_active_next = e_active && e_state != S_END;
    wire start = loaded[start_at] && !n_active_next;
    // A walk begins at the Ethernet header, with both views open and everything else 0.
    wire [CONTEXT-1:0] fresh = {1'b1, start_at, S_ETH, 7'd0, 7'd0, sizes[8 * start_at +: 8], longer[start_at], 5'd0, 3'b111,
                                {(CONTEXT - 40){1'b0}}, 1'b1};
    wire [2:0] walking = {2'd0, busy[0] && !done_slots[0]} + {2'd0, busy[1] && !done_slots[1]}
                       + {2'd0, busy[2] && !done_slots[2]} + {2'd0, busy[3] && !done_slots[3]};
    assign idle = free && walking < 3'd2;
    integer s;
    always @(posedge clk) begin
        e_context <= r_context;
        r_context <= start ? fresh : n_context;
        if (!n_active_next && !start) r_context[CONTEXT-1] <= 1'b0;
        if (load && load_last) begin
            busy[load_at] <= 1'b1;
            loaded[load_at] <= 1'b1;
            sizes[8 * load_at +: 8] <= load_size;
            longer[load_at] <= load_longer;
            load_at <= load_at + 1'b1;
        end
        if (start) begin
            loaded[start_at] <= 1'b0;
            start_at <= start_at + 1'b1;
        end
        if (finished) done_slots[e_slot] <= 1'b1;
        if (release_slot) begin
            busy[result_slot] <= 1'b0;
            done_slots[result_slot] <= 1'b0;
        end
        if (reset) begin
            busy <= 4'd0;
            loaded <= 4'd0;
            done_slots <= 4'd0;
            load_at <= 2'd0;
            start_at <= 2'd0;
            r_context[CONTEXT-1] <= 1'b0;
            e_context[CONTEXT-1] <= 1'b0;
        end
    end

`ifdef PROOF
    wire r_active = r_context[CONTEXT-1];
    wire [4:0] r_steps = r_context[CONTEXT-1 - 31 -: 5];
    always @* if (!reset) begin
        // The loader fills a free slot, and the collector releases one that is done.
        assume (!(load && load_last) || free);
        assume (!release_slot || done_slots[result_slot]);
        // No walk takes more than 24 steps.
        if (e_active) assert (e_steps <= LIMIT);
        if (r_active) assert (r_steps <= LIMIT);
        // A slot is free, loaded, walked or done, and never two of them.
        assert ((loaded & done_slots) == 0 && ((loaded | done_slots) & ~busy) == 0);
        if (e_active) assert (busy[e_slot] && !loaded[e_slot] && !done_slots[e_slot]);
        if (r_active) assert (busy[r_slot] && !loaded[r_slot] && !done_slots[r_slot]);
        if (e_active && r_active) assert (e_slot != r_slot);
    end
`endif
endmodule
`default_nettype wire
