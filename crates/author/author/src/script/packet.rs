//! Packets of scripts: the fields of `udp{...}`, `tcp{...}` and `packet{...}`, and numbers from Lua.

use std::net::IpAddr;
use std::rc::Rc;

use fairpath_core::sched::Meta;
use mlua::{AnyUserData, Lua, Table, UserData, UserDataFields, UserDataMethods, Value};

use super::session::{Halt, Item, State, Tag};
use fairpath_sched::log::describe;
use fairpath_sched::tree::{self, Tree};
use fairpath_units::nearest;

/// Length of an Ethernet header.
const ETHERNET_BYTES: u32 = 14;

/// The fields of a packet in scripts.
const FIELDS: [&str; 16] = [
    "class",
    "destination",
    "destination_port",
    "dscp",
    "ecn",
    "flow",
    "flow_hash",
    "hint",
    "label",
    "length",
    "mark",
    "payload",
    "protocol",
    "segments",
    "source",
    "source_port",
];

/// A packet that a script can enqueue any number of times.
#[derive(Debug)]
pub(super) struct Packet {
    pub label: String,
    /// The description of the packet without its arrival time.
    pub meta: Meta,
    /// The index among the packets of the script.
    pub number: u64,
}

/// A packet in Lua.
pub(super) struct LuaPacket(pub Rc<Packet>);
/// An enqueued packet in Lua.
pub(super) struct LuaItem(pub Rc<Item>);

/// Reads an integer from `min` to `max`. Numbers beyond Lua's integers are written as strings.
pub(super) fn number(value: &Value, what: &str, min: u64, max: u64) -> Result<u64, Halt> {
    let wrong = |got: &str| {
        Err(Halt::usage(format!(
            "{what}: expected an integer from {min} to {max}, not {got}"
        )))
    };
    let number = match value {
        Value::Integer(number) => u64::try_from(*number).ok(),
        Value::Number(number) if number.fract() == 0.0 && (0.0..9e15).contains(number) => {
            Some(*number as u64)
        }
        Value::Number(number) => return wrong(&number.to_string()),
        Value::String(text) => text.to_str().ok().and_then(|text| text.parse().ok()),
        other => return wrong(other.type_name()),
    };
    match number {
        Some(number) if (min..=max).contains(&number) => Ok(number),
        _ => wrong(&shown(value)),
    }
}

pub(super) fn number32(value: &Value, what: &str, max: u32) -> Result<u32, Halt> {
    Ok(number(value, what, 0, max.into())? as u32)
}

/// The text of a value in messages.
pub(super) fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => format!(
            "\"{}\"",
            text.to_string_lossy().chars().take(60).collect::<String>()
        ),
        Value::Integer(number) => number.to_string(),
        Value::Number(number) => number.to_string(),
        Value::Boolean(value) => value.to_string(),
        Value::Nil => "nil".into(),
        other => match (item_of(other), packet_of(other)) {
            (Some(item), _) => item.to_string(),
            (_, Some(packet)) => packet.label.clone(),
            _ => format!("a {}", other.type_name()),
        },
    }
}

/// A number for Lua, as a string if it exceeds Lua's integers.
pub(super) fn to_lua(lua: &Lua, number: u64) -> mlua::Result<Value> {
    match i64::try_from(number) {
        Ok(number) => Ok(Value::Integer(number)),
        Err(_) => Ok(Value::String(lua.create_string(number.to_string())?)),
    }
}

pub(super) fn item_of(value: &Value) -> Option<Rc<Item>> {
    let data: &AnyUserData = value.as_userdata()?;
    Some(data.borrow::<LuaItem>().ok()?.0.clone())
}

pub(super) fn packet_of(value: &Value) -> Option<Rc<Packet>> {
    let data: &AnyUserData = value.as_userdata()?;
    Some(data.borrow::<LuaPacket>().ok()?.0.clone())
}

/// Reads a string of at most `max` bytes.
fn text(value: &Value, what: &str, max: usize) -> Result<String, Halt> {
    let wrong = || {
        Halt::usage(format!(
            "{what}: expected a string of at most {max} bytes, not {}",
            shown(value)
        ))
    };
    match value {
        Value::String(text) if text.as_bytes().len() <= max => Ok(text
            .to_str()
            .map_err(|_| Halt::usage(format!("{what}: the string is not UTF-8")))?
            .to_owned()),
        Value::Integer(number) => Ok(number.to_string()),
        _ => Err(wrong()),
    }
}

