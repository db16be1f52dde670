//! The dialect of the XDP queueing tester: packets that are tables of headers (`Udp:new()`), compared
//! by what is in them, weights that are costs of 256ths, programs named in `config.bpf`.
//!
//! It needs no switch: a packet that is a table takes these verbs, one of `udp{...}` the others. The
//! prelude is Lua over the other verbs, so it can do no more than a script can.

use mlua::Lua;

/// As tracebacks name it; not among the script's own lines.
const NAME: &str = "=xdq";

pub(super) fn install(lua: &Lua) -> mlua::Result<()> {
    lua.load(include_str!("xdq.lua")).set_name(NAME).exec()
}
