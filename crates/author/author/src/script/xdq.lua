-- The verbs of the XDP queueing tester on top of Fairpath's verbs. See docs/guide/sched-scripts.md.

IPPROTO_UDP = 17
ETH_P_IPV6 = 0x86dd
XDP_ABORTED, XDP_DROP, XDP_PASS, XDP_TX, XDP_REDIRECT = 0, 1, 2, 3, 4

-- Destination ports up to this one belong to the left leaf of the tree, others to the right leaf.
local LAST_LEFT_PORT = 4000
local LEFT, RIGHT = 1, 2
local HPFQ_TREE = string.format([==[
	[[node]]
	name = "root"
	policy = "hpfq"
	[[node]]
	name = "left"
	parent = "root"
	policy = "stfq"
	match = { class = %d }
	[[node]]
	name = "right"
	parent = "root"
	policy = "stfq"
	match = { class = %d }
]==], LEFT, RIGHT)

-- The programs of that framework: the corresponding policy or tree, and a known difference in order.
local PROGRAMS = {
	fifo = { policy = "fifo" },
	fq_codel = {
		policy = "fq_codel",
		params = { hosts = 0, quantum = 1514 },
		differs = "sched_fq_codel orders by virtual time, fq_codel by turns",
	},
	hpfq = {
		tree = HPFQ_TREE,
		has_ports = true,
		differs = "sched_hpfq shares its root between flows, the tree here between left and right",
	},
	-- The rank of a packet is its hint, here the weight of its flow.
	sprio = { policy = "srpt", ranks_by_weight = true },
	test = { policy = "fifo" },
	wfq = {
		policy = "stfq",
		differs = "sched_wfq forgets the debt of a flow without packets, stfq keeps it",
	},
}
-- At this weight a byte has the cost of one. Flows without a weight have it.
local WEIGHT_ONE = 256
local MAX_WEIGHT = 65535
-- Weight 0 is no cost, and the smallest cost of a scheduler is this part of WEIGHT_ONE.
local SMALLEST_COST_PARTS = 16384
-- The number of an enqueued packet replaces the first bytes of its payload.
local NUMBER_BYTES = 8
local UDP_HEADER_BYTES = 8

local native = {}
for _, name in ipairs { "dequeue", "dequeue_cmp", "enqueue", "policy", "set_flow_weight", "test", "tree" } do
	native[name] = _G[name]
end

-- The state of a scheduler in this dialect: waiting packets by handle, weights by hash of the flow,
-- the program, and the counters at their last assignment.
local function new_state(program)
	return { waiting = {}, weights = {}, program = program or {}, counted = {} }
end
local state = new_state()

-- A test has a new scheduler of the same program.
function test(name, body)
	if type(body) ~= "function" then
		return native.test(name, body)
	end
	local outside = state
	native.test(name, function()
		state = new_state(outside.program)
		body()
	end)
	state = outside
end

-- An error of the script, without a line of this file.
local function refuse(message)
	error(message, 0)
end

local COUNTERS = { "currently_queued", "total_dequeued", "total_queued" }

local function count(name)
	if not is_chosen() then
		return 0
	elseif name == "currently_queued" then
		return #queue()
	end
	local counters = stats()
	return name == "total_queued" and counters.queued or counters.sent
end

local function is_counter(name)
	return name == COUNTERS[1] or name == COUNTERS[2] or name == COUNTERS[3]
end

local function counter(name)
	return count(name) - (state.counted[name] or 0)
end

xdq = setmetatable({}, {
	__index = function(_, name)
		return is_counter(name) and counter(name) or nil
	end,
	__newindex = function(of, name, value)
		if is_counter(name) and math.type(value) == "integer" then
			state.counted[name] = count(name) - value
		else
			rawset(of, name, value)
		end
	end,
	__pairs = function(of)
		local all = {}
		for key, value in next, of do
			all[key] = value
		end
		for _, name in ipairs(COUNTERS) do
			all[name] = counter(name)
		end
		return next, all
	end,
})

local function is_ours(packet)
	return type(packet) == "table"
end

-- An integer, also of a float such as 1514 / 2, or nil.
local function integer(value)
	return type(value) == "number" and math.tointeger(value) or nil
end

function copy(value)
	if type(value) ~= "table" then
		return value
	end
	local new = {}
	for key, inner in next, value do
		new[copy(key)] = copy(inner)
	end
	return new
end

function create_payload(bytes)
	local count = integer(bytes)
	if not count or count < 0 then
		refuse("create_payload: expected a number of bytes")
	end
	return string.rep("A", count)
