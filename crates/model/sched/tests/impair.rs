//! Impairments compared with formulas, in the native runtime and virtual time. Seeds are fixed, so that
//! results repeat. With other seeds, about one run in 100,000 would exceed the limits.

mod impair {
    pub mod bed;
    mod delay;
    mod loss;
    mod order;
    mod rate;
    mod words;
}
