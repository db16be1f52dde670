//! The leaf of a class, split by DSCP into the tins of CAKE.
//!
//! ```text
//! class (fq_codel)   -->   class (tins) --+-- class (voice)         weight  4, up to 25 % first
//!                                         +-- class (bulk)          weight  1, up to 6.25 %
//!                                         '-- class (best effort)   weight 16, the rest
//! ```
//!
//! Thresholds and DSCPs are those of `diffserv3` and `diffserv4` in tc-cake(8). The policy is
//! `bpf/policy/tins.c`.

use super::classes::here;
use super::draft::{Match, NodeDraft, dscp_number};

/// The policy that ranks tins.
const POLICY: &str = "tins";

/// The tins of a class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Diffserv {
    /// One for all packets.
    #[default]
    BestEffort,
    /// Bulk, best effort, voice.
    Diffserv3,
    /// Bulk, best effort, video, voice.
    Diffserv4,
}

/// A tin: its name, its threshold in parts of 16, and the DSCPs in it; none for all others.
type Tin = (&'static str, u64, &'static [&'static str]);

const BULK: Tin = ("bulk", 1, &["CS1", "LE"]);
const REST: Tin = ("best effort", 16, &[]);

impl Diffserv {
    /// All, by their names in the configuration.
    pub const NAMES: [(&str, Diffserv); 3] = [
        ("besteffort", Diffserv::BestEffort),
        ("diffserv3", Diffserv::Diffserv3),
        ("diffserv4", Diffserv::Diffserv4),
    ];

    fn tins(self) -> &'static [Tin] {
        match self {
            Diffserv::BestEffort => &[],
            // DSCP 4 is the bit "minimize delay" of the former TOS byte, which ssh sets.
            Diffserv::Diffserv3 => &[("voice", 4, &["CS7", "CS6", "EF", "VA", "4"]), BULK, REST],
            Diffserv::Diffserv4 => &[
                ("voice", 4, &["CS7", "CS6", "EF", "VA", "CS5", "CS4"]),
                (
                    "video",
                    8,
                    &[
                        "AF41", "AF42", "AF43", "AF31", "AF32", "AF33", "CS3", "AF21", "AF22",
                        "AF23", "CS2", "4",
                    ],
                ),
                BULK,
                REST,
            ],
        }
    }

    /// The leaf, or the node that takes its place with its tins. `unique` makes names of nodes.
    pub(super) fn split(
        self,
        leaf: NodeDraft,
        unique: impl Fn(&str) -> String,
    ) -> impl Iterator<Item = NodeDraft> {
        let tin = |(name, weight, dscps): &Tin| {
            let number = |dscp: &&str| dscp_number(dscp).map(u32::from);
            let mut dscps: Vec<_> = (dscps.iter().filter_map(number))
                .map(|dscp| here(Match::Number(dscp)))
                .collect();
            if dscps.is_empty() {
                dscps.push(here(Match::Rest));
            }
            NodeDraft {
                place: leaf.place.clone(),
                name: unique(&format!("{} ({name})", leaf.name)),
                parent: Some(here(leaf.name.clone())),
                policy: leaf.policy.clone(),
                weight: Some(*weight),
                dscps,
                ..NodeDraft::default()
            }
        };
        let tins: Vec<NodeDraft> = self.tins().iter().map(tin).collect();
        let policy = match self {
            Diffserv::BestEffort => leaf.policy.clone(),
            _ => Some(here(POLICY.to_owned())),
        };
        std::iter::once(NodeDraft { policy, ..leaf }).chain(tins)
    }
}