end

function udp_payload_enumerator(packet, number)
	local whole = integer(number)
	if not whole then
		refuse("the number of a packet: expected an integer, not " .. tostring(number))
	end
	packet.udp.payload = string.pack("<i8", whole) .. packet.udp.payload:sub(NUMBER_BYTES + 1)
end

local bpf = { file = "./sched_fifo.bpf.o", xdp_func = "enqueue_prog", dequeue_func = "dequeue_prog" }

config = {
	bpf = setmetatable({}, {
		__index = bpf,
		__newindex = function(_, key, value)
			if key == "file" then
				load_xdq_file(value)
			end
			bpf[key] = value
		end,
	}),
	defaultUdp = {
		eth = { proto = ETH_P_IPV6, source = "01:00:00:00:00:01", dest = "01:00:00:00:00:02" },
		ip = {
			version = 6,
			priority = 0,
			flow_lbl = { 0, 0, 0 },
			nexthdr = IPPROTO_UDP,
			hop_limit = 1,
			saddr = "fe80::1",
			daddr = "fe80::2",
		},
		udp = { source = 1, dest = 1, payload = "", next_sequence = udp_payload_enumerator },
	},
}

-- The name of the program selects the policy unless the command line does.
function load_xdq_file(file)
	local name = tostring(file):match("sched_([%w_]+)%.bpf%.o$")
	local known = PROGRAMS[name]
	if is_fixed() then
		state = new_state { has_ports = known and known.has_ports, ranks_by_weight = known and known.ranks_by_weight }
		return
	elseif not known then
		refuse("no policy corresponds to " .. tostring(file) .. ": name a policy on the command line")
	elseif known.tree then
		native.tree(known.tree)
	else
		native.policy(known.policy, known.params)
	end
	state = new_state(known)
end

Udp = {}

function Udp:new()
	return copy(config.defaultUdp)
end

local function number_packet(packet, number)
	if number == nil then
		return
	end
	for _, header in next, packet do
		if type(header) == "table" and type(header.next_sequence) == "function" then
			header.next_sequence(packet, number)
		end
	end
end

local function check(packet)
	for _, header in ipairs { "eth", "ip", "udp" } do
		if type(packet[header]) ~= "table" then
			refuse("the packet has no table " .. header)
		end
	end
	if type(packet.udp.payload) ~= "string" then
		refuse("the packet's udp.payload is not a string")
	elseif packet.eth.proto ~= ETH_P_IPV6 or packet.ip.nexthdr ~= IPPROTO_UDP then
		refuse("packets of this dialect are UDP over IPv6: set eth.proto to ETH_P_IPV6, and ip.nexthdr to IPPROTO_UDP")
	end
end

local function leaf_class(packet)
	if not state.program.has_ports then
		return nil
	end
	local port = tonumber(packet.udp.dest) or 0
	return port <= LAST_LEFT_PORT and LEFT or RIGHT
end

local function convert(packet, hint)
	check(packet)
	return udp {
		label = "udp:" .. tostring(packet.udp.dest),
		source = packet.ip.saddr,
		destination = packet.ip.daddr,
		source_port = packet.udp.source,
		destination_port = packet.udp.dest,
		dscp = packet.ip.priority << 2,
		class = leaf_class(packet),
		hint = hint,
		payload = packet.udp.payload,
	}
end

local function convert_ranked(packet)
	local new = convert(packet)
	if state.program.ranks_by_weight then
		return convert(packet, state.weights[new.flow_hash] or WEIGHT_ONE)
	end
	return new
end

-- The packet as its receiver reads it: the headers with their lengths, without functions.
local function received(packet)
	local new = {}
	for _, name in ipairs { "eth", "ip", "udp" } do
		new[name] = copy(packet[name])
		new[name].next_sequence = nil
	end
	new.udp.len = new.udp.len or UDP_HEADER_BYTES + #new.udp.payload
	new.ip.payload_len = new.ip.payload_len or new.udp.len
	return new
end

function xdq_enqueue(packet, number)
	local item = native.enqueue(convert_ranked(packet), number)
	if item.state == "dropped" then
		return XDP_DROP
	end
	state.waiting[item.handle] = received(packet)
	return XDP_REDIRECT
end

function enqueue(packet, number)
	if not is_ours(packet) then
		return native.enqueue(packet, number)
	end
	number_packet(packet, number)
	return xdq_enqueue(packet, number)
end

