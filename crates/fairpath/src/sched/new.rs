//! `fairpath sched new`: a policy to begin with, and its script.
