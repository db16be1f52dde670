//! Lua scripts that drive a scheduler and say what they expect.
