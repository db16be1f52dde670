//! Packets in time: made by a specification, or read from a capture.
