//! A peer without classes: one TBF at each interface, whose queue holds 50 ms of the line.

use anyhow::Context;
use fairpath_shape::htb::burst_bytes;
use fairpath_testbed::Netns;

/// An Ethernet frame without FCS, of an MTU of 1500.
const FRAME_BYTES: u32 = 1514;

/// Adds (`add`) the qdisc at both interfaces, or gives it another rate (`change`).
///
/// # Errors
/// `tc` is missing or refuses.
pub fn set_line(router: &Netns, verb: &str, line_bps: u64) -> anyhow::Result<()> {
    let rate = format!("{line_bps}bit");
    let burst = format!("{}b", burst_bytes(line_bps, FRAME_BYTES));
    for device in ["lan", "wan"] {
        let qdisc = ["tc", "qdisc", verb, "dev", device, "root", "handle", "1:"];
        let words = ["tbf", "rate", &rate, "burst", &burst, "latency", "50ms"];
        let done = router.run(&[&qdisc[..], &words[..]].concat());
        done.with_context(|| format!("{verb} TBF of {rate} on {device:?}"))?;
    }
    Ok(())
}
