//! `fairpath sched replay`: an operation log again, in any home.
