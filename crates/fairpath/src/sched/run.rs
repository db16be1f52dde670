//! `fairpath sched run`: a simulated link.