/// Reads a packet from a table. The verb defines `protocol`, and `number_of` is the default label.
pub(super) fn packet(
    table: &Table,
    protocol: Option<u8>,
    number_of: u64,
    tree: Option<&Tree>,
) -> Result<Packet, Halt> {
    check_fields(table)?;
    let get = |name: &str| {
        table
            .raw_get::<Value>(name)
            .map_err(|error| Halt::usage(error.to_string()))
    };
    let given = |name: &str| Ok(Some(get(name)?).filter(|value| !value.is_nil()));
    let number_or = |name: &str, max: u32, default: u32| match given(name)? {
        Some(value) => number32(&value, name, max),
        None => Ok(default),
    };
    let mut meta = Meta::default();
    let address = |name: &str, default: &str| -> Result<IpAddr, Halt> {
        let address = match given(name)? {
            Some(value) => text(&value, name, 64)?,
            None => default.to_owned(),
        };
        let wrong = |_| Halt::usage(format!("{name}: \"{address}\" is not an IP address"));
        address.parse().map_err(wrong)
    };
    let source = address("source", "10.0.0.1")?;
    let default = if source.is_ipv6() {
        "fd00::2"
    } else {
        "10.0.0.2"
    };
    let destination = address("destination", default)?;
    if source.is_ipv6() != destination.is_ipv6() {
        return Err(Halt::usage(
            "source and destination have different IP versions: use IPv4 or IPv6 for both",
        ));
    }
    meta = meta.between(source, destination);
    meta.protocol = match protocol {
        Some(protocol) if given("protocol")?.is_none() => protocol,
        Some(_) => {
            return Err(Halt::usage(
                "protocol: the verb defines it: use packet{...} for other protocols",
            ));
        }
        None => number_or("protocol", 255, 0)? as u8,
    };
    if given("flow")?.is_some() && given("source_port")?.is_some() {
        return Err(Halt::usage(
            "flow and source_port are the same field: write one of them",
        ));
    }
    let flow = number_or("flow", 65_535, 1)?;
    meta.source_port = number_or("source_port", 65_535, flow)? as u16;
    meta.destination_port = number_or("destination_port", 65_535, 1)? as u16;
    meta.mark = number_or("mark", u32::MAX, 0)?;
    meta.segments = number_or("segments", 255, 0)? as u8;
    meta.dscp = dscp(given("dscp")?)?;
    meta.ecn = ecn(given("ecn")?)?;
    meta.class_id = class(given("class")?, tree)?;
    if let Some(hint) = given("hint")? {
        meta.hint = number(&hint, "hint", 0, u64::MAX)?;
    }
    meta.bytes = length(&meta, given("length")?, given("payload")?)?;
    meta = meta.with_flow_hash();
    meta.flow_hash = number_or("flow_hash", u32::MAX, meta.flow_hash)?;
    let label = match given("label")? {
        Some(label) => text(&label, "label", 60)?,
        None => format!("p{number_of}"),
    };
    Ok(Packet {
        label,
        meta,
        number: number_of,
    })
}

fn check_fields(table: &Table) -> Result<(), Halt> {
    for pair in table.pairs::<Value, Value>() {
        let (name, _) = pair.map_err(|error| Halt::usage(error.to_string()))?;
        let name = match &name {
            Value::String(name) => name.to_string_lossy(),
            other => shown(other),
        };
        let known = &FIELDS;
        if known.contains(&name.as_str()) {
            continue;
        }
        let near = match nearest(&name, known.iter().copied()) {
            Some(near) => format!("did you mean {near}?"),
            None => format!("the fields are {}", known.join(", ")),
        };
        return Err(Halt::usage(format!("packets have no field {name}: {near}")));
    }
    Ok(())
}

/// The length of the Ethernet frame without preamble and checksum. It is not padded to the minimum.
fn length(meta: &Meta, length: Option<Value>, payload: Option<Value>) -> Result<u32, Halt> {
    let ip = if meta.source_ip().is_ipv6() { 40 } else { 20 };
    let transport = match meta.protocol {
        6 => 20,
        17 => 8,
        _ => 0,
    };
    let headers = ETHERNET_BYTES + ip + transport;
    match (length, payload) {
        (Some(_), Some(_)) => Err(Halt::usage(
            "length and payload both set the length: write one of them",
        )),
        (Some(length), None) => number32(&length, "length", u32::MAX),
        (None, Some(Value::String(payload))) => {
            let bytes = u32::try_from(payload.as_bytes().len()).unwrap_or(u32::MAX);
            Ok(headers.saturating_add(bytes))
        }
        (None, Some(payload)) => Ok(headers + number32(&payload, "payload", u32::MAX - headers)?),
        (None, None) => Ok(headers),
    }
}

fn dscp(value: Option<Value>) -> Result<u8, Halt> {
    match value {
        None => Ok(0),
        Some(Value::String(name)) => {
            let name = name.to_string_lossy();
            let number = tree::dscp_number(&name);
            number.ok_or_else(|| {
                Halt::usage(format!(
                    "dscp: \"{name}\" is not a code point: write a name such as EF, CS1, AF41, or 0 to 63"
                ))
            })
        }
        Some(value) => Ok(number32(&value, "dscp", 63)? as u8),
    }
}

fn ecn(value: Option<Value>) -> Result<u8, Halt> {
    match value {
        None => Ok(0),
        Some(Value::String(name)) => match name.to_string_lossy().to_ascii_lowercase().as_str() {
            "not-ect" => Ok(0),
            "ect1" => Ok(1),
            "ect0" => Ok(2),
            "ce" => Ok(3),
            other => Err(Halt::usage(format!(
                "ecn: \"{other}\" is unknown: write not-ect, ect0, ect1 or ce"
            ))),
        },
        Some(value) => Ok(number32(&value, "ecn", 3)? as u8),
    }
}

