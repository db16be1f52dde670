//! The dialect of the XDP queueing tester. Packets are tables of headers (`Udp:new()`), compared by
//! content. Weights are costs in 256ths, and `config.bpf` names the program.
//!
//! It needs no option: verbs use the dialect if the packet is a table. The prelude is Lua code over
//! the native verbs, so it has the rights of a script only.

use mlua::Lua;

/// The name in tracebacks, which distinguishes it from lines of the script.
const NAME: &str = "=xdq";

pub(super) fn install(lua: &Lua) -> mlua::Result<()> {
    lua.load(include_str!("xdq.lua")).set_name(NAME).exec()
}
