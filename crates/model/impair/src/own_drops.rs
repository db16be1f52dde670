//! Drops by the back end that were not planned, by cause and with a remedy.

use serde::Serialize;

/// Packets by cause. A cause that a back end does not have stays 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct OwnDrops {
    /// The maximum number of packets waited.
    #[serde(rename = "queue_full_packets")]
    pub no_place: u64,
    /// The transmit ring of the egress interface was full.
    #[serde(rename = "ring_full_packets")]
    pub no_capacity: u64,
    /// The egress link was down or removed.
    #[serde(rename = "link_down_packets")]
    pub no_link: u64,
    /// Duplicates that could not be sent.
    #[serde(rename = "not_duplicated_packets")]
    pub no_copy: u64,
    /// Packets that were sent without their planned corruption.
    #[serde(rename = "not_corrupted_packets")]
    pub not_corrupted: u64,
    /// Packets whose verdict the kernel refused, for example because it had already dropped them.
    #[serde(rename = "refused_packets")]
    pub refused: u64,
    /// Packets that were already redirected to this process when it stopped.
    #[serde(rename = "late_packets")]
    pub untaken: u64,
    /// Packets that the egress interface dropped.
    #[serde(rename = "interface_dropped_packets")]
    pub behind: u64,
    /// Packets that the scheduler dropped for an unplanned reason.
    #[serde(rename = "scheduler_fault_packets")]
    pub broken: u64,
}

impl OwnDrops {
    /// The sum of all causes.
    pub fn sum(&self) -> u64 {
        self.causes().iter().map(|(packets, _)| packets).sum()
    }

    /// A sentence for each cause with packets.
    pub fn why(&self) -> impl Iterator<Item = String> {
        let causes = self
            .causes()
            .into_iter()
            .filter(|(packets, _)| *packets > 0);
        causes.map(|(packets, what)| format!("{packets} {what}"))
    }

    fn causes(&self) -> [(u64, &'static str); 9] {
        [
            (
                self.no_place,
                "packets were dropped because the maximum number of packets waited: raise --max-packets",
            ),
            (
                self.no_capacity,
                "packets were dropped because the transmit ring was full: send smaller bursts, or use --via nfqueue",
            ),
            (
                self.no_link,
                "packets were dropped because the egress link was down: set it up and restart the run",
            ),
            (
                self.no_copy,
                "duplicates could not be sent: lower --duplicate, or send smaller bursts",
            ),
            (
                self.not_corrupted,
                "packets were sent without their corruption because some of their bytes were missing: disable the sender's offloads (ethtool -K IF tx off)",
            ),
            (
                self.refused,
                "packets were dropped by the kernel while they waited: check whether an interface or a rule was removed",
            ),
            (
                self.untaken,
                "packets were in transit to this process when it stopped",
            ),
            (
                self.behind,
                "packets were dropped by the egress interface: check its link and the speed of its peer",
            ),
            (
                self.broken,
                "packets were dropped by the scheduler for an unknown reason: report this bug with the command and the seed",
            ),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn causes_are_distinguished_and_summed() {
        let own = OwnDrops {
            no_place: 2,
            no_link: 3,
            ..OwnDrops::default()
        };
        assert_eq!(own.sum(), 5);
        let [place, link] = &own.why().collect::<Vec<_>>()[..] else {
            panic!("{own:?}");
        };
        assert!(place.starts_with("2 ") && place.contains("--max-packets"));
        assert!(link.starts_with("3 ") && link.contains("down") && !link.contains("--max-packets"));
        assert_eq!(OwnDrops::default().why().count(), 0);
    }

    #[test]
    fn every_field_is_a_cause() {
        let json = serde_json::to_value(OwnDrops::default()).unwrap();
        let fields = json.as_object().unwrap().len();
        assert_eq!(OwnDrops::default().causes().len(), fields);
    }
}