fn class(value: Option<Value>, tree: Option<&Tree>) -> Result<u32, Halt> {
    match value {
        None => Ok(0),
        Some(Value::String(name)) => {
            let name = name.to_string_lossy();
            let number = tree.and_then(|tree| tree.names.class_number(&name));
            number.ok_or_else(|| Halt::usage(format!("class: the tree has no class \"{name}\"")))
        }
        Some(value) => number32(&value, "class", u32::MAX),
    }
}

fn add_meta_fields<T, F: UserDataFields<T>>(
    fields: &mut F,
    meta: impl Fn(&T) -> &Meta + Copy + 'static,
) {
    fields.add_field_method_get("length", move |_, this| Ok(meta(this).bytes));
    fields.add_field_method_get("class", move |_, this| Ok(meta(this).class_id));
    fields.add_field_method_get("mark", move |_, this| Ok(meta(this).mark));
    fields.add_field_method_get("dscp", move |_, this| Ok(meta(this).dscp));
    fields.add_field_method_get("ecn", move |_, this| Ok(meta(this).ecn));
    fields.add_field_method_get("segments", move |_, this| Ok(meta(this).segments));
    fields.add_field_method_get("protocol", move |_, this| Ok(meta(this).protocol));
    fields.add_field_method_get("flow_hash", move |_, this| Ok(meta(this).flow_hash));
    fields.add_field_method_get("source_port", move |_, this| Ok(meta(this).source_port));
    fields.add_field_method_get("destination_port", move |_, this| {
        Ok(meta(this).destination_port)
    });
    fields.add_field_method_get("source", move |_, this| {
        Ok(meta(this).source_ip().to_string())
    });
    fields.add_field_method_get("destination", move |_, this| {
        Ok(meta(this).destination_ip().to_string())
    });
    fields.add_field_method_get("hint", move |lua, this| to_lua(lua, meta(this).hint));
}

impl UserData for LuaPacket {
    fn add_fields<F: UserDataFields<Self>>(fields: &mut F) {
        fields.add_field_method_get("label", |_, this| Ok(this.0.label.clone()));
        add_meta_fields(fields, |this: &LuaPacket| &this.0.meta);
    }

    fn add_methods<M: UserDataMethods<Self>>(methods: &mut M) {
        methods.add_meta_method("__tostring", |_, this, ()| {
            let Packet { label, meta, .. } = &*this.0;
            Ok(format!(
                "{label} ({} bytes, {})",
                meta.bytes,
                describe::flow(meta)
            ))
        });
    }
}

impl UserData for LuaItem {
    fn add_fields<F: UserDataFields<Self>>(fields: &mut F) {
        fields.add_field_method_get("label", |_, this| Ok(this.0.packet.label.clone()));
        fields.add_field_method_get("tag", |lua, this| match &this.0.tag {
            Tag::Number(number) => Ok(Value::Integer(*number)),
            Tag::Text(text) => Ok(Value::String(lua.create_string(text)?)),
        });
        fields.add_field_method_get("packet", |_, this| Ok(LuaPacket(this.0.packet.clone())));
        fields.add_field_method_get("handle", |_, this| Ok(this.0.handle.get()));
        fields.add_field_method_get("rank", |lua, this| to_lua(lua, this.0.rank.get()));
        fields.add_field_method_get("node", |_, this| Ok(this.0.node.get()));
        fields.add_field_method_get("enqueued_ns", |lua, this| to_lua(lua, this.0.enqueued_at));
        fields.add_field_method_get("came_ns", |_, _| -> mlua::Result<Value> {
            Err(mlua::Error::runtime(
                "came_ns: the field is now enqueued_ns",
            ))
        });
        fields.add_field_method_get("left_ns", |lua, this| {
            let left_at = to_lua(lua, this.0.left_at.get())?;
            Ok(Some(left_at).filter(|_| this.0.state.get() != State::Waiting))
        });
        fields.add_field_method_get("sojourn_ns", |lua, this| to_lua(lua, this.0.sojourn.get()));
        fields.add_field_method_get("marked", |_, this| Ok(this.0.marked.get()));
        fields.add_field_method_get("state", |_, this| {
            Ok(match this.0.state.get() {
                State::Waiting => "waiting",
                State::Sent => "sent",
                State::Dropped(_) => "dropped",
            })
        });
        fields.add_field_method_get("reason", |_, this| {
            Ok(match this.0.state.get() {
                State::Dropped(reason) => Some(reason.name()),
                _ => None,
            })
        });
        add_meta_fields(fields, |this: &LuaItem| &this.0.meta);
    }

    fn add_methods<M: UserDataMethods<Self>>(methods: &mut M) {
        methods.add_meta_method("__tostring", |_, this, ()| Ok(this.0.to_string()));
        methods.add_meta_method("__eq", |_, this, other: Value| {
            Ok(item_of(&other).is_some_and(|other| Rc::ptr_eq(&this.0, &other)))
        });
    }
}
