//! Statistics that tests, reports and the router's own checks share; pure, of nothing else.
//!
//! | question | answer |
//! |---|---|
//! | shares that fit a number of hits | [`binomial`] (Clopper and Pearson) |
//! | test of a distribution | [`kolmogorov`] |
//! | numbers that a seed determines | [`Random`] (SplitMix64) |
//! | tails of beta, gamma and their kind | [`special`] |
//!
//! Own code and not `statrs`: these are a few functions of some twenty lines each. What is of few repeats
//! (medians, bootstrap, comparisons) is `fairpath-report`'s.

pub mod binomial;
pub mod kolmogorov;
mod random;
pub mod special;

pub use random::Random;
