//! What was dropped against the plan by the port itself, by cause, each with a remedy.

use serde::Serialize;

/// Packets by cause; a port that has no part in one leaves it 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct OwnDrops {
    /// As many waited as may.
    pub no_place: u64,
    /// The ring of the interface that they leave by was full.
    pub no_room: u64,
    /// The link that they leave by was down or gone.
    pub no_link: u64,
    /// Second ones that could not be sent.
    pub no_copy: u64,
    /// Left whole, and were to be damaged.
    pub not_damaged: u64,
    /// The kernel refused them: it had dropped them itself, or could not read the order to send them.
    pub refused: u64,
    /// Changed on their way here already when nobody took them any more.
    pub untaken: u64,
    /// Dropped by the interface that they left by.
    pub behind: u64,
    /// Dropped by the scheduler for no reason that a plan has.
    pub broken: u64,
}

impl OwnDrops {
    /// All of them.
    pub fn sum(&self) -> u64 {
        self.causes().iter().map(|(packets, _)| packets).sum()
    }

    /// A sentence for each cause that there is.
    pub fn why(&self) -> impl Iterator<Item = String> {
        let there = self
            .causes()
            .into_iter()
            .filter(|(packets, _)| *packets > 0);
        there.map(|(packets, what)| format!("{packets} {what}"))
    }

    fn causes(&self) -> [(u64, &'static str); 9] {
        [
            (
                self.no_place,
                "packets were dropped for lack of room: as many waited as may; raise --packets",
            ),
            (
                self.no_room,
                "packets were dropped since the ring of the interface that they leave by was full; send less at once, or use --via nfqueue",
            ),
            (
                self.no_link,
                "packets were to leave by a link that was down; set it up, and begin again",
            ),
            (
                self.no_copy,
                "second packets could not be sent; lower --duplicate, or send less at once",
            ),
            (
                self.not_damaged,
                "packets left whole that were to be damaged, for not all of their bytes were there; turn off the sender's offloads (ethtool -K IF tx off)",
            ),
            (
                self.refused,
                "packets were dropped by the kernel while they waited here; did an interface or a rule go?",
            ),
            (
                self.untaken,
                "packets were on their way here when nobody took them any more",
            ),
            (
                self.behind,
                "packets were dropped by the interface that they left by; is its link up, and its other end fast enough?",
            ),
            (
                self.broken,
                "packets were dropped by the scheduler without a reason, which is a fault of this program; report it with the command and the seed",
            ),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn causes_are_told_apart_and_summed() {
        let own = OwnDrops {
            no_place: 2,
            no_link: 3,
            ..OwnDrops::default()
        };
        assert_eq!(own.sum(), 5);
        let [place, link] = &own.why().collect::<Vec<_>>()[..] else {
            panic!("{own:?}");
        };
        assert!(place.starts_with("2 ") && place.contains("--packets"));
        assert!(link.starts_with("3 ") && link.contains("down") && !link.contains("--packets"));
        assert_eq!(OwnDrops::default().why().count(), 0);
    }

    #[test]
    fn every_field_is_a_cause() {
        let json = serde_json::to_value(OwnDrops::default()).unwrap();
        let fields = json.as_object().unwrap().len();
        assert_eq!(OwnDrops::default().causes().len(), fields);
    }
}
