//! The oracle of `framing.h`: a packet is put into cells one by one.

use fairpath_core::sched::Framing;

/// Bytes on the link of a packet in segments of equal length.
pub fn framed(framing: &Framing, bytes: i64, segments: i64) -> i64 {
    let none = Framing::default();
    if *framing == none {
        return bytes;
    }
    let overhead = i64::from(framing.overhead);
    if (framing.mpu, framing.cell_payload) == (0, 0) {
        return (bytes + overhead * segments).max(segments);
    }
    let each = (bytes / segments + overhead).max(framing.mpu.into()).max(1);
    let [payload, cell] = [framing.cell_payload, framing.cell_bytes].map(i64::from);
    if payload == 0 {
        return each * segments;
    }
    let (mut left, mut sent) = (each, 0);
    while left > 0 {
        let carried = left.min(payload);
        left -= carried;
        sent += match framing.cell_partial {
            0 => cell,
            _ => cell - (payload - carried),
        };
    }
    sent * segments
}
