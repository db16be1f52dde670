//! The public interface of the history, compared with an oracle that stores every sample.

mod alerts;
mod days;
mod limits;
mod lines;
mod oracle;
mod overview;
mod queries;
mod restarts;
mod world;
