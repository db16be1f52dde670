//! From a frame to what policies see of it, by the same parser and rules as the packet path.

use super::Meta;
use crate::image::TooManyRules;
use crate::{Config, Frame, Monitor, Rules};

/// Whose class counts (`enum fp_end`): what leaves towards subscribers belongs to who receives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum End {
    /// Whoever sends.
    Sender = 0,
    /// Whoever receives.
    Receiver = 1,
}

/// Flows that its tables have room for: none are followed.
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
    /// Room for classes 1 to `classes`; no rule leads to any yet.
    pub fn new(classes: u32) -> Classifier {
        let config = Config::default().with_flows(FLOWS).with_classes(classes);
        Classifier {
            monitor: Monitor::new(&config),
        }
    }

    /// Puts rules into force; their slots are class numbers.
    ///
    /// # Errors
    /// [`TooManyRules`]; then the old rules stay active.
    pub fn set_rules(&mut self, rules: &Rules) -> Result<(), TooManyRules> {
        self.monitor.set_rules(rules, &[])
    }

    /// What policies see of a frame whose first bytes are `head`; false where it is no whole IP
    /// packet, which has no class. Some 30 ns, and what the rules cost.
    pub fn look(&mut self, frame: &Frame, head: &[u8], end: End) -> (Meta, bool) {
        let mut meta = Meta::default();
        let is_ip = self.monitor.look(frame, head, end, &mut meta);
        (meta, is_ip)
    }
}
