//! From a frame to the metadata of policies, with the parser and rules of the packet path.

use super::Meta;
use crate::image::TooManyRules;
use crate::{Config, Frame, Monitor, Rules};

/// The end whose class counts (`enum fp_end`): packets towards subscribers belong to their
/// receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum End {
    /// The sender.
    Sender = 0,
    /// The receiver.
    Receiver = 1,
}

/// Capacity of its tables in flows: none are tracked.
const FLOWS: u32 = 8;

/// Parser and rules without a monitor.
///
/// ```
/// use fairpath_core::sched::{Classifier, End};
/// use fairpath_core::{Frame, Prefix, Rules};
///
/// let mut classifier = Classifier::new(10);
/// let prefixes = vec![(Prefix::new("192.0.2.0".parse().unwrap(), 24), 7)];
/// classifier.set_rules(&Rules { prefixes, ..Rules::default() }).unwrap();
/// let mut ip = [0; 28];
/// (ip[0], ip[3], ip[9]) = (0x45, 28, 17);
/// ip[12..20].copy_from_slice(&[198, 51, 100, 1, 192, 0, 2, 1]);
/// let frame = Frame { wire_len: 28, link: fairpath_core::Link::Raw as u16, ..Frame::default() };
/// let (meta, is_ip) = classifier.look(&frame, &ip, End::Receiver);
/// assert_eq!((meta.class_id, is_ip), (7, true));
/// assert_eq!(classifier.look(&frame, &ip, End::Sender).0.class_id, 0);
/// ```
#[derive(Debug)]
pub struct Classifier {
    monitor: Monitor,
}

impl Classifier {
    /// Supports classes 1 to `classes`; no rule selects any yet. Hashes of flows are those of
    /// [`Meta::with_flow_hash`].
    pub fn new(classes: u32) -> Classifier {
        Classifier::with_seed(classes, 0)
    }

    /// The same with another seed of the hashes, for live packets: secret, so that no sender can
    /// choose flows that share a queue with others.
    pub fn with_seed(classes: u32, seed: u64) -> Classifier {
        let config = Config {
            seed,
            ..Config::default().with_flows(FLOWS).with_classes(classes)
        };
        Classifier {
            monitor: Monitor::new(&config),
        }
    }

    /// Activates rules; their slots are class numbers.
    ///
    /// # Errors
    /// [`TooManyRules`]; then the old rules stay active.
    pub fn set_rules(&mut self, rules: &Rules) -> Result<(), TooManyRules> {
        self.monitor.set_rules(rules, &[])
    }

    /// The metadata of a frame for policies, from its first bytes `head`. False if it is not a
    /// whole IP packet, which has no class. Takes about 30 ns plus the look-ups of the rules.
    pub fn look(&mut self, frame: &Frame, head: &[u8], end: End) -> (Meta, bool) {
        let mut meta = Meta::default();
        let is_ip = self.monitor.look(frame, head, end, &mut meta);
        (meta, is_ip)
    }
}
