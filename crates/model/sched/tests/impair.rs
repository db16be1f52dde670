//! Impairments against formulas, natively, in virtual time: what packets meet is drawn from fixed
//! seeds, so that every test comes out the same each time. Limits are those of one error in a
//! hundred thousand runs with other seeds.

mod impair {
    pub mod bed;
    mod delay;
    mod loss;
    mod order;
    mod rate;
    mod words;
}
