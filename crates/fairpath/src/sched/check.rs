//! `fairpath sched check`: what the compiler, the verifier and the tree say of an author's file.
