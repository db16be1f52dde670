//! `fairpath sched test`: Lua scripts against a policy or a tree.