local function ours(item)
	if item == nil then
		return nil
	end
	local packet = state.waiting[item.handle]
	state.waiting[item.handle] = nil
	return packet or item
end

function dequeue()
	local item, again = native.dequeue()
	return ours(item), again
end
xdq_dequeue = dequeue

local IS_SKIPPED = { check = true, len = true, payload_len = true }
local IS_ADDRESS = { saddr = true, daddr = true }

-- The first field that differs between two headers, without checksums and lengths.
local function difference(wanted, got, name)
	if type(wanted) ~= "table" or type(got) ~= "table" then
		return wanted ~= got and name or nil
	end
	for key, value in next, wanted do
		local other = got[key]
		if IS_ADDRESS[key] and value ~= other then
			value, other = normalize_ipv6_address(value), normalize_ipv6_address(other)
		end
		local skipped = IS_SKIPPED[key] or type(value) == "function"
		local where = not skipped and difference(value, other, name .. "." .. tostring(key))
		if where then
			return where
		end
	end
end

function hex_dump(text)
	local bytes = {}
	for index = 1, #text do
		bytes[index] = string.format("%02x ", text:byte(index))
	end
	return table.concat(bytes)
end

function trim_hex(hex)
	local max = 16 * 3
	if #hex <= max then
		return hex
	end
	return hex:sub(1, max) .. "... (" .. #hex // 3 .. " bytes)"
end

local function summary(packet)
	if not is_ours(packet) then
		return tostring(packet)
	end
	return string.format("udp:%s payload %s", packet.udp.dest, trim_hex(hex_dump(packet.udp.payload)))
end

local function fail_unexpected(where, wanted, packet)
	local differs = state.program.differs
	local note = differs and " (" .. differs .. ": see docs/guide/sched-scripts.md)" or ""
	fail("unexpected packet: " .. where .. " differs" .. note, summary(wanted), summary(packet))
end

function cmp(packet, wanted, number)
	if not is_ours(wanted) then
		refuse("cmp: the expected packet is not a table")
	elseif packet == nil then
		fail("no packet leaves", summary(wanted), "no packet")
	end
	number_packet(wanted, number)
	check(wanted)
	for _, header in ipairs { "eth", "ip", "udp" } do
		local where = header
		if is_ours(packet) then
			where = difference(wanted[header], packet[header], header)
		end
		if where then
			fail_unexpected(where, wanted, packet)
		end
	end
	expect(true)
end

function dequeue_cmp(wanted, number)
	if not is_ours(wanted) then
		return native.dequeue_cmp(wanted, number)
	end
	local packet, again = dequeue()
	cmp(packet, wanted, number)
	return packet, again
end

function set_flow_weight(flow, weight, node)
	if not is_ours(flow) then
		return native.set_flow_weight(flow, weight, node)
	end
	local whole = integer(weight)
	if not whole or whole < 0 or whole > MAX_WEIGHT then
		refuse(string.format(
			"set_flow_weight: expected an integer from 0 to %d, where %d is a cost of one, not %s",
			MAX_WEIGHT, WEIGHT_ONE, tostring(weight)))
	end
	local packet = convert(flow)
	if state.program.ranks_by_weight then
		state.weights[packet.flow_hash] = whole
	else
		native.set_flow_weight(packet, whole == 0 and SMALLEST_COST_PARTS or WEIGHT_ONE / whole, node)
	end
end

function dump(value, depth)
	depth = depth or 1
	if type(value) ~= "table" then
		return type(value) == "number" and tostring(value) or '"' .. tostring(value) .. '"'
	end
	local lines, keys = {}, {}
	for key in pairs(value) do
		keys[#keys + 1] = key
	end
	table.sort(keys, function(a, b)
		return tostring(a) < tostring(b)
	end)
	for _, key in ipairs(keys) do
		local inner = key == "payload" and trim_hex(hex_dump(value[key])) or value[key]
		lines[#lines + 1] = string.rep("    ", depth) .. '"' .. tostring(key) .. '": ' .. dump(inner, depth + 1)
	end
	return "{\n" .. table.concat(lines, ",\n") .. "\n" .. string.rep("    ", depth - 1) .. "}"
end

function table_has_key(of, key)
	return of[key] ~= nil
end

function normalize_ipv6_address(address)
	return udp({ source = address, destination = address }).source
end

-- Metadata in front of a packet is not supported: policies read the fields of `packet` only.
function adjust_meta() end

-- Scripts have no clock but virtual time.
get_clock = get_time_ns

function show_flow_map()
	show()
end
